"""Import of published sets' layouts (OGB's npz, IGB, MAG240M, GraphBolt, Marius), made by hand and small: orientation,
shapes, splits, types."""
import pickle
import sys
import zipfile

from harness import *
from importing import *

sys.dont_write_bytecode = True
os.environ["PENSTOCK_PYTHON"] = sys.executable
WIDE = np.array(EDGES).T.copy()  # (2, E)
TALL = np.array(EDGES)  # (E, 2)
FEATURES = np.arange(12, dtype=np.float32).reshape(4, 3) - 5
LABELS = np.array([1, np.nan, 0, 2], np.float32)


def splits(s):
    return [s.array(n).tolist() if os.path.exists(s.path(f"out/{n}.npy")) else None for n in ("train", "val", "test")]


def ogb_npz(s, data={}, label={}):
    shutil.rmtree(s.path("o"), ignore_errors=True)
    for k, ids in {"train": "3\n0\n", "valid": "2\n", "test": "1\n"}.items():
        s.put(f"o/split/time/{k}.csv.gz", ids)
    os.makedirs(s.path("o/raw"))
    members = dict(edge_index=WIDE, node_feat=FEATURES, node_year=np.ones((4, 1), int), num_nodes_list=np.array([4]),
                   num_edges_list=np.array([3])) | data
    np.savez(s.path("o/raw/data.npz"), **{k: v for k, v in members.items() if v is not None})
    np.savez_compressed(s.path("o/raw/node-label.npz"), **({"node_label": LABELS[:, None]} | label))
    return s.path("o")


@test
def npz_of_ogb():
    with Scratch() as s:
        s.get("ogb", ogb_npz(s))
        assert s.rows() == ROWS and s.array("labels").tolist() == [1, -1, 0, 2] and splits(s) == [[3, 0], [2], [1]]
        assert np.array_equal(s.array("features")[:, :3], FEATURES)
        cases = [(dict(data={"edge_index": TALL}), "o/raw/data.npz (edge_index.npy): OGB stores edges in shape 2xE, but this array has shape (3, 2)"),
                 (dict(data={"num_edges_list": np.array([4])}), "num_edges_list gives 4 edges, but edge_index has 3"),
                 (dict(data={"num_nodes_list": np.array([5])}), "expected one row for each of 5 vertices, found 4"),
                 (dict(data={"num_nodes_list": np.array([2, 2])}), "several graphs"),
                 (dict(data={"num_nodes_list": np.array([4.0])}), "expected a single count"),
                 (dict(data={"edge_index": WIDE + 1}), "(edge_index.npy): source of edge 2: expected 0 to 3, found 4"),
                 (dict(data={"edge_index": None}), "member edge_index.npy is missing"),
                 (dict(data={"edge_index": WIDE.astype(float)}), "expected integers (int8 to int64, uint8 to uint32), found float64"),
                 (dict(data={"node_feat": FEATURES[:3]}), "node_feat.npy): expected one row for each of 4 vertices, found 3"),
                 (dict(label={"node_label": LABELS + .5}), "the label is not an integer from -1 to")]
        for changed, expect in cases:
            r = s.get("ogb", ogb_npz(s, **changed), code=None)
            assert r.returncode in (1, 2) and expect in r.stderr, (expect, r.stderr)
        s.get("ogb", ogb_npz(s, data={"edge_index": TALL}), "--edge-shape", "Ex2")
        assert s.rows() == ROWS


@test
def tasks_of_ogb():
    """Several labels a vertex (ogbn-proteins), links to predict (ogbl-*)."""
    with Scratch() as s:
        s.put("o/raw/edge.csv.gz", lines(","))
        s.put("o/raw/num-node-list.csv.gz", "4\n")
        s.put("o/raw/num-edge-list.csv.gz", "3\n")
        s.put("o/raw/node-label.csv.gz", "0,1\n1,1\nnan,0\n0,0\n")
        s.get("ogb", s.path("o"))
        assert s.array("multilabels").tolist() == [[0, 1], [1, 1], [255, 0], [0, 0]] and s.manifest()["classes"] == 0
        s.put("o/raw/node-label.csv.gz", "0,1\n1,2\n0,0\n0,0\n")
        r = s.get("ogb", s.path("o"), code=2)
        assert "node-label.csv.gz: row 1, column 1: expected 0, 1 or nan" in r.stderr, r.stderr
        s.get("ogb", ogb_npz(s, label={"node_label": np.array([[0, np.nan], [1, 0], [1, 1], [0, 0]])}))
        assert s.array("multilabels").tolist() == [[0, 255], [1, 0], [1, 1], [0, 0]] and s.manifest()["penstock_dataset"] == 3
        shutil.rmtree(s.path("o/split"))
        os.remove(s.path("o/raw/node-label.npz"))
        os.makedirs(s.path("o/split/target"))
        torch_file(s.path("o/split/target/train.pt"), {"edge": np.array(EDGES)})
        torch_file(s.path("o/split/target/valid.pt"), {"edge": np.array([[1, 2]]), "edge_neg": np.array([[2, 2], [3, 0]])})
        torch_file(s.path("o/split/target/test.pt"), {"source_node": np.array([0, 3]), "target_node": np.array([1, 2]),
                                                     "target_node_neg": np.array([[2, 3], [0, 1]])})
        s.get("ogb", s.path("o"))
        assert s.array("edges_train").tolist() == [list(e) for e in EDGES] and s.array("edges_val").tolist() == [[1, 2]]
        assert s.array("negatives_val").tolist() == [[2, 2], [3, 0]] and s.array("edges_test").tolist() == [[0, 1], [3, 2]]
        assert s.array("negatives_test").tolist() == [[0, 2], [0, 3], [3, 0], [3, 1]]
        for value, expect in (({"edge": np.array([[0, 4]])}, "valid.pt (edge): target of edge 0: expected 0 to 3, found 4"),
                              ({"edge": np.array([0, 1])}, "valid.pt (edge): expected shape (n, 2)"), ({"x": 1}, "valid.pt: expected the keys edge, or source_node"),
                              ({"edge": np.array([[0., 1.]])}, "edge: expected integers (int8 to int64, uint8 to uint32), found float64")):
            torch_file(s.path("o/split/target/valid.pt"), value)
            r = s.get("ogb", s.path("o"), code=2)
            assert expect in r.stderr, (expect, r.stderr)


@test
def triples_as_an_array():
    with Scratch() as s:
        rows = np.array([(0, 2, 1), (0, 0, 2), (3, 2, 1)], np.int32)
        r = s.get("npy", s.arrays("n", edges=rows), code=2)
        assert "found (3, 3): --edge-shape Ex3 reads rows of source, relation, target" in r.stderr
        s.get("npy", s.path("n"), "--edge-shape", "Ex3")
        assert s.rows() == ROWS and s.array("relations").tolist() == [2, 2, 0] and s.manifest()["relation_types"] == 3
        r = s.get("npy", s.arrays("n", edges=rows - [0, 1, 0]), "--edge-shape", "Ex3", code=2)
        assert "relation of edge 1: expected 0 to 2147483646, found -1" in r.stderr
        r = s.get("npy", s.arrays("n", edges=WIDE[:, :2]), "--edge-shape", "Ex3", code=2)
        assert "--edge-shape is Ex3, but the array has shape (2, 2)" in r.stderr


def igb(s, **changed):
    shutil.rmtree(s.path("i"), ignore_errors=True)
    base = dict(paper__cites__paper__edge_index=TALL, paper__node_feat=FEATURES, paper__node_label_19=LABELS) | changed
    return s.arrays("i/processed", **{k.replace("paper__cites__paper__", "paper~cites~paper__"): v
                                      for k, v in base.items() if v is not None})


def rename_relations(folder):
    for name in os.listdir(folder):
        if "~" in name:
            os.rename(os.path.join(folder, name), os.path.join(folder, name.replace("~", "__")))
    return os.path.dirname(folder)


@test
def layout_of_igb():
    with Scratch() as s:
        s.get("igb", rename_relations(igb(s)))
        assert s.rows() == ROWS and np.array_equal(s.array("features")[:, :3], FEATURES)
        assert s.array("labels").tolist() == [1, -1, 0, 2] and splits(s) == [[0], None, [2, 3]]  # of 3: 1, 0, and the rest
        assert s.manifest()["classes"] == 19 and s.manifest()["penstock_dataset"] == 1
        labels = np.arange(10) % 7
        s.get("igb", rename_relations(igb(s, paper__node_label_19=None, paper__node_label_2K=labels.astype(float),
                                          paper__node_feat=np.ones((10, 3), np.float32))))
        assert s.manifest()["classes"] == 2983 and splits(s) == [[0, 1, 2, 3, 4, 5], [6, 7], [8, 9]]
        s.get("igb", s.path("i/processed"), "--split", "none")
        assert splits(s) == [None] * 3
        r = s.get("igb", rename_relations(igb(s, paper__cites__paper__edge_index=WIDE)), code=2)
        assert "IGB stores edges in shape Ex2, but this array has shape (2, 3): --edge-shape 2xE reads it" in r.stderr
        s.get("igb", s.path("i"), "--edge-shape", "2xE")
        assert s.rows() == ROWS
        s.get("igb", rename_relations(igb(s, paper__cites__paper__edge_index=TALL[:2])))  # (2, 2): the format says which
        assert s.rows() == [[], [0], [0], []]
        r = s.get("igb", s.path("i"), "--classes", 7, code=2)
        assert "IGB has 19 or 2983" in r.stderr


@test
def headerless_files_of_igb():
    """The large and full sets: memory maps that are called .npy."""
    with Scratch() as s:
        features = np.random.default_rng(1).random((4, 1024), np.float32)
        rename_relations(igb(s, paper__node_feat=None, paper__node_label_19=None))
        s.put("i/processed/paper/node_feat.npy", features.tobytes())
        s.put("i/processed/paper/node_label_19.npy", np.array([3, 18, -1, 0], np.float32).tobytes())
        s.get("igb", s.path("i"))
        assert s.rows() == ROWS and np.array_equal(s.array("features")[:, :1024], features)
        assert s.array("labels").tolist() == [3, 18, -1, 0] and splits(s) == [[0], None, [1, 3]]
        s.put("i/processed/paper/node_feat.npy", features.tobytes()[:-4])
        assert "not a whole number of rows of 1024 float32: is it truncated?" in s.get("igb", s.path("i"), code=2).stderr
        s.put("i/processed/paper/node_feat.npy", features.tobytes()[:-4096])
        assert "expected one row for each of 3 vertices, found 4" in s.get("igb", s.path("i"), code=2).stderr
        s.put("i/processed/paper/node_feat.npy", features.tobytes())
        s.get("igb", s.path("i"), "--feature-dim", 512, code=2)
        s.put("i/processed/paper/node_label_19.npy", np.array([3, 19, 1, .5], np.float32).tobytes())
        r = s.get("igb", s.path("i"), code=2)
        assert "vertex 1: expected -1 (none) to 18, found 19" in r.stderr and "vertex 3: the label is not an integer from -1 to" in r.stderr


def typed_rows(s):
    """{(source type, source), relation} of each vertex, by type and number in it, whatever ids are."""
    m, rel = s.manifest(), s.array("relations")
    names, at = [], 0
    for t in m["vertex_types"]:
        names += [(t["name"], k) for k in range(t["vertices"])]
    indptr, indices = s.array("indptr"), s.array("indices")
    return {names[v]: [(*names[indices[i]], m["edge_types"][rel[i]]["name"]) for i in range(indptr[v], indptr[v + 1])]
            for v in range(len(names)) if indptr[v + 1] > indptr[v]}


@test
def types_of_igb():
    with Scratch() as s:
        rename_relations(igb(s))
        s.arrays("i/processed/paper__written_by__author", edge_index=np.array([[0, 1], [3, 0]]))
        s.arrays("i/processed/author", node_feat=np.ones((2, 5), np.float16))
        r = s.get("igb", s.path("i"))
        assert s.rows() == ROWS and "with --types paper, these were left out: paper:written_by:author" in r.stderr
        assert "/node_label_19.npy (IGB's val split): the split is empty" in r.stderr, r.stderr
        r = s.get("igb", s.path("i"), "--types", "all")
        assert typed_rows(s) == {("paper", 1): [("paper", 0, "paper:cites:paper"), ("paper", 3, "paper:cites:paper")],
                                 ("paper", 2): [("paper", 0, "paper:cites:paper")],
                                 ("author", 0): [("paper", 3, "paper:written_by:author")],
                                 ("author", 1): [("paper", 0, "paper:written_by:author")]}
        m = s.manifest()
        assert m["penstock_dataset"] == 3 and m["feature_dim"] == 0
        assert [(t["feature_dim"], t["features"]["dtype"]) for t in m["vertex_types"]] == [(3, "float32"), (5, "float16")]
        assert np.array_equal(np.load(s.path("out/features_0.npy"))[:, :3], FEATURES)
        assert s.array("labels").tolist() == [1, -1, 0, 2, -1, -1] and splits(s) == [[0], None, [2, 3]]
        sys.path.insert(0, os.path.join(ROOT, "tools", "python"))
        import penstock
        ds = penstock.open_dataset(s.path("out"))
        assert ds.vertex_types == {"paper": (0, 4), "author": (4, 6)} and ds.edge_types[1] == ("paper:written_by:author", "paper", "author")
        assert np.array_equal(ds.features_of("paper"), FEATURES) and ds.features_of("author").shape == (2, 5)
        said = command("inspect", s.path("out")).stdout
        assert "paper:written_by:author" in said and "from paper to author" in said and "features 5 x float16" in said
        r = s.get("igb", s.path("i"), "--types", "all", "--symmetrize", code=2)
        assert "each has a direction" in r.stderr
        r = s.get("igb", s.path("i"), "--types", "all", "--link", code=2)
        assert "--link cannot be used with several vertex types" in r.stderr
        r = s.get("igb", s.path("i"), "--types", "paper,writer", code=2)
        assert "expected all, or some of paper, author" in r.stderr and "found 'writer'" in r.stderr
        s.arrays("i/processed/paper__written_by__author", edge_index=np.array([[0, 1], [3, 2]]))
        r = s.get("igb", s.path("i"), "--types", "all", code=2)
        assert "target of edge 1: expected 0 to 1, found 2" in r.stderr


@test
def a_run_says_what_it_cannot_use():
    with Scratch() as s:
        rename_relations(igb(s))
        s.arrays("i/processed/paper__written_by__author", edge_index=np.array([[0, 1], [3, 0]]))
        s.get("igb", s.path("i"), "--types", "all")
        os.environ["PYTHONPATH"] = os.path.join(ROOT, "tools", "python")
        r = command("run", os.path.join(ROOT, "pipelines", "pytorch.json"), "--dataset", s.path("out"), "--run-dir", s.path("run"), code=2)
        assert "stages.trainer: dataset" in r.stderr and "has 2 types of vertices, and a stage graphsage cannot use types" in r.stderr, r.stderr
        assert "--types NAME" in r.stderr and not os.path.exists(s.path("run"))
        r = s.get("igb", s.path("i"), "--types", "all", "--stripes", "2", code=2)
        assert "--stripes: a dataset with several vertex types" in r.stderr, r.stderr


@test
def types_are_verified():
    with Scratch() as s:
        rename_relations(igb(s))
        s.arrays("i/processed/paper__written_by__author", edge_index=np.array([[0, 1], [3, 0]]))
        s.get("igb", s.path("i"), "--types", "all")
        path = s.path("out/relations.npy")
        with open(path, "rb") as f:
            data = bytearray(f.read())
        data[4096] ^= 1  # the first edge's type
        s.put("out/relations.npy", bytes(data))
        assert "checksum" in command("verify", "--quiet", s.path("out"), code=2).stderr
        m = s.manifest()
        m["arrays"]["relations"]["xxh3"] = xxh3(bytes(data))
        s.put("out/dataset.json", json.dumps(m))
        assert "whose types do not match" in command("verify", "--quiet", s.path("out"), code=2).stderr

        def twice(m):
            m["vertex_types"][1]["name"] = m["edge_types"][1]["target"] = "paper"
        for change, expect in ((lambda m: m["vertex_types"][0].update(vertices=3), "features.shape: expected 3 rows, found 4"),
                               (lambda m: m["edge_types"].pop(), "edge_types: expected 2"),
                               (lambda m: m["edge_types"][0].update(source="x"), "'x' is not one of vertex_types"),
                               (twice, "occurs twice"),
                               (lambda m: m["arrays"].pop("relations"), "arrays.relations is missing: it holds the type of each edge"),
                               (lambda m: m.update(penstock_dataset=2), "unknown key 'vertex_types'")):
            n = json.loads(json.dumps(m))
            change(n)
            s.put("out/dataset.json", json.dumps(n))
            r = command("verify", "--quiet", s.path("out"), code=2)
            assert expect in r.stderr, (expect, r.stderr)


class Reduced:
    """Pickles as the global and arguments that are given."""
    def __init__(self, function, *args):
        self.function, self.args = function, args

    def __reduce__(self):
        return self.function, self.args


def torch_file(path, value):
    """The zip of torch.save; arrays inside are NumPy's, as in MAG240M's own."""
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("archive/data.pkl", pickle.dumps(value, protocol=2))
        z.writestr("archive/version", "3\n")


def mag(s, **changed):
    shutil.rmtree(s.path("m"), ignore_errors=True)
    base = {"paper/node_feat": FEATURES.astype(np.float16), "paper/node_label": LABELS, "paper/node_year": np.ones(4, int),
            "paper___cites___paper/edge_index": WIDE, "author___writes___paper/edge_index": np.array([[1, 0], [3, 2]])} | changed
    for name, value in base.items():
        if value is not None:
            s.put(f"m/processed/{name}.npy", b"")
            np.save(s.path(f"m/processed/{name}.npy"), value)
    return s.path("m")


@test
def layout_of_mag240m():
    with Scratch() as s:
        r = s.get("mag240m", mag(s))
        assert s.rows() == ROWS and s.manifest()["arrays"]["features"]["dtype"] == "float16" and splits(s) == [None] * 3
        assert np.array_equal(s.array("features")[:, :3], FEATURES.astype(np.float16))
        assert s.array("labels").tolist() == [1, -1, 0, 2] and "with --types paper, these were left out: author:writes:paper" in r.stderr
        s.arrays("m", train_idx=np.array([3, 0]), valid_idx=np.array([2]))
        s.get("mag240m", s.path("m"))
        assert splits(s) == [[3, 0], [2], None]
        torch_file(s.path("m/meta.pt"), {"paper": 4, "author": 3, "institution": 9, "num_classes": 153})
        torch_file(s.path("m/split_dict.pt"), {"train": np.array([0]), "valid": np.array([3]), "test": np.array([1, 2])})
        r = s.get("mag240m", s.path("m"))
        assert splits(s) == [[0], [3], [1, 2]] and s.manifest()["classes"] == 153
        r = s.get("mag240m", s.path("m"), "--types", "all")
        assert [t["vertices"] for t in s.manifest()["vertex_types"]] == [4, 3]
        assert typed_rows(s) == {("paper", 1): [("paper", 0, "paper:cites:paper"), ("paper", 3, "paper:cites:paper")],
                                 ("paper", 2): [("paper", 0, "paper:cites:paper"), ("author", 0, "author:writes:paper")],
                                 ("paper", 3): [("author", 1, "author:writes:paper")]}
        os.remove(s.path("m/meta.pt"))
        r = s.get("mag240m", s.path("m"), "--types", "all")
        assert [t["vertices"] for t in s.manifest()["vertex_types"]] == [4, 2]
        assert "author: the number of vertices is not given; using 2, one more than the largest id in the edges" in r.stderr
        for changed, expect in (({"paper___cites___paper/edge_index": TALL}, "MAG240M stores edges in shape 2xE, but this array has shape (3, 2)"),
                                ({"paper/node_feat": np.full((4, 3), np.nan, np.float16)}, "row 0, column 0: NaN"),
                                ({"paper/node_label": LABELS[:2]}, "expected one row for each of 4 vertices, found 2"),
                                ({"paper___cites___paper/edge_index": None, "author___writes___paper/edge_index": None},
                                 "paper___cites___paper/edge_index.npy is missing")):
            r = s.get("mag240m", mag(s, **changed), code=2)
            assert expect in r.stderr, (expect, r.stderr)
        r = s.get("mag240m", mag(s, **{"author___writes___paper/edge_index": np.array([[1], [3], [3]])}), "--types", "all", code=2)
        assert "MAG240M stores edges in shape 2xE" in r.stderr


@test
def files_of_torch():
    with Scratch() as s:
        sys.path.insert(0, os.path.join(ROOT, "tools", "python"))
        sys.dont_write_bytecode = True
        from penstock import torch_file as reader
        bad = s.path("bad.pt")
        for value, expect in ((Reduced(os.system, "touch " + s.path("ran")), "refers to posix.system"), ([1], None)):
            torch_file(bad, {"train": value})
            try:
                reader.convert(bad, s.path("x-"))
                assert expect is None
            except reader.Refused as e:
                assert expect in str(e), e
        assert not os.path.exists(s.path("ran")) and not os.path.exists(s.path("x-train.npy"))
        torch_file(bad, {"a": np.array([[1, 2], [3, 4]], np.float32), "n": 7})
        reader.convert(bad, s.path("y-"))
        assert np.load(s.path("y-a.npy")).tolist() == [[1, 2], [3, 4]] and np.load(s.path("y-n.npy")).tolist() == [7]
        with open(bad, "rb") as f:
            whole = f.read()
        for at in range(0, len(whole), 23):  # refused, and nothing else
            for data in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x3c]) + whole[at + 1:]):
                s.put("t.pt", data)
                shutil.rmtree(s.path("z"), ignore_errors=True)
                os.mkdir(s.path("z"))
                try:
                    reader.convert(s.path("t.pt"), s.path("z/"))
                except (reader.Refused, OSError):
                    pass
        with open(bad, "wb") as f:  # before PyTorch 1.6
            for part in (0x1950a86a20f9469cfc6c, 1001, {}, {"train": np.array([5, 6])}):
                pickle.dump(part, f, protocol=2)
        reader.convert(bad, s.path("w-"))
        assert np.load(s.path("w-train.npy")).tolist() == [5, 6]


GRAPH = """dataset_name: hand
graph:
  nodes:
    - num: 4
  edges:
    - {format: %s, path: %s}
"""
SETS = """feature_data:
  - {domain: node, name: year, format: numpy, path: year.npy}
  - {domain: node, type: null, name: feat, format: numpy, in_memory: false, path: feat.npy}
tasks:
  - name: node_classification
    num_classes: 3
    train_set:
      - data:
          - {name: seeds, format: numpy, path: s/train.npy}
          - {name: labels, format: numpy, path: s/train-labels.npy}
    validation_set:
      - data:
          - {name: seeds, format: numpy, path: s/val.npy}
          - {name: labels, format: numpy, path: s/val-labels.npy}
"""


def graphbolt(s, text=GRAPH % ("numpy", "e.npy") + SETS, **changed):
    shutil.rmtree(s.path("g"), ignore_errors=True)
    arrays = {"e": WIDE, "year": np.arange(4), "feat": FEATURES, "s__train": np.array([3, 0]), "s__train-labels": np.array([2, 1]),
              "s__val": np.array([2]), "s__val-labels": np.array([0])} | changed
    s.arrays("g", **{k: v for k, v in arrays.items() if v is not None})
    s.put("g/e.csv", lines(","))
    s.put("g/metadata.yaml", text)
    return s.path("g")


@test
def one_type_of_graphbolt():
    with Scratch() as s:
        for kind, path in (("numpy", "e.npy"), ("csv", "e.csv")):
            r = s.get("graphbolt", graphbolt(s, GRAPH % (kind, path) + SETS))
            assert s.rows() == ROWS and s.manifest()["name"] == "hand" and s.manifest()["penstock_dataset"] == 1
            assert s.array("labels").tolist() == [1, -1, 0, 2] and splits(s) == [[3, 0], [2], None]
            assert np.array_equal(s.array("features")[:, :3], FEATURES) and "feature 'year' of node is not imported" in r.stderr
        torch_file(s.path("g/s/train.pt"), np.array([0, 1]))
        s.put("g/metadata.yaml", (GRAPH % ("numpy", "e.npy") + SETS).replace("format: numpy, path: s/train.npy", "format: torch, path: s/train.pt"))
        s.get("graphbolt", s.path("g/metadata.yaml"))
        assert splits(s) == [[0, 1], [2], None] and s.array("labels").tolist() == [2, 1, 0, -1]


@test
def refusals_of_graphbolt():
    text = GRAPH % ("numpy", "e.npy") + SETS
    edits = [("num: 4", "num: four", "metadata.yaml:4:12: num: expected an integer of 0 or more, found 'four'"),
             ("num: 4", "nun: 4", "metadata.yaml:4:7: the key num is missing"), ("num: 4", "num: -1", "found '-1'"),
             ("format: numpy, path: e.npy", "format: parquet, path: e.npy", "metadata.yaml:6:7: format: expected csv or numpy, found 'parquet'"),
             ("path: e.npy", "path: f.npy", "cannot open"), ("path: e.npy", "p: 1", "the key path is missing"),
             ("graph:", "graf:", "the key graph is missing"), ("dataset_name: hand", "dataset_name: [", "metadata.yaml:"),
             ("dataset_name: hand", "dataset_name: a\ndataset_name: b", "metadata.yaml:2:1: 'dataset_name' occurs twice"),
             ("dataset_name: hand", "dataset_name: [a, b]", "dataset_name: expected text"), ("name: seeds", "name: sids", "expected data with seeds"),
             ("format: numpy, path: s/train.npy", "format: csv, path: s/train.npy", "format: expected numpy or torch, found 'csv'"),
             (text, "", "1:1: expected a map"), (text, "- a\n", "expected a map"), (text, "a: \x01b", "byte 3"), (text, "a: *b", "1:4: found undefined alias"),
             (text, "[" * 5000, "metadata.yaml:"), (text, "graph_topology: {path: x}", "import the directory above it"),
             ("num_classes: 3", "num_classes: 2", "train-labels.npy: entry 0: expected a label from -1 (none) to 1"),
             ("tasks:", "tasks:\n  - name: other", "choose one of the tasks with --split: other node_classification")]
    arrays = [({"e": TALL}, "e.npy: GraphBolt stores edges in shape 2xE, but this array has shape (3, 2): --edge-shape Ex2 reads it"),
              ({"e": WIDE + 1}, "e.npy: source of edge 2: expected 0 to 3, found 4"), ({"e": WIDE.astype(np.uint64)}, "'<u8'"),
              ({"feat": FEATURES[:3]}, "feat.npy: expected one row for each of 4 vertices, found 3"), ({"s__train": np.array([3, 4])}, "s/train.npy: entry 1: expected 0 to 3, found 4"),
              ({"s__val": np.array([0])}, "vertex 0 is already in train"), ({"s__val-labels": np.array([0, 1])}, "expected 1 rows, as in"),
              ({"s__val-labels": np.array([.5])}, "val-labels.npy: entry 0: expected a label"), ({"s__val": np.array([2.])}, "expected integers (int8 to int64, uint8 to uint32), found float64"),
              ({"s__train": np.zeros((2, 3), int)}, "expected vertices or pairs of them, found rows of 3")]
    with Scratch() as s:
        for old, new, expect in edits:
            assert old in text
            r = s.get("graphbolt", graphbolt(s, text.replace(old, new, 1)), code=None)
            assert r.returncode in (1, 2) and expect in r.stderr, (new[:60], expect, r.stderr)
        for changed, expect in arrays:
            r = s.get("graphbolt", graphbolt(s, **changed), code=2)
            assert expect in r.stderr, (expect, r.stderr)
        s.get("graphbolt", graphbolt(s, e=TALL), "--edge-shape", "Ex2")
        assert s.rows() == ROWS
        graphbolt(s, GRAPH % ("csv", "e.csv") + SETS)
        s.put("g/e.csv", "src,dst\n" + lines(","))
        assert "e.csv:1: byte 1: expected an id" in s.get("graphbolt", s.path("g"), code=2).stderr
        s.put("g/metadata.yaml", text.encode() + b"x: \xff\n")
        assert "byte " in s.get("graphbolt", s.path("g"), code=2).stderr


TYPED = """graph:
  nodes: [{type: user, num: 3}, {type: item, num: 2}]
  edges:
    - {type: "user:likes:item", format: numpy, path: likes.npy}
    - {type: "user:follows:user", format: csv, path: follows.csv}
feature_data:
  - {domain: node, type: item, name: feat, format: numpy, path: item.npy}
  - {domain: edge, type: "user:likes:item", name: weight, format: numpy, path: w.npy}
tasks:
  - name: nodes
    num_classes: 4
    train_set:
      - {type: user, data: [{name: seeds, format: numpy, path: u.npy}, {name: labels, format: numpy, path: ul.npy}]}
      - {type: item, data: [{name: seeds, format: numpy, path: i.npy}, {name: labels, format: numpy, path: il.npy}]}
  - name: links
    train_set:
      - {type: "user:likes:item", data: [{name: seeds, format: numpy, path: likes-t.npy}]}
    validation_set:
      - type: "user:likes:item"
        data: [{name: seeds, format: numpy, path: v.npy}, {name: labels, format: numpy, path: vl.npy}, {name: indexes, format: numpy, path: vi.npy}]
    test_set:
      - type: "user:likes:item"
        data: [{name: node_pairs, format: numpy, path: v.npy}, {name: negative_dsts, format: numpy, path: n.npy}]
"""


def typed_graphbolt(s):
    s.put("g/metadata.yaml", TYPED)
    s.put("g/follows.csv", "0,1\n2,0\n")
    likes = np.array([[0, 2, 2], [1, 0, 1]])
    return s.arrays("g", likes=likes, item=np.ones((2, 3), np.float32), w=np.ones(3), u=np.array([2]), ul=np.array([3]), i=np.array([1, 0]),
                    il=np.array([0, 2]), v=np.array([[0, 1], [1, 1]]), vl=np.array([1, 0]), vi=np.array([0, 0]), n=np.array([[0, 1], [1, 0]]),
                    **{"likes-t": likes.T.copy()})


@test
def types_of_graphbolt():
    with Scratch() as s:
        r = s.get("graphbolt", typed_graphbolt(s), "--split", "nodes")
        assert typed_rows(s) == {("user", 0): [("user", 2, "user:follows:user")], ("user", 1): [("user", 0, "user:follows:user")],
                                 ("item", 0): [("user", 2, "user:likes:item")],
                                 ("item", 1): [("user", 0, "user:likes:item"), ("user", 2, "user:likes:item")]}
        assert s.array("labels").tolist() == [-1, -1, 3, 2, 0] and splits(s) == [[2, 4, 3], None, None]
        assert "feature 'weight' of edge user:likes:item is not imported" in r.stderr
        assert [t["feature_dim"] for t in s.manifest()["vertex_types"]] == [0, 3]
        s.get("graphbolt", s.path("g"), "--split", "links")
        assert splits(s) == [None] * 3 and s.array("edges_train").tolist() == [[0, 4], [2, 3], [2, 4]]
        assert s.array("edges_val").tolist() == [[0, 4]] and s.array("negatives_val").tolist() == [[1, 4]]
        assert s.array("edges_test").tolist() == [[0, 4], [1, 4]]
        assert s.array("negatives_test").tolist() == [[0, 3], [0, 4], [1, 4], [1, 3]]
        r = s.get("graphbolt", s.path("g"), "--split", "nodes", "--types", "user")
        assert s.rows() == [[2], [0], []] and splits(s) == [[2], None, None] and "train_set of type 'item' is not imported" in r.stderr
        assert s.manifest()["penstock_dataset"] == 1
        s.put("g/follows.csv", "0,1\n2,3\n")
        r = s.get("graphbolt", s.path("g"), "--split", "nodes", code=2)
        assert "follows.csv:2: byte 3: expected an integer from 0 to 2" in r.stderr, r.stderr
        typed_graphbolt(s)
        for old, new, expect in (("user:likes:item\", format", "user:likes:thing\", format", "'thing' is not one of the types of nodes"),
                                 ("type: item, num", "type: user, num", "'user' occurs twice"), ("{type: user, num: 3}", "{num: 3}", "the key type is missing"),
                                 ("user:follows:user", "user-follows", "expected SOURCE:RELATION:TARGET")):
            assert old in TYPED
            s.put("g/metadata.yaml", TYPED.replace(old, new, 1))
            assert expect in (r := s.get("graphbolt", s.path("g"), "--split", "nodes", code=2)).stderr, r.stderr


def marius(s, dtype=np.int32, relations=False, text=None, **changed):
    shutil.rmtree(s.path("k"), ignore_errors=True)
    rows = [(0, 1, 1), (0, 0, 2), (3, 1, 1)] if relations else EDGES
    s.put("k/dataset.yaml", text or f"dataset_dir: /x/\nnum_edges: 3\nnum_nodes: 4\nnum_relations: {2 if relations else 1}\n"
          "num_train: 2\nnum_valid: 1\nnum_test: 1\nnode_feature_dim: 3\nrel_feature_dim: -1\nnum_classes: 3\ninitialized: false\n")
    files = {"edges/train_edges": np.array(rows, dtype), "nodes/features": FEATURES, "nodes/labels": np.array([1, -1, 0, 2], np.int32),
             "nodes/train_nodes": np.array([3, 0], np.int32), "nodes/validation_nodes": np.array([2], np.int32), "nodes/test_nodes": np.array([1], np.int64)}
    if relations:
        files |= {"edges/validation_edges": np.array([(1, 0, 2)], dtype), "edges/test_edges": np.array([(2, 1, 0), (2, 1, 3)], dtype)}
    for name, value in (files | changed).items():
        if value is not None:
            s.put(f"k/{name}.bin", value if isinstance(value, bytes) else value.tobytes())
    return s.path("k")


@test
def layout_of_marius():
    with Scratch() as s:
        for dtype in (np.int32, np.int64):
            s.get("marius", marius(s, dtype))
            assert s.rows() == ROWS and s.array("labels").tolist() == [1, -1, 0, 2] and splits(s) == [[3, 0], [2], [1]]
            assert np.array_equal(s.array("features")[:, :3], FEATURES) and s.manifest()["classes"] == 3
            assert s.manifest()["penstock_dataset"] == 1
            s.put("k/nodes/node_mapping.txt", "a b,2\nc,d,0\n7,1\n\u00e4,3\n")
            s.put("k/edges/relation_mapping.txt", "likes,1\nknows,0\n")
            s.get("marius", s.path("k"))
            assert s.names() == ["c,d", "7", "a b", "\u00e4"]
            s.get("marius", marius(s, dtype, relations=True))
            assert s.rows() == ROWS and s.array("relations").tolist() == [1, 1, 0]
            assert s.array("triples_train").tolist() == [[0, 1, 1], [0, 0, 2], [3, 1, 1]]
            assert s.array("triples_val").tolist() == [[1, 0, 2]] and s.array("triples_test").tolist() == [[2, 1, 0], [2, 1, 3]]
            s.put("k/nodes/node_mapping.txt", "100,2\n90,0\n7,1\n5,3\n")
            s.put("k/edges/relation_mapping.txt", "likes,1\nknows,0\n")
            s.get("marius", s.path("k"))
            assert s.array("ids").tolist() == [90, 7, 100, 5] and s.names("relation_names") == ["knows", "likes"]
        s.get("marius", marius(s, **{"edges/validation_edges": np.array([[2, 1]], np.int32)}))
        assert s.rows() == ROWS and s.array("edges_val").tolist() == [[2, 1]] and s.array("edges_train").tolist() == [list(e) for e in EDGES]


@test
def refusals_of_marius():
    edges = np.array(EDGES, np.int32)
    counts = "num_edges: 3\nnum_nodes: 4\n"
    with Scratch() as s:
        for changed, expect in (
                ({"edges/train_edges": edges.tobytes()[:-1]}, "train_edges.bin: expected 3 rows (num_edges of dataset.yaml) of 2 or 3 int32 or int64, found 23 bytes"),
                ({"edges/train_edges": None}, "cannot open"), ({"edges/train_edges": edges[:2]}, "found 16 bytes: is it truncated?"),
                ({"edges/train_edges": edges + 1}, "train_edges.bin: source of edge 2: expected 0 to 3, found 4"),
                ({"edges/train_edges": np.zeros((3, 3), np.int32), "text": counts + "num_relations: 0\n"}, "rows have 3 numbers, but num_relations in dataset.yaml is 0"),
                ({"text": counts + "num_relations: 2\n"}, "rows have 2 numbers, but num_relations in dataset.yaml is 2"),
                ({"text": "num_edges: 3\n"}, "dataset.yaml:1:1: the key num_nodes is missing"), ({"text": "num_edges: 0\nnum_nodes: 4\n"}, "num_edges: expected an integer of 1 or more"),
                ({"text": "num_edges: ???\nnum_nodes: 4\n"}, "dataset.yaml:1:12: num_edges: expected an integer of 1 or more, found '???'"),
                ({"nodes/features": FEATURES[:3]}, "expected a file of 4 x 3 float32 without a header, found 36 bytes"),
                ({"nodes/labels": np.zeros(3, np.int32)}, "labels.bin: expected 4 values of int32 or int64, as in dataset.yaml, found 12 bytes"),
                ({"nodes/train_nodes": np.array([1, 9], np.int32)}, "train_nodes.bin: entry 1: expected 0 to 3, found 9"),
                ({"nodes/train_nodes": np.array([1, 1], np.int32)}, "vertex 1 is already in train"),
                ({"edges/validation_edges": b"12345"}, "expected rows of 2 int32, as in train_edges.bin, found 5 bytes"),
                ({"edges/validation_edges": np.array([[9, 0]], np.int32)}, "validation_edges.bin: source of edge 0: expected 0 to 3, found 9")):
            r = s.get("marius", marius(s, **changed), code=None)
            assert r.returncode in (1, 2) and expect in r.stderr, (expect, r.stderr)
        r = s.get("marius", marius(s, relations=True, **{"edges/test_edges": np.array([[0, 2, 1]], np.int32)}), code=2)
        assert "test_edges.bin: relation of edge 0: expected 0 to 1, found 2" in r.stderr
        marius(s)
        for text, expect in (("a,0\nb,1\nc,2\n", "node_mapping.txt: expected 4 names, found 3"), ("a,0\nb,0\n", ":2: byte 3: expected a number from 0 to 3 that no other name has"),
                             ("a,0\na,1\n", ":2: byte 1: expected a name that has not occurred before"), ("a\n", ":1: byte 1: expected a name, a comma"),
                             ("a,4\n", "found '4'"), (b"\xff,1\n", "UTF-8"), (",1\n", "a name of 1 to"), ("a,1x\n", "expected a number")):
            s.put("k/nodes/node_mapping.txt", text)
            assert expect in (r := s.get("marius", s.path("k"), code=2)).stderr, (expect, r.stderr)


if __name__ == "__main__":
    main()
