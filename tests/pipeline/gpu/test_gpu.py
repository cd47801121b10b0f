"""Placement on GPUs: virtual ones (kernels/cuda/host), so that all of it runs where there is none; test_gpu_train.py
trains on them."""
import os

from crash import kill_ends
from harness import *

os.environ["PENSTOCK_CUDA"] = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
BATCHES = 100


def chain(source, a, sink, batches=BATCHES, delay_us=0):
    """source -> a -> sink, each on its device."""
    stages = {"source": stage("source", batches=batches, bytes=8192, micros=2), "a": stage("passthrough"),
              "sink": stage("sink", delay_us=delay_us)}
    for name, device in (("source", source), ("a", a), ("sink", sink)):
        stages[name]["place"] = {"device": device}
    return pipeline(stages, links("source.out", "a.in", "a.out", "sink.in"))


def routes(p, pl):
    """What `penstock graph` says of each route's memory."""
    drawn = command("graph", p.write(pl, "drawn.json")).stdout
    return [line.split("(route")[1].split(")")[0].split("slots")[1].strip(", ") for line in drawn.splitlines()
            if "(route" in line]


@test
def every_mix_of_devices_gives_the_same_bytes():
    with Place() as p:
        want = p.run(chain("cpu:0", "cpu:0", "cpu:0")).report["sink"]
        for devices, memory, copied in (
                (("cuda:0", "cpu:0", "cuda:0"), "pinned, by events", 0), (("cpu:0", "cuda:0", "cpu:0"), "pinned", 0),
                (("cuda:0", "cuda:0", "cuda:1"), "pinned, by events", 0), (("cuda:0", "cpu:0", "cpu:0"), "pinned", 0),
                (("cpu:1", "cuda:1", "cpu:0"), "pinned", 1), (("cuda:0", "cpu:1", "cpu:0"), "pinned", 1),
                (("cuda:1", "cuda:1", "cuda:1"), "in cuda:1, by events", 0),
                (("cuda:0", "cuda:0", "cuda:0"), "in cuda:0, by events", 0)):
            pl = chain(*devices)
            assert routes(p, pl)[0] == memory, (devices, routes(p, pl))
            for grouped in (True,) if GROUPED else (False, True):
                r = p.run(pl, grouped=grouped)
                assert r.report["sink"] == want, (devices, r.report["sink"], want)
                said = {name: s["device"] for name, s in r.report["stages"].items() if name in ("source", "a", "sink")}
                assert tuple(said[name] for name in ("source", "a", "sink")) == devices, said
                assert r.report.get("copies", {}).get("bytes", 0) == copied * BATCHES * 2 * 8192, (devices, r.report)


@test
def auto_takes_a_gpu_where_there_is_one_and_the_stage_can():
    with Place() as p:
        pl = chain("auto", "auto", "auto")
        said = p.run(pl).report["stages"]
        why = "the first GPU: none of the 2 GPUs can read another one's memory"
        assert all(s["device"] == "cuda:0" and s["chosen"] == why for s in said.values()), said
        assert f"on cuda:0 (auto: {why})" in command("graph", p.write(pl)).stdout
        pl = pipeline({"owner": {**stage("owner"), "place": {"device": "auto"}}, "raiser": stage("raiser")},
                      links("owner.out", "raiser.in"))
        said = p.run(pl).report["stages"]["owner"]
        assert said["device"] == "cpu:0" and said["chosen"].startswith("owner runs only on CPUs"), said
        os.environ["PENSTOCK_VIRTUAL_GPUS"] = "0"
        try:
            said = p.run(chain("auto", "cpu:0", "cpu:0")).report["stages"]["source"]
        finally:
            del os.environ["PENSTOCK_VIRTUAL_GPUS"]
        assert said["device"] == "cpu:0" and said["chosen"].startswith("this machine has no usable GPU"), said


@test
def a_pipeline_s_device_is_for_those_that_can_and_say_nothing():
    with Place() as p:
        pl = pipeline({"owner": stage("owner"), "raiser": {**stage("raiser"), "place": {"device": "cpu:1"}}},
                      links("owner.out", "raiser.in"))
        said = p.run(pl, "--device", "cuda:1").report["stages"]
        assert (said["owner"]["device"], said["raiser"]["device"]) == ("cpu:0", "cpu:1"), said
        assert said["owner"]["chosen"].startswith("owner runs only on CPUs"), said
        pl = chain("cpu:0", "cpu:0", "cpu:0")
        del pl["stages"]["source"]["place"], pl["stages"]["a"]["place"]
        for device, want in (("cuda:1", "cuda:1"), ("auto", "cuda:0"), ("cpu:1", "cpu:1")):
            said = p.run({**pl, "place": {"device": device}}).report["stages"]
            assert [said[name]["device"] for name in ("source", "a", "sink")] == [want, want, "cpu:0"], said
        err = p.run(pl, "--device", "cuda:2", code=2).err
        assert err.count("place.device: device cuda:2 does not exist") == 1, err


@test
def what_cannot_be_placed_is_told():
    with Place() as p:
        err = p.run(chain("cuda:2", "cpu:0", "cpu:0"), code=2).err
        assert "stages.source.place.device: device cuda:2 does not exist: this machine has 2 GPUs" in err, err
        pl = pipeline({"owner": {**stage("owner"), "place": {"device": "cuda:1"}}, "raiser": stage("raiser")},
                      links("owner.out", "raiser.in"))
        err = p.run(pl, code=2).err
        assert "owner cannot run on cuda:1: owner runs only on CPUs: its output out uses cpu memory" in err, err
        pl = pipeline({"source": stage("source"), "times": {**stage("times"), "place": {"device": "cuda:0"}},
                       "sink": stage("sink")}, links("source.out", "times.in", "times.out", "sink.in"))
        err = p.run(pl, code=2, foreign=True).err
        assert "times cannot run on cuda:0" in err, err
        kept = os.environ["PENSTOCK_CUDA"]
        os.environ["PENSTOCK_CUDA"] = "/nonexistent.so"
        try:
            err = p.run(chain("cuda:0", "cpu:0", "cpu:0"), code=2).err
        finally:
            os.environ["PENSTOCK_CUDA"] = kept
        assert "device cuda:0 does not exist: no GPU can be used: /nonexistent.so" in err, err


@test
def a_gpu_that_is_too_old_is_left_out():
    def with_old(number, device):
        os.environ["PENSTOCK_VIRTUAL_OLD"] = number
        try:
            return p.run(chain("cpu:0", device, "cpu:0"), code=None)
        finally:
            del os.environ["PENSTOCK_VIRTUAL_OLD"]
    with Place() as p:
        r = with_old("0", "auto")
        assert r.code == 0 and r.report["stages"]["a"]["device"] == "cpu:0", r
        assert "cuda:0 (virtual GPU 0) has compute capability 7.0, but Penstock needs 8.0 or newer" in r.report["stages"]["a"]["chosen"], r.report
        assert with_old("1", "auto").report["stages"]["a"]["device"] == "cuda:0"
        err = with_old("1", "cuda:1").err
        assert "this machine has 1 GPUs, numbered from cuda:0; cuda:1 (virtual GPU 1) has compute capability 7.0" in err, err


@test
def kills_leave_nothing_of_virtual_gpus():
    if GROUPED:
        raise Skip("these are processes")
    with Place() as p:
        for devices, hosts in ((("cuda:0", "cuda:0", "cuda:0"), ("memory-cpu:0", "memory-cuda:0")),
                               (("cuda:0", "cpu:0", "cuda:1"), ("memory-cpu:0",))):
            for victim in ("source", "a", "sink", "supervisor", *hosts):
                run = p.start(chain(*devices, batches=100000, delay_us=20000), grouped=False)
                kill_ends(run, victim, 0.1)  # opening or running


if __name__ == "__main__":
    main()
