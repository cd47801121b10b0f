"""What a trainer in Python has besides batches: checkpoints, the best epoch, and an end when nothing improves."""
import signal

from crash import half_files, has_checkpoint, wait_for
from snake import *
import penstock
from penstock import checkpoints

TRAIN_AND_VAL = os.path.join(ROOT, "pipelines", "pytorch.json")
EPOCHS = 6
CHAIN = """
import hashlib, json, os, time
with penstock.Stage("t", "a test", inputs=("batch", "val"), params={"save_s": 0.0, "slow_s": 0.0, "restores": True, "keeps": True, "talks": False}) as stage:
    state = {"digest": ""}

    def save(file):
        time.sleep(stage.params.save_s)
        file.write(json.dumps(state).encode())

    def restore(file):
        state.update(json.load(file))

    if stage.params.keeps:
        stage.checkpoints(save, restore if stage.params.restores else None, keep=1)
    for epoch in stage.each_epoch():
        for port in ("batch", "val"):
            seeds = 0
            for batch in stage.epoch(port):
                assert batch.epoch == epoch, (port, batch.epoch, epoch)
                state["digest"] = hashlib.sha256(f"{state['digest']} {port} {batch.digest}".encode()).hexdigest()
                seeds += batch.n[0]
                until = time.monotonic() + stage.params.slow_s
                while stage.params.talks and time.monotonic() < until:
                    stage.log("one of many messages")
                time.sleep(max(0, until - time.monotonic()))
            assert seeds == len(stage.dataset.train if port == "batch" else stage.dataset.val), (port, seeds)
        stage.report_epoch(epoch, loss=int(state["digest"][:8], 16) / 2 ** 32, val_accuracy=min(epoch, 4 - epoch) / 4, test_accuracy=epoch / 8)
    stage.report("t", digest=state["digest"])
"""


def start(p, *args, **params):
    """The pipeline with training and validation batches, and a trainer whose figures depend on all batches so far."""
    sets = [x for name, value in params.items() for x in ("--set", f"stages.trainer.params.{name}={json.dumps(value)}")]
    return p.start(TRAIN_AND_VAL, "--set", f'stages.trainer.run="{program(p, CHAIN)}"', "--set", "params.batch=64", "--epochs", EPOCHS, *sets, *args, foreign=True)


def figures(report):
    return [(row["epoch"], row["loss"], row["val_accuracy"]) for row in report["epochs"]], report["best_epoch"], report["test_accuracy"]


def names(run_dir):
    return sorted(os.listdir(os.path.join(run_dir, "checkpoints")))


@test
def a_stopped_or_killed_run_goes_on():
    with Place() as p:
        r = start(p).wait()
        rows, best, test = want = figures(r.report)
        assert (r.code, len(rows), best, test) == (0, EPOCHS, 2, 0.25), r
        batches = r.report["stages"]["sampler"]["items"] // EPOCHS
        assert names(r.run_dir) == [f"{batches * 3:08d}.safetensors", f"{batches * EPOCHS:08d}.safetensors"], names(r.run_dir)
        assert r.report["best_checkpoint"] == "checkpoints/" + names(r.run_dir)[0]
        for number in (signal.SIGINT, signal.SIGKILL):
            run = start(p, slow_s=0.02)
            wait_for(lambda: has_checkpoint(run.run_dir))
            run.process.send_signal(number)
            stopped = run.wait()
            assert stopped.code == (130 if number == signal.SIGINT else -9), stopped
            r = start(p, "--resume", run.run_dir).wait()
            again, best, test = figures(r.report)
            assert r.code == 0 and again == rows[-len(again):] and 0 < len(again) < EPOCHS and (best, test) == want[1:], (r, rows)
            assert r.report["t"] == {"digest": r.report["t"]["digest"]} and half_files(r.run_dir) == []
        path = os.path.join(run.run_dir, "checkpoints", names(run.run_dir)[-1])
        with open(path, "r+b") as f:  # a damaged one is not taken
            f.seek(-1, os.SEEK_END)
            last = f.read(1)
            f.seek(-1, os.SEEK_END)
            f.write(bytes([last[0] ^ 1]))
        said = start(p, "--resume", run.run_dir).wait()
        assert f"{path} is damaged: expected checksum" in said.err, said


@test
def a_message_may_come_with_the_request_to_stop():
    with Place() as p:
        for _ in range(3):
            run = start(p, slow_s=0.02, talks=True)
            wait_for(lambda: has_checkpoint(run.run_dir))
            run.process.send_signal(signal.SIGINT)
            stopped = run.wait()
            assert stopped.code == 130, stopped


@test
def the_end_when_nothing_improves():
    with Place() as p:
        r = start(p, "--set", 'stop={"metric": "val_accuracy", "patience": 2}', save_s=0.8).wait()  # longer than a program has without checkpoints
        assert r.code == 0 and r.report["stopped"] == {"metric": "val_accuracy", "epoch": 4, "best_epoch": 2, "best": 0.5}, r
        assert r.report["best_epoch"] == 2 and len(names(r.run_dir)) == 2 and half_files(r.run_dir) == [], names(r.run_dir)
        state = json.load(penstock.open_checkpoint(os.path.join(r.run_dir, "checkpoints", names(r.run_dir)[-1])))
        assert abs(int(state["digest"][:8], 16) / 2 ** 32 - r.report["epochs"][4]["loss"]) < 1e-8, (names(r.run_dir), r)


@test
def errors_improve_when_they_fall():
    """As for the pipeline's `stop`."""
    for metric in ("loss", "val_loss", "val_mse", "val_mae", "val_rmse"):
        assert checkpoints.improves(metric, 1, 2) and not checkpoints.improves(metric, 2, 1) and checkpoints.improves(metric, 1, None), metric
    for metric in ("val_accuracy", "val_r2"):
        assert checkpoints.improves(metric, 2, 1) and not checkpoints.improves(metric, 1, 2), metric


@test
def what_cannot_be_resumed():
    with Place() as p:
        made = start(p, "--epochs", 1).wait()
        for params, words in (({"restores": False}, "gives no `restore`"), ({"keeps": False}, "call stage.checkpoints(save, restore) before the first batch")):
            r = start(p, "--resume", made.run_dir, **params).wait()
            assert r.code == 1 and f"error: trainer: ValueError: cannot resume from {made.run_dir}" in r.err and words in r.err, r
        r = start(p, "--resume", made.run_dir, "--seed", 5).wait()
        assert r.code == 2 and "was made with seed 1, but this run has seed 5" in r.err, r
        r = p.start(HYPERION, "--resume", made.run_dir, "--set", "params.fanout=[10,5]", "--set", "params.batch=64").wait()
        assert r.code == 2 and "cannot resume from" in r.err, r


@test
def graphsage_of_numpy():
    with Place() as p:
        sets = [x for s in ("params.batch=200", "stages.sampler.params.margin=0.6", "stages.trainer.params.hidden=16") for x in ("--set", s)]
        numpy = ["--set", f"stages.trainer.run={os.path.join(EXAMPLES, 'numpy_graphsage.py')}"]
        native = p.run(HYPERION, *sets, "--set", "stages.trainer.params.dropout=0", "--set", "stages.trainer.params.weight_decay=0", "--epochs", 3).report["epochs"]
        first = p.run(TRAIN_AND_VAL, *sets, *numpy, "--epochs", 1, foreign=True)
        rest = p.run(TRAIN_AND_VAL, *sets, *numpy, "--epochs", 3, "--resume", first.run_dir, foreign=True)
        own = first.report["epochs"] + rest.report["epochs"]
        for a, b in zip(native, own, strict=True):
            assert abs(a["loss"] - b["loss"]) < 1e-3 and abs(a["train_accuracy"] - b["train_accuracy"]) < 2e-3, (native, own)


@test
def what_is_not_reported():
    with Place() as p:
        body = """
with penstock.Stage("t", "a test") as stage:
    for epoch in stage.each_epoch():
        for batch in stage.epoch():
            pass
        stage.report_epoch(epoch, val_accuracy=[0.1, 0.3, 0.2][epoch], test_accuracy=[0.4, 0.5, 0.6][epoch])
"""
        r = p.run(HYPERION, "--epochs", 3, "--set", f'stages.trainer={{"run": "{program(p, body)}"}}', foreign=True)
        assert "epoch   1  loss -  train -  val 0.3000" in r.err and ", loss -\n" in r.out, r
        assert r.report["best_epoch"] == 1 and r.report["test_accuracy"] == 0.5, r.report


if __name__ == "__main__":
    main()
