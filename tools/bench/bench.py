#!/usr/bin/python3
"""bench.py [--smallest] [--pairs N] [--scratch FOLDER] [--save] [--peers NAMES] [--retune] [NAME...]

memory      the in-memory epoch against the FLOPs it needs at the best rate of oneDNN; processes against threads
bf16        the epoch of memory with products in bfloat16, against one in float32
replicas    the rate of two replicas, each with one core, against that of one
outofcore   the out-of-core epoch in a cgroup of 1 GiB against fio on the same file, for rows of 4 KiB and 512 B
overlap     the pipelined epoch against the serial one, and against the slowest part alone
mmap        the backend file against mmap in a cgroup of 1 GiB
scaling     epoch time and memory against the number of seeds; import and start-up with 10^8 edges
reorder     the bytes and the time of an epoch before and after `penstock reorder --by access`, without a cache
billion     10^9 edges in a cgroup of 4 GiB: generate, import, plan, train and infer, each against its floor
runtime     batches per second and hand-over latency through six stages that do nothing
io-BYTES    penstock bench io on the backend file against fio, at depth 1 to 256; BYTES: 512, 4096, 16384, 65536
engine      the disk engine, given tables of requests, against fio
stacks      requests per second of the three NVMe stacks over emulated drives, and the lanes that each needs
hotness     hits of a static cache over ten epochs: the planner's choices against the best one and Belady's
embed       the training step of graph embeddings against the products that it needs, and against smaller tiles
embed-epoch an epoch of graph embeddings against the products that it needs
ranks       exact filtered ranks among all vertices, against the one product that they need
tpc         throughput per cost: predicted by penstock tpc, against runs with 1 to 12 emulated SSDs
gpu-kernels the kernels, the hand-over between processes and the disk kernels on a GPU (only if named)
gpu-epoch   an epoch on a GPU against one on the CPU (only if named)
peers-memory    the epoch of memory in PyTorch, PyG and DGL against Penstock's (only if named: it downloads packages)
peers-outofcore the epoch of outofcore, with rows of 4 KiB, against the same libraries (only if named)

A bench checks its results before it prints a rate, alternates what it compares, and prints medians with their
quartiles. It prints "skipped" and the reason if it cannot run here. Results go to build/bench-results.

--smallest  run each bench in a form that takes seconds. It checks the same results; its figures mean nothing
            and are not written. Without a GPU, gpu-* then run on the host build of the kernels
--pairs     alternations of each bench
--scratch   the folder for datasets and files (default /var/tmp/penstock-bench): on the drive to measure
--save      write the results to tools/bench/results, and tables of peers-* to tools/bench/peers/README.md
--peers     of peers-*: only these peers, for example --peers "torch dgl"
--retune    of peers-*: tune all peers again, not only those that were not tuned on this machine"""
import argparse
import dataclasses
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable

import billion
import caches
import embeddings
import epochs
import gpu
import measure
import reorder
import tpc
import transfers
from peers import catalogue, side_by_side, table

RESULTS = os.path.join(measure.ROOT, "tools", "bench", "results")


@dataclasses.dataclass(frozen=True)
class Bench:
    measure: Callable  # of a size, which has each key of full and smallest as an attribute
    full: dict
    smallest: dict  # the same keys; takes seconds on two busy cores
    programs: tuple = ()  # the .c files and folders beside this file that it runs
    only_if_named: bool = False


def io_bench(block):
    return Bench(transfers.io, dict(pairs=7, block=block, depths=(1, 16, 64, 256), span=1 << 30, slice_s=0.5, slices=6),
                 dict(pairs=1, block=block, depths=(16,), span=8 << 20, slice_s=0.05, slices=1))


BENCHES = {
    "memory": Bench(epochs.memory,
                    dict(pairs=7, vertices=169343, edges=1166243, train=90941, batch=1024, hidden=256, epochs=11, gemm_s=0.3),
                    dict(pairs=1, vertices=2000, edges=8000, train=1000, batch=256, hidden=32, epochs=2, gemm_s=0.01),
                    programs=("gemm.c", "copy.c")),
    "bf16": Bench(epochs.bf16,
                  dict(pairs=7, vertices=169343, edges=1166243, train=90941, batch=1024, hidden=256, epochs=11),
                  dict(pairs=1, vertices=2000, edges=8000, train=1000, batch=256, hidden=32, epochs=2)),
    "replicas": Bench(epochs.replicas,
                      dict(pairs=7, vertices=169343, edges=1166243, train=90941, batch=1024, hidden=256, epochs=4),
                      dict(pairs=1, vertices=2000, edges=8000, train=1000, batch=256, hidden=32, epochs=2)),
    "outofcore": Bench(epochs.outofcore,
                       dict(pairs=7, vertices=1000000, edges=10000000, train=100000, batch=512, cache="256MiB", epochs=4, fio_s=5),
                       dict(pairs=1, vertices=5000, edges=50000, train=1000, batch=256, cache="1MiB", epochs=2, fio_s=0.1)),
    "overlap": Bench(epochs.overlap,
                     dict(pairs=7, vertices=1000000, edges=10000000, train=100000, batch=512, cache="64MiB", verdicts=True,
                          hidden=(32, 64, 128, 192, 256, 384, 512, 640, 768, 1024)),
                     # the verdicts of runs as short as these depend on what else the machine does
                     dict(pairs=1, vertices=5000, edges=50000, train=1000, batch=256, cache="1MiB", verdicts=False, hidden=(32,))),
    "mmap": Bench(epochs.mmap, dict(pairs=3, vertices=1000000, edges=10000000, train=2500, batch=512, cache="256MiB"),
                  dict(pairs=1, vertices=5000, edges=50000, train=500, batch=256, cache="1MiB")),
    "scaling": Bench(epochs.scaling,
                     dict(pairs=7, vertices=2000000, seeds=(10_000, 100_000, 1_000_000), batch=1000, edges=100_000_000, starts=3),
                     dict(pairs=1, vertices=5000, seeds=(500, 2000), batch=250, edges=100_000, starts=1)),
    # random: vertices, edges, training vertices, features
    "reorder": Bench(reorder.reorder,
                     dict(pairs=3, batch=512, random=((10_000_000, 100_000_000, 100_000, 32),), real=("cnr_2000", "dblp_2010", "ogbn_arxiv"),
                          dims=(16, 32, 128), fio_s=3, judge=True),
                     # batches of so few are predicted from a few
                     dict(pairs=1, batch=128, random=((5000, 50_000, 1000, 16),), real=(), dims=(), fio_s=0.1, judge=False)),
    "billion": Bench(billion.billion,
                     dict(pairs=1, vertices=50_000_000, edges=1_000_000_000, features=16, seeds=1_000_000, batch=1000, hidden=32, memory="2GiB",
                          cache="1536MiB", presample="2GiB", reorder_memory="2GiB", fio_s=5, span=2 << 30),
                     dict(pairs=1, vertices=20_000, edges=400_000, features=16, seeds=1000, batch=100, hidden=8, memory="4MiB", cache="512KiB",
                          presample="4MiB", reorder_memory="32MiB", fio_s=0.1, span=4 << 20)),
    "runtime": Bench(epochs.runtime, dict(pairs=7, batches=300_000, rounds=200_000), dict(pairs=1, batches=3000, rounds=2000),
                     programs=("handover.c",)),
    **{f"io-{block}": io_bench(block) for block in (512, 4096, 16384, 65536)},
    "engine": Bench(transfers.engine, dict(pairs=7, blocks=(512, 4096), depths=(16, 128), span=1 << 30, slice_s=0.5, slices=6),
                    dict(pairs=1, blocks=(512, 4096), depths=(16,), span=8 << 20, slice_s=0.05, slices=1), programs=("engine.c",)),
    # dilated 200 times, 12 drives of 1.5 million requests a second do 90,000
    "stacks": Bench(transfers.stacks,
                    dict(pairs=1, ssds=(1, 2, 4, 8, 12), dims=(128, 256, 512, 1024), lanes=32, lanes_max=1024, dilate=200, seconds=0.3),
                    dict(pairs=1, ssds=(2,), dims=(128,), lanes=4, lanes_max=4, dilate=200, seconds=0.02)),
    "hotness": Bench(caches.hotness,
                     dict(pairs=1, batch=1000, fanout=(25, 10), epochs=10, judge=True, graphs=(
                         ("R-MAT, 10M edges, 1 % training", "hot-1", "rmat", "--vertices", 1000000, "--edges", 10000000,
                          "--features", 4, "--classes", 4, "--train-count", 10000),
                         ("R-MAT, 10M edges, 10 % training", "hot-10", "rmat", "--vertices", 1000000, "--edges", 10000000,
                          "--features", 4, "--classes", 4, "--train-count", 100000),
                         ("R-MAT, 30M edges symmetrised, 10 % training", "hot-sym", "rmat", "--vertices", 1000000, "--edges", 30000000,
                          "--symmetrize", "--features", 4, "--classes", 4, "--train-count", 100000),
                         ("community, 40 % training", "hot-community", "community", "--vertices", 300000, "--features", 4))),
                     # so few batches hit by chance what they hit: not judged
                     dict(pairs=1, batch=64, fanout=(5, 3), epochs=2, judge=False, graphs=(
                         ("R-MAT", "hot", "rmat", "--vertices", 5000, "--edges", 50000, "--features", 4, "--classes", 4,
                          "--train-count", 500),)),
                     programs=("hotness.c",)),
    "embed": Bench(embeddings.embed,
                   dict(pairs=7, edges=10000, chunks=10, negatives=1000, vertices=14541,
                        models=(("dot", (400,)), ("complex", (50, 100, 200, 400)))),
                   dict(pairs=1, edges=500, chunks=5, negatives=50, vertices=300, models=(("dot", (32,)), ("complex", (32,)))),
                   programs=("embed.c",)),
    # edges: of a batch; train: of the dataset
    "embed-epoch": Bench(embeddings.embed_epoch,
                         dict(pairs=3, graph="fb15k_237", train=272115, vertices=14541, edges=10000, chunks=10, negatives=1000, dim=400, epochs=2, turns=3),
                         dict(pairs=1, graph=None, train=2000, vertices=300, edges=500, chunks=5, negatives=50, dim=32, epochs=2, turns=1),
                         programs=("embed.c",)),
    "ranks": Bench(embeddings.ranks, dict(pairs=7, vertices=14541, queries=2000, dims=(50, 100, 200, 400), blocks=(1, 8, 32)),
                   dict(pairs=1, vertices=300, queries=50, dims=(32,), blocks=(2,)), programs=("ranks.c",)),
    "tpc": Bench(tpc.tpc,
                 dict(pairs=1, vertices=60000, features=1024, train=0.01, batch=128, hidden=16, dilate=300, caches=(512, 12000),
                      drives=(("p5510", (1, 2, 4, 6, 8, 10, 12)), ("980pro", (2, 3, 4, 5, 6)))),
                 dict(pairs=1, vertices=2000, features=128, train=0.2, batch=128, hidden=16, dilate=20, caches=(200,), drives=(("p5510", (2,)),))),
    "gpu-kernels": Bench(gpu.kernels, dict(pairs=1, host=False), dict(pairs=1, host=True), programs=("gpu",), only_if_named=True),
    "gpu-epoch": Bench(gpu.epoch, dict(pairs=1, host=False), dict(pairs=1, host=True), only_if_named=True),
    # check: vertices of the small graph that all must learn alike; make: make environments; tune_batches: of an epoch, 0: all
    "peers-memory": Bench(side_by_side.memory,
                          dict(pairs=5, vertices=169343, edges=1166243, train=90941, batch=1024, hidden=256, epochs=11, peer_epochs=6, check=20000,
                               make=True, tune=True, tune_epochs=4, tune_batches=0),
                          dict(pairs=1, vertices=2000, edges=8000, train=1000, batch=256, hidden=32, epochs=2, peer_epochs=2, check=4000,
                               make=False, tune=False, tune_epochs=2, tune_batches=0), only_if_named=True),
    "peers-outofcore": Bench(side_by_side.outofcore,
                             dict(pairs=5, vertices=1000000, edges=10000000, train=100000, batch=512, hidden=64, epochs=3, peer_epochs=3, check=20000,
                                  make=True, tune=True, tune_epochs=2, tune_batches=60),
                             dict(pairs=1, vertices=5000, edges=50000, train=1000, batch=256, hidden=64, epochs=2, peer_epochs=2, check=4000,
                                  make=False, tune=False, tune_epochs=2, tune_batches=2), only_if_named=True),
}


def git(*args):
    """What git prints; "" without git or outside of a clone."""
    try:
        return subprocess.run(["git", *args], cwd=measure.ROOT, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return ""


def commit():
    """Of the clone, or of the archive of gpu-pack; "+": with changes."""
    head = git("rev-parse", "--short", "HEAD")
    if head:
        return head + ("+" if git("status", "--porcelain") else "")
    try:
        with open(os.path.join(measure.BUILD, "version")) as f:
            return f.read().split()[-1].replace("-dirty", "+")
    except OSError:
        return "unknown"


def about_machine():
    model = re.search(r"model name\s*: (.*)", open("/proc/cpuinfo").read())
    memory = int(re.search(r"MemTotal:\s*(\d+)", open("/proc/meminfo").read()).group(1)) / 2**20
    return {"cpu": model.group(1) if model else "?", "cores": len(os.sched_getaffinity(0)), "memory_gib": round(memory, 1),
            "date": datetime.date.today().isoformat(), "commit": commit(),
            "load": os.getloadavg()[0]}


def run_all(names, options):
    """({name: result}, how many benches ran, were skipped, gave wrong results)."""
    results, counts = {}, {"ran": 0, "skipped": 0, "wrong": 0}
    for name in names:
        bench = BENCHES[name]
        sizes = bench.smallest if options.smallest else bench.full
        size = types.SimpleNamespace(**sizes | ({"pairs": options.pairs} if options.pairs else {}))
        print(f"{name}:", flush=True)
        try:
            results[name] = bench.measure(size)
            counts["ran"] += 1
        except measure.Skip as reason:
            print(f"  skipped: {reason}")
            results[name] = {"skipped": str(reason)}
            counts["skipped"] += 1
        except measure.Unsound as why:
            print(f"  no figure: {why}")
            results[name] = {"unsound": str(why)[-2000:]}
            counts["wrong"] += 1
    return results, counts


def write(results, names, save):
    machine = results["machine"]
    folder = RESULTS if save else os.path.join(measure.BUILD, "bench-results")
    os.makedirs(folder, exist_ok=True)
    kind = "gpu" if any(name.startswith("gpu-") for name in names) else "cpu"
    path = os.path.join(folder, f"{kind}-{machine['date']}-{machine['commit'].rstrip('+')}-{'-'.join(names) or 'all'}.json")
    with open(path, "w") as f:
        json.dump(results, f, indent=1)
        f.write("\n")
    print(f"results: {path}")
    for name in filter(lambda name: "peers" in results[name], BENCHES.keys() & results.keys()):
        text = table.markdown(results[name], machine)
        if save:
            table.put(name, text)
        else:
            with open(os.path.splitext(path)[0] + f".{name}.md", "w") as f:
                f.write(text)


def show_tables(results, machine):
    """({bench: its table} is printed, too), and what could not be measured, for the last line."""
    left_out = []
    for result in results.values():
        if "peers" in result:
            print("\n" + table.markdown(result, machine), flush=True)
            left_out += result["not_measured"]  # their names
    return f"; without {', '.join(left_out)} (the reasons are above)" if left_out else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, usage=argparse.SUPPRESS, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *BENCHES], metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("--smallest", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--pairs", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--scratch", default=os.path.join(os.environ.get("TMPDIR", "/var/tmp"), "penstock-bench"), help=argparse.SUPPRESS)
    parser.add_argument("--save", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--peers", type=lambda names: names.replace(",", " ").split(), help=argparse.SUPPRESS)
    parser.add_argument("--retune", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.peers or () if name not in catalogue.PEERS]
    if unknown:
        parser.error(f"--peers {' '.join(unknown)}: expected some of {', '.join(catalogue.PEERS)}")
    side_by_side.WANTED, side_by_side.RETUNE = options.peers, options.retune
    if options.smallest and options.save:
        parser.error("--smallest takes no figures that are worth saving: leave out --save")
    os.makedirs(options.scratch, exist_ok=True)
    machine = about_machine()
    print(" ".join(f"{k}: {v};" for k, v in machine.items()), flush=True)
    names = options.names or [name for name, bench in BENCHES.items() if options.smallest or not bench.only_if_named]
    with tempfile.TemporaryDirectory(dir=options.scratch) as small:
        measure.SCRATCH = small if options.smallest else options.scratch
        results, counts = run_all(names, options)
    left_out = show_tables(results, machine)
    if options.smallest:
        print("This was the smallest form of each bench. It shows that the benches work; its figures mean nothing.")
    else:
        write({"machine": machine, **results}, options.names, options.save)
        print(f"The datasets in {options.scratch} can be deleted.")
    print(", ".join(f"{n} {what}" for what, n in counts.items()) + left_out)
    sys.exit(counts["wrong"] > 0)


if __name__ == "__main__":
    main()
