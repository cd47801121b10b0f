"""Starting the peers' programs: with a limit on their time, in a cgroup if the bench has one, and with the time left."""
import contextlib
import dataclasses
import glob
import json
import os
import signal
import subprocess
import time

import measure
from cgroup import Unavailable, memory_limit

LIMIT_S = 3600  # of one run; an epoch over mapped files takes minutes
TAKEN_AWAY = ("PYTHONPATH", "PYTHONHOME", "LD_PRELOAD", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "MKL_NUM_THREADS")


class Failed(Exception):
    """A peer's program ended with an error, or did not end."""


def clean(env):
    """Without what would change the peers' Python or OpenMP behind our back."""
    return {**{k: v for k, v in env.items() if k not in TAKEN_AWAY}, "PYTHONNOUSERSITE": "1", "DGLBACKEND": "pytorch"}


def end(child):
    """All processes of the child's session."""
    for s in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, s)
            child.wait(3)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
    child.wait()


def start(argv, limit_s, **more):
    """As subprocess.run, but what the program started ends with it, at the time limit and at Ctrl-C, too."""
    with subprocess.Popen(argv, text=True, start_new_session=True, **more) as child:
        try:
            out, err = child.communicate(timeout=limit_s)
        except BaseException:
            end(child)
            raise
        return subprocess.CompletedProcess(argv, child.returncode, out, err)


# ---- one run ---------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Command:
    argv: list
    env: dict


def libraries(pattern):
    return sorted(glob.glob(pattern))[:1]


def tcmalloc():
    return libraries("/usr/lib/*/libtcmalloc_minimal.so.4")


def intel_openmp(python):
    return libraries(os.path.join(os.path.dirname(os.path.dirname(python)), "lib", "libiomp5.so"))


def command(python, program, arguments, chosen):
    """chosen: the tuned settings. `omp`, `malloc` and `environment` say how the program starts; the others are its options."""
    env, preload = clean(os.environ), []
    if chosen.get("malloc") == "tcmalloc":
        preload += tcmalloc()
    if chosen.get("omp") == "intel":
        preload += intel_openmp(python)
    elif "omp" in chosen:
        env["OMP_WAIT_POLICY"] = chosen["omp"]
    if preload:
        env["LD_PRELOAD"] = ":".join(preload)
    argv = [python, program, *map(str, arguments)]
    for key, value in chosen.items():
        if key in ("omp", "malloc", "environment"):
            continue
        argv += [f"--{'' if value else 'no-'}{key}"] if isinstance(value, bool) else [f"--{key}", str(value)]
    return Command(argv, env)


@contextlib.contextmanager
def limited(limit_bytes, data):
    """A cgroup for runs whose dataset is not in the page cache; None without a limit. measure.Skip if there can be none."""
    if not limit_bytes:
        yield None
        return
    try:
        with memory_limit(limit_bytes) as cgroup:
            measure.cold(data)
            yield cgroup
    except Unavailable as reason:
        raise measure.Skip(f"it needs root and a memory cgroup: {reason}") from reason


def need_cgroup(limit_bytes):
    """measure.Skip if limited() would not find a cgroup."""
    try:
        with memory_limit(limit_bytes):
            pass
    except Unavailable as reason:
        raise measure.Skip(f"it needs root and a memory cgroup: {reason}") from reason


def peer(what, limit_bytes=None, data=None, limit_s=LIMIT_S):
    """The record that a program printed, with `peak_mib` of the cgroup. Failed if there is none."""
    with limited(limit_bytes, data) as cgroup:
        try:
            r = start(what.argv, limit_s, env=what.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                      preexec_fn=cgroup.enter if cgroup else None)
        except subprocess.TimeoutExpired:
            raise Failed(f"it did not end within {limit_s:.0f} s") from None
        except OSError as e:
            raise Failed(f"it did not start: {e}") from e
        killed, peak = (cgroup.kills(), (cgroup.peak_bytes() or 0) / 2**20) if cgroup else (0, None)
    if killed:
        raise Failed(f"the kernel ended it, because it needed more than {limit_bytes >> 20} MiB")
    if r.returncode:
        raise Failed(f"exit status {r.returncode}: {(r.stderr or r.stdout).strip()[-400:]}")
    try:
        return {**json.loads(r.stdout.strip().splitlines()[-1]), "peak_mib": peak}
    except (IndexError, ValueError):
        raise Failed(f"its output does not end with a line of JSON: {r.stdout.strip()[-200:]!r}") from None


# ---- progress --------------------------------------------------------------------------------------------


class Progress:
    """Says before each run what it is and how much time is left: the runs to come, each with the mean of those of its kind,
    or with a guess while there was none."""

    def __init__(self, clock=time.monotonic, say=lambda line: print(line, flush=True)):
        self.clock, self.say, self.kinds, self.done = clock, say, {}, 0

    def expect(self, kind, runs, guess_s):
        """More runs of a kind."""
        known = self.kinds.setdefault(kind, {"left": 0, "guess_s": guess_s, "took_s": []})
        known["left"] += runs

    def cancel(self, kind):
        if kind in self.kinds:
            self.kinds[kind]["left"] = 0

    def left_s(self):
        mean = lambda k: sum(k["took_s"]) / len(k["took_s"]) if k["took_s"] else k["guess_s"]
        return sum(k["left"] * mean(k) for k in self.kinds.values())

    @contextlib.contextmanager
    def run(self, kind, label):
        known = self.kinds[kind]
        total = self.done + sum(k["left"] for k in self.kinds.values())
        minutes = self.left_s() / 60
        left = f"about {minutes:.0f} min left" if minutes >= 1 else "less than a minute left" if minutes < 0.75 else "about 1 min left"
        self.say(f"  [{self.done + 1} of {total}, {left}] {label}")
        began = self.clock()
        try:
            yield
        finally:
            self.done += 1
            known["left"] = max(0, known["left"] - 1)
            known["took_s"].append(self.clock() - began)
