"""Composition: stages of any kind, wired in any shape, as real processes."""
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

from crash import wait_for
from harness import *

BATCHES = 300


def chain(slots=4, sink=None, **source):
    return pipeline({"source": stage("source", **{"batches": BATCHES, **source}), "a": stage("passthrough"),
                     "sink": stage("sink", **(sink or {}))},
                    links("source.out", "a.in", "a.out", "sink.in", slots=slots))


@test
def processes_and_threads():
    with Place() as p:
        a, b = p.run(chain()), p.run(chain(), grouped=True)
        assert a.report["sink"] == b.report["sink"], (a.report["sink"], b.report["sink"])
        assert a.report["sink"]["batches"] == BATCHES
        pids = {s["pid"] for s in a.report["stages"].values()}
        assert GROUPED or len(pids) == 3
        assert len({s["pid"] for s in b.report["stages"].values()}) == 1


@test
def capacity_one_parts_and_micro_batches():
    with Place() as p:
        sums = set()
        for slots in (1, 2, 7):
            r = p.run(chain(slots=slots, micros=3, parts=2))
            assert r.report["sink"]["batches"] == BATCHES and r.report["sink"]["frames"] == BATCHES * 6
            sums.add(r.report["sink"]["checksum"])
        assert len(sums) == 1


@test
def instances_keep_the_order():
    with Place() as p:
        sums = set()
        for n, m, slots in ((1, 1, 4), (2, 1, 4), (3, 2, 1), (2, 3, 5)):
            pl = chain(slots=slots, micros=2)
            pl["stages"]["source"]["instances"], pl["stages"]["a"]["instances"] = n, m
            sums.add(p.run(pl).report["sink"]["checksum"])
        assert len(sums) == 1, sums


@test
def several_sinks_share_a_stream():
    with Place() as p:
        pl = chain()
        pl["stages"]["sink"]["instances"] = 3
        assert p.run(pl).report["sink"]["batches"] == BATCHES


@test
def fan_out_to_two_consumers():
    with Place() as p:
        pl = pipeline({"source": stage("source", batches=BATCHES), "a": stage("passthrough"),
                       "one": stage("sink", section="one"), "two": stage("sink", section="two", delay_us=200)},
                      links("source.out", "a.in", "a.out", "one.in", "a.out", "two.in", slots=3))
        r = p.run(pl).report
        assert r["one"]["checksum"] == r["two"]["checksum"] and r["two"]["batches"] == BATCHES


@test
def keeping_slots_needs_capacity():
    with Place() as p:
        assert p.run(chain(slots=4, sink={"keep": 4})).report["sink"]["batches"] == BATCHES
        r = p.run(chain(slots=3, sink={"keep": 4}), code=2)
        assert "3 slots can deadlock" in r.err and "at least 4" in r.err, r


@test
def python_stage_in_the_middle():
    with Place() as p:
        pl = pipeline({"source": stage("source", batches=50, micros=2), "times": stage("times", factor=5),
                       "sink": stage("sink", factor=5)},
                      links("source.out", "times.in", "times.out", "sink.in"))
        r = p.run(pl, foreign=True)
        assert r.report["sink"]["batches"] == 50 and r.report["times"]["factor"] == 5


@test
def python_stage_that_breaks_the_protocol():
    with Place() as p:
        for how, words in (("exit", "exited with status 3"), ("kill", "signal 9"), ("garbage", "bytes that are not a valid binary message"), ("huge", "a message of 3145728 bytes"),
                           ("steal", "released slot 999 of route 0, which it does not hold")):
            pl = pipeline({"source": stage("source", batches=50), "times": stage("times", misbehave=how),
                           "sink": stage("sink", factor=3)},
                          links("source.out", "times.in", "times.out", "sink.in"))
            r = p.run(pl, code=1, foreign=True)
            assert words in r.err and "times" in r.err, r
            assert r.report["failures"][0]["stage"] == "times"
            no_leftovers()


@test
def copies_between_devices():
    with Place() as p:
        pl = chain(slots=3, micros=2, parts=2, bytes=8192)
        plain = p.run(pl).report
        pl["stages"]["a"]["place"] = {"device": "cpu:1"}
        r = p.run(pl).report
        assert r["sink"] == plain["sink"]
        # there and back again, every byte of every slot, and no more
        assert r["copies"]["bytes"] == 2 * BATCHES * 2 * 8192, r["copies"]
        assert "copies" not in plain
        drawn = command("graph", p.write(pl)).stdout
        assert "cpu:1" in drawn and "copied" in drawn


@test
def loop_with_four_unfinished_batches():
    with Place() as p:
        for slots in (4, 6):
            pl = pipeline({"looper": stage("looper", batches=BATCHES + 2), "echo": stage("passthrough"),
                           "sink": stage("sink")},
                          [{"from": "looper.out", "to": "sink.in", "slots": slots},
                           {"from": "looper.ask", "to": "echo.in", "slots": slots},
                           {"from": "echo.out", "to": "looper.answer", "back": True}])
            r = p.run(pl).report
            assert r["sink"]["batches"] == BATCHES + 2
            assert r["looper"]["most_unfinished"] == 4 and r["looper"]["out_of_order"] > BATCHES / 2
        del pl["links"][2]["back"]
        assert "closes a loop" in p.run(pl, code=2).err


@test
def slots_that_come_home_changed():
    with Place() as p:
        pl = pipeline({"owner": stage("owner", batches=BATCHES), "raiser": stage("raiser")},
                      links("owner.out", "raiser.in", slots=4))
        assert p.run(pl).report["owner"]["returns"] == BATCHES  # in order: the stage checks it
        pl["stages"]["raiser"]["place"] = {"device": "cpu:1"}  # changed on another device
        r = p.run(pl).report
        assert r["owner"]["returns"] == BATCHES and r["copies"]["bytes"] > BATCHES * 4096


@test
def slots_of_a_program_come_home_changed():
    with Place() as p:
        for batches in (3, 50):
            pl = pipeline({"lender": stage("lender", batches=batches), "raiser": stage("raiser")},
                          links("lender.out", "raiser.in", slots=4))
            for device in ("cpu:0", "cpu:1"):
                pl["stages"]["raiser"]["place"] = {"device": device}
                r = p.run(pl, foreign=True)  # the program checks each slot
                assert r.report["stages"]["lender"]["items"] == batches, r


@test
def fewer_batches_than_slots_come_home():
    with Place() as p:
        for batches in (1, 3):
            pl = pipeline({"owner": stage("owner", batches=batches), "raiser": stage("raiser")},
                          links("owner.out", "raiser.in", slots=4))
            assert p.run(pl).report["owner"]["returns"] == batches
            pl["stages"]["raiser"]["place"] = {"device": "cpu:1"}
            assert p.run(pl).report["owner"]["returns"] == batches


@test
def killed_stages_and_supervisor():
    import signal
    with Place() as p:
        for name in ("source", "a", "sink", "memory-cpu:0"):
            run = p.start(chain(sink={"delay_us": 20000}), grouped=False)
            victim = find(run, name)
            os.kill(victim, signal.SIGKILL)
            t0 = time.time()
            r = run.wait(10)
            assert time.time() - t0 < 2 * (5 if SAN else 1), f"took {time.time() - t0:.1f} s"
            assert r.code == 1 and "signal 9" in r.err and name in r.err, r
            no_leftovers()
        run = p.start(chain(sink={"delay_us": 20000}), grouped=False)
        find(run, "sink")
        run.process.kill()
        run.wait(10)
        no_leftovers()


def find(run, name):
    """The pid of the process that hosts `name` in this run, once it is running."""
    until = time.time() + 10 * (5 if SAN else 1)
    while time.time() < until:
        r = subprocess.run(["pgrep", "-P", str(run.process.pid), "-a"], capture_output=True, text=True)
        for line in r.stdout.splitlines():
            if name in line.split():
                time.sleep(0.1)
                return int(line.split()[0])
        time.sleep(0.02)
    raise AssertionError(f"no process {name}")


@test
def interrupted_runs_end_in_order():
    import signal
    with Place() as p:
        for number in (signal.SIGINT, signal.SIGTERM):
            run = p.start(chain(sink={"delay_us": 20000}))
            find(run, "sink")
            time.sleep(0.3)
            run.process.send_signal(number)
            r = run.wait(10)
            assert r.code == 128 + number and r.report["status"] == "interrupted", r


@test
def stopped_by_command():
    with Place() as p:
        run = p.start(chain(sink={"delay_us": 20000}))
        find(run, "sink")
        command("stop", run.run_dir)
        assert run.wait(10).code == 143
        assert command("stop", run.run_dir, code=2).stderr.strip().endswith("no run is active in this directory")


@test
def top_shows_a_running_pipeline():
    with Place() as p:
        run = p.start(chain(sink={"delay_us": 20000}))
        find(run, "sink")
        time.sleep(0.5)
        shown = command("top", "--once", run.run_dir).stdout
        assert all(name in shown for name in ("source", "sink", "slot")), shown
        run.process.terminate()
        run.wait(10)
        assert "no run is active" in command("top", "--once", run.run_dir, code=2).stderr


def top_on_a_terminal(run_dir, columns, **environment):
    """What a terminal gets of one second."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 40, columns, 0, 0))
    plain = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    process = subprocess.Popen([PENSTOCK, "top", "--once", run_dir], stdout=theirs, env={**plain, "TERM": "xterm", **environment})
    os.close(theirs)
    text = b""
    try:
        while more := os.read(ours, 65536):
            text += more
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait(30) == 0
    return text.decode()


@test
def top_shows_training_and_colours():
    hyperion = os.path.join(ROOT, "pipelines", "hyperion.json")
    with Place() as p:
        run = p.start(hyperion, "--epochs", 100000, *(a for s in ("params.batch=100", "stages.planner.params.cpu_cache=300KiB", "stages.disk.params.backend=pread",
                                                                 "stages.disk.params.fault_delay_us=3000") for a in ("--set", s)))
        try:
            def top(pattern, columns=None, **environment):
                """What it shows once that fits the pattern; a busy machine needs several looks."""
                look = lambda: top_on_a_terminal(run.run_dir, columns, **environment) if columns else command("top", "--once", run.run_dir, code=None).stdout
                return wait_for(lambda: (found := re.search(pattern, look(), re.M | re.S)) and found.string, 60)

            shown = top(r"^epoch (\d+) of 100000, loss \d\.\d{4}, cache hits [1-9][\d.]* %$.* depth +batch$.*^disk( +\S+){6} +[1-9]\d* +\d+$")
            assert "\033" not in shown and "##" not in shown, shown
            wide = top(r"\033\[33m=.*bound by (\w+)", 140)
            bound = re.search(r"bound by (\w+)", wide)[1]
            assert "\033[34m" in wide and f"\033[1m{bound} " in wide, wide
            bar = next(line for line in re.sub(r"\033\[\d*m", "", wide).splitlines() if line.startswith("disk")).rstrip()
            assert re.search(r"  #*=+-*\.*$", bar) and 20 <= len(bar) - bar.rindex(" ") - 1 <= 22, bar
            assert "\033" not in top("bound by", 140, NO_COLOR="1")
            narrow = top("bound by", 90)
            assert "\033[1m" in narrow and "==" not in narrow and max(map(len, narrow.splitlines())) <= 90 + len("\033[1m\033[0m\r"), narrow
        finally:
            run.process.terminate()
            run.wait(30)


@test
def one_run_for_each_directory():
    with Place() as p:
        run = p.start(chain(sink={"delay_us": 20000}))
        find(run, "sink")
        other = subprocess.run([PENSTOCK, "run", p.write(chain(), "other.json"), "--dataset", p.data, "--run-dir",
                                run.run_dir], capture_output=True, text=True)
        assert other.returncode == 2 and "still active" in other.stderr, other
        run.process.terminate()
        run.wait(10)


@test
def trace_has_every_stage():
    with Place() as p:
        out = p.path("trace.json")
        p.run(chain(bytes="1MiB", batches=20), "--trace", out)
        with open(out) as f:
            events = json.load(f)["traceEvents"]
        names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
        assert {"source", "sink"} <= names, names
        spans = [e for e in events if e["ph"] == "X"]
        assert len(spans) > 20 and all(e["dur"] >= 0 for e in spans)


if __name__ == "__main__":
    main()
