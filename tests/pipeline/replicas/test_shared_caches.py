"""Caches that replicas have for one another (pipelines/legion.json): what is counted equals a replay of the samples, a
clique keeps the top of its vertices, the plan predicts a run, and weights do not depend on caches."""
import struct

import numpy as np
from replicating import *

LEGION = os.path.join(ROOT, "pipelines", "legion.json")
MACHINES = os.path.join(ROOT, "pipelines", "machines")
POLICIES = ("legion", "gnnlab", "quiver", "pagraph-plus", "pagraph", "topocpu", "topogpu")
MAGIC = 0x3173646963617274  # of a trace of ids


def flags(replicas=4, machine="siton", policy="legion", cache="96KiB", host="64KiB", shuffle="local", **more):
    places = json.dumps([f"cpu:{i + 1}" for i in range(replicas)])
    values = {"replicas.places": places, "params.grains": 8, "params.batch": 100, "params.threads": 1,
              "params.shuffle": shuffle, "params.fanout": "[6,4]", "stages.planner.params.policy": policy,
              "stages.planner.params.gpu_cache": cache, "stages.planner.params.cpu_cache": host,
              "stages.planner.params.machine": os.path.join(MACHINES, machine + ".json") if machine else "", **more}
    sets = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    return [*sets, "--epochs", EPOCHS, "--quiet"]


def run(p, *args, code=0, **more):
    return p.run(LEGION, *flags(**more), *args, code=code)


def traced(path, replicas, grains=8):
    """For each replica the ids of its micro-batches."""
    found = [[] for _ in range(replicas)]
    with open(path, "rb") as f:
        while head := f.read(32):
            magic, _, micro, _, n = struct.unpack("<QQIIQ", head)
            assert magic == MAGIC
            found[(micro >> 24) // (grains // replicas)].append(np.frombuffer(f.read(8 * n), np.int64))
    return found


def lists_bytes(data):
    with open(os.path.join(data, "dataset.json")) as f:
        ds = json.load(f)
    return 4 * ds["edges"] + 8 * ds["vertices"]


def planned(run_dir):
    """For each replica its group and its cached rows; the rows of the CPU tier."""
    directory = os.path.join(run_dir, "plan")
    with open(os.path.join(directory, "plan.json")) as f:
        caches = json.load(f)["caches"]
    ids = np.load(os.path.join(directory, "shared_rows.npy"))
    ends = np.cumsum(caches["rows_of"])
    rows = [ids[end - n:end] for n, end in zip(caches["rows_of"], ends)]
    return caches["group"], rows, np.load(os.path.join(directory, "cache.npy"))


@test
def counts_equal_a_replay_of_the_samples():
    """Once from the ids that the samplers wrote, and once, with lists, from the planner, which samples on its own."""
    with Place() as p:
        for policy, shuffle in (("legion", "local"), ("quiver", "global"), ("pagraph", "local")):
            ids = p.path(f"ids-{policy}")
            r = run(p, policy=policy, shuffle=shuffle, **{"stages.planner.params.hotness": "oracle",
                                                         "stages.sampler.params.trace_ids": ids})
            report, shared = r.report, r.report["shared_caches"]
            assert report["sampler"]["overflows"] == 0
            group, rows, host = planned(r.run_dir)
            total = {"local": 0, "peer": 0, "host": 0, "disk": 0}
            for me, batches in enumerate(traced(ids, 4)):
                everything = np.concatenate(batches)
                left = np.ones(len(everything), bool)
                for other in [me] + [o for o in range(4) if o != me and group[o] == group[me]]:
                    here = left & np.isin(everything, rows[other])
                    left &= ~here
                    assert shared[f"rows_{me}_from_{other}"] == here.sum(), (policy, me, other, shared)
                    total["local" if other == me else "peer"] += int(here.sum())
                tier = left & np.isin(everything, host)
                assert shared[f"rows_{me}_from_host"] == tier.sum() and shared[f"rows_{me}_from_disk"] == (left & ~tier).sum()
                total["host"] += int(tier.sum())
                total["disk"] += int((left & ~tier).sum())
            assert {k: shared["rows_" + k] for k in total} == total and min(total.values()) > 0 or policy == "pagraph", total
            assert report["cache"]["hits"] == sum(total.values()) - total["disk"]
            for key, value in shared.items():
                if key.startswith("predicted_") and key.split("_", 1)[1] in shared:
                    assert abs(value * EPOCHS - shared[key.split("_", 1)[1]]) < 1e-3, (policy, key, value, shared)
            for me in range(4):
                missed = shared[f"rows_{me}_from_host"] + shared[f"rows_{me}_from_disk"]
                assert abs(shared[f"predicted_rows_{me}_not_shared"] * EPOCHS - missed) < 1e-3
            edges = [key for key in shared if key.startswith("predicted_edges_")]
            assert len(edges) == (8 if policy != "pagraph" else 4), shared


@test
def a_clique_keeps_the_top_of_its_vertices():
    with Place() as p:
        ids = p.path("ids")
        r = run(p, **{"stages.planner.params.hotness": "oracle", "stages.planner.params.alpha": 0.25,
                      "stages.sampler.params.trace_ids": ids})
        group, rows, _ = planned(r.run_dir)
        batches = traced(ids, 4)
        with open(os.path.join(p.data, "dataset.json")) as f:
            vertices = json.load(f)["vertices"]
        assert group == [0, 0, 1, 1]
        for clique in (0, 1):
            members = [m for m in range(4) if group[m] == clique]
            hot = np.bincount(np.concatenate([b for m in members for b in batches[m]]), minlength=vertices)
            order = np.lexsort((np.arange(vertices), -hot))
            kept = np.sort(np.concatenate([rows[m] for m in members]))
            assert len(kept) > 100 and np.array_equal(kept, np.sort(order[:len(kept)]))


@test
def a_run_with_other_seeds_is_as_predicted():
    with Place() as p:
        for policy in ("legion", "topocpu", "topogpu"):
            cache = lists_bytes(p.data) + 96 * 1024 if policy == "topogpu" else "96KiB"
            shared = run(p, policy=policy, cache=cache, host="0", **{"stages.planner.params.epochs": 3}).report["shared_caches"]
            ratio = shared["predicted_transactions"] * EPOCHS / shared["transactions"]
            assert 0.95 <= ratio <= 1.05, (policy, ratio)
            assert shared["lines_host"] == 0 or policy != "topogpu"
            assert shared["edges_local"] + shared["edges_peer"] == 0 or policy != "topocpu"


@test
def caches_do_not_change_the_weights():
    """With seeds that all replicas share, each policy trains to the weights of hyperion's caches, on any machine."""
    with Place() as p:
        plain = outcome(run(p, policy="rows", shuffle="global", machine=None).report)
        for policy in POLICIES:
            cache = "2MiB" if policy == "topogpu" else "96KiB"
            if policy == "pagraph":
                continue  # it needs seeds of each replica
            assert outcome(run(p, policy=policy, shuffle="global", cache=cache).report) == plain, policy
        assert outcome(run(p, replicas=8, machine="dgx-v100", shuffle="global").report) == plain
        assert outcome(run(p, "--group", "all", shuffle="global").report) == plain
        assert outcome(run(p, replicas=1, machine=None, shuffle="global").report) == plain


@test
def own_seeds_are_those_of_a_part():
    with Place() as p:
        r = run(p)
        whole = outcome(r.report)
        owners = np.load(os.path.join(r.run_dir, "plan", "owners.npy"))
        assert set(np.unique(owners)) == {-1, 0, 1, 2, 3} and (owners >= 0).sum() == SEEDS
        assert r.report["trainer"]["seeds"] == EPOCHS * SEEDS and r.report["shared_caches"]["cut_edges"] > 0
        assert outcome(run(p, cache="0").report) == whole
        assert outcome(run(p, **{"stages.sampler.instances": 2}).report) == whole
        assert outcome(run(p, machine="dgx-a100").report) != whole  # one clique has no parts


@test
def nobody_can_write_to_a_cache():
    if GROUPED:
        raise Skip("ThreadSanitizer's runs are one process")
    with Place() as p:
        job = p.start(LEGION, *flags(replicas=2), *ENDLESS)
        wait_for(lambda: has_checkpoint(job.run_dir))
        of = processes(job)
        mapped = []
        for name in ("sampler.0", "sampler.1"):
            with open(f"/proc/{of[name]}/maps") as f:
                mapped.append({line.split()[4]: line.split()[1] for line in f if line.split()[1] == "r--s" and "/memfd:" in line})
        assert len(mapped[0]) == 2 and mapped[0] == mapped[1], mapped
        job.process.send_signal(signal.SIGINT)
        assert job.wait(60).code == 130
        no_leftovers()


@test
def any_killed_process_ends_the_run():
    if GROUPED:
        raise Skip("ThreadSanitizer's runs are one process")
    with Place() as p:
        for name in ("sampler.0", "sampler.1", "memory-cpu:2", "supervisor"):
            job = p.start(LEGION, *flags(replicas=2), *ENDLESS)
            wait_for(lambda: has_checkpoint(job.run_dir))
            ended = end_by_kill(job, processes(job)[name], name, END_S)
            if name != "supervisor":
                assert f"error: {name}: died of signal 9 (Killed)" in ended.err, ended
            wait_for(lambda: not leftovers(), 2)


@test
def a_stopped_run_goes_on():
    with Place() as p:
        whole = outcome(run(p).report)
        job = p.start(LEGION, *flags(), *SLOW)
        wait_for(lambda: has_checkpoint(job.run_dir))
        job.process.send_signal(signal.SIGINT)
        stopped = job.wait(60)
        assert stopped.code == 130, stopped
        assert outcome(run(p, "--resume", stopped.run_dir).report) == whole
        other = run(p, "--resume", stopped.run_dir, machine="dgx-a100", code=None)
        assert other.code != 0 and "machine" in other.err, other
        no_leftovers()


@test
def a_plan_can_be_used_again():
    with Place() as p:
        first = run(p)
        plan = os.path.join(first.run_dir, "plan", "plan.json")
        again = run(p, **{"stages.planner.params.reuse": plan})
        assert outcome(again.report) == outcome(first.report) and again.report["planner"]["reused"] == "yes"
        told = run(p, replicas=2, code=None, **{"stages.planner.params.reuse": plan})
        assert told.code != 0 and "was legion of 4, local" in told.err, told


@test
def mistakes_are_told():
    with Place() as p:
        one_sided = p.path("one-sided.json")
        with open(os.path.join(MACHINES, "siton.json")) as f:
            described = json.load(f)
        described["devices"][0]["links"] = []
        with open(one_sided, "w") as f:
            json.dump(described, f, indent=1)
        planner = "stages.planner.params."
        for told, changes in (
                ("one-sided.json:", {planner + "machine": one_sided}),
                ("device 1 lists device 0, but not the reverse", {planner + "machine": one_sided}),
                ("none.json", {planner + "machine": p.path("none.json")}),
                ("sampler is on cpu:0, but", {"replicas.places": '["cpu:0","cpu:1"]'}),
                ("sampler.1 is on cpu:9, but", {"replicas.places": '["cpu:1","cpu:9"]'})):
            values = {"replicas": 2, **changes}
            places = values.pop("replicas.places", '["cpu:1","cpu:2"]')
            args = [str(a) for a in flags(**values)] + ["--set", f"replicas.places={places}"]
            sets = args[:args.index("--epochs")] + args[args.index("--quiet") + 1:]
            checked = command("check", LEGION, *sets, code=2)
            assert told in checked.stderr, (told, checked)
        for told, changes in (
                ("set gpu_cache to its size", {"cache": "auto"}),
                ('hotness is "degree", but the policy counts batches', {planner + "hotness": "degree"}),
                ("cannot be used together with this sampling algorithm", {"params.algorithm": "ladies"}),
                ('use the shuffle "local"', {"policy": "pagraph", "shuffle": "global"}),
                ("topogpu: all lists of neighbours take", {"policy": "topogpu"}),
                ("expected a power of two", {planner + "cls": 65})):
            r = run(p, code=None, **changes)
            assert r.code != 0 and told in r.err, (told, r)
            no_leftovers()


@test
def a_part_without_training_vertices_is_told():
    with Place() as p:
        data = p.path("tiny")
        command("gen", "community", data, "--vertices", "1000", "--train", "0.008", "--seed", "3")
        r = p.run(LEGION, *flags(replicas=8), data=data, code=None)
        assert r.code != 0 and ("has no training vertex" in r.err or "would get none of" in r.err), r
        no_leftovers()


if __name__ == "__main__":
    main()
