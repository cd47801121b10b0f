"""Who loads what: importers and what they need (YAML, zlib, zstd) are in a library that the command alone loads. MPI, which
penstock-ranks loads, needs zlib."""
import glob
import subprocess

from harness import *

FORMATS = ("libyaml", "libz.", "libzstd", "libpenstock-data")


def needed(path):
    """The libraries that a file loads, and those that they load."""
    r = subprocess.run(["ldd", path], capture_output=True, text=True, check=True)
    return [line.split()[0] for line in r.stdout.splitlines() if line.strip()]


@test
def stages_and_hosts_load_no_importers():
    build = os.path.join(ROOT, os.environ.get("BUILD", "build"))
    command_ = needed(os.path.join(build, "bin", "penstock"))
    assert all(any(name.startswith(f) for name in command_) for f in FORMATS), command_
    files = [f for f in glob.glob(os.path.join(build, "bin", "penstock-*")) if not f.endswith("-ranks")] + glob.glob(os.path.join(build, "lib", "penstock", "stages", "*.so"))
    files += [os.path.join(build, "lib", f"libpenstock{name}.so") for name in ("", "-cpu", "-stages")]
    assert len(files) > 8, files
    for f in files:
        extra = [name for name in needed(f) if name.startswith(FORMATS)]
        assert not extra, (f, extra)


main()
