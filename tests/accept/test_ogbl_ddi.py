"""Link prediction on ogbl_ddi (Hu et al. 2020): GraphSAGE with learned inputs and a perceptron that scores pairs, with the official
split and negatives. The mean test Hits@20 of the seeds must be at least 0.45 (OGB's leaderboard: 0.539 +- 0.047). A second run of
each seed has the edges of a batch left in its neighbourhoods; its figure is printed. DDI_SEEDS: how many seeds (5)."""
import os
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipeline"))
import linking
from harness import DATA, ROOT, Place, Skip, command, main, test

SOURCE = os.path.join(DATA, "clean", "ogbl_ddi")
LINK = os.path.join(ROOT, "pipelines", "link.json")
SETTINGS = os.path.join(ROOT, "pipelines", "settings", "link", "ogbl_ddi.json")
VERTICES, LEAST, RUN_S = 4267, 0.45, 7200


def dataset(p):
    pairs = {name: np.load(os.path.join(SOURCE, name + ".npy")).T.astype(np.int64)
             for name in ("train_edges", "valid_edges", "valid_neg_edges", "test_edges", "test_neg_edges")}
    source = linking.write(p.path("source"), VERTICES, pairs["train_edges"], [(pairs["valid_edges"], pairs["valid_neg_edges"]),
                                                                             (pairs["test_edges"], pairs["test_neg_edges"])])
    command("import", "graphbolt", source, p.path("ogbl_ddi"), "--quiet")
    return p.path("ogbl_ddi")


@test
def hits_of_ogbl_ddi():
    if not os.path.exists(os.path.join(SOURCE, "train_edges.npy")):
        raise Skip("there is no ogbl_ddi in PENSTOCK_DATA")
    tempfile.tempdir = os.environ.get("TMPDIR", "/var/tmp")
    with Place() as p:
        data, found = dataset(p), {True: [], False: []}
        for seed in range(1, 1 + int(os.environ.get("DDI_SEEDS", "5"))):
            for left_out in (True, False):
                t0 = time.time()
                r = p.run(LINK, "--with", SETTINGS, "--seed", seed, "--quiet", "--set",
                          f"stages.sampler.params.leave_out={str(left_out).lower()}", data=data, timeout=RUN_S).report
                found[left_out].append(r["test_hits"])
                print(f"# ogbl_ddi, seed {seed}, the edges of a batch {'left out' if left_out else 'left in'}: test Hits@20 "
                      f"{r['test_hits']:.4f} at epoch {r['best_epoch']}, {time.time() - t0:.0f} s", flush=True)
        for left_out, hits in found.items():
            print(f"# left {'out' if left_out else 'in'}: mean {np.mean(hits):.4f}, standard deviation {np.std(hits):.4f}", flush=True)
        assert np.mean(found[True]) >= LEAST, found


if __name__ == "__main__":
    main()
