"""The hand-over bench over the host build: it runs bare, and again under an MPS that it starts and ends, where there is one.
A stand-in takes the place of NVIDIA's daemon."""
import contextlib
import io
import os
import sys

from harness import *

sys.path.insert(0, os.path.join(ROOT, "tools", "bench"))
from mps import fake
import gpu
import gpu_mps
import measure

BARE, UNDER = "checked: hand-over between processes\n", "checked: hand-over between processes under MPS\n"


def handover(path, scratch):
    """(what the bench prints, its results), with a PATH."""
    before, os.environ["PATH"], measure.SCRATCH = os.environ["PATH"], path, scratch
    text = io.StringIO()
    try:
        with contextlib.redirect_stdout(text):
            results = gpu.handover(True)
    finally:
        os.environ["PATH"] = before
    return text.getvalue(), results


def control_log(scratch):
    with open(os.path.join(scratch, "mps-logs", "control.log")) as f:
        return f.read()


@test
def it_runs_bare_and_under_mps():
    with Place() as p:
        said, results = handover(fake(p.dir), p.dir)
        assert said == BARE + UNDER and results == {}, (said, results)
        log = control_log(p.dir)
        assert log.startswith("daemon ") and log.endswith("quit\n"), log
        no_leftovers()


@test
def where_there_is_no_mps_it_says_so():
    with Place() as p:
        said, results = handover("/nonexistent", p.dir)
        why = "nvidia-cuda-mps-control is not in PATH"
        assert said == BARE + f"hand-over under MPS: not run, because {why}. The target for this time is for MPS only\n", said
        assert results == {"IPC hand-over under MPS": {"skipped": why}}, results


@test
def clients_find_the_daemon_and_others_do_not():
    with Place() as p:
        path, before = fake(p.dir), os.environ["PATH"]
        os.environ["PATH"] = path
        try:
            with gpu_mps.Service(p.dir) as service:
                pipes = service.env["CUDA_MPS_PIPE_DIRECTORY"]
                assert os.path.exists(os.path.join(pipes, "control")) and len(pipes) < 90, pipes
                assert not service.served()  # nobody has used it
                with open(os.path.join(pipes, "servers"), "w") as f:
                    f.write("4711\n")
                assert service.served()
            assert not os.path.exists(os.path.dirname(pipes))
        finally:
            os.environ["PATH"] = before
        assert not os.path.exists(os.path.join(gpu_mps.NONE["CUDA_MPS_PIPE_DIRECTORY"], "control"))


@test
def a_daemon_that_does_not_start_is_an_error():
    with Place() as p:
        try:
            handover(fake(p.dir, before="exit 3"), p.dir)
            raise AssertionError("no error")
        except measure.Unsound as why:
            assert "nvidia-cuda-mps-control did not start" in str(why) and "exited at once, with status 3" in str(why), why
        no_leftovers()


if __name__ == "__main__":
    main()
