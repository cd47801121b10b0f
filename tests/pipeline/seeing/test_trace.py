"""--trace: events of the Trace Event Format, which Perfetto and Chrome read: spans that nest, flows, counters, names."""
import collections

from crash import *

PHASES = {"X": {"ts", "dur"}, "M": {"args"}, "C": {"ts", "args"}, "s": {"ts", "id", "cat"}, "t": {"ts", "id", "cat"}, "f": {"ts", "id", "cat"}}
NAMES = {"process_name": "name", "thread_name": "name", "process_sort_index": "sort_index"}
SLOW_US = 20000


def chain(source=None, middle=None, sink=None, batches=20):
    maker = source.pop("run") if source else "source"
    stages = {"source": stage(maker, batches=batches, **(source or {})), "a": middle or stage("passthrough"), "sink": sink or stage("sink")}
    return pipeline(stages, links("source.out", "a.in", "a.out", "sink.in"))


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Trace:
    """A file of --trace, checked against the format. spans: [(stage, event)]."""

    def __init__(self, path):
        with open(path) as f:
            whole = json.load(f)
        assert whole.keys() == {"traceEvents", "displayTimeUnit"} and whole["displayTimeUnit"] == "ms"
        self.events = whole["traceEvents"]
        for e in self.events:
            assert e["ph"] in PHASES and PHASES[e["ph"]] <= e.keys() and isinstance(e["name"], str) and e["name"], e
            assert isinstance(e["pid"], int) and isinstance(e["tid"], int) and all(is_number(e[key]) and e[key] >= 0 for key in ("ts", "dur") if key in e), e
            assert isinstance(e.get("args", {}), dict), e
            assert e["ph"] != "C" or e["args"] and all(is_number(v) for v in e["args"].values()), e
            assert e["ph"] != "M" or list(e["args"]) == [NAMES[e["name"]]], e
            assert e["ph"] != "f" or e["bp"] == "e", e
        self.stage = {e["pid"]: e["args"]["name"] for e in self.of("M", "process_name")}
        assert len(set(self.stage.values())) == len(self.stage), self.stage
        self.threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in self.of("M", "thread_name")}
        self.spans_nest()
        self.flows_touch_spans()

    def of(self, phase, name=None):
        return [e for e in self.events if e["ph"] == phase and (name is None or e["name"] == name)]

    def spans(self, stage, letter=None):
        return [e for e in self.of("X") if self.stage[e["pid"]] == stage and (letter is None or e["name"].split(" ")[0] == letter)]

    def counter(self, stage, name):
        """[(seconds, value)], in order."""
        found = [(e["ts"] * 1e-6, *e["args"].values()) for e in self.of("C", name) if self.stage[e["pid"]] == stage]
        assert found == sorted(found, key=lambda x: x[0]), (stage, name)
        return found

    def spans_nest(self):
        """Of one thread."""
        threads = collections.defaultdict(list)
        for e in self.of("X"):
            threads[e["pid"], e["tid"]].append(e)
        for thread, spans in threads.items():
            assert self.threads[thread].split(" ")[0] == self.stage[thread[0]], thread
            inside = []
            for e in sorted(spans, key=lambda e: (e["ts"], -e["dur"])):
                while inside and inside[-1] <= e["ts"] + 0.002:  # rounding
                    inside.pop()
                assert not inside or e["ts"] + e["dur"] <= inside[-1] + 0.002, (thread, e)
                inside.append(e["ts"] + e["dur"])

    def flows_touch_spans(self):
        """Each step begins with a span of its thread, and comes after the start of its flow."""
        begins = {(e["pid"], e["tid"], e["ts"]) for e in self.of("X")}
        start = {}
        for e in sorted((e for e in self.events if e["ph"] in "stf"), key=lambda e: (e["ts"], "stf".index(e["ph"]))):
            assert (e["pid"], e["tid"], e["ts"]) in begins, e
            assert e["ph"] == "s" or e["id"] in start, e
            if e["ph"] == "s":
                assert e["id"] not in start, e
                start[e["id"]] = e["ts"]

    def ways(self):
        """{id: [(stage, phase)] in order of time}"""
        found = collections.defaultdict(list)
        for e in sorted((e for e in self.events if e["ph"] in "stf"), key=lambda e: e["ts"]):
            found[e["id"]].append((self.stage[e["pid"]], e["ph"]))
        return found


def traced(p, pl, *args, **more):
    out = p.path("trace.json")
    report = p.run(pl, "--trace", out, *args, **more).report
    return report, Trace(out)


@test
def a_training():
    with Place() as p:
        sets = [a for s in ("params.batch=50", "epochs=2", "stages.planner.params.cpu_cache=64KiB", "stages.disk.params.backend=pread",
                            "stages.disk.params.fault_delay_us=500", "stages.sampler.params.margin=2") for a in ("--set", s)]
        report, trace = traced(p, HYPERION, *sets)
        assert set(report["stages"]) == set(trace.stage.values()) - {"penstock run"}
        ways = trace.ways()
        assert len(ways) == report["sampler"]["batches"] > 10 and report["sampler"]["overflows"] == 0
        assert all(way == [("sampler", "s"), ("disk", "t"), ("trainer", "f")] for way in ways.values()), ways
        depth = trace.counter("disk", "queue depth")
        assert 1 <= max(v for _, v in depth) <= 128 and depth[-1][1] == 0, depth[-5:]
        free = [v for _, v in trace.counter("sampler", "free slots")]
        assert 0 <= min(free) < max(free) <= 64, free
        assert max(v for _, v in trace.counter("trainer", "frames that wait")) >= 1
        rate = trace.counter("disk", "bytes a second")
        read = sum(v * (later - at) for (at, v), (later, _) in zip(rate, rate[1:]))
        assert 0.9 * report["io"]["bytes"] <= read <= 1.01 * report["io"]["bytes"], (read, report["io"]["bytes"])


@test
def micro_batches_have_flows_of_their_own():
    with Place() as p:
        report, trace = traced(p, HYPERION, "--set", "params.batch=100", "--set", "stages.sampler.params.margin=0.4")
        ends = [e for e in trace.of("f")]
        assert report["sampler"]["overflows"] > 0 and len({e["id"] for e in ends}) == len(ends) == report["stages"]["trainer"]["frames"] + len(ends)
        assert len(ends) > report["sampler"]["batches"], (len(ends), report["sampler"])


@test
def programs_of_foreign_stages():
    """How long each had which batch. It holds several, and works on one at a time."""
    with Place() as p:
        for pl, name in ((chain(middle=stage("times", delay_us=SLOW_US), sink=stage("sink", factor=3)), "a"),
                         (chain(sink=stage("swallow", delay_us=SLOW_US)), "sink"),
                         (chain({"run": "maker", "delay_us": SLOW_US}), "source")):
            report, trace = traced(p, pl, foreign=True)
            spans = sorted(trace.spans(name, "P"), key=lambda e: e["ts"])
            assert sorted(e["args"]["batch"] for e in spans) == list(range(20)), (name, [e["args"] for e in spans])
            worked = sum(e["dur"] for e in spans) * 1e-6
            assert 20 * SLOW_US * 1e-6 <= worked * 1.05, (name, worked)
            assert worked <= report["stages"][name]["busy_s"] * 1.2 + 0.1, (name, worked, report["stages"][name])
            assert all(a["ts"] + a["dur"] <= b["ts"] + 0.01 for a, b in zip(spans, spans[1:])), name
            assert any(way and way[-1][1] == "f" for way in trace.ways().values()), trace.ways()


@test
def threads_of_one_process():
    with Place() as p:
        _, trace = traced(p, chain(), grouped=True)
        assert len(trace.ways()) == 20 and all([phase for _, phase in way] == ["s", "t", "f"] for way in trace.ways().values()), trace.ways()


if __name__ == "__main__":
    main()
