#!/usr/bin/python3
"""bench.py [NAME...] [--pairs N] [--scratch DIR] [--save]: measures what issue and README promise.

memory      the in-memory epoch against the FLOPs it needs at the best rate of oneDNN; processes against threads
outofcore   the out-of-core epoch in a 1 GiB cgroup against fio on the same file, for 4 KiB and 512 B rows
overlap     pipelined against serial, and against the slowest part alone
mmap        backend file against mmap in that cgroup
scaling     epoch time and memory against the number of seeds; start-up with 10^8 edges
runtime     batches per second and hand-over latency through six stages that do nothing
io-BYTES    penstock bench io on the backend file against fio, at depth 1 to 256; BYTES: 512, 4096, 16384, 65536

Every bench checks its results before it prints a rate, alternates what it compares, and prints medians with
their spread (quartiles). Results go to build/bench-results, with --save to tools/bench/results."""
import argparse
import datetime
import functools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "pipeline"))
from cgroup import Unavailable, memory_limit  # noqa: E402

BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
PENSTOCK = os.path.join(BUILD, "bin", "penstock")
HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
OPTIONS = None


class Unsound(Exception):
    """What ran did not do what it should have: there is nothing to measure."""


# ---- running ---------------------------------------------------------------------------------------------


def settings(**values):
    """params_batch=512 -> --set params.batch=512; a stage's parameter as STAGE__NAME."""
    out = []
    for key, value in values.items():
        path = key.replace("params_", "params.") if key.startswith("params_") else "stages.{}.params.{}".format(*key.split("__"))
        out += ["--set", f"{path}={json.dumps(value) if not isinstance(value, str) else value}"]
    return out


def run(data, *args, epochs=1, pipeline=HYPERION, enter=None):
    run_dir = os.path.join(OPTIONS.scratch, "run")
    shutil.rmtree(run_dir, ignore_errors=True)
    argv = [PENSTOCK, "run", pipeline, "--dataset", data, "--run-dir", run_dir, "--epochs", str(epochs), "--quiet", *args]
    r = subprocess.run(argv, capture_output=True, text=True, preexec_fn=enter)
    if r.returncode != 0:
        raise Unsound(f"{' '.join(argv)}\n{r.stdout}{r.stderr}")
    with open(os.path.join(run_dir, "report.json")) as f:
        return json.load(f)


def generate(name, *args, quiet=False):
    """A dataset that is made once for each scratch directory."""
    path = os.path.join(OPTIONS.scratch, name)
    if not os.path.exists(os.path.join(path, "dataset.json")):
        t0 = time.time()
        subprocess.run([PENSTOCK, "gen", "rmat", path, "--quiet", *map(str, args)], check=True,
                       stdout=subprocess.DEVNULL if quiet else None)
        if not quiet:
            print(f"  made {name} in {time.time() - t0:.1f} s", flush=True)
    return path


def epoch_seconds(report):
    """Of every epoch but the first, which warms up."""
    rows = [e["seconds"] for e in report["epochs"]]
    return statistics.median(rows[1:] if len(rows) > 1 else rows)


def spread(values):
    q = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return {"median": statistics.median(values), "low": q[0], "high": q[2], "runs": len(values)}


def show(label, s, unit="", target=None):
    line = f"  {label:<46} {s['median']:10.3f} {unit:<10} ({s['low']:.3f} to {s['high']:.3f}, {s['runs']} runs)"
    print(line + (f"  target {target}" if target else ""), flush=True)


def cold(path):
    """Leaves the page cache, so that reads come from the drive."""
    for name in os.listdir(path):
        fd = os.open(os.path.join(path, name), os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


# ---- in memory -------------------------------------------------------------------------------------------


def gemm_rates(shapes, threads):
    words = [str(w) for s in shapes for w in (threads, *map(int, s))]
    r = subprocess.run([os.path.join(BUILD, "bench", "gemm"), "0.3", *words], capture_output=True, text=True)
    if r.returncode != 0:
        raise Unsound(r.stderr)
    return [float(line.split()[-1]) for line in r.stdout.splitlines()]


def floor_seconds(report, features, hidden, classes, batches):
    """FLOPs of an epoch by product shape over the best rate of one and of two threads."""
    epochs = len(report["epochs"])
    rows = [report["trainer"][f"rows_{i}"] / epochs for i in (0, 1)]
    m = [max(1, round(r / batches)) for r in rows]
    shapes = [(0, 0, m[0], hidden, features), (1, 0, features, hidden, m[0]),
              (0, 0, m[1], classes, hidden), (1, 0, hidden, classes, m[1]), (0, 1, m[1], hidden, classes)]
    flops = [2 * 2.0 * s[2] * s[3] * s[4] * batches for s in shapes]  # two weight matrices each
    one, two = gemm_rates(shapes, 1), gemm_rates(shapes, 2)
    seconds = sum(f / (max(a, b) * 1e9) for f, a, b in zip(flops, one, two))
    return seconds, sum(flops), {"one": one, "two": two}


def bench_memory():
    data = generate("rmat", "--vertices", 169343, "--edges", 1166243, "--symmetrize", "--features", 128, "--classes", 40,
                    "--train-count", 90941)
    args = settings(params_batch=1024, params_fanout=[10, 5], trainer__hidden=256, trainer__layers=2, trainer__dropout=0.5,
                    trainer__eval_every=0, trainer__checkpoint_every=0, planner__cpu_cache="1GiB")
    ratios, costs, processes, threads, last = [], [], [], [], None
    for pair in range(OPTIONS.pairs):
        a, b = run(data, *args, epochs=11), run(data, *args, "--group", "all", epochs=11)
        if a["weights_digest"] != b["weights_digest"] or a["digest"] != b["digest"]:
            raise Unsound("processes and threads gave different weights")
        if not all(0 < e["loss"] < 10 for e in a["epochs"]):
            raise Unsound("the loss makes no sense")
        floor, flops, rates = floor_seconds(a, 128, 256, 40, -(-90941 // 1024))
        processes.append(epoch_seconds(a))
        threads.append(epoch_seconds(b))
        ratios.append(processes[-1] / floor)
        costs.append(processes[-1] / threads[-1])
        last = a, floor, flops, rates
    report, floor, flops, rates = last
    show("epoch, processes", spread(processes), "s")
    show("epoch, threads of one process", spread(threads), "s")
    show("epoch / (FLOPs / best rate)", spread(ratios), "", "<= 1.7")
    show("processes / threads", spread(costs), "", "<= 1.05")
    print(f"  floor: {flops / 1e9:.1f} GFLOP in {floor:.3f} s; GFLOP/s one thread {rates['one']}, two {rates['two']}")
    n = len(report["epochs"])
    parts = {k[:-2]: v / n for k, v in report["trainer"].items() if k.endswith("_s")}
    parts["sampler, busy"] = report["stages"]["sampler"]["busy_s"] / n
    parts["trainer, waiting for input"] = report["stages"]["trainer"]["wait_input_s"] / n
    print("  seconds of an epoch: " + ", ".join(f"{k} {v:.3f}" for k, v in parts.items()))
    return {"ratio": spread(ratios), "processes_over_threads": spread(costs), "epoch_s": spread(processes), "parts_s": parts,
            "flops": flops, "rates_gflops": rates}


# ---- out of core -----------------------------------------------------------------------------------------


def fio(path, block, depth, seconds, offset=0):
    """Requests a second, and nanoseconds of processor time of each."""
    size = os.path.getsize(path) - offset
    r = subprocess.run(["fio", "--name=x", f"--filename={path}", "--readonly", "--rw=randread", f"--bs={block}",
                        "--direct=1", "--ioengine=io_uring", f"--iodepth={depth}", f"--offset={offset}",
                        f"--size={size // block * block}", "--norandommap", "--randrepeat=0", "--time_based",
                        f"--runtime={round(1000 * seconds)}ms", "--output-format=json"], capture_output=True, text=True)
    if r.returncode != 0:
        raise Unsound(r.stderr)
    job = json.loads(r.stdout)["jobs"][0]
    cpu_ns = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] * 1e6
    return job["read"]["iops"], cpu_ns / job["read"]["total_ios"]


def fio_iops(path, block, depth):
    return fio(path, block, depth, 5, offset=4096)[0]


OUT_OF_CORE = dict(params_batch=512, params_fanout=[10, 5], trainer__hidden=64, trainer__eval_every=0,
                   trainer__checkpoint_every=0, planner__cpu_cache="256MiB", disk__gap_bytes=0)


def big(features, seeds=100000):
    return generate(f"big-{features}-{seeds}", "--vertices", 1000000, "--edges", 10000000, "--features", features, "--classes",
                    40, "--train-count", seeds)


def out_of_core(data, cgroup, epochs=2, **more):
    cold(data)
    report = run(data, *settings(**{**OUT_OF_CORE, **more}), "--set", "links[1].slots=6", epochs=epochs, enter=cgroup.enter)
    if report["io"]["rows"] <= 0 or report["io"]["copied_bytes"] > 0 and report["io"]["backend"] == "file":
        raise Unsound(f"nothing was read, or it was copied: {report['io']}")
    if cgroup.kills():
        raise Unsound("the kernel killed a process for memory")
    return report


def bench_outofcore():
    result = {}
    for features, block, epochs in ((1024, 4096, 4), (128, 512, 11)):
        data, ratios, amplification, peaks = big(features), [], [], []
        for pair in range(OPTIONS.pairs):
            depth = 128
            iops = fio_iops(os.path.join(data, "features.npy"), block, depth)
            with memory_limit(1 << 30) as cgroup:
                r = out_of_core(data, cgroup, epochs, disk__depth=depth)
                peaks.append((cgroup.peak_bytes() or 0) / 2**20)
            iops = (iops + fio_iops(os.path.join(data, "features.npy"), block, depth)) / 2
            floor = r["io"]["rows"] / len(r["epochs"]) / iops
            ratios.append(statistics.mean(e["seconds"] for e in r["epochs"][1:]) / floor)
            amplification.append(r["io"]["read_amplification"])
        show(f"{block} B rows: epoch / (missing rows / fio's rate)", spread(ratios), "", "<= 1.10")
        show(f"{block} B rows: read amplification", spread(amplification), "", "<= 1.05")
        show(f"{block} B rows: peak of the cgroup", spread(peaks), "MiB", "< 1024")
        result[str(block)] = {"ratio": spread(ratios), "amplification": spread(amplification), "peak_mib": spread(peaks)}
    return result


def readahead_kib(path):
    device = os.stat(path).st_dev
    try:
        with open(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/bdi/read_ahead_kb") as f:
            return int(f.read())
    except OSError:
        return None


def bench_mmap():
    """A fortieth of the seeds: with mmap each missing row is a page fault that the stage sits out."""
    data, ratios, faults, rows = big(1024, 2500), [], [], 0
    for pair in range(max(3, OPTIONS.pairs // 2)):
        with memory_limit(1 << 30) as cgroup:
            ours = out_of_core(data, cgroup, epochs=1)
        with memory_limit(1 << 30) as cgroup:
            theirs = out_of_core(data, cgroup, epochs=1, disk__backend="mmap")
        if ours["digest"] != theirs["digest"] or ours["weights_digest"] != theirs["weights_digest"]:
            raise Unsound("the backends gave different weights")
        ratios.append(theirs["epochs"][0]["seconds"] / ours["epochs"][0]["seconds"])
        faults.append(theirs["io"]["major_faults"])
        rows = theirs["io"]["rows"]
    show("mmap / file, epoch seconds", spread(ratios))
    show(f"major page faults with mmap, {rows} rows missing", spread(faults))
    ahead = readahead_kib(data)
    print(f"  the kernel reads {ahead} KiB around a fault; a missing row is 4 KiB")
    return {"ratio": spread(ratios), "major_faults": spread(faults), "rows": rows, "readahead_kib": ahead}


# ---- overlap ---------------------------------------------------------------------------------------------


def part_alone(name, links):
    """A pipeline of hyperion's stages that ends early, in a discard."""
    with open(HYPERION) as f:
        pl = json.load(f)
    pl["stages"]["discard"] = {"run": "discard"}
    pl["stages"] = {k: v for k, v in pl["stages"].items() if any(k in (l["from"].split(".")[0], l["to"].split(".")[0]) for l in links)}
    pl["links"] = links
    path = os.path.join(OPTIONS.scratch, name + ".json")
    with open(path, "w") as f:
        json.dump(pl, f)
    return path


def stage_seconds(report, name, epochs):
    s = report["stages"][name]
    return (s["busy_s"] + s["wait_disk_s"] + s["wait_input_s"] + s["wait_credit_s"]) / epochs


def bench_overlap():
    data = big(128)
    plan = {"from": "planner.plan", "to": "sampler.plan"}
    first = {"from": "sampler.batch", "to": "discard.in", "slots": 6}
    sampling = part_alone("sampling", [plan, first])
    reading = part_alone("reading", [plan, {"from": "sampler.batch", "to": "disk.requests", "slots": 6},
                                     {"from": "disk.done", "to": "discard.in"}])
    sampled = dict(params_batch=512, params_fanout=[10, 5])
    common = dict(**sampled, disk__gap_bytes=0)
    trainer = dict(trainer__eval_every=0, trainer__checkpoint_every=0, trainer__threads=1)
    result = {}

    def alone(pipeline, stage, params):
        return stage_seconds(run(data, *settings(**params, planner__cpu_cache="64MiB"), pipeline=pipeline), stage, 1)

    def all_cached(hidden):
        return epoch_seconds(run(data, *settings(**common, **trainer, trainer__hidden=hidden, planner__cpu_cache="1GiB"), epochs=2))

    for hidden in (32, 64, 128, 192, 256, 384, 512, 640, 768, 1024):  # as much compute as there is IO
        disk_s, train_s = alone(reading, "disk", common), all_cached(hidden)
        if train_s >= 0.9 * disk_s:
            break
    print(f"  balanced at hidden {hidden}: disk {disk_s:.2f} s, training {train_s:.2f} s")
    gains, costs = [], []
    args = settings(**common, **trainer, trainer__hidden=hidden, planner__cpu_cache="64MiB")
    result["parts_s"] = []
    for pair in range(OPTIONS.pairs):
        parts = (alone(reading, "disk", common), alone(sampling, "sampler", sampled), all_cached(hidden))
        wide = run(data, *args, "--set", "links[1].slots=6", epochs=2)
        serial = run(data, *args, "--set", "links[1].slots=1", epochs=2)
        if wide["weights_digest"] != serial["weights_digest"]:
            raise Unsound("pipelined and serial gave different weights")
        gains.append(epoch_seconds(serial) / epoch_seconds(wide))
        costs.append(epoch_seconds(wide) / max(parts))
        result["parts_s"].append(parts)
        print("  alone: disk {:.2f} s, sampling {:.2f} s, training {:.2f} s; ".format(*parts)
              + f"pipelined {epoch_seconds(wide):.2f} s, serial {epoch_seconds(serial):.2f} s", flush=True)
    show("serial / pipelined", spread(gains), "", ">= 1.6")
    show("epoch / slowest part alone", spread(costs), "", "<= 1.08")
    result.update(serial_over_pipelined=spread(gains), over_slowest=spread(costs), hidden=hidden)
    thin = generate("thin", "--vertices", 1000000, "--edges", 10000000, "--features", 4, "--classes", 2, "--train-count", 100000)
    verdicts = {"disk": (data, dict(trainer__hidden=16, planner__cpu_cache=0)),
                "trainer": (data, dict(trainer__hidden=1024, planner__cpu_cache="1GiB")),
                "sampler": (thin, dict(trainer__hidden=8, trainer__layers=3, params_fanout=[15, 10, 5], planner__cpu_cache="1GiB"))}
    for stage, (of, more) in verdicts.items():
        said = run(of, *settings(**{**common, **trainer, **more}))["bound_by"]
        print(f"  made to be bound by the {stage}: the report says {said}")
        result["verdict_" + stage] = said
        if not said.startswith(stage):
            raise Unsound(f"the verdict is wrong: {said}")
    return result


# ---- scaling ---------------------------------------------------------------------------------------------


def resident(report):
    """The most that any process of the run had in memory, shared memory included, in MiB."""
    return max(p["peak_rss_bytes"] for p in report["processes"].values()) / 2**20


def import_npy(edges):
    """Seconds to import so many edges from a NumPy array of int32."""
    import numpy as np
    source, path = os.path.join(OPTIONS.scratch, "source"), os.path.join(OPTIONS.scratch, "imported")
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(source, exist_ok=True)
    name = os.path.join(source, "edges.npy")
    if not os.path.exists(name):
        vertices, rng = edges // 20, np.random.default_rng(1)
        array = np.lib.format.open_memmap(name, mode="w+", dtype=np.int32, shape=(2, edges))
        for row in array:
            for at in range(0, edges, 10_000_000):
                row[at:at + 10_000_000] = rng.integers(0, vertices, min(10_000_000, edges - at), dtype=np.int32)
        array.flush()
    t0 = time.time()
    subprocess.run([PENSTOCK, "import", "npy", source, path, "--memory", "1GiB", "--quiet"], check=True)
    took = time.time() - t0
    with open(os.path.join(path, "dataset.json")) as f:
        if json.load(f)["edges"] != edges:
            raise Unsound("edges were lost")
    shutil.rmtree(path)
    return took


def bench_scaling():
    """Rows are wide, so that what ten thousand seeds touch is more than the last level of cache holds, as what a million do."""
    result, each, sizes = {}, {}, (10_000, 100_000, 1_000_000)
    for pair in range(OPTIONS.pairs):
        for seeds in sizes:
            data = generate(f"wide-{seeds}", "--vertices", 2000000, "--edges", 20000000, "--features", 128, "--classes", 16,
                            "--train-count", seeds, "--val-count", 100, "--test-count", 100)
            args = settings(params_batch=1000, params_fanout=[10, 5], trainer__hidden=32, trainer__eval_every=0,
                            trainer__checkpoint_every=0, planner__cpu_cache="2GiB")
            r = run(data, *args, epochs=max(3, min(101, 1_000_000 // seeds)))
            each.setdefault(seeds, []).append((1e6 * epoch_seconds(r) / seeds, resident(r)))
    us = {seeds: [t for t, _ in runs] for seeds, runs in each.items()}
    ratios = {seeds: spread([t / base for t, base in zip(us[seeds], us[sizes[0]])]) for seeds in sizes}  # within each round
    for seeds, runs in each.items():
        show(f"{seeds} seeds: epoch / seeds", spread(us[seeds]), "us")
        show(f"{seeds} seeds: the same / that of {sizes[0]}", ratios[seeds])
        show(f"{seeds} seeds: most memory of one process", spread([m for _, m in runs]), "MiB")
    medians = [r["median"] for r in ratios.values()]
    linear = max(medians) / min(medians) - 1
    print(f"  time per seed differs by {100 * linear:.1f} %  target <= 5")
    result.update(us_per_seed={n: spread(v) for n, v in us.items()}, ratios=ratios, differs=linear,
                  peak_rss_mib={n: max(m for _, m in v) for n, v in each.items()})
    result["import_1e8_edges_s"] = import_npy(100_000_000)
    print(f"  10^8 edges: imported from npy in {result['import_1e8_edges_s']:.1f} s with --memory 1GiB")
    data = generate("edges-1e8", "--vertices", 5000000, "--edges", 100000000, "--features", 8, "--classes", 8, "--train-count",
                    50000)
    runs = [run(data, *settings(trainer__eval_every=0, trainer__checkpoint_every=0))["phases"] for _ in range(3)]
    for part, target in (("plan_s", None), ("start_s", "< 2")):
        result[part] = spread([t[part] for t in runs])
        show(f"10^8 edges: {part[:-2]}", result[part], "s", target)
    return result


# ---- runtime ---------------------------------------------------------------------------------------------


def bench_runtime():
    names = ["source", "p0", "p1", "p2", "p3", "sink"]
    batches = 300_000
    stages = {n: {"run": "passthrough"} for n in names}
    stages["source"] = {"run": os.path.join(BUILD, "tests", "stages", "source.so"), "params": {"batches": batches, "bytes": 64}}
    stages["sink"] = {"run": os.path.join(BUILD, "tests", "stages", "sink.so")}
    links = [{"from": f"{a}.out", "to": f"{b}.in"} for a, b in zip(names, names[1:])]
    links[0]["slots"] = 64
    path = os.path.join(OPTIONS.scratch, "through.json")
    with open(path, "w") as f:
        json.dump({"penstock": 1, "name": "through", "stages": stages, "links": links}, f)
    data = generate("tiny", "--vertices", 1000, "--edges", 4000, "--features", 8, "--classes", 4)
    rates = {"processes": [], "threads": []}
    for pair in range(OPTIONS.pairs):
        for kind, extra in (("processes", []), ("threads", ["--group", "all"])):
            r = run(data, *extra, pipeline=path)
            if r["sink"]["batches"] != batches:
                raise Unsound("batches were lost")
            rates[kind].append(batches / stage_seconds(r, "sink", 1))
    show("six stages, processes", spread(rates["processes"]), "batches/s", ">= 10000")
    show("six stages, threads", spread(rates["threads"]), "batches/s", ">= 50000")
    r = subprocess.run([os.path.join(BUILD, "bench", "handover")], capture_output=True, text=True)
    if r.returncode != 0:
        raise Unsound(r.stderr)
    print("  " + r.stdout.strip())
    latency = float(re.search(r"median ([\d.]+) us", r.stdout).group(1))
    return {kind: spread(v) for kind, v in rates.items()} | {"handover_us_median": latency}


# ---- one request after the other -------------------------------------------------------------------------


def checked(argv):
    r = subprocess.run([str(a) for a in argv], capture_output=True, text=True)
    if r.returncode != 0:
        raise Unsound(r.stderr)
    return r.stdout


# The rate of a drive that others use drifts by a tenth within a second: slices shorter than that, each of ours
# between two of fio's, make up one alternation.
SLICE_S, SLICES = 0.5, 6


def bench_io(block):
    path, result = os.path.join(OPTIONS.scratch, "io"), {}
    for depth in (1, 16, 64, 256):
        rates, costs, mine = [], [], []
        argv = [PENSTOCK, "bench", "io", "--json", "--backend", "file", "--file", path, "--span", 1 << 30, "--bytes", block,
                "--depth", depth, "--seconds"]
        checked([*argv, 0.1])  # which makes the file
        for _ in range(OPTIONS.pairs):
            ours, theirs = [], [fio(path, block, depth, SLICE_S)]
            for _ in range(SLICES):
                r = json.loads(checked([*argv, SLICE_S]))
                ours.append((r["iops"], r["cpu_ns"]))
                theirs.append(fio(path, block, depth, SLICE_S))
            rate, cost = ([2 * o[i] / (a[i] + b[i]) for o, a, b in zip(ours, theirs, theirs[1:])] for i in (0, 1))
            mine.append(statistics.mean(o[0] for o in ours))
            rates.append(statistics.mean(rate))
            costs.append(statistics.mean(cost))
        show(f"{block} B, depth {depth}: requests", spread(mine), "/s")
        show(f"{block} B, depth {depth}: rate / fio's", spread(rates), "", ">= 0.95")
        show(f"{block} B, depth {depth}: processor time / fio's", spread(costs), "", "<= 1.00")
        result[str(depth)] = {"iops": spread(mine), "rate": spread(rates), "cpu": spread(costs)}
    return result


# ---- the whole -------------------------------------------------------------------------------------------

BENCHES = {"memory": bench_memory, "outofcore": bench_outofcore, "overlap": bench_overlap, "mmap": bench_mmap,
           "scaling": bench_scaling, "runtime": bench_runtime}
BENCHES |= {f"io-{block}": functools.partial(bench_io, block) for block in (512, 4096, 16384, 65536)}


def about_machine():
    model = re.search(r"model name\s*: (.*)", open("/proc/cpuinfo").read())
    memory = int(re.search(r"MemTotal:\s*(\d+)", open("/proc/meminfo").read()).group(1)) / 2**20
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    dirty = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True).stdout != ""
    return {"cpu": model.group(1) if model else "?", "cores": len(os.sched_getaffinity(0)), "memory_gib": round(memory, 1),
            "date": datetime.date.today().isoformat(), "commit": commit + ("+" if dirty else ""), "load": os.getloadavg()[0]}


def main():
    global OPTIONS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *BENCHES], metavar="NAME")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--scratch", default=os.path.join(os.environ.get("TMPDIR", "/var/tmp"), "penstock-bench"))
    parser.add_argument("--save", action="store_true")
    OPTIONS = parser.parse_args()
    os.makedirs(OPTIONS.scratch, exist_ok=True)
    machine = about_machine()
    print(" ".join(f"{k}: {v};" for k, v in machine.items()), flush=True)
    results, bad = {"machine": machine}, 0
    for name in OPTIONS.names or BENCHES:
        print(f"{name}:", flush=True)
        try:
            results[name] = BENCHES[name]()
        except Unavailable as reason:
            print(f"  skipped: {reason}")
            results[name] = {"skipped": str(reason)}
        except Unsound as why:
            print(f"  no figure: {why}")
            results[name] = {"unsound": str(why)[-2000:]}
            bad += 1
    where = os.path.join(ROOT, "tools", "bench", "results") if OPTIONS.save else os.path.join(BUILD, "bench-results")
    os.makedirs(where, exist_ok=True)
    path = os.path.join(where, f"cpu-{machine['date']}-{machine['commit'].rstrip('+')}-{'-'.join(OPTIONS.names) or 'all'}.json")
    with open(path, "w") as f:
        json.dump(results, f, indent=1)
    print(f"results: {path}\nThe datasets in {OPTIONS.scratch} can be deleted.")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
