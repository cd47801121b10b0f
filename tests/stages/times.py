#!/usr/bin/python3
"""times: a foreign stage: multiplies the words of each slot in place, over the wire protocol alone."""
import json
import mmap
import os
import struct
import subprocess
import sys
import time

DESCRIPTION = {
    "abi": 7, "name": "times", "help": "multiplies words, in Python",
    "ports": [
        {"name": "in", "dir": "in", "help": "words", "type": "words", "dtype": "int64", "rank": 1,
         "memory": "cpu", "flags": ["writes"]},
        {"name": "out", "dir": "out", "help": "words", "type": "words", "dtype": "int64", "rank": 1,
         "memory": "cpu", "forwards": "in"},
    ],
    "params": [{"name": "factor", "type": "int", "default": 3, "min": 1, "max": 100, "help": "what to multiply by"},
               {"name": "delay_us", "type": "int", "default": 0, "min": 0, "max": 100000000, "help": "time that each slot takes"},
               {"name": "misbehave", "type": "enum", "default": "no", "help": "for tests: how to break the protocol",
                "choices": "no|huge|exit|kill|garbage|steal|silent|pause|child|raise|escape"}],
}
FRAME, CREDIT, RELEASE, END = 1, 2, 3, 4
LAST_PART = 1
WIRE = struct.Struct("<IHHQIIIIQQ")
MAGIC = 0x46545350


def main():
    import numpy as np
    import zmq

    socket = zmq.Context().socket(zmq.DEALER)
    if "PENSTOCK_WIRE_KEYS" in os.environ:
        socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = (
            key.encode() for key in os.environ["PENSTOCK_WIRE_KEYS"].split())
    socket.connect(os.environ["PENSTOCK_WIRE"])
    say = lambda **message: socket.send(json.dumps(message).encode())
    say(type="hello", protocol=1)
    size = json.loads(socket.recv())
    factor, misbehave = size["params"]["factor"], size["params"]["misbehave"]
    if misbehave == "silent":
        socket.recv()
    say(type="sized", needs=[])
    slots = {}
    for route in json.loads(socket.recv())["routes"]:
        with open(route["path"], "r+b") as f:
            memory = mmap.mmap(f.fileno(), route["region_bytes"])
        slots[route["id"]] = np.frombuffer(memory, np.uint64).reshape(route["slots"], -1)
    say(type="ready")
    while True:
        message = socket.recv()
        if message[:1] == b"{":
            if json.loads(message)["type"] in ("stop", "finish"):
                return
            continue
        magic, kind, port, batch, micro, part, flags, nrefs, arg0, arg1 = WIRE.unpack_from(message)
        assert magic == MAGIC
        if kind == END:
            say(type="report", section="times", data={"factor": factor})
            say(type="done")
        elif kind == FRAME:
            if batch == 7 and misbehave == "exit":
                sys.exit(3)
            if batch == 7 and misbehave == "kill":
                os.kill(os.getpid(), 9)
            if batch == 7 and misbehave == "pause":
                os.kill(os.getpid(), 19)
            if batch == 7 and misbehave == "child":
                subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True)
            if batch == 7 and misbehave == "raise":
                sys.stderr.buffer.write("\x1b]0;title\x07 caf\xe9 \x9b".encode() + b" \xff\n")
                raise RuntimeError("broken on purpose")
            if batch == 7 and misbehave == "escape":
                say(type="warning", text="careful\x1b[2J")
                say(type="failed", text="\x1b[31mbroken\nerror: fake \rerror")
            if batch == 7 and misbehave == "huge":
                socket.send(bytes(3 << 20))
            if batch == 7 and misbehave == "garbage":
                socket.send(b"\xff" + os.urandom(76))  # "{" would begin JSON
            if batch == 7 and misbehave == "steal":
                socket.send(WIRE.pack(MAGIC, RELEASE, 0, 0, 0, 0, 0, 1, 0, 0) + struct.pack("<II", 0, 999))
            refs = [struct.unpack_from("<II", message, WIRE.size + 8 * i) for i in range(nrefs)]
            if flags & LAST_PART:
                time.sleep(size["params"]["delay_us"] * 1e-6)
                for route, slot in refs:
                    slots[route][slot] *= np.uint64(factor)
            socket.send(WIRE.pack(MAGIC, FRAME, 1, batch, micro, part, flags, nrefs, arg0, arg1) + message[WIRE.size:])


if __name__ == "__main__":
    if "--describe" in sys.argv:
        print(json.dumps(DESCRIPTION))
    else:
        main()
