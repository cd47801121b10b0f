#!/usr/bin/python3
"""hoard: a foreign stage that appends the bytes of every slot that comes to RUN/hoard.bin, each of the same size."""
from wire import *

DESCRIPTION = {
    "abi": 7, "name": "hoard", "help": "writes slots to a file",
    "ports": [{"name": "in", "dir": "in", "help": "anything", "type": "any", "dtype": "any", "rank": -1, "memory": "cpu",
               "flags": ["ordered"]}],
    "params": [],
}


def main(wire):
    wire.open()
    wire.ready()
    with open(os.path.join(wire.size["run_dir"], "hoard.bin"), "wb") as out:
        while True:
            m = wire.next()
            if isinstance(m, dict):
                if m["type"] in ("stop", "finish"):
                    return
            elif m.kind == END:
                out.flush()
                wire.tell(type="done")
            elif m.kind == FRAME and m.flags & LAST_PART:
                (route, slot), = m.refs
                out.write(wire.slots[route][slot])
                wire.release(m.refs)
                wire.count(1)


run(DESCRIPTION, main)
