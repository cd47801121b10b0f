"""What Hyperion's figures share: the pipeline, its settings, and times from its reports."""
from .lab import median, shipped

FLOAT_BYTES = 4
SSD = "p5510"
FITTED_SSDS = 4  # all rows are cached: their number does not matter
WIDTH_STEP = 8  # hidden columns
GPU = "a100"  # what the trainer's core stands for, in machine A


def dataset(lab):
    s = lab.size
    return lab.dataset("graph", "--vertices", s["vertices"], "--features", s["features"], "--train", s["train"], "--seed", 1)


def rows(lab, share):
    """The rows that are so large a share of the features."""
    return round(share * lab.size["vertices"])


def settings(lab, model, ssds, dilate, cached, ssd=SSD, topology="memory", policy="rows", **fields):
    """The pipeline with `model` (the trainer's parameters), drives, a cache of so many rows, the topology's place, and what is cached."""
    stages = {"planner": {"cpu_cache": str(cached * lab.size["features"] * FLOAT_BYTES), "policy": policy},
              "disk": {"backend": "emulated", "preset": ssd, "ssds": ssds, "dilate": dilate, "gap_bytes": "0"},
              "trainer": {**model, "threads": 1, "eval_every": 0, "checkpoint_every": 0}}
    cores = {"sampler": lab.drive_core, "disk": lab.drive_core, "trainer": lab.train_core}
    return lab.settings(cores, stages, {"batch": lab.size["batch"], "topology": topology}, fields)


def run(lab, *args, epochs=None, **more):
    return lab.run(shipped("hyperion.json"), dataset(lab), epochs or lab.size["epochs"], settings(lab, *args, **more))


def times(report):
    """The three T of a batch, seconds: ssd, pcie, train. 0 where nothing moves, or there is no bus."""
    v = report["verdict"]
    return {part: v[f"t_{part}_s"] or 0.0 for part in ("ssd", "pcie", "train")}


def times_of(reports):
    """The median of each T."""
    each = [times(r) for r in reports]
    return {part: median([t[part] for t in each]) for part in each[0]}


def epoch_s(report):
    """The median of the epochs but the first, which fills the pipeline."""
    return median([e["seconds"] for e in report["epochs"][1:]])


def samples_per_s(report):
    return median([e["seeds_per_second"] for e in report["epochs"][1:]])


def batches(report):
    """Batches of an epoch."""
    return report["verdict"]["batches"] / len(report["epochs"])


def fitted(lab, model, train_s):
    """`model`, with as many hidden columns as make it train a batch in about `train_s` on this machine: so figures take as long on each."""
    found = times(run(lab, model, FITTED_SSDS, 1, rows(lab, 1)))["train"]
    return {**model, "hidden": max(1, round(model["hidden"] * train_s / found / WIDTH_STEP)) * WIDTH_STEP}


def dilation(lab, model, ssds, cached, ssd_over_train=1.0):
    """How many times slower `ssds` drives must run so that T_ssd is so many times T_train: the median of a few runs."""
    guess = lab.size["dilate"]
    found = [times(run(lab, model, ssds, guess, cached)) for _ in range(lab.size["profiles"])]
    return max(1.0, round(median([guess * ssd_over_train * t["train"] / t["ssd"] for t in found]), 2))


def ms(seconds):
    return 1000 * seconds
