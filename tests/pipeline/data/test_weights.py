"""Weights and times of edges: imported from arrays and from text, with everything that an import does to edges; what is refused;
and the samplers that use them."""
import numpy as np
from harness import *
from importing import *

VERTICES, COUNT = 60, 900  # many duplicates and loops


def edges_of(seed):
    rng = np.random.default_rng(seed)
    weight = rng.random(COUNT).astype(np.float32)
    weight[::50] = 0
    return rng.integers(0, VERTICES, (2, COUNT)), weight


def expected(edges, weight, args):
    """(target, source) -> the weights of its edges, ascending."""
    out = {}
    for s, t, w in zip(*edges.tolist(), weight.tolist()):
        if "--transpose" in args:
            s, t = t, s
        if s == t and "--self-loops" in args:
            continue
        for a, b in {(t, s), (s, t)} if "--symmetrize" in args else {(t, s)}:
            out.setdefault((a, b), []).append(w)
    if "add" in args:
        out.update({(v, v): [0.75] for v in range(VERTICES)})
    return {k: [np.float32(sum(sorted(v)))] if "--dedupe" in args else sorted(v) for k, v in out.items()}


def found(s, names=None):
    out, at = {}, s.array("indptr")
    target = np.repeat(np.arange(len(at) - 1), np.diff(at))
    assert s.array("edge_weights").dtype == np.float32
    for t, u, w in zip(target.tolist(), s.array("indices").tolist(), s.array("edge_weights").tolist()):
        out.setdefault((t, u) if names is None else (names[t], names[u]), []).append(w)
    return out


def csv(edges, weight, header=""):
    return header + "".join(f"{w!r},{a},{b}\n" for a, b, w in zip(*edges.tolist(), weight.tolist()))


@test
def weights_follow_their_edges():
    edges, weight = edges_of(1)
    with Scratch() as s:
        s.arrays("n", edges=edges, edge_weight=weight)
        text = s.put("e.csv", csv(edges, weight, "w,from,to\n"))
        for args in ((), ("--dedupe",), ("--symmetrize", "--dedupe"), ("--transpose", "--self-loops", "remove"),
                     ("--self-loops", "add", "--loop-weight", 0.75), ("--self-loops", "add", "--loop-weight", 0.75, "--dedupe", "--symmetrize")):
            s.get("npy", s.path("n"), *args)
            assert found(s) == expected(edges, weight, args), args
            sums = s.sums()
            s.get("csv", text, "--weight-column", "w", "--columns", "from,to", *args)
            assert s.sums() == sums, args
        assert s.manifest()["provenance"]["sources"] == {}
        s.get("tsv", s.put("e.tsv", "".join(f'{a}\t{b}\t"{w!r}"\n' for a, b, w in zip(*edges.tolist(), weight.tolist()))), "--weight-column", 2, "--dedupe")
        assert found(s) == expected(edges, weight, ("--dedupe",))
        for change in weight[::-1].astype(np.float64), (weight * 100).astype(np.int32):  # other types; order is nothing to a sum
            s.arrays("n", edges=edges[:, ::-1] if change.dtype == np.float64 else edges, edge_weight=change)
            s.get("npy", s.path("n"), "--dedupe")
            assert found(s) == expected(edges, weight if change.dtype == np.float64 else change, ("--dedupe",))
        s.get("npy", s.path("n"), "--edge-weights", "none")
        assert "edge_weights" not in s.manifest()["arrays"]


@test
def weights_of_names_and_on_disk():
    """Names that do not fit in memory put their edges aside, and duplicates that are more than a bucket are summed."""
    rng = np.random.default_rng(3)
    ids = np.where(rng.random((2, 120_000)) < 0.5, rng.integers(0, 8, (2, 120_000)), rng.integers(0, 10**6, (2, 120_000)))
    weight = rng.random(120_000).astype(np.float32)
    with Scratch() as s:
        s.put("e", "".join(f"http://name/{a},{w!r},http://name/{b}\n" for a, b, w in zip(*ids.tolist(), weight.tolist())))
        sums = set()
        for memory, threads in ("64MiB", 2), ("12MiB", 3):
            s.get("csv", s.path("e"), "--ids", "strings", "--header", "no", "--columns", "0,2", "--weight-column", 1, "--dedupe", "--memory", memory, "--threads", threads)
            sums.add(tuple(sorted(s.sums().items())))
        assert len(sums) == 1
        out = found(s, [int(n[12:]) for n in s.names()])
        totals = {}
        for a, b, w in sorted(zip(*ids.tolist(), weight.tolist()), key=lambda e: e[2]):
            totals[b, a] = totals.get((b, a), 0) + w
        assert out == {k: [np.float32(w)] for k, w in totals.items()}
        s.arrays("n", edges=np.tile(ids, 3) % 1000, edge_weights=np.tile(weight, 3))
        sums = set()
        for memory, threads in ("64MiB", 2), ("2MiB", 3):
            r = s.get("npy", s.path("n"), "--dedupe", "--memory", memory, "--threads", threads)
            assert ("parts on disk" in r.stdout) == (memory == "2MiB"), r.stdout
            sums.add(tuple(sorted(s.sums().items())))
        assert len(sums) == 1


@test
def what_is_unclear_is_refused():
    edges, weight = edges_of(2)
    with Scratch() as s:
        def no(why, *args, source="n", kind="npy"):
            r = s.get(kind, s.path(source), *args, code=None)
            assert r.returncode and why in r.stderr, r.stderr
        s.arrays("n", edges=edges, edge_weights=weight)
        no("nothing says what the loops weigh: add --loop-weight W", "--self-loops", "add")
        no("--loop-weight has no effect without --self-loops add", "--loop-weight", 1)
        no("--loop-weight has no effect without weights of edges", "--loop-weight", 1, "--self-loops", "add", "--edge-weights", "none")
        no("--loop-weight: expected a number of 0 or more, found '-1'", "--self-loops", "add", "--loop-weight=-1")
        no("the format npy does not take weights of edges", "--edge-weights", "none", "--weight-column", 2)
        no("expected a weight for each of 900 edges, found 899", "--edge-weights", s.arrays("o", w=weight[1:]) + "/w.npy")
        for value in -0.5, np.nan, np.inf:
            weight[7] = value
            s.arrays("n", edge_weights=weight)
            no(f"edge_weights.npy: weight of edge 7: expected a number from 0 to 3.40282e+38, found {value}")
        s.arrays("r", edges=np.zeros((5, 3), np.int64), edge_weights=np.ones(5, np.float32))
        no("have relations, so they cannot have weights", "--edge-shape", "Ex3", source="r")
        s.arrays("big", edges=np.zeros((2, 2), np.int64), edge_weights=np.full(2, 3e38, np.float32))
        no("the weights of edge (0, 0) and its duplicates have the sum 6e+38", "--edge-shape", "2xE", "--dedupe", source="big")
        for line, why in (("0,1", "at least 3 columns"), ("0,1,-2", "a weight, a number of 0 or more that fits float32, found '-2'"),
                          ("0,1,1e39", "a weight,"), ("0,1,2x", "the end of a weight, found 'x'")):
            s.put("e", "0,1,2\n" + line + "\n")
            no(f"e:2: byte ", "--weight-column", 2, source="e", kind="csv")
            no(why, "--weight-column", 2, source="e", kind="csv")
        no("column 1 is already that of the target", "--weight-column", 1, source="e", kind="csv")
        no("weights in an array need edges in an array: use --weight-column", "--edge-weights", s.path("o/w.npy"), source="e", kind="csv")


@test
def weighted_trains_on_them():
    """An import of what was exported is the same dataset, and the algorithm `weighted` samples it."""
    with Scratch() as s:
        command("gen", "community", s.path("d"), "--vertices", 600, "--seed", 4, "--edge-weights", "--quiet")
        command("export", s.path("d"), s.path("x"), "--quiet")
        s.get("npy", s.path("x"))
        with open(os.path.join(s.path("d"), "dataset.json")) as f:
            assert s.sums() == {k: v["xxh3"] for k, v in json.load(f)["arrays"].items()}
        command("run", os.path.join(ROOT, "pipelines", "hyperion.json"), "--dataset", s.path("out"), "--epochs", "1", "--set",
                "params.algorithm=weighted", "--report", s.path("report.json"), "--run-dir", s.path("run"))
        with open(s.path("report.json")) as f:
            assert json.load(f)["epochs"][0]["loss"] < 3


@test
def times_follow_their_edges():
    edges, _ = edges_of(5)
    rng = np.random.default_rng(6)
    time, own = rng.integers(0, 40, COUNT), rng.integers(0, 50, VERTICES).astype(np.int32)
    with Scratch() as s:
        s.arrays("n", edges=edges, edge_times=time, vertex_times=own)
        for args in ((), ("--dedupe",), ("--symmetrize",), ("--transpose", "--self-loops", "remove")):
            s.get("npy", s.path("n"), *args)
            want = []
            for a, b, t in zip(*edges.tolist(), time.tolist()):
                if a == b and "--self-loops" in args:
                    continue
                pair = (b, a) if "--transpose" not in args else (a, b)
                want += [(*p, t) for p in ({pair, pair[::-1]} if "--symmetrize" in args else {pair})]
            want = sorted(set(want) if "--dedupe" in args else want)
            at = s.array("indptr")
            target = np.repeat(np.arange(len(at) - 1), np.diff(at))
            assert sorted(zip(target.tolist(), s.array("indices").tolist(), s.array("edge_times").tolist())) == want, args
            assert np.array_equal(s.array("vertex_times"), own)
            assert s.manifest()["penstock_dataset"] == 9
            command("verify", s.path("out"))
        sums = s.sums()
        command("export", s.path("out"), s.path("x"), "--quiet")
        s.get("npy", s.path("x"))
        assert s.sums() == sums
        r = command("export", s.path("out"), s.path("y"), "--format", "csv", "--quiet", code=None)
        assert r.returncode and "has times, which csv cannot hold" in r.stderr, r.stderr
        for change, why in (({"edge_times": time - 1}, "time of edge"), ({"edge_times": time + 2 ** 31}, "expected 0 to 2147483647"),
                            ({"edge_times": time[1:]}, "expected a time for each of 900 edges, found 899"),
                            ({"edge_weights": time.astype(np.float32)}, "the edges have weights, so they cannot have times"),
                            ({"vertex_times": own - 60}, "expected a time of at least 0"), ({"vertex_times": own[1:]}, "one for each vertex"),
                            ({"vertex_times": own.astype(np.int64)}, "times of int32")):
            s.arrays("b", **{"edges": edges, "edge_times": time, "vertex_times": own, **change})
            r = s.get("npy", s.path("b"), code=None)
            assert r.returncode and why in r.stderr, (why, r.stderr)
            shutil.rmtree(s.path("b"))
        r = s.get("npy", s.path("n"), "--self-loops", "add", code=None)
        assert r.returncode and "nothing says when the loops came to be" in r.stderr, r.stderr


@test
def temporal_trains_on_them():
    """However batches are arranged, also cut, and on a virtual GPU; without times it is refused."""
    os.environ["PENSTOCK_CUDA"] = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
    try:
        with Place() as p:
            command("gen", "community", p.path("d"), "--vertices", 1500, "--seed", 4, "--times", "--quiet")
            command("verify", p.path("d"))
            pipeline = os.path.join(ROOT, "pipelines", "hyperion.json")
            run = lambda *more: p.run(pipeline, "--epochs", 2, "--set", "params.algorithm=temporal", "--set", "params.batch=128", *more,
                                      data=p.path("d")).report
            base = run()
            for more in (("--set", "stages.sampler.instances=2"), ("--set", "stages.planner.params.cpu_cache=0")):
                assert run(*more)["weights_digest"] == base["weights_digest"], more
            cut = run("--set", "stages.sampler.params.margin=0.4")
            assert cut["sampler"]["micro_batches"] > cut["sampler"]["batches"], cut["sampler"]
            assert abs(cut["epochs"][-1]["loss"] - base["epochs"][-1]["loss"]) < 1e-4 * base["epochs"][-1]["loss"]
            gpu = run("--set", 'stages.sampler.place={"device": "cuda:0"}')
            assert gpu["digest"] == base["digest"] and gpu["weights_digest"] == base["weights_digest"]
            r = p.run(pipeline, "--set", "params.algorithm=temporal", code=None)
            assert r.code != 0 and "lacks times" in r.err, r.err
    finally:
        os.environ.pop("PENSTOCK_CUDA")


if __name__ == "__main__":
    main()
