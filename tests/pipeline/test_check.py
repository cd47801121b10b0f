"""Broken pipelines: each is refused with exit code 2 and all of its errors, each at its line, and nothing starts."""
import os
import shutil
import subprocess
import threading
import time

from harness import *

SHIPPED = os.path.join(ROOT, "pipelines", "hyperion.json")


class Case:
    """A broken pipeline and its errors: each (place, path, words...): `place` is text whose first line in the file is
    the error's line, a number, link(index), None for a message without a line, or "--set"."""

    def __init__(self, name, make, *errors, args=()):
        self.name, self.make, self.errors, self.args = name, make, errors, args


def shipped(**changes):
    """The shipped pipeline with members replaced: shipped(stages__disk__run="dsik"); DROP removes."""
    with open(SHIPPED) as f:
        return change(json.load(f), changes)


DROP = object()


def change(pl, changes):
    for path, value in changes.items():
        at = pl
        *way, last = path.split("__")
        for key in way:
            at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
        if value is DROP:
            del at[int(last) if isinstance(at, list) else last]
        elif isinstance(at, list) and last == "add":
            at.append(value)
        else:
            at[int(last) if isinstance(at, list) else last] = value
    return pl


def row(**changes):
    """source -> a -> sink, with members replaced."""
    return change(pipeline({"source": stage("source"), "a": stage("passthrough"), "sink": stage("sink")},
                           links("source.out", "a.in", "a.out", "sink.in", slots=4)), changes)


def program(p, name, text, mode=0o755):
    path = p.path(name)
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, mode)
    return path


def describes(p, file, **changes):
    """A foreign stage whose description differs from a good one."""
    good = {"abi": 1, "name": "odd", "help": "for tests", "params": [],
            "ports": [{"name": "in", "dir": "in", "help": "i", "type": "words", "dtype": "int64", "rank": 1},
                      {"name": "out", "dir": "out", "help": "o", "type": "words", "dtype": "int64", "rank": 1,
                       "forwards": "in"}]}
    return program(p, file, "#!/bin/sh\ncat <<'END'\n" + json.dumps(change(good, changes)) + "\nEND\n")


def compiled(p, name, source):
    path, text = p.path(name), p.path(name + ".c")
    with open(text, "w") as f:
        f.write(source)
    subprocess.run([os.environ.get("CC", "gcc"), "-shared", "-fPIC", "-I" + os.path.join(ROOT, "common"), "-o", path,
                    text], check=True)
    return path


def link(index, member=None):
    """The place of links[index], or of a member of it, in what json.dumps(indent=1) writes."""
    def find(text):
        rows = text.split("\n")
        at = rows.index(' "links": [')
        for _ in range(index + 1):
            at = rows.index("  {", at + 1)
        while member and f'"{member}"' not in rows[at]:
            at += 1
        return at + 1
    return find


def lines(text, place):
    if place is None or isinstance(place, int):
        return place
    if callable(place):
        return place(text)
    for number, line in enumerate(text.split("\n"), 1):
        if place in line:
            return number
    raise AssertionError(f"the test's own place {place!r} is not in\n{text}")


def told(file, text, error):
    """What an error's line must begin with."""
    place, path, *_ = error
    if place == "--set":
        where = "--set: "
    else:
        line = lines(text, place)
        where = f"{file}:{line}: " if line else f"{file}: "
    return where + (f"{path}: " if path else "")


def refused(p, case):
    made = case.make(p) if callable(case.make) else case.make
    data = made if isinstance(made, bytes) else (made if isinstance(made, str) else json.dumps(made, indent=1)).encode()
    file = p.path("broken.json")
    with open(file, "wb") as f:
        f.write(data)
    text = data[:1 << 20].decode(errors="replace")
    r = subprocess.run([PENSTOCK, "check", *case.args, file], capture_output=True, text=True, errors="replace",
                       cwd=p.dir, timeout=60)
    err = r.stderr.strip().split("\n")
    assert r.returncode == 2 and not r.stdout, f"exit code {r.returncode}\n{r.stdout}{r.stderr}"
    for error in case.errors:
        begin = told(file, text, error)
        assert any(line.startswith(begin) and all(word in line for word in error[2:]) for line in err), \
            f"no line begins with {begin!r} and has {error[2:]} in\n{r.stderr}"
    assert len(err) == len(case.errors), f"expected {len(case.errors)} errors:\n{r.stderr}"
    ran = subprocess.run([PENSTOCK, "run", *case.args, file, "--dataset", p.data, "--run-dir", p.path("never")],
                         capture_output=True, text=True, errors="replace", cwd=p.dir, timeout=60)
    assert ran.returncode == 2 and ran.stderr == r.stderr, f"run: exit code {ran.returncode}\n{ran.stderr}"
    assert not os.path.exists(p.path("never")) and not os.path.exists(p.path("runs")), "a run directory was made"


def all_refused(cases):
    with Place() as p:
        os.environ["XDG_CACHE_HOME"] = p.path("cache")  # descriptions of foreign stages
        failures = []
        for case in cases:
            try:
                refused(p, case)
                no_leftovers(0.5)
            except Exception as e:
                failures.append(f"--- {case.name}: {e}")
        del os.environ["XDG_CACHE_HOME"]
        assert not failures, f"{len(failures)} of {len(cases)}:\n" + "\n".join(failures)
        assert len({case.name for case in cases}) == len(cases)


# ---- the text itself ---------------------------------------------------------------------------------

TEXTS = [
    Case("empty", "", (1, "", "empty")),
    Case("only blanks", " \n\n ", (3, "", "not JSON")),
    Case("a list", "[1]", (1, "", "expected an object, found a list")),
    Case("a string", '"hello"', (1, "", "not JSON")),
    Case("cut off", '{"penstock": 1,\n"stages": {"a": {"run": "disk"', (2, "", "not JSON")),
    Case("trailing comma", '{"penstock": 1,\n "links": [],\n}', (3, "", "not JSON")),
    Case("two objects", '{}\n{}', (2, "", "not JSON")),
    Case("comment", '{\n// no\n"penstock": 1}', (2, "", "not JSON")),
    Case("not UTF-8", b'{"penstock": 1,\n "name": "\xff\xfe"}', (2, "", "column 10: not JSON: unable to decode byte 0xff")),
    Case("half a surrogate", '{"penstock": 1, "name": "\\ud800"}', (1, "", "not JSON")),
    Case("NUL byte", b'{"penstock": 1,\n\0 "name": "x"}', (2, "", "not JSON")),
    Case("NUL in a string", '{"penstock": 1, "name": "a\\u0000b"}', (1, "", "not JSON")),
    Case("random bytes", bytes(range(128, 256)) * 10, (1, "", "not JSON")),
    Case("integer beyond 64 bits", '{"penstock": 1,\n"seed": 123456789012345678901234567890}',
         (2, "", "not JSON", "too big")),
    Case("real beyond double", '{"penstock": 1,\n"seed": 1e999}', (2, "", "not JSON")),
    Case("not a number", '{"penstock": 1, "seed": NaN}', (1, "", "not JSON")),
    Case("deep lists", "[" * 100000, (1, "", "not JSON", "depth")),
    Case("deep objects", '{"a":' * 100000, (1, "", "not JSON", "depth")),
    Case("too many values", '{"params": [' + "0," * 20000 + "0]}", (1, "", "more than 8192 values")),
    Case("more than a mebibyte", b'{"help": "' + b"x" * (1 << 20) + b'"}', (None, "", "larger than")),
    Case("duplicate keys", lambda p: json.dumps(shipped(), indent=1).replace(
        '"seed": 1,', '"seed": 1,\n "seed": 2,').replace('"dropout": 0.5', '"dropout": 0.5,\n    "dropout": 0.4'),
        (7, "seed", "duplicate key, first given at line 6"),
        (39, "stages.trainer.params.dropout", "duplicate key, first given at line 38")),
    Case("duplicate key, spelled differently", lambda p: json.dumps(shipped(), indent=1).replace(
        '"seed": 1,', '"seed": 1,\n "s\\u0065ed": 2,'), (7, "seed", "duplicate key, first given at line 6")),
]


@test
def broken_texts():
    all_refused(TEXTS)


# ---- the head ----------------------------------------------------------------------------------------

HEADS = [
    Case("no version", shipped(penstock=DROP), (None, "", '"penstock" is missing')),
    Case("later version", shipped(penstock=2), ('"penstock"', "penstock", "expected from 1 to 1, found 2")),
    Case("version as text", shipped(penstock="1"), ('"penstock"', "penstock", "expected an integer, found a string")),
    Case("unknown key", shipped(epoch=3), ('"epoch":', "epoch", "unknown key; did you mean epochs?")),
    Case("name of a wrong type", shipped(name=3), ('"name"', "name", "expected a string, found an integer")),
    Case("name that is a path", shipped(name="../../etc"), ('"name"', "name", "letters, digits")),
    Case("name too long", shipped(name="x" * 80), ('"name"', "name", "longer than 63")),
    Case("help of a wrong type", shipped(help=[]), ('"help"', "help", "expected a string, found a list")),
    Case("seed below 0", shipped(seed=-1), ('"seed"', "seed", "expected from 0", "found -1")),
    Case("seed a real", shipped(seed=1.5), ('"seed"', "seed", "expected an integer, found a real number")),
    Case("epochs 0", shipped(epochs=0), ('"epochs"', "epochs", "expected from 1", "found 0")),
    Case("epochs null", shipped(epochs=None), ('"epochs"', "epochs", "expected an integer, found null")),
    Case("params a list", shipped(params=[10, 5]), ('"params": [', "params", "expected an object, found a list")),
    Case("shared parameter of no stage", shipped(params__fanuot=[1]),
         ('"fanuot"', "params.fanuot", "unknown key; did you mean fanout?")),
    Case("no stages", shipped(stages=DROP, links=[]), (1, "stages", "expected an object of stages, found nothing")),
    Case("empty stages", shipped(stages={}, links=[]), ('"stages"', "stages", "found an empty one")),
    Case("stages a list", shipped(stages=[], links=[]), ('"stages"', "stages", "found a list")),
    Case("links an object", shipped(links={}), ('"links"', "links", "expected a list, found an object"),
         ('"sampler": {', "stages.sampler", "output", "batch", "not linked"),
         ('"disk": {', "stages.disk", "input", "requests", "not linked"),
         ('"disk": {', "stages.disk", "output", "done", "not linked"),
         ('"trainer": {', "stages.trainer", "input", "batch", "not linked")),
]


@test
def broken_heads():
    all_refused(HEADS)


# ---- stages ------------------------------------------------------------------------------------------

STAGES_CASES = [
    Case("stage is a number", shipped(stages__disk=3), ('"disk"', "stages.disk", "expected an object", "an integer"),
         ('"to": "disk.requests"', "links[1].to", 'no stage "disk"'),
         ('"from": "disk.done"', "links[2].from", 'no stage "disk"')),
    Case("bad stage name", row(**{"stages__a b": stage("passthrough")}),
         ('"a b"', "stages.a b", "letters, digits")),
    Case("stage name too long", row(**{"stages__" + "x" * 60: stage("passthrough")}),
         ('"xxxx', "stages." + "x" * 60, "1 to 50 letters")),
    Case("unknown stage", shipped(stages__sampler__run="samplr"),
         ('"run": "samplr"', "stages.sampler.run", 'no stage "samplr"', "planner", "did you mean sampler?")),
    Case("run missing", shipped(stages__disk__run=DROP), ('"disk": {', "stages.disk", '"run" is missing')),
    Case("run of a wrong type", shipped(stages__disk__run=["disk"]),
         ('"run": [', "stages.disk.run", "expected a string, found a list")),
    Case("unknown stage key", shipped(stages__disk__parms={}),
         ('"parms"', "stages.disk.parms", "unknown key; did you mean params?")),
    Case("unknown parameter", shipped(stages__disk__params__dept=3),
         ('"dept"', "stages.disk.params.dept", "unknown key; did you mean depth?")),
    Case("params a string", shipped(stages__disk__params="fast"),
         ('"params": "fast"', "stages.disk.params", "expected an object, found a string")),
    Case("integer as text", shipped(stages__disk__params__depth="128"),
         ('"depth"', "stages.disk.params.depth", 'expected int, found "128"')),
    Case("integer as real", shipped(stages__disk__params__depth=12.5),
         ('"depth"', "stages.disk.params.depth", "expected int, found 12.5")),
    Case("integer out of range", shipped(stages__disk__params__depth=0),
         ('"depth"', "stages.disk.params.depth", "expected int from 1 to 4096, found 0")),
    Case("integer huge", shipped(stages__disk__params__depth=9223372036854775807),
         ('"depth"', "stages.disk.params.depth", "from 1 to 4096")),
    Case("real out of range", shipped(stages__trainer__params__dropout=1),
         ('"dropout"', "stages.trainer.params.dropout", "expected real from 0 to 0.99, found 1")),
    Case("real as null", shipped(stages__trainer__params__rate=None),
         ('"rate"', "stages.trainer.params.rate", "expected real, found null")),
    Case("boolean as integer", shipped(stages__disk__params__direct=1),
         ('"direct"', "stages.disk.params.direct", "expected bool, found 1")),
    Case("unknown choice", shipped(stages__disk__params__backend="iouring"),
         ('"backend"', "stages.disk.params.backend", "expected one of auto|file|pread|mmap|nvme|emulated, found iouring")),
    Case("choice as number", shipped(stages__disk__params__backend=1),
         ('"backend"', "stages.disk.params.backend", "expected one of auto|file|pread|mmap|nvme|emulated")),
    Case("bytes without a unit we know", shipped(stages__planner__params__cpu_cache="2 MegaBytes"),
         ('"cpu_cache"', "stages.planner.params.cpu_cache", "expected a size", "found 2 MegaBytes")),
    Case("bytes below 0", shipped(stages__planner__params__cpu_cache=-5),
         ('"cpu_cache"', "stages.planner.params.cpu_cache", "found -5")),
    Case("bytes beyond all", shipped(stages__planner__params__cpu_cache="1e300GiB"),
         ('"cpu_cache"', "stages.planner.params.cpu_cache", "expected a size")),
    Case("list as integer", shipped(stages__sampler__params={"fanout": 10}),
         ('"fanout": 10', "stages.sampler.params.fanout", "expected a list of integers")),
    Case("list of text", shipped(params__fanout=[10, "5"]),
         ('"fanout"', "params.fanout", "element 1: expected an integer")),
    Case("list out of range", shipped(params__fanout=DROP, stages__sampler__params={"fanout": [5, 5000]}),
         ('"fanout"', "stages.sampler.params.fanout", "from -1 to 4096, found 5000")),
    Case("place a string", shipped(stages__disk__place="cpu:0"),
         ('"place"', "stages.disk.place", "expected an object", "found a string")),
    Case("unknown place key", shipped(stages__disk__place={"devise": "cpu:0"}),
         ('"devise"', "stages.disk.place.devise", "did you mean device?")),
    Case("absent GPU", shipped(stages__trainer__place={"device": "cuda:0"}),
         ('"device"', "stages.trainer.place.device", "device cuda:0 is absent")),
    Case("a whole pipeline's device that is none", shipped(place={"device": "gpu"}),
         ('"device"', "place.device", 'found "gpu"')),
    Case("a whole pipeline's place that is none", shipped(place="auto"),
         ('"place"', "place", "expected an object", "found a string")),
    Case("absent CPU", shipped(stages__trainer__place={"device": "cpu:99"}),
         ('"device"', "stages.trainer.place.device", "expected cpu:N or cuda:N (N up to 15)", "cpu:99")),
    Case("device that wraps", shipped(stages__trainer__place={"device": "cpu:4294967296"}),
         ('"device"', "stages.trainer.place.device", "expected cpu:N", "cpu:4294967296")),
    Case("device with a sign", shipped(stages__trainer__place={"device": "cpu:+1"}),
         ('"device"', "stages.trainer.place.device", "expected cpu:N")),
    Case("device of no kind", shipped(stages__trainer__place={"device": "tpu"}),
         ('"device"', "stages.trainer.place.device", 'found "tpu"')),
    Case("cores that are words", shipped(stages__disk__place={"cores": "all"}),
         ('"cores"', "stages.disk.place.cores", "expected a list of cores", '"all"')),
    Case("cores backwards", shipped(stages__disk__place={"cores": "1-0"}),
         ('"cores"', "stages.disk.place.cores", "expected a list of cores")),
    Case("cores unfinished", shipped(stages__disk__place={"cores": "0-"}),
         ('"cores"', "stages.disk.place.cores", "expected a list of cores")),
    Case("cores with a gap", shipped(stages__disk__place={"cores": "0,,1"}),
         ('"cores"', "stages.disk.place.cores", "expected a list of cores")),
    Case("cores absent", shipped(stages__disk__place={"cores": "0,99999"}),
         ('"cores"', "stages.disk.place.cores", "which this machine has, found 99999")),
    Case("sm_percent out of range", shipped(stages__disk__place={"sm_percent": 101}),
         ('"sm_percent"', "stages.disk.place.sm_percent", "expected from 1 to 100, found 101")),
    Case("no instances", shipped(stages__disk__instances=0),
         ('"instances"', "stages.disk.instances", "expected from 1 to 16, found 0")),
    Case("too many instances", shipped(stages__disk__instances=17),
         ('"instances"', "stages.disk.instances", "found 17")),
    Case("instances as text", shipped(stages__disk__instances="two"),
         ('"instances"', "stages.disk.instances", "expected an integer, found a string")),
    Case("group that is a path", shipped(stages__disk__group="../x"),
         ('"group"', "stages.disk.group", "letters, digits")),
    Case("group with a foreign stage", row(stages__a=stage("times", group="g")),
         ('"group"', "stages.a.group", "cannot be a thread of a group")),
    Case("group all with a foreign stage", row(stages__a=stage("times")),
         ('"a": {', "stages.a.group", "cannot be a thread of a group"), args=("--group", "all")),
]


@test
def broken_stages():
    all_refused(STAGES_CASES)


@test
def too_many_of_everything():
    many = {f"s{i}": stage("passthrough") for i in range(70)}
    instances = {f"s{i}": stage("passthrough", instances=16) for i in range(5)}
    chain = [{"from": f"s{i}.out", "to": f"s{i + 1}.in"} for i in range(4)]
    fan = {"source": stage("source"), **{f"k{i}": stage("sink") for i in range(40)}}
    crossing = {"source": stage("source", instances=16), "a": stage("passthrough", instances=16),
                "b": stage("passthrough", instances=16, place={"device": "cpu:1"}), "sink": stage("sink", instances=15)}
    all_refused([
        Case("stages", pipeline(many, []), *[(f'"s{i}"', f"stages.s{i}", "more than 64 stages") for i in range(64, 70)],
             *[(f'"s{i}"', f"stages.s{i}", "not linked") for i in range(64) for _ in range(2)]),
        Case("instances", pipeline({"source": stage("source"), "sink": stage("sink"), **instances},
                                   [{"from": "source.out", "to": "s0.in"}, *chain, {"from": "s4.out", "to": "sink.in"}]),
             ('"stages"', "stages", "82 instances", "at most 64")),
        Case("instances with the copies", pipeline(crossing, links("source.out", "a.in", "a.out", "b.in", "b.out",
                                                                   "sink.in")),
             ('"stages"', "stages", "65 instances", "copies between devices", "at most 64")),
        Case("borrowers", pipeline(fan, [{"from": "source.out", "to": f"k{i}.in"} for i in range(40)]),
             ('"source": {', "stages.source", "more than 32 inputs")),
    ])
    with Place() as p:  # 255 links too many and 44 beyond the limit: told up to a number, and counted
        file = p.write(pipeline({"source": stage("source"), "sink": stage("sink")},
                                [{"from": "source.out", "to": "sink.in"}] * 300))
        r = command("check", file, code=2)
        assert "already linked, by links[0]" in r.stderr and "more than 256 links" in r.stderr, r.stderr[-500:]
        assert "more\n" in r.stderr.splitlines(True)[-1] and len(r.stderr.splitlines()) == 201


# ---- links -------------------------------------------------------------------------------------------

def looped(**changes):
    return change(pipeline({"looper": stage("looper"), "echo": stage("passthrough"), "sink": stage("sink")},
                           [{"from": "looper.out", "to": "sink.in", "slots": 6},
                            {"from": "looper.ask", "to": "echo.in", "slots": 6},
                            {"from": "echo.out", "to": "looper.answer", "back": True}]), changes)


LINKS = [
    Case("link is a string", row(links__1="a.out -> sink.in"),
         ('"a.out -> sink.in"', "links[1]", "expected an object", "found a string"),
         ('"a": {', "stages.a", "output", "not linked"), ('"sink": {', "stages.sink", "input", "not linked")),
    Case("unknown link key", row(links__0__slot=3), ('"slot"', "links[0].slot", "unknown key; did you mean slots?")),
    Case("link without from", row(links__1={"to": "sink.in"}), (link(1), "links[1]", '"from" is missing'),
         ('"a": {', "stages.a", "output", "not linked")),
    Case("end of a wrong type", row(links__1__to=7), ('"to": 7', "links[1].to", "expected a string, found an integer"),
         ('"sink": {', "stages.sink", "input", "not linked")),
    Case("end without a port", row(links__1__to="sink"), ('"to": "sink"', "links[1].to", 'expected "stage.port"'),
         ('"sink": {', "stages.sink", "input", "not linked")),
    Case("stage not there", row(links__1__to="snik.in"),
         ('"snik.in"', "links[1].to", 'no stage "snik"; did you mean sink?'),
         ('"sink": {', "stages.sink", "input", "not linked")),
    Case("port not there", shipped(links__1__to="disk.request"),
         ('"disk.request"', "links[1].to", 'no port "request"; did you mean requests?')),
    Case("output as input", row(links__1__to="source.out"),
         ('"to": "source.out"', "links[1].to", "source.out is an output, expected an input"),
         ('"sink": {', "stages.sink", "input", "not linked")),
    Case("input as output", row(links__1__from="sink.in"),
         ('"from": "sink.in"', "links[1].from", "sink.in is an input, expected an output"),
         ('"a": {', "stages.a", "output", "not linked")),
    Case("missing link", row(links__1=DROP), ('"a": {', "stages.a", 'output "out" is not linked'),
         ('"sink": {', "stages.sink", 'input "in" is not linked')),
    Case("two links into one input", row(stages__b=stage("source"), links__add={"from": "b.out", "to": "a.in"}),
         (link(2, "to"), "links[2].to", "a.in is already linked, by links[0]")),
    Case("cycle", pipeline({"a": stage("passthrough"), "b": stage("passthrough")},
                           links("a.out", "b.in", "b.out", "a.in")),
         (link(1), "links[1]", "closes a loop from b back to a", '"back": true')),
    Case("cycle of one", pipeline({"a": stage("passthrough")}, links("a.out", "a.in")),
         (link(0), "links[0]", "closes a loop from a back to a")),
    Case("loop without back", looped(links__2__back=DROP), (link(2), "links[2]", "closes a loop from echo back to looper")),
    Case("back that closes no loop", row(links__1__back=True),
         ('"back"', "links[1].back", "is marked back but closes no loop")),
    Case("back as text", row(links__1__back="yes"), ('"back"', "links[1].back", "expected true or false")),
    Case("slots 0", row(links__0__slots=0), ('"slots"', "links[0].slots", "expected from 1 to 1024, found 0")),
    Case("slots huge", row(links__0__slots=100000), ('"slots"', "links[0].slots", "found 100000")),
    Case("slots as text", row(links__0__slots="four"), ('"slots"', "links[0].slots", "expected an integer")),
    Case("slots where none begin", row(links__1__slots=4),
         (link(1, "slots"), "links[1].slots", "slots are given where a route begins", "passes on the slots")),
    Case("slots of a one-shot", shipped(links__0__slots=4), ('"slots": 4', "links[0].slots", "is one-shot")),
    Case("slots that disagree", row(stages__two=stage("sink"), links__add={"from": "source.out", "to": "two.in",
                                                                           "slots": 5}),
         ('"slots": 5', "links[2].slots", "the same route was given 4 slots before")),
    Case("capacity that would deadlock", row(stages__sink=stage("sink", keep=4), links__0__slots=3),
         ('"slots"', "links[0].slots", "3 slots would deadlock", "sink keeps up to 4", "at least 4")),
    Case("capacity of a loop", looped(links__1__slots=2), ('"slots": 2', "links[1].slots", "would deadlock", "looper")),
    Case("one-shot into a stream", row(stages__planner=stage("planner"), links__0__from="planner.plan", links__0__slots=DROP),
         (link(0), "links[0]", "plan is one-shot and in is a stream"),
         ('"source": {', "stages.source", "output", "not linked")),
    Case("another type", row(stages__disk=stage("sampler"), links__add={"from": "disk.batch", "to": "late.in"},
                             stages__late=stage("sink")),
         (link(2), "links[2]", "disk.batch carries minibatch, late.in expects words")),
    Case("two writers on branches", pipeline(
        {"owner": stage("owner"), "one": stage("raiser"), "two": stage("raiser")},
        links("owner.out", "one.in", "owner.out", "two.in")),
        ('"one": {', "stages.one", "changes slots that two holds at the same time")),
    Case("split batches where whole ones are needed", shipped(stages__trainer__params__norm="batch"),
         (33, "stages.trainer.params", "with norm=batch it needs whole batches", "overflow=split")),
    Case("several at once", shipped(epochs="five", stages__disk__params__depth=0, stages__planner__run="planer",
                                    links__2__to="trainer.bacth", colour="blue"),
         ('"epochs"', "epochs", "expected an integer"), ('"colour"', "colour", "unknown key"),
         ('"depth"', "stages.disk.params.depth", "from 1 to 4096"),
         ('"planer"', "stages.planner.run", "did you mean planner?"),
         ('"trainer.bacth"', "links[2].to", "did you mean batch?")),
]


@test
def broken_links():
    all_refused(LINKS)


# ---- programs and shared objects that are no stages ---------------------------------------------------

def with_run(run, *more):
    """The row with its middle stage replaced, by a function of the place."""
    return lambda p: row(stages__a={"run": run(p) if callable(run) else run})


def odd(words, **changes):
    """A description that is refused with these words."""
    file = "odd-" + "".join(filter(str.isalnum, words))
    return Case(f"describes: {words}", with_run(lambda p: describes(p, file, **changes)),
                (file, "stages.a.run", words))


def says(name, script, *words):
    return Case(name, with_run(lambda p: program(p, "says-" + name.replace(" ", "-"), script)),
                ("says-", "stages.a.run", *words))


PROGRAMS = [
    Case("path to nothing", with_run("./nothing"), ("./nothing", "stages.a.run", "cannot open stage", "No such file")),
    Case("path to a directory", with_run(lambda p: p.dir + "/"), (10, "stages.a.run", "not a file")),
    Case("text named .so", with_run(lambda p: program(p, "text.so", "hello")),
         ("text.so", "stages.a.run", "not a shared object")),
    Case("empty .so", with_run(lambda p: program(p, "empty.so", "")), ("empty.so", "stages.a.run", "not a shared object")),
    Case("cut-off .so", with_run(lambda p: cut_off(p)), ("cut.so", "stages.a.run", "cut off")),
    Case("library that is no stage", with_run(lambda p: compiled(p, "library.so", "int pst_other;")),
         ("library.so", "stages.a.run", "exports no pst_stage")),
    Case("stage of another interface", with_run(lambda p: compiled(
        p, "abi.so", '#include "stage.h"\nconst struct pst_stage_desc pst_stage = {.abi = 99, .name = "x"};')),
        ("abi.so", "stages.a.run", "built for stage interface 99", "rebuild")),
    Case("stage without a callback", with_run(lambda p: compiled(
        p, "bare.so", '#include "stage.h"\nconst struct pst_stage_desc pst_stage = {.abi = PST_STAGE_ABI, .name = "x",'
        ' .help = "x"};')), ("bare.so", "stages.a.run", "no on_event")),
    Case("stage with an undefined symbol", with_run(lambda p: compiled(
        p, "undefined.so", 'extern int nowhere_to_be_found(void); int x(void) { return nowhere_to_be_found(); }'
        'int (*y)(void) = nowhere_to_be_found;')), ("undefined.so", "stages.a.run", "nowhere_to_be_found")),
    Case("not executable", with_run(lambda p: program(p, "plain.py", "#!/bin/sh\n", 0o644)),
         ("plain.py", "stages.a.run", "neither a shared object (.so) nor executable")),
    says("describe exits 1", "#!/bin/sh\nexit 1\n", "--describe ended with status 1"),
    says("describe dies", "#!/bin/sh\nkill -9 $$\n", "--describe died of signal 9"),
    says("describe says nothing", "#!/bin/sh\n", "not JSON"),
    says("describe says garbage", "#!/bin/sh\nprintf '\\231\\001{garbage'\n", "not JSON"),
    says("describe never stops talking", "#!/bin/sh\nexec cat /dev/zero\n", "more than 262144 bytes"),
    says("describe lists", "#!/bin/sh\necho '[1, 2]'\n", "expected an object"),
    odd("built for stage interface 7", abi=7),
    odd("needs a name and help", name="not a name"),
    odd("ports and params", ports="none"),
    odd("too many ports", ports=[{"name": "x"}] * 100),
    odd("ports[0]", ports__0__dir="sideways"),
    odd("ports[1]", ports__1__flags=["ordred"]),
    odd("ports[0]: name", ports__0__rank=99),
    odd("bad or repeated name", ports__1__name="in"),
    odd("which is no input", ports__1__forwards="nothing"),
    odd("which is none", ports__0__hold_param="keep"),
    odd("params[0]", params=[{"name": "x", "type": "colour"}]),
    odd("the default of parameter x", params=[{"name": "x", "type": "int", "default": "y", "help": "x"}]),
    Case("expects other elements", with_run(lambda p: describes(p, "floats", ports__0__dtype="float32")),
         (link(0), "links[0]", "source.out carries int64 elements, a.in expects float32")),
    Case("expects more dimensions", with_run(lambda p: describes(p, "flat", ports__0__rank=2)),
         (link(0), "links[0]", "source.out carries 1 dimensions, a.in expects 2")),
    Case("works on other memory", with_run(lambda p: describes(p, "gpu", ports__0__memory="cuda")),
         ('"to": "a.in"', "links[0].to", "cannot work on cpu memory (it takes cuda)")),
    Case("required parameter", with_run(lambda p: describes(p, "needs", params=[
        {"name": "url", "type": "string", "help": "where"}])), ('"a": {', "stages.a.params.url", "missing: where")),
]


def cut_off(p):
    shutil.copy(os.path.join(STAGES, "sink.so"), p.path("cut.so"))
    os.truncate(p.path("cut.so"), 9000)
    return p.path("cut.so")


@test
def programs_that_are_no_stages():
    all_refused(PROGRAMS)


@test
def descriptions_that_hang():
    """A program that never answers, one that closes its output and stays, one whose child keeps the pipe."""
    with Place() as p:
        os.environ["XDG_CACHE_HOME"] = p.path("cache")
        scripts = {"sleeps": "sleep 1000\n", "closes": "exec >&-\nexec sleep 1000\n", "leaves": "sleep 1000 &\n",
                   "deaf": "trap '' TERM INT\nwhile :; do sleep 1; done\n"}
        results = {}

        def one(name):
            file = p.write(row(stages__a={"run": program(p, name, "#!/bin/sh\n" + scripts[name])}), name + ".json")
            t0 = time.time()
            r = subprocess.run([PENSTOCK, "check", file], capture_output=True, text=True, timeout=60)
            results[name] = (r.returncode, r.stderr, time.time() - t0)

        threads = [threading.Thread(target=one, args=(name,)) for name in scripts]
        [t.start() for t in threads]
        [t.join() for t in threads]
        del os.environ["XDG_CACHE_HOME"]
        for name, (code, err, seconds) in results.items():
            assert code == 2 and "no answer in 10 s" in err and f"/{name} --describe" in err, (name, code, err)
            assert seconds < 13, f"{name} took {seconds:.1f} s"
        no_leftovers()


# ---- --set ---------------------------------------------------------------------------------------------

@test
def nonsense_for_set():
    S = shipped()

    def case(name, text, *errors):
        return Case(name, S, *errors, args=("--set", text))

    all_refused([
        case("no value", "epochs", ("--set", "epochs", "expected PATH=VALUE")),
        case("no path", "=3", ("--set", "=3", "expected PATH=VALUE")),
        case("path of dots", "..=3", ("--set", "..=3", "nothing there to set")),
        case("path that ends in a dot", "epochs.=3", ("--set", "epochs.=3", "nothing there to set")),
        case("into a number", "epochs.x=3", ("--set", "epochs.x=3", "nothing there to set")),
        case("into a list by name", "links.x=3", ("--set", "links.x=3", "nothing there to set")),
        case("beyond a list", "links[9].slots=3", ("--set", "links[9].slots=3", "nothing there to set")),
        case("below a list", "links[-1].slots=3", ("--set", "links[-1].slots=3", "nothing there to set")),
        case("huge index", "links[99999999999999999999].slots=3", ("--set", "links[99999999999999999999].slots=3", "nothing there")),
        case("index unfinished", "links[0=3", ("--set", "links[0=3", "nothing there to set")),
        case("index then letters", "links[0]x=3", ("--set", "links[0]x=3", "nothing there to set")),
        case("index of an object", "stages[0]=3", ("--set", "stages[0]=3", "nothing there to set")),
        case("wrong type", "epochs=many", ("--set", "epochs", "expected an integer, found a string")),
        case("out of range", "stages.disk.params.depth=9999", ("--set", "stages.disk.params.depth", "found 9999")),
        case("unknown parameter", "stages.disk.params.dpeth=9",
             ("--set", "stages.disk.params.dpeth", "did you mean depth?")),
        case("unknown stage", "stages.dsik.params.depth=9",
             ('"stages"', "stages.dsik", '"run" is missing', "did you mean disk?")),
        case("unknown stage to run", "stages.disk.run=dsik", ("--set", "stages.disk.run", "did you mean disk?")),
        case("value that is deep", "params.fanout=" + "[" * 5000,
             ("--set", "params.fanout", "expected a list")),
    ])
    with Place() as p:
        bad = subprocess.run([PENSTOCK, "check", "--set", b"stages.\xff.x=1", SHIPPED], capture_output=True)
        assert bad.returncode == 2 and b"nothing there to set" in bad.stderr, bad
        r = command("check", "--set", "name=a\x1b[31m\x07b", SHIPPED, code=2)
        assert "\x1b" not in r.stderr and "\x07" not in r.stderr, r.stderr
        # what is right is taken: objects on the way are made
        command("check", "--set", "stages.sampler.params.fanout=[3,2]", "--set", "links[1].slots=9", "--set",
                "stages.disk.params.backend=pread", SHIPPED)


# ---- files ---------------------------------------------------------------------------------------------

@test
def files_that_cannot_be_read():
    with Place() as p:
        for file, words in ((p.path("nothing.json"), "cannot open: No such file"), (p.dir, "cannot read: Is a directory"),
                            ("/dev/zero", "larger than"), ("/dev/null", "empty")):
            r = command("check", file, code=2)
            assert r.stderr.startswith(file + ":") and words in r.stderr, r.stderr
        locked = p.write("{}", "locked.json")
        os.chmod(locked, 0)
        switch = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        os.chmod(p.dir, 0o755)
        r = subprocess.run([*switch, PENSTOCK, "check", locked], capture_output=True, text=True)
        if r.returncode < 126:  # the other user can reach the program
            assert r.returncode == 2 and "cannot open: Permission denied" in r.stderr, r
        # one bad file does not hide another, nor a good one
        a, b = p.write("{", "a.json"), p.write("[]", "b.json")
        r = command("check", a, SHIPPED, b, code=2)
        assert a in r.stderr and b in r.stderr and "ok, 4 stages" in r.stdout, r


@test
def a_hundred_megabytes_of_brackets():
    with Place() as p:
        for name, text in (("lists", b"["), ("objects", b'{"a":'), ("quotes", b'"')):
            file = p.path(name + ".json")
            with open(file, "wb") as f:
                for _ in range(100):
                    f.write(text * ((1 << 20) // len(text)))
            t0 = time.time()
            process = subprocess.Popen([PENSTOCK, "check", file], stderr=subprocess.PIPE, text=True)
            err = process.stderr.read()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode == 2 and "larger than" in err, (process.returncode, err)
            assert time.time() - t0 < (10 if SAN else 1), f"{time.time() - t0:.1f} s"
            assert SAN or used.ru_maxrss < 32 << 10, f"{used.ru_maxrss} KiB"
            os.unlink(file)


@test
def links_that_branch_do_not_blow_up():
    """Ways double at every step: searching them one by one would take for ever."""
    with Place() as p:
        stages, wires = {"source": stage("source")}, [{"from": "source.out", "to": "s0.in"}]
        for i in range(40):
            stages[f"s{i}"] = stage("passthrough")
            wires += [{"from": f"s{i}.out", "to": f"s{k}.in"} for k in (i + 1, i + 2, i + 3) if k < 40]
        r = subprocess.run([PENSTOCK, "check", p.write(pipeline(stages, wires))], capture_output=True, text=True, timeout=20)
        assert r.returncode == 2 and "already linked" in r.stderr


@test
def good_pipelines_are_checked_quickly():
    with Place() as p:
        best = {}
        for file in sorted(glob.glob(os.path.join(ROOT, "pipelines", "*.json"))):
            for _ in range(5):
                t0 = time.time()
                command("check", file)
                best[file] = min(best.get(file, 9), time.time() - t0)
        assert SAN or best[SHIPPED] < 0.1, f"{best[SHIPPED] * 1e3:.0f} ms"


if __name__ == "__main__":
    main()
