"""What a run's stages did over time, from the spans that each stage wrote to RUN/trace."""
import json
import math
import os

BINS = 150  # of the whole run
SPANS_MAX = 600  # of the closer look
BATCHES = 4  # of the closer look
WAITS = ("C", "R")  # spans in which a stage waits for its disk; any other is work
NAMES = {"N": "sampling", "S": "requesting rows", "L": "copying cached rows", "R": "reading", "C": "waiting for the last rows", "T": "training",
         "P": "program", "E": "drawing edges", "G": "gathering", "U": "updating"}


class Broken(Exception):
    """A file of spans that no run wrote."""


class Trace:
    """stages: {name: [(begin_s, end_s, kind, batch or None)]} in the order of their first spans, times from the start."""

    def __init__(self, stages):
        start = min(span[0] for spans in stages.values() for span in spans)
        self.stages = {name: sorted(((a - start, b - start, *rest) for a, b, *rest in spans), key=lambda span: span[:2])
                       for name, spans in sorted(stages.items(), key=lambda item: min(span[0] for span in item[1]))}
        self.seconds = max(span[1] for spans in self.stages.values() for span in spans)

    def activity(self):
        """(seconds of a bin, {name: the share of each bin in which the stage worked})"""
        width = self.seconds / BINS or 1.0
        return width, {name: shares([(a, b) for a, b, kind, _ in spans if kind not in WAITS], width) for name, spans in self.stages.items()}

    def closer(self):
        """A few batches from the middle: [(stage, kind, batch, begin_s, end_s)]. Empty: no stage named its batches."""
        spans = [(name, kind, batch, a, b) for name, found in self.stages.items() for a, b, kind, batch in found if batch is not None]
        batches = sorted({span[2] for span in spans if span[1] in ("T", "P")} or {span[2] for span in spans})
        middle = set(batches[max(0, len(batches) // 2 - BATCHES // 2):][:BATCHES])
        return [span for span in spans if span[2] in middle][:SPANS_MAX]


def shares(spans, width):
    """How much of each bin the union of the spans covers."""
    found, until = [0.0] * BINS, 0.0
    for begin, end in spans:  # in the order of their begin
        begin = max(begin, until)
        until = max(until, end)
        while begin < end:
            k = min(int(begin / width), BINS - 1)
            stop = end if k == BINS - 1 else min(end, (k + 1) * width)
            if stop <= begin:  # rounding
                stop = min(end, begin + width)
            found[k] += stop - begin
            begin = stop
    return [min(1.0, round(x / width, 3)) for x in found]


def read(path):
    """The spans of one stage's file, which has one event a line."""
    name, spans = None, []
    with open(path, encoding="utf-8") as f:
        for n, line in enumerate(f, 1):
            try:
                event = json.loads(line.rstrip().rstrip(","))
                if event["ph"] == "M" and event["name"] == "process_name":
                    name = str(event["args"]["name"])
                elif event["ph"] == "X":
                    begin, took, batch = float(event["ts"]) * 1e-6, float(event["dur"]) * 1e-6, event.get("args", {}).get("batch")
                    if not (math.isfinite(begin) and 0 <= took < math.inf and (batch is None or isinstance(batch, int))):
                        raise ValueError("a time or a batch is out of range")
                    spans.append((begin, begin + took, event["name"].split(" ")[0], batch))
            except (ValueError, KeyError, TypeError, AttributeError) as e:
                raise Broken(f"{path}:{n}: not an event of a trace ({e or type(e).__name__}): to make the page without the trace, remove the folder {os.path.dirname(path)}") from e
    return name, spans


def load(folder):
    """The Trace of a run. None: it has none."""
    stages = {}
    try:
        for file in sorted(os.listdir(folder)):
            path = os.path.join(folder, file)
            if file.endswith(".json") and os.path.isfile(path):
                name, spans = read(path)
                if name is not None and spans:
                    stages[name] = spans
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as e:
        raise Broken(f"cannot read {folder}: {e}") from e
    return Trace(stages) if stages else None
