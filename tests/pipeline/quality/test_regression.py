"""Regression: targets that are numbers, from an import to a trained model, its predictions and an export; on a CPU and on a
virtual GPU."""
import numpy as np
from harness import *
from inferring import infer, outputs

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
HOST_BUILD = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
LOSS = ["--set", "stages.trainer.params.loss=mse"]
SMALL = ["--set", "params.batch=128", "--set", "params.fanout=[4,3]", "--set", "stages.trainer.params.hidden=16", "--set",
         "stages.trainer.params.dropout=0", "--quiet"]
N = 900


def source(p, name, columns=2, **more):
    """Each target is a linear function of a vertex's features and its neighbours'; beyond the splits, some are not known."""
    path = p.path(name)
    rng = np.random.default_rng(5)
    edges = rng.integers(0, N, (2, 4 * N)).astype(np.int32)
    x = rng.standard_normal((N, 12)).astype(np.float32)
    mean = np.zeros_like(x)
    np.add.at(mean, edges[1], x[edges[0]] / 4)
    targets = ((x + mean) @ rng.standard_normal((12, columns)) / 4).astype(np.float32)
    order = rng.permutation(N)
    targets[order[850:]] = np.nan
    os.makedirs(path)
    arrays = {"edges": edges, "features": x, "targets": targets if columns > 1 else targets[:, 0], "train_idx": order[:500],
              "val_idx": order[500:650], "test_idx": order[650:850], **more}
    for name, array in arrays.items():
        np.save(os.path.join(path, name + ".npy"), array)
    return path


def dataset(p, name="numbers", **more):
    command("import", "npy", source(p, name + "-source", **more), p.path(name))
    return p.path(name)


def figures(data, predicted, split):
    ids = np.load(os.path.join(data, split + ".npy"))
    target = np.load(os.path.join(data, "targets.npy")).reshape(N, -1)[ids].astype(float)
    off = predicted.reshape(N, -1)[ids].astype(float) - target
    return {"mse": np.mean(off ** 2), "mae": np.mean(abs(off)),
            "r2": np.mean(1 - (off ** 2).sum(0) / ((target - target.mean(0)) ** 2).sum(0))}


def close(report, prefix, wanted):
    return all(abs(report[f"{prefix}_{name}"] - value) <= 1e-6 * max(1, abs(value)) for name, value in wanted.items())


@test
def a_model_learns_numbers():
    with Place() as p:
        for columns in (1, 2):
            data = dataset(p, f"numbers{columns}", columns=columns)
            run = p.run(HYPERION, *SMALL, *LOSS, "--epochs", 10, data=data)
            rows, report = run.report["epochs"], run.report
            assert rows[-1]["loss"] < 0.3 * rows[0]["loss"] and report["test_r2"] > 0.5, (rows, report)
            assert "train_accuracy" not in rows[0] and "test_accuracy" not in report and not report["warnings"], report
            values = [row["val_mse"] for row in rows]
            assert report["best_epoch"] == int(np.argmin(values)), (report["best_epoch"], values)
            assert f"val MSE {values[-1]:.4f}" in run.err and f"  test MSE            {report['test_mse']:.6g}" in run.out, run
            told, r = infer(p, run.run_dir, "--logits")
            got = outputs(p)
            assert got[".values"].dtype == np.float32 and got[".values"].shape == (N, columns) and ".classes" not in got
            assert np.array_equal(got[".values"], got[".logits"])
            for split in ("train", "val", "test"):
                assert close(told, split, figures(data, got[".values"], split)), (told, split)
            assert close(report, "test", figures(data, got[".values"], "test")) and told["test_mse"] == report["test_mse"]
            assert f"test MSE {report['test_mse']:.6g}, MAE" in r.stdout, r.stdout


@test
def the_metric_decides():
    with Place() as p:
        data = dataset(p)
        for metric, best in (("mae", np.argmin), ("r2", np.argmax)):
            r = p.run(HYPERION, *SMALL, *LOSS, "--epochs", 4, "--set", f"stages.trainer.params.metric={metric}", "--set",
                      f"stop.metric=val_{metric}", "--set", "stop.patience=3", data=data)
            assert r.report["best_epoch"] == int(best([row["val_" + metric] for row in r.report["epochs"]])), r.report
            assert len(r.report["epochs"]) == 4 and not r.report["warnings"], r.report  # it improves
        for loss, metric, words in (("mse", "roc_auc", "metric is roc_auc, which is not defined for the loss mse: set metric to mse, mae or r2"),
                                    ("cross_entropy", "r2", "set loss to mse")):
            r = p.run(HYPERION, *SMALL, "--set", f"stages.trainer.params.loss={loss}", "--set", f"stages.trainer.params.metric={metric}",
                      data=data, code=None)
            assert r.code > 0 and words in r.err, r
        r = p.run(HYPERION, *SMALL, *LOSS, "--set", "stages.trainer.params.label_smoothing=0.1", data=data, code=1)
        assert "label_smoothing has no effect if loss is mse" in r.err, r
        same = dataset(p, "same", targets=np.ones(N, np.float32))
        r = p.run(HYPERION, *SMALL, *LOSS, "--epochs", 1, data=same)
        assert r.report["epochs"][0]["val_r2"] is None and "r2 is not defined on the validation split" in r.report["warnings"][0]["text"], r
        r = p.run(HYPERION, *SMALL, *LOSS, "--set", "stages.trainer.params.metric=r2", data=same, code=1)
        assert "metric is r2, which is not defined on the validation split" in r.err, r


@test
def check_says_what_the_dataset_lacks():
    with Place() as p:
        r = command("check", HYPERION, *LOSS, "--dataset", p.data, code=2)
        assert "trainer needs targets (numbers of each vertex), but dataset" in r.stderr, r.stderr
        r = command("check", HYPERION, "--dataset", dataset(p), code=2)
        assert "has targets, which are numbers: set loss to mse" in r.stderr, r.stderr
        command("check", HYPERION, *LOSS, "--dataset", p.path("numbers"))


@test
def bad_targets_are_refused():
    with Place() as p:
        for name, targets, words in (("double", np.zeros(N), "expected float32, found float64: convert it"),
                                     ("short", np.zeros(N - 1, np.float32), f"expected the shape ({N}) or ({N}, K)"),
                                     ("infinite", np.where(np.arange(2 * N) == 17, np.inf, 0).reshape(N, 2).astype(np.float32),
                                      "vertex 8, column 1: expected a finite number, or NaN (not known), found inf")):
            r = command("import", "npy", source(p, name, targets=targets), p.path("bad-" + name), code=2)
            assert words in r.stderr and not os.path.exists(p.path("bad-" + name)), r.stderr
        data = dataset(p)
        vertex = int(np.load(os.path.join(data, "val.npy"))[3])
        targets = np.load(os.path.join(data, "targets.npy"))
        targets[vertex, 1] = np.nan
        r = p.run(HYPERION, *SMALL, *LOSS, data=dataset(p, "hole", targets=targets), code=1)
        assert f"the target of vertex {vertex}, column 1, is nan, but the vertex is in the split" in r.err, r


@test
def targets_come_back_from_an_export():
    with Place() as p:
        data = dataset(p)
        want = np.load(os.path.join(data, "targets.npy"))
        assert "targets: 2 numbers per vertex, from " in command("inspect", data).stdout and "100 unknown" in command("inspect", data).stdout
        assert "every target finite or not known" in command("verify", data).stdout
        for form in ("npy", "csv"):
            command("export", data, p.path("out-" + form), "--format", form)
            command("import", form, p.path("out-" + form), p.path("again-" + form))
            got = np.load(os.path.join(p.path("again-" + form), "targets.npy"))
            assert got.dtype == np.float32 and np.array_equal(got, want, equal_nan=True), form
        indptr, indices = np.load(os.path.join(data, "indptr.npy")), np.load(os.path.join(data, "indices.npy"))
        np.savez(p.path("sparse.npz"), indptr=indptr.astype(np.int32), indices=indices, shape=np.array([N, N]), targets=want[:, 0].copy())
        command("import", "npz", p.path("sparse.npz"), p.path("sparse"))
        assert np.array_equal(np.load(os.path.join(p.path("sparse"), "targets.npy")), want[:, 0], equal_nan=True)


@test
def a_run_goes_on_and_a_gpu_agrees():
    with Place() as p:
        data = dataset(p)
        want = p.run(HYPERION, *SMALL, *LOSS, "--epochs", 3, data=data).report
        first = p.run(HYPERION, *SMALL, *LOSS, "--epochs", 1, data=data)
        again = p.run(HYPERION, *SMALL, *LOSS, "--epochs", 3, "--resume", first.run_dir, data=data).report
        assert again["weights_digest"] == want["weights_digest"] and again["test_mse"] == want["test_mse"], (again, want)
        os.environ["PENSTOCK_CUDA"] = HOST_BUILD
        try:
            gpu = p.run(HYPERION, *SMALL, *LOSS, "--epochs", 2, "--device", "cuda:0", data=data, timeout=110).report
        finally:
            del os.environ["PENSTOCK_CUDA"]
        for a, b in zip(gpu["epochs"], want["epochs"]):
            assert abs(a["loss"] - b["loss"]) <= 1e-4 * b["loss"] and abs(a["val_mse"] - b["val_mse"]) <= 1e-3 * b["val_mse"], (a, b)


if __name__ == "__main__":
    main()
