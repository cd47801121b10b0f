"""Embeddings of nine times the memory cgroup: the bytes that are read and written are those of the order, and the time is
held against the drive's and the trainer's own. Fifty kills, of which at least twenty come during writes, resume to the
same bits."""
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


def random_triples(directory):
    rng = np.random.default_rng(1)
    os.makedirs(os.path.join(directory, "edges"))
    triples = np.stack([rng.integers(0, VERTICES, EDGES), rng.integers(0, 8, EDGES), rng.integers(0, VERTICES, EDGES)], 1)
    triples.astype(np.int32).tofile(os.path.join(directory, "edges", "train_edges.bin"))
    with open(os.path.join(directory, "dataset.yaml"), "w") as f:
        f.write(f"num_edges: {EDGES}\nnum_nodes: {VERTICES}\nnum_relations: 8\n")


def run_of(place, data, name, *args, before=None):
    report = os.path.join(place, name + ".json")
    argv = [PENSTOCK, "run", MARIUS, *map(str, args), "--dataset", data, "--run-dir", os.path.join(place, name), "--report", report, "--quiet"]
    r = subprocess.run(argv, capture_output=True, text=True, timeout=RUN_S, preexec_fn=before)
    assert r.returncode == 0, f"exit code {r.returncode}\n{r.stdout}{r.stderr}"
    shutil.rmtree(os.path.join(place, name))
    with open(report) as f:
        return json.load(f)


@test
def nine_times_the_memory():
    try:
        with memory_limit(LIMIT_BYTES):
            pass
    except Unavailable as reason:
        raise Skip(str(reason))
    place = tempfile.mkdtemp(prefix="penstock-accept-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    try:
        data = os.path.join(place, "data")
        random_triples(os.path.join(place, "source"))
        command("import", "marius", os.path.join(place, "source"), data, "--quiet")
        args = ["--with", PARTITIONED, "--epochs", 1, "--set", f"params.dim={DIM_LARGE}", "--set", f"params.partitions={PARTS}",
                "--set", f"params.buffer={BUFFER}", "--set", "params.ahead=0", "--set", "params.batch=10000", "--set", "params.negatives=100",
                "--set", "stages.store.params.evaluate=never", "--set", "params.staleness=4", "--set", "links[1].slots=4",
                "--set", "stages.edges.params.sort_memory=64MiB", "--set", "params.piece=256KiB", "--set", "links[2].slots=16"]
        with memory_limit(LIMIT_BYTES) as cgroup:
            r = run_of(place, data, "run", *args, before=cgroup.enter)
            peak, kills = cgroup.peak_bytes(), cgroup.kills()
        x, order = r["exchange"], json.loads(command("order", "--kind", "beta", "--partitions", PARTS, "--buffer", BUFFER, "--json").stdout)
        each, swaps = x["partition_bytes"], order["counts"]["swaps"]
        parameters = VERTICES * 2 * DIM_LARGE * 4
        print(f"# {parameters / (1 << 30):.2f} GiB of parameters, {parameters / LIMIT_BYTES:.1f} x the cgroup; peak {peak / (1 << 20):.0f} MiB")
        print(f"# {swaps} swaps of {each / 1e6:.1f} MB; read {x['read_bytes'] / 1e9:.2f} GB, written {x['written_bytes'] / 1e9:.2f} GB")
        seconds = r["epochs"][0]["seconds"]
        print(f"# epoch {seconds:.1f} s; something to move {x['busy_s']:.1f} s; batches waited {x['waited_s']:.1f} s; "
              f"computing {r['embedder']['train_s']:.1f} s; {(x['read_bytes'] + x['written_bytes']) / x['busy_s'] / 1e9:.2f} GB/s", flush=True)
        assert kills == 0 and x["swaps"] == swaps
        # in the first epoch, PARTS partitions are generated in place of being read
        assert x["written_bytes"] == (swaps + BUFFER) * each and x["read_bytes"] == (swaps + BUFFER - PARTS) * each, x
        assert x["written_bytes"] <= 1.01 * (swaps + BUFFER) * parameters / PARTS
        assert r["io"]["bytes"] == x["read_bytes"] + x["written_bytes"]
    finally:
        shutil.rmtree(place)


@test
def fifty_kills():
    with Place() as p:
        data, rng, during, compared = knowledge_graph(p), random.Random(11), 0, 0
        slow = ["--set", "stages.disk.params.fault_delay_us=3000"]
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
