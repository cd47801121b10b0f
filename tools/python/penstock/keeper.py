"""keeper: runs a command for another process, and ends with it: python3 keeper.py PID GRACE_S FOLDER COMMAND...

If process PID, its parent, dies, or the keeper gets SIGINT or SIGTERM, the command gets that signal (or SIGTERM), and
SIGKILL GRACE_S later. If the parent is dead when the command has ended, or before it was started, the keeper removes
FOLDER in its place."""
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1


def watched(parent):
    """A descriptor that tells when the parent dies; None: it has died, and its number may be another's."""
    try:
        watch = os.pidfd_open(parent)
    except ProcessLookupError:
        return None
    return watch if os.getppid() == parent else None


def main(parent, grace_s, folder, *command):
    watch = watched(int(parent))
    if watch is None:
        shutil.rmtree(folder, ignore_errors=True)
        return 1
    asked = []
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: asked.append(number))
    libc = ctypes.CDLL(None)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, restore_signals=True,
                             preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM))
    end = os.pidfd_open(child.pid)
    poll = select.poll()
    for fd in (watch, end, wake):
        poll.register(fd, select.POLLIN)
    kill_at = None
    while child.poll() is None:
        left = None if kill_at is None else max(0, kill_at - time.monotonic())
        ready = {fd for fd, _ in poll.poll(None if left is None else left * 1000)}
        if wake in ready:
            os.read(wake, 64)
        if watch in ready:
            poll.unregister(watch)
            asked.append(signal.SIGTERM)
        while asked:
            child.send_signal(asked.pop())
            kill_at = kill_at or time.monotonic() + float(grace_s)
        if kill_at is not None and time.monotonic() >= kill_at:
            child.kill()
            child.wait()
    if os.getppid() != int(parent):
        shutil.rmtree(folder, ignore_errors=True)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
