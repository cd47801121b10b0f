"""graphsage_torch.py DATASET [OPTION]...: GraphSAGE in plain PyTorch, with hand-written blocks, over the sampler of sampler.c.

--mean says how the mean over neighbours is made: by embedding_bag, by a product with a sparse CSR matrix, or by index_add.
With --workers 1 a thread makes batches ahead. If the features are in memory and the mean is made by embedding_bag, the first
layer takes it straight from all features. --fetch-threads: how many page faults of mapped features wait at a time."""
import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import training

p = training.parser(__doc__)
p.add_argument("--library", required=True, help="libpeers.so")
p.add_argument("--mean", choices=["bag", "csr", "index_add"], default="bag")
p.add_argument("--first", choices=["mean", "product"], default="mean", help="of the first layer")
p.add_argument("--fetch-threads", type=int, default=16)
options = p.parse_args()

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import blocks  # noqa: E402

AHEAD = 2  # batches that wait for the trainer
PARTS = 4  # of a batch's rows for each fetching thread, so that no thread ends long after the others

torch.set_num_threads(options.threads)
torch.manual_seed(options.seed)
data = training.Dataset(options)
library = blocks.library(options.library)
sampler = blocks.Sampler(library, data.indptr, data.indices, options.fanout, options.batch, options.seed)
labels, LAYERS = torch.from_numpy(data.labels), len(options.fanout)
in_memory = options.features == "memory"
features = torch.from_numpy(data.features) if in_memory else None
direct = in_memory and options.mean == "bag" and options.first == "mean"
pool = ThreadPoolExecutor(options.fetch_threads) if not in_memory else None
tensor = torch.from_numpy
UNCHECKED = {"check_invariants": False} if int(torch.__version__.split(".")[0]) >= 2 else {}


# ---- the mean, and its gradient --------------------------------------------------------------------------


def by_bag(x, hop, rows):
    ptr, col, _ = hop
    return F.embedding_bag(tensor(col), x, tensor(ptr[:-1]), mode="mean")


def by_csr(x, hop, rows):
    ptr, col, weight = hop
    return torch.sparse_csr_tensor(tensor(ptr), tensor(col), tensor(weight), size=(rows, x.shape[0]), **UNCHECKED) @ x


def by_index_add(x, hop, rows):
    ptr, col, _ = hop
    degree = tensor(np.diff(ptr))
    target = torch.repeat_interleave(torch.arange(rows), degree, output_size=len(col))
    total = torch.zeros(rows, x.shape[1]).index_add_(0, target, x.index_select(0, tensor(col)))
    return total / degree.clamp(min=1).unsqueeze(1)


FORWARD = {"bag": by_bag, "csr": by_csr, "index_add": by_index_add}[options.mean]


class Mean(torch.autograd.Function):
    """Its gradient goes through the transposed hop."""

    @staticmethod
    def forward(context, x, hop, transposed, rows):
        context.transposed, context.columns = transposed, x.shape[0]
        return FORWARD(x, hop, rows)

    @staticmethod
    def backward(context, gradient):
        gradient, (ptr, col, weight) = gradient.contiguous(), context.transposed
        if options.mean == "csr":
            return by_csr(gradient, context.transposed, context.columns), None, None, None
        return F.embedding_bag(tensor(col), gradient, tensor(ptr[:-1]), mode="sum", per_sample_weights=tensor(weight)), None, None, None


def mean(x, hop, transposed, rows):
    own_gradient = options.mean != "index_add" and x.requires_grad
    return Mean.apply(x, hop, transposed, rows) if own_gradient else FORWARD(x, hop, rows)


class ReluDropout(torch.autograd.Function):
    """In place. An output that is not 0 was positive and kept, so the mask is not needed for the gradient."""

    @staticmethod
    def forward(context, y):
        y.relu_().mul_(training.kept(y.shape, options).to(y.dtype)).mul_(1 / (1 - options.dropout))
        context.mark_dirty(y)
        context.save_for_backward(y)
        return y

    @staticmethod
    def backward(context, gradient):
        return torch.ops.aten.threshold_backward(gradient, context.saved_tensors[0], 0).mul_(1 / (1 - options.dropout))


def activate(y):
    return ReluDropout.apply(y) if options.mask == "bytes" else F.dropout(F.relu(y), options.dropout)


# ---- the model -------------------------------------------------------------------------------------------


class Layer(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own, self.far = (torch.nn.Parameter(torch.nn.init.xavier_uniform_(torch.empty(inputs, outputs))) for _ in range(2))
        self.bias = torch.nn.Parameter(torch.zeros(outputs))


width = [data.dim] + [options.hidden] * (LAYERS - 1) + [data.classes]
layers = torch.nn.ModuleList(Layer(i, o) for i, o in zip(width, width[1:]))
optimizer = training.adam(options, layers.parameters())


def forward(x, own, rows, hops):
    """x: the rows of the batch, or all features if the first mean is taken from these; own: the rows of targets, if so."""
    for i, layer in enumerate(layers):
        h = LAYERS - 1 - i
        hop, transposed = hops[h]
        targets = own if i == 0 and direct else x[:rows[h]]
        if i == 0 and options.first == "product":
            y = torch.addmm(layer.bias, targets, layer.own) + mean(x @ layer.far, hop, transposed, rows[h])
        else:
            y = torch.addmm(layer.bias, targets, layer.own).addmm_(mean(x, hop, transposed, rows[h]), layer.far)
        x = y if i == LAYERS - 1 else activate(y)
    return x


# ---- batches ---------------------------------------------------------------------------------------------


def fetch(vertices):
    if in_memory:
        return features.index_select(0, tensor(vertices))
    out = np.empty((len(vertices), data.dim), np.float32)
    cuts = np.linspace(0, len(vertices), PARTS * options.fetch_threads + 1).astype(np.int64).tolist()
    list(pool.map(lambda begin, end: blocks.gather(library, data.features, vertices, begin, end, out), cuts, cuts[1:]))
    return tensor(out)


# hops through which a gradient goes
TRANSPOSED = () if options.mean == "index_add" else range(LAYERS if options.first == "product" else LAYERS - 1)


def make(seeds):
    """(seeds, how many rows the batch has, rows, hops, x, own) as forward takes them."""
    vertices, rows, hops = sampler(seeds, TRANSPOSED)
    if not direct:
        return seeds, len(vertices), rows, hops, fetch(vertices), None
    (ptr, col, weight), _ = hops[-1]
    hops[-1] = (ptr, vertices[col], weight), None
    return seeds, len(vertices), rows, hops, features, fetch(vertices[:rows[LAYERS - 1]])


def ahead(parts):
    """The batches, which a thread makes while the trainer computes."""
    ready = queue.Queue(AHEAD)

    def produce():
        try:
            torch.set_num_threads(1)
            for part in parts:
                ready.put(make(part))
            ready.put(None)
        except BaseException as e:  # noqa: B902: the trainer raises it
            ready.put(e)

    threading.Thread(target=produce, daemon=True).start()
    while (batch := ready.get()) is not None:
        if isinstance(batch, BaseException):
            raise batch
        yield batch


def batches(epoch):
    order = np.random.default_rng([options.seed, epoch]).permutation(data.train)
    parts = [order[i:i + options.batch] for i in range(0, len(order), options.batch)]
    if options.max_batches:
        parts = parts[:options.max_batches]
    return ahead(parts) if options.workers else map(make, parts)


def step(batch):
    seeds, input_rows, rows, hops, x, own = batch
    wanted = labels[tensor(seeds)]
    out = forward(x, own, rows, hops)
    loss = F.cross_entropy(out, wanted)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.detach(), len(seeds), (out.detach().argmax(1) == wanted).sum(), rows[LAYERS - 1], input_rows


training.run(options, data, batches, step, f"torch {torch.__version__}")
