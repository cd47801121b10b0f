"""wire: the wire protocol's client of the foreign stages here (times.py speaks it without one)."""
import json
import mmap
import os
import struct
import sys

FRAME, CREDIT, RELEASE, END, COUNT, RETURN = 1, 2, 3, 4, 5, 6
LAST_PART, LAST_MICRO = 1, 2
CHANGED = 1  # flag of a release
HEAD = struct.Struct("<IHHQIIIIQQ")
MAGIC = 0x46545350


class Message:
    """A frame, a credit or the end of an input."""

    def __init__(self, data):
        (magic, self.kind, self.port, self.batch, self.micro, self.part, self.flags, n, a, b) = HEAD.unpack_from(data)
        assert magic == MAGIC
        self.args = a, b
        self.refs = [struct.unpack_from("<II", data, HEAD.size + 8 * i) for i in range(n)]


class Wire:
    """Connects and says hello; self.size is the runtime's answer."""

    def __init__(self):
        import zmq
        self.zmq = zmq
        self.context = zmq.Context()
        self.connect()
        self.tell(type="hello", protocol=1)
        self.size = json.loads(self.socket.recv())
        self.params = self.size["params"]

    def connect(self):
        self.socket = self.context.socket(self.zmq.DEALER)
        self.socket.linger = 1000
        if "PENSTOCK_WIRE_KEYS" in os.environ:
            self.socket.curve_serverkey, self.socket.curve_publickey, self.socket.curve_secretkey = (
                key.encode() for key in os.environ["PENSTOCK_WIRE_KEYS"].split())
        self.socket.connect(os.environ["PENSTOCK_WIRE"])

    def tell(self, **message):
        self.socket.send(json.dumps(message).encode())

    def open(self, needs=()):
        """Says what it needs and maps its routes: self.slots[route][slot] are the bytes."""
        self.tell(type="sized", needs=needs if isinstance(needs, int) else list(needs))
        self.slots = {}
        for r in json.loads(self.socket.recv())["routes"]:
            with open(r["path"], "r+b") as f:
                memory = memoryview(mmap.mmap(f.fileno(), r["region_bytes"]))
            at = lambda s: r["offset"] + s * r["slot_bytes"]
            self.slots[r["id"]] = [memory[at(s):at(s + 1)] for s in range(r["slots"])]

    def ready(self):
        self.tell(type="ready")

    def next(self):
        """A Message, or the dictionary of a JSON message."""
        data = self.socket.recv()
        return json.loads(data) if data[:1] == b"{" else Message(data)

    def send(self, kind, port=0, batch=0, micro=0, part=0, flags=0, refs=(), args=(0, 0)):
        self.socket.send(HEAD.pack(MAGIC, kind, port, batch, micro, part, flags, len(refs), *args) +
                         b"".join(struct.pack("<II", *ref) for ref in refs))

    def release(self, refs):
        self.send(RELEASE, refs=refs)

    def count(self, items, bytes=0):
        self.send(COUNT, args=(items, bytes))


def run(description, main):
    if "--describe" in sys.argv:
        print(json.dumps(description))
    else:
        main(Wire())
