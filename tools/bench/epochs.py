"""Benches of whole epochs: in memory, out of core, overlap and scaling; and of the runtime that carries batches."""
import json
import os
import re
import shutil
import statistics
import time

from measure import BUILD, HYPERION, PENSTOCK, REPLICAS, Skip, Unsound, cold, converted, epoch_seconds, fio, generate, need, output, run, settings, show, \
    spread, stage_seconds
from cgroup import Unavailable, memory_limit
import measure
import operators


def same_weights(what, *reports):
    if len({(r["digest"], r["weights_digest"]) for r in reports}) != 1:
        raise Unsound(f"{what}: the runs ended with different weights; expected the same")


# ---- in memory -------------------------------------------------------------------------------------------


def gemm_rates(size, shapes, threads):
    words = [w for s in shapes for w in (threads, *map(int, s))]
    return [float(line.split()[-1]) for line in output([os.path.join(BUILD, "bench", "gemm"), size.gemm_s, *words]).splitlines()]


def floor_seconds(size, report, features, hidden, classes, batches):
    """FLOPs of an epoch by product shape over the best rate of one and of two threads."""
    epochs = len(report["epochs"])
    rows = [report["trainer"][f"rows_{i}"] / epochs for i in (0, 1)]
    m = [max(1, round(r / batches)) for r in rows]
    shapes = [(0, 0, m[0], hidden, features), (1, 0, features, hidden, m[0]),
              (0, 0, m[1], classes, hidden), (1, 0, hidden, classes, m[1]), (0, 1, m[1], hidden, classes)]
    flops = [2 * 2.0 * s[2] * s[3] * s[4] * batches for s in shapes]  # two weight matrices each
    one, two = gemm_rates(size, shapes, 1), gemm_rates(size, shapes, 2)
    seconds = sum(f / (max(a, b) * 1e9) for f, a, b in zip(flops, one, two))
    profile = operators.floors(size, report, shapes, one, features, hidden, classes, batches)
    return seconds, sum(flops), {"one": one, "two": two}, profile


def memory(size):
    data = generate("rmat", "--vertices", size.vertices, "--edges", size.edges, "--symmetrize", "--features", 128, "--classes",
                    40, "--train-count", size.train)
    args = settings(params_batch=size.batch, params_fanout=[10, 5], trainer__hidden=size.hidden, trainer__layers=2,
                    trainer__dropout=0.5, trainer__eval_every=0, trainer__checkpoint_every=0, planner__cpu_cache="1GiB")
    ratios, costs, processes, threads, profiles, last = [], [], [], [], [], None
    for _ in range(size.pairs):
        a, b = run(data, *args, epochs=size.epochs), run(data, *args, "--group", "all", epochs=size.epochs)
        same_weights("processes and threads", a, b)
        if not all(0 < e["loss"] < 10 for e in a["epochs"]):
            raise Unsound("the loss of an epoch is not between 0 and 10, so the run did not train")
        floor, flops, rates, least = floor_seconds(size, a, 128, size.hidden, 40, -(-size.train // size.batch))
        processes.append(epoch_seconds(a))
        threads.append(epoch_seconds(b))
        ratios.append(processes[-1] / floor)
        costs.append(processes[-1] / threads[-1])
        profiles.append(operators.seconds(a))
        last = a, floor, flops, rates, least
    report, floor, flops, rates, least = last
    show("epoch, processes", spread(processes), "s")
    show("epoch, threads of one process", spread(threads), "s")
    show("epoch / (FLOPs / best rate)", spread(ratios), "", "<= 1.30")
    show("processes / threads", spread(costs), "", "<= 1.03")
    print(f"  floor: {flops / 1e9:.1f} GFLOP in {floor:.3f} s; GFLOP/s one thread {rates['one']}, two {rates['two']}")
    profile = operators.table(profiles, least)
    return {"ratio": spread(ratios), "processes_over_threads": spread(costs), "epoch_s": spread(processes), "operators": profile,
            "flops": flops, "rates_gflops": rates}


# ---- bfloat16 --------------------------------------------------------------------------------------------


def bf16(size):
    """The epoch of `memory`, with products in bfloat16 and in float32. Features in bfloat16 are multiplied as they lie."""
    with open("/proc/cpuinfo") as f:
        if "avx512_bf16" not in f.read():
            raise Skip("this CPU has no AVX512_BF16")
    wide = generate("rmat", "--vertices", size.vertices, "--edges", size.edges, "--symmetrize", "--features", 128, "--classes",
                    40, "--train-count", size.train)
    ways = {"float32": (wide, "float32"), "bf16": (converted(wide, "bfloat16"), "bf16"), "bf16, features in float32": (wide, "bf16")}
    args = settings(params_batch=size.batch, params_fanout=[10, 5], trainer__hidden=size.hidden, trainer__layers=2,
                    trainer__dropout=0.5, trainer__eval_every=0, trainer__checkpoint_every=0, planner__cpu_cache="1GiB")
    epochs, products, ratios = ({way: [] for way in ways} for _ in range(3))
    for _ in range(size.pairs):
        reports = {way: run(data, *args, *settings(trainer__precision=p), epochs=size.epochs) for way, (data, p) in ways.items()}
        losses = [[e["loss"] for e in r["epochs"]] for r in reports.values()]
        if not all(max(same) - min(same) <= 0.02 * min(same) for same in zip(*losses)):
            raise Unsound(f"the losses of epochs differ by more than 2 %: {losses}")
        for way, report in reports.items():
            epochs[way].append(epoch_seconds(report))
            spent = report["trainer"]
            products[way].append((spent["products_s"] + spent["products_grad_s"] + spent["weights_grad_s"]) / size.epochs)
            ratios[way].append(epochs[way][-1] / epochs["float32"][-1])
    for way in ways:
        show(f"epoch, {way}", spread(epochs[way]), "s")
        show(f"products of an epoch, {way}", spread(products[way]), "s")
    show("epoch, bf16 / float32", spread(ratios["bf16"]), "", "<= 0.6")
    show("the same, features in float32", spread(ratios["bf16, features in float32"]), "")
    return {"ratio": spread(ratios["bf16"]), "ratio_features_in_float32": spread(ratios["bf16, features in float32"]),
            "epoch_s": {way: spread(e) for way, e in epochs.items()}, "products_s": {way: spread(e) for way, e in products.items()}}


# ---- replicas --------------------------------------------------------------------------------------------


def replicas(size):
    """Every replica has one core, so two of them have twice the cores of one. All rows are in memory."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise Skip("two replicas need two cores, but this process may use only one")
    data = generate("rmat", "--vertices", size.vertices, "--edges", size.edges, "--symmetrize", "--features", 128, "--classes",
                    40, "--train-count", size.train)
    args = settings(params_batch=size.batch, params_fanout=[10, 5], params_threads=1, trainer__hidden=size.hidden,
                    trainer__eval_every=0, trainer__checkpoint_every=0, planner__cpu_cache="1GiB")
    ratios, waits, rates = [], [], {1: [], 2: []}
    for _ in range(size.pairs):
        reports = {}
        for n in (1, 2):
            places = [{"device": f"cpu:{i}", "cores": str(core)} for i, core in enumerate(cores[:n])]
            reports[n] = run(data, *args, "--set", f"replicas.places={json.dumps(places)}", epochs=size.epochs, pipeline=REPLICAS)
            rates[n].append(size.train / epoch_seconds(reports[n]))
        same_weights("one replica and two", *reports.values())
        ratios.append(rates[2][-1] / rates[1][-1])
        waits.append(reports[2]["trainer"]["exchange_s"] / sum(e["seconds"] for e in reports[2]["epochs"]))
    show("one replica of one core", spread(rates[1]), "seeds/s")
    show("two replicas of one core", spread(rates[2]), "seeds/s")
    show("two / one", spread(ratios), "", ">= 1.7")
    show("share of an epoch in exchanges and waiting", spread(waits))
    return {"ratio": spread(ratios), "one_seeds_per_s": spread(rates[1]), "two_seeds_per_s": spread(rates[2]),
            "exchange_share": spread(waits)}


# ---- out of core -----------------------------------------------------------------------------------------


def big(size, features, seeds):
    return generate(f"big-{features}-{seeds}", "--vertices", size.vertices, "--edges", size.edges, "--features", features,
                    "--classes", 40, "--train-count", seeds)


def in_cgroup(size, data, epochs, **more):
    """The report of an epoch whose processes have 1 GiB together, and the most that they used."""
    values = dict(params_batch=size.batch, params_fanout=[10, 5], trainer__hidden=64, trainer__eval_every=0,
                  trainer__checkpoint_every=0, planner__cpu_cache=size.cache, disk__gap_bytes=0)
    try:
        with memory_limit(1 << 30) as cgroup:
            cold(data)
            report = run(data, *settings(**{**values, **more}), "--set", "links[1].slots=6", epochs=epochs, enter=cgroup.enter)
            peak = (cgroup.peak_bytes() or 0) / 2**20
    except Unavailable as reason:
        raise Skip(str(reason)) from reason
    if report["io"]["rows"] <= 0 or report["io"]["copied_bytes"] > 0 and report["io"]["backend"] == "file":
        raise Unsound(f"the run read no rows, or copied rows that it should have read in place: {report['io']}")
    return report, peak


CACHED_PERCENT = 6.25  # 256 MiB of a million rows of 4 KiB; with 256 MiB of rows of 512 B, no batch would miss


def outofcore(size):
    need("fio", "fio")
    result = {}
    for features, block, epochs in ((1024, 4096, size.epochs), (128, 512, 3 * size.epochs - 1)):
        data, ratios, amplification, peaks = big(size, features, size.train), [], [], []
        path = os.path.join(data, "features.npy")
        for _ in range(size.pairs):
            depth = 128
            iops = fio(path, block, depth, size.fio_s, offset=4096)[0]
            r, peak = in_cgroup(size, data, epochs, disk__depth=depth, planner__cpu_cache_percent=CACHED_PERCENT)
            iops = (iops + fio(path, block, depth, size.fio_s, offset=4096)[0]) / 2
            floor = r["io"]["rows"] / len(r["epochs"]) / iops
            ratios.append(statistics.mean(e["seconds"] for e in r["epochs"][1:]) / floor)
            amplification.append(r["io"]["read_amplification"])
            peaks.append(peak)
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


def mmap(size):
    """Few seeds: with mmap each missing row is a page fault that the stage waits for."""
    data, ratios, faults, rows = big(size, 1024, size.train), [], [], 0
    for _ in range(size.pairs):
        ours, _ = in_cgroup(size, data, 1)
        theirs, _ = in_cgroup(size, data, 1, disk__backend="mmap")
        same_weights("the backends", ours, theirs)
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
    """A pipeline of hyperion's first stages that ends in a discard."""
    with open(HYPERION) as f:
        pl = json.load(f)
    pl["stages"]["discard"] = {"run": "discard"}
    pl["stages"] = {k: v for k, v in pl["stages"].items() if any(k in (l["from"].split(".")[0], l["to"].split(".")[0]) for l in links)}
    pl["links"] = links
    path = os.path.join(measure.SCRATCH, name + ".json")
    with open(path, "w") as f:
        json.dump(pl, f)
    return path


def judge_verdicts(size, data, common, trainer):
    thin = generate("thin", "--vertices", size.vertices, "--edges", size.edges, "--features", 4, "--classes", 2, "--train-count",
                    size.train)
    verdicts = {"disk": (data, dict(trainer__hidden=16, planner__cpu_cache=0)),
                "trainer": (data, dict(trainer__hidden=1024, planner__cpu_cache="1GiB")),
                "sampler": (thin, dict(trainer__aggregate="none", trainer__layers=3, params_fanout=[15, 10, 5], planner__cpu_cache="1GiB"))}
    result = {}
    for stage, (of, more) in verdicts.items():
        said = result["verdict_" + stage] = run(of, *settings(**{**common, **trainer, **more}))["bound_by"]
        print(f"  made to be bound by the {stage}: the report says {said}")
        if not said.startswith(stage):
            raise Unsound(f"the report names the wrong bottleneck: {said}")
    return result


def overlap(size):
    data = big(size, 128, size.train)
    plan = {"from": "planner.plan", "to": "sampler.plan"}
    first = {"from": "sampler.batch", "to": "discard.in", "slots": 6}
    sampling = part_alone("sampling", [plan, first])
    reading = part_alone("reading", [plan, {"from": "sampler.batch", "to": "disk.requests", "slots": 6},
                                     {"from": "disk.done", "to": "discard.in"}])
    sampled = dict(params_batch=size.batch, params_fanout=[10, 5])
    common = dict(**sampled, disk__gap_bytes=0)
    trainer = dict(trainer__eval_every=0, trainer__checkpoint_every=0, trainer__threads=1)
    result = {}

    def alone(pipeline, stage, params):
        return stage_seconds(run(data, *settings(**params, planner__cpu_cache=size.cache), pipeline=pipeline), stage, 1)

    def all_cached(hidden):
        return epoch_seconds(run(data, *settings(**common, **trainer, trainer__hidden=hidden, planner__cpu_cache="1GiB"), epochs=2))

    for hidden in size.hidden:  # as much computing as there is reading
        disk_s, train_s = alone(reading, "disk", common), all_cached(hidden)
        if train_s >= 0.9 * disk_s:
            break
    print(f"  balanced at hidden {hidden}: disk {disk_s:.2f} s, training {train_s:.2f} s")
    gains, costs = [], []
    args = settings(**common, **trainer, trainer__hidden=hidden, planner__cpu_cache=size.cache)
    result["parts_s"] = []
    for _ in range(size.pairs):
        parts = (alone(reading, "disk", common), alone(sampling, "sampler", sampled), all_cached(hidden))
        wide = run(data, *args, "--set", "links[1].slots=6", epochs=2)
        serial = run(data, *args, "--set", "links[1].slots=1", epochs=2)
        same_weights("pipelined and serial", wide, serial)
        gains.append(epoch_seconds(serial) / epoch_seconds(wide))
        costs.append(epoch_seconds(wide) / max(parts))
        result["parts_s"].append(parts)
        print("  alone: disk {:.2f} s, sampling {:.2f} s, training {:.2f} s; ".format(*parts)
              + f"pipelined {epoch_seconds(wide):.2f} s, serial {epoch_seconds(serial):.2f} s", flush=True)
    show("serial / pipelined", spread(gains), "", ">= 1.6")
    show("epoch / slowest part alone", spread(costs), "", "<= 1.08")
    result.update(serial_over_pipelined=spread(gains), over_slowest=spread(costs), hidden=hidden)
    return result | judge_verdicts(size, data, common, trainer) if size.verdicts else result


# ---- scaling ---------------------------------------------------------------------------------------------


def resident_mib(report):
    """The most that any process of the run had in memory, shared memory included."""
    return max(p["peak_rss_bytes"] for p in report["processes"].values()) / 2**20


def import_npy(edges):
    """Seconds to import so many edges from a NumPy array of int32."""
    import numpy as np
    source, path = os.path.join(measure.SCRATCH, "source"), os.path.join(measure.SCRATCH, "imported")
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
    output([PENSTOCK, "import", "npy", source, path, "--memory", "1GiB", "--quiet"])
    took = time.time() - t0
    with open(os.path.join(path, "dataset.json")) as f:
        if json.load(f)["edges"] != edges:
            raise Unsound(f"the imported dataset does not have the {edges} edges of its source")
    shutil.rmtree(path)
    return took


def scaling(size):
    """Rows are wide, so that what the fewest seeds touch is more than the last level of cache holds, as what the most do."""
    result, each = {}, {}
    for _ in range(size.pairs):
        for seeds in size.seeds:
            data = generate(f"wide-{seeds}", "--vertices", size.vertices, "--edges", 10 * size.vertices, "--features", 128,
                            "--classes", 16, "--train-count", seeds, "--val-count", 100, "--test-count", 100)
            args = settings(params_batch=size.batch, params_fanout=[10, 5], trainer__hidden=32, trainer__eval_every=0,
                            trainer__checkpoint_every=0, planner__cpu_cache="2GiB")
            r = run(data, *args, epochs=max(3, min(101, size.seeds[-1] // seeds)))
            each.setdefault(seeds, []).append((1e6 * epoch_seconds(r) / seeds, resident_mib(r)))
    us = {seeds: [t for t, _ in runs] for seeds, runs in each.items()}
    ratios = {seeds: spread([t / base for t, base in zip(us[seeds], us[size.seeds[0]])]) for seeds in size.seeds}  # within a round
    for seeds, runs in each.items():
        show(f"{seeds} seeds: epoch / seeds", spread(us[seeds]), "us")
        show(f"{seeds} seeds: the same / that of {size.seeds[0]}", ratios[seeds])
        show(f"{seeds} seeds: most memory of one process", spread([m for _, m in runs]), "MiB")
    medians = [r["median"] for r in ratios.values()]
    linear = max(medians) / min(medians) - 1
    print(f"  time per seed differs by {100 * linear:.1f} %  target <= 5")
    result.update(us_per_seed={n: spread(v) for n, v in us.items()}, ratios=ratios, differs=linear,
                  peak_rss_mib={n: max(m for _, m in v) for n, v in each.items()})
    result["import_s"] = import_npy(size.edges)
    print(f"  {size.edges} edges: imported from npy in {result['import_s']:.1f} s with --memory 1GiB")
    data = generate("many-edges", "--vertices", size.edges // 20, "--edges", size.edges, "--features", 8, "--classes", 8,
                    "--train-count", size.edges // 2000)
    runs = [run(data, *settings(trainer__eval_every=0, trainer__checkpoint_every=0))["phases"] for _ in range(size.starts)]
    for part, target in (("plan_s", None), ("start_s", "< 2")):
        result[part] = spread([t[part] for t in runs])
        show(f"{size.edges} edges: {part[:-2]}", result[part], "s", target)
    return result


# ---- runtime ---------------------------------------------------------------------------------------------


def runtime(size):
    names = ["source", "p0", "p1", "p2", "p3", "sink"]
    stages = {n: {"run": "passthrough"} for n in names}
    stages["source"] = {"run": os.path.join(BUILD, "tests", "stages", "source.so"), "params": {"batches": size.batches, "bytes": 64}}
    stages["sink"] = {"run": os.path.join(BUILD, "tests", "stages", "sink.so")}
    links = [{"from": f"{a}.out", "to": f"{b}.in"} for a, b in zip(names, names[1:])]
    links[0]["slots"] = 64
    path = os.path.join(measure.SCRATCH, "through.json")
    with open(path, "w") as f:
        json.dump({"penstock": 1, "name": "through", "stages": stages, "links": links}, f)
    data = generate("tiny", "--vertices", 1000, "--edges", 4000, "--features", 8, "--classes", 4)
    rates = {"processes": [], "threads": []}
    for _ in range(size.pairs):
        for kind, extra in (("processes", []), ("threads", ["--group", "all"])):
            r = run(data, *extra, pipeline=path)
            if r["sink"]["batches"] != size.batches:
                raise Unsound(f"the last stage got {r['sink']['batches']} batches; expected {size.batches}")
            rates[kind].append(size.batches / stage_seconds(r, "sink", 1))
    show("six stages, processes", spread(rates["processes"]), "batches/s", ">= 10000")
    show("six stages, threads", spread(rates["threads"]), "batches/s", ">= 50000")
    said = output([os.path.join(BUILD, "bench", "handover"), size.rounds]).strip()
    print("  " + said)
    return {kind: spread(v) for kind, v in rates.items()} | {"handover_us_median": float(re.search(r"median ([\d.]+) us", said)[1])}
