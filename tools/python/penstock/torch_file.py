"""torch.save's files of plain values to arrays: python3 -m penstock.torch_file FILE OUT.

FILE holds a dictionary of integers, NumPy arrays and tensors, or one of them alone (then its key is "value"): writes
OUTKEY.npy for each. Reads PyTorch's zip format and the pickle before it. As in planetoid.py, a pickle is read only where
it names nothing but arrays and tensors, and none of it is run. Neither PyTorch nor NumPy is needed."""
import collections
import io
import os
import pickle
import stat
import struct
import sys
import zipfile

from .planetoid import LARGEST, Array, Dtype, Refused, encode, reconstruct

DESCR = {"f2": "<f2", "f4": "<f4", "f8": "<f8", "i4": "<i4", "i8": "<i8", "u1": "|u1", "i1": "|i1", "i2": "<i2", "b1": "|b1"}
STORAGE = {"HalfStorage": "f2", "FloatStorage": "f4", "DoubleStorage": "f8", "IntStorage": "i4", "LongStorage": "i8",
           "ByteStorage": "u1", "CharStorage": "i1", "ShortStorage": "i2", "BoolStorage": "b1"}


class Storage:
    def __init__(self, kind):
        self.kind = kind


class Tensor:
    """What torch._utils._rebuild_tensor_v2 is given; storage: (kind, bytes)."""

    def __init__(self, storage, offset, size, stride, *_):
        self.storage, self.offset, self.shape = storage, offset, tuple(size)
        step = 1
        for n, s in zip(reversed(self.shape), reversed(tuple(stride))):
            if n > 1 and s != step:
                raise Refused("a tensor is not contiguous: save the result of its method contiguous()")
            step *= n
        self.items = step


ALLOWED = {("numpy", "ndarray"): Array, ("numpy", "dtype"): Dtype, ("numpy.core.multiarray", "_reconstruct"): reconstruct,
           ("numpy._core.multiarray", "_reconstruct"): reconstruct, ("collections", "OrderedDict"): collections.OrderedDict,
           ("torch._utils", "_rebuild_tensor_v2"): Tensor, ("_codecs", "encode"): encode,
           **{("torch", k): Storage(v) for k, v in STORAGE.items()}}


class Unpickler(pickle.Unpickler):
    def __init__(self, file, storage):
        super().__init__(file, encoding="latin1")
        self.storage = storage

    def find_class(self, module, name):
        if (module, name) not in ALLOWED:
            raise Refused(f"the file refers to {module}.{name}, which is neither an array nor a tensor, so the file was not loaded")
        return ALLOWED[module, name]

    def persistent_load(self, pid):
        if not (isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage" and isinstance(pid[1], Storage)):
            raise Refused("the file refers to data outside of itself")
        return pid[1].kind, self.storage(str(pid[2]))


def load_zip(path):
    with zipfile.ZipFile(path) as z:
        if sum(m.file_size for m in z.infolist()) > LARGEST:
            raise Refused(f"the unpacked file has more than {LARGEST} bytes, which is the limit")
        pkl = [n for n in z.namelist() if n.endswith("/data.pkl")]
        if len(pkl) != 1:
            raise Refused("expected exactly one member data.pkl in the archive")
        folder = pkl[0][:-len("data.pkl")]
        return Unpickler(io.BytesIO(z.read(pkl[0])), lambda key: z.read(f"{folder}data/{key}")).load()


def load_old(path):
    """Magic number, protocol, sizes, value; tensors' storages come after, which plain arrays do not need."""
    def refuse(key):
        raise Refused("the file has tensors in the format before PyTorch 1.6: save it again with a newer PyTorch")
    with open(path, "rb") as f:
        for _ in range(3):
            Unpickler(f, refuse).load()
        return Unpickler(f, refuse).load()


def load(path):
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:  # a pipe is not waited for
        raise Refused(f"{path}: expected a regular file of at most {LARGEST} bytes")
    try:
        return load_zip(path) if zipfile.is_zipfile(path) else load_old(path)
    except Refused as e:
        raise Refused(f"{path}: {e}") from None
    except Exception as e:  # a damaged file may raise anything
        raise Refused(f"{path}: expected a file that torch.save wrote: {type(e).__name__}: {e}") from None


def as_bytes(value):
    """(kind, shape, bytes) of an array, a tensor or an integer."""
    if isinstance(value, Array):
        kind, shape, data = value.dtype.name, value.shape, value.data
    elif isinstance(value, Tensor):
        kind, raw = value.storage
        size = int(kind[1])
        shape, data = value.shape, raw[value.offset * size:(value.offset + value.items) * size]
    elif isinstance(value, int) and -1 << 63 <= value < 1 << 63:
        kind, shape, data = "i8", (1,), struct.pack("<q", value)
    else:
        return None
    items = 1
    for n in shape:
        items *= n
    if kind not in DESCR or items * int(kind[1]) != len(data):
        raise Refused(f"an array of type {kind} and shape {tuple(shape)} has {len(data)} bytes of data; expected one of the types {', '.join(DESCR)}, and as many bytes as the shape needs")
    return kind, tuple(shape), data


def convert(path, out):
    value = load(path)
    for key, item in (value.items() if isinstance(value, dict) else [("value", value)]):
        found = as_bytes(item)
        if found is None or not isinstance(key, str) or "/" in key or len(key) > 100:
            continue
        kind, shape, data = found
        text = f"{{'descr': '{DESCR[kind]}', 'fortran_order': False, 'shape': {shape or (1,)}, }}"
        text += " " * (-(len(text) + 11) % 64) + "\n"
        with open(f"{out}{key}.npy", "xb") as f:
            f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data)


if __name__ == "__main__":
    try:
        convert(sys.argv[1], sys.argv[2])
    except (Refused, OSError) as error:
        sys.exit(str(error))
