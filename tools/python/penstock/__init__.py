"""Penstock for Python: stages, runs, batches in this process, datasets, reports. No compiled parts."""
from .dataset import Dataset, FormatError, open_dataset
from .minibatch import Minibatch, SlotError
from .results import read_plan, read_report
from .stage import Stage, Stopped
from .weights import glorot

__all__ = ["Dataset", "FormatError", "Minibatch", "SlotError", "Stage", "Stopped", "glorot", "open_dataset", "read_plan", "read_report"]
