#!/usr/bin/python3
"""rogue: a foreign stage that passes slots on, and breaks the protocol at batch 7 in the way that it is told. The ways
whose names begin with "good" are allowed."""
import time

from wire import *

WAYS = ("good good-drops good-merges batch+1000 batch-max micro part flags-0 flags-1 flags-2 flags-4 twice empty other-slot "
        "release-only release-done early-done done-held closes reopens before-start needs-5 needs-text "
        "needs-align total-early total-text report-nothing report-stages report-status "
        "patience-text patience-long").split()
LAST_BATCH = 19  # of the tests' pipelines
DESCRIPTION = {
    "abi": 7, "name": "rogue", "help": "breaks the protocol",
    "ports": [{"name": "in", "dir": "in", "help": "anything", "type": "words", "dtype": "int64", "rank": 1, "memory": "cpu",
               "hold": 1},
              {"name": "out", "dir": "out", "help": "the same", "type": "words", "dtype": "int64", "rank": 1, "memory": "cpu",
               "forwards": "in"}],
    "params": [{"name": "way", "type": "enum", "default": "good", "choices": "|".join(WAYS), "help": "how"}],
}


def break_it(wire, way, m, forward):
    """False: go on as if nothing had been."""
    changes = {"batch+1000": dict(batch=m.batch + 1000), "batch-max": dict(batch=2**64 - 1), "micro": dict(micro=9),
               "part": dict(part=9), "flags-0": dict(flags=0), "flags-1": dict(flags=1), "flags-2": dict(flags=2),
               "flags-4": dict(flags=7), "empty": dict(refs=()), "other-slot": dict(refs=[(0, 1 + m.refs[0][1])])}
    if way in changes:
        forward(m, **changes[way])
    elif way == "twice":
        forward(m)
        forward(m)
    elif way == "good-drops":
        wire.release(m.refs)
        forward(m, refs=())
    elif way == "release-only":
        wire.release(m.refs)
    elif way == "early-done":
        forward(m)
        wire.tell(type="done")
    elif way == "closes":
        wire.socket.close(0)
        time.sleep(1000)
    elif way == "reopens":
        wire.socket.close(0)
        wire.connect()
        forward(m)
    elif way == "report-nothing":
        wire.tell(type="report", section="rogue")
    elif way == "report-stages":
        wire.tell(type="report", section="stages", data={"source": 1})
    elif way == "report-status":
        wire.tell(type="report", section="result", data={"failures": 0, "epochs": 7})
    else:
        return False
    return True


def main(wire):
    way = wire.params["way"]
    if way == "before-start":
        wire.tell(type="done")
    if way == "total-early":
        wire.tell(type="total", port="out", batches=5)
    wire.open({"needs-5": 5, "needs-text": [{"port": "in", "bytes": "many"}],
               "needs-align": [{"port": "in", "bytes": 8, "align": 3}]}.get(way, ()))
    wire.tell(type="log", text="a stage may say so at any time")
    wire.ready()
    if way.startswith("patience"):
        wire.tell(type="patience", seconds={"patience-text": "many", "patience-long": 101}[way])
    if way == "total-text":
        wire.tell(type="total", port="out", batches="many")

    def forward(m, **changes):
        wire.send(FRAME, 1, **{**dict(batch=m.batch, micro=m.micro, part=m.part, flags=m.flags, refs=m.refs, args=m.args), **changes})

    kept = None
    while True:
        m = wire.next()
        if isinstance(m, dict):
            if m["type"] in ("stop", "finish"):
                return
        elif m.kind == END:
            if way == "release-done":
                wire.release(kept.refs)
            wire.tell(type="report", section="rogue", data={"size": sorted(wire.size)})
            wire.tell(type="report", section="epochs", data={"epoch": 0, "loss": 0.25})
            wire.tell(type="done")
        elif m.kind == FRAME:
            last = m.flags & LAST_PART
            if way == "good-merges" and not last:
                continue
            if way in ("release-done", "done-held") and m.flags & LAST_MICRO and m.batch == LAST_BATCH:
                kept = m
            elif m.batch != 7 or not last or not break_it(wire, way, m, forward):
                forward(m, **({"part": 0} if way == "good-merges" else {}))
            wire.count(1)


run(DESCRIPTION, main)
