"""What the tests of replicas share: a small run of pipelines/replicas.json with any number of replicas."""
from crash import *

REPLICAS = os.path.join(ROOT, "pipelines", "replicas.json")
EPOCHS = 2
SEEDS = 800  # of the small dataset's training split


def settings(replicas, device="cpu", planner=True):
    places = json.dumps([f"{device}:{i}" for i in range(replicas)])
    return ["--set", f"replicas.places={places}", "--set", "params.batch=265", "--set", "params.threads=1",
            *(("--set", "stages.planner.params.cpu_cache=64KiB") if planner else ()), "--epochs", EPOCHS, "--quiet"]


def start(p, replicas, *args, **more):
    return p.start(REPLICAS, *settings(replicas), *args, **more)


def replicated(p, replicas, *args, **more):
    return p.run(REPLICAS, *settings(replicas), *args, **more)


def trained(p, replicas, *args, **more):
    """Digests of a run's samples and weights."""
    return outcome(replicated(p, replicas, *args, **more).report)


def end_by_kill(run, pid, name, limit_s):
    """Kills a process of a run: all others must end within limit_s. Returns how the run ended."""
    begin = time.time()
    os.kill(pid, signal.SIGKILL)
    ended = run.wait(60)
    took = time.time() - begin
    assert took < limit_s, f"{name}: the run took {took:.1f} s to end\n{ended}"
    assert ended.code != 0, ended
    return ended


def strike(p, replicas, name, *args):
    """Kills a process of a run in the middle of its work: all others end within END_S, and nothing is left."""
    run = start(p, replicas, *ENDLESS, *args)
    wait_for(lambda: has_checkpoint(run.run_dir))
    ended = end_by_kill(run, processes(run)[name], name, END_S)
    if name != "supervisor":
        assert f"error: {name}: died of signal 9 (Killed)" in ended.err, ended
    wait_for(lambda: not leftovers(), 2)
