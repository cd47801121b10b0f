"""The benches beside other libraries, with peers that are small scripts: alternation, tuning, environments, the table. And the
sampler of the peer in plain PyTorch."""
import contextlib
import io
import types

from harness import *

FOLDER = os.path.join(ROOT, "tools", "bench")
sys.path[:0] = [FOLDER, os.path.join(FOLDER, "peers", "programs")]
import bench
import blocks
import measure
import numpy as np
from peers import catalogue, environments, running, side_by_side, table, tuning

# prints a record; --seconds: of an epoch, --loss: of the last
FAKE = """import argparse, json, subprocess, sys, time
p = argparse.ArgumentParser()
p.add_argument("data")
p.add_argument("--epochs", type=int)
p.add_argument("--seconds", type=float, default=2.0)
p.add_argument("--loss", type=float, default=0.4)
p.add_argument("--rows", type=float, default=100)
p.add_argument("--workers", type=int, default=0)
p.add_argument("--mean", default="bag")
p.add_argument("--fail", default="")
o, _ = p.parse_known_args()
if o.fail == "exit" or o.mean == "broken":
    sys.exit("no such operator")
if o.fail == "hang":
    subprocess.Popen(["sleep", "60"])
    time.sleep(60)
if o.fail == "garbage":
    print("done")
    sys.exit()
seconds = o.seconds / (1 + o.workers) * (3 if o.mean == "csr" else 1)
each = lambda i: {"seconds": 9 if i == 0 else seconds, "cpu_s": 1, "read_bytes": 2**30, "loss": 1.0 if i == 0 else o.loss, "train_accuracy": 0.9,
                  "hidden_rows": o.rows, "input_rows": 500}
print("a line that is not the record")
print(json.dumps({"epochs": [each(i) for i in range(o.epochs)], "setup_s": 1, "versions": "fake 1"}))
"""
LOAD = side_by_side.Load("memory", "In memory", None, 64, 16, "data", "small", ())
TUNED = {"environment": ("fake",), "workers": (0, 1), "mean": ("bag", "csr", "broken")}


def size(**more):
    return types.SimpleNamespace(**{**dict(pairs=3, epochs=3, peer_epochs=3, tune=True, tune_epochs=2, tune_batches=0, make=False), **more})


def fake(p, name, *arguments, tuned=TUNED, versions="fake 1"):
    path = p.path("fake.py")
    with open(path, "w") as f:
        f.write(FAKE)
    peer = catalogue.Peer("memory", f"fake {name}", path, arguments, ("fake",), "", ())
    return catalogue.Ready(name, peer, {"fake": sys.executable}, versions, tuned)


class Ours:
    """In place of a run of Penstock. log: what ran, in order."""

    def __init__(self, *seconds):
        self.seconds, self.log = list(seconds), []

    def __call__(self, load, data, epochs, check=False):
        self.log.append("ours" if data == "data" else "check ours")
        s = 1.0 if check else self.seconds[self.log.count("ours") % len(self.seconds) - 1]
        each = lambda i: {"seconds": 5 if i == 0 else s, "cpu_s": 1, "read_bytes": 0, "loss": 1.0 if i == 0 else 0.41, "train_accuracy": 0.91,
                          "hidden_rows": 101, "input_rows": 500}
        return {"epochs": [each(i) for i in range(epochs)], "setup_s": 1, "versions": "", "peak_mib": None}

    def peers(self, load, ready, chosen, data, epochs, **more):
        self.log.append(("tune " if epochs == 2 else "check " if more.get("check") else "") + ready.name)
        return side_by_side.theirs(load, ready, chosen, data, epochs, **more)


def compare(p, peers, ours, **more):
    """(the result, what was printed)"""
    kept = tuning.Kept(p.path("tuned.json"))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        result = side_by_side.compare(LOAD, size(**more), {r.name: r for r in peers}, {}, kept, ours, ours.peers)
    return result, said.getvalue()


@test
def pairs_alternate_and_ratios_are_of_pairs():
    with Place() as p:
        ours = Ours(1.0, 2.0)
        result, said = compare(p, [fake(p, "a", "--seconds", "2"), fake(p, "b", "--seconds", "6")], ours, tune=False)
        assert ours.log == ["check ours", "check a", "check b"] + ["ours", "a", "ours", "b"] * 3, ours.log
        rows = result["peers"]
        assert rows["a"]["ratio"] == {"median": 2.0, "least": 2.0, "greatest": 2.0, "runs": 3}, rows
        assert rows["b"]["ratio"]["median"] == 3.0 and rows["penstock"]["epoch_s"] == {"median": 1.5, "least": 1.0, "greatest": 2.0, "runs": 6}, rows
        text = table.markdown(result, bench.about_machine())
        assert "| fake b (fake 1) | 6.000 (6.000 to 6.000) | 3.00 (3.00 to 3.00) | 1.0 | environment fake" in text, text
        assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1, text
        assert "[9 of 9, less than a minute left]" in said.replace("about 1 min left", "less than a minute left"), said


@test
def settings_are_tuned_once_for_a_machine():
    with Place() as p:
        a, ours = fake(p, "a"), Ours(1.0)
        result, said = compare(p, [a], ours, pairs=1)
        assert result["peers"]["a"]["settings"] == {"environment": "fake", "workers": 1, "mean": "bag"}, result
        assert ours.log.count("tune a") == 4 == tuning.runs(a) and "mean broken: exit status 1: no such operator" in said, (ours.log, said)
        again = Ours(1.0)
        result, said = compare(p, [a], again, pairs=1)
        assert "tune a" not in again.log and result["peers"]["a"]["epoch_s"]["median"] == 1.0 and "tuned on 20" in said, (again.log, said)
        for newer, runs in ((fake(p, "a", versions="fake 2"), 4), (fake(p, "a", tuned={"environment": ("fake",), "workers": (0, 1, 2)}), 3)):
            other = Ours(1.0)  # another version, and settings that were not tried
            compare(p, [newer], other, pairs=1)
            assert other.log.count("tune a") == runs, other.log
        with open(p.path("tuned.json")) as f:
            kept = json.load(f)
        kept["machine"]["cpu"] = "another"
        for text, reason in ((json.dumps(kept), "another machine"), ("{", "cannot be read")):
            with open(p.path("tuned.json"), "w") as f:
                f.write(text)
            other = Ours(1.0)
            _, said = compare(p, [a], other, pairs=1)
            assert other.log.count("tune a") == 4 and reason in said, (other.log, said)


@test
def a_peer_that_learns_something_else_gives_no_rate():
    with Place() as p:
        for wrong, why in ((["--loss", "0.6"], "its loss after 12 epochs is 0.600, and Penstock's 0.410"), (["--loss", "1.2"], "does not go down"),
                           (["--rows", "110"], "made 110 rows in an epoch, and Penstock's 101")):
            ours = Ours(1.0)
            try:
                compare(p, [fake(p, "a"), fake(p, "b", *wrong)], ours)
            except measure.Unsound as e:
                assert why in str(e) and "PEERS" in str(e), e
            else:
                raise AssertionError(f"{wrong} was taken for the same")
            assert ours.log == ["check ours", "check a", "check b"], ours.log


@test
def what_fails_is_left_out_and_told():
    with Place() as p:
        peers = [fake(p, "a", tuned={"environment": ("fake",)}), fake(p, "exits", "--fail", "exit"), fake(p, "prints", "--fail", "garbage")]
        result, _ = compare(p, peers, Ours(1.0), pairs=1)
        assert list(result["peers"]) == ["penstock", "a"], result
        assert "no such operator" in result["not_measured"]["exits"]["why"] and "line of JSON: 'done'" in result["not_measured"]["prints"]["why"], result
        text = table.markdown(result, bench.about_machine())
        assert "| fake exits | not measured |" in text and len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1, text
        with contextlib.redirect_stdout(io.StringIO()):
            assert "; without exits, prints (" in bench.show_tables({"peers-memory": result}, bench.about_machine())
        try:
            compare(p, [fake(p, "exits", "--fail", "exit")], Ours(1.0))
        except measure.Skip as e:
            assert "no such operator" in str(e), e
        else:
            raise AssertionError("a table without peers")
        hangs = fake(p, "hangs", "--fail", "hang")
        try:
            side_by_side.theirs(LOAD, hangs, hangs.first(), "data", 1, limit_s=1)  # its children end, too: main() looks
        except running.Failed as e:
            assert "did not end within 1 s" in str(e), e
        else:
            raise AssertionError("a program that hangs has no record")


@contextlib.contextmanager
def environment(p, recipe):
    """An environment named `fake`, whose Python is a script that stands for pip: it fails for what is named bad."""
    build, measure.BUILD = measure.BUILD, p.path("build")
    environments.RECIPES["fake"] = recipe
    try:
        os.makedirs(os.path.dirname(environments.python_of("fake")))
        with open(environments.python_of("fake"), "w") as f:
            f.write('#!/bin/sh\necho "$@" >>%s\ncase "$*" in *bad*) echo "ERROR: No matching distribution found for bad==1"; exit 1; esac\n' % p.path("calls"))
        os.chmod(environments.python_of("fake"), 0o755)
        environments.keep_marker("fake", {"recipe": environments.digest(recipe), "done": [], "failed": {}})
        yield
    finally:
        del environments.RECIPES["fake"]
        measure.BUILD = build
        environments.TRIED.clear()


def calls(p):
    with open(p.path("calls")) as f:
        return [line.split()[-1] for line in f]


@test
def what_pip_cannot_get_is_told_and_tried_again():
    step = environments.Step
    with Place() as p, contextlib.redirect_stdout(io.StringIO()):
        recipe = environments.Recipe((step("good", ("good==1",), 1), step("extra", ("bad==1",), 1, needed=False), step("more", ("more==1",), 1),
                                      step("PyG", ("pyg==1",), 1, extra="pyg")), 0, 0)
        with environment(p, recipe):
            assert environments.find("fake", False) == (environments.python_of("fake"), None)
            assert environments.find("fake", True) == (environments.python_of("fake"), None)
            assert calls(p) == ["good==1", "bad==1", "more==1"], calls(p)
            why = environments.why_of_step("fake")
            assert "pip did not install extra: ERROR: No matching distribution found for bad==1" in why and "tries it again" in why, why
            environments.find("fake", True)  # not again in one command
            environments.TRIED.clear()
            environments.find("fake", True, ["pyg"])  # in another, only what failed, and what this peer needs beside it
            assert calls(p)[3:] == ["bad==1", "pyg==1"], calls(p)
    with Place() as p, contextlib.redirect_stdout(io.StringIO()):
        recipe = environments.Recipe((step("base", ("bad==1",), 1), step("more", ("more==1",), 1)), 0, 0)
        with environment(p, recipe):
            python, why = environments.find("fake", True)
            assert python is None and calls(p) == ["bad==1"] and "did not install base" in why and "PIP_EXTRA_INDEX_URL" in why, why
    with Place() as p:
        recipe = environments.Recipe((), 10**6, 0)
        with environment(p, recipe):
            shutil.rmtree(os.path.join(environments.folder(), "fake"))
            python, why = environments.find("fake", True)
            assert python is None and "needs 1000000 GiB" in why and "BUILD" in why, why
            python, why = environments.find("fake", False)
            assert python is None and "`make bench-peers` makes it" in why, why
            python, why = environments.find("dgl-disk", True)
            assert python is None and why.endswith(os.path.join(environments.folder(), "dgl-disk")), why
    python, why = environments.find("dgl-disk", True)  # a table in the README names no folder of ours
    assert python or f"to {os.environ.get('BUILD', 'build')}/peers/dgl-disk" in why and ROOT not in why, why


@test
def the_line_of_pip_that_says_most():
    compiler = ["Running setup.py install for x: started", "error: subprocess-exited-with-error", "x.cpp:1:10: fatal error: Python.h: No such file",
                "ninja: build stopped: subcommand failed.", "error: legacy-install-failure", "hint: See above for output from the failure."]
    with Place() as p:
        for lines, wanted in ((compiler, compiler[2]), ([compiler[0], *compiler[3:]], compiler[3]), ([], "pip said nothing"), (["killed"], "killed"),
                              (["Looking", "ERROR: Could not find a version", "ERROR: No matching distribution", "hint"], "ERROR: No matching distribution")):
            with open(p.path("log"), "w") as f:
                f.write("\n".join(lines))
            assert environments.why_of(p.path("log")) == wanted, (lines, environments.why_of(p.path("log")))


@test
def a_peer_without_its_library_says_so():
    def peer(code):
        return catalogue.Peer("memory", "fake", "fake.py", (), ("fake",), code, (("workers", (0, 1)),))

    with Place() as p:
        with environment(p, environments.Recipe((), 0, 0)):
            shutil.rmtree(os.path.join(environments.folder(), "fake"))
            found, why = catalogue.ready("x", peer("import no_such_library"), False, sys.executable)
            assert found is None and "environment fake is not made" in why and "No module named 'no_such_library'" in why, why
            found, why = catalogue.ready("x", peer("print('version 3')"), False, sys.executable)
            assert why is None and found.versions == "version 3" and found.first()["workers"] == 0, found


@test
def the_time_left_is_that_of_the_runs_to_come():
    now, said = [0.0], []
    progress = running.Progress(clock=lambda: now[0], say=said.append)
    progress.expect("a", 2, 60)
    progress.expect("b", 1, 600)
    for kind, took in (("a", 120), ("a", 240), ("b", 1)):
        with progress.run(kind, kind):
            now[0] += took
    assert said == ["  [1 of 3, about 12 min left] a", "  [2 of 3, about 12 min left] a", "  [3 of 3, about 10 min left] b"], said
    progress.expect("c", 5, 60)
    progress.cancel("c")
    assert progress.left_s() == 0


@test
def tables_go_where_the_readme_has_room():
    with Place() as p:
        page = p.path("page.md")
        with open(page, "w") as f:
            f.write("before\n<!-- x -->\nold\n<!-- end of x -->\nafter\n")
        for _ in range(2):
            table.put("x", "| new |\n", page)
            with open(page) as f:
                assert f.read() == "before\n<!-- x -->\n| new |\n<!-- end of x -->\nafter\n"
        try:
            table.put("y", "| new |\n", page)
        except ValueError as e:
            assert "<!-- y -->" in str(e), e
        else:
            raise AssertionError("there is no place for y")
    with open(table.README) as f:
        readme = f.read()
    for name in ("peers-memory", "peers-outofcore"):
        assert readme.count(f"<!-- {name} -->\n") == 1 == readme.count(f"<!-- end of {name} -->\n") and name in bench.BENCHES
    for name, peer in catalogue.PEERS.items():
        assert f"`{name}`" in readme and os.path.exists(os.path.join(catalogue.PROGRAMS, peer.program)), name
        assert all(e in environments.RECIPES or e in environments.OWN for e in peer.environments), name


@test
def the_command_passes_its_choices_on():
    r = subprocess.run(["make", "-n", "bench-peers", "PEERS=torch dgl", "RETUNE=1"], cwd=ROOT, capture_output=True, text=True)
    assert 'bench.py --peers "torch dgl" --retune  peers-memory peers-outofcore\n' in r.stdout and "install-deps --peers" in r.stdout, r
    r = subprocess.run([sys.executable, os.path.join(FOLDER, "bench.py"), "--peers", "tensor", "peers-memory"], capture_output=True, text=True)
    assert r.returncode == 2 and "--peers tensor: expected some of torch, pyg, dgl" in r.stderr, r


@test
def the_sampler_draws_neighbours_and_transposes_hops():
    rng = np.random.default_rng(1)
    lists = [np.sort(rng.choice(300, n, replace=False)).astype(np.int32) for n in rng.integers(0, 30, 300)]
    indptr = np.concatenate([[0], np.cumsum([len(x) for x in lists])]).astype(np.int64)
    sampler = blocks.Sampler(blocks.library(side_by_side.library()), indptr, np.concatenate(lists), [6, 3], 40, 7)
    for _ in range(3):
        seeds = rng.permutation(300)[:40]
        vertices, rows, hops = sampler(seeds, (0, 1))
        assert (vertices[:40] == seeds).all() and rows[0] == 40 and rows[2] == len(vertices) == len(set(vertices.tolist()))
        for fanout, targets, sources, ((ptr, col, weight), (tptr, tcol, tweight)) in zip((6, 3), rows, rows[1:], hops):
            assert len(ptr) == targets + 1 and col.max() < sources, (ptr, col)
            forth, back = np.zeros((targets, sources), np.float32), np.zeros((targets, sources), np.float32)
            for r in range(targets):
                at = slice(ptr[r], ptr[r + 1])
                mine, of = vertices[col[at]], lists[vertices[r]]
                assert len(set(mine.tolist())) == len(mine) == min(fanout, len(of)) and np.isin(mine, of).all(), (r, mine, of)
                forth[r, col[at]] = weight[at]
            for c in range(sources):
                at = slice(tptr[c], tptr[c + 1])
                back[tcol[at], c] = tweight[at]
            assert np.allclose(forth.sum(1), np.diff(ptr) > 0) and (back == forth).all()
    padded = rng.random((300, 16), np.float32)
    table_of, out, ids = padded[:, :10], np.zeros((50, 10), np.float32), rng.integers(0, 300, 50)
    for begin, end in ((0, 20), (20, 50)):
        blocks.gather(sampler.lib, table_of, ids, begin, end, out)
    assert (out == table_of[ids]).all()


@test
def the_sampler_draws_evenly():
    neighbours, fanout, batches = 30, 6, 4000
    indptr = np.array([0] + [neighbours] * (neighbours + 1), np.int64)  # vertex 0 has all others
    sampler = blocks.Sampler(blocks.library(side_by_side.library()), indptr, np.arange(1, neighbours + 1, dtype=np.int32), [fanout], 1, 7)
    drawn = np.zeros(neighbours + 1)
    for _ in range(batches):
        drawn[sampler(np.zeros(1, np.int64))[0][1:]] += 1
    expected = batches * fanout / neighbours
    assert drawn[0] == 0 and (abs(drawn[1:] - expected) < 5 * expected ** 0.5).all(), drawn  # 5 standard deviations or more


if __name__ == "__main__":
    main()
