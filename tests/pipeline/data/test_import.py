"""Import: each format's orientation on a hand-made graph, what is repaired and counted, what is refused and where,
and every real data set in its original layout."""
import gzip
import os
import re
import shutil
import subprocess
import tarfile

import numpy as np
from harness import *
from importing import *
from small_disk import SmallDisk

RAW, CLEAN = os.path.join(DATA, "raw"), os.path.join(DATA, "clean")


@test
def orientation_of_lists():
    with Scratch() as s:
        for kind, separator in (("snap", "\t"), ("snap", " "), ("snap", "  "), ("csv", ","), ("csv", ", "),
                                ("tsv", "\t"), ("psv", "|")):
            for end in ("\n", "\r\n"):
                for name in ("e", "e.gz") + (("e.zst",) if shutil.which("zstd") else ()):
                    s.get(kind, s.put(name, lines(separator, end)))
                    assert s.rows() == ROWS, (kind, separator, end, name, s.rows())
        s.get("csv", s.put("e", lines(",")), "--columns", "1,0")
        assert s.rows() == [[1, 2], [], [], [1]]
        s.get("csv", s.put("e", lines(",")), "--transpose")
        assert s.rows() == [[1, 2], [], [], [1]]
        s.get("csv", s.put("e", "w,t,s\n9,1,0\n9,2,0\n9,1,3\n"), "--columns", "2,1")
        assert s.rows() == ROWS
        s.get("csv", s.put("e", lines(";")), "--separator", ";")
        assert s.rows() == ROWS
        s.get("csv", s.put("e", lines(",")), "--symmetrize", "--self-loops", "add")
        assert s.rows() == [[0, 1, 2], [0, 1, 3], [0, 2], [1, 3]]


@test
def repairs_are_counted():
    with Scratch() as s:
        r = s.get("snap", s.put("e", "\ufeff# c\r\n0 1\r\n\r\n0 2 \r\n 3\t1 5\r\n# end"))
        assert s.rows() == ROWS
        for word in ("byte order mark", "3 lines end with CR LF", "1 blank lines", "1 lines have extra columns, which are ignored"):
            assert word in r.stderr, (word, r.stderr)
        r = s.get("csv", s.put("e", "source,target\n" + lines(",")))
        assert s.rows() == ROWS and "which holds column names" in r.stderr
        r = s.get("csv", s.put("e", "0,1\n0,1\n2,2\n0,7\n"), "--dedupe", "--self-loops", "remove")
        assert s.rows() == [[], [0], [], [], [], [], [], [0]]
        assert "duplicates removed: 1, self loops removed: 1" in r.stdout and "4 ids are never used" in r.stderr, r
        s.get("csv", s.put("e", "0,1\n0,1\n2,2\n0,7\n"))
        assert s.rows() == [[], [0, 0], [2], [], [], [], [], [0]]
        s.get("csv", s.put("e", "10,700\n5,700\n"), "--ids", "compact")
        assert s.rows() == [[], [], [0, 1]] and s.array("ids").tolist() == [5, 10, 700]


@test
def names_as_ids():
    with Scratch() as s:
        text = 'from,to\nb,"a, ""x"""\nb,\u00e4\n"b",b\n'
        s.get("csv", s.put("e", text), "--ids", "strings", "--header", "yes")
        assert s.names() == ["b", 'a, "x"', "\u00e4"] and s.rows() == [[0], [0], [0]]
        s.get("psv", s.put("e", "p.id|q.id|date\n933|1129|x\n1129|4398046511104|y\n"), "--ids", "strings", "--header",
              "yes")
        assert s.names() == ["933", "1129", "4398046511104"] and s.rows() == [[], [0], [1]]
        r = s.get("csv", s.put("e", "a,b\n"), "--ids", "strings", code=2)
        assert "add --header" in r.stderr


@test
def refused_with_their_place():
    bad = [
        ("csv", "0,1\n2;3\n", "e:2: byte 2"),
        ("csv", "0,1\n2\n", "e:2: byte 2: expected at least 2 columns, found the line's end"),
        ("csv", "0,1\n1,-2\n", "e:2: byte 3: expected an id"),
        ("csv", "0,1\n1,2.5\n", "e:2: byte 4: expected the end of an id, found '.5'"),
        ("csv", "0,1\n1,99999999999999999999\n", "e:2: byte 3"),
        ("csv", "0,1\n0,999999999999999999\n", "an id from 0 to 281474976710653"),
        ("csv", "0,1\n\x00,1\n", "e:2: byte 1: expected an id, an integer of at most 18 digits, found '\\x00,1'"),
        ("csv", "", "expected edges, but none of its"),
        ("snap", "# nothing\n", "expected edges, but none of its 1 lines holds one"),
        ("snap", "0 1\n2 x\n", "e:2: byte 3"),
        ("csv", "x" * (3 << 20), "the line is too long"),
        ("csv", b"\xff\xfe0\x00,\x001\x00\n\x00", "UTF-16"),
        ("csv", b"\x1f\x8b\x08\x00", "truncated"),
        ("csv", gzip.compress(b"0,1\n" * 1000)[:-9], "truncated"),
        ("csv", gzip.compress(b"0,1\n" * 1000)[:-8] + b"\x00" * 8, "gzip data is damaged"),
        ("csv", b"\x28\xb5\x2f\xfd" + b"\xff" * 40, "zstd data is damaged"),
    ]
    with Scratch() as s:
        for kind, content, expect in bad:
            r = s.get(kind, s.put("e", content), code=2)
            assert expect in r.stderr, (content[:40], expect, r.stderr)
        r = s.get("csv", s.put("e", b"a,b\nc,\xe9\n"), "--ids", "strings", "--header", "no", code=2)
        assert "e:2: byte 3: expected UTF-8, found '\\xe9'" in r.stderr, r.stderr
        r = s.get("csv", s.put("e", 'a,"b\nc,d\n'), "--ids", "strings", "--header", "no", code=2)
        assert "e:1: byte 3: expected a closing quote" in r.stderr, r.stderr
        r = s.get("csv", s.put("e", "0,1\n1,4\n"), "--vertices", 4, code=2)
        assert "e:2: byte 3: expected an id from 0 to 3, found '4'" in r.stderr, r.stderr
        r = s.get("csv", s.put("e", "0,1\n1,4000000000000\n"), "--ids", "compact", "--memory", "64MiB", code=2)
        assert "--ids strings" in r.stderr, r.stderr
        assert "expected one of npy, snap" in s.get("nonsense", s.path("e"), code=2).stderr


@test
def names_that_do_not_fit():
    """In memory, or on disk with any number of threads: the same dataset; the order is that of first mention, in a line
    from left to right."""
    rng = np.random.default_rng(8)
    ids = np.where(rng.random((150_000, 2)) < 0.2, rng.integers(0, 50, (150_000, 2)), rng.integers(0, 10**6, (150_000, 2)))
    pairs = [(f"\u00e9 {a}", f'"{a}"", ""{b}"' if b % 5 == 0 else f"http://{b}") for a, b in ids.tolist()]
    text = "".join(f"{a},{b}\n" for a, b in pairs)
    plain = [[x[1:-1].replace('""', '"') if x[0] == '"' else x for x in p] for p in pairs]
    order = list(dict.fromkeys(x for p in plain for x in p))
    with Scratch() as s:
        for args in (), ("--columns", "1,0"), ("--symmetrize", "--dedupe", "--self-loops", "add"):
            sums = set()
            for memory, threads in ("1GiB", 2), ("12MiB", 1), ("13MiB", 3), ("20MiB", 2):
                s.get("csv", s.put("e", text), "--ids", "strings", "--header", "no", *args, "--memory", memory, "--threads", threads)
                sums.add(tuple(sorted(s.sums().items())))
            assert len(sums) == 1, (args, sums)
            assert s.names() == order
        r = s.get("csv", s.put("e", text), "--ids", "strings", "--header", "no", "--memory", "12MiB", "--vertices", 7, code=2)
        assert f"expected 7 vertices, found {len(order)} ids" in r.stderr, r.stderr
        r = s.get("csv", s.put("e", text + "a,\0\n"), "--ids", "strings", "--header", "no", "--memory", "12MiB", code=2)
        assert "e:150001: byte 4: expected a name without NUL bytes" in r.stderr, r.stderr


@test
def entities_that_do_not_fit():
    """The names that memory has no room for come in train, in valid, or in test: the same dataset as in memory."""
    rng = np.random.default_rng(9)
    with Scratch() as s:
        for counts in (150_000, 3_000, 2_000), (5_000, 150_000, 2_000), (5_000, 5_000, 150_000):
            for split, n in zip(("train", "valid", "test"), counts):
                rows = rng.integers(0, 1 << 19, (n, 2)).tolist()
                s.put(f"kg/{split}.txt", "".join(f"/m/entity-{a}\tkind {a % 7}\t/m/entity-{b % (1 + a)}\n" for a, b in rows))
            told = set()
            for memory, threads in ("1GiB", 1), ("20MiB", 1), ("20MiB", 3):
                r = s.get("triples", s.path("kg"), "--memory", memory, "--threads", threads)
                told.add((tuple(sorted(s.sums().items())), re.sub("peak memory.*", "", r.stdout + r.stderr)))
            assert len(told) == 1, told
            order = []
            for split in "train", "valid", "test":
                with open(s.path(f"kg/{split}.txt")) as f:
                    order += [x for line in f for x in line.rstrip("\n").split("\t")[::2]]
            assert s.names() == list(dict.fromkeys(order))


@test
def names_on_a_full_disk():
    with Scratch() as s:
        text = "".join(f"http://name/{i},http://name/{i * 7919 % 1000003}\n" for i in range(250_000))
        source = s.put("e", text)
        with SmallDisk(s, "tmpfs") as disk:
            for room in 1 << 16, 1 << 20, 4 << 20:
                disk.fill(room)
                r = command("import", "csv", source, f"{disk.at}/out", "--quiet", "--ids", "strings", "--header", "no",
                            "--memory", "12MiB", code=None)
                assert r.returncode != 0 and "No space left" in r.stderr, r.stderr
                assert os.listdir(disk.at) == ["filler"], os.listdir(disk.at)


@test
def same_bytes_whatever_memory_and_threads():
    with Scratch() as s:
        rng = np.random.default_rng(5)
        edges = rng.integers(0, 5000, (1_000_000, 2))
        np.save(s.path("edges.npy"), edges)
        s.put("e", "\n".join(map("%d,%d".__mod__, map(tuple, edges.tolist()))))
        for args in ((), ("--symmetrize", "--dedupe")):
            seen = set()
            for kind, source in (("csv", s.path("e")), ("npy", s.dir)):
                for memory, threads in (("1G", 1), ("16MiB", 1), ("16MiB", 2), ("20MiB", 4)):
                    s.get(kind, source, "--memory", memory, "--threads", threads, *args)
                    seen.add(tuple(s.sums().items()))
            assert len(seen) == 1, seen
        want = np.unique(np.concatenate([edges, edges[:, ::-1]]), axis=0)  # by target, then source: it is symmetric
        assert np.array_equal(s.array("indices"), want[:, 1])


KG = {"train.txt": "a\tlikes\tb\nb\tlikes\tc\r\nc\tknows\ta\n", "valid.txt": "a\tknows\td\n", "test.txt": "d\tlikes\ta\n"}


@test
def knowledge_graphs():
    with Scratch() as s:
        for name, text in KG.items():
            s.put("kg/" + name, text)
        r = s.get("triples", s.path("kg"))
        assert s.names() == ["a", "b", "c", "d"] and s.names("relation_names") == ["likes", "knows"]
        assert s.array("triples_train").tolist() == [[0, 0, 1], [1, 0, 2], [2, 1, 0]]
        assert s.array("triples_val").tolist() == [[0, 1, 3]] and s.array("triples_test").tolist() == [[3, 0, 0]]
        assert s.rows() == [[2], [0], [1], []] and s.array("relations").tolist() == [1, 0, 0]
        assert "1 entities occur only in valid or test" in r.stderr and "1 lines end with CR LF" in r.stderr
        for content, expect in (("a\tb\n", "train.txt:1: byte 4"), ("a\tb\tc\td\n", "after three columns"),
                                ("a\t\tc\n", "a name of 1"), ("", "but the file has none"), (b"a\tb\t\xff\n", "UTF-8")):
            s.put("kg/train.txt", content)
            assert expect in (r := s.get("triples", s.path("kg"), code=2)).stderr, r.stderr
        files = {"entity": "3\nx\t1\ny\t0\nz\t2\n", "relation": "1\nr\t0\n", "train": "2\n0 1 0\n1 2 0\n"}
        for name, text in files.items():
            s.put(f"ke/{name}2id.txt", text)
        s.get("openke", s.path("ke"))
        assert s.names() == ["y", "x", "z"] and s.rows() == [[], [0], [1]]
        for name, text, expect in (("train", "3\n0 1 0\n", "the first line announces 3 triples, but the file has 1"), ("train", "1\n0 3 0\n", "train2id.txt:2"),
                                   ("train", "1\n0 1 1\n", "a relation from 0 to 0"), ("entity", "2\nx\t0\n", "expected 2 names, as in its first line, found 1"),
                                   ("entity", "2\nx\t0\nx\t1\n", "a name that has not occurred before"),
                                   ("entity", "2\nx\t0\ny\t0\n", "no other name has")):
            s.put(f"ke/{name}2id.txt", text)
            assert expect in (r := s.get("openke", s.path("ke"), code=2)).stderr, (expect, r.stderr)
            s.put(f"ke/{name}2id.txt", files[name])


def csr(edges, n):
    dense = np.zeros((n, n), int)
    for a, b in edges:
        dense[a, b] = 1
    return dict(indptr=np.concatenate([[0], dense.sum(1).cumsum()]).astype(np.int32),
                indices=np.concatenate([np.nonzero(row)[0] for row in dense]).astype(np.int32),
                data=np.ones(len(edges), np.float32), shape=np.array([n, n]))


@test
def parts_in_npz():
    with Scratch() as s:
        for save in (np.savez, np.savez_compressed):
            save(s.path("g.npz"), **csr(EDGES, 4))
            s.get("npz", s.path("g.npz"))
            assert s.rows() == ROWS
            parts = {"adj_" + k: v for k, v in csr(EDGES, 4).items()}
            parts |= {"attr_" + k: v for k, v in csr([(0, 0), (3, 2)], 4).items()}
            save(s.path("g.npz"), labels=np.array([3, 0, -1, 1], np.int8), **parts)
            s.get("npz", s.path("g.npz"))
            assert s.rows() == ROWS and s.array("labels").tolist() == [3, 0, -1, 1]
            assert s.array("features")[:, :4].tolist() == [[1, 0, 0, 0], [0] * 4, [0] * 4, [0, 0, 1, 0]]
            with open(s.path("g.npz"), "rb") as f:
                whole = f.read()
            for at in range(0, len(whole), 61):
                s.put("t.npz", whole[:at])
                s.get("npz", s.path("t.npz"), code=2)
            for at in range(0, len(whole), 97):
                s.put("t.npz", whole[:at] + bytes([whole[at] ^ 0x15]) + whole[at + 1:])
                r = subprocess.run([PENSTOCK, "import", "npz", s.path("t.npz"), s.path("x"), "--quiet", "--force", "--memory", "64MiB"],
                                   capture_output=True, timeout=30)
                assert r.returncode in (0, 1, 2), (at, r)
        lying = csr(EDGES, 4) | {"shape": np.array([4, 5])}
        np.savez(s.path("g.npz"), **lying)
        assert "square" in s.get("npz", s.path("g.npz"), code=2).stderr
        np.savez(s.path("g.npz"), **(csr(EDGES, 4) | {"indices": np.array([1, 2, 4], np.int32)}))
        assert "entry 2: expected 0 to 3, found 4" in s.get("npz", s.path("g.npz"), code=2).stderr


def ogb(s, **changed):
    files = {"raw/edge.csv.gz": lines(","), "raw/num-node-list.csv.gz": "4\n", "raw/num-edge-list.csv.gz": "3\n",
             "raw/node-feat.csv.gz": "1,2\n-3.5,4e-1\n0,0\n.5,1\n", "raw/node-label.csv.gz": "1.0\nnan\n0\n2\n",
             "split/time/train.csv.gz": "0\n3\n", "split/time/valid.csv.gz": "2\n", "split/time/test.csv.gz": "1\n"}
    shutil.rmtree(s.path("o"), ignore_errors=True)
    for name, text in (files | {k.replace("__", "/") + ".csv.gz": v for k, v in changed.items()}).items():
        s.put("o/" + name, text)
    return s.path("o")


@test
def layout_of_ogb():
    with Scratch() as s:
        s.get("ogb", ogb(s))
        assert s.rows() == ROWS and s.array("labels").tolist() == [1, -1, 0, 2]
        assert np.array_equal(s.array("features")[:, :2], np.array([[1, 2], [-3.5, .4], [0, 0], [.5, 1]], np.float32))
        assert [s.array(n).tolist() for n in ("train", "val", "test")] == [[0, 3], [2], [1]]
        cases = [({"raw__edge": "0,1\n0,2\n"}, "expected 3 edges, found 2"), ({"raw__edge": "0,1\n0,2\n3,4\n"}, "edge.csv.gz:3"),
                 ({"raw__node-feat": "1,2\n3,4\n"}, "truncated"), ({"raw__node-feat": "1,2\n3\n5,6\n7,8\n"}, "node-feat.csv.gz:2"),
                 ({"raw__node-feat": "1,2\n3,nan\n5,6\n7,8\n"}, "node-feat.csv.gz:2: byte 3: expected a finite"),
                 ({"raw__node-label": "1\n0\n0\n0\n0\n"}, "node-label.csv.gz:5: expected 4 lines, but the file has more"),
                 ({"split__time__train": "0\n4\n"}, "train.csv.gz:2: byte 1: expected an integer from 0 to 3"),
                 ({"split__time__test": "3\n"}, "already in train"), ({"split__other__train": "0\n"}, "choose one of the splits with --split")]
        for changed, expect in cases:
            r = s.get("ogb", ogb(s, **changed), code=2)
            assert expect in r.stderr, (expect, r.stderr)


def real(*parts):
    path = os.path.join(RAW, *parts)
    if not os.path.exists(path):
        raise Skip(f"{path} is not there")
    return path


def assert_clean(s, name, *args):
    """The same arrays as the npy import of the framework-neutral files."""
    got = s.sums()
    s.get("npy", os.path.join(CLEAN, name), *args)
    want = s.sums()
    assert got == {k: want[k] for k in got} and {"indptr", "indices"} <= got.keys(), (name, got, want)


@test
def real_snap():
    with Scratch() as s:
        for file, name in (("wiki-Vote.txt", "wiki_vote"), ("soc-Slashdot0902.txt.gz", "soc_slashdot0902")):
            s.get("snap", real("snap", file), "--ids", "compact")
            sums = s.sums()
            del sums["ids"]
            s.get("npy", os.path.join(CLEAN, name))
            assert s.sums() == sums, name


@test
def real_webgraph():
    with Scratch() as s:
        s.get("webgraph", real("webgraph", "cnr-2000.graph"))
        assert_clean(s, "cnr_2000")


@test
def broken_webgraphs():
    with Scratch() as s:
        graph, properties = real("webgraph", "cnr-2000.graph"), real("webgraph", "cnr-2000.properties")
        with open(graph, "rb") as f:
            data = f.read()
        shutil.copy(properties, s.path("g.properties"))
        s.put("g.graph", data[:len(data) // 2])
        assert "unexpected end of the graph: the file is truncated" in s.get("webgraph", s.path("g"), code=2).stderr
        for at in range(100, len(data), len(data) // 12):
            s.put("g.graph", data[:at] + bytes([data[at] ^ 0xff]) + data[at + 1:])
            r = subprocess.run([PENSTOCK, "import", "webgraph", s.path("g"), s.path("x"), "--quiet", "--force", "--memory", "64MiB"],
                               capture_output=True, timeout=30)
            assert r.returncode in (0, 2), (at, r)
        s.put("g.graph", data)
        with open(properties) as f:
            text = f.read()
        for old, new, expect in (("arcs=3216152", "arcs=3216151", "announces 3216151 arcs, but the graph has 3216152"),
                                 ("nodes=325557", "nodes=-1", "g.properties:"), ("nodes=325557", "nodes=400000", "unexpected end of the graph: the file is truncated"),
                                 ("compressionflags=", "compressionflags=RESIDUALS_SKEWED_GOLOMB", "this version does not read")):
            s.put("g.properties", text.replace(old, new))
            code = 1 if "GOLOMB" in new else 2
            assert expect in (r := s.get("webgraph", s.path("g"), code=code)).stderr, r.stderr


@test
def real_ogb():
    with Scratch() as s:
        s.get("ogb", real("ogb", "ogbn_arxiv"))
        assert_clean(s, "ogbn_arxiv")
        s.get("ogb", real("ogb", "ogbl_ddi"))
        assert (len(s.array("indptr")) - 1, len(s.array("indices"))) == (4267, 1067911)


@test
def real_npz():
    with Scratch() as s:
        s.get("npz", real("gnn_benchmark_npz", "cora.npz"))
        assert (len(s.array("indptr")) - 1, len(s.array("indices"))) == (2708, 5429)
        assert s.array("features").shape[0] == 2708 and len(np.unique(s.array("labels"))) == 7
        source = np.load(real("gnn_benchmark_npz", "cora.npz"))
        assert np.array_equal(s.rows()[0], [v for v in range(2708) if 0 in source["adj_indices"][
            source["adj_indptr"][v]:source["adj_indptr"][v + 1]]])


KNOWN = {"fb15k_237": (14541, 237, 272115, 17535, 20466), "wn18rr": (40943, 11, 86835, 3034, 3134),
         "wn18": (40943, 18, 141442, 5000, 5000), "codex_s": (2034, 42, 32888, 1827, 1828)}


def assert_counts(s, name):
    found = (len(s.names()), len(s.names("relation_names")), *(len(s.array("triples_" + k)) for k in ("train", "val", "test")))
    assert found == KNOWN[name], (name, found)


def named(s):
    e, r = s.names(), s.names("relation_names")
    return sorted((e[h], r[k], e[t]) for h, k, t in s.array("triples_test").tolist())


@test
def real_knowledge_graphs():
    real("openke")
    with Scratch() as s:
        seen = {}
        for name in KNOWN:
            s.get("triples", os.path.join(CLEAN, name))
            assert_counts(s, name)
            seen[name] = named(s)
        for folder, name in (("FB15K237", "fb15k_237"), ("WN18RR", "wn18rr")):
            s.get("openke", real("openke", folder))
            assert_counts(s, name)
            assert named(s) == seen[name], name
        with tarfile.open(real("conve", "WN18RR.tar.gz")) as tar:
            for member in tar.getmembers():
                s.put("conve/" + os.path.basename(member.name), tar.extractfile(member).read())
        s.get("triples", s.path("conve"))
        assert_counts(s, "wn18rr")
        assert named(s) == seen["wn18rr"]


@test
def there_and_back():
    """export -> import is the same dataset, checksum for checksum; csv has the names that the source had."""
    with Scratch() as s:
        command("gen", "community", s.path("d"), "--vertices", 3000, "--seed", 4, "--quiet")
        command("export", s.path("d"), s.path("x"), "--quiet")
        s.get("npy", s.path("x"))
        with open(os.path.join(s.path("d"), "dataset.json")) as f:
            assert s.sums() == {k: v["xxh3"] for k, v in json.load(f)["arrays"].items()}
        assert "already exists: choose another directory" in command("export", s.path("d"), s.path("x"), code=2).stderr
        text = 'b,"a,c"\nb,\u00e4\n"",b\n'  # a name may be empty
        s.get("csv", s.put("e", text), "--ids", "strings", "--header", "no")
        command("export", s.path("out"), s.path("c"), "--format", "csv", "--quiet")
        with open(os.path.join(s.path("c"), "edges.csv"), encoding="utf-8") as f:
            assert sorted(f) == sorted(["source,target\n"] + text.splitlines(True))
        s.get("csv", s.path("c/edges.csv"), "--ids", "strings", "--header", "yes")
        s.put("t/train.txt", "a\tr,1\tb\nb\tq\ta\n")
        r = s.get("triples", s.path("t"), "--memory", "4MiB", code=None)
        assert r.returncode and "--memory: this import needs at least 7 MiB of memory, found 4.0 MiB" in r.stderr, r.stderr
        s.get("triples", s.path("t"))
        command("export", s.path("out"), s.path("k"), "--format", "csv", "--quiet")
        with open(os.path.join(s.path("k"), "edges.csv")) as f:
            assert f.read() == 'source,target,relation\nb,a,q\na,b,"r,1"\n'
        relation = np.fromfile(os.path.join(s.path("out"), "relations.npy"), np.uint8)
        relation[-4:] = 9, 0, 0, 0
        relation.tofile(os.path.join(s.path("out"), "relations.npy"))
        r = command("export", s.path("out"), s.path("l"), "--format", "csv", code=None)
        assert r.returncode and "entry 1: expected 0 to 1, found 9" in r.stderr, r.stderr


@test
def splits_and_dtypes():
    with Scratch() as s:
        command("gen", "community", s.path("d"), "--vertices", 1000, "--seed", 4, "--quiet")
        seen = []
        for seed in (1, 1, 2):
            command("split", s.path("d"), s.path("out"), "--train", .6, "--val", .2, "--test", .2, "--seed", seed, "--force")
            command("verify", "--quiet", s.path("out"))
            ids = np.concatenate([s.array(n) for n in ("train", "val", "test")])
            assert [len(s.array(n)) for n in ("train", "val", "test")] == [600, 200, 200]
            assert np.array_equal(np.sort(ids), np.arange(1000))
            seen.append(s.array("train").tolist())
        assert seen[0] == seen[1] != seen[2] and seen[0][:9] != list(range(9))
        command("split", s.path("out"), "--train", .01)
        assert len(s.array("train")) == 10 and not os.path.exists(os.path.join(s.path("out"), "val.npy"))
        command("verify", "--quiet", s.path("out"))
        assert "at most 1" in command("split", s.path("out"), "--train", .9, "--val", .2, code=2).stderr
        original = np.load(os.path.join(s.path("d"), "features.npy"))
        for dtype in ("float16", "float32", "bfloat16"):
            command("convert", s.path("d"), s.path("out"), "--dtype", dtype, "--stride-bytes", 4096, "--force", "--quiet")
            command("verify", "--quiet", s.path("out"))
            found = s.array("features")
            if dtype == "bfloat16":
                found = (found.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
                assert np.allclose(found[:, :100], original[:, :100], rtol=2 ** -8)
            else:
                assert np.array_equal(found[:, :100], original[:, :100].astype(dtype))
            assert not found[:, 128:].any()
        command("convert", s.path("d"), s.path("h"), "--dtype", "float16", "--quiet")
        command("convert", s.path("h"), s.path("w"), "--dtype", "float32", "--quiet")
        command("convert", s.path("w"), s.path("out"), "--dtype", "float16", "--force", "--quiet")
        with open(os.path.join(s.path("h"), "dataset.json")) as f:
            assert s.sums()["features"] == json.load(f)["arrays"]["features"]["xxh3"]
        big = np.array([[1, 70000]], np.float32)
        os.mkdir(s.path("n"))
        np.save(s.path("n/feat.npy"), big)
        np.save(s.path("n/edges.npy"), np.zeros((2, 1), np.int32))
        s.get("npy", s.path("n"))
        r = command("convert", s.path("out"), s.path("y"), "--dtype", "float16", code=2)
        assert "row 0, column 1: the value does not fit float16" in r.stderr and not os.path.exists(s.path("y"))


def epochs_of(s, data):
    command("run", os.path.join(ROOT, "pipelines", "hyperion.json"), "--dataset", data, "--epochs", "2", "--seed", "3",
            "--run-dir", s.path("r"), "--report", s.path("report.json"), "--set", "params.batch=64")
    shutil.rmtree(s.path("r"))
    with open(s.path("report.json")) as f:
        rows = [{k: v for k, v in e.items() if "loss" in k or "accuracy" in k} for e in json.load(f)["epochs"]]
    assert rows and all("loss" in e for e in rows), rows
    return rows


@test
def features_that_stay_where_they_are():
    with Scratch() as s:
        rng = np.random.default_rng(2)
        n, features = 400, s.path("n/feat.npy")
        s.arrays("n", edges=rng.integers(0, n, (2, 4000)), feat=rng.random((n, 128), np.float32), labels=rng.integers(0, 3, n),
                 train_idx=np.arange(0, 300), val_idx=np.arange(300, n))
        command("import", "npy", s.path("n"), s.path("copied"), "--quiet")
        s.get("npy", s.path("n"), "--link")
        out = s.path("out")
        assert os.path.islink(f"{out}/features.npy") and s.sums()["features"] == xxh3(open(features, "rb").read())
        assert np.array_equal(np.load(f"{out}/features.npy"), np.load(s.path("copied/features.npy")))
        assert epochs_of(s, out) == epochs_of(s, s.path("copied"))  # unaligned rows, the same bits
        command("split", out, s.path("other"), "--train", "0.5", "--val", "0.2", "--test", "0.2")
        assert os.readlink(s.path("other/features.npy")) == features
        command("verify", "--quiet", s.path("other"))
        command("convert", out, s.path("owned"), "--dtype", "bfloat16", "--quiet")
        assert not os.path.islink(s.path("owned/features.npy"))
        for args, why in ((["--normalize", "l1"], "--normalize"), (["--stride-bytes", "1024"], "--stride-bytes")):
            assert why in s.get("npy", s.path("n"), "--link", *args, code=2).stderr
        s.get("npy", s.path("n"), "--link")
        os.utime(features)
        for words in (["verify", out], ["run", os.path.join(ROOT, "pipelines", "hyperion.json"), "--dataset", out]):
            r = command(*words, code=None)
            assert r.returncode != 0 and f"{features}, the target of the link {out}/features.npy, changed" in r.stderr, r.stderr
        os.remove(features)
        for words in (["verify", out], ["run", os.path.join(ROOT, "pipelines", "hyperion.json"), "--dataset", out]):
            r = command(*words, code=None)
            assert r.returncode != 0 and f"link to {features}, which cannot be read" in r.stderr, r.stderr


@test
def halves_go_through_as_they_are():
    with Scratch() as s:
        bits = np.arange(0x3f00, 0x3f00 + 12, dtype=np.uint16).reshape(4, 3)
        for dtype, kind, nan in (("float16", bits.view(np.float16), 0x7c01), ("bfloat16", bits.view("V2"), 0x7fc0)):
            s.arrays("h", edges=np.zeros((2, 1), np.int32), feat=kind)
            for args in ((), ("--link",)):
                s.get("npy", s.path("h"), *args)
                stored = s.array("features").view(np.uint16)[:, :3]
                assert np.array_equal(stored, bits) and s.manifest()["arrays"]["features"]["dtype"] == dtype
            wrong = bits.copy()
            wrong[2, 1] = nan
            s.arrays("h", feat=wrong.view(kind.dtype))
            for args in ((), ("--link",)):
                assert "row 2, column 1: NaN" in s.get("npy", s.path("h"), *args, code=2).stderr


if __name__ == "__main__":
    main()
