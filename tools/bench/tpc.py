"""The bench tpc: throughput per cost as `penstock tpc` predicts it from ten batches, against runs with other numbers and
types of emulated SSDs (Hyperion, Figure 14)."""
import json
import os
import shutil
import statistics

import measure

GPU = "a100"  # what the trainer's core stands for; predictions and runs have the same
PROFILED = ("p5510", 4)  # the drives of the profile, from which everything is predicted
EPOCHS_MIN = 3  # the first is not counted
DEPTH = 2048  # 6 980 Pro work on 6 x 700,000 x 324 us = 1,361 requests at a time; fewer in flight limit them
RUN_S = 5  # about as long as a run is


def arguments(size, ssd, ssds, cache):
    """The drives and their driver have one core, the trainer the other."""
    pins = {"sampler": "0", "disk": "0", "trainer": "1"}
    return [*(a for stage, core in pins.items() for a in ("--set", f'stages.{stage}.place={{"cores": "{core}"}}')),
            *measure.settings(params_batch=size.batch, planner__cpu_cache=str(cache), disk__backend="emulated", disk__preset=ssd,
                              disk__ssds=ssds, disk__dilate=size.dilate, disk__depth=DEPTH, disk__gap_bytes="0", trainer__threads=1, trainer__hidden=size.hidden,
                              trainer__eval_every=0, trainer__checkpoint_every=0)]


def predict(data, size, cache):
    """{(ssd, ssds): option} of `penstock tpc`, and its answer."""
    run_dir = os.path.join(measure.SCRATCH, "run")
    shutil.rmtree(run_dir, ignore_errors=True)
    text = measure.output([measure.PENSTOCK, "tpc", measure.HYPERION, "--dataset", data, "--run-dir", run_dir, "--epochs", 100, "--gpu", GPU,
                           "--slots", max(n for _, counts in size.drives for n in counts), "--json", *arguments(size, *PROFILED, cache)])
    answer = json.loads(text)
    return {(o["ssd"], o["ssds"]): o for o in answer["options"] if o["gpu"] == GPU}, answer


def samples_per_s(data, size, ssd, ssds, cache, expected_s):
    """Measured: the median over the epochs but the first. expected_s: of a batch."""
    batches = -(-round(size.vertices * size.train) // size.batch)
    epochs = max(EPOCHS_MIN, 1 + round(RUN_S / (expected_s * batches)))
    report = measure.run(data, *arguments(size, ssd, ssds, cache), epochs=epochs)
    if report["io"]["bytes"] == 0 or report["io"]["drives"] != ssds:
        raise measure.Unsound(f"{ssds} {ssd}: the run did not read from its drives: {report['io']}")
    return statistics.median(e["seeds_per_second"] for e in report["epochs"][1:])


def one_cache(data, size, rows):
    cache = rows * size.features * 4
    options, answer = predict(data, size, cache)
    result = {"cached_rows": rows, "hint": answer["hint"], "profile": answer["now"], "options": []}
    print(f"  {rows} cached rows; profiled: SSD {1e3 * answer['now']['t_ssd_s']:.0f} ms, training {1e3 * answer['now']['t_train_s']:.0f} ms a batch")
    for ssd, counts in size.drives:
        for n in counts:
            o = options[ssd, n]
            rates = [samples_per_s(data, size, ssd, n, cache, o["t_batch_s"]) for _ in range(size.pairs)]
            ratio = measure.spread([o["samples_per_s"] / rate for rate in rates])
            result["options"].append({"ssd": ssd, "ssds": n, "predicted_tpc": o["tpc"], "bound_by": o["bound_by"],
                                      "measured_tpc": statistics.median(rates) / o["cost_usd"], "predicted_over_measured": ratio})
            measure.show(f"{n} {ssd}, bound by {o['bound_by']}: TPC predicted / measured", ratio, target="0.9 to 1.1")
    best = max(result["options"], key=lambda o: o["measured_tpc"])
    wanted = max(result["options"], key=lambda o: o["predicted_tpc"])
    result["recommended_over_best"] = wanted["measured_tpc"] / best["measured_tpc"]
    print(f"  recommended: {wanted['ssds']} {wanted['ssd']}; its TPC / the best measured one ({best['ssds']} {best['ssd']}): "
          f"{result['recommended_over_best']:.3f}  target 0.9")
    return result


def tpc(size):
    data = measure.generate(f"tpc-{size.vertices}-{size.train}", "--vertices", size.vertices, "--features", size.features, "--train", size.train,
                            "--seed", 1, kind="community")
    print(f"  dilated {size.dilate} times; two cores: drives, driver and sampler on one, the trainer (one thread) on the other")
    return {"dilate": size.dilate, "caches": [one_cache(data, size, rows) for rows in size.caches]}
