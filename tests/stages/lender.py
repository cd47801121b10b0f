#!/usr/bin/python3
"""lender: a foreign stage that owns slots, which raiser changes: every slot must come home, in the order of batches."""
from wire import *

DESCRIPTION = {
    "abi": 7, "name": "lender", "help": "lends slots, checks returns",
    "ports": [{"name": "out", "dir": "out", "help": "slots on loan", "type": "words", "dtype": "int64", "rank": 1,
               "memory": "cpu", "flags": ["returns"]}],
    "params": [{"name": "batches", "type": "int", "default": 50, "min": 0, "max": 1000000, "help": "how many"}],
}


def main(wire):
    import numpy as np
    wire.open([{"port": "out", "bytes": 4096, "align": 64}])
    wire.ready()
    wire.tell(type="total", port="out", batches=wire.params["batches"])
    lent, home, values = [], 0, {}
    while True:
        m = wire.next()
        if isinstance(m, dict):
            if m["type"] in ("stop", "finish"):
                return
        elif m.kind == END:
            assert home == wire.params["batches"], f"{home} slots came home"
            wire.count(home)
            wire.tell(type="done")
        elif m.kind in (CREDIT, RETURN):
            (route, slot), = m.refs
            if slot in values:  # raiser adds one in even batches
                batch = lent[home]
                values[slot] += batch % 2 == 0
                word = int(np.frombuffer(wire.slots[route][slot], np.int64)[0])
                assert (word, m.args) == (values[slot], (values[slot], int(batch % 2 == 0))), (batch, word, m.args, values[slot])
                home += 1
            if m.kind == CREDIT:
                values.setdefault(slot, 0)
                lent.append(m.batch)
                wire.send(FRAME, 0, batch=m.batch, flags=LAST_PART | LAST_MICRO, refs=m.refs)


run(DESCRIPTION, main)
