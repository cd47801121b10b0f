"""A newcomer's first minutes: a newly made minimal Debian 12, a clone, `make run`, then `make check`, without and with
../shared/data beside the clone. What is cloned is the last commit."""
import json
import os
import re
import subprocess

from fresh_root import Inside, fresh_place, make_root
from harness import DATA, ROOT, main, test

CORES = 2
SECONDS_MAX = 120  # of make run, without the packages


def package_seconds(run):
    """From the line that says what is installed to the next, the first of the build."""
    for (t, line), (after, _) in zip(run.lines, run.lines[1:]):
        if line.startswith("install-deps: "):
            return after - t
    return 0.0


def check(root):
    subprocess.run(["git", "clone", "-q", "--bare", "--no-hardlinks", ROOT, os.path.join(root, "penstock.git")],
                   check=True)
    packages = Inside(root, "apt-get -qq update && apt-get -qq install -y make git ca-certificates && git clone -q /penstock.git /root/penstock")
    assert packages.code == 0, f"the packages or the clone failed\n{packages}"
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    run = Inside(root, "cd /root/penstock && make run", cores)
    assert run.code == 0, f"make run: exit code {run.code}\n{run}"
    installing = package_seconds(run)
    rest = run.seconds - installing
    text = "\n".join(line for _, line in run.lines)
    found = re.search(r"test accuracy with the graph ([0-9.]+), without it ([0-9.]+)", text)
    assert found, f"make run did not show both accuracies\n{run}"
    graph, without = map(float, found.groups())
    size = sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(os.path.join(root, "root/penstock/data"))
               for f in files)
    print(f"# packages: {packages.seconds:.0f} s for make, git and the clone, {installing:.0f} s in make run")
    print(f"# make run after them: {rest:.1f} s on {len(cores)} cores")
    print(f"# test accuracy with the graph {graph:.4f}, without it {without:.4f}; demo dataset {size / 1e6:.0f} MB", flush=True)
    assert not os.path.exists(os.path.join(root, "usr/local/cuda")) and "nvcc" not in text
    assert graph >= 0.90 and graph - without >= 0.15, (graph, without)
    assert rest < SECONDS_MAX, f"{rest:.0f} s, expected under {SECONDS_MAX} s\n{run}"
    reports = subprocess.run(["find", os.path.join(root, "root/penstock/runs"), "-name", "report.json"],
                             capture_output=True, text=True).stdout.split()
    for path in reports:
        with open(path) as f:
            report = json.load(f)
        pids = {s["pid"] for s in report["stages"].values()}
        assert report["status"] == "ok" and len(pids) >= 4, (path, report["status"], pids)
    assert len(reports) == 2, reports
    check_passes(root, "without data")
    if os.path.isdir(DATA):
        check_passes(root, "with ../shared/data", data=DATA)


def check_passes(root, what, data=""):
    run = Inside(root, "cd /root/penstock && make check", data=data)
    last = run.lines[-1][1] if run.lines else ""
    print(f"# make check {what}: {last} in {run.seconds:.0f} s", flush=True)
    for _, line in run.lines:
        if re.match(r" *not ok (?!.*# SKIP)", line):
            print(f"# {line.strip()}", flush=True)
    assert run.code == 0 and re.fullmatch(r"[1-9][0-9]* passed, 0 failed, [0-9]+ skipped", last), run


@test
def make_run_in_a_fresh_root():
    with fresh_place() as place:
        root = os.path.join(place, "root")
        make_root(root)
        check(root)


main()
