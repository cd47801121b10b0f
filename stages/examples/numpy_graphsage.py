#!/usr/bin/env python3
"""numpy_graphsage: trains GraphSAGE (mean) with NumPy alone, keeps checkpoints, and validates on the input `val`."""
import penstock

stage = penstock.Stage("numpy_graphsage", "trains GraphSAGE with NumPy", inputs=("batch", "val"), dataset="features,labels", params={
    "layers": {"default": 2, "min": 1, "equals": "count(batch.fanout)"}, "hidden": 64, "rate": 0.01})
with stage:
    import numpy as np

    p, dataset = stage.params, stage.dataset
    widths = [dataset.feature_dim] + [p.hidden] * (p.layers - 1) + [dataset.classes]
    w = [tensor for k, (i, o) in enumerate(zip(widths, widths[1:]))  # as the native trainer begins
         for tensor in (penstock.glorot(stage.seed, 3 * k, i, o), penstock.glorot(stage.seed, 3 * k + 1, i, o), np.zeros(o, np.float32))]
    state = [*w, *(np.zeros_like(t) for t in w + w), steps := np.zeros((), np.int64)]  # weights, both moments of Adam
    stage.checkpoints(lambda file: np.savez(file, *state), lambda file: [np.copyto(t, s) for t, s in zip(state, np.load(file).values())])

    def forward(batch):
        x, kept = batch.features.astype(np.float32), []
        for k, (indptr, indices) in enumerate(reversed(list(zip(batch.indptr, batch.indices)))):
            degree = np.diff(indptr)[:, None]
            sums = np.add.reduceat(np.vstack([x[indices], np.zeros((1, x.shape[1]), x.dtype)]), indptr[:-1]) * (degree > 0)
            kept.append((x, mean := sums / np.maximum(degree, 1), indices, degree))
            x = x[:len(degree)] @ w[3 * k] + mean @ w[3 * k + 1] + w[3 * k + 2]
            x = np.maximum(x, 0) if k + 1 < p.layers else x
        scores = np.exp(x - x.max(1, keepdims=True))
        return scores / scores.sum(1, keepdims=True), kept

    def backward(d, kept):
        for k, (x, mean, indices, degree) in reversed(list(enumerate(kept))):
            yield from ((3 * k, x[:len(d)].T @ d), (3 * k + 1, mean.T @ d), (3 * k + 2, d.sum(0)))
            if k > 0:  # to the vertices, and through their ReLU
                to_mean, dx = d @ w[3 * k + 1].T / np.maximum(degree, 1), np.zeros_like(x)
                dx[:len(d)] = d @ w[3 * k].T
                np.add.at(dx, indices, np.repeat(to_mean, degree[:, 0], axis=0))
                d = dx * (x > 0)

    gradients = [np.zeros_like(t) for t in w]
    for epoch in stage.each_epoch():
        loss, hits, seen = 0.0, {}, {}
        for port in ("batch", "val"):
            for batch in stage.epoch(port):
                shares, kept = forward(batch)
                hits[port], seen[port] = hits.get(port, 0) + (shares.argmax(1) == batch.labels).sum(), seen.get(port, 0) + batch.n[0]
                if port == "val":
                    continue
                loss -= np.log(shares[np.arange(batch.n[0]), batch.labels]).sum()
                shares[np.arange(batch.n[0]), batch.labels] -= 1
                for k, g in backward(shares / batch.batch_seeds, kept):
                    gradients[k] += g
                if batch.last_micro:
                    steps += 1
                    for t, g, m, v in zip(w, gradients, state[len(w):], state[2 * len(w):]):
                        m[:], v[:] = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
                        t -= p.rate * (m / (1 - 0.9 ** steps)) / (np.sqrt(v / (1 - 0.999 ** steps)) + 1e-8)
                        g[:] = 0
        stage.report_epoch(epoch, loss=loss / seen["batch"], train_accuracy=hits["batch"] / seen["batch"], val_accuracy=hits["val"] / seen["val"])
