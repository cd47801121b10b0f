"""MPS of a run's own: its keeper ends it, whoever is killed. On virtual GPUs, with a stand-in for NVIDIA's daemon."""
import signal

from crash import processes, wait_for
from harness import *
from mps import fake

KEEPER = os.path.join(BUILD, "bin", "penstock-mps")
END_S = 2 * (5 if SAN else 1)


class Keeper:
    def __init__(self, p, before=""):
        fake(p.dir, before)
        self.pipes, self.logs = p.path("mps"), p.path("logs")
        os.makedirs(self.logs, exist_ok=True)
        self.process = subprocess.Popen([KEEPER, p.path("nvidia-cuda-mps-control"), self.pipes, self.logs], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.said = self.process.stdout.readline()

    def log(self):
        with open(os.path.join(self.logs, "control.log")) as f:
            return f.read()

    def end(self):
        """(exit code, errors), after standard input has ended."""
        t0 = time.time()
        _, err = self.process.communicate(timeout=20)
        assert time.time() - t0 < END_S, f"{time.time() - t0:.1f} s"
        no_leftovers()
        assert not os.path.exists(self.pipes), os.listdir(self.pipes)
        return self.process.returncode, err


@test
def it_is_asked_to_quit():
    with Place() as p:
        k = Keeper(p)
        assert k.said == "ready\n" and os.stat(k.pipes).st_mode & 0o777 == 0o700
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            k.process.send_signal(number)  # the supervisor's matter
        assert k.end() == (0, "") and k.log().endswith("quit\n"), k.log()


@test
def what_does_not_listen_is_killed():
    with Place() as p:
        k = Keeper(p, before="trap '' INT TERM; : >\"$pipes/control\"; setsid sleep 1000 & sleep 1000; exit")
        assert k.said == "ready\n"
        assert k.end()[0] == 0


@test
def who_started_it_is_killed():
    with Place() as p:
        fake(p.dir)
        os.makedirs(p.path("logs"))
        code = ("import subprocess, sys, time; k = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE); time.sleep(1000)")
        starter = subprocess.Popen([sys.executable, "-c", code, KEEPER, p.path("nvidia-cuda-mps-control"), p.path("mps"),
                                    p.path("logs")], stdout=subprocess.PIPE, text=True)
        assert starter.stdout.readline() == "ready\n"
        starter.kill()
        starter.wait()
        no_leftovers(END_S)
        assert not os.path.exists(p.path("mps"))


@test
def a_daemon_that_does_not_start_is_told():
    with Place() as p:
        k = Keeper(p, before="exit 3")
        code, err = k.end()
        assert k.said == "" and code == 1 and "the MPS daemon exited at once, with status 3" in err, (k.said, code, err)


# ---- as a run has it -----------------------------------------------------------------------------


def start(p, grouped=False, mps=True):
    """A run of three stages on one virtual GPU, two of which have a share of it."""
    stages = {"source": stage("source", batches=1_000_000), "a": stage("passthrough"), "sink": stage("sink", delay_us=20000)}
    for name, percent in (("source", 30), ("a", 20), ("sink", 100)):
        stages[name]["place"] = {"device": "cuda:0", "sm_percent": percent}
    pl = pipeline(stages, links("source.out", "a.in", "a.out", "sink.in"))
    path = fake(p.dir) if mps else "/nonexistent"
    environment = {"PATH": path, "PENSTOCK_CUDA": os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")}
    before = {key: os.environ.get(key) for key in environment}
    os.environ.update(environment)
    try:
        return p.start(pl, grouped=grouped)
    finally:
        for key, value in before.items():
            os.environ.pop(key) if value is None else os.environ.update({key: value})


def share(pid):
    with open(f"/proc/{pid}/environ") as f:
        env = dict(x.split("=", 1) for x in f.read().split("\0") if "=" in x)
    return env.get("CUDA_MPS_PIPE_DIRECTORY"), env.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")


def all_going(run):
    wait_for(lambda: run.process.poll() is not None or len(processes(run)) >= 6)  # with two memory hosts
    return processes(run)


@test
def each_stage_has_its_share():
    if GROUPED:
        raise Skip("all stages are threads under ThreadSanitizer")
    with Place() as p:
        run = start(p)
        found = all_going(run)
        pipes = os.path.join(os.path.realpath(run.run_dir), "mps")
        assert {name: share(pid) for name, pid in found.items() if name in ("source", "a", "sink", "memory-cuda:0")} == {
            "source": (pipes, "30"), "a": (pipes, "20"), "sink": (pipes, None), "memory-cuda:0": (pipes, None)}
        run.process.terminate()
        r = run.wait()
        assert r.code == 143 and r.report["gpus"] == {"sharing": "mps"}, r
        no_leftovers()
        with open(os.path.join(run.run_dir, "logs", "control.log")) as f:
            assert f.read().endswith("quit\n")
        assert not os.path.exists(pipes)


@test
def nothing_is_left_of_it_after_a_kill():
    if GROUPED:
        raise Skip("all stages are threads under ThreadSanitizer")
    with Place() as p:
        for victim in ("a", "supervisor", "memory-cuda:0"):
            run = start(p)
            os.kill(all_going(run)[victim], signal.SIGKILL)
            r = run.wait(20)
            assert r.code == (-9 if victim == "supervisor" else 1), r
            no_leftovers(END_S)
            assert not os.path.exists(os.path.join(run.run_dir, "mps")), victim


@test
def without_it_the_report_says_why():
    with Place() as p:
        for grouped, want in ((GROUPED, {"sharing": "turns", "why": "nvidia-cuda-mps-control is not in PATH"}),
                              (True, {"sharing": "one process"})):
            run = start(p, grouped=grouped, mps=False)
            wait_for(lambda: run.process.poll() is not None or os.path.exists(os.path.join(run.run_dir, "logs", "memory-cpu:0.log")))
            time.sleep(0.3)
            run.process.terminate()
            r = run.wait()
            assert r.code == 143 and (GROUPED or r.report["gpus"] == want), (r, r.report)


@test
def without_it_what_is_left_to_auto_is_one_process():
    os.environ["PENSTOCK_CUDA"] = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
    names, why = ("source", "a", "sink"), "nvidia-cuda-mps-control is not in PATH"
    with Place() as p:
        def run(middle="auto", path="/nonexistent", **grouped):
            stages = {"source": stage("source"), "a": stage("passthrough"), "sink": stage("sink")}
            for name in names:
                stages[name]["place"] = {"device": middle if name == "a" else "auto"}
                stages[name].update({"group": grouped[name]} if name in grouped else {})
            pl = pipeline(stages, links("source.out", "a.in", "a.out", "sink.in"))
            before, os.environ["PATH"] = os.environ["PATH"], path
            try:
                drawn = command("graph", p.write(pl)).stdout
                r = p.run(pl, grouped=False).report
            finally:
                os.environ["PATH"] = before
            assert r["sink"]["batches"] == 100, r
            pids = [r["stages"][name]["pid"] for name in names]
            return [pids.index(pid) for pid in pids], r["gpus"], drawn.count("group cuda:0")

        one = {"sharing": "one process", "why": why}
        assert run() == ([0, 0, 0], one, 3)
        assert run(path=fake(p.dir)) == ([0, 1, 2], {"sharing": "mps"}, 0)
        assert run("cuda:0") == ([0, 1, 0], {"sharing": "turns", "why": why}, 2)  # as the file says
        assert run("cpu:0") == ([0, 1, 0], one, 2)
        assert run("cuda:1") == ([0, 1, 0], one, 2)
        assert run(sink="mine") == ([0, 0, 2], {"sharing": "turns", "why": why}, 2)
        assert run(source="mine", sink="mine", a="mine") == ([0, 0, 0], {"sharing": "one process"}, 0)
        assert run(source="mine", sink="mine") == ([0, 1, 0], {"sharing": "turns", "why": why}, 0)


if __name__ == "__main__":
    main()
