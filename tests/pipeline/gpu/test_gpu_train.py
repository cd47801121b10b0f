"""pipelines/hyperion.json with its stages on GPUs: virtual or real ones (gpus.py)."""
import re

from crash import kill_ends
from gpus import *
from harness import *

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
# Fibers are slow: few columns, two batches an epoch.
SMALL = [word for pair in ("params.batch=120", "params.fanout=[3,2]", "stages.planner.params.gpu_cache=4KiB", "stages.planner.params.cpu_cache=0",
                           "stages.trainer.params.hidden=8") for word in ("--set", pair)] + ["--quiet"]


def settings(*pairs):
    return [word for pair in pairs for word in ("--set", pair)]


def on(**devices):
    return settings(*(f'stages.{name}.place={{"device":"{device}"}}' for name, device in devices.items()))


def data(p):
    path = p.path("few")
    if not os.path.exists(path):
        command("gen", "community", path, "--vertices", "600", "--features", "16", "--seed", "3")
    return path


def train(p, *args, epochs=1, **more):
    return p.run(HYPERION, *SMALL, "--epochs", epochs, *args, data=data(p), **more)


def same(report, want, name):
    assert report["digest"] == want["digest"], name
    assert report["cache"]["hits"] == want["cache"]["hits"] or report["sampler"]["overflows"] > 0, (name, report["cache"])
    assert len(report["epochs"]) == len(want["epochs"]), name
    for a, b in zip(report["epochs"], want["epochs"]):
        assert abs(a["loss"] - b["loss"]) <= 1e-5 * b["loss"], (name, a, b)
        assert abs(a["val_accuracy"] - b["val_accuracy"]) <= 0.01, (name, a, b)


ALL = {"planner": "cuda:0", "sampler": "cuda:0", "trainer": "cuda:0"}


@test
def the_same_run_wherever_it_is_made():
    with Place() as p:
        want = train(p).report
        for devices in (ALL, {**ALL, "trainer": SECOND}, {"trainer": "cuda:0"}, {"sampler": SECOND}):
            r = train(p, *on(**devices)).report
            same(r, want, devices)
            assert GROUPED or len({stage["pid"] for stage in r["stages"].values()}) == 4, r["stages"]
            assert all(r["stages"][name]["device"] == device for name, device in devices.items()), r["stages"]
        same(train(p, *on(**ALL), grouped=True).report, want, "threads of one process")
        r = train(p, "--device", "auto", grouped=False).report
        same(r, want, "auto")
        if not REAL:  # there is no MPS
            assert r["gpus"]["sharing"] == "one process" and len({stage["pid"] for stage in r["stages"].values()}) == 2, r
        r = train(p, *on(trainer="cuda:0"), *settings("stages.trainer.params.precision=tf32")).report
        assert r["trainer"]["products"] == "tf32" and r["weights_digest"] != want["weights_digest"], r["trainer"]


MODELS = [("gcn", []), ("gat", ["stages.trainer.params.heads=2", "stages.trainer.params.attention_dropout=0.3"])]


@test
def every_model():
    with Place() as p:
        for model, more in MODELS:
            args = settings(f"stages.trainer.params.model={model}", *more)
            want = train(p, *args).report
            same(train(p, *on(**ALL), *args).report, want, model)
            # split batches, whose cached rows come through the disk stage's slots
            args += settings("stages.sampler.params.margin=0.4")
            want = train(p, *args).report
            r = train(p, *on(trainer="cuda:0"), *args).report
            same(r, want, model)
            assert r["sampler"]["overflows"] > 0, r["sampler"]


@test
def batches_are_split_alike():
    with Place() as p:
        small = settings("stages.sampler.params.margin=0.4", "stages.sampler.params.gpu_topology=0")
        want = train(p, *small).report
        r = train(p, *on(**ALL), *small).report
        same(r, want, "split")
        assert r["sampler"]["overflows"] > 0 and r["sampler"]["topology"] == "pinned", r["sampler"]
        assert all(r["sampler"][key] == want["sampler"][key] for key in ("batches", "micro_batches", "overflows")), r


@test
def runs_go_on_elsewhere():
    with Place() as p:
        want = train(p, epochs=2).report
        for first, second in ((on(), on(**ALL)), (on(**ALL), on())):
            begun = train(p, *first)
            r = train(p, *second, "--resume", begun.run_dir, epochs=2).report
            assert r["digest"] == want["digest"], r
            assert abs(r["epochs"][0]["loss"] - want["epochs"][1]["loss"]) <= 1e-5 * want["epochs"][1]["loss"], r


@test
def a_gpu_that_is_too_small_is_told():
    only_virtual("no GPU is so small")
    with Place() as p:
        os.environ["PENSTOCK_HOST_GPU_BYTES"] = "30000000"
        try:
            err = train(p, *on(trainer="cuda:0"), code=1).err
        finally:
            del os.environ["PENSTOCK_HOST_GPU_BYTES"]
        assert "trainer: cuda:0: cannot create a queue for GPU work on up to" in err and "bytes of device memory" in err, err
        assert "of its 30000000 bytes are free" in err, err


@test
def a_kernel_that_never_ends_is_told():
    only_virtual("a GPU's kernels end")
    with Place() as p:
        for where, stage_name, said in (("loss.cu", "trainer", "trainer: batch 0, micro-batch 0: cuda:0: "),
                                        ("sample.cu", "sampler", "sampler: cannot sample batch 0: cuda:0: ")):
            os.environ.update(PENSTOCK_VIRTUAL_HANG=where, PENSTOCK_GPU_WAIT_S="0.7")
            try:
                r = train(p, *on(sampler="cuda:0", trainer="cuda:0"), code=1)
            finally:
                del os.environ["PENSTOCK_VIRTUAL_HANG"], os.environ["PENSTOCK_GPU_WAIT_S"]
            assert f"error: {said}the GPU work was not finished after 0.7 s" in r.err and re.search(r"[.]cuh?:\d", r.err), r.err
            assert r.report["failures"][0]["stage"] == stage_name, r.report["failures"]
            no_leftovers()


@test
def kills_leave_nothing():
    if GROUPED:
        raise Skip("these are processes")
    with Place() as p:
        for victim in ("planner", "sampler", "disk", "trainer", "memory-cpu:0", "supervisor"):
            run = p.start(HYPERION, *SMALL, "--epochs", 1_000_000, *on(**{**ALL, "trainer": SECOND}),
                          data=data(p), grouped=False)
            kill_ends(run, victim, None if victim == "planner" else 0.3)  # that ends before the rest begins
        run = p.start(HYPERION, *SMALL, "--epochs", 1_000_000, "--device", "auto", data=data(p), grouped=False)
        if not REAL:
            kill_ends(run, "planner", 0.3, died="cuda:0")  # in one process with sampler and trainer
        else:
            kill_ends(run, "sampler", 0.3)


if __name__ == "__main__":
    main()
