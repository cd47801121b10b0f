#!/usr/bin/env python3
"""Cached rows stay in the sampler's cache, where the trainer reads them. Results are those of rows that are copied."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import ROOT, SAN, Place, Skip, command, main, test  # noqa: E402

HYPERION, REPLICAS = (os.path.join(ROOT, "pipelines", name + ".json") for name in ("hyperion", "replicas"))
FEATURES = 48
PART, HALF, ALL = "64KiB", "256KiB", "1GiB"  # of the rows: 192 bytes each, 256 on disk


def dataset(p, dtype=None):
    wide = p.path("wide")
    if not os.path.exists(wide):
        command("gen", "community", wide, "--vertices", "2000", "--features", str(FEATURES), "--seed", "3")
    if dtype is None:
        return wide
    if not os.path.exists(p.path(dtype)):
        command("convert", wide, p.path(dtype), "--dtype", dtype)
    return p.path(dtype)


def train(p, *pairs, data=None, pipeline=HYPERION, more=(), foreign=False):
    sets = ("params.batch=256", "epochs=2", "stages.trainer.params.eval_every=0", *pairs)
    return p.run(pipeline, *(word for pair in sets for word in ("--set", pair)), *more, data=data or dataset(p), foreign=foreign).report


def compare(p, *pairs, cache=PART, stays=True, **more):
    """Trains with rows in place and with copied rows. The runs differ in nothing but the rows that were copied."""
    pairs = (f"stages.planner.params.cpu_cache={cache}", *pairs)
    here, copied = (train(p, *pairs, f"stages.sampler.params.in_place={way}", **more) for way in ("true", "false"))
    kept = here["sampler"]["rows_in_place"]
    assert (kept > 0) == stays and copied["sampler"]["rows_in_place"] == 0, kept
    assert kept <= here["cache"]["hits"], (kept, here["cache"])
    assert here["cache"] == copied["cache"] and here["io"]["rows"] == copied["io"]["rows"], (here["cache"], copied["cache"])
    assert (here["digest"], here["weights_digest"]) == (copied["digest"], copied["weights_digest"]), pairs
    return here


@test
def results_do_not_depend_on_where_rows_are():
    with Place() as p:
        for cache in (PART, ALL):
            compare(p, cache=cache)
        for model in ("graphsage", "gcn"):
            compare(p, f"stages.trainer.params.model={model}", "params.fanout=[5,4,3]", "stages.trainer.params.layers=3", "stages.trainer.params.norm=layer",
                    f"stages.trainer.params.hidden={FEATURES}", "stages.trainer.params.residual=true")
        compare(p, "stages.trainer.params.aggregate=none")
        compare(p, "stages.sampler.params.algorithm=labor", "stages.planner.params.algorithm=labor")  # edges have weights


@test
def rows_are_copied_by_the_trainer_where_products_need_them():
    with Place() as p:
        for model in ("graphsage", "gcn"):  # so narrow that the product comes before the sum
            compare(p, f"stages.trainer.params.model={model}", "stages.trainer.params.hidden=2")
        compare(p, "stages.trainer.params.input_dropout=0.3")
        for dtype in ("float16", "bfloat16"):
            compare(p, data=dataset(p, dtype))


@test
def rows_in_bfloat16():
    with open("/proc/cpuinfo") as f:
        if "avx512_bf16" not in f.read():
            raise Skip("this CPU has no AVX512_BF16")
    if SAN:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "ALL"  # the sanitizers' tests exclude what bfloat16 needs
    with Place() as p:
        for model in ("graphsage", "gcn"):
            for dtype in (None, "bfloat16"):
                compare(p, f"stages.trainer.params.model={model}", "stages.trainer.params.precision=bf16", data=dataset(p, dtype))


@test
def several_samplers_replicas_and_pieces():
    with Place() as p:
        one, two = compare(p), compare(p, "stages.sampler.instances=2")
        assert one["weights_digest"] == two["weights_digest"] and one["cache"] == two["cache"], (one["cache"], two["cache"])
        assert compare(p, "stages.sampler.params.margin=0.3")["sampler"]["overflows"] > 0
        assert compare(p, more=("--group", "all"))["weights_digest"] == one["weights_digest"]
        compare(p, pipeline=REPLICAS)
        compare(p, "params.topology=ssd", cache="400KiB")


@test
def slots_hold_only_rows_that_are_not_cached():
    """Also if the hotness is wrong: the planner counts the misses of batches. A cache of `auto` gets what slots leave."""
    with Place() as p:
        for hotness in ("analytic", "presample", "oracle", "degree"):
            report = compare(p, f"stages.planner.params.hotness={hotness}", cache=HALF)
            copied = train(p, f"stages.planner.params.hotness={hotness}", f"stages.planner.params.cpu_cache={HALF}", "stages.sampler.params.in_place=false")
            size, full = (r["sampler"]["slot_bytes"] for r in (report, copied))
            misses, rows = (report["planner"][key] for key in ("max_misses", "vertices_max"))
            assert 0 < misses < rows and copied["planner"]["max_misses"] == -1, (misses, rows, copied["planner"])
            assert full - size > (rows - 1.3 * misses - 0.1 * rows) * 256 > 0, (size, full, misses, rows)
            assert report["sampler"]["overflows"] == 0, report["sampler"]
        assert compare(p, cache=ALL)["planner"]["max_misses"] == 0
        unlike = train(p, f"stages.planner.params.cpu_cache={HALF}", "stages.sampler.params.shuffle=none")
        assert unlike["sampler"]["rows_in_place"] > 0 and unlike["planner"]["max_misses"] == -1, unlike["planner"]  # slots hold all rows


@test
def only_if_all_stages_on_the_way_can_read_them():
    """passthrough does not look at rows. A program gets them in the slot, and a GAT multiplies all of them."""
    with open(HYPERION) as f:
        pipeline = json.load(f)
    with Place() as p:
        compare(p, "stages.trainer.params.model=gat", "stages.trainer.params.hidden=8", stays=False)
        between = json.loads(json.dumps(pipeline))
        between["stages"]["between"] = {"run": "passthrough"}
        between["links"][2:3] = [{"from": "disk.done", "to": "between.in"}, {"from": "between.out", "to": "trainer.batch"}]
        compare(p, pipeline=p.write(between, "between.json"))
        beside = json.loads(json.dumps(pipeline))
        beside["stages"]["beside"] = {"run": os.path.join(ROOT, "tests", "stages", "swallow.py")}
        beside["links"].append({"from": "disk.done", "to": "beside.in"})
        compare(p, pipeline=p.write(beside, "beside.json"), stays=False, foreign=True)


if __name__ == "__main__":
    main()
