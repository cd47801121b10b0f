"""Import of .npz: every sparse format that scipy.sparse.save_npz writes, what becomes of weights and stored zeros, and what
is said of archives that fit no layout."""
import numpy as np
from harness import *
from importing import *

# Edges that no transposition leaves as they are; the weights tell which entry is which.
N, WEIGHTED = 5, [(0, 1, 1), (0, 2, 1), (3, 1, 1), (4, 0, 1), (4, 3, 1)]


def dense(entries):
    out = np.zeros((N, N))
    for a, b, w in entries:
        out[a, b] = w
    return out


def word(name, unicode):
    """As SciPy writes it (bytes), and as SciPy before 1.0 did (text)."""
    return np.array(name) if unicode else np.array(name.encode())


def compressed(entries, by_column):
    order = sorted(entries, key=(lambda e: (e[1], e[0])) if by_column else (lambda e: (e[0], e[1])))
    outer, inner = (1, 0) if by_column else (0, 1)
    counts = np.bincount([e[outer] for e in order], minlength=N)
    return dict(indptr=np.concatenate([[0], counts.cumsum()]).astype(np.int32), indices=np.array([e[inner] for e in order], np.int32),
                data=np.array([e[2] for e in order]))


def saved(format, entries, unicode=False, dtype=float):
    """The members of scipy.sparse.save_npz, whose layouts are public and stable."""
    if format == "coo":
        out = dict(row=np.array([e[0] for e in entries], np.int32), col=np.array([e[1] for e in entries], np.int32),
                   data=np.array([e[2] for e in entries]))
    elif format == "bsr":
        out = dict(indptr=np.array([0, 1]), indices=np.array([0]), data=dense(entries)[None])
    elif format == "dia":
        out = dict(offsets=np.array([1]), data=np.ones((1, N)))
    else:
        out = compressed(entries, format == "csc")
    out["data"] = out["data"].astype(dtype)
    return out | dict(format=word(format, unicode), shape=np.array([N, N]))


def in_neighbours(entries):
    return [sorted(a for a, b, w in entries if b == v and w != 0) for v in range(N)]


@test
def every_format_has_its_orientation():
    with Scratch() as s:
        for save in np.savez, np.savez_compressed:
            for unicode in False, True:
                for format in "csr", "csc", "coo":
                    save(s.path("g.npz"), **saved(format, WEIGHTED, unicode))
                    r = s.get("npz", s.path("g.npz"))
                    assert s.rows() == in_neighbours(WEIGHTED), (format, s.rows())
                    assert "warnings" not in r.stderr, r.stderr


@test
def a_format_that_is_not_said():
    """indptr alone could be rows or columns: it is read as rows, and that is told; row and col need no format."""
    with Scratch() as s:
        for format, told in ("csr", True), ("coo", False):
            members = saved(format, WEIGHTED)
            del members["format"]
            np.savez(s.path("g.npz"), **members)
            r = s.get("npz", s.path("g.npz"))
            assert s.rows() == in_neighbours(WEIGHTED) and ("member format.npy is missing: reading indptr and indices as CSR" in r.stderr) == told, r.stderr
        members = {"adj_" + k: v for k, v in saved("csc", WEIGHTED).items()}
        np.savez(s.path("g.npz"), **members)
        s.get("npz", s.path("g.npz"))
        assert s.rows() == in_neighbours(WEIGHTED)


@test
def weights_and_zeros():
    entries = [(0, 1, 1), (0, 2, 0), (3, 1, 2.5), (4, 0, float("nan")), (4, 3, 0)]
    with Scratch() as s:
        for format in "csr", "csc", "coo":
            np.savez(s.path("g.npz"), **saved(format, entries))
            r = s.get("npz", s.path("g.npz"))
            assert s.rows() == [[4], [0, 3], [], [], []], (format, s.rows())
            assert "2 stored zeros, which are not edges" in r.stderr and "2 entries are not 1" in r.stderr and "): these edges are imported without their weights" in r.stderr, r.stderr
            r = s.get("npz", s.path("g.npz"), "--weight-column", "data", code=None)
            assert r.returncode and "expected a weight of 0 or more that fits float32, found nan" in r.stderr, r.stderr
            np.savez(s.path("g.npz"), **saved(format, entries[:3]))
            r = s.get("npz", s.path("g.npz"), "--weight-column", "data")
            assert s.rows() == [[], [0, 3], [], [], []] and s.array("edge_weights").tolist() == [1, 2.5] and "not 1" not in r.stderr, r.stderr
            assert "--weight-column w: expected data" in s.get("npz", s.path("g.npz"), "--weight-column", "w", code=2).stderr
        for dtype in bool, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.float16, np.float32:
            np.savez(s.path("g.npz"), **saved("csr", [(0, 1, 1), (0, 2, 0), (3, 1, 1)], dtype=dtype))
            r = s.get("npz", s.path("g.npz"))
            assert s.rows() == [[], [0, 3], [], [], []] and "1 stored zeros" in r.stderr and "not 1" not in r.stderr, (dtype, r.stderr)


@test
def refused_by_name():
    with Scratch() as s:
        for format in "bsr", "dia":
            np.savez(s.path("g.npz"), **saved(format, WEIGHTED))
            r = s.get("npz", s.path("g.npz"), code=1)
            assert f"the matrix is stored as {format}" in r.stderr and "csr, csc or coo" in r.stderr, r.stderr
        np.savez(s.path("g.npz"), edge_index=np.array([[0, 1], [1, 2]]), x=np.ones((3, 2)))
        r = s.get("npz", s.path("g.npz"), code=2)
        for text in "edge_index.npy, x.npy", "adj_indptr", "save_npz", "row, col":
            assert text in r.stderr, (text, r.stderr)
        bad = [({"format": np.array(7)}, "expected the name of a sparse format"), ({"shape": np.array([N, 6])}, "square"),
               ({"data": np.ones(3)}, "data: expected an array of 5 entries"), ({"indices": np.array([0, 1, 2, 3, 7])}, "entry 4: expected 0 to 4, found 7"),
               ({"indptr": np.arange(4)}, "indptr: expected 6 entries, found 4"), ({"data": np.ones(5, complex)}, "member data.npy")]
        for changed, expect in bad:
            np.savez(s.path("g.npz"), **(saved("csc", WEIGHTED) | changed))
            assert expect in (r := s.get("npz", s.path("g.npz"), code=2)).stderr, (expect, r.stderr)
        np.savez(s.path("g.npz"), **(saved("coo", WEIGHTED) | {"col": np.array([0, 1])}))
        assert "col: expected an array of 5 entries" in s.get("npz", s.path("g.npz"), code=2).stderr


main()
