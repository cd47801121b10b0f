"""embeddings.py: the training step and the ranks of graph embeddings (Marius and Legend)."""
import json
import os

from measure import BUILD, output, show, spread


def embed(size):
    """The step against its products alone, 12 d n_t FLOPs a triple, which are measured in turn with it."""
    result = {}
    for model, dims in size.models:
        for d in dims:
            found = json.loads(output([os.path.join(BUILD, "bench", "embed"), model, d, size.edges, size.chunks, size.negatives,
                                       size.vertices, size.pairs]))
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
