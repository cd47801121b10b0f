"""Pipelines whose stages or links are broken."""
from check_cases import *


# ---- stages ------------------------------------------------------------------------------------------

STAGES_CASES = [
    Case("stage is a number", shipped(stages__disk=3), ('"disk"', "stages.disk", "expected an object", "an integer"),
         ('"to": "disk.requests"', "links[1].to", 'no stage "disk"'),
         ('"from": "disk.done"', "links[2].from", 'no stage "disk"'),
         ('"to": "disk.lists"', "links[4].to", 'no stage "disk"'),
         ('"from": "disk.listed"', "links[5].from", 'no stage "disk"')),
    Case("bad stage name", row(**{"stages__a b": stage("passthrough")}),
         ('"a b"', "stages.a b", "letters, digits")),
    Case("stage name too long", row(**{"stages__" + "x" * 60: stage("passthrough")}),
         ('"xxxx', "stages." + "x" * 60, "1 to 50 letters")),
    Case("unknown stage", shipped(stages__sampler__run="samplr"),
         ('"run": "samplr"', "stages.sampler.run", 'stage "samplr" is not installed', "planner", "did you mean sampler?")),
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
         ('"depth"', "stages.disk.params.depth", 'expected an integer from 1 to 4096 or "auto", found "128"')),
    Case("integer as real", shipped(stages__disk__params__depth=12.5),
         ('"depth"', "stages.disk.params.depth", "expected an integer from 1 to 4096 or \"auto\", found 12.5")),
    Case("integer out of range", shipped(stages__disk__params__depth=0),
         ('"depth"', "stages.disk.params.depth", "expected an integer from 1 to 4096 or \"auto\", found 0")),
    Case("integer huge", shipped(stages__disk__params__depth=9223372036854775807),
         ('"depth"', "stages.disk.params.depth", "from 1 to 4096")),
    Case("real out of range", shipped(stages__trainer__params__dropout=1),
         ('"dropout"', "stages.trainer.params.dropout", "expected a number from 0 to 0.99, found 1")),
    Case("real as null", shipped(stages__trainer__params__rate=None),
         ('"rate"', "stages.trainer.params.rate", "expected a number from 1e-09 to 10, found null")),
    Case("boolean as integer", shipped(stages__disk__params__direct=1),
         ('"direct"', "stages.disk.params.direct", "expected true or false, found 1")),
    Case("unknown choice", shipped(stages__disk__params__backend="iouring"),
         ('"backend"', "stages.disk.params.backend", "expected one of auto, file, pread, mmap, nvme, emulated, found \"iouring\"")),
    Case("choice as number", shipped(stages__disk__params__backend=1),
         ('"backend"', "stages.disk.params.backend", "expected one of auto, file, pread, mmap, nvme, emulated, found 1")),
    Case("bytes without a unit we know", shipped(stages__planner__params__cpu_cache="2 MegaBytes"),
         ('"cpu_cache"', "stages.planner.params.cpu_cache", 'expected "auto", or a size', 'found "2 MegaBytes"')),
    Case("bytes below 0", shipped(stages__planner__params__cpu_cache=-5),
         ('"cpu_cache"', "stages.planner.params.cpu_cache", "found -5")),
    Case("bytes beyond all", shipped(stages__planner__params__cpu_cache="1e300GiB"),
         ('"cpu_cache"', "stages.planner.params.cpu_cache", 'expected "auto", or a size')),
    Case("a gap that is no size", shipped(stages__disk__params__gap_bytes="avto"),
         ('"gap_bytes"', "stages.disk.params.gap_bytes", 'expected "auto", or a size', 'found "avto"')),
    Case("a gap that is too large", shipped(stages__disk__params__gap_bytes="17MiB"),
         ('"gap_bytes"', "stages.disk.params.gap_bytes", 'found "17MiB"')),
    Case("list as integer", shipped(stages__sampler__params={"fanout": 10}),
         ('"fanout": 10', "stages.sampler.params.fanout", "expected a list of integers")),
    Case("list of text", shipped(params__fanout=[10, "5"]),
         ('"fanout"', "params.fanout", 'expected element 1 to be an integer from -1 to 4096, found "5"')),
    Case("list out of range", shipped(params__fanout=DROP, stages__sampler__params={"fanout": [5, 5000]}),
         ('"fanout"', "stages.sampler.params.fanout", "from -1 to 4096, found 5000")),
    Case("place a string", shipped(stages__disk__place="cpu:0"),
         ('"place"', "stages.disk.place", "expected an object", "found a string")),
    Case("unknown place key", shipped(stages__disk__place={"devise": "cpu:0"}),
         ('"devise"', "stages.disk.place.devise", "did you mean device?")),
    Case("absent GPU", shipped(stages__trainer__place={"device": "cuda:0"}),
         ('"device"', "stages.trainer.place.device", "device cuda:0")),
    Case("a whole pipeline's device that is none", shipped(place={"device": "gpu"}),
         ('"device"', "place.device", 'found "gpu"')),
    Case("a whole pipeline's place that is none", shipped(place="auto"),
         ('"place"', "place", "expected an object", "found a string")),
    Case("absent CPU", shipped(stages__trainer__place={"device": "cpu:99"}),
         ('"device"', "stages.trainer.place.device", "expected cpu:N or cuda:N (N from 0 to 15)", "cpu:99")),
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
         ('"cores"', "stages.disk.place.cores", "expected cores from 0 to", "found 99999")),
    Case("sm_percent out of range", shipped(stages__disk__place={"sm_percent": 101}),
         ('"sm_percent"', "stages.disk.place.sm_percent", "expected an integer from 1 to 100, found 101")),
    Case("no instances", shipped(stages__disk__instances=0),
         ('"instances"', "stages.disk.instances", "expected an integer from 1 to 16, found 0")),
    Case("too many instances", shipped(stages__disk__instances=17),
         ('"instances"', "stages.disk.instances", "found 17")),
    Case("instances as text", shipped(stages__disk__instances="two"),
         ('"instances"', "stages.disk.instances", "expected an integer, found a string")),
    Case("group that is a path", shipped(stages__disk__group="../x"),
         ('"group"', "stages.disk.group", "letters, digits")),
    Case("group with a foreign stage", row(stages__a=stage("times", group="g")),
         ('"group"', "stages.a.group", "is an external program, so it cannot run as a thread of a group")),
    Case("group all with a foreign stage", row(stages__a=stage("times")),
         ('"a": {', "stages.a.group", "is an external program, so it cannot run as a thread of a group"), args=("--group", "all")),
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
        Case("stages", pipeline(many, []), *[(f'"s{i}"', f"stages.s{i}", "the pipeline has too many stages: at most 64 are allowed") for i in range(64, 70)],
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
        assert "already linked by links[0]" in r.stderr and "the pipeline has too many links: at most 256 are allowed" in r.stderr, r.stderr[-500:]
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
         (link(2, "to"), "links[2].to", "a.in is already linked by links[0]")),
    Case("cycle", pipeline({"a": stage("passthrough"), "b": stage("passthrough")},
                           links("a.out", "b.in", "b.out", "a.in")),
         (link(1), "links[1]", "closes a loop from b back to a", '"back": true')),
    Case("cycle of one", pipeline({"a": stage("passthrough")}, links("a.out", "a.in")),
         (link(0), "links[0]", "closes a loop from a back to a")),
    Case("loop without back", looped(links__2__back=DROP), (link(2), "links[2]", "closes a loop from echo back to looper")),
    Case("back that closes no loop", row(links__1__back=True),
         ('"back"', "links[1].back", "this link does not close a loop, so \"back\" must not be true")),
    Case("back as text", row(links__1__back="yes"), ('"back"', "links[1].back", "expected true or false")),
    Case("slots 0", row(links__0__slots=0), ('"slots"', "links[0].slots", "expected an integer from 1 to 1024, found 0")),
    Case("slots huge", row(links__0__slots=100000), ('"slots"', "links[0].slots", "found 100000")),
    Case("slots as text", row(links__0__slots="four"), ('"slots"', "links[0].slots", "expected an integer")),
    Case("slots where none begin", row(links__1__slots=4),
         (link(1, "slots"), "links[1].slots", "a.out forwards the slots of its input, so \"slots\"", 'forwards the slots of its input, so "slots" cannot be set here: set')),
    Case("slots of a one-shot", shipped(links__0__slots=4), ('"slots": 4', "links[0].slots", "is one-shot")),
    Case("slots that disagree", row(stages__two=stage("sink"), links__add={"from": "source.out", "to": "two.in",
                                                                           "slots": 5}),
         ('"slots": 5', "links[2].slots", "links[0] carries the same slots, and sets their number to 4")),
    Case("capacity that would deadlock", row(stages__sink=stage("sink", keep=4), links__0__slots=3),
         ('"slots"', "links[0].slots", "3 slots can deadlock", "sink keeps up to 4", "at least 4")),
    Case("capacity of a loop", looped(links__1__slots=2), ('"slots": 2', "links[1].slots", "can deadlock", "looper")),
    Case("one-shot into a stream", row(stages__planner=stage("planner"), links__0__from="planner.plan", links__0__slots=DROP),
         (link(0), "links[0]", "planner.plan is one-shot, but a.in is a stream"),
         ('"source": {', "stages.source", "output", "not linked")),
    Case("another type", row(stages__disk=stage("sampler"), links__add={"from": "disk.batch", "to": "late.in"},
                             stages__late=stage("sink")),
         (link(2), "links[2]", "disk.batch carries minibatch, but late.in expects words")),
    Case("two writers on branches", pipeline(
        {"owner": stage("owner"), "one": stage("raiser"), "two": stage("raiser")},
        links("owner.out", "one.in", "owner.out", "two.in")),
        ('"one": {', "stages.one", "this stage changes slots, and two holds the same slots at the same time")),
    Case("split batches where whole ones are needed", shipped(stages__trainer__params__norm="batch"),
         (33, "stages.trainer.params", "norm=batch requires whole batches", "overflow=split")),
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


if __name__ == "__main__":
    main()
