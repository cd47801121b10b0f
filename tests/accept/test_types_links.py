"""Graphs with types, and links. R-GCN on am_kg, the knowledge graph of the Amsterdam Museum (kgbench, Bloem et al. 2021):
imported with the relation of each triple, and with the inverse of each relation as a relation of its own, as R-GCN has it.
The data has no features, so each vertex gets how many triples of each relation it has, and random numbers. R-GCN, with and
without bases, must be better than GraphSAGE, which does not tell relations apart. The data's README has no figure for this
graph; the figures are printed.

Link prediction on ogbl_ddi (Hu et al. 2020): GraphSAGE with learned inputs and a perceptron that scores pairs, with the official
split and negatives. The mean test Hits@20 of the seeds must be at least 0.45 (OGB's leaderboard: 0.539 +- 0.047). A second run of
each seed has the edges of a batch left in its neighbourhoods; its figure is printed. DDI_SEEDS: how many seeds (5)."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipeline"))
import linking
from harness import DATA, PENSTOCK, ROOT, Place, Skip, command, main, test

SOURCE = os.path.join(DATA, "clean", "am_kg")
TYPED = os.path.join(ROOT, "pipelines", "typed.json")
RANDOM_COLUMNS, EPOCHS, COMMAND_S = 16, 20, 600
MODELS = {"rgcn": ("rgcn", 0, {}), "rgcn with 4 bases": ("rgcn", 4, {}),
          "graphsage": ("graphsage", 0, {"params.algorithm": "uniform", "params.fanout": [20, 20]})}
DDI = os.path.join(DATA, "clean", "ogbl_ddi")
LINK = os.path.join(ROOT, "pipelines", "link.json")
SETTINGS = os.path.join(ROOT, "pipelines", "settings", "link", "ogbl_ddi.json")
DDI_VERTICES, LEAST, DDI_RUN_S = 4267, 0.45, 7200


# ---- am_kg ---------------------------------------------------------------------------------------------------


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


# ---- ogbl_ddi ------------------------------------------------------------------------------------------------


def drug_pairs(p):
    pairs = {name: np.load(os.path.join(DDI, name + ".npy")).T.astype(np.int64)
             for name in ("train_edges", "valid_edges", "valid_neg_edges", "test_edges", "test_neg_edges")}
    source = linking.write(p.path("source"), DDI_VERTICES, pairs["train_edges"], [(pairs["valid_edges"], pairs["valid_neg_edges"]),
                                                                             (pairs["test_edges"], pairs["test_neg_edges"])])
    command("import", "graphbolt", source, p.path("ogbl_ddi"), "--quiet")
    return p.path("ogbl_ddi")


@test
def hits_of_ogbl_ddi():
    if not os.path.exists(os.path.join(DDI, "train_edges.npy")):
        raise Skip("there is no ogbl_ddi in PENSTOCK_DATA")
    tempfile.tempdir = os.environ.get("TMPDIR", "/var/tmp")
    with Place() as p:
        data, found = drug_pairs(p), {True: [], False: []}
        for seed in range(1, 1 + int(os.environ.get("DDI_SEEDS", "5"))):
            for left_out in (True, False):
                t0 = time.time()
                r = p.run(LINK, "--with", SETTINGS, "--seed", seed, "--quiet", "--set",
                          f"stages.sampler.params.leave_out={str(left_out).lower()}", data=data, timeout=DDI_RUN_S).report
                found[left_out].append(r["test_hits"])
                print(f"# ogbl_ddi, seed {seed}, the edges of a batch {'left out' if left_out else 'left in'}: test Hits@20 "
                      f"{r['test_hits']:.4f} at epoch {r['best_epoch']}, {time.time() - t0:.0f} s", flush=True)
        for left_out, hits in found.items():
            print(f"# left {'out' if left_out else 'in'}: mean {np.mean(hits):.4f}, standard deviation {np.std(hits):.4f}", flush=True)
        assert np.mean(found[True]) >= LEAST, found


if __name__ == "__main__":
    main()
