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


if __name__ == "__main__":
    main()
