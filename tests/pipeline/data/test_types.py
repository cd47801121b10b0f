"""Graphs of several types of vertices and edges: converted, exported as arrays and as text, and imported again."""
import csv

from harness import *
from importing import *

TYPES = {"user": 40, "item, \"old\"": 30, "tag": 5}
WIDTH = {"item, \"old\"": 3, "tag": 5}  # of features
KINDS = 19  # of edges: more than are written at once


def features_of(s, name, k):
    """As float32, without padding."""
    t = s.manifest()["vertex_types"][k]
    stored = np.load(s.path(f"{name}/features_{k}.npy"))
    assert not stored.view(np.uint8).reshape(len(stored), -1)[:, t["feature_dim"] * stored.itemsize:].any(), "padding"
    stored = stored[:, :t["feature_dim"]]
    if t["features"]["dtype"] == "bfloat16":
        return (stored.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32)


def typed(s):
    """A dataset at out, by GraphBolt's layout; returns its features and its edges [(type, (2, E))]."""
    rng = np.random.default_rng(7)
    names, features, edges, yaml = list(TYPES), {}, [], "graph:\n  nodes:\n"
    yaml += "".join(f"    - {{type: {json.dumps(n)}, num: {count}}}\n" for n, count in TYPES.items()) + "  edges:\n"
    for k in range(KINDS):
        a, b = names[k % 3], names[(k // 3) % 3]
        ends = np.stack([rng.integers(0, TYPES[a], 30), rng.integers(0, TYPES[b], 30)]) if k != 4 else np.zeros((2, 0), int)
        if k == 9:
            ends = edges[0][1]  # the same edges again, as another type
        edges.append((f"{a}:kind{k}:{b}", ends))
        s.arrays("g", **{f"e{k}": ends})
        yaml += f"    - {{type: {json.dumps(edges[k][0])}, format: numpy, path: e{k}.npy}}\n"
    yaml += "feature_data:\n"
    for name, dtype in zip(WIDTH, (np.float32, np.float16)):
        features[name] = rng.standard_normal((TYPES[name], WIDTH[name])).astype(dtype)
        k = names.index(name)
        s.arrays("g", **{f"f{k}": features[name]})
        yaml += f"  - {{domain: node, type: {json.dumps(name)}, name: feat, format: numpy, path: f{k}.npy}}\n"
    yaml += "tasks:\n  - name: one\n    num_classes: 7\n"
    for n, part in enumerate(("train_set", "validation_set", "test_set")):
        yaml += f"    {part}:\n"
        for k in (0, 2):
            ids = rng.permutation(TYPES[names[k]])[:2 + n] if k == 2 else np.array([3, 1]) + 5 * n
            ids = ids if k == 0 or n == 0 else np.zeros(0, int)
            s.arrays("g", **{f"s{n}{k}": ids, f"l{n}{k}": rng.integers(0, 7, len(ids))})
            yaml += f"      - {{type: {names[k]}, data: [{{name: seeds, format: numpy, path: s{n}{k}.npy}}, {{name: labels, format: numpy, path: l{n}{k}.npy}}]}}\n"
    s.put("g/metadata.yaml", yaml)
    s.get("graphbolt", s.path("g"), "--name", "x")
    return features, edges


def same(s, a, b):
    """Checksum for checksum, and in all that dataset.json says but where it comes from."""
    manifests = []
    for name in (a, b):
        with open(s.path(f"{name}/dataset.json")) as f:
            manifests.append({k: v for k, v in json.load(f).items() if k != "provenance"})
    assert manifests[0] == manifests[1], manifests


def again(s, kind, source, to, *args):
    command("import", kind, source, s.path(to), "--quiet", "--force", *args)
    command("verify", "--quiet", s.path(to))


@test
def arrays_there_and_back():
    with Scratch() as s:
        features, edges = typed(s)
        command("export", s.path("out"), s.path("x"), "--quiet")
        for k, (_, ends) in enumerate(edges):  # within their types, in the order of the dataset: by target, then source
            assert np.load(s.path(f"x/edges_{k}.npy")).T.tolist() == sorted(ends.T.tolist(), key=lambda e: e[::-1]), k
        for k, name in enumerate(TYPES):
            assert os.path.exists(s.path(f"x/feat_{k}.npy")) == (name in features)
            assert name not in features or np.array_equal(np.load(s.path(f"x/feat_{k}.npy")), features[name])
        for kind in ("npy", "graphbolt"):
            again(s, kind, s.path("x"), "back", "--name", "x")
            same(s, "out", "back")
        # what GraphBolt has no place for: a stride, and labels of vertices that are in no split
        command("convert", s.path("out"), s.path("odd"), "--stride-bytes", 60, "--quiet")
        command("split", s.path("odd"), "--train", "0.2", "--quiet")
        command("export", s.path("odd"), s.path("y"), "--quiet")
        again(s, "npy", s.path("y"), "back")
        same(s, "odd", "back")
        again(s, "graphbolt", s.path("y"), "back", "--stride-bytes", 60, "--labels", s.path("y/labels.npy"), "--classes", 7, "--name", "x")
        same(s, "odd", "back")
        assert "cover all types together; only `penstock import graphbolt` can select" in s.get("npy", s.path("x"), "--types", "tag", code=2).stderr
        assert "a dataset with several vertex types has one features file" in s.get("npy", s.path("x"), "--stripes", 2, code=2).stderr


@test
def what_an_export_says_is_looked_at():
    with Scratch() as s:
        typed(s)
        command("export", s.path("out"), s.path("x"), "--quiet")
        with open(s.path("x/meta.json")) as f:
            whole = f.read()
        for change, words in ((lambda m: m["vertex_types"][1].update(name="user"), "vertex_types[1]: 'user' occurs twice"),
                              (lambda m: m["vertex_types"][1].update(num_nodes=29), "expected one row for each of 29 vertices, found 30"),
                              (lambda m: m["vertex_types"][0].update(num_nodes=-1), "vertex_types[0].num_nodes: expected an integer from 0"),
                              (lambda m: m["vertex_types"][0].update(num_nodes=1 << 60), "vertex_types[0].num_nodes: expected an integer from 0"),
                              (lambda m: m["vertex_types"][0].update(num_nodes=30), "labels.npy: expected one row for each of 65 vertices, found 75"),
                              (lambda m: m["vertex_types"][1].update(stride_bytes=7), "a multiple of 4"),
                              (lambda m: m["vertex_types"][2].pop("name"), "vertex_types[2].name: expected a name"),
                              (lambda m: m["vertex_types"].insert(0, 5), "vertex_types[0].name: expected a name"),
                              (lambda m: m.update(vertex_types=[]), "expected lists of 1 to 64"),
                              (lambda m: m.update(vertex_types=m["vertex_types"] * 30), "expected lists of 1 to 64"),
                              (lambda m: m["edge_types"][2].update(target="thing"), "edge_types[2].target: 'thing' is not one of vertex_types"),
                              (lambda m: m["edge_types"][2].update(name="x" * 500), "edge_types[2].name: expected a name of 1 to"),
                              (lambda m: m["edge_types"].append(m["edge_types"][0]), "edges_19.npy")):
            m = json.loads(whole)
            change(m)
            s.put("x/meta.json", json.dumps(m))
            r = s.get("npy", s.path("x"), code=None)
            assert r.returncode in (1, 2) and words in r.stderr, (words, r.stderr)
        s.put("x/meta.json", whole)
        np.save(s.path("x/edges_0.npy"), np.array([[0], [40]]))
        assert "edges_0.npy: target of edge 0: expected 0 to 39, found 40" in s.get("npy", s.path("x"), code=2).stderr


@test
def text_of_every_type():
    with Scratch() as s:
        _, edges = typed(s)
        command("export", s.path("out"), s.path("x"), "--format", "csv", "--quiet")
        rows = lambda name: list(csv.reader(open(s.path(f"x/{name}.csv"), newline="")))
        for k, (_, ends) in enumerate(edges):
            assert [[int(i) for i in row] for row in rows(f"edges_{k}")] == sorted(ends.T.tolist(), key=lambda e: e[::-1]), k
        first, names = {}, list(TYPES)
        for name in names:
            first[name] = sum(TYPES[n] for n in names[:len(first)])
        labels, got = s.array("labels"), rows("labels")
        assert got[0] == ["type", "vertex", "label"] and len(got) == 1 + (labels >= 0).sum()
        assert all(labels[first[t] + int(v)] == int(label) for t, v, label in got[1:])
        got = rows("train_idx")
        assert got[0] == ["type", "vertex"] and [first[t] + int(v) for t, v in got[1:]] == s.array("train").tolist()
        np.save(s.path("r.npy"), np.arange(75))
        command("export", s.path("out"), s.path("y"), "--rows", s.path("r.npy"), "--quiet")
        got = list(csv.reader(open(s.path("y/rows.csv"), newline="")))
        assert got[0] == ["type", "vertex", "0"] and [first[t] + int(v) for t, v, _ in got[1:]] == [int(row[2]) for row in got[1:]] == list(range(75))
        again(s, "graphbolt", s.path("x"), "back")  # the graph alone
        for name in ("indptr", "indices", "relations"):
            with open(s.path(f"out/{name}.npy"), "rb") as a, open(s.path(f"back/{name}.npy"), "rb") as b:
                assert a.read() == b.read(), name


@test
def features_of_every_type_are_converted():
    with Scratch() as s:
        features, _ = typed(s)
        command("split", s.path("out"), s.path("same"), "--train", "0.1", "--quiet")  # other commands leave them alone
        assert [t.get("features") for t in s.manifest()["vertex_types"]] == [
            t.get("features") for t in json.load(open(s.path("same/dataset.json")))["vertex_types"]]
        arrays = s.manifest()["arrays"]
        for dtype, error in (("float32", 0), ("float16", 2 ** -10), ("bfloat16", 2 ** -7)):
            for args in ([], ["--stride-bytes", 64]):
                said = command("convert", s.path("out"), s.path("c"), "--dtype", dtype, "--force", "--quiet", *args).stdout
                command("verify", "--quiet", s.path("c"))
                os.replace(s.path("out"), s.path("kept"))
                os.replace(s.path("c"), s.path("out"))
                for k, name in enumerate(TYPES):
                    t = s.manifest()["vertex_types"][k]
                    assert ("features" in t) == (name in features) and f"{name}: {TYPES[name]} rows of" in said or name == "user"
                    if name in features:
                        assert t["features"]["dtype"] == dtype and (not args or t["stride_bytes"] == 64)
                        got = features_of(s, "out", k)
                        assert np.abs(got - features[name]).max() <= error * np.abs(features[name]).max(), (dtype, name)
                assert s.manifest()["arrays"] == arrays
                os.replace(s.path("out"), s.path("c"))
                os.replace(s.path("kept"), s.path("out"))
        r = command("convert", s.path("out"), s.path("no"), "--stride-bytes", 8, code=2)
        assert "type item, \"old\"" in r.stderr and "from 12 (3 columns of float32)" in r.stderr, r.stderr
        r = command("convert", s.path("out"), s.path("no"), "--stripes", 2, code=2)
        assert "the features of each type are in one file" in r.stderr and not os.path.exists(s.path("no")), r.stderr


@test
def edges_that_are_not_of_their_types_are_told():
    with Scratch() as s:
        typed(s)
        for name, value, words in (("relations", 1, "whose types do not match"), ("relations", 19, "relations.npy: entry 0: expected 0 to 18, found 19"),
                                   ("relations", -1, "found -1"), ("indices", 75, "indices.npy: entry 0: expected 0 to 74, found 75"),
                                   ("indices", -7, "found -7")):
            shutil.copytree(s.path("out"), s.path("bad"))
            with open(s.path(f"bad/{name}.npy"), "r+b") as f:
                f.seek(4096)
                f.write(np.int32(value).tobytes())
            for form in ("npy", "csv"):
                r = command("export", s.path("bad"), s.path("x"), "--format", form, "--quiet", code=2)
                assert words in r.stderr and not os.path.exists(s.path("x")), (words, r.stderr)
            shutil.rmtree(s.path("bad"))


if __name__ == "__main__":
    main()
