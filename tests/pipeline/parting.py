"""What the tests of cut datasets share: traced runs on parts, and their counts from the ids of the batches."""
import struct

import numpy as np
from ranking import *

WHOLE = ("--set", "stages.trainer.params.eval_every=0")
WORD = 8  # bytes of an id, and of the word that a rank puts before them
HEAD = 5  # such words before the vertices of a hop
MAGIC = 0x3173646963617274  # of a trace of ids


def manifest(directory):
    with open(os.path.join(directory, "dataset.json")) as f:
        return json.load(f)


def traced(path):
    """The ids of the micro-batches."""
    found = []
    with open(path, "rb") as f:
        while head := f.read(32):
            magic, _, _, _, n = struct.unpack("<QQIIQ", head)
            assert magic == MAGIC
            found.append(np.frombuffer(f.read(WORD * n), np.int64))
    return found


def run_traced(p, ranks, replicas, data, *args):
    """A run of all ranks, and the ids of each rank's batches."""
    p.count += 1
    run_dir, paths, argv = p.path(f"run{p.count}"), [], [MPIRUN]
    for rank in range(ranks):
        paths.append(p.path(f"ids{p.count}.{rank}"))
        open(paths[-1], "w").close()
        argv += [":"] if rank else []
        argv += ["-n", "1", *program(p, replicas, run_dir, *args, "--set", f"stages.sampler.params.trace_ids={paths[-1]}",
                                     pipeline=DISTRIBUTED, data=data)]
    run = Running(argv, run_dir).wait(60)
    assert run.code == 0, run
    return run, [traced(path) for path in paths]


def by_rank(remote, name, ranks):
    return [remote[f"{name}_{rank}"] for rank in range(ranks)]


def row_items(remote, ranks):
    """Bytes that a rank sends for the rows of its slots, and of others'."""
    return WORD * ((ranks - 1) * remote["rounds"] + remote["asked_rows"]) + remote["served_rows"] * remote["row_bytes"]


def figures(report):
    """What the evaluation found, which gets rows from all ranks."""
    rows = [(e["epoch"], e["val_accuracy"]) for e in report["epochs"]]
    return rows, report["best_epoch"], report["test_accuracy"], report["final_test_accuracy"]


def evaluation_items(rank, ranks, rows, vertices, epochs, row_bytes):
    """Bytes that a rank sends for evaluations, on one thread: requests for blocks of rows, and the end, or its rows."""
    requests = -(-vertices // (16 * 128)) + 1
    return epochs * (2 * WORD * (ranks - 1) * requests if rank == 0 else rows * row_bytes)


def owners(data):
    """Where the parts begin, and what finds the parts of vertices."""
    first = np.array(manifest(os.path.join(data, "part0"))["cut"]["first"])
    return first, lambda ids: np.searchsorted(first, ids, "right") - 1


def cached_rows(run_dir, ranks):
    """The ids that the plan of each rank caches."""
    return [np.load(os.path.join(run_dir + (f".rank{rank}" if rank else ""), "plan", "cache.npy")) for rank in range(ranks)]


def check_counts(run_dir, ids, data, cached, replicas=1, evaluations=EPOCHS):
    """Rows and bytes of each rank, from the ids of its batches and the parts' borders. cached: ids, by rank. Each replica of
    a rank fetches those of other parts once. Returns the rows that each rank needed of each part, and how many were there."""
    ranks = len(ids)
    first, owner_of = owners(data)
    reports = [report_of(run_dir, rank) for rank in range(ranks)]
    asked, needed, hit = (np.zeros((ranks, ranks), np.int64) for _ in range(3))
    for rank, report in enumerate(reports):
        remote, everything = report["remote"], np.concatenate(ids[rank])
        owner, there = owner_of(everything), np.isin(everything, cached[rank])
        needed[rank], hit[rank] = (np.bincount(part, minlength=ranks) for part in (owner, owner[there]))
        fetched = replicas * np.bincount(owner_of(np.array(cached[rank], np.int64)), minlength=ranks)
        asked[rank] = needed[rank] - hit[rank] + fetched
        asked[rank, rank] = fetched[rank] = 0
        hits = hit[rank].copy()
        hits[rank] = 0
        assert by_rank(remote, "asked_of", ranks) == asked[rank].tolist() and remote["asked_rows"] == asked[rank].sum(), (rank, remote)
        assert by_rank(remote, "cached_of", ranks) == fetched.tolist() and remote["cached_rows"] == fetched.sum(), (rank, remote)
        assert by_rank(remote, "hits_of", ranks) == hits.tolist() and remote["cache_hits"] == hits.sum(), (rank, remote, hits)
        assert remote["own_rows"] == needed[rank, rank] - hit[rank, rank], (rank, remote)
        cache = report["cache"]
        assert (cache["lookups"], cache["hits"], cache["rows"]) == (len(everything), there.sum(), replicas * len(cached[rank])), (rank, cache)
        assert report["status"] == "ok"
    for rank, report in enumerate(reports):
        remote, mpi = report["remote"], report["mpi"]
        assert by_rank(remote, "served_to", ranks) == asked[:, rank].tolist(), (rank, remote, asked)
        assert report["io"]["rows"] == remote["own_rows"] + remote["served_rows"], report["io"]
        part = report["dataset"]["part"]
        items = row_items(remote, ranks)
        if evaluations:
            items += evaluation_items(rank, ranks, part["rows"], int(first[-1]), evaluations, manifest(data + "/part0")["stride_bytes"])
        assert mpi["item_bytes"] == items, (rank, mpi, items)
        least = items + mpi["tree_bytes"]
        assert least <= mpi["sent_bytes"] <= 1.02 * least, (rank, mpi, least)
        assert (part["number"], part["parts"], part["first"], part["rows"]) == (
            rank, ranks, first[rank], first[rank + 1] - first[rank]), part
    return needed, hit
