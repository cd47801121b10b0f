"""The epochs of a run, as they end: RUN/epochs.jsonl."""
import fcntl
import json
import os

NAME, LOCK = "epochs.jsonl", "lock"


class Epochs:
    """Reads the rows of a run's epochs, also while the run is active. directory: the run's. since: epochs that ended
    before this time, in seconds since 1970, are left out."""

    def __init__(self, directory, since=0.0):
        self.path, self.since, self._at = os.path.join(directory, NAME), since, 0

    def new(self):
        """The rows that were added since the last call, each with `ended`, the time in seconds since 1970."""
        try:
            with open(self.path, "rb") as f:
                f.seek(self._at)
                data = f.read()
        except FileNotFoundError:  # no epoch has ended
            return []
        whole = data[:data.rfind(b"\n") + 1]  # the rest of the last line is not written yet
        self._at += len(whole)
        return [row for row in map(_row, whole.splitlines()) if row and row["ended"] >= self.since]


def _row(line):
    """The row of a line; None: a run that was killed, or a full disk, has left half of a line."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("ended"), float) and isinstance(row.get("epoch"), int) else None


def read_epochs(run):
    """The rows of a run's epochs as a list of dictionaries, also while the run is active, or if it was killed.

    run: the run's directory. The rows are those of the report, and `ended`: when the epoch ended, in seconds since 1970.
    If the run was resumed in its directory, the list has all epochs.
    """
    rows = {row["epoch"]: row for row in Epochs(os.fspath(run)).new()}  # the last one of each epoch counts
    return [rows[epoch] for epoch in sorted(rows)]


def is_active(directory):
    """Whether a run holds the lock of its directory."""
    try:
        with open(os.path.join(directory, LOCK), "rb") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    except FileNotFoundError:
        pass
    return False
