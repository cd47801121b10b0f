#!/usr/bin/python3
"""gpu.py [--host]: what a GPU machine has to show: each kernel against what must move, the hand-over between
processes, disk kernels over emulated drives, the epoch. Every result is checked before anything is timed. Writes
results/gpu-DATE-COMMIT.json. Without a GPU, or with --host, the same program runs over the host build with tiny
sizes: it checks, and takes and writes no figure."""
import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gpu_epoch  # noqa: E402
import gpu_io  # noqa: E402


def no_gpu():
    """Why there is none; "" if there is one."""
    if not os.path.exists(gpu_io.program(False)):
        return "no nvcc, so the bench was not built for a GPU"
    if not shutil.which("nvidia-smi"):
        return "no nvidia-smi: this machine has no GPU, or no driver"
    r = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return "" if r.returncode == 0 and r.stdout.startswith("GPU") else (r.stdout + r.stderr).strip() or "nvidia-smi lists no GPU"


def machine():
    query = "name,driver_version,memory.total,clocks.max.sm,power.limit,mig.mode.current"
    gpu = subprocess.run(["nvidia-smi", "--query-gpu=" + query, "--format=csv,noheader"], capture_output=True, text=True)
    commit = subprocess.run(["git", "-C", gpu_io.ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return {"gpu": gpu.stdout.strip().splitlines(), "gpu_fields": query, "cores": os.cpu_count(), "load": os.getloadavg()[0],
            "date": datetime.date.today().isoformat(), "commit": commit.stdout.strip()}


def part(host, name, folder, timeout):
    out = os.path.join(folder, name + ".json")
    print(gpu_io.run(host, name, "--out", out, timeout=timeout), end="", flush=True)
    if host:
        return {}
    with open(out) as f:
        return json.load(f)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--host", action="store_true")
    options = p.parse_args()
    why = no_gpu()
    host = options.host or why != ""
    if why and not options.host:
        print(f"skipped: {why}; what follows is the host build, which only checks")
    with tempfile.TemporaryDirectory() as folder:
        results = {"kernels": part(host, "kernels", folder, 200), "ipc": part(host, "ipc", folder, 60),
                   "io": gpu_io.all_figures(host), "epoch": gpu_epoch.all_figures(host)}
    if host:
        return
    results = {"machine": machine(), **results}
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results",
                        f"gpu-{results['machine']['date']}-{results['machine']['commit']}.json")
    with open(path, "w") as f:
        json.dump(results, f, indent=1)
        f.write("\n")
    print(f"written: {os.path.relpath(path, gpu_io.ROOT)}")


if __name__ == "__main__":
    main()
