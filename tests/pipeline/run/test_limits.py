"""What a run inherits from its parent, what it may use, and what happens at the limit."""
import ctypes
import resource
import signal

import cgroup
from crash import HYPERION, processes, wait_for
from harness import *


def chain(**sink):
    return pipeline({"source": stage("source", batches=20), "sink": stage("sink", **sink)}, links("source.out", "sink.in"))


def run_with(p, before, *args, pl=None, timeout=60, **more):
    """A run whose process calls before() before it begins."""
    p.count += 1
    run_dir = p.path(f"run{p.count}")
    os.makedirs(os.path.dirname(run_dir), exist_ok=True)
    argv = [PENSTOCK, "run", pl or p.write(chain()), "--dataset", p.data, "--run-dir", run_dir, *map(str, args)]
    argv += ["--group", "all"] if GROUPED else []
    return Running(argv, run_dir, preexec_fn=before, **more).wait(timeout)


@test
def a_parent_that_ignores_its_children():
    with Place() as p:
        p.data
        r = run_with(p, lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN), "--epochs", 1, pl=HYPERION)
        assert r.code == 0 and r.report["status"] == "ok" and r.seconds < 10 * (5 if SAN else 1), r


@test
def too_few_open_files():
    if SAN:
        raise Skip("sanitizers open files of their own")
    with Place() as p:
        p.data
        r = run_with(p, lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32)))
        assert r.code == 1 and "open files, but only 32 are allowed: raise the limit (ulimit -n)" in r.err, r
        # a soft limit is raised
        assert run_with(p, lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (32, 4096))).code == 0


@test
def small_stacks():
    """A soft limit is raised, in every process and thread; a hard limit is told."""
    if SAN:
        raise Skip("sanitizers need large stacks")
    with Place() as p:
        edges = p.write("0,1\n1,2\n", "edges.csv")
        for soft, hard in ((128 << 10, -1), (128 << 10, 2 << 20)):
            limit = lambda: resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))
            r = run_with(p, limit, "--epochs", 1, pl=HYPERION)
            assert r.code == 0, r
            for args in (("inspect", p.data), ("import", "csv", edges, p.path(f"copy{hard}")), ("infer", r.run_dir, "--out", p.path(f"e{hard}.npy"))):
                done = subprocess.run([PENSTOCK, *args], preexec_fn=limit, capture_output=True, text=True)
                assert done.returncode == 0, (args, done)
        limit = lambda: resource.setrlimit(resource.RLIMIT_STACK, (128 << 10, 128 << 10))
        done = subprocess.run([PENSTOCK, "run", HYPERION], preexec_fn=limit, capture_output=True, text=True)
        assert done.returncode == 2, done
        assert done.stderr == "penstock run: the stack limit is 128 KiB, but Penstock needs 1024 KiB: raise the limit (ulimit -s)\n", done


@test
def too_little_locked_memory():
    """Emulated drives read files with io_uring, which takes locked memory."""
    if os.geteuid() != 0:
        raise Skip("only root can give up the right to lock any amount of memory")

    def none():
        CAP_IPC_LOCK, PR_CAPBSET_DROP = 14, 24
        assert ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0) == 0
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (4096, 4096))

    with Place() as p:
        p.data
        drives = ("--set", "stages.disk.params.backend=emulated", "--set", "stages.disk.params.ssds=3")
        r = run_with(p, none, "--epochs", 1, *drives, pl=HYPERION)
        assert r.code in (0, 1), r  # old kernels lock nothing
        assert r.code == 0 or "expected more locked memory (ulimit -l)" in r.err, r


@test
def too_few_threads():
    if SAN:
        raise Skip("sanitizers start threads of their own")
    if os.geteuid() != 0:
        raise Skip("only root can become another user, whose processes are few")
    if not reached_by_others(PENSTOCK):
        raise Skip("a folder above the clone is closed to other users")
    other = 60000 + os.getpid() % 5000  # a user of this test alone: the limit counts all processes of a user
    with Place() as p:
        shutil.copytree(p.data, p.path("theirs"))
        subprocess.run(["chown", "-R", str(other), p.dir], check=True)
        for allowed in (1, 2, 4, 6, 9):
            def become():
                resource.setrlimit(resource.RLIMIT_NPROC, (allowed, allowed))
                os.setgroups([]), os.setgid(other), os.setuid(other)
            r = run_with(p, become, timeout=30)
            assert r.code in (1, 2) and "ulimit -u" in r.err and "Resource temporarily unavailable" in r.err and "signal 6" not in r.err + r.out, f"{allowed}: {r}"


@test
def a_limit_on_file_sizes():
    if SAN:
        raise Skip("sanitizers write larger files")
    with Place() as p:
        p.data
        r = run_with(p, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)), "--epochs", 1, "--set",
                     "stages.planner.params.cpu_cache=16MiB", pl=HYPERION)
        assert r.code == 1 and "File too large (the limit on file sizes: ulimit -f)" in r.err, r


@test
def memory_of_a_cgroup():
    try:
        with Place() as p, cgroup.memory_limit(300 << 20) as group:
            p.data
            pl = p.write(pipeline({"source": stage("source", batches=20, bytes="32MiB"), "sink": stage("sink")},
                                  links("source.out", "sink.in", slots=16)))
            r = run_with(p, group.enter, pl=pl)
            assert r.code == 1 and "the slots need 0.50 GiB, but this run may use only 0.29 GiB (the machine's memory, or the limit of" in r.err, r
            assert "source.out: 16 slots of 32.0 MiB, as stage source requested" in r.err and group.kills() == 0, r
    except cgroup.Unavailable as why:
        raise Skip(str(why))


@test
def caches_leave_memory_for_evaluation():
    """An automatic cache takes what is free, and all activations of the graph would need more than the cgroup has."""
    if SAN:
        raise Skip("a sanitizer needs more memory")
    try:
        with Place() as p, cgroup.memory_limit(256 << 20) as group:
            command("gen", "community", p.path("data"), "--vertices", "150000", "--features", "512", "--degree", "4", "--train", "0.02")
            params = ("params.batch=128", "params.fanout=[2,2]", "stages.trainer.params.hidden=256", "stages.planner.params.cpu_cache=auto")
            r = run_with(p, group.enter, "--epochs", 1, *[word for pair in params for word in ("--set", pair)], pl=HYPERION)
            assert r.code == 0 and group.kills() == 0, r
            assert 0 < r.report["planner"]["cached_rows"] < 150000 and r.report["epochs"][0]["val_accuracy"] > 0, r.report
    except cgroup.Unavailable as why:
        raise Skip(str(why))


@test
def the_memory_host_is_ended_first():
    with Place() as p:
        run = p.start(chain(delay_us=100_000), grouped=False)
        wait_for(lambda: "sink" in processes(run) and os.path.exists(os.path.join(run.run_dir, "live.json")))
        with open(f"/proc/{processes(run)['memory-cpu:0']}/oom_score_adj") as f:
            assert f.read().strip() == "1000"
        os.kill(processes(run)["memory-cpu:0"], signal.SIGKILL)
        r = run.wait()
        assert "unless somebody killed it, memory ran out: use fewer slots or smaller" in r.err, r


@test
def a_file_system_without_locks():
    """Lustre without -o flock, some NFS: flock fails, and no run is going there."""
    if SAN:
        raise Skip("a preloaded object would come before the sanitizer")
    with Place() as p:
        shim = p.path("noflock.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-xc", "-", "-o", shim], check=True, text=True,
                       input="#include <errno.h>\nint flock(int fd, int how) { (void)fd; (void)how; errno = ENOSYS; return -1; }\n")
        p.data
        r = run_with(p, None, env={**os.environ, "LD_PRELOAD": shim})
        assert r.code in (1, 2) and "still active" not in r.err and "Function not implemented" in r.err, r
        assert "choose a --run-dir on a file system that supports flock" in r.err, r


@test
def paths_that_are_not_utf8():
    with Place() as p:
        place = p.dir.encode() + b"/caf\xe9"
        os.mkdir(place)
        shutil.copy(HYPERION.encode(), place)
        for file, run_dir, what in ((place + b"/hyperion.json", p.path("r1"), "the pipeline's directory"),
                                    (HYPERION, place + b"/run", "the run directory")):
            r = subprocess.run([PENSTOCK, "run", file, "--dataset", p.data, "--epochs", "1", "--run-dir", run_dir],
                               capture_output=True)
            assert r.returncode != 0 and f"the path of {what} is not valid UTF-8".encode() in r.stderr, r
            assert b"caf\xe9" not in r.stderr.split(b"error:")[1] and b"expected" not in r.stderr, r


@test
def a_trace_that_cannot_be_written():
    """It must not hide why the stage failed; and a run that went well says that its trace is not whole."""
    with Place() as p:
        for sink, code, words in (({"factor": 7}, 1, "error: sink: batch 0"), ({}, 0, "")):
            run = p.start(chain(**sink), "--trace", p.path("t.json"))
            wait_for(lambda: os.path.isdir(os.path.join(run.run_dir, "trace")))
            os.mkdir(os.path.join(run.run_dir, "trace", "sink.json"))  # before the stages run
            r = run.wait()
            assert r.code == code and words in r.err and "error: sink: cannot write the trace" not in r.err, r
            assert "warning: sink: cannot write the trace" in r.err, r


if __name__ == "__main__":
    main()
