"""A virtual machine whose NVMe disks are QEMU's: what the tests here boot, and how they hear of what happened in it.

The guest is Debian's cloud kernel and an initramfs of busybox, our programs and the libraries they need. A script of
named steps runs in it; each step's output and exit status come back over a second serial line, the console over the
first. Nothing waits longer than its deadline, and the guest dies with the test."""
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipeline"))
from harness import BUILD, ROOT, SAN, json, main, os, subprocess, test

os.environ["PATH"] += ":/usr/sbin:/sbin"  # mkfs, for users who have not root's path
MIB = 1 << 20
COMMAND = {f"penstock/{name}": os.path.join(BUILD, name) for name in  # files of a guest that is to run penstock
           ("bin/penstock", "lib/libpenstock.so", "lib/libpenstock-data.so", "lib/libpenstock-cpu.so", "lib/libpenstock-onednn.so", "lib/libpenstock-stages.so")}
QEMU = "qemu-system-x86_64"
MODULES = ("virt/lib/irqbypass", "drivers/vfio/vfio", "drivers/vfio/vfio_virqfd", "drivers/vfio/vfio_iommu_type1",
           "drivers/vfio/pci/vfio-pci-core", "drivers/vfio/pci/vfio-pci")
APPLETS = ("sh", "mount", "umount", "mkdir", "cat", "echo", "sleep", "poweroff", "insmod", "stty", "ls", "grep", "cmp",
           "kill", "sync", "ln", "dd", "seq", "head", "tail", "sha256sum", "find", "sort", "test", "rm", "sed", "readlink",
           "chmod", "touch", "timeout", "dmesg", "true", "false", "env", "cp", "ip", "tr", "wc", "awk", "ps", "setpriv", "su",
           "mknod", "chown", "cut", "rmdir", "basename")

INIT = r"""#!/bin/sh
export PATH=/bin PENSTOCK=/penstock/bin/penstock HOME=/tmp
mount -t devtmpfs dev /dev && mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t tmpfs tmp /tmp
mkdir -p /dev/shm /mnt && mount -t tmpfs shm /dev/shm
ln -s /proc/self/fd /dev/fd
ip link set lo up
for module in %(modules)s; do insmod /modules/$module.ko || echo "insmod $module failed"; done
stty -F /dev/ttyS1 raw -echo
exec 3>/dev/ttyS1
step() { # step NAME SECONDS COMMAND...: runs it, and says what came of it
    name=$1 seconds=$2
    shift 2
    echo "step $name begins" # on the console, for whoever looks at one that hung
    begun=$(cut -d' ' -f1 /proc/uptime)
    timeout -k 2 "$seconds" sh -c '. /functions; "$@"' sh "$@" >/tmp/out 2>&1 3>&- 4<&- # busybox' timeout leaves a watcher behind for a second
    status=$?
    took=$(awk "{ print \$1 - $begun }" /proc/uptime)
    { echo "=== $name $status $took $(wc -c </tmp/out)"; cat /tmp/out; echo; } >&3
}
. /script
echo "=== end 0 0 0" >&3
sync
poweroff -f
"""


def kernel():
    """(image, folder of modules) of Debian's cloud kernel, unpacked by install-deps or installed; None: not here."""
    for root in (os.path.join(ROOT, ".deps", "linux"), "/"):
        for image in sorted(glob.glob(os.path.join(root, "boot", "vmlinuz-*-cloud-amd64")), reverse=True):
            modules = os.path.join(root, "lib", "modules", os.path.basename(image)[len("vmlinuz-"):], "kernel")
            if all(os.path.exists(os.path.join(modules, m + ".ko")) for m in MODULES):
                return image, modules
    return None


def need():
    """Ends the program with status 77, and the reason, if no guest can be booted here."""
    missing = [p for p in (QEMU, "busybox", "cpio", "mkfs.ext4") if not shutil.which(p)]
    if kernel() is None:
        missing.append("Debian's cloud kernel")
    reason = "the guest is booted with the plain build" if SAN else "no " + ", ".join(missing) if missing else ""
    if reason:
        print(f"1..0 # SKIP {reason}" + (" (tools/install-deps --qemu)" if missing else ""))
        sys.exit(77)


def libraries(binaries):
    """Shared libraries that the binaries need, as the loader finds them here: {name: path}."""
    out = subprocess.run(["ldd", *binaries], capture_output=True, text=True).stdout
    found = dict(re.findall(r"^\s+(\S+) => (/\S+)", out, re.M))
    found.update((os.path.basename(path), path) for path in re.findall(r"^\s+(/\S*ld-linux\S*)", out, re.M))
    return found


class Guest:
    """with Guest(...) as g: disks are QEMU arguments; files is {path in the guest: path here}; steps is shell text
    of `step NAME SECONDS COMMAND...` lines; commands may be shell functions of `functions`. g.boot() runs it all."""

    def __init__(self, devices, files, steps, functions="", append="intel_iommu=on iommu=pt", iommu=True, memory_mib=1024):
        self.devices, self.files, self.steps, self.functions = devices, files, steps, functions
        self.append, self.iommu, self.memory_mib = append, iommu, memory_mib
        self.dir = tempfile.mkdtemp(prefix="penstock-qemu-")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.dir, ignore_errors=True)

    def _put(self, root, where, source, mode=0o755):
        path = os.path.join(root, where.lstrip("/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copy(source, path)
        os.chmod(path, mode)

    def initramfs(self, modules):
        root = os.path.join(self.dir, "root")
        for folder in ("bin", "dev", "proc", "sys", "tmp", "lib64", "lib", "modules", "mnt"):
            os.makedirs(os.path.join(root, folder))
        self._put(root, "bin/busybox", shutil.which("busybox"))
        os.mkdir(os.path.join(root, "etc"))
        with open(os.path.join(root, "etc", "passwd"), "w") as f:
            f.write("root:x:0:0::/tmp:/bin/sh\nsomeone:x:1000:1000::/tmp:/bin/sh\n")
        for applet in APPLETS:
            os.symlink("busybox", os.path.join(root, "bin", applet))
        for module in MODULES:
            self._put(root, f"modules/{os.path.basename(module)}.ko", os.path.join(modules, module + ".ko"))
        binaries = []
        for where, source in self.files.items():
            self._put(root, where, source)
            with open(source, "rb") as f:
                if f.read(4) == b"\x7fELF":
                    binaries.append(source)
        for name, path in libraries(binaries).items():
            if not path.startswith(BUILD):
                self._put(root, os.path.join("lib64" if "ld-linux" in name else "lib", name), path)
        with open(os.path.join(root, "init"), "w") as f:
            f.write(INIT % {"modules": " ".join(map(os.path.basename, MODULES))})
        os.chmod(os.path.join(root, "init"), 0o755)
        for name, text in (("script", self.steps), ("functions", self.functions)):
            with open(os.path.join(root, name), "w") as f:
                f.write(text)
        image = os.path.join(self.dir, "initramfs")
        names = subprocess.run(["find", "."], cwd=root, capture_output=True, check=True).stdout
        with open(image, "wb") as f:
            subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], input=names, cwd=root, stdout=f, check=True)
        shutil.rmtree(root)
        return image

    def boot(self, deadline_s):
        """Runs the steps; returns {name: Step}. AssertionError, with the end of the console, if the guest did not
        come to the end of its script."""
        image, modules = kernel()
        console, line = os.path.join(self.dir, "console"), os.path.join(self.dir, "steps")
        argv = [QEMU, "-nodefaults", "-display", "none", "-no-reboot", "-M", "q35",
                "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", f"{self.memory_mib}M",
                "-serial", f"file:{console}", "-serial", f"file:{line}", "-kernel", image, "-initrd", self.initramfs(modules),
                "-append", f"console=ttyS0 loglevel=4 panic=-1 rdinit=/init {self.append}"]
        if self.iommu:
            argv += ["-device", "intel-iommu,intremap=on,caching-mode=on"]
        for device in self.devices:
            argv += device
        qemu = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            said = qemu.communicate(timeout=deadline_s)[0].decode(errors="replace")
            late = ""
        except subprocess.TimeoutExpired:
            os.killpg(qemu.pid, signal.SIGKILL)
            said, late = qemu.communicate()[0].decode(errors="replace"), f"; stopped after {deadline_s} s"
        found = self._read(line)
        if "end" not in found:
            with open(console, errors="replace") as f:
                tail = f.read()[-6000:]
            raise AssertionError(f"the guest did not end its script{late}; qemu's exit status {qemu.returncode}\n{said}\n--- console\n{tail}\n--- steps\n" +
                                 "\n".join(map(str, found.values())))
        del found["end"]
        return found

    def _read(self, path):
        found = {}
        if not os.path.exists(path):
            return found
        with open(path, "rb") as f:
            data = f.read()
        at = 0
        while (m := re.compile(rb"=== (\S+) (\d+) ([0-9.]+) (\d+)\n").search(data, at)):
            at = m.end() + int(m[4])
            name = m[1].decode()
            found[name] = Step(name, int(m[2]), float(m[3]), data[m.end():at].decode(errors="replace"))
        return found


class Step:
    """What one step printed, its exit status (143: it ran past its time), and how long it took in the guest."""

    def __init__(self, name, status, seconds, out):
        self.name, self.status, self.seconds, self.out = name, status, seconds, out

    def __str__(self):
        return f"step {self.name}: exit status {self.status} after {self.seconds} s\n{self.out}"
