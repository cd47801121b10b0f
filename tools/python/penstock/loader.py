"""Batches of a run in the user's own process: the run's trainer is an iterator."""
import json
import os
import secrets
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading

from .attach import NAME, peer
from .command import HERE, RunError, Running, arguments
from .stage import Stage, Stopped
from .wire import Wire

KEYS_S = 10.0  # for the program that was let in to say what it has to say
KEYS_MAX = 4096  # bytes of that
END_S = 10.0  # for the run to end when the iterator is closed


class AttachedWire(Wire):
    """A wire that also notices the end of the run, which closes the connection to attach.py."""

    def __init__(self, connection, endpoint, keys):
        self.connection, self.owner = connection, os.getpid()
        super().__init__(endpoint, keys)

    def send(self, *args, **more):
        if os.getpid() != self.owner:
            raise RuntimeError(f"these batches belong to process {self.owner}; call penstock.batches() in the process that loops over them")
        super().send(*args, **more)

    def recv(self, timeout_s=None):
        poller = self.zmq.Poller()
        poller.register(self.socket, self.zmq.POLLIN)
        poller.register(self.connection, self.zmq.POLLIN)
        ready = dict(poller.poll(None if timeout_s is None else timeout_s * 1000))
        if self.socket in ready:
            return self.socket.recv()
        raise Stopped("the run has ended" if ready else f"the run has not ended within {timeout_s:.0f} s")

    def close(self):
        """Closes the connection first, so that attach.py ends before the runtime has to kill it."""
        self.connection.close()
        self.socket.close(linger=0)
        self.context.term()


def listen():
    """A listening abstract socket, which leaves no file, and its name, which nobody can guess."""
    name = f"penstock-attach-{secrets.token_hex(16)}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\0" + name)
    listener.listen(4)
    return listener, name


def accept(listener, running):
    """The connection of this run's attach.py and what it brings: endpoint and keys. Others are turned away.

    There is no deadline, because planning may take long; but the run has deadlines, and its end ends this wait.
    """
    end = os.pidfd_open(running.process.pid)
    try:
        while True:
            if end in select.select([listener, end], [], [])[0]:
                return None
            connection, _ = listener.accept()
            try:
                connection.settimeout(KEYS_S)
                if peer(connection)[1] != os.geteuid():
                    raise ValueError("a process of another user connected")
                with connection.makefile("rb") as f:
                    found = json.loads(f.readline(KEYS_MAX))
                return connection, found["endpoint"], found["keys"]
            except (OSError, ValueError, KeyError, TypeError):
                connection.close()
    finally:
        os.close(end)


class AttachedStage(Stage):
    is_program = False  # attach.py is


class Batches:
    """The minibatches of a run. Each `for` takes one epoch: every seed once. See batches()."""

    def __init__(self, pipeline, dataset, stage, overlays, settings):
        self.report, self._epoch, self._wire = None, None, None
        self._folder = tempfile.mkdtemp(prefix="penstock-")
        self._owner = os.getpid()
        try:
            self._start(pipeline, dataset, stage, overlays, settings)
        except BaseException:
            self.close()
            raise

    def _start(self, pipeline, dataset, stage, overlays, settings):
        settings = {"run_dir": os.path.join(self._folder, "run"), **settings,
                    f"stages.{stage}": {"run": os.path.join(HERE, "attach.py"), "endpoint": "tcp://127.0.0.1:*"}}
        listener, name = listen()
        with listener:
            self._running = Running(arguments(pipeline, dataset, overlays, settings, self._folder), self._folder, END_S, **{NAME: name})
            self._listener = threading.Thread(target=self._running.listen, args=(lambda *_: None, lambda _: None), daemon=True)
            self._listener.start()
            found = accept(listener, self._running)
        if not found:
            self._fail()
        self._wire = AttachedWire(*found)
        self._stage = AttachedStage(stage, "batches for a process outside the run")
        try:
            self._stage.open(self._wire)
        except Stopped:
            self._fail()
        self.epochs, self.run_dir, self.dataset = self._stage.epochs, self._stage.run_dir, self._stage.dataset
        self._numbers = self._stage.each_epoch()

    def __iter__(self):
        """The batches of the next epoch. If the last `for` was left early, the rest of its epoch is given back unread."""
        if self._wire is None:
            raise RunError("all epochs of this run have been used: set `epochs` to the number of loops over the batches", self.report)
        try:
            for _ in self._epoch or ():
                pass
            number = next(self._numbers, None)
            self._epoch = self._stage.epoch()
            for batch in self._epoch:  # not `yield from`, which would close the epoch if the loop is left early
                yield batch
            self._epoch = None
            if self._stage.ended or number + 1 == self.epochs:
                self._finish()
        except Stopped:
            self._fail()

    def _finish(self):
        """The last batch was taken: ends the run in an orderly way, and reads its report."""
        self._stage.done()
        self._wire = None
        try:
            self._listener.join()
            self.report = self._running.end()
        finally:
            self.close()

    def _fail(self):
        """The run has ended before its last batch. Says why."""
        self._listener.join()
        try:
            report = self._running.end()
        finally:
            self.close()
        raise RunError("the run was stopped before its last batch", report)

    def close(self):
        """Ends the run, unless it has ended, and removes its files. A `with` block calls it."""
        if os.getpid() != self._owner:
            return  # a copy of this object in a forked process
        running = getattr(self, "_running", None)
        if running and running.process.poll() is None:
            running.process.send_signal(signal.SIGTERM)
            try:
                self._epoch = None  # gives back the batch that is held
                while self._wire:
                    self._stage._hear(END_S)
            except Stopped:
                pass
        if self._wire:
            self._wire.close()
            self._wire = None
        if running:
            running.process.wait()
            self._listener.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if not sys.is_finalizing():  # else keeper.py ends the run
            self.close()


def batches(pipeline, dataset=None, *, stage="trainer", overlays=(), **settings):
    """The minibatches of a pipeline's sampler and disk, with their features, in this process: a DataLoader.

        for batch in penstock.batches("pipelines/hyperion.json", "data/demo", epochs=1, batch=256):
            t = batch.torch()

    Each `for` takes one epoch, in which every seed comes once; `epochs` says how many there are. A Minibatch is valid
    until the loop takes the next one. stage: the stage of the pipeline that this process stands for. overlays and
    settings: as in run(). Planning is done when this function returns.

    The run and its files go when the last epoch was taken, or with close(), the end of a `with` block, or this process.
    Its files stay if you name a run_dir. If the run fails, the loop raises RunError. report: its report, after the end.
    """
    return Batches(pipeline, dataset, stage, overlays, settings)
