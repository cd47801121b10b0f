"""The disk stage's accumulator and the synchronous stack: equal weights, how many bursts there are, what is refused."""
from harness import *

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
EMULATED = ("stages.disk.params.backend=emulated", "stages.planner.params.cpu_cache=0", "links[1].slots=8")


def train(p, *pairs, **more):
    words = [word for pair in ("params.batch=64", *EMULATED, *pairs) for word in ("--set", pair)]
    return p.run(HYPERION, "--epochs", "2", "--quiet", *words, **more)


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
                             (accumulate("auto"), "the speed of the drives is not known"),
                             (("stages.disk.params.lanes=65",), "1 to 64 lanes")):
            r = train(p, *pairs, code=1)
            assert words in r.err, (words, r.err)


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
        sets = ["--epochs", "2", "--quiet", "--set", "params.batch=64", "--set", "stages.cache.params.cache_bytes=200000",
                "--set", "stages.disk.params.backend=emulated"]
        r = p.run(bam, *sets)
        assert outcome(r) == outcome(train(p)) and r.report["lines"]["policy"] == "random"
        assert r.report["io"]["bursts"] == r.report["lines"]["batches"] and r.report["io"]["lane_s"] > 0, r.report["io"]


if __name__ == "__main__":
    main()
