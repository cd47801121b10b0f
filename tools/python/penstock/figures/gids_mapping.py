"""GIDS's Figure 5: where an epoch goes that reads features through a memory mapping, in a memory cgroup, on a real drive."""
import os

from . import svg
from .bench import FLOAT_BYTES
from .cgroup import Unavailable, memory_limit
from .lab import median, shipped
from .report import Figure, Result, verdict

MIB = 1 << 20
PARTS = ("sampling", "aggregation", "training")
MOST_MIN = 0.5  # of the epoch that sampling and aggregation take together, where features do not fit


def dataset(lab, features):
    s = lab.size["mapping"]
    return lab.dataset(f"rmat-mapping-{features}", "--vertices", s["vertices"], "--edges", s["edges"], "--symmetrize", "--features", features,
                       "--classes", 8, "--train-count", s["train"], "--val-count", 64, "--test-count", 64, "--seed", 1, kind="rmat")


def feature_bytes(lab, features):
    return lab.size["mapping"]["vertices"] * features * FLOAT_BYTES


def leave_page_cache(directory):
    for name in os.listdir(directory):
        with open(os.path.join(directory, name), "rb") as f:
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def mapped(lab, features, limit):
    """One run, in a cgroup of so many bytes; None: there is no limit. Stages work one after the other, as in DGL."""
    s, data = lab.size["mapping"], dataset(lab, features)
    stages = {"planner": {"cpu_cache": 0}, "disk": {"backend": "mmap"},
              "trainer": {"hidden": s["hidden"], "layers": 2, "threads": 1, "eval_every": 0, "checkpoint_every": 0}}
    cores = {"sampler": lab.drive_core, "disk": lab.drive_core, "trainer": lab.train_core}
    options = lab.settings(cores, stages, {"batch": s["batch"], "fanout": [5, 5], "topology": "memory"}, {"overlap": False})

    def run(before=None):
        return lab.run(shipped("hyperion.json"), data, s["epochs"], options, before)
    if limit is None:
        return run()
    if feature_bytes(lab, features) > limit:
        leave_page_cache(data)
    with memory_limit(limit) as cgroup:
        return run(cgroup.enter)


def parts(report):
    """Seconds of an epoch in each of PARTS, and all seconds of an epoch."""
    n = len(report["epochs"])
    found = (report["stages"]["sampler"]["busy_s"], report["stages"]["disk"]["busy_s"], report["trainer"]["train_s"])
    return [t / n for t in found] + [sum(e["seconds"] for e in report["epochs"]) / n]


def mapping_row(lab, features, limit, reports):
    times = [median(values) for values in zip(*map(parts, reports))]
    return [features * FLOAT_BYTES, feature_bytes(lab, features) / MIB, "none" if limit is None else limit / MIB, median([r["io"]["major_faults"] for r in reports]), *times,
            *(t / times[-1] for t in times[:-1])]


def limits(lab):
    """(the memory of all processes, why there is no limit)."""
    limit = lab.size["mapping"]["memory_mib"] * MIB
    try:
        with memory_limit(limit):
            return limit, ""
    except Unavailable as e:
        return None, str(e)


def mappings(lab):
    limit, unlimited = limits(lab)
    widths = lab.size["mapping"]["features"]
    found = lab.alternate(widths, lambda features: mapped(lab, features, limit))
    table = [mapping_row(lab, features, limit, found[features]) for features in widths]
    few, many = table[0], table[-1]
    data = many[8] + many[9]
    if unlimited:
        holds, why = None, f"every mapping fits in memory, because there is no limit: {unlimited}"
    else:
        holds, why = verdict(lab, {
            f"where the features do not fit, sampling and aggregation take {data:.2f} of the epoch; expected at least {MOST_MIN}": data >= MOST_MIN,
            "aggregation does not take more of the epoch where the features do not fit": many[9] > few[9],
            "training does not take less of the epoch where the features do not fit": many[10] < few[10]})
    names = [f"{r[1]:.0f} MiB" for r in table]
    chart = svg.bars("Where an epoch through a mapping goes", "features", "share of the epoch", names, {p: [r[8 + k] for r in table] for k, p in enumerate(PARTS)})
    told = "; ".join(f"{name} of features: " + ", ".join(f"{p} {r[8 + k]:.2f}" for k, p in enumerate(PARTS)) for name, r in zip(names, table))
    return Result(("row bytes", "features MiB", "memory MiB", "major faults", *(f"{p} s" for p in PARTS), "epoch s", *PARTS), table, {"": chart},
                  f"shares of the epoch: {told}", holds, why,
                  (f"An R-MAT graph, fanout [5, 5], batches of {lab.size['mapping']['batch']}, rows of both widths. The processes and the pages that they fault in have a memory cgroup. "
                   "Features that fit in it are in the page cache from the start; the others lie on this machine's own drive. The rows of a batch fault one after the other.",
                   "Edges are in memory. Sampling, aggregation and training take turns (`overlap` is false). The rest of an epoch is that of the runtime."))


FIGURES = (
    Figure("5", "where a mapping's epoch goes", "section 2.3, Figure 5",
           "sampling and aggregation dominate; training is barely visible for the two graphs whose features do not fit in CPU memory",
           lambda size: len(size["mapping"]["features"]) * size["alternations"], mappings),
)
