"""Datasets from datasets, and what is said of them: features, inspect, export."""
import signal

import numpy as np
from harness import *
from small_disk import SmallDisk


def manifest(path):
    with open(os.path.join(path, "dataset.json")) as f:
        return json.load(f)


def sums(path):
    return {name: entry["xxh3"] for name, entry in manifest(path)["arrays"].items()}


def features(path):
    """As float32, without padding."""
    m, stored = manifest(path), np.load(os.path.join(path, "features.npy"))
    assert not stored.view(np.uint8).reshape(len(stored), -1)[:, m["feature_dim"] * stored.itemsize:].any(), "padding"
    stored = stored[:, :m["feature_dim"]]
    if m["arrays"]["features"]["dtype"] == "bfloat16":
        return (stored.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32)


@test
def features_for_a_topology():
    with Place() as p:
        d, out = p.path("d"), p.path("out")
        command("gen", "rmat", d, "--vertices", 3000, "--edges", 9000, "--features", 50, "--seed", 5, "--quiet")
        drawn, before = features(d), sums(d)
        command("features", d, out, "--dim", 50, "--seed", 5, "--quiet")
        assert sums(out) == before, "the same features as the generator's, the rest as it was"
        for dtype, error in (("float32", 0), ("float16", 2 ** -11), ("bfloat16", 2 ** -8)):
            command("features", d, out, "--dim", 50, "--dtype", dtype, "--seed", 5, "--force", "--quiet")
            command("verify", "--quiet", out)
            assert manifest(out)["arrays"]["features"]["dtype"] == dtype
            assert np.abs(features(out) - drawn).max() <= error, dtype
        assert np.array_equal(features(out), drawn.view(np.uint32).__add__(0x7fff + (drawn.view(np.uint32) >> 16 & 1)).__and__(0xffff0000).view(np.float32)), "to the nearest"
        command("features", d, out, "--dim", 50, "--seed", 6, "--force", "--quiet")
        assert abs(features(out).mean()) < 0.01 and not np.array_equal(features(out), drawn)
        r = command("features", d, "--dim", 300, "--dtype", "float16", "--stride-bytes", 1024, "--quiet")
        assert "3000 rows of 300 float16, 1024 bytes each" in r.stdout, r.stdout
        command("verify", "--quiet", d)
        assert {k: v for k, v in sums(d).items() if k != "features"} == {k: v for k, v in before.items() if k != "features"}
        assert features(d).shape == (3000, 300) and manifest(d)["provenance"]["features"] == {"generated": "uniform", "seed": 0}


@test
def features_refused_or_stopped():
    with Place() as p:
        d = p.data
        before = sums(d)
        for args, words in (([d], "say --dim"), ([d, "--dim", 0], "--dim: expected"), ([d, "--dim", 70000], "expected 1 to 65536"),
                            ([d, "--dim", 8, "--dtype", "int32"], "--dtype: expected"), ([d, "--dim", 8, "--train", .5], "not one of this command's"),
                            ([d, "--dim", 8, "--stride-bytes", 30], "--stride-bytes: expected a multiple of 4 from 32"),
                            ([p.path("none"), "--dim", 8], "dataset.json"), ([d, d, "--dim", 8], "")):
            r = command("features", *args, code=None)
            assert r.returncode in (1, 2) and words in r.stderr, (args, r.stderr)
        argv = [PENSTOCK, "features", d, "--dim", "65536", "--quiet"]
        for sign in (signal.SIGINT, signal.SIGTERM):
            process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
            while not any("partial" in n for n in os.listdir(p.dir)):
                time.sleep(0.002)
            process.send_signal(sign)
            _, err = process.communicate(timeout=60)
            assert process.returncode == 1 and "interrupted while" in err, (process.returncode, err)
            assert sums(d) == before and os.listdir(p.dir) == ["data"], os.listdir(p.dir)
        with SmallDisk(p, "tmpfs") as disk:
            r = command("features", d, os.path.join(disk.at, "out"), "--dim", 2000, "--quiet", code=1)
            assert "No space left on device" in r.stderr and os.listdir(disk.at) == [], r.stderr


def inspected(path, *args):
    return json.loads(command("inspect", path, "--json", "--quiet", *args).stdout)


def served(count, share):
    """Of all edges, what the hottest share of the rows has; a row that is cut in two counts in part."""
    hot, rows = np.sort(count)[::-1].astype(float), share * len(count)
    whole = int(rows)
    return (hot[:whole].sum() + (rows - whole) * (hot[whole] if whole < len(hot) else 0)) / hot.sum()


@test
def inspect_as_numpy_finds_it():
    with Place() as p:
        d = p.path("d")
        for dtype in ("float32", "float16", "bfloat16"):
            command("gen", "rmat", d, "--vertices", 5000, "--edges", 40000, "--classes", 7, "--train", 100, "--seed", 3, "--features", 24,
                    "--force", "--quiet")
            command("convert", d, p.path("c"), "--dtype", dtype, "--force", "--quiet")
            m, x = inspected(p.path("c")), features(p.path("c"))
            indptr, indices, labels = (np.load(os.path.join(d, k + ".npy")) for k in ("indptr", "indices", "labels"))
            for name, degree in (("in_degree", np.diff(indptr)), ("out_degree", np.bincount(indices, minlength=5000))):
                found = m[name]
                assert [found[k] for k in ("min", "median", "max")] == [degree.min(), np.median(degree), degree.max()], found
                assert abs(found["mean"] - degree.mean()) < 1e-6
                assert sum(b["vertices"] for b in found["histogram"]) == 5000
                for b in found["histogram"]:
                    assert b["vertices"] == ((degree >= b["from"]) & (degree <= b["to"])).sum(), b
            out = np.bincount(indices, minlength=5000)
            for cache in m["caches"]:
                assert abs(served(out, cache["rows"]) - cache["served"]) < 1e-6 and abs(cache["bytes"] - cache["rows"] * 5000 * m["stride_bytes"]) < 1, cache
            assert [c["rows"] for c in m["caches"][:6]] == [.01, .02, .05, .1, .2, .5] and [c["served"] for c in m["caches"][6:]] == [.5, .8, .9]
            f = m["features"]
            assert f["whole"] and f["rows_read"] == 5000 and abs(f["min"] - x.min()) < 1e-8 and abs(f["max"] - x.max()) < 1e-8, f
            assert abs(f["mean"] - x.mean(dtype=np.float64)) < 1e-8 and abs(f["zeros"] - (x == 0).mean()) < 1e-8 and f["not_finite"] == 0
            assert m["labels"]["vertices"] == np.bincount(labels, minlength=7).tolist() and m["labels"]["without"] == 0
            assert m["splits"]["train"] == 100
        with open(p.path("c/features.npy"), "r+b") as file:
            file.seek(4096)
            file.write(b"\xc0\x7f\x00\x00\x80\x7f")  # NaN, 0, infinity in bfloat16
        assert inspected(p.path("c"))["features"]["not_finite"] == 2
        text = command("inspect", p.path("c"), "--quiet").stdout
        for words in ("in-degree: min 0, median", "of accesses", "to serve  50 %", "2 values that are not finite", "(all rows)", "labels: 7 classes"):
            assert words in text, (words, text)


@test
def inspect_samples_large_features():
    with Place() as p:
        d = p.path("d")
        command("gen", "rmat", d, "--vertices", 70000, "--edges", 70000, "--features", 1024, "--quiet")  # 287 MB
        m = inspected(d)["features"]
        assert not m["whole"] and 60000 < m["rows_read"] < 70000 and abs(m["mean"]) < 1e-3, m
        assert "rows, evenly apart)" in command("inspect", d, "--quiet").stdout
        whole = inspected(d, "--features")["features"]
        assert whole["whole"] and whole["rows_read"] == 70000 and whole["min"] <= m["min"] and whole["max"] >= m["max"]


@test
def inspect_of_little():
    with Place() as p:
        os.mkdir(p.path("s"))
        np.save(p.path("s/edges.npy"), np.zeros((2, 0), np.int32))
        command("import", "npy", p.path("s"), p.path("d"), "--vertices", 3, "--quiet")
        m = inspected(p.path("d"))
        assert m["features"] is None and m["in_degree"]["max"] == 0 and m["labels"]["without"] == 3, m
        command("features", p.path("d"), "--dim", 3, "--quiet")
        assert inspected(p.path("d"))["features"]["rows_read"] == 3
        text = command("inspect", p.path("d"), "--quiet").stdout
        assert "no splits" in text and "caches" not in text, text
        for args in ([], ["a", "b"], [p.path("d"), "--nonsense"], [p.path("none")]):
            assert command("inspect", *args, code=None).returncode in (1, 2), args


if __name__ == "__main__":
    main()
