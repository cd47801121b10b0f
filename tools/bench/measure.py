"""What the benches share: running penstock and fio, making datasets, medians and their spread."""
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "pipeline"))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
PENSTOCK = os.path.join(BUILD, "bin", "penstock")
HYPERION, REPLICAS, MARIUS = (os.path.join(ROOT, "pipelines", f"{name}.json") for name in ("hyperion", "replicas", "marius"))
SCRATCH = None  # the folder for datasets and runs; main sets it


class Unsound(Exception):
    """The program under test failed or gave wrong results, so there is nothing to measure."""


class Skip(Exception):
    """The bench cannot run on this machine."""


def need(program, package):
    if not shutil.which(program):
        raise Skip(f"{program} is not installed (Debian package {package}; tools/install-deps --bench installs it)")


def output(argv, timeout=None, **more):
    """What a program prints. Unsound if it fails."""
    argv = [str(a) for a in argv]
    r = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, **more)
    if r.returncode != 0:
        raise Unsound(f"{' '.join(argv)}: exit status {r.returncode}\n{r.stdout}{r.stderr}")
    return r.stdout


# ---- penstock --------------------------------------------------------------------------------------------


def settings(**values):
    """params_batch=512 -> --set params.batch=512; a stage's parameter as STAGE__NAME."""
    out = []
    for key, value in values.items():
        path = key.replace("params_", "params.") if key.startswith("params_") else "stages.{}.params.{}".format(*key.split("__"))
        out += ["--set", f"{path}={json.dumps(value) if not isinstance(value, str) else value}"]
    return out


def run(data, *args, epochs=1, pipeline=HYPERION, enter=None, env=None):
    """The report of a run. enter: called in the child before it starts, for example to join a cgroup."""
    run_dir = os.path.join(SCRATCH, "run")
    shutil.rmtree(run_dir, ignore_errors=True)
    output([PENSTOCK, "run", pipeline, "--dataset", data, "--run-dir", run_dir, "--epochs", epochs, "--quiet", *args],
           preexec_fn=enter, env=env)
    with open(os.path.join(run_dir, "report.json")) as f:
        return json.load(f)


def generate(name, *args, quiet=False, kind="rmat"):
    """A dataset that is made once for each scratch folder."""
    path = os.path.join(SCRATCH, name)
    if not os.path.exists(os.path.join(path, "dataset.json")):
        t0 = time.time()
        output([PENSTOCK, "gen", kind, path, "--quiet", *args])
        if not quiet:
            print(f"  made {name} in {time.time() - t0:.1f} s", flush=True)
    return path


def real_data(name):
    """The folder of a real dataset, which is not part of the project."""
    path = os.path.join(os.environ.get("PENSTOCK_DATA", os.path.join(ROOT, "..", "shared", "data")), "clean", name)
    if not os.path.isdir(path):
        raise Skip(f"{path} is missing (PENSTOCK_DATA names the folder of the data)")
    return path


def converted(path, dtype):
    """A dataset with the features of another in this dtype, made once."""
    to = f"{path}-{dtype}"
    if not os.path.exists(os.path.join(to, "dataset.json")):
        output([PENSTOCK, "convert", path, to, "--dtype", dtype, "--quiet"])
    return to


def cold(path):
    """Drops the files of a folder from the page cache, so that reads come from the drive."""
    for name in os.listdir(path):
        fd = os.open(os.path.join(path, name), os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def stage_seconds(report, name, epochs):
    s = report["stages"][name]
    return (s["busy_s"] + s["wait_disk_s"] + s["wait_input_s"] + s["wait_credit_s"]) / epochs


def epoch_seconds(report):
    """The median over all epochs but the first, which warms up."""
    rows = [e["seconds"] for e in report["epochs"]]
    return statistics.median(rows[1:] if len(rows) > 1 else rows)


# ---- fio -------------------------------------------------------------------------------------------------


def fio(path, block, depth, seconds, offset=0):
    """Requests a second, and nanoseconds of processor time of each."""
    need("fio", "fio")
    size = os.path.getsize(path) - offset
    r = output(["fio", "--name=x", f"--filename={path}", "--readonly", "--rw=randread", f"--bs={block}", "--direct=1",
                "--ioengine=io_uring", f"--iodepth={depth}", f"--offset={offset}", f"--size={size // block * block}",
                "--norandommap", "--randrepeat=0", "--time_based", f"--runtime={round(1000 * seconds)}ms",
                "--output-format=json"])
    job = json.loads(r)["jobs"][0]
    cpu_ns = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] * 1e6
    return job["read"]["iops"], cpu_ns / max(1, job["read"]["total_ios"])


def fio_sequential(path, kind, span):
    """Bytes a second of the drive, read from a file in order, or written to a new file beside it."""
    need("fio", "fio")
    new = path + ".fio"
    size = min(span, os.path.getsize(path)) if kind == "read" else span
    try:
        r = output(["fio", "--name=x", f"--filename={path if kind == 'read' else new}", f"--rw={kind}", "--bs=1m", "--direct=1",
                    "--ioengine=io_uring", "--iodepth=16", f"--size={size}", *(["--readonly"] if kind == "read" else ["--end_fsync=1"]),
                    "--output-format=json"])
        job = json.loads(r)["jobs"][0][kind]
        return 1000 * job["io_bytes"] / max(1, job["runtime"])
    finally:
        if os.path.exists(new):
            os.remove(new)


# ---- figures ---------------------------------------------------------------------------------------------


def spread(values):
    q = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return {"median": statistics.median(values), "low": q[0], "high": q[2], "runs": len(values)}


def show(label, s, unit="", target=None):
    line = f"  {label:<46} {s['median']:10.3f} {unit:<10} ({s['low']:.3f} to {s['high']:.3f}, {s['runs']} runs)"
    print(line + (f"  target {target}" if target else ""), flush=True)
