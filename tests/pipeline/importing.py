"""What the tests of imports share: a place to make sources in, and to look at what became of them."""
import ctypes
import gzip
import json
import os
import shutil
import subprocess
import tempfile

import numpy as np
from harness import SAN, command


def xxh3(data):
    """The checksum that dataset.json has."""
    library = ctypes.CDLL("libxxhash.so.0")
    library.XXH3_64bits.restype = ctypes.c_uint64
    return f"{library.XXH3_64bits(data, ctypes.c_size_t(len(data))):016x}"


class Scratch:
    def __enter__(self):
        self.dir = tempfile.mkdtemp(prefix="penstock-import-")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.dir, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.dir, name)

    def put(self, name, content):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if isinstance(content, str):
            content = content.encode()
        if name.endswith(".gz"):
            content = gzip.compress(content)
        if name.endswith(".zst"):
            content = subprocess.run(["zstd", "-q"], input=content, capture_output=True, check=True).stdout
        with open(path, "wb") as f:
            f.write(content)
        return path

    def get(self, kind, source, *args, code=0):
        out = self.path("out")
        shutil.rmtree(out, ignore_errors=True)
        if SAN and "--memory" not in args:  # a sanitizer's shadow of half a machine's memory takes seconds to lay
            args = (*args, "--memory", "64MiB")
        r = command("import", kind, source, out, "--quiet", *map(str, args), code=code)
        assert code == 0 or not os.path.exists(out), "a refused import left something"
        left = [n for n in os.listdir(self.dir) if ".penstock-" in n]
        assert not left, left
        if code == 0:
            command("verify", "--quiet", out)
            assert not [n for n in os.listdir(out) if n.startswith("temp-")]
        return r

    def arrays(self, folder, **arrays):
        """Each as an .npy file; a name's __ are slashes."""
        for name, value in arrays.items():
            path = self.path(os.path.join(folder, name.replace("__", "/") + ".npy"))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            np.save(path, value)
        return self.path(folder)

    def array(self, name):
        return np.load(os.path.join(self.path("out"), name + ".npy"), mmap_mode="r")

    def rows(self):
        """The in-neighbours of each vertex."""
        indptr, indices = self.array("indptr"), self.array("indices")
        return [indices[a:b].tolist() for a, b in zip(indptr, indptr[1:])]

    def names(self, which="names"):
        at, text = self.array(which + "_at"), bytes(self.array(which))
        return [text[a:b].decode() for a, b in zip(at, at[1:])]

    def manifest(self):
        with open(os.path.join(self.path("out"), "dataset.json")) as f:
            return json.load(f)

    def sums(self):
        return {k: v["xxh3"] for k, v in self.manifest()["arrays"].items()}


# 0 -> 1, 0 -> 2, 3 -> 1: vertex 1 aggregates from 0 and 3.
ROWS = [[], [0, 3], [0], []]
EDGES = [(0, 1), (0, 2), (3, 1)]


def lines(separator, end="\n"):
    return "".join(f"{a}{separator}{b}{end}" for a, b in EDGES)
