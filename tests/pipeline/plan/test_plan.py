"""`penstock plan`: what each policy would cache. Its figures against the planner's own scores and against a run."""
import re

import numpy as np

from harness import *

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
POLICIES = ["joint", "hybrid", "gfcf", "gfct", "gtcf", "gtct", "paper"]


def plan(p, *more, code=0):
    """JSON, or what was printed if it failed."""
    done = command("plan", HYPERION, "--dataset", p.data, "--set", "params.batch=128", "--run-dir", p.path("planned"),
                   "--json", *more, code=code)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


def close(a, b, relative=1e-6):
    return abs(a - b) <= relative * max(abs(a), abs(b), 1e-9)


@test
def reads_are_those_of_the_planner():
    """Every vertex has a place, every read is counted once, and no policy beats joint."""
    with Place() as p:
        for topology in ("memory", "ssd"):
            for cost in ("exact", "access", "paper"):
                found = plan(p, "--topology", topology, "--cost", cost, "--gpu-cache", "64K", "--cpu-cache", "256K")
                hotness = np.load(p.path("planned/plan/hotness.npy")).astype(float)
                for kind, scores in (("topology", hotness[:-1]), ("features", hotness[-1])):
                    places = [found["placed"][kind][tier] for tier in ("gpu", "cpu", "home")]
                    assert sum(place["vertices"] for place in places) == found["vertices"], found
                    assert close(sum(place["reads"] for place in places) * found["batches"], scores.sum()), (kind, found)
                assert found["placed"]["topology"]["home_is"] == topology
                assert [policy["policy"] for policy in found["policies"]] == POLICIES + ["paper"]
                least = found["policies"][0]["transactions"]
                assert all(least <= policy["transactions"] * (1 + 1e-9) for policy in found["policies"]), found
                assert close(found["joint"]["value"], least) and close(found["joint"]["bound"], least), found
                assert topology == "ssd" or all(policy["topology"]["ssd"] == 0 for policy in found["policies"])


@test
def options_stand_in_for_the_planners_parameters():
    with Place() as p:
        params = {"params.topology": "ssd", "stages.planner.params.policy": "gtct", "stages.planner.params.cls": 128,
                  "stages.planner.params.cost": "access", "stages.planner.params.gpu_cache": "64KiB",
                  "stages.planner.params.cpu_cache": "256KiB"}
        sets = [word for key, value in params.items() for word in ("--set", f"{key}={value}")]
        options = ("--topology", "ssd", "--policy", "gtct", "--cls", "128", "--cost", "access", "--gpu-cache", "64K", "--cpu-cache", "256K")
        assert plan(p, *sets) == plan(p, *options) != plan(p)
        assert plan(p, *sets, "--policy", "joint", "--cost", "exact", "--cls", "64")["policies"][0]["transactions"] > 0


@test
def rows_are_read_as_planned():
    """With the run's own batches as hotness, the run reads exactly the planned rows from the SSD."""
    with Place() as p:
        words = [word for pair in ("params.batch=128", "stages.planner.params.hotness=oracle", "stages.planner.params.cpu_cache=256KiB")
                 for word in ("--set", pair)]
        run = p.run(HYPERION, "--epochs", "3", "--quiet", *words)
        found = plan(p, *words, "--epochs", "3", "--seed", str(run.report["seed"]), "--chunk-bytes", "512")
        assert found["cache_bytes"] == {"gpu": 0, "cpu": 262144} and found["hotness"] == "oracle", found
        cache, batches = run.report["cache"], 3 * found["batches"]
        rows = found["placed"]["features"]
        assert rows["cpu"]["vertices"] == cache["rows"], (rows, cache)
        assert round(rows["cpu"]["reads"] * batches, 2) == cache["hits"], (rows, cache)
        assert round(rows["home"]["reads"] * batches, 2) == cache["lookups"] - cache["hits"], (rows, cache)


@test
def some_batches_give_the_sizes():
    """If hotness is not counted in batches, the planner samples some of them. A run with such slots ends with the same weights."""
    with Place() as p:
        def run(**params):
            pairs = ["params.batch=32", "stages.sampler.params.margin=2", *(f"stages.planner.params.{name}={value}" for name, value in params.items())]
            report = p.run(HYPERION, "--epochs", "2", "--quiet", *[word for pair in pairs for word in ("--set", pair)]).report
            return report["planner"], report["weights_digest"]

        (every, weights), (some, same) = run(sizing_batches=0), run(sizing_batches=4)
        assert every["sampled"] == every["batches"] == some["batches"] > 16 and some["sampled"] == 4, (every, some)
        assert 0 < some["vertices_max"] <= every["vertices_max"] and weights == same, (every, some)
        assert abs(some["predicted_hit_rate"] - every["predicted_hit_rate"]) < 0.02, (every, some)
        assert run(sizing_batches=4, epochs=3)[0]["sampled"] == 12
        counted, _ = run(sizing_batches=4, hotness="presample")
        assert counted["sampled"] == counted["batches"], counted


@test
def the_cpu_tier_takes_what_is_left():
    with Place() as p:
        def run(*pairs, code=0):
            words = [word for pair in ("stages.planner.params.cpu_cache=auto", *pairs) for word in ("--set", pair)]
            return p.run(HYPERION, "--epochs", "1", "--quiet", *words, code=code)

        want = p.run(HYPERION, "--epochs", "1", "--quiet").report
        r = run()
        planner, cache = r.report["planner"], r.report["cache"]
        assert r.report["weights_digest"] == want["weights_digest"] and cache["rows"] == 2000 == planner["cached_rows"], planner
        assert planner["cpu_cache"] == 2000 * 512 and cache["hits"] == cache["lookups"] > 0, (planner, cache)  # all there is
        with open(os.path.join(r.run_dir, "logs", "planner.log")) as f:
            assert "cpu_cache auto: " in f.read()
        everything = run("params.topology=ssd").report
        assert everything["planner"]["cached_lists"] == everything["planner"]["cached_rows"] == 2000, everything["planner"]
        assert everything["topology"]["sectors"] == 0 == everything["topology"]["rounds"], everything["topology"]
        nothing = run("stages.planner.params.reserve=100TiB").report["planner"]
        assert nothing["cpu_cache"] == nothing["cached_rows"] == 0, nothing
        again = run(f"stages.planner.params.reuse={r.run_dir}/plan/plan.json").report["planner"]
        assert again["reused"] == "yes" and again["cpu_cache"] == planner["cpu_cache"], again
        os.environ["PENSTOCK_CUDA"] = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
        try:  # a GPU's memory comes first, and what it does not take goes to the CPU's
            for given, gpu in (("auto", 2000), ("100KiB", 200), ("0", 0)):
                on_gpu = p.run(HYPERION, "--epochs", "1", "--quiet", "--device", "cuda:0", "--set", f"stages.planner.params.gpu_cache={given}").report
                planner, cache = on_gpu["planner"], on_gpu["cache"]
                assert planner["gpu_cache"] == gpu * 512 and planner["cpu_cache"] == (2000 - gpu) * 512, planner
                assert (cache["gpu_rows"], cache["rows"], cache["hits"]) == (gpu, 2000, cache["lookups"]), cache
        finally:
            del os.environ["PENSTOCK_CUDA"]


@test
def less_is_reserved_without_evaluation():
    with Place() as p:
        def part(*pairs):
            words = [word for pair in ("stages.planner.params.cpu_cache=auto", *pairs) for word in ("--set", pair)]
            r = p.run(HYPERION, "--epochs", "1", "--quiet", *words)
            with open(os.path.join(r.run_dir, "logs", "planner.log")) as f:
                free, reserve = re.search(r"([\d.]+ \wB) of memory are free, and ([\d.]+ \wB) are reserved", f.read()).groups()
            bytes_of = lambda text: float(text.split()[0]) * 1e3 ** " kMGT".index(text.split()[1][0])
            return bytes_of(reserve) / bytes_of(free)

        assert 0.24 < part() < 0.3 and 0.24 < part("stages.trainer.params.eval_every=2") < 0.3  # with slots, and rounded
        assert 0.12 < part("stages.trainer.params.eval_every=0") < 0.16


@test
def each_tier_is_hit_as_planned():
    """The plan's two lists of rows, by the run's own batches: the run counts just the planned reads of each tier. Where a
    row is changes no result."""
    with Place() as p:
        oracle = ["params.batch=128", "stages.planner.params.hotness=oracle"]
        tiers = ["stages.planner.params.gpu_cache=64KiB", "stages.planner.params.cpu_cache=192KiB"]
        words = lambda *pairs: [word for pair in pairs for word in ("--set", pair)]
        one = p.run(HYPERION, "--epochs", "3", "--quiet", *words(*oracle, "stages.planner.params.cpu_cache=256KiB")).report
        assert one["cache"]["gpu_rows"] == one["cache"]["gpu_hits"] == 0 < one["cache"]["hits"], one["cache"]
        for instances in (1, 2):
            run = p.run(HYPERION, "--epochs", "3", "--quiet", *words(*oracle, *tiers, f"stages.sampler.instances={instances}"))
            with open(os.path.join(run.run_dir, "plan", "plan.json")) as f:
                planned = json.load(f)
            ids, found = np.load(os.path.join(run.run_dir, "plan", "cache.npy")), run.report["cache"]
            scores = np.load(os.path.join(run.run_dir, "plan", "hotness.npy"))[-1].astype(float)
            reads = scores * planned["epochs"]
            gpu, cpu = ids[:planned["cache"]["rows"]["gpu"]], ids[planned["cache"]["rows"]["gpu"]:]
            assert (found["gpu_rows"], found["rows"]) == (len(gpu), len(ids)) and len(gpu) * 3 == len(cpu), (found, planned["cache"])
            assert scores[gpu].min() >= scores[cpu].max() and len(set(ids)) == len(ids)
            assert round(reads[gpu].sum(), 2) == found["gpu_hits"] > 0, (reads[gpu].sum(), found)
            assert round(reads[cpu].sum(), 2) == found["hits"] - found["gpu_hits"] > 0, (reads[cpu].sum(), found)
            assert round(reads.sum(), 2) == found["lookups"], (reads.sum(), found)
            assert all(run.report[what] == one[what] for what in ("digest", "weights_digest")), (run.report, one)
            assert found["hits"] == one["cache"]["hits"], (found, one["cache"])
        shown = plan(p, *words(*oracle, *tiers), "--epochs", "3", "--seed", str(one["seed"]), "--policy", "gfcf", "--chunk-bytes", "512")
        assert shown["cache_bytes"] == {"gpu": 65536, "cpu": 196608}, shown
        again = p.run(HYPERION, "--epochs", "3", "--quiet", *words(*oracle, "stages.planner.params.gpu_cache=0",
                      "stages.planner.params.cpu_cache=192KiB", f"stages.planner.params.reuse={run.run_dir}/plan/plan.json"), code=None)
        assert again.code == 1 and "gpu_cache in bytes was 65536 and is now 0" in again.err, again


@test
def other_hotness_is_counted():
    """An oracle's own plan counts the same with its own file; with another's, the reads are those of that file."""
    with Place() as p:
        words = ("--gpu-cache", "64K", "--cpu-cache", "256K", "--topology", "ssd")
        oracle = plan(p, *words, "--set", "stages.planner.params.hotness=oracle")
        file = p.path("oracle.npy")
        os.rename(p.path("planned/plan/hotness.npy"), file)
        same = plan(p, *words, "--set", "stages.planner.params.hotness=oracle", "--count-with", file)
        for a, b in zip(oracle["policies"], same["policies"]):
            assert close(a["transactions"], b["transactions"], 1e-5), (a, b)
        other = plan(p, *words, "--count-with", file)
        scores = np.load(file).astype(float)
        for kind, all_reads in (("topology", scores[:-1].sum()), ("features", scores[-1].sum())):
            assert close(sum(other["placed"][kind][tier]["reads"] for tier in ("gpu", "cpu", "home")) * other["batches"], all_reads)
        assert other["hotness"] == "analytic" and other["counted_with"] == file and oracle["counted_with"] is None
        err = plan(p, *words, "--count-with", p.path("none.npy"), code=None)
        assert "--count-with" in err and "none.npy" in err, err


@test
def times_follow_equation_4():
    with Place() as p:
        found = plan(p, "--topology", "ssd", "--gpu-cache", "64K", "--cpu-cache", "256K", "--objective", "time", "--ssd-rate", "3e9",
                     "--pcie-rate", "4e9", "--lookup", "1e-5", "--train", "1e-6")
        for policy in found["policies"]:
            ssd = policy["topology"]["ssd"] + policy["features"]["ssd"]
            assert close(policy["t_ssd_s"], ssd * 64 / 3e9 + 1e-5), policy
            assert close(policy["t_pcie_s"], policy["transactions"] * 64 / 4e9), policy
            assert close(policy["t_batch_s"], max(policy["t_ssd_s"], policy["t_pcie_s"], 1e-6)), policy
            assert found["policies"][0]["t_batch_s"] <= policy["t_batch_s"] * (1 + 1e-9), found
        joint = found["joint"]
        assert joint["objective"] == "seconds" and joint["bound"] <= joint["value"] * (1 + 1e-9) <= joint["bound"] * 1.01, joint


@test
def text_has_the_same_figures():
    with Place() as p:
        found = plan(p, "--gpu-cache", "64K", "--policy", "gtcf")
        shown = command("plan", HYPERION, "--dataset", p.data, "--set", "params.batch=128", "--run-dir", p.path("again"), "--gpu-cache", "64K",
                        "--policy", "gtcf").stdout
        assert "what the policy gtcf puts where" in shown, shown
        for policy in found["policies"][:-1]:
            line = next(line for line in shown.splitlines() if line.startswith(f"  {policy['policy']} "))
            assert f"{policy['transactions']:.1f}" in line, (policy, line)


@test
def mistakes_are_told():
    with Place() as p:
        for words, said in ((("--policy", "best"), 'expected one of paper, gtct, gtcf, gfct, gfcf, hybrid, joint; found "best"'),
                            (("--cost", "exactly"), '--cost: expected one of paper, access, exact; found "exactly"'),
                            (("--ssd-rate", "3e9"), "--ssd-rate and --pcie-rate work only together"),
                            (("--objective", "time"), "--objective time requires --ssd-rate and --pcie-rate"),
                            (("--pcie-rate", "0", "--ssd-rate", "1"), "--pcie-rate: expected a number above 0"),
                            (("--lists-share", "0.5"), "--lists-share: expected two numbers from 0 to 1"),
                            (("--lists-share", "0.5,2"), "--lists-share: expected two numbers from 0 to 1"),
                            (("--cls", "48"), "--cls: expected a power of two from 16 to 512, found 48"),
                            (("--gpu-cache", "many"), "--gpu-cache"),
                            (("--set", "stages.planner.params.cpu_cache=-1"), "cpu_cache")):
            err = plan(p, *words, code=2)
            assert said in err, (words, err)
            assert not os.path.exists(p.path("planned")), words
        err = command("plan", os.path.join(ROOT, "pipelines", "hyperion.json"), code=2).stderr
        assert "no dataset" in err, err


if __name__ == "__main__":
    main()
