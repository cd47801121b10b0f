"""Replicas on GPUs that add up their gradients by NCCL (the trainer's `reduce`). On virtual GPUs, NCCL's functions are those of
kernels/cuda/host/nccl.cpp."""
import os

os.environ["PENSTOCK_VIRTUAL_GPUS"] = "4"
from gpus import needs_two, only_virtual
from replicating import *

NCCL = ("--set", "stages.trainer.params.reduce=nccl")


def options(replicas, *more):
    return [*settings(replicas, "cuda"), *more]


def train(p, replicas, *more):
    return p.run(REPLICAS, *options(replicas, *more)).report


@test
def two_replicas_give_the_weights_of_the_tree():
    """A sum of two numbers has no order."""
    needs_two()
    with Place() as p:
        tree, nccl = train(p, 2), train(p, 2, *NCCL)
        assert outcome(nccl) == outcome(tree)
        assert nccl["trainer"]["exchange_s"] > 0 and nccl["trainer"]["seeds"] == EPOCHS * SEEDS, nccl["trainer"]


@test
def four_replicas_repeat_and_are_close():
    only_virtual("the order of NCCL's additions may differ from run to run, and this takes four GPUs")
    with Place() as p:
        tree, nccl = train(p, 4), train(p, 4, *NCCL)
        assert outcome(train(p, 4, *NCCL)) == outcome(nccl)
        assert nccl["digest"] == tree["digest"] and nccl["weights_digest"] != tree["weights_digest"]
        for a, b in zip(nccl["epochs"], tree["epochs"]):
            assert abs(a["loss"] - b["loss"]) < 1e-4 * b["loss"], (a, b)


@test
def threads_of_a_process_add_up_too():
    needs_two()
    with Place() as p:
        assert outcome(train(p, 2, *NCCL, "--group", "all")) == outcome(train(p, 2, *NCCL))


@test
def a_stopped_run_goes_on():
    needs_two()
    with Place() as p:
        want = outcome(train(p, 2, *NCCL))
        run = p.start(REPLICAS, *options(2, *NCCL), *SLOW)
        wait_for(lambda: has_checkpoint(run.run_dir))
        run.process.send_signal(signal.SIGINT)
        stopped = run.wait(60)
        assert stopped.code == 130, stopped
        assert outcome(train(p, 2, *NCCL, "--resume", stopped.run_dir)) == want
        no_leftovers()


@test
def a_killed_replica_ends_all():
    needs_two()
    with Place() as p:
        run = p.start(REPLICAS, *options(2, *NCCL), *ENDLESS)
        wait_for(lambda: has_checkpoint(run.run_dir))
        end_by_kill(run, processes(run)["trainer.1"], "trainer.1", END_S)
        wait_for(lambda: not leftovers(), 2)


@test
def cpus_have_no_nccl():
    with Place() as p:
        told = p.run(REPLICAS, *settings(2), *NCCL, code=2).err
        assert "reduce can be nccl only on a GPU, but trainer runs on cpu:0" in told, told


if __name__ == "__main__":
    main()
