"""The GPUs of the pipeline tests: virtual ones (kernels/cuda/host), two of them, so that these tests run anywhere. With
PENSTOCK_TWIN=cuda, this machine's own; if there is only one, it takes the place of the second, too."""
import json
import os
import subprocess
import sys

from harness import BUILD, Skip

REAL = os.environ.get("PENSTOCK_TWIN") == "cuda"
if not REAL:
    os.environ["PENSTOCK_CUDA"] = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
GPUS = json.loads(subprocess.check_output([os.path.join(BUILD, "bin", "penstock-memory"), "--gpus"]))
if GPUS["gpus"] == 0:
    print(f"# no GPU: {GPUS['why']}")
    sys.exit(77)
SECOND = "cuda:1" if GPUS["gpus"] > 1 else "cuda:0"


def only_virtual(why):
    if REAL:
        raise Skip(why)


def needs_two():
    if SECOND == "cuda:0":
        raise Skip("this machine has one GPU")
