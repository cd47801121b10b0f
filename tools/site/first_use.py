#!/usr/bin/env python3
"""first_use.py BUILD [--build] [--write] [WORD]...: measures how long the first tasks of a new user take, and how much they must write.

Prints the table of pages/first-use.md; --write puts it there, after each task, so that a run that is cut off keeps what it has
measured. Every number is measured here, but for the columns "before", which are those of the first review. --build also clones
and builds the tree, which takes minutes; without it, that row and the row of `make run` keep what the page says. With words,
only the tasks that contain one of them are measured. PENSTOCK_TORCH_PYTHON names an interpreter with PyTorch and PyG."""
import datetime
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PAGE = os.path.join(HERE, "pages", "first-use.md")
EXAMPLES, HYPERION = os.path.join(ROOT, "stages", "examples"), os.path.join(ROOT, "pipelines", "hyperion.json")
KNOWN = re.compile(r"penstock (?:graph|stages|gen|inspect|verify|infer|export|features|import csv|check|disks|bench|probe$|gc|"
                   r"run .*hyperion\.json(?!.*drive0))|^make|^cc |^sed .*report|friends")  # commands that the first README had, or their successors
TASK_S = 1800  # more than any task takes, on a busy machine
BEGIN, END = "<!-- measured by first_use.py -->\n", "<!-- end -->\n"
HEAD = "| task | commands | lines written | lines before | time | time before |\n|---|---|---|---|---|---|\n"
OWN = """{"penstock": 1, "name": "own", "params": {"fanout": [10, 5], "batch": 512},
 "stages": {"planner": {"run": "planner", "params": {"cpu_cache": "2MiB"}}, "sampler": {"run": "sampler", "instances": 2},
            "disk": {"run": "disk", "params": {"depth": 32}}, "trainer": {"run": "trainer"},
            "seen": {"run": "./sink.py"}},
 "links": [{"from": "planner.plan", "to": "sampler.plan"}, {"from": "sampler.batch", "to": "disk.requests"},
           {"from": "disk.done", "to": "trainer.batch"}, {"from": "disk.done", "to": "seen.batch"}]}
"""
SINK = """#!/usr/bin/env python3
import penstock

with penstock.Stage("sink", "takes all batches") as stage:
    stage.report("seen", batches=sum(1 for batch in stage))
"""
GPUS = [x for path, device in (("sampler", "cuda:0"), ("trainer", "cuda:1")) for x in ("--set", f'stages.{path}.place={{"device":"{device}"}}')]


class Skipped(Exception):
    """The task cannot be done here; the text says why."""


def children_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Desk:
    """A user's directory: an installed Penstock in PATH, data/demo, and what the user writes."""

    def __init__(self, build, folder, vertices=60000):
        self.build, self.folder, self.cpu_s, self.known = os.path.abspath(build), folder, 0, None
        search = os.path.join(ROOT, "tools", "python")
        self.env = {**os.environ, "PYTHONPATH": search, "PATH": os.pathsep.join([os.path.join(self.build, "bin"), "/usr/bin", os.environ["PATH"]])}
        self.run(f"penstock gen community data/demo --vertices {vertices} --seed 3 --quiet")
        for name, text in (("own.json", OWN), ("sink.py", SINK)):
            with open(os.path.join(folder, name), "w") as f:
                f.write(text)
        os.chmod(os.path.join(folder, "sink.py"), 0o755)

    def run(self, command, env=None, cwd=None):
        """The seconds that a shell command took. It must succeed. Adds the processor time of all its processes to self.cpu_s."""
        began, cpu_s = time.monotonic(), children_s()
        r = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=cwd or self.folder, env={**self.env, **(env or {})}, capture_output=True,
                           text=True, timeout=TASK_S, stdin=subprocess.DEVNULL)
        if r.returncode:
            raise RuntimeError(f"{command}\nexit code {r.returncode}\n{r.stdout[-3000:]}{r.stderr[-3000:]}")
        self.cpu_s += children_s() - cpu_s
        return time.monotonic() - began

    def report(self, run_dir):
        with open(os.path.join(self.folder, run_dir, "report.json")) as f:
            return json.load(f)

    def train(self, name, args, env=None, pipeline=HYPERION, epochs=2):
        seconds = self.run(f"penstock run {pipeline} --dataset data/demo --epochs {epochs} --run-dir runs/{name} --quiet --set stages.planner.params.cpu_cache=2MiB {args}", env)
        report = self.report(f"runs/{name}")
        assert report["status"] == "ok" and report["io"]["requests"] > 0, report
        return seconds


def lines(path):
    """Lines of a file, without empty ones."""
    with open(path) as f:
        return sum(1 for line in f if line.strip())


def example(name):
    return os.path.join(EXAMPLES, name)


def readme(desk):
    with open(os.path.join(ROOT, "README.md")) as f:
        blocks = re.findall(r"```sh\n(.*?)```", f.read(), re.S)
    copy = os.path.join(desk.folder, "tree")
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in filter(lambda name: os.path.exists(os.path.join(ROOT, name)), listed.stdout.splitlines()):
        os.makedirs(os.path.dirname(os.path.join(copy, name)), exist_ok=True)
        shutil.copy2(os.path.join(ROOT, name), os.path.join(copy, name))  # with its time, so that nothing is built again
    os.symlink(desk.build, os.path.join(copy, "build"))
    total = 0
    desk.known = [0, 0]
    for command in "".join(blocks).replace("\\\n", " ").splitlines():
        before = desk.cpu_s
        took = desk.run("make -n check" if command == "make check" else command, cwd=copy)
        total += took
        if KNOWN.search(command):
            desk.known = [desk.known[0] + took, desk.known[1] + desk.cpu_s - before]
    return total


def readme_known(desk):
    """Of the commands that readme() has measured, those that the first README had."""
    if not desk.known:
        readme(desk)
    seconds, desk.cpu_s = desk.known
    return seconds


def two_gpus(desk):
    library = os.path.join(desk.build, "tests", "libpenstock-cuda-host.so")
    if not os.path.exists(library):
        raise Skipped("`make tests` builds the virtual GPUs; it was not run")
    return desk.train("gpus", " ".join(f"'{x}'" for x in GPUS), {"PENSTOCK_CUDA": library}, "own.json", 1)


def own_sampler(desk):
    installed = os.path.join(desk.folder, "installed")
    subprocess.run(["make", "-s", "-o", "all", "install", f"PREFIX={installed}", f"BUILD={os.path.relpath(desk.build, ROOT)}"], cwd=ROOT, check=True,
                   capture_output=True)
    source = os.path.join(ROOT, "tests", "pipeline", "outside", "favour.c")
    built = desk.run(f"cc -Wall -Wextra -O2 -shared -fPIC -o favour.so {source} $(pkg-config --cflags --libs penstock)",
                     {"PKG_CONFIG_PATH": os.path.join(installed, "share", "pkgconfig")})
    return built + desk.train("favour", "--set stages.sampler.run=./favour.so", {"LD_LIBRARY_PATH": os.path.join(installed, "lib")}, epochs=1)


def own_trainer(name, module, pipeline="pytorch.json"):
    def go(desk):
        python = os.environ.get("PENSTOCK_TORCH_PYTHON", "/usr/bin/python3")
        found = subprocess.run([python, "-c", f"import zmq, {module}"], capture_output=True, text=True)
        if found.returncode:
            raise Skipped(f"this Python has no {module}")
        return desk.train(name, f"--set stages.trainer.run={example(name)}", {"PATH": os.pathsep.join([os.path.dirname(python), desk.env["PATH"]])},
                          os.path.join(ROOT, "pipelines", pipeline))
    return go


def between(desk):
    """A stage in Python between the disk and the native trainer."""
    with open(HYPERION) as f:
        pipeline = json.load(f)
    pipeline["stages"]["statistics"] = {"run": example("statistics.py")}
    pipeline["links"][2:] = [{"from": "disk.done", "to": "statistics.batch"}, {"from": "statistics.done", "to": "trainer.batch"}]
    with open(os.path.join(desk.folder, "between.json"), "w") as f:
        json.dump(pipeline, f)
    return desk.train("between", "", pipeline="between.json")


def clone_and_build(desk):
    copy = os.path.join(desk.folder, "fresh")
    nice = desk.env["PATH"].replace("/usr/lib/ccache", "")
    return desk.run(f"git clone -q {ROOT} {copy} && make -s -j1 -C {copy}", {"PATH": nice, "CCACHE_DISABLE": "1"})


def make_run(desk):
    return desk.run("make -s run", cwd=os.path.join(desk.folder, "fresh"))


# task, commands, files that the user writes, lines before (of the review: with the client that its author had to write), time before, what measures it
TASKS = [
    ("clone and build, `make -j1`", "`git clone`, `make`", None, None, "5 min 39 s (2 min 7 s of CPU)", clone_and_build),
    ("`make run`, to a trained model", "`make run`", None, None, "8.4 s", make_run),
    ("all commands of the README", "its blocks, top to bottom", None, None, "20 s, when it had half as many", readme),
    ("those that the README had before", "31 commands then", None, None, "20 s", readme_known),
    ("own pipeline: two samplers, a trainer and a consumer in Python", "`penstock run own.json`", [OWN, SINK], None, "17 s",
     lambda desk: desk.train("own", "", pipeline="own.json", epochs=1)),
    ("the same on two virtual GPUs", "`--set 'stages.sampler.place={\"device\":\"cuda:0\"}'` and the trainer's", [], None, "1 min", two_gpus),
    ("own sampler in C, outside the tree", "`cc`, `--set stages.sampler.run=./favour.so`", ["tests/pipeline/outside/favour.c"], 89, "17 s", own_sampler),
    ("stage in Python between disk and trainer", "`penstock run between.json`", ["stages/examples/statistics.py"], 90, None, between),
    ("GraphSAGE in NumPy as the trainer", "`--set stages.trainer.run=numpy_graphsage.py`", ["stages/examples/numpy_graphsage.py"], 121, None,
     own_trainer("numpy_graphsage.py", "numpy")),
    ("GraphSAGE in PyTorch as the trainer", "`penstock run pipelines/pytorch.json`", ["stages/examples/graphsage.py"], 103, None,
     own_trainer("graphsage.py", "torch")),
    ("GAT of PyG as the trainer", "`--set stages.trainer.run=gat.py`", ["stages/examples/gat.py"], 103, None, own_trainer("gat.py", "torch_geometric")),
    ("smallest stage in Python", "`--set 'stages.trainer={\"run\":\"./sink.py\"}'`", [SINK], 12, None,
     lambda desk: desk.train("sink", "--set 'stages.trainer={\"run\": \"./sink.py\"}'", epochs=1)),
]


def written(files):
    """Lines that the user writes; a text, or a file of the tree."""
    if files is None:
        return "-"
    return str(sum(len([x for x in f.splitlines() if x.strip()]) if "\n" in f else lines(os.path.join(ROOT, f)) for f in files))


def duration(seconds):
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {seconds % 60:.0f} s"


def kept(task):
    """The time that the page has for a task."""
    with open(PAGE) as f:
        found = [line.split(" | ")[4] for line in f if line.startswith(f"| {task} | ")]
    return found[0] if found else "not measured"


def wanted(task, measure, build, words):
    return (build or measure not in (clone_and_build, make_run)) and (not words or any(word in task for word in words))


def row(at, taken):
    task, commands, files, before, time_before, _ = TASKS[at]
    return f"| {task} | {commands} | {written(files)} | {before or '-'} | {taken} | {time_before or '-'} |\n"


def measured(desk, build, words):
    """The table, first with what the page has, then after each task."""
    rows = [row(at, kept(task[0])) for at, task in enumerate(TASKS)]
    for at, (task, *_, measure) in enumerate(TASKS):
        if not wanted(task, measure, build, words):
            continue
        try:
            desk.cpu_s = 0
            taken = duration(measure(desk))
            taken += f" ({duration(desk.cpu_s)} of CPU)"
        except Skipped as why:
            taken = f"not measured: {why}"
        print(f"{task}: {taken}", file=sys.stderr, flush=True)
        rows[at] = row(at, taken)
        yield "".join(rows)


def about():
    commit = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    with open("/proc/cpuinfo") as f:
        name = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), "a CPU that does not tell its name")
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    return f"Measured on {datetime.date.today()} at commit {commit}: {os.cpu_count()} cores ({name}), no GPU, load {load}.\n\n"


def write(text):
    with open(PAGE) as f:
        before, rest = f.read().split(BEGIN)
    with open(PAGE + ".new", "w") as f:
        f.write(before + text + rest.split(END)[1])
    os.replace(PAGE + ".new", PAGE)


def main():
    build, *flags = sys.argv[1:]
    words = [flag for flag in flags if not flag.startswith("--")]
    text = ""
    with tempfile.TemporaryDirectory(prefix="penstock-first-use-") as folder:
        for rows in measured(Desk(build, folder), "--build" in flags, words):
            text = BEGIN + about() + HEAD + rows + END
            if "--write" in flags:
                write(text)
    print(text)


if __name__ == "__main__":
    main()
