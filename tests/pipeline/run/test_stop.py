"""The pipeline's `stop`: a run ends when a figure of its epochs no longer improves, whatever stage reports it, and a resumed
run ends after the same epoch, with the same bits."""
import os
import signal

from crash import has_checkpoint, wait_for
from harness import *

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
SMALL = ["--set", "params.batch=64", "--set", "params.fanout=[4,3]", "--set", "stages.trainer.params.hidden=8", "--set",
         "stages.trainer.params.dropout=0.1", "--set", "stages.trainer.params.rate=0.05", "--quiet"]
EPOCHS = 60


def data(p):
    path = p.path("community")
    if not os.path.exists(path):
        command("gen", "community", path, "--vertices", "1500", "--seed", "3")
    return path


def stop(metric, patience):
    return ["--set", f"stop.metric={json.dumps(metric)}", "--set", f"stop.patience={patience}"]


def expected(values, patience, falls):
    """The epoch after which the run ends, and the best one."""
    best = 0
    for epoch, value in enumerate(values):
        if value < values[best] if falls else value > values[best]:
            best = epoch
        if epoch - best >= patience:
            return epoch, best
    return None


@test
def the_run_ends_when_nothing_improves():
    with Place() as p:
        for metric, patience in (("val_accuracy", 2), ("loss", 1)):
            r = p.run(HYPERION, *SMALL, "--epochs", EPOCHS, *stop(metric, patience), data=data(p))
            rows, stopped = r.report["epochs"], r.report["stopped"]
            end, best = expected([row[metric] for row in rows], patience, metric == "loss")
            assert end == len(rows) - 1 < EPOCHS - 1, (end, len(rows))
            assert stopped == {"metric": metric, "epoch": end, "best_epoch": best, "best": rows[best][metric]}, stopped
            assert f"stopping after epoch {end}: {metric} has not improved for {patience} epochs" in r.err, r.err
            assert r.report["status"] == "ok" and r.report["test_accuracy"] > 0
            whole = p.run(HYPERION, *SMALL, "--epochs", end + 1, data=data(p)).report  # nothing was trained after it
            assert whole["weights_digest"] == r.report["weights_digest"] and whole["best_epoch"] == r.report["best_epoch"]
            assert whole["test_accuracy"] == r.report["test_accuracy"] and "stopped" not in whole


@test
def a_killed_run_ends_after_the_same_epoch():
    with Place() as p:
        args = [*SMALL, "--epochs", EPOCHS, *stop("val_accuracy", 4)]
        want = p.run(HYPERION, *args, data=data(p)).report
        run = p.start(HYPERION, *args, data=data(p))
        wait_for(lambda: has_checkpoint(run.run_dir))
        run.process.send_signal(signal.SIGKILL)
        run.wait()
        got = p.run(HYPERION, *args, "--resume", run.run_dir, data=data(p)).report
        assert got["stopped"] == want["stopped"] and got["weights_digest"] == want["weights_digest"], (got, want)
        again = p.run(HYPERION, *args, "--resume", run.run_dir, data=data(p)).report  # once more, from the first run's files
        assert again["stopped"] == want["stopped"], (again["stopped"], want["stopped"])
        with open(os.path.join(run.run_dir, "stop.json"), "w") as f:
            f.write("[")
        r = p.run(HYPERION, *args, "--resume", run.run_dir, data=data(p))
        assert "stop.json of the run that this one goes on from is damaged" in r.err, r.err


@test
def a_program_is_stopped_too():
    with Place() as p:
        pl = pipeline({"source": stage("source", batches=400),
                       "sink": stage("swallow", epoch=5, falls=3, delay_us=2000)},
                      links("source.out", "sink.in", slots=4), epochs=80, stop={"metric": "loss", "patience": 3})
        r = p.run(pl, foreign=True)
        assert r.report["stopped"] == {"metric": "loss", "epoch": 6, "best_epoch": 3, "best": 0.25}, r.report
        assert r.report["status"] == "ok" and r.report["epochs"][6]["epoch"] == 6
        no_leftovers()


@test
def a_figure_that_nobody_reports():
    with Place() as p:
        r = p.run(HYPERION, *SMALL, "--epochs", 2, *stop("val_mrr", 1), data=data(p))
        assert "no stage has reported val_mrr, so `stop` had no effect" in r.err and len(r.report["epochs"]) == 2, r.err
        first, last = (w["text"] for w in r.report["warnings"])
        assert "`stop` waits for the metric val_mrr, which the epoch's row does not have" in first and "val_accuracy" in first, first
        assert last.startswith("no stage has reported val_mrr") and r.out.count("  warning  ") == 2, r.out
        for value, words in (("3", "expected an object"), ('{"metric":3}', "expected a string"), ('{"patience":0}', "expected an integer from 1"),
                             ('{"metric":"a b"}', "expected the name of a column of the report's epochs"), ('{"patiense":1}', "did you mean patience")):
            assert words in command("check", HYPERION, "--dataset", data(p), "--set", f"stop={value}", code=2).stderr, value


if __name__ == "__main__":
    main()
