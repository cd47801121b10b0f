"""Files that are not what they should be: nothing hangs, fills the disk or memory, and each is told so that one can act."""
import signal
import zipfile

from harness import *
from importing import *
from small_disk import SmallDisk

CORA = shipped_pipelines()["cora"]
SECONDS = 20 if SAN else 10  # a pipe that is waited for takes for ever


def refused(*args, words, code=(1, 2)):
    r = subprocess.run([PENSTOCK, *map(str, args)], capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=SECONDS)
    assert r.returncode in code and words in r.stderr, (args, r.returncode, r.stderr)
    return r.stderr


def pipe(s, name):
    path = s.path(name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.exists(path):
        os.unlink(path)
    os.mkfifo(path)
    return path


@test
def sources_that_are_missing():
    """A source that is not there is the user's mistake (exit code 2), whatever its format."""
    with Scratch() as s:
        for kind in ("npy", "snap", "csv", "tsv", "psv", "triples", "openke", "webgraph", "npz", "ogb", "igb", "mag240m", "graphbolt", "marius", "planetoid"):
            r = command("import", kind, s.path("none"), s.path("out"), code=2)
            assert f"{s.path('none')}: there is no such file or directory" in r.stderr, (kind, r.stderr)
            assert not os.path.exists(s.path("out")), kind


@test
def pipes_are_not_waited_for():
    with Scratch() as s:
        command("gen", "community", s.path("d"), "--vertices", 300, "--quiet")
        command("run", *CORA, "--dataset", s.path("d"), "--epochs", 1, "--run-dir", s.path("r"), "--quiet")
        for name in os.listdir(s.path("r/checkpoints")):
            pipe(s, f"r/checkpoints/{name}")
        refused("infer", s.path("r"), "--out", s.path("x.npy"), words="")
        pipe(s, "d/dataset.json")
        for order in (["inspect"], ["verify"], ["rm"], ["run", *CORA, "--dataset"]):
            refused(*order, s.path("d"), words="dataset.json: expected a regular file")
        for kind, files in (("npy", ["edges.npy", "meta.json"]), ("graphbolt", ["metadata.yaml"]), ("marius", ["dataset.yaml"]), ("openke", ["entity2id.txt"]),
                            ("triples", ["train.txt"]), ("ogb", ["raw/data.npz"]), ("mag240m", ["meta.pt"]),
                            ("igb", ["processed/paper__cites__paper/edge_index.npy", "processed/paper/node_feat.npy", "processed/paper/node_label_19.npy"])):
            for name in files:
                shutil.rmtree(s.path("k"), ignore_errors=True)
                s.arrays("k", processed__paper__cites__paper__edge_index=np.array(EDGES), processed__paper___cites___paper__edge_index=np.array(EDGES).T)
                if kind == "igb":
                    s.arrays("k/processed/paper__cites__paper", edge_index=np.array(EDGES))
                if kind == "mag240m":
                    s.arrays("k/processed/paper___cites___paper", edge_index=np.array(EDGES).T)
                pipe(s, "k/" + name)
                refused("import", kind, s.path("k"), s.path("o"), "--quiet", words=os.path.basename(name) + ": expected a")
        for kind, source, name in (("webgraph", "k/x", "k/x.properties"), ("planetoid", "k/ind.c", "k/ind.c.x"), ("csv", "k/c", "k/c"), ("npz", "k/n", "k/n")):
            pipe(s, name)
            refused("import", kind, s.path(source), s.path("o"), "--quiet", words=": expected a")
        os.unlink(s.path("k/x.properties"))
        s.put("k/x.properties", "graphclass=it.unimi.dsi.webgraph.BVGraph\nversion=0\nnodes=1\narcs=0\n")
        pipe(s, "k/x.graph")
        refused("import", "webgraph", s.path("k/x"), s.path("o"), words="x.graph: expected a regular file")
        assert not os.path.exists(s.path("o"))


@test
def a_count_that_is_a_mistake_does_not_fill_the_disk():
    with Scratch() as s:
        s.put("e.csv", "0,100000000000000\n1,2\n")
        text = refused("import", "csv", s.path("e.csv"), s.path("o"), "--quiet", words="--ids strings would renumber them): indptr.npy", code=(1,))
        assert "indptr.npy needs 800.00 TB, but its file system has only" in text and "No space left on device" in text, text
        command("import", "csv", s.path("e.csv"), s.path("o"), "--ids", "strings", "--header", "no", "--quiet")
        s.arrays("n", edges=np.array(EDGES).T)
        for args in (["--vertices", 10 ** 15], ["--vertices", 10 ** 17]):
            refused("import", "npy", s.path("n"), s.path("o2"), *args, "--quiet", words="indptr.npy needs", code=(1,))
        s.put("g/metadata.yaml", "graph:\n  nodes: [{num: 1000000000000}]\n  edges: [{format: numpy, path: e.npy}]\n")
        s.arrays("g", e=np.array(EDGES).T)
        refused("import", "graphbolt", s.path("g"), s.path("o2"), "--quiet", words="indptr.npy needs 8.00 TB", code=(1,))
        assert not [n for n in os.listdir(s.dir) if n.startswith("o2")]

        class Disk:  # what SmallDisk needs of a place
            path = staticmethod(s.path)
        with SmallDisk(Disk, "tmpfs") as disk:  # of 8 MiB
            command("gen", "rmat", os.path.join(disk.at, "d"), "--vertices", 2000, "--edges", 2000, "--features", 0, "--quiet")
            text = refused("features", os.path.join(disk.at, "d"), "--dim", 60000, "--quiet", words="features.npy needs 480.", code=(1,))
            assert "No space left on device" in text and os.listdir(disk.at) == ["d"], text
            many = np.zeros(3 << 20, np.int64)  # large once it is unpacked
            np.savez_compressed(s.path("a.npz"), adj_shape=many, adj_indptr=many, adj_indices=many)
            text = refused("import", "npz", s.path("a.npz"), os.path.join(disk.at, "o"), "--quiet", words="No space left on device", code=(1,))
            assert "needs" in text and os.listdir(disk.at) == ["d"], text


@test
def brackets_and_names():
    with Scratch() as s:
        for text in ("[" * 500000, "{" * 500000, '["]", ' * 100000):
            s.put("g/metadata.yaml", text)
            refused("import", "graphbolt", s.path("g"), s.path("o"), "--quiet", words="opening brackets [ and {; at most")
        s.arrays("n", edges=np.array(EDGES).T)
        s.put("n/meta.json", json.dumps({"name": "a\x1b[31m\nb\x07"}))
        s.get("npy", s.path("n"))
        for args in ([], ["--json"]):
            out = command("inspect", s.path("out"), "--quiet", *args).stdout
            assert "\x1b" not in out and "\x07" not in out and (args or "a?[31m?b?" in out), out
        np.savez(s.path("a.npz"), adj_indices=np.zeros(1, np.int32), adj_shape=np.array([1, 1]))
        with zipfile.ZipFile(s.path("a.npz"), "a") as z:
            z.writestr("adj_indptr.npy", "xx")
        text = refused("import", "npz", s.path("a.npz"), s.path("o"), "--quiet", words="a.npz: member adj_indptr.npy: ")
        assert "found only 2 bytes" in text, text


@test
def long_fields():
    """A quoted field of a table may fill a line; a longer line is refused with its number."""
    with Scratch() as s:
        s.put("e.csv", "0,1\n1,0\n")
        for digits, words in ((1500000, "labels.csv:2: label: expected "), (3000000, "labels.csv:2: the line is too long: at most 2097152 bytes are allowed")):
            s.put("labels.csv", 'vertex,label\n0,"' + "1" * digits + '"\n1,0\n')
            refused("import", "csv", s.path("e.csv"), s.path("o"), "--labels", s.path("labels.csv"), "--quiet", words=words)


@test
def orders_that_make_no_sense():
    with Scratch() as s:
        d = s.path("d")
        command("gen", "community", d, "--vertices", 300, "--quiet")
        with open(s.path("d/dataset.json")) as f:
            before = f.read()
        for args, words in ((["split", d, "--train", "-0.1"], "expected a fraction from 0 to 1, found -0.1"), (["split", d], "give at least one of --train, --val and --test, for example --train"),
                            (["split", d, "--train", "1e-12"], "every split would be empty"), (["convert", d, s.path("d/sub")], "which is itself a dataset: choose another directory"),
                            (["gen", "rmat", s.path("d/sub"), "--vertices", 10], "which is itself a dataset: choose another directory"), (["export", d, ""], "path is empty"),
                            (["infer", s.path("none"), "--out", s.path("o.npy")], "has no checkpoints: expected the directory of a run"),
                            (["infer", "/dev/null", "--out", s.path("o.npy")], "has no checkpoints: expected the directory of a run")):
            refused(*args, words=words, code=(2,))
        with open(s.path("d/dataset.json")) as f:
            assert f.read() == before and not os.path.exists(s.path("d/sub"))


@test
def a_python_that_hangs_can_be_interrupted():
    with Scratch() as s:
        program = s.put("python", "#!/bin/sh\ntouch \"$PENSTOCK_MARK\"\nexec sleep 1000\n")
        os.chmod(program, 0o755)
        s.put("x.graph", "")
        for number in (signal.SIGINT, signal.SIGTERM):
            mark = s.path(f"mark{number}")
            p = subprocess.Popen([PENSTOCK, "import", "planetoid", s.path("x"), s.path("o"), "--quiet"], stderr=subprocess.PIPE, text=True,
                                 start_new_session=True, env={**os.environ, "PENSTOCK_PYTHON": program, "PENSTOCK_MARK": mark})
            until = time.time() + SECONDS
            while not os.path.exists(mark) and time.time() < until:
                time.sleep(0.005)
            os.killpg(p.pid, number)  # as a terminal does
            _, err = p.communicate(timeout=SECONDS)
            assert p.returncode == 128 + number and "interrupted while" in err, (p.returncode, err)
            assert not [n for n in os.listdir(s.dir) if n.startswith("o")]


if __name__ == "__main__":
    main()
