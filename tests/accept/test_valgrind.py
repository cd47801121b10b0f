"""Memcheck over every unit test, and over small pipelines, as processes, and as threads of one. Two things are left to the
sanitizers: the bridge to stages in Python, since Debian 12's valgrind does not know pidfd_open, and tests on virtual GPUs,
whose fibers, and 64 GiB of addresses a GPU, memcheck does not follow. tests/valgrind.supp explains what is passed over."""
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipeline"))
from crash import *

FOUND = 99  # the exit code of a process with errors
UNIT_S = 900
VIRTUAL_GPUS = ("test_device_", "test_twin_", "test_host_build", "test_virtual_gpus")
# oneDNN's kernels for AVX2, made at run time, read past the end of buffers that oneDNN itself allocates; such code
# has no name that a suppression could hold on to. Its older kernels do not.
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "ONEDNN_MAX_CPU_ISA": "SSE41"}
# -q: what is written is what was found. "Possible" leaks count: there are none that are not real. Fair scheduling:
# one thread runs at a time, and without it a busy stage would starve its own heartbeat.
FLAGS = ["-q", "--fair-sched=yes", "--trace-children=yes", "--trace-children-skip=*/python3*,*/sh,*/env", "--leak-check=full",
         "--show-leak-kinds=definite,indirect,possible", "--errors-for-leak-kinds=definite,indirect,possible",
         f"--error-exitcode={FOUND}", "--num-callers=30",
         f"--suppressions={os.path.join(ROOT, 'tests', 'valgrind.supp')}"]


def memcheck(p, argv, seconds=300, **more):
    """Runs it, and everything that it starts, under memcheck; what was found."""
    if SAN or not shutil.which("valgrind"):
        raise Skip("valgrind is not here" if not SAN else "a sanitizer's build is no matter for valgrind")
    logs = p.path("valgrind")
    os.makedirs(logs, exist_ok=True)
    command_line = ["valgrind", *FLAGS, f"--log-file={logs}/%p", *map(str, argv)]
    r = subprocess.run(command_line, capture_output=True, text=True, timeout=seconds, env=ENV, **more)
    found = ""
    for name in sorted(os.listdir(logs)):
        with open(os.path.join(logs, name)) as f:
            found += "".join(line for line in f if line.startswith("=="))  # not valgrind's remarks on itself
    shutil.rmtree(logs)
    return r, found


def unit_tests():
    found = []
    for folder in ("unit", "stage", "kernel"):
        found += sorted(glob.glob(os.path.join(BUILD, "tests", folder, "test_*")))
    return [path for path in found if os.access(path, os.X_OK) and not path.endswith(".d")
            and not os.path.basename(path).startswith(VIRTUAL_GPUS)]


@test
def unit_tests_are_clean():
    bad, slow = [], []
    with Place() as p:
        for path in unit_tests():
            t0 = time.time()
            r, found = memcheck(p, [path], UNIT_S, cwd=ROOT)
            if found or r.returncode == FOUND:
                bad.append(f"{path}: exit code {r.returncode}\n{found[:4000]}\n{r.stdout[-1500:]}{r.stderr[-1500:]}")
            print(f"# {os.path.relpath(path, BUILD)}: {time.time() - t0:.1f} s{', FOUND' if found else ''}", flush=True)
    assert not bad, "\n\n".join(bad)


def pipeline_is_clean(*args):
    with Place() as p:
        command("gen", "community", p.path("tiny"), "--vertices", "600", "--seed", "3")
        r, found = memcheck(p, [PENSTOCK, "run", HYPERION, "--dataset", p.path("tiny"), "--set", "params.batch=64",
                                "--epochs", "2", "--quiet", "--run-dir", p.path("run"), *args])
        assert r.returncode == 0 and not found, f"exit code {r.returncode}\n{found[:6000]}\n{r.stderr}"


@test
def a_pipeline_of_processes_is_clean():
    pipeline_is_clean()


@test
def a_pipeline_of_threads_is_clean():
    pipeline_is_clean("--group", "all")


@test
def copies_loops_and_early_parts_are_clean():
    with Place() as p:
        there = {"place": {"device": "cpu:1"}}
        for pl in (pipeline({"source": stage("source", batches=40, micros=2, parts=2), "a": {**stage("passthrough"), **there},
                             "sink": stage("sink", keep=2)}, links("source.out", "a.in", "a.out", "sink.in")),
                   pipeline({"looper": stage("looper", batches=40), "echo": stage("passthrough"), "sink": stage("sink")},
                            [{"from": "looper.out", "to": "sink.in", "slots": 4},
                             {"from": "looper.ask", "to": "echo.in", "slots": 4},
                             {"from": "echo.out", "to": "looper.answer", "back": True}])):
            r, found = memcheck(p, [PENSTOCK, "run", p.write(pl), "--dataset", p.data, "--run-dir", p.path("run")])
            assert r.returncode == 0 and not found, f"exit code {r.returncode}\n{found[:6000]}\n{r.stderr}"


if __name__ == "__main__":
    main()
