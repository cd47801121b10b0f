"""What check-gpu does where nvidia-smi lists a GPU that Penstock cannot use, and which libraries the CUDA twins need."""
import re

from harness import *

CHECK = os.path.join(ROOT, "tools", "gpu", "check-gpu")


@test
def a_gpu_that_cannot_be_used_is_a_failure():
    with Place() as p:
        tools = p.path("bin")
        os.makedirs(tools)
        with open(os.path.join(tools, "nvidia-smi"), "w") as f:
            f.write("#!/bin/sh\necho 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)'\n")
        os.chmod(os.path.join(tools, "nvidia-smi"), 0o755)
        env = dict(os.environ, PATH=tools + ":" + os.environ["PATH"], PENSTOCK_CUDA="/nonexistent.so", BUILD=os.path.relpath(BUILD, ROOT))
        r = subprocess.run([CHECK], capture_output=True, text=True, env=env, timeout=60)
        assert r.returncode == 1, r
        assert "check-gpu: nvidia-smi lists 1 GPUs, but Penstock can use none of them: /nonexistent.so" in r.stderr, r
        assert "SKIP" not in r.stdout + r.stderr, r


@test
def nothing_is_linked_to_cublaslt():
    library = os.path.join(BUILD, "lib", "libpenstock-cuda.so")
    if not os.path.exists(library):
        raise Skip("no nvcc, so no CUDA twins were built")
    said = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"NEEDED.*\[(.*)\]", said) and "cublas" not in said, said


if __name__ == "__main__":
    main()
