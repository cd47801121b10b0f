"""The wheel, the Debian packages and the recipe of the container, each in a newly made Debian 12: two commands from nothing to a
run on the demo, and nothing left when the package is removed."""
import atexit
import contextlib
import functools
import glob
import os
import re
import shlex
import shutil
import subprocess
import tempfile

from fresh_root import Inside, fresh_place, make_root
from harness import BUILD, ROOT, Skip, main, test

RECIPE = os.path.join(ROOT, "tools", "packages", "Containerfile")
PACKAGES = os.path.join(BUILD, "packages")
BOOKKEEPING = ("/var/", "/root/", "/tmp/", "/proc/", "/dev/", "/sys/", "/run/", "/etc/ld.so.cache", "/etc/mailcap")  # of Debian's tools


def make(what):
    """With the build that is tested, and without CUDA. Returns the paths of what was made."""
    shutil.rmtree(PACKAGES, ignore_errors=True)
    subprocess.run(["make", "-s", "-o", "all", what, f"BUILD={os.path.relpath(BUILD, ROOT)}", "NVCC="], cwd=ROOT, check=True)
    return sorted(glob.glob(PACKAGES + "/*"))


def inside(root, script, what, **more):
    run = Inside(root, script, **more)
    assert run.code == 0, f"{what}: exit code {run.code}\n{run}"
    return run


def two_commands(root, install, demo, what):
    """Prints how long each took, and looks at the run's report."""
    first = inside(root, install, what + ": the first command")
    second = inside(root, f"mkdir -p /root/work && cd /root/work && {demo}", what + ": the second command")
    text = "\n".join(line for _, line in second.lines)
    accuracy, requests = re.search(r"test accuracy +([0-9.]+)", text), re.search(r"disk .*?([0-9]+) requests", text)
    assert accuracy and float(accuracy[1]) >= 0.9 and int(requests[1]) > 0, second
    print(f"# {what}: {first.seconds:.0f} s to install, {second.seconds:.0f} s for the demo, test accuracy {accuracy[1]}, "
          f"{requests[1]} reads", flush=True)


def everything(root):
    """All that packages may put there."""
    found = set()
    for folder, folders, names in os.walk(root):
        for name in folders + names:
            path = "/" + os.path.relpath(os.path.join(folder, name), root)
            if not (path + "/").startswith(BOOKKEEPING):
                found.add(path)
    return found


def removed(root, before, remove, what):
    inside(root, "rm -r /root/work && " + remove, what + ": removal")
    after = everything(root)
    assert after == before, f"{what}: left {sorted(after - before)[:20]}, and took away {sorted(before - after)[:20]}"


@functools.cache
def base():
    """A root that all tests copy. It is removed at the end."""
    stack = contextlib.ExitStack()
    place = stack.enter_context(fresh_place())
    atexit.register(stack.close)
    make_root(os.path.join(place, "base"))
    return os.path.join(place, "base")


@contextlib.contextmanager
def new_root():
    root = tempfile.mkdtemp(prefix="root-", dir=os.path.dirname(base()))
    try:
        subprocess.run(["cp", "-a", base() + "/.", root], check=True)
        yield root
    finally:
        shutil.rmtree(root)


@test
def debian_packages():
    made = make("deb")
    with new_root() as root:
        debian(root, made)


def debian(root, made):
    for path in made:
        shutil.copy(path, os.path.join(root, "root"))
    inside(root, "apt-get -qq update", "apt-get update")
    before = everything(root)
    two_commands(root, "cd /root && apt-get -qq install -y --no-install-recommends ./penstock_*.deb ./python3-penstock_*.deb", "penstock demo",
                 "deb")
    inside(root, "cd /root/work && python3 -c 'import penstock; print(penstock.read_report(\"runs/\" + __import__(\"os\").listdir(\"runs\")[0])[\"status\"])'"
           " && python3 -m penstock experiment --list hyperion >/dev/null", "deb: Python")
    inside(root, "cd /root && apt-get -qq install -y --no-install-recommends ./penstock-dev_*.deb gcc libc6-dev pkg-config && cd work && "
           "printf '#include <penstock/common/stage.h>\\n' >a.c && gcc -c a.c $(pkg-config --cflags penstock)", "deb: headers")
    removed(root, before, "apt-get -qq purge -y --auto-remove penstock python3-penstock penstock-dev gcc libc6-dev pkg-config", "deb")
    inside(root, "apt-get -qq install -y --no-install-recommends lintian", "lintian itself")
    lint = Inside(root, "cd /root && lintian --fail-on error *.deb")
    assert lint.code == 0, lint
    first = [open(path, "rb").read() for path in made]
    assert [open(path, "rb").read() for path in make("deb")] == first, "the same build gave other packages"


@test
def a_wheel():
    path, = make("wheel")
    with new_root() as root:
        wheel(root, path)


def wheel(root, path):
    # the index of this machine's pip, which the root does not know
    r = subprocess.run(["/usr/bin/python3", "-m", "pip", "download", "-q", "-d", os.path.join(root, "root/index"), "numpy", "pyzmq"], capture_output=True,
                       text=True)
    if r.returncode:
        raise Skip(f"pip cannot download numpy and pyzmq here: {r.stderr[-300:]}")
    shutil.copy(path, os.path.join(root, "root"))
    inside(root, "apt-get -qq update && apt-get -qq install -y --no-install-recommends python3-venv && python3 -m venv /opt/venv", "a Python")
    offline = "export PIP_NO_INDEX=1 PIP_FIND_LINKS=/root/index PATH=/opt/venv/bin:$PATH; "
    inside(root, offline + "pip install -q numpy pyzmq", "what it depends on")  # so that what is left is the wheel's own
    before = everything(root)
    two_commands(root, offline + "pip install -q /root/penstock-*.whl", offline + "penstock demo", "wheel")
    inside(root, offline + "cd /root/work && python -c 'import penstock; assert penstock.run(\"hyperion\", \"data/demo\", epochs=1)[\"status\"] == \"ok\"'"
           " && python -m penstock --version", "wheel: Python")
    removed(root, before, offline + "pip uninstall -q -y penstock", "wheel")


def steps():
    """The instructions of the recipe, as (word, text), with continued lines joined."""
    with open(RECIPE) as f:
        text = f.read().replace("\\\n", " ")
    return [line.split(None, 1) for line in text.splitlines() if line.strip() and not line.startswith("#")]


@test
def the_recipe_of_the_container():
    """What podman or docker would do: a root for each FROM, COPY between them, RUN in them, then the entry point."""
    roots, root, folder, entry = {}, None, "/", []
    with contextlib.ExitStack() as stack:
        for word, text in steps():
            if word == "FROM":
                assert text.startswith("debian:bookworm-slim"), text
                name = text.partition(" AS ")[2] or "image"
                root, folder = roots.setdefault(name, stack.enter_context(new_root())), "/"
            elif word == "WORKDIR":
                folder = text
                os.makedirs(root + folder, exist_ok=True)
            elif word == "COPY":
                source, target = text.split()[-2:]
                target = root + target
                of = re.match(r"--from=(\S+)", text)
                if of:
                    shutil.copytree(roots[of[1]] + source, target)
                else:
                    assert source == ".", text
                    subprocess.run(["git", "clone", "-q", ROOT, target], check=True)
            elif word == "RUN":
                run = inside(root, f"cd {shlex.quote(folder)} && {text}", f"container: RUN {text}")
                print(f"# container: {run.seconds:.0f} s: RUN {text[:70]}", flush=True)
            elif word == "ENTRYPOINT":
                entry = shlex.split(text.strip("[]").replace(",", " "))
            else:
                assert word == "CMD", word
        two_commands(root, "true", shlex.join([*entry, "demo"]), "container")
        assert not os.path.exists(root + "/src") and not glob.glob(root + "/tmp/*")


main()
