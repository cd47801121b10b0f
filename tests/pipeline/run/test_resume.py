"""import --resume: killed at any moment and in every phase, it ends with the same checksums, from what it had."""
import atexit
import functools
import glob
import os
import random
import signal
import subprocess
import time

import numpy as np
from harness import *
from importing import *

EDGES, VERTICES = 1_000_000, 20_000
PHASES = ("reading", "sorting", "done", "features")
NAMED_EDGES = 400_000  # with more names than 12 MiB hold
NAME_STEPS = 4         # adding, finding, numbering, giving (common/store/names/names.h)
NAMED = ("--ids", "strings", "--header", "no")


@functools.cache
def made():
    """Where the sources are, made once."""
    s = Scratch().__enter__()
    atexit.register(s.__exit__)
    rng = np.random.default_rng(5)
    edges = np.stack([rng.integers(0, VERTICES, EDGES), (rng.random(EDGES) ** 2 * VERTICES).astype(np.int64)])
    edges[:, :EDGES // 4] %= 10  # duplicates that are more than a part of the sort
    os.mkdir(s.path("npy"))
    np.save(s.path("npy/edges.npy"), edges.astype(np.int32))
    np.save(s.path("npy/edge_weights.npy"), rng.random(EDGES, np.float32))
    np.save(s.path("npy/feat.npy"), rng.random((VERTICES, 256), np.float32))
    np.save(s.path("npy/labels.npy"), rng.integers(0, 7, VERTICES))
    np.save(s.path("npy/train_idx.npy"), np.arange(0, VERTICES, 3))
    with open(s.path("e.csv"), "w") as f:
        f.write("source,target\n")
        f.write("".join(f"{a},{b}\n" for a, b in edges.T.tolist()))
    subprocess.run(["gzip", "-1", "-k", s.path("e.csv")], check=True)
    make_named(s)
    return s


def make_named(s):
    """Names of 14 to 20 bytes: a few often, the rest once or twice. As csv and zipped."""
    rng = np.random.default_rng(6)
    names = np.where(rng.random((NAMED_EDGES, 2)) < 0.3, rng.integers(0, 100, (NAMED_EDGES, 2)), rng.integers(0, 1 << 19, (NAMED_EDGES, 2)))
    with open(s.path("named.csv"), "w") as f:
        f.write("".join(f"http://name/{a}x,http://name/{b}\n" for a, b in names.tolist()))
    subprocess.run(["gzip", "-1", "-k", s.path("named.csv")], check=True)


def argv(kind, source, to, *args):
    return [PENSTOCK, "import", kind, source, to, "--name", "x", "--memory", "12MiB", "--quiet", "--checkpoint",
            "0", "--threads", str(1 + len(to) % 3), *args]


def journal(to):
    for path in glob.glob(to + ".penstock-partial-*/temp-journal.json"):
        try:
            with open(path) as f:
                return json.load(f)["journal"]
        except (OSError, ValueError):
            return None
    return None


def reached(to, phase):
    j = journal(to)
    if j is None:
        return False
    if phase == "features":
        return "features.npy" in j["arrays"]
    if isinstance(phase, int):  # of names that were put aside
        return ((j.get("edges", {}).get("state") or {}).get("names") or {}).get("step", -1) >= phase
    return j.get("edges", {}).get("phase") == phase


def sums_of(to):
    with open(os.path.join(to, "dataset.json")) as f:
        m = json.load(f)
    return {name: a["xxh3"] for name, a in m["arrays"].items()}


def half_made_is_refused(to):
    for partial in glob.glob(to + ".penstock-partial-*"):
        for words in (["verify", partial], ["run", os.path.join(ROOT, "pipelines", "hyperion.json"), "--dataset", partial]):
            r = command(*words, code=None)
            assert r.returncode != 0 and "dataset.json" in r.stderr, (words, r.stderr)
    assert not os.path.exists(to)


def sources():
    s = made()
    return (("npy", s.path("npy"), ("--dedupe",)), ("csv", s.path("e.csv"), ("--symmetrize", "--dedupe", "--self-loops", "add")),
            ("csv", s.path("e.csv.gz"), ("--transpose",)), ("csv", s.path("named.csv"), NAMED))


@functools.cache
def whole(n):
    """What the n-th source gives undisturbed: its checksums, and the seconds that it took."""
    kind, source, args = sources()[n]
    to, t0 = made().path(f"whole-{n}"), time.time()
    subprocess.run(argv(kind, source, to, *args), check=True, capture_output=True, timeout=60)
    return sums_of(to), time.time() - t0


def killed_in(phase, to, words):
    """What the journal of an import that was killed in that phase says of its edges. It stands still while its journal
    is looked at, so that it cannot run past the phase meanwhile; one that does is begun anew."""
    for _ in range(20):
        p = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        deadline = time.time() + 60
        while p.poll() is None and time.time() < deadline:
            p.send_signal(signal.SIGSTOP)
            if reached(to, phase):
                break
            p.send_signal(signal.SIGCONT)
            time.sleep(0.004)
        p.kill()
        p.wait()
        assert p.returncode in (0, -signal.SIGKILL), p.stderr.read()
        left = journal(to)
        if left and not os.path.exists(to):
            return left["edges"]
        shutil.rmtree(to, ignore_errors=True)
    raise AssertionError(f"always done before it could be killed: {phase}")


@test
def killed_in_every_phase():
    if GROUPED:
        raise Skip("ThreadSanitizer needs minutes; it sees the same threads in killed_again_and_again")
    with Scratch() as s:
        for n, (kind, source, args) in enumerate(sources()):
            if SAN and n in (1, 2):  # the same code as that of the last source, with less of it
                continue
            for phase in PHASES if kind == "npy" else PHASES[:2]:
                to = s.path(f"{phase}-{n}")
                kept = killed_in(phase, to, argv(kind, source, to, *args))
                if phase == "reading":
                    half_made_is_refused(to)
                r = subprocess.run(argv(kind, source, to, *args, "--resume"), capture_output=True, text=True, timeout=60)
                assert r.returncode == 0, r.stderr
                assert f"edges were {kept['phase']}; {kept['arcs']} were saved" in r.stderr, (kept, r.stderr)
                assert kept["arcs"] > 0 or "names" in kept["state"], (kept, r.stderr)
                assert sums_of(to) == whole(n)[0], (kind, phase)
                assert not glob.glob(to + ".penstock-partial-*")


@test
def killed_while_names_are_aside():
    with Scratch() as s:
        in_memory = s.path("in-memory")
        subprocess.run(argv("csv", made().path("named.csv"), in_memory, *NAMED, "--memory", "1GiB"), check=True, capture_output=True, timeout=60)
        for step in range(NAME_STEPS):
            source, to = made().path("named.csv.gz" if step % 2 else "named.csv"), s.path(f"step-{step}")
            kept = killed_in(step, to, argv("csv", source, to, *NAMED))
            assert kept["state"]["names"]["resident"] > 1000, kept
            half_made_is_refused(to)
            r = subprocess.run(argv("csv", source, to, *NAMED, "--resume"), capture_output=True, text=True, timeout=60)
            assert r.returncode == 0 and sums_of(to) == sums_of(in_memory), (step, r.stderr)
            assert not glob.glob(to + ".penstock-partial-*") and not glob.glob(to + "/temp-*")


@test
def killed_again_and_again():
    with Scratch() as s:
        seed = random.randrange(1 << 30)
        rng = random.Random(seed)
        print(f"# seed {seed}")
        for n, (kind, source, args) in enumerate(sources()):
            to, (sums, took), kills = s.path(f"killed-{n}"), whole(n), 0
            for attempt in range(int(os.environ.get("KILLS", 6))):
                p = subprocess.Popen(argv(kind, source, to, *args, "--resume"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                try:
                    p.wait(rng.uniform(0.01, min(0.25, 0.5 * took)))
                except subprocess.TimeoutExpired:
                    p.send_signal(signal.SIGKILL)
                    kills += 1
                p.wait()
                assert p.returncode in (0, -signal.SIGKILL), p.stderr.read()
                if p.returncode == 0:
                    break
            if p.returncode != 0:
                r = subprocess.run(argv(kind, source, to, *args, "--resume"), capture_output=True, text=True, timeout=60)
                assert r.returncode == 0, (kills, r.stderr)
            assert kills > 0 and sums_of(to) == sums, (kind, kills, took)
            r = subprocess.run(argv(kind, source, to, *args, "--resume"), capture_output=True, text=True)
            assert r.returncode == 0 and "is already complete: the same command made it" in r.stdout, r  # as if killed after its last step
        os.utime(source)  # the last one's
        r = subprocess.run(argv(kind, source, to, *args, "--resume"), capture_output=True, text=True)
        assert r.returncode == 2 and "the source files have changed since" in r.stderr, r


@test
def what_changed_is_told():
    with Scratch() as s:
        to, source = s.path("out"), shutil.copy(made().path("e.csv"), s.dir)
        killed_in("reading", to, argv("csv", source, to))
        r = subprocess.run(argv("csv", source, to, "--dedupe", "--resume"), capture_output=True, text=True)
        assert r.returncode != 0 and "--dedupe" in r.stderr and "starts from the beginning" in r.stderr, r.stderr
        with open(source, "a") as f:
            f.write("1,2\n")
        r = subprocess.run(argv("csv", source, to, "--resume"), capture_output=True, text=True)
        assert r.returncode != 0 and "e.csv has changed since" in r.stderr, r.stderr
        assert glob.glob(to + ".penstock-partial-*") and not os.path.exists(to)
        r = subprocess.run(argv("csv", source, to), capture_output=True, text=True)
        assert r.returncode == 0 and not glob.glob(to + ".penstock-partial-*"), r.stderr
        with open(os.path.join(to, "dataset.json")) as f:
            assert json.load(f)["edges"] == EDGES + 1


if __name__ == "__main__":
    main()
