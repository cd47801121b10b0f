"""The Python environments of the peers: made from PyPI in build/peers, each once, with fixed versions.

What pip cannot get or build is left out: probe() then says why a peer cannot run, and what to do. An environment whose
making was interrupted is finished by the next call."""
import contextlib
import dataclasses
import fcntl
import functools
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

import measure
from peers import running

PROBE_S = 300  # the first import of a library reads gigabytes


@dataclasses.dataclass(frozen=True)
class Step:
    what: str
    arguments: tuple  # of pip install
    minutes: int  # it is ended after so many
    needed: bool = True  # without it, the steps after it make no sense
    of_cuda: bool = False  # a PyTorch for CPUs alone does not need it
    extra: str = ""  # made for the peers that have this extra
    variables: tuple = ()


@dataclasses.dataclass(frozen=True)
class Recipe:
    steps: tuple
    gib: int  # of the disk
    download_gib: float


INTEL = Step("Intel's OpenMP", ("--no-deps", "intel-openmp==2026.2.0"), 10, needed=False)
# On a machine without a GPU, too, the PyTorch of PyPI loads the CUDA libraries when it is imported.
RECIPES = {
    "torch": Recipe(gib=6, download_gib=2.5, steps=(
        Step("PyTorch", ("--no-deps", "torch==2.15.0"), 60),
        Step("the CUDA libraries that PyTorch loads", (
            "--no-deps", "cuda-toolkit==13.2.2", "nvidia-cublas==13.4.1.3", "nvidia-cuda-cupti==13.2.86", "nvidia-cuda-nvrtc==13.2.86",
            "nvidia-cuda-runtime==13.2.86", "nvidia-cudnn-cu13==9.26.0.51", "nvidia-cufft==12.2.0.57", "nvidia-cufile==1.17.1.22",
            "nvidia-cusparse==12.7.10.12", "nvidia-cusparselt-cu13==0.8.1", "nvidia-nccl-cu13==2.30.7", "nvidia-nvjitlink==13.2.86",
            "nvidia-nvshmem-cu13==3.7.2"), 60, of_cuda=True),
        Step("what PyTorch imports", (
            "numpy>=2,<2.4", "filelock<5", "typing-extensions<5", "sympy<1.15", "networkx<3.7", "jinja2<4", "fsspec<2027", "setuptools>=77,<85",
            "wheel<1", "ninja<2", "scipy<1.19", "psutil<8"), 30),
        INTEL,
        Step("PyG", ("torch-geometric==2.8.1",), 15, needed=False, extra="pyg"),
        # PyPI has no pyg-lib, and these two only as sources. Wheels in pip's cache may be those of another PyTorch
        Step("torch-scatter and torch-sparse, which pip compiles", (
            "--no-build-isolation", "--no-deps", "--no-cache-dir", "--no-binary", "torch-scatter,torch-sparse", "torch-scatter==2.1.2",
            "torch-sparse==0.6.18"), 90, needed=False, extra="pyg", variables=(("FORCE_ONLY_CPU", "1"), ("MAX_JOBS", str(len(os.sched_getaffinity(0)))))))),
    "dgl": Recipe(gib=6, download_gib=2.7, steps=(
        Step("PyTorch", ("--no-deps", "torch==2.2.1"), 60),
        Step("the CUDA libraries that PyTorch loads", (
            "--no-deps", "nvidia-cublas-cu12==12.1.3.1", "nvidia-cuda-cupti-cu12==12.1.105", "nvidia-cuda-nvrtc-cu12==12.1.105",
            "nvidia-cuda-runtime-cu12==12.1.105", "nvidia-cudnn-cu12==8.9.2.26", "nvidia-cufft-cu12==11.0.2.54", "nvidia-curand-cu12==10.3.2.106",
            "nvidia-cusolver-cu12==11.4.5.107", "nvidia-cusparse-cu12==12.1.0.106", "nvidia-nccl-cu12==2.19.3", "nvidia-nvjitlink-cu12==12.1.105",
            "nvidia-nvtx-cu12==12.1.105"), 60, of_cuda=True),
        Step("what PyTorch and DGL import", (
            "numpy<2", "scipy<1.14", "networkx<3.4", "requests<3", "tqdm<5", "psutil<8", "filelock<5", "typing-extensions<5", "sympy<1.15",
            "jinja2<4", "fsspec<2027", "pyyaml<7", "pandas<3", "pydantic<3"), 30),
        INTEL,
        Step("DGL", ("--no-deps", "dgl==2.1.0", "torchdata==0.7.1"), 30, needed=False, extra="dgl"))),
}
# DGL after 2.1.0 is not on PyPI for Linux. A user who has built it can link its environment to this name.
OWN = {"dgl-disk": "PyPI has no DGL after 2.1.0 for Linux. If you have built DGL 2.2 or later, link its environment to {path}"}

TRIED = set()  # of this process: (environment, step). A failed step is not tried twice in one command


def folder():
    return os.path.join(measure.BUILD, "peers")


def shown(path):
    """As messages and tables have it: without the folder of this clone."""
    inside = os.path.relpath(path, measure.ROOT)
    return path if inside.startswith("..") else inside


def python_of(name):
    return os.path.join(folder(), name, "bin", "python")


# ---- making ----------------------------------------------------------------------------------------------


def marker(name):
    """What was made of an environment: {"recipe": digest, "done": [step], "failed": {step: why}}."""
    path = os.path.join(folder(), name, "made.json")
    try:
        with open(path) as f:
            return json.load(f)
    except (OSError, ValueError):
        return None


def keep_marker(name, made):
    path = os.path.join(folder(), name, "made.json")
    with open(path + ".new", "w") as f:
        json.dump(made, f, indent=1)
    os.replace(path + ".new", path)


def digest(recipe):
    return hashlib.sha256(repr([(s.what, s.arguments) for s in recipe.steps] + [sys.version_info[:2]]).encode()).hexdigest()[:16]


def why_of(log):
    """The line of pip's output that says most: the first error of a compiler, or the last one of pip."""
    with open(log, errors="replace") as f:
        lines = [line.strip() for line in f if line.strip()]
    compiler = [line for line in lines if re.search(r": (fatal )?error: |^ninja: ", line)]
    others = [line for line in lines if re.match(r"(ERROR|error): ", line) and not re.search("subprocess-exited|-fail(ure|ed)$", line)]
    return (compiler[:1] + others[-1:] + lines[-1:] + ["pip said nothing"])[0][:300]


def pip(name, step):
    """None, or why the step failed."""
    log = os.path.join(folder(), name + ".log")
    with open(log, "w") as f:
        try:
            r = running.start([python_of(name), "-m", "pip", "install", "--no-input", "--disable-pip-version-check", *step.arguments], 60 * step.minutes,
                              env={**os.environ, **dict(step.variables)}, stdout=f, stderr=subprocess.STDOUT)
            return f"{why_of(log)} (all of it: {shown(log)})" if r.returncode else None
        except subprocess.TimeoutExpired:
            return f"pip did not end within {step.minutes} minutes ({shown(log)})"


def cpu_only(name):
    """Whether an index of the user's gave a PyTorch for CPUs."""
    return bool(glob.glob(os.path.join(folder(), name, "lib", "python*", "site-packages", "torch-*+cpu.dist-info")))


def begin(name, recipe):
    """The marker of an environment that is empty, or partly made with the same recipe."""
    made = marker(name)
    if made and made["recipe"] == digest(recipe):
        return made
    path = os.path.join(folder(), name)
    if os.path.lexists(path):
        print(f"  environment {name}: made with other versions, or not to its end; made anew", flush=True)
        shutil.rmtree(path)
    r = subprocess.run([sys.executable, "-m", "venv", path], capture_output=True, text=True)
    if r.returncode:
        shutil.rmtree(path, ignore_errors=True)
        raise OSError(f"{sys.executable} -m venv: {(r.stdout + r.stderr).strip()[-300:]} (Debian: tools/install-deps --peers)")
    made = {"recipe": digest(recipe), "done": [], "failed": {}}
    keep_marker(name, made)
    return made


def make(name, recipe, extras):
    """Carries out the steps that are not done. What failed in an earlier command is tried again."""
    if not marker(name) and (free := shutil.disk_usage(folder()).free / 2**30) < recipe.gib:
        raise OSError(f"it needs {recipe.gib} GiB in {shown(folder())}, where {free:.1f} GiB are free: free some, or set BUILD to a folder on another disk")
    made = begin(name, recipe)
    left = [step for step in recipe.steps if step.what not in made["done"] and (name, step.what) not in TRIED and step.extra in ("", *extras)]
    if not made["done"] and left:
        print(f"  environment {name}: made in {shown(os.path.join(folder(), name))}, from about {recipe.download_gib} GB of packages", flush=True)
    for i, step in enumerate(left):
        if step.of_cuda and cpu_only(name):
            continue
        print(f"  environment {name}, step {i + 1} of {len(left)}: {step.what} (at most {step.minutes} min)", flush=True)
        TRIED.add((name, step.what))
        why = pip(name, step)
        if why:
            made["failed"][step.what] = why
            print(f"    failed: {why}", flush=True)
        else:
            made["done"].append(step.what)
            made["failed"].pop(step.what, None)
        keep_marker(name, made)
        if why and step.needed:
            break
    return made


@contextlib.contextmanager
def alone():
    """Two makes in one build folder would install over each other."""
    os.makedirs(folder(), exist_ok=True)
    with open(os.path.join(folder(), "lock"), "w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("  waiting for another bench that makes environments here", flush=True)
            fcntl.flock(f, fcntl.LOCK_EX)
        yield


# ---- finding ---------------------------------------------------------------------------------------------


def find(name, may_make, extras=()):
    """(its Python, None), or (None, why there is none). extras: of the peer, which need more steps than others."""
    if name in OWN:
        return (python_of(name), None) if os.path.exists(python_of(name)) else (None, OWN[name].format(path=shown(os.path.join(folder(), name))))
    recipe = RECIPES[name]
    if not may_make:
        made = marker(name)
        if made and made["recipe"] == digest(recipe):
            return python_of(name), None
        return None, f"environment {name} is not made (`make bench-peers` makes it)"
    try:
        with alone():
            made = make(name, recipe, extras)
    except OSError as e:
        return None, f"environment {name} cannot be made: {e}"
    broken = [step.what for step in recipe.steps if step.needed and step.what in made["failed"]]
    if broken:
        return None, (f"environment {name}: pip did not install {broken[0]}: {made['failed'][broken[0]]}. Check the network, or name an index that has the "
                      "package in PIP_INDEX_URL or PIP_EXTRA_INDEX_URL, and repeat the command")
    return python_of(name), None


def why_of_step(name):
    """What pip could not do for an environment, if anything, and what to do."""
    failed = (marker(name) or {"failed": {}})["failed"]
    told = "".join(f"; pip did not install {what}: {why}" for what, why in failed.items())
    return told + (". `make bench-peers` tries it again" if told else "")


@functools.cache
def probe(python, code):
    """(what `code` prints, None), or (None, the last line of its error)."""
    try:
        r = running.start([python, "-c", code], PROBE_S, env=running.clean(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except (OSError, subprocess.TimeoutExpired) as e:
        return None, str(e)
    if r.returncode:
        return None, (r.stderr.strip().splitlines() or [f"exit status {r.returncode}"])[-1][:300]
    return r.stdout.strip().splitlines()[-1], None
