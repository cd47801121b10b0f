"""penstock order: orders of partitions, as a user asks for them."""
from harness import *


def order(*args):
    return command("order", *args)


@test
def all_orders_are_compared():
    out = order("--partitions", 12, "--buffer", 3).stdout
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()[1:] if len(line.split()) == 6}
    assert sorted(rows) == ["auto", "beta", "hilbert", "hilbert-symmetric", "legend"], out  # cover needs a buffer of 4
    assert rows["beta"][0] == "34" and rows["legend"][0] == "35" and rows["auto"][0] == "32", out
    assert rows["legend"][4] == "4" and rows["auto"][4] == "0", out
    counts = json.loads(order("--partitions", 12, "--buffer", 3, "--json").stdout)
    assert counts["auto"] == {"swaps": 32, "loads": 35, "bound": 32, "not_overlapped": 0, "overlap": counts["auto"]["overlap"]}


@test
def what_a_dataset_s_edges_hide():
    """The columns of --dataset: at no time to train an edge nothing is hidden, and training waits for each exchange."""
    with Place() as p:
        os.mkdir(p.path("kg"))
        for name in ("train", "valid", "test"):
            with open(os.path.join(p.path("kg"), name + ".txt"), "w") as f:
                f.writelines(f"e{i}\tr\te{(i * 7 + k) % 400}\n" for i in range(400) for k in range(10 if name == "train" else 1))
        command("import", "triples", p.path("kg"), p.path("data"), "--quiet")
        def rows(edge_time):
            out = order("--partitions", 8, "--buffer", 3, "--dataset", p.path("data"), "--edge-time", edge_time, "--dim", 5000).stdout
            assert "has 4000 training edges, 0.025 per vertex squared. With equal buckets" in out, out
            return {line.split()[0]: (int(line.split()[1]), int(line.split()[6]), float(line.split()[7])) for line in out.splitlines()[1:] if len(line.split()) == 8}
        exchange = 50 * 2 * 5000 * 4 * (1 / 2e9 + 1 / 3e9)  # 50 rows of 5000 floats, and their state
        for name, (swaps, hidden, waits) in rows("1e-15").items():
            assert hidden == 0 and abs(waits - swaps * exchange) < 6e-4, (name, swaps, hidden, waits)
        found = rows("1")
        assert found["auto"][0] == found["auto"][1] and found["auto"][2] == 0, found
        assert 0 < found["beta"][1] < found["beta"][0], found  # most of its exchanges have no bucket to train
        for words, told in ((("--check", "x", "--dataset", "d"), "--check cannot be used with other options"), (("--partitions", 4, "--buffer", 2, "--dataset", "d", "--json"), "cannot be used with --check or --json"),
                            (("--partitions", 4, "--buffer", 2, "--dataset", p.path("data"), "--edge-time", 0), "--edge-time: expected a number above 0"),
                            (("--partitions", 4, "--buffer", 2, "--dataset", p.path("none")), "dataset.json")):
            r = command("order", *words, code=None)
            assert r.returncode == 2 and told in r.stderr, r


@test
def a_file_is_written_and_verified():
    with Place() as p:
        path = p.path("order.json")
        order("--kind", "legend", "--partitions", 8, "--buffer", 3, "--out", path)
        assert "every bucket is trained once" in order("--check", path).stdout
        found = json.load(open(path))
        assert found == json.loads(order("--kind", "legend", "--partitions", 8, "--buffer", 3, "--json").stdout)
        buckets = [tuple(b) for g in found["groups"] for b in g]
        assert sorted(buckets) == [(s, d) for s in range(8) for d in range(8)]
        # one bucket less, one twice, a partition that does not exist, half a file
        for change in (lambda o: o["groups"][0].pop(), lambda o: o["groups"][0].append(o["groups"][0][0]),
                       lambda o: o["states"][1].__setitem__(0, 8), lambda o: o["states"].pop(),
                       lambda o: o.__setitem__("buffer", 2)):
            broken = json.loads(json.dumps(found))
            change(broken)
            json.dump(broken, open(path, "w"))
            r = command("order", "--check", path, code=None)
            assert r.returncode == 2 and path in r.stderr, r
        open(path, "w").write(json.dumps(found)[:200])
        r = command("order", "--check", path, code=None)
        assert r.returncode == 2 and f"{path}:1: " in r.stderr, r


@test
def wrong_options_are_told():
    for args, told in ((["--partitions", 8], "expected the options --partitions and --buffer"),
                       (["--partitions", 8, "--buffer", 9], "the buffer holds 9 partitions; expected 2 to 8"),
                       (["--partitions", 300, "--buffer", 9], "--partitions"),
                       (["--kind", "best", "--partitions", 8, "--buffer", 3], "--kind: expected beta"),
                       (["--kind", "legend", "--partitions", 8, "--buffer", 4], "for a buffer of 3"),
                       (["--partitions", 8, "--buffer", 4, "--out", "x"], "--out requires --kind"),
                       (["--check", "x", "--json"], "--check cannot be used with other options"),
                       (["more"], "expected only options")):
        r = command("order", *args, code=None)
        assert r.returncode == 2 and told in r.stderr, (args, r)
    r = command("order", "--kind", "beta", "--partitions", 8, "--buffer", 3, "--out", "/nowhere/x", code=None)
    assert r.returncode == 1 and "/nowhere/x" in r.stderr, r


if __name__ == "__main__":
    main()
