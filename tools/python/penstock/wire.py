"""The wire protocol's client (common/host/README.md): what a foreign stage says to the runtime, and hears from it."""
import json
import mmap
import os
import struct

PROTOCOL = 1
FRAME, CREDIT, RELEASE, END, COUNT, RETURN = 1, 2, 3, 4, 5, 6
LAST_PART, LAST_MICRO = 1, 2
CHANGED = 1  # flag of a release
HEAD = struct.Struct("<IHHQIIIIQQ")
MAGIC = 0x46545350
LINGER_MS = 1000  # to deliver the last messages


class Message:
    """A frame, a credit, a returned slot or the end of an input: the fields of a binary message."""

    def __init__(self, data):
        (magic, self.kind, self.port, self.batch, self.micro, self.part, self.flags, n, a, b) = HEAD.unpack_from(data)
        assert magic == MAGIC
        self.args = a, b
        self.refs = [struct.unpack_from("<II", data, HEAD.size + 8 * i) for i in range(n)]


class Wire:
    """Connects and says hello. `size` is the runtime's answer, `params` the stage's parameters.

    endpoint, keys: by default those that the runtime has put in the environment of its program.
    """

    def __init__(self, endpoint=None, keys=None):
        import zmq
        self.zmq = zmq
        self.context = zmq.Context()
        self.connect(endpoint, keys)
        self.tell(type="hello", protocol=PROTOCOL)
        self.size = json.loads(self.recv())
        self.params = self.size["params"]

    def connect(self, endpoint=None, keys=None):
        endpoint, keys = endpoint or os.environ["PENSTOCK_WIRE"], keys or os.environ.get("PENSTOCK_WIRE_KEYS")
        self.socket = self.context.socket(self.zmq.DEALER)
        self.socket.linger = LINGER_MS
        if keys:
            self.socket.curve_serverkey, self.socket.curve_publickey, self.socket.curve_secretkey = (
                key.encode() for key in keys.split())
        self.socket.connect(endpoint)

    def recv(self, timeout_s=None):
        """The bytes of the next message. No deadline is needed: the kernel ends this process if the runtime's ends."""
        return self.socket.recv()

    def tell(self, **message):
        """Sends a JSON message."""
        self.socket.send(json.dumps(message).encode())

    def open(self, needs=()):
        """Says what it needs, and maps the routes: slots[route][slot] are the bytes of a slot."""
        self.tell(type="sized", needs=needs if isinstance(needs, int) else list(needs))
        self.slots = {}
        for r in json.loads(self.recv())["routes"]:
            with open(r["path"], "r+b") as f:
                memory = memoryview(mmap.mmap(f.fileno(), r["region_bytes"]))
            at = lambda s: r["offset"] + s * r["slot_bytes"]
            self.slots[r["id"]] = [memory[at(s):at(s + 1)] for s in range(r["slots"])]

    def ready(self):
        self.tell(type="ready")

    def next(self, timeout_s=None):
        """A Message, or the dictionary of a JSON message."""
        data = self.recv(timeout_s)
        return json.loads(data) if data[:1] == b"{" else Message(data)

    def send(self, kind, port=0, batch=0, micro=0, part=0, flags=0, refs=(), args=(0, 0)):
        """Sends a binary message."""
        self.socket.send(HEAD.pack(MAGIC, kind, port, batch, micro, part, flags, len(refs), *args) +
                         b"".join(struct.pack("<II", *ref) for ref in refs))

    def release(self, refs, changed=False):
        self.send(RELEASE, flags=CHANGED if changed else 0, refs=refs)

    def count(self, items, bytes=0):
        self.send(COUNT, args=(items, bytes))

    def close(self):
        self.socket.close()
        self.context.term()
