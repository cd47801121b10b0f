"""What belongs to the user is never touched: directories that were there before a run, and what gc and stop may do."""
import fcntl
import signal
import stat

from crash import *
from embedding import LEGEND, MARIUS, knowledge_graph, legend, partitioned

DEAD = "4194305"  # above every PID
ID = "0123456789abcdef"
ROW = '{"epoch":7,"ended":1.5}\n'  # of an earlier run
NEW_NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


def put(path, text="mine"):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text)
    return path


def epochs_of(run):
    """The rows that a run adds while it is active."""
    with open(os.path.join(run, "epochs.jsonl")) as f:
        return [json.loads(line) for line in f]


def everything(path):
    """Every path below, with what it is: contents, a link's target, a directory."""
    found = {}
    for d, dirs, files in os.walk(path):
        for name in dirs + files:
            full = os.path.join(d, name)
            if os.path.islink(full):
                found[full] = ("link", os.readlink(full))
            elif os.path.isfile(full):
                with open(full, "rb") as f:
                    found[full] = ("file", f.read())
            else:
                found[full] = ("directory",)
    return found


def can(*argv):
    return subprocess.run([*argv, "true"], capture_output=True).returncode == 0


def run_argv(p, run_dir, *args):
    return [str(a) for a in (PENSTOCK, "run", HYPERION, "--dataset", p.data, "--run-dir", run_dir, *SMALL, *args)]


def cut_off(p, run_dir):
    """A run that was killed before its first checkpoint, in this directory."""
    run = Running(run_argv(p, run_dir, *ENDLESS, "--set", "stages.disk.params.fault_delay_us=500000"), run_dir)
    wait_for(lambda: glob.glob(os.path.join(run_dir, "plan", "plan.json")) and os.path.exists(os.path.join(run_dir, "live.json")))
    run.process.kill()
    run.wait()
    no_leftovers()
    assert not has_checkpoint(run_dir)
    return run_dir


def gc(p, *args, code=0, cwd=None):
    return command("gc", *args, code=code, cwd=cwd or p.dir).stdout


def refused(p, run_dir, *words):
    before = everything(run_dir)
    r = subprocess.run(run_argv(p, run_dir), capture_output=True, text=True)
    assert r.returncode == 2 and all(w in r.stderr for w in words), (r.returncode, r.stderr)
    assert everything(run_dir) == before
    return r.stderr


# ---- gc ---------------------------------------------------------------------------------------------

@test
def directories_that_no_run_made_stay():
    with Place() as p:
        put(p.path("thesis/thesis.tex")), put(p.path("thesis/lock"), "")
        put(p.path("dpkg/status")), put(p.path("dpkg/lock"), ""), put(p.path("dpkg/lock-frontend"), "")
        for name, text in (("said", f"{DEAD} {ID}\n"), ("claimed", f"{DEAD} {ID} made 1\n"), ("strange", "made made\n"),
                           ("binary", "\0" * 20), ("long", f"{DEAD} {ID}\n" + "x" * 5000)):
            put(p.path(f"{name}/lock"), text), put(p.path(f"{name}/logs/a.log")), put(p.path(f"{name}/.x.{DEAD}"))
            put(p.path(f"{name}/report.json.{DEAD}.tmp")), put(p.path(f"{name}/activations.csv"))
        os.mkfifo(p.path("fifo")), os.mkdir(p.path("locked")), os.mkfifo(p.path("locked/lock"))
        before = everything(p.dir)
        for args in ((p.dir,), ("--dry-run", p.dir), (), (".",)):
            assert "nothing to remove" in gc(p, *args)
        assert everything(p.dir) == before
        assert command("gc", p.path("none"), code=2).stderr and command("gc", "--wet", code=2).stderr


@test
def what_a_run_made_is_removed_and_what_it_did_not_make_keeps_it():
    with Place() as p:
        os.mkdir(p.path("runs"))
        run = cut_off(p, p.path("runs/a"))
        with open(os.path.join(run, "lock")) as f:
            assert f.read().split()[2:] == ["made", str(os.stat(run).st_ino)]
        put(os.path.join(run, "epochs.jsonl"), ROW), put(os.path.join(run, "stop.json"))
        alone = everything(run)
        assert {os.path.join(run, d) for d in ("logs", "plan", "lock")} <= set(alone)
        for name in ("thesis.tex", "logs/notes.txt", "plan/mine.npy", "checkpoints/mine.safetensors", "mps/x", "other/x", ".hidden"):
            path = put(os.path.join(run, name))
            said = gc(p)
            assert "kept runs/a" in said and name.split("/")[0] in said, said
            assert everything(run).items() >= alone.items() and os.path.exists(path)
            os.unlink(path)
            if os.path.dirname(name) and os.path.join(run, os.path.dirname(name)) not in alone:
                os.rmdir(os.path.dirname(path))
        shutil.copytree(run, p.path("runs/copy"))  # no run made the copy
        os.symlink(run, p.path("runs/link"))
        assert "would remove runs/a\n" in gc(p, "--dry-run") and everything(run) == alone
        assert gc(p) == "removed runs/a\n"
        assert not os.path.exists(run) and os.path.exists(p.path("runs/copy/lock")) and os.path.islink(p.path("runs/link"))


@test
def links_in_a_run_are_not_followed():
    with Place() as p:
        for name in ("logs", "plan", "checkpoints"):
            run = cut_off(p, p.path("runs/a"))
            target = os.path.dirname(put(p.path(f"mine/{name}/x.penstock-partial-{DEAD}")))
            put(p.path(f"mine/{name}/trainer.log"))
            shutil.rmtree(os.path.join(run, name), ignore_errors=True)
            os.symlink(target, os.path.join(run, name))
            before = everything(p.dir)
            assert "kept runs/a" in gc(p)
            assert everything(p.dir) == before
            shutil.rmtree(run)
        run = cut_off(p, p.path("away"))
        os.symlink(run, p.path("runs/link"))
        assert "nothing to remove" in gc(p) and os.path.exists(run)


@test
def other_mounts_are_not_entered():
    if not can("unshare", "--mount"):
        raise Skip("no private mount namespace")
    with Place() as p:
        run = cut_off(p, p.path("runs/a"))
        precious = os.path.dirname(put(p.path("precious/trainer.log")))
        put(p.path("precious/lock"), f"{DEAD} {ID}\n")
        for at in (os.path.join(run, "logs"), run, p.path("runs/data.penstock-partial-" + DEAD), p.path("runs/b")):
            os.makedirs(at, exist_ok=True)
            before = everything(p.dir)
            script = 'mount --bind "$1" "$2" && cd "$3" && exec "$4" gc'
            r = subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", precious, at, p.dir, PENSTOCK], capture_output=True, text=True)
            assert r.returncode == 0, r.stderr
            after = everything(p.dir)
            gone = set(before) - set(after)
            # the mount has hidden what is there; what is beside it may go
            assert after[p.path("precious/trainer.log")] == before[p.path("precious/trainer.log")] and not any(
                path.startswith(at) for path in gone), (at, r.stdout, gone)
            if at.startswith(run):
                assert not gone, gone


@test
def a_lock_that_somebody_holds_is_held():
    with Place() as p:
        run = cut_off(p, p.path("runs/a"))
        holder = "import fcntl,sys,time;f=open(sys.argv[1],'r+');fcntl.%s;print(flush=True);time.sleep(60)"
        for call in ("flock(f,fcntl.LOCK_EX)", "flock(f,fcntl.LOCK_SH)", "lockf(f,fcntl.LOCK_EX)"):
            with subprocess.Popen([sys.executable, "-c", holder % call, os.path.join(run, "lock")], stdout=subprocess.PIPE) as other:
                other.stdout.readline()
                assert "nothing to remove" in gc(p), call
                assert "still active" in refused(p, run)
                other.kill()
        assert "removed runs/a" in gc(p)


def gc_knows_the_files_of(p, data, *args):
    run = p.path("runs/a")
    command("run", *args, "--dataset", data, "--run-dir", run, "--trace", p.path("t.json"), "--report", p.path("r.json"))
    assert "nothing to remove" in gc(p)  # a run that has ended
    os.unlink(os.path.join(run, "report.json"))
    assert "nothing to remove" in gc(p)  # a run that can be resumed
    for path in glob.glob(os.path.join(run, "checkpoints", "*")):
        os.unlink(path)
    written = os.listdir(run)
    assert gc(p) == "removed runs/a\n" and not os.path.exists(run), written
    return written


@test
def gc_knows_every_file_that_a_run_writes():
    with Place() as p:
        kg = knowledge_graph(p)
        with open(HYPERION) as f:
            renamed = put(p.path("renamed.json"), f.read().replace('"planner":', '"other":').replace("planner.plan", "other.plan"))
        assert "plan" in gc_knows_the_files_of(p, p.data, HYPERION, *SMALL)
        assert "plan-other" in gc_knows_the_files_of(p, p.data, renamed, "--epochs", 1, "--quiet")
        assert {"arrays", "buckets.safetensors"} <= set(gc_knows_the_files_of(p, kg, MARIUS, *partitioned(), "--epochs", 2))
        assert {"arrays", "buckets.safetensors"} <= set(gc_knows_the_files_of(p, kg, LEGEND, *legend(4, 2, "beta"), "--epochs", 2))


@test
def gc_keeps_arrays_of_the_user():
    """A run that was killed before its first checkpoint, and a file of the user beside the run's own."""
    with Place() as p:
        run = cut_off(p, p.path("runs/a"))
        mine = put(os.path.join(run, "arrays", "thesis.npy"))
        ours = put(os.path.join(run, "arrays", "embeddings"))
        said = gc(p)
        assert "kept runs/a" in said and "arrays/thesis.npy" in said and os.path.exists(mine) and os.path.exists(ours), said
        os.unlink(mine)
        assert gc(p) == "removed runs/a\n"


@test
def a_build_in_another_pid_namespace_goes_on():
    if not can(*NEW_NAMESPACE):
        raise Skip("no private PID namespace")
    with Place() as p:
        argv = [PENSTOCK, "gen", "rmat", p.path("big"), "--vertices", "100000", "--edges", "1500000", "--quiet"]
        for prefix in ([], NEW_NAMESPACE):
            build = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
            wait_for(lambda: glob.glob(p.path("big.penstock-partial-*/*")))
            os.kill(build.pid, signal.SIGSTOP)  # it is still there when gc looks
            r = subprocess.run([*prefix, PENSTOCK, "gc", p.dir], capture_output=True, text=True)
            os.kill(build.pid, signal.SIGCONT)
            assert "nothing to remove" in r.stdout, (r.stdout, r.stderr)
            _, err = build.communicate(timeout=120)
            assert build.returncode == 0, err
            shutil.rmtree(p.path("big"))
        build = subprocess.Popen(argv)
        wait_for(lambda: glob.glob(p.path("big.penstock-partial-*/*")))
        build.kill(), build.wait()
        partial = glob.glob(p.path("big.penstock-partial-*"))[0]
        thesis = put(os.path.join(partial, "thesis.tex"))
        assert "kept " + partial in gc(p, p.dir) and os.path.exists(thesis)
        os.unlink(thesis)
        assert gc(p, p.dir) == f"removed {partial}\n" and not os.path.exists(partial)


# ---- run --run-dir ----------------------------------------------------------------------------------

@test
def a_directory_that_was_there_keeps_what_it_had():
    with Place() as p:
        mine = [put(p.path(f"proj/{name}")) for name in ("thesis.tex", "activations.csv", "src/.hidden", "a.part", "src/report.json",
                                                         f"report.json.{DEAD}.tmp", "penstock-partial-1")]
        before = everything(p.path("proj"))
        cut_off(p, p.path("proj"))
        assert "nothing to remove" in gc(p, p.dir)
        assert everything(p.path("proj")).items() >= before.items()
        put(p.path("proj/epochs.jsonl"), ROW)  # of the run that was killed
        r = Running(run_argv(p, p.path("proj")), p.path("proj")).wait()
        assert r.code == 0 and [row["epoch"] for row in epochs_of(p.path("proj"))] == list(range(EPOCHS)), r
        assert "nothing to remove" in gc(p, p.dir) and all(map(os.path.exists, mine))
        assert everything(p.path("proj")).items() >= before.items()


@test
def what_a_run_would_replace_is_refused():
    with Place() as p:
        for name in ("report.json", "live.json", "pipeline.json", "epochs.jsonl", "stop.json", "logs/trainer.log", "plan/.hidden", "plan/plan.json", "checkpoints/a.safetensors.part",
                     "trace/x.json", "mps/control"):
            put(p.path("w/" + name)), put(p.path("w/thesis.tex"))
            refused(p, p.path("w"), "was not made by a run", f"'{name.split('/')[0]}'")
            shutil.rmtree(p.path("w"))
        for text in ("my lock", "1", f"{DEAD} {ID} made\n", f"{DEAD} {ID} made 7 8\n", "0 " + ID):
            put(p.path("w/lock"), text)
            refused(p, p.path("w"), "is not the lock of a run")
        os.unlink(p.path("w/lock"))
        os.symlink(put(p.path("elsewhere")), p.path("w/lock"))
        refused(p, p.path("w"), "lock")
        refused(p, p.data, "is a dataset")
        run = cut_off(p, p.path("proj"))
        put(os.path.join(run, "report.json"))
        said = subprocess.run(run_argv(p, run), capture_output=True, text=True)
        assert said.returncode == 2 and "report.json was not written by a run" in said.stderr and os.path.exists(os.path.join(run, "report.json"))
        os.rename(os.path.join(run, "report.json"), os.path.join(run, "epochs.jsonl"))
        said = subprocess.run(run_argv(p, run), capture_output=True, text=True)
        assert said.returncode == 2 and "epochs.jsonl was not written by a run" in said.stderr and os.path.exists(os.path.join(run, "epochs.jsonl"))
        command("verify", "--quiet", p.data)


@test
def only_temporary_names_of_the_dead_are_swept():
    with Place() as p:
        run = Running(run_argv(p, p.path("runs/a")), p.path("runs/a")).wait().run_dir
        dead = [put(os.path.join(run, f"{name}.penstock-partial-{n}")) for name, n in (("live.json", DEAD), ("report.json", 1),
                ("plan/cache.npy", os.getpid()), ("checkpoints/00000099.safetensors", DEAD))]
        mine = [put(os.path.join(run, name)) for name in ("a.part", ".hidden", "plan/.hidden", "activations.csv", "report.json.1.tmp",
                "checkpoints/a.safetensors.part", "checkpoints/b.penstock-old-1")]
        with open(put(os.path.join(run, "plan/plan.json.penstock-partial-2"))) as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert gc(p, "--dry-run") == "would remove 4 partial files in runs/a\n"
            assert all(map(os.path.exists, dead))
            assert gc(p) == "removed 4 partial files in runs/a\n"
            for path in dead:
                put(path)
            r = Running(run_argv(p, run, "--epochs", EPOCHS + 1, "--resume", run), run).wait()
            assert r.code == 0 and [row["epoch"] for row in epochs_of(run)] == list(range(EPOCHS + 1)), r
            assert not any(map(os.path.exists, dead)) and all(map(os.path.exists, mine)) and os.path.exists(held.name)


@test
def parents_are_made():
    with Place() as p:
        os.rename(p.data, p.path("moved"))
        command("gen", "community", p.path("a/b/data"), "--vertices", 300, "--quiet")
        command("export", p.path("a/b/data"), p.path("c/d/text"), "--quiet")
        command("import", "npy", p.path("c/d/text"), p.path("e/f/data"), "--quiet")
        r = subprocess.run([PENSTOCK, "run", HYPERION, "--dataset", p.path("moved"), "--run-dir", "g/h/run", *map(str, SMALL)], cwd=p.dir,
                           capture_output=True, text=True)
        assert r.returncode == 0 and os.path.exists(p.path("g/h/run/report.json")), r.stderr


@test
def the_next_export_and_infer_remove_what_killed_ones_left():
    with Place() as p:
        run = Running(run_argv(p, p.path("run")), p.path("run")).wait().run_dir
        half = [put(p.path(f"out.{what}npy.penstock-partial-{DEAD}")) for what in ("", "classes.")]
        other = [put(p.path(f"other.npy.penstock-partial-{DEAD}")), put(p.path("out.npy.part"))]
        command("infer", run, "--out", p.path("out.npy"), "--quiet")
        assert not any(map(os.path.exists, half)) and all(map(os.path.exists, other))
        put(p.path(f"text.penstock-partial-{DEAD}/edges.csv")), put(p.path(f"text.penstock-partial-1/edges.npy"))
        mine = [put(p.path("text.penstock-partial-2/thesis.tex")), put(p.path("other.penstock-partial-1/edges.npy"))]
        command("export", p.data, p.path("text"), "--format", "csv", "--quiet")
        assert sorted(n for n in os.listdir(p.dir) if n.startswith("text")) == ["text", "text.penstock-partial-2"]
        assert all(map(os.path.exists, mine))
        argv = [PENSTOCK, "export", p.data, p.path("npy"), "--quiet"]
        for _ in range(20):  # killed for good
            export = subprocess.Popen(argv)
            wait_for(lambda: glob.glob(p.path("npy*")))
            export.kill(), export.wait()
            if not os.path.exists(p.path("npy")):
                break
            shutil.rmtree(p.path("npy"))
        assert glob.glob(p.path("npy.penstock-partial-*"))
        subprocess.run(argv, check=True)
        assert not glob.glob(p.path("npy.penstock-partial-*")) and os.path.exists(p.path("npy/edges.npy"))


# ---- stop -------------------------------------------------------------------------------------------

@test
def only_the_holder_of_the_lock_is_stopped():
    with Place() as p:
        with subprocess.Popen(["sleep", "60"]) as sleep:
            lock = put(p.path("s/lock"), f"{sleep.pid} {ID}\n")
            r = command("stop", p.path("s"), code=2)
            assert "no run is active" in r.stderr
            with open(lock) as held:  # this test holds it, and is no run
                fcntl.flock(held, fcntl.LOCK_EX)
                r = command("stop", p.path("s"), code=1)
                assert f"process {os.getpid()} holds the lock" in r.stderr, r.stderr
            assert sleep.poll() is None
            sleep.kill()


@test
def a_run_in_another_pid_namespace():
    """It is seen from outside, and stopped; from a sibling it is not seen, and nobody else is sent a signal."""
    if not can(*NEW_NAMESPACE):
        raise Skip("no private PID namespace")
    with Place() as p:
        run_dir = p.path("run")
        run = Running([*NEW_NAMESPACE, *run_argv(p, run_dir, *ENDLESS)], run_dir)
        wait_for(lambda: has_checkpoint(run_dir))
        with open(os.path.join(run_dir, "lock")) as f:
            inside = f.read().split()[0]
        # a sibling in which processes with all the small numbers sleep
        script = 'for i in 1 2 3 4 5 6 7 8 9; do sleep 60 & done; "$1" stop "$2"; echo "$? $(jobs -r | wc -l)"; kill $(jobs -p)'
        r = subprocess.run([*NEW_NAMESPACE, "bash", "-c", script, "sh", PENSTOCK, run_dir], capture_output=True, text=True)
        assert r.stdout.split() == ["1", "9"], (r.stdout, r.stderr)
        assert "another container" in r.stderr and f"SIGTERM to process {inside} there" in r.stderr, r.stderr
        assert run.process.poll() is None
        command("stop", run_dir)
        assert run.wait().report["status"] == "interrupted"


# ---- reports ----------------------------------------------------------------------------------------

def report_to(p, name, **more):
    argv = run_argv(p, p.path("run" + name.replace("/", "_")), "--report", name)
    return subprocess.run(argv, capture_output=True, text=True, cwd=p.dir, **more)


def is_report(text):
    return json.loads(text)["status"] == "ok"


@test
def reports_go_through_what_is_no_file():
    with Place() as p:
        os.mkfifo(p.path("fifo"))
        with subprocess.Popen(["cat", p.path("fifo")], stdout=subprocess.PIPE, text=True) as cat:
            assert report_to(p, "fifo").returncode == 0
            assert is_report(cat.communicate(timeout=60)[0]) and stat.S_ISFIFO(os.lstat(p.path("fifo")).st_mode)
        os.mkfifo(p.path("unread"))
        r = report_to(p, "unread")
        assert r.returncode == 1 and "is a pipe without a reader: start its reader first" in r.stderr, r.stderr
        put(p.path("target"), "old"), os.symlink("target", p.path("link"))
        assert report_to(p, "link").returncode == 0
        with open(p.path("target")) as f:
            assert is_report(f.read()) and os.readlink(p.path("link")) == "target"
        os.symlink("nowhere-yet", p.path("dangling"))
        assert report_to(p, "dangling").returncode == 0 and os.path.islink(p.path("dangling")) and os.path.isfile(p.path("nowhere-yet"))
        for name in ("/dev/stdout", "/dev/fd/1"):
            r = report_to(p, name)
            assert r.returncode == 0 and is_report(r.stdout[:r.stdout.rindex("\n}") + 2]), (name, r.stdout)
        r = report_to(p, "-")
        assert is_report(r.stdout) and "bound by" in r.stderr  # the table makes way
        with open(p.path("out"), "w") as out:  # a shell's >out
            out.write("before\n"), out.flush()
            subprocess.run(run_argv(p, p.path("runo"), "--report", "/dev/stdout"), stdout=out, stderr=subprocess.DEVNULL, check=True)
        with open(p.path("out")) as f:
            assert f.read().startswith("before\n{")
        try:
            os.mknod(p.path("null"), 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        except PermissionError:
            return
        try:
            with open(p.path("null"), "w"):
                pass
        except PermissionError:
            return  # mounted with nodev
        assert report_to(p, "null").returncode == 0 and stat.S_ISCHR(os.lstat(p.path("null")).st_mode)
        run = p.path("runnull")
        command("infer", run, "--out", p.path("e.npy"), "--quiet", "--report", p.path("null"))
        assert stat.S_ISCHR(os.lstat(p.path("null")).st_mode)


@test
def a_report_that_cannot_be_written_is_told_first():
    with Place() as p:
        p.data
        os.mkdir(p.path("folder"))
        for name, words in (("no/such/report.json", "cannot write to the directory no/such"), ("folder", "is not a regular file, a pipe or a terminal"),
                            ("/dev/fd/77", "descriptor 77 is not open")):
            for option in ("--report", "--trace")[:1 if name.startswith("/dev") else 2]:
                r = subprocess.run(run_argv(p, p.path("never"), option, name), capture_output=True, text=True, cwd=p.dir)
                assert r.returncode == 2 and words in r.stderr and not os.path.exists(p.path("never")), (name, r.stderr)


if __name__ == "__main__":
    main()
