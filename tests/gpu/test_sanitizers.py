"""compute-sanitizer's four tools over the twin tests, a few shapes each, all tools at once. Skipped where there is
no GPU; "unavailable" where there is no compute-sanitizer."""
import glob
import os
import shutil
import subprocess
import sys
import threading
import time

BUILD = os.environ.get("BUILD", "build")
TOOLS = {"memcheck": ["--leak-check=no"], "racecheck": [], "synccheck": [], "initcheck": []}
LIMIT_S = 180  # of a tool over all tests, which are tens of times slower under it: all of check-gpu has minutes
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
said = {}


def look(tool):
    text, good, end = "", True, time.monotonic() + LIMIT_S
    for test in tests:
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
    said[tool] = good, text


threads = [threading.Thread(target=look, args=(tool,)) for tool in TOOLS]
for t in threads:
    t.start()
for t in threads:
    t.join()
for i, tool in enumerate(TOOLS):
    good, text = said[tool]
    print(f"{'ok' if good else 'not ok'} {i + 1} - {tool} over {len(tests)} twin tests")
    print("".join("# " + line + "\n" for line in text.splitlines()), end="")
sys.exit(0 if all(good for good, _ in said.values()) else 1)
