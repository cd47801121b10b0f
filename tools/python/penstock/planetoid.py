"""Planetoid's pickles (Cora, CiteSeer, PubMed) to plain arrays: python3 -m penstock.planetoid PREFIX OUT.

PREFIX is .../ind.cora: PREFIX.x, .tx, .allx, .y, .ty, .ally, .graph, .test.index. Writes OUTedges.npy, OUTlabels.npy, ...
A pickle is a program; this reads one only where it names nothing but what these files have, and runs none of it: each
name stands for a class of ours that keeps what it is given. NumPy and SciPy are not needed."""
import array
import collections
import os
import pickle
import stat
import struct
import sys

LARGEST = 1 << 31  # bytes of one file: the largest of Planetoid's has 2^26
VERTICES = 1 << 22  # the largest of them has 19,717


class Refused(ValueError):
    pass


class Dtype:
    def __init__(self, name, *_):
        self.name = name if isinstance(name, str) else name.decode("latin1")

    def __setstate__(self, state):
        if state[1] not in ("<", "|", "="):
            raise Refused(f"an array has dtype {self.name} in big-endian byte order; expected little-endian numbers")


class Array:
    def __setstate__(self, state):
        _, self.shape, self.dtype, fortran, data = state
        if fortran and len(self.shape) > 1:
            raise Refused("an array is stored in Fortran order; expected C order")
        self.data = data.encode("latin1") if isinstance(data, str) else data

    def values(self):
        kinds = {"f4": "f", "f8": "d", "i4": "i", "i8": "q", "u1": "B", "i1": "b", "b1": "B"}
        if self.dtype.name not in kinds:
            raise Refused(f"an array has dtype {self.dtype.name}; expected one of {', '.join(kinds)}")
        out = array.array(kinds[self.dtype.name])
        n = 1
        for size in self.shape:
            n *= size
        if n * out.itemsize != len(self.data):
            raise Refused(f"an array has shape {self.shape}, but {len(self.data)} bytes of data, which do not fit this shape")
        out.frombytes(self.data)
        return out


class Csr:
    def __setstate__(self, state):
        self.shape = state.get("_shape", state.get("shape"))
        self.data, self.indices, self.indptr = (state[k].values() for k in ("data", "indices", "indptr"))
        if len(self.indptr) != self.shape[0] + 1 or self.indptr[-1] != len(self.indices) or len(self.data) != len(self.indices):
            raise Refused(f"the arrays data, indices and indptr of a sparse matrix of shape {self.shape} have sizes that do not fit together")

    def row(self, k):
        a, b = self.indptr[k], self.indptr[k + 1]
        if not 0 <= a <= b <= len(self.indices):
            raise Refused(f"indptr of a sparse matrix is out of range or decreases after row {k}")
        return self.indices[a:b], self.data[a:b]


def reconstruct(kind, *_):
    if kind is not Array:
        raise Refused("the pickle contains an object that is not a NumPy array")
    return Array()


def encode(text, name):
    """How Python 3 writes bytes into pickles that Python 2 can read."""
    if name != "latin1" or not isinstance(text, str):
        raise Refused("the pickle contains text where bytes were expected")
    return text.encode("latin1")


ALLOWED = {("_codecs", "encode"): encode, ("numpy", "ndarray"): Array, ("numpy", "dtype"): Dtype, ("scipy.sparse.csr", "csr_matrix"): Csr,
           ("scipy.sparse._csr", "csr_matrix"): Csr, ("numpy.core.multiarray", "_reconstruct"): reconstruct,
           ("numpy._core.multiarray", "_reconstruct"): reconstruct,
           ("collections", "defaultdict"): collections.defaultdict, ("__builtin__", "list"): list,
           ("builtins", "list"): list}


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) not in ALLOWED:
            raise Refused(f"the pickle refers to {module}.{name}, which files of Planetoid do not contain, so the file was not loaded")
        return ALLOWED[module, name]

    def persistent_load(self, pid):
        raise Refused("the pickle refers to data outside of the file")


def check_file(path):
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:  # a pipe is not waited for
        raise Refused(f"{path}: expected a regular file of at most {LARGEST} bytes")


def load(path, kind):
    check_file(path)
    with open(path, "rb") as f:
        try:
            value = Unpickler(f, encoding="latin1").load()
        except Refused as e:
            raise Refused(f"{path}: {e}") from None
        except Exception as e:  # a damaged pickle may raise anything
            raise Refused(f"{path}: expected a pickle file of Planetoid: invalid data near byte {f.tell()}: {type(e).__name__}: {e}") from None
    if not isinstance(value, kind):
        raise Refused(f"{path}: expected {kind.__name__}, found {type(value).__name__}")
    return value


def one_hot(path):
    labels = load(path, Array)
    if len(labels.shape) != 2:
        raise Refused(f"{path}: expected an array with two dimensions, found shape {labels.shape}")
    values, (rows, columns) = labels.values(), labels.shape
    out = []
    for k in range(rows):
        ones = [c for c in range(columns) if values[k * columns + c]]
        if len(ones) > 1:
            raise Refused(f"{path}: row {k}: expected one class, found {len(ones)}")
        out.append(ones[0] if ones else -1)
    return out


def test_index(path):
    out = []
    check_file(path)
    with open(path, encoding="ascii", errors="replace") as f:
        for number, line in enumerate(f, 1):
            if not line.strip().isdigit():
                raise Refused(f"{path}:{number}: expected the number of a vertex, found {line.strip()[:32]!r}")
            out.append(int(line))
    if len(set(out)) != len(out):
        raise Refused(f"{path}: a vertex occurs twice")
    return out


def save(path, kind, values, shape=None):
    data = array.array(kind, values)
    descr = {"i": "<i4", "q": "<i8", "f": "<f4"}[kind]
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape or (len(data),)}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    with open(path, "xb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data.tobytes())


def convert(prefix, out):
    x, tx, allx = (load(f"{prefix}.{k}", Csr) for k in ("x", "tx", "allx"))
    y, ty, ally = (one_hot(f"{prefix}.{k}") for k in ("y", "ty", "ally"))
    graph = load(prefix + ".graph", dict)
    tests = test_index(prefix + ".test.index")
    if tx.shape[0] != len(tests) or len(ty) != len(tests) or allx.shape[0] != len(ally) or x.shape[0] != len(y) or not tests:
        raise Refused(f"{prefix}: the numbers of rows in the files of features, of labels and in test.index do not fit together")
    n = max(allx.shape[0], max(tests) + 1, *(k + 1 for k in graph))
    if n > VERTICES:
        raise Refused(f"{prefix}: found vertex {n - 1}; expected at most {VERTICES} vertices")
    where = {v: k for k, v in enumerate(tests)}
    indptr, indices, data, labels = [0], [], [], []
    for v in range(n):  # a test vertex that test.index does not have has no features and no label
        row = tx.row(where[v]) if v in where else allx.row(v) if v < allx.shape[0] else ([], [])
        order = sorted(range(len(row[0])), key=row[0].__getitem__)
        indices.extend(row[0][k] for k in order)
        data.extend(row[1][k] for k in order)
        indptr.append(len(indices))
        labels.append(ty[where[v]] if v in where else ally[v] if v < len(ally) else -1)
    sources, targets = [], []
    for u, neighbours in graph.items():
        for v in neighbours:
            if not (isinstance(u, int) and isinstance(v, int) and 0 <= u < n and 0 <= v < n):
                raise Refused(f"{prefix}.graph: vertex {u} has the neighbour {v!r}; expected a vertex from 0 to {n - 1}")
            sources.append(u)
            targets.append(v)
    save(out + "edges.npy", "i", sources + targets, (2, len(sources)))
    save(out + "feat_indptr.npy", "q", indptr)
    save(out + "feat_indices.npy", "i", indices)
    save(out + "feat_data.npy", "f", data)
    save(out + "labels.npy", "i", labels)
    save(out + "train_idx.npy", "q", range(len(y)))
    save(out + "val_idx.npy", "q", range(len(y), min(len(y) + 500, allx.shape[0])))
    save(out + "test_idx.npy", "q", sorted(tests))
    save(out + "shape.npy", "q", [n, allx.shape[1]])


if __name__ == "__main__":
    try:
        convert(sys.argv[1], sys.argv[2])
    except (Refused, OSError) as error:
        sys.exit(str(error))
