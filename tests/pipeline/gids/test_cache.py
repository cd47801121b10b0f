"""The stage `cache`: equal weights whatever it keeps, the hits that `penstock replay` predicts, kills, and what is refused."""
import signal
import time

from harness import *

GIDS = os.path.join(ROOT, "pipelines", "gids.json")
HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
EPOCHS, BATCH, SEED = 2, 64, 5
POLICIES = ("random", "window", "sieve", "s3fifo", "static", "lookahead", "lru")


def sets(*pairs):
    return [word for pair in pairs for word in ("--set", pair)]


def train(p, *pairs, pipeline=GIDS, extra=(), **more):
    return p.run(pipeline, "--epochs", EPOCHS, "--seed", SEED, "--quiet", *extra, *sets(f"params.batch={BATCH}", *pairs), **more)


def cache(*pairs):
    return [f"stages.cache.params.{pair}" for pair in pairs]


def outcome(r):
    return r.report["digest"], r.report["weights_digest"]


def replay(ids, r, policy, window, *more):
    lines = r.report["lines"]
    out = command("replay", ids, "--rows", lines["lines"], "--policy", policy, "--window", window, "--seed", SEED,
                  "--plan", os.path.join(r.run_dir, "plan", "plan.json"), "--json", *more).stdout
    return json.loads(out)["policies"][0]["hits"]


@test
def every_policy_trains_to_the_same_weights_and_is_replayed():
    """Two samplers write one trace; the order of their records does not matter."""
    with Place() as p:
        want = outcome(train(p, pipeline=HYPERION))
        for k, policy in enumerate(POLICIES):
            window, ids = (0, 3, 8)[k % 3], p.path(f"ids{k}")
            samplers = 1 + k % 2
            r = train(p, f"stages.sampler.params.trace_ids={ids}", f"stages.sampler.instances={samplers}",
                      f"links[2].slots={window + 1 + k}", f"links[3].slots={2 + k % 3}",
                      *cache(f"policy={policy}", f"window={window}", "cache_bytes=200000"))
            lines = r.report["lines"]
            assert outcome(r) == want, policy
            assert 0 < lines["hits"] < lines["hits"] + lines["misses"] == r.report["cache"]["lookups"], lines
            assert replay(ids, r, policy, window) == lines["hits"], (policy, lines)
            assert lines["misses"] == r.report["io"]["rows"] and lines["policy"] == policy, r.report["io"]


@test
def the_constant_buffer_comes_first():
    with Place() as p:
        want, ids = outcome(train(p, pipeline=HYPERION)), p.path("ids")
        r = train(p, f"stages.sampler.params.trace_ids={ids}", "stages.planner.params.cpu_cache_percent=10",
                  "stages.planner.params.hotness=pagerank", *cache("policy=lookahead", "cache_bytes=100000"))
        lines = r.report["lines"]
        assert outcome(r) == want and lines["buffer_hits"] > 0 and lines["hits"] > 0, lines
        assert replay(ids, r, "lookahead", 8, "--buffer") == lines["hits"], lines


@test
def types_and_weights_pass_through():
    """Rows of several widths, edges with relations and edges with weights: the same as without this stage."""
    with Place() as p:
        command("gen", "typed", p.path("typed"), "--vertices", 900, "--quiet")
        typed = "params.algorithm=typed", 'params.fanout={"*": [5, 5], "reviews": [8, 2]}', "stages.trainer.params.model=rgcn", "stages.trainer.params.layers=2"
        for data, sampled in (p.path("typed"), typed), (p.data, ("params.algorithm=ladies", "params.options=layer_sizes=128:128")):
            want = train(p, *sampled, pipeline=HYPERION, data=data)
            for more in cache("policy=lookahead", "cache_bytes=100000"), [*cache("policy=window", "cache_bytes=60000"), "stages.planner.params.cpu_cache=100000"]:
                r = train(p, *sampled, *more, data=data)
                assert outcome(r) == outcome(want), (sampled, more)
                assert 0 < r.report["lines"]["hits"] and r.report["io"]["rows"] < r.report["cache"]["lookups"], r.report["lines"]
        r = train(p, *typed, *cache("policy=lru", "page_bytes=4096"), data=p.path("typed"), code=None)
        assert r.code != 0 and "page_bytes is 4096, but the vertices of the dataset" in r.err, r.err


@test
def no_lines_and_lines_for_all():
    with Place() as p:
        want = outcome(train(p, pipeline=HYPERION))
        none = train(p, *cache("cache_bytes=0"))
        everything = train(p, *cache("cache_bytes=1GiB"))
        assert outcome(none) == outcome(everything) == want
        assert none.report["lines"]["hits"] == 0 and none.report["lines"]["kept"] == 0
        assert everything.report["lines"]["misses"] <= 2000  # each vertex is read once


@test
def split_batches_are_cached_and_replayed():
    with Place() as p:
        ids = p.path("ids")
        r = train(p, f"stages.sampler.params.trace_ids={ids}", "params.margin=0.4", *cache("cache_bytes=200000", "window=4"))
        same = train(p, "params.margin=0.4", *cache("cache_bytes=50000", "policy=s3fifo"))
        assert r.report["sampler"]["micro_batches"] > r.report["sampler"]["batches"], r.report["sampler"]
        assert outcome(r) == outcome(same)
        assert replay(ids, r, "window", 4) == r.report["lines"]["hits"]


@test
def the_window_is_ids():
    """W = 16 takes 17 slots, and a slot takes ids, labels and blocks of the plan's largest batch, times the margin."""
    with Place() as p:
        r = train(p, "params.margin=1", "links[2].slots=17", *cache("window=16"))
        lines = r.report["lines"]
        with open(os.path.join(r.run_dir, "plan", "plan.json")) as f:
            most = json.load(f)["max"]
        n, edges = most["vertices"], most["edges"]
        n[0] = BATCH
        arrays = 8 * n[-1] + 4 * n[0] + sum(4 * (n[h] + 1 + edges[h]) for h in range(len(edges)))
        assert lines["samples_held"] == lines["sample_slots"] == 17, lines
        assert lines["window_bytes"] <= 17 * (arrays + 3 * 4096), (lines, arrays)
        assert lines["sample_bytes"] < r.report["sampler"]["slot_bytes"] + 1


@test
def other_places_and_one_process():
    with Place() as p:
        want = outcome(train(p, pipeline=HYPERION))
        assert outcome(train(p, 'stages.disk.place={"device": "cpu:1"}', *cache("cache_bytes=200000"))) == want
        assert outcome(train(p, *cache("cache_bytes=200000"), extra=("--group", "all"))) == want
        assert outcome(train(p, "stages.disk.instances=2", *cache("cache_bytes=200000"))) == want


@test
def killed_and_resumed():
    with Place() as p:
        want = outcome(train(p, pipeline=HYPERION))
        slow = sets("stages.disk.params.fault_delay_us=2000", f"params.batch={BATCH}", "stages.disk.params.depth=8", *cache("cache_bytes=200000"))
        running = p.start(GIDS, "--epochs", EPOCHS, "--seed", SEED, "--quiet", *slow)
        checkpoints = os.path.join(running.run_dir, "checkpoints")
        until = time.time() + 50
        while not (os.path.isdir(checkpoints) and any(name.endswith(".safetensors") for name in os.listdir(checkpoints))):
            assert time.time() < until and running.process.poll() is None, running.logs()
            time.sleep(0.01)
        running.process.send_signal(signal.SIGKILL)
        running.wait()
        no_leftovers()
        r = p.run(GIDS, "--resume", running.run_dir, "--epochs", EPOCHS, "--seed", SEED, "--quiet",
                  *sets(f"params.batch={BATCH}", *cache("policy=lookahead", "cache_bytes=100000")))
        assert outcome(r) == want


@test
def bad_settings_are_told():
    with Place() as p:
        for pairs, words in (((*cache("window=9"),), "9 slots can deadlock"),
                             (("stages.sampler.params.margin=2",), "they must be equal"),
                             (("overlap=false",), "overlap is false"),
                             (cache("policy=newest"), "newest"),
                             (cache("window=4096"), "window")):
            r = train(p, *pairs, code=2)
            assert words in r.err, (words, r.err)
        both = {"from": "sampler.batch", "to": "discard.in"}
        with open(GIDS) as f:
            pl = json.load(f)
        pl["stages"]["discard"] = {"run": "discard"}
        pl["links"].append(both)
        r = p.run(pl, "--quiet", code=1)
        assert "link either the output batch" in r.err, r.err


@test
def replay_refuses_what_it_cannot_use():
    with Place() as p:
        text = p.write("this is not a trace", "text")
        for args, words in (((text, "--rows", 5), "no record begins here"), ((p.path("none"), "--rows", 5), "cannot read"),
                            ((text,), "expected exactly one of the options --rows and --batches"), ((text, "--rows", 5, "--policy", "mru"), "unknown policy"),
                            ((text, "--rows", 5, "--policy", "static"), "requires --plan"), ((text, "--rows", 5, "--window", 64), "--window")):
            r = command("replay", *args, code=None)
            assert r.returncode in (1, 2) and words in r.stderr, (args, r.stderr)


if __name__ == "__main__":
    main()
