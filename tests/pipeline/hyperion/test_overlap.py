#!/usr/bin/env python3
"""Hyperion's Figure 6 in the trace: sampling (N), submission (S), reading (R) and lookup (L) of each hop, completion (C)
and training (T) of each batch, with overlap and without."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import ROOT, SAN, Place, main, test  # noqa: E402

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
HOPS = 2
SMALL = ["params.batch=64", "epochs=2", "stages.planner.params.cpu_cache=64KiB", "stages.sampler.params.margin=2"]


def traced(p, *sets):
    """Runs it. Returns the report, and the spans by (name, batch, hop): (begin, end) in microseconds."""
    out = p.path("trace.json")
    args = [a for s in (*SMALL, *sets) for a in ("--set", s)]
    report = p.run(HYPERION, "--trace", out, *args).report
    with open(out) as f:
        events = [e for e in json.load(f)["traceEvents"] if e["ph"] == "X" and "batch" in e.get("args", {})]
    spans = {}
    for e in events:
        key = e["name"].split()[0], e["args"]["batch"], e["args"].get("hop")
        assert e["name"] == f"{key[0]} {key[1]}" + ("" if key[2] is None else f".{key[2]}"), e
        assert key not in spans, key
        spans[key] = e["ts"], e["ts"] + e["dur"]
    return report, spans


def complete(report, spans):
    """Every batch has its spans. Returns the number of batches."""
    batches = report["sampler"]["batches"]
    assert batches >= 4 and report["sampler"]["overflows"] == 0, report["sampler"]
    for b in range(batches):
        assert {("N", b, h) for h in range(HOPS + 1)} <= spans.keys(), b
        assert {("C", b, None), ("T", b, None)} <= spans.keys(), b
        parts = sorted(h for name, batch, h in spans if name == "R" and batch == b)
        assert parts == list(range(len(parts))) and (len(parts) == HOPS + 1 or report["cache"]["hits"] > 0), (b, parts)
        assert any(("L", b, h) in spans for h in range(HOPS + 1)), b
    return batches


@test
def a_hop_is_submitted_before_the_next_is_sampled():
    with Place() as p:
        report, spans = traced(p)
        for b in range(complete(report, spans)):
            for h in range(HOPS + 1):
                assert ("S", b, h) in spans, (b, h)
                if h < HOPS:
                    assert spans["S", b, h][0] < spans["N", b, h + 1][1], (b, h)
                lookups = [spans["L", b, j][0] for j in range(HOPS + 1) if ("L", b, j) in spans]
                assert spans["S", b, h][1] <= min(lookups), f"batch {b}: the submission of hop {h} waited for a lookup"
            assert spans["C", b, None][1] <= spans["T", b, None][0] + 0.01, b


@test
def batches_overlap():
    """A slow disk: while it works, the sampler makes further batches."""
    with Place() as p:
        report, spans = traced(p, "stages.disk.params.backend=pread", "stages.disk.params.fault_delay_us=20000")
        batches = complete(report, spans)
        beside = sum(spans["N", b + 1, 0][0] < spans["C", b, None][1] for b in range(batches - 1))
        assert beside >= batches // 2, f"only {beside} of {batches} batches were sampled beside the one before"


def overlap(a, b):
    """Microseconds that two spans share."""
    return max(0.0, min(a[1], b[1]) - max(a[0], b[0]))


def shared(spans, batches):
    """How much of the sampling of hops 1... happened while the requests of the hop before were underway: from their
    submission until they were read. Each hop has rows that are not cached, so part j of the requests is hop j; without
    overlap, all requests are submitted as one part, with the last hop."""
    sampled = underway = 0.0
    for b in range(batches):
        for j in range(HOPS):
            submit = spans.get(("S", b, j), spans["S", b, HOPS])
            read = spans.get(("R", b, j), spans["R", b, 0])
            n = spans["N", b, j + 1]
            sampled, underway = sampled + n[1] - n[0], underway + overlap(n, (submit[0], read[1]))
    return underway / sampled


@test
def requests_of_a_hop_overlap_the_sampling_of_the_next():
    with Place() as p:
        slow = ["stages.disk.params.backend=pread", "stages.disk.params.fault_delay_us=5000"]
        report, spans = traced(p, *slow)
        share = shared(spans, complete(report, spans))
        assert share > (0.9 if SAN else 0.99), share  # a sanitizer slows the threads by unequal factors
        report, spans = traced(p, *slow, "overlap=false")
        share = shared(spans, complete(report, spans))
        assert share == 0, share


@test
def without_overlap_one_operator_works_at_a_time():
    with Place() as p:
        piped, _ = traced(p)
        for more in ([], ["links[1].slots=8", "stages.sampler.instances=2"]):
            report, spans = traced(p, "overlap=false", *more)
            complete(report, spans)
            assert report["digest"] == piped["digest"] and report["weights_digest"] == piped["weights_digest"]
            order = sorted((*times, key) for key, times in spans.items() if key[0] != "R")  # C is a part of R
            for (_, end, one), (begin, _, other) in zip(order, order[1:]):
                assert end <= begin + 0.01, f"{one} is at work beside {other}: until {end}, from {begin}"


if __name__ == "__main__":
    main()
