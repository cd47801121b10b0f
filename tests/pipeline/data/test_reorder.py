"""penstock reorder: the same graph under other numbers, against NumPy; fewer bytes, as predicted; what is wrong is told."""
import csv

import numpy as np
from harness import *
from importing import Scratch
from small_disk import SmallDisk

ORDERS = "access", "hotness", "degree", "bfs", "metis"
HYPERION = os.path.join(ROOT, "pipelines/hyperion.json")


def manifest(path):
    with open(os.path.join(path, "dataset.json")) as f:
        return json.load(f)


def array(path, name):
    return np.load(os.path.join(path, name + ".npy"))


def reorder(a, b, by, *args, code=0):
    return command("reorder", a, b, "--by", by, "--quiet", *map(str, args), code=code)


def edges(path, old):
    """Every edge by old ids, with what it has, sorted."""
    ptr, columns = array(path, "indptr"), []
    for name in ("relations", "edge_weights", "edge_times"):
        if name in manifest(path)["arrays"]:
            columns.append(array(path, name).view(np.int32))
    target, source = np.repeat(np.arange(len(old)), np.diff(ptr)), array(path, "indices")
    assert np.all((np.diff(source) >= 0) | (np.diff(target) > 0)), "lists ascend"
    rows = np.stack([old[target], old[source], *columns])
    return rows[:, np.lexsort(rows[::-1])]


def is_same(a, b):
    """b has what a has, by b's old ids; returns these."""
    old, identity = array(b, "old_ids"), np.arange(manifest(a)["vertices"])
    assert np.array_equal(np.sort(old), identity)
    assert np.array_equal(edges(a, identity), edges(b, old))
    have = manifest(a)["arrays"]
    assert set(manifest(b)["arrays"]) == set(have) | {"old_ids"}
    for name in set(have) & {"labels", "ids", "multilabels", "targets", "vertex_times"}:
        assert np.array_equal(array(a, name)[old], array(b, name), equal_nan=name == "targets"), name
    for name in ("train", "val", "test", "edges_train", "edges_val", "negatives_val"):
        if name in have:
            assert np.array_equal(array(a, name), old[array(b, name)]), name
    if "features" in have:
        dim = manifest(a)["feature_dim"]
        rows = array(b, "features")
        assert np.array_equal(array(a, "features")[old][:, :dim], rows[:, :dim]) and not rows[:, dim:].any()
    for k, t in enumerate(manifest(a).get("vertex_types", [])):
        first = sum(u["vertices"] for u in manifest(a)["vertex_types"][:k])
        mine = old[first:first + t["vertices"]] - first
        assert np.array_equal(np.sort(mine), np.arange(t["vertices"])), "a type's vertices stay together"
        if t["feature_dim"]:
            assert np.array_equal(array(a, f"features_{k}")[mine], array(b, f"features_{k}"))
    said = command("verify", b, "--same-as", a, "--quiet").stdout
    assert f"the same as {a}, but for the numbers of {int((old != identity).sum())} of {len(old)} vertices" in said, said
    return old


@test
def every_order_has_the_same_graph():
    with Place() as p:
        a, typed, weighted = p.path("a"), p.path("typed"), p.path("weighted")
        command("gen", "rmat", a, "--vertices", 2000, "--edges", 20000, "--features", 16, "--train-count", 400, "--seed", 3, "--quiet")
        command("gen", "rmat", weighted, "--vertices", 500, "--edges", 4000, "--features", 3, "--edge-weights", "--seed", 4, "--quiet")
        command("gen", "typed", typed, "--vertices", 1500, "--seed", 2, "--quiet")
        for data in (a, typed, weighted):
            found = set()
            for by in ORDERS:
                b = p.path("b")
                said = reorder(data, b, by, "--force", "--batch", 64).stdout
                assert f"by {by}" in said and "an epoch reads about" in said, said
                found.add(is_same(data, b).tobytes())
                assert manifest(b)["penstock_dataset"] == 10 and manifest(b)["provenance"]["reordered"]["by"] == by
            assert len(found) == len(ORDERS), "the orders differ"
        again = p.path("again")
        reorder(b, again, "degree", "--batch", 64)  # old ids are those of the first dataset, and `same` knows two of them
        is_same(weighted, again)
        assert "the same as" in command("verify", again, "--same-as", b, "--quiet").stdout
        degree = np.bincount(array(a, "indices"), minlength=2000)
        reorder(a, b, "degree", "--force")
        assert np.all(np.diff(degree[array(b, "old_ids")]) <= 0)


@test
def all_arrays_are_carried():
    rng, n = np.random.default_rng(1), 400
    with Scratch() as s:
        ends = rng.integers(0, n, (2, 3000))
        s.arrays("x", edges=ends, edge_times=rng.integers(0, 99, 3000).astype(np.int32), vertex_times=rng.integers(0, 99, n).astype(np.int32),
                 feat=rng.normal(size=(n, 5)).astype("f4"), targets=rng.normal(size=(n, 2)).astype("f4"),
                 train_idx=np.arange(0, n, 2), val_idx=np.arange(1, n, 4))
        s.get("npy", s.path("x"))
        old_out = s.path("first")
        os.rename(s.path("out"), old_out)
        assert {"edge_times", "vertex_times", "targets"} <= set(manifest(old_out)["arrays"])
        reorder(old_out, s.path("b"), "access", "--batch", 16)
        is_same(old_out, s.path("b"))
        # names, relations and triples; there is no train split, and no features
        s.put("kg/train.txt", "".join(f"e{h}\tr{r}\tthing {t}\n" for h, r, t in rng.integers(0, 60, (500, 3))))
        for name in ("valid", "test"):
            s.put(f"kg/{name}.txt", "e1\tr1\te2\n")
        s.get("triples", s.path("kg"))
        kg, b = s.path("out"), s.path("kb")
        assert "because there are no training vertices" in reorder(kg, b, "metis").stdout
        old = is_same(kg, b)

        def names(path):
            text, at = array(path, "names").tobytes(), array(path, "names_at")
            return [text[at[i]:at[i + 1]] for i in range(len(at) - 1)]
        assert [names(kg)[v] for v in old] == names(b)
        mapped = array(b, "triples_train")
        mapped[:, [0, 2]] = old[mapped[:, [0, 2]]]
        assert np.array_equal(mapped, array(kg, "triples_train"))
        for name in ("relation_names", "relation_names_at"):
            assert np.array_equal(array(kg, name), array(b, name))
        r = reorder(kg, s.path("no"), "access", code=2)
        assert "no vertices in its train split" in r.stderr, r.stderr


@test
def exports_have_the_old_ids():
    with Place() as p:
        for kind, args in (("rmat", ("--vertices", 300, "--edges", 2000, "--features", 3)), ("typed", ("--vertices", 300, "--features", 8))):
            a, b = p.path("a" + kind), p.path("b" + kind)
            command("gen", kind, a, *map(str, args), "--seed", 1, "--quiet")
            reorder(a, b, "degree", "--batch", 32)
            tables = []
            for data in (a, b):
                command("export", data, data + ".csv", "--format", "csv", "--quiet")
                tables.append({name: sorted(csv.reader(open(os.path.join(data + ".csv", name))))
                               for name in os.listdir(data + ".csv") if name.endswith(".csv") and name != "vertices.csv"})
            assert tables[0] == tables[1], [name for name in tables[0] if tables[0][name] != tables[1].get(name)]
            assert len(tables[0]) > 2
            n = manifest(b)["vertices"]  # as of `penstock infer`, whose rows are in the order of the numbers
            np.save(p.path("rows.npy"), np.arange(n))
            command("export", b, b + ".rows", "--rows", p.path("rows.npy"), "--quiet")
            with open(os.path.join(b + ".rows", "rows.csv")) as f:
                rows = list(csv.reader(f))[1:]
            first = np.zeros(n, int) if kind == "rmat" else np.concatenate(
                [np.full(t["vertices"], sum(u["vertices"] for u in manifest(b)["vertex_types"][:k])) for k, t in enumerate(manifest(b)["vertex_types"])])
            assert [int(r[-2]) for r in rows] == (array(b, "old_ids") - first).tolist()


@test
def fewer_bytes_as_predicted():
    with Place() as p:
        a, b, c = p.path("a"), p.path("b"), p.path("c")
        command("gen", "rmat", a, "--vertices", 12000, "--edges", 120000, "--features", 16, "--train-count", 2000, "--seed", 3, "--quiet")
        told = json.loads(command("inspect", a, "--reorder", "all", "--json", "--quiet", "--batch", "256", "--block", "512").stdout)
        assert set(told["orders"]) == {"now", *ORDERS} and told["cached"] == 0 and told["batches"] == 8
        orders = told["orders"]
        assert orders["access"]["bytes"] <= 0.6 * orders["now"]["bytes"], orders
        table = command("inspect", a, "--reorder", "access", "--quiet", "--batch", "256", "--block", "512").stdout
        assert table.count("access") == 1 and f'{100 * orders["access"]["bytes"] / orders["now"]["bytes"]:.1f} %' in table, table
        reorder(a, b, "access", "--batch", 256)
        read = {}
        for data in (a, b):
            r = p.run(HYPERION, "--epochs", "2", "--quiet", "--seed", "2", "--set", "params.batch=256", "--set", "stages.disk.params.backend=pread",
                      "--set", "stages.planner.params.cpu_cache=0", data=data)
            io = r.report["io"]
            read[data] = io["bytes"]
        block = json.loads(command("inspect", a, "--reorder", "access", "--json", "--quiet", "--batch", "256").stdout)  # the file system's
        # two epochs were read, which the order does not know
        for data, order in ((a, "now"), (b, "access")):
            assert abs(read[data] / 2 / block["orders"][order]["bytes"] - 1) < 0.02, (data, read, block)
        assert read[b] < 0.7 * read[a]
        # with a plan: its batches, and its cached rows
        plan = p.run(HYPERION, "--epochs", "1", "--quiet", "--seed", "1", "--set", "params.batch=256",
                     "--set", "stages.planner.params.cpu_cache=128KiB", data=a)
        path = os.path.join(plan.run_dir, "plan/plan.json")
        told = json.loads(command("inspect", a, "--reorder", "access", "--json", "--quiet", "--plan", path).stdout)
        assert told["cached"] == 2048 and told["missed"] < told["rows"] and told["orders"]["access"]["bytes"] < told["orders"]["now"]["bytes"]
        reorder(a, c, "access", "--plan", path)
        is_same(a, c)
        assert set(array(c, "old_ids")[:2048]) == set(np.load(os.path.join(plan.run_dir, "plan/cache.npy"))), "cached rows come first"
        for args, text in ((("--plan", path, "--batch", 3), "--plan says what --batch would say"),):
            assert text in reorder(a, p.path("no"), "access", *args, code=2).stderr
        assert "make a plan of this dataset" in reorder(b, p.path("no"), "access", "--plan", path, code=2).stderr
        with open(path) as f:
            damaged = json.load(f) | {"vertices": 24000}
        with open(path, "w") as f:
            json.dump(damaged, f)
        assert "has 24000 vertices, but its dataset" in reorder(a, p.path("no"), "hotness", "--plan", path, code=2).stderr


@test
def caches_lie_side_by_side():
    with Place() as p:
        a, b, c = p.path("a"), p.path("b"), p.path("c")
        command("gen", "rmat", a, "--vertices", 12000, "--edges", 120000, "--features", 16, "--train-count", 2000, "--seed", 3, "--quiet")

        def cached(data):
            """The plan of a run, and the vertices whose rows and lists it caches."""
            r = p.run(HYPERION, "--epochs", "1", "--quiet", "--set", "params.topology=ssd", "--set", "params.batch=256",
                      "--set", "stages.planner.params.cpu_cache=160KiB", data=data)
            plan = os.path.join(r.run_dir, "plan")
            return os.path.join(plan, "plan.json"), *(np.load(os.path.join(plan, f"{name}.npy")) for name in ("cache", "lists"))

        plan, rows, lists = cached(a)
        only = np.setdiff1d(lists, rows)
        assert len(rows) > 200 and len(lists) > 200 and len(only) > 20, (len(rows), len(lists), len(only))
        reorder(a, b, "hotness", "--plan", plan)
        old = is_same(a, b)
        assert set(old[:len(rows)]) == set(rows) and set(old[len(rows):len(rows) + len(only)]) == set(only)
        assert np.ptp(np.argsort(old)[lists]) == len(lists) - 1, "cached lists lie side by side"
        _, rows_then, lists_then = cached(b)
        assert len(np.intersect1d(old[rows_then], rows)) > 0.95 * len(rows) and np.median(rows_then) < len(rows)
        assert np.quantile(rows_then, 0.95) < 1.2 * len(rows) and np.quantile(lists_then, 0.95) < 1.2 * (len(rows) + len(only))
        # without a plan: by counts alone. Each training vertex is once in an epoch, and no neighbours are drawn
        reorder(a, c, "hotness", "--fanout", 0)
        train = np.sort(array(a, "train"))
        assert np.array_equal(array(c, "old_ids"), np.concatenate([train, np.setdiff1d(np.arange(12000), train)]))


@test
def a_graph_larger_than_memory():
    """Its lists are read ahead while batches are drawn. The batches, and so the order, stay the same."""
    with Place() as p:
        a, b, c = p.path("a"), p.path("b"), p.path("c")
        command("gen", "rmat", a, "--vertices", 20000, "--edges", 5000000, "--features", 4, "--train-count", 2000, "--quiet")
        said = [reorder(a, to, "hotness", "--memory", memory).stdout for to, memory in ((b, "18M"), (c, "1G"))]
        assert os.path.getsize(os.path.join(a, "indices.npy")) > 18 << 20
        assert np.array_equal(array(b, "old_ids"), array(c, "old_ids"))
        epoch = [s[s.index("an epoch reads"):] for s in said]
        assert epoch[0] == epoch[1], epoch


@test
def bytes_in_gaps_are_told():
    with Place() as p:
        a, b = p.path("a"), p.path("b")
        command("gen", "rmat", a, "--vertices", 5000, "--edges", 20000, "--features", 128, "--train-count", 500, "--quiet")
        said = reorder(a, b, "access", "--batch", 64, "--block", 512).stdout  # rows of a block each, which come closer
        assert "take more bytes between them" in said and f"`penstock inspect {a} --reorder access --gap-bytes 0`" in said, said
        said = reorder(a, b, "access", "--batch", 64, "--block", 512, "--gap-bytes", 0, "--force").stdout
        assert "between them" not in said and "(100.0 %)" in said, said


@test
def training_learns_the_same():
    with Place() as p:
        a, b = p.path("a"), p.path("b")
        command("gen", "community", a, "--vertices", 3000, "--seed", 7, "--quiet")
        reorder(a, b, "access")
        accuracy = [p.run(HYPERION, "--epochs", "4", "--quiet", "--seed", "2", data=d).report["test_accuracy"] for d in (a, b)]
        assert accuracy[0] > 0.6 and abs(accuracy[0] - accuracy[1]) < 0.05, accuracy


@test
def little_memory_and_packed_rows():
    with Place() as p:
        a, b, c = p.path("a"), p.path("b"), p.path("c")
        command("gen", "rmat", a, "--vertices", 30000, "--edges", 60000, "--features", 100, "--train-count", 300, "--seed", 1, "--quiet")
        assert manifest(a)["stride_bytes"] == 400
        reorder(a, b, "degree")
        reorder(a, c, "degree", "--memory", 17 << 20)  # 12 MB of features go through a temporary file
        assert {k: v["xxh3"] for k, v in manifest(b)["arrays"].items()} == {k: v["xxh3"] for k, v in manifest(c)["arrays"].items()}
        assert not [n for n in os.listdir(p.dir) if "partial" in n]
        reorder(a, c, "degree", "--pack", "--force")
        assert manifest(c)["stride_bytes"] == 512
        is_same(a, c)
        assert command("verify", c, "--same-as", b, "--quiet").stdout.count("the same as") == 1
        d = p.path("d")
        command("gen", "rmat", d, "--vertices", 300, "--edges", 900, "--features", 16, "--stride-bytes", 512, "--stripes", 2, "--quiet")
        reorder(d, c, "bfs", "--pack", "--force")
        assert manifest(c)["stride_bytes"] == 64 and len(manifest(c)["stripes"]) == 2
        assert "the same as" in command("verify", c, "--same-as", d, "--quiet").stdout


@test
def what_differs_is_told():
    with Place() as p:
        a, b, other = p.path("a"), p.path("b"), p.path("other")
        gen = lambda out, *args: command("gen", "rmat", out, "--vertices", "300", "--edges", "2000", "--features", "4", "--edge-weights", "--quiet", "--force", *map(str, args))
        gen(a)
        reorder(a, b, "bfs")

        def differs(text):
            r = command("verify", b, "--same-as", other, "--quiet", code=2)
            assert text in r.stderr, r.stderr
        command("features", a, other, "--dim", 4, "--seed", 9, "--quiet")
        differs("differ in features of the vertex with old id")
        shutil.copytree(b, p.path("twice"))
        with open(os.path.join(p.path("twice"), "old_ids.npy"), "r+b") as f:
            f.seek(4096)
            f.write(np.int64(array(b, "old_ids")[1]).tobytes())
        assert f"the id {array(b, 'old_ids')[1]} is there a second time" in command("verify", p.path("twice"), "--quiet", code=2).stderr
        command("split", a, other, "--train", 0.5, "--seed", 5, "--quiet", "--force")
        differs("train of")
        gen(other, "--seed", 2)
        differs("differ in indices of the vertex with old id")
        gen(other, "--classes", 3)
        differs("has 3 classes, but")
        gen(other, "--edges", 1999)
        differs("has 1999 edges, but")
        # one weight of one edge
        shutil.rmtree(other)
        shutil.copytree(a, other)
        path = os.path.join(other, "edge_weights.npy")
        with open(path, "r+b") as f:
            f.seek(4096 + 400)
            f.write(np.float32(0.123).tobytes())
        differs("differ in indices of the vertex with old id")


@test
def mistakes_are_told():
    with Place() as p:
        a, b = p.path("a"), p.path("b")
        command("gen", "rmat", a, "--vertices", 300, "--edges", 2000, "--features", 4, "--quiet")
        for args, text in (((a, b), "expected --by, one of access, hotness, degree, bfs or metis"),
                           ((a, b, "--by", "size"), 'expected access, hotness, degree, bfs or metis; found "size"'),
                           ((a, b, "--by", "all"), 'found "all"'),
                           ((a, "--by", "bfs"), "expected the arguments DATASET DIR, found 1 arguments"),
                           ((a, a, "--by", "bfs"), "are the same directory"),
                           ((a, a + "/../a", "--by", "bfs", "--force"), "are the same directory"),
                           ((b, p.path("c"), "--by", "bfs"), "dataset.json"),
                           ((a, b, "--by", "bfs", "--memory", "1M"), "too few for 300 vertices: expected at least"),
                           ((a, b, "--by", "metis", "--memory", "20M"), "too few for METIS and 300 vertices"),
                           ((a, b, "--by", "bfs", "--block", "1000"), "--block: expected a power of two"),
                           ((a, b, "--by", "bfs", "--split", "none"), "split"),
                           ((a, b, "--by", "bfs", "--algorithm", "none"), "none"),
                           ((a, b, "--by", "bfs", "--fanout", "x"), "--fanout"),
                           ((a, b, "--by", "bfs", "--json"), "reorder has no option --json"),
                           ((a, b, "--by", "bfs", "--nonsense"), "invalid option")):
            r = command("reorder", *map(str, args), code=2)
            assert text in r.stderr, (args, r.stderr)
            assert not os.path.exists(b) and not [n for n in os.listdir(p.dir) if ".penstock" in n]
        for args, text in (((a, "--reorder", "size"), "metis, or all"), ((a, "--reorder", "bfs", "--force"), "inspect has no option --force"),
                           ((a, "--pack"), "--pack works only with --reorder")):
            assert text in command("inspect", *args, code=2).stderr
        os.mkdir(b)
        open(os.path.join(b, "mine"), "w").close()
        assert b in command("reorder", a, b, "--by", "bfs", "--force", code=2).stderr and os.listdir(b) == ["mine"]
        bare = p.path("bare")
        command("gen", "rmat", bare, "--vertices", 300, "--edges", 2000, "--features", 0, "--quiet")
        assert "has no features" in command("inspect", bare, "--reorder", "all", "--quiet", code=2).stderr
        assert "no prediction of what an epoch reads, because there are no features" in reorder(bare, p.path("c"), "bfs").stdout


@test
def a_full_disk():
    with Place() as p:
        a = p.path("a")
        command("gen", "rmat", a, "--vertices", 30000, "--edges", 60000, "--features", 100, "--train-count", 300, "--quiet")
        with SmallDisk(p, "tmpfs") as disk:
            r = reorder(a, os.path.join(disk.at, "b"), "degree", code=1)
            assert "features" in r.stderr and ("room" in r.stderr or "space" in r.stderr or "free" in r.stderr), r.stderr
            assert os.listdir(disk.at) == []


if __name__ == "__main__":
    main()
