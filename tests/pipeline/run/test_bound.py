"""bound_by: pipelines whose bottleneck is known. Each run is short, as a newcomer's are."""
from crash import HYPERION, wait_for
from harness import *

SLOW_US = 4000  # a slot at the bottleneck: far above what the other stages take
QUICK_US = 300


def chain(source=None, middle=None, sink=None, batches=40, **more):
    maker = "source" if source is None or "run" not in source else source.pop("run")
    stages = {"source": stage(maker, batches=batches, **(source or {})), "a": middle or stage("passthrough"),
              "sink": sink or stage("sink", delay_us=QUICK_US)}
    return pipeline(stages, links("source.out", "a.in", "a.out", "sink.in"), **more)


def bound(p, pl, want, *args, **more):
    r = p.run(pl, *args, **more)
    assert r.report["bound_by"] == want, f"expected {want}\n{r}\n{json.dumps(r.report['stages'], indent=1)}"
    assert f"bound by            {want}" in r.out, r
    return r


@test
def slow_source():
    with Place() as p:
        bound(p, chain({"delay_us": SLOW_US}), "source (cpu)")


@test
def slow_stage_in_the_middle():
    with Place() as p:
        bound(p, chain(middle=stage("slow", delay_us=SLOW_US)), "a (cpu)")


@test
def slow_consumer_that_hardly_ever_waits():
    """Two batches: the source never waits for a credit, so all of its own short life is work."""
    with Place() as p:
        r = bound(p, chain(batches=2, sink=stage("sink", delay_us=100 * SLOW_US)), "sink (cpu)")
        assert r.report["stages"]["sink"]["share"] > 0.5, r.report["stages"]


@test
def slow_consumer_among_threads():
    with Place() as p:
        bound(p, chain(batches=4, sink=stage("sink", delay_us=10 * SLOW_US)), "sink (cpu)", grouped=True)


@test
def slow_program_that_consumes():
    with Place() as p:
        r = bound(p, chain(middle=stage("passthrough"), sink=stage("swallow", delay_us=SLOW_US)), "sink (program)", foreign=True)
        sink = r.report["stages"]["sink"]
        assert sink["busy_s"] > 40 * SLOW_US * 1e-6 and sink["busy_s"] > 4 * sink["wait_input_s"], sink


@test
def slow_program_in_the_middle():
    with Place() as p:
        bound(p, chain(middle=stage("times", delay_us=SLOW_US), sink=stage("sink", factor=3)), "a (program)", foreign=True)


@test
def slow_program_that_fills_slots():
    with Place() as p:
        bound(p, chain({"run": "maker", "delay_us": SLOW_US}), "source (program)", foreign=True)


@test
def quick_program_before_a_slow_stage():
    """It holds no slot while it waits: neither its input nor a credit."""
    with Place() as p:
        r = bound(p, chain({"run": "maker"}, sink=stage("sink", delay_us=2 * SLOW_US)), "sink (cpu)", foreign=True)
        assert r.report["stages"]["source"]["wait_credit_s"] > 0.25 * r.report["phases"]["run_s"], r.report["stages"]["source"]


@test
def two_instances_that_halve_the_work():
    """Each instance works half of the time; together they could do twice as much."""
    with Place() as p:
        pl = chain({"delay_us": SLOW_US}, sink=stage("sink", delay_us=3 * SLOW_US))
        pl["stages"]["source"]["instances"] = 2
        bound(p, pl, "sink (cpu)")


@test
def two_instances_that_are_both_too_slow():
    with Place() as p:
        pl = chain(middle=stage("slow", delay_us=4 * SLOW_US), sink=stage("sink", delay_us=SLOW_US))
        pl["stages"]["a"]["instances"] = 2
        bound(p, pl, "a (cpu)")


@test
def one_slow_instance_holds_up_the_rest():
    """Every other batch is its own, so the quick instance cannot help."""
    with Place() as p:
        pl = chain(middle=stage("slow", delay_us=4 * SLOW_US, others_delay_us=0), sink=stage("sink", delay_us=SLOW_US))
        pl["stages"]["a"]["instances"] = 2
        bound(p, pl, "a (cpu)")


@test
def waiting_for_a_slow_disk():
    with Place() as p:
        bound(p, chain(middle=stage("slow", delay_us=SLOW_US, waits=True, keep=4), sink=stage("sink", delay_us=SLOW_US // 4)), "a (ssd)")


@test
def a_disk_that_keeps_up():
    """Something is in flight most of the time, but the disk's stage is not what the others wait for."""
    with Place() as p:
        bound(p, chain({"delay_us": SLOW_US}, middle=stage("slow", delay_us=SLOW_US * 3 // 4, waits=True, keep=4)), "source (cpu)")


@test
def copies_between_devices_do_not_hide_it():
    with Place() as p:
        pl = chain(middle=stage("slow", delay_us=SLOW_US))
        pl["stages"]["a"]["place"] = {"device": "cpu:1"}
        bound(p, pl, "a (cpu)")


# ---- the shipped pipeline ------------------------------------------------------------------------


def small(p):
    path = p.path("small")
    if not os.path.exists(path):
        command("gen", "community", path, "--vertices", "4000", "--seed", "7")
    return path


@test
def training_from_memory():
    """The README's runs on its small dataset: every row is in the cache, and the trainer has the work."""
    with Place() as p:
        for args in ([], ["--group", "all"], ["--set", "stages.sampler.instances=2", "--set", "links[1].slots=2"]):
            r = bound(p, HYPERION, "trainer (cpu)", "--epochs", 1, *args, data=small(p))
            assert r.report["io"]["requests"] == 0 and r.report["cache"]["rows"] == 4000, r.report  # of all samplers


# ---- twelve runs, each with a bottleneck that takes three times as long as the rest ---------------

THREADS = ["--group", "all"]
PLANS = ["stages.planner.params.hotness=presample", "stages.planner.params.epochs=600", "params.batch=128", "epochs=1"]
SAMPLES = ["params.fanout=[20,20,20]", "params.batch=64", "epochs=25", "stages.trainer.run=discard", "stages.trainer.params={}",
           'links[2].to="trainer.in"']
READS = ["stages.planner.params.cpu_cache=0", "stages.disk.params.backend=emulated", "stages.disk.params.preset=optane",
         "stages.disk.params.dilate=400", "epochs=1"]
TRAINS = ["stages.trainer.params.hidden=256", "epochs=5"]
SLOW_BUS = "bus.bytes_per_s=2e6"  # of 1.9 MB
CACHED_ROWS = ["stages.planner.params.cpu_cache=64MiB", SLOW_BUS, "epochs=1"]
READ_ROWS = ["stages.planner.params.cpu_cache=0", "stages.disk.params.backend=emulated", SLOW_BUS, "epochs=1"]
WORK_US = 20000


def of_hyperion(*runs):
    """runs: (bottleneck, values of --set, more arguments)"""
    if SAN:
        raise Skip("a sanitizer slows the stages, but not the drives, the bus and the sleeps")
    with Place() as p:
        for want, sets, more in runs:
            r = bound(p, HYPERION, want, *[word for text in sets for word in ("--set", text)], *more)
            shares = [stage["share"] for stage in r.report["stages"].values() if "share" in stage]
            assert all(0 <= share <= 1.01 for share in shares), shares


@test
def planner_and_sampler():
    of_hyperion(("planner (cpu)", PLANS, []), ("sampler (cpu)", SAMPLES, []), ("sampler (cpu)", SAMPLES, THREADS))


@test
def disk_and_trainer():
    of_hyperion(("disk (ssd)", READS, []), ("disk (ssd)", READS, THREADS), ("trainer (cpu)", TRAINS, []))


@test
def bus():
    """The rows of the CPU tier wait for it, or those that drives read."""
    of_hyperion(("sampler (bus)", CACHED_ROWS, []), ("sampler (bus)", CACHED_ROWS, THREADS), ("disk (bus)", READ_ROWS, []))


@test
def programs_that_compute_wait_or_release_late():
    """A program that keeps each slot until the next one comes holds up nobody; one that also works does."""
    with Place() as p:
        for want, source_us, sink in (("sink (program)", 0, {"delay_us": WORK_US, "spins": True}),
                                      ("sink (program)", WORK_US // 4, {"delay_us": WORK_US}),
                                      ("source (cpu)", WORK_US, {"late": True}),
                                      ("sink (program)", WORK_US // 4, {"delay_us": WORK_US, "late": True})):
            r = bound(p, chain({"delay_us": source_us}, batches=25, sink=stage("swallow", **sink)), want, foreign=True)
            assert r.report["swallow"]["batches"] == 25, r


@test
def top_agrees_with_the_report():
    with Place() as p:
        for pl, want in ((chain(batches=400, middle=stage("slow", delay_us=5 * SLOW_US)), "a (cpu)"),
                         (chain(batches=400, sink=stage("swallow", delay_us=5 * SLOW_US)), "sink (program)"),
                         # one long event: nothing is booked before it ends
                         (chain(batches=2, sink=stage("sink", delay_us=3_000_000)), "sink (cpu)")):
            run = p.start(pl, foreign=True)
            wait_for(lambda: os.path.exists(os.path.join(run.run_dir, "live.json")))
            time.sleep(1)
            shown = command("top", "--once", run.run_dir).stdout
            run.process.terminate()
            r = run.wait(20)
            assert f"bound by {want}\n" in shown and r.report["bound_by"] == want, (shown, r)


if __name__ == "__main__":
    main()
