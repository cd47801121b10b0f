"""What a GPU reaches: each kernel against what must move, the hand-over between processes, disk kernels over emulated
drives, a step of graph embeddings, the epoch. Every result is checked before anything is timed. The host build (no GPU) only checks, with tiny sizes."""
import json
import os
import shutil
import subprocess

from measure import Skip
import gpu_epoch
import gpu_io
import gpu_mps
import measure


def no_gpu():
    """Why the bench cannot run on a GPU here; "" if it can."""
    if not os.path.exists(gpu_io.program(False)):
        return "no nvcc, so the bench was not built for a GPU (make bench-gpu)"
    if not shutil.which("nvidia-smi"):
        return "no nvidia-smi: this machine has no GPU, or no driver"
    r = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return "" if r.returncode == 0 and r.stdout.startswith("GPU") else (r.stdout + r.stderr).strip() or "nvidia-smi lists no GPU"


def about_gpu():
    query = "name,driver_version,memory.total,clocks.max.sm,power.limit,mig.mode.current"
    said = subprocess.run(["nvidia-smi", "--query-gpu=" + query, "--format=csv,noheader"], capture_output=True, text=True)
    return {"gpu": said.stdout.strip().splitlines(), "gpu_fields": query}


def part(host, name, timeout, *args, **env):
    out = os.path.join(measure.SCRATCH, name + ".json")
    print(gpu_io.run(host, name, *args, "--out", out, timeout=timeout, **env), end="", flush=True)
    if host:
        return {}
    with open(out) as f:
        return json.load(f)


def found(size):
    """What the results say of the GPU. Skip if a GPU is needed and there is none."""
    if size.host:
        return {}
    if no_gpu():
        raise Skip(no_gpu())
    return about_gpu()


def handover(host):
    """Between two processes: bare, and under an MPS of the bench's own where this machine has MPS."""
    results = part(host, "ipc", 60, **gpu_mps.NONE)
    try:
        with gpu_mps.Service(measure.SCRATCH) as service:
            results.update(part(host, "ipc", 60, "--mps", **service.env))
            if not host and not service.served():
                raise measure.Unsound(f"the processes did not use MPS: its daemon has no server; see {service.logs}")
    except gpu_mps.Missing as why:
        print(f"hand-over under MPS: not run, because {why}. The target for this time is for MPS only")
        results["IPC hand-over under MPS"] = {"skipped": str(why)}
    return results


def kernels(size):
    return {**found(size), "kernels": part(size.host, "kernels", 200), "embed": part(size.host, "embed", 200),
            "ipc": handover(size.host), "io": gpu_io.all_figures(size.host)}


def epoch(size):
    return {**found(size), "epoch": gpu_epoch.all_figures(size.host)}
