"""What the tests of ranks with networks of their own share: network namespaces of this machine, joined by a bridge."""
from ranking import *

NET = f"{os.getpid() % 250}"  # 10.213.NET.0/24


def run(*argv):
    r = subprocess.run(list(map(str, argv)), capture_output=True, text=True)
    assert r.returncode == 0, f"{argv}: {r.stderr}"
    return r.stdout


class Machines:
    """Network namespaces, joined by a bridge. This one has the address .254, and node k has .k. rate: bits a second of each
    node's interface, in each direction, as tc takes it."""
    made = 0

    def __init__(self, n, rate=None):
        if os.geteuid() != 0 or not shutil.which("ip") or (rate and not shutil.which("tc")):
            raise Skip("making network namespaces needs root and the commands ip and tc (Debian: iproute2)")
        self.rate, Machines.made = rate, Machines.made + 1
        self.tag = f"{os.getpid()}{chr(ord('a') + Machines.made % 26)}"  # the kernel removes those before in its own time
        self.bridge, self.names = f"pb{self.tag}", [f"penstock-{self.tag}-{k}" for k in range(1, n + 1)]
        self.hosts = [f"10.213.{NET}.{k}" for k in range(1, n + 1)]

    def __enter__(self):
        try:
            run("ip", "link", "add", self.bridge, "type", "bridge")
            run("ip", "addr", "add", f"10.213.{NET}.254/24", "dev", self.bridge)
            run("ip", "link", "set", self.bridge, "up")
            for k, name in enumerate(self.names):
                inside, outside = f"pi{self.tag}{k}", f"po{self.tag}{k}"
                run("ip", "netns", "add", name)
                run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name)
                run("ip", "link", "set", outside, "master", self.bridge, "up")
                run("ip", "-n", name, "addr", "add", f"{self.hosts[k]}/24", "dev", inside)
                run("ip", "-n", name, "link", "set", inside, "up")
                run("ip", "-n", name, "link", "set", "lo", "up")
                if self.rate:
                    # reno fills the queue of an interface; bbr leaves a slow one idle for a fifth of the time
                    run("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno")
                    limit = ("root", "tbf", "rate", self.rate, "burst", "64kb", "latency", "200ms")
                    run("tc", "-n", name, "qdisc", "add", "dev", inside, *limit)
                    run("tc", "qdisc", "add", "dev", outside, *limit)
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
                    f'exec ip netns exec "penstock-{self.tag}-${{host##*.}}" unshare --uts '
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
