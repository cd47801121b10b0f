"""Training: the same seed gives the same result, however the pipeline is arranged; what is copied and read;
resuming; a sampler from outside the tree."""
import signal

from harness import *

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
SMALL = ["--set", "params.batch=128", "--set", "stages.planner.params.cpu_cache=128KiB", "--quiet"]


def train(p, *args, **more):
    args = [str(a) for a in args]
    epochs = [] if "--epochs" in args else ["--epochs", "2"]
    return p.run(HYPERION, *SMALL, *epochs, *args, **more)


def outcome(report):
    return ([e["loss"] for e in report["epochs"]], report["digest"], report["weights_digest"])


def settings(*pairs):
    return [word for pair in pairs for word in ("--set", pair)]


@test
def same_seed_same_bits():
    with Place() as p:
        want = outcome(train(p).report)
        arrangements = {
            "again": [],
            "two samplers": settings("stages.sampler.instances=2"),
            "two disks": settings("stages.disk.instances=2"),
            "capacity 1": settings("links[1].slots=1"),
            "capacity 7, three samplers": settings("links[1].slots=7", "stages.sampler.instances=3"),
            "no cache": settings("stages.planner.params.cpu_cache=0"),
            "all cached": settings("stages.planner.params.cpu_cache=1GiB"),
            "pread": settings("stages.disk.params.backend=pread"),
            "mmap": settings("stages.disk.params.backend=mmap"),
            "depth 1": settings("stages.disk.params.depth=1"),
            "another device": settings('stages.disk.place={"device":"cpu:1"}'),
            "trainer elsewhere": settings('stages.trainer.place={"device":"cpu:1"}'),
        }
        for name, args in arrangements.items():
            assert outcome(train(p, *args).report) == want, name
        if not GROUPED:
            grouped = outcome(train(p, grouped=True).report)
            assert grouped == want, "threads"
        other = outcome(train(p, "--seed", 2).report)
        assert other[0] != want[0] and other[1] != want[1] and other[2] != want[2], "another seed differs"


@test
def split_batches_give_the_same_gradients():
    with Place() as p:
        whole = train(p).report
        for extra in ([], settings("stages.sampler.instances=2", "links[1].slots=1")):
            split = train(p, *settings("stages.sampler.params.margin=0.25"), *extra).report
            assert split["sampler"]["micro_batches"] >= 3 * split["sampler"]["batches"], split["sampler"]
            for a, b in zip(whole["epochs"], split["epochs"]):
                assert abs(a["loss"] - b["loss"]) <= 1e-5 * abs(a["loss"]), (a, b)
        # and a batch that may not be split is refused, before anything starts
        r = train(p, *settings("stages.sampler.params.margin=0.25", "stages.sampler.params.overflow=error"), code=1)
        assert "margin" in r.err, r
        r = train(p, *settings("stages.trainer.params.norm=batch"), code=2)
        assert "whole batches" in r.err, r


@test
def nothing_is_copied_when_rows_are_sectors():
    with Place() as p:
        r = train(p, *settings("stages.planner.params.cpu_cache=0")).report
        assert r["io"]["backend"] in ("file", "pread") and r["io"]["rows"] > 0, r["io"]
        assert r["io"]["copied_bytes"] == 0 and "copies" not in r, r["io"]
        assert r["io"]["row_bytes_wanted"] == r["io"]["rows"] * 512
        # rows that are no sectors must be copied once, and are counted
        odd = p.path("odd")
        command("gen", "community", odd, "--vertices", "2000", "--features", "100", "--seed", "3")
        r = train(p, *settings("stages.planner.params.cpu_cache=0"), data=odd).report
        assert r["io"]["copied_bytes"] == r["io"]["rows"] * 400, r["io"]


@test
def processes_have_pids_of_their_own():
    if GROUPED:
        raise Skip("all stages are threads under ThreadSanitizer")
    with Place() as p:
        r = train(p).report
        pids = {s["pid"] for s in r["stages"].values()}
        assert len(pids) == 4, r["stages"]
        assert r["status"] == "ok" and r["failures"] == [] and r["bound_by"]
        assert r["dataset"]["vertices"] == 2000 and r["dataset"]["feature_bytes"] == 2000 * 512


@test
def faults_never_become_wrong_numbers():
    with Place() as p:
        want = outcome(train(p).report)
        r = train(p, *settings("stages.disk.params.fault_rate=0.05", "stages.disk.params.fault_short_rate=0.05",
                               "stages.disk.params.retries=20")).report
        assert outcome(r) == want and r["io"]["retries"] > 0, r["io"]
        r = train(p, *settings("stages.disk.params.fault_row=17", "stages.planner.params.cpu_cache=0"), code=1)
        assert "vertex 17" in r.err and "features.npy" in r.err, r


@test
def resumed_runs_end_the_same():
    with Place() as p:
        want = outcome(train(p, "--epochs", 4).report)
        first = train(p, "--epochs", 2)
        r = train(p, "--epochs", 4, "--resume", first.run_dir).report
        assert outcome(r)[0] == want[0][2:] and outcome(r)[1:] == want[1:], (outcome(r), want)
        # interrupted in the middle of an epoch, by the user
        run = p.start(HYPERION, *SMALL, "--epochs", 4, *settings("stages.disk.params.fault_delay_us=3000"))
        pattern = os.path.join(run.run_dir, "checkpoints", "*")
        until = time.time() + 60
        while not glob.glob(pattern) and time.time() < until:
            time.sleep(0.02)
        run.process.send_signal(signal.SIGINT)
        stopped = run.wait()
        assert stopped.code == 130 and stopped.report["status"] == "interrupted", stopped
        r = train(p, "--epochs", 4, "--resume", run.run_dir).report
        assert outcome(r)[1:] == want[1:], (outcome(r), want)
        r = train(p, "--epochs", 4, "--resume", run.run_dir, "--seed", 9, code=2)
        assert "--seed 1" in r.err, r


@test
def products_in_bfloat16():
    """Close to float32, with the same bits however the pipeline is arranged, and after --resume."""
    bf16 = [*settings("stages.trainer.params.precision=bf16"), "--epochs", 3]
    with Place() as p:
        r = p.start(HYPERION, *SMALL, "--epochs", 3, *settings("stages.trainer.params.precision=tf32")).wait()
        assert r.code == 2 and "precision can be tf32 only on a GPU, but trainer runs on cpu:0" in r.err, r
        with open("/proc/cpuinfo") as f:
            if "avx512_bf16" not in f.read():
                r = train(p, *bf16, code=2)
                assert "precision can be bf16 only on a GPU or a CPU with AVX512_BF16" in r.err, r
                return
        if SAN:
            os.environ["ONEDNN_MAX_CPU_ISA"] = "ALL"  # the sanitizers' tests exclude what bfloat16 needs
        exact, rounded = train(p, "--epochs", 3).report, train(p, *bf16).report
        want = outcome(rounded)
        assert rounded["weights_digest"] != exact["weights_digest"] and rounded["digest"] == exact["digest"]
        for a, b in zip(exact["epochs"], rounded["epochs"]):
            assert abs(a["loss"] - b["loss"]) < 0.01 * a["loss"] and abs(a["val_accuracy"] - b["val_accuracy"]) <= 0.01, (a, b)
        for arrangement in (settings("stages.trainer.params.threads=1"), settings("stages.sampler.instances=2"), ["--group", "all"]):
            assert outcome(train(p, *bf16, *arrangement, foreign=True).report) == want, arrangement
        for model in ("gcn", "gat"):
            of = settings(f"stages.trainer.params.model={model}", "stages.trainer.params.heads=2")
            a, b = (train(p, *of, *precision).report["epochs"][-1]["loss"] for precision in ([], bf16[:2]))
            assert a != b and abs(a - b) < 0.02 * a, (model, a, b)
        command("convert", p.data, p.path("half"), "--dtype", "bfloat16", "--quiet")
        command("convert", p.path("half"), p.path("wide"), "--dtype", "float32", "--quiet")
        for model in ("graphsage", "gcn", "gat"):  # features in bfloat16 are used as they lie
            of = settings(f"stages.trainer.params.model={model}", "stages.trainer.params.heads=2")
            a, b = (outcome(train(p, *of, *bf16, data=p.path(d)).report) for d in ("half", "wide"))
            assert (a[0], a[2]) == (b[0], b[2]), (model, a, b)  # the digest is that of other bytes
        half = train(p, *bf16[:-1], 1)
        assert train(p, *bf16, "--resume", half.run_dir).report["weights_digest"] == rounded["weights_digest"]
        r = train(p, "--epochs", 3, "--resume", half.run_dir, code=2)
        assert "precision" in r.err, r


@test
def a_plan_can_be_reused():
    with Place() as p:
        first = train(p)
        plan = os.path.join(first.run_dir, "plan", "plan.json")
        r = train(p, "--set", f"stages.planner.params.reuse={plan}")
        assert outcome(r.report) == outcome(first.report)
        r = train(p, "--set", f"stages.planner.params.reuse={plan}", "--set", "params.batch=64", code=1)
        assert "batch" in r.err, r


@test
def deeper_models_and_all_neighbours():
    with Place() as p:
        for args in (settings("params.fanout=[4,3,2]", "stages.trainer.params.layers=3",
                              "stages.trainer.params.norm=layer", "stages.trainer.params.residual=true"),
                     settings("params.fanout=[-1,-1]"), settings("params.replace=true"),
                     settings("stages.trainer.params.norm=batch", "stages.sampler.params.overflow=error")):
            r = train(p, *args).report
            assert r["epochs"][1]["loss"] < r["epochs"][0]["loss"], (args, r["epochs"])


@test
def without_the_graph_it_is_worse():
    with Place() as p:
        graph = train(p, "--epochs", 5).report["test_accuracy"]
        alone = train(p, "--epochs", 5, *settings("params.fanout=[0,0]",
                                                  "stages.trainer.params.aggregate=none")).report["test_accuracy"]
        assert graph - alone > 0.15, (graph, alone)


@test
def a_sampler_in_cpp():
    with Place() as p:
        mine = build_outside(p, "plain.cpp", ("c++", "-std=c++20"))
        r = train(p, *settings(f"stages.sampler.run={mine}")).report
        assert r["weights_digest"] == train(p).report["weights_digest"]
        r = train(p, *settings(f"stages.sampler.run={mine}", "stages.sampler.params.kind=other"), code=1)
        assert "kind: found another than the default" in r.err, r.err


@test
def a_sampler_from_outside_the_tree():
    with Place() as p:
        mine = build_outside(p)
        with open(os.path.join(ROOT, "tests", "pipeline", "outside", "favour.c")) as f:
            rest = f.read().split("a stage of it")[1].splitlines()[1:]
        assert len([line for line in rest if line.strip()]) <= 45
        uniform = train(p).report
        stage = train(p, *settings(f"stages.sampler.run={mine}", "stages.sampler.params.margin=3")).report
        assert stage["status"] == "ok" and stage["digest"] != uniform["digest"]
        assert stage["epochs"][1]["loss"] < stage["epochs"][0]["loss"]
        # as an algorithm it draws the same, and slots are planned for it
        plain = train(p, *settings(f"params.algorithm={mine}"))
        assert plain.report["digest"] == stage["digest"] and "warning" not in plain.err, plain.err


@test
def an_algorithm_is_planned_as_itself():
    with Place() as p:
        mine = build_outside(p)
        # a whole stage of one's own: the planner plans for uniform sampling
        r = train(p, *settings(f"stages.sampler.run={mine}", "stages.sampler.params.margin=1"))
        found = r.report["sampler"]
        assert found["overflows"] * 20 > found["micro_batches"] + found["overflows"], found
        assert "did not fit a slot" in r.err and "margin" in r.err and '"sampler"' in r.err, r.err
        assert "the plan was made for the algorithm uniform, but this stage uses favour" in r.err, r.err
        # the same as an algorithm, drawing still more, with the default margin
        same = settings(f"params.algorithm={mine}", "params.options=extra=15")
        r = train(p, *same)
        assert r.report["sampler"]["overflows"] == 0 and "warning" not in r.err, (r.report["sampler"], r.err)
        # an earlier plan serves only the same algorithm with the same options
        plan = f"stages.planner.params.reuse={r.run_dir}/plan/plan.json"
        r = train(p, *same, *settings(plan, "params.options=extra=14"), code=1)
        assert "options was extra=15 and is now extra=14" in r.err, r.err


@test
def an_algorithm_without_a_formula_for_hotness_is_counted():
    with Place() as p:
        mine = build_outside(p)
        r = train(p, *settings(f"params.algorithm={mine}"))
        assert r.report["planner"]["hotness"] == "presample", r.report["planner"]
        with open(os.path.join(r.run_dir, "logs", "planner.log")) as f:
            assert "the sampling algorithm favour has no formula for hotness: it is counted" in f.read()
        r = train(p, *settings(f"params.algorithm={mine}", "stages.planner.params.hotness=analytic"), code=1)
        assert "the sampling algorithm favour has no function keep_probability" in r.err and 'set hotness to "presample"' in r.err, r.err


@test
def wrong_algorithms_are_refused():
    with Place() as p:
        for args, words in ((["params.algorithm=unifrom"], ['algorithm: unknown algorithm "unifrom"; expected', "uniform", "./mine.so"]),
                            (["params.algorithm=./none.so"], ["cannot load ./none.so"]),
                            (["params.options=extra=1"], ['uniform has no option "extra"'])):
            r = train(p, *settings(*args), code=1)
            assert all(w in r.err for w in words), r.err
        with open(p.path("empty.c"), "w") as f:
            f.write("int nothing;\n")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", p.path("empty.so"), p.path("empty.c")], check=True)
        r = train(p, *settings(f"params.algorithm={p.path('empty.so')}"), code=1)
        assert "the symbol pst_sampling_algorithm is missing" in r.err, r.err


@test
def slots_that_are_too_small_are_reported():
    """Too many samples that do not fit are a warning, which advises a margin; their rows are not read in vain."""
    with Place() as p:
        whole = train(p).report
        r = train(p, *settings("stages.sampler.params.margin=0.4"))
        assert r.report["sampler"]["overflows"] > 0 and r.report["sampler"]["empty_slots"] == 0, r.report["sampler"]
        assert "margin" in r.err and '"sampler"' in r.err, r.err
        read = r.report["io"]["rows"] + r.report["cache"]["hits"]
        assert read == r.report["cache"]["lookups"], (r.report["io"], r.report["cache"])
        assert whole["sampler"]["overflows"] == 0


if __name__ == "__main__":
    main()
