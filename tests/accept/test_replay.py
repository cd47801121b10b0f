"""What caches hit, by `penstock replay` on R-MAT graphs: the bars of GIDS's Figures 11 and 12, of lookahead against Belady,
static and window, and of labor against uniform sampling. Counts are exact and do not depend on the machine."""
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/pipeline")
from harness import *

PLAIN = {"stages": {"planner": {"run": "planner", "params": {"cpu_cache": 0}}, "sampler": {"run": "sampler"}, "discard": {"run": "discard"}},
         "links": [{"from": "planner.plan", "to": "sampler.plan"}, {"from": "sampler.batch", "to": "discard.in"}]}
SETTINGS = {"batch 32": (("--edges", 15_000_000, "--symmetrize"), [5, 5], 32),
            "batch 256": (("--edges", 15_000_000, "--symmetrize"), [5, 5], 256),
            "1 % training": (("--edges", 10_000_000, "--train-count", 10_000), [10, 5, 5], 64)}


LABOR = {"algorithm": "labor", "options": "batch_dependency=64, layer_dependency=1"}


def trace(p, name, **sampler):
    """The ids of one epoch, and the plan. sampler: parameters of its algorithm."""
    graph, fanout, batch = SETTINGS[name]
    data, ids = p.path("-".join(map(str, graph))), p.path("ids")
    if not os.path.exists(data):
        command("gen", "rmat", data, "--vertices", 1_000_000, *graph, "--features", 1, "--stride-bytes", 4, "--quiet")
    r = p.run(pipeline(**PLAIN, epochs=1, seed=1, params={"fanout": fanout, "batch": batch, **sampler}), "--quiet",
              "--set", f"stages.sampler.params.trace_ids={ids}", data=data, timeout=300)
    return ids, os.path.join(r.run_dir, "plan", "plan.json")


def replay(ids, plan, window, *size):
    """What `penstock replay` prints of a cache of a size."""
    return json.loads(command("replay", ids, *size, "--window", window, "--plan", plan, "--json").stdout)


def rates(ids, plan, batches, window):
    return {p["policy"]: p["hit_rate"] for p in replay(ids, plan, window, "--batches", batches)["policies"]}


@test
def figures_11_and_12():
    with Place() as p:
        ids, plan = trace(p, "batch 32")
        by = {w: rates(ids, plan, 4, w) for w in (4, 8, 16)}
        quarter = rates(ids, plan, 1, 16)["window"]
        print(f"# window 4, 8, 16: {[round(by[w]['window'], 4) for w in by]}, random {by[8]['random']:.4f}, quarter {quarter:.4f}")
        assert by[8]["window"] >= 2 * by[8]["random"]
        assert by[8]["random"] < by[4]["window"] < by[8]["window"]
        assert quarter > by[8]["random"]


@test
def lookahead_against_the_others():
    with Place() as p:
        for name in SETTINGS:
            ids, plan = trace(p, name)
            for batches in (2, 4):
                near, far = rates(ids, plan, batches, 8), rates(ids, plan, batches, 16)
                print(f"# {name}, {batches} batches, W = 8:", {k: round(v, 4) for k, v in near.items()},
                      f"W = 16: window {far['window']:.4f}, lookahead {far['lookahead']:.4f}")
                assert far["lookahead"] >= 0.88 * far["belady"], (name, batches)
                assert near["lookahead"] >= 1.04 * near["window"], (name, batches)
                assert min(near["lookahead"], far["lookahead"]) >= near["static"], (name, batches)


@test
def labor_misses_fewer_rows_than_uniform():
    """With batches and hops that depend on each other, at equal bytes."""
    with Place() as p:
        for name in SETTINGS:
            missed = {}
            ids, plan = trace(p, name)
            uniform = {(b, w): replay(ids, plan, w, "--batches", b) for b in (2, 4) for w in (8, 16)}
            for (batches, window), told in uniform.items():
                missed[batches, window] = {q["policy"]: q["misses"] for q in told["policies"]}
            ids, plan = trace(p, name, **LABOR)
            for batches in (2, 4):
                told = replay(ids, plan, 16, "--rows", uniform[batches, 16]["rows"])
                assert told["batches"] == uniform[batches, 16]["batches"], (told, uniform)
                ours = next(q["misses"] for q in told["policies"] if q["policy"] == "lookahead")
                alike, gids = ours / missed[batches, 16]["lookahead"], ours / missed[batches, 8]["window"]
                print(f"# {name}, {batches} batches: labor misses {alike:.3f} of uniform's rows, {gids:.3f} of uniform's with GIDS's window")
                assert alike <= 0.6 and gids <= 0.5, (name, batches)


if __name__ == "__main__":
    main()
