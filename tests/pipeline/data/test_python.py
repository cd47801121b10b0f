"""The Python package: datasets as memory maps, reports, plans; Planetoid's pickles, of which none is run."""
import os
import pickle
import re
import shutil
import sys
import tempfile

import numpy as np
from harness import *

sys.path.insert(0, os.path.join(ROOT, "tools", "python"))
os.environ["PENSTOCK_PYTHON"] = sys.executable
sys.dont_write_bytecode = True
import penstock
from penstock import planetoid

PLANETOID = os.path.join(DATA, "raw", "planetoid")


@test
def a_dataset_as_arrays():
    with tempfile.TemporaryDirectory() as d:
        for dtype in ("float32", "float16", "bfloat16"):
            command("gen", "community", d + "/d", "--vertices", 500, "--seed", 1, "--quiet", "--force")
            command("convert", d + "/d", d + "/c", "--dtype", dtype, "--force", "--quiet")
            a, b = penstock.open_dataset(d + "/d"), penstock.open_dataset(d + "/c")
            assert b.features.shape == (500, a.feature_dim) and isinstance(a.indices, np.memmap)
            assert np.allclose(b.features_float32(), a.features_float32(), rtol=2 ** -8, atol=1e-6)
            assert np.array_equal(b.features_float32(slice(3, 5)), b.features_float32()[3:5])
            sources, targets = a.edge_index()
            assert np.array_equal(sources[targets == 7], a.in_neighbours(7)) and len(sources) == a.edges
            assert len(a.labels) == 500 and len(a.train) > 0 and a.triples_train is None and a.name_of(5) == 5
        with open(d + "/e", "w", encoding="utf-8") as f:
            f.write("\u00e4,b\nb,c\n")
        command("import", "csv", d + "/e", d + "/n", "--ids", "strings", "--header", "no", "--quiet")
        n = penstock.open_dataset(d + "/n")
        assert [n.name_of(v) for v in range(3)] == ["\u00e4", "b", "c"] and n.in_neighbours(2).tolist() == [1]
        with open(d + "/n/dataset.json", "w") as f:
            f.write('{"penstock_dataset": 10}')
        try:
            penstock.open_dataset(d + "/n")
            raise AssertionError("a version 10 was opened")
        except penstock.FormatError as e:
            assert "expected a format version from 1 to 9, found 10" in str(e)


@test
def a_report_and_a_plan():
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/report.json", "w") as f:
            f.write('{"status": "ok"}')
        assert penstock.read_report(d) == penstock.read_report(d + "/report.json") == {"status": "ok"}
        with open(d + "/plan.json", "w") as f:
            f.write('{"cached": 2}')
        np.save(d + "/cache.npy", np.array([4, 1]))
        plan = penstock.read_plan(d)
        assert plan["cached"] == 2 and plan["cache"].tolist() == [4, 1] and "hotness" not in plan


@test
def pickles_of_planetoid():
    if not os.path.isdir(PLANETOID):
        raise Skip(f"{PLANETOID} is not there")
    with tempfile.TemporaryDirectory() as d:
        for name in ("cora", "citeseer"):
            clean = os.path.join(DATA, "clean", name)
            command("import", "planetoid", os.path.join(PLANETOID, "ind." + name), d + "/p", "--symmetrize", "--dedupe",
                    "--self-loops", "remove", "--force", "--quiet")
            command("import", "npy", clean, d + "/n", "--force", "--quiet")
            sums = []
            for k in "pn":
                with open(f"{d}/{k}/dataset.json") as f:
                    sums.append({a: e["xxh3"] for a, e in json.load(f)["arrays"].items()})
            assert sums[0] == sums[1], name


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/penstock-was-here",)


@test
def no_pickle_is_run():
    if not os.path.isdir(PLANETOID):
        raise Skip(f"{PLANETOID} is not there")
    with tempfile.TemporaryDirectory() as d:
        for k in os.listdir(PLANETOID):
            if k.startswith("ind.cora"):
                shutil.copyfile(os.path.join(PLANETOID, k), os.path.join(d, k))
        good = open(d + "/ind.cora.tx", "rb").read()
        cases = [(pickle.dumps(Evil()), "system, which files of Planetoid do not contain"), (good[:1000], "expected a pickle file of Planetoid"), (b"", "expected a pickle file"),
                 (pickle.dumps([1]), "expected Csr, found list"), (good.replace(b"csr_matrix", b"csc_matrix", 1), "csc_matrix")]
        for content, expect in cases:
            with open(d + "/ind.cora.tx", "wb") as f:
                f.write(content)
            r = command("import", "planetoid", d + "/ind.cora", d + "/out", "--quiet", code=2)
            assert expect in r.stderr and "ind.cora.tx" in r.stderr, (expect, r.stderr)
            assert not os.path.exists(d + "/out") and not os.path.exists("/tmp/penstock-was-here")
        with open(d + "/ind.cora.tx", "wb") as f:
            f.write(good)
        with open(d + "/ind.cora.test.index", "a") as f:
            f.write("x\n")
        r = command("import", "planetoid", d + "/ind.cora", d + "/out", "--quiet", code=2)
        assert "test.index:1001: expected the number of a vertex, found 'x'" in r.stderr, r.stderr


def readme_blocks():
    with open(os.path.join(ROOT, "tools", "python", "README.md")) as f:
        return re.findall(r"```python\n(.*?)```", f.read(), re.S)


def run_block(place, needs, checks):
    """The README's block that needs a module, as it stands, and then checks of what it made."""
    python = os.environ.get("PENSTOCK_TORCH_PYTHON", sys.executable)
    env = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "tools", "python"), "PYTHONDONTWRITEBYTECODE": "1", "HOME": place}
    block, = (b for b in readme_blocks() if f"import {needs}\n" in b or f"from {needs}" in b)
    if needs != "penstock":
        there = subprocess.run([python, "-c", f"import {needs}"], env={**env, "DGLBACKEND": "pytorch"}, capture_output=True, text=True)
        if there.returncode:
            raise Skip(f"{python} has no {needs}: {there.stderr.strip().splitlines()[-1]}")
    assert len(block.strip().splitlines()) <= 12, "about ten lines"
    r = subprocess.run([python, "-W", "ignore", "-c", block + checks], cwd=place, env={**env, "DGLBACKEND": "pytorch"}, capture_output=True, text=True)
    assert r.returncode == 0, r.stdout + r.stderr


def small_demo(place):
    os.makedirs(place + "/data")
    command("gen", "community", place + "/data/demo", "--vertices", 3000, "--quiet")


@test
def the_readme_s_block():
    with tempfile.TemporaryDirectory() as d:
        small_demo(d)
        os.mkdir(d + "/runs")
        command("run", os.path.join(ROOT, "pipelines", "hyperion.json"), "--dataset", d + "/data/demo", "--run-dir", d + "/runs/demo", "--epochs", 1,
                "--quiet", *(["--group", "all"] if GROUPED else []))
        env = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "tools", "python"), "PYTHONDONTWRITEBYTECODE": "1"}
        block, = (b for b in readme_blocks() if "ds.in_neighbours(7)" in b)
        block += "assert penstock.read_report('runs/demo')['status'] == 'ok'\n" \
            "assert len(penstock.read_plan('runs/demo/plan')['cache']) > 0 and ds.vertices == 3000\n"
        r = subprocess.run([sys.executable, "-c", block], cwd=d, env=env, capture_output=True, text=True)
        assert r.returncode == 0, r.stderr


@test
def the_readme_s_block_for_dgl():
    with tempfile.TemporaryDirectory() as d:
        small_demo(d)
        run_block(d, "dgl", """
import numpy as np
assert graph.num_nodes() == 3000 and graph.num_edges() == ds.edges
for v in range(0, 3000, 50):
    assert sorted(graph.in_edges(v)[0].tolist()) == sorted(ds.in_neighbours(v).tolist()), v
assert np.array_equal(x.numpy(), np.asarray(ds.features)[inputs.numpy()]) and y.tolist() == ds.labels[seeds.numpy()].tolist()
block = blocks[-1]
of = block.srcdata[dgl.NID]
for k in range(len(seeds)):  # aggregated from in-neighbours
    assert set(of[block.in_edges(k)[0]].tolist()) <= set(ds.in_neighbours(int(seeds[k])).tolist())
""")


@test
def the_readme_s_block_for_pyg():
    with tempfile.TemporaryDirectory() as d:
        small_demo(d)
        run_block(d, "torch_geometric", """
import numpy as np
from torch_geometric.nn import SAGEConv
assert data.num_edges == ds.edges and np.array_equal(x.numpy(), np.asarray(ds.features)[nodes.numpy()])
assert y.tolist() == ds.labels[seeds.numpy()].tolist() and nodes[where].tolist() == seeds.tolist()
conv = SAGEConv(ds.feature_dim, 4, root_weight=False, bias=False)  # the mean over in-neighbours, times a matrix
out = conv(x, edge_index)[where].detach().numpy()
for k in range(0, len(seeds), 7):
    neighbours = ds.in_neighbours(int(seeds[k]))
    mean = ds.features[neighbours].mean(0) if len(neighbours) else np.zeros(ds.feature_dim, np.float32)
    assert np.allclose(out[k], mean @ conv.lin_l.weight.detach().numpy().T, atol=1e-4), k
""")


if __name__ == "__main__":
    main()
