"""GIDS (a loader of graph data that GPUs drive from SSDs): the table of its figures, and their sizes.

Sizes: `edges` are drawn, and then made symmetric; `train` are training vertices; `slots` are those of rows. A burst takes
`burst_s`, or `access_s` for each access if that is longer."""
from . import gids_burst, gids_counts, gids_io, gids_mapping, gids_systems
from .report import Paper

FULL = {
    "alternations": 5,
    "accumulate": {"vertices": 60000, "edges": 900000, "features": 128, "train": 2048, "batches": (32, 64, 128), "slots": 64,
                   "epochs_of": {"BaM": 2, "GIDS": 3}, "dilate": {"BaM": 200, "GIDS": 500}},
    "mapping": {"vertices": 150000, "edges": 1500000, "features": (64, 1024), "train": 192, "batch": 64, "epochs": 2, "hidden": 128, "memory_mib": 256},
    "counts": {"vertices": 1000000, "edges": 15000000, "batch": 32},
    "burst": {"accesses": (64, 256, 1024, 4096, 16384), "ssds": (1, 2, 4), "burst_s": 0.2, "access_s": 3e-5},
    "buffer": {"vertices": 60000, "edges": 900000, "features": 128, "train": 6000, "batch": 200, "epochs": 2, "dilate": 60, "slots": 3},
    "systems": {"vertices": 60000, "edges": 900000, "features": 128, "train": 3072, "batch": 64, "epochs": 3, "hidden": 32, "slots": 32, "layer": 512,
                "dilate": {"980pro": 12, "optane": 40}},
}

SMALLEST = {
    "alternations": 1,
    "accumulate": {"vertices": 2000, "edges": 20000, "features": 128, "train": 128, "batches": (32,), "slots": 8,
                   "epochs_of": {"BaM": 2, "GIDS": 2}, "dilate": {"BaM": 20, "GIDS": 20}},
    "mapping": {"vertices": 2000, "edges": 20000, "features": (16, 64), "train": 128, "batch": 64, "epochs": 1, "hidden": 8, "memory_mib": 256},
    "counts": {"vertices": 20000, "edges": 200000, "batch": 32},
    "burst": {"accesses": (64, 1024), "ssds": (1,), "burst_s": 0.02, "access_s": 1e-5},
    "buffer": {"vertices": 2000, "edges": 20000, "features": 128, "train": 128, "batch": 64, "epochs": 2, "dilate": 10, "slots": 4},
    "systems": {"vertices": 2000, "edges": 20000, "features": 128, "train": 128, "batch": 32, "epochs": 2, "hidden": 8, "slots": 8, "layer": 64,
                "dilate": {"980pro": 1, "optane": 1}},
}

PAPER = Paper("gids", "GIDS, measured again in shape", (*gids_mapping.FIGURES, *gids_burst.FIGURES, *gids_io.FIGURES, *gids_counts.FIGURES, *gids_systems.FIGURES), FULL, SMALLEST)
