"""Caches that replicas on GPUs have for one another (pipelines/legion.json): each lies in the memory of its GPU, and the
kernels of its clique read it there. What they count is what CPUs count. On virtual GPUs (kernels/cuda/host)."""
import re

from crash import kill_ends
from replicating import *

LEGION = os.path.join(ROOT, "pipelines", "legion.json")
MACHINES = os.path.join(ROOT, "pipelines", "machines")
os.environ["PENSTOCK_CUDA"] = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")


def machine(name, devices):
    """Virtual GPUs that reach each other as the devices of a machine do. Returns its file."""
    path = os.path.join(MACHINES, name + ".json")
    with open(path) as f:
        links = [device["links"] for device in json.load(f)["devices"]]
    virtual(devices, ",".join(f"{i}-{k}" for i in range(devices) for k in links[i] if i < k < devices))
    return path


def virtual(devices, peers):
    os.environ["PENSTOCK_VIRTUAL_GPUS"] = str(devices)
    os.environ["PENSTOCK_VIRTUAL_PEERS"] = peers


def flags(kind, replicas, file="", **more):
    """kind: "cpu" or "cuda". The runs are small, because fibers are slow."""
    places = json.dumps([f"{kind}:{i + (kind == 'cpu')}" for i in range(replicas)])
    values = {"replicas.places": places, "params.grains": 8, "params.batch": 60, "params.fanout": "[4,3]",
              "params.shuffle": "global", "stages.trainer.params.threads": 1, "stages.trainer.params.hidden": 8,
              "stages.planner.params.cpu_cache": "4KiB", "stages.planner.params.gpu_cache": "8KiB", **more}
    if file:
        values["stages.planner.params.machine"] = file
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")] + ["--quiet"]


def data(p):
    path = p.path("few")
    if not os.path.exists(path):
        command("gen", "community", path, "--vertices", "600", "--features", "16", "--seed", "3")
    return path


def run(p, *args, pipeline=LEGION, code=0, group=(), **more):
    return p.run(pipeline, "--epochs", 1, *flags(*args, **more), *group, data=data(p), grouped=False, code=code)


def counted(report):
    return {name: value for name, value in report["shared_caches"].items() if name != "partition_s"}


@test
def gpus_count_what_cpus_count():
    """Pairs of four GPUs, and quads of eight: rows and lists from itself, its peers, the host, and rows from disk."""
    with Place() as p:
        for name, replicas, cache in (("siton", 4, "8KiB"), ("dgx-v100", 8, "4KiB")):
            at = machine(name, replicas)
            want = run(p, "cpu", replicas, at, **{"stages.planner.params.gpu_cache": cache}).report
            got = run(p, "cuda", replicas, at, **{"stages.planner.params.gpu_cache": cache}).report
            assert [got["stages"][f"sampler.{i}"]["device"] for i in range(replicas)] == [f"cuda:{i}" for i in range(replicas)]
            assert counted(got) == counted(want), (name, got["shared_caches"], want["shared_caches"])
            assert got["cache"] == want["cache"] and got["digest"] == want["digest"], (got["cache"], want["cache"])
            shared = got["shared_caches"]
            assert shared["cliques"] == 2 and min(shared[what + place] for what in ("rows_", "edges_")
                                                  for place in ("local", "peer", "host")) > 0, shared
            assert shared["rows_disk"] > 0 and shared["lines_host"] > 0
            # what is found goes to the trainer in the memory of its GPU
            assert (got["trainer"]["rows_cached"], got["trainer"]["rows_brought"]) == (got["cache"]["hits"], shared["rows_disk"])
            if replicas == 4:  # the same weights as without these caches, on the same GPUs
                plain = run(p, "cuda", replicas, pipeline=REPLICAS, **{"stages.planner.params.gpu_cache": 0}).report
                assert outcome(plain) == outcome(got)


@test
def own_seeds_whole_lists_and_split_batches():
    """Two instances of each sampler; batches that do not fit are not counted; all neighbours of a hop are read."""
    with Place() as p:
        virtual(2, "1")
        more = {"params.shuffle": "local", "params.fanout": "[-1,3]", "stages.sampler.params.margin": 0.6}
        want = run(p, "cpu", 2, **more).report
        got = run(p, "cuda", 2, **{**more, "stages.sampler.instances": 2}).report
        assert got["sampler"]["overflows"] == want["sampler"]["overflows"] > 0
        assert counted(got) == counted(want) and got["digest"] == want["digest"], (got["shared_caches"], want["shared_caches"])
        assert got["shared_caches"]["rows_peer"] > 0 and got["sampler"]["topology"] == "pinned"


@test
def gpus_that_reach_nobody_have_caches_of_their_own():
    with Place() as p:
        virtual(2, "")
        del os.environ["PENSTOCK_VIRTUAL_PEERS"]
        shared = run(p, "cuda", 2).report["shared_caches"]
        assert shared["cliques"] == 2 and shared["rows_local"] > 0 and shared["rows_peer"] == 0, shared


@test
def mistakes_are_told_before_training():
    with Place() as p:
        at = machine("siton", 4)
        os.environ["PENSTOCK_VIRTUAL_PEERS"] = "0-1"
        for words, replicas, file, more in (
                ("links the devices of cuda:2 and cuda:3, but CUDA says that cuda:2 cannot read", 4, at, {}),
                ("cannot be used together with this sampling algorithm", 2, "", {"params.algorithm": "labor"}),
                ("sampler.0 and sampler.1 share memory of GPUs, but are threads of one process", 2, "",
                 {"group": ["--group", "all"]})):
            r = run(p, "cuda", replicas, file, code=None, **more)
            assert r.code != 0 and words in r.err, (words, r)
            no_leftovers()


def opened(pid):
    """The GPUs of which a process has memory mapped."""
    with open(f"/proc/{pid}/maps") as f:
        return {int(found) for found in re.findall(r"/memfd:penstock-virtual-gpu-(\d)", f.read())}


@test
def kills_leave_nothing():
    if GROUPED:
        raise Skip("these are processes")
    with Place() as p:
        for name, replicas, reader, clique, victim in (("siton", 4, "sampler.3", {2, 3}, "memory-cuda:3"),
                                                       ("dgx-v100", 8, "sampler.5", {4, 5, 6, 7}, "sampler.6")):
            at = machine(name, replicas)
            virtual(replicas, "1")  # all reach each other, but a process opens memory only of its clique
            job = p.start(LEGION, *flags("cuda", replicas, at), "--epochs", 1_000_000, data=data(p), grouped=False)
            pid = wait_for(lambda: processes(job).get(reader))
            wait_for(lambda: opened(pid) == clique)
            kill_ends(job, victim, 0.3, limit_s=END_S * replicas / 4)  # eight GPUs have 35 processes, which few cores end
        virtual(2, "1")
        for victim in ("sampler.1", "trainer.0", "memory-cuda:0", "memory-cpu:0", "supervisor"):
            job = p.start(LEGION, *flags("cuda", 2), "--epochs", 1_000_000, data=data(p), grouped=False)
            kill_ends(job, victim, 0.3)


if __name__ == "__main__":
    main()
