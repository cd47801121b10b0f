"""marius.json: training equals a serial reference in NumPy for every staleness; threads, processes and devices do not
change a bit; a run that is killed or stopped resumes to the same bits; bad settings are told."""
import random
import signal

import numpy as np
from crash import *
from embedding import *
from harness import *

@test
def training_equals_a_serial_reference_at_every_staleness():
    with Place() as p:
        data = knowledge_graph(p)
        for staleness, inverse in ((1, True), (3, False), (16, True)):
            batches = lent(p, data, 2, staleness)
            vertices = len(np.load(os.path.join(data, "names_at.npy"))) - 1
            for b in batches:
                assert b.n == 0 or np.allclose(b.rows, initial(0, vertices)[b.vertices], atol=1e-7)
                assert b.n == 0 or len(set(b.vertices.tolist())) == len(b.vertices)
            rows, rel, losses = reference(batches, vertices, 3, staleness, inverse)
            more = {"params.inverse": json.dumps(inverse)}
            r = p.run(MARIUS, *settings(staleness, **more), "--epochs", 2, data=data)
            got = tensors(r.run_dir)
            # float32 against float64: differences above 2e-4 of values of about 0.5 are not rounding
            assert np.abs(got["vertices"] - rows).max() < 2e-4 and np.abs(got["relations"] - rel).max() < 2e-4, staleness
            assert np.allclose([e["loss"] for e in r.report["epochs"]], losses, rtol=1e-4), (r.report["epochs"], losses)


@test
def threads_processes_and_devices_do_not_change_a_bit():
    with Place() as p:
        data = knowledge_graph(p)
        args = [*settings(), "--epochs", 3]
        expected = digest(p, data, *args)
        assert expected == digest(p, data, *args, grouped=True)
        assert expected == digest(p, data, *args, "--set", "params.threads=2")
        assert expected == digest(p, data, *args, "--set", "params.threads=1")
        assert expected == digest(p, data, *args, "--set", 'stages.embedder.place={"device":"cpu:1"}')
        assert expected != digest(p, data, *settings(2), "--epochs", 3)
        stale = [*settings(16), "--epochs", 3]
        assert digest(p, data, *stale) == digest(p, data, *stale)


DELAYED = ("--set", 'stages.delay={"run":"delay","params":{"delay_us":3000}}', "--set", 'links[1].to="delay.in"',
           "--set", 'links[2]={"from":"delay.out","to":"embedder.batch"}')


@test
def a_delayed_batch_changes_time_but_no_bit():
    with Place() as p:
        data = knowledge_graph(p)
        want = digest(p, data, *settings(2), "--epochs", 2)
        r = p.run(MARIUS, *settings(2), "--epochs", 2, *DELAYED, data=data).report
        assert r["weights_digest"] == want
        # two batches at a time are on their way
        batches, seconds = r["stages"]["delay"]["items"], sum(e["seconds"] for e in r["epochs"])
        assert batches > 10 and seconds >= (batches / 2 - 2) * 3e-3, r


def plateau(values, higher, patience, factor, least):
    """The rates of the epochs, and of the one after them."""
    rates, best, waited = [RATE], None, 0
    for value in values:
        improves = best is None or (value > best * (1 + 1e-4) if higher else value < best * (1 - 1e-4))
        best, waited = (value, 0) if improves else (best, waited + 1)
        lower = waited > patience
        rates.append(max(rates[-1] * factor, least) if lower else rates[-1])
        waited = 0 if lower else waited
    return rates


@test
def the_rate_falls_on_a_plateau():
    with Place() as p:
        data = knowledge_graph(p)
        for evaluate, figure, patience in (("epochs", "val_mrr", 1), ("end", "loss", 0)):
            more = {"stages.store.params." + k: v for k, v in {"schedule": "plateau", "evaluate": evaluate, "patience": patience,
                                                               "factor": 0.25, "rate_min": 0.001}.items()}
            args, epochs = settings(2, **more), 24 if evaluate == "epochs" else 60
            r = p.run(MARIUS, *args, "--epochs", epochs, data=data)
            values = [e[figure] for e in r.report["epochs"]]
            rates = plateau(values, evaluate == "epochs", patience, 0.25, 0.001)[:-1]
            assert np.allclose([e["rate"] for e in r.report["epochs"]], rates, rtol=1e-6), (rates, r.report["epochs"])
            assert min(rates) < RATE, values
            part = p.run(MARIUS, *args, "--epochs", epochs - 5, data=data)
            assert r.report["weights_digest"] == digest(p, data, *args, "--epochs", epochs, "--resume", part.run_dir), evaluate
        assert "rate_min is 1, but rate is 0.1" in p.run(
            MARIUS, *settings(**{"stages.store.params.schedule": "plateau", "stages.store.params.rate_min": 1}), data=data, code=1).err


@test
def the_rate_falls_in_a_cosine():
    with Place() as p:
        data = knowledge_graph(p)
        for cosine_epochs, epochs in ((0, 5), (3, 5)):
            args = settings(2, **{f"stages.store.params.{k}": v for k, v in {"schedule": "cosine", "rate_min": 0.001,
                                                                            "cosine_epochs": cosine_epochs}.items()})
            r = p.run(MARIUS, *args, "--epochs", epochs, data=data)
            share = np.minimum(np.arange(epochs) / (cosine_epochs or epochs), 1)
            rates = 0.001 + (RATE - 0.001) * (1 + np.cos(np.pi * share)) / 2
            assert np.allclose([e["rate"] for e in r.report["epochs"]], rates, rtol=1e-6), r.report["epochs"]
            assert r.report["weights_digest"] != digest(p, data, *settings(2), "--epochs", epochs)
        part = p.run(MARIUS, *args, "--epochs", 2, data=data)
        assert r.report["weights_digest"] == digest(p, data, *args, "--epochs", epochs, "--resume", part.run_dir)
        err = p.run(MARIUS, *settings(2, **{"stages.store.params.cosine_epochs": 3}), data=data, code=2).err
        assert "cosine_epochs" in err and "only if schedule=cosine" in err, err


@test
def a_lower_rate_is_that_of_vertices_and_relations():
    """With so low a rate no epoch improves the loss by 0.01 %."""
    with Place() as p:
        data = knowledge_graph(p)
        more = {"params.rate": 1e-5, "stages.store.params.schedule": "plateau", "stages.store.params.patience": 0,
                "stages.store.params.factor": 0.125}
        batches = lent(p, data, 4, 2)
        r = p.run(MARIUS, *settings(2, **more), "--epochs", 4, data=data)
        rates = [e["rate"] for e in r.report["epochs"]]
        assert np.allclose(rates, [1e-5, 1e-5, 1.25e-6, 1e-6], rtol=1e-5), r.report["epochs"]
        got, tolerance = tensors(r.run_dir), 1e-6  # of changes of about 3e-5; rounding is below 3e-7
        for falling in (True, False):
            rows, rel, _ = reference(batches, 37, 3, 2, True, rates if falling else [1e-5] * 4)
            near = [np.abs(got["vertices"] - rows).max() < tolerance, np.abs(got["relations"] - rel).max() < tolerance]
            assert near == [falling, falling], (near, np.abs(got["vertices"] - rows).max(), np.abs(got["relations"] - rel).max())


@test
def every_model_loss_and_optimizer_trains():
    with Place() as p:
        data = knowledge_graph(p, 12, 2, 150)
        choices = [("dot", "softmax", "sgd"), ("distmult", "logistic", "adam"), ("transe-l2", "margin", "adagrad-row"),
                   ("rotate", "logistic", "adagrad"), ("rotate", "adversarial", "adam")]
        for model, loss, optimizer in choices:
            more = {"params.model": model, "stages.embedder.params.loss": loss, "params.optimizer": optimizer,
                    "params.rate": 0.02}
            epochs = p.run(MARIUS, *settings(2, **more), "--epochs", 8, data=data).report["epochs"]
            assert epochs[-1]["loss"] < epochs[0]["loss"] and "edges_per_second" in epochs[0], (model, epochs)


@test
def ranks_are_those_of_a_brute_force():
    with Place() as p:
        data = knowledge_graph(p)
        names = ("mrr", "hits_1", "hits_3", "hits_10", "mean_rank")
        for tie, evaluate in (("mean", "epochs"), ("pessimistic", "end")):
            more = {"stages.store.params.tie": tie, "stages.store.params.evaluate": evaluate}
            r = p.run(MARIUS, *settings(**more), "--epochs", 4, data=data)
            for part in ("val", "test"):
                found = [r.report[f"{part}_{name}"] for name in names]
                assert np.allclose(found, brute_force(data, tensors(r.run_dir), part, tie), rtol=1e-9), (part, found)
            rows = r.report["epochs"]
            assert r.report["tie"] == tie and rows[-1]["val_mrr"] == r.report["val_mrr"]
            assert ("val_mrr" in rows[0]) == (evaluate == "epochs")
        r = p.run(MARIUS, *settings(**{"stages.store.params.evaluate": "never"}), "--epochs", 1, data=data)
        assert "test_mrr" not in r.report and "weights_digest" in r.report


@test
def sampled_ranks_are_those_of_a_brute_force():
    with Place() as p:
        data = knowledge_graph(p)
        for among, alpha in ((20, 0.5), (7, 0), (500, 1)):
            args = [f"stages.store.params.{k}={v}" for k, v in (("evaluate_among", among), ("evaluate_alpha", alpha))]
            r = p.run(MARIUS, *settings(2), "--epochs", 2, *(w for a in args for w in ("--set", a)), data=data)
            assert (r.report["ranks"], r.report["ranked_among"]) == ("sampled", among), r.report
            for part in ("val", "test"):
                found = [r.report[f"{part}_{name}"] for name in ("mrr", "hits_1", "hits_3", "hits_10", "mean_rank")]
                want = sampled_figures(data, tensors(r.run_dir), part, among, alpha)
                assert np.allclose(found, want, rtol=1e-9), (among, part, found, want)


@test
def edges_of_the_same_query_train_together():
    with Place() as p:
        data = knowledge_graph(p)
        all_vertices = {"params.negatives_from": "all", "stages.embedder.params.n3": 0.01}
        whole = {**all_vertices, "params.batch": 1000}  # one batch an epoch
        apart, together = (p.run(MARIUS, *settings(1, **more), "--epochs", 4, data=data)
                           for more in (whole, {**whole, "params.together": 1000}))
        for a, b in zip(apart.report["epochs"], together.report["epochs"]):
            assert a["edges"] == b["edges"] == 230 and abs(a["loss"] - b["loss"]) < 1e-5 * a["loss"], (a, b)
        got = [tensors(r.run_dir) for r in (apart, together)]
        assert all(np.abs(got[0][name] - got[1][name]).max() < 1e-4 for name in ("vertices", "relations"))
        args = [*settings(3, **all_vertices, **{"params.together": 4}), "--epochs", 4]
        part = p.run(MARIUS, *args, "--epochs", 2, data=data)
        want = digest(p, data, *args)
        assert want == digest(p, data, *args, "--set", "params.threads=2") == digest(p, data, *args, "--set", "params.threads=1")
        assert want == digest(p, data, *args, "--resume", part.run_dir) == digest(p, data, *args, grouped=True)


@test
def what_edges_of_the_same_query_need_is_told():
    with Place() as p:
        data = knowledge_graph(p)
        good = {"params.negatives_from": "all", "params.together": 4}
        for key, value, needs in (("params.negatives_from", "sampled", "negatives_from all"), ("params.inverse", "false", "inverse true"),
                                  ("params.relations", "async", "relations sync"), ("params.model", "transe-l2", "one of the models dot, distmult and complex"),
                                  ("stages.embedder.params.loss", "logistic", "the loss softmax")):
            err = p.run(MARIUS, *settings(2, **{**good, key: value}), data=data, code=1).err
            assert needs in err, (key, err)


@test
def killed_at_any_moment_it_resumes_to_the_same_bits():
    with Place() as p:
        data, rng = knowledge_graph(p), random.Random(3)
        args = [*settings(), "--epochs", 40]
        expected, compared = digest(p, data, *args), 0
        for victim in ("store", "embedder", "edges", "supervisor"):
            run = p.start(MARIUS, *settings(), "--epochs", 1_000_000, data=data)
            wait_for(lambda: has_checkpoint(run.run_dir))
            time.sleep(rng.uniform(0, 0.02))
            pids = processes(run)  # a group of all stages is named after the first one
            os.kill(pids[victim] if not GROUPED else pids.get(victim, pids["edges"]), signal.SIGKILL)
            assert run.wait().code != 0
            at = int(os.path.basename(sorted(glob.glob(os.path.join(run.run_dir, "checkpoints", "*.safetensors")))[-1])[:8])
            if at < 40 * 8:  # 5 batches and 3 without edges an epoch
                assert expected == digest(p, data, *args, "--resume", run.run_dir)
                compared += 1
        assert compared > 0


@test
def stopped_it_resumes_from_the_last_whole_epoch():
    with Place() as p:
        data = knowledge_graph(p)
        run = p.start(MARIUS, *settings(), "--epochs", 1_000_000, data=data)
        wait_for(lambda: has_checkpoint(run.run_dir))
        run.process.send_signal(signal.SIGTERM)
        assert "--resume" in run.wait().err
        at = int(os.path.basename(sorted(glob.glob(os.path.join(run.run_dir, "checkpoints", "*.safetensors")))[-1])[:8])
        args = [*settings(), "--epochs", at // 8 + 2]
        assert at % 8 == 0 and digest(p, data, *args) == digest(p, data, *args, "--resume", run.run_dir)


@test
def unusual_data_trains_or_is_told():
    """Vertices that only test edges have; one relation; only self loops; a vertex out of range."""
    with Place() as p:
        for name, train, rest in (("unseen", [("a", "r", "b"), ("b", "r", "c")], [("x", "r", "y"), ("a", "r", "x")]),
                                  ("loops", [("a", "r", "a"), ("b", "r", "b")], [("a", "r", "a")])):
            os.makedirs(p.path(name))
            for part, rows in (("train", train), ("valid", rest), ("test", rest)):
                with open(os.path.join(p.path(name), part + ".tsv"), "w") as f:
                    f.writelines("\t".join(row) + "\n" for row in rows)
            data = p.path(name + "_data")
            command("import", "triples", p.path(name), data, "--quiet")
            r = p.run(MARIUS, *settings(2), "--epochs", 3, data=data)
            assert r.report["epochs"][-1]["loss"] < r.report["epochs"][0]["loss"], (name, r.report["epochs"])
            found = [r.report[f"test_{figure}"] for figure in ("mrr", "hits_1", "hits_3", "hits_10", "mean_rank")]
            assert np.allclose(found, brute_force(data, tensors(r.run_dir), "test", "mean"), rtol=1e-9), (name, found)
        triples = np.load(os.path.join(data, "triples_train.npy"), mmap_mode="r+")
        triples[1, 2] = 99
        triples.flush()
        err = p.run(MARIUS, *settings(2), data=data, code=2).err
        assert "triples_train.npy: row 1, column 2: expected 0 to 1, found 99" in err, err


@test
def shipped_settings_pass_the_check():
    with open(os.path.join(ROOT, "pipelines", "README.md")) as f:
        described = f.read()
    for name, args in {"": [MARIUS], **shipped_embeddings()}.items():
        assert "ok" in command("check", *args).stdout
        assert f"marius/{name}" in described, f"pipelines/README.md does not mention the settings marius/{name}"


@test
def bad_settings_and_data_are_told():
    with Place() as p:
        data = knowledge_graph(p, 5, 1, 40)
        told = lambda code, *args, data=data: p.run(MARIUS, *args, data=data, code=code).err
        err = told(1, *settings(2), "--set", "links[1].slots=3")
        assert "staleness is 2" in err and "has 3 slots" in err, err
        assert "batch" in told(2, *settings(), "--set", "stages.store.params.batch=51")
        assert 'dim is 7, but with model "complex" it must be even' in told(2, *settings(), "--set", "params.dim=7")
        assert "has no edges to train" in told(2, *settings(), data=None)
        err = told(1, *settings(**{"params.optimizer": "sgd", "params.rate": 100, "params.scale": 1000}), "--epochs", 50)
        assert "diverged" in err and "rate" in err, err


if __name__ == "__main__":
    main()
