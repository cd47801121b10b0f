#!/usr/bin/python3
"""slope: a foreign stage that borrows batches with rows: every gradient is 1. It appends each slot, as it came, to
RUN/slope.bin."""
from wire import *

DESCRIPTION = {
    "abi": 7, "name": "slope", "help": "writes gradients of 1",
    "ports": [{"name": "batch", "dir": "in", "help": "batches with rows", "type": "rows of edges", "dtype": "float32", "rank": 2,
               "memory": "cpu", "flags": ["ordered", "writes"]}],
    "params": [],
}
FLUSH_NODES_DIM = struct.Struct("<56x3I")  # of a struct pst_row_batch
GRADS_AT = struct.Struct("<168xQ")
RELATIONS = struct.Struct("<176x2I24xQ")  # rows, floats of one, where their gradients are
ONE = struct.pack("<f", 1)


def fill(slot, at, n):
    slot[at:at + len(ONE) * n] = ONE * n


def compute(slot):
    """True: the slot has something for the store."""
    flush, nodes, dim = FLUSH_NODES_DIM.unpack_from(slot)
    relations, relation_dim, relation_grads = RELATIONS.unpack_from(slot)
    if nodes > 0:
        fill(slot, *GRADS_AT.unpack_from(slot), nodes * dim)
        fill(slot, relation_grads, relations * relation_dim)
    return flush <= 1


def main(wire):
    wire.open()
    wire.ready()
    with open(os.path.join(wire.size["run_dir"], "slope.bin"), "wb") as out:
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
                wire.send(RELEASE, flags=CHANGED if compute(wire.slots[route][slot]) else 0, refs=m.refs)
                wire.count(1)


run(DESCRIPTION, main)
