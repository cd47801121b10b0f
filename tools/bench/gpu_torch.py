"""gpu_torch.py DATASET [BATCH EPOCHS]: GraphSAGE in plain PyTorch on one GPU that holds everything, to compare with an epoch of
ours (gpu_epoch.py). Prints one line of JSON. Sampling is with replacement, so each vertex has exactly `fanout` neighbours and
the mean needs no index: that is less work than ours. Two layers, hidden 256, fanout 10 and 5, dropout 0.5, Adam, float32."""
import json
import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

FANOUTS, HIDDEN, DROPOUT = (10, 5), 256, 0.5


def load(folder):
    with open(os.path.join(folder, "dataset.json")) as f:
        about = json.load(f)
    arrays = {name: torch.from_numpy(np.load(os.path.join(folder, name + ".npy"))).cuda() for name in ("indptr", "indices", "features", "labels", "train")}
    arrays["features"] = arrays["features"][:, :about["feature_dim"]].contiguous()
    return arrays, about


class Layer(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own, self.far = torch.nn.Linear(inputs, outputs), torch.nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, rows, neighbours, found):
        mean = x[neighbours].mean(1) * found  # of neighbours(rows, fanout)
        return self.own(x[:rows]) + self.far(mean)


def blocks(data, seeds):
    """Vertices of the batch, seeds first; for each hop the positions of neighbours, and 0 where a vertex has none."""
    vertices, hops = seeds, []
    for fanout in FANOUTS:
        begin = data["indptr"][vertices]
        degree = data["indptr"][vertices + 1] - begin
        draw = (torch.rand(len(vertices), fanout, device="cuda") * degree[:, None]).long()
        edges = (begin[:, None] + draw).clamp_(max=len(data["indices"]) - 1)
        drawn = data["indices"][edges].long().flatten()
        every, place = torch.unique(torch.cat([vertices, drawn]), return_inverse=True)
        first = torch.full((len(every),), len(place), device="cuda").scatter_reduce_(0, place, torch.arange(len(place), device="cuda"), "amin")
        order = torch.argsort(first)  # vertices of the last hop come first, and keep their places
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(order), device="cuda")
        hops.append((len(vertices), rank[place[len(vertices):]].view(-1, fanout), (degree > 0).float()[:, None]))
        vertices = every[order]
    return vertices, hops


def main():
    data, about = load(sys.argv[1])
    batch, epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 1024, int(sys.argv[3]) if len(sys.argv) > 3 else 6
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    layers = torch.nn.ModuleList([Layer(about["feature_dim"], HIDDEN), Layer(HIDDEN, about["classes"])]).cuda()
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.01, weight_decay=5e-4, fused=True)
    seconds, losses = [], []
    for _ in range(epochs):
        torch.cuda.synchronize()
        start, total = time.perf_counter(), torch.zeros((), device="cuda")
        for seeds in torch.split(data["train"][torch.randperm(len(data["train"]), device="cuda")].long(), batch):
            vertices, hops = blocks(data, seeds)
            x = data["features"][vertices]
            for layer, (rows, neighbours, found) in zip(layers, reversed(hops)):
                x = layer(x, rows, neighbours, found)
                if layer is layers[0]:
                    x = F.dropout(F.relu_(x), DROPOUT)
            loss = F.cross_entropy(x, data["labels"][seeds].long())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(seeds)
        losses.append(total.item() / len(data["train"]))  # waits
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"torch": torch.__version__, "epoch_s": sorted(seconds[1:])[len(seconds[1:]) // 2], "all_s": seconds, "losses": losses}))


if __name__ == "__main__":
    main()
