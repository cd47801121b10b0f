"""penstock store on plain files: where each row lies, and what is never overwritten unasked."""
import struct

from harness import *

DATA_AT = 1 << 20


def store(data, *devices, typed=None, code=0, force=False, topology=False):
    options = [*(["--force"] if force else []), *(["--topology"] if topology else [])]
    r = subprocess.run([PENSTOCK, "store", data, "--quiet", *options, "--to", *devices],
                       input=typed, capture_output=True, text=True, timeout=60)
    assert r.returncode == code, f"{devices}: {r.returncode}\n{r.stdout}{r.stderr}"
    return r.stderr


def contents(path):
    with open(path, "rb") as f:
        return f.read()


@test
def rows_lie_where_they_should():
    with Place() as p:
        whole, parts = p.path("whole"), p.path("parts")  # rows that fill sectors, and rows of which four do
        command("gen", "community", whole, "--vertices", "2001", "--seed", "3", "--features", "128")
        command("gen", "community", parts, "--vertices", "2001", "--seed", "3", "--features", "32")
        for data, n, group in ((whole, 1, 1), (whole, 3, 1), (parts, 1, 4), (parts, 3, 4)):
            with open(os.path.join(data, "dataset.json")) as f:
                manifest = json.load(f)
            stride, rows = manifest["stride_bytes"], contents(os.path.join(data, "features.npy"))[4096:]
            assert stride * group % 512 == 0, manifest
            devices = [p.path(f"{os.path.basename(data)}{n}{i}") for i in range(n)]
            store(data, *devices)
            for i, device in enumerate(devices):
                mine = b"".join(rows[v * stride:(v + 1) * stride] for v in range(manifest["vertices"]) if v // group % n == i)
                there = contents(device)
                assert there[DATA_AT:DATA_AT + len(mine)] == mine and not any(there[DATA_AT + len(mine):])
                assert len(there) % 4096 == 0
                assert there[:16] == b"Penstock stripe\0" and struct.unpack("<III", there[16:28]) == (2, i, n)
            store(data, *devices)  # the same rows again: nothing is lost, so nothing is asked


def padded(n, to):
    return -(-n // to) * to


@test
def topology_lies_where_it_should():
    with Place() as p:
        data = p.path("data")
        command("gen", "community", data, "--vertices", "3001", "--seed", "3", "--features", "128")
        arrays = [contents(os.path.join(data, name))[4096:] for name in ("indptr.npy", "indices.npy")]
        assert len(arrays[0]) == 3002 * 8 and len(arrays[1]) > 10 * 4096 and len(arrays[1]) % 4096 != 0
        for n in (1, 3):
            bare, full = ([p.path(f"{kind}{n}{i}") for i in range(n)] for kind in ("bare", "full"))
            store(data, *bare)
            store(data, *full, topology=True)
            begins = DATA_AT + padded(3001, n) // n * 512  # the same on every drive, even if the last has a row less
            for i in range(n):
                without, there, end = contents(bare[i]), contents(full[i]), DATA_AT + (3001 - i + n - 1) // n * 512
                assert there[4096:end] == without[4096:end] and struct.unpack("<I", there[16:20]) == (3,), "the rows as ever"
                at = begins
                for k, array in enumerate(arrays):
                    at = padded(at, 65536)
                    mine = b"".join(array[u:u + 4096] for u in range(i * 4096, len(array), n * 4096))
                    assert struct.unpack("<QQ", there[160 + 24 * k:176 + 24 * k]) == (len(array), at), (n, i, k)
                    assert not any(there[end:at]) and there[at:at + len(mine)] == mine, (n, i, k)
                    end, at = at + len(mine), at + padded(len(array), n * 4096) // n
                assert len(there) == padded(end, 4096) and not any(there[end:]), (n, i, len(there), end)


@test
def topology_is_not_lost_unasked():
    with Place() as p:
        device = p.path("device")
        store(p.data, device)
        store(p.data, device, topology=True)  # the rows again, and more
        before = contents(device)
        assert "also contains the topology of" in store(p.data, device, code=2) and contents(device) == before
        store(p.data, device, topology=True)
        assert contents(device) == before
        store(p.data, device, force=True)
        assert struct.unpack("<I", contents(device)[16:20]) == (2,)
        for name in ("indptr.npy", "indices.npy"):
            broken, fresh = p.path("broken-" + name), p.path("fresh-" + name)
            shutil.copytree(p.data, broken)
            with open(os.path.join(broken, name), "r+b") as f:
                f.seek(5000)
                byte = f.read(1)
                f.seek(5000)
                f.write(bytes([byte[0] ^ 1]))
            err = store(broken, fresh, topology=True, code=2)
            assert name in err and "does not have the checksum of dataset.json. The drives were not marked" in err, err
            assert not any(contents(fresh)[:4096]), "half written, and signed"


@test
def what_is_not_ours_is_kept():
    with Place() as p:
        foreign, other = p.path("foreign"), p.path("other")
        with open(foreign, "wb") as f:
            f.write(b"a photograph" * 1000)
        before = contents(foreign)
        assert "was not written by Penstock" in store(p.data, foreign, code=2)
        assert "what was typed is not the serial number of this drive; nothing was written" in store(p.data, foreign, force=True, typed="something\n", code=2)
        assert "what was typed is not the serial number of this drive; nothing was written" in store(p.data, foreign, force=True, typed="", code=2)
        assert contents(foreign) == before
        assert "Everything on it will be lost" in store(p.data, foreign, force=True, typed="foreign\n")
        command("gen", "community", other, "--vertices", "1000", "--seed", "9")
        before = contents(foreign)
        assert "holds rows of" in store(other, foreign, code=2) and contents(foreign) == before
        store(other, foreign, force=True)
        assert contents(foreign) != before
        with open(foreign, "r+b") as f:
            f.seek(20)
            f.write(b"\xff")
        assert "which says what is on the drive, is damaged" in store(other, foreign, code=2)


@test
def what_cannot_be_stored():
    with Place() as p:
        device, broken = p.path("device"), p.path("broken")
        assert "are the same" in store(p.data, device, device, code=2)
        assert "expected a block device or a plain file" in store(p.data, "/dev/null", code=2)
        assert "dataset.json" in store(p.path("nothing"), device, code=2)
        assert "expected the arguments DATASET --to" in command("store", p.data, code=2).stderr
        shutil.copytree(p.data, broken)
        with open(os.path.join(broken, "features.npy"), "r+b") as f:
            f.seek(5000)
            byte = f.read(1)
            f.seek(5000)
            f.write(bytes([byte[0] ^ 1]))
        assert "do not have the checksum of dataset.json. The drives were not marked" in store(broken, p.path("fresh"), code=2)
        assert not any(contents(p.path("fresh"))[:4096]), "half written, and signed"


if __name__ == "__main__":
    main()
