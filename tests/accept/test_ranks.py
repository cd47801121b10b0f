"""Ranks, at length: every process of every rank is killed in turn; and each rank runs in a network namespace of its own,
with an address of its own, as on a machine of its own: the weights are the same, and only MPI has sockets there."""
import re

from ranking import *

NET = f"{os.getpid() % 250}"  # 10.213.NET.0/24
NODES = 4


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
        begin = time.time()
        os.kill(processes_of(slow.run_dir, 2)["disk.0"], signal.SIGKILL)
        ended = slow.wait(60)
        assert time.time() - begin < RANKS_END_S and ended.code != 0, ended
        assert "error: rank 2 (node-3): disk.0: died of signal 9 (Killed)" in ended.err, ended
        wait_for(lambda: not leftovers(), 5)


if __name__ == "__main__":
    main()
