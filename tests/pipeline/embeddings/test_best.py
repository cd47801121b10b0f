"""The best epoch: with `evaluate` epochs, the epoch with the best MRR of the validation edges keeps its checkpoint, and the
result has its test figures, in memory and with partitions, whatever was killed and resumed."""
import signal

from crash import *
from embedding import *
from harness import *

EPOCHS = 8
EVERY, END = {"params.evaluate": "epochs", "params.rate": 0.5}, {"params.evaluate": "end", "params.rate": 0.5}
CASES = (("whole", lambda more: (MARIUS, *settings(3, **more))),
         ("partitions", lambda more: (MARIUS, *partitioned(5, 2, "beta", 3, **more))),
         ("legend", lambda more: (LEGEND, *legend(6, 3, "legend", **{name.split(".")[1]: value for name, value in more.items()}))))


def run(p, data, args, *more, epochs=EPOCHS, **options):
    return p.run(args[0], *args[1:], *more, "--epochs", epochs, data=data, **options)


def exported(p, run_dir, *args):
    out = p.path("out")
    shutil.rmtree(out, ignore_errors=True)
    command("export", run_dir, out, "--quiet", *args)
    return [np.load(os.path.join(out, name + ".npy")) for name in ("vertices", "relations")]


def same(a, b):
    return all((x == y).all() for x, y in zip(a, b))


def best_of(report):
    mrr = [e["val_mrr"] for e in report["epochs"]]
    return mrr.index(max(mrr))


@test
def the_best_epoch_is_kept_and_tested():
    with Place() as p:
        data = knowledge_graph(p)
        for name, args in CASES:
            r = run(p, data, args(EVERY))
            best, last = best_of(r.report), run(p, data, args(END))
            assert 0 < best < EPOCHS - 1, (name, [e["val_mrr"] for e in r.report["epochs"]])
            assert r.report["best_epoch"] == best and r.report["best_val_mrr"] == max(e["val_mrr"] for e in r.report["epochs"])
            assert r.report["weights_digest"] == last.report["weights_digest"] and r.report["final_test_mrr"] == last.report["test_mrr"], name
            assert "best_epoch" not in last.report
            short = run(p, data, args(END), epochs=best + 1)
            for figure in ("test_mrr", "test_hits_10", "test_mean_rank"):
                assert r.report[figure] == short.report[figure], (name, figure)
            assert same(exported(p, r.run_dir), exported(p, short.run_dir)), name
            assert same(exported(p, r.run_dir, "--checkpoint", "last"), exported(p, last.run_dir)), name
            assert not same(exported(p, r.run_dir), exported(p, last.run_dir)), name
            vertex = command("neighbours", r.run_dir, "v3", "--dataset", data).stdout
            assert vertex == command("neighbours", short.run_dir, "v3", "--dataset", data).stdout
            assert vertex != command("neighbours", r.run_dir, "v3", "--dataset", data, "--checkpoint", "last").stdout
        assert "expected best or last" in command("export", r.run_dir, p.path("x"), "--checkpoint", "first", code=2).stderr


@test
def runs_that_go_on_know_it():
    with Place() as p:
        data = knowledge_graph(p)
        for name, args in CASES:
            want = run(p, data, args(EVERY))
            # the second run ends with the best epoch, which the third must not overwrite; all are in one directory
            run_dir = p.path("again-" + name)
            for epochs in (2, best_of(want.report) + 1, EPOCHS):
                argv = [args(EVERY)[0], "--dataset", data, "--run-dir", run_dir, *args(EVERY)[1:], "--epochs", epochs]
                command("run", *argv, *(("--resume", run_dir) if os.path.exists(run_dir) else ()), *(("--group", "all") if GROUPED else ()))
            with open(os.path.join(run_dir, "report.json")) as f:
                got = json.load(f)
            for figure in ("best_epoch", "best_val_mrr", "test_mrr", "final_test_mrr", "weights_digest"):
                assert got[figure] == want.report[figure], (name, figure, got[figure], want.report[figure])
            assert same(exported(p, run_dir), exported(p, want.run_dir)), name
            assert same(exported(p, run_dir, "--checkpoint", "last"), exported(p, want.run_dir, "--checkpoint", "last")), name
            # in another directory, the best epoch stays where it was
            part = run(p, data, args(EVERY), epochs=best_of(want.report) + 1)
            other = run(p, data, args(EVERY), "--resume", part.run_dir)
            assert other.report["test_mrr"] == want.report["test_mrr"] and other.report["weights_digest"] == want.report["weights_digest"]
            assert "belongs to the run that this one was resumed from" in command("export", other.run_dir, p.path("x"), code=2).stderr
            assert same(exported(p, other.run_dir, "--checkpoint", "last"), exported(p, want.run_dir, "--checkpoint", "last")), name
            assert same(exported(p, part.run_dir), exported(p, want.run_dir)), name


@test
def some_epochs_are_evaluated():
    """Every third one, and the last. The others are neither the best nor change the rate, and a resumed run agrees."""
    with Place() as p:
        data = knowledge_graph(p)
        for name, args in CASES:
            sparse = args({**EVERY, "params.eval_every": 3})
            r, every = run(p, data, sparse), run(p, data, args(EVERY))
            values = {e["epoch"]: e["val_mrr"] for e in r.report["epochs"] if "val_mrr" in e}
            assert values == {i: every.report["epochs"][i]["val_mrr"] for i in (2, 5, 7)}, (name, values)
            assert r.report["best_epoch"] == max(values, key=values.get) and r.report["best_val_mrr"] == max(values.values())
            assert r.report["weights_digest"] == every.report["weights_digest"], name
            part = run(p, data, sparse, epochs=3)
            again = run(p, data, sparse, "--resume", part.run_dir).report
            for figure in ("best_epoch", "best_val_mrr", "test_mrr", "final_test_mrr", "weights_digest"):
                assert again[figure] == r.report[figure], (name, figure)
            falling = args({**EVERY, "params.eval_every": 2, "params.schedule": "plateau", "params.patience": 0, "params.factor": 0.5,
                            "params.rate": 4})
            rate, best = 4, 0
            for e in run(p, data, falling).report["epochs"]:
                assert e["rate"] == rate and ("val_mrr" in e) == (e["epoch"] % 2 == 1), (name, e)
                value = e.get("val_mrr", np.inf)
                rate, best = rate / (1 if value > best * (1 + 1e-4) else 2), max(best, e.get("val_mrr", 0))
            assert rate < 4, name


def newest(run_dir):
    """The name of the newest checkpoint."""
    return max(glob.glob(os.path.join(run_dir, "checkpoints", "*.safetensors")), default="")


@test
def killed_runs_keep_it():
    with Place() as p:
        data = knowledge_graph(p)
        args = partitioned(5, 2, "beta", 3, **EVERY)
        want = run(p, data, (MARIUS, *args), epochs=20)
        run_dir, kills = p.path("killed"), 0
        argv = [PENSTOCK, "run", MARIUS, "--dataset", data, "--run-dir", run_dir, *map(str, args), "--epochs", "20",
                "--set", "stages.disk.params.fault_delay_us=2000", *(("--group", "all") if GROUPED else ())]
        for _ in range(3):
            before = newest(run_dir)
            running = Running(argv + (["--resume", run_dir] if before else []), run_dir)
            wait_for(lambda: running.process.poll() is not None or newest(run_dir) != before)
            if running.process.poll() is None:
                running.process.send_signal(signal.SIGKILL)
                kills += 1
            running.wait()
        command(*argv[1:], "--resume", run_dir)
        with open(os.path.join(run_dir, "report.json")) as f:
            got = json.load(f)
        assert kills > 0
        for figure in ("best_epoch", "test_mrr", "final_test_mrr", "weights_digest"):
            assert got[figure] == want.report[figure], (figure, got[figure], want.report[figure])
        assert same(exported(p, run_dir), exported(p, want.run_dir))


if __name__ == "__main__":
    main()
