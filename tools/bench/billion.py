"""A billion edges on one machine, in 4 GiB: to generate, import, plan, train, reorder and infer, each beside its own floor."""
import glob
import json
import os
import re
import resource
import shutil
import subprocess
import time

import measure
from cgroup import Unavailable, memory_limit
from measure import HYPERION, PENSTOCK, Skip, Unsound, cold, fio, fio_sequential, settings

LIMIT, INT, FLOAT = 4 << 30, 4, 4
FANOUT, BLOCK = (10, 5), 4096


def used():
    """Bytes that ended children read from and wrote to block devices."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_inblock * 512, usage.ru_oublock * 512


def limited(argv):
    """Runs a command with the memory limit. What it prints, its seconds, and the bytes that it read and wrote."""
    try:
        with memory_limit(LIMIT) as cgroup:
            before, t0 = used(), time.time()
            r = subprocess.run([str(a) for a in argv], capture_output=True, text=True, preexec_fn=cgroup.enter)
            seconds, after, kills = time.time() - t0, used(), cgroup.kills()
    except Unavailable as reason:
        raise Skip(f"it needs root and a memory cgroup: {reason}") from reason
    if r.returncode or kills:
        raise Unsound(f"{' '.join(map(str, argv))}: exit status {r.returncode}, {kills} processes killed for memory\n{r.stdout}{r.stderr}")
    return r.stdout, seconds, after[0] - before[0], after[1] - before[1]


def rates(size, path):
    """Bytes a second of the drive, read and written in order."""
    return {kind: fio_sequential(path, kind, size.span) for kind in ("read", "write")}


def told(name, seconds, floor, read, written, peak=0, target=None):
    line = f"  {name:<9} {seconds:8.2f} s, floor {floor:8.2f} s, quotient {seconds / floor:5.2f}"
    line += f", read {read / 1e9:6.2f} GB, written {written / 1e9:6.2f} GB" if read + written else ""
    line += f", peak of a process {peak / 2**20:.0f} MiB" if peak else ""
    print(line + (f"  target {target}" if target else ""), flush=True)
    return {"seconds": seconds, "floor_s": floor, "read_bytes": read, "written_bytes": written, "peak_bytes": peak}


def peak_of(text):
    number, unit = re.search(r"peak memory:? ([\d.]+) ([kMG]?)B", text).groups()
    return 1000 ** "kMG".index(unit) * 1000 * float(number) if unit else float(number)


def sizes(data):
    return {name: os.path.getsize(os.path.join(data, name + ".npy")) for name in ("indptr", "indices", "features")}


def same_graph(data, other):
    """Both datasets have the same arrays, by checksum."""
    sums = []
    for path in (data, other):
        with open(os.path.join(path, "dataset.json")) as f:
            sums.append({name: array["xxh3"] for name, array in json.load(f)["arrays"].items()})
    if sums[0] != sums[1]:
        raise Unsound(f"the imported dataset differs from the generated one: {sums}")


# ---- phases ----------------------------------------------------------------------------------------------


def generated(size, data):
    """Its floor: the dataset is written once, and the edges, which do not fit in memory, once written aside and read."""
    _, seconds, read, written = limited([
        PENSTOCK, "gen", "rmat", data, "--vertices", size.vertices, "--edges", size.edges, "--features", size.features, "--classes", 8,
        "--train-count", size.seeds, "--val-count", 100, "--test-count", 100, "--memory", size.memory, "--quiet"])
    rate = rates(size, os.path.join(data, "indices.npy"))
    aside = 2 * INT * size.edges
    return told("generate", seconds, (sum(sizes(data).values()) + aside) / rate["write"] + aside / rate["read"], read, written)


def imported(size, source, data):
    """Its floor: the source is read and the dataset written once, and the edges are once written aside and read."""
    cold(source)
    rate = rates(size, os.path.join(source, "edges.npy"))
    out, seconds, read, written = limited([PENSTOCK, "import", "npy", source, data, "--memory", size.memory, "--quiet"])
    aside = 2 * INT * size.edges
    taken = sum(os.path.getsize(os.path.join(source, name)) for name in os.listdir(source))
    floor = (taken + aside) / rate["read"] + (sum(sizes(data).values()) + aside) / rate["write"]
    return told("import", seconds, floor, read, written, peak_of(out), "<= 1.5")


def trained(size, data, run_dir):
    """Floors: of the plan, a pass over the edges for each hop; of the epoch, its requests at fio's rate."""
    shutil.rmtree(run_dir, ignore_errors=True)
    cold(data)
    path = os.path.join(data, "features.npy")
    rate, iops = rates(size, os.path.join(data, "indices.npy")), [fio(path, BLOCK, 128, size.fio_s, offset=4096)[0]]
    args = settings(params_batch=size.batch, params_fanout=list(FANOUT), params_topology="ssd", trainer__hidden=size.hidden, trainer__eval_every=0,
                    planner__cpu_cache=size.cache, planner__presample_memory=size.presample)
    _, _, read, written = limited([PENSTOCK, "run", HYPERION, "--dataset", data, "--run-dir", run_dir, "--epochs", 1, "--quiet", *args])
    iops.append(fio(path, BLOCK, 128, size.fio_s, offset=4096)[0])
    with open(os.path.join(run_dir, "report.json")) as f:
        report = json.load(f)
    peak = max(p["peak_rss_bytes"] for p in report["processes"].values())
    plan, epoch = report["phases"]["plan_s"], report["epochs"][0]["seconds"]
    result = {"plan": told("plan", plan, len(FANOUT) * sizes(data)["indices"] / rate["read"], 0, 0, peak, "<= 2"),
              "epoch": told("epoch", epoch, report["io"]["requests"] / (sum(iops) / 2), read, written, peak, "<= 1.1"),
              "start_s": report["phases"]["start_s"], "cache": report["cache"], "io": report["io"], "topology": report["topology"]}
    print(f"  start      {result['start_s']:9.2f} s   target < 2   {size.seeds / epoch:.0f} seeds/s; {report['io']['requests']} requests; "
          f"the caches answer {100 * report['cache']['hits'] / report['cache']['lookups']:.1f} % of the rows", flush=True)
    return result


def reordered(size, data, plan, to):
    """By hotness, so that cached rows lie side by side, and cached lists, too. Its floor: all arrays are read and written once."""
    cold(data)
    rate = rates(size, os.path.join(data, "indices.npy"))
    text, seconds, read, written = limited([PENSTOCK, "reorder", data, to, "--by", "hotness", "--plan", plan, "--memory", size.reorder_memory, "--quiet"])
    total = sum(sizes(data).values())
    return told("reorder", seconds, total / rate["read"] + total / rate["write"], read, written,
                2**20 * int(re.search(r"at most (\d+) MiB of memory", text).group(1)))


def inferred(size, data, run_dir, out):
    """Its floor: each layer reads its edges and its inputs once, and writes its outputs once."""
    cold(data)
    rate = rates(size, os.path.join(data, "indices.npy"))
    text, seconds, read, written = limited([PENSTOCK, "infer", run_dir, "--out", out, "--memory", size.memory, "--quiet", "--force"])
    arrays, hidden = sizes(data), size.vertices * size.hidden * FLOAT
    floor = (2 * (arrays["indptr"] + arrays["indices"]) + arrays["features"] + hidden) / rate["read"] + (hidden + INT * size.vertices) / rate["write"]
    return told("infer", seconds, floor, read, written, peak_of(text))


def billion(size):
    measure.need("fio", "fio")
    data, source, again = (os.path.join(measure.SCRATCH, name) for name in ("billion", "billion-npy", "billion-imported"))
    hot, run_dir, hot_run, out = (os.path.join(measure.SCRATCH, f"billion-{name}") for name in ("by-hotness", "run", "hot-run", "out.npy"))
    result = {}
    if not os.path.exists(os.path.join(data, "dataset.json")):
        result["generate"] = generated(size, data)
    if not os.path.exists(os.path.join(source, "meta.json")):
        shutil.rmtree(source, ignore_errors=True)
        limited([PENSTOCK, "export", data, source, "--quiet"])
    try:
        result["import"] = imported(size, source, again)
        same_graph(data, again)
        result |= trained(size, again, run_dir)
        result["reorder"] = reordered(size, again, os.path.join(run_dir, "plan", "plan.json"), hot)
        print("  of the reordered dataset:")
        result["after_reorder"] = trained(size, hot, hot_run)
        shutil.rmtree(hot)
        result["infer"] = inferred(size, again, run_dir, out)
    finally:
        for folder in (again, run_dir, hot, hot_run):
            shutil.rmtree(folder, ignore_errors=True)
        for name in glob.glob(out[:-len("npy")] + "*"):
            os.remove(name)
    return result
