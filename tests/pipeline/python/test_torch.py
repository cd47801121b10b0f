"""Trainers in PyTorch, by the package. tools/install-deps --python installs PyTorch; PyG must come from elsewhere."""
from snake import *
import penstock


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


@test
def tensors_of_each_element_type():
    need("torch, zmq")
    body = """
import sys, torch
ds = penstock.open_dataset(sys.argv[2])
with penstock.batches(sys.argv[1], sys.argv[2], epochs=1, batch=100, **{"stages.planner.params.cpu_cache": 0}) as loader:
    for mb in loader:
        t = mb.torch()
        assert str(t.x.dtype) == "torch." + mb.feature_dtype and (t.x.float().numpy() == ds.features_float32(mb.vertices)).all()
        assert t.y.dtype == torch.int64 and (t.y.numpy() == mb.labels).all() and t.batch_size == mb.n[0]
print("ok", mb.feature_dtype)
"""
    typed = """
import sys, torch
with penstock.batches(sys.argv[1], sys.argv[2], epochs=1) as loader:
    for mb in loader:
        relations = [hop.relations for hop in reversed(mb.torch().layers)]
        assert all((a.numpy() == b).all() and len(a) == len(i) for a, b, i in zip(relations, mb.relations, mb.indices, strict=True))
print("ok", len(relations))
"""
    with Place() as p:
        command("gen", "typed", p.path("typed"), "--vertices", 2000, "--quiet")
        pipeline = os.path.join(ROOT, "pipelines", "typed.json")
        r = subprocess.run([TORCH_PYTHON, program(p, typed), pipeline, p.path("typed")], capture_output=True, text=True, timeout=100)
        assert r.stdout == "ok 2\n", r.stderr
        for dtype in ("float32", "float16", "bfloat16"):
            command("convert", p.data, p.path(dtype), "--dtype", dtype, "--quiet")
            r = subprocess.run([TORCH_PYTHON, program(p, body), HYPERION, p.path(dtype)], capture_output=True, text=True, timeout=100)
            assert r.stdout == f"ok {dtype}\n", r.stderr


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

def of_memory(t):  # vertices and edges are in the order of their hops
    inner = int((t.edge_index[1] < t.batch_size).sum())  # edges to the seeds, which come first
    targets = max(t.batch_size, int(t.edge_index[0, :inner].max()) + 1)  # the seeds and their neighbours
    step(t.x, t.y[:t.batch_size], [(t.edge_index, targets), (t.edge_index[:, :inner], t.batch_size)])

def epochs(loader, train):
    took = []
    for _ in range(EPOCHS):
        began = time.monotonic()
        for batch in loader:
            train(batch)
        took.append(time.monotonic() - began)
    return took

data = Data(x=torch.from_numpy(ds.features_float32()), y=torch.from_numpy(ds.labels.astype("int64")), edge_index=torch.from_numpy(ds.edge_index()).long())
memory = NeighborLoader(data, [10, 5], input_nodes=torch.from_numpy(ds.train.astype("int64")), batch_size=BATCH, shuffle=True)
in_memory = epochs(memory, of_memory)
with penstock.batches(sys.argv[1], sys.argv[2], epochs=EPOCHS, batch=BATCH, fanout=[10, 5]) as loader:
    own = epochs(loader, lambda batch: step((t := batch.torch()).x, t.y, [(hop.edge_index, hop.targets) for hop in t.layers]))
print(min(in_memory[1:]), min(own[1:]))  # the first epochs warm up
print(in_memory, own, file=sys.stderr)
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
        out, err = process.communicate(timeout=250)
        assert process.returncode == 0, err
        in_memory, own = map(float, out.split())
        print(f"# an epoch: {own:.2f} s from disk, {in_memory:.2f} s in memory")
        assert own <= 1.3 * in_memory, err


@test
def gat_of_pyg():
    need("torch_geometric, zmq")
    with Place() as p:
        epochs = train(p, "gat.py", "--epochs", 4, "--set", "params.batch=64").report["epochs"]
        assert epochs[-1]["val_accuracy"] > 0.8 and epochs[-1]["loss"] < 0.6 * epochs[0]["loss"], epochs


if __name__ == "__main__":
    main()
