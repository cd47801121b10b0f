"""The baselines of GIDS: the model of a memory mapping, and Ginex's super-batches. Their counts are those of `penstock replay`,
and their weights those of every other pipeline."""
from harness import *

PIPELINES = {name: os.path.join(ROOT, "pipelines", name + ".json") for name in ("hyperion", "mmap", "ginex")}
EPOCHS, BATCH, SEED = 2, 64, 5


def train(p, name, *pairs, **more):
    pairs = (f"params.batch={BATCH}", *(("stages.disk.params.preset=none",) if name == "mmap" else ()), *pairs)
    words = [word for pair in pairs for word in ("--set", pair)]
    return p.run(PIPELINES[name], "--epochs", EPOCHS, "--seed", SEED, "--quiet", *words, **more)


def cache(*pairs):
    return [f"stages.cache.params.{pair}" for pair in pairs]


def outcome(r):
    return r.report["digest"], r.report["weights_digest"]


def replay(ids, lines, policy, *more):
    out = command("replay", ids, "--rows", lines, "--policy", policy, "--seed", SEED, "--json", *more).stdout
    found = json.loads(out)
    return found["ids"], found["policies"][0]


@test
def a_mapping_faults_as_an_lru_of_pages():
    """Rows of 512 bytes, eight on a page: every fault reads a page by a command of its own. Also: a page cache that holds less than a
    batch, split batches, and rows of two pages."""
    with Place() as p:
        want, ids = outcome(train(p, "hyperion")), p.path("ids")
        for size, micro in ((600_000, ()), (100_000, ()), (300_000, ("params.margin=0.5",))):
            r = train(p, "mmap", f"stages.sampler.params.trace_ids={ids}", *cache(f"cache_bytes={size}"), *micro)
            mapping, io = r.report["mapping"], r.report["io"]
            assert (micro or outcome(r) == want) and mapping["line_rows"] == 8, mapping
            touched, found = replay(ids, mapping["lines"], "lru", "--page-rows", 8)
            assert mapping["lines"] == size // 4096 and mapping["touched"] == touched, (mapping, touched)
            assert 0 < mapping["faults"] == found["misses"] < touched and mapping["evictions"] == found["evictions"] > 0, (mapping, found)
            assert io["requests"] == mapping["faults"] and io["bytes"] == 4096 * mapping["faults"], io
            lines = r.report["lines"]
            assert lines["hits"] + lines["misses"] == r.report["cache"]["lookups"], lines
        wide = p.path("wide")
        command("gen", "community", wide, "--vertices", "1000", "--seed", "3", "--features", "2048")
        r = train(p, "mmap", f"stages.sampler.params.trace_ids={ids}", *cache("cache_bytes=2000000"), data=wide)
        mapping, found = r.report["mapping"], replay(ids, 2000000 // 8192, "lru")[1]
        assert mapping["line_rows"] == 1 and mapping["faults"] == 2 * found["misses"] > 0, (mapping, found)
        assert outcome(r) == outcome(train(p, "hyperion", data=wide))


@test
def more_threads_fault_at_once():
    with Place() as p:
        held = {}
        for lanes in (1, 8):
            r = train(p, "mmap", "params.fanout=[3,2]", f"stages.disk.params.lanes={lanes}", "stages.disk.params.preset=optane",
                      "stages.disk.params.dilate=4", *cache("cache_bytes=100000"))
            held[lanes] = r.report["io"]["lane_s"] / r.report["io"]["active_s"]
        assert 0 < held[1] <= 1.1 and 3 < held[8] <= 8.8, held


@test
def super_batches_are_gathered_by_belady():
    """Epochs have 13 batches of 64 seeds, so super-batches of 5 end with one of 3."""
    with Place() as p:
        want, ids = outcome(train(p, "hyperion")), p.path("ids")
        for window, count, largest in ((4, 6, 5), (0, 26, 1), (31, 2, 13)):
            r = train(p, "ginex", f"stages.sampler.params.trace_ids={ids}", f"links[2].slots={max(2, window + 1)}",
                      *cache(f"window={window}", "cache_bytes=200000"))
            lines, parts = r.report["lines"], r.report["super_batches"]
            assert outcome(r) == want and lines["policy"] == "belady", lines
            assert parts["count"] == count and parts["largest"] == largest, parts
            found = replay(ids, lines["lines"], "belady", "--super-batch", window + 1, "--epoch", 13)[1]
            assert lines["hits"] == found["hits"] and lines["misses"] == found["misses"] == r.report["io"]["rows"], (lines, found)
            assert (lines["hits"] > 0) == (window > 0) and lines["hits"] <= replay(ids, lines["lines"], "belady")[1]["hits"]
            assert parts["sample_s"] > 0 and parts["inspect_s"] > 0 and parts["gather_s"] > 0, parts
            assert sum(parts[key] for key in ("sample_s", "inspect_s", "gather_s")) < r.report["phases"]["total_s"], parts
            assert r.report["trainer"]["train_s"] > 0


@test
def super_batches_split_and_with_a_buffer():
    with Place() as p:
        ids = p.path("ids")
        r = train(p, "ginex", f"stages.sampler.params.trace_ids={ids}", "params.margin=0.4", "links[2].slots=6",
                  "stages.planner.params.cpu_cache_percent=10", *cache("window=5", "cache_bytes=200000"))
        lines = r.report["lines"]
        assert r.report["sampler"]["micro_batches"] > r.report["sampler"]["batches"] and lines["buffer_hits"] > 0
        found = replay(ids, lines["lines"], "belady", "--super-batch", 6, "--epoch", 13, "--buffer",
                       "--plan", os.path.join(r.run_dir, "plan", "plan.json"))[1]
        assert lines["hits"] == found["hits"] > 0, (lines, found)


@test
def a_super_batch_is_sampled_before_it_is_gathered():
    """Its samples stay until its rows are there, so more slots let the sampler go on meanwhile, and nothing else changes."""
    with Place() as p:
        few, many = (train(p, "ginex", f"links[2].slots={slots}", *cache("window=5", "cache_bytes=200000")) for slots in (6, 12))
        assert outcome(few) == outcome(many) and few.report["lines"]["hits"] == many.report["lines"]["hits"]
        assert few.report["lines"]["samples_held"] == 6 < many.report["lines"]["samples_held"] <= 12


@test
def mistakes_are_told():
    with Place() as p:
        for name, pairs, words, code in (("ginex", cache("window=40"), "32 slots can deadlock", 2), ("ginex", cache("window=4096"), "window", 2),
                                         ("ginex", (*cache("window=64", "policy=window"), "links[2].slots=65"), "expected at most 63", 1),
                                         ("mmap", cache("page_bytes=5000"), "page_bytes is 5000", 1),
                                         ("mmap", cache("policy=static"), "policy static keeps rows", 1)):
            r = train(p, name, *pairs, code=code)
            assert words in r.err, (words, r.err)


if __name__ == "__main__":
    main()
