"""What a run with embeddings answers: `penstock neighbours` and `penstock predict` against NumPy, from memory and from
partitions."""
import numpy as np
import embedding as whole
from embedding import *
from harness import *

PARTITIONS = os.path.join(ROOT, "pipelines", "settings", "marius", "partitions.json")


def trained(p, data, partitions, **more):
    """A run, and what `penstock export` says of it."""
    args = whole.settings(**{"links[1].slots": 3, **more})
    if partitions > 1:
        args = ["--with", PARTITIONS, *whole.settings(**{"params.partitions": partitions, "params.buffer": 2, "params.order": "beta",
                                                         "params.piece": "4KiB", **more})]
    r = p.run(MARIUS, *args, "--epochs", 2, data=data)
    out = r.run_dir + "-out"
    command("export", r.run_dir, out, "--quiet")
    relations = os.path.join(out, "relations.npy")
    load = lambda path: np.load(path).astype(np.float64)
    return r.run_dir, load(os.path.join(out, "vertices.npy")), load(relations) if os.path.exists(relations) else np.zeros((0, DIM))


def names_of(data):
    at, text = np.load(os.path.join(data, "names_at.npy")), np.load(os.path.join(data, "names.npy")).tobytes()
    return [text[a:b].decode() for a, b in zip(at, at[1:])]


def relation_names(data):
    at, text = np.load(os.path.join(data, "relation_names_at.npy")), np.load(os.path.join(data, "relation_names.npy")).tobytes()
    return [text[a:b].decode() for a, b in zip(at, at[1:])]


def lines(result):
    return [line.split("\t") for line in result.stdout.splitlines()]


SIMILARITY = {"cosine": lambda a, x: x @ a / np.sqrt((x * x).sum(1) * (a @ a)), "dot": lambda a, x: x @ a,
              "l2": lambda a, x: -np.sqrt(((x - a) ** 2).sum(1))}


@test
def neighbours_are_those_of_numpy():
    with Place() as p:
        data = knowledge_graph(p)
        names = names_of(data)
        for partitions in (1, 5):
            run, rows, _ = trained(p, data, partitions)
            for metric, similarity in SIMILARITY.items():
                given = [names[11], names[3], names[11]]
                got = lines(command("neighbours", run, *given, "--k", 6, "--metric", metric))
                assert [g[0] for g in got] == [g for g in given for _ in range(6)], got
                for i, name in enumerate(given):
                    v = names.index(name)
                    score = similarity(rows[v], rows)
                    score[v] = -np.inf
                    best = np.argsort(-score)[:6]
                    assert [g[1] for g in got[6 * i:6 * i + 6]] == [names[b] for b in best], (partitions, metric, got)
                    assert np.allclose([float(g[2]) for g in got[6 * i:6 * i + 6]], score[best], rtol=1e-7)
            # more than there are; the metric that is the default
            got = lines(command("neighbours", run, names[0], "--k", 1000))
            assert sorted(g[1] for g in got) == sorted(names[1:]) and float(got[0][2]) <= 1


@test
def wrong_questions_are_told():
    with Place() as p:
        data = knowledge_graph(p)
        run, _, _ = trained(p, data, 1)
        other = knowledge_graph(p, relations=2)
        os.makedirs(p.path("none"))
        os.makedirs(p.path("gnn/checkpoints"))
        for args, want in (((run, "v1", "nobody"), 'has no vertex "nobody"'), ((run,), "expected a run and at least one vertex"),
                           ((run, "v1", "--metric", "l3"), "expected cosine, dot or l2"), ((run, "v1", "--k", "0"), "--k"),
                           ((run, "v1", "--k", "1001"), "--k"), ((p.path("none"), "v1"), "checkpoint"),
                           ((run, "v1", "--dataset", other), "is not the dataset of")):
            assert want in command("neighbours", *args, code=2).stderr, (args, want)
        for text, want in (("v1\tr0\tv2\nv1\tr0\tnobody\n", 'asked.tsv:2: '), ("v1\tr9\tv2\n", "a relation of the dataset, found 'r9'"),
                           ("?\tr0\t?\n", "because the source is ?"), ("v1\tv2\n", "expected the columns source, relation and destination, found 2 columns"),
                           ("v1\tr0\tv2\nv1\tr0\n", "asked.tsv:2")):
            with open(p.path("asked.tsv"), "w") as f:
                f.write(text)
            assert want in command("predict", run, p.path("asked.tsv"), code=2).stderr, want
        assert "found 1 arguments" in command("predict", run, code=2).stderr
        assert "none.tsv" in command("predict", run, p.path("none.tsv"), code=None).stderr
        os.remove(os.path.join(run, "report.json"))
        assert "give --dataset DIR" in command("neighbours", run, "v1", code=2).stderr
        assert len(lines(command("neighbours", run, "v1", "--dataset", data))) == 10
        gnn = p.run(os.path.join(ROOT, "pipelines", "hyperion.json"), "--epochs", 1, "--quiet")
        assert "is not a checkpoint of embeddings of vertices" in command("neighbours", gnn.run_dir, "1", code=2).stderr


def query(model, anchor, rel, backwards):
    a, r = halves(anchor), halves(rel) if model == "complex" else rel
    if model == "dot":
        return anchor
    if model == "distmult":
        return anchor * rel
    if model == "complex":
        return flat(a * (r.conj() if backwards else r))
    if model == "rotate":
        return flat(a * np.exp(-1j * r if backwards else 1j * r))
    return anchor - rel if backwards else anchor + rel


def scores(model, q, rows):
    if model in ("dot", "distmult", "complex"):
        return rows @ q
    if model == "rotate":
        return -np.abs(halves(rows) - halves(q)).sum(1)
    return -(np.abs(rows - q).sum(1) if model == "transe-l1" else np.sqrt(((rows - q) ** 2).sum(1)))


def scores_of(model, inverse, rows, relations, edge):
    """Of all vertices in place of ?, or of the destination."""
    s, r, o = edge
    source = s == "?"
    rel = relations[r + (len(relations) // 2 if source and inverse else 0)] if len(relations) else None
    return scores(model, query(model, rows[o if source else s], rel, source and not inverse), rows)


@test
def predictions_are_those_of_numpy():
    """Lines of all kinds, in one file, for every model; the queries have single precision, so scores differ a bit."""
    with Place() as p:
        data = knowledge_graph(p)
        names, rng = names_of(data), np.random.default_rng(3)
        edges = [(int(a), int(r), int(b)) for a, r, b in zip(rng.integers(0, 37, 30), rng.integers(0, 3, 30), rng.integers(0, 37, 30))]
        edges = [("?", r, b) if i % 3 == 0 else (a, r, "?") if i % 3 == 1 else (a, r, b) for i, (a, r, b) in enumerate(edges)]
        relation = relation_names(data)
        name = lambda v: "?" if v == "?" else names[v]
        with open(p.path("asked.tsv"), "w") as f:
            f.writelines(f"{name(s)}\t{relation[r]}\t{name(o)}\n" for s, r, o in edges)
        for model, inverse, partitions in (("complex", True, 5), ("complex", False, 1), ("distmult", True, 1), ("transe-l1", False, 1),
                                           ("transe-l2", True, 1), ("rotate", False, 5), ("dot", False, 1)):
            run, rows, relations = trained(p, data, partitions, **{"params.model": model, "params.inverse": json.dumps(inverse)})
            got = lines(command("predict", run, p.path("asked.tsv"), "--k", 4))
            for s, r, o in edges:
                want, k = scores_of(model, inverse, rows, relations, (s, r, o)), 4 if "?" in (s, o) else 1
                answers, got = got[:k], got[k:]
                for a in answers:
                    filled = [names.index(a[0]), a[1], names.index(a[2])]
                    assert (s in ("?", filled[0])) and (o in ("?", filled[2])) and a[1] == relation[r], (a, s, r, o)
                    assert abs(float(a[3]) - want[filled[0] if s == "?" else filled[2]]) < 1e-5, (model, a, want)
                found = np.array([float(a[3]) for a in answers])
                best = np.sort(want)[::-1][:k] if k > 1 else [want[o]]
                assert np.allclose(found, best, atol=1e-5) and (np.diff(found) <= 0).all(), (model, answers, want)
            assert not got


@test
def predictions_have_the_ranks_of_evaluation():
    with Place() as p:
        data = knowledge_graph(p)
        run, rows, _ = trained(p, data, 5)
        names, relation = names_of(data), relation_names(data)
        triples = {part: np.load(os.path.join(data, f"triples_{part}.npy")).tolist() for part in ("train", "val", "test")}
        known = {(names[s], relation[r], names[o]) for rows in triples.values() for s, r, o in rows}
        ranks = []
        for s, r, o in triples["test"]:
            for source, destination in (("?", names[o]), (names[s], "?")):
                with open(p.path("one.csv"), "w") as f:
                    f.write(f"{source},{relation[r]},{destination}\n")
                true = [names[s], relation[r], names[o]]
                got = [g[:3] for g in lines(command("predict", run, p.path("one.csv"), "--k", 37)) if g[:3] == true or tuple(g[:3]) not in known]
                ranks.append(1 + got.index(true))
        with open(os.path.join(run, "report.json")) as f:
            assert np.isclose(json.load(f)["test_mrr"], np.mean(1 / np.array(ranks)), rtol=1e-9)


@test
def edges_without_relations_are_pairs_of_numbers():
    with Place() as p:
        os.makedirs(p.path("source"))
        rng = np.random.default_rng(2)
        pairs = rng.integers(0, 30, (120, 2)).astype(np.int32)
        for name, array in (("edges", pairs.T), ("edges_train", pairs), ("edges_val", pairs[:3]), ("edges_test", pairs[3:5])):
            np.save(p.path(f"source/{name}.npy"), array)
        with open(p.path("source/meta.json"), "w") as f:
            json.dump({"kept": ["edges_train", "edges_val", "edges_test"], "num_nodes": 30}, f)
        command("import", "npy", p.path("source"), p.path("graph"), "--quiet")
        run, rows, relations = trained(p, p.path("graph"), 1, **{"params.model": "dot", "params.inverse": "false"})
        with open(p.path("asked.tsv"), "w") as f:
            f.write("\n7\t?\n?\t12\n7\t12\n")
        got = lines(command("predict", run, p.path("asked.tsv"), "--k", 3))
        assert [len(g) for g in got] == [3] * 7 and got[6][:2] == ["7", "12"] and np.isclose(float(got[6][2]), rows[7] @ rows[12])
        assert [int(g[1]) for g in got[:3]] == np.argsort(-rows @ rows[7])[:3].tolist()
        assert [int(g[0]) for g in got[3:6]] == np.argsort(-rows @ rows[12])[:3].tolist()
        # more lines than a group has
        many = rng.integers(0, 30, (5000, 2))
        np.savetxt(p.path("many.tsv"), many, "%d", "\t")
        got = np.array(lines(command("predict", run, p.path("many.tsv"), "--k", 1000)), float)
        assert np.array_equal(got[:, :2], many) and np.allclose(got[:, 2], (rows[many[:, 0]] * rows[many[:, 1]]).sum(1))
        for text, want in (("7\t30\n", 'asked.tsv:1: '), ("7\t12\n007\t1\n", 'has no vertex "007"'), ("1\t0\t2\n", "because the dataset has no relations")):
            with open(p.path("asked.tsv"), "w") as f:
                f.write(text)
            assert want in command("predict", run, p.path("asked.tsv"), code=2).stderr, want
        assert [g[0] for g in lines(command("neighbours", run, "7", "--k", 2))] == ["7", "7"]


if __name__ == "__main__":
    main()
