#!/usr/bin/env python3
"""graphsage: trains GraphSAGE (mean) with PyTorch, and evaluates it on the sampled batches of the input `val`."""
import penstock

stage = penstock.Stage("graphsage", "trains GraphSAGE with PyTorch", inputs=("batch", "val"), dataset="features,labels", params={
    "layers": {"default": 2, "min": 1, "equals": "count(batch.fanout)"}, "hidden": 64, "dropout": 0.5, "rate": 0.01, "weight_decay": 5e-4})
with stage:
    import torch
    from torch.nn import functional as F

    p, dataset = stage.params, stage.dataset
    widths = [dataset.feature_dim] + [p.hidden] * (p.layers - 1) + [dataset.classes]
    first = lambda k, i, o: torch.from_numpy(penstock.glorot(stage.seed, k, i, o)).requires_grad_()  # as the native trainer
    layers = [(first(3 * k, i, o), first(3 * k + 1, i, o), torch.zeros(o, requires_grad=True))
              for k, (i, o) in enumerate(zip(widths, widths[1:]))]
    adam = torch.optim.Adam([w for layer in layers for w in layer], lr=p.rate, weight_decay=p.weight_decay)

    def model(batch, training):
        x = batch.x.float()
        for k, (hop, (own, neighbours, bias)) in enumerate(zip(batch.layers, layers)):
            mean = F.embedding_bag(hop.indices, x, hop.indptr, mode="mean", include_last_offset=True)
            x = x[:hop.targets] @ own + mean @ neighbours + bias
            x = F.dropout(x.relu(), p.dropout, training) if k + 1 < p.layers else x
        return x

    def go(port, training):
        loss, hits, seen = 0.0, 0, 0
        for batch, t in ((batch, batch.torch()) for batch in stage.epoch(port)):
            out = model(t, training)
            part = F.cross_entropy(out, t.y, reduction="sum")
            loss, hits, seen = loss + part.item(), hits + (out.argmax(1) == t.y).sum().item(), seen + t.batch_size
            if training:
                (part / batch.batch_seeds).backward()
            if training and batch.last_micro:
                adam.step(), adam.zero_grad()
        return {"loss": loss / max(seen, 1), "accuracy": hits / max(seen, 1)}

    for epoch in stage.each_epoch():
        train, val = go("batch", True), go("val", False)
        stage.report_epoch(epoch, loss=train["loss"], train_accuracy=train["accuracy"], val_accuracy=val["accuracy"])
