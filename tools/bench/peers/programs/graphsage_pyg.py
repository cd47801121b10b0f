"""graphsage_pyg.py DATASET [OPTION]...: GraphSAGE in PyG, with NeighborLoader and SAGEConv.

--layers says what each layer works on. own: only the edges that it needs, as SAGEConv((x, x[:targets]), edges); trim: what
trim_to_layer leaves; all: the whole sampled graph in each layer, as in PyG's tutorials. --edges sparse gives SAGEConv a
SparseTensor, whose product with the features is one kernel; with --edges index, it scatters."""
import warnings

import training

p = training.parser(__doc__)
p.add_argument("--layers", choices=["own", "trim", "all"], default="own")
p.add_argument("--edges", choices=["sparse", "index"], default="sparse")
options = p.parse_args()
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import torch_geometric  # noqa: E402
from torch_geometric.data import Data  # noqa: E402
from torch_geometric.loader import NeighborLoader  # noqa: E402
from torch_geometric.nn import SAGEConv  # noqa: E402
from torch_geometric.typing import WITH_PYG_LIB  # noqa: E402
from torch_geometric.utils import trim_to_layer  # noqa: E402

torch.set_num_threads(options.threads)
torch.manual_seed(options.seed)
data = training.Dataset(options)
HOPS = len(options.fanout)


def graph_of(indptr, indices):
    both = dict(x=torch.from_numpy(data.features), y=torch.from_numpy(data.labels))
    if options.edges == "sparse":
        from torch_sparse import SparseTensor
        return Data(adj_t=SparseTensor(rowptr=indptr, col=indices, sparse_sizes=(data.vertices,) * 2, is_sorted=True, trust_data=True), **both)
    target = torch.repeat_interleave(torch.arange(data.vertices), indptr.diff(), output_size=data.edges)
    return Data(edge_index=torch.stack([indices, target]), **both)


loader = NeighborLoader(graph_of(torch.from_numpy(data.indptr), torch.from_numpy(data.indices).long()), num_neighbors=options.fanout,
                        input_nodes=torch.from_numpy(data.train), batch_size=options.batch, shuffle=True, replace=False, is_sorted=True,
                        num_workers=options.workers, persistent_workers=options.workers > 0)


def of_hops(batch):
    """How many vertices are new in each hop, seeds first, and how many edges each hop has. torch-sparse's sampler does not
    say, but its edges come hop by hop, in the order of their targets."""
    if getattr(batch, "num_sampled_edges", None) is not None:
        return list(batch.num_sampled_nodes), list(batch.num_sampled_edges)
    if options.edges == "sparse":
        rowptr, sources, _ = batch.adj_t.csr()
        end_of = lambda targets: int(rowptr[targets])
    else:
        sources, target = batch.edge_index
        end_of = lambda targets: int(torch.searchsorted(target, targets))
    vertices, edges, n, e = [batch.batch_size], [], batch.batch_size, 0
    for _ in range(HOPS):
        end = end_of(n)
        known = max(n, int(sources[e:end].max()) + 1 if end > e else n)
        vertices.append(known - n)
        edges.append(end - e)
        n, e = known, end
    return vertices, edges


def own_edges(edges, targets, sources, count):
    """The first `count` edges, which lead from `sources` vertices to `targets`."""
    if options.edges == "index":
        return {"edge_index": edges[:, :count], "size": (sources, targets)}
    from torch_sparse import SparseTensor
    rowptr, col, _ = edges.csr()
    return {"edge_index": SparseTensor(rowptr=rowptr[:targets + 1], col=col[:count], sparse_sizes=(targets, sources), is_sorted=True,
                                       trust_data=True)}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        width = [data.dim] + [options.hidden] * (HOPS - 1) + [data.classes]
        self.layers = torch.nn.ModuleList(SAGEConv(i, o, aggr="mean") for i, o in zip(width, width[1:]))

    def forward(self, x, edges, vertices_of, edges_of):
        for i, layer in enumerate(self.layers):
            hop = HOPS - i
            if options.layers == "own":
                targets, sources = sum(vertices_of[:hop]), sum(vertices_of[:hop + 1])
                x = layer((x, x[:targets]), **own_edges(edges, targets, sources, sum(edges_of[:hop])))
            else:
                if options.layers == "trim":
                    x, edges, _ = trim_to_layer(i, vertices_of, edges_of, x, edges)
                x = layer(x, edges)
            if i < HOPS - 1:
                x = training.dropout(options, F.relu(x))
        return x


model = Net()
optimizer = training.adam(options, model.parameters())


def step(batch):
    vertices_of, edges_of = of_hops(batch)
    out = model(batch.x, batch.adj_t if options.edges == "sparse" else batch.edge_index, vertices_of, edges_of)[:batch.batch_size]
    wanted = batch.y[:batch.batch_size]
    loss = F.cross_entropy(out, wanted)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.detach(), len(wanted), (out.detach().argmax(1) == wanted).sum(), sum(vertices_of[:HOPS]), len(batch.x)


training.run(options, data, lambda epoch: loader, step, f"torch_geometric {torch_geometric.__version__} with "
             f"{'pyg-lib' if WITH_PYG_LIB else 'torch-sparse'}, torch {torch.__version__}")
