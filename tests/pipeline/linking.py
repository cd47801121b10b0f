"""Datasets of link prediction for tests: a graph, of whose edges some are to be predicted, as a GraphBolt layout."""
import os

import numpy as np
from harness import command

METADATA = """graph:
  nodes: [{{num: {vertices}}}]
  edges: [{{format: numpy, path: edges.npy}}]
{features}tasks:
  - name: links
    train_set: [{{data: [{{name: seeds, format: numpy, path: train.npy}}]}}]
    validation_set: [{{data: [{{name: seeds, format: numpy, path: val.npy}}, {{name: labels, format: numpy, path: val-labels.npy}}]}}]
    test_set: [{{data: [{{name: seeds, format: numpy, path: test.npy}}, {{name: labels, format: numpy, path: test-labels.npy}}]}}]
"""
FEATURES = "feature_data: [{domain: node, name: feat, format: numpy, path: feat.npy}]\n"


def write(path, vertices, train, splits, features=None):
    """train: (n, 2) edges, of which the graph has both directions. splits: (edges, negatives) of validation and test, (n, 2) each."""
    os.makedirs(path)
    with open(os.path.join(path, "metadata.yaml"), "w") as f:
        f.write(METADATA.format(vertices=vertices, features=FEATURES if features is not None else ""))
    arrays = {"edges": np.concatenate([train, train[:, ::-1]]).T.copy(), "train": train}
    for name, (edges, negatives) in zip(("val", "test"), splits):
        arrays[name] = np.concatenate([edges, negatives])
        arrays[name + "-labels"] = np.repeat([1, 0], [len(edges), len(negatives)])
    if features is not None:
        arrays["feat"] = features
    for name, array in arrays.items():
        np.save(os.path.join(path, name + ".npy"), np.ascontiguousarray(array))
    return path


def communities(p, name, vertices=400, groups=8, degree=20, features=False, seed=3):
    """Edges lie within groups, and negatives do not. Returns the path of the dataset."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, vertices)
    members = [np.flatnonzero(group == g) for g in range(groups)]
    found = set()
    while len(found) < vertices * degree // 2:
        of = members[rng.integers(groups)]
        a, b = sorted(rng.choice(of, 2, replace=False).tolist())
        found.add((a, b))
    edges = rng.permutation(np.array(sorted(found)))
    others = rng.integers(0, vertices, (8000, 2))
    others = others[group[others[:, 0]] != group[others[:, 1]]]
    cut = len(edges) // 10
    splits = [(edges[:cut], others[:1000]), (edges[cut:2 * cut], others[1000:2000])]
    x = rng.standard_normal((vertices, 16)).astype(np.float32) if features else None
    source = write(p.path(name + "-source"), vertices, edges[2 * cut:], splits, x)
    command("import", "graphbolt", source, p.path(name))
    return p.path(name)
