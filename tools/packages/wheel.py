#!/usr/bin/env python3
"""wheel.py TREE OUT: makes a wheel in the folder OUT from TREE, the tree of files that `make install` copies.

The wheel has the Python package `penstock`, and below `penstock/_tree` the programs, stages, pipelines and headers,
together with the shared libraries that they need, except those of glibc. So a machine needs Python and a glibc that is
not older than that of the machine that made the wheel. The tag says which one, if auditwheel is installed and agrees."""
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from common import DESCRIPTION, ROOT, SUMMARY, epoch, files, is_elf, strip, version

INSIDE = "penstock/_tree"
LICENCES = INSIDE + "/licences"
MPI = "bin/penstock-ranks"  # left out: its MPI must be that of the machine's mpirun
KEPT = ("bin/", "lib/", "include/", "share/penstock/", "share/pkgconfig/")
PACKAGE = "share/penstock/python/"
# Of glibc, which every program of a system must share; and of NVIDIA, whose driver and libraries the user has.
OF_THE_SYSTEM = re.compile(r"ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|BrokenLocale|nss_.*|anl)\.so.*|lib(cuda|cublas|cudart|nvidia).*")
METADATA = """Metadata-Version: 2.1
Name: penstock
Version: {version}
Summary: {summary}
License: Apache-2.0
Classifier: Operating System :: POSIX :: Linux
Classifier: Typing :: Typed
Requires-Python: >=3.11
Requires-Dist: numpy
Requires-Dist: pyzmq
Provides-Extra: torch
Requires-Dist: torch; extra == "torch"
Provides-Extra: notebook
Requires-Dist: tqdm; extra == "notebook"
Requires-Dist: pandas; extra == "notebook"

{description}
"""
WHEEL = "Wheel-Version: 1.0\nGenerator: penstock\nRoot-Is-Purelib: false\nTag: {tag}\n"
ENTRY_POINTS = "[console_scripts]\npenstock = penstock.__main__:main\n"


def copy(tree, to):
    """The part of the tree that the wheel has, at its place in the wheel."""
    for name in files(tree):
        if not name.startswith(KEPT) or name == MPI:
            continue
        target = os.path.join(to, name[len(PACKAGE):] if name.startswith(PACKAGE) else f"{INSIDE}/{name}")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(os.path.join(tree, name), target)


def add_licence(library, to):
    """Copies what the library's Debian package says of its licence."""
    owner = subprocess.run(["dpkg-query", "--search", "*" + library.removeprefix("/usr")], capture_output=True, text=True).stdout.split(":")[0]
    text = f"/usr/share/doc/{owner}/copyright"
    if not owner or not os.path.exists(text):
        raise SystemExit(f"wheel: the licence of {library} is unknown, because this library is not from a Debian package: install it from a package")
    os.makedirs(os.path.dirname(to), exist_ok=True)
    shutil.copy(text, to)


def add_libraries(to):
    """Copies each shared library that a file of the tree needs, directly or not, into its lib/. All programs have an RPATH
    to lib/, which also holds for the libraries of libraries. Returns their names."""
    lib, added = os.path.join(to, INSIDE, "lib"), set()
    for name in files(to):
        path = os.path.join(to, name)
        if not is_elf(path):
            continue
        for line in subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout.splitlines():
            found = re.match(r"\s*(\S+) => (.*?)( \(0x|$)", line)
            if not found or OF_THE_SYSTEM.fullmatch(found[1]) or os.path.realpath(found[2]).startswith(os.path.realpath(to) + "/"):
                continue
            if found[2] == "not found":
                raise SystemExit(f"wheel: {name} needs {found[1]}, which is not on this machine: install this library")
            if found[1] not in added:
                shutil.copy(os.path.realpath(found[2]), os.path.join(lib, found[1]))
                add_licence(os.path.realpath(found[2]), os.path.join(to, LICENCES, found[1] + ".txt"))
                added.add(found[1])
    shutil.copy(os.path.join(ROOT, "LICENSE"), os.path.join(to, LICENCES, "penstock.txt"))
    return sorted(added)


def point_at_neighbours(to):
    """Gives libraries without a search path the path of their own folder. The programs' RPATH suffices to find them, but
    auditwheel does not know that. Call it after strip, which may break what patchelf has changed."""
    lib = os.path.join(to, INSIDE, "lib")
    for name in sorted(os.listdir(lib)) if shutil.which("patchelf") else ():
        path = os.path.join(lib, name)
        if os.path.isfile(path) and not re.search(r"R(UN)?PATH", subprocess.run(["readelf", "-d", path], capture_output=True, text=True).stdout):
            subprocess.run(["patchelf", "--set-rpath", "$ORIGIN", path], check=True)


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def pack(to, tag, release, out):
    """Writes the wheel. Returns its path. The same files give the same bytes."""
    info = f"penstock-{release}.dist-info"
    made = {f"{info}/METADATA": METADATA.format(version=release, summary=SUMMARY, description=DESCRIPTION),
            f"{info}/WHEEL": WHEEL.format(tag=tag), f"{info}/entry_points.txt": ENTRY_POINTS}
    stamp, record = time.gmtime(max(epoch(), 315532800))[:6], []  # zip begins in 1980
    path = os.path.join(out, f"penstock-{release}-{tag}.whl")

    def add(z, name, data, mode):
        entry = zipfile.ZipInfo(name, stamp)
        entry.external_attr, entry.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
        z.writestr(entry, data)
        record.append(f"{name},{digest(data)},{len(data)}")

    with zipfile.ZipFile(path + ".new", "w") as z:
        for name in files(to):
            with open(os.path.join(to, name), "rb") as f:
                add(z, name, f.read(), 0o755 if os.access(os.path.join(to, name), os.X_OK) else 0o644)
        for name, text in made.items():
            add(z, name, text.encode(), 0o644)
        lines = "\n".join([*record, f"{info}/RECORD,,", ""])
        add(z, f"{info}/RECORD", lines.encode(), 0o644)
    os.replace(path + ".new", path)
    return path


def platform_of(wheel):
    """The platform that auditwheel finds the wheel to be for; None: it is not installed, or only finds this machine's kind."""
    if not shutil.which("auditwheel"):
        return None
    r = subprocess.run(["auditwheel", "show", wheel], capture_output=True, text=True)
    found = re.search(r'platform tag:\s+"(manylinux_\w+)"', re.sub(r"\s+", " ", r.stdout))
    return found[1] if r.returncode == 0 and found else None


def main():
    tree, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="penstock-wheel-") as to:
        copy(tree, to)
        libraries = add_libraries(to)
        for name in files(to):
            if is_elf(os.path.join(to, name)):
                strip(os.path.join(to, name))
        point_at_neighbours(to)
        release = version(tree)
        path = pack(to, "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_"), release, out)
        better = platform_of(path)
        if better:
            os.unlink(path)
            path = pack(to, f"py3-none-{better}", release, out)
    print(f"{path}: {os.path.getsize(path) / 1e6:.1f} MB, with {len(libraries)} libraries: {' '.join(libraries)}")


if __name__ == "__main__":
    main()
