"""The topology in mapped files, in memory, and on drives: the same samples, and from drives only the wanted sectors."""
from crash import kill_ends, wait_for
from harness import *

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
SMALL = ("params.batch=100", "stages.planner.params.cpu_cache=4KiB", "stages.trainer.params.hidden=8")


def sets(*pairs):
    return [word for pair in pairs for word in ("--set", pair)]


def train(p, *pairs, epochs=1, data=None, **more):
    return p.run(HYPERION, *sets(*SMALL, *pairs), "--quiet", "--epochs", epochs, data=data, **more)


def same(report, want, name):
    assert report["digest"] == want["digest"] and report["weights_digest"] == want["weights_digest"], name
    assert [e["loss"] for e in report["epochs"]] == [e["loss"] for e in want["epochs"]], name


def from_drives(report, name):
    topology = report["topology"]
    assert topology["from"] == "ssd" and topology["rounds"] > 0 and topology["sectors"] >= topology["rounds"], (name, topology)


@test
def every_place_gives_the_same_samples():
    with Place() as p:
        for fanout in ([-1, 2], [3, 0, 2]) if SAN else ([5, 3], [-1, 2], [3, 0, 2], [40, 3]):
            with_replacement = ("params.replace=true",) if -1 not in fanout else ()
            for more in ((), with_replacement):
                pairs = (f"params.fanout={json.dumps(fanout)}", f"stages.trainer.params.layers={len(fanout)}", *more)
                want = train(p, *pairs).report
                assert "topology" not in want, want
                same(train(p, *pairs, "params.topology=memory").report, want, (pairs, "memory"))
                r = train(p, *pairs, "params.topology=ssd").report
                same(r, want, (pairs, "ssd"))
                from_drives(r, pairs)


def plan_of(run):
    files = {}
    for name in os.listdir(os.path.join(run.run_dir, "plan")):
        with open(os.path.join(run.run_dir, "plan", name), "rb") as f:
            files[name] = f.read()
    assert "plan.json" in files, files.keys()
    return files


@test
def the_planner_makes_the_same_plan():
    with Place() as p:
        data = p.path("rmat")
        command("gen", "rmat", data, "--vertices", 30000, "--edges", 500000, "--features", 16, "--classes", 4, "--quiet")
        for fanout, hotness in (([-1, 2], "presample"), ([3, 0, 2], "analytic"), ([40, 3], "oracle"))[:1 if SAN else 3]:
            pairs = (f"params.fanout={json.dumps(fanout)}", f"stages.trainer.params.layers={len(fanout)}",
                     f"stages.planner.params.hotness={hotness}", "params.batch=300", "stages.planner.params.policy=rows")
            want = train(p, *pairs, data=data)
            assert "presample" not in want.report, want.report
            found = {}
            for memory in ("1MiB", "1GiB"):
                r = train(p, *pairs, "params.topology=ssd", f"stages.planner.params.presample_memory={memory}", data=data)
                assert plan_of(r) == plan_of(want), (pairs, memory)
                found[memory] = r.report["presample"]
                assert found[memory]["from"] == "ssd" and found[memory]["sectors"] >= found[memory]["rounds"] > 0, found
            small, large = found["1MiB"], found["1GiB"]
            assert small["waves"] >= large["waves"] >= 2, (pairs, found)
            if fanout != [3, 0, 2]:  # larger batches share fewer waves, and so fewer reads
                assert small["waves"] > large["waves"] and small["sectors"] > large["sectors"], (pairs, found)


@test
def few_slots_and_many_samplers():
    with Place() as p:
        want = train(p, epochs=3).report
        for pairs in (("links[1].slots=1", "links[4].slots=1"), ("links[1].slots=8", "links[4].slots=2"),
                      ("stages.sampler.instances=2", "links[4].slots=16")):
            same(train(p, *pairs, "params.topology=ssd", epochs=3).report, want, pairs)


@test
def batches_that_are_split():
    with Place() as p:
        whole = train(p, epochs=2).report
        for margin in (0.3,) if SAN else (0.3, 0.6, 0.9):
            want = train(p, f"stages.sampler.params.margin={margin}", epochs=2).report
            r = train(p, f"stages.sampler.params.margin={margin}", "params.topology=ssd", epochs=2).report
            assert r["sampler"]["micro_batches"] > r["sampler"]["batches"], r["sampler"]
            assert r["sampler"]["micro_batches"] == want["sampler"]["micro_batches"], (r["sampler"], want["sampler"])
            assert abs(r["epochs"][-1]["loss"] - whole["epochs"][-1]["loss"]) < 1e-4, (margin, r["epochs"], whole["epochs"])


@test
def only_wanted_sectors_are_read():
    with Place() as p:
        data = p.path("rmat")
        command("gen", "rmat", data, "--vertices", 50000, "--edges", 800000, "--features", 16, "--classes", 4, "--quiet")
        exact = ("params.gap_bytes=0", "stages.disk.params.backend=pread", "stages.planner.params.policy=rows")
        rows = train(p, *exact, data=data).report["io"]["bytes"]
        r = train(p, *exact, "params.topology=ssd", data=data).report
        wanted = r["topology"]["sectors"] * r["topology"]["sector_bytes"]
        read = r["io"]["bytes"] - rows
        print(f"# {read} bytes read for {wanted} bytes of wanted sectors: {read / wanted:.3f}")
        assert 0.9 * wanted < read <= 1.05 * wanted, (read, wanted)
        near = train(p, *exact[1:], "params.topology=ssd", data=data).report  # the planner reads over gaps, for the same plan
        same(near, r, "gap_bytes")
        asked = r["presample"]["sectors"] * r["presample"]["sector_bytes"]
        assert near["presample"]["sectors"] == r["presample"]["sectors"], (near["presample"], r["presample"])
        assert r["presample"]["bytes"] <= 1.05 * asked < near["presample"]["bytes"], (near["presample"], r["presample"])


TIERS = ("stages.planner.params.gpu_cache=100KiB", "stages.planner.params.cpu_cache=400KiB")


@test
def lists_in_tiers_are_read_as_planned():
    """An oracle knows the run's batches: what it expects of each tier is what the run reads there, whatever the policy."""
    with Place() as p:
        data = p.path("rmat")
        command("gen", "rmat", data, "--vertices", 30000, "--edges", 500000, "--features", 16, "--classes", 4, "--quiet")
        base = ("params.fanout=[6, 4]", "params.batch=300")
        want, sectors = train(p, *base, data=data, epochs=2).report, {}
        for policy in ("rows", "joint") if SAN else ("rows", "paper", "gtct", "gfcf", "hybrid", "joint"):  # tests/placement has them all
            r = train(p, *base, *TIERS, "params.topology=ssd", "stages.planner.params.hotness=oracle",
                      f"stages.planner.params.policy={policy}", data=data, epochs=2).report
            same(r, want, policy)
            t, c, plan = r["topology"], r["cache"], r["planner"]
            sectors[policy] = t["sectors"] + (r["io"]["rows"] if "rows" in r["io"] else 0)
            assert t["cached_lists"] == plan["cached_lists"] and c["rows"] == plan["cached_rows"], (policy, t, plan)
            if policy == "rows":
                assert plan["policy"] == "rows" and "placement" not in r and t["cached_lists"] == 0 == t["gpu_list_reads"] + t["cpu_list_reads"], t
                continue
            assert plan["policy"].startswith(policy) and (plan["cached_lists"] > 0 or policy == "gfcf"), plan
            placed, batches = r["placement"], r["sampler"]["batches"]
            reads = {"gpu_lists": t["gpu_list_reads"], "cpu_lists": t["cpu_list_reads"],
                     "ssd_lists": t["list_reads"] - t["gpu_list_reads"] - t["cpu_list_reads"],
                     "gpu_rows": c["gpu_hits"], "cpu_rows": c["hits"] - c["gpu_hits"], "ssd_rows": c["lookups"] - c["hits"]}
            for key, count in reads.items():
                assert abs(placed[key] * batches - count) <= 1e-5 * count + 1e-3 * batches, (policy, key, placed[key] * batches, count)
            lines = placed["cpu_transactions"] * batches - reads["cpu_rows"] * 1  # a row of 64 bytes is one line
            if t["cpu_list_reads"] > 0:
                assert abs(lines / t["cpu_lines"] - 1) < 0.2, (policy, lines, t)  # a cached list lies elsewhere in its lines
        print("# sectors and rows from the SSD:", sectors)
        assert sectors["joint"] < sectors["rows"], sectors


@test
def samplers_share_cached_lists():
    with Place() as p:
        want = train(p, *TIERS, "params.topology=ssd").report
        r = train(p, *TIERS, "params.topology=ssd", "stages.sampler.instances=2").report
        same(r, want, "instances")
        for key in ("cached_lists", "list_reads", "gpu_list_reads", "cpu_list_reads"):
            assert r["topology"][key] == want["topology"][key] > 0, (key, r["topology"], want["topology"])
        assert r["cache"]["rows"] == want["cache"]["rows"], (r["cache"], want["cache"])


@test
def policies_that_do_not_fit_are_told():
    with Place() as p:
        def refused(*pairs, words):
            r = train(p, *pairs, code=None)
            assert r.code in (1, 2) and words in r.err, (pairs, r.err)
        refused("stages.planner.params.policy=joint", words='topology is not "ssd"')
        refused("params.topology=ssd", "stages.planner.params.cls=48", words="cls is 48; expected a power of two")
        refused("params.topology=ssd", "stages.planner.params.policy=best", words="policy")
        plan = os.path.join(train(p, "params.topology=ssd").run_dir, "plan", "plan.json")
        refused("params.topology=ssd", "stages.planner.params.policy=gtct", f"stages.planner.params.reuse={plan}",
                words="the policy of the tiers was joint by cost exact of 64 bytes and is now gtct by cost exact of 64 bytes")
        again = train(p, "params.topology=ssd", f"stages.planner.params.reuse={plan}").report
        assert again["planner"]["reused"] == "yes" and again["planner"]["cached_lists"] == again["topology"]["cached_lists"], again["planner"]
        lists = os.path.join(os.path.dirname(plan), "lists.npy")
        with open(lists, "r+b") as f:
            f.truncate(4096)
        refused("params.topology=ssd", f"stages.planner.params.reuse={plan}", words="lists.npy has 4096 bytes")


@test
def other_backends():
    with Place() as p:
        want = train(p).report
        for pairs in (("stages.disk.params.backend=mmap",), ("stages.disk.params.backend=emulated", "stages.disk.params.ssds=2"),
                      ("stages.disk.params.fault_rate=0.1", "stages.disk.params.fault_short_rate=0.1", "stages.disk.params.retries=100"),
                      ("stages.disk.params.direct=false",)):
            r = train(p, *pairs, "params.topology=ssd").report
            same(r, want, pairs)
            from_drives(r, pairs)


@test
def what_does_not_fit_is_told():
    with Place() as p:
        def refused(*pairs, words):
            r = train(p, *pairs, code=None)
            assert r.code in (1, 2) and all(word in r.err for word in words), (pairs, r.err)
        refused("params.topology=ssd", "links[4].when=never", words=("lists and listed are not both linked", "sampler.lists"))
        refused("params.topology=tape", words=("topology", "expected one of mmap, memory, ssd"))
        refused("links[4].when=depth=x", words=("links[4].when", "PARAM=VALUE", "sampler", "disk"))
        os.environ["PENSTOCK_CUDA"] = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
        try:
            refused("params.topology=ssd", 'stages.sampler.place={"device":"cuda:0"}', words=("sampler cannot run on cuda:0", "topology"))
        finally:
            del os.environ["PENSTOCK_CUDA"]


@test
def damage_is_named():
    with Place() as p:
        plan = os.path.join(train(p).run_dir, "plan", "plan.json")
        path = os.path.join(p.data, "indices.npy")
        at = os.path.getmtime(path)
        with open(path, "r+b") as f:
            f.seek(4096)
            f.write((2**31 - 1).to_bytes(4, "little") * 20000)
        os.utime(path, (at, at))
        r = train(p, "params.topology=ssd", "stages.planner.params.policy=rows", f"stages.planner.params.reuse={plan}", code=None)
        assert r.code == 1 and "an edge contains vertex 2147483647" in r.err and "penstock verify" in r.err, r
        r = train(p, "params.topology=ssd", code=None)  # the planner reads the same sectors
        assert r.code == 1 and "cannot pre-sample batches" in r.err and "an edge contains vertex 2147483647" in r.err, r


@test
def kills_leave_nothing():
    if GROUPED:
        raise Skip("these are processes")
    with Place() as p:
        for victim in ("sampler", "disk", "trainer", "supervisor"):
            run = p.start(HYPERION, *sets(*SMALL, "params.topology=ssd"), "--quiet", "--epochs", 1_000_000, grouped=False)
            kill_ends(run, victim, 0.2)


@test
def algorithms_that_read_whole_lists_are_refused():
    """By `check`, before anything starts; a shared object decides when it opens."""
    for algorithm in ("typed", "labor", "ladies", "weighted", "temporal"):
        r = command("check", HYPERION, "--set", "params.topology=ssd", "--set", f"params.algorithm={algorithm}", code=2)
        told = [line for line in r.stderr.splitlines() if "topology can be ssd only if algorithm=uniform" in line]
        assert told and len(told) == len(r.stderr.splitlines()), r.stderr
    command("check", HYPERION, "--set", "params.topology=ssd", "--set", "params.algorithm=./mine.so")
    command("check", HYPERION, "--set", "params.topology=ssd")


if __name__ == "__main__":
    main()
