"""Parts by METIS or by hash (`penstock partition --datasets DIR --by`): the vertices get new numbers, and the dataset stays
the same."""
import re

import numpy as np
from replicating import *


def manifest(directory):
    with open(os.path.join(directory, "dataset.json")) as f:
        return json.load(f)


def cut_by(p, parts, by, *args, data=None, name=None):
    """Cuts the small dataset. Returns the directory, and what the command says."""
    out = p.path(name or f"{by}{parts}")
    return out, command("partition", data or p.data, "--parts", parts, "--datasets", out, "--by", by, "--quiet", *args).stdout


def array(path, name):
    return np.load(os.path.join(path, name + ".npy"))


def cut_edges(data, part):
    indptr, indices = array(data, "indptr"), array(data, "indices")
    return int((np.repeat(part, np.diff(indptr)) != part[indices]).sum())


def check_cut(p, out, said, parts, by):
    """The parts are slices of DIR/whole, which is the dataset under other numbers. Returns the part of each old vertex, and
    the number of edges between parts."""
    whole, n = os.path.join(out, "whole"), manifest(p.data)["vertices"]
    assert "the same as" in command("verify", whole, "--same-as", p.data, "--quiet").stdout
    old, rows = array(whole, "old_ids"), array(p.data, "features")
    with open(os.path.join(out, "parts.json")) as f:
        listed = json.load(f)
    first = listed["first"]
    assert listed["by"] == by and len(first) == parts + 1 and first[-1] == n
    part = np.empty(n, np.int64)
    for k in range(parts):
        own, ids = os.path.join(out, f"part{k}"), old[first[k]:first[k + 1]]
        command("verify", own, "--quiet")
        assert np.array_equal(array(own, "features"), rows[ids]) and np.all(np.diff(ids) > 0), "vertices of a part keep their order"
        assert np.array_equal(array(own, "old_ids"), old) and np.array_equal(array(own, "indices"), array(whole, "indices"))
        part[ids] = k
    vertices, train = np.bincount(part), np.bincount(part[array(p.data, "train")])
    assert [tuple(map(int, found)) for found in re.findall(r"part \d+: (\d+) vertices, (\d+) training", said)] == list(zip(vertices, train)), said
    between = cut_edges(p.data, part)
    assert f"{between} of {manifest(p.data)['edges']} edges lie between parts" in said, (between, said)
    return part, between


@test
def parts_have_the_same_graph():
    with Place() as p:
        between, digests = {}, set()
        for by in ("metis", "hash"):
            out, said = cut_by(p, 4, by)
            part, between[by] = check_cut(p, out, said, 4, by)
            vertices, train = np.bincount(part), np.bincount(part[array(p.data, "train")])
            most = 1.05 if by == "metis" else 1.001  # METIS allows 3 %, of a few hundred vertices
            assert vertices.max() <= most * 500 and (by == "hash" or train.max() <= 1.08 * SEEDS / 4), (vertices, train)
            again, other = (manifest(os.path.join(cut_by(p, 4, by, *args, name=by + name)[0], "part2"))["cut"]
                            for args, name in (((), "again"), (("--seed", 5), "other")))
            assert manifest(os.path.join(out, "part2"))["cut"] == again != other
            digests.add(again["dataset"])
            command("partition", p.data, "--parts", 4, "--by", by, "--out", p.path("of.npy"))
            assert np.array_equal(np.load(p.path("of.npy")), part)
        said = cut_by(p, 4, "range")[1]
        between["range"] = cut_edges(p.data, np.arange(2000) // 500)
        assert f"{between['range']} of " in said and between["metis"] < .85 * min(between["hash"], between["range"]), (between, said)
        assert len(digests) == 2 and not os.path.exists(os.path.join(p.path("range4"), "whole"))
        # what a killed command leaves is replaced, and with few bytes METIS gets a sample of the edges
        os.remove(os.path.join(p.path("metis4"), "parts.json"))
        said = cut_by(p, 4, "metis", "--lists", "--memory", 34_300_000)[1]
        share = float(re.search(r"METIS got ([\d.]+) % of the edges", said).group(1))
        assert 5 < share < 60, said
        edges = manifest(os.path.join(p.path("metis4"), "part3"))["cut"]["first_edge"]
        assert len(array(os.path.join(p.path("metis4"), "part3"), "indices")) == edges[4] - edges[3]


@test
def mistakes_are_told():
    with Place() as p:
        def wrong(expected, *args, data=None):
            said = command("partition", data or p.data, *args, code=None)
            assert said.returncode != 0 and expected in said.stderr and not os.path.exists(p.path("no")), (args, said)

        no = ("--parts", 4, "--datasets", p.path("no"))
        wrong('--by: expected range, hash or metis; found "size"', *no, "--by", "size")
        wrong("--by requires --parts K", "--partitions", 4, "--out", p.path("x"), "--by", "hash")
        wrong("--memory: 1048576 bytes are too few for a graph of 2000 vertices", *no, "--by", "metis", "--memory", "1M")
        os.mkdir(p.path("taken"))
        shutil.copytree(p.data, p.path("taken/whole"))
        wrong("whole is a dataset that was not made for parts", "--parts", 4, "--datasets", p.path("taken"), "--by", "hash")
        out = cut_by(p, 2, "hash")[0]
        os.remove(os.path.join(out, "parts.json"))
        wrong("whole is the dataset that is to be cut", "--parts", 2, "--datasets", out, "--by", "hash", data=os.path.join(out, "whole"))
        with open(p.path("edges"), "w") as f:  # all are neighbours: METIS leaves parts empty
            f.write("".join(f"v{a},v{b}\n" for a in range(17) for b in range(a)))
        command("import", "csv", p.path("edges"), p.path("dense"), "--ids", "strings", "--header", "no", "--quiet")
        command("features", p.path("dense"), "--dim", 2, "--quiet")
        wrong("of 16 would have none of the 17 vertices of ", "--parts", 16, "--datasets", p.path("no"), "--by", "metis", data=p.path("dense"))
        with open(os.path.join(p.data, "indices.npy"), "r+b") as f:
            f.seek(4096)
            f.write((5000).to_bytes(4, "little"))
        wrong("but the graph has 2000 vertices", *no, "--by", "hash")


if __name__ == "__main__":
    main()
