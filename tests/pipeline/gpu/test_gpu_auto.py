"""One GPU or two: `auto` compares them by the times of a measured run. Virtual GPUs (kernels/cuda/host) that reach each
other or do not, and machine files."""
import functools
import os

from harness import *

HOST = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
MACHINES = os.path.join(ROOT, "pipelines", "machines")
SMALL = {"params.batch": 120, "params.fanout": "[3,2]", "stages.planner.params.gpu_cache": "4KiB",
         "stages.planner.params.cpu_cache": 0, "stages.trainer.params.hidden": 8}
BATCHES = 100


def flags(**more):
    return [word for key, value in {**SMALL, **more}.items() for word in ("--set", f"{key}={value}")]


def on_peers(reach=True):
    os.environ["PENSTOCK_CUDA"] = HOST
    os.environ.pop("PENSTOCK_VIRTUAL_PEERS", None)
    if reach:
        os.environ["PENSTOCK_VIRTUAL_PEERS"] = "1"


def data(p):
    path = p.path("few")
    if not os.path.exists(path):
        command("gen", "community", path, "--vertices", "600", "--features", "16", "--seed", "3")
    return path


def check(p, *args, code=0, device="auto", **more):
    r = command("check", HYPERION, "--dataset", data(p), "--device", device, *flags(**more), *args, code=code)
    return r.stdout if code == 0 else r.stderr


@functools.cache
def on_one_gpu():
    """The report and the pipeline of a run on one GPU, whose stages worked one after the other."""
    on_peers()
    with Place() as p:
        once = p.run(HYPERION, *flags(overlap="false"), "--epochs", 1, "--quiet", "--device", "cuda:0", data=data(p), grouped=False)
        with open(os.path.join(once.run_dir, "report.json")) as report, open(os.path.join(once.run_dir, "pipeline.json")) as pl:
            return report.read(), pl.read()


def measured(p, name, sampler_ms, trainer_ms, disk_ms=0.5, megabytes=12, **changes):
    """That run with these times."""
    path = p.path(name)
    report, pl = map(json.loads, on_one_gpu())
    os.mkdir(path)
    report["dataset"]["dir"] = changes.pop("dataset", os.path.realpath(data(p)))
    report["verdict"].update(t_train_s=trainer_ms / 1e3, t_ssd_s=0)
    for stage_name, ms in (("sampler", sampler_ms), ("disk", disk_ms), ("trainer", 1000)):
        report["stages"][stage_name].update(busy_s=ms / 1e3 * BATCHES, items=BATCHES, bytes=int(megabytes * 1e6 * BATCHES))
    pl["overlap"] = changes.pop("overlap", False)
    for key, value in changes.items():
        report["stages"]["trainer"][key] = value
    for file, what in (("report.json", report), ("pipeline.json", pl)):
        with open(os.path.join(path, file), "w") as f:
            json.dump(what, f)
    return path


@test
def two_gpus_where_they_pay():
    on_peers()
    with Place() as p:
        assert "measured names no run that says what a batch takes" in check(p), check(p)
        for name, times, want, figures in (
                ("alike", (4, 6), "cuda:1", "two GPUs, because a batch takes 10.000 ms on one GPU and 7.000 ms on cuda:0 and cuda:1: "
                 "sampler 4.000 ms, trainer 6.000 ms, the link between them 1.000 ms for at most 12.000 MB, other stages 0.500 ms"),
                ("sampler", (9, 2), "cuda:1", "two GPUs, because a batch takes 11.000 ms on one GPU and 9.000 ms on"),
                ("trainer", (0.5, 9), "cuda:0", "the first GPU, because a batch takes 9.500 ms on one GPU and 10.000 ms on cuda:0 and cuda:1"),
                ("drive", (1, 2, 8), "cuda:0", "the first GPU, because a batch takes 8.000 ms on one GPU and 8.000 ms on")):
            run = measured(p, name, *times)
            said = check(p, **{"place.measured": run})
            assert f"planner on cuda:0, sampler on cuda:0, trainer on {want} (auto: {figures}" in said, (name, said)
        slow = check(p, **{"place.measured": p.path("alike"), "place.link_bytes_per_s": 1e9})
        assert "trainer on cuda:0 (auto: the first GPU, because a batch takes 10.000 ms on one GPU and 18.000 ms" in slow, slow
        planned = command("plan", HYPERION, "--dataset", data(p), "--device", "auto", *flags(**{"place.measured": p.path("alike")}),
                          "--run-dir", p.path("plan"), "--json").stdout
        places = json.loads(planned)["places"]
        assert places["trainer"]["device"] == "cuda:1" and "10.000 ms on one GPU and 7.000 ms on" in places["sampler"]["chosen"], places
        # the run does as the check says, and its weights are those of one GPU
        more = {"place.measured": os.path.relpath(p.path("alike"))}
        r = p.run(HYPERION, *flags(**more), "--epochs", 1, "--quiet", "--device", "auto", data=data(p), grouped=False)
        said = r.report["stages"]
        assert [said[s]["device"] for s in ("planner", "sampler", "trainer")] == ["cuda:0", "cuda:0", "cuda:1"], said
        assert said["trainer"]["chosen"] == said["sampler"]["chosen"] and "10.000 ms on one GPU and 7.000 ms on" in said["trainer"]["chosen"], said
        assert said["sampler"]["pid"] == said["planner"]["pid"] != said["trainer"]["pid"] or GROUPED
        assert r.report["weights_digest"] == json.loads(on_one_gpu()[0])["weights_digest"]
        with open(os.path.join(r.run_dir, "pipeline.json")) as f:
            assert json.load(f)["place"]["measured"] == os.path.realpath(p.path("alike"))


@test
def one_gpu_with_the_reason():
    on_peers()
    with Place() as p:
        good = measured(p, "good", 4, 6)
        group = {f"stages.{s}.group": "one" for s in ("sampler", "trainer")}
        for changes, why in (
                ({"overlap": "false"}, "overlap is false, so stages never work at the same time"),
                (group, "sampler and trainer are in one group, which has one GPU"),
                ({"params.batch": 60}, "the run of place.measured cannot be compared: its sampler had another batch"),
                ({"place.measured": measured(p, "busy", 4, 6, overlap=True)}, "its stages shared the GPU, so each was measured with the others: expected overlap false"),
                ({"place.measured": measured(p, "cpu", 4, 6, device="cpu:0")}, "its sampler and trainer ran on two devices, expected one GPU"),
                ({"place.measured": measured(p, "else", 4, 6, dataset="/somewhere")}, "it had another dataset"),
                ({"place.measured": measured(p, "short", 4, 6, items=1)}, "it has fewer than 2 batches")):
            said = check(p, **{"place.measured": good, **changes})
            assert "trainer on cuda:0 (auto: the first GPU: " in said and why in said, (changes, said)
        err = check(p, code=2, **{"place.measured": p.path("none")})
        assert "place.measured: expected the directory of a run that has ended, found" in err, err
        err = check(p, code=2, **{"place.link_bytes_per_s": 0})
        assert "place.link_bytes_per_s: expected the bytes that go from one GPU to another in a second" in err, err
        on_peers(False)
        said = check(p, **{"place.measured": good})
        assert "trainer on cuda:0 (auto: the first GPU: none of the 2 GPUs can read another one's memory)" in said, said


@test
def a_machine_file_stands_for_another_machine():
    on_peers()
    with Place() as p:
        more = {"place.measured": measured(p, "good", 4, 6)}
        del os.environ["PENSTOCK_CUDA"]
        device = {"model": "A", "socket": 0, "memory_bytes": 1 << 30}
        apart = {"machine": 1, "name": "apart", "sockets": [{"cores": 8, "memory_bytes": 1 << 36}],
                 "devices": [{**device, "links": links_} for links_ in ([], [2], [1])]}
        said = check(p, "--machine", os.path.join(MACHINES, "dgx-a100.json"), **more)
        assert "sampler on cuda:0, trainer on cuda:1 (auto: two GPUs" in said, said
        said = check(p, "--machine", p.write(apart, "apart.json"), **more)
        assert "sampler on cuda:1, trainer on cuda:2 (auto: two GPUs" in said, said
        apart["devices"] = [{**device, "links": []}] * 2
        said = check(p, "--machine", p.write(apart, "apart.json"), **more)
        assert "trainer on cuda:0 (auto: the first GPU: none of the 2 GPUs" in said, said
        err = check(p, "--machine", p.write(apart, "apart.json"), device="cuda:2", code=2)
        assert "device cuda:2 does not exist: this machine has 2 GPUs" in err, err
        drawn = command("graph", "--format", "text", "--machine", os.path.join(MACHINES, "siton.json"), HYPERION, "--device", "auto").stdout
        assert "sampler on cuda:0 (auto: the first GPU: cuda:0 and cuda:1 reach each other, but" in drawn, drawn
        err = command("check", "--machine", p.path("nothing.json"), HYPERION, code=2).stderr
        assert "nothing.json" in err, err


if __name__ == "__main__":
    main()
