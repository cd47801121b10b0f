"""The code of tools/python/README.md and of the top README, as it stands. (tests/pipeline/data/test_python.py: datasets.)"""
import re

from snake import *
import penstock


def blocks(readme, language):
    with open(os.path.join(ROOT, readme)) as f:
        return re.findall(rf"```{language}\n(.*?)```", f.read(), re.S)


def block(word, readme="tools/python/README.md", language="python"):
    """The one block that has this word."""
    found, = (b for b in blocks(readme, language) if word in b)
    return found


class Desk(Place):
    """A user's current directory, with pipelines/ and data/demo."""

    def __enter__(self):
        os.mkdir(self.path("data"))
        command("gen", "community", self.path("data/demo"), "--vertices", 3000, "--quiet")
        os.symlink(os.path.join(ROOT, "pipelines"), self.path("pipelines"))
        return self

    def python(self, code, python=sys.executable):
        r = subprocess.run([python, "-W", "ignore", "-c", code], cwd=self.dir, capture_output=True, text=True, timeout=120)
        assert r.returncode == 0, r.stdout + r.stderr
        return r.stdout


@test
def batches():
    with Desk() as p:
        out = p.python(block("mb.seeds, mb.labels") + "assert mb.features.shape == (mb.n[2], 128) and mb.epoch == 1\n")
        assert re.fullmatch(r"\d+ reads\n", out), out
        assert glob.glob(p.path("runs/*")) == []


@test
def the_top_readme():
    with Desk() as p:
        assert 0 < float(p.python(block("penstock.batches", "README.md"))) <= 1


@test
def runs():
    with Desk() as p:
        out = p.python(block("report.text"))
        assert out.startswith("ok 0.") and "bound by" in out, out
        first, second, rows = p.python(block("on_epoch=show")).splitlines()
        assert first.startswith("0 ") and second.startswith("1 ") and rows.startswith("[{") and "'ended'" in rows, (first, second, rows)


@test
def a_stage():
    with Desk() as p:
        code = block('penstock.Stage("degrees"')
        assert len(code.splitlines()) <= 12
        with open(p.path("degrees.py"), "w") as f:
            f.write(code)
        os.chmod(p.path("degrees.py"), 0o755)
        os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], os.path.dirname(PENSTOCK)])
        r = subprocess.run(["bash", "-euc", block("./degrees.py", language="sh")], cwd=p.dir, capture_output=True, text=True)
        assert r.returncode == 0, r
        report, = glob.glob(p.path("runs/*/report.json"))
        assert 5 < penstock.read_report(report)["degrees"]["mean"] <= 10


@test
def a_trainer_with_checkpoints():
    with Desk() as p:
        with open(p.path("majority.py"), "w") as f:
            f.write(block('penstock.Stage("majority"'))
        os.chmod(p.path("majority.py"), 0o755)
        args = [os.path.join(ROOT, "pipelines", "hyperion.json"), "--dataset", "data/demo", "--set", 'stages.trainer={"run": "./majority.py"}', "--quiet"]
        command("run", *args, "--run-dir", "a", "--epochs", 3, cwd=p.dir)
        command("run", *args, "--run-dir", "b", "--epochs", 5, "--resume", "a", cwd=p.dir)
        code = """
import numpy as np, penstock
report, ds = penstock.read_report("b"), penstock.open_dataset("data/demo")
assert [row["epoch"] for row in report["epochs"]] == [3, 4] and report["best_epoch"] == 0, report["epochs"]
counts = np.load(penstock.open_checkpoint("b/checkpoints/%08d.safetensors" % (5 * 1)))
"""
        batches = penstock.read_report(p.path("a"))["stages"]["sampler"]["items"]  # of three epochs
        p.python(code.replace("5 * 1", f"5 * {batches // 3}") + "assert counts.sum() == 5 * len(ds.train)\n")


@test
def tensors():
    need("torch, zmq, numpy")
    with Desk() as p:
        p.python(block("import penstock, torch") + """
import numpy as np
with penstock.batches("pipelines/hyperion.json", "data/demo", epochs=1) as loader:
    for mb in loader:
        t = mb.torch()
        assert t.x.data_ptr() == mb.features.ctypes.data and t.n_id.data_ptr() == mb.vertices.ctypes.data  # no copy
        assert t.y.dtype == torch.int64 and t.y.tolist() == mb.labels.tolist() and t.batch_size == mb.n[0]
        for h, hop in enumerate(reversed(t.layers)):
            assert hop.indices.data_ptr() == mb.indices[h].ctypes.data and (hop.sources, hop.targets) == (mb.n[h + 1], mb.n[h])
            sources, targets = hop.edge_index
            for v in range(0, hop.targets, 31):
                assert sources[targets == v].tolist() == mb.indices[h][mb.indptr[h][v]:mb.indptr[h][v + 1]].tolist()
""", TORCH_PYTHON)


@test
def blocks_of_dgl():
    need("dgl, zmq, numpy")
    with Desk() as p:
        p.python("""
import penstock
with penstock.batches("pipelines/hyperion.json", "data/demo", epochs=1) as loader:
    for mb in loader:
        for h, hop in enumerate(reversed(mb.torch().layers)):
            sources, targets = hop.block.edges()
            assert (hop.edge_index[0] == sources).all() and (hop.edge_index[1] == targets).all()
            assert (hop.block.num_src_nodes(), hop.block.num_dst_nodes()) == (mb.n[h + 1], mb.n[h])
""", TORCH_PYTHON)


if __name__ == "__main__":
    main()
