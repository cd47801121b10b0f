"""Every bench has a smallest form, which CI runs; a bench that cannot run says why; wrong results are not measured."""
import types

from harness import *

FOLDER = os.path.join(ROOT, "tools", "bench")
sys.path.insert(0, FOLDER)
import bench
import measure


def complaints(benches, programs):
    """What keeps CI from running every bench, one line each."""
    found = []
    for name, b in benches.items():
        if not b.smallest or b.smallest.keys() != b.full.keys():
            found.append(f"{name}: the smallest form has {sorted(b.smallest)}; expected {sorted(b.full)}")
        elif b.smallest["pairs"] != 1:
            found.append(f"{name}: the smallest form alternates {b.smallest['pairs']} times; expected 1")
    run = {p for b in benches.values() for p in b.programs}
    return found + [f"{p}: no bench runs it" for p in sorted(programs - run)] + [f"{p}: is not there" for p in sorted(run - programs)]


def programs():
    """The .c files of the folder, and the folders with sources."""
    return {name for name in os.listdir(FOLDER) if name.endswith(".c") or
            os.path.isdir(os.path.join(FOLDER, name)) and any(f.endswith(".cu") for f in os.listdir(os.path.join(FOLDER, name)))}


@test
def every_bench_has_a_smallest_form():
    assert complaints(bench.BENCHES, programs()) == []
    new = bench.Bench(lambda size: {}, dict(pairs=7, seeds=1000), {})
    assert len(complaints({**bench.BENCHES, "new": new}, programs())) == 1
    assert complaints(bench.BENCHES, programs() | {"new.c"}) == ["new.c: no bench runs it"]


@test
def every_bench_is_in_the_help_and_runs_in_ci():
    for name in bench.BENCHES:
        assert ("io-BYTES" if name.startswith("io-") else name) in bench.__doc__, name
    with open(os.path.join(ROOT, ".ci", "run")) as f:
        assert "make -s bench-smallest " in f.read()
    r = subprocess.run(["make", "-n", "bench-smallest"], cwd=ROOT, capture_output=True, text=True)
    assert "bench.py --smallest \n" in r.stdout, r  # all of them


@test
def a_bench_that_cannot_run_says_why():
    with Place() as p:
        os.mkdir(p.path("bin"))
        env = dict(os.environ, PATH=p.path("bin"))  # without fio
        r = subprocess.run([sys.executable, os.path.join(FOLDER, "bench.py"), "--smallest", "--scratch", p.path("scratch"), "io-512"],
                           capture_output=True, text=True, env=env)
        assert r.returncode == 0 and "skipped: fio is not installed" in r.stdout and "1 skipped" in r.stdout, r
        assert "/s" not in r.stdout and os.listdir(p.path("scratch")) == [], r


@test
def wrong_results_are_an_error():
    def broken(size):
        raise measure.Unsound("wrong bytes")

    bench.BENCHES["broken"] = bench.Bench(broken, dict(pairs=7), dict(pairs=1))
    try:
        _, counts = bench.run_all(["broken"], types.SimpleNamespace(smallest=True, pairs=None))
    finally:
        del bench.BENCHES["broken"]
    assert counts == {"ran": 0, "skipped": 0, "wrong": 1}, counts


if __name__ == "__main__":
    main()
