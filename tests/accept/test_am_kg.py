"""R-GCN on am_kg, the knowledge graph of the Amsterdam Museum (kgbench, Bloem et al. 2021): imported with the relation of each
triple, and with the inverse of each relation as a relation of its own, as R-GCN has it. The data has no features, so each
vertex gets how many triples of each relation it has, and random numbers. R-GCN, with and without bases, must be better than
GraphSAGE, which does not tell relations apart. The data's README has no figure for this graph; the figures are printed."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipeline"))
from harness import DATA, PENSTOCK, ROOT, Skip, main, test

SOURCE = os.path.join(DATA, "clean", "am_kg")
TYPED = os.path.join(ROOT, "pipelines", "typed.json")
RANDOM_COLUMNS, EPOCHS, COMMAND_S = 16, 20, 600
MODELS = {"rgcn": ("rgcn", 0, {}), "rgcn with 4 bases": ("rgcn", 4, {}),
          "graphsage": ("graphsage", 0, {"params.algorithm": "uniform", "params.fanout": [20, 20]})}


def penstock(*args):
    r = subprocess.run([PENSTOCK, *map(str, args)], capture_output=True, text=True, timeout=COMMAND_S)
    assert r.returncode == 0, f"penstock {' '.join(map(str, args))}: {r.stdout}{r.stderr}"


def prepare(place):
    """Writes the triples and their inverses, and features."""
    triples = np.load(os.path.join(SOURCE, "triples.npy"))
    with open(os.path.join(SOURCE, "meta.json")) as f:
        meta = json.load(f)
    relations, vertices = meta["num_relations"], meta["num_nodes"]
    inverse = triples[:, ::-1] + np.array([0, relations, 0], triples.dtype)
    np.save(os.path.join(place, "edges.npy"), np.concatenate([triples, inverse]))
    counts = np.stack([np.bincount(triples[triples[:, 1] == r, end], minlength=vertices)
                       for r in range(relations) for end in (0, 2)], axis=1)
    noise = np.random.default_rng(1).normal(size=(vertices, RANDOM_COLUMNS))
    np.save(os.path.join(place, "features.npy"), np.concatenate([np.log1p(counts), noise], axis=1).astype("f4"))
    return 2 * relations


def accuracy(place, data, model, bases, settings):
    run_dir = os.path.join(place, "run")
    values = {"stages.trainer.params.model": model, "stages.trainer.params.bases": bases, "params.batch": 1024,
              "stages.trainer.params.eval_every": EPOCHS, **settings}
    penstock("run", TYPED, "--dataset", data, "--epochs", EPOCHS, "--seed", 1, "--run-dir", run_dir, "--quiet",
             *(word for key, value in values.items() for word in ("--set", f"{key}={json.dumps(value)}")))
    with open(os.path.join(run_dir, "report.json")) as f:
        report = json.load(f)
    shutil.rmtree(run_dir)
    return report


@test
def relations_tell_more_than_their_union():
    if not os.path.exists(os.path.join(SOURCE, "triples.npy")):
        raise Skip("there is no am_kg in PENSTOCK_DATA")
    place = tempfile.mkdtemp(prefix="penstock-accept-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    try:
        relations, data, found = prepare(place), os.path.join(place, "am_kg"), {}
        penstock("import", "npy", SOURCE, data, "--edges", os.path.join(place, "edges.npy"), "--edge-shape", "Ex3",
                 "--features", os.path.join(place, "features.npy"), "--quiet")
        with open(os.path.join(data, "dataset.json")) as f:
            assert json.load(f)["relation_types"] == relations
        for name, (model, bases, settings) in MODELS.items():
            t0 = time.time()
            report = accuracy(place, data, model, bases, settings)
            found[name] = report["test_accuracy"]
            print(f"# am_kg, {name}: test accuracy {100 * found[name]:.1f} after {EPOCHS} epochs, "
                  f"{report['parameters']} weights, {time.time() - t0:.0f} s", flush=True)
        assert min(found["rgcn"], found["rgcn with 4 bases"]) > found["graphsage"] + 0.02, found
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
