"""Training over processes on this machine's GPU: the CPU's losses and accuracy, and no GPU memory left after kills. Where
PENSTOCK_CUDA names the host build the same runs on its virtual GPUs, which shows that the test works."""
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipeline"))
from crash import processes, wait_for
from harness import *

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
VIRTUAL = "PENSTOCK_CUDA" in os.environ
VERTICES, EPOCHS = (600, 2) if VIRTUAL else (20000, 20)
SETTINGS = [x for pair in ("params.batch=100", "params.fanout=[10,5]", "stages.planner.params.gpu_cache=1MiB", "stages.planner.params.cpu_cache=1MiB")
            for x in ("--set", pair)] + ["--quiet"]
DRIVES = ["--set", "stages.disk.params.backend=emulated",  # which kernels then drive
          "--set", "stages.planner.params.gpu_cache=4KiB", "--set", "stages.planner.params.cpu_cache=0"]
# How far accuracies may be apart, as fractions. Rounding makes two trainings diverge: their losses differ by 1e-7 after the first
# epoch, and by up to 1.5 % after 20. That was measured on CPUs: 17 seeds of the run below, each with the products of three
# instruction sets (ONEDNN_MAX_CPU_ISA). The accuracy of one epoch then differed by up to .0015, and the test accuracy at the best
# epoch by .0003 (root of the mean square) and at most .0011, also where another epoch was the best. The mean over epochs differed
# by .00007, and at most .0002. Two seeds differ by up to .0029 and .0014. So the mean tells best whether a GPU learns the same.
TEST_MARGIN, MEAN_MARGIN = 0.002, 0.001
SLACK_BYTES = 32 << 20  # of the driver itself
FREED_S = 10  # a driver takes a moment to take back what a killed process had

if not VIRTUAL and (not shutil.which("nvidia-smi") or subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode != 0):
    print("# SKIP no GPU")
    sys.exit(77)


def gpu_bytes():
    """What is in use of all GPUs, as the driver says it; 0 for virtual ones."""
    if VIRTUAL:
        return 0
    r = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True,
                       text=True, check=True)
    return sum(int(line) for line in r.stdout.split()) << 20


def gpu_pids():
    if VIRTUAL:
        return set()
    r = subprocess.run(["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"], capture_output=True, text=True,
                       check=True)
    return {int(line) for line in r.stdout.split() if line.isdigit()}


def mean_accuracy(report):
    return sum(e["val_accuracy"] for e in report["epochs"]) / len(report["epochs"])


def data(p):
    path = p.path("graph")
    if not os.path.exists(path):
        command("gen", "community", path, "--vertices", VERTICES, "--features", "32", "--seed", "3")
    return path


@test
def what_the_cpu_learns():
    with Place() as p:
        cpu = p.run(HYPERION, *SETTINGS, "--epochs", EPOCHS, data=data(p), timeout=300).report
        gpu = p.run(HYPERION, *SETTINGS, "--epochs", EPOCHS, "--device", "cuda:0", data=data(p), timeout=300).report
        assert [gpu["stages"][s]["device"] for s in ("planner", "sampler", "trainer")] == ["cuda:0"] * 3, gpu["stages"]
        assert gpu["digest"] == cpu["digest"]
        drives = p.run(HYPERION, *SETTINGS, *DRIVES, "--epochs", EPOCHS, "--device", "cuda:0", data=data(p), timeout=300).report
        assert drives["io"]["submitted_by"] == "gpu" and drives["io"]["gpu_commands"] > 0, drives["io"]
        assert drives["digest"] == cpu["digest"] and drives["weights_digest"] == gpu["weights_digest"]
        a, b = cpu["epochs"][0]["loss"], gpu["epochs"][0]["loss"]
        assert abs(a - b) <= 1e-4 * a, (a, b)
        assert len(cpu["epochs"]) == len(gpu["epochs"]) == EPOCHS
        assert abs(mean_accuracy(cpu) - mean_accuracy(gpu)) <= MEAN_MARGIN, (cpu["epochs"], gpu["epochs"])
        assert abs(cpu["test_accuracy"] - gpu["test_accuracy"]) <= TEST_MARGIN, (cpu["test_accuracy"], gpu["test_accuracy"])
        print(f"# test accuracy {cpu['test_accuracy']:.4f} on the CPU, {gpu['test_accuracy']:.4f} on {gpu['trainer'].get('device', 'cuda:0')}; "
              f"GPU: {gpu['gpus']}")


@test
def kills_leave_no_gpu_memory():
    with Place() as p:
        before = gpu_bytes()
        for victim in ("sampler", "disk", "trainer", "memory-cpu:0", "supervisor"):
            run = p.start(HYPERION, *SETTINGS, *DRIVES, "--epochs", 1_000_000, "--device", "cuda:0", data=data(p))
            pid = wait_for(lambda: processes(run).get(victim), 60)
            wait_for(lambda: os.path.exists(os.path.join(run.run_dir, "live.json")), 60)
            mine = set(processes(run).values())
            time.sleep(0.5)
            os.kill(pid, signal.SIGKILL)
            r = run.wait(30)
            assert r.code == (-9 if victim == "supervisor" else 1), r
            no_leftovers(FREED_S)
            wait_for(lambda: not gpu_pids() & mine and gpu_bytes() <= before + SLACK_BYTES, FREED_S)


if __name__ == "__main__":
    main()
