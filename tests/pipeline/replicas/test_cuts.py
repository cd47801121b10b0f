"""Parts by METIS or by hash (`penstock partition --datasets DIR --by`): the vertices get new numbers, and the dataset stays
the same. With seeds of the own part (shuffle local), METIS leaves fewer rows to other ranks. Hot rows of other parts are
fetched once and kept (pipelines/distributed.json), as the plan of each rank says."""
import re

from parting import *

LOCAL = ("--set", "params.shuffle=local")


def cut_by(p, parts, by, *args, data=None, name=None):
    """Cuts the small dataset. Returns the directory, and what the command says."""
    out = p.path(name or f"{by}{parts}")
    return out, command("partition", data or p.data, "--parts", parts, "--datasets", out, "--by", by, "--quiet", *args).stdout


def array(path, name):
    return np.load(os.path.join(path, name + ".npy"))


def cut_edges(data, part):
    indptr, indices = array(data, "indptr"), array(data, "indices")
    return int((np.repeat(part, np.diff(indptr)) != part[indices]).sum())


def check_cut(p, out, said, parts, by):
    """The parts are slices of DIR/whole, which is the dataset under other numbers. Returns the part of each old vertex, and
    the number of edges between parts."""
    whole, n = os.path.join(out, "whole"), manifest(p.data)["vertices"]
    assert "the same as" in command("verify", whole, "--same-as", p.data, "--quiet").stdout
    old, rows = array(whole, "old_ids"), array(p.data, "features")
    with open(os.path.join(out, "parts.json")) as f:
        listed = json.load(f)
    first = listed["first"]
    assert listed["by"] == by and len(first) == parts + 1 and first[-1] == n
    part = np.empty(n, np.int64)
    for k in range(parts):
        own, ids = os.path.join(out, f"part{k}"), old[first[k]:first[k + 1]]
        command("verify", own, "--quiet")
        assert np.array_equal(array(own, "features"), rows[ids]) and np.all(np.diff(ids) > 0), "vertices of a part keep their order"
        assert np.array_equal(array(own, "old_ids"), old) and np.array_equal(array(own, "indices"), array(whole, "indices"))
        part[ids] = k
    vertices, train = np.bincount(part), np.bincount(part[array(p.data, "train")])
    assert [tuple(map(int, found)) for found in re.findall(r"part \d+: (\d+) vertices, (\d+) training", said)] == list(zip(vertices, train)), said
    between = cut_edges(p.data, part)
    assert f"{between} of {manifest(p.data)['edges']} edges lie between parts" in said, (between, said)
    return part, between


@test
def parts_have_the_same_graph():
    with Place() as p:
        between, digests = {}, set()
        for by in ("metis", "hash"):
            out, said = cut_by(p, 4, by)
            part, between[by] = check_cut(p, out, said, 4, by)
            vertices, train = np.bincount(part), np.bincount(part[array(p.data, "train")])
            most = 1.05 if by == "metis" else 1.001  # METIS allows 3 %, of a few hundred vertices
            assert vertices.max() <= most * 500 and (by == "hash" or train.max() <= 1.08 * SEEDS / 4), (vertices, train)
            again, other = (manifest(os.path.join(cut_by(p, 4, by, *args, name=by + name)[0], "part2"))["cut"]
                            for args, name in (((), "again"), (("--seed", 5), "other")))
            assert manifest(os.path.join(out, "part2"))["cut"] == again != other
            digests.add(again["dataset"])
            command("partition", p.data, "--parts", 4, "--by", by, "--out", p.path("of.npy"))
            assert np.array_equal(np.load(p.path("of.npy")), part)
        said = cut_by(p, 4, "range")[1]
        between["range"] = cut_edges(p.data, np.arange(2000) // 500)
        assert f"{between['range']} of " in said and between["metis"] < .85 * min(between["hash"], between["range"]), (between, said)
        assert len(digests) == 2 and not os.path.exists(os.path.join(p.path("range4"), "whole"))
        # what a killed command leaves is replaced, and with few bytes METIS gets a sample of the edges
        os.remove(os.path.join(p.path("metis4"), "parts.json"))
        said = cut_by(p, 4, "metis", "--lists", "--memory", 34_300_000)[1]
        share = float(re.search(r"METIS got ([\d.]+) % of the edges", said).group(1))
        assert 5 < share < 60, said
        edges = manifest(os.path.join(p.path("metis4"), "part3"))["cut"]["first_edge"]
        assert len(array(os.path.join(p.path("metis4"), "part3"), "indices")) == edges[4] - edges[3]


@test
def mistakes_are_told():
    with Place() as p:
        def wrong(expected, *args, data=None):
            said = command("partition", data or p.data, *args, code=None)
            assert said.returncode != 0 and expected in said.stderr and not os.path.exists(p.path("no")), (args, said)

        no = ("--parts", 4, "--datasets", p.path("no"))
        wrong('--by: expected range, hash or metis; found "size"', *no, "--by", "size")
        wrong("--by requires --parts K", "--partitions", 4, "--out", p.path("x"), "--by", "hash")
        wrong("--memory: 1048576 bytes are too few for a graph of 2000 vertices", *no, "--by", "metis", "--memory", "1M")
        os.mkdir(p.path("taken"))
        shutil.copytree(p.data, p.path("taken/whole"))
        wrong("whole is a dataset that was not made for parts", "--parts", 4, "--datasets", p.path("taken"), "--by", "hash")
        out = cut_by(p, 2, "hash")[0]
        os.remove(os.path.join(out, "parts.json"))
        wrong("whole is the dataset that is to be cut", "--parts", 2, "--datasets", out, "--by", "hash", data=os.path.join(out, "whole"))
        with open(p.path("edges"), "w") as f:  # all are neighbours: METIS leaves parts empty
            f.write("".join(f"v{a},v{b}\n" for a in range(17) for b in range(a)))
        command("import", "csv", p.path("edges"), p.path("dense"), "--ids", "strings", "--header", "no", "--quiet")
        command("features", p.path("dense"), "--dim", 2, "--quiet")
        wrong("of 16 would have none of the 17 vertices of ", "--parts", 16, "--datasets", p.path("no"), "--by", "metis", data=p.path("dense"))
        with open(os.path.join(p.data, "indices.npy"), "r+b") as f:
            f.seek(4096)
            f.write((5000).to_bytes(4, "little"))
        wrong("but the graph has 2000 vertices", *no, "--by", "hash")


@test
def ranks_train_as_the_whole_does():
    check_mpi()
    with Place() as p:
        for ranks, replicas in ((4, 1), (2, 2)):
            data = cut_by(p, ranks, "metis")[0]
            whole = replicated(p, 4, data=os.path.join(data, "whole")).report
            run, ids = run_traced(p, ranks, replicas, data)
            assert outcome(run.report) == outcome(whole) and figures(run.report) == figures(whole), (ranks, replicas, run)
            check_counts(run.run_dir, ids, data, cached_rows(run.run_dir, ranks), replicas)
        out = p.path("out.npy")
        command("infer", run.run_dir, "--dataset", os.path.join(data, "whole"), "--out", out, "--quiet")
        assert len(np.load(out)) == 2000


@test
def metis_leaves_fewer_rows_to_other_ranks():
    """With seeds of the own part. A cache changes which rows travel, and nothing else; nor do lists that are cut."""
    check_mpi()
    with Place() as p:
        share, args = {}, (*LOCAL, *WHOLE, "--set", "params.batch=40")
        for by in ("metis", "hash", "range"):
            data = cut_by(p, 4, by)[0]
            run, ids = run_traced(p, 4, 1, data, *args, "--set", "stages.planner.params.cpu_cache=0", *(() if by == "metis" else ("--epochs", 1)))
            first, owner_of = owners(data)
            train = array(os.path.join(data, "part0"), "train")
            for rank in range(4):
                seeds = set(train[owner_of(train) == rank].tolist())
                assert seeds <= set(np.concatenate(ids[rank]).tolist()), "each rank trains on the vertices of its part"
            needed, _ = check_counts(run.run_dir, ids, data, [[]] * 4, evaluations=0)
            share[by] = 1 - np.trace(needed) / needed.sum()
            if by != "metis":
                continue
            cached, caches = run_traced(p, 4, 1, data, *args)[0], []
            assert outcome(cached.report) == outcome(run.report)
            own = cached_rows(cached.run_dir, 4)
            for rank in range(4):  # what a rank needs most are rows of its part
                caches.append(np.bincount(owner_of(own[rank]), minlength=4))
                assert caches[rank][rank] > .4 * caches[rank].sum(), (rank, caches)
            assert len({ids.tobytes() for ids in own}) == 4, "each rank counts what its own seeds need"
            lists = run_ranks(p, 4, 1, *LOCAL, "--set", "params.batch=40", pipeline=LISTS, data=cut_by(p, 4, by, "--lists", name="shares")[0])
            assert outcome(lists.report) == outcome(run.report), lists
            whole = p.run(REPLICAS, *settings(4), *args, "--epochs", 3, "--resume", run.run_dir, data=os.path.join(data, "whole"), code=2).err
            assert "the first vertex of each part is nothing, was [0," in whole, whole
        print(f"# rows of other ranks: {share}")
        assert share["metis"] < .85 * min(share["hash"], share["range"]), share


@test
def a_part_without_training_vertices_is_refused():
    with Place() as p:
        command("split", p.data, p.path("few"), "--train", .01, "--val", .1, "--quiet")
        train = array(p.path("few"), "train")
        parts = next(k for k in (2, 4, 8, 16) if len(np.unique(np.searchsorted(np.arange(k) * 2000 // k, train, "right"))) < k)
        data = cut_by(p, parts, "range", data=p.path("few"), name="cut")[0]
        env = {**os.environ, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": str(parts)}
        done = subprocess.run([PENSTOCK, "check", DISTRIBUTED, "--dataset", data, *LOCAL, "--set", "params.grains=16",
                               "--set", 'replicas.places=["cpu:0"]'],
                              env=env, capture_output=True, text=True)
        assert done.returncode == 2 and "would get none of the" in done.stderr and "another cut of the dataset" in done.stderr, done


@test
def hot_rows_of_other_parts_are_kept():
    check_mpi()
    with Place() as p:
        data = cut(p, 2)
        first, owner_of = owners(data)
        run, ids = run_traced(p, 2, 1, data, *WHOLE)
        cached = cached_rows(run.run_dir, 2)
        needed, hit = check_counts(run.run_dir, ids, data, cached, evaluations=0)
        for rank in range(2):  # the hottest rows of all parts, within cpu_cache; equal ones by id
            plan = run.run_dir + (f".rank{rank}" if rank else "") + "/plan"
            hotness = np.load(os.path.join(plan, "hotness.npy"))[-1]
            budget = (64 << 10) // manifest(os.path.join(data, "part0"))["stride_bytes"]
            assert cached[rank].tolist() == np.lexsort((np.arange(2000), -hotness))[:budget].tolist()
            assert manifest_of_plan(plan)["cache"]["policy"] == "rows of all parts"
            assert hit[rank, 1 - rank] > 1000, hit
        # without the link, a rank caches rows of its own part only
        with open(DISTRIBUTED) as f:
            pl = json.load(f)
        pl["links"] = [link for link in pl["links"] if link["to"] != "remote.plan"]
        own = run_ranks(p, 2, 1, *WHOLE, pipeline=p.write(pl, "own.json"), data=data)
        assert outcome(own.report) == outcome(run.report)
        for rank, ids in enumerate(cached_rows(own.run_dir, 2)):
            report = report_of(own.run_dir, rank)
            assert np.all(owner_of(ids) == rank) and len(ids) == budget and report["remote"]["cached_rows"] == report["remote"]["cache_hits"] == 0
            assert report["remote"]["asked_rows"] > report_of(run.run_dir, rank)["remote"]["asked_rows"]
        # a resumed run keeps the same rows
        again = run_ranks(p, 2, 1, *WHOLE, "--epochs", 3, "--resume", run.run_dir, pipeline=DISTRIBUTED, data=data)
        assert [ids.tolist() for ids in cached_rows(again.run_dir, 2)] == [ids.tolist() for ids in cached]
        assert outcome(again.report) == trained(p, 2, *WHOLE, "--epochs", 3)
        told = run_ranks(p, 2, 1, *WHOLE, "--set", "stages.planner.params.gpu_cache=64KiB", pipeline=DISTRIBUTED, data=data, code=None)
        assert told.code != 0 and "which only the CPU tier can hold: set gpu_cache to 0" in told.err, told


@test
def all_rows_of_other_parts_are_kept():
    """They come in several pieces, and then none travels."""
    check_mpi()
    with Place() as p:
        command("gen", "community", p.data, "--vertices", 2000, "--features", 1536, "--seed", 3, "--force", "--quiet")
        data, out, rounds = cut(p, 2), [], []
        for cache in ("16MiB", "0"):
            run = run_ranks(p, 2, 1, *WHOLE, "--epochs", 1, "--set", f"stages.planner.params.cpu_cache={cache}", pipeline=DISTRIBUTED, data=data)
            out.append(outcome(run.report))
            remote = [report_of(run.run_dir, rank)["remote"] for rank in (0, 1)]
            rounds.append([r["rounds"] for r in remote])
            if cache != "0":
                assert all(r["asked_rows"] == r["cached_rows"] == 1000 and r["own_rows"] == 0 and r["cache_hits"] > 1000 for r in remote), remote
        assert out[0] == out[1] and rounds[0] == [n + 1 for n in rounds[1]], rounds  # two pieces, or none


def manifest_of_plan(directory):
    with open(os.path.join(directory, "plan.json")) as f:
        return json.load(f)


if __name__ == "__main__":
    main()
