"""The peers: which program each is, which environments it can have, and what of it is tuned."""
import dataclasses
import os

from peers import environments, running

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")
CORES = len(os.sched_getaffinity(0))

# Settings to tune: a name and its values, of which the first is where tuning starts. With waits that spin, a sampling
# thread or another program on the same cores makes some peers ten times slower.
OMP = ("omp", ("passive", "active", "intel"))
MALLOC = ("malloc", ("tcmalloc", "glibc"))
THREADS = ("threads", (CORES, 1) if CORES > 1 else (1,))
WORKERS = ("workers", (0, 1, 2))
MASK = ("mask", ("bytes", "torch"))

TORCH = "import numpy, torch; print('torch', torch.__version__)"
PYG = ("import torch_geometric, torch_geometric.typing as t, torch_sparse; assert t.WITH_PYG_LIB or t.WITH_TORCH_SPARSE; "
       "print('torch_geometric', torch_geometric.__version__)")
DGL = "import torch, dgl; print('dgl', dgl.__version__)"
GRAPHBOLT = "import torch, dgl, dgl.graphbolt; print('dgl', dgl.__version__)"
DISK = ("import torch, dgl, dgl.graphbolt as g; g.DiskBasedFeature, g.cpu_cached_feature; "
        "assert torch.ops.graphbolt.detect_io_uring(), 'GraphBolt finds no io_uring'; print('dgl', dgl.__version__)")


@dataclasses.dataclass(frozen=True)
class Peer:
    load: str  # the bench that it is in
    what: str  # for the table
    program: str
    arguments: tuple
    environments: tuple  # names; the first is the default
    probe: str  # Python that fails where the peer cannot run
    tuned: tuple
    extras: tuple = ()  # of its environments
    sampler: bool = False  # it is given libpeers.so


PEERS = {
    "torch": Peer("memory", "plain PyTorch, hand-written blocks", "graphsage_torch.py", (), ("torch", "dgl"), TORCH,
                  (OMP, ("workers", (1, 0)), ("mean", ("bag", "csr", "index_add")), MALLOC, THREADS), sampler=True),
    "pyg": Peer("memory", "PyG, NeighborLoader", "graphsage_pyg.py", (), ("torch",), PYG,
                (("edges", ("sparse", "index")), OMP, WORKERS, ("layers", ("own", "trim")), MALLOC, MASK, THREADS), ("pyg",)),
    "dgl": Peer("memory", "DGL, NeighborSampler", "graphsage_dgl.py", ("--loader", "dgl"), ("dgl",), DGL, (OMP, WORKERS, MASK, MALLOC, THREADS),
                ("dgl",)),
    "graphbolt": Peer("memory", "DGL, GraphBolt", "graphsage_dgl.py", ("--loader", "graphbolt"), ("dgl",), GRAPHBOLT,
                      (OMP, ("workers", (0, 1)), MASK, MALLOC, THREADS), ("dgl",)),
    "torch-mmap": Peer("outofcore", "plain PyTorch over a mapped file", "graphsage_torch.py", ("--features", "mmap"), ("torch", "dgl"), TORCH,
                       (("fetch-threads", (16, 32, 4)), ("workers", (1, 0)), ("first", ("mean", "product")), OMP, MALLOC), sampler=True),
    "pyg-mmap": Peer("outofcore", "PyG over a mapped file", "graphsage_pyg.py", ("--features", "mmap"), ("torch",), PYG,
                     (WORKERS, ("edges", ("sparse", "index")), OMP, MALLOC), ("pyg",)),
    "dgl-mmap": Peer("outofcore", "DGL over a mapped file", "graphsage_dgl.py", ("--features", "mmap", "--loader", "dgl"), ("dgl",), DGL,
                     (("workers", (0, 1)), OMP, MALLOC), ("dgl",)),
    "graphbolt-mmap": Peer("outofcore", "GraphBolt over a mapped file", "graphsage_dgl.py", ("--features", "mmap", "--loader", "graphbolt"), ("dgl",),
                           GRAPHBOLT, (("workers", (0, 1)), OMP, MALLOC), ("dgl",)),
    "graphbolt-disk": Peer("outofcore", "GraphBolt's disk feature, io_uring", "graphsage_dgl.py", ("--features", "disk", "--loader", "graphbolt"),
                           ("dgl-disk",), DISK, (("cache", (128, 192, 256, 64)), ("policy", ("sieve", "s3-fifo")), ("pool", (0, 4)),
                                                 ("ahead", (False, True)), OMP, MALLOC)),
}


@dataclasses.dataclass
class Ready:
    """A peer that can run here. pythons: {environment: its Python}; tuned: {setting: values that this machine has}."""
    name: str
    peer: Peer
    pythons: dict
    versions: str
    tuned: dict

    def first(self):
        """The settings from which tuning starts."""
        return {key: values[0] for key, values in self.tuned.items()}

    def command(self, chosen, arguments):
        python = self.pythons[chosen["environment"]]
        return running.command(python, os.path.join(PROGRAMS, self.peer.program), [*arguments[:1], *self.peer.arguments, *arguments[1:]], chosen)


def values_here(peer, pythons):
    """Of each setting, without what is not installed."""
    here = {"environment": tuple(pythons)}
    for key, values in peer.tuned:
        if key == "malloc" and not running.tcmalloc():
            values = tuple(v for v in values if v != "tcmalloc")
        if key == "omp" and not all(running.intel_openmp(python) for python in pythons.values()):
            values = tuple(v for v in values if v != "intel")
        here[key] = values
    return here


def ready(name, peer, may_make, fallback=None):
    """(Ready, None), or (None, why the peer cannot run here). fallback: a Python to try if there is no environment."""
    pythons, versions, reasons = {}, None, []
    for environment in peer.environments:
        python, why = environments.find(environment, may_make, peer.extras)
        if python:
            version, failure = environments.probe(python, peer.probe)
            why = failure and f"environment {environment}: {failure}{environments.why_of_step(environment)}"
        if why:
            reasons.append(why)
        else:
            pythons[environment] = python
            versions = versions or version
    if not pythons and fallback:
        version, failure = environments.probe(fallback, peer.probe)
        if failure:
            reasons.append(f"{fallback}: {failure} (Debian's PyTorch: tools/install-deps --python)")
        else:
            pythons, versions = {os.path.basename(fallback): fallback}, version
    if not pythons:
        return None, "; ".join(reasons)
    return Ready(name, peer, pythons, versions, values_here(peer, pythons)), None
