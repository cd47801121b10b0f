"""What the pipeline tests share: making pipelines, running them, and seeing that nothing is left behind."""
import atexit
import functools
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
PENSTOCK = os.path.join(BUILD, "bin", "penstock")
STAGES = os.path.join(BUILD, "tests", "stages")
DATA = os.environ.get("PENSTOCK_DATA", os.path.join(ROOT, "..", "shared", "data"))
SAN = os.environ.get("SAN", "")
GROUPED = SAN == "tsan"  # ThreadSanitizer cannot see between processes
TESTS = []
TAG = f"PENSTOCK_TEST={os.getpid()}"  # in the environment of everything that this test starts
os.environ["PENSTOCK_TEST"] = str(os.getpid())


def shipped_pipelines():
    """The shipped pipelines: {name: arguments of run and check}: hyperion.json, and with each of the settings."""
    hyperion = os.path.join(ROOT, "pipelines", "hyperion.json")
    settings = sorted(glob.glob(os.path.join(ROOT, "pipelines", "settings", "*.json")))
    return {"hyperion": [hyperion],
            **{os.path.basename(file)[:-len(".json")]: [hyperion, "--with", file] for file in settings}}


def shipped_models():
    """The settings of further models, which come after those of the dataset: {(model, dataset): arguments of run and check}."""
    of_dataset = shipped_pipelines()
    files = sorted(glob.glob(os.path.join(ROOT, "pipelines", "settings", "*", "*.json")))
    names = [(os.path.basename(os.path.dirname(file)), os.path.basename(file)[:-len(".json")]) for file in files]
    return {(model, name): [*of_dataset[name], "--with", file] for (model, name), file in zip(names, files) if model not in ("marius", "link")}


def shipped_embeddings():
    """The settings of marius.json: {dataset: arguments of run and check}."""
    marius = os.path.join(ROOT, "pipelines", "marius.json")
    files = sorted(glob.glob(os.path.join(ROOT, "pipelines", "settings", "marius", "*.json")))
    return {os.path.basename(file)[:-len(".json")]: [marius, "--with", file] for file in files}


class Skip(Exception):
    pass


def reached_by_others(path):
    """Whether another user may reach `path`: everyone may enter every folder above it."""
    while path != "/":
        path = os.path.dirname(path)
        if not os.stat(path).st_mode & 0o001:
            return False
    return True


def test(function):
    TESTS.append(function)
    return function


def stage(name, **more):
    """A stage of tests/stages, or an installed one."""
    native = os.path.join(STAGES, name + ".so")
    foreign = os.path.join(ROOT, "tests", "stages", name + ".py")
    run = native if os.path.exists(native) else foreign if os.path.exists(foreign) else name
    placed = {key: more.pop(key) for key in ("place", "group", "instances") if key in more}
    return {"run": run, "params": more, **placed}


def links(*chain, **first):
    """links("a.out", "b.in", ...) pairs up; keyword arguments go to the first link."""
    pairs = [{"from": chain[i], "to": chain[i + 1]} for i in range(0, len(chain), 2)]
    pairs[0].update(first)
    return pairs


def pipeline(stages, links, **more):
    return {"penstock": 1, "name": "t", "stages": stages, "links": links, **more}


class Result:
    def __init__(self, code, out, err, report, seconds, run_dir):
        self.code, self.out, self.err, self.report = code, out, err, report
        self.seconds, self.run_dir = seconds, run_dir

    def __str__(self):
        return f"exit code {self.code}\n{self.out}\n{self.err}"


class Place:
    """A temporary directory with a small dataset in it."""
    _demo = None

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="penstock-test-")
        self.count = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.dir, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.dir, name)

    @property
    def data(self):
        path = self.path("data")
        if not os.path.exists(path):
            command("gen", "community", path, "--vertices", "2000", "--seed", "3")
        return path

    def write(self, pl, name=None):
        path = self.path(name or f"p{self.count}.json")
        with open(path, "w") as f:
            f.write(pl if isinstance(pl, str) else json.dumps(pl, indent=1))
        return path

    def start(self, pl, *args, data=None, foreign=False, grouped=None):
        self.count += 1
        file = pl if isinstance(pl, str) and os.path.exists(pl) else self.write(pl)
        run_dir = self.path(f"run{self.count}")
        argv = [PENSTOCK, "run", file, "--dataset", data or self.data, "--run-dir", run_dir, *map(str, args)]
        if (GROUPED and not foreign) if grouped is None else grouped:
            argv += ["--group", "all"]
        return Running(argv, run_dir)

    def run(self, pl, *args, code=0, timeout=60, **more):
        result = self.start(pl, *args, **more).wait(timeout)
        assert code is None or result.code == code, f"expected exit code {code}: {result}"
        return result


class Running:
    ids = set()  # of runs: their sockets are named after them

    def __init__(self, argv, run_dir, **more):
        self.run_dir, self.t0 = run_dir, time.time()
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)

    def wait(self, timeout=60):
        try:
            out, err = self.process.communicate(timeout=timeout * (5 if SAN else 1))
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            raise AssertionError(f"still going after {timeout} s\n{out}\n{err}{self.logs()}")
        report = None
        lock = os.path.join(self.run_dir, "lock")
        if os.path.exists(lock):
            with open(lock) as f:
                Running.ids.update(f.read().split()[1:2])  # "PID ID made INODE"
        path = os.path.join(self.run_dir, "report.json")
        if os.path.exists(path):
            with open(path) as f:
                report = json.load(f)
        if self.process.returncode not in (0, 1, 2, 130, 143):
            err += self.logs()
        return Result(self.process.returncode, out, err, report, time.time() - self.t0, self.run_dir)

    def logs(self):
        text = ""
        for path in sorted(glob.glob(os.path.join(self.run_dir, "logs", "*"))):
            with open(path) as f:
                text += f"\n--- {os.path.basename(path)}\n{f.read()[-3000:]}"
        return text


def command(*args, code=0, cwd=None):
    r = subprocess.run([PENSTOCK, *map(str, args)], capture_output=True, text=True, cwd=cwd, timeout=600 if SAN else 300)
    assert code is None or r.returncode == code, f"penstock {' '.join(map(str, args))}: {r.returncode}\n{r.stdout}{r.stderr}"
    return r


@functools.cache
def installed():
    """The prefix of an installed Penstock, for all tests of a program."""
    prefix = tempfile.mkdtemp(prefix="penstock-test-installed-")
    atexit.register(shutil.rmtree, prefix, ignore_errors=True)
    subprocess.run(["make", "-s", "-o", "all", "install", f"PREFIX={prefix}", f"BUILD={os.environ.get('BUILD', 'build')}"],
                   cwd=ROOT, check=True, capture_output=True)
    return prefix


def build_outside(p, name="favour.c", compiler=("cc", "-Wextra")):
    """A file of tests/pipeline/outside, built as its author would: against an installed Penstock."""
    if SAN:
        raise Skip("built against the plain installation")
    prefix, mine = installed(), p.path(name + ".so")
    source = os.path.join(ROOT, "tests", "pipeline", "outside", name)
    env = {**os.environ, "PKG_CONFIG_PATH": os.path.join(prefix, "share", "pkgconfig")}
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "penstock"], env=env, check=True,
                           capture_output=True, text=True).stdout.split()
    # as CMake projects do: what is not declared to be visible is hidden
    subprocess.run([*compiler, "-Wall", "-Werror", "-fvisibility=hidden", "-shared", "-fPIC", "-o", mine, source, *flags],
                   check=True)
    return mine


def leftovers():
    """Processes, sockets and shared memory of this test's runs, which should all have ended."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", errors="replace") as f:
                mine = TAG in f.read().split("\0")
            with open(f"/proc/{pid}/cmdline", errors="replace") as f:
                argv = f.read().split("\0")
        except OSError:
            continue
        if mine and int(pid) != os.getpid():
            found.append(f"process {pid}: {' '.join(argv)}")
    with open("/proc/net/unix") as f:
        found += [line.strip() for line in f if any(id in line for id in Running.ids)]
    found += [path for path in glob.glob("/dev/shm/*penstock*") if "penstock-fuzz" not in path]  # fuzzers' own
    return found


def no_leftovers(seconds=30 if SAN else 10):
    """A busy machine takes seconds to end a process; what was really left behind stays."""
    until = time.time() + seconds
    while (found := leftovers()) and time.time() < until:
        time.sleep(0.05)
    assert not found, "left behind:\n" + "\n".join(found)


def main():
    bad = 0
    only = sys.argv[1:]
    for i, function in enumerate(TESTS):
        if only and function.__name__ not in only:
            continue
        t0 = time.time()
        try:
            function()
            no_leftovers()
            print(f"ok {i + 1} - {function.__name__} ({time.time() - t0:.1f} s)", flush=True)
        except Skip as reason:
            print(f"ok {i + 1} - {function.__name__} # SKIP {reason}", flush=True)
        except Exception:
            bad += 1
            traceback.print_exc()
            print(f"not ok {i + 1} - {function.__name__}", flush=True)
    sys.exit(bad > 0)
