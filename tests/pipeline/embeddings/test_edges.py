"""The stage edges: its batches have every training edge once an epoch and the negatives that an independent
generator in NumPy draws; bad data is told."""
import numpy as np
from embedding import *
from harness import *

HEADER = np.dtype([("magic", "S8"), ("bytes_used", "u8"), ("batch", "u8"), ("batch_in_epoch", "u8"), ("batches_in_epoch", "u8"),
                   ("epoch", "u4"), ("edges", "u4"), ("chunks", "u4"), ("negatives", "u4"), ("flush", "u4"), ("flags", "u4"),
                   ("vertices", "i8"), ("relations", "i8"),
                   ("source_at", "u8"), ("destination_at", "u8"), ("relation_at", "u8"), ("negatives_at", "u8", 2)])
NEGATIVE = 6  # PST_RNG_NEGATIVE


def draws(seed, epoch, batch, index, n, bounds):
    """Draw k is below bounds[k]."""
    key = stream(NEGATIVE, seed, epoch, batch, index)
    words = philox([np.arange(n), np.zeros(n), np.zeros(n), np.full(n, key[2])], key[0], key[1])
    return [(int(low) | int(high) << 32) * bound >> 64 for low, high, bound in zip(words[0], words[1], bounds)]


class Batch:
    def __init__(self, slot):
        self.head = np.frombuffer(slot, HEADER, 1)[0]
        at = lambda name, dtype, n, k=None: np.frombuffer(slot, dtype, n, int(self.head[name] if k is None else self.head[name][k]))
        n = int(self.head["edges"])
        m = int(self.head["chunks"]) * int(self.head["negatives"]) if n else 0
        assert self.head["magic"] == b"ptedges1" and self.head["bytes_used"] <= len(slot)
        self.triples = np.stack([at("source_at", "i8", n), at("relation_at", "i4", n), at("destination_at", "i8", n)], 1)
        self.negatives = [at("negatives_at", "i8", m, k).reshape(int(self.head["chunks"]), -1) for k in (0, 1)]


def batches_of(p, data, *args, **params):
    pl = pipeline({"edges": stage("edges", **{"batch": 50, "chunks": 3, "negatives": 8, "staleness": 2, **params}), "hoard": stage("hoard")},
                  links("edges.out", "hoard.in", slots=2), epochs=2)
    r = p.run(pl, "--seed", 11, *args, data=data, foreign=True)
    with open(os.path.join(r.run_dir, "hoard.bin"), "rb") as f:
        slots = f.read()
    n = r.report["stages"]["hoard"]["items"]
    return [Batch(slots[i * len(slots) // n:(i + 1) * len(slots) // n]) for i in range(n)]


@test
def an_epoch_has_every_edge_once_and_negatives_are_those_of_numpy():
    with Place() as p:
        data = knowledge_graph(p)
        triples = np.load(os.path.join(data, "triples_train.npy"))
        everything = sorted(map(tuple, triples.tolist()))
        batches = batches_of(p, data, alpha=0.25)
        assert [int(b.head["edges"]) for b in batches] == [50, 50, 50, 50, 30, 0, 0] * 2
        assert [int(b.head["flush"]) for b in batches] == [0, 0, 0, 0, 0, 1, 2] * 2
        orders = []
        for epoch in (0, 1):
            order = [tuple(t) for b in batches[7 * epoch:7 * epoch + 7] for t in b.triples.tolist()]
            assert sorted(order) == everything
            orders.append(order)
        assert orders[0] != orders[1] and orders[0] != [tuple(t) for t in triples.tolist()]
        vertices = len(np.load(os.path.join(data, "names_at.npy"))) - 1
        for number, b in enumerate(batches):
            assert (int(b.head["batch"]), int(b.head["epoch"]), int(b.head["batch_in_epoch"])) == (number, number // 7, number % 7)
            for chunk in range(3 if len(b.triples) else 0):
                for side in (0, 1):
                    n = len(b.triples)
                    drawn = draws(11, number // 7, number % 7, 2 * chunk + side, 8, [n] * 2 + [vertices] * 6)
                    ends = b.triples[:, 2 * side]
                    assert b.negatives[side][chunk].tolist() == [int(ends[d]) for d in drawn[:2]] + drawn[2:]
        assert not any((a.triples.tolist(), a.negatives[0].tolist()) != (b.triples.tolist(), b.negatives[0].tolist())
                       for a, b in zip(batches, batches_of(p, data, alpha=0.25)))
        plain = batches_of(p, data, "--epochs", 1, shuffle=False, batch=1000)
        assert len(plain) == 3 and plain[0].triples.tolist() == triples.tolist()


@test
def edges_of_the_same_query_come_together():
    with Place() as p:
        data = knowledge_graph(p)
        triples, vertices = np.load(os.path.join(data, "triples_train.npy")), len(np.load(os.path.join(data, "names_at.npy"))) - 1
        everything = sorted([(s, r, o) for s, r, o in triples.tolist()] + [(o, r + 3, s) for s, r, o in triples.tolist()])
        queries = {t[:2] for t in everything}
        for together in (1, 3, 1000):
            batches = batches_of(p, data, negatives_from="all", together=together)
            assert [int(b.head["edges"]) for b in batches] == [50] * 9 + [10, 0, 0] + [50] * 9 + [10, 0, 0]
            orders = []
            for epoch in (0, 1):
                of_epoch = batches[12 * epoch:12 * epoch + 12]
                order = [tuple(t) for b in of_epoch for t in b.triples.tolist()]
                assert sorted(order) == everything and all(int(b.head["flags"]) == 3 for b in of_epoch)
                assert all(b.negatives[1].tolist() == [list(range(vertices))] for b in of_epoch if len(b.triples))
                orders.append(order)
            assert orders[0] != orders[1]
            changes = sum(a[:2] != b[:2] for a, b in zip(orders[0], orders[0][1:])) + 1
            if together == 1000:
                assert changes == len(queries)
            else:  # pieces of a query can follow each other by chance
                pieces = sum(-(-sum(t[:2] == q for t in everything) // together) for q in queries)
                assert 0.9 * pieces < changes <= pieces, (changes, pieces)


@test
def one_relation_few_edges_and_pairs_without_relations():
    with Place() as p:
        assert all(b.head["relations"] == 1 for b in batches_of(p, knowledge_graph(p, 2, 1, 12), chunks=7, batch=5))
        pl = pipeline({"edges": stage("edges"), "discard": stage("discard")}, links("edges.out", "discard.in"))
        err = p.run(pl, code=2).err  # a graph without edges to predict
        assert "has no edges to train" in err and "penstock import triples" in err, err


@test
def an_id_out_of_range_is_told():
    with Place() as p:
        data = knowledge_graph(p)
        path = os.path.join(data, "triples_train.npy")
        pl = pipeline({"edges": stage("edges"), "discard": stage("discard")}, links("edges.out", "discard.in"))
        for column, bad in ((0, 1 << 20), (2, -1), (1, 99)):
            triples = np.load(path, mmap_mode="r+")
            good, triples[7, column] = int(triples[7, column]), bad
            triples.flush()
            err = p.run(pl, data=data, code=2).err
            assert "triples_train.npy" in err and f"row 7, column {column}" in err and f"found {bad}" in err, err
            triples[7, column] = good
            triples.flush()


if __name__ == "__main__":
    main()
