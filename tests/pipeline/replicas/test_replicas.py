"""Replicas of sampler, disk and trainer: the weights do not tell how many there were, nor whether they were processes or
threads; a killed process ends all; a stopped run goes on with another number of replicas. `make accept` has all
numbers of replicas, more models and the storm."""
from replicating import *


@test
def the_number_of_replicas_does_not_change_the_weights():
    with Place() as p:
        one = trained(p, 1)
        assert trained(p, 2) == one
        assert trained(p, 2, "--group", "all") == one
        assert trained(p, 8) == one  # more replicas than the last batch of an epoch has seeds for


@test
def a_report_tells_the_replicas_apart():
    with Place() as p:
        report = replicated(p, 2).report
        names = {s["name"] for s in report["stages"]} if isinstance(report["stages"], list) else set(report["stages"])
        for name in ("sampler", "disk", "trainer"):
            assert {f"{name}.0", f"{name}.1"} <= names, names
        assert len(report["epochs"]) == EPOCHS and "exchange_s" in report["trainer"], report
        assert report["trainer"]["seeds"] == EPOCHS * SEEDS, report["trainer"]


@test
def the_pipeline_of_a_run_repeats_it():
    with Place() as p:
        first = replicated(p, 2)
        again = p.run(os.path.join(first.run_dir, "pipeline.json"), "--quiet")
        assert outcome(again.report) == outcome(first.report) and "trainer.1" in again.out, again


@test
def a_stopped_run_goes_on_with_another_number_of_replicas():
    with Place() as p:
        one = trained(p, 1)
        for first, then in ((2, 1), (1, 4), (4, 2)):
            run = start(p, first, *SLOW)
            wait_for(lambda: has_checkpoint(run.run_dir))
            run.process.send_signal(signal.SIGINT)
            stopped = run.wait(60)
            assert stopped.code == 130, stopped
            assert outcome(replicated(p, then, "--resume", stopped.run_dir).report) == one, (first, then)
            no_leftovers()


LOCAL = ("--set", "params.shuffle=local")


@test
def each_replica_can_shuffle_its_own_seeds():
    """Every training vertex is a seed once an epoch. Equal numbers of replicas give equal weights, however they run."""
    with Place() as p:
        two = replicated(p, 2, *LOCAL).report
        assert two["trainer"]["seeds"] == EPOCHS * SEEDS, two["trainer"]
        steps = two["trainer"]["batches"] / EPOCHS
        assert steps == 2, steps  # two shares of about 400, in batches of at most 265
        one = trained(p, 1)
        assert outcome(two) != one and trained(p, 2, *LOCAL, "--group", "all") == outcome(two)
        assert trained(p, 2, *LOCAL, "--set", "stages.sampler.instances=2") == outcome(two)
        assert trained(p, 4, *LOCAL) not in (one, outcome(two))


@test
def a_cache_stage_counts_the_batches_of_own_seeds():
    with open(os.path.join(ROOT, "pipelines", "gids.json")) as f:
        gids = json.load(f)
    gids["replicas"] = {"stages": ["sampler", "cache", "disk", "trainer"], "places": ["cpu:0", "cpu:1"]}
    with Place() as p:
        args = ("--set", "params.grains=8", "--set", "params.batch=265", "--epochs", 1, "--quiet")
        report = p.run(gids, *args, *LOCAL).report
        assert (report["trainer"]["batches"], report["trainer"]["seeds"]) == (2, SEEDS), report["trainer"]
        told = p.run(gids, *args, "--set", "stages.sampler.params.shuffle=local", code=2).err
        assert 'cache.shuffle is "global", but sampler.shuffle is "local": they must be equal' in told, told


@test
def a_stopped_run_with_own_seeds_goes_on():
    with Place() as p:
        whole = trained(p, 2, *LOCAL)
        run = start(p, 2, *LOCAL, *SLOW)
        wait_for(lambda: has_checkpoint(run.run_dir))
        run.process.send_signal(signal.SIGINT)
        stopped = run.wait(60)
        assert stopped.code == 130, stopped
        other = replicated(p, 4, *LOCAL, "--resume", stopped.run_dir, code=None)
        assert other.code != 0 and "the number of replicas of sampler is 4, was 2" in other.err, other
        assert outcome(replicated(p, 2, *LOCAL, "--resume", stopped.run_dir).report) == whole
        no_leftovers()


@test
def any_killed_process_ends_the_run():
    if GROUPED:
        raise Skip("ThreadSanitizer's runs are one process")
    with Place() as p:
        for name in ("trainer.0", "trainer.1", "sampler.1", "disk.0", "memory-cpu:1", "supervisor"):
            strike(p, 2, name)


if __name__ == "__main__":
    main()
