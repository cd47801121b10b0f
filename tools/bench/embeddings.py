"""embeddings.py: the training step, an epoch, and the ranks of graph embeddings (Marius and Legend)."""
import json
import math
import os
import random

import measure
from measure import BUILD, MARIUS, PENSTOCK, Unsound, epoch_seconds, output, real_data, run, settings, show, spread


def steps(size, model, d, turns):
    """Seconds of steps, and of the products alone that they need."""
    return json.loads(output([os.path.join(BUILD, "bench", "embed"), model, d, size.edges, size.chunks, size.negatives, size.vertices, turns]))


def embed(size):
    """The step against its products alone, 12 d n_t FLOPs a triple, which are measured in turn with it."""
    result = {}
    for model, dims in size.models:
        for d in dims:
            found = steps(size, model, d, size.pairs)
            step, small, unfused, products = (found[k] for k in ("step_s", "small_tiles_s", "unfused_s", "products_s"))
            label = f"{model}, d = {d}"
            rates = spread([size.edges / s for s in step])
            ratios = spread([s / p for s, p in zip(step, products)])
            tiles = spread([u / s for u, s in zip(small, step)])
            fused = spread([u / s for u, s in zip(unfused, step)])
            show(f"{label}, one thread", rates, "triples/s")
            show(f"{label}: step / products", ratios, "", "<= 1.8")
            show(f"{label}: tiles of 128 edges / large tiles", tiles)
            show(f"{label}: unfused / fused", fused)
            flops = 12 * d * size.negatives * size.edges
            print(f"  {label}: products {flops / min(products) * 1e-9:.1f} GFLOP/s", flush=True)
            result[label] = {"triples_per_s": rates, "step_over_products": ratios, "small_over_large_tiles": tiles, "unfused_over_fused": fused, **found}
    return result


def random_triples(size):
    """A folder of random triples, for `penstock import triples`."""
    folder, rng = os.path.join(measure.SCRATCH, "triples"), random.Random(1)
    os.makedirs(folder)
    for part, edges in (("train", size.train), ("valid", 1), ("test", 1)):
        with open(os.path.join(folder, part + ".tsv"), "w", encoding="utf-8") as f:
            f.writelines(f"{rng.randrange(size.vertices)}\t{rng.randrange(2)}\t{rng.randrange(size.vertices)}\n" for _ in range(edges))
    return folder


def knowledge_graph(size):
    data = os.path.join(measure.SCRATCH, size.graph or "random")
    source = size.graph and real_data(size.graph)
    if not os.path.exists(os.path.join(data, "dataset.json")):
        output([PENSTOCK, "import", "triples", source or random_triples(size), data, "--quiet"])
    return data


def embed_epoch(size):
    """An epoch of marius.json, in which one thread computes, against 12 d n_t FLOPs a triple at the rate of the products of a
    batch, measured right after it."""
    data = knowledge_graph(size)
    args = settings(params_batch=size.edges, params_chunks=size.chunks, params_negatives=size.negatives, params_dim=size.dim, params_threads=1,
                    store__evaluate="never")
    seconds, floors = [], []
    for _ in range(size.pairs):
        report = run(data, *args, epochs=size.epochs, pipeline=MARIUS)
        losses = [e["loss"] for e in report["epochs"]]
        if any(e["edges"] != size.train for e in report["epochs"]) or not all(map(math.isfinite, losses)) or losses[-1] >= losses[0]:
            raise Unsound(f"expected {size.train} edges in each epoch and a loss that falls, found {report['epochs']}")
        seconds.append(epoch_seconds(report))
        floors.append(min(steps(size, "complex", size.dim, size.turns)["products_s"]) * size.train / size.edges)
    over = spread([s / f for s, f in zip(seconds, floors)])
    show(f"ComplEx, d = {size.dim}, epoch", spread(seconds), "s")
    show("epoch", spread([size.train / s for s in seconds]), "triples/s")
    show("epoch / floor", over, "", "<= 1.8")
    return {"epoch_s": seconds, "floor_s": floors, "epoch_over_floor": over}


def ranks(size):
    """Exact filtered ranks among all vertices, in blocks, against the one product that they need."""
    result = {}
    for d in size.dims:
        for blocks in size.blocks:
            found = json.loads(output([os.path.join(BUILD, "bench", "ranks"), d, size.vertices, size.queries, blocks, size.pairs]))
            label = f"d = {d}, {blocks} block{'s' if blocks > 1 else ''}"
            ratios = spread([r / p for r, p in zip(found["ranks_s"], found["product_s"])])
            show(f"{label}, one thread", spread([size.queries / r for r in found["ranks_s"]]), "ranks/s")
            show(f"{label}: ranks / product", ratios, "", "<= 2.5")
            result[label] = {"ranks_over_product": ratios, **found}
    return result
