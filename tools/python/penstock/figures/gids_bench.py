"""What GIDS's figures share: graphs, settings, rates from reports, and the model of a burst.

The paper adds 25 us to a drive's latency for the launch of a kernel and 5 us for its end (section 4.2). Here they are part
of the emulated latency, so that they are dilated with it."""
import json

from .bench import FLOAT_BYTES, epoch_s
from .lab import shipped

LAUNCH_US, END_US = 25, 5
DRIVES = {"optane": (1.5e6, 11), "980pro": (7e5, 324)}  # peak IOPS and latency in us, section 4.2
ACCESS_BYTES = 4096  # what a peak of IOPS is for
FANOUT = [5, 5]  # section 4.3
SHARE = 0.95  # of the peak, for the accumulator


def dataset(lab, name):
    s = lab.size[name]
    return lab.dataset(f"rmat-{name}", "--vertices", s["vertices"], "--edges", s["edges"], "--symmetrize", "--features", s["features"], "--classes", 8,
                       "--train-count", s["train"], "--val-count", 64, "--test-count", 64, "--seed", 1, kind="rmat")


def overhead_s(ssd, on_gpu=True):
    """T_i + T_t of a burst, not dilated."""
    return (DRIVES[ssd][1] + (LAUNCH_US + END_US if on_gpu else 0)) * 1e-6


def disk(ssd, ssds, dilate, on_gpu=True, spread=None, **more):
    """Parameters of a disk stage with such drives, whose requests a GPU or a CPU makes. spread: of the latencies; None: the emulator's."""
    iops, latency_us = DRIVES[ssd]
    figures = {"iop_peak": iops, "initial_us": latency_us + LAUNCH_US, "terminal_us": END_US}
    return {"backend": "emulated", "preset": ssd, "ssds": ssds, "dilate": dilate, "gap_bytes": "0", "accumulate_share": SHARE, **figures,
            "emulated": json.dumps({"latency_us": overhead_s(ssd, on_gpu) * 1e6} | ({} if spread is None else {"spread": spread})), **more}


def run(lab, name, pipeline, batch, stages, fanout, epochs=None, **fields):
    """A run on the graph `name`. Drivers, drives, sampler and cache have one core, the trainer another."""
    s = lab.size[name]
    trainer = {"hidden": s.get("hidden", 4), "layers": len(fanout), "threads": 1, "eval_every": 0, "checkpoint_every": 0}
    cores = {"sampler": lab.drive_core, "cache": lab.drive_core, "disk": lab.drive_core, "trainer": lab.train_core}
    return lab.run(shipped(pipeline + ".json"), dataset(lab, name), epochs or s["epochs"],
                   lab.settings(cores, {"trainer": trainer, **stages}, {"batch": batch, "fanout": fanout}, {"links[3].slots": s["slots"], **fields}))


def row_bytes(lab, name):
    return lab.size[name]["features"] * FLOAT_BYTES


def batches(report):
    return report["sampler"]["batches"] / len(report["epochs"])


def rows_per_s(report, dilate):
    """Feature rows that batches get, as if nothing were dilated."""
    return report["cache"]["lookups"] / len(report["epochs"]) / epoch_s(report) * dilate


def aggregation_s(report):
    """The time in which the drives read features: from the first request of a burst, or of bursts that overlap, to its last row."""
    return report["io"]["active_s"]


def aggregated_per_s(report, dilate):
    """Feature rows that batches get in the time in which the drives read, as if nothing were dilated: the paper's aggregation stage."""
    return report["cache"]["lookups"] / aggregation_s(report) * dilate


def gbps(rows):
    """As if each row were an access of 4 KiB, as in the paper."""
    return rows * ACCESS_BYTES / 1e9


def reads(report):
    """Rows that a batch reads from drives."""
    return report["io"]["rows"] / report["sampler"]["batches"]


def share_of_peak(accesses, ssd, ssds):
    """f(N) of equations 2 and 3, with the number of SSDs in both."""
    return accesses / (accesses + DRIVES[ssd][0] * ssds * overhead_s(ssd))


def accesses_wanted(ssd, ssds, share=SHARE):
    """N_access for such a share of the peak: equations 2 and 3, with the number of SSDs in both."""
    return share / (1 - share) * DRIVES[ssd][0] * ssds * overhead_s(ssd)
