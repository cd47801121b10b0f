"""The test of events between three processes, and the hand-over bench's, under MPS on this machine's GPU. Skipped where there
is no GPU or no MPS. The same test without MPS is test_events."""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "bench"))
import gpu_mps
import measure

if not shutil.which("nvidia-smi") or subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode != 0:
    print("# SKIP no GPU")
    sys.exit(77)
with tempfile.TemporaryDirectory() as scratch:
    try:
        with gpu_mps.Service(scratch) as service:
            env = dict(os.environ, PENSTOCK_TWIN="cuda", CMOCKA_MESSAGE_OUTPUT="TAP", **service.env)
            r = subprocess.run([os.path.join(measure.BUILD, "tests", "gpu", "test_events")], env=env, capture_output=True, text=True, timeout=180)
            print(r.stdout + "".join(f"# {line}\n" for line in r.stderr.splitlines()), end="")
            print(f"{'ok' if service.served() else 'not ok'} - the processes used MPS")
            sys.exit(r.returncode or not service.served())
    except gpu_mps.Missing as why:
        print(f"# SKIP {why}")
        sys.exit(77)
