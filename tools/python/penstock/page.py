"""penstock page: one HTML file that shows runs. The command `penstock page` starts this module:
python3 -m penstock.page PROGRAM RUN... [--out FILE] [--tensorboard DIR [--follow]]"""
import argparse
import os
import signal
import stat
import sys

from . import aside
from .pages import document, reports
from .pages.reports import Bad
from .tensorboard import follow, to_tensorboard

RUNS_MAX = 12  # more curves than this cannot be told apart
ABOUT = """Writes one HTML file that shows one run or compares several runs. The page shows curves of the training, the time
that each stage worked and waited, the use of disk and caches, the command, and the parameters in which the runs differ.
If a run was started with --trace, the page also shows what its stages did over time. The page needs no other file and
no network.

With --tensorboard, the command writes the epochs and results of each run as events for TensorBoard instead. This needs
the Python package tensorboard. With --follow, the runs may be active: the command writes each epoch when it ends, until
all runs have ended.

RUN is the directory of a run (`penstock runs` lists them), or its report.json."""


def options(argv):
    parser = argparse.ArgumentParser(prog="penstock page", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--out", metavar="FILE", help="write the page to FILE; - is standard output (default: page.html in the directory of the first RUN)")
    parser.add_argument("--tensorboard", metavar="DIR", help="write events for TensorBoard to DIR/NAME for each run; write a page only if --out is given")
    parser.add_argument("--follow", action="store_true", help="write events of active runs, epoch by epoch, until the runs end")
    given = parser.parse_args(argv)
    if given.follow and (not given.tensorboard or given.out):
        raise Bad("--follow writes events for TensorBoard: give --tensorboard DIR, and no --out")
    if len(given.runs) > RUNS_MAX:
        raise Bad(f"expected at most {RUNS_MAX} runs, found {len(given.runs)}")
    return given


def write(path, text):
    """Writes a file aside and renames it, so that the name never shows half of a page."""
    try:
        if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
            raise Bad(f"--out: {path} exists, and is not a regular file; name a file, or - for standard output")
        with aside.written(path) as f:
            f.write(text)
    except OSError as e:
        raise Bad(f"--out: cannot write {path}: {e.strerror}") from e


def make(given):
    if given.follow:
        return follow(given.runs, given.tensorboard, lambda text: print(text, flush=True))
    runs = reports.load(given.runs)
    if given.tensorboard:
        for run in runs:
            folder = os.path.join(given.tensorboard, run.name.strip("./").replace("/", "_"))
            to_tensorboard(run, folder)
            print(f"{folder}: {len(run.epochs)} epoch{'s' if len(run.epochs) != 1 else ''}")
        if not given.out:
            return
    text = document.page(runs).encode("utf-8", "replace")
    if given.out == "-":
        sys.stdout.buffer.write(text)
        return
    out = given.out or os.path.join(runs[0].directory, "page.html")
    write(out, text)
    print(f"{out}: {len(text) / 1e3:.0f} kB, {len(runs)} run{'s' if len(runs) > 1 else ''}")


def main(argv):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        make(options(argv[1:]))
        return 0
    except Bad as e:
        print(f"penstock page: {e}", file=sys.stderr)
        return 2
    except OSError as e:
        print(f"penstock page: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
