"""Shipped pipelines still compute what they computed when figures.json was written: sampled blocks and, on the processor
that the figures were taken on, losses and weights to the last bit; on others, losses within 1e-4. On the CPU and on a
virtual GPU. Run as a program, this file writes figures.json."""
import hashlib

from harness import *

FIGURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "figures.json")
HOST_BUILD = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")


def processor():
    """The model and the instruction sets, which choose among oneDNN's kernels, and so the last bits of a product."""
    with open("/proc/cpuinfo") as f:
        lines = [line for line in f if line.startswith(("model name", "flags"))]
    return hashlib.sha256("".join(sorted(set(lines))).encode()).hexdigest()[:16]


def one(p, data, args, device):
    if device == "cuda":
        os.environ["PENSTOCK_CUDA"] = HOST_BUILD
    try:
        r = p.run(*args, "--epochs", 2, "--seed", 5, *(["--device", "cuda:0"] if device == "cuda" else []), data=data, timeout=110)
    finally:
        os.environ.pop("PENSTOCK_CUDA", None)
    return {"digest": r.report["digest"], "weights": r.report["weights_digest"],
            "loss": [e["loss"] for e in r.report["epochs"]], "test": r.report["test_accuracy"]}


def measure(names):
    figures = {"processor": processor()}
    with Place() as p:
        data = p.path("g")
        command("gen", "community", data, "--vertices", "3000", "--seed", "7")
        for name in names:
            for device in ("cpu", "cuda"):
                figures[f"{name} {device}"] = one(p, data, shipped_pipelines()[name], device)
    return figures


def compare(names):
    """Fails where one of the shipped pipelines `names` computes something else than figures.json says."""
    with open(FIGURES) as f:
        before = json.load(f)
    now = measure(names)
    same = before["processor"] == now.pop("processor")
    if not same:
        print("# another processor than that of figures.json: losses within 1e-4, weights are not compared")
    for name, got in now.items():
        want = before[name]
        assert got["digest"] == want["digest"], (name, got, want)
        assert not same or got == want, (name, got, want)
        assert all(abs(a - b) <= 1e-4 * b for a, b in zip(got["loss"], want["loss"])), (name, got, want)


if __name__ == "__main__":
    with open(FIGURES, "w") as f:
        json.dump(measure(shipped_pipelines()), f, indent=1)
        f.write("\n")
