"""Ranks that have only a part of the features each (`penstock partition --datasets`, pipelines/distributed.json), or of
the lists of neighbours, too (--lists, distributed_lists.json): the weights are those of one whole dataset, and the rows,
ids and bytes that ranks send each other are what the cut says. A death ends all ranks, a stopped run goes on, and parts
that do not fit are refused before anything starts."""
from parting import *


@test
def parts_have_their_rows_only():
    with Place() as p:
        data, whole = cut(p, 3), manifest(p.data)
        rows, first = np.load(os.path.join(p.data, "features.npy"), mmap_mode="r"), [0, 666, 1333, 2000]
        with open(os.path.join(data, "parts.json")) as f:
            assert json.load(f)["first"] == first
        for part in range(3):
            own = os.path.join(data, f"part{part}")
            assert np.array_equal(np.load(os.path.join(own, "features.npy")), rows[first[part]:first[part + 1]])
            m = manifest(own)
            assert m["penstock_dataset"] == 11 and m["cut"]["part"] == part and m["cut"]["first"] == first
            assert {k: v for k, v in m["arrays"].items() if k != "features"} == {k: v for k, v in whole["arrays"].items() if k != "features"}
            command("verify", own, "--quiet")
        shares = cut(p, 3, True)
        indptr, indices = (np.load(os.path.join(p.data, name + ".npy")) for name in ("indptr", "indices"))
        for part in range(3):
            own, edges = os.path.join(shares, f"part{part}"), [int(indptr[v]) for v in first]
            assert manifest(own)["cut"]["first_edge"] == edges
            assert np.array_equal(np.load(os.path.join(own, "indices.npy")), indices[edges[part]:edges[part + 1]])
            command("verify", own, "--quiet")
        for args in (("inspect", data), ("inspect", os.path.join(data, "part1")), ("features", os.path.join(data, "part1"), p.path("no"), "--dim", 2),
                     ("partition", os.path.join(data, "part1"), "--parts", 2, "--datasets", p.path("no"))):
            said = command(*args, code=None)
            assert said.returncode != 0 and "cut dataset" in said.stderr and "use the whole dataset here" in said.stderr, (args, said)
        for args, expected in ((("--parts", 3, "--datasets", data), "parts.json exists"), (("--parts", 17, "--datasets", "x"), "expected 2 to 16, found 17"),
                               (("--parts", 2, "--datasets", p.data), "dataset.json exists"),
                               (("--parts", 2, "--out", "x.npy", "--lists"), "--lists requires --datasets DIR"),
                               (("--datasets", "x"), "or --parts and --datasets")):
            said = command("partition", p.data, *args, code=None)
            assert said.returncode != 0 and expected in said.stderr, (args, said)
        with open(p.path("edges"), "w") as f:
            f.write("a,b\nc,b\n")
        command("import", "csv", p.path("edges"), p.path("tiny"), "--ids", "strings", "--header", "no", "--quiet")
        command("features", p.path("tiny"), "--dim", 2, "--quiet")
        weighted = p.path("weighted")
        command("gen", "rmat", weighted, "--vertices", 64, "--edges", 200, "--edge-weights", "--quiet")
        for source, args, expected in ((p.path("tiny"), (3, "--lists"), "part 0 of "), (p.path("tiny"), (4,), "too few for 4 parts"),
                                       (weighted, (2, "--lists"), "has relations, weights or times of edges")):
            said = command("partition", source, "--datasets", p.path("no"), "--parts", *args, code=None)
            assert said.returncode != 0 and expected in said.stderr, (args, said)
        os.mkdir(p.path("taken"))
        shutil.copytree(p.path("tiny"), os.path.join(p.path("taken"), "part1"))
        said = command("partition", p.data, "--parts", 2, "--datasets", p.path("taken"), code=None)
        assert said.returncode != 0 and "part1 is a dataset, but no part of one" in said.stderr, said
        shutil.rmtree(os.path.join(p.path("taken"), "part1"))  # part0 is what a killed command leaves
        command("partition", p.data, "--parts", 3, "--datasets", p.path("taken"), "--quiet")
        assert manifest(os.path.join(p.path("taken"), "part0"))["cut"]["first"] == first
        typed = p.path("typed")
        command("gen", "typed", typed, "--vertices", 400)
        assert "several types of vertices" in command("partition", typed, "--parts", 2, "--datasets", p.path("no"), code=None).stderr
        assert not os.path.exists(p.path("no"))


@test
def parts_train_as_the_whole_does():
    check_mpi()
    with Place() as p:
        whole = replicated(p, 4).report
        one = outcome(whole)
        for ranks, replicas, cache in ((4, 1, "64KiB"), (2, 2, "auto"), (2, 2, "0")):
            data = cut(p, ranks)
            run, ids = run_traced(p, ranks, replicas, data, "--set", f"stages.planner.params.cpu_cache={cache}")
            assert outcome(run.report) == one, (ranks, replicas, run)
            assert figures(run.report) == figures(whole), (figures(run.report), figures(whole))
            cached = cached_rows(run.run_dir, ranks)
            assert min(map(len, cached)) > 50 if cache != "0" else max(map(len, cached)) == 0, cached
            needed, hit = check_counts(run.run_dir, ids, data, cached, replicas)
            assert needed.sum() - np.trace(needed) > 10_000 and (hit.sum() - np.trace(hit) > 1000) == (cache != "0"), (needed, hit)
        assert outcome(p.run(DISTRIBUTED, *settings(2)).report) == one  # a whole dataset, without ranks
        out = p.path("out.npy")
        said = command("infer", run.run_dir, "--out", out, code=None)
        assert said.returncode != 0 and "use the whole dataset here" in said.stderr, said
        command("infer", run.run_dir, "--dataset", p.data, "--out", out, "--quiet")
        assert len(np.load(out)) == 2000


@test
def lists_train_as_the_whole_does():
    """The vertices of all hops are those of one machine: each rank has drawn for itself or has asked the list's owner."""
    check_mpi()
    with Place() as p:
        one = trained(p, 4, *WHOLE)
        alone = p.run(LISTS, *settings(4, planner=False)).report  # on one machine, with a whole dataset
        assert outcome(alone) == one and alone["remote_lists"]["asked_vertices"] == 0, alone
        for ranks, replicas in ((4, 1), (2, 2)):
            run = run_ranks(p, ranks, replicas, pipeline=LISTS, data=cut(p, ranks, True))
            assert outcome(run.report) == one, (ranks, replicas, run)
            reports = [report_of(run.run_dir, rank) for rank in range(ranks)]
            lists = [report["remote_lists"] for report in reports]
            assert sum(x["own_vertices"] + x["asked_vertices"] for x in lists) == alone["remote_lists"]["own_vertices"], lists
            for a in range(ranks):
                assert by_rank(lists[a], "asked_of", ranks) == [x[f"served_to_{a}"] for x in lists], lists
                assert lists[a][f"asked_of_{a}"] == 0 < min(lists[a][f"asked_of_{b}"] for b in range(ranks) if b != a), lists
                items = WORD * (HEAD * (ranks - 1) * lists[a]["rounds"] + lists[a]["asked_vertices"] + lists[a]["served_neighbours"])
                assert reports[a]["mpi"]["item_bytes"] == items + row_items(reports[a]["remote"], ranks), (a, reports[a])
            # of the whole graph's edges, each rank has its own
            assert sum(report["dataset"]["part"]["edges"] for report in reports) == alone["dataset"]["edges"]


@test
def settings_that_need_all_lists():
    with Place() as p:
        for name, value, expected in (("algorithm", "labor", 'algorithm must be "uniform"'), ("margin", 0.5, "margin must be at least 1"),
                                      ("topology", "memory", 'topology must be "mmap"')):
            run = p.run(LISTS, *settings(2, planner=False), "--set", f"stages.sampler.params.{name}={value}", code=1)
            assert expected in run.err and "use the stage sampler and a dataset that is cut without --lists" in run.err, run


@test
def ranks_with_different_cuts_refuse_to_start():
    check_mpi()
    with Place() as p:
        run_dir = p.path("run")
        run = Running([MPIRUN, "-n", "1", *program(p, 1, run_dir, pipeline=LISTS, data=cut(p, 2)), ":", "-n", "1",
                       *program(p, 1, run_dir, pipeline=LISTS, data=cut(p, 2, True))], run_dir).wait(60)
        assert run.code == 1 and 'the first vertex of each part is [0,1000] on rank 0 ' in run.err, run
        assert 'but [0,1000,"with lists"] on rank 1 (' in run.err and "nothing was started" in run.err, run


@test
def batches_that_are_split_on_some_ranks_only():
    """Slots that are too small for some shares of a batch: then ranks have different numbers of slots."""
    check_mpi()
    with Place() as p:
        small = ("--set", "stages.sampler.params.margin=0.9", "--set", "params.fanout=[10,5]")
        run = run_ranks(p, 2, 1, *small, pipeline=DISTRIBUTED, data=cut(p, 2))
        reports = [report_of(run.run_dir, rank) for rank in (0, 1)]
        slots = [report["stages"]["remote.0"]["items"] for report in reports]
        remote = [report["remote"] for report in reports]
        assert slots[0] != slots[1], slots
        assert remote[0]["rounds"] == remote[1]["rounds"] >= max(slots), (slots, remote)
        for a, b in ((0, 1), (1, 0)):
            assert remote[a][f"asked_of_{b}"] == remote[b][f"served_to_{a}"] > 0 and remote[a][f"asked_of_{a}"] == 0, remote
        assert outcome(run.report) == outcome(replicated(p, 2, *WHOLE, *small).report)


@test
def a_death_or_a_stop_in_one_rank_ends_all():
    """And the run goes on, on the same parts, or on the whole dataset."""
    check_mpi()
    with Place() as p:
        data, one = cut(p, 2), trained(p, 2, *WHOLE, "--epochs", 3)
        again = ("--epochs", 3, "--resume")
        strike_rank(p, 2, 1, "remote.0", slow=(), pipeline=DISTRIBUTED, data=data)
        run = start_ranks(p, 2, 1, "--epochs", 3, pipeline=DISTRIBUTED, data=data)
        wait_for(lambda: has_checkpoint(run.run_dir))
        os.kill(processes_of(run.run_dir, 1)["supervisor"], signal.SIGTERM)
        stopped = run.wait(60)
        assert stopped.code in (0, 143), stopped
        assert stopped.code == 0 or report_of(run.run_dir, 0)["status"] == "interrupted", stopped
        if stopped.code:
            assert outcome(run_ranks(p, 2, 1, *again, run.run_dir, pipeline=DISTRIBUTED, data=data).report) == one
        else:
            assert outcome(stopped.report) == one


@test
def parts_that_do_not_fit_are_refused():
    """By `run` and by `check`, with the same words, before anything starts."""
    with Place() as p:
        data = cut(p, 2)

        def refused(change=lambda d: None, ranks=2, rank=1, pipeline=DISTRIBUTED, at="", args=()):
            d = p.path("changed")
            shutil.rmtree(d, ignore_errors=True)
            shutil.copytree(data, d)
            change(d)
            env = {**os.environ, "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(ranks)}
            if ranks == 1:
                env = {k: v for k, v in os.environ.items() if not k.startswith("OMPI_COMM")}
            more = ["--dataset", os.path.join(d, at) if at else d, "--set", 'replicas.places=["cpu:0"]', *args]
            run = subprocess.run([PENSTOCK, "run", pipeline, "--run-dir", p.path("never"), *more], env=env, capture_output=True, text=True)
            checked = subprocess.run([PENSTOCK, "check", pipeline, *more], env=env, capture_output=True, text=True)
            assert run.returncode == 2 and checked.returncode == 2 and not glob.glob(p.path("never*")), (run, checked)
            assert checked.stderr.replace("penstock check: ", "penstock run: ") == run.stderr, (run, checked)
            return run.stderr

        def part(d, k):
            return os.path.join(d, f"part{k}")

        def listed(**values):
            def change(d):
                path = os.path.join(d, "parts.json")
                with open(path) as f:
                    known = json.load(f)
                with open(path, "w") as f:
                    json.dump({**known, **values}, f)
            return change

        def other(d):
            command("gen", "community", p.path("other"), "--vertices", "2000", "--seed", "4")
            command("partition", p.path("other"), "--parts", 2, "--datasets", p.path("others"), "--quiet")
            shutil.rmtree(part(d, 1))
            shutil.copytree(part(p.path("others"), 1), part(d, 1))

        def swapped(d):
            shutil.rmtree(part(d, 1))
            shutil.copytree(part(d, 0), part(d, 1))

        def shorter(d):
            rows = np.load(os.path.join(part(d, 1), "features.npy"))
            np.save(os.path.join(part(d, 1), "features.npy"), rows[:-1])

        shares = cut(p, 2, True)

        def as_lists(d):
            shutil.rmtree(d)
            shutil.copytree(shares, d)

        def mixed(d):
            as_lists(d)
            shutil.rmtree(part(d, 1))
            shutil.copytree(part(data, 1), part(d, 1))

        assert "divide the lists of neighbours, too" in (said := refused(as_lists)) and "a stage planner needs all lists" in said, said
        assert "is a part of another cut of this dataset" in refused(mixed, pipeline=LISTS)
        assert "is cut into 2 parts, one for each rank, but there are 4 ranks: start 2 ranks (mpirun -n 2)" in refused(ranks=4)
        assert "but there is 1 rank:" in refused(ranks=1)
        assert "part 1 of " in (said := refused(lambda d: shutil.rmtree(part(d, 1)))) and "is missing: there is no " in said, said
        assert "is another part of this cut: expected part 1 of the cut that" in refused(swapped)
        assert "is a part of another dataset: expected part 1" in refused(other)
        assert "is a part of another cut of this dataset" in refused(listed(first=[0, 999, 2000]))
        assert '"first" is wrong' in refused(listed(first=[0]))
        assert "this version is not known" in refused(listed(penstock_parts=2))
        assert "this is no JSON" in refused(lambda d: open(os.path.join(d, "parts.json"), "w").close())
        assert "features.npy" in refused(shorter)
        assert "is part 1 of 2: name the directory that has parts.json" in refused(at="part1")
        assert "and a stage disk reads only whole ones" in refused(pipeline=REPLICAS, args=WHOLE)
        assert "eval_every is 1, which needs the lists of neighbours of all vertices" in refused(
            as_lists, pipeline=LISTS, args=("--set", "stages.trainer.params.eval_every=1"))


if __name__ == "__main__":
    main()
