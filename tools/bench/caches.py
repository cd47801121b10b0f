"""The bench of caches: what the rows that the planner chooses bring, against the best choice."""
import json
import os

from epochs import part_alone
from measure import BUILD, Unsound, generate, output, run, settings

SEED = 1
TARGET = 0.97  # of the best static cache
COLUMNS = {"analytic": "analytic", "presample": "presample", "out_degree": "out-degree", "belady": "Belady"}


def same_as_a_run(size, data, found):
    """The first epoch of a real run must look up and hit what the program says, with either source of hotness."""
    sampling = part_alone("sampling", [{"from": "planner.plan", "to": "sampler.plan"}, {"from": "sampler.batch", "to": "discard.in"}])
    for source in ("analytic", "presample"):
        args = settings(params_batch=size.batch, params_fanout=list(size.fanout), planner__cpu_cache_percent=10, planner__hotness=source)
        cache = run(data, "--seed", SEED, *args, pipeline=sampling)["cache"]
        if (cache["lookups"], cache["hits"]) != (found["first_epoch"]["lookups"], found["first_epoch"][source]):
            raise Unsound(f"a run with hotness {source} had {cache['hits']} hits in {cache['lookups']} lookups; expected what this program counted: {found['first_epoch']}")


def hotness(size):
    result = {}
    for label, name, kind, *args in size.graphs:
        data = generate(name, *args, kind=kind)
        found = json.loads(output([os.path.join(BUILD, "bench", "hotness"), data, size.batch, SEED, size.epochs, *size.fanout]))
        same_as_a_run(size, data, found)
        print(f"  {label}: {found['batches']} batches need {found['lookups']} rows, expected {found['expected'] / found['lookups']:.3f} "
              f"of that; analytic took {found['analytic_s']:.2f} s, presample {found['presample_s']:.2f} s")
        print("    cached   best   of the best: " + "  ".join(f"{title:>10}" for title in COLUMNS.values()))
        for share, hits in found["hits"].items():
            ratios = {key: hits[key] / hits["best"] for key in COLUMNS}
            print(f"    {100 * float(share):4.0f} %  {hits['best'] / found['lookups']:6.3f}                "
                  + "  ".join(f"{r:10.3f}" for r in ratios.values()), flush=True)
            if size.judge and ratios["analytic"] < TARGET:
                raise Unsound(f"{label}, {share} of the rows cached: analytic hotness has {ratios['analytic']:.3f} times the hits of the best cache; expected at least {TARGET}")
        result[label] = found
    return result
