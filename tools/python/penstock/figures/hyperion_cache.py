"""Hyperion's Figure 13 (d): what it costs to leave the topology on SSDs and fill the memory with features."""
import os

from . import svg
from .bench import FLOAT_BYTES, dataset, dilation, epoch_s, ms, rows, run, times_of
from .lab import median
from .report import Figure, Result, verdict

SSDS = 12
CACHED = 0.15  # of the features, beside the topology
SSD_OVER_TRAIN = 1.5  # IO bounds
GAIN_MIN = 1.05  # the paper's highest is 1.1


def topology_rows(lab):
    """The feature rows that fit where the topology is."""
    taken = sum(os.path.getsize(os.path.join(dataset(lab), name)) for name in ("indptr.npy", "indices.npy"))
    return taken // (lab.size["features"] * FLOAT_BYTES)


def topology_row(lab, name, model):
    few = rows(lab, CACHED)
    cached = {"memory": few, "ssd": few + topology_rows(lab)}
    dilate = dilation(lab, model, SSDS, few, SSD_OVER_TRAIN)
    found = lab.alternate(cached, lambda topology: run(lab, model, SSDS, dilate, cached[topology], topology=topology))
    t, without = times_of(found["memory"]), times_of(found["ssd"])
    gain = median([epoch_s(s) / epoch_s(m) for s, m in zip(found["ssd"], found["memory"])])
    return [name, dilate, cached["memory"], cached["ssd"], ms(t["train"]), ms(t["ssd"]), ms(without["ssd"]),
            *(median([epoch_s(r) for r in found[v]]) for v in ("memory", "ssd")), gain]


def topology_cache(lab):
    table = [topology_row(lab, name, model) for name, model in list(lab.size["models"].items())[:lab.size["topology_models"]]]
    holds, why = verdict(lab, {f"{r[0]} gains {r[9]:.2f}; expected at least {GAIN_MIN}": r[9] >= GAIN_MIN for r in table})
    chart = svg.bars("Epoch time with 12 P5510", "model", "seconds", [r[0] for r in table],
                     {"topology in memory": [r[7] for r in table], "topology on SSDs": [r[8] for r in table]})
    return Result(("model", "dilated", "cached rows", "rows, NoTopoCache", "T_train ms", "T_ssd ms", "T_ssd, NoTopoCache", "epoch s", "NoTopoCache s", "gain"),
                  table, {"": chart}, "with the topology in memory, an epoch is " + ", ".join(f"{r[9]:.2f} ({r[0]})" for r in table) + " times as fast", holds, why,
                  ("Both have the same memory: without the topology, it holds more feature rows, and no lists (policy rows). The drives are dilated so that T_ssd is "
                   f"{SSD_OVER_TRAIN} x T_train with the topology in memory.",
                   "T_ssd says what more is read without the topology. What an epoch takes beyond it are hops that wait for their lists."))


FIGURES = (
    Figure("13d", "the topology cache", "section IV-E, Figure 13 (d)",
           "Hyperion is up to 1.1 times as fast as with features in all of the CPU cache and the topology on SSDs",
           lambda size: size["topology_models"] * (size["profiles"] + 2 * size["alternations"]), topology_cache),
)
