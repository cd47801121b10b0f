"""Benches of reads: the backends and the disk engine against fio, and the three NVMe stacks over emulated drives."""
import json
import math
import os
import statistics

from measure import BUILD, PENSTOCK, Unsound, fio, output, show, spread
import measure

STACKS = ("async", "sync", "batch")
OPTANE_IOPS = 1.5e6  # of the preset optane, at 4 KiB


# ---- against fio -----------------------------------------------------------------------------------------


def against_fio(label, ours, path, block, depth, size):
    """ours() gives (requests a second, ns of processor time of each). The rate of a drive that others use drifts by a
    tenth within a second. So an alternation is `slices` short slices, and each of ours lies between two of fio's."""
    rates, costs, mine = [], [], []
    for _ in range(size.pairs):
        us, them = [], [fio(path, block, depth, size.slice_s)]
        for _ in range(size.slices):
            us.append(ours())
            them.append(fio(path, block, depth, size.slice_s))
        rate, cost = ([2 * o[i] / (a[i] + b[i]) for o, a, b in zip(us, them, them[1:])] for i in (0, 1))
        mine.append(statistics.mean(o[0] for o in us))
        rates.append(statistics.mean(rate))
        costs.append(statistics.mean(cost))
    show(f"{label}: requests", spread(mine), "/s")
    show(f"{label}: rate / fio's", spread(rates), "", ">= 0.95")
    show(f"{label}: processor time / fio's", spread(costs), "", "<= 1.00")
    return {"iops": spread(mine), "rate": spread(rates), "cpu": spread(costs)}


def io(size):
    """penstock bench io makes the file, and checks every byte that it reads."""
    path, result = os.path.join(measure.SCRATCH, "io"), {}
    for depth in size.depths:
        argv = [PENSTOCK, "bench", "io", "--json", "--backend", "file", "--file", path, "--span", size.span, "--bytes", size.block,
                "--depth", depth, "--seconds"]
        output([*argv, size.slice_s])  # makes the file

        def ours():
            r = json.loads(output([*argv, size.slice_s]))
            return r["iops"], r["cpu_ns"]

        result[str(depth)] = against_fio(f"{size.block} B, depth {depth}", ours, path, size.block, depth, size)
    return result


def engine(size):
    """engine.c compares what lies in its slots with the file."""
    path, result = os.path.join(measure.SCRATCH, "io"), {}
    output([PENSTOCK, "bench", "io", "--backend", "file", "--file", path, "--span", size.span, "--seconds", size.slice_s])
    for block in size.blocks:
        for depth in size.depths:

            def ours():
                iops, user, system = map(float, output([os.path.join(BUILD, "bench", "engine"), path, block, depth, size.slice_s]).split())
                if iops <= 0:
                    raise Unsound("the read engine read no bytes")
                return iops, (user + system) / 100 / iops * 1e9

            label = f"{block} B, depth {depth}"
            result[label] = against_fio(label, ours, path, block, depth, size)
    return result


# ---- NVMe stacks -----------------------------------------------------------------------------------------


def stack_run(size, stack, ssds, dim, lanes):
    depth = lanes if stack == "sync" else min(4096, 64 * ssds)
    r = json.loads(output([PENSTOCK, "bench", "io", "--json", "--stack", stack, "--ssds", ssds, "--bytes", dim * 4, "--depth",
                           depth, "--lanes", lanes if stack == "sync" else 1, "--preset", "optane", "--dilate", size.dilate,
                           "--seconds", size.seconds, "--span", "16MiB"]))
    if r["requests"] <= 0:
        raise Unsound(f"NVMe stack {stack}: the run timed no request")
    return r


def device_iops(ssds, dim):
    """What the drives can do, by count or by bytes (their bandwidth is their peak x 4 KiB)."""
    return ssds * OPTANE_IOPS * min(1, 4096 / (dim * 4))


def stack_rates(size):
    rows = []
    print(f"  million requests/s, {size.lanes} lanes each (async and batch submit with one of them)")
    print(f"  {'SSDs':>5} {'dim':>5} {'device':>8}" + "".join(f" {s:>8}" for s in STACKS))
    for ssds in size.ssds:
        for dim in size.dims:
            seen = [stack_run(size, s, ssds, dim, size.lanes)["iops"] * size.dilate for s in STACKS]
            rows.append({"ssds": ssds, "dim": dim, "device": device_iops(ssds, dim)} | dict(zip(STACKS, seen)))
            print(f"  {ssds:>5} {dim:>5} {device_iops(ssds, dim) / 1e6:>8.2f}" + "".join(f" {x / 1e6:>8.2f}" for x in seen),
                  flush=True)
    return rows


def lanes_needed(size, stack, ssds, dim):
    """The least number of lanes that reaches 95 % of the drives, and the run that did; (None, its run): not reached."""
    want, low, high, at = 0.95 * device_iops(ssds, dim) / size.dilate, 1, size.lanes_max, None
    while low < high:
        lanes = 1 if low == 1 and stack != "sync" else (low + high) // 2
        r = stack_run(size, stack, ssds, dim, lanes)
        if r["iops"] >= want:
            high, at = lanes, r
        else:
            low = lanes + 1
            if stack != "sync":
                return None, r  # more lanes of a processor are threads; one is measured here
    return low, at


def stack_lanes(size):
    dim, rows = size.dims[0], []
    print(f"  lanes for 95 % of the device, dim {dim}; P_s is Hyperion's equation 2 at the undilated rate")
    print(f"  {'SSDs':>5} {'async':>6} {'sync':>6} {'ratio':>6} {'ns/request':>11} {'P_s dilated':>12} {'P_s':>5}")
    for ssds in size.ssds:
        a, r = lanes_needed(size, "async", ssds, dim)
        s, _ = lanes_needed(size, "sync", ssds, dim)
        per = (r or stack_run(size, "async", ssds, dim, 1))["driver_ns"] * 1e-9
        peak = device_iops(ssds, dim)
        ratio = f"{s / a:.0f}" if a and s else "-"
        rows.append({"ssds": ssds, "dim": dim, "async": a, "sync": s, "ns_per_request": per * 1e9,
                     "p_s_dilated": max(1, math.ceil(per * peak / size.dilate)), "p_s": max(1, math.ceil(per * peak))})
        print(f"  {ssds:>5} {a or '-':>6} {s or '-':>6} {ratio:>6} {per * 1e9:>11.0f} {rows[-1]['p_s_dilated']:>12} "
              f"{rows[-1]['p_s']:>5}", flush=True)
    return rows


def stacks(size):
    """A lane is what a GPU's warp is there: it submits, and, in the stack sync, waits until its request is done. Rates are
    those of the undilated drives: measured, times the dilation. penstock bench io checks every byte."""
    return {"rates": stack_rates(size), "lanes": stack_lanes(size)}
