"""penstock.Stage: foreign stages in a few lines; minibatches. test_torch.py: trainers in PyTorch."""
import os
import pty
import random
import re

import numpy as np

from snake import *
import penstock


def with_stage(p, body, *args, **more):
    """hyperion.json with a program of this body as its trainer."""
    sets = ["--set", f'stages.trainer={{"run": "{program(p, body)}"}}', "--set", "stages.planner.params.cpu_cache=0"]
    return p.run(HYPERION, *sets, "--epochs", 2, *args, foreign=True, **more)


@test
def statistics_in_twelve_lines():
    path = os.path.join(EXAMPLES, "statistics.py")
    assert lines_of(path) <= 12
    with Place() as p:
        with open(HYPERION) as f:
            pl = json.load(f)
        pl["stages"]["trainer"] = {"run": "discard"}
        pl["stages"]["statistics"] = {"run": path}
        pl["links"][2:4] = links("disk.done", "statistics.batch", "statistics.done", "trainer.in")
        r = p.run(pl, "--epochs", 2, "--set", "params.batch=100", foreign=True)
        found = r.report["statistics"]
        with penstock.batches(HYPERION, p.data, epochs=2, batch=100) as loader:
            batches = [(b.n[-1], sum(map(len, b.indices))) for _ in range(2) for b in loader]
        assert (found["batches"], found["vertices"], found["edges"]) == (len(batches), *map(sum, zip(*batches))), (found, batches)
        assert r.report["stages"]["statistics"]["items"] == len(batches)
        del pl["links"][3], pl["stages"]["trainer"]  # its output leads nowhere
        assert p.run(pl, "--epochs", 2, "--set", "params.batch=100", foreign=True).report["statistics"] == found


@test
def what_a_stage_sees_and_says():
    with Place() as p:
        r = with_stage(p, """
stage = penstock.Stage("t", "a test", params={"rate": 0.5, "deep": {"default": 3, "min": 1, "help": "depth"}, "on": False, "name": "x", "list": [1, 2]})
with stage:
    for epoch in stage.each_epoch():
        seeds = [int(v) for batch in stage.epoch() for v in batch.seeds]
        assert sorted(seeds) == sorted(stage.dataset.train.tolist())
        stage.report_epoch(epoch, loss=0.25, val_accuracy=epoch / 4)
    stage.warn("be careful")
    stage.log("a line")
    stage.count(1000)
    stage.report("t", rate=stage.params.rate, deep=stage.params.deep, seed=stage.seed, epochs=stage.epochs, list=stage.params.list[1])
    stage.report("result", test_accuracy=0.75)
""", "--set", "stages.trainer.params.deep=7", "--set", "params.batch=100", "--seed", 9)
        assert r.report["t"] == {"rate": 0.5, "deep": 7, "seed": 9, "epochs": 2, "list": 2}, r.report["t"]
        assert [(e["epoch"], e["loss"], e["val_accuracy"]) for e in r.report["epochs"]] == [(0, 0.25, 0), (1, 0.25, 0.25)]
        assert all(e["seconds"] > 0 and e["seeds_per_second"] > 0 for e in r.report["epochs"]) and r.report["test_accuracy"] == 0.75
        assert "warning: trainer: be careful" in r.err and r.report["stages"]["trainer"]["items"] > 1000
        r = p.run(HYPERION, "--set", f'stages.trainer={{"run": "{p.path("program.py")}", "params": {{"deep": 0}}}}', code=2, foreign=True)
        assert "deep" in r.err, r


@test
def a_stage_that_fails_or_leaves_early():
    with Place() as p:
        r = with_stage(p, """
with penstock.Stage("t", "a test") as stage:
    for batch in stage:
        raise ValueError("broken on purpose")
""", code=1)
        assert "error: trainer: ValueError: broken on purpose" in r.err, r
        with open(os.path.join(r.run_dir, "logs", "trainer.log")) as f:
            assert "Traceback" in (log := f.read()) and "line 6, in <module>" in log, log
        r = with_stage(p, """
with penstock.Stage("t", "a test") as stage:
    for batch in stage:
        break  # what is not wanted is given back
    stage.report("t", seen=1)
""")
        assert r.report["status"] == "ok" and r.report["t"] == {"seen": 1}
        run = p.start(HYPERION, "--epochs", 100000, "--set", f'stages.trainer={{"run": "{program(p, STOPPED)}"}}', foreign=True)
        run.process.stderr.readline()
        until = time.time() + 30
        while not os.path.exists(os.path.join(run.run_dir, "stages-run")) and time.time() < until:
            time.sleep(0.05)
        run.process.send_signal(2)
        r = run.wait()
        assert r.code == 130 and r.report["status"] == "interrupted" and not r.report["failures"], r
        assert os.path.exists(os.path.join(run.run_dir, "was-stopped"))


STOPPED = """
import os
with penstock.Stage("t", "a test") as stage:
    try:
        for batch in stage:
            open(os.path.join(stage.run_dir, "stages-run"), "w").close()
    except penstock.Stopped:
        open(os.path.join(stage.run_dir, "was-stopped"), "w").close()
        raise
"""


@test
def a_second_input_to_validate_with():
    with Place() as p:
        body = """
with penstock.Stage("t", "a test", inputs=("batch", "val")) as stage:
    for epoch in stage.each_epoch():
        for port, split in (("batch", stage.dataset.train), ("val", stage.dataset.val)):
            seeds = []
            for batch in stage.epoch(port):
                assert batch.epoch == epoch and (batch.features == stage.dataset.features[batch.vertices]).all()
                seeds += batch.seeds.tolist()
            assert sorted(seeds) == sorted(split.tolist()), (port, epoch)
        stage.report_epoch(epoch, loss=1.0)
"""
        r = p.run(TRAIN_AND_VAL, "--epochs", 3, "--set", f'stages.trainer={{"run": "{program(p, body)}"}}', "--set", "params.batch=64", foreign=True)
        assert len(r.report["epochs"]) == 3 and r.report["io"]["requests"] > 0, r.report["io"]
        assert os.path.exists(os.path.join(r.run_dir, "plan", "plan.json")) and os.path.exists(os.path.join(r.run_dir, "plan-val-planner", "plan.json"))


@test
def a_damaged_minibatch():
    with Place() as p:
        with penstock.batches(HYPERION, p.data, epochs=1, batch=100) as loader:
            for batch in loader:
                good = bytes(batch.copy()._slot)
                break
    draw = random.Random(1)
    refused = 0
    for _ in range(2000):
        bad = bytearray(good)
        for _ in range(draw.randint(1, 3)):
            at = 8 * draw.randrange(43)
            value = draw.choice([0, 1, 2 ** 31, 2 ** 63, 2 ** 64 - 1, len(good), draw.getrandbits(40)])
            bad[at:at + 8] = value.to_bytes(8, "little")
        try:
            batch = penstock.Minibatch(bad)
            for array in (batch.vertices, batch.labels, batch.features, *batch.indptr, *batch.indices):
                array.tobytes()  # would fault outside the slot
        except penstock.SlotError:
            refused += 1
    assert refused > 500
    for short in (b"", b"x" * 343, b"x" * 344):
        try:
            penstock.Minibatch(short)
            raise AssertionError("was taken")
        except penstock.SlotError as e:
            assert "minibatch" in str(e)


@test
def weights_begin_as_the_native_trainer_s():
    with Place() as p:
        r = p.run(HYPERION, "--epochs", 1, "--seed", 2 ** 40 + 5, *(x for s in ("rate=1e-9", "weight_decay=0", "hidden=7", "eval_every=0")
                                                                  for x in ("--set", "stages.trainer.params." + s)))
        path, = glob.glob(os.path.join(r.run_dir, "checkpoints", "*.safetensors"))
        with open(path, "rb") as f:
            header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
            data = f.read()
        for k, name in enumerate(("weight_self", "weight_neigh")):
            for layer in range(2):
                t = header[f"layer{layer}.{name}"]
                stored = np.frombuffer(data[slice(*t["data_offsets"])], "<f4").reshape(t["shape"])
                assert np.abs(stored - penstock.glorot(2 ** 40 + 5, 3 * layer + k, *t["shape"])).max() < 1e-6, (layer, name)


@test
def the_size_message_is_as_documented():
    """It has the fields of the table in common/host/README.md, no more and no fewer, and says the truth."""
    with open(os.path.join(ROOT, "common", "host", "README.md")) as f:
        table = f.read().split("The message `size` has these fields:")[1].split("\n\n")[1]
    documented = set(re.findall(r"`(\w+)`", " ".join(line.split("|")[1] for line in table.splitlines()[2:])))
    with Place() as p, open(HYPERION) as f:
        pl = json.load(f)
        pl["stages"]["seen"] = {"params": {"deep": 7}, "run": program(p, f"""
with penstock.Stage("seen", "writes down its size message", params={{"deep": 3}}) as stage:
    import json
    with open({p.path("sizes")!r}, "a") as f:
        print(json.dumps(stage.wire.size), file=f)
    for batch in stage:
        pass
""")}
        pl["links"] += links("disk.done", "seen.batch")
        first = p.run(pl, "--epochs", 1, "--seed", 9, "--set", "params.batch=100", foreign=True)
        again = p.run(pl, "--epochs", 2, "--seed", 9, "--set", "params.batch=100", "--resume", first.run_dir, foreign=True)
        batches = first.report["stages"]["trainer"]["items"]
        with open(p.path("sizes")) as f:
            fresh, resumed = map(json.loads, f)
        assert set(fresh) == documented - {"resume"} | {"type"} and set(resumed) == documented | {"type"}, (documented ^ set(resumed), fresh)
        for size, run_dir, epochs, start in ((fresh, first.run_dir, 1, 0), (resumed, again.run_dir, 2, batches)):
            known = {"type": "size", "name": "seen", "params": {"deep": 7}, "dataset": p.data, "run_dir": run_dir, "seed": 9, "epochs": epochs,
                     "start_batch": start, "instance": 0, "instances": 1, "replica": 0, "replicas": 1, "oneshots": {}, "linked": {"batch": True},
                     "device": "cpu:0"}
            assert {name: size[name] for name in known} == known, (size, known)
            assert re.fullmatch("[0-9a-f]{16}", size["dataset_digest"]) and json.loads(size["identity"]), size
        assert resumed["resume"] == sorted(glob.glob(os.path.join(first.run_dir, "checkpoints", "*.safetensors")))[-1]


DEBUGGED = """
stage = penstock.Stage("t", "a test")
with stage:
    for number, batch in enumerate(stage):
        if number == 1:
            breakpoint()
"""


@test
def breakpoint_asks_at_the_terminal():
    with Place() as p:
        argv = [PENSTOCK, "run", HYPERION, "--dataset", p.data, "--epochs", "1", "--set", "params.batch=100", "--debug",
                "--set", f'stages.trainer={{"run": "{program(p, DEBUGGED)}"}}', "--run-dir"]
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(PENSTOCK, [*argv, p.path("asked")])
        text, said = b"", 0
        try:
            while part := os.read(terminal, 65536):
                text += part
                if text.count(b"(Pdb) ") > said:
                    os.write(terminal, (b"p 7000 + number + len(batch.seeds)\n", b"continue\n")[said])
                    said += 1
        except OSError:
            pass  # the run has ended, and the terminal with it
        os.close(terminal)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert status == 0 and said == 2 and b"7101" in text and b"batches/s" not in text, (status, text.decode())
        r = Running([*argv, p.path("refused")], p.path("refused"), start_new_session=True).wait()
        assert r.code == 1 and "breakpoint() in a stage needs a terminal" in r.err, r


if __name__ == "__main__":
    main()
