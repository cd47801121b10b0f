"""Batches for the peer in plain PyTorch: sampler.c, called with ctypes. ctypes releases Python's lock during a call."""
import ctypes
import os

import numpy as np

FANOUT_MAX = 64  # sampler.c's


class Hop(ctypes.Structure):
    _fields_ = [("ptr", ctypes.c_void_p), ("col", ctypes.c_void_p), ("weight", ctypes.c_void_p)]


def library(path):
    if not os.path.exists(path):
        raise SystemExit(f"{path} is not built: `make bench-peers` builds it")
    lib = ctypes.CDLL(path)
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    lib.pst_peers_sample.argtypes = [pointer, pointer, pointer, number, pointer, number, *[pointer] * 6]
    lib.pst_peers_transpose.argtypes = [pointer, pointer, pointer, number, number, *[pointer] * 3]
    lib.pst_peers_gather.argtypes = [pointer, number, number, pointer, number, number, pointer]
    for function in (lib.pst_peers_sample, lib.pst_peers_transpose, lib.pst_peers_gather):
        function.restype = None
    return lib


def address(array):
    return array.ctypes.data


class Sampler:
    """Of one thread: batches are made one after the other."""

    def __init__(self, lib, indptr, indices, fanouts, batch, seed):
        if indices.dtype != np.int32 or indptr.dtype != np.int64 or max(fanouts) > FANOUT_MAX:
            raise SystemExit(f"the peer in plain PyTorch samples graphs of at most 2^31 - 1 vertices, with fanouts up to {FANOUT_MAX}; "
                             f"expected int32 indices, not {indices.dtype}")
        vertices = len(indptr) - 1
        self.lib, self.indptr, self.indices = lib, np.ascontiguousarray(indptr), np.ascontiguousarray(indices)
        self.fanouts, self.state = np.array(fanouts, np.int64), np.array([seed], np.uint64)
        self.place = np.full(vertices, -1, np.int32)
        self.rows_max, self.edges_max = [min(batch, vertices)], []
        for fanout in fanouts:
            self.edges_max.append(self.rows_max[-1] * fanout)
            self.rows_max.append(min(vertices, self.rows_max[-1] + self.edges_max[-1]))

    def __call__(self, seeds, transposed=()):
        """(vertices, rows, hops): rows[h] as sampler.c has it; a hop is ((ptr, col, weight), its transpose or None)."""
        seeds = np.ascontiguousarray(seeds, np.int64)
        hops = len(self.fanouts)
        vertices = np.empty(self.rows_max[-1], np.int64)
        rows, edges = np.zeros(hops + 1, np.int64), np.zeros(hops, np.int64)
        arrays = [(np.empty(n + 1, np.int64), np.empty(e, np.int64), np.empty(e, np.float32)) for n, e in zip(self.rows_max, self.edges_max)]
        out = (Hop * hops)(*(Hop(*map(address, a)) for a in arrays))
        self.lib.pst_peers_sample(address(self.indptr), address(self.indices), address(seeds), len(seeds), address(self.fanouts), hops,
                                  address(self.place), address(self.state), address(vertices), ctypes.addressof(out), address(rows),
                                  address(edges))
        made = []
        for h, (ptr, col, weight) in enumerate(arrays):
            hop = ptr[:rows[h] + 1], col[:edges[h]], weight[:edges[h]]
            made.append((hop, self.transpose(hop, int(rows[h + 1])) if h in transposed else None))
        return vertices[:rows[-1]], rows.tolist(), made

    def transpose(self, hop, columns):
        ptr, col, weight = hop
        out = np.empty(columns + 1, np.int64), np.empty(len(col), np.int64), np.empty(len(col), np.float32)
        self.lib.pst_peers_transpose(*map(address, hop), len(ptr) - 1, columns, *map(address, out))
        return out


def gather(lib, table, ids, begin, end, out):
    """Rows of a mapped table, whose rows may be padded, into a table without padding."""
    lib.pst_peers_gather(address(table), table.strides[0], out.strides[0], address(ids), begin, end, address(out))
