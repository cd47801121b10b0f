"""A memory cgroup of one's own, version 1 or 2, for what is started in it."""
import contextlib
import glob
import os
import time

MOUNT = "/sys/fs/cgroup"


class Unavailable(Exception):
    pass


def read(path):
    with open(path) as f:
        return f.read()


def write(path, text):
    with open(path, "w") as f:
        f.write(str(text))


class Cgroup:
    def __init__(self, path, limit_bytes, unified):
        self.path, self.unified = path, unified
        if unified:
            self.set("memory.max", limit_bytes)
            self.set("memory.swap.max", 0, optional=True)
        else:
            self.set("memory.limit_in_bytes", limit_bytes)
            self.set("memory.memsw.limit_in_bytes", limit_bytes, optional=True)  # where swap is accounted

    def set(self, name, value, optional=False):
        path = os.path.join(self.path, name)
        if not optional or os.path.exists(path):
            write(path, value)

    def enter(self):
        """To be called in a child before exec: all that it starts is in the cgroup from its first page on."""
        write(os.path.join(self.path, "cgroup.procs"), os.getpid())

    def peak_bytes(self):
        """None where a kernel before 5.19 does not keep it (version 2)."""
        path = os.path.join(self.path, "memory.peak" if self.unified else "memory.max_usage_in_bytes")
        return int(read(path)) if os.path.exists(path) else None

    def kills(self):
        """How many processes the kernel killed for memory."""
        text = read(os.path.join(self.path, "memory.events" if self.unified else "memory.oom_control"))
        return int(dict(line.split() for line in text.splitlines()).get("oom_kill", "0"))

    def remove(self):
        for _ in range(100):  # processes that just ended may still be leaving
            try:
                os.rmdir(self.path)
                return
            except OSError:
                time.sleep(0.05)
        os.rmdir(self.path)


def parent():
    """Where a cgroup can be made, and whether it is of version 2."""
    if os.path.exists(os.path.join(MOUNT, "memory", "memory.limit_in_bytes")):
        return os.path.join(MOUNT, "memory"), False
    if not os.path.exists(os.path.join(MOUNT, "cgroup.controllers")):
        raise Unavailable(f"no memory cgroups at {MOUNT}")
    if "memory" not in read(os.path.join(MOUNT, "cgroup.controllers")).split():
        raise Unavailable(f"{MOUNT}/cgroup.controllers does not list memory")
    if "memory" not in read(os.path.join(MOUNT, "cgroup.subtree_control")).split():
        write(os.path.join(MOUNT, "cgroup.subtree_control"), "+memory")
    return MOUNT, True


@contextlib.contextmanager
def memory_limit(limit_bytes):
    """A new cgroup, removed at the end. Raises Unavailable, saying why, where there can be none."""
    path = None
    try:
        where, unified = parent()
        path = os.path.join(where, f"penstock-limit-{os.getpid()}-{len(glob.glob(where + '/penstock-limit-*'))}")
        os.mkdir(path)
        cgroup = Cgroup(path, limit_bytes, unified)
    except OSError as e:
        if path and os.path.isdir(path):
            os.rmdir(path)
        raise Unavailable(f"no memory cgroup can be made: {e}")
    try:
        yield cgroup
    finally:
        cgroup.remove()
