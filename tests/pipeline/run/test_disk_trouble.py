"""Disks that are full, files that cannot be read or that change: each is told, and no number is wrong."""
from crash import *
from small_disk import SmallDisk

TRAIN = ["--set", "params.batch=128", "--set", "stages.planner.params.cpu_cache=128KiB", "--quiet"]
OTHER = 65534


def run_in(p, run_dir, *args, data=None, code=0):
    argv = [PENSTOCK, "run", HYPERION, "--dataset", data or p.data, *TRAIN, "--run-dir", run_dir, *map(str, args)]
    argv += ["--group", "all"] if GROUPED else []
    r = Running(argv, run_dir).wait()
    assert code is None or r.code == code, f"expected exit code {code}: {r}"
    return r


def full_disk(kind):
    with Place() as p:
        p.data
        want = outcome(run_in(p, p.path("calm"), "--epochs", 4).report)
        half = run_in(p, p.path("half"), "--epochs", 2).run_dir
        with SmallDisk(p, kind) as disk:
            run_dir, failed, whole = os.path.join(disk.at, "run"), 0, 0
            for leave in (0, 4096, 20000, 60000, 120000, 250000, 500000):
                shutil.rmtree(run_dir, ignore_errors=True)
                disk.free()
                shutil.copytree(half, run_dir)
                disk.fill(leave)
                r = run_in(p, run_dir, "--epochs", 4, "--resume", run_dir, code=None)
                assert r.code in (0, 1), r
                failed += r.code
                whole += r.code == 0
                if r.code:
                    assert "No space left on device" in r.err and disk.at in r.err, r
                assert half_files(run_dir) == [], half_files(run_dir)
                if r.report:  # where there was room for one, it is whole
                    assert r.report["status"] == ("failed" if r.code else "ok") or "report" in r.err, r
                disk.free()
                again = run_in(p, run_dir, "--epochs", 4, "--resume", run_dir)
                assert "warning" not in again.err, again  # no torn checkpoint
                assert outcome(again.report) == want, again
                no_leftovers()
            assert failed >= 2 and whole >= 1, (failed, whole)
            shutil.rmtree(run_dir)
            disk.fill(0)
            r = run_in(p, run_dir, "--epochs", 1, code=1)  # and from the first step on
            assert "No space left on device" in r.err, r


@test
def a_full_memory_disk():
    full_disk("tmpfs")


@test
def a_full_loop_mounted_disk():
    full_disk("ext4")


@test
def torn_checkpoints_are_passed_over():
    with Place() as p:
        want = outcome(run_in(p, p.path("calm"), "--epochs", 4).report)
        for tear in (lambda f, n: f.truncate(n // 2), lambda f, n: f.truncate(0), lambda f, n: f.truncate(n - 1),
                     lambda f, n: (f.seek(n // 2), f.write(b"?"))):
            first = run_in(p, p.path("torn"), "--epochs", 3)
            files = sorted(glob.glob(os.path.join(first.run_dir, "checkpoints", "*")))
            with open(files[-1], "r+b") as f:
                tear(f, os.path.getsize(files[-1]))
            r = run_in(p, first.run_dir, "--epochs", 4, "--resume", first.run_dir)
            assert "warning" in r.err and files[-1] in r.err and f"resumed from {files[-2]}" in r.err, r
            assert outcome(r.report) == want
            shutil.rmtree(first.run_dir)
        first = run_in(p, p.path("torn"), "--epochs", 2)
        for path in glob.glob(os.path.join(first.run_dir, "checkpoints", "*")):
            with open(path, "r+b") as f:
                f.truncate(100)
        r = run_in(p, first.run_dir, "--epochs", 4, "--resume", first.run_dir, code=2)
        assert "cannot resume" in r.err, r
        # another run's checkpoints are not mixed with this one's
        r = run_in(p, p.path("calm"), "--epochs", 4, code=2)
        assert "contains checkpoints of an earlier run: resume it with --resume" in r.err and "--resume" in r.err, r


def copy_of(p, name):
    path = p.path(name)
    shutil.copytree(p.data, path)
    return path


@test
def files_that_cannot_be_read():
    with Place() as p:
        for name in ("features.npy", "indices.npy", "labels.npy", "dataset.json"):
            data = copy_of(p, "without-" + name)
            os.unlink(os.path.join(data, name))
            r = run_in(p, p.path("r"), "--epochs", 1, data=data, code=2)
            assert name in r.err and not os.path.exists(p.path("r")), r
            os.mkdir(os.path.join(data, name))
            r = run_in(p, p.path("r"), "--epochs", 1, data=data, code=2)
            assert name in r.err and not os.path.exists(p.path("r")), r
        if os.geteuid() != 0 or not shutil.which("setpriv"):
            return
        if not reached_by_others(PENSTOCK):
            raise Skip("a folder above the clone is closed to other users, so the part as another user was left out")
        data = copy_of(p, "locked")
        os.chmod(p.dir, 0o755)
        os.chmod(os.path.join(data, "features.npy"), 0)
        mine = p.path("other")
        os.mkdir(mine)
        os.chown(mine, OTHER, OTHER)
        r = subprocess.run(["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups", PENSTOCK, "run", HYPERION,
                            "--dataset", data, "--run-dir", os.path.join(mine, "r")], capture_output=True, text=True)
        assert r.returncode == 2 and "features.npy" in r.stderr and "Permission denied" in r.stderr, r


@test
def files_that_change_during_the_run():
    changes = {
        "features.npy": lambda f: os.truncate(f, os.path.getsize(f) // 2),
        "indices.npy": lambda f: os.truncate(f, 8192),
        "labels.npy": lambda f: os.truncate(f, os.path.getsize(f) - 8),  # within a page: it reads as zeros there
        "indptr.npy": lambda f: os.utime(f),
        "split-train.npy": os.unlink,
    }
    with Place() as p:
        names = os.listdir(p.data)
        for name, change in changes.items():
            if name not in names:
                name = next(n for n in names if "train" in n)
            data = copy_of(p, "changed-" + name)
            run_dir = p.path("run-" + name)
            argv = [PENSTOCK, "run", HYPERION, "--dataset", data, *map(str, SMALL + ENDLESS), "--run-dir", run_dir]
            argv += ["--group", "all"] if GROUPED else []
            run = Running(argv, run_dir)
            wait_for(lambda: has_checkpoint(run_dir))
            change(os.path.join(data, name))
            r = run.wait(20)
            assert r.code == 1 and name in r.err, r
            assert r.report["status"] == "failed" and r.report["failures"], r
            no_leftovers()


@test
def a_mapped_file_that_shrinks_is_named():
    """The signal that a process gets names no file; its log does."""
    if SAN == "tsan":
        raise Skip("it has a way of its own with signals")
    with Place() as p:
        data = copy_of(p, "data2")
        run_dir = p.path("run")
        argv = [PENSTOCK, "run", HYPERION, "--dataset", data, *map(str, SMALL + ENDLESS), "--run-dir", run_dir]
        for _ in range(5):  # which of the two is seen first is chance
            run = Running(argv, run_dir)
            wait_for(lambda: has_checkpoint(run_dir))
            os.truncate(os.path.join(data, "indices.npy"), 4096)
            r = run.wait(20)
            assert r.code == 1 and "indices.npy" in r.err, r
            with open(os.path.join(run_dir, "logs", "sampler.log")) as f:
                text = f.read()
            if "Bus error" in r.err:
                assert "cannot read" in r.err and "indices.npy at byte" in r.err, r
                return
            if "indices.npy at byte" in text:
                return
            shutil.rmtree(run_dir)
            shutil.rmtree(data)
            copy_of(p, "data2")
        raise AssertionError(f"no bus error in five runs\n{r}\n{text}")


if __name__ == "__main__":
    main()
