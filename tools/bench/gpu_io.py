"""Disk kernels over emulated drives, on a GPU: Hyperion's Figure 12 and Legend's Figures 19 and 20 in our terms. Used by gpu.py.
On the host build (no GPU) everything runs and is checked, and nothing is timed."""
import json
import os

from measure import BUILD, output

PEAK = 1.5e6  # of preset optane, at 4 KiB
WAYS = ("async", "batch", "sync")


def program(host):
    """The bench for a GPU, or the one over the host build."""
    return os.path.join(BUILD, "tests", "gpu-bench") if host else os.path.join(BUILD, "bench", "gpu")


def run(host, *args, timeout=120, **env):
    env = dict(os.environ, PENSTOCK_BIN=os.path.join(BUILD, "bin"), **env)
    if host:
        env["PENSTOCK_CUDA"] = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
    return output([program(host), *args], env=env, timeout=timeout)


def io(host, **options):
    args = []
    for key, value in options.items():
        args += ["--" + key.replace("_", "-")] + ([] if value is True else [value])
    return json.loads(run(host, "io", *args))


def million(rate):
    return f"{rate / 1e6:.2f}"


def figure_12(host, ssds, dilate, workers, batch):
    """What one block of P_s threads can submit, against what the drives take; then the completion blocks."""
    common = dict(way="async", ssds=ssds, bytes=4096, queues=2, depth=1024, batch=batch, workers=workers, dilate=dilate)
    out, device = {"submit": [], "complete": []}, ssds * PEAK
    if not host:
        print(f"Hyperion, Figure 12: {ssds} SSDs take {million(device)}M requests/s; the drives are slowed by {dilate:g}")
    for threads in (32, 64, 128, 256, 512, 1024) if not host else (64,):
        r = io(host, submit_threads=threads, **common)
        if host:
            continue
        rate = batch / (r["submit_us"] * 1e-6)
        out["submit"].append({"threads": threads, "rate": rate, "share": rate / device})
        print(f"  one block of {threads:4d} threads submits {million(rate):>8}M/s, {100 * rate / device:7.0f} % of the drives")
    for blocks in (1, 2, 4, 8, 16, 32) if not host else (1,):
        r = io(host, complete_blocks=blocks, **common)
        if host:
            continue
        out["complete"].append({"blocks": blocks, "iops": r["iops"], "share": r["iops"] / device})
        print(f"  {blocks:2d} blocks complete {million(r['iops']):>8}M/s, {100 * r['iops'] / device:5.1f} % of the drives")
    enough = [c["blocks"] for c in out["complete"] if c["share"] >= 0.95 * max(x["share"] for x in out["complete"])]
    if not host:
        out["saturates"] = max(s["share"] for s in out["submit"]) >= 1
        out["blocks_needed"] = min(enough)
        print(f"  one block {'saturates' if out['saturates'] else 'does NOT saturate'} the drives; the best completion "
              f"takes {out['blocks_needed']} blocks (32 in the paper)")
    return out


def figure_19(host, ssds, dilate, workers, batch):
    """Reads and writes by Legend's way, 8 blocks of 32 threads, and by BaM's: as many warps, and 4,096."""
    light = dict(way="batch", batch_blocks=8, batch_threads=32, complete_blocks=8, complete_threads=32)
    shapes = {"batch, 8 blocks of 32": light, "sync, 8 warps": dict(way="sync", warps=8), "sync, 4,096 warps": dict(way="sync", warps=4096)}
    out = {}
    if not host:
        print("Legend, Figure 19: bandwidth of disk kernels, undilated")
    for direction in ("read", "write"):
        for name, shape in shapes.items():
            some = batch // 10 if shape.get("warps") == 8 else batch  # eight requests at a time take long
            r = io(host, **shape, ssds=ssds, bytes=4096, queues=2, depth=1024, batch=some, workers=workers, dilate=dilate,
                   **({"write": True} if direction == "write" else {}))
            if host:
                continue
            out[f"{direction}, {name}"] = r["iops"] * 4096
            print(f"  {direction:5} {name:22} {r['iops'] * 4096 / 1e9:6.2f} GB/s, {100 * r['iops'] / (ssds * PEAK):5.1f} % of the drives' reads")
    return out


def figure_20(host, ssds, dilate, workers, batch):
    """What GEMMs on another stream lose to the disk kernels beside them: at most 5 % for async and batch."""
    out = {}
    if not host:
        print("Legend, Figure 20: what GEMMs lose beside the disk kernels")
    for way in WAYS:
        r = io(host, way=way, ssds=ssds, bytes=4096, queues=2, depth=1024, batch=batch, workers=workers, dilate=dilate,
               beside=True)
        if host:
            continue
        out[way] = r["loss"]
        held = "" if way == "sync" else (", at most 5 %" if r["loss"] <= 0.05 else ", MISSES 5 %")
        print(f"  {way:5} {100 * r['loss']:6.1f} %{held}; {million(r['iops'])}M requests/s")
    return out


def ways(host, ssds, dilate, workers, batch, sizes):
    """The rate of each way by the bytes of a request."""
    out = []
    for size in sizes:
        device = ssds * PEAK * min(1, 4096 / size)
        seen = {}
        for way in WAYS:
            r = io(host, way=way, ssds=ssds, bytes=size, queues=2, depth=1024, batch=batch, workers=workers, dilate=dilate)
            if not host:
                seen[way] = r["iops"]
        if not host:
            out.append({"bytes": size, "device": device, **seen})
            print(f"  {size:5d} B: " + ", ".join(f"{w} {million(v)}M/s ({100 * v / device:.0f} %)" for w, v in seen.items()))
    return out


def all_figures(host):
    """On the host build the sizes are tiny, and the three say only that every byte was right."""
    ssds, dilate, workers, batch = (2, 1, 1, 300) if host else (12, 40, min(8, max(1, (os.cpu_count() or 2) - 4)), 12000)
    sizes = (512,) if host else (512, 4096)
    if not host:
        print(f"requests/s over {ssds} SSDs, undilated")
    results = {"ways": ways(host, ssds, dilate, workers, batch, sizes), "figure_12": figure_12(host, ssds, dilate, workers, batch),
               "figure_19": figure_19(host, ssds, dilate, workers, batch), "figure_20": figure_20(host, ssds, dilate, workers, batch)}
    if host:
        print("checked: disk kernels, all ways, reads and writes, alone and beside GEMMs")
    return results
