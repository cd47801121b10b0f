"""The Python package: datasets as memory maps, reports, plans; Planetoid's pickles, of which none is run."""
import os
import pickle
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
            f.write('{"penstock_dataset": 9}')
        try:
            penstock.open_dataset(d + "/n")
            raise AssertionError("a version 9 was opened")
        except penstock.FormatError as e:
            assert "expected 1 to 4, found 9" in str(e)


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
        cases = [(pickle.dumps(Evil()), "system, which is none of"), (good[:1000], "no pickle of Planetoid's"), (b"", "no pickle"),
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
        assert "test.index:1001: expected a vertex, found 'x'" in r.stderr, r.stderr


if __name__ == "__main__":
    main()
