"""Five minutes of every fault that the emulated NVMe controller can have, mixed at random."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipeline"))
from harness import *

SECONDS = 300


@test
def five_minutes_of_all_faults():
    env = dict(os.environ, PENSTOCK_NVME_SECONDS=str(SECONDS))
    r = subprocess.run([os.path.join(BUILD, "tests", "unit", "test_nvme_faults")], env=env, capture_output=True, text=True,
                       timeout=SECONDS + 120)
    print("\n".join(line for line in r.stdout.split("\n") + r.stderr.split("\n") if line.startswith("#")))
    assert r.returncode == 0, r.stdout + r.stderr


if __name__ == "__main__":
    main()
