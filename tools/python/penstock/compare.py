"""penstock compare: runs pipelines in turns, and prints the ratios of their times. The command `penstock compare` starts
this module: python3 -m penstock.compare PROGRAM PIPELINE PIPELINE... [OPTION]..."""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile

from .figures import svg

RUN_TIMEOUT_S = 3600
TOLD_CHARS = 2000  # of what a failed run printed
PAIRS_MAX = 1000
ABOUT = """Runs pipelines in turns (A B ... A B ...), so that a change of the machine's speed meets all of them, and prints
for each the seconds that its epochs took without evaluation (median and quartiles), and how many times faster it is than
the first: the ratio of the medians, and the quartiles of the ratios of the single turns."""


class Bad(Exception):
    """The input is wrong."""


class Failed(Exception):
    """A run failed, or results differ."""


def options(argv):
    parser = argparse.ArgumentParser(prog="penstock compare", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipelines", nargs="+", metavar="PIPELINE")
    parser.add_argument("--pairs", metavar="N", type=int, default=7, help="turns (default: 7)")
    parser.add_argument("--same-result", action="store_true", help="fail if the trained weights differ")
    parser.add_argument("--svg", metavar="FILE", help="draw the seconds as bars")
    parser.add_argument("--json", action="store_true", help="print JSON")
    for name, what in (("--dataset", "DIR"), ("--epochs", "N"), ("--seed", "N")):
        parser.add_argument(name, metavar=what, help="as of penstock run, for all")
    for name, what in (("--with", "FILE"), ("--set", "PATH=VALUE")):
        parser.add_argument(name, metavar=what, action="append", default=[], help="as of penstock run, for all; can be repeated")
    given = parser.parse_args(argv)
    if not 1 <= given.pairs <= PAIRS_MAX:
        raise Bad(f"--pairs: expected 1 to {PAIRS_MAX}, found {given.pairs}")
    if len(given.pipelines) < 2:
        raise Bad("expected at least two pipelines to compare")
    return given


def arguments(given):
    """What all runs get."""
    args = [word for name in ("dataset", "epochs", "seed") if getattr(given, name) for word in (f"--{name}", getattr(given, name))]
    args += [word for value in getattr(given, "with") for word in ("--with", value)]
    return args + [word for value in given.set for word in ("--set", value)]


def one_run(program, pipeline, args, run_dir):
    """Its report."""
    argv = [program, "run", pipeline, "--run-dir", run_dir, "--quiet", *args]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise Failed(f"{pipeline}: the run did not finish within {RUN_TIMEOUT_S} s") from None
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode != 0:
        kind = Bad if done.returncode == 2 else Failed
        raise kind(f"{pipeline}: the run failed with exit status {done.returncode}\n{(done.stdout + done.stderr)[-TOLD_CHARS:]}")
    with open(os.path.join(run_dir, "report.json"), encoding="utf-8") as f:
        return json.load(f)


def seconds_of(pipeline, report):
    epochs = report.get("epochs")
    if not epochs:
        raise Failed(f"{pipeline}: the run's report has no epochs, so nothing was trained")
    return sum(epoch["seconds"] for epoch in epochs)


def measure(program, given, scratch):
    """The seconds of each pipeline in each turn, and the weights of the last."""
    seconds, weights = [[] for _ in given.pipelines], [None] * len(given.pipelines)
    for turn in range(given.pairs):
        for k, pipeline in enumerate(given.pipelines):
            report = one_run(program, pipeline, arguments(given), os.path.join(scratch, f"{turn}-{k}"))
            seconds[k].append(seconds_of(pipeline, report))
            weights[k] = report.get("weights_digest")
            if given.same_result and weights[k] != weights[0]:
                raise Failed(f"{pipeline} ended with the weights {weights[k]}, but {given.pipelines[0]} with {weights[0]}")
    return seconds, weights


def spread(values):
    """(lower quartile, median, upper quartile)"""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def results(given, seconds, weights):
    rows = []
    for pipeline, mine, digest in zip(given.pipelines, seconds, weights):
        low, median, high = spread(mine)
        ratios = spread([a / b for a, b in zip(seconds[0], mine)])
        rows.append({"pipeline": pipeline, "seconds": mine, "median_s": median, "quartiles_s": [low, high], "weights_digest": digest,
                     "times_faster": statistics.median(seconds[0]) / median, "quartiles_faster": [ratios[0], ratios[2]]})
    return {"pairs": given.pairs, "same_result": len(set(weights)) == 1, "pipelines": rows}


def table(found):
    lines = [f"{'pipeline':<40} {'median s':>10} {'quartiles':>19} {'faster':>8} {'quartiles':>15}"]
    for row in found["pipelines"]:
        (low, high), (slow, fast) = row["quartiles_s"], row["quartiles_faster"]
        lines.append(f"{row['pipeline']:<40} {row['median_s']:>10.3f} {low:>9.3f} {high:>9.3f} {row['times_faster']:>8.2f} {slow:>7.2f} {fast:>7.2f}")
    same = "equal weights" if found["same_result"] else "DIFFERENT weights"
    return "\n".join(lines) + f"\n{found['pairs']} turns; {same}\n"


def show(given, found):
    print(json.dumps(found) if given.json else table(found), end="\n" if given.json else "")
    if given.svg:
        names = [os.path.basename(p) for p in given.pipelines]
        chart = svg.bars("penstock compare", "pipeline", "seconds", names, {"median": [row["median_s"] for row in found["pipelines"]]})
        with open(given.svg, "w", encoding="utf-8") as f:
            f.write(chart)


def main(argv):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        given = options(argv[1:])
        with tempfile.TemporaryDirectory(prefix="penstock-compare-") as scratch:
            show(given, results(given, *measure(argv[0], given, scratch)))
        return 0
    except Bad as e:
        print(f"penstock compare: {e}", file=sys.stderr)
        return 2
    except (Failed, OSError) as e:
        print(f"penstock compare: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
