"""What the tests of ranks share: small runs of pipelines/replicas.json on several ranks of this machine, by Open MPI."""
from replicating import *

DISTRIBUTED = os.path.join(ROOT, "pipelines", "distributed.json")
LISTS = os.path.join(ROOT, "pipelines", "distributed_lists.json")
MPIRUN = shutil.which("mpirun")
RANKS_END_S = 5 * (4 if SAN else 1)  # from a death in one rank to the end of all


def check_mpi():
    """Skips the test, with the reason, where ranks cannot run."""
    if not MPIRUN:
        raise Skip("there is no mpirun (Debian: openmpi-bin)")
    if not os.path.exists(os.path.join(BUILD, "bin", "penstock-ranks")):
        raise Skip("built without MPI (Debian: libopenmpi-dev)")
    if SAN == "tsan":
        raise Skip("ThreadSanitizer does not know MPI's threads")
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                      OMPI_MCA_rmaps_base_oversubscribe="1")  # more ranks than cores


def program(p, replicas, run_dir, *args, pipeline=REPLICAS, data=None):
    return [PENSTOCK, "run", pipeline, "--dataset", data or p.data, "--run-dir", run_dir,
            *map(str, settings(replicas, planner=pipeline != LISTS)), *map(str, args)]


def start_ranks(p, ranks, replicas, *args, mpirun=(), **more):
    """Starts ranks, each with so many replicas."""
    p.count += 1
    run_dir = p.path(f"run{p.count}")
    return Running([MPIRUN, "-n", str(ranks), *mpirun, *program(p, replicas, run_dir, *args, **more)], run_dir)


def run_ranks(p, ranks, replicas, *args, code=0, **more):
    result = start_ranks(p, ranks, replicas, *args, **more).wait(60)
    assert code is None or result.code == code, f"expected exit code {code}: {result}"
    return result


def cut(p, parts, lists=False):
    """The small dataset, cut into parts."""
    out = p.path(f"{'shares' if lists else 'parts'}{parts}")
    if not os.path.exists(out):
        command("partition", p.data, "--parts", parts, "--datasets", out, "--quiet", *(["--lists"] if lists else []))
    return out


def report_of(run_dir, rank):
    with open(os.path.join(run_dir + (f".rank{rank}" if rank else ""), "report.json")) as f:
        return json.load(f)


def processes_of(run_dir, rank):
    """{name: pid} of a rank: its supervisor, its stages, its memory host, and the process that uses MPI."""
    with open(os.path.join(run_dir + (f".rank{rank}" if rank else ""), "lock")) as f:
        found = {"supervisor": int(f.read().split()[0])}
    for pid in children(found["supervisor"]):
        try:
            with open(f"/proc/{pid}/cmdline") as f:
                argv = f.read().split("\0")
        except OSError:
            continue
        found["ranks" if os.path.basename(argv[0]) == "penstock-ranks" else argv[5]] = pid
    return found


def strike_rank(p, ranks, rank, name, slow=SLOW, **more):
    """Kills a process of one rank: all ranks end, and nothing is left. Returns the directory of the run."""
    run = start_ranks(p, ranks, 1, *slow, "--epochs", 1_000_000, **more)
    wait_for(lambda: has_checkpoint(run.run_dir))
    ended = end_by_kill(run, processes_of(run.run_dir, rank)[name], f"{name} of rank {rank}", RANKS_END_S)
    if name != "supervisor":
        told = [line for line in ended.err.splitlines() if line.startswith(f"error: rank {rank} (")]
        assert any(f"{name}: died of signal 9 (Killed)" in line for line in told), ended
    wait_for(lambda: not leftovers(), 5)
    return run.run_dir
