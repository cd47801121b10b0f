"""Slots that change hands in streams (common/host/handover.h), on virtual GPUs. There a stream does nothing before somebody
waits for it: who forgets to wait reads what was there before, every time. With PENSTOCK_TWIN=cuda, on this machine's (gpus.py)."""
from crash import kill_ends, wait_for
from gpus import *
from harness import *

BATCHES, BYTES = (200, "16MiB") if REAL else (16, "4KiB")  # long enough for a GPU that what is not waited for is missed


def on(name, device, **more):
    if name in ("writer", "reader", "stamper"):
        more["bytes"] = BYTES
    return {**stage(name, **more), "place": {"device": SECOND if device == "cuda:1" else device}}


def way(*stages, slots=3, **more):
    """A chain of stages, named after what they are."""
    named = {s["run"].split("/")[-1].split(".")[0]: s for s in stages}
    names = list(named)
    ends = [end for a, b in zip(names, names[1:]) for end in (f"{a}.out", f"{b}.in")]
    return pipeline(named, links(*ends, slots=slots), **more)


def read(p, pl, reader="reader", **more):
    return p.run(pl, **more).report[reader]


def all_came_early(reader):
    """Frames came before the bytes of their slots, but for the last, which a writer waits for before it ends."""
    return reader["batches"] == BATCHES and (REAL or reader["early"] >= BATCHES - 3)


def by_events(p, pl):
    return "by events" in command("graph", p.write(pl, "drawn.json")).stdout


def writer(device="cuda:0", **more):
    return on("writer", device, batches=BATCHES, **more)


@test
def nobody_waits_on_the_host():
    with Place() as p:
        for first, last, grouped in (("cuda:0", "cuda:0", GROUPED), ("cuda:1", "cuda:0", GROUPED), ("cuda:0", "cuda:1", True)):
            pl = way(writer(first), on("passthrough", "cpu:0"), on("reader", last))
            assert by_events(p, pl)
            assert all_came_early(read(p, pl, grouped=grouped)), (first, last, grouped)
        pl = way(writer(), on("passthrough", "cuda:0"), on("reader", "cuda:0"))  # in memory that no host can read
        assert by_events(p, pl)
        assert read(p, pl)["batches"] == BATCHES


@test
def a_slot_is_filled_again_when_it_has_been_read():
    with Place() as p:
        for eager, last in ((False, "cuda:1"), (True, "cuda:1"), (True, "cuda:0")):
            pl = way(writer(eager=eager), on("reader", last, delay_us=3000), slots=2)
            assert by_events(p, pl) and read(p, pl)["batches"] == BATCHES, (eager, last)


@test
def who_knows_no_streams_writes_when_it_has_been_read():
    with Place() as p:
        for device in ("cpu:0", "cuda:0"):
            pl = way(writer(), on("stamper", device), on("reader", "cuda:0", stamped=True, delay_us=3000), slots=2)
            assert by_events(p, pl)
            assert all_came_early(read(p, pl)), device


@test
def a_host_that_wants_to_read_waits():
    with Place() as p:
        pl = way(writer(), on("passthrough", "cpu:0"), on("reader", "cuda:0", looks=True))
        assert by_events(p, pl) and all_came_early(read(p, pl))


@test
def several_fill_and_several_read():
    with Place() as p:
        pl = pipeline({"writer": {**writer(eager=True), "instances": 2}, "a": on("reader", "cuda:0", delay_us=2000),
                       "b": on("reader", "cuda:1", delay_us=1000)},
                      links("writer.out", "a.in", "writer.out", "b.in", slots=3))
        assert by_events(p, pl)
        r = p.run(pl).report
        assert r["a"]["batches"] == r["b"]["batches"] == BATCHES, (r["a"], r["b"])


@test
def where_a_cpu_looks_the_sender_waits():
    with Place() as p:
        none_early = {"batches": BATCHES, "early": 0}
        pl = pipeline({"writer": writer(), "a": on("reader", "cuda:0"), "b": on("reader", "cpu:0")},
                      links("writer.out", "a.in", "writer.out", "b.in"))
        assert not by_events(p, pl)
        r = p.run(pl).report
        assert r["a"] == r["b"] == none_early, (r["a"], r["b"])
        pl = way(writer("cpu:0"), on("reader", "cuda:0", delay_us=3000), slots=2)
        assert not by_events(p, pl) and read(p, pl) == none_early
        pl = way(writer(), on("reader", "cuda:0"), slots=100)  # more than have events
        assert not by_events(p, pl) and read(p, pl)["batches"] == BATCHES


@test
def every_device_has_its_host_of_memory():
    """As many as can be named: the CPUs, and a GPU."""
    with Place() as p:
        stages, chain = {}, []
        for k in range(16):
            stages |= {f"from{k}": on("source", f"cpu:{k}", batches=2), f"to{k}": on("sink", f"cpu:{k}")}
            chain += [f"from{k}.out", f"to{k}.in"]
        stages |= {"writer": writer(), "reader": on("reader", "cuda:0")}
        r = p.run(pipeline(stages, links(*chain, "writer.out", "reader.in")), grouped=True).report
        assert r["reader"]["batches"] == BATCHES and len(r["stages"]) == 34, r


@test
def where_there_are_no_events_between_processes_the_host_waits():
    if GROUPED or REAL:
        raise Skip("these are processes, on virtual GPUs")
    with Place() as p:
        os.environ["PENSTOCK_VIRTUAL_NO_EVENTS"] = "1"
        try:
            pl = way(writer(), on("stamper", "cpu:0"), on("reader", "cuda:0", stamped=True, delay_us=1000), slots=2)
            r, one = p.run(pl, grouped=False), p.run(pl, grouped=True)
        finally:
            del os.environ["PENSTOCK_VIRTUAL_NO_EVENTS"]
        assert r.report["reader"] == {"batches": BATCHES, "early": 0}, r.report["reader"]
        assert "stages wait on the CPU" in r.err and "cudaIpcGetEventHandle" in r.report["gpus"]["no_events"], r
        assert all_came_early(one.report["reader"]) and "no_events" not in one.report["gpus"], one.report["gpus"]


@test
def who_waits_for_a_kernel_that_never_ends_says_so():
    only_virtual("a GPU's kernels end")
    with Place() as p:
        os.environ.update(PENSTOCK_VIRTUAL_HANG="queue.cu", PENSTOCK_GPU_WAIT_S="0.5")
        try:
            r = p.run(way(writer(), on("reader", "cuda:0", plain=True)), code=1)
        finally:
            del os.environ["PENSTOCK_VIRTUAL_HANG"], os.environ["PENSTOCK_GPU_WAIT_S"]
        assert "error: reader: cannot wait for the GPU work of another stage on slot 0 of route 0: cuda:0: an event was not reached within 0.5 s" in r.err, r


@test
def work_behind_that_of_a_slot_delays_nobody():
    only_virtual("a GPU's kernels end")
    with Place() as p:
        os.environ.update(PENSTOCK_VIRTUAL_HANG="optimizer.cu", PENSTOCK_GPU_WAIT_S="0.5")
        try:
            for device, events in (("cuda:0", True), ("cpu:0", False)):
                pl = way(writer(busy=True), on("reader", device, plain=True))
                assert by_events(p, pl) == events and read(p, pl)["batches"] == BATCHES, device
        finally:
            del os.environ["PENSTOCK_VIRTUAL_HANG"], os.environ["PENSTOCK_GPU_WAIT_S"]


@test
def a_run_that_is_interrupted_ends():
    with Place() as p:
        run = p.start(way(on("writer", "cuda:0", batches=10_000_000), on("reader", "cuda:1", delay_us=500)))
        wait_for(lambda: os.path.exists(os.path.join(run.run_dir, "live.json")))
        time.sleep(0.3)
        run.process.terminate()
        r = run.wait(10)
        assert r.code == 143 and r.report["status"] == "interrupted", r
        no_leftovers()


@test
def who_knows_no_streams_finds_it_all_there():
    with Place() as p:
        for plain, last in ((False, "cuda:0"), (True, "cuda:1")):
            pl = way(writer(plain=plain), on("reader", last, plain=not plain, delay_us=3000), slots=2)
            assert by_events(p, pl) and read(p, pl)["batches"] == BATCHES, (plain, last)


@test
def kills_while_streams_wait_for_one_another():
    if GROUPED:
        raise Skip("these are processes")
    with Place() as p:
        pl = way(on("writer", "cuda:0", batches=10_000_000), on("reader", "cuda:1", delay_us=500))
        memories = sorted({"memory-cuda:0", "memory-" + SECOND})
        for victim in ("writer", "reader", *memories, "supervisor"):
            kill_ends(p.start(pl, grouped=False), victim, 0.1)


if __name__ == "__main__":
    main()
