"""The planner's parameter `hotness`: what each source caches, what it predicts, and what is refused."""
from harness import *

import numpy as np

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")


def train(p, *pairs, **more):
    words = [word for pair in ("params.batch=128", "stages.planner.params.cpu_cache_percent=10", *pairs) for word in ("--set", pair)]
    return p.run(HYPERION, "--epochs", "3", "--quiet", *words, **more)


def planner(*pairs):
    return [f"stages.planner.params.{pair}" for pair in pairs]


def plan_of(r):
    folder = os.path.join(r.run_dir, "plan")
    with open(os.path.join(folder, "plan.json")) as f:
        return json.load(f), np.load(os.path.join(folder, "hotness.npy")), np.load(os.path.join(folder, "cache.npy"))


def hit_rate(report):
    return report["cache"]["hits"] / report["cache"]["lookups"]


@test
def sources_say_what_they_are():
    """All of them train to the same weights. The report and plan.json name the source."""
    with Place() as p:
        outcome = set()
        for source in ("auto", "analytic", "presample", "oracle"):
            r = train(p, *planner(f"hotness={source}"))
            plan, hotness, cache = plan_of(r)
            was = "analytic" if source == "auto" else source
            assert r.report["planner"]["hotness"] == plan["hotness"] == was, (r.report["planner"], plan)
            assert hotness.dtype == np.float32 and hotness.shape == (len(plan["fanout"]) + 1, plan["vertices"])
            rank = np.lexsort((np.arange(plan["vertices"]), -hotness[-1]))
            assert (cache == rank[:len(cache)]).all(), source
            outcome.add((r.report["digest"], r.report["weights_digest"]))
            lookups = r.report["cache"]["lookups"] / 3  # of an epoch
            assert abs(hotness[-1].sum() - lookups) < (1e-6 if source == "oracle" else 0.01) * lookups, (source, hotness[-1].sum(), lookups)
            predicted, hits = plan["cache"]["predicted_hit_rate"], hit_rate(r.report)
            assert abs(predicted - hits) < (1e-6 if source == "oracle" else 0.05 * hits), (source, predicted, hits)
        assert len(outcome) == 1, outcome


@test
def the_expectation_beats_one_epoch_and_an_oracle_beats_both():
    with Place() as p:
        rates = {source: hit_rate(train(p, *planner(f"hotness={source}")).report) for source in ("analytic", "presample", "oracle")}
        assert 0.9 * rates["oracle"] < rates["analytic"] <= rates["oracle"], rates
        assert rates["presample"] <= rates["oracle"], rates


@test
def an_oracle_without_shuffling_is_a_warning():
    with Place() as p:
        assert "oracle" not in train(p, *planner("hotness=oracle")).err
        r = train(p, *planner("hotness=oracle"), "stages.sampler.params.shuffle=none")
        assert "the plan's oracle counted the batches of the shuffle global, but shuffle is none" in r.err, r.err


@test
def files_are_ranked_as_they_say():
    with Place() as p:
        first = train(p)
        plan, hotness, cache = plan_of(first)
        again = train(p, *planner("hotness=file", f"hotness_file={first.run_dir}/plan/hotness.npy"))
        same, _, chosen = plan_of(again)
        assert (chosen == cache).all() and same["hotness"] == "file" and len(same["hotness_id"]) == 16, same
        assert again.report["cache"]["hits"] == first.report["cache"]["hits"]
        np.save(p.path("one.npy"), np.arange(plan["vertices"]))  # int64, the last vertex is the hottest
        other = train(p, *planner("hotness=file", f"hotness_file={p.path('one.npy')}"))
        last = plan["vertices"] - 1
        assert (plan_of(other)[2] == np.arange(last, last - len(cache), -1)).all()


@test
def bad_files_are_told():
    with Place() as p:
        bad = np.ones(plan_of(train(p))[0]["vertices"], np.float32)
        np.save(p.path("shape.npy"), bad[1:])
        bad[7] = np.nan
        np.save(p.path("nan.npy"), bad)
        bad[7] = -2
        np.save(p.path("negative.npy"), bad)
        for name, words in (("shape", "expected (3, "), ("nan", "vertex 7 in row 0 is nan"), ("negative", "vertex 7 in row 0 is -2"),
                            ("missing", "missing.npy")):
            r = train(p, *planner("hotness=file", f"hotness_file={p.path(name + '.npy')}"), code=1)
            assert "hotness_file" in r.err and words in r.err, (name, r.err)
        r = train(p, *planner("hotness=file"), code=None)
        assert r.code != 0 and "hotness_file" in r.err, r.err
        r = train(p, *planner(f"hotness_file={p.path('nan.npy')}"), code=1)
        assert 'hotness is "auto"; set hotness to "file"' in r.err, r.err


@test
def an_earlier_plan_fits_only_its_source():
    with Place() as p:
        earlier = f"reuse={train(p).run_dir}/plan/plan.json"
        assert train(p, *planner(earlier, "hotness=analytic")).report["planner"]["reused"] == "yes"
        r = train(p, *planner(earlier, "hotness=presample"), code=1)
        assert "hotness was analytic and is now presample" in r.err, r.err
        oracle = f"reuse={train(p, *planner('hotness=oracle')).run_dir}/plan/plan.json"
        assert train(p, *planner(oracle, "hotness=oracle")).report["planner"]["hotness"] == "oracle"
        r = p.run(HYPERION, "--epochs", "2", "--set", "params.batch=128", "--set", "stages.planner.params.cpu_cache_percent=10",
                  "--set", "stages.planner.params.hotness=oracle", "--set", "stages.planner.params." + oracle, code=1)
        assert "the run (seed and epochs) of the oracle" in r.err, r.err


if __name__ == "__main__":
    main()
