"""Vertices with several labels each: binary cross-entropy, micro-F1 in the report, `penstock infer`, on a CPU and on a virtual
GPU."""
import numpy as np
from harness import *
from inferring import infer, outputs

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
HOST_BUILD = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
TASKS, UNKNOWN = 5, 255
SMALL = ["--set", "params.batch=128", "--set", "params.fanout=[4,3]", "--set", "stages.trainer.params.hidden=16", "--set",
         "stages.trainer.params.dropout=0.1", "--quiet"]


def dataset(p):
    """Each task is a linear function of a vertex's features and its neighbours'. Some labels are not known."""
    path, source = p.path("tasks"), p.path("source")
    if os.path.exists(path):
        return path
    rng = np.random.default_rng(5)
    n = 900
    edges = rng.integers(0, n, (2, 4 * n)).astype(np.int32)
    x = rng.standard_normal((n, 12)).astype(np.float32)
    mean = np.zeros_like(x)
    np.add.at(mean, edges[1], x[edges[0]] / 4)
    labels = ((x + mean) @ rng.standard_normal((12, TASKS)) > 0.5).astype(np.uint8)
    labels[rng.random(labels.shape) < 0.1] = UNKNOWN
    order = rng.permutation(n)
    os.makedirs(source)
    for name, array in (("edges", edges), ("features", x), ("multilabels", labels), ("train_idx", order[:500]),
                        ("val_idx", order[500:700]), ("test_idx", order[700:])):
        np.save(os.path.join(source, name + ".npy"), array)
    with open(os.path.join(source, "meta.json"), "w") as f:
        json.dump({"kept": ["multilabels"]}, f)
    command("import", "npy", source, path)
    return path


def micro_f1(data, predicted, split):
    ids, known = np.load(os.path.join(data, split + ".npy")), np.load(os.path.join(data, "multilabels.npy"))
    known, predicted = known[ids].astype(int), predicted[ids].astype(int)
    there = known != UNKNOWN
    hits = (known * predicted)[there].sum()
    return float(f"{2 * hits / (known[there].sum() + predicted[there].sum()):.9g}")


@test
def models_learn_several_labels():
    with Place() as p:
        data = dataset(p)
        for model, fall, least in (("graphsage", 0.8, 0.75), ("gcn", 0.95, 0.35)):  # GCN cannot tell a vertex from its neighbours
            run = p.run(HYPERION, *SMALL, "--epochs", 8, "--set", f"stages.trainer.params.model={model}", data=data)
            assert "test_accuracy" not in run.report and "train_accuracy" not in run.report["epochs"][0], run.report
            losses = [e["loss"] for e in run.report["epochs"]]
            assert 0.5 < losses[0] < 0.9 and losses[-1] < fall * losses[0], losses
            assert run.report["test_micro_f1"] > least, run.report["test_micro_f1"]
            report, r = infer(p, run.run_dir, "--logits")
            got = outputs(p)
            assert got[".classes"].dtype == np.uint8 and np.array_equal(got[".classes"], got[".logits"] > 0)
            assert report["test_micro_f1"] == run.report["test_micro_f1"] == micro_f1(data, got[".classes"], "test"), report
            assert report["train_micro_f1"] == micro_f1(data, got[".classes"], "train"), report
            assert f"test micro-F1 {report['test_micro_f1']:.4f}" in r.stdout, r.stdout
            less, _ = infer(p, run.run_dir, "--logits", "--memory", "80K", "--threads", 1)
            assert less["spilled"] and all(np.array_equal(a, got[name]) for name, a in outputs(p).items())


@test
def roc_auc_is_the_mean_over_the_labels():
    with Place() as p:
        data = dataset(p)
        run = p.run(HYPERION, *SMALL, "--epochs", 3, "--set", "stages.trainer.params.metric=roc_auc", data=data)
        infer(p, run.run_dir, "--logits")
        ids, logits = np.load(os.path.join(data, "test.npy")), outputs(p)[".logits"]
        known, each = np.load(os.path.join(data, "multilabels.npy"))[ids], []
        for c in range(TASKS):
            up, down = (logits[ids, c][known[:, c] == label].astype(np.float32) for label in (1, 0))
            each.append(np.mean((up[:, None] > down) + 0.5 * (up[:, None] == down)))
        assert abs(run.report["test_roc_auc"] - np.mean(each)) < 1e-9 and run.report["test_micro_f1"] > 0, (run.report, each)
        r = p.run(HYPERION, *SMALL, "--set", "stages.trainer.params.label_smoothing=0.1", data=data, code=1)
        assert "label_smoothing can be set only if each vertex has one label" in r.err, r.err


@test
def a_run_goes_on_and_a_gpu_agrees():
    with Place() as p:
        data = dataset(p)
        want = p.run(HYPERION, *SMALL, "--epochs", 2, data=data).report
        first = p.run(HYPERION, *SMALL, "--epochs", 1, data=data)
        again = p.run(HYPERION, *SMALL, "--epochs", 2, "--resume", first.run_dir, data=data).report
        assert again["weights_digest"] == want["weights_digest"], (again, want)
        os.environ["PENSTOCK_CUDA"] = HOST_BUILD
        try:
            gpu = p.run(HYPERION, *SMALL, "--epochs", 2, "--device", "cuda:0", data=data, timeout=110).report
        finally:
            del os.environ["PENSTOCK_CUDA"]
        for a, b in zip(gpu["epochs"], want["epochs"], strict=True):
            assert abs(a["loss"] - b["loss"]) <= 1e-5 * b["loss"], (a, b)
            assert abs(a["train_micro_f1"] - b["train_micro_f1"]) <= 0.002 and abs(a["val_micro_f1"] - b["val_micro_f1"]) <= 0.01, (a, b)


if __name__ == "__main__":
    main()
