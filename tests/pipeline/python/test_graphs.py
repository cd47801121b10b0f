"""penstock.from_pyg and from_dgl: graphs of these libraries as datasets. Their classes have stand-ins here, with NumPy
arrays; the libraries themselves are tried where they are installed."""
import types

import numpy as np

from snake import *
import penstock

EDGES = np.array([[0, 1, 2, 3, 0, 4], [1, 2, 0, 0, 3, 0]])
FEATURES = np.arange(15, dtype=np.float32).reshape(5, 3)
LABELS = np.array([0, 1, 2, 1, -1])
TRAIN = np.array([True, False, True, False, False])


def pyg(**fields):
    return types.SimpleNamespace(**{"edge_index": EDGES, "x": FEATURES, "y": LABELS, "train_mask": TRAIN, "val_mask": ~TRAIN, "num_nodes": 5, **fields})


def check(ds):
    assert ds.vertices == 5 and ds.edges == 6 and ds.classes == 3 and np.array_equal(ds.features, FEATURES)
    assert sorted(ds.in_neighbours(0)) == [2, 3, 4] and ds.in_neighbours(4).size == 0
    assert ds.labels.tolist() == LABELS.tolist() and ds.train.tolist() == [0, 2] and ds.val.tolist() == [1, 3, 4]


def refused(data, *words, call=penstock.from_pyg, **options):
    with Place() as p:
        try:
            call(data, p.path("d"), **options)
            raise AssertionError("was taken")
        except penstock.FormatError as e:
            assert all(word in str(e) for word in words), e
        assert os.listdir(p.dir) == [], os.listdir(p.dir)


@test
def graphs_of_pyg():
    with Place() as p:
        check(penstock.from_pyg(pyg(), p.path("a")))
        check(penstock.from_pyg(pyg(y=LABELS[:, None], train_mask=None, train_idx=np.array([0, 2])), p.path("b/c")))
        coo = types.SimpleNamespace(coo=lambda: (EDGES[1], EDGES[0], None))
        check(penstock.from_pyg(pyg(edge_index=None, adj_t=coo), p.path("d")))
        masks = np.stack([TRAIN, ~TRAIN], axis=1)  # two splits
        ds = penstock.from_pyg(pyg(train_mask=masks, val_mask=~masks), p.path("e"))
        assert ds.splits == ["mask/0", "mask/1"] and ds.split("mask/1")[0].tolist() == [1, 3, 4]
        ds = penstock.from_pyg(pyg(x=None, y=None), p.path("f"), symmetrize=True, dedupe=True)
        assert ds.features is None and ds.edges == 10 and ds.in_neighbours(4).tolist() == [0]
        assert penstock.from_pyg(pyg(x=FEATURES.astype(np.float16)), p.path("a"), force=True).features.dtype == np.float16
        assert sorted(os.listdir(p.dir)) == ["a", "b", "d", "e", "f"]


@test
def graphs_of_dgl():
    with Place() as p:
        graph = types.SimpleNamespace(is_homogeneous=True, edges=lambda: (EDGES[0], EDGES[1]), num_nodes=lambda: 5,
                                      ndata={"feat": FEATURES, "label": LABELS, "train_mask": TRAIN, "val_mask": ~TRAIN, "other": EDGES})
        check(penstock.from_dgl(graph, p.path("d")))
    refused(types.SimpleNamespace(is_homogeneous=False, ntypes=["a", "b"]), "one type", call=penstock.from_dgl)


@test
def what_is_wrong_is_said():
    refused(pyg(edge_index=None), "edge_index")
    refused(pyg(train_mask=TRAIN[:4]), "train_mask", "mask with 5 entries, one for each vertex, found 4")
    refused(pyg(train_mask=TRAIN.astype(float)), "train_mask", "float64")
    refused(pyg(edge_index=EDGES + 1), "edges.npy", "5")
    refused(pyg(x=FEATURES[:3]), "feat.npy")
    refused(pyg(node_types=["a"], edge_types=[]), "one type")
    refused(pyg(), "nonsense", nonsense=True)


@test
def with_the_libraries():
    need("torch_geometric, numpy")
    with Place() as p:
        body = """
import numpy as np, torch
from torch_geometric.data import Data
data = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), x=torch.arange(12.).reshape(3, 4).bfloat16(), y=torch.tensor([0, 1, 1]),
            train_mask=torch.tensor([True, False, True]))
ds = penstock.from_pyg(data, "d")
assert np.array_equal(ds.features_float32(), data.x.float().numpy()) and ds.train.tolist() == [0, 2] and ds.in_neighbours(1).tolist() == [0]
"""
        out, err = user(p, body, TORCH_PYTHON).communicate(timeout=120)
        assert not err.startswith("Traceback"), err
        assert os.path.exists(p.path("d/dataset.json")), err


@test
def with_dgl():
    need("dgl")
    with Place() as p:
        body = """
import dgl, torch
graph = dgl.graph((torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])))
graph.ndata["feat"], graph.ndata["train_mask"] = torch.ones(3, 4), torch.tensor([True, False, True])
ds = penstock.from_dgl(graph, "d")
assert ds.train.tolist() == [0, 2] and ds.in_neighbours(1).tolist() == [0] and ds.feature_dim == 4
"""
        out, err = user(p, body, TORCH_PYTHON, DGLBACKEND="pytorch").communicate(timeout=120)
        assert os.path.exists(p.path("d/dataset.json")), err


if __name__ == "__main__":
    main()
