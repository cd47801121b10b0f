"""A newly made minimal Debian 12, for tests that begin with nothing.

The root is made by debootstrap from the mirror that this machine's apt uses, in a mount and process
namespace of its own, with the few devices of a machine without a GPU."""
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from harness import Skip

SUITE = "bookworm"
DEADLINE_S = 1500
APT_SETTINGS = ("Acquire::http::Proxy", "Acquire::https::Proxy", "Acquire::Check-Valid-Until", "Acquire::Check-Date")
PROXIES = ("http_proxy", "https_proxy", "no_proxy")

# Run inside the namespaces, with the root's path: nothing that it mounts outlives it.
ENTER = """set -eu
mount -t proc proc "$1/proc"
mount -t tmpfs tmpfs "$1/dev"
for device in null zero full random urandom tty; do touch "$1/dev/$device"; mount --bind "/dev/$device" "$1/dev/$device"; done
mkdir "$1/dev/shm" "$1/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$1/dev/pts"
ln -s pts/ptmx "$1/dev/ptmx"
ln -s /proc/self/fd "$1/dev/fd"
mount -t tmpfs tmpfs "$1/dev/shm"
mount --rbind /sys "$1/sys"
if [ -n "$3" ]; then mkdir -p "$1/root/shared/data"; mount --rbind "$3" "$1/root/shared/data"; fi
exec chroot "$1" /bin/bash -euc "$2"
"""


def host(*argv):
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def mirror():
    """The address that this machine's apt has this suite from."""
    listing = host("apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)",
                   "Created-By: Packages")
    for line in listing.splitlines():
        uri, release, component = line.split()
        if release == SUITE and component == "main" and uri.startswith(("http:", "https:")):
            return uri
    raise Skip(f"this machine's apt has no source of {SUITE} main")


def need_root_and_debootstrap():
    if os.geteuid() != 0:
        raise Skip("only root can make a root directory")
    if not shutil.which("apt-get"):
        raise Skip("no apt-get here, whose mirror could be used")
    if not shutil.which("debootstrap"):
        subprocess.run(["apt-get", "-qq", "install", "-y", "--no-install-recommends", "debootstrap"],
                       capture_output=True)
    if not shutil.which("debootstrap"):
        raise Skip("debootstrap is missing and could not be installed")
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode:
        raise Skip("no right to make mount and process namespaces")


def namespace(*argv):
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", *argv]


def make_root(root):
    t0 = time.time()
    argv = ["debootstrap", "--variant=minbase"]
    address = mirror()
    if address.startswith("https:"):
        argv += ["--include=ca-certificates"]
    made = subprocess.run(namespace(*argv, SUITE, root, address), capture_output=True, text=True)
    if made.returncode:
        raise Skip(f"debootstrap failed, exit code {made.returncode}: {made.stdout[-300:]}{made.stderr[-300:]}")
    with open(os.path.join(root, "etc/apt/apt.conf.d/90host"), "w") as f:
        for name in APT_SETTINGS:
            value = re.search(r"='(.*)'", host("apt-config", "shell", "value", name))
            if value:
                f.write(f'{name} "{value[1]}";\n')
    shutil.copyfile("/etc/resolv.conf", os.path.join(root, "etc/resolv.conf"))
    print(f"# debootstrap: {time.time() - t0:.0f} s", flush=True)


class Inside:
    """A command run in the root: its lines, each with the second it came at, and its exit code."""

    def __init__(self, root, script, cores=None, data=""):
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "TERM": "dumb", "LC_ALL": "C.UTF-8",
               **{name: os.environ[name] for name in PROXIES if name in os.environ}}
        before = (lambda: os.sched_setaffinity(0, cores)) if cores else None
        self.t0, self.lines = time.time(), []
        process = subprocess.Popen(namespace("/bin/sh", "-c", ENTER, "sh", root, script, data), env=env, text=True,
                                   preexec_fn=before, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        watch = threading.Timer(DEADLINE_S, process.kill)
        watch.start()
        for line in process.stdout:
            self.lines.append((time.time() - self.t0, line.rstrip("\n")))
        self.code = process.wait()
        watch.cancel()
        self.seconds = time.time() - self.t0

    def __str__(self):
        return "\n".join(f"{t:7.1f} {line}" for t, line in self.lines[-60:])


@contextlib.contextmanager
def fresh_place():
    """A folder for roots, which is removed. If something is still mounted in it, it stays."""
    need_root_and_debootstrap()
    place = tempfile.mkdtemp(prefix="penstock-root-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    try:
        yield place
    finally:
        with open("/proc/self/mountinfo") as f:
            mounted = [line for line in f if place in line]
        assert not mounted, f"still mounted, so {place} stays: {mounted}"
        shutil.rmtree(place)
