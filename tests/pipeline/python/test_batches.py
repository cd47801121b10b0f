"""penstock.batches and penstock.run: runs in a user's process. Whichever side is killed, nothing is left."""
import collections
import signal
import types

import numpy as np

from crash import processes
from snake import *
import penstock
from penstock import command as command_of_python

SMALL = {"batch": 100, "stages.planner.params.cpu_cache": 0}


def fails(function, *words):
    try:
        function()
    except penstock.RunError as e:
        assert all(word in str(e) for word in words), e
        return e
    raise AssertionError("it did not fail")


@test
def every_seed_once_an_epoch():
    with Place() as p:
        ds = penstock.open_dataset(p.data)
        for margin in (1.1, 0.4):  # whole batches, and split ones
            settings = {**SMALL, "stages.sampler.params.margin": margin}
            micros = 0
            with penstock.batches(HYPERION, p.data, epochs=3, seed=5, **settings) as loader:
                for epoch in range(3):
                    seen, seeds, ends = collections.Counter(), 0, 0
                    for mb in loader:
                        seen.update(mb.seeds.tolist())
                        assert mb.epoch == epoch and mb.seed == 5 and mb.hops == 2
                        assert np.array_equal(mb.features, ds.features[mb.vertices]) and np.array_equal(mb.labels, ds.labels[mb.seeds])
                        for h in range(mb.hops):
                            assert len(mb.indptr[h]) == mb.n[h] + 1 and mb.indices[h].max() < mb.n[h + 1]
                            for v in range(0, mb.n[h], 17):
                                drawn = mb.vertices[mb.indices[h][mb.indptr[h][v]:mb.indptr[h][v + 1]]]
                                assert set(drawn) <= set(ds.in_neighbours(mb.vertices[v])), (h, v)
                        micros, seeds = micros + 1, seeds + mb.n[0]
                        if mb.last_micro:
                            assert seeds == mb.batch_seeds
                            seeds, ends = 0, ends + 1
                    assert sorted(seen) == sorted(ds.train.tolist()) and set(seen.values()) == {1} and ends == mb.batches_in_epoch
            assert loader.report["status"] == "ok" and loader.report["io"]["requests"] > 0 and loader.report["stages"]["trainer"]["items"] == micros
            assert (micros == 3 * ends) == (margin > 1)
            fails(lambda: list(loader), "all epochs of this run have been used")


@test
def a_loop_that_is_left_early():
    with Place() as p:
        os.environ["TMPDIR"] = p.path("tmp")
        os.mkdir(p.path("tmp"))
        tempfile.tempdir = None
        loader = penstock.batches(HYPERION, p.data, epochs=1000, **SMALL)
        for mb in loader:
            first = mb.copy()
            break
        again = next(iter(loader))
        assert (first.epoch, again.epoch, again.batch_in_epoch) == (0, 1, 0) and first.n[0] == 100 and first.features.any()
        t0 = time.time()
        del loader
        assert time.time() - t0 < 5
        nothing_in(p.path("tmp"), 0)
        loader = penstock.batches(HYPERION, p.data, epochs=1000, run_dir=p.path("kept"), **SMALL)
        next(iter(loader))
        loader.close()
        with open(p.path("kept/report.json")) as f:
            assert json.load(f)["status"] == "interrupted"
        nothing_in(p.path("tmp"), 0)
        del os.environ["TMPDIR"]
        tempfile.tempdir = None


@test
def what_is_wrong_is_said():
    with Place() as p:
        fails(lambda: penstock.batches(HYPERION, p.data, nonsense=1), "params.nonsense: unknown key")
        fails(lambda: penstock.batches(HYPERION, p.path("nothing")), "nothing")
        fails(lambda: penstock.batches(HYPERION, p.data, stage="absent"), "absent")
        r = p.run(HYPERION, "--set", f'stages.trainer={{"run": "{PACKAGE}/penstock/attach.py", "endpoint": "tcp://127.0.0.1:*"}}', code=1, foreign=True)
        assert "no process waits for the batches of this run" in r.err, r


LOOP = """
import sys, time
loader = penstock.batches(sys.argv[1], sys.argv[2], epochs=1000000, batch=100)
for k in range(1000000):
    for mb in loader:
        print(loader.run_dir, flush=True)
        time.sleep(0.01)
"""


def run_of(process):
    line = process.stdout.readline().strip()
    assert line, process.stderr.read()
    return line


def supervisor_of(run_dir):
    with open(os.path.join(run_dir, "lock")) as f:
        pid, id = f.read().split()[:2]
    Running.ids.add(id)
    return int(pid)


@test
def the_user_s_process_is_killed():
    with Place() as p:
        for signal_ in (signal.SIGKILL, signal.SIGTERM):
            process = user(p, LOOP)
            supervisor_of(run_of(process))
            process.send_signal(signal_)
            process.communicate(timeout=20)
            no_leftovers()
            nothing_in(p.path("tmp"))
        copied = "import os; os.fork() or (time.sleep(8), os._exit(0)); os._exit(9)"  # the copy has all descriptors
        process = user(p, LOOP.replace("print(loader", copied + "; print(loader"))
        assert process.wait(60) == 9
        nothing_in(p.path("tmp"), 6)
        process.communicate(timeout=20)
        no_leftovers()
        process = user(p, LOOP.replace("print(loader", "import os; child = os.fork() if k == 0 else 0; (child and os._exit(os.waitpid(child, 0)[1])); k = 1; print(loader"))
        out, err = process.communicate(timeout=30)  # a copy cannot loop
        assert "these batches belong to process" in err, err
        gone = subprocess.Popen(["true"])
        gone.wait()
        for parent in (gone.pid, 1):  # the user's process died before the keeper could watch it
            os.mkdir(p.path("folder"))
            keeper = [sys.executable, os.path.join(PACKAGE, "penstock", "keeper.py"), str(parent), "1", p.path("folder"), "touch", p.path("ran")]
            assert subprocess.run(keeper, capture_output=True, text=True).stderr == ""
            assert not os.path.exists(p.path("folder")) and not os.path.exists(p.path("ran"))
        process = user(p, LOOP)  # before the run has begun to give batches
        time.sleep(0.3)
        process.kill()
        process.communicate(timeout=20)
        no_leftovers()
        nothing_in(p.path("tmp"))


@test
def the_run_is_killed():
    with Place() as p:
        for victim in ("supervisor", "disk", "trainer"):
            process = user(p, LOOP)
            run_dir = run_of(process)
            pid = supervisor_of(run_dir)
            os.kill(processes(types.SimpleNamespace(process=types.SimpleNamespace(pid=pid)))[victim], signal.SIGKILL)
            out, err = process.communicate(timeout=30)
            assert process.returncode == 1 and "penstock.command.RunError" in err, (victim, err)
            assert victim == "supervisor" or f"error: {victim}: " in err, (victim, err)
            nothing_in(p.path("tmp"))
            no_leftovers()


STRANGER = """
import socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.settimeout(60)
    s.connect("\\0" + sys.argv[1])
    s.sendall(sys.argv[2].encode() + b"\\n")
    print("connected", flush=True)
    try:
        print(s.recv(1))
    except ConnectionResetError:
        print(b"")
"""
KEYS = json.dumps({"endpoint": "tcp://127.0.0.1:1", "keys": "a b c"})


def run_with_stranger(p, say, prefix=()):
    """A run whose attach.py comes after a stranger. The socket listens before the run starts, and keeps the stranger in
    its queue, so the stranger has said all before anybody answers. Returns what the stranger then heard."""
    from penstock import loader as module
    listen, strangers = module.listen, []

    def listen_and_let_in():
        listener, name = listen()
        strangers.append(subprocess.Popen([*prefix, "/usr/bin/python3", "-c", STRANGER, name, say], stdout=subprocess.PIPE, text=True, cwd="/"))
        assert strangers[0].stdout.readline() == "connected\n"
        return listener, name

    module.listen = listen_and_let_in
    try:
        with penstock.batches(HYPERION, p.data, epochs=1, **SMALL) as loader:
            assert sum(mb.n[0] for mb in loader) == len(loader.dataset.train)
    finally:
        module.listen = listen
    out, _ = strangers[0].communicate(timeout=30)
    assert strangers[0].returncode == 0, out
    return out


@test
def strangers_are_turned_away():
    with Place() as p:
        p.data
        assert run_with_stranger(p, "[1]") == "b''\n"  # a program of the same user that is not attach.py
        if os.geteuid() == 0 and shutil.which("setpriv"):
            other = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
            assert run_with_stranger(p, KEYS, other) == "b''\n"  # another user, with keys that would be taken


@test
def a_run_and_its_report():
    with Place() as p:
        code = """
import sys
rows = []
report = penstock.run(sys.argv[1], sys.argv[2], epochs=50, seed=3, run_dir="one", batch=100, on_epoch=lambda row: rows.append((row, os.path.exists("one/report.json"))),
                      **{"stages.trainer.params.hidden": 8})
assert [row for row, ended in rows] == penstock.read_epochs("one") and not rows[0][1]  # before the run has ended
assert [{key: row[key] for key in row if key != "ended"} for row, ended in rows] == report["epochs"]
assert report["status"] == "ok" and len(report["epochs"]) == 50 and report["seed"] == 3 and "test accuracy" in report.text
same = penstock.run(json.load(open(sys.argv[1])), sys.argv[2], epochs=50, seed=3, run_dir="two", batch=100, progress=False,
                    overlays="more.json")
assert same["weights_digest"] == report["weights_digest"] and penstock.read_report("two") == same
""".replace("import sys", "import json, os, sys")
        with open(p.path("more.json"), "w") as f:
            json.dump({"stages": {"trainer": {"params": {"hidden": 8}}}}, f)
        process = user(p, code)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0 and out == "" and "epoch   1  loss" in err and err.count("hyperion on") == 1, (out, err)
        nothing_in(p.path("tmp"), 0)
        fails(lambda: penstock.run(HYPERION, p.data, progress=False, run_dir=p.path("one")), "one")


@test
def the_progress_line_is_understood():
    """What the bar shows. A progress line that Python does not know would be printed as if it were a message."""
    with Place() as p:
        settings = {"epochs": 40, **SMALL, "batch": 64}
        running, seen, lines = command_of_python.Running([*command_of_python.arguments(HYPERION, p.data, (), settings, p.dir), "--progress"], p.dir, 5), [], []
        running.listen(seen.append, lines.append)
        assert running.end()["status"] == "ok" and seen and not any("batches/s" in line or line.startswith(("planning", "starting")) for line in lines), (seen, lines)
        assert all(0 < now.epoch <= now.epochs == 40 and 0 < now.done <= now.total for now in seen) and any(now.loss for now in seen), seen


@test
def an_exception_for_an_epoch_stops_the_run():
    with Place() as p:
        def fail(row):
            raise KeyError(row["epoch"])
        try:
            penstock.run(HYPERION, p.data, epochs=100000, run_dir=p.path("run"), progress=False, on_epoch=fail, **SMALL)
            raise AssertionError("it ended")
        except KeyError as e:
            assert e.args == (0,)
        with open(p.path("run/report.json")) as f:
            assert json.load(f)["status"] == "interrupted"


@test
def a_run_is_interrupted_or_its_process_killed():
    with Place() as p:
        code = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
try:
    penstock.run(sys.argv[1], sys.argv[2], epochs=1000000, run_dir="run")
except KeyboardInterrupt:
    print(penstock.read_report("run")["status"])
"""
        for signal_ in (signal.SIGINT, signal.SIGKILL):
            process = user(p, code)
            for line in process.stderr:
                if "epoch " in line:
                    break
            supervisor_of(p.path("run"))
            process.send_signal(signal_)
            out, err = process.communicate(timeout=60)
            no_leftovers()
            with open(p.path("run/report.json")) as f:
                assert json.load(f)["status"] == "interrupted"
            assert glob.glob(p.path("run/checkpoints/*.safetensors"))
            assert signal_ == signal.SIGKILL or (out == "interrupted\n" and process.returncode == 0), (out, err)
            nothing_in(p.path("tmp"))
            shutil.rmtree(p.path("run"))


if __name__ == "__main__":
    main()
