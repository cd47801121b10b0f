"""`penstock infer`: the accuracy of the run's own evaluation, exactly; the same bits for any memory and number of threads;
what it refuses, and that it leaves nothing half-written."""
import signal
import struct

import numpy as np
from harness import *
from inferring import infer, outputs
from small_disk import SmallDisk

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
DEEP = ["--set", "params.fanout=[4,4,4]", "--set", "stages.trainer.params.layers=3", "--set", "stages.trainer.params.hidden=24",
        "--set", "stages.trainer.params.residual=true"]


def train(p, *args, **more):
    return p.run(HYPERION, "--set", "params.batch=128", "--set", "stages.planner.params.cpu_cache=128KiB", "--quiet",
                 "--epochs", 3, *args, **more)


def share(p, data, classes, split):
    """Accuracy as NumPy finds it, in a report's digits."""
    ids, labels = np.load(os.path.join(data, split + ".npy")), np.load(os.path.join(data, "labels.npy"))
    ids = ids[labels[ids] >= 0]
    return float(f"{np.mean(classes[ids] == labels[ids], dtype=np.float64):.9g}")


def tensors(path):
    """What a safetensors file has."""
    with open(path, "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        head, data = json.loads(f.read(n)), f.read()
    return {name: np.frombuffer(data[e["data_offsets"][0]:e["data_offsets"][1]], "<f4").reshape(e["shape"])
            for name, e in head.items() if name != "__metadata__"}


EPSILON = 1e-5  # of both normalisations; stages/lib/gnn/README.md says so, and what a checkpoint's tensors are


def sage(x, indptr, indices, w):
    mean = np.stack([x[indices[a:b]].mean(0) if b > a else np.zeros(x.shape[1]) for a, b in zip(indptr, indptr[1:])])
    return x @ w("weight_self") + mean @ w("weight_neigh")


def gcn(x, indptr, indices, w):
    root = 1 / np.sqrt(np.diff(indptr) + 1)[:, None]
    x = x * root
    return root * (x + np.stack([x[indices[a:b]].sum(0) for a, b in zip(indptr, indptr[1:])])) @ w("weight")


def gat(heads):
    def mix(x, indptr, indices, w):
        left, right = (w("attention_" + side).reshape(heads, -1) for side in ("left", "right"))
        z = (x @ w("weight")).reshape(len(x), heads, -1)
        l, r = (z * left).sum(2), (z * right).sum(2)
        y = np.empty_like(z)
        for v, (a, b) in enumerate(zip(indptr, indptr[1:])):
            u = np.append(indices[a:b], v)
            e = l[v] + r[u]
            e = np.exp(np.where(e > 0, e, 0.2 * e))
            y[v] = ((e / e.sum(0))[:, :, None] * z[u]).sum(0)
        return y
    return mix


MIX = {"graphsage": sage, "gcn": gcn, "gat": gat(3)}
ACTIVATE = {"gat": lambda y: np.where(y > 0, y, np.expm1(np.minimum(y, 0)))}
GAT = ["--set", "stages.trainer.params.heads=3", "--set", "stages.trainer.params.hidden=8"]


def by_numpy(data, checkpoint, layers, residual=True, model="graphsage"):
    """The same model, in float64: the hidden layers' outputs and the logits."""
    w, dim = tensors(checkpoint), json.load(open(os.path.join(data, "dataset.json")))["feature_dim"]
    x = np.load(os.path.join(data, "features.npy"))[:, :dim].astype(np.float64)
    indptr, indices = (np.load(os.path.join(data, k + ".npy")) for k in ("indptr", "indices"))
    out, running = [], 0
    for l in range(layers):
        y = MIX[model](x, indptr, indices, lambda name: w[f"layer{l}.{name}"].astype(np.float64))
        if model == "gat":  # heads: side by side, in the last layer averaged
            y = y.mean(1) if l + 1 == layers else y.reshape(len(y), -1)
        y = y + w.get(f"layer{l}.bias", 0)
        if f"layer{l}.gain" in w:
            if "running" in w:  # batch norm: of each normalised layer its means, then its variances
                n = y.shape[1]
                center, variance = w["running"][running:running + n], w["running"][running + n:running + 2 * n]
                running += 2 * n
            else:  # layer norm
                center, variance = y.mean(1, keepdims=True), y.var(1, keepdims=True)
            y = (y - center) / np.sqrt(variance + EPSILON) * w[f"layer{l}.gain"] + w[f"layer{l}.shift"]
        if l + 1 < layers:
            y = ACTIVATE.get(model, lambda y: np.maximum(y, 0))(y + x if residual and 0 < l else y)
        out.append(x := y)
    assert running == len(w.get("running", []))
    return out


@test
def checkpoints_of_normalised_models_are_as_documented():
    with Place() as p:
        for norm in ("layer", "batch"):
            run = train(p, *DEEP, "--set", f"stages.trainer.params.norm={norm}", "--set", "stages.sampler.params.overflow=error",
                        "--set", "stages.sampler.params.margin=4")
            report, _ = infer(p, run.run_dir, "--logits")
            want = by_numpy(p.data, report["checkpoint"], 3)[2]
            got = outputs(p)[".logits"]
            assert np.abs(got - want).max() < 1e-4 * np.abs(want).max(), (norm, np.abs(got - want).max())


@test
def the_run_s_own_accuracy_and_numpy_s_rows():
    with Place() as p:
        for model, layers, args in (("graphsage", 2, []), ("gcn", 2, []), ("gcn", 3, DEEP), ("gat", 2, GAT), ("gat", 3, DEEP + GAT), ("graphsage", 3, DEEP)):
            run = train(p, *args, "--set", f"stages.trainer.params.model={model}")
            report, r = infer(p, run.run_dir, "--logits")
            got = outputs(p)
            assert report["test_accuracy"] == run.report["test_accuracy"] == share(p, p.data, got[".classes"], "test"), report
            best = run.report["epochs"][run.report["best_epoch"]]
            assert report["val_accuracy"] == best["val_accuracy"] == share(p, p.data, got[".classes"], "val"), report
            want = by_numpy(p.data, report["checkpoint"], layers, model=model)
            assert np.allclose(got[""], want[-2], rtol=1e-4, atol=1e-4) and np.allclose(got[".logits"], want[-1], rtol=1e-4, atol=1e-4)
            assert np.array_equal(got[".classes"], got[".logits"].argmax(1)) and got[".classes"].dtype == np.int32
            last, _ = infer(p, run.run_dir, "--checkpoint", "last")
            assert last["test_accuracy"] == run.report["final_test_accuracy"], (last, run.report)
            assert f"test accuracy {report['test_accuracy']:.4f}" in r.stdout, r.stdout
        first, _ = infer(p, run.run_dir, "--layer", 1)
        assert first["layer"] == 1 and np.allclose(outputs(p)[""], want[0], rtol=1e-4, atol=1e-4)


LITTLE = {"graphsage": ((1, "200K"), (2, "700K"), (4, "1M")), "gat": ((1, "1M"), (2, "1500K"), (4, "2500K"))}  # GAT has 8 heads
LITTLE["gcn"] = LITTLE["graphsage"]


@test
def the_same_bits_in_any_memory():
    with Place() as p:
        for model, norm in (("gcn", "none"), ("gat", "none"), ("graphsage", "none"), ("graphsage", "batch")):
            run = train(p, *DEEP, "--set", f"stages.trainer.params.norm={norm}", "--set", "stages.trainer.params.eval_memory=64KiB",
                        "--set", "stages.sampler.params.overflow=error", "--set", f"stages.trainer.params.model={model}")
            want, spilled = None, []
            for threads, memory in ((1, "1G"), (3, "1G"), *LITTLE[model]):
                report, _ = infer(p, run.run_dir, "--logits", "--threads", threads, "--memory", memory)
                got = {name: a.tobytes() for name, a in outputs(p).items()}
                want = want or got
                assert got == want, (model, norm, threads, memory)
                assert report["test_accuracy"] == run.report["test_accuracy"], "training's evaluation had 64 KiB"
                spilled.append(report["spilled"])
            assert spilled == [False, False, True, True, True], spilled
        _, r = infer(p, run.run_dir, "--memory", "64K", "--threads", 2, code=2)
        assert "needs" in r.stderr and "--threads" in r.stderr, r.stderr


@test
def other_datasets():
    with Place() as p:
        run = train(p)
        want, _ = infer(p, run.run_dir)
        command("convert", p.data, p.path("half"), "--dtype", "float16", "--quiet")
        _, r = infer(p, run.run_dir, "--dataset", p.path("half"), code=2)
        assert "is not the dataset that" in r.stderr and "--other-dataset" in r.stderr, r.stderr
        half, _ = infer(p, run.run_dir, "--dataset", p.path("half"), "--other-dataset")
        assert abs(half["test_accuracy"] - want["test_accuracy"]) < 0.02
        command("gen", "community", p.path("wide"), "--vertices", 300, "--features", 16, "--quiet")
        for args in ([], ["--other-dataset"]):
            _, r = infer(p, run.run_dir, "--dataset", p.path("wide"), *args, code=2)
            assert "has 16 features per vertex, but the model of" in r.stderr and "needs 128" in r.stderr, r.stderr
        command("gen", "community", p.path("few"), "--vertices", 300, "--classes", 3, "--quiet")
        _, r = infer(p, run.run_dir, "--dataset", p.path("few"), "--other-dataset", code=2)
        assert "has 3 classes" in r.stderr, r.stderr
        # without labels, and with a split that is not there: embeddings all the same, and no accuracy that is not one
        command("export", p.data, p.path("plain"), "--quiet")
        os.unlink(p.path("plain/labels.npy"))
        command("import", "npy", p.path("plain"), p.path("unlabelled"), "--val", "none", "--quiet")
        got, r = infer(p, run.run_dir, "--dataset", p.path("unlabelled"), "--other-dataset")
        assert got["test_accuracy"] is None and got["val_accuracy"] is None and "accuracy" not in r.stdout
        command("export", p.data, p.path("some"), "--quiet")
        command("import", "npy", p.path("some"), p.path("no-val"), "--val", "none", "--quiet")
        got, _ = infer(p, run.run_dir, "--dataset", p.path("no-val"), "--other-dataset")
        assert got["val_accuracy"] is None and got["test_accuracy"] == want["test_accuracy"]
        r = p.run(HYPERION, "--quiet", data=p.path("unlabelled"), code=None)
        assert r.code != 0 and "classes" in r.err, r


@test
def refusals():
    with Place() as p:
        run = train(p)
        cases = [([], "expected one run directory"), ([run.run_dir], "ends in .npy"),
                 ([run.run_dir, "--out", p.path("x.csv")], "ends in .npy"),
                 ([run.run_dir, "--out", p.path("x.npy"), "--layer", 2], "--layer: expected 1 to 1"),
                 ([run.run_dir, "--out", p.path("x.npy"), "--checkpoint", "worst"], "expected best or last"),
                 ([run.run_dir, "--out", p.path("x.npy"), "--other-dataset"], "--other-dataset requires the dataset: also give --dataset DIR"),
                 ([p.path("nowhere"), "--out", p.path("x.npy")], "has no checkpoints"),
                 ([run.run_dir, "--out", p.path("no/such/x.npy")], "No such file"),
                 ([run.run_dir, "--out", p.path("x.npy"), "--dataset", p.path("nowhere")], "dataset.json")]
        for args, words in cases:
            r = command("infer", *args, code=None)
            assert r.returncode in (1, 2) and words in r.stderr, (args, r.stderr)
        infer(p, run.run_dir)
        r = command("infer", run.run_dir, "--out", p.path("out.npy"), code=2)
        assert "exists: choose another file" in r.stderr, r.stderr
        # a damaged last checkpoint is passed over, and said to be; with all of them gone there is none
        last = sorted(os.listdir(os.path.join(run.run_dir, "checkpoints")))[-1]
        path = os.path.join(run.run_dir, "checkpoints", last)
        with open(path, "r+b") as f:
            f.seek(-5, 2)
            f.write(b"\x55")
        report, r = infer(p, run.run_dir, "--checkpoint", "last")
        assert "damaged" in r.stderr and report["checkpoint"] != path, (report, r.stderr)
        os.rename(os.path.join(run.run_dir, "report.json"), p.path("kept"))
        _, r = infer(p, run.run_dir, code=2)
        assert "give --dataset DIR" in r.stderr, r.stderr
        for name in os.listdir(os.path.join(run.run_dir, "checkpoints")):
            os.unlink(os.path.join(run.run_dir, "checkpoints", name))
        _, r = infer(p, run.run_dir, code=2)
        assert "" in r.stderr, r.stderr
        assert sorted(n for n in os.listdir(p.dir) if "partial" in n or n.startswith(("x.", "activations"))) == []


@test
def a_full_disk():
    with Place() as p:
        run = train(p, "--set", "stages.trainer.params.hidden=256")
        with SmallDisk(p, "tmpfs") as disk:
            for leave in (0, 100_000, 2_300_000):  # the results need 2,056,000 bytes and headers, activations twice as much
                disk.fill(leave)
                _, r = infer(p, run.run_dir, "--memory", "2M", "--threads", 1, out="disk/out.npy", code=1)
                assert "No space left on device" in r.stderr and ("cannot reserve" in r.stderr or "cannot reserve" in r.stderr), r.stderr
                assert os.listdir(disk.at) == ["filler"], os.listdir(disk.at)
            disk.free()
            infer(p, run.run_dir, "--memory", "2M", "--threads", 1, out="disk/out.npy")


@test
def stopped_in_the_middle():
    with Place() as p:
        command("gen", "community", p.path("large"), "--vertices", 20000, "--features", 16, "--quiet")
        run = p.run(HYPERION, "--quiet", "--epochs", 1, data=p.path("large"))
        argv = [PENSTOCK, "infer", run.run_dir, "--out", p.path("out.npy"), "--memory", "256K", "--threads", "1", "--quiet"]
        for sign in (signal.SIGINT, signal.SIGTERM):
            process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
            until = time.time() + 20
            while time.time() < until and not any("partial" in n for n in os.listdir(p.dir)):
                time.sleep(0.002)
            process.send_signal(sign)
            _, err = process.communicate(timeout=60)
            assert process.returncode == 128 + sign and "interrupted while" in err, (process.returncode, err)
            assert not [n for n in os.listdir(p.dir) if n.startswith("out")], os.listdir(p.dir)
        process = subprocess.Popen(argv)
        while not any("partial" in n for n in os.listdir(p.dir)):
            time.sleep(0.002)
        process.kill()
        process.wait()
        assert not os.path.exists(p.path("out.npy"))
        assert "removed" in command("gc", p.dir).stdout
        assert not [n for n in os.listdir(p.dir) if n.startswith("out")], os.listdir(p.dir)


if __name__ == "__main__":
    main()
