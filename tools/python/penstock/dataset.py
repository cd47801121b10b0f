"""A dataset directory as NumPy memory maps."""
import json
import os

VERSIONS = range(1, 10)


class FormatError(ValueError):
    """A file is not what it claims to be; the text says which, what was expected and what was found."""


class StripedRows:
    """Rows that lie in several files, row v in file v mod n: what a (rows, columns) array gives when it is indexed.

    A slice or an array of rows is a copy of those rows, a number one row; columns may follow, as in rows[3:9, :2].
    """

    def __init__(self, stripes, columns):
        self._stripes = stripes
        self.dtype, self.ndim = stripes[0].dtype, 2
        self.shape = (sum(len(s) for s in stripes), columns)

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, key):
        import numpy as np
        rows, *columns = key if isinstance(key, tuple) else (key,)
        ids = np.arange(self.shape[0])[rows]
        if ids.ndim > 1:
            raise IndexError("expected a row, a slice of rows or a list of them")
        out = np.empty((ids.size, self.shape[1]), self.dtype)
        for k, stripe in enumerate(self._stripes):
            mine = np.flatnonzero(np.atleast_1d(ids) % len(self._stripes) == k)
            out[mine] = stripe[np.atleast_1d(ids)[mine] // len(self._stripes), :self.shape[1]]
        out = out if ids.ndim else out[0]
        return out[(slice(None),) * ids.ndim + tuple(columns)] if columns else out

    def __array__(self, dtype=None, copy=None):
        import numpy as np
        return np.asarray(self[:], dtype=dtype)


class Dataset:
    """Arrays are mapped read-only when they are asked for; nothing is copied but what a method says.

    indptr, indices: CSC; indices[indptr[v]:indptr[v + 1]] are v's in-neighbours. features: (vertices, feature_dim)
    without the padding, None where there are none, StripedRows where they are in several files; bfloat16 comes as uint16, see features_float32. labels: -1 is none.
    train, val, test: ids. relations, triples_train, ids, ...: as dataset.json has them. vertex_types: name to (first,
    end) of its ids; edge_types: (name, source, target) by relation; both empty where all are of one type.
    """

    def __init__(self, directory):
        self.directory = os.fspath(directory)
        path = os.path.join(self.directory, "dataset.json")
        with open(path, encoding="utf-8") as f:
            try:
                self.manifest = json.load(f)
            except ValueError as e:
                raise FormatError(f"{path}: expected JSON: {e}") from None
        version = self.manifest.get("penstock_dataset") if isinstance(self.manifest, dict) else None
        if version not in VERSIONS:
            raise FormatError(f"{path}: penstock_dataset: expected a format version from {VERSIONS[0]} to {VERSIONS[-1]}, found {version}")
        self.name = self.manifest["name"]
        self.vertices, self.edges = self.manifest["vertices"], self.manifest["edges"]
        self.feature_dim, self.classes = self.manifest["feature_dim"], self.manifest["classes"]
        self.relation_types = self.manifest.get("relation_types", 0)
        self.edge_types = [(t["name"], t["source"], t["target"]) for t in self.manifest.get("edge_types", [])]
        self.vertex_types, end = {}, 0
        for t in self.manifest.get("vertex_types", []):
            self.vertex_types[t["name"]] = (end, end + t["vertices"])
            end += t["vertices"]
        self._mapped = {}
        stripes = self.manifest["stripes"]
        self._stripes = stripes if len(stripes) > 1 else []

    @property
    def splits(self):
        """The names of the splits, if there are several; train, val and test are the first one's."""
        return [s["name"] for s in self.manifest.get("splits", [])]

    def split(self, name):
        """A named split: its train, val and test ids, None where it has no such part."""
        k = self.splits.index(name)
        entries = self.manifest["arrays"] if k == 0 else self.manifest["splits"][k]
        return tuple(self._map(entries.get(part)) for part in ("train", "val", "test"))

    def features_of(self, vertex_type):
        """The features of one type of vertices, without the padding; None: it has none."""
        t = {t["name"]: t for t in self.manifest.get("vertex_types", [])}[vertex_type]
        return self._map(t["features"])[:, :t["feature_dim"]] if "features" in t else None

    def array(self, name):
        """The array called so in dataset.json, as it is stored; None: there is none (features in stripes: see features)."""
        return self._map(self.manifest["arrays"].get(name))

    def _map(self, entry):
        import numpy as np
        if entry is None:
            return None
        if entry["file"] not in self._mapped:
            path = os.path.join(self.directory, entry["file"])
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
            if entry["dtype"] == "bfloat16":
                mapped = mapped.view(np.uint16)
            elif mapped.dtype != np.dtype(entry["dtype"]):
                raise FormatError(f"{path}: expected dtype {entry['dtype']}, as in dataset.json, found {mapped.dtype}")
            if list(mapped.shape) != entry["shape"]:
                raise FormatError(f"{path}: expected shape {entry['shape']}, as in dataset.json, found {list(mapped.shape)}")
            self._mapped[entry["file"]] = mapped
        return self._mapped[entry["file"]]

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        if name == "features":
            if self._stripes:
                return StripedRows([self._map(entry) for entry in self._stripes], self.feature_dim)
            stored = self.array("features")
            return None if stored is None else stored[:, :self.feature_dim]
        known = ("indptr", "indices", "labels", "train", "val", "test", "relations", "triples_train", "triples_val",
                 "triples_test", "ids", "edges_train", "edges_val", "edges_test", "negatives_val", "negatives_test",
                 "multilabels", "edge_weights", "targets", "edge_times", "vertex_times", "old_ids")
        if name in known:
            return self.array(name)
        raise AttributeError(name)

    def in_neighbours(self, vertex):
        return self.indices[self.indptr[vertex]:self.indptr[vertex + 1]]

    def features_float32(self, rows=slice(None)):
        """A copy of some rows' features as float32, whatever they are stored as."""
        import numpy as np
        stored = self._stripes[0] if self._stripes else self.manifest["arrays"]["features"]
        if stored["dtype"] != "bfloat16":
            return np.asarray(self.features[rows], dtype=np.float32)
        return (self.features[rows].astype(np.uint32) << 16).view(np.float32)

    def edge_index(self):
        """A copy of the edges as (2, edges): sources, then targets."""
        import numpy as np
        targets = np.repeat(np.arange(self.vertices, dtype=self.indices.dtype), np.diff(self.indptr))
        return np.stack([self.indices, targets])

    def name_of(self, vertex):
        """What the source called a vertex: text, a number, or the vertex itself where it was that."""
        return self._name("names", vertex, self.ids if self.ids is not None else self.old_ids)

    def relation_name(self, relation):
        return self._name("relation_names", relation, None)

    def _name(self, which, k, ids):
        at, text = self.array(which + "_at"), self.array(which)
        if at is not None:
            return bytes(text[at[k]:at[k + 1]]).decode("utf-8")
        return int(ids[k]) if ids is not None else int(k)


def open_dataset(directory):
    return Dataset(directory)
