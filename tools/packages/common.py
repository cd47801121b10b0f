"""What the wheel and the Debian packages share: the tree of `make tree`, ELF files, and the time that all files get."""
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SUMMARY = "out-of-core graph learning from SSDs"
DESCRIPTION = ("Penstock trains graph neural networks and graph embeddings on one machine when the data does not fit in memory. It runs a "
               "pipeline of processes that read the data from SSDs while they train.")
NO_GIT_S = 1704067200  # where there is no repository: 2024-01-01


def epoch():
    """The time of all files, so that the same sources give the same bytes: $SOURCE_DATE_EPOCH, else the last commit's."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    r = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
    return int(r.stdout) if r.returncode == 0 and r.stdout.strip() else NO_GIT_S


def files(tree):
    """The paths of a tree's files, from its root."""
    return sorted(os.path.relpath(os.path.join(folder, name), tree) for folder, _, names in os.walk(tree) for name in names)


def is_elf(path):
    with open(path, "rb") as f:
        return f.read(4) == b"\x7fELF"


def strip(path):
    """Removes debug information, which names folders of the machine that built the file."""
    subprocess.run(["strip", "--strip-unneeded", "--remove-section=.comment", "--remove-section=.note", path], check=True)


def version(tree):
    """What `penstock --version` says, without the commit."""
    said = subprocess.run([os.path.join(tree, "bin", "penstock"), "--version"], capture_output=True, text=True, check=True).stdout
    return said.split()[1]
