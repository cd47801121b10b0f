"""The native trainer's first weights, so that a model elsewhere begins at the same point: common/util/rng.h in NumPy."""

INIT = 4  # PST_RNG_INIT


def _philox(counter, key):
    """Philox4x32-10 (Salmon et al., SC 2011, section 3.3). counter: four uint64 arrays or numbers below 2^32."""
    import numpy as np
    low = np.uint64(0xFFFFFFFF)
    c, key = [np.asarray(word, np.uint64) for word in counter], list(key)
    for _ in range(10):
        p, q = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [q >> np.uint64(32) ^ c[1] ^ np.uint64(key[0]), q & low, p >> np.uint64(32) ^ c[3] ^ np.uint64(key[1]), p & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def glorot(seed, tensor, rows, cols):
    """The native model's tensor of this number as it begins: float32, (rows, cols), uniform in +-sqrt(6 / (rows + cols))
    (Glorot and Bengio 2010). Rows are inputs, so PyTorch's Linear takes the transpose.

    GraphSAGE's tensors are, layer by layer: weight_self, weight_neigh, bias (which begins at 0).
    """
    import numpy as np
    k0, k1, salt, _ = (int(word) for word in _philox((0, 0, 0, INIT << 24 | tensor), (seed & 0xFFFFFFFF, seed >> 32)))
    item = np.arange((rows * cols + 3) // 4, dtype=np.uint64)
    words = np.stack(_philox((item & np.uint64(0xFFFFFFFF), item >> np.uint64(32), 0, salt), (k0, k1)), axis=1)
    unit = words.reshape(-1)[:rows * cols].astype(np.float64) / 2 ** 32
    return ((2 * unit - 1) * np.sqrt(6 / (rows + cols))).astype(np.float32).reshape(rows, cols)
