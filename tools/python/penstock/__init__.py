"""Penstock for Python: stages, runs, batches in this process, datasets, reports. No compiled parts."""
from .checkpoints import open_checkpoint
from .command import RunError, run
from .dataset import Dataset, FormatError, open_dataset
from .graphs import from_dgl, from_pyg
from .live import read_epochs
from .loader import Batches, batches
from .minibatch import Minibatch, SlotError
from .results import Report, read_plan, read_report
from .stage import Stage, Stopped
from .tensorboard import to_tensorboard
from .weights import glorot

__all__ = ["Batches", "Dataset", "FormatError", "Minibatch", "Report", "RunError", "SlotError", "Stage", "Stopped", "batches", "from_dgl", "from_pyg",
           "glorot", "open_checkpoint", "open_dataset", "read_epochs", "read_plan", "read_report", "run", "to_tensorboard"]
