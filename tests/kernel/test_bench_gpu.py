"""The GPU bench over the host build: everything it would time is right, it takes no figure, and writes none."""
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
RESULTS = os.path.join(ROOT, "tools", "bench", "results")
before = sorted(os.listdir(RESULTS))
# its process' end is what frees the bench's arrays
env = dict(os.environ, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0")
r = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "bench", "bench.py"), "--smallest", "gpu-kernels", "gpu-epoch"],
                   capture_output=True, text=True, env=env)
checked = re.findall(r"^checked: (.*)$", r.stdout, re.M)
wanted = ["sample", "dedup", "lookup", "gather, the batch, 512 B", "zero-copy gather, 4 KiB",
          "zero-copy gather from a slot, 4 KiB", "mean (SpMM), forward", "mean (SpMM), backward", "adam", "gemm, square", "hand-over between processes",
          *(kernel + graph for graph in (", R-MAT", ", star")
            for kernel in ("sample", "dedup", "lookup", "mean (SpMM), forward", "mean (SpMM), backward")),
          "step, dot, d 8, fused", "step, dot, d 8, not fused", "step, complex, d 8, fused", "step, complex, d 8, not fused",
          "disk kernels, all ways, reads and writes, alone and beside GEMMs",
          "the epoch, CPU and GPU, features in memory and on emulated drives"]
tests = [
    ("it runs", r.returncode == 0),
    ("what it would time is checked", all(name in checked for name in wanted)),
    ("no figure is printed", not re.search(r"\d (us|%|MB|GB/s|GFLOP/s)|B/s|M/s|IOPS", r.stdout)),
    ("no results are written", sorted(os.listdir(RESULTS)) == before),
]
for i, (name, good) in enumerate(tests):
    print(f"{'ok' if good else 'not ok'} {i + 1} - {name}")
if not all(good for _, good in tests):
    print("# " + (r.stdout + r.stderr).replace("\n", "\n# "))
    sys.exit(1)
