"""Hyperion (an out-of-core system for training on graphs with GPUs and SSDs): the table of its figures, and their sizes.

A figure that is not in the table cannot be measured here. Sizes: `dilate` is the first guess of a figure that then sets its own."""
from . import hyperion_cache, hyperion_io, hyperion_pipeline, hyperion_tiers, hyperion_tpc
from .report import Paper

_GAT = {"model": "gat", "heads": 8}

FULL = {
    "alternations": 5, "profiles": 3, "vertices": 60000, "features": 256, "train": 0.01, "batch": 128, "epochs": 3, "dilate": 30,
    # Training a batch takes 50 ms or more, so that the least balance leaves the core of the drives enough time to emulate them.
    "models": {"graphsage": {"model": "graphsage", "hidden": 1920}, "gcn": {"model": "gcn", "hidden": 3072}, "gat": {**_GAT, "hidden": 80}},
    "balances": (0.4, 0.7, 1, 1.5, 2.5),
    # Figure 11. Sampling and latency, which its model leaves out, are a small part of batches that take so long to train.
    "balance_models": 3, "balance_train_s": 0.09, "balance_epochs": 2,
    "in_memory_models": 2, "cluster_models": 3, "topology_models": 2,
    "io_ssds": {"p5510": (1, 2, 4, 6, 8, 12), "980pro": (2, 4, 6)}, "io_dims": (128, 256, 512), "io_s": 0.1, "io_dilate": 200,
    "tpc_models": 2, "tpc_train_s": 0.075, "tpc_caches": (0.01, 0.2), "tpc_runs": 4, "tpc_ssds": {"p5510": (1, 2, 4, 8, 12), "980pro": (2, 4, 6)},
    "gat": _GAT, "gat_hidden": (32, 64, 128, 256),
    "tiers": {"vertices": 20000, "edges": 400000, "features": 1024, "seeds": 1024, "batch": 128, "epochs": 4, "hidden": 32, "dilate": 100, "ssds": (2, 4, 8, 12)},
}

SMALLEST = {
    "alternations": 1, "profiles": 1, "vertices": 2000, "features": 64, "train": 0.1, "batch": 64, "epochs": 2, "dilate": 20,
    "models": {"graphsage": {"model": "graphsage", "hidden": 64}}, "balances": (1,),
    "balance_models": 1, "balance_train_s": 0.002, "balance_epochs": 2, "in_memory_models": 1, "cluster_models": 1, "topology_models": 1,
    "io_ssds": {"p5510": (8,), "980pro": ()}, "io_dims": (128,), "io_s": 0.01, "io_dilate": 20,
    "tpc_models": 1, "tpc_train_s": 0.002, "tpc_caches": (0.01,), "tpc_runs": 1, "tpc_ssds": {"p5510": (2,)}, "gat": {"model": "gat", "heads": 2}, "gat_hidden": (8,),
    "tiers": {"vertices": 2000, "edges": 40000, "features": 256, "seeds": 128, "batch": 64, "epochs": 2, "hidden": 8, "dilate": 20, "ssds": (2,)},
}

FIGURES = (*hyperion_tpc.FIGURES[:1], *hyperion_tiers.FIGURES[:1], *hyperion_pipeline.FIGURES, *hyperion_io.FIGURES, *hyperion_tiers.FIGURES[1:],
           *hyperion_cache.FIGURES, *hyperion_tpc.FIGURES[1:])
PAPER = Paper("hyperion", "Hyperion, measured again in shape", FIGURES, FULL, SMALLEST)
