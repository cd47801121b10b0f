"""wire: what the foreign stages here begin with: the package's client of the wire protocol (times.py speaks it without one)."""
import json
import os
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "python"))
from penstock.wire import *


def run(description, main):
    if "--describe" in sys.argv:
        print(json.dumps(description))
    else:
        main(Wire())
