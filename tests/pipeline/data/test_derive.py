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
def features_are_rows_of_an_array():
    with Place() as p:
        d, out, rows = p.path("d"), p.path("out"), p.path("rows.npy")
        command("gen", "rmat", d, "--vertices", 300, "--edges", 900, "--features", 5, "--quiet")
        before, values = sums(d), np.random.default_rng(1).normal(size=(300, 7)).astype("f4")
        np.save(rows, values)
        command("features", d, out, "--rows", rows, "--quiet")
        assert np.array_equal(features(out), values) and manifest(out)["provenance"]["features"] == {"rows": rows}
        assert {k: v for k, v in sums(out).items() if k != "features"} == {k: v for k, v in before.items() if k != "features"}
        command("features", d, out, "--rows", rows, "--dtype", "float16", "--force", "--quiet")
        assert np.array_equal(features(out), values.astype("f2"))
        told = lambda *args: command("features", d, *args, "--quiet", code=None).stderr
        assert "not both" in told("--rows", rows, "--dim", 3) and "not both" in told()
        for array, text in ((values[:299], "has 299 rows; expected one for each of the 300 vertices"), (values.astype("f8"), "expected float32, float16"),
                            (values[:, :0], "expected"), (np.where(values > 2, np.nan, values), "the value does not fit")):
            np.save(rows, array)
            assert text in told("--rows", rows), (text, told("--rows", rows))
        assert sums(d) == before


@test
def features_refused_or_stopped():
    with Place() as p:
        d = p.data
        before = sums(d)
        for args, words in (([d], "give --dim"), ([d, "--dim", 0], "--dim: expected"), ([d, "--dim", 70000], "expected 1 to 65536"),
                            ([d, "--dim", 8, "--dtype", "int32"], "--dtype: expected"), ([d, "--dim", 8, "--train", .5], "--train is not an option of this command"),
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
            assert process.returncode == 128 + sign and "interrupted while" in err, (process.returncode, err)
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
        assert "rows, evenly spaced)" in command("inspect", d, "--quiet").stdout
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


def there_and_back(p, d):
    """Exports, imports, compares the checksums; returns the export's directory."""
    out, back = p.path(f"x{p.count}"), p.path(f"b{p.count}")
    p.count += 1
    command("export", d, out, "--quiet")
    command("import", "npy", out, back, "--quiet")
    command("verify", "--quiet", back)
    a, b = manifest(d), manifest(back)
    assert sums(d) == sums(back), {k for k in sums(d) if sums(d)[k] != sums(back).get(k)}
    for key in ("name", "vertices", "edges", "feature_dim", "stride_bytes", "classes", "penstock_dataset"):
        assert a[key] == b[key], key
    assert a.get("relation_types") == b.get("relation_types")
    return out


@test
def export_and_import_again():
    with Place() as p:
        d = p.path("d")
        for dtype, stride in (("float32", 0), ("float16", 4096), ("bfloat16", 0), ("bfloat16", 600)):
            command("gen", "community", d, "--vertices", 900, "--features", 100, "--force", "--quiet")
            command("features", d, "--dim", 100, "--dtype", dtype, *(["--stride-bytes", stride] if stride else []), "--quiet")
            there_and_back(p, d)
        with open(p.path("e"), "w", encoding="utf-8") as f:
            f.write('\u00e4,b\nb,"c,d"\nb,b\n')
        command("import", "csv", p.path("e"), p.path("names"), "--ids", "strings", "--header", "no", "--quiet")
        there_and_back(p, p.path("names"))
        with open(p.path("e"), "w") as f:
            f.write("7,9000000\n9000000,12\n")
        command("import", "csv", p.path("e"), p.path("ids"), "--ids", "compact", "--quiet")
        there_and_back(p, p.path("ids"))
        os.mkdir(p.path("kg"))
        for name, lines in (("train", "a likes b\nb likes c\na hates c\na likes b\nc hates a\n"), ("valid", "a hates b\n"), ("test", "c likes b\n")):
            with open(p.path(f"kg/{name}.txt"), "w") as f:
                f.write(lines.replace(" ", "\t"))
        command("import", "triples", p.path("kg"), p.path("triples"), "--quiet")
        out = there_and_back(p, p.path("triples"))
        assert {"relations", "triples_train", "names", "relation_names_at"} <= set(manifest(p.path("triples"))["arrays"])
        # what is kept is looked at
        for name, change, words in (("relations", lambda a: a + 5, "relation of edge"), ("triples_val", lambda a: a - 1, "which is out of range or less than the entry before"),
                                    ("names_at", lambda a: a[::-1].copy(), "which is out of range or less than the entry before"), ("relations", lambda a: a[:-1], "), one value for each edge of"),
                                    ("names_at", lambda a: a[[0, 0, 2, 3]][:3], "the ids, names or relations that meta.json lists do not match the")):
            whole = np.load(os.path.join(out, name + ".npy"))
            np.save(os.path.join(out, name + ".npy"), change(whole))
            r = command("import", "npy", out, p.path("bad"), "--quiet", code=None)
            assert r.returncode == 2 and (words in r.stderr or "out of range" in r.stderr) and not os.path.exists(p.path("bad")), (name, r.stderr)
            np.save(os.path.join(out, name + ".npy"), whole)
        os.unlink(os.path.join(out, "names.npy"))
        r = command("import", "npy", out, p.path("bad"), "--quiet", code=None)
        assert "meta.json lists names under 'kept'" in r.stderr, r.stderr


@test
def rows_with_the_source_s_names():
    with Place() as p:
        with open(p.path("e"), "w", encoding="utf-8") as f:
            f.write('\u00e4,b\nb,"a,c"\n')
        command("import", "csv", p.path("e"), p.path("d"), "--ids", "strings", "--header", "no", "--quiet")
        rows = np.array([[0.1, -1], [2, 3e-9], [np.pi, 0]], np.float32)
        np.save(p.path("emb.npy"), rows)
        command("export", p.path("d"), p.path("out"), "--rows", p.path("emb.npy"), "--quiet")
        with open(p.path("out/rows.csv"), encoding="utf-8") as f:
            lines = f.read().splitlines()
        assert lines[0] == "vertex,0,1" and [line.rsplit(",", 2)[0] for line in lines[1:]] == ["\u00e4", "b", '"a,c"'], lines
        assert np.array_equal(np.array([line.rsplit(",", 2)[1:] for line in lines[1:]], np.float32), rows), "exact"
        np.save(p.path("classes.npy"), np.array([2, 0, 1], np.int32))
        command("export", p.path("d"), p.path("out2"), "--rows", p.path("classes.npy"), "--quiet")
        with open(p.path("out2/rows.csv"), encoding="utf-8") as f:
            assert f.read() == 'vertex,0\n\u00e4,2\nb,0\n"a,c",1\n'
        for array, words in ((rows[:2], "row for each of"), (rows.astype(np.float16), "expected float32")):
            np.save(p.path("bad.npy"), array)
            r = command("export", p.path("d"), p.path("out3"), "--rows", p.path("bad.npy"), "--quiet", code=2)
            assert words in r.stderr and not os.path.exists(p.path("out3")), r.stderr
        assert "--rows works only with csv" in command("export", p.path("d"), p.path("out3"), "--rows", p.path("emb.npy"), "--format", "npy", code=2).stderr


@test
def export_stopped_or_without_room():
    with Place() as p:
        command("gen", "rmat", p.path("d"), "--vertices", 30000, "--edges", 900000, "--features", 700, "--quiet")
        before = sorted(os.listdir(p.dir))
        for sign, args in ((signal.SIGINT, []), (signal.SIGTERM, ["--format", "csv"])):
            process = subprocess.Popen([PENSTOCK, "export", p.path("d"), p.path("out"), "--quiet", *args], stderr=subprocess.PIPE, text=True)
            while not any("partial" in n for n in os.listdir(p.dir)):
                time.sleep(0.001)
            process.send_signal(sign)
            _, err = process.communicate(timeout=60)
            assert process.returncode == 128 + sign and "interrupted while" in err, (process.returncode, err)
            assert sorted(os.listdir(p.dir)) == before, os.listdir(p.dir)
        with SmallDisk(p, "tmpfs") as disk:
            for args in ([], ["--format", "csv"]):
                r = command("export", p.path("d"), os.path.join(disk.at, "out"), "--quiet", *args, code=1)
                assert "No space left on device" in r.stderr and os.listdir(disk.at) == [], r.stderr


if __name__ == "__main__":
    main()
