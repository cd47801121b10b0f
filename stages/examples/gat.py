#!/usr/bin/env python3
"""gat: trains a GAT of PyTorch Geometric's layers, and evaluates it on the sampled batches of the input `val`."""
import penstock

stage = penstock.Stage("gat", "trains a GAT by PyTorch Geometric", inputs=("batch", "val"), dataset="features,labels", params={
    "hidden": 8, "heads": 8, "dropout": 0.5, "rate": 0.005, "weight_decay": 5e-4})
with stage:
    import torch
    from torch.nn import functional as F
    from torch_geometric.nn import GATConv

    class Gat(torch.nn.Module):
        def __init__(self, dim, classes, hidden, heads, dropout, **_):
            super().__init__()
            self.convs = torch.nn.ModuleList([GATConv(dim, hidden, heads), GATConv(hidden * heads, classes, heads, concat=False)])
            self.dropout = dropout

        def forward(self, batch):
            x = batch.x.float()
            for k, (hop, conv) in enumerate(zip(batch.layers, self.convs)):
                x = conv((x, x[:hop.targets]), hop.edge_index)
                x = F.dropout(F.elu(x), self.dropout, self.training) if k == 0 else x
            return x

    torch.manual_seed(stage.seed)
    model = Gat(stage.dataset.feature_dim, stage.dataset.classes, **vars(stage.params))
    adam = torch.optim.Adam(model.parameters(), lr=stage.params.rate, weight_decay=stage.params.weight_decay)
    for epoch in stage.each_epoch():
        row = {"loss": 0.0}
        for port, name in (("batch", "train_accuracy"), ("val", "val_accuracy")):
            model.train(port == "batch")
            hits = seen = 0
            for batch in stage.epoch(port):
                t = batch.torch()
                out = model(t)
                seen, hits = seen + t.batch_size, hits + (out.argmax(1) == t.y).sum().item()
                if model.training:
                    loss = F.cross_entropy(out, t.y, reduction="sum")
                    row["loss"] += loss.item()
                    (loss / batch.batch_seeds).backward()
                    if batch.last_micro:
                        adam.step(), adam.zero_grad()
            row["loss"] /= seen if port == "batch" else 1
            row[name] = hits / max(seen, 1)
        stage.report_epoch(epoch, **row)
