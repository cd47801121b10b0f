"""marius.json with partitions: embeddings that are larger than memory. Training equals a serial reference in NumPy,
with any order and staleness; nothing of timing, threads or drives changes a bit; the bytes that travel are those of the
order; a killed run resumes to the same bits; damage and full disks are told."""
import random
import re
import signal

import numpy as np
import embedding as whole
from crash import *
from embedding import *
from harness import *

settings = partitioned
PIECE = 4096
EDGES = np.dtype([("magic", "S8"), ("bytes_used", "u8"), ("batch", "u8"), ("batch_in_epoch", "u8"), ("batches_in_epoch", "u8"),
                  ("epoch", "u4"), ("edges", "u4"), ("chunks", "u4"), ("negatives", "u4"), ("flush", "u4"), ("reserved", "u4"),
                  ("vertices", "i8"), ("relations", "i8"), ("source_at", "u8"), ("destination_at", "u8"), ("relation_at", "u8"),
                  ("negatives_at", "u8", 2)])
PAUSE = 2**32 - 1


def run(p, data, *args, epochs=2, **more):
    return p.run(MARIUS, *args, "--epochs", epochs, data=data, **more)


class Batch:
    """A slot that the stage edges sent, as reference() wants it."""

    def __init__(self, slot):
        h = np.frombuffer(slot, EDGES, 1)[0]
        at = lambda name, dtype, n: np.frombuffer(slot, dtype, n, int(h[name]))
        n = int(h["edges"])
        self.n, self.chunks, self.flush, self.epoch = n, int(h["chunks"]), int(h["flush"]), int(h["epoch"])
        self.relation = at("relation_at", "i4", n)
        negatives = [np.frombuffer(slot, "i8", self.chunks * int(h["negatives"]), int(k)) for k in h["negatives_at"]] if n else []
        self.ids = [at("source_at", "i8", n), at("destination_at", "i8", n), *negatives]
        self.vertices, at = np.unique(np.concatenate(self.ids), return_inverse=True)
        cut = np.cumsum([len(x) for x in self.ids])[:-1]
        self.source, self.destination, *negatives = np.split(at, cut)
        self.negatives = [x.reshape(self.chunks, -1) for x in negatives]


def with_hoard(p, partitioned=True):
    """The pipeline, with the overlay if it is partitioned, and a stage that keeps the edges' batches."""
    with open(MARIUS) as f:
        pl = json.load(f)
    with open(PARTITIONS) as f:
        more = json.load(f) if partitioned else {"params": {}, "stages": {}, "links": {}}
    pl["params"].update(more["params"])
    pl["stages"].update(more["stages"], hoard=stage("hoard"))
    pl["links"] += [*more["links"].values(), {"from": "edges.out", "to": "hoard.in", "slots": 4}]
    return p.write(pl)


def hoarded(r):
    with open(os.path.join(r.run_dir, "hoard.bin"), "rb") as f:
        slots = f.read()
    n = r.report["stages"]["hoard"]["items"]
    return [Batch(slots[i * len(slots) // n:(i + 1) * len(slots) // n]) for i in range(n)]


def final(run_dir, vertices, partitions):
    """Embeddings and relations of the newest checkpoint; the partitions are in the order of the ids."""
    path = sorted(glob.glob(os.path.join(run_dir, "checkpoints", "*.safetensors")))[-1]
    with open(path, "rb") as f:
        data = f.read()
    size = int.from_bytes(data[:8], "little")
    head = json.loads(data[8:8 + size])
    at = lambda name, dtype: np.frombuffer(data[8 + size:][slice(*head[name]["data_offsets"])], dtype).reshape(head[name]["shape"])
    rows = -(-vertices // partitions)
    with open(os.path.join(run_dir, "arrays", "embeddings"), "rb") as f:
        array = f.read()
    each = len(array) // (2 * partitions)
    blocks = [np.frombuffer(array, "f4", rows * DIM, (int(x) * partitions + p) * each).reshape(rows, DIM)
              for p, x in enumerate(at("extents", "i8").ravel())]
    return np.concatenate(blocks)[:vertices], at("relations", "f4")


def swaps_of(partitions, buffer, order):
    return json.loads(command("order", "--kind", order, "--partitions", partitions, "--buffer", buffer, "--json").stdout)["counts"]["swaps"]


@test
def training_equals_a_serial_reference():
    with Place() as p:
        data, vertices = knowledge_graph(p), 37
        pauses = {}
        for partitions, buffer, order, staleness, swaps in ((4, 2, "beta", 1, 0), (6, 3, "legend", 3, 2), (5, 3, "hilbert", 1, 1),
                                                            (5, 3, "hilbert", 16, 1), (5, 2, "hilbert", 9, 0), (7, 3, "auto", 5, 0), (7, 3, "auto", 4, 2)):
            buckets = p.path(f"buckets{partitions}")
            command("partition", data, "--partitions", partitions, "--assign", "id", "--out", buckets, "--quiet")
            between = staleness == 4  # then all negatives are from a full buffer
            args = settings(partitions, buffer, order, staleness, **{"params.buckets": buckets, "params.checkpoint_swaps": swaps,
                                                                     "params.between_exchanges": json.dumps(between)})
            r = p.run(with_hoard(p), *args[2:], "--epochs", 2, data=data, foreign=True)
            batches = hoarded(r)
            want, relations, losses = reference(batches, vertices, 3, staleness, True)
            rows, got_relations = final(r.run_dir, vertices, partitions)
            name = (partitions, buffer, order, staleness)
            pauses[name] = sum(b.flush == PAUSE for b in batches)  # without edges: before a partition comes again too soon
            assert np.abs(rows - want).max() < 2e-4 and np.abs(got_relations - relations).max() < 2e-4, name
            assert np.allclose([e["loss"] for e in r.report["epochs"]], losses, rtol=1e-4), name
            # every edge once in each epoch, and the vertices of a batch in `buffer` partitions
            for epoch in range(2):
                seen = sorted(e for b in batches if b.n and b.epoch == epoch for e in zip(b.ids[0], b.relation, b.ids[1]))
                triples = np.load(os.path.join(data, "triples_train.npy"))
                assert seen == sorted(map(tuple, triples.tolist())), name
            for b in batches:
                resident = len(set(b.vertices // -(-vertices // partitions)))
                assert resident <= buffer and (not between or b.n == 0 or resident == buffer), name
        assert pauses[5, 2, "hilbert", 9] > 0 == pauses[4, 2, "beta", 1], pauses


@test
def all_vertices_in_memory_are_negatives():
    with Place() as p:
        data, vertices, every = knowledge_graph(p), 37, {"params.negatives_from": "all"}
        for partitions, buffer, order, staleness in ((1, 1, "beta", 2), (4, 2, "beta", 1), (6, 3, "legend", 3)):
            name, rows = (partitions, buffer, order), -(-vertices // partitions)
            buckets = {"params.buckets": p.path(f"buckets{partitions}")}
            command("partition", data, "--partitions", partitions, "--assign", "id", "--out", p.path(f"buckets{partitions}"), "--quiet")
            args = settings(partitions, buffer, order, staleness, **buckets, **every)[2:] if partitions > 1 else whole.settings(staleness, **every)
            r = p.run(with_hoard(p, partitions > 1), *args, "--epochs", 2, data=data, foreign=True)
            batches = hoarded(r)
            for b in (b for b in batches if b.n):
                resident = set(b.vertices // rows)  # all of a partition's vertices are negatives, or none
                want = [v for v in range(vertices) if v // rows in resident]
                assert b.chunks == 1 and len(resident) <= buffer, name
                assert all(sorted(b.vertices[side[0]]) == want for side in b.negatives), (name, b.negatives)
            want, relations, losses = reference(batches, vertices, 3, staleness, True)
            got = final(r.run_dir, vertices, partitions) if partitions > 1 else [tensors(r.run_dir)[x] for x in ("vertices", "relations")]
            assert np.abs(got[0] - want).max() < 2e-4 and np.abs(got[1] - relations).max() < 2e-4, name
            assert np.allclose([e["loss"] for e in r.report["epochs"]], losses, rtol=1e-4), name
        more = ("--set", "params.negatives_from=all")
        same = [r.report["weights_digest"] for r in (run(p, data, *settings(6, 3, "legend", 1, **every)),
                                                     p.run(LEGEND, *legend(6, 3, "legend"), *more, "--epochs", 2, data=data))]
        assert same[0] == same[1], same


@test
def nothing_but_the_settings_changes_a_bit():
    with Place() as p:
        data = knowledge_graph(p)
        args = settings(6, 3, "beta", 4)
        want = run(p, data, *args).report
        digest = want["weights_digest"]
        swaps = 2 * swaps_of(6, 3, "beta")
        exchange, piece = want["exchange"], want["exchange"]["partition_bytes"]
        assert exchange["swaps"] == swaps and piece % PIECE == 0, want
        # six partitions are generated, and not read
        assert (exchange["written_bytes"], exchange["read_bytes"]) == ((swaps + 6) * piece, (swaps + 6 - 6) * piece), want
        assert want["io"]["bytes"] == (2 * swaps + 6) * piece, want
        for more in (("params.threads=2",), ("params.threads=1",), ("stages.disk.params.backend=pread",), ("links[2].slots=1",), ("params.prefetch=false",), ("params.ahead=0",), ("params.ahead=3",),
                     ("stages.disk.params.backend=emulated", "stages.disk.params.ssds=3"),
                     ("stages.disk.params.fault_delay_us=2000",), ("stages.disk.params.fault_rate=0.2",)):
            got = run(p, data, *args, *(w for m in more for w in ("--set", m))).report
            assert got["weights_digest"] == digest and got["test_mrr"] == want["test_mrr"], (more, got)
        assert run(p, data, *args, grouped=True).report["weights_digest"] == digest
        # the steps of adam have numbers, also those of rows that are updated early, because their partition leaves
        adam = settings(6, 3, "beta", 6, **{"params.optimizer": "adam", "params.rate": 0.02})
        steps = {run(p, data, *adam, *(w for m in more for w in ("--set", m))).report["weights_digest"]
                 for more in ((), ("params.prefetch=false",), ("stages.disk.params.fault_delay_us=2000", "params.ahead=0"))}
        assert len(steps) == 1, steps
        others = [run(p, data, *settings(6, 3, "auto", 4, **{"params.between_exchanges": between, "params.ahead": ahead})).report["weights_digest"]
                  for between, ahead in (("true", 0), ("true", 1), ("false", 1))]
        assert others[0] == others[1] and len({digest, *others}) == 3, others


@test
def ranks_do_not_depend_on_partitions():
    """Evaluation reads every partition; brute force, in the embeddings' own order."""
    with Place() as p:
        data = knowledge_graph(p)
        buckets = p.path("buckets")
        command("partition", data, "--partitions", 8, "--assign", "id", "--out", buckets, "--quiet")
        r = run(p, data, *settings(8, 3, **{"params.buckets": buckets}))
        rows, relations = final(r.run_dir, 37, 8)
        for part in ("val", "test"):
            want = brute_force(data, {"vertices": rows, "relations": relations}, part, "mean")
            found = [r.report[f"{part}_{name}"] for name in ("mrr", "hits_1", "hits_3", "hits_10", "mean_rank")]
            assert np.allclose(found, want, rtol=1e-9), (part, found, want)
        among = ("--set", "stages.store.params.evaluate_among=20")
        r = run(p, data, *settings(8, 3, **{"params.buckets": buckets}), *among)
        found = [r.report[f"test_{name}"] for name in ("mrr", "hits_1", "hits_3", "hits_10", "mean_rank")]
        assert np.allclose(found, sampled_figures(data, {"vertices": rows, "relations": relations}, "test", 20, 0.5), rtol=1e-9), found


@test
def legend_equals_marius():
    with Place() as p:
        data = knowledge_graph(p)
        for partitions, buffer, order, between in ((6, 3, "auto", "true"), (6, 3, "legend", "false"), (5, 2, "beta", "false")):
            want = run(p, data, *settings(partitions, buffer, order, 1, **{"params.between_exchanges": between})).report
            got = p.run(LEGEND, *legend(partitions, buffer, order, between_exchanges=between), "--epochs", 2, data=data)
            for field in ("weights_digest", "test_mrr", "val_hits_10"):
                assert got.report[field] == want[field], (order, field)
            assert [e["loss"] for e in got.report["epochs"]] == [e["loss"] for e in want["epochs"]], order
            assert got.report["exchange"]["read_bytes"] == want["exchange"]["read_bytes"], order
        for more in (("legend.params.threads=1",), ("legend.params.threads=2",), ("legend.params.ahead=2",), ("legend.params.prefetch=false",),
                     ("disk.params.fault_delay_us=2000",)):
            other = p.run(LEGEND, *legend(5, 2, "beta"), *(w for m in more for w in ("--set", "stages." + m)), "--epochs", 2, data=data).report
            assert other["weights_digest"] == got.report["weights_digest"] and other["test_mrr"] == got.report["test_mrr"], more
        # it goes on from where it ended
        more = ("--epochs", 4)
        again = p.run(LEGEND, *legend(5, 2, "beta"), *more, "--resume", got.run_dir, data=data).report["weights_digest"]
        assert again == p.run(LEGEND, *legend(5, 2, "beta"), *more, data=data).report["weights_digest"]
        err = p.run(LEGEND, *legend(1, 2, "beta"), *more, data=data, code=1).err
        assert "partitions is 1" in err, err


@test
def pieces_travel_while_a_batch_is_trained():
    """With one slot, a second piece needs the stage's attention. Training counts as work, though another thread does it."""
    with Place() as p:
        data, trace = knowledge_graph(p), p.path("trace.json")
        args = (*legend(6, 3, "legend", negatives=4000, dim=256), "--set", "links[0].slots=1", "--epochs", 3, "--trace", trace)
        r = p.run(LEGEND, *args, data=data).report
        with open(trace) as f:
            events = json.load(f)["traceEvents"]
        stages = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
        spans = lambda stage, letter: [(e["ts"], e["ts"] + e["dur"]) for e in events if e.get("ph") == "X" and
                                       stages[e["pid"]] == stage and e["name"].startswith(letter + " ")]
        trained, pieces = spans("legend", "T"), [end for _, end in spans("disk", "C")]
        assert max(sum(begin < end < until for end in pieces) for begin, until in trained) > 2, (trained, pieces)
        assert r["stages"]["legend"]["busy_s"] > 0.9 * sum(until - begin for begin, until in trained) / 1e6, r["stages"]["legend"]


@test
def a_complete_run_is_resumed_at_its_end():
    """As after a kill between the last checkpoint and the report."""
    with Place() as p:
        data = knowledge_graph(p)
        for pipeline, args in ((MARIUS, settings(5, 3, staleness=2)), (LEGEND, legend(5, 2, "beta"))):
            first = p.run(pipeline, *args, "--epochs", 2, data=data)
            again = p.run(pipeline, *args, "--epochs", 2, "--resume", first.run_dir, data=data).report
            for field in ("weights_digest", "val_mrr", "test_mrr"):
                assert again[field] == first.report[field], (pipeline, field, again[field], first.report[field])


@test
def killed_at_any_moment_it_resumes_to_the_same_bits():
    with Place() as p:
        data, rng = knowledge_graph(p), random.Random(5)
        args, epochs = settings(5, 3, staleness=2), 30
        want, compared = run(p, data, *args, epochs=epochs).report["weights_digest"], 0
        for victim in ("store",):  # fifty kills: tests/accept/test_partitions.py
            running = p.start(MARIUS, *args, "--epochs", epochs, data=data)
            wait_for(lambda: has_checkpoint(running.run_dir))
            time.sleep(rng.uniform(0, 0.05))
            pids = processes(running)
            target = pids.get("supervisor" if victim == "supervisor" else "edges" if GROUPED else victim)
            if target is not None and running.process.poll() is None:
                os.kill(target, signal.SIGKILL)
            if running.wait().code == 0:
                continue  # it was faster
            again = ("--resume", running.run_dir)
            assert run(p, data, *args, *again, epochs=epochs).report["weights_digest"] == want, victim
            compared += 1
        assert compared > 0


@test
def a_resumed_run_goes_on_with_the_schedule_of_the_rate():
    with Place() as p:
        data = knowledge_graph(p)
        more = {"schedule": "plateau", "patience": 0, "rate": 1e-5}
        args = settings(4, 2, **{f"stages.store.params.{k}": v for k, v in more.items()})
        want = run(p, data, *args, epochs=6).report
        rates = [e["rate"] for e in want["epochs"]]
        assert rates[0] == 1e-5 and rates[4] < 0.6e-5, want["epochs"]
        part = run(p, data, *args, epochs=4)
        assert run(p, data, *args, "--resume", part.run_dir, epochs=6).report["weights_digest"] == want["weights_digest"]


@test
def embeddings_are_exported():
    """From memory and from partitions: those of the checkpoint, in the order of the dataset's vertices."""
    with Place() as p:
        data, out = knowledge_graph(p), p.path("out")
        r = p.run(MARIUS, *whole.settings(), "--epochs", 2, data=data)
        command("export", r.run_dir, out, "--quiet")
        got = tensors(r.run_dir)
        for name in ("vertices", "relations"):
            assert np.array_equal(np.load(os.path.join(out, name + ".npy")), got[name]), name
        buckets = p.path("buckets")
        command("partition", data, "--partitions", 5, "--assign", "id", "--out", buckets, "--quiet")
        r = run(p, data, *settings(5, 2, **{"params.buckets": buckets}))
        command("export", r.run_dir, out, "--quiet")
        rows, relations = final(r.run_dir, 37, 5)
        assert np.array_equal(np.load(os.path.join(out, "vertices.npy")), rows)
        assert np.array_equal(np.load(os.path.join(out, "relations.npy")), relations)
        # a random assignment: evaluation of what was exported gives the run's own figure
        r = run(p, data, *settings(5, 2))
        assert f"{out}: 37 vertices x {DIM}, 6 relations x {DIM}" in command("export", r.run_dir, out).stdout
        got = {name: np.load(os.path.join(out, name + ".npy")) for name in ("vertices", "relations")}
        assert np.allclose(brute_force(data, got, "test", "mean")[0], r.report["test_mrr"], rtol=1e-9)
        command("features", data, p.path("with"), "--rows", os.path.join(out, "vertices.npy"), "--quiet")
        assert np.array_equal(np.load(p.path("with/features.npy"))[:, :DIM], got["vertices"])
        with open(os.path.join(r.run_dir, "arrays", "embeddings"), "r+b") as f:
            f.write(b"?" * (os.path.getsize(f.name)))
        assert "is damaged" in command("export", r.run_dir, out, code=2).stderr
        assert np.array_equal(np.load(os.path.join(out, "vertices.npy")), got["vertices"])  # still the old file
        os.makedirs(p.path("empty/checkpoints"))
        assert "checkpoint" in command("export", p.path("empty"), out, code=None).stderr


@test
def a_damaged_partition_is_told():
    with Place() as p:
        data = knowledge_graph(p)
        args = settings(4, 2)
        r = run(p, data, *args)
        path = os.path.join(r.run_dir, "arrays", "embeddings")
        with open(path, "r+b") as f:
            for at in range(100, os.path.getsize(path), PIECE):
                f.seek(at)
                f.write(b"?")
        err = run(p, data, *args, "--resume", r.run_dir, epochs=3, code=1).err
        assert re.search(r"partition \d of \S*/arrays/embeddings is damaged: from byte \d+ on", err), err
        os.truncate(path, 1000)
        err = run(p, data, *args, "--resume", r.run_dir, epochs=3, code=1).err
        assert "too short" in err, err


@test
def what_does_not_fit_is_told():
    with Place() as p:
        data = knowledge_graph(p)
        assert "ahead is 4, but partitions is 6 and buffer is 3: expected at most 3" in run(p, data, *settings(6, 3), "--set", "params.ahead=4", code=2).err
        assert "buffer is 4, and partitions is 4: expected a buffer smaller than partitions" in run(p, data, *settings(4, 4), code=2).err
        assert "is not linked" in run(p, data, *whole.settings(**{"params.partitions": 4, "params.piece": "4KiB"}), code=1).err
        err = run(p, data, *settings(4, 2, **{"stages.disk.params.arrays": "other"}), code=1).err
        assert "the array other of the run" in err, err
        buckets = p.path("buckets")
        command("partition", data, "--partitions", 5, "--out", buckets, "--quiet")
        err = run(p, data, *settings(4, 2, **{"params.buckets": buckets}), code=1).err
        assert "has 5 partitions, but the parameter partitions is 4" in err, err
        assert "must be" in run(p, data, *settings(4, 2), "--set", "stages.store.params.buffer=3", code=2).err


if __name__ == "__main__":
    main()
