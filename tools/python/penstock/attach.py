#!/usr/bin/env python3
"""attach: the foreign stage that stands for a process outside the run: it gives that process the wire's endpoint and keys.

The process listens at an abstract socket, whose name is random and in the environment, which other users cannot read.
Both ends check that the other one belongs to the same user. This program ends when that process closes the connection or dies, and the kernel ends it when
the run ends: so each side notices at once that the other one is gone."""
import json
import os
import socket
import struct
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
from penstock.stage import Stage

NAME = "PENSTOCK_ATTACH"  # in the environment: the name of the socket
ANSWER_S = 20  # less than the runtime gives this program
UCRED = struct.Struct("3i")  # pid, uid, gid


def peer(connection):
    """The process at the other end, and its user."""
    return UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, UCRED.size))[:2]


def main():
    Stage("attach", "hands batches over to a process outside the run")
    if NAME not in os.environ:
        sys.exit("no process waits for the batches of this run: start runs of this kind with penstock.batches() in Python")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_S)
        connection.connect("\0" + os.environ[NAME])
        if peer(connection)[1] != os.geteuid():
            sys.exit("the process that listens for this run belongs to another user")
        keys = {"endpoint": os.environ["PENSTOCK_WIRE"], "keys": os.environ["PENSTOCK_WIRE_KEYS"]}
        connection.sendall(json.dumps(keys).encode() + b"\n")
        connection.settimeout(None)
        while connection.recv(4096):
            pass


if __name__ == "__main__":
    main()
