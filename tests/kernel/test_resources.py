"""The CUDA kernels take no more registers and shared memory than kernels/cuda/resources.txt says, and spill
nothing. Skipped where the CUDA twins were not built."""
import glob
import os
import shutil
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
FOLDER = os.path.join(ROOT, "kernels", "cuda")
sys.path.insert(0, FOLDER)
import resources  # noqa: E402

logs = sorted(glob.glob(os.path.join(ROOT, os.environ.get("BUILD", "build"), "obj/kernels/cuda/**/*.nvcc.log"), recursive=True))
logs = [log for log in logs if os.path.exists(os.path.join(ROOT, "kernels/cuda", log.split("kernels/cuda/")[1].replace(".nvcc.log", ".cu")))]  # not of a file that is gone
nvcc = shutil.which("nvcc", path=os.environ["PATH"] + ":/usr/local/cuda/bin")
if not logs or not nvcc:
    print("# SKIP no nvcc, so no CUDA twins were built")
    sys.exit(77)

version, known = resources.read(os.path.join(FOLDER, "resources.txt"))
now = resources.kernels(logs)
bad = []
for key, took in sorted(now.items()):
    where = "%s: %s (%s)" % (key[1], key[2], key[0])
    if took[2] or took[3]:
        bad.append("%s has %d bytes of stack and spills %d" % (where, took[2], took[3]))
    if version != resources.compiler(nvcc):
        continue
    if key not in known:
        bad.append(where + " is not in resources.txt: make resources")
    elif took[0] > known[key][0] or took[1] > known[key][1]:
        bad.append("%s takes %d registers and %d bytes of shared memory; resources.txt says %d and %d"
                   % (where, took[0], took[1], known[key][0], known[key][1]))
if version == resources.compiler(nvcc):
    bad += ["%s: %s is in resources.txt and was not built" % key[1:] for key in known if key not in now]
print("%s 1 - resources of %d kernels" % ("not ok" if bad else "ok", len(now)))
print("\n".join("# " + line for line in bad))
sys.exit(1 if bad else 0)
