"""Relations of marius.json that go the way of the vertices (`relations` async): with one batch in flight they are those of
sync, bit for bit; with more, those of a serial reference. Checkpoints, evaluation and export have the right ones."""
import numpy as np
from embedding import *
from harness import *

ASYNC = ("--set", "params.relations=async")
PARTITIONS = ("--with", os.path.join(ROOT, "pipelines", "settings", "marius", "partitions.json"), "--set", "params.partitions=5",
              "--set", "params.buffer=2", "--set", "params.ahead=1", "--set", "params.piece=4KiB")
MANY = 60  # relations, so that a batch has only some of them


def relations_of(data):
    return len(np.load(os.path.join(data, "relation_names_at.npy"))) - 1


@test
def async_equals_sync_if_one_batch_is_in_flight():
    with Place() as p:
        data = knowledge_graph(p, relations=MANY)
        for model, inverse, optimizer in (("complex", True, "adagrad"), ("complex", False, "adam"), ("rotate", True, "adagrad-row"),
                                          ("transe-l2", False, "sgd"), ("dot", False, "adagrad")):
            more = {"params.model": model, "params.inverse": json.dumps(inverse), "params.optimizer": optimizer, "params.rate": 0.02}
            args = [*settings(1, **more), "--epochs", 3]
            want = p.run(MARIUS, *args, data=data)
            got = p.run(MARIUS, *args, *ASYNC, data=data)
            assert (want.report["relations"], got.report["relations"]) == ("sync", "async")
            for field in ("weights_digest", "test_mrr", "val_mean_rank"):
                assert got.report[field] == want.report[field], (model, field)
            assert [e["loss"] for e in got.report["epochs"]] == [e["loss"] for e in want.report["epochs"]], model
            a, b = tensors(want.run_dir), tensors(got.run_dir)
            assert a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a), model
        args = [*settings(1), "--epochs", 2]
        assert digest(p, data, *PARTITIONS, *args) == digest(p, data, *PARTITIONS, *args, *ASYNC)


@test
def late_relations_equal_a_serial_reference():
    with Place() as p:
        data = knowledge_graph(p, relations=MANY)
        for staleness, inverse in ((3, True), (3, False), (16, True)):
            batches = lent(p, data, 2, staleness)
            more = {"params.inverse": json.dumps(inverse)}
            r = p.run(MARIUS, *settings(staleness, **more), "--epochs", 2, *ASYNC, data=data)
            got = tensors(r.run_dir)
            far = []
            for late in (True, False):
                rows, rel, losses = reference(batches, 37, relations_of(data), staleness, inverse, lent=late)
                far.append(max(np.abs(got["vertices"] - rows).max(), np.abs(got["relations"] - rel).max()))
                assert not late or np.allclose([e["loss"] for e in r.report["epochs"]], losses, rtol=1e-4), (r.report["epochs"], losses)
            assert far[0] < 2e-4 < far[1], (staleness, inverse, far)


@test
def threads_processes_and_devices_do_not_change_a_bit():
    with Place() as p:
        data = knowledge_graph(p, relations=MANY)
        args = [*settings(), "--epochs", 2, *ASYNC]
        want = digest(p, data, *args)
        for more in (("params.threads=2",), ("params.threads=1",), ('stages.embedder.place={"device":"cpu:1"}',)):
            assert digest(p, data, *args, *(w for m in more for w in ("--set", m))) == want, more
        assert digest(p, data, *args, grouped=True) == want
        assert digest(p, data, *settings(), "--epochs", 2) != want


@test
def it_resumes_and_ranks_and_is_exported():
    with Place() as p:
        data, out = knowledge_graph(p, relations=MANY), p.path("out")
        for more in ((), PARTITIONS):
            adam = {"params.optimizer": "adam", "params.rate": 0.02}
            args = [*more, *settings(**adam), *ASYNC]
            r = p.run(MARIUS, *args, "--epochs", 4, data=data)
            part = p.run(MARIUS, *args, "--epochs", 2, data=data)
            assert digest(p, data, *args, "--epochs", 4, "--resume", part.run_dir) == r.report["weights_digest"], more
            command("export", r.run_dir, out, "--quiet")
            got = {name: np.load(os.path.join(out, name + ".npy")) for name in ("vertices", "relations")}
            assert np.array_equal(got["relations"], tensors(r.run_dir)["relations"])
            found = [r.report[f"test_{name}"] for name in ("mrr", "hits_1", "hits_3", "hits_10", "mean_rank")]
            assert np.allclose(found, brute_force(data, got, "test", "mean"), rtol=1e-9), (more, found)
            # the embeddings are those of the other run, and the first loss shows it
            args = [*more, *settings(1, **adam), "--init-from", r.run_dir, "--epochs", 1]
            assert digest(p, data, *args, *ASYNC) == digest(p, data, *args), more


@test
def a_batch_updates_its_relations_once():
    """Every gradient is 1."""
    with Place() as p:
        data, step = knowledge_graph(p, relations=MANY), 0.125
        relations = relations_of(data)
        with open(MARIUS) as f:
            pl = json.load(f)
        pl["stages"]["slope"] = stage("slope")
        del pl["stages"]["embedder"]
        pl["links"][1]["to"] = "slope.batch"
        more = {"params.optimizer": "sgd", "params.rate": step, "stages.store.params.evaluate": "never"}
        r = p.run(pl, *settings(2, **more), "--epochs", 2, *ASYNC, data=data, foreign=True)
        times = sum(np.isin(np.arange(relations), b.relation) for b in row_batches(r, "slope") if b.n)
        assert 0 < times.min() < times.max() < 10, times  # batches
        want = initial(1, 2 * relations) - step * np.tile(times, 2)[:, None]
        assert np.abs(tensors(r.run_dir)["relations"] - want).max() < 1e-6


@test
def what_does_not_fit_is_told():
    with Place() as p:
        data = knowledge_graph(p)
        told = lambda code, *args: p.run(MARIUS, *settings(), *ASYNC, *args, data=data, code=code).err
        for other in ("rate=0.05", "optimizer=sgd"):
            err = told(1, "--set", f"stages.embedder.params.{other}")
            assert "with `relations` async" in err and "give both stages the same `optimizer` and `rate`" in err, err
        assert "relations" in told(2, "--set", "stages.embedder.params.relations=sync")
        first = p.run(MARIUS, *settings(), data=data, *("--epochs", 1))
        err = told(2, "--resume", first.run_dir)
        assert 'relations is "async", was "sync"' in err, err


if __name__ == "__main__":
    main()
