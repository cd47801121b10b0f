"""A disk that can be filled, for a test that runs as root."""
import os
import shutil
import subprocess

from harness import Skip


class SmallDisk:
    """A file system of a few MiB, mounted for a while."""

    def __init__(self, p, kind):
        self.at, self.kind, self.image = p.path("disk"), kind, p.path("disk.img")
        os.makedirs(self.at, exist_ok=True)
        if os.geteuid() != 0:
            raise Skip("only root can mount a small disk")
        if kind == "tmpfs":
            how = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", self.at]
        else:
            with open(self.image, "wb") as f:
                f.truncate(12 << 20)
            made = shutil.which("mkfs.ext4") and subprocess.run(["mkfs.ext4", "-q", "-m", "0", self.image], capture_output=True)
            if not made or made.returncode:
                raise Skip("mkfs.ext4 is not here")
            how = ["mount", "-o", "loop", self.image, self.at]
        made = subprocess.run(how, capture_output=True, text=True)
        if made.returncode:
            raise Skip(f"cannot mount {kind}: {made.stderr.strip()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", self.at], check=True)

    def fill(self, leave):
        """Takes all space but so many bytes."""
        self.free()
        with open(os.path.join(self.at, "filler"), "wb", buffering=0) as f:
            for block in (1 << 16, 1 << 12, 512):
                try:
                    while f.write(b"x" * block) == block:
                        pass
                except OSError:
                    pass
            f.truncate(max(0, f.tell() - leave))
            os.fsync(f.fileno())

    def free(self):
        path = os.path.join(self.at, "filler")
        if os.path.exists(path):
            os.unlink(path)
