"""Replicas, at length: the same weights for 1, 2, 4 and 8 replicas, for every model, for batches that overflow their
slots, by processes and in one process, on CPUs and among virtual GPUs; a storm of kills and stops, from which runs go on
with other numbers of replicas."""
from replicating import *

COUNTS = (1, 2, 4, 8)
GPU = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")


def all_equal(p, *args, counts=COUNTS):
    found = {n: trained(p, n, *args) for n in counts}
    assert len(set(found.values())) == 1, (args, found)
    return found[1]


@test
def every_model():
    with Place() as p:
        plain = [all_equal(p, "--set", f"stages.trainer.params.model={model}") for model in ("graphsage", "gcn", "gat")]
        assert len({digest for digest, _ in plain}) == 1 and len({weights for _, weights in plain}) == 3, plain


@test
def recipes():
    """The gradient is clipped after it was summed; the plateau is that of the metric of replica 0, which all know."""
    with Place() as p:
        trainer = {"optimizer": "sgd", "momentum": 0.9, "rate": 0.2, "clip": 0.5, "schedule": "plateau", "patience": 0, "factor": 0.5}
        all_equal(p, "--epochs", 6, *(word for name, value in trainer.items()
                                      for word in ("--set", f"stages.trainer.params.{name}={value}")))


@test
def in_one_process():
    with Place() as p:
        one = trained(p, 1)
        assert all_equal(p, "--group", "all") == one
        assert all_equal(p, "--set", "params.threads=2") == one


@test
def batches_that_overflow_their_slots():
    with Place() as p:
        report = replicated(p, 2, "--set", "stages.sampler.params.margin=0.1").report
        assert report["sampler"]["overflows"] > 0, report["sampler"]
        all_equal(p, "--set", "stages.sampler.params.margin=0.1")


@test
def algorithms_that_need_whole_batches():
    with Place() as p:
        all_equal(p, "--set", "params.algorithm=ladies", "--set", "params.fanout=[64, 64]")
        all_equal(p, "--set", "params.algorithm=labor")


@test
def other_grains_have_weights_of_their_own():
    with Place() as p:
        grains = {n: all_equal(p, "--set", f"params.grains={n}", counts=[c for c in COUNTS if c <= n]) for n in (1, 2, 16)}
        assert len(set(grains.values())) == 3, grains


@test
def slots_without_overlap_and_several_samplers():
    with Place() as p:
        one = trained(p, 1)
        assert trained(p, 2, "--set", "overlap=false") == one
        assert trained(p, 2, "--set", "stages.sampler.instances=2") == one
        assert trained(p, 2, "--set", "links[1].slots=1") == one


@test
def virtual_gpus():
    if not os.path.exists(GPU):
        raise Skip("there are no virtual GPUs in this build")
    os.environ["PENSTOCK_CUDA"] = GPU
    try:
        with Place() as p:
            one = outcome(p.run(REPLICAS, *settings(1, "cuda"), timeout=300).report)
            assert outcome(p.run(REPLICAS, *settings(2, "cuda"), timeout=300).report) == one
            assert outcome(p.run(REPLICAS, *settings(2, "cuda"), "--set", "links[3].when=never", timeout=300).report) == one
    finally:
        del os.environ["PENSTOCK_CUDA"]


@test
def a_storm():
    rng = random.Random(5)
    with Place() as p:
        one = trained(p, 1)
        for _ in range(24):
            n = rng.choice((2, 4))
            names = ["supervisor", "memory-cpu:0", "memory-cpu:1",
                     *(f"{stage}.{r}" for stage in ("sampler", "disk", "trainer") for r in range(n))]
            strike(p, n, rng.choice(names))
        for _ in range(12):
            run = start(p, rng.choice(COUNTS), *SLOW)
            wait_for(lambda: has_checkpoint(run.run_dir) or run.process.poll() is not None)
            time.sleep(rng.random() * 0.2)
            run.process.send_signal(rng.choice((signal.SIGINT, signal.SIGKILL)))
            run.wait(60)
            no_leftovers()
            assert outcome(replicated(p, rng.choice(COUNTS), "--resume", run.run_dir).report) == one


if __name__ == "__main__":
    main()
