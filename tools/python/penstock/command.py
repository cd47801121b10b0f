"""Starts `penstock run` from Python, shows its progress, and returns its report."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import typing

from .live import Epochs
from .results import read_report
from .tensorboard import Events, check_tensorboard

HERE = os.path.dirname(os.path.abspath(__file__))
OPTIONS = ("epochs", "seed", "device", "group", "run_dir", "resume", "init_from", "trace", "batches")  # of `penstock run`
INTERRUPTED = (129, 130, 143)  # exit codes
GRACE_S = 130  # more than the runtime gives a stage for its last checkpoint
PROGRESS = re.compile(r"(?:(?:starting|planning)  |epoch (\d+)/(\d+)  )(?:batch (\d+)/(\d+)  )?(?:loss (\S+)  )?.*\b\d+ s(?: left)?$")
STARTED = re.compile(r".* on .*, in (/.*?)(?:, resumed from /.*)?$")  # the first line that the command prints
CLEAR = "\033[K"  # the command clears its progress line before it prints another line


class RunError(RuntimeError):
    """A run failed; the text is what `penstock run` said. `report` is its report, or None."""

    def __init__(self, text, report=None):
        super().__init__(text)
        self.report = report


def find_command():
    """The path of `penstock`: $PENSTOCK, or in the wheel or the tree that this package belongs to, or in PATH."""
    near = [os.path.join(HERE, *up, "bin", "penstock") for up in (("_tree",), ("..",) * 4, ("..", "..", "..", "build"))]
    for path in [os.environ.get("PENSTOCK"), *near, shutil.which("penstock")]:
        if path and os.access(path, os.X_OK):
            return os.path.abspath(path)
    raise FileNotFoundError("cannot find the command penstock: build it, add its folder to PATH, or set PENSTOCK to its path")


def arguments(pipeline, dataset, overlays, settings, folder):
    """The arguments of `penstock run`. folder: for the report, and for a pipeline that is a dictionary."""
    if isinstance(pipeline, dict):
        file = os.path.join(folder, "pipeline.json")
        with open(file, "w", encoding="utf-8") as f:
            json.dump(pipeline, f)
        pipeline = file
    args = ["run", os.fspath(pipeline), "--report", os.path.join(folder, "report.json")]
    if dataset is not None:
        args += ["--dataset", os.fspath(dataset)]
    overlays = [overlays] if isinstance(overlays, (str, os.PathLike)) else overlays
    for file in overlays:
        args += ["--with", os.fspath(file)]
    for name, value in settings.items():
        if name in OPTIONS:
            args += ["--" + name.replace("_", "-"), str(value)] if value is not None else []
        else:
            path = name if "." in name or "[" in name else "params." + name
            args += ["--set", f"{path}={json.dumps(value)}"]
    return args


class Progress(typing.NamedTuple):
    """Where a run is: the current epoch, from 1, the batches that are done, of all epochs, and the last epoch's loss, or None."""
    epoch: int
    epochs: int
    done: int
    total: int
    loss: float | None


class Running:
    """A run that ends with this process, however that ends: keeper.py watches both."""

    def __init__(self, args, folder, grace_s, **environment):
        search = [os.path.dirname(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]  # for stages in Python
        path = [os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]
        self.folder, self.output = folder, tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-E", os.path.join(HERE, "keeper.py"), str(os.getpid()), str(grace_s), folder, find_command(), *args],
            stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.PIPE, start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(search), "PATH": os.pathsep.join(path), **environment})
        self.lines, self.began = [], time.time()  # of standard error, without progress

    def listen(self, progress, line):
        """Calls progress(Progress) and line(text) for what the run says, until it ends."""
        rest, file = "", self.process.stderr
        while data := os.read(file.fileno(), 65536):
            *pieces, rest = re.split("[\r\n]", rest + data.decode("utf-8", "replace"))
            if rest.startswith(CLEAR) and PROGRESS.match(rest.removeprefix(CLEAR)):  # else it ends where the next line begins
                pieces, rest = [*pieces, rest], ""
            for piece in filter(None, (p.replace(CLEAR, "") for p in pieces)):
                found = PROGRESS.match(piece)
                if found and found[1]:
                    progress(Progress(*map(int, found.groups()[:4]), found[5] and float(found[5])))
                elif not found:
                    self.lines.append(piece)
                    line(piece)

    @property
    def run_dir(self):
        """The run's directory; None: the run has not said it yet, or was refused."""
        found = STARTED.match(self.lines[0]) if self.lines else None
        return found and found[1]

    def end(self):
        """Waits for the end. Returns the report. Raises RunError if the run failed."""
        code = self.process.wait()
        self.process.stderr.close()
        report = self.report
        if code and code not in INTERRUPTED:
            said = [k for k, text in enumerate(self.lines) if text.startswith("error: ")]
            raise RunError("\n".join(self.lines[said[0] if said else 0:]) or f"penstock run ended with exit code {code}", report)
        self.output.seek(0)
        if report is not None:
            report.text = self.output.read().strip()
        return report

    @property
    def report(self):
        path = os.path.join(self.folder, "report.json")
        return read_report(path) if os.path.exists(path) else None


class Bar:
    """tqdm's bar where it is installed, in a notebook or a terminal."""

    def __init__(self, show):
        self.bar = None
        try:
            from tqdm.auto import tqdm
            self.tqdm = tqdm if show else None
        except ImportError:
            self.tqdm = None
        self.show = show

    def progress(self, now):
        if self.tqdm and not self.bar:
            self.bar = self.tqdm(total=now.total, unit=" batches", dynamic_ncols=True)
        if self.bar:
            self.bar.set_description(f"epoch {now.epoch}/{now.epochs}", refresh=False)
            if now.loss is not None:
                self.bar.set_postfix(loss=f"{now.loss:.4f}", refresh=False)
            self.bar.update(now.done - self.bar.n)

    def line(self, text):
        if self.bar:
            self.bar.write(text, file=sys.stderr)
        elif self.show:
            print(text, file=sys.stderr)

    def close(self, complete=False):
        if self.bar and complete:
            self.bar.update(self.bar.total - self.bar.n)
        if self.bar:
            self.bar.close()


class Listener:
    """Hears what a run says: shows it, and hands over the epochs that have ended."""

    def __init__(self, running, bar, on_epoch, tensorboard):
        self.running, self.bar, self.on_epoch, self.tensorboard = running, bar, on_epoch, tensorboard
        self.epochs = self.events = None

    def line(self, text):
        self.bar.line(text)
        if (self.on_epoch or self.tensorboard) and self.running.run_dir:
            self.take_epochs()

    def take_epochs(self):
        """Each row is in the file before the command prints it."""
        if self.epochs is None:
            self.epochs = Epochs(self.running.run_dir, self.running.began)  # not those of a run that this one resumes
        for row in self.epochs.new():
            if self.tensorboard:
                self.events = self.events or Events(os.path.join(self.tensorboard, os.path.basename(self.running.run_dir)))
                self.events.epoch(row)
            if self.on_epoch:
                self.on_epoch(row)

    def end(self, report):
        if self.events and report is not None:
            self.events.results(report)

    def close(self):
        if self.events:
            self.events.close()


def run(pipeline, dataset=None, *, overlays=(), progress=True, on_epoch=None, tensorboard=None, **settings):
    """Runs a pipeline (a file or a dictionary) and returns its report, a Report.

    settings: options of `penstock run` (epochs, seed, device, group, run_dir, resume, init_from, trace, batches);
    any other name is a parameter, as in batch=256, or a path in the pipeline, as in **{"stages.disk.params.depth": 64}.
    overlays: files that are merged over the pipeline, in order. progress: show a bar and the epochs.
    on_epoch: called with the report's row of each epoch, a dictionary, as soon as the epoch has ended. tensorboard: a
    folder; each epoch is written as events for TensorBoard to a folder in it that has the name of the run's directory.

    Raises RunError if the run fails. An interrupt (^C, or a notebook's), or an exception of on_epoch, stops the run after
    a checkpoint, and is raised again. If this process dies, the run ends. Stages in Python use this interpreter and this
    package.
    """
    if tensorboard is not None:
        check_tensorboard()
    folder, bar, listener = tempfile.mkdtemp(prefix="penstock-"), Bar(progress), None
    try:
        running = Running([*arguments(pipeline, dataset, overlays, settings, folder), "--progress"], folder, GRACE_S)
        listener = Listener(running, bar, on_epoch, tensorboard)
        try:
            running.listen(bar.progress, listener.line)
        except BaseException:
            running.process.send_signal(signal.SIGINT)
            running.listen(bar.progress, bar.line)
            running.end()
            raise
        report = running.end()
        listener.end(report)
        bar.close(complete=report["status"] == "ok")
        return report
    finally:
        bar.close()
        if listener:
            listener.close()
        shutil.rmtree(folder, ignore_errors=True)
