"""Graphs of PyG and DGL as datasets: their arrays as .npy files, which `penstock import npy` reads."""
import json
import os
import subprocess
import tempfile

from .command import find_command
from .dataset import FormatError, open_dataset

FEATURES, LABELS, SPLITS = ("x", "feat", "feature", "features"), ("y", "label", "labels"), ("train", "val", "test")
PARTS = {"_mask": "_mask", "_idx": "_idx", "_index": "_idx"}  # what a split is called there, and in a file's name


def array(tensor):
    """A tensor of PyTorch, or anything that NumPy takes, as a NumPy array. bfloat16 becomes two bytes, as in a dataset."""
    import numpy as np
    if hasattr(tensor, "detach"):
        tensor = tensor.detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":
            import torch
            return tensor.view(torch.int16).numpy().view("V2")
        return tensor.numpy()
    return np.asarray(tensor)


def split_array(value, vertices, name):
    """A split as the importer reads it: a mask of (N) or (N, K) of bool, or the ids of vertices."""
    values = array(value)
    if values.dtype.kind not in "bui" or values.ndim not in (1, 2):
        raise FormatError(f"{name}: expected a mask of bool or ids of vertices, found {values.dtype} of shape {values.shape}")
    if values.dtype == bool and len(values) != vertices:
        raise FormatError(f"{name}: expected a mask with {vertices} entries, one for each vertex, found {len(values)}")
    return values


def write(edges, vertices, found, directory, options):
    """Imports a graph. edges: (sources, targets). found: arrays by the names that PyG and DGL use, others are ignored."""
    import numpy as np
    parent = os.path.dirname(os.path.abspath(directory))
    os.makedirs(parent, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix=".penstock-import-") as folder:
        save = lambda name, values: np.save(os.path.join(folder, name + ".npy"), values)
        save("edges", np.stack([array(end) for end in edges]))
        for name, names in (("feat", FEATURES), ("labels", LABELS)):
            values = next((array(found[key]) for key in names if found.get(key) is not None), None)
            if values is not None:
                save(name, values[:, 0] if name == "labels" and values.ndim == 2 and values.shape[1] == 1 else values)
        for split in SPLITS:
            for suffix, stored in PARTS.items():
                if found.get(split + suffix) is not None:
                    values = split_array(found[split + suffix], vertices, split + suffix)
                    save(split + ("_mask" if values.dtype == bool else stored), values)
                    break
        with open(os.path.join(folder, "meta.json"), "w", encoding="utf-8") as f:
            json.dump({"name": os.path.basename(os.path.abspath(directory)), "num_nodes": vertices}, f)
        args = []
        for name, value in options.items():
            args += ["--" + name.replace("_", "-")] * (value is not False) + ([str(value)] if not isinstance(value, bool) else [])
        done = subprocess.run([find_command(), "import", "npy", folder, os.fspath(directory), "--quiet", *args], capture_output=True, text=True)
        if done.returncode:
            raise FormatError(done.stderr.strip())
    return open_dataset(directory)


def from_pyg(data, directory, **options):
    """Writes a Data of PyTorch Geometric as the dataset `directory`, and opens it.

    It takes edge_index (or adj_t), x, y, and train_mask, val_mask, test_mask: masks of bool, one column for each split, or
    train_idx, ...: ids. options: of `penstock import`, as in symmetrize=True or memory="1GiB". FormatError: what is wrong.
    """
    if hasattr(data, "node_types") and hasattr(data, "edge_types"):
        raise FormatError(f"expected a graph of one type, found {len(data.node_types)} types of vertices: convert the graph with data.to_homogeneous()")
    edges = getattr(data, "edge_index", None)
    if edges is None and getattr(data, "adj_t", None) is not None:
        targets, sources, _ = data.adj_t.coo()  # transposed
        edges = sources, targets
    if edges is None:
        raise FormatError("expected edges in data.edge_index or data.adj_t, found neither")
    names = [*FEATURES, *LABELS, *(split + suffix for split in SPLITS for suffix in PARTS)]
    found = {name: getattr(data, name, None) for name in names}
    return write(edges, int(data.num_nodes), found, directory, options)


def from_dgl(graph, directory, **options):
    """Writes a graph of DGL as the dataset `directory`, and opens it.

    It takes the edges, and of ndata feat (or feature, features, x), label (or labels, y), and train_mask, ... or
    train_idx, ... options: as in from_pyg().
    """
    if not graph.is_homogeneous:
        raise FormatError(f"expected a graph of one type, found the types {graph.ntypes}: convert the graph with dgl.to_homogeneous")
    return write(graph.edges(), int(graph.num_nodes()), dict(graph.ndata), directory, options)
