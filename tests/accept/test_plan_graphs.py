"""The policies on 20 generated graphs. Each places by the planner's default hotness, and is counted by what the batches
of a run need (an oracle's hotness). Prints how much more than `joint` each policy reads."""
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipeline"))
from harness import *

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
GRAPHS, EPOCHS, WORSE = 20, 10, 1.005


def generate(p, i):
    """Communities and R-MAT by turns, of several sizes and densities."""
    data, vertices = p.path(f"data{i}"), 4000 + 2000 * (i % 5)
    if i % 2 == 0:
        command("gen", "community", data, "--vertices", vertices, "--seed", i)
    else:
        command("gen", "rmat", data, "--vertices", vertices, "--edges", vertices * (4 + 3 * (i % 4)), "--seed", i)
    return data, vertices


def plan(p, i, data, name, *more):
    done = command("plan", HYPERION, "--dataset", data, "--set", "params.batch=64", "--epochs", EPOCHS, "--json", "--run-dir",
                   p.path(f"{name}{i}"), *more)
    return json.loads(done.stdout)


@test
def joint_is_never_much_worse():
    with Place() as p:
        margins, gaps = {}, []
        for i in range(GRAPHS):
            data, vertices = generate(p, i)
            plan(p, i, data, "oracle", "--set", "stages.planner.params.hotness=oracle")
            caches = ("--gpu-cache", vertices * 512 // 20, "--cpu-cache", vertices * 512 // 5, "--topology", "ssd")
            found = plan(p, i, data, "counted", *caches, "--count-with", p.path(f"oracle{i}/plan/hotness.npy"))
            joint = found["policies"][0]["transactions"]
            for policy in found["policies"][1:]:
                name = policy["policy"] + (" printed" if policy["placed_by_cost"] != found["cost"] else "")
                margins.setdefault(name, []).append(policy["transactions"] / joint - 1)
            expected = found["joint"]["value"]
            assert abs(expected - joint) <= 0.05 * joint, (i, expected, joint)
            timed = plan(p, i, data, "timed", *caches, "--objective", "time", "--ssd-rate", "3e9", "--pcie-rate", "3.5e9")["joint"]
            gaps.append(timed["value"] / timed["bound"] - 1)
        for name, values in sorted(margins.items(), key=lambda item: statistics.median(item[1])):
            print(f"{name:14} reads {100 * min(values):7.2f} to {100 * max(values):7.2f} % more than joint, median "
                  f"{100 * statistics.median(values):7.2f} %")
        print(f"joint for time: at most {100 * max(gaps):.3f} % above the bound")
        assert max(gaps) <= 0.01, gaps
        for name, values in margins.items():
            assert min(values) >= 1 / WORSE - 1, (name, values)


if __name__ == "__main__":
    main()
