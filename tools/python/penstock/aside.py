"""Files that appear under their names whole, or not at all."""
import contextlib
import fcntl
import os


@contextlib.contextmanager
def written(path):
    """`with written(path) as f`: a binary file, written aside, synced and renamed to path when the block ends. If the block fails,
    nothing is left, and what was at path stays."""
    aside = f"{path}.penstock-partial-{os.getpid()}"
    with open(aside, "wb") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX)  # it is being written: `penstock gc` leaves it
            yield f
            f.flush()
            os.fsync(f.fileno())
            os.replace(aside, path)
        except BaseException:
            os.unlink(aside)
            raise
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)  # the name
    finally:
        os.close(folder)
