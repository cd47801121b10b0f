"""The pipeline mariusgnn.json: batches stay within the partitions that the buffer holds, and how they are made changes no bit."""
import struct

from harness import *

MARIUSGNN = os.path.join(ROOT, "pipelines", "mariusgnn.json")
EPOCHS, BATCH, SEED, VERTICES = 2, 64, 5, 2000
PARTITIONS, BUFFER, STATES = 8, 3, 15
OPTIONS = f"partitions={PARTITIONS}, buffer={BUFFER}, assign=id"  # partition of vertex v: v // 250


def train(p, *pairs, options=OPTIONS, pipeline=MARIUSGNN, more=(), epochs=EPOCHS, **rest):
    pairs = (f"params.batch={BATCH}", "params.algorithm=buffered", f'params.options="{options}"', *pairs)
    words = [word for pair in pairs for word in ("--set", pair)]
    return p.run(pipeline, "--epochs", epochs, "--seed", SEED, "--quiet", *words, *more, **rest)


def outcome(r):
    return r.report["digest"], r.report["weights_digest"]


def batches(file):
    """The vertices of each batch: {number: ids}."""
    found, at = {}, 0
    with open(file, "rb") as f:
        data = f.read()
    while at < len(data):
        _, batch, _, _, n = struct.unpack_from("=QQIIQ", data, at)
        found[batch] = struct.unpack_from(f"={n}q", data, at + 32)
        at += 32 + 8 * n
    return found


@test
def batches_stay_within_the_buffer():
    """Seeds and all that is drawn for them; and a partition leaves only when another comes."""
    with Place() as p:
        ids = p.path("ids")
        report = train(p, f"stages.sampler.params.trace_ids={ids}").report
        buffer, found = report["partition_buffer"], batches(ids)
        assert buffer == {"partitions": PARTITIONS, "buffer": BUFFER, "states": STATES, "batches": len(found) // EPOCHS,
                          "loads": STATES - 1 + BUFFER, "partition_bytes": VERTICES // PARTITIONS * 512}, buffer
        touched = [frozenset(v // (VERTICES // PARTITIONS) for v in found[b]) for b in sorted(found)]
        assert all(1 <= len(t) <= BUFFER for t in touched), touched
        assert max(len(t) for t in touched) == BUFFER and len(set().union(*touched)) == PARTITIONS
        for epoch in range(EPOCHS):  # runs of batches that fit one buffer: no more than there are states
            states, held = 1, frozenset()
            for t in touched[epoch * buffer["batches"]:(epoch + 1) * buffer["batches"]]:
                states, held = (states, held | t) if len(held | t) <= BUFFER else (states + 1, t)
            assert states <= STATES, (epoch, states)
        assert touched[:buffer["batches"]] != touched[buffer["batches"]:], "both epochs have the same sequence"
        uniform = train(p, f"stages.sampler.params.trace_ids={ids}", options=f"partitions={PARTITIONS}, buffer={PARTITIONS}, assign=id")
        assert max(len({v // 250 for v in b}) for b in batches(ids).values()) == PARTITIONS, "the check above could not fail"
        assert uniform.report["partition_buffer"]["states"] == 1


@test
def any_arrangement_gives_the_same_bits():
    with Place() as p:
        base = train(p)
        want = outcome(base)
        assert base.report["lines"]["hits"] > 0 and base.report["status"] == "ok", base.report["lines"]
        assert outcome(train(p, more=("--group", "all"))) == want
        assert outcome(train(p, "stages.sampler.instances=2", "stages.cache.params.cache_bytes=100000")) == want
        assert outcome(train(p, pipeline=os.path.join(ROOT, "pipelines", "hyperion.json"))) == want, "another pipeline, with a plan's cache"
        half = train(p, epochs=1)
        assert outcome(train(p, more=("--resume", half.run_dir)))[1] == want[1], "the second epoch has its own states"
        os.environ["PENSTOCK_CUDA"] = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
        try:
            assert outcome(train(p, 'stages.sampler.place={"device": "cuda:0"}')) == want
        finally:
            os.environ.pop("PENSTOCK_CUDA")


@test
def mistakes_are_told():
    with Place() as p:
        for options, pairs, words in (("partitions=8, buffer=2, order=training", (), "set buffer to"),
                                      ("partitions=100, buffer=2", (), "seeds are too few"),
                                      ("order=sorted", (), "training|beta|hilbert")):
            r = train(p, *pairs, options=options, code=1)
            assert words in r.err, (words, r.err)
        r = train(p, "params.topology=ssd", code=2)
        assert "topology can be ssd only if algorithm=uniform" in r.err, r.err


if __name__ == "__main__":
    main()
