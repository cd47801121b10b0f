"""penstock rm: a dataset goes with all of its files, wherever they are, and nothing else does; and what gen puts elsewhere."""
from harness import *


def disks(p, n=2):
    dirs = [p.path(f"ssd{k}") for k in range(n)]
    for d in dirs:
        os.makedirs(d, exist_ok=True)
    return dirs


def made(p, name="data", *args, far=True):
    where = ["--stripes", 3, "--stripe-dirs", ",".join(disks(p))] if far else []
    command("gen", "community", p.path(name), "--vertices", 300, "--quiet", "--force", *where, *args)
    return p.path(name)


def everything(p):
    """Every path below the place, and what links say."""
    return sorted((os.path.join(d, n), os.path.islink(os.path.join(d, n)) and os.readlink(os.path.join(d, n)))
                  for d, dirs, files in os.walk(p.dir) for n in dirs + files)


def manifest(data):
    with open(os.path.join(data, "dataset.json")) as f:
        return json.load(f)


def put_manifest(data, m):
    with open(os.path.join(data, "dataset.json"), "w") as f:
        f.write(m if isinstance(m, str) else json.dumps(m))


@test
def gen_makes_stripes_where_it_is_told():
    with Place() as p:
        whole, data = made(p, "whole", far=False), made(p)
        assert [len(os.listdir(d)) for d in disks(p)] == [2, 1] and len(manifest(data)["stripes"]) == 3
        command("verify", "--quiet", data)
        command("convert", data, p.path("one"), "--stripes", 1, "--quiet")
        assert manifest(p.path("one")) == manifest(whole)
        command("gen", "rmat", p.path("r"), "--vertices", 100, "--edges", 200, "--stripes", 2, "--quiet")
        command("gen", "rmat", p.path("r1"), "--vertices", 100, "--edges", 200, "--quiet")
        command("convert", p.path("r"), p.path("r"), "--stripes", 1, "--force", "--quiet")
        assert manifest(p.path("r")) == manifest(p.path("r1"))
        for args, words in ((["--stripes", 17], "from 1 to 16"), (["--stripe-dirs", disks(p)[0]], "--stripe-dirs requires several stripes: give --stripes 2 or more, or"),
                            (["--stripe-dirs", p.path("none")], "--stripe-dirs: " + p.path("none")), (["--stripes", 2, "--features", 0], "the graph has no features")):
            r = command("gen", "community", p.path("no"), *args, code=None)
            assert r.returncode in (1, 2) and words in r.stderr and not os.path.exists(p.path("no")), r.stderr


@test
def all_of_it_goes_and_nothing_else():
    with Place() as p:
        other = made(p, "other")
        before = everything(p)
        for name in ("data", "data/"):
            made(p)
            said = command("rm", "--dry-run", p.path(name)).stdout
            listed = [line.split(" ", 2)[2] for line in said.splitlines() if line.startswith("would remove /")]
            mine = [path for path, _ in everything(p) if (path, _) not in before and path != p.path("data")]
            assert sorted(listed) == sorted(mine) and listed[-1].endswith("dataset.json"), (listed, mine)
            r = command("rm", p.path(name))
            assert f"removed {len(mine)} files" in r.stdout and everything(p) == before, r.stdout
        command("verify", "--quiet", other)
        # what links of other kinds point to stays
        command("export", other, p.path("x"), "--quiet")
        command("import", "npy", p.path("x"), p.path("linked"), "--link", "--quiet")
        made(p)
        moved = os.path.realpath(p.path("data/features.1.npy"))
        os.rename(moved, p.path("mine.npy"))
        os.remove(p.path("data/features.1.npy"))
        os.symlink(p.path("mine.npy"), p.path("data/features.1.npy"))
        command("rm", p.path("linked"))
        command("rm", p.path("data"))
        assert os.path.exists(p.path("x/feat.npy")) and os.path.exists(p.path("mine.npy"))
        command("rm", other)
        assert [os.listdir(d) for d in disks(p)] == [[], []]


@test
def what_a_kill_left_is_finished():
    """Every state between the first step and the last."""
    with Place() as p:
        disks(p)
        calm = everything(p)
        steps = [line.split(" ", 2)[2] for line in command("rm", "--dry-run", made(p)).stdout.splitlines() if line.startswith("would remove /")]
        for n in range(len(steps) + 1):
            data = made(p)
            order = [line.split(" ", 2)[2] for line in command("rm", "--dry-run", data).stdout.splitlines() if line.startswith("would remove /")]
            for path in order[:n]:
                os.unlink(path)
            os.rename(data, data + ".penstock-removed-1")
            command("rm", "--dry-run", data)
            command("rm", data)
            assert everything(p) == calm, (n, everything(p))
        assert n > 8
        for mark in ("removed", "partial"):  # as gc does, where a dead process left it
            data = made(p)
            os.rename(data, f"{data}.penstock-{mark}-4194305")
            command("gc", p.dir)
            assert everything(p) == calm, everything(p)
        data = made(p)
        os.rename(data, data + ".penstock-removed-1")  # and another of that name since
        command("rm", made(p))
        assert everything(p) == calm
        r = command("rm", p.path("data"), code=2)
        assert "data: No such file" in r.stderr, r.stderr


@test
def a_name_like_a_removed_one_is_the_users():
    with Place() as p:
        for name in ("removed-edges", "removed-10", "partial-10", "penstock-removed-", "penstock-removed-10b", "penstock-old-4194305"):
            made(p, "data." + name, far=False)
        before = everything(p)
        made(p, far=False)
        command("rm", p.path("data"))
        command("gc", p.dir)
        made(p, far=False)
        command("rm", p.path("data"))
        assert everything(p) == before


@test
def what_is_no_dataset_is_left():
    with Place() as p:
        data = made(p)
        os.symlink(data, p.path("link"))
        os.mkdir(p.path("empty"))
        os.mkdir(p.path("arrays"))
        shutil.copy(p.path("data/indptr.npy"), p.path("arrays"))
        with open(p.path("file"), "w"):
            pass
        before = everything(p)
        for path, words in (("link", "is a symbolic link"), ("empty", "the directory is not a dataset; nothing was removed"), ("arrays", "the directory is not a dataset; nothing was removed"), ("file", "is not a directory"),
                            ("none", "No such file"), ("data/.", "give the path of the dataset's directory"), ("data/..", "give the path of the dataset's directory")):
            r = command("rm", p.path(path), code=None)
            assert r.returncode in (1, 2) and words in r.stderr and everything(p) == before, (path, r.stderr)
        assert command("rm", "/", code=2).stderr and command("rm", "", code=2).stderr and command("rm", code=2).stderr
        for name in ("notes.txt", "features.3.npy", "temp-x"):
            with open(os.path.join(data, name), "w"):
                pass
            r = command("rm", data, code=2)
            assert f"contains '{name}', which dataset.json does not list" in r.stderr, r.stderr
            os.remove(os.path.join(data, name))
        os.mkdir(os.path.join(data, "more"))
        assert "contains 'more'" in command("rm", data, code=2).stderr
        os.rmdir(os.path.join(data, "more"))
        assert everything(p) == before
        command("rm", data)


@test
def a_bad_manifest_removes_nothing():
    with Place() as p:
        data, precious = made(p), p.path("precious.npy")
        with open(precious, "w") as f:
            f.write("mine")
        good = manifest(data)
        before = everything(p)
        arrays = lambda **changes: {**good, "arrays": {**good["arrays"], **changes}}
        entry = lambda file: {**good["arrays"]["labels"], "file": file}
        for m, words in ((arrays(labels=entry("../precious.npy")), "file: expected a file name without a directory, found '"), (arrays(labels=entry("..")), "file: expected a file name without a directory, found '"),
                         (arrays(labels=entry(precious)), "file: expected a file name without a directory, found '"), (arrays(labels=entry("notes.txt")), "which is not an array file of a dataset"),
                         (arrays(labels=entry("dataset.json")), "which is not an array file of a dataset"), (arrays(labels=entry("temp-x")), "which is not an array file of a dataset"),
                         ("{", "the directory is not a dataset; nothing was removed"), ("", "the directory is not a dataset; nothing was removed"), (json.dumps([good]), "the directory is not a dataset; nothing was removed"), ({**good, "vertices": -1}, "the directory is not a dataset; nothing was removed")):
            put_manifest(data, m)
            r = command("rm", data, code=2)
            assert words in r.stderr and everything(p) == before, (words, r.stderr)
        put_manifest(data, good)
        # links to files that look like stripes, and are not its own
        link = os.path.join(data, "features.0.npy")
        own = os.readlink(link)
        for make in (lambda path: open(path, "w").close(), lambda path: shutil.copy(os.path.realpath(os.path.join(data, "features.1.npy")), path),
                     lambda path: os.symlink(own, path), os.mkdir):
            other = p.path("else.features.0.0123456789abcdef.npy")
            make(other)
            os.remove(link)
            os.symlink(other, link)
            held = everything(p)
            r = command("rm", data, code=2)
            assert "is not stripe 0 of this dataset" in r.stderr and everything(p) == held, r.stderr
            (os.rmdir if os.path.isdir(other) else os.remove)(other)
        os.remove(link)
        os.symlink(p.path("gone/x.features.0.0123456789abcdef.npy"), link)
        assert "is its drive mounted?" in command("rm", data, code=1).stderr
        os.remove(link)
        os.symlink(own, link)
        os.remove(os.path.join(data, "labels.npy"))
        os.symlink(precious, os.path.join(data, "labels.npy"))  # a link is removed, not what it is to
        command("rm", data)
        assert not os.path.exists(data) and open(precious).read() == "mine" and [os.listdir(d) for d in disks(p)] == [[], []]


if __name__ == "__main__":
    main()
