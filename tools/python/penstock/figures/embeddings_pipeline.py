"""What staleness, prefetching and the buffer's size do: Marius's Figures 12 and 13, and Legend's Tables 3 and 5."""
from . import svg
from .embeddings_bench import dilation, epoch_s, io_s, legend, marius
from .lab import median
from .report import Figure, Result, verdict

DELAY_OVER_TRAINING = 6  # a batch's way to the device and back, over the time to train it
GAIN_MIN = 4  # of the throughput, at a staleness of 8; the paper's is about 5
GAIN_AFTER_MAX = 1.3  # of 16 over 8
MRR_KEPT = 0.95  # of the MRR at a staleness of 1, or of the best buffer
MRR_LATE_MAX = 0.95  # of the MRR with relations in order, if they are late; the paper's falls severely
RATE = 0.4  # of Figure 12. At 0.1, late relations lose at most 3 % on this graph
US_PER_S = 1e6
PREFETCH_IO = 1.0  # over training: the most that prefetching can gain is a factor of two
LEGEND_IO = 0.3  # over training, on the dense graph
PREFETCH_GAIN_MIN = 1.05


# ---- Marius 12: staleness ------------------------------------------------------------------------------


def rate(report):
    return median([e["edges_per_second"] for e in report["epochs"]])


def delayed(lab, staleness, delay_s, relations):
    """A run in which batches reach the embedder late."""
    fields = {"stages.delay": {"run": "delay", "params": {"delay_us": round(delay_s * US_PER_S)}, "place": {"cores": str(lab.drive_core)}},
              "links[1].to": "delay.in", "links[2]": {"from": "delay.out", "to": "embedder.batch"}, "params.relations": relations, "params.rate": RATE}
    return marius(lab, lab.size["quality"], staleness=staleness, epochs=lab.size["staleness_epochs"], fields=fields, evaluate="end")


def late_ones(size):
    """Values of staleness at which both ways of updating relations differ."""
    return [s for s in size["staleness"] if s > 1]


def rows_by_staleness(found, late):
    rows = []
    for s, reports in found.items():
        row = [s, median([rate(r) for r in reports]), median([rate(r) / rate(one) for r, one in zip(reports, found[1])]), reports[0]["test_mrr"]]
        rows.append(row + ([rate(late[s]), late[s]["test_mrr"]] if s in late else [row[1], row[3]]))
    return rows


def staleness(lab):
    plain = marius(lab, lab.size["quality"])
    delay = DELAY_OVER_TRAINING * epoch_s(plain) / (plain["stages"]["embedder"]["items"] / len(plain["epochs"]))
    found = lab.alternate(lab.size["staleness"], lambda s: delayed(lab, s, delay, "sync"))
    late = {s: delayed(lab, s, delay, "async") for s in late_ones(lab.size)}
    table = rows_by_staleness(found, late)
    gain, mrr, mrr_late = ({r[0]: r[i] for r in table} for i in (2, 3, 5))
    last = max(gain)
    lost = mrr_late[last] / mrr[last]
    holds, why = verdict(lab, {f"a staleness of 8 gains {gain.get(8, 0):.2f}; expected at least {GAIN_MIN}": gain.get(8, 0) >= GAIN_MIN,
                               f"a staleness of {last} is {gain[last] / gain.get(8, 1):.2f} times as fast as 8; expected at most {GAIN_AFTER_MAX}":
                                   gain[last] <= GAIN_AFTER_MAX * gain.get(8, 0),
                               f"the MRR falls to {min(mrr.values()) / mrr[1]:.3f} of that of 1; expected at least {MRR_KEPT}": min(mrr.values()) >= MRR_KEPT * mrr[1],
                               f"with late relations, the MRR at {last} is {lost:.3f} of that with relations in order; expected at most {MRR_LATE_MAX}":
                                   lost <= MRR_LATE_MAX})
    series = lambda a, b: {"relations in order": [r[a] for r in table], "relations late": [r[b] for r in table]}
    charts = {"a": svg.lines("Throughput by staleness", "staleness", "edges/s", [r[0] for r in table], series(1, 4)),
              "b": svg.lines("Quality by staleness", "staleness", "MRR", [r[0] for r in table], series(3, 5))}
    return Result(("staleness", "edges/s", "gain", "test MRR", "late: edges/s", "late: test MRR"), table, charts,
                  f"throughput gains {gain[last]:.2f} at {last}, and the MRR keeps {min(mrr.values()) / mrr[1]:.3f} of that of 1; "
                  f"with late relations, it is {lost:.3f} of that with relations in order", holds, why,
                  (f"A stage `delay` holds each batch for {1000 * delay:.1f} ms, {DELAY_OVER_TRAINING} times as long as it is trained. It stands for the way to a GPU and back.",
                   "Relations are updated in order (`relations` sync), or late, like vertices (async; one run each). At a staleness of 1, both give the same bits.",
                   f"The learning rate is {RATE}. With the default of 0.1, steps are so small that late relations cost little quality."))


# ---- Marius 13: prefetching ------------------------------------------------------------------------------


def utilization(report):
    return report["embedder"]["train_s"] / sum(e["seconds"] for e in report["epochs"])


def prefetching(lab):
    p, c = lab.size["marius_partitions"]
    density = lab.size["dense"]
    dilate = dilation(marius(lab, density, p, c), p, c, PREFETCH_IO * epoch_s(marius(lab, density)))
    found = lab.alternate((True, False), lambda on: marius(lab, density, p, c, dilate, prefetch=on))
    table = [["on" if on else "off", io_s(r[0], p, c, dilate), median([epoch_s(x) for x in r]), median([utilization(x) for x in r])] for on, r in found.items()]
    gain = median([epoch_s(off) / epoch_s(on) for on, off in zip(found[True], found[False])])
    holds, why = verdict(lab, {f"prefetching gains {gain:.2f}; expected at least {PREFETCH_GAIN_MIN}": gain >= PREFETCH_GAIN_MIN,
                               "the embedder is busy for a smaller share of the time": table[0][3] > table[1][3]})
    chart = svg.bars("Share of the time that the embedder computes", "prefetching", "share", [r[0] for r in table], {"share": [r[3] for r in table]})
    return Result(("prefetching", "IO alone s", "epoch s", "embedder busy"), table, {"": chart},
                  f"prefetching makes an epoch {gain:.2f} times as fast; the embedder is busy for {100 * table[0][3]:.0f} % of the time in place of {100 * table[1][3]:.0f} %",
                  holds, why, (f"The drive is dilated {dilate} times: IO alone takes as long as training in memory.",))


# ---- Legend: Table 3, the buffer's size --------------------------------------------------------------------


def buffers(lab):
    table = []
    for system, ways in lab.size["buffers"].items():
        for c, p in ways:
            epochs, density = lab.size["quality_epochs"], lab.size["quality"]
            report = (marius(lab, density, p, c, epochs=epochs, evaluate="end", staleness=lab.size["staleness"][-1]) if system == "marius" else
                      legend(lab, density, p, c, epochs=epochs, evaluate="end"))
            table.append([system, f"{c}/{p}", epoch_s(report), report["test_mrr"], report["test_hits_10"]])
    worst = {system: min(r[3] for r in table if r[0] == system) / max(r[3] for r in table if r[0] == system) for system in lab.size["buffers"]}
    holds, why = verdict(lab, {f"{system}: the lowest MRR is {w:.3f} of the highest; expected at least {MRR_KEPT}": w >= MRR_KEPT for system, w in worst.items()})
    chart = svg.bars("Quality by the share of partitions in memory", "in memory", "test MRR", [f"{r[0]} {r[1]}" for r in table], {"MRR": [r[3] for r in table]})
    return Result(("system", "in memory", "epoch s", "test MRR", "Hits@10"), table, {"": chart},
                  "the lowest MRR is " + ", ".join(f"{w:.3f} ({s})" for s, w in worst.items()) + " of the highest", holds, why,
                  ("The drive has no limit here: quality does not depend on it.",))


# ---- Legend: Table 5, prefetching --------------------------------------------------------------------------


def densities(lab):
    p, c = lab.size["legend_partitions"]
    fast = legend(lab, lab.size["dense"], p, c)
    dilate = dilation(fast, p, c, LEGEND_IO * epoch_s(fast))
    table = []
    for name in ("dense", "sparse"):
        found = lab.alternate((False, True), lambda on, d=lab.size[name]: legend(lab, d, p, c, dilate, prefetch=on))
        without, on = (median([epoch_s(r) for r in found[v]]) for v in (False, True))
        table.append([name, lab.size[name], io_s(found[True][0], p, c, dilate), without, on, median([epoch_s(a) / epoch_s(b) for a, b in zip(found[False], found[True])])])
    dense, sparse = table[0][5], table[1][5]
    holds, why = verdict(lab, {f"on the dense graph prefetching gains {dense:.2f}; expected at least {PREFETCH_GAIN_MIN}": dense >= PREFETCH_GAIN_MIN,
                               f"on the sparse graph prefetching gains {sparse:.2f}, on the dense one {dense:.2f}; expected less": sparse < dense,
                               f"on the sparse graph prefetching costs time: {sparse:.2f}": sparse >= 1})
    chart = svg.bars("Epoch time of Legend", "graph", "seconds", ["dense", "sparse"], {"without": [r[3] for r in table], "prefetching": [r[4] for r in table]})
    return Result(("graph", "edges a vertex", "IO alone s", "without s", "prefetching s", "gain"), table, {"": chart},
                  f"prefetching gains {100 * (dense - 1):.0f} % on the dense graph and {100 * (sparse - 1):.0f} % on the sparse one", holds, why,
                  (f"The drive is dilated {dilate} times: on the dense graph, IO alone takes {LEGEND_IO} of the training time. On the sparse one it bounds.",))


def both_systems(size):
    return sum(len(ways) for ways in size["buffers"].values())


FIGURES = (
    Figure("marius-12", "Marius, Figure 12: staleness", "Marius, section 5.5, Figure 12",
           "with relations updated in order, staleness gains a factor of about 5, little beyond 8, and costs no quality; with late ones, quality falls severely",
           lambda size: 1 + len(size["staleness"]) * size["alternations"] + len(late_ones(size)), staleness),
    Figure("marius-13", "Marius, Figure 13: prefetching in Marius", "Marius, section 5.5, Figure 13", "prefetching partitions keeps the GPU busier",
           lambda size: 2 + 2 * size["alternations"], prefetching),
)
LEGEND_FIGURES = (
    Figure("legend-table-3", "Legend, Table 3: the buffer's size and the quality", "Legend, section 7.2, Table 3",
           "the buffer's size has no definite correlation with MRR and Hits@10: .401 to .418 for Marius, .398 to .412 for Legend", both_systems, buffers),
    Figure("legend-table-5", "Legend, Table 5: prefetching in Legend", "Legend, section 7.4, Table 5", "prefetching gains 30 % on a dense graph and 11 % on a sparse one",
           lambda size: 1 + 4 * size["alternations"], densities),
)
