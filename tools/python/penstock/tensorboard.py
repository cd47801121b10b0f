"""Writes a run's report as events for TensorBoard, by the package tensorboard."""
import datetime
import os

from .pages.reports import Bad, Run, number

SKIPPED = ("epoch",)  # it is the step
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


def _started(run):
    """When the run started, in seconds since 1970; 0: the report does not say."""
    try:
        return datetime.datetime.fromisoformat(str(run.get("started")).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


def scalars(run):
    """(seconds after the start, epoch, {tag: value}) of each epoch, then the results, at the last epoch."""
    at, step = 0.0, 0
    for row in run.epochs:
        at, step = at + (number(row.get("seconds")) or 0), number(row.get("epoch")) or 0
        yield at, step, {key: number(value) for key, value in row.items() if key not in SKIPPED and number(value) is not None}
    yield at, step, {key: run.number(key) for key in RESULTS if run.number(key) is not None}


def to_tensorboard(run, folder):
    """Writes the epochs and results of a run to an event file in `folder`. run: the run's directory or its report.json.

    Each column of the epochs becomes a curve over the epochs. Raises ValueError if the package tensorboard is missing, or
    the report is wrong.
    """
    run = run if isinstance(run, Run) else Run(os.fspath(run))
    EventFileWriter, Event, Summary = _writer()
    began, writer = _started(run), EventFileWriter(os.fspath(folder))
    try:
        for at, step, values in scalars(run):
            if values:
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
                writer.add_event(Event(wall_time=began + at, step=int(step), summary=summary))
    finally:
        writer.close()
