"""Replicas, at length: the same weights for 1, 2, 4 and 8 replicas, for every model, for batches that overflow their
slots, by processes and in one process, on CPUs and among virtual GPUs; a storm of kills and stops, from which runs go on
with other numbers of replicas.

Ranks, too: every process of every rank is killed in turn; and each rank runs in a network namespace of its own, with an
address of its own, as on a machine of its own: the weights are the same, and only MPI has sockets there. So are those of
ranks that have only a part of the features each."""
import re

from ranking import *

COUNTS = (1, 2, 4, 8)
GPU = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
NET = f"{os.getpid() % 250}"  # 10.213.NET.0/24
NODES = 4
WITHOUT = ("--set", "stages.trainer.params.eval_every=0")  # an evaluation, which sends rows, too


def all_equal(p, *args, counts=COUNTS):
    found = {n: trained(p, n, *args) for n in counts}
    assert len(set(found.values())) == 1, (args, found)
    return found[1]


@test
def every_model():
    with Place() as p:
        plain = [all_equal(p, "--set", f"stages.trainer.params.model={model}") for model in ("graphsage", "gcn", "gat")]
        assert len({digest for digest, _ in plain}) == 1 and len({weights for _, weights in plain}) == 3, plain


@test
def recipes():
    """The gradient is clipped after it was summed; the plateau is that of the metric of replica 0, which all know."""
    with Place() as p:
        trainer = {"optimizer": "sgd", "momentum": 0.9, "rate": 0.2, "clip": 0.5, "schedule": "plateau", "patience": 0, "factor": 0.5}
        all_equal(p, "--epochs", 6, *(word for name, value in trainer.items()
                                      for word in ("--set", f"stages.trainer.params.{name}={value}")))


@test
def in_one_process():
    with Place() as p:
        one = trained(p, 1)
        assert all_equal(p, "--group", "all") == one
        assert all_equal(p, "--set", "params.threads=2") == one


@test
def batches_that_overflow_their_slots():
    with Place() as p:
        report = replicated(p, 2, "--set", "stages.sampler.params.margin=0.1").report
        assert report["sampler"]["overflows"] > 0, report["sampler"]
        all_equal(p, "--set", "stages.sampler.params.margin=0.1")


@test
def algorithms_that_need_whole_batches():
    with Place() as p:
        all_equal(p, "--set", "params.algorithm=ladies", "--set", "params.fanout=[64, 64]")
        all_equal(p, "--set", "params.algorithm=labor")


@test
def other_grains_have_weights_of_their_own():
    with Place() as p:
        grains = {n: all_equal(p, "--set", f"params.grains={n}", counts=[c for c in COUNTS if c <= n]) for n in (1, 2, 16)}
        assert len(set(grains.values())) == 3, grains


@test
def slots_without_overlap_and_several_samplers():
    with Place() as p:
        one = trained(p, 1)
        assert trained(p, 2, "--set", "overlap=false") == one
        assert trained(p, 2, "--set", "stages.sampler.instances=2") == one
        assert trained(p, 2, "--set", "links[1].slots=1") == one


@test
def virtual_gpus():
    if not os.path.exists(GPU):
        raise Skip("there are no virtual GPUs in this build")
    os.environ["PENSTOCK_CUDA"] = GPU
    try:
        with Place() as p:
            one = outcome(p.run(REPLICAS, *settings(1, "cuda"), timeout=300).report)
            assert outcome(p.run(REPLICAS, *settings(2, "cuda"), timeout=300).report) == one
            assert outcome(p.run(REPLICAS, *settings(2, "cuda"), "--set", "links[3].when=never", timeout=300).report) == one
    finally:
        del os.environ["PENSTOCK_CUDA"]


@test
def a_storm():
    rng = random.Random(5)
    with Place() as p:
        one = trained(p, 1)
        for _ in range(24):
            n = rng.choice((2, 4))
            names = ["supervisor", "memory-cpu:0", "memory-cpu:1",
                     *(f"{stage}.{r}" for stage in ("sampler", "disk", "trainer") for r in range(n))]
            strike(p, n, rng.choice(names))
        for _ in range(12):
            run = start(p, rng.choice(COUNTS), *SLOW)
            wait_for(lambda: has_checkpoint(run.run_dir) or run.process.poll() is not None)
            time.sleep(rng.random() * 0.2)
            run.process.send_signal(rng.choice((signal.SIGINT, signal.SIGKILL)))
            run.wait(60)
            no_leftovers()
            assert outcome(replicated(p, rng.choice(COUNTS), "--resume", run.run_dir).report) == one


# ---- ranks ---------------------------------------------------------------------------------------------------


def run(*argv):
    r = subprocess.run(list(map(str, argv)), capture_output=True, text=True)
    assert r.returncode == 0, f"{argv}: {r.stderr}"
    return r.stdout


class Machines:
    """Network namespaces, joined by a bridge. This one has the address .254, and node k has .k."""

    def __init__(self, n):
        if os.geteuid() != 0 or not shutil.which("ip"):
            raise Skip("making network namespaces needs root and the command ip (Debian: iproute2)")
        tag = os.getpid()
        self.bridge, self.names = f"pb{tag}", [f"penstock-{tag}-{k}" for k in range(1, n + 1)]
        self.hosts = [f"10.213.{NET}.{k}" for k in range(1, n + 1)]

    def __enter__(self):
        try:
            run("ip", "link", "add", self.bridge, "type", "bridge")
            run("ip", "addr", "add", f"10.213.{NET}.254/24", "dev", self.bridge)
            run("ip", "link", "set", self.bridge, "up")
            for k, name in enumerate(self.names):
                inside, outside = f"pi{os.getpid()}{k}", f"po{os.getpid()}{k}"
                run("ip", "netns", "add", name)
                run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name)
                run("ip", "link", "set", outside, "master", self.bridge, "up")
                run("ip", "-n", name, "addr", "add", f"{self.hosts[k]}/24", "dev", inside)
                run("ip", "-n", name, "link", "set", inside, "up")
                run("ip", "-n", name, "link", "set", "lo", "up")
        except (AssertionError, OSError) as why:
            self.__exit__()
            raise Skip(f"cannot make network namespaces: {why}")
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)

    def agent(self, p):
        """What mpirun starts in place of ssh: AGENT HOST COMMAND..."""
        path = p.path("agent")
        with open(path, "w") as f:
            f.write("#!/bin/sh\nhost=$1; shift\n"
                    f'exec ip netns exec "penstock-{os.getpid()}-${{host##*.}}" unshare --uts '
                    'sh -c "hostname node-${host##*.}; $*"\n')
        os.chmod(path, 0o755)
        return path

    def mpirun(self, p):
        net = f"10.213.{NET}.0/24"
        return ["--host", ",".join(self.hosts), "--mca", "plm_rsh_agent", self.agent(p), "--mca", "btl", "self,tcp",
                "--mca", "oob_tcp_if_include", net, "--mca", "btl_tcp_if_include", net,
                "-x", "PENSTOCK_TEST", "-x", "OMPI_ALLOW_RUN_AS_ROOT", "-x", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"]

    def sockets(self):
        """Who has sockets in the namespaces: the names of programs."""
        found = set()
        for name in self.names:
            owners = {}
            for pid in run("ip", "netns", "pids", name).split():
                try:
                    program_ = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
                    for fd in os.listdir(f"/proc/{pid}/fd"):
                        owners[os.readlink(f"/proc/{pid}/fd/{fd}")] = program_
                except OSError:
                    continue
            for table in ("tcp", "udp", "tcp6", "udp6"):
                lines = run("ip", "netns", "exec", name, "cat", f"/proc/net/{table}").splitlines()[1:]
                found |= {owners.get(f"socket:[{line.split()[9]}]", "?") for line in lines if line.split()[9] != "0"}
        return found


@test
def every_process_of_every_rank():
    check_mpi()
    with Place() as p:
        for rank in (0, 1):
            for name in ("sampler.0", "disk.0", "trainer.0", "memory-cpu:0", "ranks", "supervisor"):
                strike_rank(p, 2, rank, name)
            for name in ("sampler.0", "remote.0", "trainer.0", "memory-cpu:0", "ranks", "supervisor"):
                strike_rank(p, 2, rank, name, slow=(), pipeline=DISTRIBUTED, data=cut(p, 2))
            for name in ("sampler.0", "remote.0", "trainer.0"):
                strike_rank(p, 2, rank, name, slow=(), pipeline=LISTS, data=cut(p, 2, True))


@test
def ranks_with_a_network_of_their_own():
    check_mpi()
    with Machines(NODES) as machines, Place() as p:
        one = trained(p, NODES)
        result = run_ranks(p, NODES, 1, mpirun=machines.mpirun(p))
        assert outcome(result.report) == one, result
        hosts = {report_of(result.run_dir, rank)["host"]["name"] for rank in range(NODES)}
        assert hosts == {f"node-{k}" for k in range(1, NODES + 1)}, hosts
        slow = start_ranks(p, NODES, 1, *SLOW, "--epochs", 1_000_000, mpirun=machines.mpirun(p))
        wait_for(lambda: has_checkpoint(slow.run_dir), 60)
        owners = machines.sockets()
        assert owners and not {name for name in owners if re.match("penstock", name)} - {"penstock-ranks"}, owners
        print(f"# sockets of networks: {sorted(owners)}")
        ended = end_by_kill(slow, processes_of(slow.run_dir, 2)["disk.0"], "disk.0 of rank 2", RANKS_END_S)
        assert "error: rank 2 (node-3): disk.0: died of signal 9 (Killed)" in ended.err, ended
        wait_for(lambda: not leftovers(), 5)


@test
def parts_on_ranks_with_a_network_of_their_own():
    check_mpi()
    with Machines(NODES) as machines, Place() as p:
        one = trained(p, NODES, *WITHOUT)
        lists = run_ranks(p, NODES, 1, mpirun=machines.mpirun(p), pipeline=LISTS, data=cut(p, NODES, True))
        assert outcome(lists.report) == one, lists
        result = run_ranks(p, NODES, 1, *WITHOUT, mpirun=machines.mpirun(p), pipeline=DISTRIBUTED, data=cut(p, NODES))
        assert outcome(result.report) == one, result
        for rank in range(NODES):
            report = report_of(result.run_dir, rank)
            remote, mpi = report["remote"], report["mpi"]
            assert report["host"]["name"] == f"node-{rank + 1}" and report["dataset"]["part"]["number"] == rank, report
            items = 8 * ((NODES - 1) * remote["rounds"] + remote["asked_rows"]) + remote["served_rows"] * remote["row_bytes"]
            assert mpi["item_bytes"] == items and mpi["sent_bytes"] <= 1.02 * (items + mpi["tree_bytes"]), (remote, mpi)


if __name__ == "__main__":
    main()
