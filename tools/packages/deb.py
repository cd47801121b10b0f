#!/usr/bin/env python3
"""deb.py TREE OUT: makes Debian packages in the folder OUT from TREE, the tree of files that `make install` copies.

penstock has the programs, stages and pipelines; penstock-cuda the CUDA kernels, and penstock-mpi the program that uses
MPI, if they were built; penstock-dev the headers; python3-penstock the Python package. The programs find everything
relative to themselves, so they lie together in /usr/lib/penstock, and /usr/bin has links. dpkg-deb gives all files the
time of the last commit, so the same sources give the same bytes."""
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from email.utils import formatdate

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from common import DESCRIPTION, ROOT, SUMMARY, epoch, files, is_elf, strip, version

HOME = "usr/lib/penstock/"  # bin, lib, and links to the rest
SHARE = "usr/share/penstock/"
PYTHON = "usr/lib/python3/dist-packages/"
MAINTAINER = os.environ.get("DEBEMAIL", "Penstock maintainers <maintainers@penstock.example>")
COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: {year} the Penstock authors
License: Apache-2.0
 On Debian systems, the text of this licence is in
 /usr/share/common-licenses/Apache-2.0.
"""
CUDA = "lib/libpenstock-cuda.so"
MPI = "bin/penstock-ranks"
# Where a file of the tree goes: the first prefix that fits says the package and the folder. None: nowhere.
PLACES = (
    (CUDA, "penstock-cuda", HOME + CUDA),
    (MPI, "penstock-mpi", HOME + MPI),
    ("bin/", "penstock", HOME + "bin/"),
    ("lib/", "penstock", HOME + "lib/"),
    ("include/", "penstock-dev", "usr/include/"),
    ("share/pkgconfig/", None, None),  # made by pkg_config below
    ("share/penstock/python/", "python3-penstock", PYTHON),
    ("share/penstock/stages/examples/", "python3-penstock", SHARE + "stages/examples/"),
    ("share/penstock/installed", None, None),
    ("share/penstock/", "penstock", SHARE),
    ("share/doc/penstock/examples/", "penstock-dev", "usr/share/doc/penstock-dev/examples/"),
    ("share/doc/", "penstock", "usr/share/doc/"),
    ("share/man/", "penstock", "usr/share/man/"),
    ("share/bash-completion/", "penstock", "usr/share/bash-completion/"),
    ("share/zsh/site-functions/", "penstock", "usr/share/zsh/vendor-completions/"),
    ("share/fish/", "penstock", "usr/share/fish/"),
)
LINKS = {
    "penstock": {"usr/bin/penstock": "../lib/penstock/bin/penstock", HOME + "share/penstock": "../../../share/penstock"},
    "python3-penstock": {SHARE + "python": "../../lib/python3/dist-packages"},
}
FIELDS = {  # what does not follow from the files
    "penstock": {"Section": "science", "Recommends": "python3-penstock", "Suggests": "penstock-cuda, penstock-dev", "About": "programs"},
    "penstock-cuda": {"Section": "science", "Depends": "penstock (= {version})", "About": "CUDA kernels"},
    "penstock-mpi": {"Section": "science", "Depends": "penstock (= {version})", "Recommends": "openmpi-bin", "About": "several machines"},
    "penstock-dev": {"Section": "libdevel", "Depends": "penstock (= {version})", "Suggests": "pkg-config", "About": "headers"},
    "python3-penstock": {"Section": "python", "Depends": "python3 (>= 3.11), python3-numpy, python3-zmq, penstock (>= {version})",
                         "Architecture": "all", "About": "Python package"},
}
MORE = {
    "penstock": "This package has the command, the stages, and the pipelines.",
    "penstock-cuda": "This package has the kernels for NVIDIA GPUs. They need NVIDIA's driver. Matrix products also need NVIDIA's library cuBLASLt, which is opened at run time. Debian has neither.",
    "penstock-mpi": "This package has the program through which runs on several machines exchange data, by Open MPI.",
    "penstock-dev": "This package has the headers for stages in C and C++.",
    "python3-penstock": "This package runs pipelines from Python, brings their batches into your process, and hosts stages in Python.",
}


def place(tree, to):
    """Copies the tree's files to TO/PACKAGE/..., and returns the packages' names."""
    for name in files(tree):
        prefix, package, folder = next(row for row in PLACES if name.startswith(row[0]))
        if package is None:
            continue
        target = os.path.join(to, package, folder + name[len(prefix):])
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(os.path.join(tree, name), target)
        if is_elf(target):
            strip(target)
            if name.startswith("lib/"):
                os.chmod(target, 0o644)
    for package, links in LINKS.items():
        for link, goal in links.items():
            os.makedirs(os.path.dirname(os.path.join(to, package, link)), exist_ok=True)
            os.symlink(goal, os.path.join(to, package, link))
    pkg_config(tree, os.path.join(to, "penstock-dev", "usr/share/pkgconfig/penstock.pc"))
    return sorted(os.listdir(to))


def pkg_config(tree, target):
    with open(os.path.join(tree, "share/pkgconfig/penstock.pc")) as f:
        text = f.read().replace("-L${prefix}/lib", "-L${prefix}/lib/penstock/lib")
    os.makedirs(os.path.dirname(target))
    with open(target, "w") as f:
        f.write(text)


def document(at, package, release):
    """Debian's files in usr/share/doc, and compressed manual pages and changelogs, as its policy wants them."""
    folder = os.path.join(at, "usr/share/doc", package)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "copyright"), "w") as f:
        f.write(COPYRIGHT.format(year=time.gmtime(epoch()).tm_year))
    entry = f"penstock ({release}) unstable; urgency=medium\n\n  * Release {release}.\n\n -- {MAINTAINER}  {formatdate(epoch())}\n"
    compress(entry.encode(), os.path.join(folder, "changelog.gz"))
    for name in files(at):
        if name.startswith("usr/share/man/"):
            with open(os.path.join(at, name), "rb") as f:
                compress(f.read(), os.path.join(at, name + ".gz"))
            os.unlink(os.path.join(at, name))


def compress(data, path):
    with open(path, "wb") as f:
        f.write(gzip.compress(data, 9, mtime=0))


def shared_libraries(to, package):
    """The packages whose libraries the package's programs need, with versions, as dpkg-shlibdeps computes them. Penstock's
    own libraries are in no installed package."""
    at = os.path.join(to, package)
    elf = [os.path.join(at, name) for name in files(at) if not os.path.islink(os.path.join(at, name)) and is_elf(os.path.join(at, name))]
    if not elf:
        return []
    with tempfile.TemporaryDirectory() as work:
        os.mkdir(os.path.join(work, "debian"))
        with open(os.path.join(work, "debian/control"), "w") as f:
            f.write(f"Source: penstock\n\nPackage: {package}\nArchitecture: any\n")
        r = subprocess.run(["dpkg-shlibdeps", "-O", "--ignore-missing-info", "-l" + os.path.join(to, "penstock", HOME, "lib"), *elf], cwd=work,
                           capture_output=True, text=True)
    unknown = [lib for lib in re.findall(r"(?:information found for|find library) (\S+)", r.stderr) if not re.search(r"libpenstock", lib)]
    found = re.search(r"shlibs:Depends=(.*)", r.stdout)
    if unknown or not found:
        raise SystemExit(f"deb: {package}: dpkg-shlibdeps knows no package for {', '.join(unknown) or 'a library'}:\n{r.stderr}")
    return found[1].split(", ")


def wrap(text, width=76):
    """A paragraph of a description."""
    lines, line = [], ""
    for word in text.split():
        if len(line) + 1 + len(word) > width:
            lines, line = [*lines, line], ""
        line = f"{line} {word}".strip()
    return "".join(f" {line}\n" for line in [*lines, line])


def control(to, package, release):
    fields, at = FIELDS[package], os.path.join(to, package)
    arch = fields.get("Architecture") or subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
    given = [fields["Depends"].format(version=release)] if "Depends" in fields else []
    depends = ", ".join(shared_libraries(to, package) + given)
    size = sum(-(-os.lstat(os.path.join(at, name)).st_size // 1024) for name in files(at))
    more = MORE[package]
    text = f"Package: {package}\nVersion: {release}\nArchitecture: {arch}\n"
    text += f"Maintainer: {MAINTAINER}\nInstalled-Size: {size}\nDepends: {depends}\n"
    text += "".join(f"{key}: {fields[key]}\n" for key in ("Recommends", "Suggests") if key in fields)
    text += "Source: penstock\n" if package != "penstock" else ""
    text += f"Section: {fields['Section']}\nPriority: optional\n"
    return text + f"Description: {SUMMARY} ({fields['About']})\n" + wrap(DESCRIPTION) + " .\n" + wrap(more)


PYTHON_HOOKS = {  # byte code is made when the package is installed, and removed with it
    "postinst": "#!/bin/sh\nset -e\nif command -v py3compile >/dev/null; then py3compile -p python3-penstock; fi\n",
    "prerm": "#!/bin/sh\nset -e\nif command -v py3clean >/dev/null; then py3clean -p python3-penstock; fi\n",
}


def build(to, package, release, out):
    at = os.path.join(to, package)
    document(at, package, release)
    text = control(to, package, release)
    listed = [name for name in files(at) if not os.path.islink(os.path.join(at, name))]
    os.mkdir(os.path.join(at, "DEBIAN"))
    with open(os.path.join(at, "DEBIAN/md5sums"), "w") as f:
        for name in listed:
            with open(os.path.join(at, name), "rb") as g:
                f.write(f"{hashlib.md5(g.read()).hexdigest()}  {name}\n")
    with open(os.path.join(at, "DEBIAN/control"), "w") as f:
        f.write(text)
    for name, script in PYTHON_HOOKS.items() if package == "python3-penstock" else ():
        with open(os.path.join(at, "DEBIAN", name), "w") as f:
            f.write(script)
        os.chmod(os.path.join(at, "DEBIAN", name), 0o755)
    for folder, _, _ in os.walk(at):
        os.chmod(folder, 0o755)
    arch = re.search(r"^Architecture: (.*)", text, re.M)[1]
    path = os.path.join(out, f"{package}_{release}_{arch}.deb")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", at, path], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch())})
    print(f"{path}: {os.path.getsize(path) / 1e6:.1f} MB")


def main():
    tree, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    release = version(tree)
    with tempfile.TemporaryDirectory(prefix="penstock-deb-") as to:
        for package in place(tree, to):
            build(to, package, release, out)


if __name__ == "__main__":
    main()
