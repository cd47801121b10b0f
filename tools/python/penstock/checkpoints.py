"""Checkpoints of a stage in Python: what `penstock run --resume` continues from (common/host/README.md, Checkpoints)."""
import json
import os
import re
import shutil
import struct
import tempfile
import zlib

from .aside import written

FORMAT = "penstock-program-1"
STATE = "state"  # the tensor that has the bytes which the program saved
LENGTH = struct.Struct("<Q")
ALIGN = 64  # tensors begin on a cache line
HEADER_MAX = 4 << 20
PIECE = 1 << 20  # bytes read at a time
NAME = re.compile(r"(\d{8,19})\.safetensors")
FALLING = ("loss", "_mse", "_mae", "_rmse")  # ends of names of metrics that improve when they fall


def improves(metric, value, best):
    """The rule of the pipeline's `stop` (common/run/stop.c)."""
    return best is None or (value < best if metric.endswith(FALLING) else value > best)


def _pieces(file):
    file.seek(0)
    return iter(lambda: file.read(PIECE), b"")


def write(path, state, strings):
    """Writes the checkpoint whole or not at all. state: a file with the program's bytes. strings: {name: text}."""
    state.seek(0, os.SEEK_END)
    entry = {"dtype": "U8", "shape": [state.tell()], "data_offsets": [0, state.tell()]}
    zeros = {"__metadata__": {**strings, "format": FORMAT, "crc32": "0" * 8}, STATE: entry}
    header = json.dumps(zeros, separators=(",", ":")).encode()
    header += b" " * (-(LENGTH.size + len(header)) % ALIGN)
    if len(header) > HEADER_MAX:
        raise ValueError(f"the header of {path} would have {len(header)} bytes; at most {HEADER_MAX} are allowed")
    crc = zlib.crc32(header)
    for piece in _pieces(state):
        crc = zlib.crc32(piece, crc)
    header = header.replace(b'"crc32":"00000000"', b'"crc32":"%08x"' % crc)
    with written(path) as f:
        f.write(LENGTH.pack(len(header)) + header)
        for piece in _pieces(state):
            f.write(piece)


def read(path):
    """The strings of a checkpoint, the place of the program's bytes in the file, and their number (None: there are none)."""
    with open(path, "rb") as f:
        length, = LENGTH.unpack(f.read(LENGTH.size))
        header = json.loads(f.read(min(length, HEADER_MAX)))
    begin, end = header.get(STATE, {}).get("data_offsets", (0, None))
    return header.get("__metadata__", {}), LENGTH.size + length + begin, end


def open_checkpoint(path):
    """The bytes that a stage in Python saved in a checkpoint, as a binary file: torch.load(penstock.open_checkpoint(path))."""
    strings, at, n = read(path)
    if strings.get("format") != FORMAT or n is None:
        raise ValueError(f"{path} was not written by a stage in Python: its format is {strings.get('format', 'not given')}, not {FORMAT}")
    state = tempfile.TemporaryFile()
    try:
        with open(path, "rb") as f:
            f.seek(at)
            shutil.copyfileobj(f, state, PIECE)
        if state.tell() != n:
            raise ValueError(f"{path} has {state.tell()} bytes of state; expected {n}: the file is damaged")
        state.seek(0)
        return state
    except BaseException:
        state.close()
        raise


class Keeper:
    """Keeps the checkpoints of a stage: the last ones, and that of the epoch with the best metric."""

    def __init__(self, stage, save, restore, metric, keep, every):
        if keep < 1 or every < 1:
            raise ValueError(f"checkpoints: keep is {keep} and every is {every}; expected at least 1")
        if stage.size.get("instances", 1) > 1 or stage.size.get("replicas", 1) > 1:
            raise ValueError("checkpoints: a stage with several instances or replicas cannot have them")
        self.stage, self.save, self.metric, self.keep, self.every = stage, save, metric, keep, every
        self.folder = os.path.join(stage.run_dir, "checkpoints")
        self.best, self.best_file = {}, None  # the row of the best epoch, and the name of its checkpoint
        if not stage.resume:
            return
        strings, _, _ = read(stage.resume)
        if strings.get("stage") != stage.name:
            raise ValueError(f"cannot resume from {stage.resume}: the stage {strings.get('stage', '(one of Penstock)')} wrote it, not {stage.name}")
        if not restore:
            raise ValueError(f"cannot resume from {stage.resume}: the stage {stage.name} gives no `restore` to stage.checkpoints()")
        with open_checkpoint(stage.resume) as state:
            restore(state)
        stage.next_batches.update({port: n for port, n in json.loads(strings["next_batches"]).items() if port in stage.next_batches})
        kept = json.loads(strings.get("best", "{}"))
        if kept.get("metric") == metric:
            self.best, self.best_file = kept["row"], kept["file"]

    def after(self, row):
        """An epoch has been reported. The checkpoint comes after its row: a run that dies between them repeats the epoch."""
        stage, value = self.stage, row.get(self.metric)
        number = stage.next_batches[stage.inputs[0]]
        name = f"{number:08d}.safetensors"
        better = value is not None and improves(self.metric, value, self.best.get(self.metric))
        if better:
            self.best, self.best_file = row, name
        if not (better or (row["epoch"] + 1) % self.every == 0 or row["epoch"] + 1 == stage.epochs):
            return
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=self.folder) as state:
            self.save(state)
            size = stage.size
            strings = {"stage": stage.name, "next_batch": str(number), "next_batches": json.dumps(stage.next_batches), "seed": str(stage.seed),
                       "dataset": size["dataset_digest"], "run": size["identity"], "epoch": str(row["epoch"])}
            if self.best:
                strings["best"] = json.dumps({"metric": self.metric, "row": self.best, "file": self.best_file})
            write(os.path.join(self.folder, name), state, strings)
        self._prune()

    def _prune(self):
        names = sorted((name for name in os.listdir(self.folder) if NAME.fullmatch(name)), key=lambda name: int(name.split(".")[0]))
        for name in names[:-self.keep]:
            if name != self.best_file:
                os.unlink(os.path.join(self.folder, name))

    def result(self):
        """What the report says of the best epoch."""
        fields = {"best_epoch": self.best["epoch"], "best_checkpoint": f"checkpoints/{self.best_file}"} if self.best else {}
        if self.best.get("test_accuracy") is not None:
            fields["test_accuracy"] = self.best["test_accuracy"]
        return fields
