"""compute-sanitizer's four tools over the twin tests, a few shapes each, one tool after the other, as they would share one
GPU. Skipped where there is no GPU; "unavailable" where there is no compute-sanitizer."""
import glob
import os
import shutil
import subprocess
import sys
import time

BUILD = os.environ.get("BUILD", "build")
# Calls may fail as part of the work: cudaEventQuery says "not ready", and memory may be registered already.
TOOLS = {"memcheck": ["--leak-check=no", "--report-api-errors=no"], "synccheck": [], "initcheck": [], "racecheck": []}
LIMIT_S = 45  # of a tool over all its tests, which are tens of times slower under it
# Kernels that poll a controller, and so run as long as it takes, are slowest under these tools: the table's are enough.
POLLING, POLLING_LEFT = ("racecheck", "initcheck"), "test_twin_nvme_table"
PATH = os.environ["PATH"] + ":/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer"

if not shutil.which("nvidia-smi") or subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode != 0:
    print("# SKIP no GPU")
    sys.exit(77)
sanitizer = shutil.which("compute-sanitizer", path=PATH)
if not sanitizer:
    print("# SKIP unavailable: no compute-sanitizer on this machine; it comes with the CUDA toolkit")
    sys.exit(77)

tests = [t for t in sorted(glob.glob(os.path.join(BUILD, "tests/kernel/test_twin_*"))) if not t.endswith(".d")]
env = dict(os.environ, PENSTOCK_TWIN="cuda", PENSTOCK_TWIN_SHAPES="2", PENSTOCK_TWIN_SMALL="1", CMOCKA_MESSAGE_OUTPUT="TAP")


def tests_of(tool):
    return [t for t in tests if tool not in POLLING or "nvme" not in t or t.endswith(POLLING_LEFT)]


def look(tool):
    """(whether the tool found nothing, what it said)"""
    text, good, end = "", True, time.monotonic() + LIMIT_S
    for test in tests_of(tool):
        argv = [sanitizer, "--tool", tool, "--error-exitcode", "99", *TOOLS[tool], test]
        try:
            r = subprocess.run(argv, capture_output=True, text=True, timeout=max(1, end - time.monotonic()), env=env)
        except subprocess.TimeoutExpired:
            good = False
            text += f"{test}: {tool} ran past {LIMIT_S} s\n"
            continue
        if r.returncode != 0:
            good = False
            text += f"{test}: exit status {r.returncode}\n" + "\n".join((r.stdout + r.stderr).splitlines()[-25:]) + "\n"
    return good, text


failed = False
for i, tool in enumerate(TOOLS):
    good, text = look(tool)
    failed = failed or not good
    print(f"{'ok' if good else 'not ok'} {i + 1} - {tool} over {len(tests_of(tool))} twin tests")
    print("".join("# " + line + "\n" for line in text.splitlines()), end="", flush=True)
sys.exit(1 if failed else 0)
