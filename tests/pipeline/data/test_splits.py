"""Splits: lists and masks of many kinds, several in one dataset, from tables, by fractions; and pipelines that choose one."""
import sys

import numpy as np
from harness import *
from importing import *

sys.path.insert(0, os.path.join(ROOT, "tools", "python"))
from penstock import open_dataset

N = 30
PARTS = ("train", "val", "test")


def base(s, **more):
    shutil.rmtree(s.path("g"), ignore_errors=True)
    rng = np.random.default_rng(1)
    return s.arrays("g", edges=rng.integers(0, N, (2, 100)), labels=np.arange(N) % 3, **more)


def parts(seed):
    order = np.random.default_rng(seed).permutation(N)
    return np.sort(order[:18]), np.sort(order[18:24]), np.sort(order[24:])


def mask(ids, dtype=bool):
    out = np.zeros(N, dtype)
    out[ids] = 1
    return out


def found(s):
    return [s.array(name).tolist() for name in PARTS]


@test
def masks():
    """bool, and 0 and 1 of any type of integers; under their usual names or said; shape (V,) or (V, 1)."""
    with Scratch() as s:
        ids = parts(1)
        for dtype in bool, np.uint8, np.int8, np.int16, np.uint16, np.int32, np.uint32, np.int64:
            base(s, **{f"{name}_mask": mask(i, dtype) for name, i in zip(PARTS, ids)})
            r = s.get("npy", s.path("g"))
            assert found(s) == [i.tolist() for i in ids], dtype
            assert r.stdout.rstrip().endswith("split: train 18, val 6, test 6"), r.stdout
        base(s)
        s.arrays("g", a=mask(ids[0], np.uint8), b=mask(ids[1])[:, None], c=ids[2].astype(np.int16))
        s.get("npy", s.path("g"), *(x for name, f in zip(PARTS, "abc") for x in ("--" + name, s.path(f"g/{f}.npy"))))
        assert found(s) == [i.tolist() for i in ids]
        base(s, train_idx=np.array([3, 4], np.uint32), valid_mask=mask([5]), test=np.array([[7], [9]], np.uint16))
        s.get("npy", s.path("g"))
        assert found(s) == [[3, 4], [5], [7, 9]]


@test
def what_is_not_a_mask():
    with Scratch() as s:
        for arrays, expect in ((dict(train_mask=np.ones(N - 1, bool)), "train_mask.npy: expected a mask of 0 and 1 with one row for each of 30 vertices, found 29"),
                               (dict(train_mask=np.full(N, 2)), "found 30 rows with other values"), (dict(train_idx=np.ones(3, float)), "expected integers"),
                               (dict(train_idx=np.arange(2), train_mask=mask([1])), "train_idx.npy and "), (dict(train_mask=mask([1]), val_mask=mask([1])), "vertex 1 is already in train"),
                               (dict(train_idx=np.array([-1])), "expected 0 to 29, found -1"), (dict(train_idx=np.array([30], np.uint8)), "found 30"),
                               (dict(train_mask=np.zeros((N, 3), bool), val_mask=np.zeros((N, 2), bool)), "expected 3 columns, as in the other masks, found 2")):
            base(s, **arrays)
            assert expect in (r := s.get("npy", s.path("g"), code=2)).stderr, (expect, r.stderr)
        base(s)
        assert "no splits (`penstock split` makes them)" in s.get("npy", s.path("g")).stdout


@test
def families_of_masks():
    """(V, k) masks, as Planetoid's, Amazon's and WikiCS's data have them: k splits, and a part that all share."""
    with Scratch() as s:
        every = [parts(k) for k in range(12)]
        stack = lambda part: np.stack([mask(ids[part]) for ids in every], axis=1)
        base(s, train_mask=stack(0), val_mask=stack(1).astype(np.uint8), test_mask=stack(2))
        r = s.get("npy", s.path("g"))
        m = s.manifest()
        assert [x["name"] for x in m["splits"]] == [f"mask/{k}" for k in range(12)] and m["penstock_dataset"] == 6
        assert found(s) == [i.tolist() for i in every[0]]
        for k in range(1, 12):
            assert [s.array(f"{name}_{k}").tolist() for name in PARTS] == [i.tolist() for i in every[k]], k
        assert "split mask/11: train 18, val 6, test 6" in r.stdout and "pipelines use split mask/0" in r.stdout, r.stdout
        r = command("inspect", s.path("out"))
        assert "split mask/3: train 18 (60.00 %)" in r.stdout, r.stdout
        assert len(json.loads(command("inspect", s.path("out"), "--json").stdout)["named_splits"]) == 12
        s.get("npy", s.path("g"), "--split", "mask/7")
        assert "splits" not in s.manifest() and found(s) == [i.tolist() for i in every[7]]
        assert "unknown split; found: mask/0 mask/1" in s.get("npy", s.path("g"), "--split", "other", code=2).stderr
        disjoint = [(np.setdiff1d(a, every[0][2]), np.setdiff1d(b, every[0][2])) for a, b, _ in every[:3]]
        base(s, train_mask=np.stack([mask(a) for a, _ in disjoint], 1), val_mask=np.stack([mask(b) for _, b in disjoint], 1), test_mask=mask(every[0][2]))
        s.get("npy", s.path("g"))
        assert s.array("test").tolist() == s.array("test_2").tolist() == every[0][2].tolist()
        assert s.array("train_2").tolist() == disjoint[2][0].tolist()
        # what is damaged is found in each of them
        path = os.path.join(s.path("out"), "train_2.npy")
        with open(path, "r+b") as f:
            f.seek(4096)
            f.write((N + 5).to_bytes(8, "little"))
        assert "train_2.npy" in command("verify", "--quiet", s.path("out"), code=2).stderr
        command("rm", s.path("out"), "--quiet", code=None)


@test
def folders_of_splits():
    with Scratch() as s:
        base(s)
        for name, k in (("geom/0", 1), ("geom/10", 2), ("geom/9", 3), ("public", 4)):
            s.arrays("g/splits/" + name, **{f"{p}_idx": ids for p, ids in zip(PARTS, parts(k))})
        s.arrays("g/splits/wiki", train_mask=np.stack([mask(parts(k)[0]) for k in range(2)], 1))
        s.get("npy", s.path("g"))
        assert [x["name"] for x in s.manifest()["splits"]] == ["geom/0", "geom/9", "geom/10", "public", "wiki/0", "wiki/1"]
        assert s.array("train_1").tolist() == parts(3)[0].tolist()
        s.arrays("g", train_idx=np.array([0]))
        s.get("npy", s.path("g"))
        assert s.manifest()["splits"][0]["name"] == "default" and s.array("train").tolist() == [0]
        before = s.sums()
        ds = open_dataset(s.path("out"))
        assert ds.splits[0] == "default" and ds.split("geom/9")[1].tolist() == parts(3)[1].tolist() and ds.split("default")[2] is None
        command("convert", s.path("out"), s.path("same"), "--dtype", "float16", code=2)  # no features
        command("features", s.path("out"), s.path("with"), "--dim", 4, "--quiet")
        with open(s.path("with/dataset.json")) as f:
            assert json.load(f)["splits"] == s.manifest()["splits"]
        command("verify", "--quiet", s.path("with"))
        command("split", s.path("with"), "--train", .5, "--quiet")
        with open(s.path("with/dataset.json")) as f:
            assert "splits" not in json.load(f)
        assert not os.path.exists(s.path("with/train_1.npy"))
        command("rm", s.path("out"))
        assert not os.path.exists(s.path("out")) and before


@test
def fractions_that_add_up():
    with Scratch() as s:
        for n, fractions in ((10, (1 / 3, 1 / 3, 1 / 3)), (7, (.5, .25, .25)), (11, (.7, .1, .2)), (5, (.9, .1, 0)), (3, (0, .5, .5))):
            shutil.rmtree(s.path("out"), ignore_errors=True)
            s.arrays("g", edges=np.array([[0, 1], [1, n - 1]]))
            s.get("npy", s.path("g"), "--edge-shape", "2xE")
            command("split", s.path("out"), *(x for name, f in zip(PARTS, fractions) for x in (f"--{name}", repr(f))), "--quiet")
            ids = [v for name in PARTS if os.path.exists(s.path(f"out/{name}.npy")) for v in s.array(name).tolist()]
            assert sorted(ids) == list(range(n)), (n, fractions, sorted(ids))


NODES = 'node,kind,"w, 1",h,split\n2,1,.5,1,test\n0,0,1e-3,-2,train\n3,,7,0,validation\n1,2,-0,3.25,TRAIN\n'
COLUMNS = ("--label-column", "kind", "--feature-columns", "h,w\\, 1")


@test
def from_tables():
    """Labels, features and splits from csv: columns by name, rows in any order, ids kept, made compact, or names."""
    with Scratch() as s:
        edges, nodes = s.put("e.csv", "from,weight,to\n0,9,1\n3,9,2\n"), s.put("n.csv", NODES)
        args = [x for option in ("labels", "features", *PARTS) for x in (f"--{option}", nodes)]
        r = s.get("csv", edges, "--columns", "from,to", *args, "--label-column", "kind", "--feature-columns", "h")
        assert s.rows() == [[], [0], [3], []] and s.array("labels").tolist() == [0, 2, 1, -1]
        assert s.array("features")[:, :1].tolist() == [[-2], [3.25], [1], [0]] and found(s) == [[0, 1], [3], [2]]
        assert "split: train 2, val 1, test 1" in r.stdout
        s.get("csv", edges, "--columns", "0,2", *args, "--label-column", "kind")
        assert s.array("features")[:, :2].tolist() == [[np.float32(1e-3), -2], [-0.0, 3.25], [.5, 1], [7, 0]]
        names = {0: "zoe", 1: "al", 2: 'q"', 3: "b,c"}
        quoted = {k: '"' + v.replace('"', '""') + '"' for k, v in names.items()}
        lines = NODES.splitlines()
        text = "\n".join([lines[0]] + [quoted[int(x[0])] + x[1:] for x in lines[1:]]) + "\nnobody,1,1,1,train\n"
        s.put("e.csv", "from,weight,to\n" + f'{quoted[3]},9,{quoted[2]}\n{quoted[0]},9,{quoted[1]}\n')
        s.put("n.csv", text)
        r = s.get("csv", edges, "--columns", "from,to", "--ids", "strings", *args, "--label-column", "kind", "--feature-columns", "h")
        assert s.names() == ["b,c", 'q"', "zoe", "al"] and s.array("labels").tolist() == [-1, 1, 0, 2]
        assert s.array("features")[:, 0].tolist() == [0, 1, -2, 3.25] and found(s) == [[2, 3], [0], [1]]
        assert "1 rows were left out, because no edge has their vertex" in r.stderr, r.stderr
        s.put("e.csv", "source,target\n5,700\n700,90\n")
        s.put("n.tsv.gz", "id\tlabel\n700\t3\n5\t1\n90\t0\n")
        s.get("csv", edges, "--ids", "compact", "--labels", s.path("n.tsv.gz"), "--train", s.put("t.csv", "700\n5\n"), "--test", s.put("u.csv", "id\n90\n"))
        assert s.array("ids").tolist() == [5, 90, 700] and s.array("labels").tolist() == [1, 0, 3]
        assert s.array("train").tolist() == [2, 0] and s.array("test").tolist() == [1]
        # without a header: rows in the order of the vertices, or vertex and label
        s.put("e.csv", "0,1\n1,2\n")
        s.get("csv", edges, "--labels", s.put("l.csv", "4\n\n0\n2\n"), "--features", s.put("f.csv", "1,2\n3,4\n5,6\n"), "--train", s.put("m.csv", "train\n1\n0\ntrue\n"))
        assert s.array("labels").tolist() == [4, 0, 2] and s.array("features")[:, :2].tolist() == [[1, 2], [3, 4], [5, 6]] and s.array("train").tolist() == [0, 2]
        s.get("csv", edges, "--labels", s.put("l.csv", "2,7\n0,1\n"))
        assert s.array("labels").tolist() == [1, -1, 7]
        # beside arrays
        s.arrays("g", edges=np.array([[0, 1], [1, 2], [0, 2]]).T)
        s.get("npy", s.path("g"), "--labels", s.path("l.csv"))
        assert s.array("labels").tolist() == [1, -1, 7]


@test
def tables_refused():
    with Scratch() as s:
        edges = s.put("e.csv", "0,1\n1,2\n")
        cases = (("labels", "vertex,label\n0,1\n0,2\n", "t.csv:3: vertex: expected a vertex that no earlier row has, found '0'"),
                 ("labels", "vertex,label\n0,x\n", "t.csv:2: label: expected a label, an integer of 0 or more, or nothing, found 'x'"),
                 ("labels", "vertex,label\n3,1\n", "t.csv:2: vertex: expected a vertex from 0 to 2, found '3'"),
                 ("labels", "vertex,colour\n0,1\n", "t.csv: expected a column named label or the name given with --label-column, found vertex, colour"),
                 ("labels", "vertex,label\n0\n", "expected 2 columns, as in the first line"), ("labels", "", "expected a table, found an empty file"),
                 ("labels", "a,b\nc,d\n", "expected numbers, or the name of a column, for example vertex or label or type"),
                 ("labels", 'vertex,label\n0,"1\n', "expected a closing quote"), ("labels", "vertex,vertex\n", "two columns have the name 'vertex'"),
                 ("features", "vertex,x\n0,1\n2,1\n", "expected a row for each of 3 vertices; 1 have none: 1"), ("features", "1\n2\n3\n4\n", "too many rows: there are only 3 vertices"),
                 ("features", "vertex,x\n0,nan\n1,1\n2,1\n", "t.csv:2: x: expected a finite number, found 'nan'"), ("features", "vertex,x\n0,1e39\n1,1\n2,1\n", "expected a finite number"),
                 ("train", "colour\n1\n", "expected numbers, or the name of a column"), ("train", "id\n1\n1\n", "vertex 1 is already in train"))
        for option, text, expect in cases:
            r = s.get("csv", edges, "--" + option, s.put("t.csv", text), code=2)
            assert expect in r.stderr, (text, expect, r.stderr)
        for args, expect in ((("--columns", "a,b"), "expected a column named a, found '0,1'"), (("--columns", "a"), "--columns: expected two"), (("--columns", "a,a"), "--columns: expected two")):
            assert expect in (r := s.get("csv", edges, *args, code=2)).stderr, r.stderr


PIPELINE = os.path.join(ROOT, "pipelines", "hyperion.json")


def run(s, *args, code=0):
    report = s.path("report.json")
    r = command("run", PIPELINE, "--dataset", s.path("out"), "--epochs", 1, "--run-dir", s.path("run"), "--report", report, "--quiet",
                "--set", "params.batch=32", "--set", "params.fanout=[4,2]", *args, code=code)
    shutil.rmtree(s.path("run"), ignore_errors=True)
    if code != 0:
        return r.stderr
    with open(report) as f:
        return json.load(f)


@test
def a_pipeline_chooses_a_split():
    """params.split: seeds, plan and accuracies are those of the split that it names, and the report says which."""
    with Scratch() as s:
        command("gen", "community", s.path("d"), "--vertices", 400, "--seed", 4, "--quiet")
        command("export", s.path("d"), s.path("g"), "--quiet")
        os.remove(s.path("g/meta.json"))
        for part in PARTS:
            os.remove(s.path(f"g/{part}_idx.npy"))
        order = np.random.default_rng(2).permutation(400)
        s.arrays("g/splits/a", train_idx=order[:300], val_idx=order[300:350], test_idx=order[350:])
        s.arrays("g/splits/b/1", train_idx=order[:40], test_idx=order[300:])
        s.get("npy", s.path("g"), "--edge-shape", "2xE")
        first, same, other = run(s), run(s, "--set", "params.split=a"), run(s, "--set", "params.split=b/1")
        seeds = lambda r: r["sampler"]["batches"]
        assert seeds(first) == seeds(same) == 10 and seeds(other) == 2, (first["epochs"], other["epochs"])
        assert first["dataset"]["split"] == "a" and other["dataset"]["split"] == "b/1"
        assert first["epochs"][0]["loss"] == same["epochs"][0]["loss"] != other["epochs"][0]["loss"]
        assert other["epochs"][0].get("val_accuracy") is None and other["epochs"][0]["train_accuracy"] is not None, other["epochs"]
        assert seeds(run(s, "--set", "params.split=b/1:test")) == 4  # 100 seeds
        assert "has no split named 'c': expected train, val or test, or one of a, b/1" in run(s, "--set", "params.split=c", code=2)
        error = run(s, "--set", "params.split=b/1:val", code=2)
        assert 'no split "b/1:val"' in error and "penstock split" in error, error
        error = run(s, "--set", "stages.sampler.params.split=b/1", "--set", "stages.planner.params.split=b/1", code=2)
        assert "\", but another stage has the split \"" in error, error


main()
