"""Graphs with types, end to end: R-GCN and R-SAGE against models that merge the relations, against NumPy, however the
pipeline is arranged, and on the layouts of IGB-het, MAG240M and ogbn-mag."""
import gzip

import numpy as np
from harness import *
from inferring import infer, outputs

TYPED = os.path.join(ROOT, "pipelines", "typed.json")
MERGED = ("--set", "params.algorithm=uniform", "--set", "params.fanout=[20,20]")
NO_CACHE = ("--set", "stages.planner.params.cpu_cache=0")


def model(name):
    return "--set", f"stages.trainer.params.model={name}"


RGAT = ("--set", "stages.trainer.params.model=rgat", "--set", "stages.trainer.params.heads=4", "--set", "stages.trainer.params.hidden=16")


def generated(p, *args, vertices=3000):
    command("gen", "typed", p.path("typed"), "--vertices", vertices, "--quiet", *args)
    return p.path("typed")


def tensors(file):
    """The tensors of a safetensors file."""
    with open(file, "rb") as f:
        raw = f.read()
    n = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8:8 + n])
    return {k: np.frombuffer(raw, "<f4", offset=8 + n + v["data_offsets"][0], count=int(np.prod(v["shape"]))).reshape(v["shape"])
            for k, v in head.items() if k != "__metadata__"}


@test
def models_of_relations_beat_merged_relations():
    if SAN:
        raise Skip("the plain build compares accuracies")
    with Place() as p:
        data = generated(p, "--author-features", 64)  # as wide as papers
        share = {name: p.run(TYPED, *more, "--epochs", 8, data=data).report["test_accuracy"]
                 for name, more in {"rgcn": (), "rsage": model("rsage"), "rgat": RGAT, "merged": (*model("graphsage"), *MERGED),
                                    "merged-typed": model("graphsage")}.items()}
        print("#", share)
        assert min(share["rgcn"], share["rsage"], share["rgat"]) > max(share["merged"], share["merged-typed"]) + 0.05, share
        assert share["rgcn"] > 0.9, share


@test
def the_arrangement_does_not_change_the_weights():
    with Place() as p:
        data = generated(p, vertices=1200)
        base = p.run(TYPED, "--epochs", 2, data=data).report
        for more in ([*NO_CACHE, "--set", "stages.sampler.instances=2"], ["--set", "stages.planner.params.cpu_cache=50KiB"],
                     ["--set", "stages.trainer.params.eval_memory=200KiB", "--set", "stages.trainer.params.threads=1"],
                     [*NO_CACHE, "--set", "stages.disk.params.backend=emulated"], [] if GROUPED else ["--group", "all"]):
            r = p.run(TYPED, "--epochs", 2, *more, data=data).report
            assert r["weights_digest"] == base["weights_digest"] and r["test_accuracy"] == base["test_accuracy"], more
        stopped = p.run(TYPED, "--epochs", 1, data=data)
        r = p.run(TYPED, "--epochs", 2, "--resume", stopped.run_dir, data=data).report
        assert r["weights_digest"] == base["weights_digest"]


@test
def stages_on_a_gpu_agree_with_the_cpu():
    os.environ["PENSTOCK_CUDA"] = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
    try:
        with Place() as p:
            data = generated(p, vertices=300)
            small = ("--epochs", 1, "--set", "params.batch=64", "--set", "params.fanout=[4,3]", "--set", "stages.trainer.params.hidden=8")
            names = edge_types(data)
            by_type = json.dumps({names[0]: [4, 3], names[1]: [0, 2], "*": [3, 3]})
            for more in ((), (*RGAT, "--set", "stages.trainer.params.hidden=4"), model("rsage"), ("--set", "params.fanout=" + by_type), ("--set", "stages.planner.params.gpu_cache=20KiB"),
                         ("--set", "params.replace=true", "--set", "params.fanout=[3,3]"), (*model("graphsage"), "--set", "params.algorithm=uniform")):
                alone = [("--set", f'stages.{stage}.place={{"device": "cuda:0"}}') for stage in ("trainer", "sampler") if not more]
                cpu, *gpus = (p.run(TYPED, *small, *where, *more, data=data).report for where in ((), ("--device", "cuda:0"), *alone))
                for gpu in gpus:
                    assert gpu["digest"] == cpu["digest"], more
                    for a, b in zip(cpu["epochs"], gpu["epochs"]):
                        assert abs(a["loss"] - b["loss"]) < 1e-4 * a["loss"], (more, a, b)
    finally:
        os.environ.pop("PENSTOCK_CUDA")


@test
def edges_of_relations_are_drawn_by_weight():
    """On a CPU and a virtual GPU, and however batches are cut; other options give other samples."""
    os.environ["PENSTOCK_CUDA"] = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
    try:
        with Place() as p:
            data = generated(p, "--edge-weights", vertices=300)
            small = ("--epochs", 1, "--set", "params.batch=64", "--set", "params.fanout=[4,3]", "--set", "stages.trainer.params.hidden=8")
            run = lambda options, *more, **code: p.run(TYPED, *small, "--set", f'params.options="{options}"', *more, data=data, **code)
            base = run("by_weight=1").report
            for more in (("--set", "stages.sampler.instances=2"), ("--set", 'stages.sampler.place={"device": "cuda:0"}')):
                r = run("by_weight=1", *more).report
                assert (r["digest"], r["weights_digest"]) == (base["digest"], base["weights_digest"]), more
            gpu = run("by_weight=1", "--device", "cuda:0").report
            assert gpu["digest"] == base["digest"] and abs(gpu["epochs"][0]["loss"] - base["epochs"][0]["loss"]) < 1e-4 * base["epochs"][0]["loss"]
            others = [run(options).report for options in ("by_weight=1, correct=0", "")]
            assert len({base["digest"], *(r["digest"] for r in others)}) == 3
            assert len({base["weights_digest"], *(r["weights_digest"] for r in others)}) == 3
            assert "set replace to false" in run("by_weight=1", "--set", "params.replace=true", code=1).err
    finally:
        os.environ.pop("PENSTOCK_CUDA")


@test
def a_gpu_reads_rows_that_fill_no_block():
    os.environ["PENSTOCK_CUDA"] = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
    try:
        with Place() as p:
            data = generated(p, vertices=600)
            emulated = [*NO_CACHE, "--epochs", 1, "--set", "stages.disk.params.backend=emulated"]
            cpu, gpu = (p.run(TYPED, *emulated, "--set", "stages.disk.place=" + json.dumps({"device": device}), data=data).report
                        for device in ("cpu:0", "cuda:0"))
            assert gpu["weights_digest"] == cpu["weights_digest"]
            assert gpu["io"]["gpu_commands"] > 0 and gpu["io"]["handed_to_cpu"] == 0, gpu["io"]
    finally:
        os.environ.pop("PENSTOCK_CUDA")


@test
def rows_are_read_in_the_width_of_their_type():
    with Place() as p:
        data = generated(p, vertices=1200)
        r = p.run(TYPED, "--epochs", 1, *NO_CACHE, data=data).report
        assert r["io"]["rows"] > 0
        mean = r["io"]["row_bytes_wanted"] / r["io"]["rows"]
        assert 32 * 4 < mean < 64 * 4, mean  # authors and papers; venues are not read
        drives = ("backend=emulated", "preset=optane", "dilate=150", "accumulate=auto", "accumulate_probe=true")
        r = p.run(TYPED, "--epochs", 1, *NO_CACHE, *(word for value in drives for word in ("--set", "stages.disk.params." + value)), data=data).report
        assert r["io"]["burst"]["from"] == "probe" and r["io"]["burst"]["iop_peak"] > 0, r["io"]  # it reads rows of papers
        r = p.run(TYPED, "--epochs", 1, "--set", "params.algorithm=uniform", data=data, code=None)
        assert r.code != 0 and "set the parameter algorithm of the planner and the sampler to typed" in r.err


def edge_types(data):
    with open(os.path.join(data, "dataset.json")) as f:
        return [e["name"] for e in json.load(f)["edge_types"]]


@test
def fanouts_of_edge_types_have_names():
    """As lists by name, in any order, or as an object for each hop; a name that only one type has is enough."""
    with Place() as p:
        data = generated(p, vertices=1200)
        names = edge_types(data)
        numbers = {name: 3 + k for k, name in enumerate(names)}
        by_option = p.run(TYPED, "--epochs", 1, "--set", "params.options=fanouts=" + ":".join(map(str, numbers.values())), data=data).report
        lists = {name: [n, n] for name, n in reversed(numbers.items())}
        hops = [dict(numbers)] * 2
        short = {(name.split(":")[1] if sum(name.split(":")[1] == other.split(":")[1] for other in names) == 1 else name): n
                 for name, n in lists.items()}
        others = {names[0]: lists[names[0]], "*": [4, 4]}
        assert short.keys() != lists.keys()
        for fanout in (lists, hops, short):
            r = p.run(TYPED, "--epochs", 1, "--set", "params.fanout=" + json.dumps(fanout), data=data)
            assert r.report["digest"] == by_option["digest"] and r.report["weights_digest"] == by_option["weights_digest"], fanout
        overlay = p.write({"params": {"fanout": {**others, names[1]: [4, 4]}}}, "overlay.json")
        a = p.run(TYPED, "--epochs", 1, "--with", overlay, data=data).report
        b = p.run(TYPED, "--epochs", 1, "--set", "params.fanout=" + json.dumps(others), data=data)
        assert a["digest"] == b.report["digest"] != by_option["digest"]
        plan = os.path.join(b.run_dir, "plan", "plan.json")
        reuse = "--set", f"stages.planner.params.reuse={plan}"
        r = p.run(TYPED, "--epochs", 1, "--set", "params.fanout=" + json.dumps({**others, names[0]: [2, 3]}), *reuse, data=data, code=None)
        assert r.code != 0 and "the checksum of the fanouts of edge types" in r.err, r.err
        r = p.run(TYPED, "--epochs", 2, "--resume", b.run_dir, "--set", "params.fanout=" + json.dumps(others), data=data).report
        assert r["status"] == "ok"


@test
def names_of_edge_types_are_checked():
    with Place() as p:
        data = generated(p, vertices=400)
        names = edge_types(data)
        known = ", ".join(names)
        for fanout, path, wanted in (
                ({"wrote": [5, 5], "*": [1, 1]}, "params.fanout.wrote", f'unknown edge type "wrote"; the edge types of the dataset {data} are: {known}'),
                ({names[0]: [5, 5]}, "params.fanout", "no numbers are given for these edge types of the dataset " + data + ": " + ", ".join(names[1:])),
                ({names[0]: [5, 5], names[0].split(":")[1]: [5, 5], "*": [1, 1]}, "params.fanout", "the same edge type"),
                ({names[0]: [5, 5], "*": [1]}, "params.fanout", "the lists must be equally long"),
                ({"*": [5, 5, 5]}, "stages.trainer", "a list of 3 elements: the number must be the length of the list")):
            for checked in (command("check", TYPED, "--dataset", data, "--set", "params.fanout=" + json.dumps(fanout), code=2),):
                told = [line for line in checked.stderr.splitlines() if wanted in line]
                assert len(told) == 1 and path in told[0], (fanout, checked.stderr)
        for named in '{"*": [5, 5]}', '[{"*": 5}, {"*": 5}]':
            r = command("check", TYPED, "--set", "params.algorithm=uniform", "--set", "params.fanout=" + named, code=2)
            assert "params.fanout" in r.stderr and "fanout can have numbers by name only if algorithm=typed" in r.stderr, r.stderr


def graph_of(data):
    """Features and edges of a dataset with types: x of each type, the types of each relation's ends, the first vertex of each
    type; and of each edge its target, source and relation."""
    with open(os.path.join(data, "dataset.json")) as f:
        m = json.load(f)
    load = lambda name: np.load(os.path.join(data, name))
    first = np.cumsum([0] + [v["vertices"] for v in m["vertex_types"]])
    types = [slice(first[k], first[k + 1]) for k in range(len(first) - 1)]
    dims = [v["feature_dim"] for v in m["vertex_types"]]
    x = [load(f"features_{k}.npy")[:, :d].astype(float) if d else np.zeros((first[k + 1] - first[k], 0)) for k, d in enumerate(dims)]
    names = {v["name"]: k for k, v in enumerate(m["vertex_types"])}
    ends = [(names[e["source"]], names[e["target"]]) for e in m["edge_types"]]
    target = np.repeat(np.arange(first[-1]), np.diff(load("indptr.npy")))
    source, relation = load("indices.npy").astype(int), load("relations.npy")
    return x, ends, first, target, source, relation


def full_pass(data, t, each):
    """All layers over the whole graph in float64. With bases, the weights of the relations are sums of these."""
    part = lambda l, name: next((v.astype(float) for k, v in t.items() if k == f"layer{l}.{name}"), None)
    x, ends, first, target, source, relation = graph_of(data)
    for l in range(2):
        w, b, bases, shares = part(l, "weight_terms"), part(l, "bias"), part(l, "weight_bases"), part(l, "coefficients")
        y = [np.zeros((len(rows), w.shape[1])) + b.reshape(-1) for rows in x]
        own = [t for _, t in ends] if each else range(len(x))
        for k in own:
            y[k] += x[k] @ w[:x[k].shape[1]]
            w = w[x[k].shape[1]:]
        for r, (s, d) in enumerate(ends):
            if bases is None:
                product, w = x[s] @ w[:x[s].shape[1]], w[x[s].shape[1]:]
            else:
                product = x[s] @ np.tensordot(shares[r], bases.reshape(shares.shape[1], -1, w.shape[1]), 1)[:x[s].shape[1]]
            edges = relation == r
            total = np.zeros_like(y[d])
            np.add.at(total, target[edges] - first[d], product[source[edges] - first[s]])
            y[d] += total / np.maximum(1, np.bincount(target[edges] - first[d], minlength=len(total)))[:, None]
        x = [np.maximum(0, rows) for rows in y] if l == 0 else y
    return np.concatenate(x)


def full_attention(data, t):
    """The same for R-GAT: attention within each relation, head by head."""
    part = lambda l, name: t[f"layer{l}.{name}"].astype(float)
    x, ends, first, target, source, relation = graph_of(data)
    for l in range(2):
        own, w, q, a, b = (part(l, name) for name in ("weight_terms", "weight_relations", "attention_left", "attention_right", "bias"))
        heads, dim = q.shape[1], a.shape[1]
        y = [np.zeros((len(rows), own.shape[1])) + b.reshape(-1) for rows in x]
        for k in range(len(x)):
            y[k] += x[k] @ own[:x[k].shape[1]]
            own = own[x[k].shape[1]:]
        for r, (s, d) in enumerate(ends):
            z = (x[s] @ w[:x[s].shape[1]]).reshape(-1, heads, dim)
            left, right = x[d] @ q[:x[d].shape[1]], (z * a[r * heads:(r + 1) * heads]).sum(2)
            w, q, edges = w[x[s].shape[1]:], q[x[d].shape[1]:], relation == r
            u, v = source[edges] - first[s], target[edges] - first[d]
            score = left[v] + right[u]
            power = np.exp(np.where(score > 0, score, 0.2 * score))
            total, mixed = np.zeros((len(x[d]), heads)), np.zeros((len(x[d]), heads, dim))
            np.add.at(total, v, power)
            np.add.at(mixed, v, (power / total[v])[:, :, None] * z[u])
            y[d] += mixed.mean(1) if l == 1 else mixed.reshape(len(mixed), -1)
        x = [np.where(rows > 0, rows, np.expm1(rows)) for rows in y] if l == 0 else y
    return np.concatenate(x)


@test
def evaluation_is_what_numpy_computes():
    with Place() as p:
        data = generated(p, vertices=1200)
        for name, bases in (("rgcn", 0), ("rsage", 0), ("rgcn", 2), ("rgat", 0)):
            run = p.run(TYPED, *(RGAT if name == "rgat" else model(name)), "--set", f"stages.trainer.params.bases={bases}", "--epochs", 1, data=data)
            infer(p, run.run_dir, "--logits")
            one = outputs(p)
            infer(p, run.run_dir, "--logits", "--memory", "400KiB", "--threads", 1, out="small.npy")
            small = outputs(p, "small")
            assert all((one[k] == small[k]).all() for k in one)
            newest = sorted(glob.glob(os.path.join(run.run_dir, "checkpoints", "*.safetensors")))[-1]
            saved = tensors(newest)
            if name == "rgat":
                want = full_attention(data, saved)
            else:
                want = full_pass(data, saved, name == "rsage")
            assert np.abs(one[".logits"] - want).max() < 1e-4 * np.abs(want).max(), (name, bases)
            counted = sum(v.size for k, v in saved.items() if k.startswith("layer"))
            assert run.report["parameters"] == counted, (run.report["parameters"], counted)


@test
def bases_resume_and_are_refused_where_they_have_no_use():
    with Place() as p:
        data = generated(p, vertices=1200)
        bases = lambda n: ("--set", f"stages.trainer.params.bases={n}")
        whole = p.run(TYPED, "--epochs", 2, *bases(2), data=data).report
        stopped = p.run(TYPED, "--epochs", 1, *bases(2), data=data)
        r = p.run(TYPED, "--epochs", 2, *bases(2), "--resume", stopped.run_dir, data=data).report
        assert r["weights_digest"] == whole["weights_digest"]
        r = p.run(TYPED, "--epochs", 2, *bases(3), "--resume", stopped.run_dir, data=data, code=None)
        assert r.code != 0 and "bases" in r.err, r.err
        r = p.run(TYPED, "--epochs", 1, *bases(64), data=data, code=None)
        assert r.code != 0 and "more bases than relations have no use" in r.err, r.err
        r = p.run(TYPED, "--epochs", 1, *model("rsage"), *bases(2), data=data, code=None)
        assert r.code != 0 and "bases has an effect only if model=rgcn" in r.err, r.err


def put(path, array):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    np.save(path, array)


def layout(p, kind):
    """A small graph of papers and authors in the layout of IGB-het (authors are narrower) or MAG240M (authors have no
    features). A paper's neighbours mostly share its label."""
    rng = np.random.default_rng(1)
    igb = kind == "igb"
    at, sep, papers = p.path(kind + "/processed"), "__" if igb else "___", 800
    label = rng.integers(0, 4, papers)
    near = [rng.choice(np.flatnonzero(label == k), 4) for k in label]
    cites = np.array([(u, v) for v in range(papers) for u in near[v]])
    writes = np.array([(u // 2, v) for v in range(papers) for u in near[v][:2]])
    for name, edges in {("paper", "cites", "paper"): cites, ("author", "writes", "paper"): writes, ("paper", "rev", "author"): writes[:, ::-1]}.items():
        put(f"{at}/{sep.join(name)}/edge_index.npy", edges if igb else np.ascontiguousarray(edges.T))
    put(f"{at}/paper/node_feat.npy", (rng.normal(size=(papers, 16)) + np.eye(16)[label]).astype("f4" if igb else "f2"))
    if igb:
        put(f"{at}/author/node_feat.npy", rng.normal(size=(papers // 2, 8)).astype("f4"))
    put(f"{at}/paper/node_label{'_19' if igb else ''}.npy", label.astype("f4"))
    if not igb:
        order = rng.permutation(papers)
        for name, ids in {"train": order[:480], "valid": order[480:640], "test": order[640:]}.items():
            put(p.path(f"mag/{name}_idx.npy"), ids)
    return p.path(kind)


def ogb_layout(p, **changed):
    """The same as text in OGB's layout for graphs of several types (ogbn-mag); authors have no features here, as in ogbn-mag."""
    igb, at = layout(p, "igb"), p.path("ogb")
    read = lambda name: np.load(os.path.join(igb, "processed", name + ".npy"))
    row = lambda values: ",".join(map(str, values)) + "\n"
    lines = lambda rows: "".join(row(np.atleast_1d(r).tolist()) for r in rows)
    relations = [("paper", "cites", "paper"), ("author", "writes", "paper"), ("paper", "rev", "author")]
    order = np.random.default_rng(2).permutation(800)
    files = {"raw/num-node-dict": row(["author", "paper"]) + row([400, 800]), "raw/triplet-type-list": "".join(map(row, relations)),
             "raw/nodetype-has-label": row(["author", "paper"]) + row([False, True]), "split/time/nodetype-has-split": row(["author", "paper"]) + row([False, True]),
             "raw/node-feat/paper/node-feat": lines(read("paper/node_feat")), "raw/node-label/paper/node-label": lines(read("paper/node_label_19").astype(int)),
             "split/time/paper/train": lines(order[:480]), "split/time/paper/valid": lines(order[480:640]), "split/time/paper/test": lines(order[640:])}
    for relation in relations:
        edges = read("__".join(relation) + "/edge_index")
        files |= {f"raw/relations/{'___'.join(relation)}/edge": lines(edges), f"raw/relations/{'___'.join(relation)}/num-edge-list": f"{len(edges)}\n"}
    for name, text in (files | changed).items():
        if text is None:
            continue
        os.makedirs(os.path.dirname(os.path.join(at, name)), exist_ok=True)
        with gzip.open(os.path.join(at, name + ".csv.gz"), "wb", 1) as f:
            f.write(text.encode())
    for name in (name for name, text in changed.items() if text is None):
        os.remove(os.path.join(at, name + ".csv.gz"))
    return at


@test
def layout_of_ogb_with_types():
    with Place() as p:
        source = ogb_layout(p)
        command("import", "igb", p.path("igb"), p.path("a"), "--types", "all", "--split", "none", "--quiet")
        command("import", "ogb", source, p.path("b"), "--quiet")
        x, ends, first, target, edge_source, relation = graph_of(p.path("b"))
        assert [len(rows) for rows in x] == [400, 800] and [rows.shape[1] for rows in x] == [0, 16] and edge_types(p.path("b"))[1] == "author:writes:paper"
        papers = graph_of(p.path("a"))
        assert np.array_equal(x[1], papers[0][[len(rows) for rows in papers[0]].index(800)])
        writes = np.load(os.path.join(p.path("igb"), "processed", "author__writes__paper", "edge_index.npy"))
        at = relation == 1
        assert sorted(zip((edge_source[at] - first[0]).tolist(), (target[at] - first[1]).tolist())) == sorted(map(tuple, writes.tolist()))
        label = np.load(os.path.join(p.path("b"), "labels.npy"))
        assert (label[:400] == -1).all() and np.array_equal(label[400:], np.load(os.path.join(p.path("igb"), "processed/paper/node_label_19.npy")))
        r = p.run(TYPED, "--epochs", 12, *NO_CACHE, "--set", "params.batch=128", data=p.path("b")).report
        assert r["test_accuracy"] > 0.85, r["test_accuracy"]
        command("import", "ogb", source, p.path("c"), "--types", "paper", "--quiet")  # a plain graph
        with open(os.path.join(p.path("c"), "dataset.json")) as f:
            m = json.load(f)
        assert m["vertices"] == 800 and m["edges"] == 3200 and "edge_types" not in m and m["feature_dim"] == 16
        for name, text, why in (
                ("raw/num-node-dict", "author,paper\n400\n", "num-node-dict.csv.gz: expected a line of names and a line of 2 values, found 1"),
                ("raw/num-node-dict", "author,paper\n400,800\n1,1\n", "num-node-dict.csv.gz:3: expected one line of values"),
                ("raw/num-node-dict", "author,paper\n400,x\n", "num-node-dict.csv.gz:2: expected a count of paper, found 'x'"),
                ("raw/num-node-dict", "author,venue\n400,800\n", "triplet-type-list.csv.gz:1: num-node-dict has no vertex type 'paper'"),
                ("raw/num-node-dict", "author,paper\n400,700\n", "node-feat.csv.gz:701: expected 700 lines"),
                ("raw/triplet-type-list", "paper,cites\n", "triplet-type-list.csv.gz:1: expected source, relation and target, found 2 columns"),
                ("raw/triplet-type-list", "paper,likes,paper\n", "paper___likes___paper/edge.csv.gz: the file is missing, but"),
                ("raw/relations/author___writes___paper/num-edge-list", "7\n", "author___writes___paper/edge.csv.gz:8: expected 7 lines"),
                ("raw/relations/author___writes___paper/edge", "0,1\n" * 1599 + "400,1\n", "author___writes___paper/edge.csv.gz: source of edge 1599: expected 0 to 399, found 400"),
                ("raw/nodetype-has-label", "author,paper\nTrue,True\n", "the types author and paper have labels, but a dataset has them for one type"),
                ("split/time/nodetype-has-split", "author,paper\nTrue,False\n", "the splits are of the type author, but the labels are of another"),
                ("split/time/paper/train", "0\n800\n", "train.csv.gz:2: byte 1: expected an integer from 0 to 799"),
                ("raw/node-label/paper/node-label", None, "node-label.csv.gz: the file is missing, but nodetype-has-label lists paper")):
            r = command("import", "ogb", ogb_layout(p, **{name: text}), p.path("d"), "--quiet", code=None)
            assert r.returncode and why in r.stderr, (name, why, r.stderr)


@test
def published_layouts_train_end_to_end():
    with Place() as p:
        command("import", "igb", layout(p, "igb"), p.path("a"), "--types", "all", "--quiet")
        source = layout(p, "mag")
        splits = [f"--{name}={source}/{file}_idx.npy" for name, file in (("train", "train"), ("val", "valid"), ("test", "test"))]
        command("import", "mag240m", source, p.path("b"), "--types", "all", *splits, "--quiet")
        for data in ("a", "b"):
            r = p.run(TYPED, "--epochs", 12, *NO_CACHE, "--set", "params.batch=128", data=p.path(data)).report
            assert r["test_accuracy"] > 0.85, (data, r["test_accuracy"])


if __name__ == "__main__":
    main()
