"""An archive of gpu-pack, unpacked in another folder, without a network and without our development packages: its check-gpu
passes on virtual GPUs and says that no GPU is there."""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
MOST_BYTES = 40_000_000
# The 8 minutes of check-gpu are for a real GPU and 16 cores. Virtual GPUs run on this machine's cores, which other work may
# share, so these limits only end what hangs: all of check-gpu within the hour that tests/run gives this test, and each of its
# tests within three times of what tests/run gives it.
CHECK_S, TEST_S = 3000, 900
# What a machine has that only runs programs: no compiler, and none of the libraries that install-deps fetches.
TOOLS = ["gcc", "g++", "cc", "c++", "make", "cmake", "nvcc", "ld", "as"]
LIBRARIES = ["libzmq", "libjansson", "liburing", "libdnnl", "libxxhash", "libyaml", "libnvme", "libhwloc", "libmetis", "libcmocka",
             "libsodium", "libpgm", "libnorm", "libgomp"]


def hidden():
    for folder in os.environ["PATH"].split(os.pathsep):  # a compiler may be there twice, for example as a link to ccache
        for path in filter(None, (shutil.which(tool, path=folder) for tool in TOOLS)):
            yield os.path.realpath(path)
    for name in LIBRARIES:
        yield from {os.path.realpath(f) for f in glob.glob(f"/usr/lib/*/{name}.so*") + glob.glob(f"/lib/*/{name}.so*")
                    + glob.glob(f"/usr/lib/*/{name}-*.so*") + glob.glob(f"/usr/local/lib/{name}.so*")}


def there(folder, *command, timeout):
    """Runs in folder, in namespaces in which the hidden files are empty and the build is not there."""
    covers = "; ".join(f"mount --bind /dev/null '{path}'" for path in sorted(set(hidden())))
    script = f"{covers}; mount -t tmpfs none '{BUILD}'; cd '{folder}' && exec " + " ".join(command)
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": folder, "PENSTOCK_GPU_LIMIT_S": str(CHECK_S), "TEST_DEADLINE_S": str(TEST_S)}
    return subprocess.run(["unshare", "-rnm", "bash", "-c", script], capture_output=True, text=True, timeout=timeout, env=env)


def main():
    if subprocess.run(["unshare", "-rnm", "true"], capture_output=True).returncode != 0:
        print("# SKIP no namespaces for users")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        archive = os.path.join(scratch, "penstock-gpu.tar.xz")
        packed = subprocess.run([os.path.join(ROOT, "tools", "gpu-pack"), archive], capture_output=True, text=True)
        print("# " + (packed.stdout + packed.stderr).strip().replace("\n", "\n# "))
        bytes_of = os.path.getsize(archive) if os.path.exists(archive) else 0
        subprocess.run(["tar", "-C", scratch, "-xf", archive], check=True)
        folder = os.path.join(scratch, "penstock-gpu")
        compiler = there(folder, "gcc", "--version", timeout=60)
        r = there(folder, "./check-gpu", timeout=CHECK_S + 60)
        last = r.stdout.strip().splitlines()[-1] if r.stdout.strip() else ""
        with open(os.path.join(folder, "results", "check-gpu.txt")) as f:
            log = f.read()
        totals = [int(n) for n in re.findall(r"^(\d+) passed, 0 failed", r.stdout, re.M)]
        tests = [
            ("it is small", packed.returncode == 0 and 0 < bytes_of <= MOST_BYTES),
            ("compilers are hidden", compiler.returncode != 0),
            ("check-gpu passes", r.returncode == 0 and len(totals) == 4 and sum(totals) > 100),
            ("it says that no GPU is there", last.endswith("because this machine has no GPU") and "virtual GPUs on the CPU are used" in r.stdout),
            ("it writes what it prints", "passed, 0 failed" in log),
        ]
        for i, (name, good) in enumerate(tests):
            print(f"{'ok' if good else 'not ok'} {i + 1} - {name}")
        print("# " + last)
        if not all(good for _, good in tests):
            print("# " + (r.stdout + r.stderr).replace("\n", "\n# "))
        return 0 if all(good for _, good in tests) else 1


if __name__ == "__main__":
    sys.exit(main())
