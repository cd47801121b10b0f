"""Cached rows that never leave the GPU: the sampler's own slots for them, which the trainer completes with what the disk
brought. On virtual GPUs or real ones (gpus.py)."""
from crash import kill_ends
from gpus import *
from harness import *

CACHED = {"from": "sampler.cached", "to": "trainer.cached"}


def hyperion(cached=None, slots=None, device="cuda:0", **stages):
    """The shipped pipeline, small: fibers are slow. cached: in place of its link of cached rows."""
    with open(os.path.join(ROOT, "pipelines", "hyperion.json")) as f:
        pl = json.load(f)
    at = [i for i, link in enumerate(pl["links"]) if link["from"] == "sampler.cached"]
    assert len(at) == 1 and pl["links"][at[0]] == {**CACHED, "when": "gpu_memory"}
    if cached:
        pl["links"][at[0]] = cached
    if slots:
        pl["links"][at[0]]["slots"] = slots
    pl.update(epochs=1, place={"device": device})
    pl["params"].update(batch=120, fanout=[3, 2])
    pl["stages"]["planner"]["params"].update(gpu_cache="4KiB", cpu_cache=0)
    pl["stages"]["trainer"]["params"]["hidden"] = 8
    pl["stages"]["disk"]["place"] = {"device": "cpu:0"}
    for name, changes in stages.items():
        at = pl["stages"].setdefault(name, {})
        at.update({**changes, "params": {**at.get("params", {}), **changes.get("params", {})}})
    return pl


def data(p):
    path = p.path("few")
    if not os.path.exists(path):
        command("gen", "community", path, "--vertices", "600", "--features", "16", "--seed", "3")
    return path


def train(p, pl, *args, **more):
    return p.run(pl, "--quiet", *args, data=data(p), **more)


def same(report, want, name):
    assert report["digest"] == want["digest"], name
    for a, b in zip(report["epochs"], want["epochs"], strict=True):
        assert abs(a["loss"] - b["loss"]) <= 1e-5 * b["loss"], (name, a, b)


@test
def each_tier_is_hit_as_on_a_cpu():
    """Rows in GPU memory, rows in CPU memory that kernels read in place, and rows from the drive."""
    with Place() as p:
        for gpu, cpu in (("4KiB", "8KiB"), (0, "12KiB"), ("12KiB", 0), ("1KiB", "1MiB")):
            tiers = {"params": {"gpu_cache": gpu, "cpu_cache": cpu}}
            want = train(p, hyperion(device="cpu:0", planner=tiers)).report
            got = [train(p, hyperion(planner=tiers), *more).report for more in ((), ("--set", "links[3].when=never"))]
            for report in got:
                same(report, want, (gpu, cpu))
                assert report["cache"] == want["cache"], (gpu, cpu, report["cache"], want["cache"])
            assert got[0]["weights_digest"] == got[1]["weights_digest"]
            hits, of_gpu = want["cache"]["hits"], want["cache"]["gpu_hits"]
            assert (of_gpu > 0, hits > of_gpu) == (gpu != 0, cpu != 0), want["cache"]
            assert got[0]["trainer"]["rows_cached"] == hits, got[0]["trainer"]


@test
def only_what_is_missing_is_brought():
    with Place() as p:
        want = train(p, hyperion(device="cpu:0")).report
        through = train(p, hyperion(), "--set", "links[3].when=never").report
        kept = train(p, hyperion()).report
        for name, report in (("through the slot", through), ("kept", kept)):
            same(report, want, name)
        assert kept["weights_digest"] == through["weights_digest"]  # the same rows, to the last bit
        hits, rows = kept["cache"]["hits"], kept["cache"]["lookups"]
        assert 0 < hits < rows
        assert (kept["trainer"]["rows_cached"], kept["trainer"]["rows_brought"]) == (hits, rows - hits), kept["trainer"]
        assert (through["trainer"]["rows_cached"], through["trainer"]["rows_brought"]) == (0, rows), through["trainer"]
        assert kept["io"]["rows"] == rows - hits
        # one slot's features less to be staged, and an eighth of the scratch goes with each byte
        assert kept["trainer"]["device_bytes"] < through["trainer"]["device_bytes"]
        drives = {"run": "disk", "place": {"device": "cuda:0"}, "params": {"backend": "emulated"}}
        r = train(p, hyperion(disk=drives)).report
        same(r, want, "read by kernels, too")
        assert r["io"]["submitted_by"] == "gpu" and r["trainer"]["rows_cached"] == hits, r["io"]


@test
def whatever_is_cached():
    with Place() as p:
        want = train(p, hyperion(device="cpu:0")).report
        for cache, share in (("0", 0), ("1MiB", 1)):
            r = train(p, hyperion(planner={"params": {"gpu_cache": cache}})).report
            same(r, want, cache)
            assert r["cache"]["hits"] == r["trainer"]["rows_cached"] == share * want["cache"]["lookups"], r


@test
def rows_that_fill_pages():
    """Then the slot's features begin right behind its other arrays' last page."""
    with Place() as p:
        path = p.path("wide")
        command("gen", "community", path, "--vertices", 300, "--features", 1024, "--seed", 3)
        pl = hyperion(planner={"params": {"gpu_cache": "64KiB"}}, sampler={"params": {"margin": 1}})
        pl["params"]["batch"] = 16
        r = p.run(pl, "--quiet", data=path).report
        assert r["trainer"]["rows_cached"] == r["cache"]["hits"] > 0, r
        same(r, p.run({**pl, "place": {"device": "cpu:0"}}, "--quiet", data=path).report, "wide")


@test
def both_slots_are_of_one_micro_batch():
    """However batches are split, over however many instances, with however many slots."""
    with Place() as p:
        split = {"params": {"margin": 0.4}}
        want = train(p, hyperion(device="cpu:0", sampler=split)).report
        assert want["sampler"]["overflows"] > 0
        for slots, instances, grouped in ((1, 1, GROUPED), (2, 2, GROUPED), (7, 3, GROUPED), (3, 2, True)):
            r = train(p, hyperion(slots=slots, sampler={**split, "instances": instances}), grouped=grouped).report
            same(r, want, (slots, instances))
            assert r["sampler"]["overflows"] == want["sampler"]["overflows"], r["sampler"]
        r = train(p, hyperion(sampler={"instances": 3})).report
        same(r, train(p, hyperion(device="cpu:0")).report, "whole, by three")


@test
def runs_go_on():
    with Place() as p:
        pl = hyperion()
        want = train(p, pl, "--epochs", 2).report
        begun = train(p, pl)
        r = train(p, pl, "--resume", begun.run_dir, "--epochs", 2).report
        assert r["weights_digest"] == want["weights_digest"], (r, want)


@test
def elsewhere_the_link_is_left_out():
    needs_two()
    with Place() as p:
        want = train(p, hyperion(device="cpu:0")).report
        for stages in ({"trainer": {"place": {"device": "cuda:1"}}}, {"sampler": {"place": {"device": "cpu:0"}}}):
            pl = hyperion(**stages)
            said = command("graph", p.write(pl)).stdout
            assert "not used: links[3], sampler.cached to trainer.cached (when: gpu_memory)" in said, said
            same(train(p, pl).report, want, stages)
        pl = hyperion()
        pl["stages"]["trainer"], pl["links"][2]["to"] = stage("discard"), "trainer.in"  # which has no such port
        assert "not used: links[3]" in command("graph", p.write(pl)).stdout and train(p, pl).report["status"] == "ok"
        said = command("graph", p.write(hyperion())).stdout
        assert "not used: links[3]" not in said and "cached (route 1, 4 slots, in cuda:0, by events)" in said, said
        pl = hyperion(cached=CACHED, trainer={"place": {"device": "cuda:1"}})  # the same words, and in the host's memory
        assert "cached (route 1, 4 slots, pinned, by events)" in command("graph", p.write(pl)).stdout
        same(train(p, pl).report, want, "pinned")
        for pl, words in ((hyperion(cached={**CACHED, "when": "gpu"}), ('links[3].when: expected "gpu_memory", "never", or "PARAM=VALUE" with a parameter of stage',)),
                          (hyperion(cached={**CACHED, "when": 1}), ("links[3].when: expected a string",)),
                          (hyperion(cached=CACHED, device="cpu:0"),
                           ("links[3].from: sampler.cached cannot use cpu memory: it accepts cuda",
                            "links[3].to: trainer.cached cannot use cpu memory: it accepts cuda"))):
            r = command("check", p.write(pl), code=2)
            assert all(word in r.stdout + r.stderr for word in words), r.stdout + r.stderr


@test
def gpus_that_reach_each_other_share_the_slots():
    only_virtual("these GPUs reach each other if the test says so")
    with Place() as p:
        want = train(p, hyperion(device="cpu:0")).report
        os.environ["PENSTOCK_VIRTUAL_PEERS"] = "1"
        try:
            far = {"trainer": {"place": {"device": "cuda:1"}}}
            said = command("graph", p.write(hyperion(**far))).stdout
            assert "cached (route 1, 4 slots, in cuda:1 by peer access, by events)" in said, said
            for pl in (hyperion(**far), hyperion(**far, sampler={"instances": 2})):
                r = train(p, pl, grouped=False).report
                same(r, want, "over two")
                assert r["trainer"]["rows_cached"] == r["cache"]["hits"] == want["cache"]["hits"], r
            if not GROUPED:
                for victim in ("sampler", "trainer", "memory-cuda:1"):
                    run = p.start(hyperion(**far), "--quiet", "--epochs", 1_000_000, data=data(p), grouped=False)
                    kill_ends(run, victim, 0.3)
            # threads of one process open a GPU's memory on one GPU only
            one = hyperion(trainer={"place": {"device": "cuda:1"}, "group": "one"}, sampler={"group": "one"})
            assert "not used: links[3]" in command("graph", p.write(one)).stdout
            same(train(p, one, grouped=False).report, want, "in one process")
        finally:
            del os.environ["PENSTOCK_VIRTUAL_PEERS"]


@test
def rows_of_another_sampler_are_refused():
    with Place() as p:
        other = {"other": {"run": "sampler", "params": {"fanout": [1], "batch": 8}}, "away": {"run": "discard", "place": {"device": "cpu:0"}}}
        pl = hyperion(cached={"from": "other.cached", "to": "trainer.cached"}, **other)
        pl["links"].append({"from": "other.batch", "to": "away.in"})
        r = train(p, pl, code=1)
        assert "bytes): link the input cached to the sampler or cache of these batches" in r.err or "arrived together with the cached rows" in r.err, r.err


@test
def kills_leave_nothing():
    if GROUPED:
        raise Skip("these are processes")
    with Place() as p:
        for victim in ("sampler", "trainer", "memory-cuda:0", "disk"):
            run = p.start(hyperion(), "--quiet", "--epochs", 1_000_000, data=data(p), grouped=False)
            kill_ends(run, victim, 0.3)


if __name__ == "__main__":
    main()
