"""penstock caches: which device of a machine caches what, on a small generated graph."""
import numpy as np
from harness import *

MACHINES = os.path.join(ROOT, "pipelines", "machines")
VERTICES = 6000


class World(Place):
    def __enter__(self):
        super().__enter__()
        self.graph = self.path("data")
        command("gen", "community", self.graph, "--vertices", VERTICES, "--seed", 3)
        return self

    def caches(self, machine, *args):
        done = command("caches", self.graph, "--machine", os.path.join(MACHINES, machine + ".json"), "--json", *args)
        return {p["policy"]: p for p in json.loads(done.stdout)["policies"]}


def adds_up(p, devices):
    """The sums are those of the devices, and nobody reads from a device outside its group."""
    group = {d: g["devices"] for g in p["groups"] for d in g["devices"]}
    assert len(p["devices"]) == len(group) == devices
    local = peer = host = 0
    for d, device in enumerate(p["devices"]):
        rows = device["rows"]
        assert all(n == 0 for i, n in enumerate(rows) if i not in group[d]), (d, rows)
        everything = sum(rows) + device["rows_host"]
        assert abs(device["hit_rate"] - sum(rows) / everything) < 1e-8
        local, peer, host = local + rows[d], peer + sum(rows) - rows[d], host + device["rows_host"]
    assert (p["rows_local"], p["rows_peer"], p["rows_host"]) == (local, peer, host)
    rates = [device["hit_rate"] for device in p["devices"]]
    assert abs(p["hit_rate"] - sum(rates) / devices) < 1e-8 and p["hit_rate_least"] == min(rates) and p["hit_rate_most"] == max(rates)
    assert p["rows_host_largest"] == max(device["rows_host"] for device in p["devices"])
    return local + peer + host


@test
def policies_in_order():
    """The shape of Legion's figures 3 and 9: partitions and peers both help; in one clique, legion is quiver."""
    with World() as w:
        found = {name: w.caches(name, "--rows", "5%", "--batches", 4) for name in ("dgx-v100", "siton", "dgx-a100")}
        for name, policies in found.items():
            assert list(policies) == ["legion", "gnnlab", "quiver", "pagraph-plus", "pagraph"]
            read = {policy: adds_up(p, 8) for policy, p in policies.items()}
            assert read["gnnlab"] == read["quiver"], read  # the same batches
            assert len(policies["legion"]["groups"]) == {"dgx-v100": 2, "siton": 4, "dgx-a100": 1}[name]
            assert all(p["batches"] == 4 for p in policies.values())
            assert policies["gnnlab"] == found["siton"]["gnnlab"]  # it does not know links
        for name in ("dgx-v100", "siton"):
            legion, quiver, gnnlab = (found[name][p]["hit_rate"] for p in ("legion", "quiver", "gnnlab"))
            assert legion > quiver + 0.02 > gnnlab + 0.04, (name, legion, quiver, gnnlab)
        one = found["dgx-a100"]
        assert abs(one["legion"]["hit_rate"] - one["quiver"]["hit_rate"]) < 0.01
        assert one["legion"]["partition"]["cut_edges"] == 0 < found["siton"]["legion"]["partition"]["cut_edges"]
        assert one["legion"]["rows_local"] > one["quiver"]["rows_local"]  # CSLP prefers the device that needs a row


@test
def more_devices_more_cache():
    """Figure 2: in pairs, quiver's caches hold the same rows however many there are, and legion's do not."""
    with World() as w:
        host = {}
        for devices in (2, 4, 8):
            policies = w.caches("siton", "--rows", "5%", "--batches", 32 // devices, "--devices", devices)
            for name, p in policies.items():
                host.setdefault(name, []).append(p["rows_host"])
        two, four, eight = host["quiver"]
        assert abs(four / two - 1) < 0.02 and abs(eight / two - 1) < 0.02, host
        two, four, eight = host["legion"]
        assert four < 0.93 * two and eight < 0.86 * two, host


@test
def lists_and_rows_share():
    """The share of lists is the predicted best, and what is predicted is counted."""
    with World() as w:
        legion = w.caches("dgx-v100", "--cache", "128K", "--batches", 8, "--policy", "legion")["legion"]
        adds_up(legion, 8)
        for group in legion["groups"]:
            t = group["transactions"]
            n, counted = ([a + b for a, b in zip(t[kind + "_lists"], t[kind + "_rows"])] for kind in ("predicted", "counted"))
            assert len(n) == 101 and round(group["alpha"] * 100) == n.index(min(n))
            assert counted[n.index(min(n))] <= 1.01 * min(counted)
            assert max(abs(a / b - 1) for a, b in zip(n, counted)) <= 0.05
        fixed = w.caches("dgx-v100", "--cache", "128K", "--batches", 8, "--policy", "legion", "--alpha", 1)["legion"]
        assert all(device["edges_host"] < sum(device["edges"]) for device in fixed["devices"])
        assert all(sum(device["rows"]) == 0 for device in fixed["devices"]) and fixed["transactions"] > legion["transactions"]
        everything = w.caches("dgx-v100", "--cache", "8M", "--batches", 8)
        assert list(everything)[-2:] == ["topocpu", "topogpu"]
        assert all(d["lines_host"] == 0 and d["edges_host"] == 0 for d in everything["topogpu"]["devices"])
        assert all(sum(d["edges"]) == 0 for d in everything["topocpu"]["devices"])
        printed = w.caches("dgx-a100", "--rows", "5%", "--policy", "legion", "--cslp", "paper", "--batches", 4)["legion"]
        room = w.caches("dgx-a100", "--rows", "5%", "--policy", "legion", "--batches", 4)["legion"]
        assert printed["hit_rate"] < room["hit_rate"]


@test
def tables_for_people():
    with World() as w:
        machine = ("--machine", os.path.join(MACHINES, "siton.json"))
        text = command("caches", w.graph, *machine, "--rows", 100, "--batches", 2).stdout
        assert "on 8 devices of siton\neach device caches 100 of 6000 rows\n" in text and "\npagraph-plus  " in text, text
        text = command("caches", w.graph, *machine, "--cache", "64K", "--batches", 2, "--policy", "legion").stdout
        assert "rows that a device reads (down)" in text and "\nchosen: " in text and "\n  0.50 " in text, text
        text = command("caches", w.graph, *machine, "--cache", "64K", "--batches", 2).stdout
        assert "topogpu       left out: topogpu: all lists of neighbours take" in text, text
        again = command("caches", w.graph, *machine, "--cache", "64K", "--batches", 2).stdout
        assert text == again


@test
def mistakes_are_told():
    with World() as w:
        machine = ("--machine", os.path.join(MACHINES, "siton.json"))
        one_sided = w.path("one-sided.json")
        with open(os.path.join(MACHINES, "siton.json")) as f:
            described = json.load(f)
        described["devices"][0]["links"] = []
        with open(one_sided, "w") as f:
            json.dump(described, f)
        rows = ("--rows", "5%")
        for words, told in (
                ((w.graph, *machine), "expected either --rows or --cache"),
                ((w.graph, *machine, *rows, "--cache", "1M"), "expected either --rows or --cache"),
                ((w.graph, *machine, *rows, "--batch", 3, "--batches", 3), "expected either --batch or --batches"),
                ((w.graph, *machine, *rows, "--policy", "legions"), 'unknown policy "legions"; expected legion|gnnlab'),
                ((w.graph, *machine, *rows, "--policy", "topogpu"), "--policy topogpu needs --cache"),
                ((w.graph, *machine, *rows, "--alpha", 0.5), "--alpha need --cache"),
                ((w.graph, *machine, "--rows", "0%"), "--rows: expected more than 0%"),
                ((w.graph, *machine, *rows, "--fanout", "25,x"), "--fanout: expected an integer"),
                ((w.graph, *machine, *rows, "--fanout", ","), "--fanout: expected numbers"),
                ((w.graph, *machine, *rows, "--cslp", "printed"), "--cslp: expected room or paper"),
                ((w.graph, *machine, *rows, "--cls", 65), "--cls: expected a power of two"),
                ((w.graph, *machine, *rows, "--devices", 9), "siton has only 8 devices"),
                ((w.graph, *machine, "--cache", "1K", "--policy", "topogpu"), "but the cache of a device has 1024"),
                ((w.graph, *machine, *rows, "--batches", 100000, "--policy", "quiver"), "fewer than the 800000 batches"),
                ((w.graph, "--machine", one_sided, *rows), "one-sided.json"),
                ((w.path("none"), *machine, *rows), "dataset.json"),
                ((*machine, *rows), "expected one dataset")):
            r = command("caches", *words, code=None)
            assert r.returncode == 2 and told in r.stderr, (words, r)


@test
def parts_have_few_edges_between_them():
    """penstock partition --parts: balanced, repeatable, better than chance, and within the memory that it may have."""
    with World() as w:
        out, again, few = (w.path(name + ".npy") for name in ("parts", "again", "few"))
        text = command("partition", w.graph, "--parts", 3, "--out", out).stdout
        assert "METIS got 100.0 % of the edges" in text and text.count(" training vertices") == 3, text
        command("partition", w.graph, "--parts", 3, "--out", again)
        parts = np.load(out)
        assert parts.dtype == np.int8 and np.array_equal(parts, np.load(again))
        train = np.load(os.path.join(w.graph, "train.npy"))
        for sizes in (np.bincount(parts, minlength=3), np.bincount(parts[train], minlength=3)):
            assert len(sizes) == 3 and sizes.max() <= 1.05 * sizes.sum() / 3, sizes
        indptr, indices = (np.load(os.path.join(w.graph, name + ".npy")) for name in ("indptr", "indices"))
        to = np.repeat(np.arange(VERTICES), np.diff(indptr))
        cut = int((parts[indices] != parts[to]).sum())
        assert f"{cut} of {len(indices)} edges lie between parts" in text and cut < len(indices) / 3, (cut, len(indices), text)
        text = command("partition", w.graph, "--parts", 3, "--out", few, "--memory", "36M").stdout
        sampled = float(text.split("METIS got ")[1].split(" ")[0])
        assert 10 < sampled < 100, text
        for words, told in (
                ((w.graph, "--parts", 3), "expected the options --partitions and --out, --parts and --out, or --parts and --datasets"),
                ((w.graph, "--parts", 3, "--partitions", 3, "--out", out), "--parts and --out, or --parts and --datasets"),
                ((w.graph, "--parts", 65, "--out", out), "--parts: expected an integer from 1 to 64"),
                ((w.graph, "--parts", 3, "--out", out, "--memory", "1M"), "bytes are too few for a graph of 6000 vertices")):
            r = command("partition", *words, code=None)
            assert r.returncode == 2 and told in r.stderr, (words, r)


if __name__ == "__main__":
    main()
