"""What the peers' programs share: their options, the dataset, the clock, and the line of JSON that ends their output.

Each program trains GraphSAGE (mean) with the same model and settings in another library. It needs NumPy and its library,
and reads the .npy files of a Penstock dataset as they are (common/store/README.md)."""
import argparse
import json
import math
import mmap
import os
import sys
import time

import numpy as np

STARTED = time.time()


def parser(description):
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dataset", help="the folder of a Penstock dataset")
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--max-batches", type=int, default=0, help="end each epoch after so many batches, and scale its figures; 0: do not")
    p.add_argument("--batch", type=int, default=1024)
    p.add_argument("--hidden", type=int, default=256)
    p.add_argument("--fanout", type=lambda text: [int(n) for n in text.split(",")], default=[10, 5], help="the hop nearest the seeds comes first")
    p.add_argument("--rate", type=float, default=0.01)
    p.add_argument("--weight-decay", type=float, default=0.0005)
    p.add_argument("--dropout", type=float, default=0.5)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--threads", type=int, default=2, help="of PyTorch")
    p.add_argument("--workers", type=int, default=0, help="processes (plain PyTorch: threads) that make batches ahead")
    p.add_argument("--features", choices=["memory", "mmap", "disk"], default="memory", help="disk: of GraphBolt alone")
    p.add_argument("--mask", choices=["bytes", "torch"], default="bytes",
                   help="of dropout: torch: F.dropout; bytes: a random byte for each unit, which is faster on a CPU in some versions of PyTorch")
    return p


class Dataset:
    """Arrays of NumPy. `features` has no padding; mapped, it is a view of the file."""

    def __init__(self, options):
        path = lambda name: os.path.join(options.dataset, name)
        with open(path("dataset.json")) as f:
            about = json.load(f)
        self.vertices, self.edges, self.dim, self.classes = (about[key] for key in ("vertices", "edges", "feature_dim", "classes"))
        self.indptr, self.indices = np.load(path("indptr.npy")), np.load(path("indices.npy"))
        self.labels, self.train = np.load(path("labels.npy")).astype(np.int64), np.load(path("train.npy")).astype(np.int64)
        self.feature_path = path("features.npy")
        rows = np.load(self.feature_path, mmap_mode="r")
        if rows.dtype != np.float32 or len(rows) != self.vertices or len(self.indptr) != self.vertices + 1:
            sys.exit(f"{options.dataset}: {len(rows)} rows of {rows.dtype} and {len(self.indptr)} offsets; expected {self.vertices} rows of "
                     "float32 in one file, and one offset more")
        self.padded = rows.shape[1] != self.dim
        if options.features == "memory":
            self.features = np.ascontiguousarray(np.load(self.feature_path)[:, :self.dim])
        else:
            rows._mmap.madvise(mmap.MADV_RANDOM)  # the kernel otherwise reads far ahead of each fault
            self.features = rows[:, :self.dim]
        self.batches = math.ceil(len(self.train) / options.batch)


def adam(options, parameters):
    """The fastest that this version of PyTorch has for a CPU."""
    import torch
    parameters = list(parameters)
    for more in ({"fused": True}, {"foreach": True}, {}):
        try:
            return torch.optim.Adam(parameters, lr=options.rate, weight_decay=options.weight_decay, **more)
        except (RuntimeError, TypeError):
            continue
    raise SystemExit("torch.optim.Adam takes neither fused, nor foreach, nor none of both")


def kept(shape, options):
    """Of dropout: True where a unit is kept. The share is a multiple of 1/256."""
    import torch
    units = math.prod(shape)
    random = torch.empty((units + 7) // 8, dtype=torch.int64).random_(-2**63, None)
    return random.view(torch.uint8)[:units].view(shape) >= round(256 * options.dropout)


def dropout(options, x):
    import torch
    if options.mask == "torch" or options.dropout == 0:
        return torch.nn.functional.dropout(x, options.dropout, training=True)
    return x * kept(x.shape, options).to(x.dtype).mul_(1 / (1 - options.dropout))


def processes():
    """This process and those that it started."""
    found, new = [], [os.getpid()]
    while new:
        pid = new.pop()
        found.append(pid)
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children") as f:
                    new += map(int, f.read().split())
        except OSError:
            continue  # it has just ended
    return found


def used():
    """(processor seconds, bytes from the drive) of these processes until now."""
    ticks = bytes_read = 0
    for pid in processes():
        try:
            with open(f"/proc/{pid}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
            with open(f"/proc/{pid}/io") as f:
                bytes_read += int(dict(line.split(": ") for line in f.read().splitlines())["read_bytes"])
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK"), bytes_read


def one_epoch(options, data, batches, step):
    """The figures of an epoch; of its beginning, scaled, with --max-batches."""
    steps, began, (cpu, read) = [], time.perf_counter(), used()
    for batch in batches:
        steps.append(step(batch))
        if options.max_batches and len(steps) >= options.max_batches:
            break
    seconds, (cpu_end, read_end) = time.perf_counter() - began, used()
    seeds = sum(s[1] for s in steps)
    if not steps or not options.max_batches and (len(steps) != data.batches or seeds != len(data.train)):
        sys.exit(f"an epoch had {len(steps)} batches with {seeds} seeds; expected {data.batches} with {len(data.train)}")
    scale = data.batches / len(steps)
    return {"seconds": scale * seconds, "cpu_s": scale * (cpu_end - cpu), "read_bytes": scale * (read_end - read),
            "loss": sum(float(loss) * n for loss, n, *_ in steps) / seeds, "train_accuracy": sum(int(s[2]) for s in steps) / seeds,
            "hidden_rows": scale * sum(s[3] for s in steps), "input_rows": scale * sum(s[4] for s in steps)}


def run(options, data, batches, step, versions):
    """Trains and prints the record. batches(epoch) gives the batches of an epoch; step(batch) trains on one, and returns the
    loss, how many seeds there were, how many it predicted right, and how many rows the first layer made and took."""
    setup_s, epochs = time.time() - STARTED, []
    for epoch in range(options.epochs):
        epochs.append(one_epoch(options, data, batches(epoch), step))
        if not math.isfinite(epochs[-1]["loss"]):
            sys.exit(f"the loss of epoch {epoch + 1} is {epochs[-1]['loss']}")
    print(json.dumps({"epochs": epochs, "setup_s": setup_s, "versions": versions}), flush=True)
