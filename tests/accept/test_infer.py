"""Inference out of core: a dataset with 4 GiB of features, and activations that do not fit either, in a memory cgroup of
1 GiB; the accuracies are those of the run's own evaluation, exactly."""
import hashlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipeline"))
from cgroup import Unavailable, memory_limit
from harness import *

LIMIT_BYTES = 1 << 30
VERTICES, DIM, HIDDEN = 1 << 20, 1024, 128
GEN_S, RUN_S, INFER_S = 600, 900, 900


def penstock(*args, timeout, before=None):
    t0 = time.time()
    r = subprocess.run([PENSTOCK, *map(str, args)], capture_output=True, text=True, timeout=timeout, preexec_fn=before)
    assert r.returncode == 0, f"{args}: exit code {r.returncode}\n{r.stdout}{r.stderr}"
    return r, time.time() - t0


def leave_page_cache(data):
    for name in os.listdir(data):
        with open(os.path.join(data, name), "rb") as f:
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def make(place):
    data, run = os.path.join(place, "data"), os.path.join(place, "run")
    _, seconds = penstock("gen", "community", data, "--vertices", VERTICES, "--features", DIM, "--noise", 1, "--train", 0.004,
                          "--val", 0.02, "--quiet", timeout=GEN_S)
    size = os.path.getsize(os.path.join(data, "features.npy"))
    assert size >= 4 << 30, size
    print(f"# {VERTICES} vertices, {size / (1 << 30):.2f} GiB of features, made in {seconds:.0f} s", flush=True)
    _, seconds = penstock("run", os.path.join(ROOT, "pipelines", "hyperion.json"), "--dataset", data, "--run-dir", run, "--epochs", 2,
                          "--set", f"stages.trainer.params.hidden={HIDDEN}", "--quiet", timeout=RUN_S)
    print(f"# trained and evaluated in {seconds:.0f} s", flush=True)
    return data, run


def infer(place, run, cgroup, *args):
    report = os.path.join(place, "infer.json")
    _, seconds = penstock("infer", run, "--out", os.path.join(place, "out.npy"), "--force", "--report", report, "--quiet", *args,
                          timeout=INFER_S, before=cgroup.enter)
    peak, kills = cgroup.peak_bytes(), cgroup.kills()
    with open(report) as f:
        found = json.load(f)
    shown = "not known to this kernel" if peak is None else f"{peak / (1 << 20):.0f} MiB"
    print(f"# infer {' '.join(args)}: {seconds:.0f} s, --memory {found['memory_bytes'] / (1 << 20):.0f} MiB, peak resident "
          f"{found['peak_bytes'] / (1 << 20):.0f} MiB, peak with page cache {shown} of {LIMIT_BYTES >> 20}; "
          f"killed by the kernel: {kills}", flush=True)
    assert kills == 0 and found["spilled"] and (peak is None or 0 < peak <= LIMIT_BYTES), (kills, found, peak)
    return found


@test
def four_gib_of_features_in_one():
    try:
        with memory_limit(LIMIT_BYTES):
            pass
    except Unavailable as reason:
        raise Skip(str(reason))
    place = tempfile.mkdtemp(prefix="penstock-accept-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    try:
        data, run = make(place)
        with open(os.path.join(run, "report.json")) as f:
            report = json.load(f)
        bits = set()
        for args in ((), ("--memory", "200MiB", "--threads", "2")):
            leave_page_cache(data)
            with memory_limit(LIMIT_BYTES) as cgroup:
                found = infer(place, run, cgroup, *args)
            assert found["test_accuracy"] == report["test_accuracy"], (found, report["test_accuracy"])
            assert found["val_accuracy"] == report["epochs"][report["best_epoch"]]["val_accuracy"], found
            with open(os.path.join(place, "out.npy"), "rb") as f:
                bits.add(hashlib.file_digest(f, "sha256").hexdigest())
        assert len(bits) == 1, "the same bits in any memory"
        print(f"# test accuracy {report['test_accuracy']:.4f}, in both", flush=True)
    finally:
        shutil.rmtree(place)


main()
