"""The long proof that nothing breaks a run: 100 kills, 500 runs in a row. tests/pipeline/crash.py has the means."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipeline"))
from crash import *

SEED = 3
KILLS = 100
RUNS = 500
SAMPLES = 20  # of the machine's figures: others use it too, so the least is taken


def figures():
    """What the whole machine has in use: open files, shared memory in KiB, and entries of /dev/shm."""
    files, shared = [], []
    for _ in range(SAMPLES):
        with open("/proc/sys/fs/file-nr") as f:
            files.append(int(f.read().split()[0]))
        with open("/proc/meminfo") as f:
            shared += [int(line.split()[1]) for line in f if line.startswith("Shmem:")]
        time.sleep(0.1)
    return min(files), min(shared), len(os.listdir("/dev/shm"))


@test
def a_hundred_kills():
    storm(KILLS, SEED)


def one_of_many(p, rng, i):
    """Finished, killed or interrupted; in a directory that the run names itself. Returns how it ended."""
    argv = [PENSTOCK, "run", HYPERION, "--dataset", p.data, *map(str, SMALL), "--epochs", "1"]
    argv += ["--group", "all"] if GROUPED else []
    run = Running(argv, p.path("none"), cwd=p.dir)
    if i % 3 == 0:
        r = run.wait()
        assert r.code == 0, r
        return "finished"
    time.sleep(rng.random() * 0.2)
    if i % 3 == 1:
        name, pid = rng.choice(sorted(processes(run).items()))
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        r = run.wait()
        assert r.code in (0, 1, -9), r
        return "finished" if r.code == 0 else "killed"
    run.process.send_signal((signal.SIGINT, signal.SIGTERM)[i % 2])
    r = run.wait()
    assert r.code in (0, 130, 143, -2, -15), r
    return "finished" if r.code == 0 else "interrupted"


@test
def five_hundred_runs_in_a_row():
    rng, ends = random.Random(SEED), {}
    with Place() as p:
        one_of_many(p, rng, 0)
        before, t0 = figures(), time.time()
        for i in range(RUNS):
            end = one_of_many(p, rng, i)
            ends[end] = ends.get(end, 0) + 1
        seconds = time.time() - t0
        no_leftovers()
        after = figures()
        runs = os.path.join(p.dir, "runs")
        made = len(os.listdir(runs))
        command("gc", cwd=p.dir)
        kept = os.listdir(runs)
        for name in kept:
            path = os.path.join(runs, name)
            assert has_checkpoint(path) or os.path.exists(os.path.join(path, "report.json")), path
            assert half_files(path) == [], half_files(path)
        assert "nothing to remove" in command("gc", cwd=p.dir).stdout
    print(f"# {RUNS} runs in {seconds:.0f} s: {ends}; {made} directories, {made - len(kept)} of them removed by gc")
    print(f"# before and after: open files {before[0]}, {after[0]}; shared memory {before[1]}, {after[1]} KiB; "
          f"/dev/shm {before[2]}, {after[2]} entries", flush=True)
    assert after[0] - before[0] < RUNS / 2, "open files grow"
    assert after[1] - before[1] < 16 * 1024, "shared memory grows"
    assert after[2] <= before[2], "/dev/shm grows"


if __name__ == "__main__":
    main()
