"""penstock.Stage: foreign stages in a few lines; minibatches; the examples."""
import random

import numpy as np

from snake import *
import penstock

TRAIN_AND_VAL = os.path.join(ROOT, "pipelines", "pytorch.json")


def lines_of(path):
    with open(path) as f:
        return len(f.read().splitlines())


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


def train(p, example, *args):
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(TORCH_PYTHON), os.environ["PATH"]])
    return p.run(TRAIN_AND_VAL, "--set", f"stages.trainer.run={os.path.join(EXAMPLES, example)}", *args, foreign=True, timeout=200)


@test
def graphsage_in_forty_lines_of_pytorch():
    assert lines_of(os.path.join(EXAMPLES, "graphsage.py")) <= 40
    need("torch, zmq")
    with Place() as p:
        for more in ([], ["--set", "stages.sampler.params.margin=0.4"]):  # whole batches, and split ones
            settings = [*more, "--set", "stages.trainer.params.dropout=0", "--epochs", 2, "--set", "params.batch=200"]
            native = p.run(HYPERION, *settings).report["epochs"]
            own = train(p, "graphsage.py", *settings).report["epochs"]
            for a, b in zip(native, own, strict=True):
                assert abs(a["loss"] - b["loss"]) < 1e-3 and abs(a["train_accuracy"] - b["train_accuracy"]) < 2e-3, (native, own)


RACE = """
import sys, time, torch
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv

EPOCHS, BATCH = 4, 512
torch.manual_seed(1)
ds = penstock.open_dataset(sys.argv[2])
model = torch.nn.ModuleList([SAGEConv(ds.feature_dim, 64), SAGEConv(64, ds.classes)])
adam = torch.optim.Adam(model.parameters(), lr=0.01)

def step(x, y, hops):  # hops: (edge_index, targets) of each layer
    for k, (edge_index, targets) in enumerate(hops):
        x = model[k]((x, x[:targets]), edge_index)
        x = x.relu() if k == 0 else x
    adam.zero_grad()
    F.cross_entropy(x, y).backward()
    adam.step()

def of_memory(t):
    n, e = t.num_sampled_nodes, t.num_sampled_edges
    step(t.x, t.y[:t.batch_size], [(t.edge_index, n[0] + n[1]), (t.edge_index[:, :e[0]], n[0])])

def epochs(loader, train):
    took = []
    for _ in range(EPOCHS):
        began = time.monotonic()
        for batch in loader:
            train(batch)
        took.append(time.monotonic() - began)
    return min(took[1:])  # the first one warms up

data = Data(x=torch.from_numpy(ds.features_float32()), y=torch.from_numpy(ds.labels.astype("int64")), edge_index=torch.from_numpy(ds.edge_index()).long())
memory = NeighborLoader(data, [10, 5], input_nodes=torch.from_numpy(ds.train.astype("int64")), batch_size=BATCH, shuffle=True)
in_memory = epochs(memory, of_memory)
with penstock.batches(sys.argv[1], sys.argv[2], epochs=EPOCHS, batch=BATCH, fanout=[10, 5]) as loader:
    own = epochs(loader, lambda batch: step((t := batch.torch()).x, t.y, [(hop.edge_index, hop.targets) for hop in t.layers]))
print(in_memory, own)
"""


@test
def as_fast_as_a_loader_in_memory():
    """An epoch of a model of PyG, whose batches come from disk, takes at most 1.3 x that with NeighborLoader in memory."""
    need("torch_geometric, zmq")
    samplers = "import torch_geometric.typing as t; print(t.WITH_PYG_LIB or t.WITH_TORCH_SPARSE)"
    if subprocess.run([TORCH_PYTHON, "-c", samplers], capture_output=True, text=True, check=True).stdout != "True\n":
        raise Skip(f"{TORCH_PYTHON} has neither pyg-lib nor torch-sparse, without which NeighborLoader cannot sample")
    if SAN:
        raise Skip("a sanitizer changes times")
    with Place() as p:
        command("gen", "community", p.path("data"), "--vertices", 20000, "--seed", 3, "--quiet")
        process = user(p, RACE, TORCH_PYTHON)
        out, err = process.communicate(timeout=200)
        assert process.returncode == 0, err
        in_memory, own = map(float, out.split())
        assert own <= 1.3 * in_memory, (own, in_memory)


@test
def gat_of_pyg():
    need("torch_geometric, zmq")
    with Place() as p:
        epochs = train(p, "gat.py", "--epochs", 4, "--set", "params.batch=64").report["epochs"]
        assert epochs[-1]["val_accuracy"] > 0.8 and epochs[-1]["loss"] < 0.6 * epochs[0]["loss"], epochs


if __name__ == "__main__":
    main()
