"""GIDS's Figures 11 (the depth of the window) and 12 (the size of the cache): what caches hit, by `penstock replay`. Counts are
exact, and do not depend on the machine."""
from . import svg
from .gids_bench import FANOUT
from .report import Figure, Result, verdict

WINDOWS = (0, 4, 8, 16)  # 0: random eviction
DEEP = 16  # the window of Figure 12
CACHES = (1, 2, 4, 8)  # batches of rows that the cache holds, Figure 12
WHOLE = 4  # batches: the paper has 8 GB of cache, and batches of about 2 GB
WINDOW_MIN = 2.0  # window 8 over random; the paper has 2.19
POLICIES = ("random", "window", "lookahead", "belady")
TRACE = {"penstock": 1, "name": "trace", "epochs": 1, "seed": 1, "help": "writes the ids of every batch, and reads no rows",
         "stages": {"planner": {"run": "planner", "params": {"cpu_cache": 0}}, "sampler": {"run": "sampler"}, "discard": {"run": "discard"}},
         "links": [{"from": "planner.plan", "to": "sampler.plan"}, {"from": "sampler.batch", "to": "discard.in"}]}


def trace(lab):
    """The files of the ids of one epoch, and of the plan. Both figures use them."""
    s = lab.size["counts"]
    data = lab.dataset("rmat-counts", "--vertices", s["vertices"], "--edges", s["edges"], "--symmetrize", "--features", 1, "--stride-bytes", 4,
                       "--seed", 1, kind="rmat")
    return lab.traced("trace-counts", TRACE, data, lab.settings({}, {}, {"fanout": FANOUT, "batch": s["batch"]}, {}))


def rates(lab, batches, window):
    """{policy: its hit rate} of a cache that holds the rows of so many batches."""
    ids, plan = trace(lab)
    found = lab.replay(ids, "--batches", batches, "--window", window, "--plan", plan)
    return {p["policy"]: p["hit_rate"] for p in found["policies"]}


def reads(rate, none):
    """Rows to read from drives, relative to those with the hit rate `none`."""
    return (1 - rate) / (1 - none)


def setting(lab):
    s = lab.size["counts"]
    return (f"An R-MAT graph of {s['vertices']} vertices, of which a tenth are training vertices; {s['edges']} edges, made symmetric; fanout {FANOUT}, batches of "
            f"{s['batch']}. One epoch. There is no constant buffer.")


def row(first, found):
    return [first, *(found[p] for p in POLICIES), found["window"] / found["random"], reads(found["window"], found["random"])]


COLUMNS = (*POLICIES, "window / random", "reads, window / random")
OURS = "lookahead and belady are not in the paper: the first is our policy, the second the most that any cache can hit."

# ---- 11: the depth of the window -----------------------------------------------------------------------------


def depths(lab):
    table = [row(w, rates(lab, WHOLE, w)) for w in WINDOWS]
    gain = {r[0]: r[5] for r in table}
    holds, why = verdict(lab, {
        f"window 8 has {gain[8]:.2f} times random's hit rate; expected at least {WINDOW_MIN}": gain[8] >= WINDOW_MIN,
        "window 4 is not between random and window 8": 1 < gain[4] < gain[8],
        "window 0 is not random eviction": table[0][2] == table[0][1]})
    chart = svg.lines(f"Hit rates of a cache of {WHOLE} batches", "window", "hit rate", [str(w) for w in WINDOWS], {p: [r[1 + k] for r in table] for k, p in enumerate(POLICIES)})
    return Result(("window", *COLUMNS), table, {"": chart},
                  "windows of 4, 8 and 16 have " + ", ".join(f"{gain[w]:.2f}" for w in WINDOWS[1:]) + " times random's hit rate", holds, why,
                  (setting(lab), f"The cache holds the rows of {WHOLE} batches.", OURS, "Aggregation takes as long as its reads where the drives bound it: last column."))


# ---- 12: the size of the cache -------------------------------------------------------------------------------


def sizes(lab):
    table = [row(c, rates(lab, c, DEEP)) for c in CACHES]
    by = {r[0]: r for r in table}
    quarter = {c: by[c // 4][2] / by[c][1] for c in CACHES if c // 4 in by}
    holds, why = verdict(lab, {f"{c // 4} batches with window {DEEP} hit {ratio:.2f} times as often as {c} without": ratio > 1 for c, ratio in quarter.items()})
    chart = svg.lines(f"Hit rates, window {DEEP}", "batches of rows in the cache", "hit rate", [str(c) for c in CACHES], {p: [r[1 + k] for r in table] for k, p in enumerate(POLICIES)})
    told = ", ".join(f"{ratio:.2f} ({c // 4} against {c} batches)" for c, ratio in quarter.items())
    return Result(("batches", *COLUMNS), table, {"": chart},
                  f"a quarter of the cache with window {DEEP} has these multiples of the hit rate of the whole without: {told}", holds, why, (setting(lab), OURS))


FIGURES = (
    Figure("11", "the depth of the window", "section 4.5, Figure 11",
           "a window of 8 has 2.19 times the hit rate of random eviction, and one of 4 has 1.2 times", lambda size: len(WINDOWS), depths),
    Figure("12", "the size of the cache", "section 4.5, Figure 12",
           "with window 16, 4 GB of cache hit more often than 16 GB without", lambda size: len(CACHES), sizes),
)
