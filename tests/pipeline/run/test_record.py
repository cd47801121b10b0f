"""A run records itself: the pipeline file that repeats it, what its report says of it, and the list of runs."""
import datetime
import platform

from crash import *

KEYS = {"run", "started", "status", "pipeline", "dataset", "seed", "epochs", "loss", "metric", "value", "total_s", "bound_by",
        "weights_digest", "commit", "command"}


def run_from(p, *args, cwd, code=0):
    p.count += 1
    to = p.path(f"own{p.count}")
    argv = [str(a) for a in (PENSTOCK, "run", *args, "--run-dir", to)]
    r = Running(argv + (["--group", "all"] if GROUPED else []), to, cwd=cwd).wait()
    assert r.code == code, r
    return r, argv[1:]


def spaced(rows):
    """Rows of a table, as lists of words."""
    return [line.split() for line in rows.splitlines()]


@test
def the_pipeline_of_a_run_repeats_it():
    """Overlays, --set, options, a stage and a dataset named from another directory; the copy is run from /."""
    with Place() as p:
        os.mkdir(p.path("work"))
        os.symlink(p.data, p.path("work/graph"))
        os.symlink(os.path.join(BUILD, "lib", "penstock", "stages", "sampler.so"), p.path("work/mine.so"))
        with open(p.path("work/over.json"), "w") as f:
            json.dump({"params": {"batch": 128, "fanout": [4, 4]}}, f)
        first, _ = run_from(p, HYPERION, "--dataset", "graph", "--with", "over.json", "--set", "stages.trainer.params.hidden=32",
                            "--set", "stages.sampler.run=./mine.so", "--seed", 5, "--epochs", 2, cwd=p.path("work"))
        with open(os.path.join(first.run_dir, "pipeline.json")) as f:
            whole = json.load(f)
        assert whole["seed"] == 5 and whole["epochs"] == 2 and os.path.realpath(whole["dataset"]) == whole["dataset"], whole
        again, _ = run_from(p, os.path.join(first.run_dir, "pipeline.json"), cwd="/")
        for key in ("digest", "weights_digest", "seed", "test_accuracy"):
            assert first.report[key] == again.report[key], (key, first.report[key], again.report[key])
        assert [e["loss"] for e in first.report["epochs"]] == [e["loss"] for e in again.report["epochs"]]
        for name, stage in first.report["stages"].items():
            for key in ("run", "params", "digest", "file"):
                assert stage[key] == again.report["stages"][name][key], (name, key)
        other, _ = run_from(p, os.path.join(first.run_dir, "pipeline.json"), "--seed", 6, cwd="/")
        assert other.report["weights_digest"] != first.report["weights_digest"]


@test
def paths_in_parameters_do_not_depend_on_the_directory():
    """A file of scores, a shared parameter that is a path or a name, drives, and a file that the run writes."""
    with Place() as p:
        os.mkdir(p.path("work"))
        plan = p.run(HYPERION, "--epochs", 1, "--set", "params.batch=256").run_dir
        os.rename(os.path.join(plan, "plan", "hotness.npy"), p.path("work/scores.npy"))
        command("store", p.data, "--to", p.path("work/drive0"), p.path("work/drive1"))
        sets = ["params.batch=256", "stages.planner.params.hotness=file", "stages.planner.params.hotness_file=scores.npy",
                "stages.planner.params.cpu_cache=64KiB", "stages.sampler.params.trace_ids=./ids", "params.algorithm=labor",
                "stages.disk.params.backend=emulated", "stages.disk.params.drives=drive0,./drive1"]
        first, _ = run_from(p, HYPERION, "--dataset", p.data, "--epochs", 2, *[x for s in sets for x in ("--set", s)], cwd=p.path("work"))
        file = os.path.join(first.run_dir, "pipeline.json")
        with open(file) as f:
            whole = json.load(f)
        at = os.path.realpath(p.path("work"))
        assert whole["stages"]["planner"]["params"]["hotness_file"] == at + "/scores.npy"
        assert whole["stages"]["disk"]["params"]["drives"] == f"{at}/drive0,{at}/./drive1"
        assert whole["stages"]["sampler"]["params"]["trace_ids"] == at + "/./ids" and whole["params"]["algorithm"] == "labor"
        os.unlink(p.path("work/ids"))
        again, _ = run_from(p, file, cwd="/")
        assert os.path.exists(p.path("work/ids")) and not os.path.exists("/ids")
        assert [first.report[key] for key in ("digest", "weights_digest")] == [again.report[key] for key in ("digest", "weights_digest")]


@test
def an_algorithm_of_the_user_is_found_again():
    """Its path is relative; the run is resumed from its own file, in another directory."""
    with Place() as p:
        os.mkdir(p.path("work"))
        shutil.copy(build_outside(p), p.path("work/mine.so"))
        first, _ = run_from(p, HYPERION, "--dataset", p.data, "--epochs", 1, "--set", "params.algorithm=./mine.so", "--set", "params.batch=256",
                            cwd=p.path("work"))
        file = os.path.join(first.run_dir, "pipeline.json")
        again, _ = run_from(p, file, cwd="/")
        assert again.report["weights_digest"] == first.report["weights_digest"]
        longer, _ = run_from(p, file, "--resume", first.run_dir, "--epochs", 2, cwd="/")
        assert [e["epoch"] for e in longer.report["epochs"]] == [1], longer.report["epochs"]


@test
def a_file_without_seed_and_epochs_gets_them():
    """So that a later version with other defaults repeats the run, too."""
    with Place() as p:
        with open(HYPERION) as f:
            pl = json.load(f)
        for key in ("seed", "epochs"):
            pl.pop(key, None)
        r = p.run(pl, "--set", "params.batch=256")
        with open(os.path.join(r.run_dir, "pipeline.json")) as f:
            got = json.load(f)
        assert got["seed"] == r.report["seed"] == 1 and got["epochs"] == len(r.report["epochs"]) == 1, got


@test
def the_report_says_what_ran():
    with Place() as p:
        before = datetime.datetime.utcnow().replace(microsecond=0)
        args = ["--dataset", p.data, "--set", "params.batch=256", "--epochs", 1, "--set", "stages.sampler.instances=2",
                HYPERION, "--quiet"]  # getopt moves the file to the end
        r, argv = run_from(p, *args, cwd=p.dir)
        report = r.report
        version = command("--version").stdout.split()
        assert report["schema"] == 1 and report["version"] == version[1], (report["version"], version)
        assert report.get("commit") == (version[2].strip("()") if len(version) > 2 else None)
        assert report["command"][:len(argv) + 1] == ["penstock", *argv] and report["directory"] == os.path.realpath(p.dir)
        assert report["host"]["name"] == platform.node() and report["host"]["kernel"] == platform.release()
        assert report["host"]["cpus"] == os.sysconf("SC_NPROCESSORS_ONLN") and report["host"]["memory_bytes"] > 1 << 28
        started = datetime.datetime.strptime(report["started"], "%Y-%m-%dT%H:%M:%SZ")
        assert before <= started <= datetime.datetime.utcnow(), started
        stages = report["stages"]
        assert stages["sampler.0"]["params"] == stages["sampler.1"]["params"] and stages["sampler.0"]["params"]["batch"] == 256
        described = json.loads(command("stages", "trainer", "--json").stdout)
        assert set(stages["trainer"]["params"]) == {param["name"] for param in described["params"]}
        assert stages["disk"]["file"] == os.path.join(os.path.realpath(BUILD), "lib", "penstock", "stages", "disk.so")
        assert {name: stage["run"] for name, stage in stages.items()} == {"planner": "planner", "sampler.0": "sampler", "sampler.1": "sampler",
                                                                           "disk": "disk", "trainer": "trainer"}


@test
def the_digest_is_of_the_bytes():
    with Place() as p:
        mine = p.path("mine.so")
        shutil.copy(os.path.join(STAGES, "source.so"), mine)
        pl = pipeline({"source": {"run": mine, "params": {"batches": 2}}, "sink": stage("sink")}, links("source.out", "sink.in"))
        first, same = p.run(pl).report["stages"], p.run(pl).report["stages"]
        with open(mine, "ab") as f:
            f.write(b"\0")
        other = p.run(pl).report["stages"]
        assert first["source"]["file"] == mine and len(first["source"]["digest"]) == 16
        assert first["source"]["digest"] == same["source"]["digest"] != other["source"]["digest"]
        assert first["sink"]["digest"] == other["sink"]["digest"] != first["source"]["digest"]


@test
def a_stage_cannot_report_what_the_runtime_says():
    """Its section is refused, and the runtime's own value stays."""
    with Place() as p:
        for key in ("schema", "version", "commit", "started", "command", "directory", "host"):
            pl = pipeline({"source": stage("source", batches=2), "sink": stage("sink", section=key)}, links("source.out", "sink.in"))
            r = p.run(pl, code=1)
            assert f'reported the section "{key}", whose name is reserved' in r.err and "batches" not in str(r.report.get(key)), r


@test
def runs_are_listed():
    with Place() as p:
        os.mkdir(p.path("runs"))
        ok = p.path("runs/ok")
        Running(run_argv(p, ok, "--epochs", "1", "--set", "params.batch=256"), ok).wait()
        failed = p.path("runs/failed")
        Running(run_argv(p, failed, "--set", "stages.disk.params.fault_rate=1", "--set", "stages.disk.params.retries=0",
                         "--set", "stages.planner.params.cpu_cache=0"), failed).wait()
        killed, active = p.path("runs/killed"), p.path("runs/active")
        slow = [*ENDLESS, "--set", "stages.disk.params.fault_delay_us=500000"]
        for at in (killed, active):
            run = Running(run_argv(p, at, *slow), at)
            wait_for(lambda: os.path.exists(os.path.join(at, "live.json")))
            if at == killed:
                run.process.kill()
                run.wait()
        os.mkdir(p.path("runs/notes"))  # not a run
        os.mkfifo(p.path("runs/notes/report.json"))  # nobody will ever write to it
        rows = json.loads(command("runs", "--json", cwd=p.dir).stdout)
        found = {os.path.basename(row["run"]): row for row in rows}
        assert {name: row["status"] for name, row in found.items()} == {"ok": "ok", "failed": "failed", "killed": "killed", "active": "running"}
        assert [row["started"] for row in rows] == sorted(row["started"] for row in rows)
        assert all(set(row) == KEYS for row in rows), rows
        with open(os.path.join(ok, "report.json")) as f:
            report = json.load(f)
        row = found["ok"]
        assert row["metric"] == "test_accuracy" and row["value"] == report["test_accuracy"] and row["command"] == report["command"]
        assert row["loss"] == report["epochs"][-1]["loss"] and row["weights_digest"] == report["weights_digest"]
        assert found["killed"]["pipeline"] == "hyperion" and found["killed"]["dataset"] == os.path.realpath(p.data)
        head, *table = spaced(command("runs", cwd=p.dir).stdout)
        assert head[:4] == ["run", "started", "status", "pipeline"] and [line[0] for line in table] == [row["run"] for row in rows]
        assert f"{report['test_accuracy']:.4f}" in next(line for line in table if line[0] == "runs/ok")
        # a directory of a run, several of them, and one that is not there
        assert [row["run"] for row in json.loads(command("runs", "--json", ok).stdout)] == [ok]
        assert len(spaced(command("runs", ok, failed).stdout)) == 3
        nothing = command("runs", p.path("none"), code=2)
        assert "cannot list" in nothing.stderr and nothing.stdout == ""
        command("stop", active)
        assert run.wait().code in (130, 143)


def run_argv(p, run_dir, *args):
    return [str(a) for a in (PENSTOCK, "run", HYPERION, "--dataset", p.data, "--run-dir", run_dir, *SMALL, *args)]


if __name__ == "__main__":
    main()
