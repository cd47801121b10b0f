"""Staleness of marius.json: which updates a batch's rows have, exact or bounded; how many they lack is reported."""
import numpy as np
from embedding import *
from harness import *

STEP = 0.125  # each update of a row subtracts it, exactly
LATE = ("--set", 'stages.late={"run":"delay","params":{"delay_us":3000}}', "--set", 'links[0].to="late.in"', "--set", "links[0].slots=1",
        "--set", 'links[2]={"from":"late.out","to":"store.edges"}')  # the next edges come when the last gradients are home
BOUNDED = ("--set", "stages.store.params.consistency=bounded")


def sloped(p, data, staleness, epochs, *args):
    """A run in which every gradient is 1: its report, and the batches that the store lent."""
    with open(MARIUS) as f:
        pl = json.load(f)
    pl["stages"]["slope"] = stage("slope")
    del pl["stages"]["embedder"]
    pl["links"][1]["to"] = "slope.batch"
    more = {"params.optimizer": "sgd", "params.rate": STEP, "stages.store.params.evaluate": "never"}
    r = p.run(pl, *settings(staleness, **more), "--epochs", epochs, *args, data=data, foreign=True)
    return r.report, row_batches(r, "slope")


def lacked(batches, vertices):
    """For each batch with edges: the updates that its rows may lack, least and most. All of its rows have the updates of
    the same first batches, which is checked; a batch without its vertices cannot be told."""
    start, touched, found, bounds = initial(0, vertices), [], np.zeros((1, vertices)), []
    for b in batches:
        if b.n == 0:
            continue
        had = np.round((start[b.vertices] - b.rows) / STEP)
        assert np.abs(start[b.vertices] - had * STEP - b.rows).max() < 1e-6
        assert (had == had[:, :1]).all(), "a torn row"
        same = [k for k in range(len(touched) + 1) if (found[k, b.vertices] == had[:, 0]).all()]
        assert same, "the rows are of no moment"
        bounds.append((len(touched) - max(same), len(touched) - min(same)))
        touched.append(b.vertices)
        found = np.vstack([found, found[-1]])
        found[-1, b.vertices] += 1
    return np.array(bounds)


@test
def exact_batches_lack_those_in_flight():
    with Place() as p:
        data = knowledge_graph(p)
        for staleness in (1, 3, 16):
            report, batches = sloped(p, data, staleness, 3)
            each = [min(i, staleness - 1) for _ in range(3) for i in range(5)]  # batches of an epoch
            bounds = lacked(batches, 37)
            assert (bounds[:, 0] <= each).all() and (each <= bounds[:, 1]).all(), (staleness, bounds)
            assert report["consistency"] == "exact" and np.isclose(report["updates_lacked"], np.mean(each)), report


@test
def bounded_batches_lack_at_most_those():
    with Place() as p:
        data = knowledge_graph(p)
        for staleness, more in ((2, ()), (3, LATE), (16, LATE)):
            report, batches = sloped(p, data, staleness, 8, *BOUNDED, *more)
            most = [min(i, staleness - 1) for _ in range(8) for i in range(5)]
            bounds, mean = lacked(batches, 37), report["updates_lacked"]
            assert (bounds[:, 0] <= most).all(), (staleness, bounds)
            assert report["consistency"] == "bounded" and bounds[:, 0].mean() <= mean <= bounds[:, 1].mean(), (report, bounds)
            assert mean < np.mean(most) or not more, (staleness, report)
            assert report["store"]["updates"] == 5 * 8, report


@test
def bounded_equals_exact_if_one_batch_is_in_flight():
    with Place() as p:
        data = knowledge_graph(p)
        for more in ((), LATE):
            args = [*settings(1), "--epochs", 3, *more]
            r = p.run(MARIUS, *args, *BOUNDED, data=data).report
            assert r["weights_digest"] == digest(p, data, *args), more
            assert (r["consistency"], r["updates_lacked"]) == ("bounded", 0), r


PARTITIONS = ("--with", os.path.join(ROOT, "pipelines", "settings", "marius", "partitions.json"), "--set", "params.partitions=5",
              "--set", "params.buffer=2", "--set", "params.ahead=1", "--set", "params.piece=4KiB")


@test
def bounded_runs_with_partitions_and_resumes():
    with Place() as p:
        data = knowledge_graph(p)
        for more in ((), PARTITIONS):
            args = [*more, *settings(4), *BOUNDED]
            first = p.run(MARIUS, *args, "--epochs", 3, data=data)
            losses = [e["loss"] for e in first.report["epochs"]]
            again = p.run(MARIUS, *args, "--epochs", 9, "--resume", first.run_dir, data=data).report
            assert len(again["epochs"]) == 6 and again["epochs"][-1]["loss"] < losses[0], (losses, again)
            assert 0 <= again["updates_lacked"] <= 3, again
        err = p.run(MARIUS, *more, *settings(4), "--epochs", 9, "--resume", first.run_dir, data=data, code=2).err
        assert "consistency" in err, err


if __name__ == "__main__":
    main()
