"""Legion's Figure 11: four replicas that shuffle their own seeds (local) train as well as replicas that share one order of
all seeds (global). The mean test accuracy of three seeds differs by at most half a point, on three graphs."""
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipeline"))
from harness import *

REPLICAS = os.path.join(ROOT, "pipelines", "replicas.json")
GRAPHS = ("amazon_photo", "dblp_citation", "coauthor_cs")
PLACES = [f"cpu:{i}" for i in range(4)]
SEEDS = (1, 2, 3)
BATCH = 512  # seeds of a step, of all replicas
MOST_POINTS = 0.5
IMPORT_S, RUN_S = 300, 600


def imported(p, name):
    source, data = os.path.join(DATA, "clean", name), p.path(name)
    if not os.path.exists(os.path.join(source, "edges.npy")):
        raise Skip(f"there is no {name} in PENSTOCK_DATA")
    subprocess.run([PENSTOCK, "import", "npy", source, data, "--normalize", "l1", "--quiet"], check=True, timeout=IMPORT_S)
    return data


def accuracy(p, name, data, shuffle, seed):
    """Of a run whose replicas have BATCH seeds together in a step."""
    batch = BATCH if shuffle == "global" else BATCH // len(PLACES)
    report = p.run(REPLICAS, "--with", os.path.join(ROOT, "pipelines", "settings", f"{name}.json"), "--seed", seed, "--quiet",
                   "--set", f"params.shuffle={shuffle}", "--set", f"params.batch={batch}", "--set", "params.threads=1",
                   "--set", f"replicas.places={json.dumps(PLACES)}", data=data, timeout=RUN_S).report
    return 100 * report["test_accuracy"]


def of(name):
    def run():
        with Place() as p:
            data, t0 = imported(p, name), time.time()
            found = {shuffle: [accuracy(p, name, data, shuffle, seed) for seed in SEEDS] for shuffle in ("global", "local")}
            mean = {shuffle: statistics.mean(values) for shuffle, values in found.items()}
            print(f"# {name}: test accuracy {mean['global']:.2f} with the shuffle global, {mean['local']:.2f} with local "
                  f"({found}); {time.time() - t0:.0f} s", flush=True)
            assert abs(mean["global"] - mean["local"]) <= MOST_POINTS, mean
    run.__name__ = f"local_and_global_on_{name}"
    return run


for name in GRAPHS:
    test(of(name))


if __name__ == "__main__":
    main()
