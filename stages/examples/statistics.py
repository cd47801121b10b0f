#!/usr/bin/env python3
"""statistics: reports how many edges and vertices the batches have, hop by hop."""
import penstock

with penstock.Stage("statistics", "reports the mean numbers of sampled edges and vertices", forwards="done") as stage:
    batches, edges, vertices = 0, 0, 0
    for batch in stage:
        batches += batch.last_micro
        edges += sum(len(indices) for indices in batch.indices)
        vertices += batch.n[-1]
    stage.report("statistics", batches=batches, edges=edges, vertices=vertices)
