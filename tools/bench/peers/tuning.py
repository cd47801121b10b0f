"""Finds the fastest settings of each peer and keeps them, with the machine that they were found on.

Settings are tuned one after the other. One is taken if it makes an epoch at least 2 % shorter. The peers' speed depends on
the machine, and on what else it does: on a busy one, a single thread and sleeping waits look best."""
import dataclasses
import datetime
import json
import os
import platform
import re

from peers import running

BETTER = 0.98
BUSY = 0.5  # load average for each core, above which figures mean little
LIMIT_S = 600  # of a run


def machine():
    """What settings depend on."""
    with open("/proc/cpuinfo") as f:
        model = re.search(r"model name\s*: (.*)", f.read())
    with open("/proc/meminfo") as f:
        memory = int(re.search(r"MemTotal:\s*(\d+)", f.read())[1])
    return {"host": platform.node(), "cpu": model[1] if model else platform.machine(), "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(memory / 2**20)}


def load():
    return os.getloadavg()[0] / len(os.sched_getaffinity(0))


def among(ready):
    return {key: list(values) for key, values in ready.tuned.items()}


class Kept:
    """The file with the settings. A file from another machine, or one that cannot be read, counts as empty."""

    def __init__(self, path):
        self.path, self.peers, self.said = path, {}, None
        try:
            with open(path) as f:
                kept = json.load(f)
            if kept["machine"] == machine():
                self.peers = kept["peers"]
            else:
                self.said = f"{path} was tuned on another machine ({kept['machine']}); tuned anew"
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError) as e:
            self.said = f"{path} cannot be read ({e}); tuned anew"

    def get(self, ready):
        """The settings of a peer, if they were found among those that there are now, and with these versions."""
        found = self.peers.get(ready.name)
        return found["settings"] if found and found["versions"] == ready.versions and found["among"] == among(ready) else None

    def note(self, name):
        """How a peer was tuned, for the reader."""
        found = self.peers[name]
        busy = f" at a load of {found['load']:.1f} for each core: tune again on a quiet machine, with RETUNE=1" if found["load"] > BUSY else ""
        return f"tuned on {found['date']}{busy}"

    def put(self, ready, settings, seconds, tried):
        self.peers[ready.name] = {"settings": settings, "epoch_s": seconds, "tried": tried, "among": among(ready), "versions": ready.versions,
                                  "load": load(), "date": datetime.date.today().isoformat()}
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path + ".new", "w") as f:
            json.dump({"machine": machine(), "peers": self.peers}, f, indent=1)
        os.replace(self.path + ".new", self.path)


@dataclasses.dataclass
class Found:
    settings: dict
    seconds: float
    tried: int


def runs(ready):
    """How many runs tuning takes."""
    return 1 + sum(len(values) - 1 for values in ready.tuned.values())


def tune(ready, epoch_s, say=lambda line: print(line, flush=True)):
    """epoch_s(settings): seconds of an epoch; it may raise Failed. The first settings must not fail."""
    best = Found(ready.first(), epoch_s(ready.first()), 1)
    for key, values in ready.tuned.items():
        for value in values[1:]:
            settings = {**best.settings, key: value}
            best.tried += 1
            try:
                seconds = epoch_s(settings)
            except running.Failed as why:
                say(f"    {key} {value}: {why}")
                continue
            say(f"    {key} {value}: {seconds:.3f} s, against {best.seconds:.3f} s")
            if seconds < BETTER * best.seconds:
                best.settings, best.seconds = settings, seconds
    return best
