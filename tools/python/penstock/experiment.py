"""penstock experiment: measures a paper's figures again. The command `penstock experiment` starts this module:
python3 -m penstock.experiment PROGRAM PAPER [OPTION]..."""
import argparse
import os
import signal
import sys
import time

from .figures import embeddings, gids, hyperion, report
from .figures.lab import Bad, Failed, Lab

PAPERS = {p.name: p for p in (hyperion.PAPER, gids.PAPER, embeddings.PAPER)}
ABOUT = """Measures the figures of a paper again, in shape: on a CPU, with emulated drives that run slower than
real ones (dilated). The papers: hyperion; gids; embeddings (Marius and Legend). Writes for each figure a table
(.txt, .json) and a chart (.svg) to a directory, and `summary.txt` and `summary.json` with the paper's claim, what
was measured, and whether the claim holds.

Drivers and emulated drives have one core, the trainer (one thread) another. Ratios are medians over alternations."""


def options(argv):
    parser = argparse.ArgumentParser(prog="penstock experiment", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paper", choices=sorted(PAPERS), metavar="PAPER")
    parser.add_argument("--out", metavar="DIR", help="write here; a new or empty directory (default: runs/experiment-PAPER-TIME)")
    parser.add_argument("--only", metavar="FIGURE", action="append", help="measure only this figure; can be repeated")
    parser.add_argument("--alternations", metavar="N", type=int, help="how often what is compared takes turns (default: 5)")
    parser.add_argument("--smallest", action="store_true",
                        help="a form that takes seconds, to see that the figures can be measured; it does not judge claims")
    parser.add_argument("--list", action="store_true", help="only print the figures and the paper's claims")
    given = parser.parse_args(argv)
    if given.alternations is not None and not 1 <= given.alternations <= 1000:
        raise Bad(f"--alternations: expected 1 to 1000, found {given.alternations}")
    return given


def chosen(paper, names):
    known = [f.name for f in paper.figures]
    for name in names or []:
        if name not in known:
            raise Bad(f'--only: {paper.name} has no figure "{name}"; expected one of {", ".join(known)}')
    return [f for f in paper.figures if not names or f.name in names]


def make_directory(path):
    """The new or empty directory for the results."""
    try:
        os.makedirs(path, exist_ok=True)
        if os.listdir(path):
            raise Bad(f"--out: {path} is not empty; choose a new directory, or empty this one")
    except OSError as e:
        raise Bad(f"--out: cannot make {path}: {e.strerror}") from e
    return os.path.abspath(path)


def measure(program, given, paper, figures):
    out = make_directory(given.out or os.path.join("runs", f"experiment-{paper.name}-{time.strftime('%Y%m%d-%H%M%S')}"))
    size = paper.smallest if given.smallest else paper.full
    if given.alternations:
        size = {**size, "alternations": given.alternations}
    with Lab(program, out, size, judged=not given.smallest, runs=sum(f.runs(size) for f in figures)) as lab:
        results = []
        for figure in figures:
            lab.figure = figure
            results.append((figure, figure.measure(lab)))
            report.write_figure(out, paper, *results[-1])
            report.write_summary(out, paper, lab, results)
    with open(os.path.join(out, "summary.txt"), encoding="utf-8") as f:
        print(f.read(), end="")
    print(f"results: {out}")


def main(argv):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        given = options(argv[1:])
        paper = PAPERS[given.paper]
        figures = chosen(paper, given.only)
        if given.list:
            print(report.list_of(paper, figures), end="")
        else:
            measure(argv[0], given, paper, figures)
        return 0
    except Bad as e:
        print(f"penstock experiment: {e}", file=sys.stderr)
        return 2
    except (Failed, OSError) as e:
        print(f"penstock experiment: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
