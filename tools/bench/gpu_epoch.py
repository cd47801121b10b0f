"""An epoch on a GPU, of the same pipeline file as on the CPU: over processes and in one, features in memory, and with
what is missing read from emulated drives. Used by gpu.py. On the host build everything runs and is checked, tiny."""
import json
import os
import shutil
import statistics
import subprocess
import sys

from measure import BUILD, Unsound, epoch_seconds, generate, run, show, spread
import measure

# the shape of ogbn-arxiv, as bench memory has it
SIZES = {False: dict(vertices=169343, edges=1166243, train=90941, features=128, batch=1024, epochs=6, rounds=2),
         True: dict(vertices=400, edges=3000, train=200, features=128, batch=100, epochs=2, rounds=1)}
WAYS = {"CPU, processes": (), "GPU, processes": ("--device", "cuda:0"),
        "GPU, processes, cached rows through the host": ("--device", "cuda:0", "--set", "links[3].when=never"),
        "GPU, one process": ("--device", "cuda:0", "--group", "all"),
        "CPU, emulated drives": ("--set", "stages.disk.params.backend=emulated"),
        "GPU, emulated drives": ("--device", "cuda:0", "--set", "stages.disk.params.backend=emulated"),
        "GPU, emulated drives that the CPU drives": ("--device", "cuda:0", "--set", "stages.disk.params.backend=emulated",
                                                     "--set", 'stages.disk.place={"device":"cpu:0"}')}
PROCESSES_MOST = 1.05  # times an epoch in one process
TORCH_S = 60
LOSS_SLACK = 1e-4  # relative, after one epoch


def settings(size, way):
    cache = "0B" if "drives" in way else "1GiB"
    return measure.settings(params_batch=size["batch"], params_fanout=[10, 5], trainer__hidden=256, trainer__layers=2,
                          trainer__dropout=0.5, trainer__eval_every=0, trainer__checkpoint_every=0, planner__gpu_cache=cache, planner__cpu_cache=0)


def check(way, report, reference):
    """The CPU's samples, and its losses."""
    if "GPU" in way and report["stages"]["trainer"]["device"] != "cuda:0":
        raise Unsound(f"{way}: the trainer ran on the wrong device, {report['stages']['trainer']['device']}")
    if "GPU" in way and (report["trainer"]["rows_cached"] > 0) != ("drives" not in way and "through" not in way):
        raise Unsound(f"{way}: {report['trainer']['rows_cached']} rows came from the cache by themselves")
    if "drives" in way and report["io"]["backend"] != "emulated" or ("drives" in way) != (report["io"]["rows"] > 0):
        raise Unsound(f"{way}: {report['io']['rows']} rows were read by backend {report['io']['backend']}")
    if "drives" in way and (report["io"]["submitted_by"] == "gpu") != (way == "GPU, emulated drives"):
        raise Unsound(f"{way}: reads were submitted by the {report['io']['submitted_by']}")
    a, b = reference["epochs"][0]["loss"], report["epochs"][0]["loss"]
    if report["digest"] != reference["digest"] or not abs(a - b) <= LOSS_SLACK * a:
        raise Unsound(f"{way}: the weights' digest is {report['digest']} and the loss {b}; expected those of the CPU, {reference['digest']} and {a}")


def plain_torch(data, size):
    """The same epoch in plain PyTorch, by the first Python in PATH; or why it was not measured."""
    python = shutil.which("python3") or sys.executable
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu_torch.py")
    try:
        r = subprocess.run([python, program, data, str(size["batch"]), str(size["epochs"])], capture_output=True, text=True,
                           timeout=TORCH_S, env=dict(os.environ, PYTHONPATH="", LD_LIBRARY_PATH=""))
        if r.returncode == 0:
            return json.loads(r.stdout)
        why = (r.stderr.strip().splitlines() or ["no message"])[-1]
    except subprocess.TimeoutExpired:
        why = f"it did not end within {TORCH_S} s"
    print(f"  PyTorch was not measured: {python}: {why}")
    return {"skipped": why}


def busy(report):
    n = len(report["epochs"])
    return {name: round(s["busy_s"] / n, 6) for name, s in report["stages"].items()}


def all_figures(host):
    size, seconds, last = SIZES[host], {way: [] for way in WAYS}, {}
    env = dict(os.environ, PENSTOCK_CUDA=os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")) if host else None
    data = generate("rmat-gpu", "--vertices", size["vertices"], "--edges", size["edges"], "--symmetrize", "--features",
                    size["features"], "--classes", 40, "--train-count", size["train"], quiet=True)
    for _ in range(size["rounds"]):
        for way, args in WAYS.items():
            last[way] = run(data, *settings(size, way), *args, epochs=size["epochs"], env=env)
            check(way, last[way], last["CPU, processes"])
            seconds[way].append(epoch_seconds(last[way]))
    print("checked: the epoch, CPU and GPU, features in memory and on emulated drives", flush=True)
    if host:
        return {}
    cpu, out = statistics.median(seconds["CPU, processes"]), {"PyTorch": plain_torch(data, size)}
    for way in WAYS:
        s = spread(seconds[way])
        out[way] = {"epoch_s": s, "busy_s": busy(last[way]), "bound_by": last[way].get("bound_by"), "gpus": last[way].get("gpus")}
        show(f"an epoch: {way}", s, "s")
        print(f"    the CPU's / this {cpu / s['median']:.2f}; busy: {out[way]['busy_s']}; {out[way]['gpus'] or ''}")
    ours = {way: out[way]["epoch_s"]["median"] for way in ("GPU, processes", "GPU, one process")}
    print(f"  processes / one process {ours['GPU, processes'] / ours['GPU, one process']:.3f}, at most {PROCESSES_MOST}")
    if "epoch_s" in out["PyTorch"]:
        print(f"  an epoch of plain PyTorch {out['PyTorch']['epoch_s']:.4f} s; PyTorch / GPU, processes {out['PyTorch']['epoch_s'] / ours['GPU, processes']:.2f}")
    return out
