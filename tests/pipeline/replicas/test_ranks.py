"""Ranks: `mpirun -n K penstock run`. The weights are those of as many replicas on one machine; the bytes that ranks send
are those of the sums; a killed process of any rank ends all; a run goes on with another number of ranks; ranks that would
not train the same model refuse to start. `make accept` kills every process of every rank, and puts ranks into network
namespaces."""
from ranking import *

LEGION = os.path.join(ROOT, "pipelines", "legion.json")


def expected_bytes(report, ranks):
    """What one rank must send: the gradient of each batch, once for each level of the tree over ranks."""
    levels, batches = (ranks - 1).bit_length(), report["trainer"]["batches"]
    return levels * batches * report["trainer"]["gradient_bytes"]


@test
def ranks_train_as_one_machine_does():
    check_mpi()
    with Place() as p:
        one = trained(p, 4)
        for ranks, replicas in ((4, 1), (2, 2)):
            run = run_ranks(p, ranks, replicas)
            assert outcome(run.report) == one, (ranks, replicas, run)
            seeds = 0
            for rank in range(ranks):
                report = report_of(run.run_dir, rank)
                assert report["status"] == "ok" and report["mpi"]["rank"] == rank, report
                least = expected_bytes(run.report, ranks)
                sent = report["mpi"]["sent_bytes"]
                assert least <= sent <= 1.02 * least, (ranks, replicas, sent, least)
                seeds += report["trainer"]["seeds"]
            assert seeds == EPOCHS * SEEDS, seeds


@test
def a_death_in_one_rank_ends_all():
    """And the run goes on from its checkpoint, with other numbers of ranks and replicas, to the same weights."""
    check_mpi()
    with Place() as p:
        one = trained(p, 2, "--epochs", 4)
        for name in ("trainer.0", "ranks"):
            run_dir = strike_rank(p, 2, 1, name)
            keep_checkpoints(run_dir, 4)
            resumed = run_ranks(p, 2, 1, "--epochs", 4, "--resume", run_dir).report
            assert outcome(resumed) == one, (name, resumed)
        assert outcome(replicated(p, 1, "--epochs", 4, "--resume", run_dir).report) == one


def keep_checkpoints(run_dir, epochs):
    """The run was to last for many epochs: leaves only checkpoints of the first ones, so that there is something to do."""
    names = sorted(glob.glob(os.path.join(run_dir, "checkpoints", "*.safetensors")))
    assert names, run_dir
    for path in names:
        if int("".join(filter(str.isdigit, os.path.basename(path)))) > epochs * 4:
            os.remove(path)


@test
def a_stopped_rank_stops_all():
    check_mpi()
    with Place() as p:
        one = trained(p, 2, "--epochs", 4)
        for rank in (0, 1):
            run = start_ranks(p, 2, 1, *SLOW, "--epochs", 4)
            wait_for(lambda: has_checkpoint(run.run_dir))
            os.kill(processes_of(run.run_dir, rank)["supervisor"], signal.SIGTERM)
            stopped = run.wait(60)
            assert stopped.code == 143 and report_of(run.run_dir, 0)["status"] == "interrupted", stopped
            assert outcome(run_ranks(p, 2, 1, "--epochs", 4, "--resume", run.run_dir).report) == one, (rank, stopped)


def sockets_of(pid):
    """The inodes of a process's sockets."""
    links = [os.readlink(path) for path in glob.glob(f"/proc/{pid}/fd/*") if os.path.islink(path)]
    return {link[len("socket:["):-1] for link in links if link.startswith("socket:[")}


@test
def no_socket_of_ours_leaves_a_host():
    """Every process but the one that MPI has uses only sockets of the Unix domain."""
    check_mpi()
    with Place() as p:
        run = start_ranks(p, 2, 1, *SLOW, "--epochs", 1_000_000)
        wait_for(lambda: has_checkpoint(run.run_dir))
        for rank in range(2):
            found = processes_of(run.run_dir, rank)
            assert {"supervisor", "planner", "sampler.0", "disk.0", "trainer.0", "memory-cpu:0", "ranks"} >= set(found) >= {
                "supervisor", "sampler.0", "trainer.0", "ranks"}, found
            for name, pid in found.items():
                inodes = sockets_of(pid)
                with open(f"/proc/{pid}/net/unix") as f:
                    local = {line.split()[6] for line in f.readlines()[1:]}
                assert inodes and (name == "ranks" or inodes <= local), (rank, name, inodes - local)
        os.kill(processes_of(run.run_dir, 0)["supervisor"], signal.SIGTERM)
        assert run.wait(60).code == 143
        wait_for(lambda: not leftovers(), 5)


@test
def ranks_that_differ_refuse_to_start():
    check_mpi()
    with Place() as p:
        other = p.path("other")
        command("gen", "community", other, "--vertices", "2000", "--seed", "4")
        for args, data, expected in ((("--set", "stages.trainer.params.rate=0.5"), None, "stages.trainer.params.rate is 0.01 on rank 0 "),
                                     (("--seed", 9), None, "the seed is 1 on rank 0 "),
                                     ((), other, "the digest of the dataset is ")):
            p.count += 1
            run_dir = p.path(f"run{p.count}")
            run = Running([MPIRUN, "-n", "1", *program(p, 1, run_dir), ":", "-n", "1",
                           *program(p, 1, run_dir, *args, data=data)], run_dir).wait(60)
            assert run.code == 1 and expected in run.err and "on rank 1 (" in run.err, run
            assert "nothing was started" in run.err, run
            assert os.listdir(os.path.join(run_dir, "logs")) == ["ranks.log"], os.listdir(os.path.join(run_dir, "logs"))


@test
def pipelines_that_ranks_cannot_share():
    """The number of ranks comes from the environment, as mpirun sets it; nothing is started."""
    with Place() as p:
        with open(REPLICAS) as f:
            alone = json.load(f)
        del alone["replicas"]
        alone = p.write(alone)

        def refused(pipeline, ranks, *args):
            env = {**os.environ, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": str(ranks)}
            argv = [PENSTOCK, "run", pipeline, "--dataset", p.data, "--run-dir", p.path("never"), *args]
            run = subprocess.run(argv, env=env, capture_output=True, text=True)
            assert run.returncode == 2 and not os.path.exists(p.path("never")), run
            checked = subprocess.run([PENSTOCK, "check", pipeline, "--dataset", p.data, *args], env=env, capture_output=True, text=True)
            assert checked.returncode == 2 and checked.stderr.replace("penstock check: ", "penstock run: ") == run.stderr, (checked, run)
            return run.stderr
        one = ("--set", 'replicas.places=["cpu:0"]')
        assert "grains is 8, and 3 replicas cannot divide it equally" in refused(REPLICAS, 3, *one)
        assert "17 ranks were started; expected at most 16" in refused(REPLICAS, 17)
        assert "2 places on each of 16 ranks make 32 replicas; expected at most 16" in refused(
            REPLICAS, 16, "--set", 'replicas.places=["cpu:0", "cpu:1"]')
        assert "each would have a stage sampler that works on all batches" in refused(
            REPLICAS, 2, *one, "--set", 'replicas.stages=["disk", "trainer"]')
        assert "2 ranks were started, but the pipeline has no replicas" in refused(alone, 2)
        # caches are shared in one machine's memory
        assert ("params.policy: with policy=legion, copies of stage sampler read each other's memory, which they can only on one machine, "
                "but 2 ranks were started: expected one rank, or change stages.planner.params.policy") in refused(LEGION, 2)
        assert "params.policy: with policy=quiver, copies of stage sampler" in refused(LEGION, 2, "--set", "stages.planner.params.policy=quiver")
        assert 'are "0" and "two": expected a rank and a larger number of ranks' in refused(REPLICAS, "two")


@test
def a_build_without_mpi_says_so():
    """A folder of programs without penstock-ranks, as `make MPI=` builds it."""
    with Place() as p:
        programs = p.path("bin")
        os.mkdir(programs)
        for name in ("penstock-stage", "penstock-memory"):
            os.symlink(os.path.join(BUILD, "bin", name), os.path.join(programs, name))
        env = {**os.environ, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "PENSTOCK_BIN": programs,
               "PENSTOCK_STAGES": os.path.join(BUILD, "lib", "penstock", "stages")}
        run = subprocess.run(program(p, 1, p.path("never")), env=env, capture_output=True, text=True)
        assert run.returncode == 1 and "2 ranks were started, but this Penstock was built without MPI" in run.stderr, run
        assert "install openmpi-bin and libopenmpi-dev" in run.stderr, run


if __name__ == "__main__":
    main()
