"""Every format against every kind of bad input: each cell is a refusal with its place, a repair that is told, or something
that is kept as it is; a cell that cannot be says why. What the other import tests look at closely is here for all."""
import io
import pickle
import sys
import types

from harness import *
from importing import *

os.environ["PENSTOCK_PYTHON"] = sys.executable
KINDS = ("truncated", "corrupted", "mis-shaped", "mis-typed", "crlf", "bom", "empty", "non-utf-8", "id-gap", "duplicate",
         "self-loop", "out-of-range")
TWICE = EDGES + [(0, 1)]
LOOP = EDGES + [(2, 2)]
GAP = [(0, 1), (0, 2), (5, 1)]
FAR = [(0, 1), (0, 2), (4, 1)]  # of four vertices
ROWS_TWICE, ROWS_LOOP, ROWS_GAP = [[], [0, 0, 3], [0], []], [[], [0, 3], [0, 2], []], [[], [0, 5], [0], [], [], []]
REMOVED = "duplicates removed: 1, self loops removed: 0"
LOOPS = "duplicates removed: 0, self loops removed: 1"


class Cell:
    """edits: how the good source is changed; then either refused with `expect`, or imported to `rows` and told `expect`."""
    def __init__(self, *edits, expect="", rows=None, args=(), code=2, make={}):
        self.edits, self.expect, self.rows, self.args, self.code, self.make = edits, expect, rows, args, code, make


def no(reason):
    return reason


def cut(name, n):
    return name, lambda data: data[:-n]


def sub(name, old, new, count=1):
    def edit(data):
        assert old in data, (name, old, data[:200])
        return data.replace(old, new, count)
    return name, edit


def put(name, data):
    return name, lambda _: data


def front(name, data):
    return name, lambda old: data + old


def npy(value, fortran=False):
    out = io.BytesIO()
    np.save(out, value if fortran else np.ascontiguousarray(value))
    return out.getvalue()


def npz(**members):
    out = io.BytesIO()
    np.savez(out, **{k: np.ascontiguousarray(v) for k, v in members.items()})
    return out.getvalue()


def keeps(**make):
    """What every format but those that cannot have it does with duplicates and loops."""
    return {"duplicate": (Cell(make={"edges": TWICE}, rows=ROWS_TWICE), Cell(make={"edges": TWICE}, rows=ROWS, args=("--dedupe",), expect=REMOVED)),
            "self-loop": (Cell(make={"edges": LOOP}, rows=ROWS_LOOP),
                          Cell(make={"edges": LOOP}, rows=ROWS, args=("--self-loops", "remove"), expect=LOOPS))}


# A binary file that went through a program which took it for text.
def as_text(name, expect):
    return {"crlf": Cell((name, lambda d: d.replace(b"\n", b"\r\n")), expect=expect), "bom": Cell(front(name, b"\xef\xbb\xbf"), expect=expect)}


# ---- lists of edges ----

def text_format(separator):
    sep = separator.encode()

    def make(edges=EDGES, n=4):
        return {"e": "".join(f"{a}{separator}{b}\n" for a, b in edges)}, "e"
    one = "e:3: byte 2: expected at least 2 columns"
    return make, {
        "truncated": (Cell(cut("e", 3), expect=one), Cell(put("e", gzip.compress(b"0 1\n" * 99)[:-4]), expect="truncated")),
        "corrupted": Cell(sub("e", sep + b"2", sep + b"2x"), expect="e:2: byte 4: expected the end of an id, found 'x'"),
        "mis-shaped": Cell(put("e", b"0\n1\n"), expect="e:1: byte 2: expected at least 2 columns"),
        "mis-typed": Cell(sub("e", sep + b"2", sep + b"2.5"), expect="e:2: byte 4: expected the end of an id, found '.5'"),
        "crlf": Cell(("e", lambda d: d.replace(b"\n", b"\r\n")), rows=ROWS, expect="3 lines end with CR LF"),
        "bom": Cell(front("e", b"\xef\xbb\xbf"), rows=ROWS, expect="byte order mark"),
        "empty": Cell(put("e", b""), expect="expected edges, but none of its"),
        "non-utf-8": (Cell(sub("e", sep + b"2", sep + b"\xff"), expect="e:2: byte 3: expected an id, an integer of at most 18 digits, found '\\xff'"),
                      Cell(sub("e", sep + b"2", sep + b"\xff"), args=("--ids", "strings", "--header", "no"), expect="e:2: byte 3: expected UTF-8")),
        "id-gap": (Cell(make={"edges": GAP}, rows=ROWS_GAP, expect="2 ids are never used"),
                   Cell(make={"edges": GAP}, rows=[[], [0, 3], [0], []], args=("--ids", "compact"))),
        "out-of-range": Cell(make={"edges": FAR}, args=("--vertices", 4), expect="e:3: byte 1: expected an id from 0 to 3, found '4"),
        **keeps()}


def triples(edges=EDGES, n=4):
    line = "".join(f"v{a}\tr\tv{b}\n" for a, b in edges)
    return {"g/train.txt": line}, "g"


# Names are numbered as they come: v0, v1, v2, v3.
TRIPLES = triples, {
    "truncated": Cell(cut("g/train.txt", 4), expect="train.txt:3: byte 5: expected three columns"),
    "corrupted": Cell(sub("g/train.txt", b"v0\tr\tv2", b"v0\tr\t\x00v2"), expect="train.txt:2: byte 6: expected UTF-8 text"),
    "mis-shaped": Cell(sub("g/train.txt", b"v0\tr\tv2", b"v0\tr\tv2\t1"), expect="train.txt:2: byte 8: expected the line's end after three columns"),
    "mis-typed": no("any text is a name"),
    "crlf": Cell(("g/train.txt", lambda d: d.replace(b"\n", b"\r\n")), rows=ROWS, expect="3 lines end with CR LF"),
    "bom": Cell(front("g/train.txt", b"\xef\xbb\xbf"), rows=ROWS, expect="byte order mark"),
    "empty": Cell(put("g/train.txt", b""), expect="train.txt: expected triples, but the file has none"),
    "non-utf-8": Cell(sub("g/train.txt", b"v2", b"v\xe9"), expect="train.txt:2: byte 7: expected UTF-8 text, found '\\xe9'"),
    "id-gap": Cell(put("g/test.txt", b"v9\tr\tv1\n"), rows=[*ROWS, []], expect="1 entities occur only in valid or test"),
    "out-of-range": no("names have no range"), **keeps()}


def openke(edges=EDGES, n=4):
    return {"g/entity2id.txt": f"{n}\n" + "".join(f"e{k}\t{k}\n" for k in range(n)), "g/relation2id.txt": "1\nr\t0\n",
            "g/train2id.txt": f"{len(edges)}\n" + "".join(f"{a} {b} 0\n" for a, b in edges)}, "g"


OPENKE = openke, {
    "truncated": (Cell(cut("g/train2id.txt", 4), expect="train2id.txt:4: byte 3: expected an entity from 0 to 3"),
                  Cell(cut("g/train2id.txt", 6), expect="the first line announces 3 triples, but the file has 2")),
    "corrupted": Cell(sub("g/train2id.txt", b"0 2 0", b"0 2# 0"), expect="train2id.txt:3: byte 4: expected a relation"),
    "mis-shaped": Cell(sub("g/train2id.txt", b"0 2 0", b"0 2"), expect="train2id.txt:3: byte 4: expected a relation"),
    "mis-typed": Cell(sub("g/train2id.txt", b"0 2 0", b"0 e2 0"), expect="train2id.txt:3: byte 3: expected an entity from 0 to 3, found 'e2 0'"),
    "crlf": (Cell(("g/train2id.txt", lambda d: d.replace(b"\n", b"\r\n")), rows=ROWS, expect="3 lines end with CR LF"),
             Cell(("g/entity2id.txt", lambda d: d.replace(b"\n", b"\r\n")), rows=ROWS, expect="entity2id.txt: 5 lines end with CR LF")),
    "bom": (Cell(front("g/train2id.txt", b"\xef\xbb\xbf"), rows=ROWS, expect="byte order mark"), Cell(front("g/entity2id.txt", b"\xef\xbb\xbf"), rows=ROWS, expect="entity2id.txt: a byte order mark was skipped")),
    "empty": (Cell(put("g/train2id.txt", b""), expect="expected triples, but the file has none"), Cell(put("g/entity2id.txt", b""), expect="entity2id.txt: expected a first line with the number of names, found an empty file")),
    "non-utf-8": Cell(sub("g/entity2id.txt", b"e2", b"\xe92"), expect="entity2id.txt:4: byte 1: expected UTF-8 text"),
    "id-gap": Cell(sub("g/entity2id.txt", b"e2\t2", b"e2\t7"), expect="entity2id.txt:4: byte 4: expected a number from 0 to 3 that no other name has, found '7'"),
    "out-of-range": Cell(make={"edges": FAR}, expect="train2id.txt:4: byte 1: expected an entity from 0 to 3, found '4 1 0'"), **keeps()}


# ---- arrays ----

def npy_dir(edges=EDGES, n=4):
    return {"g/edges.npy": npy(np.array(edges).T), "g/labels.npy": npy(np.arange(n) % 3), "g/meta.json": '{"name": "m", "num_nodes": %d}' % n}, "g"


def array_cells(name, shape_error):
    return {"truncated": Cell(cut(name, 4), expect="the file is truncated"), "corrupted": Cell(front(name, b"x"), expect="byte 0: expected the signature of a .npy file, found something else"),
            "mis-shaped": Cell(put(name, npy(np.zeros((3, 3), int))), expect=shape_error),
            "mis-typed": (Cell(put(name, npy(np.array(EDGES).T.astype(float))), expect="expected integers (int8 to int64, uint8 to uint32), found float64"),
                          Cell(put(name, npy(np.array(EDGES).T.astype(">i8"))), expect="'>i8'")),
            "crlf": Cell((name, lambda d: d.replace(b"\n", b"\r\n")), expect="expected spaces and one newline at the header's end"),
            "bom": Cell(front(name, b"\xef\xbb\xbf"), expect="byte 0: expected the signature of a .npy file, found something else"),
            "empty": Cell(put(name, b""), expect="expected a .npy header, found only 0 bytes"),
            "id-gap": Cell(make={"edges": GAP, "n": 6}, rows=ROWS_GAP),
            "fortran": Cell(put(name, npy(np.array(EDGES).T, True)), rows=ROWS), "out-of-range": (Cell(make={"edges": FAR}, expect="source of edge 2: expected 0 to 3, found 4"),
                             Cell(make={"edges": [(0, 1), (-1, 0), (1, 1)]}, expect="source of edge 1: expected 0 to 3, found -1")), **keeps()}


NPY = npy_dir, {**array_cells("g/edges.npy", "edges.npy: expected shape (2, E) or (E, 2), found (3, 3): --edge-shape Ex3"),
                "non-utf-8": Cell(put("g/meta.json", b'{"name": "\xff"}'), expect="meta.json:1:")}


def igb(edges=EDGES, n=4):
    return {"g/processed/paper__cites__paper/edge_index.npy": npy(np.array(edges)), "g/processed/paper/node_label_19.npy": npy(np.arange(n) % 3)}, "g"


IGB = igb, {**array_cells("g/processed/paper__cites__paper/edge_index.npy", "IGB stores edges in shape Ex2, but this array has shape (3, 3)\n"),
            "non-utf-8": no("no file of it is text")}
IGB[1]["mis-shaped"] = (IGB[1]["mis-shaped"], Cell(put("g/processed/paper__cites__paper/edge_index.npy", npy(np.array(EDGES).T)), expect="IGB stores edges in shape Ex2"))
IGB[1]["fortran"] = Cell(put("g/processed/paper__cites__paper/edge_index.npy", npy(np.array(EDGES, order="F"), True)), rows=ROWS)
IGB[1]["mis-typed"] = Cell(put("g/processed/paper__cites__paper/edge_index.npy", npy(np.array(EDGES).astype(float))), expect="expected integers")


def mag(edges=EDGES, n=4):
    return {"g/processed/paper___cites___paper/edge_index.npy": npy(np.array(edges).T), "g/processed/paper/node_label.npy": npy(np.full(n, np.nan, np.float32))}, "g"


MAG = mag, {**array_cells("g/processed/paper___cites___paper/edge_index.npy", "MAG240M stores edges in shape 2xE, but this array has shape (3, 3)\n"), "non-utf-8": no("no file of it is text")}
MAG[1]["mis-shaped"] = (MAG[1]["mis-shaped"], Cell(put("g/processed/paper___cites___paper/edge_index.npy", npy(np.array(EDGES))), expect="MAG240M stores edges in shape 2xE"))


def graphbolt(edges=EDGES, n=4):
    text = "graph:\n  nodes: [{num: %d}]\n  edges: [{format: numpy, path: e.npy}]\n" % n
    return {"g/metadata.yaml": text, "g/e.npy": npy(np.array(edges).T)}, "g"


GRAPHBOLT = graphbolt, {**array_cells("g/e.npy", "GraphBolt stores edges in shape 2xE, but this array has shape (3, 3)\n")}
GRAPHBOLT[1].update({
    "mis-shaped": (GRAPHBOLT[1]["mis-shaped"], Cell(put("g/e.npy", npy(np.array(EDGES))), expect="GraphBolt stores edges in shape 2xE")),
    "truncated": (GRAPHBOLT[1]["truncated"], Cell(cut("g/metadata.yaml", 5), expect="metadata.yaml:")),
    "crlf": (GRAPHBOLT[1]["crlf"], Cell(("g/metadata.yaml", lambda d: d.replace(b"\n", b"\r\n")), rows=ROWS)),
    "bom": (GRAPHBOLT[1]["bom"], Cell(front("g/metadata.yaml", b"\xef\xbb\xbf"), rows=ROWS)),
    "empty": (GRAPHBOLT[1]["empty"], Cell(put("g/metadata.yaml", b""), expect="metadata.yaml:1:1: expected a map of keys")),
    "non-utf-8": Cell(sub("g/metadata.yaml", b"numpy", b"n\xff"), expect="metadata.yaml: byte ")})


# ---- archives ----

def csr(edges=EDGES, n=4):
    ordered = sorted(edges)
    indptr = np.searchsorted([a for a, _ in ordered], np.arange(n + 1)).astype(np.int32)
    return {"g.npz": npz(indptr=indptr, indices=np.array([b for _, b in ordered], np.int32), data=np.ones(len(edges)), shape=np.array([n, n]))}, "g.npz"


ARCHIVE = "expected a zip archive (.npz)"
NPZ = csr, {
    "truncated": Cell(cut("g.npz", 30), expect=ARCHIVE), "corrupted": Cell(sub("g.npz", b"\x93NUMPY", b"\x93NUMPX"), expect="with the checksum"),
    "mis-shaped": Cell(put("g.npz", npz(indptr=np.array([0, 1]), indices=np.array([1]), shape=np.array([4, 4]))), expect="indptr: expected 5 entries, found 2"),
    "mis-typed": Cell(put("g.npz", npz(indptr=np.arange(5.), indices=np.arange(4), shape=np.array([4, 4]))), expect="indptr: expected integers (int8 to int64, uint8 to uint32), found float64"),
    "empty": Cell(put("g.npz", b""), expect=ARCHIVE), "non-utf-8": no("names in it are fixed"),
    "crlf": Cell(("g.npz", lambda d: d.replace(b"\n", b"\r\n")), expect="g.npz: "), "bom": Cell(front("g.npz", b"\xef\xbb\xbf"), expect="g.npz: "),
    "id-gap": Cell(make={"edges": GAP, "n": 6}, rows=ROWS_GAP),
    "out-of-range": Cell(put("g.npz", npz(indptr=np.array([0, 1, 1, 1, 1]), indices=np.array([4]), shape=np.array([4, 4]))), expect="indices: entry 0: expected 0 to 3, found 4"), **keeps()}


def ogb(edges=EDGES, n=4):
    return {"g/raw/edge.csv.gz": "".join(f"{a},{b}\n" for a, b in edges), "g/raw/num-node-list.csv.gz": f"{n}\n", "g/raw/num-edge-list.csv.gz": f"{len(edges)}\n"}, "g"


OGB = ogb, {
    "truncated": (Cell(cut("g/raw/edge.csv.gz", 9), expect="truncated"), Cell(put("g/raw/edge.csv.gz", gzip.compress(b"0,1\n0,2\n")), expect="expected 3 edges, found 2")),
    "corrupted": Cell(put("g/raw/edge.csv.gz", gzip.compress(b"0,1\n0,2\n3,1\n")[:-8] + bytes(8)), expect="gzip data is damaged"),
    "mis-shaped": Cell(put("g/raw/edge.csv.gz", gzip.compress(b"0\n0\n3\n")), expect="edge.csv.gz:1: byte 2: expected at least 2 columns"),
    "mis-typed": Cell(put("g/raw/edge.csv.gz", gzip.compress(b"0,1\n0,2.0\n")), expect="edge.csv.gz:2: byte 4: expected the end of an id"),
    "crlf": Cell(put("g/raw/edge.csv.gz", gzip.compress(b"0,1\r\n0,2\r\n3,1\r\n")), rows=ROWS, expect="3 lines end with CR LF"),
    "bom": Cell(put("g/raw/edge.csv.gz", gzip.compress(b"\xef\xbb\xbf0,1\n0,2\n3,1\n")), rows=ROWS, expect="byte order mark"),
    "empty": (Cell(put("g/raw/edge.csv.gz", b""), expect="edge.csv.gz: expected 3 edges, found 0"), Cell(put("g/raw/num-node-list.csv.gz", gzip.compress(b"")), expect="num-node-list.csv.gz:1: expected a count")),
    "non-utf-8": Cell(put("g/raw/edge.csv.gz", gzip.compress(b"0,1\n\xe9,2\n")), expect="edge.csv.gz:2: byte 1: expected an id"),
    "id-gap": Cell(make={"edges": GAP, "n": 6}, rows=ROWS_GAP, expect="2 ids are never used"),
    "out-of-range": Cell(make={"edges": FAR}, expect="edge.csv.gz:3: byte 1: expected an id from 0 to 3"), **keeps()}


def ogb_npz(edges=EDGES, n=4):
    return {"g/raw/data.npz": npz(edge_index=np.array(edges).T, num_nodes_list=np.array([n]), num_edges_list=np.array([len(edges)]))}, "g"


def ogb_members(**change):
    base = dict(edge_index=np.array(EDGES).T, num_nodes_list=np.array([4]), num_edges_list=np.array([3])) | change
    return put("g/raw/data.npz", npz(**base))


OGB_NPZ = ogb_npz, {
    "truncated": Cell(cut("g/raw/data.npz", 30), expect=ARCHIVE), "corrupted": Cell(sub("g/raw/data.npz", b"\x93NUMPY", b"\x93NUMPX"), expect="with the checksum"),
    "mis-shaped": Cell(ogb_members(edge_index=np.array(EDGES)), expect="OGB stores edges in shape 2xE"),
    "mis-typed": Cell(ogb_members(edge_index=np.array(EDGES).T.astype(np.float32)), expect="data.npz (edge_index.npy): expected integers (int8 to int64, uint8 to uint32), found float32"),
    "crlf": Cell(("g/raw/data.npz", lambda d: d.replace(b"\n", b"\r\n")), expect="data.npz: "), "bom": Cell(front("g/raw/data.npz", b"\xef\xbb\xbf"), expect="data.npz: "),
    "empty": Cell(put("g/raw/data.npz", b""), expect=ARCHIVE), "non-utf-8": no("names in it are fixed"), "id-gap": Cell(make={"edges": GAP, "n": 6}, rows=ROWS_GAP),
    "out-of-range": Cell(make={"edges": FAR}, expect="data.npz (edge_index.npy): source of edge 2: expected 0 to 3, found 4"), **keeps()}


# ---- others ----

class Bits:
    """The codes of WebGraph's BVGraph (Boldi and Vigna, WWW 2004), most significant bit first."""
    def __init__(self):
        self.text = ""

    def unary(self, x):
        self.text += "0" * x + "1"

    def gamma(self, x):
        n = (x + 1).bit_length() - 1
        self.unary(n)
        self.text += bin(x + 1)[3:]

    def zeta(self, x, k=3):
        h = ((x + 1).bit_length() - 1) // k
        self.unary(h)
        left, m = 1 << h * k, x + 1
        if m - left < left:
            self.text += format(m - left, f"0{h * k + k - 1}b")
        else:
            self.text += format(m, f"0{h * k + k}b")

    def delta(self, x):
        n = (x + 1).bit_length() - 1
        self.gamma(n)
        self.text += bin(x + 1)[3:]

    def nibble(self, x):
        groups = [x & 7]
        while x := x >> 3:
            groups.append(x & 7)
        self.text += "".join(f"{int(k == 0)}{g:03b}" for k, g in reversed(list(enumerate(groups))))

    def golomb(self, x, b=3):
        self.unary(x // b)
        n = b.bit_length() - 1
        m, r = (2 << n) - b, x % b
        self.text += format(r, f"0{n}b") if r < m and n else format(r + m, f"0{n + 1}b") if r >= m else ""

    def bytes(self):
        text = self.text + "0" * (-len(self.text) % 8)
        return bytes(int(text[i:i + 8], 2) for i in range(0, len(text), 8))


def webgraph(edges=EDGES, n=4, code="zeta"):
    bits = Bits()
    for v in range(n):
        out = sorted(b for a, b in edges if a == v)
        bits.gamma(len(out))
        for k, b in enumerate(out):
            d = b - v if k == 0 else b - out[k - 1] - 1
            getattr(bits, code)((2 * d if d >= 0 else -2 * d - 1) if k == 0 else d)
    return {"g.properties": f"#BVGraph properties\nnodes={n}\narcs={len(edges)}\nwindowsize=0\nminintervallength=0\nzetak=3\ncompressionflags={'' if code == 'zeta' else 'RESIDUALS_' + code.upper()}\n"
            "graphclass=it.unimi.dsi.webgraph.BVGraph\nversion=0\n", "g.graph": bits.bytes()}, "g"


WEBGRAPH = webgraph, {
    "truncated": Cell(cut("g.graph", 2), expect="unexpected end of the graph: the file is truncated"),
    "corrupted": Cell(("g.graph", lambda d: bytes([d[0] ^ 0x70]) + d[1:]), expect="g.graph: node "),
    "mis-shaped": Cell(sub("g.properties", b"arcs=3", b"arcs=4"), expect="the .properties file announces 4 arcs, but the graph has 3"),
    "mis-typed": Cell(sub("g.properties", b"nodes=4", b"nodes=four"), expect="g.properties:2: "),
    "crlf": Cell(("g.properties", lambda d: d.replace(b"\n", b"\r\n")), rows=ROWS), "bom": Cell(front("g.properties", b"\xef\xbb\xbf"), rows=ROWS),
    "empty": (Cell(put("g.graph", b""), expect="unexpected end of the graph: the file is truncated"), Cell(put("g.properties", b""), expect="g.properties: nodes= or arcs= is missing")),
    "non-utf-8": Cell(sub("g.properties", b"#BVGraph", b"#\xe9"), rows=ROWS), "id-gap": Cell(make={"edges": GAP, "n": 6}, rows=ROWS_GAP),
    "duplicate": no("successors rise: a list cannot have one twice"), "self-loop": keeps()["self-loop"],
    "out-of-range": Cell(make={"edges": [(0, 1), (0, 2), (3, 4)]}, expect="g.graph: node 3, bit ")}


def named(module, name):
    """A class that pickles under another's name."""
    made = type(name, (), {"__module__": module, "__qualname__": name})
    parts = module.split(".")
    for k in range(len(parts)):
        sys.modules.setdefault(".".join(parts[:k + 1]), types.ModuleType(parts[k]))
    setattr(sys.modules[module], name, made)
    return made


CSR = named("scipy.sparse.csr", "csr_matrix")


def matrix(rows, columns):
    m = CSR()
    m.__dict__ = {"_shape": (rows, columns), "data": np.ones(rows, np.float32), "indices": np.arange(rows, dtype=np.int32) % columns,
                  "indptr": np.arange(rows + 1, dtype=np.int32)}
    return pickle.dumps(m, 2)


def planetoid(edges=EDGES, n=4):
    graph = {v: [b for a, b in edges if a == v] for v in range(max(n, 4))}
    one_hot = lambda rows: pickle.dumps(np.eye(3, dtype=np.int32)[:rows], 2)
    return {"ind.g.x": matrix(1, 2), "ind.g.y": one_hot(1), "ind.g.allx": matrix(3, 2), "ind.g.ally": one_hot(3), "ind.g.tx": matrix(1, 2),
            "ind.g.ty": one_hot(1), "ind.g.graph": pickle.dumps(graph, 2), "ind.g.test.index": "3\n"}, "ind.g"


PLANETOID = planetoid, {
    "truncated": Cell(cut("ind.g.graph", 5), expect="ind.g.graph: expected a pickle file of Planetoid: invalid data near byte"),
    "corrupted": Cell(sub("ind.g.allx", b"csr_matrix", b"csr_matrjx"), expect="ind.g.allx: the pickle refers to scipy.sparse.csr.csr_matrjx"),
    "mis-shaped": Cell(put("ind.g.ally", pickle.dumps(np.eye(3, dtype=np.int32)[:2], 2)), expect="ind.g: the numbers of rows in the files of features, of labels and in test.index do not fit together"),
    "mis-typed": (Cell(put("ind.g.graph", pickle.dumps([1, 2])), expect="ind.g.graph: expected dict, found list"),
                  Cell(put("ind.g.graph", pickle.dumps({0: ["a"]})), expect="ind.g.graph: vertex 0 has the neighbour 'a'")),
    "crlf": Cell(put("ind.g.test.index", b"3\r\n"), rows=ROWS), "bom": Cell(front("ind.g.test.index", b"\xef\xbb\xbf"), expect="ind.g.test.index:1: expected the number of a vertex, found "),
    "empty": (Cell(put("ind.g.graph", b""), expect="ind.g.graph: expected a pickle file of Planetoid"), Cell(put("ind.g.test.index", b""), expect="do not fit together")),
    "non-utf-8": Cell(put("ind.g.test.index", b"\xff\n"), expect="test.index:1: expected the number of a vertex, found "),
    "id-gap": Cell(make={"edges": GAP, "n": 6}, rows=ROWS_GAP), "out-of-range": (Cell(put("ind.g.graph", pickle.dumps({0: [1, 9]})), expect="ind.g.graph: vertex 0 has the neighbour 9"),
                                                                          Cell(put("ind.g.test.index", b"99999999999\n"), expect="expected at most 4194304 vertices")), **keeps()}


def marius(edges=EDGES, n=4):
    return {"g/dataset.yaml": f"num_edges: {len(edges)}\nnum_nodes: {n}\nnum_relations: 1\n", "g/edges/train_edges.bin": np.array(edges, np.int32).tobytes(),
            "g/nodes/node_mapping.txt": "".join(f"n{k},{k}\n" for k in range(n))}, "g"


BIN, MAP = "g/edges/train_edges.bin", "g/nodes/node_mapping.txt"
MARIUS = marius, {
    "truncated": Cell(cut(BIN, 1), expect="found 23 bytes: is it truncated?"), "corrupted": Cell(("g/edges/train_edges.bin", lambda d: d[:-1] + b"\x7f"), expect="target of edge 2: expected 0 to 3"),
    "mis-shaped": Cell(put(BIN, np.zeros((3, 5), np.int32).tobytes()), expect="train_edges.bin: expected 3 rows (num_edges of dataset.yaml) of 2 or 3 int32 or int64, found 60 bytes"),
    "mis-typed": (Cell(put(BIN, np.array(EDGES, np.float32).tobytes()), expect="target of edge 0: expected 0 to 3, found 1065353216"),
                  Cell(sub("g/dataset.yaml", b"num_nodes: 4", b"num_nodes: 4.0"), expect="dataset.yaml:2:12: num_nodes: expected an integer")),
    "crlf": Cell((MAP, lambda d: d.replace(b"\n", b"\r\n")), ("g/dataset.yaml", lambda d: d.replace(b"\n", b"\r\n")), rows=ROWS, expect="node_mapping.txt: 4 lines end with CR LF"),
    "bom": Cell(front(MAP, b"\xef\xbb\xbf"), front("g/dataset.yaml", b"\xef\xbb\xbf"), rows=ROWS),
    "empty": (Cell(put(BIN, b""), expect="found 0 bytes: is it truncated?"), Cell(put("g/dataset.yaml", b""), expect="dataset.yaml:1:1: expected a map"),
              Cell(put(MAP, b""), expect="node_mapping.txt: expected 4 names, found 0")),
    "non-utf-8": (Cell(sub(MAP, b"n2", b"\xe9"), expect="node_mapping.txt:3: byte 1: expected UTF-8"), Cell(front("g/dataset.yaml", b"\xff: 1\n"), expect="dataset.yaml: byte 0")),
    "id-gap": Cell(make={"edges": GAP, "n": 6}, rows=ROWS_GAP), "out-of-range": Cell(make={"edges": FAR}, expect="train_edges.bin: source of edge 2: expected 0 to 3, found 4"), **keeps()}

@test
def codes_of_webgraph():
    rng = np.random.default_rng(3)
    edges = sorted({(int(a), int(b)) for a, b in rng.integers(0, 900, (1500, 2))})
    want = [[] for _ in range(900)]
    for a, b in edges:
        want[b].append(a)
    with Scratch() as s:
        for code in ("zeta", "gamma", "delta", "nibble", "golomb"):
            files, source = webgraph(edges, 900, code)
            for name, data in files.items():
                s.put(name, data)
            s.get("webgraph", s.path(source))
            assert s.rows() == want, code
            s.put("g.graph", files["g.graph"][:-9])
            assert "unexpected end of the graph: the file is truncated" in s.get("webgraph", s.path(source), code=2).stderr
        s.put("g.properties", files["g.properties"].replace("GOLOMB", "SKEWED_GOLOMB"))
        assert "does not read 'RESIDUALS_SKEWED_GOLOMB'" in s.get("webgraph", s.path(source), code=1).stderr


MATRIX = {"snap": text_format("\t"), "csv": text_format(","), "tsv": text_format("\t"), "psv": text_format("|"), "triples": TRIPLES, "openke": OPENKE,
          "npy": NPY, "igb": IGB, "mag240m": MAG, "graphbolt": GRAPHBOLT, "npz": NPZ, "ogb": OGB, "ogb (npz)": OGB_NPZ, "webgraph": WEBGRAPH,
          "planetoid": PLANETOID, "marius": MARIUS}


def try_cell(s, kind, make, cell):
    shutil.rmtree(s.dir)
    os.mkdir(s.dir)
    files, source = make(**cell.make)
    for name, data in files.items():
        path = s.put(name, data)
        for edited, edit in cell.edits:
            if edited == name:
                with open(path, "rb") as f:
                    data = edit(f.read())
                with open(path, "wb") as f:
                    f.write(data)
    for edited, edit in cell.edits:
        if edited not in files:
            s.put(edited, edit(b""))
    r = s.get(kind.split()[0], s.path(source), *cell.args, code=0 if cell.rows else None)
    assert cell.rows or r.returncode == cell.code, f"exit code {r.returncode}"
    said = r.stdout + r.stderr
    assert cell.expect in said, f"expected: {cell.expect}\n  found: {said}"
    if cell.rows:
        assert s.rows() == cell.rows, f"expected {cell.rows}, found {s.rows()}"
    else:
        assert s.dir not in cell.expect and len(r.stderr.splitlines()) <= 8, r.stderr


@test
def every_cell():
    known = set(command("import", "nonsense", "x", "y", code=2).stderr.split("one of ")[1].split(";")[0].split(", "))
    assert known == {k.split()[0] for k in MATRIX}, "a format without its row, or a row without its format"
    failures, cells = [], 0
    with Scratch() as s:
        for kind, (make, row) in MATRIX.items():
            assert set(row) - {"fortran"} == set(KINDS), (kind, set(KINDS) ^ set(row))
            for bad, entry in [("nothing", Cell(rows=ROWS)), *row.items()]:
                for cell in entry if isinstance(entry, tuple) else (entry,):
                    if isinstance(cell, str):
                        continue
                    cells += 1
                    try:
                        try_cell(s, kind, make, cell)
                    except AssertionError as e:
                        failures.append(f"--- {kind}, {bad}: {e}")
    assert not failures, f"{len(failures)} of {cells}:\n" + "\n".join(failures)


if __name__ == "__main__":
    main()
