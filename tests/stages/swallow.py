#!/usr/bin/python3
"""swallow: a foreign stage that consumes slots, each after a while. `leaks`: it never gives them back. `late`: it keeps a
slot until the next one comes."""
import time

from wire import *

DESCRIPTION = {
    "abi": 7, "name": "swallow", "help": "consumes slots",
    "ports": [{"name": "in", "dir": "in", "help": "anything", "type": "any", "dtype": "any", "rank": -1, "memory": "cpu",
               "flags": ["ordered"]}],
    "params": [{"name": "delay_us", "type": "int", "default": 0, "min": 0, "max": 100000000, "help": "time that each slot takes"},
               {"name": "epoch", "type": "int", "default": 0, "min": 0, "max": 1000, "help": "batches after which it reports an epoch; 0: none"},
               {"name": "falls", "type": "int", "default": 0, "min": 0, "max": 1000, "help": "the loss falls until this epoch"},
               {"name": "spins", "type": "bool", "default": False, "help": "computes meanwhile, instead of sleeping"},
               {"name": "late", "type": "bool", "default": False, "help": "gives a slot back when the next one comes"},
               {"name": "leaks", "type": "bool", "default": False, "help": "gives nothing back"}],
}


def work(params):
    until = time.monotonic() + params["delay_us"] * 1e-6
    while params["spins"] and time.monotonic() < until:
        pass
    time.sleep(max(0, until - time.monotonic()))


def main(wire):
    wire.open()
    wire.ready()
    batches, kept = 0, []
    while True:
        m = wire.next()
        if isinstance(m, dict):
            if m["type"] in ("stop", "finish"):
                return
        elif m.kind == END:
            for refs in [] if wire.params["leaks"] else kept:
                wire.release(refs)
            wire.tell(type="report", section="swallow", data={"batches": batches})
            wire.tell(type="done")
        elif m.kind == FRAME and m.flags & LAST_PART:
            work(wire.params)
            kept.append(m.refs)
            while len(kept) > wire.params["late"] and not wire.params["leaks"]:
                wire.release(kept.pop(0))
            batches += 1
            if wire.params["epoch"] and batches % wire.params["epoch"] == 0:
                epoch = batches // wire.params["epoch"] - 1
                wire.tell(type="report", section="epochs", data={"epoch": epoch, "loss": 1 / (1 + min(epoch, wire.params["falls"]))})
            wire.count(1)


run(DESCRIPTION, main)
