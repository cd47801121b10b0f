"""Partitioned embeddings of unusual data, on damaged and on full disks: a run trains as it should, or says what is wrong
and where, and its last commit stays whole."""
import re

from crash import *
from embedding import *
from harness import *
from small_disk import SmallDisk

# edges to train, edges to test, partitions and those in memory
SHAPES = {"vertices that only test edges have": ([(i, 0, (i + 1) % 9) for i in range(9)], [(20, 0, 21), (0, 0, 22)], 4, 2),
          "self loops": ([(i, i % 2, i) for i in range(12)], [(3, 1, 3)], 3, 2),
          "one relation": ([(i, 0, (5 * i + 1) % 12) for i in range(12)], [(1, 0, 2)], 4, 3),
          "empty buckets": ([(0, 0, 1), (1, 1, 0)], [(i, 0, i + 1) for i in range(0, 18, 2)], 9, 2),
          "a vertex a partition": ([(i, i % 3, (i + 2) % 8) for i in range(8)], [(1, 0, 2)], 8, 3)}


def dataset(p, name, train, test):
    source = p.path(name + " source")
    os.makedirs(source)
    for part, rows in (("train", train), ("valid", test), ("test", test)):
        with open(os.path.join(source, part + ".tsv"), "w") as f:
            f.writelines(f"v{s}\tr{r}\tv{o}\n" for s, r, o in rows)
    command("import", "triples", source, p.path(name), "--quiet")
    return p.path(name)


def trains(p, name, data, partitions, buffer):
    """Both pipelines give the same bits, the loss falls, and the ranks are those of a brute force. Returns the tensors."""
    r = p.run(MARIUS, *partitioned(partitions, buffer, "auto", 1), "--epochs", 3, data=data)
    other = p.run(LEGEND, *legend(partitions, buffer, "auto"), "--epochs", 3, data=data)
    assert other.report["weights_digest"] == r.report["weights_digest"], name
    losses, edges = [e["loss"] for e in r.report["epochs"]], len(triples_of(data, "train"))
    assert losses[-1] < losses[0] and all(e["edges"] == edges for e in r.report["epochs"]), (name, losses)
    out = p.path("out " + name)
    command("export", r.run_dir, out, "--quiet")
    got = {t: np.load(os.path.join(out, t + ".npy")) for t in ("vertices", "relations")}
    found = [r.report[f"test_{figure}"] for figure in ("mrr", "hits_1", "hits_3", "hits_10", "mean_rank")]
    assert np.allclose(found, brute_force(data, got, "test", "mean"), rtol=1e-9), (name, found)
    return got


@test
def unusual_data_trains_in_partitions():
    with Place() as p:
        for name, (train, test, partitions, buffer) in SHAPES.items():
            trains(p, name, dataset(p, name, train, test), partitions, buffer)


def with_edges_to_predict(p, typed, name, triples):
    """The typed graph, whose edges are also its edges to train and test: triples, or pairs without relations."""
    source, data = p.path(name + " source"), p.path(name)
    command("export", typed, source, "--quiet")
    with open(os.path.join(source, "meta.json")) as f:
        meta = json.load(f)
    first = dict(zip((t["name"] for t in meta["vertex_types"]), np.cumsum([0] + [t["num_nodes"] for t in meta["vertex_types"]])))
    rows = []
    for k, e in enumerate(meta["edge_types"]):
        s, t = np.load(os.path.join(source, f"edges_{k}.npy"))
        rows.append(np.stack([s + first[e["source"]], np.full(len(s), k), t + first[e["target"]]], 1))
    rows = np.random.default_rng(1).permutation(np.concatenate(rows)).astype(np.int32)
    kind, rows = ("triples", rows) if triples else ("edges", np.ascontiguousarray(rows[:, ::2]))
    parts = {f"{kind}_train": rows[8:400], f"{kind}_val": rows[:4], f"{kind}_test": rows[4:8]}
    for file, array in parts.items():
        np.save(os.path.join(source, file + ".npy"), array)
    with open(os.path.join(source, "meta.json"), "w") as f:
        json.dump({**meta, "kept": list(parts)}, f)
    command("import", "npy", source, data, "--quiet")
    return data, len(meta["edge_types"])


@test
def typed_graphs_train_if_they_have_edges_to_predict():
    """All vertices have embeddings, of whatever type they are. Relations are those of the triples; pairs have one relation."""
    with Place() as p:
        typed = p.path("typed")
        command("gen", "typed", typed, "--vertices", 60, "--quiet")
        for pl, stages in ((MARIUS, ("edges", "store", "embedder")), (LEGEND, ("legend",))):
            want = [f"stages.{s}: {s}: the dataset {typed} has no edges to train or test embeddings on: expected triples_train.npy" for s in stages]
            for said in (command("check", pl, "--dataset", typed, code=2).stderr, p.run(pl, data=typed, code=2).err):
                assert all(w in said for w in want) and "import triples" in said and said.count("no edges to train") == len(want), said
        for triples in (True, False):
            name = "triples" if triples else "pairs"
            data, relations = with_edges_to_predict(p, typed, name, triples)
            got = trains(p, name, data, 5, 3)
            assert len(got["relations"]) == 2 * (relations if triples else 1), got["relations"].shape
            command("check", MARIUS, "--dataset", data)


def without(data, part):
    """The dataset loses the edges of a part."""
    path = os.path.join(data, "dataset.json")
    with open(path) as f:
        manifest = json.load(f)
    del manifest["arrays"]["triples_" + part]
    with open(path, "w") as f:
        json.dump(manifest, f)


@test
def parts_without_edges_are_warned_of():
    with Place() as p:
        data = knowledge_graph(p)
        p.run(MARIUS, *settings(2), "--epochs", 1, data=data)
        missing = lambda part: f"the dataset {data} has neither triples_{part}.npy nor edges_{part}.npy with edges, so the report has no {part}_mrr"
        for parts in (("val",), ("val", "test")):
            without(data, parts[-1])
            r = p.run(MARIUS, *settings(2), "--epochs", 1, "--set", "stages.store.params.evaluate=epochs", data=data)
            assert [w["text"] for w in r.report["warnings"]] == [missing(part) for part in parts], r.report["warnings"]
            assert all(missing(part) in r.err for part in parts), r.err
            assert not any(f"{part}_mrr" in r.report for part in parts), r.report
        assert p.run(MARIUS, *settings(2), "--epochs", 1, "--set", "stages.store.params.evaluate=never", data=data).report["warnings"] == []


@test
def partitions_that_do_not_fit_are_told_before_the_start():
    with Place() as p:
        data = knowledge_graph(p)
        for pl, place, args in ((MARIUS, "params.partitions", lambda n, c: partitioned(n, c)), (LEGEND, "stages.legend.params.partitions", lambda n, c: legend(n, c, "beta"))):
            want = f"--set: {place}: expected at most 37, the number of vertices of dataset {data}, found 38"
            args_of = [w for w in args(38, 3) if w != "--quiet"]
            assert want in command("check", pl, *args_of, "--dataset", data, code=2).stderr
            assert want in p.run(pl, *args(38, 3), data=data, code=2).err
            place = place.replace("partitions", "buffer")
            for buffer in (4, 6):
                want = f"--set: {place}: buffer is {buffer}, and partitions is 4: expected a buffer smaller than partitions: choose a smaller buffer"
                few = [w for w in args(4, buffer) if w != "--quiet"]
                for err in (command("check", pl, *few, "--dataset", data, code=2).stderr, p.run(pl, *args(4, buffer), data=data, code=2).err):
                    assert err.count("partitions is 4") == 1 and want in err, err
            of, few = place.replace("buffer", ""), [w for w in args(6, 2) if w != "--quiet"]
            wrong = [(["ahead=5"], f"--set: {of}ahead: ahead is 5, but partitions is 6 and buffer is 2: expected at most 4: choose a smaller ahead or buffer, or more partitions"),
                     (["order=legend"], f"--set: {of}order: order can be legend only if buffer=3: fulfil this condition, or choose another order")]
            for sets, want in wrong:
                more = [w for one in sets for w in ("--set", of + one)]
                assert command("check", pl, *few, *more, "--dataset", data, code=2).stderr == want + "\n", sets
                assert want in p.run(pl, *few, *more, data=data, code=2).err, sets
                right = [w for one in (*sets, "buffer=3", "ahead=2") for w in ("--set", of + one)]
                command("check", pl, *few, *right, "--dataset", data)
            few = [w for w in args(4, 2) if w != "--quiet"]
            for model, dim, good in (("complex", 7, False), ("rotate", 7, False), ("distmult", 7, True), ("complex", 8, True)):
                of = place.replace("buffer", "")
                more = ["--set", f"{of}dim={dim}", "--set", f"{of}model={model}"]
                err = command("check", pl, *few, *more, "--dataset", data, code=0 if good else 2).stderr
                want = "" if good else f'--set: {of}dim: dim is 7, but with model "{model}" it must be even: choose for example 8, or change model\n'
                assert err == want, (pl, model, err)
            assert p.run(pl, *few, *more[:2], "--set", f"{of}dim=7", data=data, code=2).err.count("it must be even") == 1


@test
def an_id_out_of_range_and_a_loss_that_is_none_are_told():
    with Place() as p:
        data = knowledge_graph(p)
        args = partitioned(4, 2, "beta", 2)
        r = p.run(MARIUS, *args, "--epochs", 1, data=data)
        wild = ["--set", "params.optimizer=sgd", "--set", "params.rate=100", "--set", "params.scale=1000"]
        for pl, more in ((MARIUS, [*args, *wild]), (LEGEND, [*legend(4, 2, "beta", optimizer="sgd"), "--set", "stages.legend.params.rate=100",
                                                             "--set", "stages.legend.params.scale=1000"])):
            err = p.run(pl, *more, "--epochs", 50, data=data, code=1).err
            assert re.search(r"epoch \d+ \(its batch \d+\): the loss is \S+, so training has diverged; lower `rate`", err), err
        triples = np.load(os.path.join(data, "triples_train.npy"), mmap_mode="r+")
        triples[7, 2] = 37
        triples.flush()
        for pl, more in ((MARIUS, args), (LEGEND, legend(4, 2, "beta"))):
            err = p.run(pl, *more, data=data, code=2).err
            assert "triples_train.npy: row 7, column 2: expected 0 to 36, found 37" in err, err


@test
def the_damaged_partition_is_named():
    with Place() as p:
        data, partitions = knowledge_graph(p), 5
        args = partitioned(partitions, 2, "beta", 2)
        r = p.run(MARIUS, *args, "--epochs", 1, data=data)
        extents = tensors(r.run_dir)["extents"].ravel()
        path = os.path.join(r.run_dir, "arrays", "embeddings")
        each = os.path.getsize(path) // (2 * partitions)
        for partition in range(partitions):
            with open(path, "rb") as f:
                whole = f.read()
            begin = (int(extents[partition]) * partitions + partition) * each
            with open(path, "r+b") as f:
                f.seek(begin + 11)
                f.write(bytes([whole[begin + 11] ^ 1]))  # one bit
            err = p.run(MARIUS, *args, "--epochs", 2, "--resume", r.run_dir, "--run-dir", r.run_dir, data=data, code=1).err
            assert f"partition {partition} of {path} is damaged: from byte {begin} on, " in err, err
            with open(path, "r+b") as f:
                f.write(whole)
        p.run(MARIUS, *args, "--epochs", 2, "--resume", r.run_dir, data=data)  # nothing is wrong any more


@test
def a_full_disk_ends_the_run_and_its_last_commit_stays():
    """The array's room is taken at the beginning, so what fails is the next checkpoint."""
    with Place() as p, SmallDisk(p, "tmpfs") as disk:
        data, small = knowledge_graph(p), Place()
        os.rmdir(small.dir)
        small.dir = disk.at
        args, epochs = partitioned(5, 3, "auto", 2), 40
        want = p.run(MARIUS, *args, "--epochs", epochs, data=data).report["weights_digest"]
        running = small.start(MARIUS, *args, "--epochs", epochs, "--set", "stages.disk.params.fault_delay_us=5000", data=data)
        wait_for(lambda: has_checkpoint(running.run_dir))
        disk.fill(0)
        ended = running.wait()
        assert ended.code == 1 and "No space left on device" in ended.err, ended
        assert tensors(running.run_dir)["extents"].size == 5
        disk.fill(64 << 10)  # too little for the array of another run
        err = small.run(MARIUS, *args, "--set", "params.dim=800", data=data, code=1).err
        assert "cannot make" in err and "two versions of 5 partitions" in err and "No space left" in err, err
        disk.free()
        again = p.run(MARIUS, *args, "--epochs", epochs, "--resume", running.run_dir, data=data)  # on another file system
        assert again.report["weights_digest"] == want


if __name__ == "__main__":
    main()
