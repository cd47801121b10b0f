"""Sudden ends: killed, interrupted and stopped processes. tests/accept/test_storm.py has the long form."""
import re
from concurrent.futures import ThreadPoolExecutor

from crash import *

SEED = 20


def chain(batches=300, sink=None, middle="passthrough", **more):
    return pipeline({"source": stage("source", batches=batches), "a": stage(middle, **more),
                     "sink": stage("sink", **(sink or {"delay_us": 20000}))},
                    links("source.out", "a.in", "a.out", "sink.in"))


@test
def kills_at_random_moments():
    storm(8, SEED)


@test
def the_end_of_the_log_is_shown():
    with Place() as p:
        run = p.start(chain(), grouped=False)
        wait_for(lambda: "sink" in processes(run) and os.path.exists(os.path.join(run.run_dir, "logs", "sink.log")))
        with open(os.path.join(run.run_dir, "logs", "sink.log"), "a") as f:
            f.write("".join(f"line {i}\n" for i in range(20)) + "these were its last words\n")
        os.kill(processes(run)["sink"], signal.SIGKILL)
        r = run.wait(10)
        assert r.code == 1 and "sink: died of signal 9" in r.err, r
        assert "these were its last words" in r.err and "line 15" in r.err and "line 2\n" not in r.err, r
        assert r.err.count(os.path.join(run.run_dir, "logs", "sink.log")) == 1, r


@test
def a_fatal_signal_leaves_a_backtrace():
    if SAN in ("asan", "tsan"):
        raise Skip("the sanitizer tells of it")
    with Place() as p:
        r = p.run(chain(sink={"crash": True}), code=1, grouped=False)
        with open(os.path.join(r.run_dir, "logs", "sink.log")) as f:
            log = f.read()
        assert "sink: died of signal 11" in r.err and "a fatal signal came here" in log, (r, log)
        assert log.index("libpenstock.so(pst_host_run+0x") < log.index("/sink.so(+0x"), log
        assert "/sink.so(+0x" in r.err, r


@test
def a_failure_is_told_once_with_its_log():
    with Place() as p:
        def middle(misbehave):
            return pipeline({"source": stage("source", batches=50), "times": stage("times", misbehave=misbehave),
                             "sink": stage("sink", factor=3)}, links("source.out", "times.in", "times.out", "sink.in"))
        r = p.run(middle("raise"), code=1, foreign=True)
        log = os.path.join(r.run_dir, "logs", "times.log")
        assert r.err.count("error: times: external program") == 1 and "external program" not in r.out, r
        assert f"end of its log, {log}:\n    ?]0;title? caf\xe9 ? ?\n    Traceback (most recent call last):" in r.err, r
        assert r.err.count("RuntimeError: broken on purpose") == 1 and "\x1b" not in r.err, r
        # what a program says may hold anything; none of it reaches the terminal as it is
        r = p.run(middle("escape"), code=1, foreign=True)
        text = r.err + r.out
        assert "\x1b" not in text and "\x9b" not in text and "\nerror: fake" not in text and "\rerror" not in text, repr(text)
        assert "error: times: ?[31mbroken\n    error: fake ?error" in text and "warning: times: careful?" in text, repr(text)
        # a native stage says itself what is wrong: its log is named, and not shown
        r = p.run(chain(batches=50, middle="times", factor=5), code=1, foreign=True)
        assert r.err.count("word 0: found") == 1, r
        assert f"  its log: {os.path.join(r.run_dir, 'logs', 'sink.log')}\n" in r.err and "word 0: found" not in r.out, r


@test
def what_foreign_programs_start_ends_with_the_run():
    with Place() as p:
        pl = pipeline({"source": stage("source", batches=50), "times": stage("times", misbehave="child"),
                       "sink": stage("sink", factor=3)}, links("source.out", "times.in", "times.out", "sink.in"))
        p.run(pl, foreign=True)
        no_leftovers()
        pl["stages"]["sink"]["params"]["delay_us"] = 20000
        run = p.start(pl, foreign=True)
        wait_for(lambda: run.process.poll() is not None or any("sleep" in x for x in leftovers()))
        os.kill(processes(run)["times"], signal.SIGKILL)
        assert run.wait(10).code == 1
        no_leftovers()


# ---- interrupted ---------------------------------------------------------------------------------


@test
def interrupted_with_a_checkpoint():
    with Place() as p:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            run = p.start(HYPERION, *SMALL, *ENDLESS)
            wait_for(lambda: has_checkpoint(run.run_dir))
            before = set(os.listdir(os.path.join(run.run_dir, "checkpoints")))
            time.sleep(0.1)
            run.process.send_signal(number)
            r = run.wait(20)
            assert r.code == 128 + number and r.report["status"] == "interrupted", r
            assert set(os.listdir(os.path.join(run.run_dir, "checkpoints"))) - before, "no checkpoint at the end"
            no_leftovers()
            epochs = ["--epochs", len(r.report["epochs"]) + 1]
            want = outcome(p.run(HYPERION, *SMALL, *epochs).report)
            assert outcome(resume(p, run.run_dir, False, *epochs).report) == want and half_files(run.run_dir) == []


@test
def interrupted_while_starting():
    rng = random.Random(SEED)
    with Place() as p:
        for i in range(6):
            number = (signal.SIGINT, signal.SIGTERM)[i % 2]
            run = p.start(HYPERION, *SMALL, *ENDLESS)
            wait_for(lambda: os.path.exists(os.path.join(run.run_dir, "lock")))
            if i % 3 == 0:  # during the planner
                wait_for(lambda: "planner" in processes(run))
            else:
                time.sleep(rng.random() * 0.1)
            run.process.send_signal(number)
            t0 = time.time()
            r = run.wait(20)
            assert r.code == 128 + number and r.report["status"] == "interrupted", r
            assert time.time() - t0 < 5 * (5 if SAN else 1), r
            no_leftovers()
        # where the planner is busy and does not listen
        pl = chain(batches=1, sink={"delay_us": 60_000_000})
        run = p.start(pl)
        wait_for(lambda: "sink" in processes(run) or GROUPED)
        time.sleep(4 if SAN else 1.5)  # until the sink has its batch
        run.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert run.process.poll() is None, "it should wait for the stage"
        run.process.send_signal(signal.SIGINT)
        t0 = time.time()
        r = run.wait(10)
        assert r.code == 130 and time.time() - t0 < END_S, r
        no_leftovers()


@test
def everybody_is_signalled():
    """As a terminal, a batch system or an init does: the whole process group at once."""
    with Place() as p:
        for number in (signal.SIGINT, signal.SIGTERM):
            argv = [PENSTOCK, "run", HYPERION, "--dataset", p.data, *map(str, SMALL + ENDLESS), "--run-dir", p.path(f"g{number}")]
            argv += ["--group", "all"] if GROUPED else []
            run = Running(argv, p.path(f"g{number}"), start_new_session=True)
            wait_for(lambda: has_checkpoint(run.run_dir))
            os.killpg(run.process.pid, number)
            r = run.wait(20)
            assert r.code == 128 + number and r.report["status"] == "interrupted", r
            no_leftovers()


@test
def a_kill_while_stopping_is_told():
    with Place() as p:
        run = p.start(chain(batches=2, sink={"delay_us": 8_000_000}), grouped=False)
        wait_for(lambda: "sink" in processes(run))
        time.sleep(0.4 * (5 if SAN else 1))
        pid = processes(run)["sink"]
        run.process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        os.kill(pid, signal.SIGKILL)
        r = run.wait(10)
        assert r.code == 1 and "sink: died of signal 9" in r.err and r.report["status"] == "failed", r


# ---- stopped, slow -------------------------------------------------------------------------------


def standing_still(p, pl, *words):
    """Nobody dies and nothing moves: after 15 s a warning says who holds what."""
    run = p.start(pl, foreign=True)
    time.sleep(17)
    run.process.terminate()
    r = run.wait(20)
    assert "no progress for 15 s\n" in r.err and r.err.count("no progress for") == 1, r
    for word in words:
        assert word in r.err, (word, r)


def leaking(p):
    pl = pipeline({"source": stage("source", batches=50), "a": stage("passthrough"), "sink": stage("swallow", leaks=True)},
                  links("source.out", "a.in", "a.out", "sink.in"))
    standing_still(p, pl, "    source waits for a free slot", "    a waits for input",
                   "    sink waits for its program; holds 4 of 4 slots of source.out")


def attached(p):
    """With --debug a stage may stand still: it goes on when the debugger lets it."""
    run = p.start(chain(batches=2000, sink={"delay_us": 0}), "--debug", grouped=False)
    pid = wait_for(lambda: processes(run).get("a"))
    os.kill(pid, signal.SIGSTOP)
    time.sleep(7)
    assert run.process.poll() is None
    os.kill(pid, signal.SIGCONT)
    r = run.wait(30)
    assert r.code == 0 and r.report["sink"]["batches"] == 2000 and f"gdb -p {pid}" in r.err, r


def waiting_for_a_debugger(p, traced):
    """With --debug=STAGE, the stage waits until a debugger is attached. Without one, the run can still be stopped."""
    pl = pipeline({"source": stage("source", batches=20), "times": stage("times"), "sink": stage("sink", factor=3)},
                  links("source.out", "times.in", "times.out", "sink.in"))
    for name in ("sink", "times"):
        run = p.start(pl, f"--debug={name}", foreign=True)
        said = ""
        while "until a debugger" not in said:
            said = run.process.stderr.readline()
            assert said, run.wait(10)
        pid = int(re.fullmatch(rf"warning: {name}: waiting until a debugger is attached: gdb -p (\d+)\n", said)[1])
        time.sleep(1)
        assert run.process.poll() is None and not os.path.exists(os.path.join(run.run_dir, "report.json"))
        if traced:
            subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "continue"], capture_output=True, timeout=60)
            assert run.wait(30).report["sink"]["batches"] == 20
        else:
            run.process.send_signal(signal.SIGINT)
            assert run.wait(10).code == 130
    r = p.run(pl, "--debug=sinc", code=2, foreign=True)
    assert 'unknown stage "sinc": did you mean "sink"?' in r.err, r


def stopped(p, victim):
    run = p.start(chain(batches=2000), grouped=False)
    wait_for(lambda: victim in processes(run))
    time.sleep(0.3)
    os.kill(processes(run)[victim], signal.SIGSTOP)
    t0 = time.time()
    r = run.wait(30)
    assert r.code == 1 and f"error: {victim}: the process is stopped (by SIGSTOP" in r.err, r
    assert 4 < time.time() - t0 < 8 * (2 if SAN else 1), time.time() - t0


def stopped_program(p):
    pl = pipeline({"source": stage("source", batches=50), "times": stage("times", misbehave="pause"),
                   "sink": stage("sink", factor=3)}, links("source.out", "times.in", "times.out", "sink.in"))
    t0 = time.time()
    r = p.run(pl, code=1, foreign=True)
    assert "times: external program" in r.err and "is stopped (by SIGSTOP" in r.err, r
    assert time.time() - t0 < 10 * (3 if SAN else 1)


def stopped_at_the_start(p):
    run = p.start(HYPERION, *SMALL, grouped=False)
    pid = wait_for(lambda: run.process.poll() is not None or processes(run).get("sampler"))
    time.sleep(0.02)
    os.kill(pid, signal.SIGSTOP)
    with open(f"/proc/{pid}/stat") as f:
        loading = f.read()
    r = run.wait(30)
    assert r.code == 1 and "error: sampler: the process is stopped (by SIGSTOP" in r.err, (r, loading)


def slow(p):
    r = p.run(chain(batches=1, sink={"delay_us": 8_000_000}))
    assert r.report["sink"]["batches"] == 1 and r.seconds > 8


def paused_altogether(p):
    """Ctrl-Z, and later fg: nobody is to blame."""
    argv = [PENSTOCK, "run", p.write(chain(batches=40)), "--dataset", p.data, "--run-dir", p.path("paused")]
    run = Running(argv, p.path("paused"), start_new_session=True)
    wait_for(lambda: "sink" in processes(run))
    time.sleep(0.3)
    os.killpg(run.process.pid, signal.SIGSTOP)
    time.sleep(7)
    os.killpg(run.process.pid, signal.SIGCONT)
    r = run.wait(30)
    assert r.code == 0 and r.report["sink"]["batches"] == 40, r


@test
def stopped_stages_are_found_and_slow_ones_left_alone():
    if GROUPED:
        raise Skip("these are processes")

    def alone(job, *args):
        with Place() as p:
            job(p, *args)

    jobs = [(stopped, "a"), (stopped, "memory-cpu:0"), (stopped_program,), (slow,), (paused_altogether,),
            (stopped_at_the_start,), (leaking,), (attached,), (waiting_for_a_debugger, False)]
    if shutil.which("gdb"):
        jobs.append((waiting_for_a_debugger, True))
    with ThreadPoolExecutor(len(jobs)) as pool:
        for done in [pool.submit(alone, *job) for job in jobs]:
            done.result()


if __name__ == "__main__":
    main()
