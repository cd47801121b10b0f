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


@test
def unusual_data_trains_in_partitions():
    """Both pipelines give the same bits, the loss falls, and the ranks are those of a brute force."""
    with Place() as p:
        for name, (train, test, partitions, buffer) in SHAPES.items():
            data = dataset(p, name, train, test)
            r = p.run(MARIUS, *partitioned(partitions, buffer, "auto", 1), "--epochs", 3, data=data)
            other = p.run(LEGEND, *legend(partitions, buffer, "auto"), "--epochs", 3, data=data)
            assert other.report["weights_digest"] == r.report["weights_digest"], name
            losses = [e["loss"] for e in r.report["epochs"]]
            assert losses[-1] < losses[0] and all(e["edges"] == len(train) for e in r.report["epochs"]), (name, losses)
            out = p.path("out " + name)
            command("export", r.run_dir, out, "--quiet")
            got = {t: np.load(os.path.join(out, t + ".npy")) for t in ("vertices", "relations")}
            found = [r.report[f"test_{figure}"] for figure in ("mrr", "hits_1", "hits_3", "hits_10", "mean_rank")]
            assert np.allclose(found, brute_force(data, got, "test", "mean"), rtol=1e-9), (name, found)


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
