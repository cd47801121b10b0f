"""Writes the epochs and results of runs as events for TensorBoard, by the package tensorboard."""
import datetime
import os
import time

from .live import Epochs, is_active
from .pages.reports import Bad, Run, number

SKIPPED = ("epoch", "ended")  # the step and the time of an event
POLL_S = 0.5
RESULTS = ("test_accuracy", "final_test_accuracy", "test_micro_f1", "final_test_micro_f1", "test_mrr", "final_test_mrr")
MISSING = "this needs the Python package tensorboard, which {} does not have: install it, for example with `pip install tensorboard`"


def _writer():
    """The classes that write events. tensorboard is large, so it is imported only here."""
    import sys
    try:
        import tensorboard
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as e:
        raise Bad(MISSING.format(sys.executable) if e.name == "tensorboard" else f"the Python package tensorboard cannot be imported: {e}") from e
    return EventFileWriter, Event, Summary


def check_tensorboard():
    """Raises ValueError if the package tensorboard is missing."""
    _writer()


class Events:
    """A file of events in a folder. epoch() and results() write what TensorBoard shows at once."""

    def __init__(self, folder):
        EventFileWriter, self._event, self._summary = _writer()
        self._file, self._step, self._at = EventFileWriter(os.fspath(folder)), 0, 0.0

    def _write(self, values):
        values = {tag: number(value) for tag, value in values.items() if number(value) is not None}
        if values:
            summary = self._summary(value=[self._summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
            self._file.add_event(self._event(wall_time=self._at, step=self._step, summary=summary))
            self._file.flush()

    def epoch(self, row):
        """An epoch's row. `ended` is the time of the event, in seconds since 1970."""
        self._step, self._at = int(number(row.get("epoch")) or 0), number(row.get("ended")) or self._at
        self._write({key: value for key, value in row.items() if key not in SKIPPED})

    def results(self, report):
        """The results in a report, at the last epoch."""
        self._write({key: report[key] for key in RESULTS if key in report})

    def close(self):
        self._file.close()


def _started(run):
    """When the run started, in seconds since 1970; 0: the report does not say."""
    try:
        return datetime.datetime.fromisoformat(str(run.get("started")).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


def to_tensorboard(run, folder):
    """Writes the epochs and results of a run to an event file in `folder`. run: the run's directory or its report.json.

    Each column of the epochs becomes a curve over the epochs. Raises ValueError if the package tensorboard is missing, or
    the report is wrong.
    """
    run = run if isinstance(run, Run) else Run(os.fspath(run))
    events, at = Events(folder), _started(run)
    try:
        for row in run.epochs:
            at += number(row.get("seconds")) or 0
            events.epoch({"ended": at, **row})
        events.results(run.report)
    finally:
        events.close()


def follow(directories, folder, say):
    """Writes the epochs of active runs as they end, to a folder in `folder` for each run, until all runs have ended.

    say(text) is called when a run has ended. A run that has ended before is written, too.
    """
    names = [os.path.basename(os.path.abspath(directory)) for directory in directories]
    if len(set(names)) < len(names):
        raise Bad("two of the given runs have the same name: follow them with separate commands")
    for directory in directories:
        if not is_active(directory) and not Epochs(directory).new():
            raise Bad(f"{directory}: no run is active in this directory, and no epoch of a run has ended in it")
    left = {name: (directory, Epochs(directory), Events(os.path.join(folder, name))) for name, directory in zip(names, directories)}
    try:
        while left:
            for name, (directory, epochs, events) in list(left.items()):
                active = is_active(directory)  # before the file is read, so that no epoch is missed
                for row in epochs.new():
                    events.epoch(row)
                if not active:
                    if os.path.exists(os.path.join(directory, "report.json")):
                        events.results(Run(directory).report)
                    events.close()
                    del left[name]
                    say(os.path.join(folder, name))
            if left:
                time.sleep(POLL_S)
    finally:
        for _, _, events in left.values():
            events.close()
