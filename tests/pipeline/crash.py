"""What the tests of sudden ends share: who runs, when to strike, what is left, and that the work goes on."""
import fcntl
import random
import signal

from harness import *

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
EPOCHS = 4
SMALL = ["--set", "params.batch=128", "--set", "stages.planner.params.cpu_cache=128KiB", "--epochs", EPOCHS, "--quiet"]
SLOW = ["--set", "stages.disk.params.fault_delay_us=2000"]  # so that there is something to strike at
ENDLESS = [*SLOW, "--epochs", 1_000_000]  # never done before it is struck
TWO_HOSTS = ["--set", 'stages.trainer.place={"device":"cpu:1"}']
END_S = 2 * (5 if SAN else 1)  # from a death to the end of the run
PHASES = ("start-up", "mid-epoch", "checkpoint", "draining")


def outcome(report):
    return report["digest"], report["weights_digest"]


def children(pid):
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            with open(path) as f:
                found += map(int, f.read().split())
        except OSError:
            pass
    return found


def processes(run):
    """{name: pid} of a run: its supervisor, its stages and memory hosts."""
    found = {"supervisor": run.process.pid}
    for pid in children(run.process.pid):
        try:
            with open(f"/proc/{pid}/cmdline") as f:
                argv = f.read().split("\0")
        except OSError:
            continue
        if os.path.basename(argv[0]) in ("penstock-stage", "penstock-memory") and len(argv) > 5:
            found[argv[5]] = pid
    return found


def wait_for(condition, seconds=20):
    until = time.time() + seconds * (5 if SAN else 1)
    while not (value := condition()):
        assert time.time() < until, "waited in vain"
        time.sleep(0.001)
    return value


def has_checkpoint(run_dir):
    return bool(glob.glob(os.path.join(run_dir, "checkpoints", "*.safetensors")))


def half_files(run_dir):
    """Files that are not whole: each writer gives them a temporary name until they are."""
    found = []
    for directory, _, files in os.walk(run_dir):
        found += [os.path.join(directory, f) for f in files
                  if ".penstock-" in f or f.endswith((".part", ".tmp")) or f.startswith(".")]
    return found


def lock_is_free(run_dir):
    if not os.path.exists(os.path.join(run_dir, "lock")):
        return True  # it was killed before it had one
    with open(os.path.join(run_dir, "lock")) as f:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return True


def resume(p, run_dir, anew, *args):
    """Goes on from a run's last checkpoint, in its own directory or anew in another; where there is none, runs from
    the beginning in its own."""
    anew = anew and has_checkpoint(run_dir)
    dir_ = p.path(f"resumed{random.getrandbits(40)}") if anew else run_dir
    argv = [PENSTOCK, "run", HYPERION, "--dataset", p.data, *SMALL, "--run-dir", dir_, *args]
    argv += ["--resume", run_dir] if has_checkpoint(run_dir) else []
    argv += ["--group", "all"] if GROUPED else []
    r = Running([str(a) for a in argv], dir_).wait()
    assert r.code == 0, f"going on from {run_dir}: {r}"
    return r


class Kill:
    """One run in which one process is killed at one moment."""

    def __init__(self, p, rng, seconds, phase=None, victim=None):
        self.p, self.rng, self.seconds = p, rng, seconds
        self.phase = phase or rng.choice(PHASES)
        self.two = not GROUPED and rng.random() < 0.5
        names = ["supervisor", "memory-cpu:0"] + (["memory-cpu:1"] if self.two else [])
        names += ["all"] if GROUPED else ["planner", "sampler", "disk", "trainer"]
        self.victim = victim or rng.choice(names)
        self.number = rng.choice([signal.SIGKILL] * 3 + [signal.SIGABRT] + ([] if SAN else [signal.SIGSEGV]))
        if self.victim == "planner":
            self.phase = "start-up"  # it ends before the rest begins

    def __str__(self):
        return f"{self.phase}: {self.victim} by signal {int(self.number)}"

    def moment(self, run):
        """Returns when it is time to strike."""
        pause = 0.0
        if self.phase == "start-up":
            pause = self.rng.random() * 0.25 * self.seconds
        elif self.phase == "mid-epoch":
            pause = (0.25 + 0.6 * self.rng.random()) * self.seconds
        elif self.phase == "checkpoint":
            nth = self.rng.randrange(EPOCHS)
            pattern = os.path.join(run.run_dir, "checkpoints")
            listed = lambda: os.listdir(pattern) if os.path.isdir(pattern) else []
            wait_for(lambda: run.process.poll() is not None or
                     (len(listed()) >= nth and any(".penstock-partial-" in f for f in listed())) or len(listed()) > nth)
        else:
            wait_for(lambda: run.process.poll() is not None or
                     len(glob.glob(os.path.join(run.run_dir, "checkpoints", "*"))) >= EPOCHS - 1 and
                     (GROUPED or "sampler" not in processes(run)))
        time.sleep(pause)

    def strike(self):
        """(result, seconds to the end), or None where the victim had ended before."""
        run = self.p.start(HYPERION, *SMALL, *SLOW, *(TWO_HOSTS if self.two else []))
        self.moment(run)
        name = {"all": "planner"}.get(self.victim, self.victim)
        until = time.time() + (0.05 if self.phase != "start-up" else 2)
        pid = None
        while pid is None and time.time() < until and run.process.poll() is None:
            pid = processes(run).get(name)
        if pid is not None and run.process.poll() is None:
            try:
                os.kill(pid, self.number)
            except ProcessLookupError:
                pid = None
        t0 = time.time()
        r = run.wait(30)
        return (r, time.time() - t0) if pid is not None and r.code != 0 else (run, None)


def check_end(kill, r, took):
    """The end was quick and said why; nothing is left."""
    assert took < END_S, f"{kill}: took {took:.2f} s\n{r}"
    if kill.victim == "supervisor":
        assert r.code == -kill.number, f"{kill}: {r}"
    else:
        assert r.code == 1, f"{kill}: {r}"
        assert f"error: {kill.victim}: died of signal {int(kill.number)} (" in r.err, f"{kill}: {r}"
        assert r.report["status"] == "failed" and r.report["failures"][0]["stage"] == kill.victim, f"{kill}: {r}"
    no_leftovers()
    assert lock_is_free(r.run_dir)


def kill_ends(run, victim, pause, died=None, limit_s=END_S):
    """Kills it so many seconds after the run is going (None: as soon as it is there): the run ends at once and says who
    died (by another name: died), and nothing is left."""
    pid = wait_for(lambda: processes(run).get(victim))
    if pause is not None:
        wait_for(lambda: os.path.exists(os.path.join(run.run_dir, "live.json")))
        time.sleep(pause)
    os.kill(pid, signal.SIGKILL)
    t0 = time.time()
    r = run.wait(10)
    assert time.time() - t0 < limit_s, f"{victim}: took {time.time() - t0:.1f} s"
    assert victim == "supervisor" or (r.code == 1 and f"error: {died or victim}: died of signal 9" in r.err), r
    no_leftovers()


def storm(kills, seed):
    """So many kills, each followed by a resumed run that must end as the undisturbed one. Returns figures."""
    rng = random.Random(seed)
    worst, phases, victims, from_nothing, late = 0.0, {}, {}, 0, 0
    with Place() as p:
        calm = p.run(HYPERION, *SMALL, *SLOW)
        want = outcome(calm.report)
        done = 0
        while done < kills:
            kill = Kill(p, rng, calm.seconds, phase=PHASES[done % len(PHASES)])
            r, took = kill.strike()
            if took is None:  # it had ended before
                late += 1
                assert late < 3 * kills + 20, "the victims are always gone"
                continue
            check_end(kill, r, took)
            worst = max(worst, took)
            phases[kill.phase] = phases.get(kill.phase, 0) + 1
            victims[kill.victim] = victims.get(kill.victim, 0) + 1
            from_nothing += not has_checkpoint(r.run_dir)
            again = resume(p, r.run_dir, rng.random() < 0.5, *(TWO_HOSTS if kill.two else []))
            assert outcome(again.report) == want, f"{kill}: {outcome(again.report)}, undisturbed {want}\n{r}"
            assert half_files(r.run_dir) == [] and half_files(again.run_dir) == [], f"{kill}: {half_files(r.run_dir)}"
            no_leftovers()
            shutil.rmtree(r.run_dir)
            shutil.rmtree(again.run_dir, ignore_errors=True)
            done += 1
    print(f"# {done} kills ({late} came too late and are not counted); worst time to the end {worst:.2f} s; "
          f"{done} of {done} then ended with the undisturbed weights, {from_nothing} of them from nothing")
    print(f"# when: {phases}; whom: {victims}", flush=True)
