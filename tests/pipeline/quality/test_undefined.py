"""A metric that is not defined is told before training, by an error or by a warning that the report and the table repeat."""
import numpy as np
from harness import *

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
SMALL = ["--epochs", 2, "--set", "params.batch=64", "--set", "params.fanout=[3,2]", "--set", "stages.trainer.params.hidden=8", "--quiet"]


def dataset(p, name, val, test):
    """300 vertices of three classes. val, test: the labels of the vertices of these splits."""
    rng, n, source = np.random.default_rng(2), 300, p.path("source-" + name)
    labels = np.concatenate([rng.integers(0, 3, 200), np.resize(val, 50), np.resize(test, 50)]).astype(np.int32)
    os.makedirs(source)
    for array, values in (("edges", rng.integers(0, n, (2, 900)).astype(np.int32)), ("labels", labels),
                          ("features", rng.standard_normal((n, 4)).astype(np.float32)), ("train_idx", np.arange(200)),
                          ("val_idx", np.arange(200, 250)), ("test_idx", np.arange(250, 300))):
        np.save(os.path.join(source, array + ".npy"), values)
    command("import", "npy", source, p.path(name))
    return p.path(name)


def run(p, data, code=0, **params):
    settings = [word for name, value in params.items() for word in ("--set", f"stages.trainer.params.{name}={json.dumps(value)}")]
    return p.run(HYPERION, *SMALL, *settings, data=data, code=code)


def told(r):
    """The trainer's warnings in the report, which are also shown during the run and in the table."""
    texts = [w["text"] for w in r.report["warnings"] if w["stage"] == "trainer"]
    assert all(f"warning: trainer: {text}" in r.err and f"  warning             trainer: {text}" in r.out for text in texts), r
    return texts


@test
def a_class_without_vertices():
    with Place() as p:
        data = dataset(p, "some", val=[0, 1], test=[0, 1, 2])
        assert told(run(p, data)) == []
        for metric in ("roc_auc", "average_precision"):
            r = run(p, data, metric=metric)
            assert told(r) == [f"{metric} is not defined for 1 of 3 classes of the validation split of {data} (the first is class 2), because "
                               "none or all of its vertices are in the class: it is the mean over the other classes"], r
            assert r.report["epochs"][0]["val_" + metric] > 0 and r.report["test_" + metric] > 0


@test
def a_metric_that_no_class_has():
    with Place() as p:
        data = dataset(p, "one", val=[1], test=[0, 1, 2])
        r = run(p, data, code=1, metric="roc_auc")
        assert f"metric is roc_auc, which is not defined on the validation split of {data}" in r.err and "Choose macro_f1 or accuracy" in r.err, r
        r = run(p, dataset(p, "test", val=[0, 1, 2], test=[1]), metric="roc_auc")
        assert "roc_auc is not defined on the test split" in told(r)[0] and r.report["test_roc_auc"] is None, r


@test
def a_split_without_labels():
    with Place() as p:
        data = dataset(p, "none", val=[-1], test=[0, 1, 2])
        for metric in ("macro_f1", "roc_auc", "micro_f1"):
            r = run(p, data, code=1, metric=metric)
            assert f"metric is {metric}, but the validation split of {data} has no vertex with a known label" in r.err, r
        r = run(p, data, schedule="plateau")
        assert "best_epoch is the last epoch that was evaluated, and the schedule plateau follows the training loss" in told(r)[0], r
        assert r.report["best_epoch"] == 1 and r.report["epochs"][1]["val_accuracy"] is None, r.report
        r = run(p, data, metric="macro_f1", eval_every=0)
        assert told(r) == ["metric is macro_f1, but eval_every is 0, so nothing is evaluated: no epoch is the best"] and r.report["best_epoch"] == -1


if __name__ == "__main__":
    main()
