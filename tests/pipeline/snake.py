"""What the tests of the Python package share: the package, programs that use it, and other interpreters."""
import sys

from harness import *

PACKAGE = os.path.join(ROOT, "tools", "python")
HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
TRAIN_AND_VAL = os.path.join(ROOT, "pipelines", "pytorch.json")
EXAMPLES = os.path.join(ROOT, "stages", "examples")
TORCH_PYTHON = os.environ.get("PENSTOCK_TORCH_PYTHON", sys.executable)
sys.dont_write_bytecode = True
sys.path.insert(0, PACKAGE)
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
os.environ["PYTHONPATH"] = os.pathsep.join([PACKAGE, *filter(None, [os.environ.get("PYTHONPATH")])])
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])  # whose python3 runs stages
os.environ["PENSTOCK"] = PENSTOCK


def need(module, python=TORCH_PYTHON):
    """Skips the test if the interpreter lacks the module."""
    r = subprocess.run([python, "-c", f"import {module}"], capture_output=True, text=True, env={**os.environ, "DGLBACKEND": "pytorch"})
    if r.returncode:
        raise Skip(f"{python} has no {module}: {r.stderr.strip().splitlines()[-1]}")


def lines_of(path):
    """The number of lines of a file."""
    with open(path) as f:
        return len(f.read().splitlines())


def program(place, body, name="program.py"):
    """An executable file of Python: a stage, or what a user would run."""
    path = place.path(name)
    with open(path, "w") as f:
        f.write("#!/usr/bin/env python3\nimport penstock\n" + body)
    os.chmod(path, 0o755)
    return path


def user(place, body, python=sys.executable, **environment):
    """A user's process, started. Its temporary files are in a folder of the place."""
    os.makedirs(place.path("tmp"), exist_ok=True)
    return subprocess.Popen([python, program(place, body, "user.py"), HYPERION, place.data], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, cwd=place.dir, env={**os.environ, "TMPDIR": place.path("tmp"), **environment})


def nothing_in(folder, seconds=20):
    """Waits until a folder is empty."""
    until = time.time() + seconds
    while (left := os.listdir(folder)) and time.time() < until:
        time.sleep(0.05)
    assert not left, left
