"""What the tests of embeddings share: a small knowledge graph, the counter-based generator, a serial reference of training,
and brute-force ranks, in NumPy."""
import numpy as np
from harness import *

MARIUS = os.path.join(ROOT, "pipelines", "marius.json")
PARTITIONS = os.path.join(ROOT, "pipelines", "settings", "marius", "partitions.json")
LEGEND = os.path.join(ROOT, "pipelines", "legend.json")
INIT, RANK = 4, 8  # PST_RNG_INIT, PST_RNG_RANK
SEED, DIM, RATE, SCALE = 7, 8, 0.1, 0.5


def knowledge_graph(p, vertices=37, relations=3, edges=230):
    """A dataset of random triples, with self loops."""
    rng = np.random.default_rng(5)
    triples = np.stack([rng.integers(0, vertices, edges), rng.integers(0, relations, edges), rng.integers(0, vertices, edges)], 1)
    source = p.path(f"source{relations}")
    os.makedirs(source)
    for part, rows in (("train", triples), ("valid", triples[:5]), ("test", triples[5:9])):
        with open(os.path.join(source, part + ".tsv"), "w") as f:
            f.writelines(f"v{h}\tr{r}\tv{t}\n" for h, r, t in rows)
    command("import", "triples", source, p.path(f"kg{relations}"), "--quiet")
    return p.path(f"kg{relations}")


def philox(words, key0, key1):
    """Philox4x32-10 of four arrays of words."""
    c, mask = [np.asarray(w, np.uint64) for w in words], np.uint64(0xffffffff)
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [p1 >> np.uint64(32) ^ c[1] ^ np.uint64(key0), p1 & mask, p0 >> np.uint64(32) ^ c[3] ^ np.uint64(key1), p0 & mask]
        key0, key1 = (key0 + 0x9E3779B9) & 0xffffffff, (key1 + 0xBB67AE85) & 0xffffffff
    return c


def stream(use, seed, epoch, batch, index):
    """The key of random numbers of one use (pst_rng_stream_of)."""
    return [int(w) for w in philox([epoch, batch & 0xffffffff, batch >> 32, use << 24 | index], seed & 0xffffffff, seed >> 32)][:3]


def settings(staleness=3, **more):
    """Arguments of `penstock run`: small batches."""
    values = {"params.batch": 50, "params.chunks": 3, "params.negatives": 8, "params.dim": DIM, "params.rate": RATE,
              "params.scale": SCALE, "params.staleness": staleness, "links[1].slots": staleness, **more}
    return [w for key, value in values.items() for w in ("--set", f"{key}={value}")] + ["--seed", SEED, "--quiet"]


ROWS_HEADER = np.dtype([("magic", "S8"), ("bytes_used", "u8"), ("batch", "u8"), ("batch_in_epoch", "u8"), ("batches_in_epoch", "u8"),
                   ("epoch", "u4"), ("edges", "u4"), ("chunks", "u4"), ("negatives", "u4"), ("flush", "u4"), ("nodes", "u4"),
                   ("dim", "u4"), ("relations", "u4"), ("carried", "u4", 3), ("reserved", "u4"), ("loss", "f8"), ("seconds", "f8"),
                   ("trained", "u8"), ("vertices_at", "u8"),
                   ("source_at", "u8"), ("destination_at", "u8"), ("relation_at", "u8"), ("negatives_at", "u8", 2),
                   ("rows_at", "u8"), ("grads_at", "u8")])


class RowBatch:
    """A slot that the store sent."""

    def __init__(self, slot):
        h = np.frombuffer(slot, ROWS_HEADER, 1)[0]
        at = lambda name, dtype, n: np.frombuffer(slot, dtype, n, int(h[name]))
        n, nodes, chunks, negatives = (int(h[name]) for name in ("edges", "nodes", "chunks", "negatives"))
        assert h["magic"] == b"ptbrows1"
        self.n, self.chunks, self.flush = n, chunks, int(h["flush"])
        if n == 0:
            return
        self.vertices = at("vertices_at", "i8", nodes)
        self.rows = at("rows_at", "f4", nodes * DIM).reshape(nodes, DIM)
        self.source, self.destination = at("source_at", "u4", n), at("destination_at", "u4", n)
        self.relation = at("relation_at", "u4", n)
        self.negatives = [np.frombuffer(slot, "u4", chunks * negatives, int(k)).reshape(chunks, -1) for k in h["negatives_at"]]


def row_batches(r, stage):
    """What a stage that writes slots to a file received from the store."""
    with open(os.path.join(r.run_dir, stage + ".bin"), "rb") as f:
        slots = f.read()
    n = r.report["stages"][stage]["items"]
    return [RowBatch(slots[i * len(slots) // n:(i + 1) * len(slots) // n]) for i in range(n)]


def lent(p, data, epochs, staleness):
    """The batches of a run in which nobody computes: their rows are the initial ones."""
    with open(MARIUS) as f:
        pl = json.load(f)
    pl["stages"] = {name: pl["stages"][name] for name in ("edges", "store")} | {"hoard": stage("hoard")}
    pl["links"][1]["to"] = "hoard.in"
    r = p.run(pl, *settings(staleness), "--epochs", epochs, data=data, foreign=True)
    return row_batches(r, "hoard")


def partitioned(partitions=4, buffer=2, order="beta", staleness=3, **more):
    """The same with partitions that pass through memory."""
    more = {"params.partitions": partitions, "params.buffer": buffer, "params.order": order, "params.piece": "4KiB",
            "params.between_exchanges": "false", **more}
    return ["--with", PARTITIONS, *settings(staleness, **more)]


def legend(partitions, buffer, order, **more):
    """The same for legend.json, whose parameters are one stage's."""
    values = {"batch": 50, "chunks": 3, "negatives": 8, "dim": DIM, "rate": RATE, "scale": SCALE, "partitions": partitions,
              "buffer": buffer, "order": order, **more}
    sets = [w for name, value in values.items() for w in ("--set", f"stages.legend.params.{name}={value}")]
    return [*sets, "--set", "params.piece=4KiB", "--seed", SEED, "--quiet"]


def initial(table, rows):
    key = stream(INIT, SEED, 0, 0, table)
    r, c = np.meshgrid(np.arange(rows), np.arange(DIM // 4), indexing="ij")
    words = philox([r.ravel(), np.zeros(r.size), c.ravel(), np.full(r.size, key[2])], key[0], key[1])
    return SCALE * (2 * np.stack(words, 1).astype(np.float64) / 2**32 - 1).reshape(rows, DIM)


def halves(x):
    return x[..., :DIM // 2] + 1j * x[..., DIM // 2:]


def flat(z):
    return np.concatenate([z.real, z.imag], -1)


def gradients(batch, rows, relations, inverse):
    """ComplEx with the softmax loss, summed over edges and sides, in float64; one edge at a time. An inverse relation is
    a relation from destination to source. Without one, the query for sources has the relation's conjugate."""
    loss, d_rows, d_relations = 0.0, np.zeros(rows.shape), np.zeros(relations.shape)
    for i in range(batch.n):
        chunk = next(c for c in range(batch.chunks) if i < batch.n * (c + 1) // batch.chunks)
        for side in (0, 1):
            anchor, true = (batch.source[i], batch.destination[i])[::1 if side else -1]
            r = int(batch.relation[i]) + (0 if side or not inverse else len(relations) // 2)
            forward = side or inverse
            a, rel = halves(rows[anchor]), halves(relations[r])
            q = a * rel if forward else a * rel.conj()
            others = [k for k in batch.negatives[side][chunk] if k != true]
            nodes = np.array([true, *others])
            f = rows[nodes] @ flat(q)
            p = np.exp(f - f.max())
            loss += np.log(p.sum()) + f.max() - f[0]
            p /= p.sum()
            p[0] -= 1
            np.add.at(d_rows, nodes, p[:, None] * flat(q))
            g = halves(p @ rows[nodes])
            d_rows[anchor] += flat(g * rel.conj() if forward else g * rel)
            d_relations[r] += flat(g * a.conj() if forward else g.conj() * a)
    return loss, d_rows, d_relations


def adagrad(x, state, at, g, rate=RATE):
    state[at] += g * g
    x[at] -= rate * g / (np.sqrt(state[at]) + 1e-10)


def reference(batches, vertices, relations, staleness, inverse, rates=None, lent=False):
    """Batch b sees exactly the updates up to b - staleness, and all of earlier epochs. rates: of each epoch. lent: those of
    relations are as late; else batch b sees all before it."""
    rows, rel = initial(0, vertices), initial(1, relations * (2 if inverse else 1))
    state, rel_state = np.zeros(rows.shape), np.zeros(rel.shape)
    waiting, losses, loss, edges = [], [], 0.0, 0
    for number, b in enumerate(batches):
        while waiting and waiting[0][0] <= number - staleness:
            at, g, g_rel, rate = waiting.pop(0)[1:]
            adagrad(rows, state, at, g, rate)
            adagrad(rel, rel_state, slice(None), g_rel, rate)
        if b.n == 0:
            if b.flush == 1:
                losses.append(loss / (2 * edges))
                loss, edges = 0.0, 0
            continue
        this, g, g_rel = gradients(b, rows[b.vertices], rel, inverse)
        rate = rates[len(losses)] if rates else RATE
        if not lent:
            adagrad(rel, rel_state, slice(None), g_rel, rate)
            g_rel = np.zeros(rel.shape)  # which changes nothing
        waiting.append((number, b.vertices, g, g_rel, rate))
        loss, edges = loss + this, edges + b.n
    assert not waiting
    return rows, rel, losses


KINDS = {"F32": "f4", "F64": "f8", "I64": "i8"}


def tensors(run_dir):
    """The newest checkpoint."""
    path = sorted(glob.glob(os.path.join(run_dir, "checkpoints", "*.safetensors")))[-1]
    with open(path, "rb") as f:
        data = f.read()
    size = int.from_bytes(data[:8], "little")
    head = json.loads(data[8:8 + size])
    return {name: np.frombuffer(data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]], KINDS[t["dtype"]]).reshape(t["shape"])
            for name, t in head.items() if name != "__metadata__"}


def digest(p, data, *args, **more):
    return p.run(MARIUS, *args, data=data, **more).report["weights_digest"]


def triples_of(data, part):
    """Source, relation and destination. Pairs have relation 0."""
    path = os.path.join(data, f"triples_{part}.npy")
    return np.load(path) if os.path.exists(path) else np.insert(np.load(os.path.join(data, f"edges_{part}.npy")), 1, 0, axis=1)


def brute_force(data, got, part, tie):
    """MRR, Hits@1, 3, 10 and mean rank of ComplEx with inverse relations, filtered. got: the tensors."""
    known = set()
    for p in ("train", "val", "test"):
        known |= set(map(tuple, triples_of(data, p).tolist()))
    rows, relations, ranks = got["vertices"].astype(np.float64), halves(got["relations"].astype(np.float64)), []
    for s, r, o in triples_of(data, part).tolist():
        for side in (0, 1):
            q = halves(rows[s if side else o]) * relations[r if side else r + len(relations) // 2]
            f, own = rows @ flat(q), o if side else s
            others = [f[v] for v in range(len(rows)) if v != own and ((s, r, v) if side else (v, r, o)) not in known]
            above, equal = sum(x > f[own] for x in others), sum(x == f[own] for x in others)
            ranks.append(1 + above + {"mean": equal / 2, "optimistic": 0, "pessimistic": equal}[tie])
    ranks = np.array(ranks, float)
    return [(1 / ranks).mean(), *((ranks <= k).mean() for k in (1, 3, 10)), ranks.mean()]


def sample_of(data, part, side, among, alpha):
    """The candidates of sampled ranks, by the counter-based generator."""
    number = {"val": 1, "test": 2}[part]
    key = stream(RANK, SEED, 0, 0, 2 * number + side)
    words = philox([np.arange(among), np.zeros(among), np.zeros(among), np.full(among, key[2])], key[0], key[1])
    bits = [int(a) | int(b) << 32 for a, b in zip(words[0], words[1])]
    triples = np.load(os.path.join(data, "triples_train.npy"))
    vertices = len(np.load(os.path.join(data, "names_at.npy"))) - 1
    by_degree = int(alpha * among + 0.5)
    return {int(triples[b * len(triples) >> 64, 2 * side]) if k < by_degree else b * vertices >> 64 for k, b in enumerate(bits)}


def sampled_figures(data, got, part, among, alpha):
    rows, relations, ranks = got["vertices"].astype(np.float64), halves(got["relations"].astype(np.float64)), []
    candidates = [sample_of(data, part, side, among, alpha) for side in (0, 1)]
    for s, r, o in np.load(os.path.join(data, f"triples_{part}.npy")).tolist():
        for side in (0, 1):
            q = halves(rows[s if side else o]) * relations[r if side else r + len(relations) // 2]
            f, own = rows @ flat(q), o if side else s
            others = [f[v] for v in candidates[side] if v != own]
            ranks.append(1 + sum(x > f[own] for x in others) + sum(x == f[own] for x in others) / 2)
    ranks = np.array(ranks)
    return [(1 / ranks).mean(), *((ranks <= k).mean() for k in (1, 3, 10)), ranks.mean()]
