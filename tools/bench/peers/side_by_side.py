"""The benches peers-memory and peers-outofcore: Penstock beside PyTorch, PyG and DGL, in turn, on one machine.

First all peers must learn the same small graph as Penstock does. Then each is tuned, unless it was before. Then each of its
runs comes after one of ours, and a ratio is that of the two."""
import dataclasses
import os
import signal
import statistics
import sys

import measure
from peers import catalogue, environments, running, table, tuning

WANTED = None  # names of peers, or None for all; bench.py sets both
RETUNE = False

LIMIT_BYTES = 1 << 30  # of the bench out of core: page cache, too
CHECK_EPOCHS = 12  # DGL begins with larger weights, and needs some to catch up
LOSS_SLACK = 0.15  # of the loss, or of LOSS_LEAST: random streams and initial weights differ
LOSS_LEAST = 0.5
ACCURACY_SLACK = 0.05
ROWS_SLACK = 0.03  # of the rows that the first layer makes: equal samplers draw nearly equally many
GUESS_S = {"memory": 15, "outofcore": 60}  # of a run, until one has ended


@dataclasses.dataclass(frozen=True)
class Load:
    name: str
    title: str
    limit_bytes: int  # None: no cgroup
    batch: int
    hidden: int
    data: str
    check_data: str
    ours: tuple  # arguments of penstock run


def library():
    return os.path.join(measure.BUILD, "bench", "libpeers.so")


# ---- one run ---------------------------------------------------------------------------------------------


def record_of(report, peak_mib):
    """A report of ours in the form of the peers' records."""
    n = len(report["epochs"])
    cpu_s = sum(p["cpu_s"] for p in report["processes"].values()) / n
    common = {"cpu_s": cpu_s, "read_bytes": report["io"]["bytes"] / n, "hidden_rows": report["trainer"]["rows_0"] / n,
              "input_rows": report["cache"]["lookups"] / n}
    epochs = [{"seconds": e["seconds"], "loss": e["loss"], "train_accuracy": e["train_accuracy"], **common} for e in report["epochs"]]
    return {"epochs": epochs, "setup_s": report["phases"]["plan_s"] + report["phases"]["start_s"], "versions": "", "peak_mib": peak_mib}


def ours(load, data, epochs, check=False):
    limit = None if check else load.limit_bytes
    with running.limited(limit, data) as cgroup:
        report = measure.run(data, *load.ours, epochs=epochs, enter=cgroup.enter if cgroup else None)
        return record_of(report, (cgroup.peak_bytes() or 0) / 2**20 if cgroup else None)


def theirs(load, ready, chosen, data, epochs, max_batches=0, check=False, limit_s=running.LIMIT_S):
    arguments = [data, "--epochs", epochs, "--batch", load.batch, "--hidden", load.hidden, "--max-batches", max_batches]
    if ready.peer.sampler:
        arguments += ["--library", library()]
    return running.peer(ready.command(chosen, arguments), None if check else load.limit_bytes, data, limit_s)


def summary(record):
    """Medians over the epochs but the first, which warms up."""
    epochs = record["epochs"][1:] or record["epochs"]
    median = lambda key: statistics.median(e[key] for e in epochs)
    return {"epoch_s": median("seconds"), "cpu_s": median("cpu_s"), "read_gib": median("read_bytes") / 2**30,
            "hidden_rows": median("hidden_rows"), "input_rows": median("input_rows"), "setup_s": record["setup_s"], "peak_mib": record["peak_mib"]}


def left_out(peer, why):
    return {"what": peer.what, "why": str(why)}


def reasons(missing):
    return "; ".join(f"{name} ({m['why']})" for name, m in missing.items())


# ---- do all learn the same? ------------------------------------------------------------------------------


def disagreement(mine, record):
    """What is wrong with a peer's record of the small graph; None if it learned as ours did."""
    losses = [e["loss"] for e in record["epochs"]]
    wanted, last = mine["epochs"][-1], record["epochs"][-1]
    if not losses[-1] < losses[0]:
        return f"its loss does not go down: {losses}"
    if not abs(last["loss"] - wanted["loss"]) <= LOSS_SLACK * max(wanted["loss"], LOSS_LEAST):
        return f"its loss after {len(losses)} epochs is {last['loss']:.3f}, and Penstock's {wanted['loss']:.3f}"
    if not abs(last["train_accuracy"] - wanted["train_accuracy"]) <= ACCURACY_SLACK:
        return f"its training accuracy is {last['train_accuracy']:.3f}, and Penstock's {wanted['train_accuracy']:.3f}"
    return uneven(mine, record)


def uneven(mine, record):
    """Whether the first layers made different numbers of rows: then the two did not do the same work."""
    a, b = summary(mine)["hidden_rows"], summary(record)["hidden_rows"]
    return None if abs(a - b) <= ROWS_SLACK * a else f"its first layer made {b:.0f} rows in an epoch, and Penstock's {a:.0f}"


def agree(load, peers, run_ours, run_theirs, progress, failed):
    """Leaves in `peers` those that ran; `failed` gets the others. Unsound if one learned something else."""
    with progress.run("check", "the small graph: penstock"):
        mine = run_ours(load, load.check_data, CHECK_EPOCHS, check=True)
    shown = lambda record: " ".join(f"{e['loss']:.3f}/{e['train_accuracy']:.3f}" for e in record["epochs"])
    print(f"    loss/accuracy of each epoch: {shown(mine)}", flush=True)
    for name, ready in list(peers.items()):
        with progress.run("check", f"the small graph: {name}"):
            try:
                record = run_theirs(load, ready, ready.first(), load.check_data, CHECK_EPOCHS, check=True)
            except running.Failed as why:
                print(f"    failed: {why}", flush=True)
                failed[name] = left_out(ready.peer, f"on the small graph: {why}")
                del peers[name]
                progress.cancel(name)
                continue
        print(f"    loss/accuracy of each epoch: {shown(record)}", flush=True)
        wrong = disagreement(mine, record)
        if wrong:
            raise measure.Unsound(f"{name} does not learn the small graph as Penstock does: {wrong}. No rate is printed: look at "
                                  f"{ready.peer.program}, or leave the peer out with PEERS")


# ---- tuning and pairs ------------------------------------------------------------------------------------


def settle(load, size, ready, kept, run_theirs, progress, failed):
    """The settings of a peer; None if it failed with the first ones."""
    chosen = None if RETUNE else kept.get(ready)
    if chosen:
        print(f"  {ready.name}: {kept.note(ready.name)}: {table.settings_of(chosen)}", flush=True)
        return chosen
    if not size.tune:
        return ready.first()

    def epoch_s(settings):
        with progress.run(f"tune {ready.name}", f"tuning {ready.name}: {table.settings_of(settings)}"):
            record = run_theirs(load, ready, settings, load.data, size.tune_epochs, max_batches=size.tune_batches, limit_s=tuning.LIMIT_S)
        return summary(record)["epoch_s"]

    try:
        best = tuning.tune(ready, epoch_s)
    except running.Failed as why:
        failed[ready.name] = left_out(ready.peer, why)
        progress.cancel(ready.name)
        return None
    kept.put(ready, best.settings, best.seconds, best.tried)
    print(f"  {ready.name}: best of {best.tried}: {best.seconds:.3f} s with {table.settings_of(best.settings)}", flush=True)
    return best.settings


def alternate(load, size, settled, run_ours, run_theirs, progress, failed):
    """{name: [(our record, the peer's)]}: in each round each peer has a run, after one of ours."""
    pairs = {name: [] for name in settled}
    for turn in range(size.pairs):
        for name, (ready, chosen) in settled.items():
            if name in failed:
                continue
            with progress.run(name, f"pair {turn + 1} of {size.pairs}: penstock and {name}"):
                mine = run_ours(load, load.data, size.epochs)
                try:
                    record = run_theirs(load, ready, chosen, load.data, size.peer_epochs)
                except running.Failed as why:
                    failed[name] = left_out(ready.peer, f"pair {turn + 1}: {why}")
                    print(f"    failed: {why}", flush=True)
                    progress.cancel(name)
                    continue
            wrong = uneven(mine, record)
            if wrong:
                raise measure.Unsound(f"{name} does not do the work that Penstock does: {wrong}")
            pairs[name].append((mine, record))
            a, b = summary(mine)["epoch_s"], summary(record)["epoch_s"]
            print(f"    penstock {a:.3f} s, {name} {b:.3f} s: {b / a:.2f}", flush=True)
    return {name: made for name, made in pairs.items() if made and name not in failed}


def row(what, versions, settings, records, ratios):
    parts = [summary(r) for r in records]
    median = lambda key: statistics.median(p[key] for p in parts)
    return {"what": what, "versions": versions, "settings": settings, "epoch_s": table.extent([p["epoch_s"] for p in parts]),
            "ratio": table.extent(ratios), "cpu_s": median("cpu_s"), "read_gib": median("read_gib"), "setup_s": median("setup_s"),
            "hidden_rows": median("hidden_rows"), "input_rows": median("input_rows"),
            "peak_mib": max((p["peak_mib"] for p in parts if p["peak_mib"] is not None), default=None)}


def compare(load, size, peers, not_measured, kept, run_ours=ours, run_theirs=theirs):
    """The result of a bench. peers: {name: Ready}; not_measured: {name: what and why}, to which failures are added."""
    if tuning.load() > tuning.BUSY and size.tune:
        print(f"  the machine is busy (load {tuning.load():.1f} for each core): these figures and settings are worth little", flush=True)
    if kept.said:
        print(f"  {kept.said}", flush=True)
    progress = running.Progress()
    progress.expect("check", 1 + len(peers), 10)
    for name, ready in peers.items():
        if size.tune and (RETUNE or not kept.get(ready)):
            progress.expect(f"tune {name}", tuning.runs(ready), GUESS_S[load.name])
        progress.expect(name, size.pairs, 2 * GUESS_S[load.name])
    agree(load, peers, run_ours, run_theirs, progress, not_measured)
    settled = {}
    for name, ready in peers.items():
        chosen = settle(load, size, ready, kept, run_theirs, progress, not_measured)
        if chosen is not None:
            settled[name] = ready, chosen
    pairs = alternate(load, size, settled, run_ours, run_theirs, progress, not_measured)
    if not pairs:
        raise measure.Skip(f"no peer could be measured: {reasons(not_measured)}")
    ratio = lambda pair: summary(pair[1])["epoch_s"] / summary(pair[0])["epoch_s"]
    mine = [a for made in pairs.values() for a, _ in made]
    rows = {"penstock": row("Penstock", "", {}, mine, [1.0])}
    for name, made in pairs.items():
        ready, chosen = settled[name]
        rows[name] = row(ready.peer.what, made[-1][1]["versions"], chosen, [b for _, b in made], [ratio(pair) for pair in made])
    return {"title": load.title, "limit_mib": load.limit_bytes and load.limit_bytes >> 20, "pairs": size.pairs, "peers": rows,
            "not_measured": not_measured}


# ---- the benches -----------------------------------------------------------------------------------------


def find(load_name, size):
    """({name: Ready}, {name: what and why} of the others)."""
    found, missing = {}, {}
    for name, peer in catalogue.PEERS.items():
        if peer.load != load_name or WANTED and name not in WANTED:
            continue
        # the smallest form takes the PyTorch that is installed, for the peer that needs no more
        fallback = sys.executable if peer.sampler and not size.make else None
        ready, why = catalogue.ready(name, peer, size.make, fallback)
        if ready:
            found[name] = ready
        else:
            print(f"  without {name}: {why}", flush=True)
            missing[name] = left_out(peer, why)
    if not found:
        raise measure.Skip(f"no peer can run here: {reasons(missing)}" if missing else f"{', '.join(WANTED)}: not of this bench")
    return found, missing


def bench(load_name, size, load):
    """load: makes the datasets, once it is known that a peer is there."""
    if not os.path.exists(library()):
        raise measure.Unsound(f"{library()} is not built: `make bench-peers` builds it")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the peers' processes end, too
    peers, missing = find(load_name, size)
    kept = tuning.Kept(os.path.join(environments.folder(), "tuned.json"))
    result = compare(load(), size, peers, missing, kept)
    print(f"  measured: {', '.join(name for name in result['peers'] if name != 'penstock')}; not measured: "
          + (reasons(missing) or "none"), flush=True)
    return result


def arguments(size, hidden, **more):
    return tuple(measure.settings(params_batch=size.batch, params_fanout=[10, 5], trainer__hidden=hidden, trainer__layers=2, trainer__dropout=0.5,
                                  trainer__rate=0.01, trainer__weight_decay=0.0005, trainer__eval_every=0, trainer__checkpoint_every=0, **more))


def memory(size):
    def load():
        data = measure.generate("rmat", "--vertices", size.vertices, "--edges", size.edges, "--symmetrize", "--features", 128, "--classes", 40,
                                "--train-count", size.train)
        check = measure.generate(f"peers-check-{size.check}", "--vertices", size.check, kind="community")
        return Load("memory", "In memory", None, size.batch, size.hidden, data, check, arguments(size, size.hidden, planner__cpu_cache="1GiB"))

    return bench("memory", size, load)


def outofcore(size):
    running.need_cgroup(LIMIT_BYTES)  # before gigabytes are made

    def load():
        data = measure.generate(f"big-1024-{size.train}", "--vertices", size.vertices, "--edges", size.edges, "--features", 1024, "--classes", 40,
                                "--train-count", size.train)
        check = measure.generate(f"peers-check-wide-{size.check}", "--features", 1024, "--noise", 0.2, "--vertices", size.check, kind="community")
        return Load("outofcore", "Out of core, in 1 GiB", LIMIT_BYTES, size.batch, size.hidden, data, check,
                    (*arguments(size, size.hidden, planner__cpu_cache="auto", disk__gap_bytes=0, disk__depth=128), "--set", "links[1].slots=6"))

    return bench("outofcore", size, load)
