"""What --force replaces and what it leaves alone; file systems that cannot rename directories; sources that changed."""
import subprocess
import time

import numpy as np
from harness import *
from importing import *


def files(path):
    return {n: open(os.path.join(path, n), "rb").read() for n in os.listdir(path)}


@test
def what_is_not_the_dataset_s_stays():
    """A directory with anything in it that dataset.json does not name is neither replaced nor touched."""
    with Scratch() as s:
        d = s.path("d")
        for name in "temp-notes.txt", "temp-edges.1", "notes", "train_1.npy", "triples_val.npy", "dataset.json.replaced.txt":
            shutil.rmtree(d, ignore_errors=True)
            command("gen", "community", d, "--vertices", 300, "--quiet")
            s.put("d/" + name, "mine")
            before = files(d)
            r = command("gen", "community", d, "--vertices", 400, "--force", "--quiet", code=2)
            assert f"contains '{name}', which is not part of a dataset: choose" in r.stderr, r.stderr
            assert files(d) == before, name
        os.remove(os.path.join(d, "dataset.json.replaced.txt"))
        command("gen", "community", d, "--vertices", 400, "--force", "--quiet")
        assert "dataset.json" in os.listdir(d)
        s.put("d/dataset.json", "{")  # a damaged one can be replaced
        command("gen", "community", d, "--vertices", 300, "--force", "--quiet")
        command("verify", "--quiet", d)
        assert [n for n in os.listdir(s.dir) if n != "d"] == []


class Overlay:
    """A directory whose files lie in a lower layer, as those of a container's image do."""

    def __init__(self, s):
        if os.geteuid() != 0:
            raise Skip("only root can mount overlayfs")
        self.at = s.path("merged")
        self.options = ",".join(f"{k}={s.path(k)}" for k in ("lowerdir", "upperdir", "workdir"))
        for k in "lowerdir", "upperdir", "workdir", "merged":
            os.makedirs(s.path(k), exist_ok=True)

    def __enter__(self):
        made = subprocess.run(["mount", "-t", "overlay", "overlay", "-o", self.options, self.at], capture_output=True, text=True)
        if made.returncode:
            raise Skip(f"cannot mount overlayfs: {made.stderr.strip()}")
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", self.at], check=True)


@test
def datasets_of_a_container_s_image():
    """A directory of a lower layer cannot be renamed (EXDEV): it is replaced file by file, and removed where it is."""
    with Scratch() as s:
        overlay = Overlay(s)
        for name in "a", "b", "c":
            command("gen", "community", s.path("lowerdir/" + name), "--vertices", 300, "--quiet")
        with overlay:
            a = os.path.join(overlay.at, "a")
            command("gen", "community", a, "--vertices", 500, "--seed", 3, "--force", "--quiet")
            command("verify", "--quiet", a)
            with open(os.path.join(a, "dataset.json")) as f:
                assert json.load(f)["vertices"] == 500
            assert sorted(os.listdir(overlay.at)) == ["a", "b", "c"] and "dataset.json.replaced" not in os.listdir(a)
            r = command("rm", os.path.join(overlay.at, "b"))
            assert "removed 8 files" in r.stdout and sorted(os.listdir(overlay.at)) == ["a", "c"]
            # killed in the middle of it: the next --force goes on
            c, command_ = os.path.join(overlay.at, "c"), [PENSTOCK, "gen", "community", os.path.join(overlay.at, "c"), "--vertices", "500", "--seed", "3", "--force", "--quiet"]
            for at in range(2, 9):
                if not shutil.which("strace"):
                    break
                subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"inject=rename:signal=SIGKILL:when={at}", *command_], capture_output=True)
                if "dataset.json" not in os.listdir(c):
                    assert "dataset.json.replaced" in os.listdir(c), os.listdir(c)
                    assert "whose replacement was interrupted" in command("gen", "community", c, "--vertices", 300, code=2).stderr
            command("gen", "community", c, "--vertices", 500, "--seed", 3, "--force", "--quiet")
            command("verify", "--quiet", c)
            assert files(c) == files(a)
            assert sorted(os.listdir(overlay.at)) == ["a", "c"]


# LeakSanitizer does not work in a process that strace traces.
NO_LEAK_CHECK = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


@test
def two_imports_at_once():
    """One of them is first: the other one says so, or replaces it if it may."""
    with Scratch() as s:
        s.put("e.csv", "".join(f"{k},{k + 1}\n" for k in range(2000)))
        for force in False, True:
            shutil.rmtree(s.path("out"), ignore_errors=True)
            args = [PENSTOCK, "import", "csv", s.path("e.csv"), s.path("out"), "--quiet", "--memory", "64MiB"] + ["--force"] * force
            slow = subprocess.Popen(["strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=rename,renameat2:delay_enter=1500000", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=NO_LEAK_CHECK) if shutil.which("strace") else None
            if slow is None:
                raise Skip("strace is not here")
            deadline = time.monotonic() + 20
            while not any(".penstock-partial-" in n and os.path.exists(os.path.join(s.dir, n, "dataset.json")) for n in os.listdir(s.dir)):
                assert time.monotonic() < deadline and slow.poll() is None
                time.sleep(.005)
            command("gen", "community", s.path("out"), "--vertices", 300, "--quiet")
            _, error = slow.communicate(timeout=30)
            if force:
                assert slow.returncode == 0, error
                command("verify", "--quiet", s.path("out"))
                assert len(s.array("indptr")) == 2002
            else:
                assert slow.returncode != 0 and "another process wrote" in error and "already contains a dataset: give --force to replace it" in error, error
                assert len(s.array("indptr")) == 301
            assert not [n for n in os.listdir(s.dir) if ".penstock-" in n], os.listdir(s.dir)


@test
def a_source_that_is_another_file_now():
    """--resume keeps a whole dataset only if its sources are the same files, also if the new one is older than the dataset."""
    with Scratch() as s:
        source, out = s.put("e.csv", "0,1\n1,2\n"), s.path("out")
        os.utime(source, (1577836800, 1577836800))
        command("import", "csv", source, out, "--quiet")
        assert "is already complete" in command("import", "csv", source, out, "--resume", "--quiet").stdout
        s.put("e.csv", "0,1\n1,2\n2,0\n3,1\n")
        os.utime(source, (1609459200, 1609459200))
        r = command("import", "csv", source, out, "--resume", "--quiet", code=2)
        assert "was made by the same command, but the source files have changed since" in r.stderr, r.stderr
        command("import", "csv", source, out, "--resume", "--force", "--quiet")
        assert s.manifest()["edges"] == 4
        os.rename(source, s.path("f.csv"))
        shutil.copy2(s.path("f.csv"), source)  # a copy with the same time is the same source
        assert "is already complete" in command("import", "csv", source, out, "--resume", "--quiet").stdout
        extra = s.put("l.csv", "vertex,label\n0,1\n")
        command("import", "csv", source, s.path("two"), "--labels", extra, "--quiet")
        s.put("l.csv", "vertex,label\n0,2\n1,1\n")
        assert "changed since" in command("import", "csv", source, s.path("two"), "--labels", extra, "--resume", "--quiet", code=2).stderr


@test
def lines_that_look_like_something_else():
    with Scratch() as s:
        s.get("csv", s.put("e", '"0","1"\n"0","2"\n"3",1\n'))
        assert s.rows() == ROWS
        s.get("csv", s.put("e", '"a","b"\n0,1\n0,2\n3,1\n'))
        assert s.rows() == ROWS
        assert "e:2: byte 1: expected an id" in s.get("csv", s.put("e", '0,1\n"2,1\n'), code=2).stderr
        assert "is a zip archive: unpack it" in s.get("csv", s.put("e", b"PK\x03\x04\x14\x00stuff\n1,2\n"), code=2).stderr
        for first in b"ELF\x01,x\n", b"n\x00ame,y\n", b"ab\xff,cd\n", b"word,5\n":
            r = s.get("csv", s.put("e", first + b"0,1\n"), code=2)
            assert "e:1: byte" in r.stderr and "expected an id" in r.stderr, (first, r.stderr)
        os.makedirs(s.path("kg"))
        assert "expected train.txt or train.tsv" in s.get("triples", s.path("kg"), code=2).stderr
        s.put("kg/entity2id.txt", "1\na\t0\n")
        s.put("kg/relation2id.txt", "1\nr\t0\n")
        assert "expected train2id.txt" in s.get("openke", s.path("kg"), code=2).stderr


@test
def inspect_of_triples():
    with Scratch() as s:
        s.put("kg/train.tsv", "a\tr\tb\nb\tq\ta\n")
        s.put("kg/test.tsv", "a\tq\tb\n")
        s.get("triples", s.path("kg"))
        r = command("inspect", s.path("out"))
        assert "relations 2" in r.stdout and "triples: train 2 (66.67 %), val 0 (0.00 %), test 1 (33.33 %)" in r.stdout, r.stdout
        info = json.loads(command("inspect", s.path("out"), "--json").stdout)
        assert info["relations"] == 2 and info["triples"] == {"train": 2, "val": 0, "test": 1}


main()
