"""Foreign programs that break the protocol: each is told, by name and at once, and nobody waits for ever."""
import re
from concurrent.futures import ThreadPoolExecutor

from harness import *

BATCHES = 20
WAYS = {  # how, at batch 7: what the error says
    "batch+1000": "sent an invalid frame for batch 1007, micro-batch 0: slot",
    "batch-max": "sent an invalid frame for batch 18446744073709551615, micro-batch 0: slot",
    "micro": "sent an invalid frame for batch 7, micro-batch 9: slot",
    "part": "sent an invalid frame for batch 7, micro-batch 0: the frame has part 9 of the micro-batch; expected part 1",
    "flags-0": "flag 1 (last part) is missing, although the batch has no further part",
    "flags-1": "flag 2 (last micro-batch) is 0; expected 1, as in the received frame",
    "flags-2": "flags are 2; expected 0, 1 (last part) or 3 (last part",
    "flags-4": "flags are 7; expected 0, 1 (last part) or 3 (last part",
    "twice": "sent an invalid frame for batch 7, micro-batch 0",
    "empty": "the frame has no slots, but the program still holds slots of",
    "other-slot": "was not received with this batch",
    "release-only": "released the slots of batch 7, micro-batch 0, but has not sent the batch through out",
    "release-done": "sent \"done\", but has not sent on batch 19",
    "early-done": "sent \"done\", but input in has not ended",
    "done-held": "sent \"done\", but has not released all slots of batch 19",
    "closes": "closed its socket before it sent \"done\"",
    "reopens": "closed its socket before it sent \"done\"",
    "before-start": "sent \"done\" before \"start\"",
    "needs-5": 'sent "sized" without the array "needs"',
    "needs-text": 'sent "sized", but needs[0] lacks "port" (the name of a port) or',
    "needs-align": "sent \"sized\", but needs[0].align is wrong: expected a power of two",
    "total-early": 'sent a "total" without a "port" (an output that fills slots)',
    "total-text": 'sent a "total" without a "port" (an output that fills slots)',
    "patience-text": 'sent "patience" without "seconds" (a number from 0 to 100)',
    "patience-long": 'sent "patience" without "seconds" (a number from 0 to 100)',
    "report-nothing": 'sent a report without a "section"',
    "report-stages": 'the stage reported the section "stages", whose name is reserved for the runtime',
    "report-status": 'the stage reported the section "failures", whose name is reserved for the runtime',
}


def chain(way, **source):
    return pipeline({"source": stage("source", batches=BATCHES, micros=2, parts=2, **source), "rogue": stage("rogue", way=way),
                     "sink": stage("sink")}, links("source.out", "rogue.in", "rogue.out", "sink.in"))


def all_at_once(job, items):
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(job, *item) for item in items]:
            done.result()


@test
def each_way_is_told():
    with Place() as p:
        p.data

        def try_it(way, words):
            with Place() as own:
                r = own.run(chain(way), code=1, foreign=True, timeout=14, data=p.data)
                assert "error: rogue: " in r.err and words in r.err, f"{way}: expected {words!r}\n{r}"
                assert r.report["failures"][0]["stage"] == "rogue" and len(r.report["failures"]) == 1, (way, r)
                assert isinstance(r.report["stages"], dict) and isinstance(r.report["epochs"], list), way
        all_at_once(try_it, WAYS.items())


@test
def what_is_allowed():
    with Place() as p:
        r = p.run(chain("good"), foreign=True)
        assert "epoch   0  loss 0.2500  train -  val -  - s  - seeds/s" in r.err, r  # what it did not report is no zero
        with open(os.path.join(ROOT, "common/host/README.md")) as f:
            table = f.read().split("The message `size` has these fields:")[1].split("\n\n")[1]
        documented = set(re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in table.splitlines()[2:])))
        assert set(r.report["rogue"]["size"]) - {"type"} == documented - {"resume"}, r.report["rogue"]["size"]
        assert r.report["sink"]["batches"] == BATCHES and r.report["sink"]["frames"] == BATCHES * 4, r.report["sink"]
        r = p.run(chain("good-merges"), foreign=True)  # early parts are left out
        assert r.report["sink"]["batches"] == BATCHES and r.report["sink"]["frames"] == BATCHES * 2, r.report["sink"]
        pl = chain("good-drops")
        pl["stages"]["sink"] = stage("swallow")
        assert p.run(pl, foreign=True).report["swallow"]["batches"] == BATCHES * 2


@test
def programs_that_fill_slots():
    with Place() as p:
        p.data

        def made(way, words):
            with Place() as own:
                pl = pipeline({"maker": stage("maker", batches=BATCHES, way=way), "sink": stage("sink")}, links("maker.out", "sink.in"))
                r = own.run(pl, code=1 if words else 0, foreign=True, timeout=14, data=p.data)
                assert not words or ("error: maker: " in r.err and words in r.err), f"{way}: expected {words!r}\n{r}"
        all_at_once(made, [("good", ""), ("batch", "sent an invalid frame for batch 70"), ("part", "the frame has part 1 of the micro-batch; expected part 0"),
                           ("micro", "sent an invalid frame for batch 7, micro-batch 1"), ("empty", "the frame has no slots, but the program still holds slots of"),
                           ("keeps", "released the slots of batch 7"),
                           ("early-done", "but has sent fewer or more batches through out"), ("no-total", "sent \"total\" with the number of batches of out")])
        pl = pipeline({"maker": {**stage("maker", batches=BATCHES), "instances": 2}, "sink": stage("sink")},
                      links("maker.out", "sink.in"))
        assert p.run(pl, foreign=True).report["sink"]["batches"] == BATCHES  # none of them knows how many the other took
        pl = pipeline({"source": stage("source", batches=BATCHES), "maker": stage("maker", bytes=1 << 59), "sink": stage("sink")},
                      links("maker.out", "sink.in"))
        del pl["stages"]["source"]
        assert "maker requested slots of 524288.0 TiB for the output" in p.run(pl, code=1, foreign=True).err


if __name__ == "__main__":
    main()
