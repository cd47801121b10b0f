"""marius.json with the embedder on a GPU, and legend.json on one: virtual GPUs or real ones (gpus.py). Losses are the
CPU's within 1e-5: the kernels add in the CPU's order, but for matrix products, the scores of true ends and the sums of
losses. Ranks are exact, whatever the embeddings."""
import sys

try:
    import numpy  # noqa: F401
except ImportError:
    print("# SKIP no numpy (Debian package python3-numpy)")
    sys.exit(77)

from crash import kill_ends
from embedding import *
from gpus import *
from harness import *

SLOW_DISK = ["--set", "stages.disk.params.fault_delay_us=2000"]


def on(**devices):
    return [w for name, device in devices.items() for w in ("--set", f'stages.{name}.place={{"device":"{device}"}}')]


def marius(p, data, *args, staleness=3, epochs=2, device="cuda:0", more=None, **how):
    return p.run(MARIUS, *settings(staleness, **{"params.chunks": 2, **(more or {})}), "--epochs", epochs, *on(embedder=device), *args, data=data, **how)


def leg(p, data, partitions, buffer, *args, order="legend", epochs=2, device="cuda:0", more=None, **how):
    return p.run(LEGEND, *legend(partitions, buffer, order, **{"chunks": 2, **(more or {})}), "--epochs", epochs, *on(legend=device), *args,
                 data=data, **how)


def close(report, want, name):
    assert len(report["epochs"]) == len(want["epochs"]), name
    for a, b in zip(report["epochs"], want["epochs"]):
        assert a["edges"] == b["edges"] and abs(a["loss"] - b["loss"]) <= 1e-5 * b["loss"], (name, a, b)
    for key in ("edges", "rows", "updates"):
        assert report["store"][key] == want["store"][key], (name, report["store"], want["store"])
    for part in ("val", "test"):  # two scores that are almost equal may change places
        assert abs(report[f"{part}_mrr"] - want[f"{part}_mrr"]) < 0.05, (name, report, want)


@test
def marius_has_the_losses_of_a_cpu():
    with Place() as p:
        data = knowledge_graph(p)
        for more in ({}, {"params.model": "rotate", "params.optimizer": "adam", "params.rate": 0.01},
                     {"params.model": "transe-l1", "params.inverse": "false", "params.loss": "margin", "params.optimizer": "adagrad-row",
                      "params.relations": "async"},
                     {"params.model": "distmult", "params.loss": "logistic", "params.n3": 0.001, "params.dropout": 0.2,
                      "params.relations": "async", "params.negatives_from": "all", "params.fused": "false"}):
            want = marius(p, data, device="cpu:0", more=more).report
            r = marius(p, data, more=more).report
            close(r, want, more)
            assert r["stages"]["embedder"]["device"] == "cuda:0" and r["stages"]["store"]["device"] == "cpu:0", r["stages"]


@test
def timing_and_places_change_no_bit():
    with Place() as p:
        data = knowledge_graph(p)
        want = marius(p, data, epochs=1).report["weights_digest"]
        assert marius(p, data, *on(store="cpu:1"), device=SECOND, epochs=1).report["weights_digest"] == want
        assert marius(p, data, epochs=1, grouped=True).report["weights_digest"] == want
        want = leg(p, data, 6, 3, epochs=1).report["weights_digest"]
        assert leg(p, data, 6, 3, epochs=1, grouped=True).report["weights_digest"] == want
        assert leg(p, data, 6, 3, epochs=1, more={"prefetch": "false"}).report["weights_digest"] == want
        assert leg(p, data, 6, 3, *SLOW_DISK, epochs=1, more={"ahead": 2}).report["weights_digest"] == want


@test
def legend_has_the_losses_of_a_cpu():
    with Place() as p:
        data = knowledge_graph(p)
        for partitions, buffer, more in (
                (6, 3, {}), (4, 2, {"model": "rotate", "optimizer": "adam", "rate": 0.01, "dropout": 0.3, "checkpoint_swaps": 2}),
                (5, 3, {"model": "transe-l2", "inverse": "false", "optimizer": "adagrad-row", "loss": "margin"}),
                (7, 3, {"model": "dot", "optimizer": "sgd", "negatives_from": "all", "l2": 0.001})):
            order = "legend" if buffer == 3 else "beta"
            want = leg(p, data, partitions, buffer, order=order, device="cpu:0", more=more).report
            r = leg(p, data, partitions, buffer, order=order, more=more).report
            close(r, want, (partitions, more))
            assert all(r["exchange"][key] == want["exchange"][key] for key in ("swaps", "read_bytes", "written_bytes")), r["exchange"]
            assert r["stages"]["legend"]["device"] == "cuda:0" and r["stages"]["disk"]["device"] == "cpu:0", r["stages"]


@test
def both_pipelines_give_the_same_bits():
    with Place() as p:
        data = knowledge_graph(p)
        want = p.run(MARIUS, *partitioned(6, 3, "legend", 1, **{"params.chunks": 2}), "--epochs", 2, *on(embedder="cuda:0"), data=data).report
        r = leg(p, data, 6, 3).report
        assert r["weights_digest"] == want["weights_digest"], (r, want)
        assert [e["loss"] for e in r["epochs"]] == [e["loss"] for e in want["epochs"]]


@test
def runs_go_on_elsewhere():
    with Place() as p:
        data = knowledge_graph(p)
        for train in (marius, lambda *a, **k: leg(*a[:2], 5, 3, *a[2:], **k)):
            want = train(p, data).report
            loss = want["epochs"][1]["loss"]
            for first, second in (("cuda:0", "cuda:0"), ("cuda:0", "cpu:0"), ("cpu:0", "cuda:0")):
                begun = train(p, data, epochs=1, device=first)
                r = train(p, data, "--resume", begun.run_dir, device=second).report
                assert abs(r["epochs"][0]["loss"] - loss) <= 1e-5 * loss, (first, second, r, want)
                assert first != second or r["weights_digest"] == want["weights_digest"], (r, want)


def figures(report, part):
    return [report[f"{part}_{name}"] for name in ("mrr", "hits_1", "hits_3", "hits_10", "mean_rank")]


def exported(p, run_dir):
    """The embeddings of a run in the order of the ids, and its relations."""
    out = p.path("exported" + os.path.basename(run_dir))
    command("export", run_dir, out, "--quiet")
    return {name: np.load(os.path.join(out, f"{name}.npy")) for name in ("vertices", "relations")}


@test
def ranks_equal_those_of_brute_force():
    with Place() as p:
        data = knowledge_graph(p)
        for partitions, buffer, order in ((1, 1, ""), (8, 3, "legend"), (32, 4, "beta")):
            more, tie = ["--set", "params.tie=pessimistic"], "pessimistic"
            r = marius(p, data, *more, epochs=1) if partitions == 1 else leg(p, data, partitions, buffer, *more, order=order, epochs=1)
            got = exported(p, r.run_dir)
            for part in ("val", "test"):
                want = brute_force(data, got, part, tie)
                assert np.allclose(figures(r.report, part), want, rtol=1e-12), (partitions, part, r.report, want)


@test
def a_gpu_that_is_too_small_is_told():
    only_virtual("no GPU is so small")
    with Place() as p:
        data = knowledge_graph(p)
        for run, what in ((lambda: marius(p, data, code=1), "embedder"), (lambda: leg(p, data, 4, 3, code=1), "legend")):
            os.environ["PENSTOCK_HOST_GPU_BYTES"] = "36000000"
            try:
                err = run().err
            finally:
                del os.environ["PENSTOCK_HOST_GPU_BYTES"]
            assert f"{what}: " in err and "cuda:0" in err and "bytes of device memory" in err, err


@test
def a_kernel_that_never_ends_is_told():
    only_virtual("a GPU's kernels end")
    with Place() as p:
        data = knowledge_graph(p)
        for where, run, what in (("query.cu", marius, "embedder"), ("negatives.cu", lambda *a, **k: leg(*a, 4, 3, **k), "legend")):
            os.environ.update(PENSTOCK_VIRTUAL_HANG=where, PENSTOCK_GPU_WAIT_S="0.7")
            try:
                r = run(p, data, code=1)
            finally:
                del os.environ["PENSTOCK_VIRTUAL_HANG"], os.environ["PENSTOCK_GPU_WAIT_S"]
            assert f"error: {what}: " in r.err and "the GPU work was not finished after 0.7 s" in r.err, r.err
            no_leftovers()


@test
def training_that_diverges_is_told():
    with Place() as p:
        data = knowledge_graph(p)
        more = {"rate": 100, "optimizer": "sgd", "scale": 1000}
        for r in (marius(p, data, more={f"params.{k}": v for k, v in more.items()}, code=1), leg(p, data, 4, 3, more=more, code=1)):
            assert "so training has diverged; lower `rate`" in r.err, r.err


@test
def kills_leave_nothing():
    if GROUPED:
        raise Skip("these are processes")
    with Place() as p:
        data = knowledge_graph(p)
        for victim in ("edges", "store", "embedder", "memory-cpu:0", "supervisor"):
            run = p.start(MARIUS, *settings(3), "--epochs", 1_000_000, *on(embedder="cuda:0"), data=data, grouped=False)
            kill_ends(run, victim, 0.3)
        for victim in ("legend", "disk", "memory-cpu:0", "supervisor"):
            run = p.start(LEGEND, *legend(6, 3, "legend"), "--epochs", 1_000_000, *on(legend=SECOND), data=data, grouped=False)
            kill_ends(run, victim, 0.3)


@test
def a_killed_run_resumes_to_the_same_bits():
    if GROUPED:
        raise Skip("these are processes")
    with Place() as p:
        data = knowledge_graph(p)
        more = {"checkpoint_swaps": 2}
        want = leg(p, data, 6, 3, epochs=3, more=more).report["weights_digest"]
        for pause in (0.05, 0.2, 0.5):
            run = p.start(LEGEND, *legend(6, 3, "legend", chunks=2, **more), "--epochs", 3, *on(legend="cuda:0"),
                          "--set", "stages.disk.params.fault_delay_us=10000", data=data, grouped=False)
            kill_ends(run, "legend", pause)
            there = glob.glob(os.path.join(run.run_dir, "checkpoints", "*"))
            again = ("--resume", run.run_dir) if there else ()
            assert leg(p, data, 6, 3, *again, epochs=3, more=more).report["weights_digest"] == want, (pause, there)


if __name__ == "__main__":
    main()
