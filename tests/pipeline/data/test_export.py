"""What is exported comes back: arrays and text of many kinds of datasets make the same dataset again, checksum for checksum."""
import numpy as np
from harness import *
from importing import *


def entries(path):
    """Every array of a dataset with its checksum, wherever dataset.json has it."""
    with open(os.path.join(path, "dataset.json")) as f:
        m = json.load(f)
    out = {k: v["xxh3"] for k, v in m["arrays"].items()}
    out |= {f"type {t['name']}": t["features"]["xxh3"] for t in m.get("vertex_types", []) if "features" in t}
    out |= {f"split {s['name']} {part}": s[part]["xxh3"] for s in m.get("splits", []) for part in ("train", "val", "test") if part in s}
    counts = {k: m.get(k) for k in ("name", "vertices", "edges", "feature_dim", "classes", "stride_bytes", "relation_types", "edge_types")}
    return out, counts, [s["name"] for s in m.get("splits", [])]


def there_and_back(s, of="out", formats=("npy", "csv"), args={}):
    """of -> export -> import: the same arrays and counts."""
    shutil.rmtree(s.path("source"), ignore_errors=True)
    os.rename(s.path(of), s.path("source"))
    for kind in formats:
        shutil.rmtree(s.path("x"), ignore_errors=True)
        command("export", s.path("source"), s.path("x"), "--format", kind, "--quiet")
        s.get(kind, s.path("x"), *args.get(kind, ()))
        want, got = entries(s.path("source")), entries(s.path("out"))
        for is_, was in zip(got, want):
            assert is_ == was, (kind, [k for k in was if k not in is_ or is_[k] != was[k]], [k for k in is_ if k not in was])


@test
def generated():
    with Scratch() as s:
        for dtype in "float32", "float16", "bfloat16":
            shutil.rmtree(s.path("d"), ignore_errors=True)
            command("gen", "community", s.path("d"), "--vertices", 600, "--seed", 4, "--quiet")
            command("convert", s.path("d"), s.path("out"), "--dtype", dtype, "--force", "--quiet")
            there_and_back(s)
        command("gen", "rmat", s.path("out"), "--vertices", 300, "--edges", 2000, "--quiet", "--force")
        there_and_back(s)  # no labels, no splits, vertices without edges


@test
def values_that_are_hard_to_write():
    with Scratch() as s:
        hard = np.array([[0.1, -0.0, 1e-45, 3.4028235e38], [1 / 3, 16777217, -1.17549435e-38, 1e6], [np.pi, 123456.79, 2**-149 * 3, -5]], np.float32)
        rng = np.random.default_rng(1)
        random = rng.integers(0, 2**32, (500, 4), np.uint64).astype(np.uint32).view(np.float32)
        random[~np.isfinite(random)] = 1
        halves = rng.integers(0, 2**16, (500, 4), np.uint64).astype(np.uint16).view(np.float16)
        halves[~np.isfinite(halves)] = 2
        for values in hard, random, halves:
            s.arrays("g", edges=np.array([[0, 1], [1, 2]]), feat=values)
            s.get("npy", s.path("g"), "--edge-shape", "2xE")
            there_and_back(s)


@test
def names_and_ids():
    """Vertices keep their numbers, also those that are in no edge; names with everything that csv must quote."""
    with Scratch() as s:
        text = 'b,"a, ""x"""\nb,\u00e4\n"",b\n" blank ",b\n"tab\t",a\n'
        s.get("csv", s.put("e", text), "--ids", "strings", "--header", "no")
        there_and_back(s)
        s.get("csv", s.put("e", "10,700\n5,700\n9,9\n"), "--ids", "compact", "--self-loops", "remove")
        assert s.rows() == [[], [], [], [0, 2]]
        there_and_back(s)


@test
def names_that_memory_does_not_hold():
    """The names of vertices.csv are looked up in several passes: the same numbers as in one."""
    rng = np.random.default_rng(3)
    with Scratch() as s:
        text = "".join(f"http://a-rather-long-name/{a}/{a * 7919},http://a-rather-long-name/{b}/{b * 7919}\n" for a, b in rng.integers(0, 200_000, (160_000, 2)).tolist())
        s.get("csv", s.put("e", text), "--ids", "strings", "--header", "no")
        n = len(s.names())
        there_and_back(s, formats=("csv",), args={"csv": ("--memory", "12MiB")})
        assert len(s.names()) == n
        lines = "".join(f'"{name}",{k % 5}\n' for k, name in enumerate(s.names()))
        s.get("csv", s.path("e"), "--ids", "strings", "--header", "no", "--memory", "12MiB", "--labels", s.put("l.csv", "vertex,label\n" + lines))
        assert s.array("labels").tolist() == [k % 5 for k in range(n)]


KG = {"train.txt": "a\tlikes\tb\nb\tlikes\tc, \"d\"\na\tknows\tb\n", "valid.txt": "a\tknows\td\n", "test.txt": "d\thates\ta\nb\tlikes\ta\n"}


@test
def knowledge_graphs():
    with Scratch() as s:
        for name, text in KG.items():
            s.put("kg/" + name, text)
        s.get("triples", s.path("kg"))
        there_and_back(s)
        with open(s.path("x/triples_val.csv")) as f:
            assert f.read() == "head,relation,tail\na,knows,d\n"
        with open(s.path("x/triples_test.csv")) as f:
            assert f.read() == "head,relation,tail\nd,hates,a\nb,likes,a\n"
        for old, new, expect in (("triples_test.csv", "x,likes,a\n", "triples_test.csv:4: head: expected a vertex that is listed in vertices.csv, found 'x'"),
                                 ("triples_test.csv", "a,loves,a\n", "expected a relation that is listed in relations.csv, found 'loves'"),
                                 ("vertices.csv", "e\n", "expected 4 vertices, found 5"), ("relations.csv", "likes\n", "'likes' occurs twice")):
            whole = open(s.path("x/" + old)).read()
            s.put("x/" + old, whole + new)
            assert expect in (r := s.get("csv", s.path("x"), code=2)).stderr, (expect, r.stderr)
            s.put("x/" + old, whole)
        s.put("x/vertices.csv", "vertex\na\nb\nc\na\n")
        assert "vertices 0 and 3 have the same name 'a'" in s.get("csv", s.path("x"), code=2).stderr


def splits(n, seed):
    order = np.random.default_rng(seed).permutation(n)
    return dict(train_idx=order[:n // 2], val_idx=order[n // 2:n * 3 // 4], test_idx=order[n * 3 // 4:])


@test
def several_splits():
    with Scratch() as s:
        n = 40
        s.arrays("g", edges=np.random.default_rng(1).integers(0, n, (2, 99)), labels=np.arange(n) % 3, feat=np.ones((n, 2), np.float32))
        for k in range(11):
            s.arrays(f"g/splits/geom/{k}", **splits(n, k))
        s.arrays("g/splits/public", **splits(n, 99))
        s.get("npy", s.path("g"))
        assert entries(s.path("out"))[2] == [f"geom/{k}" for k in range(11)] + ["public"]
        there_and_back(s)
        assert entries(s.path("out"))[2][10:] == ["geom/10", "public"]


@test
def typed():
    """Types of vertices and edges, with features of their own, labels, splits."""
    with Scratch() as s:
        s.put("g/meta.json", json.dumps({"name": "t", "vertex_types": [{"name": "paper", "num_nodes": 3, "num_features": 2, "stride_bytes": 8},
                                                                       {"name": "a,b", "num_nodes": 2, "num_features": 0, "stride_bytes": 0},
                                                                       {"name": "venue", "num_nodes": 2, "num_features": 1, "stride_bytes": 16}],
                                        "edge_types": [{"name": "paper:cites:paper", "source": "paper", "target": "paper"},
                                                       {"name": "writes", "source": "a,b", "target": "paper"}, {"name": "none", "source": "venue", "target": "venue"}],
                                        "num_classes": 2, "kept": []}))
        s.arrays("g", edges_0=np.array([[0, 1, 2], [1, 2, 0]]), edges_1=np.array([[0, 1], [2, 2]]), edges_2=np.zeros((2, 0), int),
                 feat_0=np.array([[.1, 2], [3, 4], [5, 6]], np.float32), feat_2=np.array([[.5], [.25]], np.float16),
                 labels=np.array([0, 1, -1, -1, -1, 1, 0]), train_idx=np.array([1, 0]), test_idx=np.array([5, 6]))
        s.get("npy", s.path("g"))
        there_and_back(s)
        with open(s.path("x/labels.csv")) as f:
            assert f.read() == "type,vertex,label\npaper,0,0\npaper,1,1\nvenue,0,1\nvenue,1,0\n"


@test
def edges_to_predict_and_several_labels():
    with Scratch() as s:
        s.put("g/meta.json", json.dumps({"kept": ["edges_train", "edges_val", "negatives_val", "multilabels"]}))
        ids = np.int32
        s.arrays("g", edges=np.array([[0, 1, 2, 3], [1, 2, 3, 0]]), edges_train=np.array([[0, 1], [2, 3]], ids), edges_val=np.array([[3, 1]], ids),
                 negatives_val=np.array([[0, 3], [2, 0]], ids), multilabels=np.array([[0, 1, 255], [1, 1, 1], [255, 255, 255], [0, 0, 0]], np.uint8))
        s.get("npy", s.path("g"))
        there_and_back(s)


@test
def compressed_tables():
    with Scratch() as s:
        command("gen", "community", s.path("out"), "--vertices", 300, "--seed", 4, "--quiet")
        there_and_back(s)
        for name in os.listdir(s.path("x")):
            if name.endswith(".csv"):
                with open(s.path("x/" + name), "rb") as f:
                    s.put(f"x/{name}.gz", f.read())
                os.remove(s.path("x/" + name))
        s.get("csv", s.path("x"))
        assert entries(s.path("out")) == entries(s.path("source"))


main()
