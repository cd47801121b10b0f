"""penstock partition: edges sorted into buckets, against NumPy; what is wrong is told; the file is whole or the old one."""
import signal
import struct
import time

from harness import *
from importing import *
from small_disk import SmallDisk

RELATIONS, ENTITIES, TRIPLES = 7, 500, 20_000


def knowledge_graph(s, triples=TRIPLES):
    rng = np.random.default_rng(5)
    heads, tails = (rng.integers(0, ENTITIES, triples) ** 2 // ENTITIES for _ in range(2))
    heads[:ENTITIES] = np.arange(ENTITIES)  # all are there, each also in a self loop
    tails[:ENTITIES] = heads[:ENTITIES]
    lines = [f"e{h}\tr{r}\te{t}\n" for h, r, t in zip(heads.tolist(), rng.integers(0, RELATIONS, triples).tolist(), tails.tolist())]
    for name, text in (("train", "".join(lines)), ("valid", lines[7]), ("test", lines[8])):
        s.put(f"kg/{name}.txt", text)
    s.get("triples", s.path("kg"))
    return s.path("out")


def tensors(path):
    """A safetensors file: its metadata and arrays."""
    with open(path, "rb") as f:
        data = f.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    meta = header.pop("__metadata__")
    dtypes = {"I32": np.int32, "I64": np.int64}
    return meta, {name: np.frombuffer(data[8 + length + t["data_offsets"][0]:8 + length + t["data_offsets"][1]], dtypes[t["dtype"]]).reshape(t["shape"])
                  for name, t in header.items()}


def partition(data, parts, out, *args, code=0):
    return command("partition", data, "--partitions", parts, "--out", out, "--quiet", *args, code=code)


def check(path, source, parts, by_id):
    """Each bucket has its edges in the source's order, and a vertex is in one partition."""
    meta, t = tensors(path)
    edges, at = t["edges"], t["bucket_at"]
    n = int(meta["vertices"])
    rows = -(-n // parts)
    assert edges.dtype == source.dtype and edges.shape == source.shape and at.shape == (parts * parts + 1,)
    bucket = np.repeat(np.arange(parts * parts), np.diff(at))
    of = np.full(n, -1)
    for ends, part in ((edges[:, 0], bucket // parts), (edges[:, -1], bucket % parts)):
        for v, q in zip(ends.tolist(), part.tolist()):
            assert of[v] in (-1, q), (v, of[v], q)
            of[v] = q
    if by_id:
        assert all(of[v] in (-1, v // rows) for v in range(n))
    assert np.bincount(of[of >= 0], minlength=parts).max() <= rows
    wanted = source[np.argsort(of[source[:, 0]] * parts + of[source[:, -1]], kind="stable")]
    assert np.array_equal(edges, wanted)
    return meta


@test
def edges_are_in_their_buckets():
    with Scratch() as s:
        data = knowledge_graph(s)
        source, out = s.array("triples_train"), s.path("b.safetensors")
        for parts, args in ((1, ()), (4, ("--seed", 3)), (7, ("--assign", "id")), (32, ("--memory", "1M"))):
            said = partition(data, parts, out, *args).stdout
            assert f"vertices in {parts} partitions" in said and f"{len(source)} edges in {parts * parts} buckets" in said, said
            meta = check(out, source, parts, "id" in args)
            assert meta["relations"] == str(RELATIONS) and (meta["assign"], meta["seed"]) == ("id" if "id" in args else "random", "3" if 3 in args else "0")
            assert command("partition", "--check", out).stdout == said
        again = s.path("again")
        partition(data, 32, again)  # the memory changes nothing
        with open(out, "rb") as a, open(again, "rb") as b:
            assert a.read() == b.read()
        partition(data, 32, again, "--seed", 1)
        assert not np.array_equal(tensors(again)[1]["edges"], tensors(out)[1]["edges"])
        assert sorted(os.listdir(s.dir)) == ["again", "b.safetensors", "kg", "out"]


@test
def edges_to_predict():
    with Scratch() as s:
        s.arrays("g", edges=np.array([[0, 1, 2, 3], [1, 2, 3, 0]]), edges_train=np.array([[0, 1], [2, 3], [3, 3]], np.int32))
        s.put("g/meta.json", json.dumps({"kept": ["edges_train"]}))
        s.get("npy", s.path("g"))
        out = s.path("b")
        assert "5 partitions of 4 vertices; expected 1 to 4" in partition(s.path("out"), 5, out, code=2).stderr
        said = partition(s.path("out"), 4, out, "--assign", "id").stdout
        assert "3 edges in 16 buckets of 0 to 1 edges, on average 0.2; 13 buckets are empty" in said, said
        check(out, s.array("edges_train"), 4, True)


@test
def mistakes_are_told():
    with Scratch() as s:
        data, out = knowledge_graph(s, 2000), s.path("b")
        def wrong(words, *args, code=2):
            said = command("partition", *args, code=code).stderr
            assert words in said, said
            assert not os.path.exists(out) and not [n for n in os.listdir(s.dir) if "partial" in n], os.listdir(s.dir)
        wrong("--partitions: expected", data, "--partitions", 257, "--out", out)
        wrong("expected the options --partitions and --out", data, "--partitions", 4)
        wrong("expected one dataset", "--partitions", 4, "--out", out)
        wrong("--assign: expected random or id", data, "--partitions", 4, "--out", out, "--assign", "hash")
        wrong(f"16384 buckets needs {16384 * (20 + 512)} bytes of memory, but the limit is 1048576", data, "--partitions", 128, "--out", out,
              "--memory", "1M", code=None)
        plain = s.path("plain")
        command("gen", "community", plain, "--vertices", "300", "--quiet")
        wrong("has no training edges: expected triples_train.npy", plain, "--partitions", 2, "--out", out)
        wrong("dataset.json", s.path("nothing"), "--partitions", 2, "--out", out)
        wrong("--check cannot be used with other options", "--check", data, "--partitions", 2)
        # an id that the dataset does not have
        with open(os.path.join(data, "triples_train.npy"), "r+b") as f:
            f.seek(4096 + 5 * 12 + 8)
            f.write(struct.pack("<i", ENTITIES))
        wrong(f"triples_train.npy: edge 5 has the vertex {ENTITIES}; expected 0 to {ENTITIES - 1}", data, "--partitions", 2, "--out", out)
        with open(os.path.join(data, "triples_train.npy"), "r+b") as f:
            f.seek(4096 + 5 * 12 + 4)
            f.write(struct.pack("<ii", -1, 0))
        wrong("edge 5 has the relation -1; expected 0 to 6", data, "--partitions", 2, "--out", out)


@test
def damage_is_told():
    with Scratch() as s:
        data, out = knowledge_graph(s, 2000), s.path("b")
        partition(data, 4, out)
        with open(out, "rb") as f:
            whole = f.read()
        for at in range(0, len(whole), max(1, len(whole) // 60)):
            s.put("b", whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
            r = command("partition", "--check", out, code=2)
            assert out in r.stderr, (at, r)
        for length in (0, 7, 100, len(whole) - 1):
            s.put("b", whole[:length])
            assert out in command("partition", "--check", out, code=2).stderr


@test
def a_killed_one_leaves_the_old_file():
    with Scratch() as s:
        data, out = knowledge_graph(s, 400_000), s.path("b")
        old = partition(data, 2, out).stdout
        for delay in (0.005, 0.01, 0.02, 0.04):
            run = subprocess.Popen([PENSTOCK, "partition", data, "--partitions", "16", "--out", out, "--quiet"], stdout=subprocess.DEVNULL)
            time.sleep(delay)
            run.kill()
            run.wait()
            said = command("partition", "--check", out).stdout
            if said != old:
                assert "in 16 partitions" in said, said
                partition(data, 2, out)
        command("gc", s.dir)
        assert sorted(os.listdir(s.dir)) == ["b", "kg", "out"], os.listdir(s.dir)
        r = subprocess.Popen([PENSTOCK, "partition", data, "--partitions", "16", "--out", out, "--quiet"], stderr=subprocess.PIPE, text=True)
        r.send_signal(signal.SIGINT)
        _, err = r.communicate(timeout=20)
        assert r.returncode in (0, 1, 130, -signal.SIGINT), (r.returncode, err)
        assert sorted(os.listdir(s.dir)) == ["b", "kg", "out"], os.listdir(s.dir)


@test
def a_full_disk_leaves_the_old_file():
    with Scratch() as s, SmallDisk(s, "tmpfs") as disk:
        data, out = knowledge_graph(s, 200_000), os.path.join(disk.at, "b")
        old = partition(data, 2, out).stdout
        disk.fill(1 << 20)
        r = partition(data, 4, out, code=None)
        assert r.returncode == 1 and "room" in r.stderr or "space" in r.stderr, r
        assert command("partition", "--check", out).stdout == old and sorted(os.listdir(disk.at)) == ["b", "filler"], os.listdir(disk.at)


if __name__ == "__main__":
    main()
