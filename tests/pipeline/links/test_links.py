"""Link prediction: what a sampler whose seeds are edges puts into batches; models that learn to predict edges, from features and
from inputs that they learn; runs that are stopped and resumed; what is refused."""
import numpy as np
from linking import communities
from snake import *
import penstock

LINK = os.path.join(ROOT, "pipelines", "link.json")
LEARNED = ["--set", "stages.trainer.params.inputs=learned", "--set", "stages.trainer.params.input_dim=16"]
SMALL = ["--set", "params.batch=500", "--set", "params.fanout=[5,5]", "--set", "stages.trainer.params.hidden=16", "--quiet"]


def edges_of(ds):
    return set(zip(ds.edge_index()[0].tolist(), ds.edge_index()[1].tolist()))


def sampled(mb, hop):
    """The edges of a hop, as global ids: sources and destinations."""
    to = np.repeat(np.arange(mb.n[hop]), np.diff(mb.indptr[hop]))
    return set(zip(mb.vertices[mb.indices[hop]].tolist(), mb.vertices[to].tolist()))


@test
def batches_have_edges_and_negatives():
    with Place() as p:
        data = communities(p, "graph")
        ds = penstock.open_dataset(data)
        known, train = edges_of(ds), sorted(map(tuple, ds.edges_train.tolist()))
        for left_out in (True, False):
            settings = {"batch": 700, "fanout": [-1, 4], "stages.sampler.params.negatives": 2, "stages.sampler.params.leave_out": left_out}
            seen, found = [], 0
            with penstock.batches(LINK, data, epochs=1, seed=4, **settings) as loader:
                for mb in loader:
                    ends = mb.seeds[mb.pairs]
                    edges, negatives = ends[:mb.positives], ends[mb.positives:]
                    assert len(edges) == mb.batch_seeds and len(negatives) == 2 * len(edges) and set(mb.pairs.flat) == set(range(mb.n[0]))
                    seen += map(tuple, edges.tolist())
                    assert not known & set(map(tuple, negatives.tolist())) and (negatives[:, 0] != negatives[:, 1]).all()
                    both = {(a, b) for a, b in edges.tolist()} | {(b, a) for a, b in edges.tolist()}
                    found += sum(len(both & sampled(mb, h)) for h in range(2))
                    if left_out:  # the first hop has all other edges
                        assert sampled(mb, 0) == {e for e in known if e[1] in set(mb.seeds.tolist())} - both
            assert sorted(seen) == train and (found == 0) == left_out, (left_out, found)
            assert (loader.report["sampler"]["edges_left_out"] > 0) == left_out, loader.report["sampler"]


@test
def a_model_learns_edges():
    with Place() as p:
        plain, featured = communities(p, "plain"), communities(p, "featured", features=True)
        for data, score, more in ((plain, "dot", LEARNED), (plain, "mlp", LEARNED), (featured, "dot", [])):
            r = p.run(LINK, *SMALL, *more, "--set", f"stages.trainer.params.score={score}", "--epochs", 15 if more else 3, data=data).report
            rows = r["epochs"]
            assert rows[-1]["loss"] < rows[0]["loss"] and not r["warnings"] and r["hits_at"] == 20, r
            # a model that guesses has 0.02
            assert not more or r["test_hits"] > 0.15, (score, [row["val_hits"] for row in rows], r["test_hits"])
            assert r["best_epoch"] == int(np.argmax([row["val_hits"] for row in rows])), rows


@test
def a_run_goes_on_and_batches_are_split():
    with Place() as p:
        data = communities(p, "graph")
        args = [*SMALL, *LEARNED, "--set", "stages.trainer.params.score=mlp"]
        whole = p.run(LINK, *args, "--epochs", 4, data=data).report
        first = p.run(LINK, *args, "--epochs", 2, data=data)
        second = p.run(LINK, *args, "--epochs", 4, "--resume", first.run_dir, data=data).report
        assert second["weights_digest"] == whole["weights_digest"] and second["epochs"][-1]["val_hits"] == whole["epochs"][-1]["val_hits"]
        threads = p.run(LINK, *args, "--epochs", 4, "--set", "stages.trainer.params.threads=3", data=data).report
        assert threads["weights_digest"] == whole["weights_digest"]
        split = p.run(LINK, *args, "--epochs", 1, "--set", "stages.sampler.params.margin=0.8", data=data).report
        assert split["sampler"]["micro_batches"] > split["sampler"]["batches"], split["sampler"]
        assert abs(split["epochs"][0]["loss"] - whole["epochs"][0]["loss"]) < 1e-4, (split["epochs"], whole["epochs"])


@test
def what_is_refused():
    with Place() as p:
        data = communities(p, "graph")
        os.environ["PENSTOCK_CUDA"] = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
        try:
            for stage in ("trainer", "sampler"):
                r = command("check", LINK, "--set", 'stages.%s.place={"device":"cuda:0"}' % stage, code=None)
                assert r.returncode != 0 and stage in r.stderr and "cuda" in r.stderr, r
        finally:
            del os.environ["PENSTOCK_CUDA"]
        assert "needs features" in p.run(LINK, *SMALL, data=data, code=None).err
        assert "edges_train" in p.run(LINK, *SMALL, code=None).err
        assert "hits is 5000" in p.run(LINK, *SMALL, *LEARNED, "--set", "stages.trainer.params.hits=5000", data=data, code=None).err
        trainer, sampler = "stages.trainer.params.", "stages.sampler.params."
        for told, changes in (
                ('trainer.loss is "link", but sampler.seeds is "vertices": "link" needs sampler.seeds to be "edges"',
                 {sampler + "seeds": "vertices"}),
                ('trainer.loss is "mse", but sampler.seeds is "edges"', {trainer + "loss": "mse"}),
                ("inputs has an effect only if model=graphsage|gcn", {trainer + "inputs": "learned", trainer + "model": "gat"})):
            sets = [word for name, value in changes.items() for word in ("--set", f"{name}={value}")]
            assert told in command("check", LINK, *sets, code=2).stderr, told


main()
