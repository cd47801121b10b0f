#!/usr/bin/env python3
"""Several sampler instances on a CPU keep one copy of the cached rows."""
import os
import re
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import GROUPED, ROOT, SAN, Place, Skip, command, main, no_leftovers, test  # noqa: E402

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
VERTICES, ROW = 40000, 512
CACHE = VERTICES * ROW  # all rows


def dataset(p):
    path = p.path("large")
    command("gen", "community", path, "--vertices", VERTICES, "--features", ROW // 4, "--seed", 3)
    return path


def sets(instances, *more):
    pairs = (f"stages.sampler.instances={instances}", "params.batch=256", "stages.trainer.params.eval_every=0", *more)
    return [a for s in pairs for a in ("--set", s)]


def samplers():
    """The processes of this test's samplers, by name."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as f:
                words = f.read().split("\0")
            with open(f"/proc/{pid}/environ", errors="replace") as f:
                mine = f"PENSTOCK_TEST={os.getpid()}" in f.read().split("\0")
        except OSError:
            continue
        names = [w for w in words if re.fullmatch(r"sampler([.#:-]?\d+)?", w)]
        if mine and names:
            found[names[0]] = int(pid)
    return found


def wait_for_samplers(run, n):
    until = time.time() + 30
    while time.time() < until:
        logs = run.logs()
        if logs.count(" rows in ") == n and len(samplers()) == n:
            time.sleep(0.5)  # they have begun to sample
            return list(samplers().values())
        assert run.process.poll() is None, run.wait()
        time.sleep(0.05)
    raise AssertionError(f"no {n} samplers: {samplers()}{run.logs()}")


def memory(pid, what):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return 1024 * int(re.search(rf"^{what}: +(\d+)", f.read(), re.M).group(1))


def cache_mappings(pid):
    with open(f"/proc/{pid}/maps") as f:
        rows = [line.split() for line in f if "memfd:" in line]
    sizes = [(int(r[0].split("-")[1], 16) - int(r[0].split("-")[0], 16), r[1], r[-2]) for r in rows]
    return [s for s in sizes if CACHE <= s[0] < 1.2 * CACHE and not s[1].startswith("rw")]  # slots are written


@test
def two_instances_take_the_memory_of_one_cache():
    if SAN:
        raise Skip("a sanitizer's memory would be measured")
    with Place() as p:
        data, used = dataset(p), {}
        for instances in (1, 2):
            run = p.start(HYPERION, *sets(instances, f"stages.planner.params.cpu_cache={CACHE}", "epochs=1000",
                                            "stages.sampler.params.in_place=false"), data=data)  # then one instance has it alone
            pids = wait_for_samplers(run, instances)
            used[instances] = sum(memory(pid, "Pss") for pid in pids)
            private = sum(memory(pid, "Pss_Anon") for pid in pids)
            if instances == 2:
                assert private < CACHE, f"{private / 1e6:.0f} MB of private memory; the cache is {CACHE / 1e6:.0f} MB"
                for pid in pids:
                    found = cache_mappings(pid)
                    assert len(found) == 1 and found[0][1] == "r--s", found
            run.process.terminate()
            run.wait(20)
        assert used[1] > CACHE, used
        assert used[2] - used[1] < CACHE / 2, f"one sampler: {used[1] / 1e6:.0f} MB, two: {used[2] / 1e6:.0f} MB"


@test
def results_are_the_same_and_rows_are_counted_once():
    with Place() as p:
        reports = []
        for instances, group in ((1, []), (2, []), (3, ["--group", "all"])):
            more = [] if GROUPED else group
            reports.append(p.run(HYPERION, *sets(instances, "stages.planner.params.cpu_cache=256KiB", "epochs=2"), *more).report)
        for report in reports[1:]:
            assert report["cache"] == reports[0]["cache"], (report["cache"], reports[0]["cache"])
            assert report["weights_digest"] == reports[0]["weights_digest"]
        assert 0 < reports[0]["cache"]["rows"] <= 512 and reports[0]["cache"]["hits"] > 0, reports[0]["cache"]


@test
def nothing_is_left_after_a_kill():
    if GROUPED:
        raise Skip("there is one process")
    with Place() as p:
        for victim in ("supervisor", "sampler"):
            run = p.start(HYPERION, *sets(2, "stages.planner.params.cpu_cache=256KiB", "epochs=100000"))
            pids = wait_for_samplers(run, 2)
            os.kill(run.process.pid if victim == "supervisor" else pids[0], signal.SIGKILL)
            run.wait(20)
            no_leftovers(5)


if __name__ == "__main__":
    main()
