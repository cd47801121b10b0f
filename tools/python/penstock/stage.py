"""Foreign stages: a program with one of these is a stage of a pipeline.

    stage = Stage("statistics", "counts sampled edges")
    with stage:
        edges = sum(len(indices) for batch in stage for indices in batch.indices)
        stage.report("statistics", edges=edges)
"""
import collections
import json
import pdb
import sys
import time
import types

from .checkpoints import Keeper, read
from .minibatch import Minibatch
from .wire import END, FRAME, LAST_MICRO, LAST_PART, Wire

ABI = 7
NO_LIMIT = 2 ** 53
SAVE_S = 100  # for the last checkpoint when the run is stopped: the most that the runtime allows


class Stopped(BaseException):
    """The run ends early: the user stopped it, or another stage failed. `with stage` ends the program quietly."""


def parameter(name, value):
    """A parameter's description from its default, or from a dictionary with "default" and other fields."""
    fields = dict(value) if isinstance(value, dict) else {"default": value}
    kinds = {bool: "bool", int: "int", float: "real", str: "string", list: "ints"}
    kind = "enum" if "choices" in fields else kinds.get(type(fields["default"]))
    if kind is None:
        raise TypeError(f"parameter {name}: the default is {fields['default']!r}; expected a bool, int, float, str or list of int")
    if "min" in fields or "max" in fields:  # one limit alone: the other is out of reach
        fields = {"min": -NO_LIMIT, "max": NO_LIMIT, **fields}
    return {"name": name, "type": kind, "help": name, **fields}


def ask_at_the_terminal(*_, **__):
    """breakpoint(): pdb at the terminal of `penstock run`. The program's own input is empty, and its output is a log."""
    try:
        stdin, stdout = open("/dev/tty"), open("/dev/tty", "w")
    except OSError as error:
        raise RuntimeError(f"breakpoint() in a stage needs a terminal: {error}. Start `penstock run` from a terminal, in the foreground") from None
    pdb.Pdb(stdin=stdin, stdout=stdout).set_trace(sys._getframe(1))


class Stage:
    """A stage that takes minibatches with their features, and, with `forwards`, sends them on.

    params: {name: default}; or {name: {"default": 2, "min": 1, "help": "..."}} (fields: `penstock stages NAME --json`).
    inputs: names of the inputs. forwards: the name of an output through which the first input's batches leave again;
    writes: it changes them. dataset: the parts of the dataset that it needs. more: other fields of the description.

    If the program is called with --describe, the constructor prints the description and exits: create the stage before
    you import large packages. Then use it in a `with` block, from which `done` or the error is reported. Inside, these
    are valid: params (a namespace), dataset, run_dir, resume (a checkpoint, or None), seed, epochs, instance, and size,
    the runtime's whole message.
    """

    is_program = True  # this process is the program that the runtime has started

    def __init__(self, name, help, params=None, inputs=("batch",), forwards=None, writes=False, dataset="", instances_max=1, **more):
        carries = {"type": "minibatch", "dtype": "any", "rank": -1, "memory": "cpu"}
        ports = [{"name": port, "dir": "in", "help": "minibatches with their features", **carries, "requests": "needs",
                  "flags": ["ordered"] + ["writes"] * writes + ["optional"] * (k > 0)} for k, port in enumerate(inputs)]
        if forwards:
            ports.append({"name": forwards, "dir": "out", "help": "the same minibatches", **carries, "forwards": inputs[0], "flags": ["optional"]})
        self.description = {"abi": ABI, "name": name, "help": help, "instances_max": instances_max, "ports": ports,
                            "params": [parameter(*item) for item in (params or {}).items()], **more}
        if dataset:
            self.description["dataset"] = dataset
        self.inputs, self._forwards, self._writes = list(inputs), len(inputs) if forwards else None, writes
        self._keeper = None
        if self.is_program and "--describe" in sys.argv[1:]:
            print(json.dumps(self.description))
            sys.exit(0)
        if self.is_program and sys.breakpointhook is sys.__breakpointhook__:
            sys.breakpointhook = ask_at_the_terminal

    # ---- the program's life -----------------------------------------------------------------------------------------

    def open(self, wire=None):
        """Connects to the runtime and maps the slots. `with stage` calls it."""
        self.wire = wire or Wire()
        size = self.size = self.wire.size
        self.params = types.SimpleNamespace(**size["params"])
        self.name, self.run_dir, self.resume = size["name"], size["run_dir"], size.get("resume")
        self.seed, self.epochs, self.instance = size["seed"], size["epochs"], size["instance"]
        self._queues = {port: collections.deque() for port in self.inputs if port in size["linked"]}
        self._check_resume = bool(self.resume) and self.is_program
        self.next_batches = dict.fromkeys(self._queues, size.get("start_batch", 0))  # the number of each input's next batch
        self._open, self._epoch_began, self._epoch_seeds = set(self._queues), time.monotonic(), 0
        self.wire.open()
        self.wire.ready()

    def __enter__(self):
        self.open()
        return self

    def __exit__(self, kind, error, _):
        if kind is None:
            self.done()
        elif issubclass(kind, Stopped):
            self.wire.close()
            sys.exit(0)
        elif issubclass(kind, Exception):
            self.wire.tell(type="failed", text=f"{kind.__name__}: {error}")
        return False  # Python prints the traceback, which goes to the stage's log

    def done(self):
        """Says that all is done, and waits for the end. Batches that were not asked for are given back unread."""
        try:
            for port in self.inputs:
                for _ in self._messages(port):
                    pass
            self.wire.tell(type="done")
            while True:
                self._hear()
        except Stopped:
            self.wire.close()

    @property
    def dataset(self):
        """The run's dataset (penstock.Dataset)."""
        from .dataset import open_dataset
        return open_dataset(self.size["dataset"])

    # ---- batches ----------------------------------------------------------------------------------------------------

    def _hear(self, timeout_s=None):
        """Takes the next message. A frame of an incomplete slot is sent on at once, or ignored."""
        m = self.wire.next(timeout_s)
        if isinstance(m, dict):
            if m["type"] in ("stop", "finish"):
                raise Stopped
        elif m.kind == END:
            self._open.discard(self.inputs[m.port])
        elif m.kind == FRAME and m.flags & LAST_PART:
            self._queues[self.inputs[m.port]].append(m)
        elif m.kind == FRAME:
            self._send_on(m)

    def _send_on(self, m):
        if self._forwards is not None and m.port == 0:
            self.wire.send(FRAME, self._forwards, m.batch, m.micro, m.part, m.flags, m.refs, m.args)
        elif m.flags & LAST_PART and m.refs:
            self.wire.release(m.refs, self._writes)

    def _head(self, port):
        """The oldest frame that was not taken yet; None: the input has ended."""
        if self._check_resume:
            self._refuse_to_resume()
        queue = self._queues.get(port, ())
        while not queue and port in self._open:
            self._hear()
        return queue[0] if queue else None

    @property
    def ended(self):
        """No further batch of the first input will come, as far as is known."""
        return not self._queues[self.inputs[0]] and self.inputs[0] not in self._open

    def _refuse_to_resume(self):
        """Training would go on with weights that were not trained. Another stage's checkpoint does not matter."""
        self._check_resume = False
        if read(self.resume)[0].get("stage") == self.name:
            raise ValueError(f"cannot resume from {self.resume}: call stage.checkpoints(save, restore) before the first batch")

    def _slot(self, m):
        (route, slot), = m.refs
        return self.wire.slots[route][slot]

    def _messages(self, port):
        """Each frame in turn with its minibatch. It is given back when the next one is asked for, or the loop ends."""
        while (m := self._head(port)) is not None:
            self._queues[port].popleft()
            batch = Minibatch(self._slot(m)) if m.refs else None
            if m.flags & LAST_MICRO:
                self.next_batches[port] = m.batch + 1
            try:
                yield batch
            finally:
                if batch and batch.fence:
                    batch.fence.synchronize()
                self._send_on(m)
                if batch:
                    self.wire.count(1, batch.bytes_used)

    def batches(self, port=None):
        """The minibatches of an input (default: the first one), over all epochs. Empty ones are left out."""
        port = port or self.inputs[0]
        for batch in self._messages(port):
            if batch and not batch.empty:
                if port == self.inputs[0]:
                    self._epoch_seeds += batch.n[0]
                yield batch

    __iter__ = batches

    def epoch(self, port=None):
        """The minibatches of an input up to the end of its epoch, or of the input."""
        for batch in self.batches(port):
            last = batch.last_micro and batch.batch_in_epoch + 1 == batch.batches_in_epoch
            yield batch
            if last:
                return

    def each_epoch(self):
        """The number of each epoch in turn, from the first one that has a batch. Take all of its batches inside."""
        while (m := self._head(self.inputs[0])) is not None:
            self._epoch_began, self._epoch_seeds = time.monotonic(), 0
            yield Minibatch(self._slot(m)).epoch

    # ---- checkpoints ------------------------------------------------------------------------------------------------

    def checkpoints(self, save, restore=None, metric="val_accuracy", keep=2, every=1):
        """Keeps checkpoints, from which `penstock run --resume` continues. Call it once, before the first batch.

        save(file) writes all that training needs to a binary file: torch.save({...}, file). restore(file) reads it; if
        the run resumes, it is called here. Without restore, the run cannot be resumed. A checkpoint is made after
        report_epoch(), every so many epochs, after each epoch whose metric is the best so far, and after the last one.
        The last `keep` and that of the best epoch stay. If the metric's name ends with "loss", less is better. The report
        gets best_epoch, best_checkpoint, and the row's test_accuracy if it has one.

        The stage must take the inputs in whole epochs, and report_epoch() after the epoch's last batch.
        """
        self._check_resume = False
        self._keeper = Keeper(self, save, restore, metric, keep, every)
        self.wire.tell(type="patience", seconds=SAVE_S)

    # ---- what it says -----------------------------------------------------------------------------------------------

    def report_epoch(self, epoch, **fields):
        """Adds an epoch's row to the report and prints it: loss, train_accuracy, val_accuracy. Adds the time since the
        epoch began, and the seeds of the first input in each second."""
        seconds = fields.setdefault("seconds", time.monotonic() - self._epoch_began)
        fields.setdefault("seeds_per_second", self._epoch_seeds / seconds)
        row = {"epoch": epoch, **fields}
        self.report("epochs", **row)
        if self._keeper:
            self._keeper.after(row)
            self.report("result", **self._keeper.result())

    def report(self, section, **fields):
        """Adds a section to the report. "result": fields of the top level, such as test_accuracy."""
        self.wire.tell(type="report", section=section, data=fields)

    def log(self, text):
        """Writes a line to the stage's log. Prints do the same."""
        self.wire.tell(type="log", text=str(text))

    def warn(self, text):
        """Writes a line to the stage's log, and shows it to the user."""
        self.wire.tell(type="warning", text=str(text))

    def publish(self, port, path):
        """Sends the path of a one-shot output."""
        self.wire.tell(type="publish", port=port, path=str(path))

    def count(self, items, bytes=0):
        """Adds to what the report counts of this stage. Batches are counted without it."""
        self.wire.count(items, bytes)
