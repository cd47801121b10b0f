"""Embeddings of nine times the memory cgroup: the bytes that are read and written are those of the order, and the time is
held against the drive's and the trainer's own. Fifty kills, of which at least twenty come during writes, resume to the
same bits."""
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipeline"))
import numpy as np
from cgroup import Unavailable, memory_limit
from crash import *
from embedding import *
from harness import *

PARTITIONED = os.path.join(ROOT, "pipelines", "settings", "marius", "partitions.json")
LIMIT_BYTES = 512 << 20
DIM_LARGE, VERTICES, EDGES = 100, (9 * LIMIT_BYTES) // 800, 2_000_000
PARTS, BUFFER = 48, 3
RUN_S = 1800
KILLS, DURING_WRITES = 50, 20
PIECE = 256 << 10
SMALL = PARTS * (18 * PIECE // 800), 2_400_000  # vertices and edges of the timed epochs: a twentieth of the parameters, in whole pieces
MOST = 1.10  # an epoch over the larger of its drive's time and its training's
# what bounds the epoch: the drive's bytes per second, and the negatives that make training long enough
BOUNDS = {"the drive": (400e6, 20), "training": (600e6, 800)}


def random_triples(directory, vertices=VERTICES, edges=EDGES):
    rng = np.random.default_rng(1)
    os.makedirs(os.path.join(directory, "edges"))
    triples = np.stack([rng.integers(0, vertices, edges), rng.integers(0, 8, edges), rng.integers(0, vertices, edges)], 1)
    triples.astype(np.int32).tofile(os.path.join(directory, "edges", "train_edges.bin"))
    with open(os.path.join(directory, "dataset.yaml"), "w") as f:
        f.write(f"num_edges: {edges}\nnum_nodes: {vertices}\nnum_relations: 8\n")


def imported(place, *size):
    data = os.path.join(place, "data")
    random_triples(os.path.join(place, "source"), *size)
    command("import", "marius", os.path.join(place, "source"), data, "--quiet")
    return data


def run_of(place, data, name, *args, before=None):
    report = os.path.join(place, name + ".json")
    argv = [PENSTOCK, "run", *map(str, args), "--epochs", "1", "--dataset", data, "--run-dir", os.path.join(place, name), "--report", report, "--quiet"]
    r = subprocess.run(argv, capture_output=True, text=True, timeout=RUN_S, preexec_fn=before)
    assert r.returncode == 0, f"exit code {r.returncode}\n{r.stdout}{r.stderr}"
    shutil.rmtree(os.path.join(place, name))
    with open(report) as f:
        return json.load(f)


def one_thread(pipeline, staleness=4, **values):
    """One thread computes, and the other core is for what travels."""
    values = {"dim": DIM_LARGE, "batch": 2000, "negatives": 100, "evaluate": "never", "threads": 1, **values}
    if pipeline == LEGEND:
        return [pipeline, *(w for key, value in values.items() for w in ("--set", f"stages.legend.params.{key}={value}"))]
    store = {"evaluate": values.pop("evaluate")}
    return [pipeline, *(w for key, value in values.items() for w in ("--set", f"params.{key}={value}")), "--set", f"params.staleness={staleness}",
            "--set", f"links[1].slots={staleness}", *(w for key, value in store.items() for w in ("--set", f"stages.store.params.{key}={value}"))]


def in_partitions(pipeline, **values):
    """A spare block lets the next partition come before another leaves."""
    args = one_thread(pipeline, partitions=PARTS, buffer=BUFFER, ahead=1, order="auto", **values)
    link = 0 if pipeline == LEGEND else 2
    overlay = [] if pipeline == LEGEND else ["--with", PARTITIONED]
    return [args[0], *overlay, *args[1:], "--set", f"params.piece={PIECE}", "--set", f"links[{link}].slots=16"]


def on_cores(**cores):
    """The emulated drive is always busy. On the core that trains, it would take half of the time."""
    usable = sorted(os.sched_getaffinity(0))
    return [w for stage, core in cores.items() for w in ("--set", f'stages.{stage}.place={{"cores": "{usable[core % len(usable)]}"}}')]


@contextlib.contextmanager
def a_place():
    place = tempfile.mkdtemp(prefix="penstock-accept-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    try:
        yield place
    finally:
        shutil.rmtree(place)


def swaps_of_the_order():
    return json.loads(command("order", "--kind", "auto", "--partitions", PARTS, "--buffer", BUFFER, "--json").stdout)["counts"]["swaps"]


def check_bytes(r, vertices):
    """In the first epoch, PARTS partitions are generated in place of being read."""
    x, swaps, parameters = r["exchange"], swaps_of_the_order(), vertices * 2 * DIM_LARGE * 4
    each = x["partition_bytes"]
    assert x["swaps"] == swaps and x["written_bytes"] == (swaps + BUFFER) * each, x
    assert x["read_bytes"] == (swaps + BUFFER - PARTS) * each, x
    assert x["written_bytes"] <= 1.01 * (swaps + BUFFER) * parameters / PARTS
    assert r["io"]["bytes"] == x["read_bytes"] + x["written_bytes"]


@test
def nine_times_the_memory():
    try:
        with memory_limit(LIMIT_BYTES):
            pass
    except Unavailable as reason:
        raise Skip(str(reason))
    with a_place() as place:
        data = imported(place)
        for pipeline in (MARIUS, LEGEND):
            sort = "stages.legend" if pipeline == LEGEND else "stages.edges"
            with memory_limit(LIMIT_BYTES) as cgroup:
                r = run_of(place, data, "run", *in_partitions(pipeline), "--set", f"{sort}.params.sort_memory=64MiB", before=cgroup.enter)
                peak, kills = cgroup.peak_bytes(), cgroup.kills()
            x, parameters = r["exchange"], VERTICES * 2 * DIM_LARGE * 4
            print(f"# {parameters / (1 << 30):.2f} GiB of parameters, {parameters / LIMIT_BYTES:.1f} x the cgroup; peak {peak / (1 << 20):.0f} MiB")
            print(f"# {x['swaps']} swaps of {x['partition_bytes'] / 1e6:.1f} MB; read {x['read_bytes'] / 1e9:.2f} GB, written {x['written_bytes'] / 1e9:.2f} GB")
            print(f"# epoch {r['epochs'][0]['seconds']:.1f} s; something to move {x['busy_s']:.1f} s; batches waited {x['waited_s']:.1f} s; "
                  f"{(x['read_bytes'] + x['written_bytes']) / x['busy_s'] / 1e9:.2f} GB/s", flush=True)
            assert kills == 0
            check_bytes(r, VERTICES)


@test
def an_epoch_takes_as_long_as_its_drive_or_its_training():
    """The drive's time: the bytes that travel, by the model of the emulated drive. Training's: an epoch with all embeddings in
    memory, with batches as large as those of a bucket and its mirror image; with one batch in flight for Legend, which
    trains one after the other. What trains has one core, and the drive the other; Legend's copies may use both."""
    with a_place() as place:
        data = imported(place, *SMALL)
        missed = []
        for pipeline, staleness in ((MARIUS, 4), (LEGEND, 1)):
            for bound, (rate, negatives) in BOUNDS.items():
                batch = 2 * SMALL[1] // PARTS**2
                cores = on_cores(edges=1, store=1, embedder=0)
                memory = run_of(place, data, "run", *one_thread(MARIUS, staleness, batch=batch, negatives=negatives), *cores)
                drive = json.dumps(json.dumps({"bytes_per_s": rate, "latency_us": 80}))
                r = run_of(place, data, "run", *in_partitions(pipeline, batch=batch * 11 // 10, negatives=negatives), *on_cores(disk=1),
                           *(cores if pipeline == MARIUS else ()), "--set", "stages.disk.params.backend=emulated",
                           "--set", f"stages.disk.params.emulated={drive}")
                check_bytes(r, SMALL[0])
                training, moving = memory["epochs"][0]["seconds"], r["io"]["bytes"] / rate
                ratio = r["epochs"][0]["seconds"] / max(training, moving)
                print(f"# {os.path.basename(pipeline)}, bound by {bound}: epoch {r['epochs'][0]['seconds']:.2f} s, the drive {moving:.2f} s, "
                      f"training {training:.2f} s: {ratio:.3f}; batches waited {r['exchange']['waited_s']:.2f} s; processor time: "
                      + ", ".join(f"{name} {p['cpu_s']:.1f} s" for name, p in r["processes"].items()), flush=True)
                missed += [(pipeline, bound, ratio)] if ratio > MOST else []
        assert not missed, missed


@test
def fifty_kills():
    with Place() as p:
        data, rng, during, compared = knowledge_graph(p), random.Random(11), 0, 0
        slow = ["--set", "stages.disk.params.fault_delay_us=10000"]
        args = ["--with", PARTITIONED, *settings(2, **{"params.partitions": 5, "params.buffer": 3, "params.piece": "4KiB"}), "--epochs", 12]
        want = p.run(MARIUS, *args, data=data).report["weights_digest"]
        for kill in range(KILLS):
            running = p.start(MARIUS, *args, *slow, data=data)
            wait_for(lambda: has_checkpoint(running.run_dir) or running.process.poll() is not None)
            time.sleep(rng.uniform(0, 0.3))
            pids = processes(running)
            victim = ("disk", "store", "embedder", "edges", "supervisor")[kill % 5]
            array = os.path.join(running.run_dir, "arrays", "embeddings")
            if kill < 2 * DURING_WRITES:  # strike when the array has just been written
                was = os.stat(array).st_mtime_ns
                until = time.time() + 5
                while os.stat(array).st_mtime_ns == was and time.time() < until and running.process.poll() is None:
                    time.sleep(0.0002)
                during += os.stat(array).st_mtime_ns != was
            if pids.get(victim) and running.process.poll() is None:
                os.kill(pids[victim], signal.SIGKILL)
            if running.wait().code != 0:
                again = p.run(MARIUS, *args, "--resume", running.run_dir, data=data)
                assert again.report["weights_digest"] == want, (kill, victim)
                compared += 1
            shutil.rmtree(running.run_dir)
        print(f"# {compared} of {KILLS} runs were killed and resumed to the same bits; {during} kills came right after a write", flush=True)
        assert compared >= KILLS - 5 and during >= DURING_WRITES


main()
