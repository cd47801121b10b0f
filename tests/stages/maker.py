#!/usr/bin/python3
"""maker: a foreign stage that fills slots, each in a while, with the pattern that sink checks."""
import time

from wire import *

DESCRIPTION = {
    "abi": 7, "name": "maker", "help": "fills slots with a pattern",
    "ports": [{"name": "out", "dir": "out", "help": "slots with a pattern", "type": "words", "dtype": "int64", "rank": 1,
               "memory": "cpu"}],
    "params": [{"name": "batches", "type": "int", "default": 50, "min": 0, "max": 1000000, "help": "how many"},
               {"name": "delay_us", "type": "int", "default": 0, "min": 0, "max": 100000000, "help": "time that each slot takes"},
               {"name": "way", "type": "enum", "default": "good", "choices": "good|batch|part|micro|empty|keeps|early-done|no-total",
                "help": "how it breaks the protocol"},
               {"name": "bytes", "type": "int", "default": 4096, "min": -1, "max": 1 << 60, "help": "size of a slot"}],
}


def main(wire):
    import numpy as np
    wire.open([{"port": "out", "bytes": wire.params["bytes"], "align": 64}])
    wire.ready()
    way = wire.params["way"]
    if way != "no-total":
        wire.tell(type="total", port="out", batches=wire.params["batches"])
    while True:
        m = wire.next()
        if isinstance(m, dict):
            if m["type"] in ("stop", "finish"):
                return
        elif m.kind == END:  # there will be no further credit
            wire.tell(type="done")
        elif m.kind == CREDIT:
            time.sleep(wire.params["delay_us"] * 1e-6)
            (route, slot), = m.refs
            words = np.frombuffer(wire.slots[route][slot], np.uint64)
            words[:] = np.arange(len(words), dtype=np.uint64) + np.uint64(wire.size["seed"] * 1000003 + m.batch * 8191)
            frame = dict(batch=m.batch, micro=m.micro, part=0, flags=LAST_PART | LAST_MICRO, refs=m.refs)
            if m.batch == 7:
                frame.update({"batch": dict(batch=70), "part": dict(part=1), "micro": dict(micro=1), "empty": dict(refs=())}.get(way, {}))
            if way in ("early-done", "no-total") and m.batch == 7:
                wire.tell(type="done")
            if way == "keeps" and m.batch == 7:
                wire.release(m.refs)
            else:
                wire.send(FRAME, 0, **frame)


run(DESCRIPTION, main)
