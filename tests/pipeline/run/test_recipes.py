"""How the trainer trains: optimizers, schedules, clipping, weighted and smoothed losses, metrics. A killed run ends with the
bits of a whole one, threads do not matter, a GPU agrees, and what has no effect is refused."""
import os
import signal

import numpy as np
from crash import has_checkpoint, wait_for
from harness import *
from inferring import infer, outputs

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
HOST_BUILD = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
SMALL = ["--set", "params.batch=64", "--set", "params.fanout=[4,3]"]
SGD = dict(optimizer="sgd", momentum=0.9, nesterov=True, rate=0.2, rate_min=0.001, clip=0.5, schedule="plateau", patience=0, factor=0.5,
           warmup=0.5, label_smoothing=0.1, class_weights="balanced", metric="macro_f1")
ADAMW = dict(optimizer="adamw", weight_decay=0.01, schedule="cosine", cosine_epochs=8, warmup=1, metric="roc_auc")


def data(p):
    path = p.path("community")
    if not os.path.exists(path):
        command("gen", "community", path, "--vertices", "1500", "--seed", "3")
    return path


def trainer(**params):
    settings = dict(hidden=8, dropout=0.1, **params)
    return [*SMALL, *[word for name, value in settings.items() for word in ("--set", f"stages.trainer.params.{name}={json.dumps(value)}")]]


@test
def what_has_no_effect_is_refused():
    with Place() as p:
        for params, words in ((dict(momentum=0.9), ["stages.trainer.params.momentum", "only if optimizer=sgd"]),
                              (dict(optimizer="adamw", nesterov=True), ["params.nesterov", "only if optimizer=sgd"]),
                              (dict(schedule="cosine", factor=0.1), ["params.factor", "only if schedule=step|plateau"]),
                              (dict(rate_min=0.1), ["params.rate_min", "only if schedule=step|cosine|plateau"]),
                              (dict(schedule="step", patience=3), ["params.patience", "only if schedule=plateau"]),
                              (dict(optimizer="rmsprop"), ["expected one of adam, adamw, sgd"]),
                              (dict(label_smoothing=1), ["expected a number from 0 to 0.99"]),
                              (dict(schedule="linear"), ["expected one of constant, step, cosine, plateau"]),
                              (dict(metric="recall"), ["expected one of auto, accuracy, micro_f1, macro_f1, roc_auc"])):
            r = command("check", HYPERION, "--dataset", data(p), *trainer(**params), code=2)
            assert all(word in r.stderr for word in words), (params, r.stderr)
        command("check", HYPERION, "--dataset", data(p), *trainer(momentum=0, factor=0.5, **ADAMW))  # defaults have no effect
        for params, word in ((dict(optimizer="sgd", nesterov=True), "nesterov is true, but momentum is 0"),
                             (dict(schedule="step", rate=0.1, rate_min=0.2), "rate_min is 0.2, which is above the learning rate 0.1"),
                             (dict(class_weights="1,2"), "class_weights has 2 weights, but the dataset has"),
                             (dict(class_weights="1,x"), 'has "x" as the weight of class 1')):
            r = p.run(HYPERION, *trainer(**params), "--epochs", 1, data=data(p), code=1)
            assert word in r.err, (params, r.err)


@test
def the_example_of_the_readme_trains():
    with open(os.path.join(ROOT, "stages", "trainer", "README.md")) as f:
        text = f.read().split("```json")[1].split("```")[0]
    with Place() as p:
        report = p.run(HYPERION, *SMALL, "--with", p.write(json.loads(text), "recipe.json"), "--epochs", 4, data=data(p)).report
        losses = [row["loss"] for row in report["epochs"]]
        assert losses[-1] < 0.9 * losses[0] and report["test_macro_f1"] > 0.2 and report["epochs"][-1]["rate"] < 0.05, report


@test
def a_killed_run_ends_with_the_same_bits():
    with Place() as p:
        for recipe in (SGD, ADAMW):
            args = [*trainer(**recipe), "--epochs", 8]
            want = p.run(HYPERION, *args, data=data(p)).report
            run = p.start(HYPERION, *args, data=data(p))
            wait_for(lambda: has_checkpoint(run.run_dir))
            run.process.send_signal(signal.SIGKILL)
            run.wait()
            resumed = p.run(HYPERION, *args, "--resume", run.run_dir, data=data(p))
            got = resumed.report
            assert infer(p, resumed.run_dir)[0]["test_accuracy"] == got["test_accuracy"]
            assert got["weights_digest"] == want["weights_digest"] and got["digest"] == want["digest"], recipe
            for row in got["epochs"]:
                same = want["epochs"][row["epoch"]]
                assert all(row[name] == same[name] for name in row if "second" not in name), (row, same)
            assert all(got[name] == want[name] for name in want if "test_" in name or name == "best_epoch"), (got, want)
            other = p.run(HYPERION, *args, "--set", "stages.trainer.params.clip=3", "--resume", run.run_dir, data=data(p), code=2)
            assert "stages.trainer.params.clip is 3" in other.err, other.err


@test
def threads_do_not_matter_and_a_gpu_agrees():
    with Place() as p:
        for recipe in (SGD, ADAMW):
            args = [*trainer(**recipe), "--epochs", 3]
            want = p.run(HYPERION, *args, "--set", "stages.trainer.params.threads=1", data=data(p)).report
            more = p.run(HYPERION, *args, "--set", "stages.trainer.params.threads=3", data=data(p)).report
            assert more["weights_digest"] == want["weights_digest"]
            metric = "val_" + recipe["metric"]
            assert [e[metric] for e in more["epochs"]] == [e[metric] for e in want["epochs"]]
            os.environ["PENSTOCK_CUDA"] = HOST_BUILD
            try:
                gpu = p.run(HYPERION, *args, "--device", "cuda:0", data=data(p), timeout=110).report
            finally:
                del os.environ["PENSTOCK_CUDA"]
            for a, b in zip(gpu["epochs"], want["epochs"], strict=True):
                assert abs(a["loss"] - b["loss"]) <= 1e-4 * b["loss"] and a["rate"] == b["rate"], (a, b)
                assert abs(a[metric] - b[metric]) <= 0.02, (a, b)


@test
def the_rate_is_that_of_the_schedule():
    """The report has the rate of each epoch's last batch."""
    with Place() as p:
        def rows(epochs=6, **params):
            return p.run(HYPERION, *trainer(rate=0.08, **params), "--epochs", epochs, data=data(p)).report["epochs"]

        def rates(**params):
            return [e["rate"] for e in rows(**params)]

        assert rates() == [0.08] * 6
        assert np.allclose(rates(schedule="step", period=2, factor=0.25), [0.08, 0.08, 0.02, 0.02, 0.005, 0.005])
        rise = rates(warmup=3)
        assert np.allclose(rise[2:], 0.08) and np.allclose(rise[:2], [0.08 / 3, 0.16 / 3]), rise
        fall = rates(schedule="cosine", rate_min=0.01)
        assert 0.01 < fall[5] < 0.012 and all(a > b for a, b in zip(fall, fall[1:])) and abs(fall[2] - 0.045) < 0.01, fall
        for params in (dict(metric="average_precision"), dict(eval_every=2), dict(eval_every=0)):  # without evaluation, by the loss
            scale, best, waited = 1, None, 0
            for row in rows(epochs=12, schedule="plateau", patience=0, factor=0.5, **params):
                assert np.isclose(row["rate"], 0.08 * scale), (row, scale)
                value = -row["loss"] if params.get("eval_every") == 0 else row.get("val_average_precision", row["val_accuracy"])
                if value is None:
                    continue
                better = best is None or value > best + 1e-4 * abs(best)
                best, waited = (value, 0) if better else (best, waited + 1)
                if waited > 0:
                    scale, waited = scale / 2, 0
            assert scale < 1 or "eval_every" in params


# ---- metrics, from the logits of `penstock infer` ----------------------------------------------------------------


def by_thresholds(score, label):
    """ROC AUC and average precision of a class: cumulative counts at each distinct score."""
    order = np.argsort(-score, kind="stable")
    score, label = score[order], label[order]
    ends = np.append(np.nonzero(np.diff(score))[0], len(score) - 1)
    tp = np.cumsum(label)[ends].astype(float)
    fp = ends + 1 - tp
    recall, precision = tp / tp[-1], tp / (tp + fp)
    auc = np.trapz(np.append(0, recall), np.append(0, fp / fp[-1]))
    return auc, float(np.sum(np.diff(np.append(0, recall)) * precision))


def measured(data_dir, split):
    ids, labels = (np.load(os.path.join(data_dir, name + ".npy")) for name in (split, "labels"))
    return ids, labels[ids]


@test
def metrics_are_those_of_the_logits():
    with Place() as p:
        for metric in ("micro_f1", "macro_f1", "roc_auc", "average_precision"):
            run = p.run(HYPERION, *trainer(metric=metric), "--epochs", 3, data=data(p))
            less = p.run(HYPERION, *trainer(metric=metric, eval_memory=80000), "--epochs", 3, data=data(p))  # in files
            best = run.report["best_epoch"]
            values = [e["val_" + metric] for e in run.report["epochs"]]
            assert best == int(np.argmax(values)) and [e["val_" + metric] for e in less.report["epochs"]] == values
            infer(p, run.run_dir, "--logits")
            logits = outputs(p)[".logits"].astype(np.float64)
            log_p = (logits - logits.max(1, keepdims=True)) - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True))
            for split, found in (("test", run.report["test_" + metric]), ("val", values[best])):
                ids, label = measured(data(p), split)
                ids, label = ids[label >= 0], label[label >= 0]
                predicted, classes = logits[ids].argmax(1), range(logits.shape[1])
                if metric == "micro_f1":
                    want = np.mean(predicted == label)
                elif metric == "macro_f1":
                    both = [(predicted == c, label == c) for c in classes]
                    want = np.mean([2 * (a & b).sum() / (a.sum() + b.sum()) for a, b in both if a.any() or b.any()])
                else:
                    figures = [by_thresholds(log_p[ids, c].astype(np.float32), label == c) for c in classes if 0 < (label == c).sum() < len(label)]
                    want = np.mean([f[metric == "average_precision"] for f in figures])
                assert abs(found - want) < 1e-6, (metric, split, found, want)


if __name__ == "__main__":
    main()
