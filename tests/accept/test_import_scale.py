"""200 million edges inside a memory cgroup of 512 MiB, from csv whose ids are names, from csv whose ids are numbers and
from npy: the same graph from all, against sort and against what the disk alone would take; and an import that is killed
half way, and goes on."""
import glob
import math
import os
import re
import resource
import shutil
import subprocess
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipeline"))
import cgroup
from harness import *

EDGES, VERTICES = int(os.environ.get("SCALE_EDGES", 200_000_000)), 10_000_000
LIMIT, MEMORY, CHUNK = 512 << 20, "256MiB", 2_000_000
ROOM = 60 * EDGES  # bytes of the sources, three datasets, and what names or sort write aside
TIMES = 3          # npy is so many times faster than csv with names; csv with numbers is told beside it
ROUNDS = 2         # of which the faster counts: the machine should be idle, and seldom is
NEAR_DISK = 2      # what is asserted: npy takes at most so many times what the disk alone takes for its bytes
SORT_FACTOR = 2    # sort is stopped when it has taken so many times what the import of names took


def digits(ids):
    out = np.empty((len(ids), 7), np.uint8)
    for k in range(6, -1, -1):
        ids, out[:, k] = np.divmod(ids, 10)
    return out + ord("0")


def generate(where):
    """Uniform sources, skewed targets; the csv has the edges of the npy."""
    os.mkdir(f"{where}/npy")
    a = np.lib.format.open_memmap(f"{where}/npy/edges.npy", "w+", np.int32, (2, EDGES))
    rng = np.random.default_rng(1)
    with open(f"{where}/edges.csv", "wb") as f:
        for at in range(0, EDGES, CHUNK):
            n = min(CHUNK, EDGES - at)
            source = rng.integers(0, VERTICES, n, dtype=np.int32)
            target = (rng.random(n, np.float32).astype(np.float64) ** 2 * VERTICES).astype(np.int32)
            a[0, at:at + n], a[1, at:at + n] = source, target
            line = np.empty((n, 16), np.uint8)
            line[:, :7], line[:, 7], line[:, 8:15], line[:, 15] = digits(source), ord(","), digits(target), ord("\n")
            f.write(line.tobytes())
    a.flush()


def forget(*paths):
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def limited(argv, seconds=1800, **more):
    """Runs it in a cgroup of its own: seconds, peak resident bytes, output."""
    with cgroup.memory_limit(LIMIT) as group:
        began = time.time()
        r = subprocess.run(argv, preexec_fn=group.enter, capture_output=True, text=True, timeout=seconds, **more)
        took = time.time() - began
        assert r.returncode == 0 and group.kills() == 0, (argv, r.stderr[-2000:], group.kills())
    return took, r.stdout


def imported(where, kind, source, to, *args):
    took, out = limited([PENSTOCK, "import", kind, source, to, "--name", "scale", "--memory", MEMORY, "--quiet", *args])
    print(f"# {kind}: {took:.1f} s; {out.strip().splitlines()[-1]}")
    peak = float(re.search(r"peak memory: ([\d.]+) MB", out).group(1))
    assert peak * 1e6 < 300 << 20, out
    with open(f"{to}/dataset.json") as f:
        m = json.load(f)
    assert m["edges"] == EDGES and m["vertices"] <= VERTICES, m
    return took, {k: v["xxh3"] for k, v in m["arrays"].items()}


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def disk_alone(where, source, dataset):
    """Reading the source, writing and reading what is written aside (5 bytes an edge), writing the dataset."""
    aside, out = 5 * EDGES, sum(os.path.getsize(p) for p in glob.glob(f"{dataset}/*.npy"))
    forget(source)
    took = limited(["dd", f"if={source}", "of=/dev/null", "bs=1M"])[0]
    for n, back in ((aside, True), (out, False)):
        took += limited(["dd", "if=/dev/zero", f"of={where}/plain", "bs=1M", f"count={n >> 20}", "conv=fsync"])[0]
        forget(f"{where}/plain")
        if back:
            took += limited(["dd", f"if={where}/plain", "of=/dev/null", "bs=1M"])[0]
        os.remove(f"{where}/plain")
    return took


def same_as_numpy(where, dataset):
    """In-degrees, and every hundred thousandth row, by other means."""
    a = np.load(f"{where}/npy/edges.npy", mmap_mode="r")
    indptr, indices = (np.load(f"{dataset}/{n}.npy", mmap_mode="r") for n in ("indptr", "indices"))
    degrees, wanted = np.zeros(len(indptr) - 1, np.int64), np.arange(0, len(indptr) - 1, 100_000)
    rows = {int(v): [] for v in wanted}
    for at in range(0, EDGES, 10 * CHUNK):
        s, t = a[0, at:at + 10 * CHUNK], a[1, at:at + 10 * CHUNK]
        degrees += np.bincount(t, minlength=len(degrees))
        hit = t % 100_000 == 0
        for v, u in zip(t[hit].tolist(), s[hit].tolist()):
            rows[v].append(u)
    assert np.array_equal(np.diff(indptr), degrees)
    for v, row in rows.items():
        assert sorted(row) == indices[indptr[v]:indptr[v + 1]].tolist(), v


def same_by_name(where, named, numbered):
    """Names are numbered by their first mention; every vertex has its degree, every hundred thousandth its row."""
    a = np.load(f"{where}/npy/edges.npy", mmap_mode="r")
    at, text, indptr, indices = (np.load(f"{named}/{n}.npy", mmap_mode="r") for n in ("names_at", "names", "indptr", "indices"))
    assert np.array_equal(at, np.arange(len(at)) * 7)
    called = (text.reshape(-1, 7) - ord("0")) @ (10 ** np.arange(6, -1, -1))
    seen, first = np.zeros(VERTICES, bool), []
    for i in range(0, EDGES, CHUNK):
        mentions = a[:, i:i + CHUNK].T.ravel()
        new = mentions[~seen[mentions]]
        first.append(new[np.sort(np.unique(new, return_index=True)[1])])
        seen[first[-1]] = True
    assert np.array_equal(called, np.concatenate(first))
    other_indptr, other = (np.load(f"{numbered}/{n}.npy", mmap_mode="r") for n in ("indptr", "indices"))
    assert np.array_equal(np.diff(indptr), np.diff(other_indptr)[called])
    for v in range(0, len(called), 100_000):
        row = called[indices[indptr[v]:indptr[v + 1]]]
        assert np.array_equal(np.sort(row), other[other_indptr[called[v]]:other_indptr[called[v] + 1]]), v


def killed_and_resumed(where, expect):
    """Killed while it sorts: what goes on takes a fraction, and ends the same."""
    to = f"{where}/resumed"
    argv = ["npy", f"{where}/npy", to, "--checkpoint", "1"]
    with cgroup.memory_limit(LIMIT) as group:
        p = subprocess.Popen([PENSTOCK, "import", *argv, "--name", "scale", "--memory", MEMORY, "--quiet"],
                             preexec_fn=group.enter, stdout=subprocess.DEVNULL)
        while p.poll() is None:
            found = [open(j).read() for j in glob.glob(to + ".penstock-partial-*/temp-journal.json")]
            if found and '"sorting"' in found[0]:
                p.kill()
            time.sleep(0.01)
    assert p.returncode == -9 and not os.path.exists(to), p.returncode
    forget(f"{where}/npy/edges.npy")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock
    took, sums = imported(where, *argv, "--resume")
    read = (resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock - before) * 512
    print(f"# {read / 1e9:.2f} GB were read, the source has {8 * EDGES / 1e9:.2f}")
    assert sums == expect and read < 8 * EDGES, (sums, expect, read)  # the edges were not read again
    shutil.rmtree(to)
    return took


@test
def scale():
    where = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"penstock-scale-{os.getpid()}")
    try:
        with cgroup.memory_limit(LIMIT):
            pass
    except cgroup.Unavailable as e:
        raise Skip(str(e))
    if SAN:
        raise Skip("a sanitizer's build is no matter for time and memory")
    os.mkdir(where)
    try:
        if shutil.disk_usage(where).free < ROOM:
            raise Skip(f"{where} has less than {ROOM >> 30} GiB free")
        generate(where)
        csv, npy, edges = f"{where}/edges.csv", f"{where}/npy", f"{where}/npy/edges.npy"
        took, sums, cpu = {}, {}, {}
        for kind, source in (("csv", csv), ("npy", npy)) * ROUNDS:
            forget(csv, edges)
            shutil.rmtree(f"{where}/{kind}-out", ignore_errors=True)
            before = cpu_seconds()
            seconds, sums[kind] = imported(where, kind, source, f"{where}/{kind}-out")
            cpu[kind] = min(cpu_seconds() - before, cpu.get(kind, math.inf))
            took[kind] = min(seconds, took.get(kind, seconds))
        assert sums["csv"] == sums["npy"], sums
        same_as_numpy(where, f"{where}/npy-out")
        forget(csv)
        named = imported(where, "csv", csv, f"{where}/named-out", "--ids", "strings", "--header", "no")[0]
        same_by_name(where, f"{where}/named-out", f"{where}/npy-out")
        shutil.rmtree(f"{where}/named-out")
        resumed = killed_and_resumed(where, sums["npy"])
        shutil.rmtree(f"{where}/csv-out")
        alone = disk_alone(where, edges, f"{where}/npy-out")
        forget(csv)
        # it need not end: the import has won when it has been at work for longer
        try:
            sort = limited(["sort", "-S256M", "--parallel=2", "-T", where, "-o", f"{where}/sorted", csv], named * SORT_FACTOR,
                           env={**os.environ, "LC_ALL": "C"})[0]
        except subprocess.TimeoutExpired:
            sort = named * SORT_FACTOR
        print(f"# csv with names {named:.1f} s, sort at least {sort:.1f} s; npy {took['npy']:.1f} s: {named / took['npy']:.1f} times faster; "
              f"csv with numbers {took['csv']:.1f} s: {took['csv'] / took['npy']:.1f} times; of processors csv {cpu['csv']:.1f} s, "
              f"npy {cpu['npy']:.1f} s; the disk alone for npy {alone:.1f} s; resumed while sorting {resumed:.1f} s")
        assert max(named, took["csv"]) < sort and named >= TIMES * took["npy"], (named, took, sort)
        assert cpu["npy"] < cpu["csv"] and took["npy"] <= NEAR_DISK * alone, (took, cpu, alone)
    finally:
        shutil.rmtree(where, ignore_errors=True)


if __name__ == "__main__":
    main()
