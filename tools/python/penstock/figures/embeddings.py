"""Graph embeddings out of core (Marius and Legend): the table of their figures, and their sizes.

Sizes: `sparse`, `dense` and `quality` are edges a vertex; partitions are (all, in memory).

The orders are compared on more vertices (`order_vertices`): between two exchanges there must be more batches than the
pipeline holds, as on the graphs of the paper."""
from . import embeddings_orders, embeddings_pipeline
from .report import Paper

FULL = {
    "alternations": 3, "vertices": 32768, "relations": 8, "communities": 1024, "batch": 1000, "negatives": 100, "dim": 64, "epochs": 2,
    "sparse": 4, "dense": 40, "quality": 16, "quality_epochs": 5, "staleness_epochs": 3,
    "order_vertices": 131072, "order_partitions": (8, 16, 32, 64), "marius_partitions": (32, 8), "legend_partitions": (8, 3), "staleness": (1, 2, 4, 8, 16),
    "buffers": {"marius": ((2, 8), (3, 8), (4, 8)), "legend": ((3, 12), (3, 8), (3, 6))},
}

SMALLEST = {
    "alternations": 1, "vertices": 2048, "relations": 2, "communities": 4, "batch": 500, "negatives": 20, "dim": 8, "epochs": 2,
    "sparse": 2, "dense": 4, "quality": 4, "quality_epochs": 2, "staleness_epochs": 2,
    "order_vertices": 2048, "order_partitions": (12,), "marius_partitions": (5, 3), "legend_partitions": (5, 3), "staleness": (1, 8),
    "buffers": {"marius": ((3, 5),), "legend": ((3, 5),)},
}

FIGURES = (*embeddings_orders.FIGURES, *embeddings_pipeline.FIGURES, *embeddings_pipeline.LEGEND_FIGURES, *embeddings_orders.LEGEND_FIGURES)
PAPER = Paper("embeddings", "Marius and Legend, measured again in shape", FIGURES, FULL, SMALLEST)
