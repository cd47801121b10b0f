"""The look-ahead cache with its lines in a GPU's memory: the bits of runs without it, the hits that `penstock replay`
predicts, and no row that passes the bus twice. On virtual GPUs or real ones (gpus.py)."""
import functools

from crash import has_checkpoint, kill_ends, wait_for
from gpus import *
from harness import *

GIDS, HYPERION = (os.path.join(ROOT, "pipelines", f"{name}.json") for name in ("gids", "hyperion"))
SMALL = ("params.batch=60", "params.fanout=[3,2]", "stages.trainer.params.hidden=8", "stages.disk.params.backend=pread")  # fibers are slow


def settings(*pairs):
    return [word for pair in pairs for word in ("--set", pair)]


def on(**devices):
    return settings(*(f'stages.{name}.place={{"device":"{device}"}}' for name, device in devices.items()))


def cache(*pairs):
    return settings(*(f"stages.cache.params.{pair}" for pair in pairs))


def data(p):
    path = p.path("few")
    if not os.path.exists(path):
        command("gen", "community", path, "--vertices", "600", "--features", "16", "--seed", "3")
    return path


def train(p, pipeline, *args, epochs=1, data_=None, **more):
    return p.run(pipeline, *settings(*SMALL), "--device", "cuda:0", "--epochs", epochs, "--seed", 5, "--quiet", *args, data=data_ or data(p), **more)


def outcome(r):
    return r.report["digest"], r.report["weights_digest"]


def without(p, *args, **more):
    """Without the cache stage: hyperion.json on the same GPU."""
    return outcome(train(p, HYPERION, *settings("stages.planner.params.gpu_cache=0", "stages.planner.params.cpu_cache=0"), *args, **more))


@functools.cache
def plain(epochs=1):
    with Place() as p:
        return without(p, epochs=epochs)


def check_counts(r, gpu="cuda:0"):
    """Each row passes the bus once: in the constant buffer, as a kept row, or as one that the trainer brings."""
    report = r.report
    lines, trainer, found = report["lines"], report["trainer"], report["cache"]
    assert report["stages"]["cache"]["device"] == gpu and lines["memory"] == "gpu", lines
    assert trainer["rows_brought"] + lines["kept"] == lines["misses"] == report["io"]["rows"], (lines, trainer)
    assert trainer["rows_brought"] + trainer["rows_cached"] == found["lookups"] == lines["hits"] + lines["buffer_hits"] + lines["misses"]
    assert found["gpu_hits"] == lines["hits"] > 0, found


def replay(ids, r, policy, window, *more):
    out = command("replay", ids, "--rows", r.report["lines"]["lines"], "--policy", policy, "--window", window, "--seed", 5,
                  "--plan", os.path.join(r.run_dir, "plan", "plan.json"), "--json", *more).stdout
    return json.loads(out)["policies"][0]["hits"]


@test
def policies_give_the_same_bits_and_are_replayed():
    with Place() as p:
        for k, (policy, window) in enumerate((("window", 3), ("lookahead", 8), ("static", 0))):
            ids = p.path(f"ids{k}")
            buffer = settings("stages.planner.params.cpu_cache=4KiB") if k == 1 else []
            r = train(p, GIDS, *settings(f"stages.sampler.params.trace_ids={ids}"), *buffer,
                      *cache(f"policy={policy}", f"window={window}", "cache_bytes=8KiB"))
            lines = r.report["lines"]
            assert outcome(r) == plain(), policy
            assert (lines["buffer_hits"] > 0) == bool(buffer) and (lines["kept"] > 0) == (policy != "static"), lines
            assert replay(ids, r, policy, window, *(["--buffer"] if buffer else [])) == lines["hits"], (policy, lines)
            assert lines["device_bytes"] >= 8192, lines
            check_counts(r)


@test
def split_batches_types_and_both_tiers():
    """Micro-batches with as few slots as can be; rows of several widths, types without rows, and a buffer in both memories."""
    with Place() as p:
        small = settings("params.margin=0.4")
        r = train(p, GIDS, *small, *settings("links[6].slots=1", "links[3].slots=2"), *cache("cache_bytes=8KiB"))
        assert r.report["sampler"]["overflows"] > 0 and outcome(r) == without(p, *small)
        check_counts(r)
        command("gen", "typed", p.path("typed"), "--vertices", 120, "--quiet")
        typed = settings("params.algorithm=typed", 'params.fanout={"*": [2, 2], "reviews": [3, 1]}', "stages.trainer.params.model=rgcn",
                         "stages.trainer.params.layers=2", "params.batch=20")
        tiers = settings("stages.planner.params.gpu_cache=4KiB", "stages.planner.params.cpu_cache=8KiB")
        r = train(p, GIDS, *typed, *tiers, *cache("cache_bytes=40000"), data_=p.path("typed"))
        found, lines = r.report["cache"], r.report["lines"]
        assert outcome(r) == without(p, *typed, data_=p.path("typed"))
        assert 0 < lines["hits"] < found["gpu_hits"] < found["hits"] == lines["hits"] + lines["buffer_hits"], found


@test
def whoever_reads_and_however_slots_change_hands():
    """Rows that kernels read, in one process; and processes that share no events."""
    with Place() as p:
        r = train(p, GIDS, *cache("cache_bytes=8KiB"), *settings("stages.disk.params.backend=emulated"), grouped=True)
        assert outcome(r) == plain() and r.report["stages"]["disk"]["device"] == "cuda:0", r.report["stages"]["disk"]
        check_counts(r)
        if REAL:
            return
        os.environ["PENSTOCK_VIRTUAL_NO_EVENTS"] = "1"
        try:
            assert outcome(train(p, GIDS, *cache("cache_bytes=8KiB"), grouped=False)) == plain()
        finally:
            del os.environ["PENSTOCK_VIRTUAL_NO_EVENTS"]


@test
def places_are_checked():
    """Where the trainer cannot have the slots of cached rows, the cache is on a CPU; or it is refused, if it was placed."""
    def said(what, *args, code=0):
        r = command(what, GIDS, "--device", "cuda:0", *settings(*SMALL), *args, code=code)
        return r.stdout + r.stderr

    unlinked = 'stages.cache: output "cached" is not linked (on a GPU: '
    why = "cache can use a GPU only if its output cached is linked to a stage that shares slots in that GPU's memory"
    with Place() as p:
        text = said("check", *on(cache="cuda:0", trainer="cpu:0"), code=2)
        assert unlinked in text and "but a stage on cuda:0 needs this: " in text and "or place cache on a CPU" in text, text
        assert unlinked in (text := said("check", *on(cache="cuda:0"), *settings("links[6].when=never"), code=2)), text
        text = said("check", *on(cache="cuda:0"), *cache("page_bytes=4096", "policy=lru"), code=2)
        assert "cache cannot run on cuda:0: cache can use a GPU only if page_bytes=0" in text, text
        for place in on(trainer="cpu:0"), on(trainer="cpu:0", cache="auto"):
            assert "on cpu:0" in (text := said("graph", *place)) and why in text, text
        if SECOND == "cuda:0" or REAL:
            return
        assert unlinked in said("check", *on(cache="cuda:0", trainer="cuda:1"), code=2)
        link = settings('links[6]={"from":"cache.cached","to":"trainer.cached"}')
        r = train(p, GIDS, *link, *on(cache="cuda:0", trainer="cuda:1"), code=1)
        assert "the slots of the output cached are in host memory" in r.err and "on two that reach each other" in r.err, r.err
        os.environ["PENSTOCK_VIRTUAL_PEERS"] = "1"
        try:
            r = train(p, GIDS, *on(cache="cuda:1"), *cache("cache_bytes=8KiB"), grouped=False)
        finally:
            del os.environ["PENSTOCK_VIRTUAL_PEERS"]
        assert outcome(r) == plain()
        check_counts(r, "cuda:1")


@test
def a_killed_run_leaves_nothing_and_resumes_to_the_same_bits():
    with Place() as p:
        slow = settings("stages.disk.params.fault_delay_us=3000", "stages.disk.params.depth=8")
        run = p.start(GIDS, *settings(*SMALL), "--device", "cuda:0", "--quiet", *slow, "--epochs", 1000, data=data(p), grouped=False)
        wait_for(lambda: has_checkpoint(run.run_dir))
        kill_ends(run, "cache", 0)
        first = train(p, GIDS, *cache("cache_bytes=8KiB", "policy=s3fifo"))
        r = train(p, GIDS, "--resume", first.run_dir, *cache("cache_bytes=4KiB", "policy=lookahead"), epochs=2)
        assert outcome(r) == plain(2)


if __name__ == "__main__":
    main()
