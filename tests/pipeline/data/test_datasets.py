"""Broken datasets: `run` refuses with exit code 2 and starts nothing where headers, sizes, the manifest or what is
proportional to the vertices show it; `verify` finds the rest, too, by reading everything."""
import os
import shutil
import struct
import subprocess

import numpy as np
from harness import *

SHIPPED = os.path.join(ROOT, "pipelines", "hyperion.json")
DATA_AT = 4096  # of every array


class Case:
    """How a dataset is broken, and words of what is told. deep: only `verify` can see it."""

    def __init__(self, name, damage, *words, deep=False, verify=True, args=()):
        self.name, self.damage, self.words = name, damage, words
        self.deep, self.verify, self.args = deep, verify, args


def manifest(**changes):
    """dataset.json with members replaced: manifest(arrays__train__dtype="int32"); None removes."""
    def damage(d):
        path = os.path.join(d, "dataset.json")
        with open(path) as f:
            root = json.load(f)
        for way, value in changes.items():
            at = root
            *keys, last = way.split("__")
            for key in keys:
                at = at[key]
            if value is None:
                del at[last]
            else:
                at[last] = value
        with open(path, "w") as f:
            json.dump(root, f, indent=2)
    return damage


def text(change):
    """dataset.json as bytes, changed."""
    def damage(d):
        path = os.path.join(d, "dataset.json")
        with open(path, "rb") as f:
            data = f.read()
        with open(path, "wb") as f:
            f.write(change(data))
    return damage


def both(*damages):
    def damage(d):
        for one in damages:
            one(d)
    return damage


def values(array, dtype, at, *items):
    """Entries of an array, from `at` on (negative: from its end)."""
    def damage(d):
        path = os.path.join(d, array + ".npy")
        data = np.array(items, dtype)
        with open(path, "r+b") as f:
            where = DATA_AT + at * data.itemsize if at >= 0 else os.path.getsize(path) + at * data.itemsize
            f.seek(where)
            f.write(data.tobytes())
    return damage


def header(array, **replace):
    """The .npy header with text replaced; its length stays."""
    def damage(d):
        path = os.path.join(d, array + ".npy")
        with open(path, "r+b") as f:
            head = f.read(DATA_AT)
            for old, new in replace["by"]:
                assert old in head, (old, head[:100])
                head = head.replace(old, new, 1)
            f.seek(0)
            f.write(head.rstrip().ljust(DATA_AT - 1) + b"\n")
    return damage


def size(array, change):
    def damage(d):
        path = os.path.join(d, array + ".npy")
        os.truncate(path, change(os.path.getsize(path)))
    return damage


def again(array, make):
    """The array written anew by NumPy, with the header padded as ours are."""
    def damage(d):
        path = os.path.join(d, array + ".npy")
        made = make(np.load(path))
        head = str({"descr": made.dtype.str, "fortran_order": bool(made.flags.fnc), "shape": made.shape}).encode()
        with open(path, "wb") as f:
            f.write(b"\x93NUMPY\1\0" + struct.pack("<H", DATA_AT - 10) + head.ljust(DATA_AT - 11) + b"\n")
            f.write(made.tobytes("A"))
    return damage


def gone(array):
    return lambda d: os.unlink(os.path.join(d, array))


def instead(array, make):
    def damage(d):
        path = os.path.join(d, array)
        os.unlink(path)
        make(path)
    return damage


def split_of(name, make):
    """A split with other ids, its size and manifest made to agree."""
    def damage(d):
        ids = np.array(make(np.load(os.path.join(d, name + ".npy"))), np.int64)
        again(name, lambda _: ids)(d)
        manifest(**{f"arrays__{name}__shape": [len(ids)]})(d)
    return damage


NAN, INF = float("nan"), float("inf")
FLIP = lambda data, at: data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]

CASES = [
    # the directory
    Case("not there", lambda d: shutil.rmtree(d), "dataset.json", "No such file"),
    Case("a file", lambda d: (shutil.rmtree(d), open(d, "w").close()), "Not a directory"),
    Case("empty directory", lambda d: (shutil.rmtree(d), os.mkdir(d)), "dataset.json", "No such file"),
    Case("half made", gone("dataset.json"), "dataset.json", "No such file"),
    Case("manifest is a directory", instead("dataset.json", os.mkdir), "dataset.json", "expected a regular file"),
    # dataset.json as text
    Case("manifest empty", text(lambda t: b""), "dataset.json:1"),
    Case("manifest cut off", text(lambda t: t[:len(t) // 2]), "dataset.json:", "expected"),
    Case("manifest not JSON", text(lambda t: b"\x93NUMPY" + t), "dataset.json:1"),
    Case("manifest not UTF-8", text(lambda t: t.replace(b"community", b"comm\xffnity")), "dataset.json:3"),
    Case("manifest a list", text(lambda t: b"[" + t + b"]"), "expected an object"),
    Case("manifest deep", text(lambda t: b"[" * 100000), "dataset.json:1", "depth"),
    Case("manifest of two mebibytes", text(lambda t: t + b" " * (2 << 20)), "more than 1048576 bytes"),
    Case("manifest with a key twice", text(lambda t: t.replace(b'"edges"', b'"edges": 1, "edges"')), "duplicate"),
    # its members
    Case("newer version", manifest(penstock_dataset=12), "expected version 1 to 11, found 12"),
    Case("no version", manifest(penstock_dataset=None), "expected version 1 to 11"),
    Case("unknown key", manifest(colour="blue"), "unknown key 'colour'"),
    Case("vertices negative", manifest(vertices=-1), "vertices: expected 0 to"),
    Case("vertices real", manifest(vertices=300.5), "vertices: expected an integer"),
    Case("vertices huge", manifest(vertices=1 << 62), "vertices: expected 0 to"),
    Case("vertices large", manifest(vertices=10**15), "indptr.shape: expected 1000000000000001 rows"),
    Case("vertices off by one", manifest(vertices=301), "expected 302 rows, found 301"),
    Case("edges off by one", manifest(edges=1), "indices.shape: expected 1 rows"),
    Case("feature_dim too wide", manifest(feature_dim=129), "129 columns of float32 do not fit"),
    Case("feature_dim 0", manifest(feature_dim=0), "arrays.features: present"),
    Case("stride_bytes odd", manifest(stride_bytes=511), "stride_bytes"),
    Case("stride_bytes 0", manifest(stride_bytes=0), "stride_bytes"),
    Case("classes 0", manifest(classes=0), "arrays.labels: present"),
    Case("classes below the labels", manifest(classes=3), "labels.npy", "vertex", "expected -1 to 2"),
    Case("ids of the other width", manifest(id_dtype="int64"), "id_dtype"),
    Case("two stripes", manifest(stripes=[{"dir": "."}, {"dir": "b"}]), "2 stripes"),
    Case("no arrays", manifest(arrays=None), "arrays: expected an object"),
    Case("no indptr", manifest(arrays__indptr=None), "arrays.indptr: missing"),
    Case("array elsewhere", manifest(arrays__labels__file="../labels.npy"), "file: expected a file name without a directory, found '"),
    Case("two arrays in one file", manifest(arrays__val__file="train.npy"), "train.npy", "as in dataset.json, found"),
    Case("another dtype", manifest(arrays__labels__dtype="int64"), "arrays.labels", "expected one dimension of int32"),
    Case("unknown dtype", manifest(arrays__labels__dtype="int"), "arrays.labels"),
    Case("three dimensions", manifest(arrays__features__shape=[300, 8, 16]), "shape: expected a list of 1 or 2 sizes"),
    Case("negative size", manifest(arrays__train__shape=[-1]), "arrays.train.shape[0]"),
    Case("more train ids than vertices", manifest(arrays__train__shape=[301]), "301 ids, but there are only 300 vertices"),
    Case("bad checksum text", manifest(arrays__train__xxh3="zz"), "arrays.train.xxh3"),
    # array files
    *[Case(f"no {name} file", gone(name + ".npy"), name + ".npy", "No such file")
      for name in ("indptr", "indices", "features", "labels", "train")],
    *[Case(f"{name} cut by a byte", size(name, lambda n: n - 1), name + ".npy", "truncated")
      for name in ("indptr", "indices", "features", "labels", "val")],
    Case("features without data", size("features", lambda n: DATA_AT), "features.npy", "truncated"),
    Case("features without a header", size("features", lambda n: 100), "features.npy", "byte 8"),
    Case("labels empty", size("labels", lambda n: 0), "labels.npy", "found only 0 bytes"),
    Case("indices longer than they say", size("indices", lambda n: n + 4), "indices.npy", "expected"),
    Case("array is a directory", instead("indices.npy", os.mkdir), "indices.npy"),
    Case("array links to itself", instead("indices.npy", lambda p: os.symlink(p, p)), "indices.npy"),
    Case("array is a pipe", instead("train.npy", os.mkfifo), "train.npy", verify=True),
    Case("header of other magic", header("features", by=[(b"NUMPY", b"NUMPZ")]), "features.npy", "signature of a .npy file"),
    Case("header of version 9", header("features", by=[(b"NUMPY\1", b"NUMPY\t")]), "version"),
    Case("header longer than the file", header("train", by=[(b"\xf6\x0f", b"\xff\xff")]), "train.npy", "claims 65535"),
    Case("header of another dtype", header("features", by=[(b"<f4", b"<i4")]), "found int32"),
    Case("header of a narrower dtype", header("features", by=[(b"<f4", b"<f2")]), "features.npy"),
    Case("header big endian", header("features", by=[(b"<f4", b">f4")]), "features.npy"),
    Case("header of objects", header("features", by=[(b"<f4", b"|O8")]), "features.npy"),
    Case("header in columns", header("features", by=[(b"False", b"True ")]), "fortran_order"),
    Case("header with another shape", header("features", by=[(b"(300, 128)", b"(128, 300)")]),
         "expected float32 of shape 300 x 128", "found float32 of 128 x 300"),
    Case("header that claims more", header("labels", by=[(b"(300,)", b"(900,)")]), "labels.npy", "truncated"),
    Case("header beyond 63 bits", header("features", by=[(b"(300, 128), ", b"(9999999999, 9999999999), "),
                                                         (b"    ", b""), (b"    ", b""), (b"    ", b"")]), "63 bits"),
    Case("header cut in its text", header("features", by=[(b"'shape'", b"'sha\n e'")]), "features.npy", "byte"),
    Case("labels of another width", again("labels", lambda a: a.astype(np.int64)), "found int64"),
    # what is proportional to the vertices
    Case("indptr begins above 0", values("indptr", np.int64, 0, 1), "indptr.npy", "expected the first entry 0 and the last"),
    Case("indptr ends below the edges", values("indptr", np.int64, -1, 5), "indptr.npy", "expected the first entry 0 and the last"),
    Case("indptr ends beyond the edges", values("indptr", np.int64, -1, 1 << 60), "indptr.npy", "expected the first entry 0 and the last"),
    Case("indptr falls", values("indptr", np.int64, 100, 0), "indptr.npy", "entry 100: expected"),
    Case("indptr negative", values("indptr", np.int64, 7, -8), "indptr.npy", "entry 7: expected", "found -8"),
    Case("indptr jumps beyond the edges", values("indptr", np.int64, 9, 1 << 50), "indptr.npy", "entry 9: expected"),
    Case("label beyond the classes", values("labels", np.int32, 5, 10), "labels.npy", "vertex 5: expected -1 to 9"),
    Case("label below -1", values("labels", np.int32, 299, -2), "labels.npy", "vertex 299", "found -2"),
    Case("train id out of range", values("train", np.int64, 3, 300), "train.npy", "entry 3: expected 0 to 299"),
    Case("train id negative", values("train", np.int64, 0, -1), "train.npy", "entry 0", "found -1"),
    Case("test id huge", values("test", np.int64, 0, 1 << 62), "test.npy", "entry 0: expected 0 to 299"),
    Case("id twice in a split", split_of("val", lambda a: [*a[:-1], a[0]]), "val.npy", "is already in val"),
    Case("overlapping splits", lambda d: split_of("val", lambda a: np.load(os.path.join(d, "train.npy"))[:20])(d),
         "val.npy", "is already in train"),
    Case("no train split", both(manifest(arrays__train=None), gone("train.npy")),
         "stages.sampler.params.split", 'has no split "train"', verify=False),
    Case("empty train split", split_of("train", lambda a: []), "stages.planner.params.split", 'an empty split "train"',
         verify=False),
    Case("empty val split, trained on", split_of("val", lambda a: []), "--set: params.split",
         'an empty split "val"', verify=False, args=("--set", "params.split=val")),
    Case("several at once", both(gone("labels.npy"), size("features", lambda n: n - 512), gone("val.npy")),
         "3 problems", "labels.npy", "features.npy", "val.npy"),
    # what only reading everything shows
    Case("index out of range", values("indices", np.int32, 17, 300), "indices.npy", "entry 17: expected 0 to 299",
         "found 300", deep=True),
    Case("index negative", values("indices", np.int32, -1, -5), "indices.npy", "found -5", deep=True),
    Case("NaN feature", values("features", np.float32, 128 * 7 + 3, NAN), "features.npy", "row 7, column 3", deep=True),
    Case("infinite feature", values("features", np.float32, -1, -INF), "row 299, column 127", deep=True),
    Case("many NaNs", values("features", np.float32, 0, *[NAN] * 50), "row 0, column 0", "45 more errors of this kind", deep=True),
    Case("feature changed after import", values("features", np.float32, 1000, 0.25), "features.npy", "checksum", deep=True),
    Case("label changed after import", lambda d: again("labels", lambda a: (a + 1) % 10)(d), "labels.npy", "checksum",
         deep=True),
    Case("edge changed after import", values("indices", np.int32, 0, 299), "indices.npy", "checksum", deep=True),
    Case("checksum changed", manifest(arrays__features__xxh3="0" * 16), "features.npy", "checksum", deep=True),
]


def attempt(case, p, good):
    data = p.path("broken")
    subprocess.run(["rm", "-rf", data], check=True)
    shutil.copytree(good, data)
    case.damage(data)
    told = []
    if case.verify:
        r = subprocess.run([PENSTOCK, "verify", "--quiet", data], capture_output=True, text=True, errors="replace",
                           timeout=30)
        assert r.returncode == 2 and not r.stdout, f"verify: exit code {r.returncode}\n{r.stdout}{r.stderr}"
        told.append(r.stderr)
    if not case.deep:
        r = subprocess.run([PENSTOCK, "run", SHIPPED, "--dataset", data, "--run-dir", p.path("never"), *case.args],
                           capture_output=True, text=True, errors="replace", timeout=30)
        assert r.returncode == 2, f"run: exit code {r.returncode}\n{r.stdout}{r.stderr}"
        told.append(r.stderr)
    assert not os.path.exists(p.path("never")), "a run directory was made"
    for err in told:
        assert all(word in err for word in case.words), f"expected {case.words} in\n{err}"
        assert data in err, f"says not where:\n{err}"


@test
def broken_datasets():
    with Place() as p:
        good = p.path("good")
        command("gen", "community", good, "--vertices", 300, "--seed", 3)
        command("verify", good)
        failures = []
        for case in CASES:
            try:
                attempt(case, p, good)
                no_leftovers()
            except Exception as e:
                failures.append(f"--- {case.name}: {type(e).__name__}: {e}")
        assert not failures, f"{len(failures)} of {len(CASES)}:\n" + "\n".join(failures)
        assert len({case.name for case in CASES}) == len(CASES) >= 60


@test
def every_byte_of_a_manifest():
    """One bit of dataset.json flipped at a time, and the file cut at many places: never a crash, never a hang."""
    with Place() as p:
        good = p.path("good")
        command("gen", "community", good, "--vertices", 300, "--seed", 3)
        path = os.path.join(good, "dataset.json")
        with open(path, "rb") as f:
            data = f.read()
        step = 29 if SAN else 7
        for at in range(0, len(data), step):
            for broken in (data[:at], FLIP(data, at)):
                with open(path, "wb") as f:
                    f.write(broken)
                r = subprocess.run([PENSTOCK, "verify", "--quiet", good], capture_output=True, text=True,
                                   errors="replace", timeout=30)
                assert r.returncode in (0, 2), (at, r)
                assert broken != data[:at] or r.returncode == 2, (at, r)


@test
def deep_damage_ends_a_run_in_order():
    """Where only reading everything would have shown it, a run may fail, but not crash, hang or leave anything."""
    with Place() as p:
        good = p.path("good")
        command("gen", "community", good, "--vertices", 300, "--seed", 3)
        for case in (c for c in CASES if c.deep):
            data = p.path("broken")
            shutil.rmtree(data, ignore_errors=True)
            shutil.copytree(good, data)
            case.damage(data)
            r = p.run(SHIPPED, "--epochs", 1, data=data, code=None)
            assert r.code in (0, 1) and "signal" not in r.err, f"{case.name}: {r}"
            if case.name.startswith("index"):
                assert r.code == 1 and "that the graph does not have" in r.err, f"{case.name}: {r}"
            if "NaN" in case.name:
                assert r.code == 1, f"{case.name}: {r}"
            no_leftovers()


if __name__ == "__main__":
    main()
