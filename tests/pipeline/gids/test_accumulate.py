"""The disk stage's accumulator and the synchronous stack: equal weights, how many bursts there are, what is refused."""
from harness import *

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
EMULATED = ("stages.disk.params.backend=emulated", "stages.planner.params.cpu_cache=0", "links[1].slots=8")


def train(p, *pairs, epochs=1, **more):
    words = [word for pair in ("params.batch=64", *EMULATED, *pairs) for word in ("--set", pair)]
    return p.run(HYPERION, "--epochs", epochs, "--quiet", *words, **more)


def accumulate(value, *more):
    return [f'stages.disk.params.accumulate="{value}"', *(f"stages.disk.params.{pair}" for pair in more)]


def outcome(r):
    return r.report["digest"], r.report["weights_digest"]


@test
def any_gate_trains_to_the_same_weights():
    """The drives get a batch at a time, or several together, also on two drives and with two disk stages."""
    with Place() as p:
        free = train(p)
        batches = free.report["sampler"]["batches"]
        assert free.report["io"]["accumulate"] == "none" and free.report["io"]["bursts"] == 0
        one = train(p, *accumulate("off"))
        assert outcome(one) == outcome(free) and one.report["io"]["bursts"] == batches, one.report["io"]
        three = train(p, *accumulate("3"))
        assert outcome(three) == outcome(free) and 0 < three.report["io"]["bursts"] <= batches, three.report["io"]
        many = train(p, *accumulate("100"))  # more than there are slots
        assert outcome(many) == outcome(free) and many.report["io"]["hurried"] == many.report["io"]["bursts"] > 0
        assert many.report["io"]["bursts"] < batches, many.report["io"]
        two = train(p, "stages.disk.instances=2", *accumulate("4", "ssds=2"))
        assert outcome(two) == outcome(free)


@test
def auto_waits_for_the_accesses_of_the_model():
    with Place() as p:
        for ssds, want in ((1, 1168), (2, 2337)):
            r = train(p, *accumulate("auto", "preset=optane", "dilate=20", f"ssds={ssds}"))
            assert r.report["io"]["accesses_wanted"] == want, r.report["io"]
        r = train(p, *accumulate("auto", "iop_peak=1000", "initial_us=1000", "terminal_us=0", "accumulate_share=0.5"))
        assert r.report["io"]["accesses_wanted"] == 1, r.report["io"]


@test
def many_small_iterations_are_in_flight_together():
    """N_access requests of batches of about 40 rows are nearly 30 batches: the drives get all of them."""
    with Place() as p:
        r = train(p, "params.batch=4", "params.fanout=[3,2]", "links[1].slots=40", *accumulate("auto", "preset=optane", "dilate=500"))
        io = r.report["io"]
        rows, wanted = io["rows"] / r.report["sampler"]["batches"], io["accesses_wanted"]
        assert wanted == 1168 and io["in_flight_s"] / io["active_s"] > 12 * rows, io


TRIES = 1 if SAN else 3  # other work on the machine disturbs a measurement; a sanitizer disturbs all of them


@test
def the_probe_finds_the_drive():
    """Drives of known speed, measured: the peak, and the overhead, of which the model's latency is a part. The run's counts are
    without the probe's."""
    with Place() as p:
        want = train(p)
        for dilate, ssds in ((150, 1), (300, 2)):
            for left in reversed(range(TRIES)):
                r = train(p, *accumulate("auto", "preset=optane", f"dilate={dilate}", f"ssds={ssds}", "accumulate_probe=true"))
                io, burst = r.report["io"], r.report["io"]["burst"]
                assert burst["from"] == "probe" and 0 < burst["probe_s"] < 10, io
                model = 19 * burst["iop_peak"] * ssds * burst["overhead_us"] * 1e-6
                assert abs(io["accesses_wanted"] - model) < 1, io
                assert outcome(r) == outcome(want) and io["rows"] == want.report["io"]["rows"], io
                if SAN or (abs(burst["iop_peak"] / 1.5e6 - 1) < 0.2 and 10 < burst["overhead_us"] < 40):
                    break
                assert left > 0, burst


@test
def files_are_measured():
    with Place() as p:
        r = p.run(HYPERION, "--epochs", "1", "--quiet", "--set", "params.batch=64", "--set", "stages.disk.params.gap_bytes=0",
                  "--set", "stages.planner.params.cpu_cache=0", "--set", 'stages.disk.params.accumulate="auto"')
        assert r.report["io"]["burst"]["from"] == "probe" and r.report["io"]["burst"]["iop_peak"] > 0, r.report["io"]
        assert r.report["io"]["rows"] == r.report["cache"]["lookups"], r.report["io"]


@test
def the_governor_takes_few_slots():
    """As many requests in flight as are wanted, in as few slots as hold them."""
    with Place() as p:
        gids, want = os.path.join(ROOT, "pipelines", "gids.json"), outcome(train(p, epochs=2))
        sets = ("params.batch=64", "links[3].slots=10", "stages.cache.params.cache_bytes=0", *EMULATED[:1], *accumulate("none", "preset=optane", "dilate=40"))
        for keep in (0, 1, 1500, 10 ** 6):
            words = [word for pair in (*sets, f"stages.cache.params.keep_in_flight={keep}") for word in ("--set", pair)]
            r = p.run(gids, "--epochs", "2", "--quiet", *words)
            io, governor = r.report["io"], r.report["governor"]
            assert outcome(r) == want and governor["keep_in_flight"] == keep and governor["slots"] == 10, governor
            if keep in (0, 10 ** 6):
                assert governor["slots_used"] == 10, governor
            else:  # batches have about 900 rows
                assert governor["slots_used"] == (2 if keep == 1 else 3), governor
                assert io["in_flight_s"] / io["active_s"] >= keep, io


@test
def lanes_that_wait_are_counted():
    """With stack sync a request holds a lane from its submission to its end; the mean number is below the limit."""
    with Place() as p:
        few = ("params.fanout=[3,2]",)
        want, held = outcome(train(p, *few)), {}
        for lanes in (1, 4096):
            r = train(p, *few, *accumulate("off", "stack=sync", f"lanes={lanes}", "preset=optane", "dilate=4"))
            io = r.report["io"]
            assert outcome(r) == want
            held[lanes] = io["lane_s"] / io["active_s"]
        assert 0 < held[1] <= 1.1 and held[4096] > 4 * held[1], held


@test
def bad_settings_are_told():
    with Place() as p:
        for pairs, words in ((accumulate("some"), 'accumulate is "some"; expected'),
                             (("stages.disk.params.lanes=65",), "1 to 64 lanes")):
            r = train(p, *pairs, code=1)
            assert words in r.err, (words, r.err)
        few = p.path("few")
        command("gen", "community", few, "--vertices", "200", "--seed", "3")
        r = train(p, *accumulate("auto"), data=few, code=1)
        assert "the speed of the drives is not known, and 200 feature rows" in r.err, r.err


@test
def bench_prints_the_accesses():
    text = command("bench", "io", "--accesses", "0.95").stdout
    rows = {line.split()[0]: line.split()[1] for line in text.splitlines()[1:]}
    assert rows["optane"] == "1168" and rows["980pro"] == "4708", text
    assert "2337" in command("bench", "io", "--accesses", "0.95", "--preset", "optane", "--ssds", "2").stdout
    assert "expected" in command("bench", "io", "--accesses", "1", code=2).stderr


@test
def bam_is_a_batch_at_a_time():
    """The same weights as hyperion, from a random cache over a synchronous stack."""
    with Place() as p:
        bam = os.path.join(ROOT, "pipelines", "bam.json")
        sets = ["--epochs", "1", "--quiet", "--set", "params.batch=64", "--set", "stages.cache.params.cache_bytes=200000",
                "--set", "stages.disk.params.backend=emulated"]
        r = p.run(bam, *sets)
        assert outcome(r) == outcome(train(p)) and r.report["lines"]["policy"] == "random"
        assert r.report["io"]["bursts"] == r.report["lines"]["batches"] and r.report["io"]["lane_s"] > 0, r.report["io"]


if __name__ == "__main__":
    main()
