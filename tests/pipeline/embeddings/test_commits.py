"""Commits within an epoch (checkpoint_swaps), for marius.json with partitions and for legend.json: a run that is struck
between two of them resumes from the last one, in the middle of the epoch, to the bits of a run that nobody disturbed."""
import contextlib
import signal

from crash import *
from embedding import *
from harness import *

EPOCHS = 3
CASES = (("marius", (MARIUS, *partitioned(6, 3, "beta", 3, **{"params.checkpoint_swaps": 2})), "store"),
         ("async", (MARIUS, *partitioned(6, 3, "beta", 3, **{"params.checkpoint_swaps": 2, "params.relations": "async"})), "store"),
         ("ahead", (MARIUS, *partitioned(6, 3, "legend", 2, **{"params.checkpoint_swaps": 1, "params.ahead": 2})), "embedder"),
         ("legend", (LEGEND, *legend(6, 3, "legend", checkpoint_swaps=1)), "legend"))


def checkpoint(run_dir):
    """The newest one's strings, the names of its tensors, and its time; None: there is none."""
    paths = sorted(glob.glob(os.path.join(run_dir, "checkpoints", "*.safetensors")))
    if not paths:
        return None
    try:
        with open(paths[-1], "rb") as f:
            head, when = json.loads(f.read(int.from_bytes(f.read(8), "little"))), os.fstat(f.fileno()).st_mtime_ns
    except FileNotFoundError:  # a newer one has replaced it
        return checkpoint(run_dir)
    return head["__metadata__"], set(head) - {"__metadata__"}, when


def reached(run_dir, least):
    """There is a checkpoint of batch `least` or later, and partitions were written after it."""
    found = checkpoint(run_dir)
    array = os.path.join(run_dir, "arrays", "embeddings")
    return found and int(found[0]["next_batch"]) >= least and os.stat(array).st_mtime_ns > found[2]


def process(running, name):
    """A group has the name of its first stage."""
    pids = processes(running)
    return pids[name] if name in pids else pids["edges"]


def early(run_dir):
    """The newest checkpoint is of the middle of an epoch."""
    return "epoch" in checkpoint(run_dir)[1]


def struck(p, data, args, victim, least=1, epochs=EPOCHS, how=signal.SIGKILL, soon=lambda run_dir: True):
    """The directory of a run whose process got a signal between a checkpoint and the next. A busy machine can be too late:
    then slower drives give it more time."""
    for delay_us in (10_000, 40_000, 160_000):
        running = p.start(args[0], *args[1:], "--set", f"stages.disk.params.fault_delay_us={delay_us}", "--epochs", epochs, data=data)
        wait_for(lambda: running.process.poll() is not None or reached(running.run_dir, least))
        with contextlib.suppress(KeyError, ProcessLookupError):  # it has just ended
            os.kill(process(running, victim), how)
        if running.wait().code != 0 and soon(running.run_dir):
            return running.run_dir
    assert False, f"it ended before batch {least} was seen, or went too far, three times"


def run(p, data, args, *more, epochs=EPOCHS, **options):
    return p.run(args[0], *args[1:], *more, "--epochs", epochs, data=data, **options)


@test
def killed_or_stopped_between_commits_it_resumes_to_the_same_bits():
    with Place() as p:
        data = knowledge_graph(p)
        for name, args, victim in CASES:
            undisturbed, within = run(p, data, args), 0
            want, total = undisturbed.report, int(checkpoint(undisturbed.run_dir)[0]["next_batch"])
            moments = ((1, victim, signal.SIGKILL), (total // 3, "supervisor", signal.SIGINT), (total // 2, victim, signal.SIGKILL))
            for least, whom, how in moments:
                run_dir = struck(p, data, args, whom, least, how=how)
                within += early(run_dir)
                got = run(p, data, args, "--resume", run_dir).report
                assert got["weights_digest"] == want["weights_digest"] and got["test_mrr"] == want["test_mrr"], (name, least)
                losses = {e["epoch"]: (e["loss"], e["edges"]) for e in want["epochs"]}
                assert all(losses[e["epoch"]] == (e["loss"], e["edges"]) for e in got["epochs"]), (name, least)
            assert within > 0, name


@test
def resumed_elsewhere_and_killed_again():
    """Partitions that were not trained yet have no extent: they are generated again."""
    with Place() as p:
        data = knowledge_graph(p)
        name, args, victim = CASES[3]
        want = run(p, data, args, epochs=1).report["weights_digest"]
        run_dir = struck(p, data, args, victim, 1, epochs=1, soon=early)  # the only epoch has not ended
        first = int(checkpoint(run_dir)[0]["next_batch"])
        elsewhere = struck(p, data, (*args, "--resume", run_dir), victim, first + 1, epochs=1)
        for before in (run_dir, elsewhere):
            assert run(p, data, args, "--resume", before, epochs=1).report["weights_digest"] == want


@test
def both_pipelines_commit_after_the_same_swaps():
    """Their bits are the same, and their bytes: each commit writes the buffer, and the partition that leaves next is not written again."""
    with Place() as p:
        data, digests = knowledge_graph(p), {}
        for partitions, buffer, order in ((6, 3, "legend"), (5, 2, "beta")):
            counts = json.loads(command("order", "--kind", order, "--partitions", partitions, "--buffer", buffer, "--json").stdout)["counts"]
            for swaps in (0, 2, 1000):
                commits = EPOCHS * ((counts["swaps"] - 1) // swaps if swaps else 0)
                for args, store in ((partitioned(partitions, buffer, order, 1, **{"params.checkpoint_swaps": swaps}), MARIUS),
                                    (legend(partitions, buffer, order, checkpoint_swaps=swaps), LEGEND)):
                    r = run(p, data, (store, *args)).report
                    digests.setdefault((order, swaps), set()).add(r["weights_digest"])
                    x = r["exchange"]
                    assert x["swaps"] == EPOCHS * counts["swaps"] and r["store"]["checkpoints"] == EPOCHS + commits, (swaps, r)
                    written = EPOCHS * (counts["swaps"] + buffer) + commits * (buffer - 1)
                    assert x["written_bytes"] == written * x["partition_bytes"], (swaps, x, written)
            assert digests[order, 1000] == digests[order, 0], digests  # an epoch has fewer swaps
        assert all(len(x) == 1 for x in digests.values()), digests


@test
def nothing_of_timing_changes_a_bit():
    with Place() as p:
        data = knowledge_graph(p)
        args = CASES[0][1]
        want = run(p, data, args).report["weights_digest"]
        for more in (("params.prefetch=false",), ("params.ahead=0",), ("params.ahead=3",), ("links[2].slots=1",),
                     ("stages.store.params.checkpoint_every=0",), ("stages.disk.params.backend=pread", "stages.disk.params.fault_delay_us=500")):
            got = run(p, data, args, *(w for m in more for w in ("--set", m))).report["weights_digest"]
            assert got == want, more
        assert run(p, data, args, grouped=True).report["weights_digest"] == want


@test
def initial_values_of_another_run_are_those_of_then():
    with Place() as p:
        data = knowledge_graph(p)
        old = p.run(MARIUS, *settings(), "--epochs", 1, data=data).run_dir
        args = (*CASES[0][1], "--init-from", old)
        want = run(p, data, args, epochs=1).report["weights_digest"]
        assert want != run(p, data, CASES[0][1], epochs=1).report["weights_digest"]
        run_dir = struck(p, data, args, "store", 1, epochs=1)
        copy = p.path("copy")
        shutil.copytree(run_dir, copy)
        assert run(p, data, args, "--resume", run_dir, epochs=1).report["weights_digest"] == want
        p.run(MARIUS, *settings(), "--epochs", 2, "--resume", old, "--run-dir", old, data=data)
        err = run(p, data, args, "--resume", copy, epochs=1, code=1).err
        assert "the newest one there is now of batch" in err, err


@test
def what_cannot_be_done_is_told():
    with Place() as p:
        data = knowledge_graph(p)
        err = p.run(MARIUS, *settings(**{"params.checkpoint_swaps": 2}), data=data, code=1).err
        assert "checkpoint_swaps is 2, but with 1 partition" in err, err
        err = run(p, data, CASES[0][1], "--set", "stages.store.params.checkpoint_swaps=3", code=2).err
        assert "must be" in err, err
        # in the first epoch, some partitions were not trained yet
        name, args, victim = CASES[3]
        refused = lambda run_dir: command("export", run_dir, p.path("out"), code=None).stderr
        run_dir = struck(p, data, args, victim, 1, epochs=1, soon=lambda run_dir: refused(run_dir) != "")
        assert "was written in the middle of the first epoch, when partition" in refused(run_dir), refused(run_dir)


if __name__ == "__main__":
    main()
