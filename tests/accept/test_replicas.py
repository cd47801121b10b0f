"""Replicas, at length: the same weights for 1, 2, 4 and 8 replicas, for every model, for batches that overflow their
slots, by processes and in one process, on CPUs and among virtual GPUs; a storm of kills and stops, from which runs go on
with other numbers of replicas.

Ranks, too: every process of every rank is killed in turn; and each rank runs in a network namespace of its own, with an
address of its own, as on a machine of its own: the weights are the same, and only MPI has sockets there. So are those of
ranks that have only a part of the features each.

At last, what `penstock scale` predicts of 1, 2 and 4 machines, against runs on as many ranks that have a part of the features
each, and a network whose interfaces are limited in both directions (tc). The ranks share the cores of this machine. So one rank
shows whether compute and drive are as predicted, and the limits are such that with several ranks the network takes longest: for
rows, and in a wider model for the gradient."""
import re

from networks import *

COUNTS = (1, 2, 4, 8)
GPU = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
NODES = 4
WITHOUT = ("--set", "stages.trainer.params.eval_every=0")  # an evaluation, which sends rows, too


def all_equal(p, *args, counts=COUNTS):
    found = {n: trained(p, n, *args) for n in counts}
    assert len(set(found.values())) == 1, (args, found)
    return found[1]


@test
def every_model():
    with Place() as p:
        plain = [all_equal(p, "--set", f"stages.trainer.params.model={model}") for model in ("graphsage", "gcn", "gat")]
        assert len({digest for digest, _ in plain}) == 1 and len({weights for _, weights in plain}) == 3, plain


@test
def recipes():
    """The gradient is clipped after it was summed; the plateau is that of the metric of replica 0, which all know."""
    with Place() as p:
        trainer = {"optimizer": "sgd", "momentum": 0.9, "rate": 0.2, "clip": 0.5, "schedule": "plateau", "patience": 0, "factor": 0.5}
        all_equal(p, "--epochs", 6, *(word for name, value in trainer.items()
                                      for word in ("--set", f"stages.trainer.params.{name}={value}")))


@test
def in_one_process():
    with Place() as p:
        one = trained(p, 1)
        assert all_equal(p, "--group", "all") == one
        assert all_equal(p, "--set", "params.threads=2") == one


@test
def batches_that_overflow_their_slots():
    with Place() as p:
        report = replicated(p, 2, "--set", "stages.sampler.params.margin=0.1").report
        assert report["sampler"]["overflows"] > 0, report["sampler"]
        all_equal(p, "--set", "stages.sampler.params.margin=0.1")


@test
def algorithms_that_need_whole_batches():
    with Place() as p:
        all_equal(p, "--set", "params.algorithm=ladies", "--set", "params.fanout=[64, 64]")
        all_equal(p, "--set", "params.algorithm=labor")


@test
def other_grains_have_weights_of_their_own():
    with Place() as p:
        grains = {n: all_equal(p, "--set", f"params.grains={n}", counts=[c for c in COUNTS if c <= n]) for n in (1, 2, 16)}
        assert len(set(grains.values())) == 3, grains


@test
def slots_without_overlap_and_several_samplers():
    with Place() as p:
        one = trained(p, 1)
        assert trained(p, 2, "--set", "overlap=false") == one
        assert trained(p, 2, "--set", "stages.sampler.instances=2") == one
        assert trained(p, 2, "--set", "links[1].slots=1") == one


@test
def virtual_gpus():
    if not os.path.exists(GPU):
        raise Skip("there are no virtual GPUs in this build")
    os.environ.update(PENSTOCK_CUDA=GPU, PENSTOCK_VIRTUAL_GPUS=str(max(COUNTS)))
    try:
        with Place() as p:
            found = {n: outcome(p.run(REPLICAS, *settings(n, "cuda"), timeout=300).report) for n in COUNTS}
            assert len(set(found.values())) == 1, found
            assert outcome(p.run(REPLICAS, *settings(2, "cuda"), "--set", "links[3].when=never", timeout=300).report) == found[1]
    finally:
        del os.environ["PENSTOCK_CUDA"], os.environ["PENSTOCK_VIRTUAL_GPUS"]


@test
def a_storm():
    rng = random.Random(5)
    with Place() as p:
        one = trained(p, 1)
        for _ in range(24):
            n = rng.choice((2, 4))
            names = ["supervisor", "memory-cpu:0", "memory-cpu:1",
                     *(f"{stage}.{r}" for stage in ("sampler", "disk", "trainer") for r in range(n))]
            strike(p, n, rng.choice(names))
        for _ in range(12):
            run = start(p, rng.choice(COUNTS), *SLOW)
            wait_for(lambda: has_checkpoint(run.run_dir) or run.process.poll() is not None)
            time.sleep(rng.random() * 0.2)
            run.process.send_signal(rng.choice((signal.SIGINT, signal.SIGKILL)))
            run.wait(60)
            no_leftovers()
            assert outcome(replicated(p, rng.choice(COUNTS), "--resume", run.run_dir).report) == one


# ---- ranks ---------------------------------------------------------------------------------------------------


@test
def every_process_of_every_rank():
    check_mpi()
    with Place() as p:
        for rank in (0, 1):
            for name in ("sampler.0", "disk.0", "trainer.0", "memory-cpu:0", "ranks", "supervisor"):
                strike_rank(p, 2, rank, name)
            for name in ("sampler.0", "remote.0", "trainer.0", "memory-cpu:0", "ranks", "supervisor"):
                strike_rank(p, 2, rank, name, slow=(), pipeline=DISTRIBUTED, data=cut(p, 2))
            for name in ("sampler.0", "remote.0", "trainer.0"):
                strike_rank(p, 2, rank, name, slow=(), pipeline=LISTS, data=cut(p, 2, True))


@test
def ranks_with_a_network_of_their_own():
    check_mpi()
    with Machines(NODES) as machines, Place() as p:
        one = trained(p, NODES)
        result = run_ranks(p, NODES, 1, mpirun=machines.mpirun(p))
        assert outcome(result.report) == one, result
        hosts = {report_of(result.run_dir, rank)["host"]["name"] for rank in range(NODES)}
        assert hosts == {f"node-{k}" for k in range(1, NODES + 1)}, hosts
        slow = start_ranks(p, NODES, 1, *SLOW, "--epochs", 1_000_000, mpirun=machines.mpirun(p))
        wait_for(lambda: has_checkpoint(slow.run_dir), 60)
        owners = machines.sockets()
        assert owners and not {name for name in owners if re.match("penstock", name)} - {"penstock-ranks"}, owners
        print(f"# sockets of networks: {sorted(owners)}")
        ended = end_by_kill(slow, processes_of(slow.run_dir, 2)["disk.0"], "disk.0 of rank 2", RANKS_END_S)
        assert "error: rank 2 (node-3): disk.0: died of signal 9 (Killed)" in ended.err, ended
        wait_for(lambda: not leftovers(), 5)


@test
def parts_on_ranks_with_a_network_of_their_own():
    check_mpi()
    with Machines(NODES) as machines, Place() as p:
        one = trained(p, NODES, *WITHOUT)
        lists = run_ranks(p, NODES, 1, mpirun=machines.mpirun(p), pipeline=LISTS, data=cut(p, NODES, True))
        assert outcome(lists.report) == one, lists
        result = run_ranks(p, NODES, 1, *WITHOUT, mpirun=machines.mpirun(p), pipeline=DISTRIBUTED, data=cut(p, NODES))
        assert outcome(result.report) == one, result
        for rank in range(NODES):
            report = report_of(result.run_dir, rank)
            remote, mpi = report["remote"], report["mpi"]
            assert report["host"]["name"] == f"node-{rank + 1}" and report["dataset"]["part"]["number"] == rank, report
            items = 8 * ((NODES - 1) * remote["rounds"] + remote["asked_rows"]) + remote["served_rows"] * remote["row_bytes"]
            assert mpi["item_bytes"] == items and mpi["sent_bytes"] <= 1.02 * (items + mpi["tree_bytes"]), (remote, mpi)


# ---- the scaling model ---------------------------------------------------------------------------------------


RANKS, WITHIN, RATES = (1, 2, 4), .15, {"10Mbit": 1.25e6, "20Mbit": 2.5e6}
VERTICES, EDGES, COLUMNS, SEEDS, TRIES = 1 << 16, 1 << 19, 512, 1 << 15, 5
BATCHES = {1: 48, 2: 16, 4: 16}
# Messages of the tree are sent at once: before larger ones, MPI asks the receiver, and behind a slow interface that takes long.
EAGER = 300_000
PAYLOAD = 1448 / 1514  # of a frame
# What is to bound a step: seeds of a rank in a step, settings, ranks. A rank alone needs no network. The ranks would share one
# drive, so features that several read are in memory.
IN_MEMORY = {"stages.remote.params.direct": "false"}
CASES = {"ssd": (128, {"params.fanout": "[10,10]"}, (1,)),
         "compute": (256, {"params.fanout": "[5,5]", "stages.trainer.params.hidden": 512, **IN_MEMORY}, (1,)),
         "rows": (128, {"params.fanout": "[10,10]", **IN_MEMORY}, (2, 4)),
         "gradient": (64, {"params.fanout": "[2,2]", "stages.trainer.params.hidden": 256, **IN_MEMORY}, (2, 4))}


def of(values):
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


def arguments(case, ranks, run_dir, data):
    """Each rank has as many seeds in each step, as one grain."""
    seeds, more, _ = CASES[case]
    return [DISTRIBUTED, "--dataset", data, "--run-dir", run_dir, "--seed", 3, "--batches", BATCHES[ranks], *of({
        "params.batch": seeds * ranks, "params.grains": ranks, "params.threads": 1, "stages.planner.params.cpu_cache": "1MiB",
        **more})]


def predicted(p, case, data, rate):
    """{ranks: prediction}"""
    machine = p.path("machine.json")
    with open(machine, "w") as f:
        json.dump({"machine": 1, "name": "rank", "sockets": [{"cores": 1, "memory_bytes": 1 << 30}],
                   "devices": [{"model": "core", "socket": 0, "memory_bytes": 1 << 30, "links": []}]}, f)
    p.count += 1
    done = command("scale", "--machine", machine, "--nodes", max(RANKS), "--nic", f"{RATES[rate] * PAYLOAD}B", "--json",
                   *arguments(case, 1, p.path(f"profile{p.count}"), data))
    return {step["nodes"]: step for step in json.loads(done.stdout)["predicted"]}


def measured(p, case, ranks, rate, data):
    """Seconds of a step, without the first, in which connections are made."""
    p.count += 1
    run_dir = p.path(f"run{p.count}")
    argv = [PENSTOCK, "run", *arguments(case, ranks, run_dir, data), "--quiet"]
    if ranks == 1:
        run(*argv)
    else:
        with Machines(ranks, rate) as machines:
            run(MPIRUN, "-n", ranks, *machines.mpirun(p), "--mca", "btl_tcp_eager_limit", EAGER, *argv)
    trainer = report_of(run_dir, 0)["trainer"]
    assert trainer["batches"] == BATCHES[ranks], trainer
    return trainer["span_s"] / (BATCHES[ranks] - 1)


def error_of(case, ranks, rate, step, found):
    error = step["step_s"] / found - 1
    times = {name: "unknown" if step[name + "_s"] is None else f"{1e3 * step[name + '_s']:.1f}"
             for name in ("compute", "ssd", "rows", "gradient")}
    print(f"# {case}, {rate or 'no network'}, {ranks} ranks: predicted {1e3 * step['step_s']:.1f} ms, bound by {step['bound_by']}, of {times}; "
          f"measured {1e3 * found:.1f} ms, {100 * error:+.1f} %", flush=True)
    return error


def alone(p, case, data):
    """Of one rank, which other work on this machine delays most: a profile and a run, in turn; the pair in the middle."""
    pairs = []
    for _ in range(TRIES):
        step = predicted(p, case, data, next(iter(RATES)))[1]
        pairs.append((step, measured(p, case, 1, None, data)))
    pairs.sort(key=lambda pair: pair[0]["step_s"] / pair[1])
    print(f"# {case}: predicted and measured, ms: {[(round(1e3 * step['step_s'], 1), round(1e3 * found, 1)) for step, found in pairs]}")
    return error_of(case, 1, None, *pairs[TRIES // 2])


@test
def steps_are_as_predicted():
    check_mpi()
    with Place() as p:
        data, errors = p.path("rmat"), {}
        command("gen", "rmat", data, "--vertices", VERTICES, "--edges", EDGES, "--features", COLUMNS, "--symmetrize", "--train-count", SEEDS,
                "--val-count", 0, "--test-count", 0, "--quiet")
        parts = {ranks: p.path(f"parts{ranks}") for ranks in RANKS if ranks > 1}
        for ranks, out in parts.items():
            command("partition", data, "--parts", ranks, "--datasets", out, "--quiet")
        for case, (_, _, counts) in CASES.items():
            if counts == (1,):
                errors[case] = alone(p, case, data)
                continue
            for rate in RATES:
                model = predicted(p, case, data, rate)
                for ranks in counts:
                    errors[case, rate, ranks] = error_of(case, ranks, rate, model[ranks], measured(p, case, ranks, rate, parts[ranks]))
        assert max(map(abs, errors.values())) <= WITHIN, errors


if __name__ == "__main__":
    main()
