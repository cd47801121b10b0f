"""graphsage_dgl.py DATASET [OPTION]...: GraphSAGE in DGL, with SAGEConv over blocks.

--loader dgl is dgl.dataloading with its NeighborSampler. --loader graphbolt is dgl.graphbolt. --features disk, of GraphBolt
2.2 or later, reads rows with io_uring behind a cache in memory."""
import os
import tempfile
import warnings

import training

p = training.parser(__doc__)
p.add_argument("--loader", choices=["dgl", "graphbolt"], default="dgl")
p.add_argument("--cache", type=int, default=256, help="MiB of the cache of --features disk")
p.add_argument("--policy", choices=["sieve", "s3-fifo", "lru", "clock"], default="sieve", help="of this cache")
p.add_argument("--pool", type=int, default=0, help="threads of PyTorch's pool, in which --features disk reads; 0: one for each core")
p.add_argument("--ahead", action=training.argparse.BooleanOptionalAction, default=False, help="GraphBolt 2.2 samples ahead")
options = p.parse_args()
settings = tempfile.TemporaryDirectory()  # DGL writes its choice of a backend there
os.environ.update(DGLBACKEND="pytorch", DGLDEFAULTDIR=settings.name)
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

torch.set_num_threads(options.threads)
if options.pool:
    torch.set_num_interop_threads(options.pool)
torch.manual_seed(options.seed)
import dgl  # noqa: E402
from dgl.nn import SAGEConv  # noqa: E402

dgl.seed(options.seed)
data = training.Dataset(options)
features = None if options.features == "disk" else torch.from_numpy(data.features)
labels, train = torch.from_numpy(data.labels), torch.from_numpy(data.train)
indptr, indices = torch.from_numpy(data.indptr), torch.from_numpy(data.indices).long()
FANOUTS = options.fanout[::-1]  # DGL counts from the input


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        width = [data.dim] + [options.hidden] * (len(FANOUTS) - 1) + [data.classes]
        self.layers = torch.nn.ModuleList(SAGEConv(i, o, "mean") for i, o in zip(width, width[1:]))

    def forward(self, blocks, x):
        for i, (layer, block) in enumerate(zip(self.layers, blocks)):
            x = layer(block, x)
            if i < len(self.layers) - 1:
                x = training.dropout(options, F.relu(x))
        return x


model = Net()
optimizer = training.adam(options, model.parameters())


def learn(blocks, x, wanted):
    out = model(blocks, x)
    loss = F.cross_entropy(out, wanted)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.detach(), len(wanted), (out.detach().argmax(1) == wanted).sum(), blocks[0].num_dst_nodes(), len(x)


def with_dgl():
    """(batches of an epoch, the step of a batch)"""
    graph = dgl.graph(("csc", (indptr, indices, torch.tensor([], dtype=torch.int64))), num_nodes=data.vertices)
    loader = dgl.dataloading.DataLoader(graph, train, dgl.dataloading.NeighborSampler(FANOUTS), batch_size=options.batch, shuffle=True,
                                        drop_last=False, num_workers=options.workers,
                                        **({"persistent_workers": True} if options.workers else {}))

    def step(batch):
        inputs, seeds, blocks = batch
        return learn(blocks, features.index_select(0, inputs), labels[seeds])

    return lambda epoch: loader, step


def rows_on_disk(gb):
    if data.padded:
        raise SystemExit("--features disk trains on whole rows of the file, and this dataset's rows are padded")
    feature = gb.DiskBasedFeature(data.feature_path)
    return gb.cpu_cached_feature(feature, options.cache << 20, options.policy) if options.cache else feature


def with_graphbolt():
    import dgl.graphbolt as gb
    newer = hasattr(gb, "DiskBasedFeature")
    feature = rows_on_disk(gb) if options.features == "disk" else gb.TorchBasedFeature(features)
    items = gb.ItemSet((train, labels[train]), names=("seeds" if newer else "seed_nodes", "labels"))
    sampler = gb.ItemSampler(items, batch_size=options.batch, shuffle=True, drop_last=False)
    pipe = sampler.sample_neighbor(gb.fused_csc_sampling_graph(indptr, indices), FANOUTS, **({"asynchronous": options.ahead} if newer else {}))
    pipe = pipe.fetch_feature(gb.BasicFeatureStore({("node", None, "feat"): feature}), node_feature_keys=["feat"])
    if newer:
        pipe = pipe.copy_to(torch.device("cpu"))  # a thread that works ahead
    loader = gb.DataLoader(pipe, num_workers=options.workers)

    def batches(epoch):
        if newer:  # it counts epochs when they end, which --max-batches does not let happen
            sampler._epoch = epoch
        return loader

    return batches, lambda batch: learn(batch.blocks, batch.node_features["feat"], batch.labels)


training.run(options, data, *(with_dgl() if options.loader == "dgl" else with_graphbolt()), f"dgl {dgl.__version__}, torch {torch.__version__}")
