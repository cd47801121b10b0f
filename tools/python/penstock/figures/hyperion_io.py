"""Hyperion's Figure 12: the rate of the disk stack over drives and row sizes."""
from . import svg
from .lab import median
from .report import Figure, Result, verdict

BUS = 24e9  # bytes a second of PCIe 4.0 x16, section III-A
DIM_BYTES = 4
WIDEST = 1024  # dimensions where the number of drives varies
DRIVES = {"p5510": 12, "980pro": 6}
SPAN = "2MiB"  # of each drive; filling it is most of a short measurement
FLAT = 0.05  # rates this close are equal
STACKS = {"async, 1 lane": ("async", 1, 4096), "async, 32 lanes": ("async", 32, 4096), "sync, 32 lanes": ("sync", 32, 512)}
PANELS = {("p5510", "ssds"): "a", ("p5510", "dims"): "b", ("980pro", "ssds"): "c", ("980pro", "dims"): "d"}


def points(size):
    """(preset, what varies, SSDs, dimension) of each point."""
    for preset, most in DRIVES.items():
        for n in size["io_ssds"][preset]:
            yield preset, "ssds", n, WIDEST
        for dim in size["io_dims"]:
            yield preset, "dims", most, dim


def rate(lab, stack, preset, ssds, dim):
    """Bytes a second, as if the drives were not dilated. Few drives are dilated less, because a core can emulate them faster."""
    name, lanes, depth = STACKS[stack]
    dilate = lab.size["io_dilate"] * ssds / max(DRIVES.values())
    r = lab.bench_io("--preset", preset, "--ssds", ssds, "--span", SPAN, "--bytes", dim * DIM_BYTES, "--bus", f"{BUS:.0f}", "--dilate", f"{dilate:g}",
                     "--stack", name, "--lanes", lanes, "--depth", depth, "--seconds", lab.size["io_s"])
    return r["bytes_per_s"] * dilate


def chart(table, preset, varies):
    mine = [r for r in table if r[0] == preset and r[1] == varies]
    names = [str(r[2] if varies == "ssds" else r[3]) for r in mine]
    title = f"{preset}, dimension {WIDEST}" if varies == "ssds" else f"{DRIVES[preset]} {preset}"
    return svg.lines(f"IO throughput, {title}", "SSDs" if varies == "ssds" else "feature dimension", "GB/s", names,
                     {stack: [r[4 + k] for r in mine] for k, stack in enumerate(STACKS)})


def io(lab):
    table = []
    for point in points(lab.size):
        preset, varies, ssds, dim = point
        found = lab.alternate(STACKS, lambda stack: rate(lab, stack, preset, ssds, dim))
        table.append([*point, *(median(found[stack]) / 1e9 for stack in STACKS)])
    full = [r for r in table if r[0] == "p5510" and r[1] == "ssds" and r[2] >= 8]
    flat = [r[4] for r in full]
    holds, why = verdict(lab, {
        "from 8 P5510 on, the rate still changes: " + ", ".join(f"{x:.1f}" for x in flat) + " GB/s": bool(flat) and max(flat) <= (1 + FLAT) * min(flat),
        "one lane reaches less than 95 % of what 32 reach at some point": all(r[4] >= (1 - FLAT) * r[5] for r in table),
        "the synchronous stack is faster at some point": all(r[4] >= r[6] for r in table)})
    most = max(r[4] for r in table if r[0] == "p5510")
    return Result(("SSD", "varies", "SSDs", "dimension", *(f"{s} GB/s" for s in STACKS)), table,
                  {panel: chart(table, *key) for key, panel in PANELS.items() if any((r[0], r[1]) == key for r in table)},
                  f"12 P5510 and the bus give up to {most:.1f} GB/s; the bus has {BUS / 1e9:.0f}. One lane reaches "
                  f"{min(r[4] / r[5] for r in table):.2f} to {max(r[4] / r[5] for r in table):.2f} of the rate of 32 lanes, "
                  f"and at least {min(r[4] / r[6] for r in table):.2f} times that of the synchronous stack", holds, why,
                  (f"{max(DRIVES.values())} drives are dilated {lab.size['io_dilate']} times, fewer drives in proportion; rates are multiplied by that. "
                    "Driver and drives have one core.",
                   "At the preset's 3.07 GB/s, 8 P5510 fill a bus of 24 GB/s; in the paper 6 do.",
                   "sync: 32 lanes, each waiting for its request, as BaM's threads do; it stands for GIDS. A lane stands for a thread of a GPU.",
                   "The shares of GPU cores that kernels need cannot be measured on a CPU."))


FIGURES = (
    Figure("12", "IO throughput over SSDs and row sizes", "section IV-D2, Figure 12",
           "more P5510 bring no more once PCIe is full (from 6); one thread block submits as much as 128; Hyperion is faster than GIDS at each number",
           lambda size: len(list(points(size))) * len(STACKS) * size["alternations"], io),
)
