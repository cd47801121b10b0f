"""Every real dataset, as framework-neutral files and in its original layout, imports to the counts that the data's README
states; and what is exported imports to the same dataset, checksum for checksum."""
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipeline"))
from harness import DATA, PENSTOCK, Skip, main, test

os.environ["PENSTOCK_PYTHON"] = sys.executable
COMMAND_S = 600
CLEAN, RAW = os.path.join(DATA, "clean"), os.path.join(DATA, "raw")

# vertices, edge rows, features, classes: the README's first table.
GRAPHS = {
    "cora": (2708, 10556, 1433, 7), "citeseer": (3327, 9104, 3703, 6), "amazon_photo": (7650, 238162, 745, 8),
    "dblp_citation": (17716, 105734, 1639, 4), "coauthor_cs": (18333, 163788, 6805, 15),
    "coauthor_physics": (34493, 495924, 8415, 5), "ogbn_arxiv": (169343, 1166243, 0, 40), "am_kg": (1080876, 1360749, 0, 8),
    "ogbl_ddi": (4267, 1067911, 0, 0), "cnr_2000": (325557, 3216152, 0, 0), "dblp_2010": (326186, 1615400, 0, 0),
    "soc_slashdot0902": (82168, 948464, 0, 0), "wiki_vote": (7115, 103689, 0, 0)}
SPLITS = {"cora": (140, 500, 1000), "citeseer": (120, 500, 1000), "am_kg": (13423, 20000, 20000)}
SPECIAL = {"am_kg": ("--edges", os.path.join(CLEAN, "am_kg", "triples.npy"), "--edge-shape", "Ex3"),
           "ogbl_ddi": ("--edges", os.path.join(CLEAN, "ogbl_ddi", "train_edges.npy"))}
# entities, relations, train, valid, test: its second.
KNOWLEDGE = {"fb15k_237": (14541, 237, 272115, 17535, 20466), "wn18rr": (40943, 11, 86835, 3034, 3134),
             "wn18": (40943, 18, 141442, 5000, 5000), "codex_s": (2034, 42, 32888, 1827, 1828),
             "umls": (135, 46, None, None, None), "kinship": (104, 25, None, None, None), "nations": (14, 55, None, None, None)}
UNDIRECTED = ("--symmetrize", "--dedupe", "--self-loops", "remove")
# Original layouts: how they are read, and what they must be equal to, array for array.
ORIGINAL = {
    "planetoid cora": ("planetoid", "planetoid/ind.cora", UNDIRECTED, "cora"),
    "planetoid citeseer": ("planetoid", "planetoid/ind.citeseer", UNDIRECTED, "citeseer"),
    "ogb ogbn_arxiv": ("ogb", "ogb/ogbn_arxiv", (), "ogbn_arxiv"), "ogb ogbl_ddi": ("ogb", "ogb/ogbl_ddi", (), "ogbl_ddi"),
    "snap soc-Slashdot0902": ("snap", "snap/soc-Slashdot0902.txt.gz", ("--ids", "compact"), "soc_slashdot0902"),
    "snap wiki-Vote": ("snap", "snap/wiki-Vote.txt", ("--ids", "compact"), "wiki_vote"),
    "webgraph cnr-2000": ("webgraph", "webgraph/cnr-2000", (), "cnr_2000")}
OPENKE = {"FB15K237": "fb15k_237", "WN18RR": "wn18rr"}
NPZ_CORA = (2708, 5429, 7)  # directed edges, says the README of raw/


class Place:
    """A directory on a disk (/tmp may be memory)."""
    def __enter__(self):
        self.dir = tempfile.mkdtemp(prefix="penstock-accept-", dir=os.environ.get("TMPDIR", "/var/tmp"))
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.dir)

    def path(self, name):
        return os.path.join(self.dir, name)

    def penstock(self, *args):
        r = subprocess.run([PENSTOCK, *map(str, args)], capture_output=True, text=True, timeout=COMMAND_S)
        assert r.returncode == 0, f"penstock {' '.join(map(str, args))}: {r.stdout}{r.stderr}"

    def take(self, name, kind, source, *args):
        """Imports, verifies, and gives dataset.json."""
        if not any(os.path.exists(source + end) for end in ("", ".graph", ".x")):
            raise Skip(f"{source} is not there")
        self.penstock("import", kind, source, self.path(name), "--quiet", *args)
        self.penstock("verify", "--quiet", self.path(name))
        with open(os.path.join(self.path(name), "dataset.json")) as f:
            return json.load(f)

    def there_and_back(self, name, before):
        """export, import: the same arrays, and the same counts."""
        self.penstock("export", self.path(name), self.path("exported"), "--quiet")
        after = self.take("back", "npy", self.path("exported"))
        for m in (before, after):
            m.pop("provenance")
        assert before == after, (name, {k: (before[k], after.get(k)) for k in before if before[k] != after.get(k)})
        shutil.rmtree(self.path("exported"))
        shutil.rmtree(self.path("back"))


def sums(manifest):
    return {k: e["xxh3"] for k, e in manifest["arrays"].items()}


def rows(manifest, *names):
    return tuple(manifest["arrays"][n]["shape"][0] if n in manifest["arrays"] else 0 for n in names)


def clean_graph(place, name):
    return place.take(name, "npy", os.path.join(CLEAN, name), *SPECIAL.get(name, ()))


@test
def framework_neutral_graphs():
    found = sorted(n for n in os.listdir(CLEAN)) if os.path.isdir(CLEAN) else []
    if not found:
        raise Skip(f"{CLEAN} is not there")
    assert set(found) == set(GRAPHS) | set(KNOWLEDGE), set(found) ^ (set(GRAPHS) | set(KNOWLEDGE))
    for name, counts in GRAPHS.items():
        with Place() as p:
            t0 = time.time()
            m = clean_graph(p, name)
            assert (m["vertices"], m["edges"], m["feature_dim"], m["classes"]) == counts, (name, m)
            if name in SPLITS:
                assert rows(m, "train", "val", "test") == SPLITS[name], name
            if name == "am_kg":
                assert m["relation_types"] == 12 and rows(m, "relations") == (counts[1],)
            p.there_and_back(name, m)
            print(f"# {name}: {counts[0]} vertices, {counts[1]} edges, there and back in {time.time() - t0:.1f} s", flush=True)


@test
def framework_neutral_knowledge_graphs():
    for name, (entities, relations, *triples) in KNOWLEDGE.items():
        with Place() as p:
            m = p.take(name, "triples", os.path.join(CLEAN, name))
            assert (m["vertices"], m["relation_types"]) == (entities, relations), (name, m["vertices"], m["relation_types"])
            found = rows(m, "triples_train", "triples_val", "triples_test")
            assert triples[0] is None or found == tuple(triples), (name, found)
            assert m["edges"] == found[0]
            p.there_and_back(name, m)
            print(f"# {name}: {entities} entities, {relations} relations, {found} triples, there and back", flush=True)


@test
def original_layouts():
    for what, (kind, source, args, name) in ORIGINAL.items():
        with Place() as p:
            got = p.take("raw", kind, os.path.join(RAW, source), *args)
            assert (got["vertices"], got["edges"]) == GRAPHS[name][:2], (what, got["vertices"], got["edges"])
            want = sums(clean_graph(p, name))
            same = {k: v for k, v in sums(got).items() if k in want}
            assert same == {k: want[k] for k in same} and {"indptr", "indices"} <= set(same), what
            p.there_and_back("raw", got)
            print(f"# {what}: as clean/{name}: {', '.join(sorted(same))}", flush=True)


@test
def original_knowledge_graphs():
    with Place() as p:
        for folder, name in OPENKE.items():
            m = p.take(folder, "openke", os.path.join(RAW, "openke", folder))
            found = (m["vertices"], m["relation_types"], *rows(m, "triples_train", "triples_val", "triples_test"))
            assert found == KNOWLEDGE[name], (folder, found)
            p.there_and_back(folder, m)
        archive = os.path.join(RAW, "conve", "WN18RR.tar.gz")
        if not os.path.exists(archive):
            raise Skip(f"{archive} is not there")
        os.mkdir(p.path("conve"))
        with tarfile.open(archive) as tar:
            for member in tar.getmembers():
                if member.isfile():
                    with open(os.path.join(p.path("conve"), os.path.basename(member.name)), "wb") as f:
                        f.write(tar.extractfile(member).read())
        m = p.take("w", "triples", p.path("conve"))
        assert (m["vertices"], m["relation_types"], *rows(m, "triples_train", "triples_val", "triples_test")) == KNOWLEDGE["wn18rr"]


@test
def parts_of_scipy():
    with Place() as p:
        m = p.take("n", "npz", os.path.join(RAW, "gnn_benchmark_npz", "cora.npz"))
        assert (m["vertices"], m["edges"], m["classes"]) == NPZ_CORA, m
        p.there_and_back("n", m)


if __name__ == "__main__":
    main()
