"""--resume: what a resumed run must have in common with the one before, and what may differ."""
from harness import *

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
SMALL = ["--seed", 2, "--set", "params.batch=128"]


def resume(p, run_dir, *args, code=0):
    p.count += 1
    to = p.path(f"resumed{p.count}")
    argv = [PENSTOCK, "run", HYPERION, "--dataset", p.data, *map(str, SMALL), "--epochs", "3", "--resume", run_dir, "--run-dir", to]
    r = Running(argv + [*map(str, args)] + (["--group", "all"] if GROUPED else []), to).wait()
    assert r.code == code, r
    return r


@test
def other_epochs_are_refused_before_the_start():
    with Place() as p:
        first = p.run(HYPERION, *SMALL, "--epochs", 2)
        for change, words in (
                ("params.batch=64", "stages.sampler.params.batch is 64, was 128"),
                ("params.fanout=[5,5]", "stages.sampler.params.fanout is [5,5], was [10,5]"),
                ("stages.sampler.params.shuffle=none", 'stages.sampler.params.shuffle is "none", was "global"'),
                ("params.replace=true", "stages.sampler.params.replace is true, was false"),
                ("stages.trainer.params.dropout=0.25", "stages.trainer.params.dropout is 0.25, was 0.5"),
                ("stages.trainer.params.hidden=32", "stages.trainer.params.hidden is 32, was 64")):
            r = resume(p, first.run_dir, "--set", change, code=2)
            assert "this pipeline would train on other batches than the run to resume" in r.err and words in r.err, r
            assert r.err.count(", was ") == 1 and r.report is None, r
        r = resume(p, first.run_dir, "--set", "params.batch=64", "--set", "stages.trainer.params.dropout=0.25", code=2)
        assert r.err.count(", was ") == 2, r


@test
def what_may_differ():
    with Place() as p:
        first = p.run(HYPERION, *SMALL, "--epochs", 2)
        same = resume(p, first.run_dir)
        assert [e["epoch"] for e in same.report["epochs"]] == [2]
        # none of this changes what an epoch is
        other = resume(p, first.run_dir, "--set", "stages.sampler.instances=2", "--set", "stages.disk.params.backend=pread",
                       "--set", "stages.planner.params.cpu_cache=0", "--set", "links[1].slots=7")
        assert other.report["weights_digest"] == same.report["weights_digest"]
        faster = resume(p, first.run_dir, "--set", "stages.trainer.params.rate=0.02", "--set", "stages.trainer.params.weight_decay=0")
        assert faster.report["weights_digest"] != same.report["weights_digest"]


@test
def the_run_directory_holds_the_whole_pipeline():
    """With overlays, --set and relative paths merged, so that a run can be resumed, checked and inferred from it alone."""
    with Place() as p:
        os.mkdir(p.path("own"))
        os.symlink(os.path.join(BUILD, "lib", "penstock", "stages", "trainer.so"), p.path("own/mine.so"))
        with open(HYPERION) as f:
            whole = json.load(f)
        whole["stages"]["trainer"]["run"] = "./mine.so"
        file = p.write(whole, "own/p.json")
        over = p.write({"name": "over", "params": {"batch": 128, "fanout": [4, 4]}, "links": {"1": {"slots": 5}}}, "over.json")
        args = ["--with", over, "--set", "stages.trainer.params.hidden=32", "--seed", 2]
        first = p.run(file, *args, "--epochs", 2)
        written = os.path.join(first.run_dir, "pipeline.json")
        with open(written) as f:
            got = json.load(f)
        assert got["name"] == "over" and got["seed"] == 2 and got["epochs"] == 2 and got["params"] == {"batch": 128, "fanout": [4, 4]}, got
        assert got["links"][1]["slots"] == 5 and got["stages"]["trainer"]["params"]["hidden"] == 32, got
        assert got["stages"]["trainer"]["run"] == os.path.realpath(p.path("own/mine.so")) and got["dataset"] == p.data, got
        command("check", written)
        to = p.path("resumed")
        argv = [PENSTOCK, "run", written, "--epochs", "3", "--resume", first.run_dir, "--run-dir", to]
        resumed = Running(argv + (["--group", "all"] if GROUPED else []), to, cwd="/").wait()
        assert resumed.code == 0, resumed
        uncut = p.run(file, *args, "--epochs", 3)
        assert [e["epoch"] for e in resumed.report["epochs"]] == [2] and resumed.report["pipeline"] == "over"
        assert resumed.report["weights_digest"] == uncut.report["weights_digest"]
        command("infer", to, "--out", p.path("out.npy"), "--quiet")


if __name__ == "__main__":
    main()
