"""The profile of an epoch in memory by operator: the threads' processor time, and the least that it could be."""
import os
import statistics

from measure import BUILD, output

FLOAT = 4


def copy_rate(size, count):
    """Bytes a second, read and written, of one thread that copies so many bytes."""
    return 1e9 * float(output([os.path.join(BUILD, "bench", "copy"), size.gemm_s, count]).split()[-1])


def floors(size, report, shapes, rates, features, hidden, classes, batches):
    """Seconds of an epoch: FLOPs over the rate of one thread; bytes, each input and output once, over the rate of a copy.
    shapes, rates: of the products forward and of the gradients of weights, layer by layer, and of the last layer's input."""
    epochs = len(report["epochs"])
    rows, sources = ([report["trainer"][f"{what}_{l}"] / epochs for l in (0, 1)] for what in ("rows", "sources"))
    product = [2 * 2.0 * s[2] * s[3] * s[4] * batches / (r * 1e9) for s, r in zip(shapes, rates)]  # two weight matrices each
    copy = copy_rate(size, max(1, round(rows[0] / batches)) * hidden * FLOAT)
    weights = 2 * (features * hidden + hidden * classes) + hidden + classes
    means = (sources[0] + rows[0]) * features, (sources[1] + rows[1]) * min(hidden, classes)
    moved = {"means": sum(means), "means_grad": means[1], "fused": 2 * (rows[0] * (hidden + features) + rows[1] * classes),
             "fused_grad": 3 * rows[0] * hidden, "loss": 2 * rows[1] * classes, "update": 8 * weights * batches}
    return {"products": product[0] + product[2], "products_grad": product[4], "weights_grad": product[1] + product[3],
            **{operator: FLOAT * n / copy for operator, n in moved.items()}}


def seconds(report):
    """Seconds of processor time of an epoch, by operator. sampler and rest: whole processes."""
    epochs, spent = len(report["epochs"]), report["trainer"]
    names = ("products", "products_grad", "weights_grad", "means", "means_grad", "fused", "fused_grad", "loss", "update")
    found = {name: spent[name + "_s"] / epochs for name in names}
    cpu = {name: report["processes"][name]["cpu_s"] / epochs for name in ("sampler", "trainer")}
    return {**found, "rest": max(0.0, cpu["trainer"] - sum(found.values())), "sampler": cpu["sampler"]}


SAYS = {"products": "products, forward", "products_grad": "products, gradients of inputs", "weights_grad": "products, gradients of weights",
        "means": "means", "means_grad": "gradients of means", "fused": "bias, ReLU and dropout; copies of rows", "fused_grad": "gradients of these",
        "loss": "loss", "update": "optimizer", "rest": "rest of the trainer", "sampler": "sampler"}


def table(runs, floor):
    """Prints the medians of runs, and returns them."""
    found = {name: statistics.median(r[name] for r in runs) for name in SAYS}
    print(f"  {'processor time of an epoch, by operator':<46} {'s':>10} {'floor, s':>10} {'quotient':>10}")
    for name, says in SAYS.items():
        least = f"{floor[name]:10.3f} {found[name] / floor[name]:10.2f}" if name in floor else f"{'-':>10} {'-':>10}"
        print(f"  {says:<46} {found[name]:10.3f} {least}")
    print(f"  {'all':<46} {sum(found.values()):10.3f} {sum(floor.values()):10.3f} {sum(found.values()) / sum(floor.values()):10.2f}", flush=True)
    return {name: {"s": found[name], "floor_s": floor.get(name)} for name in SAYS}
