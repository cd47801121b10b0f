"""reorder: the bytes, the reads and the time of an epoch before and after `penstock reorder --by access`."""
import json
import os
import shutil

import measure
from measure import PENSTOCK, Skip, Unsound, cold, epoch_seconds, fio, generate, output, run, settings, show, spread

FANOUT, SEED = (10, 5), 2  # the order is made from batches of seed 1, so it does not know those that are measured
PREDICTED = 0.02  # the bytes of a run and their prediction may differ by this


def real(name, dim):
    """A real graph with generated rows, labels and splits: a fifth of its vertices train. Made once."""
    import numpy as np
    source = measure.real_data(name)
    bare, path = (os.path.join(measure.SCRATCH, f"reorder-{name}{suffix}") for suffix in ("", f"-{dim}"))
    if not os.path.exists(os.path.join(bare, "dataset.json")):
        made = bare + "-source"
        os.makedirs(made, exist_ok=True)
        with open(os.path.join(source, "meta.json")) as f:
            vertices = json.load(f)["num_nodes"]
        order = np.random.default_rng(2).permutation(vertices)
        for part, ids in (("train", order[:vertices // 5]), ("val", order[vertices // 5:][:100]), ("test", order[-100:])):
            np.save(os.path.join(made, f"{part}_idx.npy"), np.sort(ids))
        np.save(os.path.join(made, "labels.npy"), np.arange(vertices) % 8)
        output([PENSTOCK, "import", "npy", made, bare, "--edges", os.path.join(source, "edges.npy"), "--vertices", vertices, "--quiet"])
        shutil.rmtree(made)
    if not os.path.exists(os.path.join(path, "dataset.json")):
        output([PENSTOCK, "features", bare, path, "--dim", dim])
    return path


def random_graph(size, vertices, edges, train, dim):
    return generate(f"reorder-{vertices}-{dim}", "--vertices", vertices, "--edges", edges, "--features", dim, "--classes", 8, "--train-count", train,
                    "--val-count", 100, "--test-count", 100)


def sampled(size, gap):
    return ["--fanout", ",".join(map(str, FANOUT)), "--batch", size.batch, "--gap-bytes", gap, "--quiet"]


def predicted(size, data, gap):
    orders = json.loads(output([PENSTOCK, "inspect", data, "--reorder", "access", "--json", *sampled(size, gap)]))["orders"]
    return orders["now"], orders["access"]


def reordered(size, data):
    """The dataset by access, of which `verify` says that it has the same graph."""
    path = data + "-by-access"
    if not os.path.exists(os.path.join(path, "dataset.json")):
        output([PENSTOCK, "reorder", data, path, "--by", "access", *sampled(size, 0)])
    output([PENSTOCK, "verify", path, "--same-as", data, "--quiet"])
    return path


def epoch(size, data):
    """(seconds, bytes, reads) of an epoch without a cache, with gap_bytes 0."""
    cold(data)
    args = settings(params_batch=size.batch, params_fanout=list(FANOUT), trainer__hidden=16, trainer__eval_every=0, trainer__checkpoint_every=0,
                    planner__cpu_cache=0, disk__gap_bytes=0, disk__depth=128)
    report = run(data, *args, "--set", "links[1].slots=6", "--seed", SEED)
    return epoch_seconds(report), report["io"]["bytes"], report["io"]["requests"]


def one(size, name, data, row_bytes):
    now, then = predicted(size, data, 0)
    by_access, rates = reordered(size, data), []
    before, after = [], []
    for _ in range(size.pairs):
        before.append(epoch(size, data))
        after.append(epoch(size, by_access))
        path = os.path.join(data, "features.npy")
        rates.append(fio(path, 4096, 128, size.fio_s, offset=4096)[0])
    for what, runs, told in (("before", before, now), ("after", after, then)):
        if size.judge and not all(abs(r[1] / told["bytes"] - 1) <= PREDICTED for r in runs):
            raise Unsound(f"{name}, {what}: runs read {[r[1] for r in runs]} bytes; predicted: {told['bytes']}")
    quotient = [spread([b[i] / a[i] for a, b in zip(before, after)]) for i in range(3)]
    with_gaps = predicted(size, data, 4096)
    print(f"  {name}, rows of {row_bytes} B: {before[0][1] / 1e6:.1f} to {after[0][1] / 1e6:.1f} MB in {before[0][2]} to {after[0][2]} reads; "
          f"predicted with gap_bytes 4096: {with_gaps[0]['bytes'] / 1e6:.1f} to {with_gaps[1]['bytes'] / 1e6:.1f} MB", flush=True)
    show("bytes, after / before", quotient[1])
    show("reads, after / before", quotient[2])
    show("seconds of an epoch, after / before", quotient[0])
    show("the same / reads", spread([b[0] / a[0] / (b[2] / a[2]) for a, b in zip(before, after)]), "", "0.9 to 1.1")
    show("before: epoch / (reads / fio's rate)", spread([a[0] / (a[2] / rate) for a, rate in zip(before, rates)]))
    return {"seconds": quotient[0], "bytes": quotient[1], "reads": quotient[2], "before": before, "after": after, "fio": rates,
            "predicted": [now, then], "predicted_with_gaps": with_gaps}


def reorder(size):
    measure.need("fio", "fio")
    result = {}
    for vertices, edges, train, dim in size.random:
        result[f"rmat-{4 * dim}"] = one(size, f"R-MAT, {vertices} vertices", random_graph(size, vertices, edges, train, dim), 4 * dim)
    for name in size.real:
        try:
            measure.real_data(name)
        except Skip as reason:
            print(f"  left out: {reason}", flush=True)
            continue
        for dim in size.dims:
            result[f"{name}-{4 * dim}"] = one(size, name, real(name, dim), 4 * dim)
    return result
