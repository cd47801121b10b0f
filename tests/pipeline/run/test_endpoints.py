"""Who may speak to a run: its own processes. Another user of the machine is kept out by the kernel; another
process of the same user can neither crash nor wedge it; over tcp only who has the keys is let in."""
import signal
import threading

import zmq

from crash import *

OTHER = 65534  # nobody


def as_other(code, *args):
    """Runs Python code as another user."""
    return subprocess.run(["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups", "/usr/bin/python3", "-c",
                           code, *map(str, args)], capture_output=True, text=True, cwd="/", timeout=60)


def need_other():
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        raise Skip("only root can become another user, by setpriv")


ENDLESS = 1_000_000  # batches: never done before it is stopped


def pipeline_with_program(batches=150, delay_us=20000, **program):
    times = {**stage("times", misbehave="no"), **program}
    return pipeline({"source": stage("source", batches=batches), "times": times,
                     "sink": stage("sink", factor=3, delay_us=delay_us)},
                    links("source.out", "times.in", "times.out", "sink.in"))


def running(p, pl):
    run = p.start(pl, foreign=True)
    wait_for(lambda: "sink" in processes(run))
    with open(os.path.join(run.run_dir, "lock")) as f:
        run.id = f.read().split()[1]
    wait_for(lambda: any("-times-wire-" in name for name in endpoints(run)))
    time.sleep(0.5)
    return run


def endpoints(run):
    with open("/proc/net/unix") as f:
        return sorted({line.split()[-1] for line in f if f"@penstock-{run.id}" in line})


# Sends to each endpoint what its reader would take from its own people; prints how many were delivered.
INJECT = """
import sys, time, zmq
context, sockets = zmq.Context(), []
for name in sys.argv[1:]:
    inbox = not name.endswith("-control") and "-wire-" not in name
    s = context.socket(zmq.PUSH if inbox else zmq.DEALER)
    s.linger = 0
    if name.endswith("-control"):
        s.routing_id = b"sink"
    monitor = s.get_monitor_socket()
    s.connect("ipc://" + name)
    sockets.append((name, s, monitor))
time.sleep(0.3)
for name, s, monitor in sockets:
    for message in (b'{"type":"failed","text":"injected"}', b'{"type":"done"}', b"x" * 77, b""):
        for i in range(20):
            try:
                s.send(message, zmq.DONTWAIT)
            except zmq.Again:
                pass
time.sleep(0.5)
let_in = 0
from zmq.utils.monitor import recv_monitor_message
for name, s, monitor in sockets:
    while monitor.poll(0):
        let_in += recv_monitor_message(monitor)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
    s.disable_monitor()
    s.close()
print("let in:", let_in)
"""


OPEN = """
import sys
for path in sys.argv[1:]:
    try:
        open(path, "rb").read(1)
        print("read")
    except OSError as error:
        print(type(error).__name__)
"""


@test
def another_user_is_kept_out():
    need_other()
    with Place() as p:
        os.chmod(p.dir, 0o755)
        run = running(p, pipeline_with_program(ENDLESS))
        names = endpoints(run)
        for part in ("-control", "-sink-", "-source-", "-times-", "-times-wire-"):
            assert any(part in name for name in names), names
        assert all(len(name) < 107 for name in names), names
        r = as_other(INJECT, *names)
        assert r.stdout.strip() == "let in: 0", (r.stdout, r.stderr)
        # the same, as the user whose run it is, is let in: what was tried above would have worked
        mine = subprocess.run(["/usr/bin/python3", "-c", INJECT, *[n for n in names if "-source-" in n]],
                              capture_output=True, text=True)
        assert int(mine.stdout.split()[-1]) >= 1, (mine.stdout, mine.stderr)
        host = processes(run)["memory-cpu:0"]
        regions = [fd for fd in os.listdir(f"/proc/{host}/fd") if "memfd:penstock" in os.readlink(f"/proc/{host}/fd/{fd}")]
        assert len(regions) >= 2
        asked = [f"/proc/{host}/fd/{fd}" for fd in regions]
        asked += [f"/proc/{pid}/{what}" for pid in processes(run).values() for what in ("mem", "environ", "maps")]
        r = as_other(OPEN, *asked)
        assert r.stdout.split() == ["PermissionError"] * len(asked), (asked, r)
        r = as_other("import os, sys; os.listdir(sys.argv[1])", run.run_dir)
        assert "PermissionError" in r.stderr, r
        stopped(run)


# Takes every name that a socket of the run could get, until the run has ended.
SQUAT = """
import socket, sys, time
taken = {}
print("ready", flush=True)
id = sys.stdin.readline().strip()
until = time.time() + float(sys.argv[1])
while time.time() < until:
    with open("/proc/net/unix") as f:
        seen = {line.split()[-1][1:] for line in f if f"@penstock-{id}" in line}
    for name in seen | {f"penstock-{id}-control"}:
        for stage in sys.argv[2:]:
            for guess in (name.replace("control", stage), name.replace("control", stage + "-wire"), name + "-wire"):
                s = socket.socket(socket.AF_UNIX)
                try:
                    s.bind(b"\\0" + guess.encode())
                    taken[guess] = s
                except OSError:
                    s.close()
print("took", len(taken))
"""


@test
def another_user_cannot_take_a_name():
    need_other()
    with Place() as p:
        squatter = subprocess.Popen(["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups", "/usr/bin/python3",
                                     "-c", SQUAT, "4", "source", "times", "sink"], stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, text=True, cwd="/")
        assert squatter.stdout.readline() == "ready\n"
        run = p.start(pipeline_with_program(batches=20, delay_us=1000), foreign=True)
        lock = os.path.join(run.run_dir, "lock")
        wait_for(lambda: os.path.exists(lock) and os.path.getsize(lock) > 0)
        with open(lock) as f:
            run.id = f.read().split()[1]
        squatter.stdin.write(run.id + "\n")
        squatter.stdin.flush()
        r = run.wait(20)
        assert int(squatter.communicate(timeout=20)[0].split()[-1]) > 0, "it was too late"
        assert r.code == 0 and r.report["sink"]["batches"] == 20, r


def stopped(run):
    """Nothing happened to it: it was going until now, ends in order, and has nothing to tell."""
    assert run.process.poll() is None
    run.process.terminate()
    r = run.wait(30)
    assert r.code == 143 and r.report["status"] == "interrupted" and r.report["stages"]["sink"]["items"] > 0, r
    assert "warning" not in r.err and "error" not in r.err, r


def pester(names, until, seed):
    """Sends rubbish, as a process of the same user, under unknown and stolen names."""
    rng, context = random.Random(seed), zmq.Context()
    sockets = []
    for name in names:
        for identity in (None, b"sink", b"memory-cpu:0", b"nobody"):
            s = context.socket(zmq.DEALER)
            s.linger, s.sndtimeo = 0, 0
            if identity and name.endswith("-control"):
                s.routing_id = identity
            s.connect("ipc://" + name)
            sockets.append(s)
    while not until.is_set():
        s = rng.choice(sockets)
        message = rng.choice([b'{"type":"done"}', b'{"type":"failed","text":"no"}', b"{" * 5000, os.urandom(300), b"",
                              b'{"type":"region","id":0,"path":"/etc/passwd"}', b'{"type":"hello","pid":1,"protocol":1}'])
        try:
            s.send_multipart([message] * rng.choice([1, 1, 1, 2, 3, 5]))
        except zmq.Again:
            time.sleep(0.01)
    context.destroy(linger=0)


@test
def rubbish_of_the_same_user_changes_nothing():
    with Place() as p:
        run = running(p, pipeline_with_program())
        names, until = [n for n in endpoints(run)], threading.Event()
        threads = [threading.Thread(target=pester, args=(names, until, seed)) for seed in range(2)]
        for t in threads:
            t.start()
        try:
            r = run.wait(60)
        finally:
            until.set()
            for t in threads:
                t.join()
        assert r.code == 0 and r.report["sink"]["batches"] == 150, r


@test
def a_place_taken_before_the_run_is_told():
    """Somebody of the same user who is there before a stage keeps ZeroMQ from letting the stage in."""
    with Place() as p:
        context = zmq.Context()
        run = p.start(pipeline_with_program(), foreign=True)
        lock = os.path.join(run.run_dir, "lock")
        wait_for(lambda: os.path.exists(lock) and os.path.getsize(lock) > 0)
        with open(lock) as f:
            run.id = f.read().split()[1]
        pid = wait_for(lambda: processes(run).get("sink"))
        os.kill(pid, signal.SIGSTOP)  # before it speaks, if we are quick
        s = context.socket(zmq.DEALER)
        s.linger, s.routing_id = 0, b"sink"
        s.connect(f"ipc://@penstock-{run.id}-control")
        s.send(b'{"type":"hello","pid":1,"protocol":1}')
        time.sleep(0.3)
        os.kill(pid, signal.SIGCONT)
        r = run.wait(10)
        context.destroy(linger=0)
        # who was first is kept: either the rightful one, and nothing happened, or the other, and the run says so
        assert r.code == 0 or (r.code == 1 and "connected to the supervisor's socket in place of this one" in r.err), r


# ---- tcp -----------------------------------------------------------------------------------------


def tcp_endpoint(run):
    pid = wait_for(lambda: next(iter(children(processes(run)["times"])), 0))
    def environment():
        with open(f"/proc/{pid}/environ") as f:
            return dict(line.split("=", 1) for line in f.read().split("\0") if line.startswith("PENSTOCK_WIRE"))
    env = wait_for(lambda: environment() if "PENSTOCK_WIRE" in environment() else None)
    return env["PENSTOCK_WIRE"], env["PENSTOCK_WIRE_KEYS"].split()


def try_to_connect(endpoint, keys):
    """True if a client with these keys is let in."""
    context = zmq.Context()
    s = context.socket(zmq.DEALER)
    s.linger = 0
    if keys:
        s.curve_serverkey, s.curve_publickey, s.curve_secretkey = (k if isinstance(k, bytes) else k.encode() for k in keys)
    monitor = s.get_monitor_socket()
    s.connect(endpoint)
    for _ in range(30):
        try:
            s.send(b'{"type":"failed","text":"injected"}', zmq.DONTWAIT)
        except zmq.Again:
            pass
        time.sleep(0.01)
    from zmq.utils.monitor import recv_monitor_message
    let_in = False
    until = time.time() + 0.5
    while time.time() < until and monitor.poll(200):
        let_in = let_in or recv_monitor_message(monitor)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
    s.disable_monitor()
    s.close()
    context.destroy(linger=0)
    return let_in


@test
def tcp_needs_keys():
    if not zmq.has("curve"):
        raise Skip("this libzmq has no CURVE")
    with Place() as p:
        pl = pipeline_with_program(batches=50, delay_us=0, endpoint="tcp://127.0.0.1:*")
        assert p.run(pl, foreign=True).report["sink"]["batches"] == 50
        run = p.start(pipeline_with_program(ENDLESS, endpoint="tcp://127.0.0.1:*"), foreign=True)
        wait_for(lambda: "times" in processes(run))
        endpoint, keys = tcp_endpoint(run)
        assert endpoint.startswith("tcp://127.0.0.1:") and not endpoint.endswith("*") and len(keys) == 3
        stranger, server = zmq.curve_keypair(), zmq.curve_keypair()[0]
        assert not try_to_connect(endpoint, None), "without keys"
        assert not try_to_connect(endpoint, [keys[0], *stranger]), "with a key of its own"
        assert not try_to_connect(endpoint, [server, *keys[1:]]), "to another server"
        assert not try_to_connect(endpoint, [keys[0], keys[1], stranger[1]]), "with a stolen public key alone"
        if os.geteuid() == 0:
            r = as_other("import sys; open(sys.argv[1]).read()", f"/proc/{children(processes(run)['times'])[0]}/environ")
            assert "PermissionError" in r.stderr, r
        stopped(run)
        for endpoint, words in (("ipc:///tmp/x", "tcp://ADDRESS:PORT"), ("tcp://127.0.0.1", "tcp://ADDRESS:PORT"),
                                ("tcp://127.0.0.1:99999", "tcp://ADDRESS:PORT"), (7, "expected a string")):
            r = p.run(pipeline_with_program(endpoint=endpoint), code=2, foreign=True)
            assert "stages.times.endpoint" in r.err and words in r.err, r
        pl = pipeline_with_program()
        pl["stages"]["sink"]["endpoint"] = "tcp://127.0.0.1:*"
        assert "only external programs have an endpoint, but" in p.run(pl, code=2, foreign=True).err


if __name__ == "__main__":
    main()
