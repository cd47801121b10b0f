"""Features in stripes: the same rows, losses, embeddings and checksums as in one file, wherever the stripes lie; and what
is told when one is gone or another."""
import signal

import numpy as np
from harness import *

sys.path.insert(0, os.path.join(ROOT, "tools", "python"))
sys.dont_write_bytecode = True
import penstock

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")


def striped(p, n, *args, source=None):
    out = p.path(f"striped{n}")
    command("convert", source or p.data, out, "--stripes", n, "--quiet", "--force", *args)
    return out


def rows(data):
    return np.asarray(penstock.open_dataset(data).features)


def manifest(data):
    with open(os.path.join(data, "dataset.json")) as f:
        return json.load(f)


def train(p, data, *args):
    r = p.run(HYPERION, "--set", "params.batch=128", "--set", "stages.planner.params.cpu_cache=128KiB", "--quiet", "--epochs", 2,
              *args, data=data)
    return r, [e["loss"] for e in r.report["epochs"]], r.report["weights_digest"]


@test
def rows_lie_where_they_should():
    with Place() as p:
        whole = np.load(os.path.join(p.data, "features.npy"))
        for n in (2, 3, 16):
            data = striped(p, n)
            parts = [np.load(os.path.join(data, f"features.{k}.npy")) for k in range(n)]
            assert all(np.array_equal(part, whole[k::n]) for k, part in enumerate(parts))
            assert not os.path.exists(os.path.join(data, "features.npy"))
            m = manifest(data)
            assert m["penstock_dataset"] == 5 and len(m["stripes"]) == n and "features" not in m["arrays"], m
            out = command("verify", data, "--quiet").stdout
            assert all(f"features.{k}.npy" in out for k in range(n)), out
            assert f"in {n} stripes" in command("inspect", data).stdout
            command("convert", data, p.path("back"), "--stripes", 1, "--force", "--quiet")
            assert manifest(p.path("back")) == manifest(p.data)
        stats = [json.loads(command("inspect", d, "--features", "--json").stdout)["features"] for d in (p.data, data)]
        assert stats[0] == stats[1], stats
        three = striped(p, 3)
        command("split", three, p.path("split"), "--train", "0.5", "--quiet")
        assert manifest(p.path("split"))["stripes"] == manifest(three)["stripes"]
        half = striped(p, 2, "--dtype", "float16", source=three)
        command("convert", p.data, p.path("half"), "--dtype", "float16", "--quiet")
        assert np.array_equal(rows(half), rows(p.path("half")))


@test
def the_same_losses_and_embeddings():
    with Place() as p:
        _, losses, weights = train(p, p.data)
        data = striped(p, 3)
        for backend in ("file", "pread", "mmap", "emulated"):
            run, *got = train(p, data, "--set", f"stages.disk.params.backend={backend}")
            assert got == [losses, weights], (backend, got, losses, weights)
            assert run.report["io"]["backend"] == backend and run.report["io"]["rows"] > 1000, run.report["io"]
        command("infer", run.run_dir, "--out", p.path("a.npy"), "--quiet")
        with open(p.path("a.npy"), "rb") as f:
            first = f.read()
        one, *_ = train(p, p.data)
        command("infer", one.run_dir, "--out", p.path("b.npy"), "--quiet")
        with open(p.path("b.npy"), "rb") as f:
            assert f.read() == first
        r = p.run(HYPERION, "--set", "stages.disk.params.fault_row=7", "--set", "stages.disk.params.retries=1", "--quiet", "--epochs", 1,
                  "--set", "stages.planner.params.cpu_cache=0", code=None, data=data)
        assert r.code != 0 and "the features of vertex 7 failed" in r.err and "features.1.npy" in r.err, r
        devices = [p.path(f"d{i}") for i in range(2)]
        for source in (p.data, data):
            command("store", source, "--to", *devices, "--quiet", "--force")
            with open(devices[1], "rb") as f:
                mine = f.read()[1 << 20:]
            assert source == p.data or mine == before
            before = mine


@test
def import_makes_them_and_export_reads_them():
    with Place() as p:
        three = striped(p, 3)
        command("export", three, p.path("arrays"), "--quiet")
        name = ["--name", manifest(p.data)["name"], "--quiet"]
        command("import", "npy", p.path("arrays"), p.path("again"), "--stripes", 3, *name)
        assert manifest(p.path("again"))["stripes"] == manifest(three)["stripes"]
        assert manifest(p.path("again"))["arrays"] == manifest(three)["arrays"]
        ds = penstock.open_dataset(p.path("again"))
        whole = rows(p.data)
        some = [5, 0, 1999, 7, 7]
        assert ds.features.shape == whole.shape and len(ds.features) == 2000
        assert np.array_equal(ds.features[some], whole[some]) and np.array_equal(ds.features[11], whole[11])
        assert np.array_equal(ds.features[3:50:7, 2:5], whole[3:50:7, 2:5]) and ds.features[-1, 3] == whole[-1, 3]
        assert np.array_equal(ds.features_float32(slice(10, 20)), whole[10:20])
        mask = np.arange(2000) % 5 == 2
        assert np.array_equal(ds.features[mask], whole[mask])
        r = command("import", "npy", p.path("arrays"), p.path("no"), "--stripes", 3, "--link", *name, code=2)
        assert "--link" in r.stderr
        r = command("import", "npy", p.path("arrays"), p.path("no"), "--stripes", 17, *name, code=2)
        assert "expected an integer from 1 to 16" in r.stderr and not os.path.exists(p.path("no"))


@test
def stripes_in_other_directories():
    with Place() as p:
        a, b = p.path("ssd-a"), p.path("ssd-b")
        os.mkdir(a)
        os.mkdir(b)
        dirs = ["--stripe-dirs", f"{a},{b}"]
        there = lambda: (len(os.listdir(a)), len(os.listdir(b)))
        data = striped(p, 3, *dirs)
        assert there() == (2, 1) and np.array_equal(rows(data), rows(p.data))
        command("verify", data, "--quiet")
        data = striped(p, 3, *dirs)  # in its own place: the old ones go
        assert there() == (2, 1)
        command("split", data, "--train", "0.5", "--quiet")  # they stay, under other names
        assert there() == (2, 1)
        command("split", data, p.path("split"), "--train", "0.25", "--quiet")
        assert there() == (4, 2)
        command("verify", data, "--quiet")
        command("convert", data, p.path("split"), "--stripes", 1, "--force", "--quiet")
        assert there() == (2, 1) and np.array_equal(rows(p.path("split")), rows(data))
        command("verify", data, "--quiet")
        r = command("convert", data, p.path("no"), "--stripe-dirs", p.path("nowhere"), code=2)
        assert "nowhere" in r.stderr
        os.mkdir(p.path("no"))
        with open(p.path("no/photograph"), "w"):
            pass
        command("convert", data, p.path("no"), *dirs, "--force", code=2)
        assert there() == (2, 1)
        # one that the user moved, and linked to: another's name is never removed
        command("convert", data, p.path("mine"), "--stripes", 2, "--quiet")
        os.rename(p.path("mine/features.1.npy"), p.path("moved.npy"))
        os.symlink(p.path("moved.npy"), p.path("mine/features.1.npy"))
        command("verify", p.path("mine"), "--quiet")
        striped(p, 2)
        command("convert", data, p.path("mine"), "--stripes", 1, "--force", "--quiet")
        assert os.path.exists(p.path("moved.npy"))


@test
def killed_and_resumed():
    with Place() as p:
        a = p.path("ssd")
        os.mkdir(a)
        command("gen", "rmat", p.path("big"), "--vertices", 20000, "--edges", 20000, "--features", 512, "--quiet")
        command("export", p.path("big"), p.path("arrays"), "--quiet")
        argv = ["npy", p.path("arrays"), p.path("out"), "--stripe-dirs", f"{a},{a}", "--checkpoint", "0", "--quiet"]
        command("import", *argv)
        expect = manifest(p.path("out"))
        shutil.rmtree(p.path("out"))
        for name in os.listdir(a):
            os.remove(os.path.join(a, name))
        for resume in ([], ["--resume"]):
            child = subprocess.Popen([PENSTOCK, "import", *argv], stdout=subprocess.DEVNULL)
            until = time.time() + 60
            while child.poll() is None and time.time() < until:  # in the middle of features, where it can be
                if sum(os.path.getsize(os.path.join(a, n)) for n in os.listdir(a)) > 10 << 20:
                    break
            child.kill()
            child.wait()
            faster = os.path.exists(p.path("out"))
            shutil.rmtree(p.path("out"), ignore_errors=True)
            command("import", *argv, *resume, "--force")
            found = manifest(p.path("out"))
            assert found["stripes"] == expect["stripes"] and found["arrays"] == expect["arrays"]
            shutil.rmtree(p.path("out"))
            if not faster:
                assert len(os.listdir(a)) == 2, os.listdir(a)
            for name in os.listdir(a):
                os.remove(os.path.join(a, name))


@test
def what_is_gone_or_another_is_told():
    with Place() as p:
        data = striped(p, 3)
        names = [os.path.join(data, f"features.{k}.npy") for k in range(3)]
        os.rename(names[0], p.path("aside"))
        os.rename(names[1], names[0])
        r = command("inspect", data, code=2)
        assert "features.1.npy" in r.stderr and "No such file" in r.stderr, r.stderr
        os.rename(p.path("aside"), names[1])
        r = command("inspect", data, code=2)  # 667 and 667 rows: the headers are the same
        assert "features.0.npy is not stripe 0" in r.stderr and "features.1.npy is not stripe 1" in r.stderr, r.stderr
        data = striped(p, 3)
        shutil.copy(names[0], names[2])
        assert "features.2.npy: expected float32 of shape 666" in command("inspect", data, code=2).stderr
        data = striped(p, 3)
        with open(names[1], "r+b") as f:
            f.seek(-1, 2)
            f.write(b"\x01")
        assert "features.1.npy: checksum" in command("verify", data, "--quiet", code=2).stderr
        m = manifest(striped(p, 3))
        for change, told in ((lambda m: m["stripes"].pop(), "stripes[0]: expected float32 of 1000 x"),
                             (lambda m: m["stripes"][1].update(file="features.0.npy"), "occurs twice"),
                             (lambda m: m["stripes"][1].update(dtype="float16"), "stripes[1]: expected float32"),
                             (lambda m: m["stripes"][2].pop("head"), "stripes[2].head"),
                             (lambda m: m["stripes"][2].update(file="../x"), "file: expected a file name without a directory, found '"),
                             (lambda m: m.update(penstock_dataset=4), "found 3 stripes")):
            odd = json.loads(json.dumps(m))
            change(odd)
            with open(os.path.join(data, "dataset.json"), "w") as f:
                json.dump(odd, f)
            r = command("inspect", data, code=2)
            assert told in r.stderr, (told, r.stderr)


@test
def neighbours_that_do_not_ascend_are_told():
    with Place() as p:
        indptr = np.load(os.path.join(p.data, "indptr.npy"))
        indices = np.load(os.path.join(p.data, "indices.npy"), mmap_mode="r+")
        v = next(v for v in range(len(indptr) - 1) if len(set(indices[indptr[v]:indptr[v + 1]])) > 1)
        row = indices[indptr[v]:indptr[v + 1]]
        row[:] = row[::-1].copy()
        indices.flush()
        assert f"expected the neighbours of vertex {v} in ascending order, found" in command("verify", p.data, "--quiet", code=2).stderr


if __name__ == "__main__":
    main()
