"""A minibatch in a slot (common/slots/README.md): NumPy views, PyTorch tensors, and the forms of PyG and DGL."""
import struct

HEADER = struct.Struct("<QQQIIQQQIIIIIIIIQQ9q5Q8Q8Q8Q8QQIIQQ")
MAGIC = 0x3862696E696D7470  # "ptminib8"
HOPS_MAX = 8
DTYPES = ("float32", "float16", "bfloat16")


class SlotError(ValueError):
    """A slot does not hold what it should; the text says what was expected and what was found."""


class Minibatch:
    """Views of a minibatch in a slot. They are valid until the loop takes the next batch; copy() keeps one longer.

    n[h]: number of vertices after h hops; n[0] counts the seeds. The block of hop h, counted from the seeds, has edges
    from vertices 0..n[h+1]-1 to vertices 0..n[h]-1: indices[h][indptr[h][v]:indptr[h][v + 1]] are the positions of v's
    sampled in-neighbours (int32). vertices: int64 ids, the seeds first. labels: int32, of the seeds; -1 is none.
    features: (n[hops], feature_dim); bfloat16 comes as uint16.

    If a batch does not fit its slot, it comes as several micro-batches. micro counts them, last_micro is true for the
    last one, and batch_seeds counts the seeds of all. batch counts over the run, batch_in_epoch over the epoch.
    """

    def __init__(self, slot):
        if len(slot) < HEADER.size:
            raise SlotError(f"a slot of {len(slot)} bytes cannot hold a minibatch, whose header has {HEADER.size} bytes")
        f = HEADER.unpack_from(slot)
        (magic, self.bytes_used, self.seed, self.epoch, self.hops, self.batch, self.batch_in_epoch, self.batches_in_epoch,
         self.micro, last_micro, self.batch_seeds, self.feature_dim, dtype, _, _, _, self._stride, self.digest) = f[:18]
        if magic != MAGIC or not 1 <= self.hops <= HOPS_MAX or dtype >= len(DTYPES):
            raise SlotError(f"expected a minibatch, but the slot begins with {bytes(slot[:8])!r}, not with {struct.pack('<Q', MAGIC)!r}, "
                            "or its hops or element type are out of range")
        self.last_micro, self.feature_dtype = bool(last_micro), DTYPES[dtype]
        self.n = f[18:19 + self.hops]
        self._slot, self._at, self._indptr_at, self._indices_at, self._weights_at = slot, f[27:30], f[32:40], f[40:48], f[48:56]
        self._relations_at = f[56:64]
        self._pairs_at, self._pairs, self.positives = f[64:67]
        if f[67] != 0:
            raise SlotError(f"batch {self.batch}: some rows are in the sampler's cache and not in the slot, but a program gets all rows in the slot")
        if min(self.n) < 0 or list(self.n) != sorted(self.n):
            raise SlotError(f"batch {self.batch}: the numbers of vertices after each hop are {self.n}; expected numbers that do not decrease")
        self.fence = None  # what to wait for before the slot is given back

    def _array(self, at, dtype, shape, strides=None):
        import numpy as np
        try:
            return np.ndarray(shape, dtype, self._slot, at, strides)
        except (OverflowError, TypeError, ValueError) as e:
            raise SlotError(f"batch {self.batch}: an array of shape {shape} at byte {at} does not fit the slot: {e}") from None

    @property
    def vertices(self):
        return self._array(self._at[0], "<i8", (self.n[-1],))

    @property
    def seeds(self):
        return self.vertices[:self.n[0]]

    @property
    def labels(self):
        return self._array(self._at[1], "<i4", (self.n[0],))

    @property
    def features(self):
        dtype = {"float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}[self.feature_dtype]
        item = int(dtype[2])
        return self._array(self._at[2], dtype, (self.n[-1], self.feature_dim), (self._stride, item))

    @property
    def indptr(self):
        return [self._array(self._indptr_at[h], "<i4", (self.n[h] + 1,)) for h in range(self.hops)]

    @property
    def indices(self):
        return [self._array(self._indices_at[h], "<i4", (int(indptr[-1]),)) for h, indptr in enumerate(self.indptr)]

    @property
    def weights(self):
        """Of each hop: float32, the share of each edge in the mean over its destination's sample; None: all are equal."""
        return [self._array(at, "<f4", (int(indptr[-1]),)) if at else None for at, indptr in zip(self._weights_at, self.indptr)]

    @property
    def relations(self):
        """Of each hop: int32, the relation of each edge; None: the sampler does not tell relations apart."""
        return [self._array(at, "<i4", (int(indptr[-1]),)) if at else None for at, indptr in zip(self._relations_at, self.indptr)]

    @property
    def pairs(self):
        """(pairs, 2), int32: positions in seeds of the ends of each pair to score. The first `positives` are edges. None: seeds are vertices."""
        return self._array(self._pairs_at, "<i4", (self._pairs, 2)) if self._pairs_at else None

    @property
    def empty(self):
        """True: the sample did not fit its slot, and its seeds come again, in smaller micro-batches."""
        return self.n[-1] == 0

    def copy(self):
        """The same minibatch in memory of its own."""
        end = self._at[2] + self.n[-1] * self._stride
        return Minibatch(bytearray(self._slot[:max(end, self.bytes_used)]))

    def torch(self, device=None):
        """Tensors that share the slot's memory, or, with a device, their copies there: see Tensors."""
        return Tensors(self, device)


class Hop:
    """The sampled edges that one layer of a model aggregates over: from `sources` vertices to the first `targets`.
    weights and relations: of each edge, as in a Minibatch; None: all weights are equal, or there is one relation."""

    def __init__(self, indptr, indices, sources, targets, weights=None, relations=None):
        self.indptr, self.indices, self.sources, self.targets = indptr, indices, sources, targets
        self.weights, self.relations = weights, relations

    @property
    def edge_index(self):
        """(2, edges), int64: sources, then targets, as PyG's layers expect: conv((x, x[:targets]), edge_index)."""
        import torch
        targets = torch.arange(self.targets, device=self.indptr.device)
        return torch.stack([self.indices.long(), targets.repeat_interleave(self.indptr.diff())])

    @property
    def block(self):
        """The same as a DGL block, whose in-edges are the sampled edges."""
        import dgl
        return dgl.create_block(("csc", (self.indptr.long(), self.indices.long(), [])), num_src_nodes=self.sources,
                                num_dst_nodes=self.targets)


class Tensors:
    """A minibatch for PyTorch. x: features of all vertices; y: labels of the seeds (int64, a copy); n_id: ids of all
    vertices; batch_size: number of seeds; layers: a Hop for each layer of a model, that of the outermost hop first.

    Tensors on the CPU share the slot's memory, so they are valid as long as the Minibatch. Copies to a GPU are
    asynchronous if the slots are pinned; the slot is given back when the copies are complete.
    """

    def __init__(self, batch, device=None):
        import torch
        share = torch.from_numpy
        to = share if device is None else lambda array: share(array).to(device, non_blocking=True)
        half = batch.feature_dtype == "bfloat16"
        x = to(batch.features.view("<i2") if half else batch.features)  # versions of PyTorch before 2.3 have no uint16
        self.x = x.view(torch.bfloat16) if half else x
        self.y, self.n_id, self.batch_size = to(batch.labels).long(), to(batch.vertices), batch.n[0]
        maybe = lambda array: None if array is None else to(array)
        hops = list(enumerate(zip(batch.indptr, batch.indices, batch.weights, batch.relations)))
        self.layers = [Hop(to(indptr), to(indices), batch.n[h + 1], batch.n[h], maybe(weights), maybe(relations))
                       for h, (indptr, indices, weights, relations) in reversed(hops)]
        if self.x.is_cuda:
            batch.fence = torch.cuda.Event()
            batch.fence.record()
