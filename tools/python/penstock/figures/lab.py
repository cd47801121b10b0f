"""The lab: runs penstock with stages on fixed cores, and shows how far the experiment is."""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

RUN_TIMEOUT_S = 600
TOLD_CHARS = 2000  # of what a failed program printed
SHOW_EVERY_S = 10  # progress, where standard error is no terminal
PLACES = (("..", "..", "..", "..", "pipelines"), ("..", "..", "..", "pipelines"))  # of the pipelines: in the source tree, installed


class Bad(Exception):
    """Wrong options, or a machine that cannot run the experiment."""


class Failed(Exception):
    """Something that was run failed, so there is nothing to report."""


def median(values):
    return statistics.median(values)


def shipped(*name):
    """The path of a pipeline, or of settings, that come with penstock."""
    here = os.path.dirname(os.path.abspath(__file__))
    for place in PLACES:
        path = os.path.normpath(os.path.join(here, *place, *name))
        if os.path.exists(path):
            return path
    raise Bad(f"cannot find pipelines/{'/'.join(name)} above {here}; run `make install` or use the source tree")


class Lab:
    """One experiment. `size` has the sizes of the paper's form that runs; `runs` is the number of programs that the
    figures start. The scratch folder is in `out`, and goes at the end."""

    def __init__(self, program, out, size, judged, runs):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            raise Bad("the measurements need two cores, one for drives and drivers and one for the trainer, but this process may use only one")
        self.program, self.out, self.size, self.judged, self.runs = program, out, size, judged, runs
        self.drive_core, self.train_core = cores[:2]
        self.done, self.begun, self.shown, self.figure = 0, time.monotonic(), 0.0, None
        self.load = os.getloadavg()[0]
        self.scratch = None

    def __enter__(self):
        self.scratch = tempfile.mkdtemp(prefix="scratch-", dir=self.out)
        return self

    def __exit__(self, *_):
        if sys.stderr.isatty():
            print(file=sys.stderr)
        shutil.rmtree(self.scratch, ignore_errors=True)

    # ---- programs ------------------------------------------------------------------------------------------

    def _start(self, argv, before=None):
        """What the program prints. before: called in the child before the program starts."""
        argv = [self.program, *map(str, argv)]
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=before) as p:
            try:
                out, err = p.communicate(timeout=RUN_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._stop(p)
                raise Failed(f"figure {self.figure.name}: {' '.join(argv)}: the program did not finish within {RUN_TIMEOUT_S} s") from None
            except BaseException:  # interrupted: the run ends in order, too
                self._stop(p)
                raise
        if p.returncode == 130:
            raise KeyboardInterrupt
        if p.returncode != 0:
            where = f"figure {self.figure.name}: " if self.figure else ""
            raise Failed(f"{where}{' '.join(argv)}: the program failed with exit status {p.returncode}\n{(out + err)[-TOLD_CHARS:]}")
        return out

    @staticmethod
    def _stop(p):
        p.terminate()
        try:
            p.wait(timeout=30)
        except subprocess.TimeoutExpired:
            p.kill()

    def _count(self):
        """A run has ended: shows the rate and the time left."""
        self.done += 1
        now = time.monotonic()
        if not sys.stderr.isatty() and now - self.shown < SHOW_EVERY_S and self.done < self.runs:
            return
        self.shown = now
        took = max(now - self.begun, 1e-9)
        left = max(0, self.runs - self.done) * took / self.done
        end = "\r" if sys.stderr.isatty() else "\n"
        print(f"figure {self.figure.name}: {self.done} of {self.runs} runs, {60 * self.done / took:.0f} a minute, {left:.0f} s left   ",
              end=end, file=sys.stderr, flush=True)

    # ---- what figures measure with -------------------------------------------------------------------------

    def dataset(self, name, *args, kind="community"):
        """A generated graph, made once. kind: as of `penstock gen`."""
        return self._made(name, lambda path: self._start(["gen", kind, path, "--quiet", *args]))

    def imported(self, name, layout, write):
        """What write(directory) writes in a layout that penstock imports, made once."""
        def make(path):
            with tempfile.TemporaryDirectory(dir=self.scratch) as source:
                write(source)
                self._start(["import", layout, source, path, "--quiet"])
        return self._made(name, make)

    def traced(self, name, pipeline, dataset, settings):
        """The paths of the ids of every batch of one epoch, and of the plan. Made once, like a dataset. pipeline: a dictionary."""
        path = os.path.join(self.scratch, name)
        ids, plan = os.path.join(path, "ids"), os.path.join(path, "run", "plan", "plan.json")
        if not os.path.exists(ids):
            os.makedirs(path)
            with open(os.path.join(path, "pipeline.json"), "w", encoding="utf-8") as f:
                json.dump(pipeline, f)
            self._start(["run", f.name, "--dataset", dataset, "--run-dir", os.path.join(path, "run"), "--epochs", 1, "--quiet", *settings,
                         "--set", f"stages.sampler.params.trace_ids={json.dumps(ids)}"])
        return ids, plan

    def _made(self, name, make):
        path = os.path.join(self.scratch, name)
        if not os.path.exists(os.path.join(path, "dataset.json")):
            make(path)
        return path

    @staticmethod
    def settings(cores, stages, params, fields):
        """Options of `penstock run`. cores: {stage: core}; stages: {stage: {parameter: value}}; params: of all stages;
        fields: of the pipeline."""
        values = {f"stages.{stage}.place": {"cores": str(core)} for stage, core in cores.items()}
        values |= {f"stages.{stage}.params.{key}": value for stage, more in stages.items() for key, value in more.items()}
        values |= {f"params.{key}": value for key, value in params.items()} | fields
        return [a for path, value in values.items() for a in ("--set", f"{path}={json.dumps(value)}")]

    def _fresh(self):
        path = os.path.join(self.scratch, "run")
        shutil.rmtree(path, ignore_errors=True)
        return path

    def run(self, pipeline, dataset, epochs, settings, before=None):
        """The report of a run. pipeline: a path, or a list of it and more arguments; before: as for _start."""
        path = self._fresh()
        pipeline = [pipeline] if isinstance(pipeline, str) else pipeline
        self._start(["run", *pipeline, "--dataset", dataset, "--run-dir", path, "--epochs", epochs, "--quiet", *settings], before)
        self._count()
        with open(os.path.join(path, "report.json"), encoding="utf-8") as f:
            return json.load(f)

    def tpc(self, pipeline, dataset, settings, *more):
        """What `penstock tpc` predicts from ten batches."""
        out = self._start(["tpc", pipeline, "--dataset", dataset, "--run-dir", self._fresh(), "--epochs", 100, "--json", *more, *settings])
        self._count()
        return json.loads(out)

    def order(self, *args):
        """What `penstock order` says of an order of partitions."""
        out = self._start(["order", "--json", *args])
        self._count()
        return json.loads(out)

    def replay(self, *args):
        """What `penstock replay` says that caches would hit."""
        out = self._start(["replay", "--json", *args])
        self._count()
        return json.loads(out)

    def systems(self):
        """The systems in the built-in prices, as text."""
        out = self._start(["tpc", "--systems"])
        self._count()
        return out

    def bench_io(self, *args):
        """What `penstock bench io` measures, with driver and drives on one core."""
        out = self._start(["bench", "io", "--json", *args], lambda: os.sched_setaffinity(0, {self.drive_core}))
        self._count()
        return json.loads(out)

    def alternate(self, variants, measure):
        """{variant: [what measure(variant) gave, once an alternation]}: each alternation measures every variant once."""
        found = {v: [] for v in variants}
        for i in range(self.size["alternations"]):
            for v in variants if i % 2 == 0 else list(variants)[::-1]:
                found[v].append(measure(v))
        return found
