"""What the order of partitions costs: Marius's Figures 7, 9, 10 and 11, and Legend's Figure 18."""
from . import svg
from .embeddings_bench import dilation, epoch_bytes, epoch_s, io_s, legend, marius
from .lab import median
from .report import Figure, Result, verdict

CURVES = ("hilbert", "hilbert-symmetric", "beta")  # Marius's
ORDERS = (*CURVES, "auto")
NEARLY_OPTIMAL = 1.25  # BETA's swaps over the bound
IO_OVER_TRAINING = 0.5  # of BETA, on the sparse graph. Exchanges are uneven: with perfect overlap, its epoch is 1.07 of that in memory
NEARLY_IN_MEMORY = 1.15  # BETA's epoch over the one in memory
SAME_TIME = 1.10  # of the orders, on the dense graph
SLOWER = 1.15  # the Hilbert curve's epoch over BETA's, on the sparse graph
LEGEND_IO = 0.9  # of the training time
FASTER_THAN_BETA = 1.05
MEGABYTE = 1e6


# ---- 7: swaps of an epoch ------------------------------------------------------------------------------


def swaps(lab):
    table = []
    for partitions in lab.size["order_partitions"]:
        found = {kind: lab.order("--kind", kind, "--partitions", partitions, "--buffer", partitions // 4)["counts"] for kind in ORDERS}
        table.append([partitions, *(found[k]["swaps"] for k in ORDERS), found["beta"]["bound"]])
    beta, bound = ORDERS.index("beta") + 1, len(ORDERS) + 1
    worst = max(r[beta] / r[bound] for r in table)
    holds, why = verdict(lab, {f"BETA needs up to {worst:.2f} times the bound; expected at most {NEARLY_OPTIMAL}": worst <= NEARLY_OPTIMAL,
                               "a Hilbert curve needs fewer swaps than BETA": all(r[beta] <= min(r[1:beta]) for r in table)})
    chart = svg.lines("Swaps of an epoch; a quarter of the partitions is in memory", "partitions", "swaps", [r[0] for r in table],
                      {k: [r[i + 1] for r in table] for i, k in enumerate((*ORDERS, "bound"))})
    return Result(("partitions", *ORDERS, "bound"), table, {"": chart}, f"BETA needs at most {worst:.2f} times the bound's swaps", holds, why,
                  ("auto is our search: it takes at most 5 seconds.", "Swaps are exact: nothing is simulated or measured."))


# ---- 9, 10, 11: orders of Marius, in training --------------------------------------------------------------


def trained(lab, density, *partitioned, **more):
    """A run whose store is on the trainer's core. The emulated drive polls: beside it, the store would have half a core."""
    return marius(lab, density, *partitioned, vertices=lab.size["order_vertices"], store_core=lab.train_core, **more)


def of_orders(lab, density, dilate):
    """The reports of each order, and of training in memory, taking turns."""
    p, c = lab.size["marius_partitions"]
    return lab.alternate(("memory", *ORDERS), lambda kind: trained(lab, density) if kind == "memory" else trained(lab, density, p, c, dilate, kind))


def slow_drive(lab):
    """The drive's dilation, so that BETA's IO is the given share of the time of training the sparse graph in memory."""
    p, c = lab.size["marius_partitions"]
    memory = trained(lab, lab.size["sparse"])
    return dilation(trained(lab, lab.size["sparse"], p, c, order="beta"), p, c, IO_OVER_TRAINING * epoch_s(memory))


def total_io(lab):
    p, c = lab.size["marius_partitions"]
    table = []
    for kind in ORDERS:
        report = marius(lab, lab.size["sparse"], p, c, order=kind)
        x = report["exchange"]
        table.append([kind, x["swaps"] // len(report["epochs"]), x["partition_bytes"] / MEGABYTE, epoch_bytes(report, p, c) / MEGABYTE])
    of = {r[0]: r[3] for r in table}
    holds, why = verdict(lab, {"BETA moves more than a Hilbert curve": of["beta"] <= min(of[k] for k in CURVES),
                               "the symmetric curve moves more than the plain one": of["hilbert-symmetric"] <= of["hilbert"]})
    chart = svg.bars(f"Read and written in an epoch, {p} partitions, {c} in memory", "order", "MB", list(of), {"MB": list(of.values())})
    return Result(("order", "swaps", "MB a partition", "MB an epoch"), table, {"": chart},
                  f"the Hilbert curve moves {of['hilbert'] / of['beta']:.2f} times the bytes of BETA, the symmetric one {of['hilbert-symmetric'] / of['beta']:.2f}",
                  holds, why, ("Bytes are counted by the disk stage. They include the first fill, and partitions that are written at the end.",))


def order_rows(lab, density, dilate):
    p, c = lab.size["marius_partitions"]
    found = of_orders(lab, density, dilate)
    rows = []
    for kind, reports in found.items():
        io = 0.0 if kind == "memory" else io_s(reports[0], p, c, dilate)
        rows.append([kind, io, median([epoch_s(r) for r in reports]),
                     median([epoch_s(r) / epoch_s(m) for r, m in zip(reports, found["memory"])])])
    return rows


def order_result(lab, density, title, judge, *notes):
    dilate = slow_drive(lab)
    table = order_rows(lab, density, dilate)
    ratio = {r[0]: r[3] for r in table}
    holds, why = verdict(lab, judge(ratio))
    chart = svg.bars(title, "order", "epoch, seconds", [r[0] for r in table], {"epoch": [r[2] for r in table], "its IO alone": [r[1] for r in table]})
    said = ", ".join(f"{k} {v:.2f}" for k, v in ratio.items() if k != "memory")
    return Result(("order", "IO alone s", "epoch s", "over memory"), table, {"": chart}, f"an epoch takes, in multiples of the one in memory: {said}", holds, why,
                  (f"The drive is dilated {dilate} times. On the sparse graph, BETA's IO then takes {IO_OVER_TRAINING} of the time of training in memory.",
                   "The store is on the trainer's core, so that the drive has a core of its own, with which it can keep its rate.", *notes))


def sparse_orders(lab):
    return order_result(lab, lab.size["sparse"], "Orders on a sparse graph", lambda ratio: {
        f"with BETA, an epoch takes {ratio['beta']:.2f} times that in memory; expected at most {NEARLY_IN_MEMORY}": ratio["beta"] <= NEARLY_IN_MEMORY,
        f"the Hilbert curve takes {ratio['hilbert'] / ratio['beta']:.2f} times as long as BETA; expected at least {SLOWER}": ratio["hilbert"] >= SLOWER * ratio["beta"],
        "the symmetric curve is slower than the plain one": ratio["hilbert-symmetric"] <= ratio["hilbert"]})


def dense_orders(lab):
    return order_result(lab, lab.size["dense"], "Orders on a dense graph", lambda ratio: {
        f"the slowest order takes {max(ratio[k] for k in CURVES) / min(ratio[k] for k in CURVES):.2f} times as long as the fastest; expected at most {SAME_TIME}":
            max(ratio[k] for k in CURVES) <= SAME_TIME * min(ratio[k] for k in CURVES)},
        "The drive is that of Figure 10. Only the number of edges differs.")


# ---- Legend 18: orders of Legend -----------------------------------------------------------------------------


def legend_orders(lab):
    p, c = lab.size["legend_partitions"]
    density = lab.size["dense"]
    fast = legend(lab, density, p, c)
    dilate = dilation(fast, p, c, LEGEND_IO * epoch_s(fast))
    ways = {"beta": ("beta", True), "legend, no prefetch": ("legend", False), "legend": ("legend", True), "auto": ("auto", True)}
    found = lab.alternate(ways, lambda way: legend(lab, density, p, c, dilate, order=ways[way][0], prefetch=ways[way][1]))
    table = [[way, r[0]["exchange"]["swaps"] // len(r[0]["epochs"]), io_s(r[0], p, c, dilate), median([epoch_s(x) for x in r])] for way, r in found.items()]
    over = {way: median([epoch_s(b) / epoch_s(x) for b, x in zip(found["beta"], found[way])]) for way in ways}
    holds, why = verdict(lab, {f"Legend's order is {over['legend']:.2f} times as fast as BETA; expected at least {FASTER_THAN_BETA}":
                               over["legend"] >= FASTER_THAN_BETA})
    chart = svg.bars(f"Orders in Legend, {p} partitions, {c} in memory", "order", "epoch, seconds", list(ways), {"epoch": [r[3] for r in table]})
    return Result(("order", "swaps", "IO alone s", "epoch s"), table, {"": chart},
                  "as fast as BETA: " + ", ".join(f"{way} {over[way]:.2f}" for way in ways if way != "beta"), holds, why,
                  (f"The drive is dilated {dilate} times: IO takes {LEGEND_IO} of the training time. All run in the same stage, so only the order differs.",
                   "COVER is not measured: it exchanges the whole buffer at a time, and the stage exchanges one partition."))


def of_all(size):
    return 2 + size["alternations"] * (1 + len(ORDERS))


FIGURES = (
    Figure("marius-7", "Marius, Figure 7: swaps of the orders of partitions", "Marius, section 4.1, Figure 7",
           "BETA is nearly optimal for all numbers of partitions, and needs far less IO than Hilbert curves",
           lambda size: len(ORDERS) * len(size["order_partitions"]), swaps),
    Figure("marius-9", "Marius, Figure 9: IO of an epoch", "Marius, section 5.3, Figure 9", "the symmetric Hilbert curve moves about half of the plain one, and BETA least",
           lambda size: len(ORDERS), total_io),
    Figure("marius-10", "Marius, Figure 10: orders, where IO bounds", "Marius, section 5.3, Figure 10",
           "BETA nearly reaches the speed of training in memory; Hilbert curves need more IO and wait for it", of_all, sparse_orders),
    Figure("marius-11", "Marius, Figure 11: orders, where training bounds", "Marius, section 5.3, Figure 11",
           "on a graph of ten times the density, prefetching outpaces training, and the order makes no difference", of_all, dense_orders),
)
LEGEND_FIGURES = (
    Figure("legend-18", "Legend, Figure 18: orders in Legend", "Legend, section 7.4, Figure 18",
           "Legend's order needs about as much IO as BETA, and with prefetching it is faster", lambda size: 1 + 4 * size["alternations"], legend_orders),
)
