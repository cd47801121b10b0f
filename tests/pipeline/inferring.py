"""`penstock infer` for tests: runs it and loads what it wrote."""
import numpy as np
from harness import *


def infer(p, run, *args, code=0, out="out.npy"):
    """The report of it, and the command's result."""
    report = p.path("infer.json")
    r = command("infer", run, "--out", p.path(out), "--report", report, "--quiet", "--force", *args, code=code)
    if code:
        return None, r
    with open(report) as f:
        return json.load(f), r


def outputs(p, out="out"):
    arrays = {}
    for name in ("", ".classes", ".values", ".logits"):
        path = p.path(out + name + ".npy")
        if os.path.exists(path):
            arrays[name] = np.load(path)
    return arrays
