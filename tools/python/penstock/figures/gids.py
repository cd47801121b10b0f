"""GIDS (a loader of graph data that GPUs drive from SSDs): the table of its figures, and their sizes.

Sizes: `edges` are drawn, and then made symmetric; `train` are training vertices; `slots` are those of rows."""
from . import gids_io, gids_systems
from .report import Paper

FULL = {
    "alternations": 3,
    "accumulate": {"vertices": 60000, "edges": 900000, "features": 128, "train": 2048, "batches": (32, 64, 128), "epochs": 2, "dilate": 200, "slots": 24},
    "buffer": {"vertices": 100000, "edges": 1500000, "features": 128, "train": 10000, "batch": 200, "epochs": 2, "dilate": 30, "slots": 3},
    "systems": {"vertices": 60000, "edges": 900000, "features": 128, "train": 6144, "batch": 64, "epochs": 2, "hidden": 32, "slots": 32,
                "dilate": {"980pro": 12, "optane": 40}},
}

SMALLEST = {
    "alternations": 1,
    "accumulate": {"vertices": 2000, "edges": 20000, "features": 128, "train": 128, "batches": (32,), "epochs": 2, "dilate": 20, "slots": 8},
    "buffer": {"vertices": 2000, "edges": 20000, "features": 128, "train": 128, "batch": 64, "epochs": 2, "dilate": 10, "slots": 4},
    "systems": {"vertices": 2000, "edges": 20000, "features": 128, "train": 128, "batch": 32, "epochs": 2, "hidden": 8, "slots": 8,
                "dilate": {"980pro": 1, "optane": 1}},
}

PAPER = Paper("gids", "GIDS, measured again in shape", (*gids_io.FIGURES, *gids_systems.FIGURES), FULL, SMALLEST)
