"""Reports of runs, checked as far as a page relies on them. A field that is absent, or is of another type, is not shown."""
import json
import os
import stat

from . import traces

SCHEMA = 1
REPORT_BYTES_MAX = 64 << 20
NUMBER_MAX = 2.0**63


class Bad(ValueError):
    """The input is wrong: what is wrong, and where."""


def number(value):
    """The value if it is a number that a chart can show, else None."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < NUMBER_MAX else None


def section(value):
    """The value if it is a dictionary, else an empty one."""
    return value if isinstance(value, dict) else {}


class Run:
    """directory; name (on the page); report; epochs, stages; trace: a Trace, or None."""

    def __init__(self, path):
        self.directory, self.file = (path, os.path.join(path, "report.json")) if os.path.isdir(path) else (os.path.dirname(path) or ".", path)
        self.report = read(self.file)
        self.epochs = [e for e in self.report["epochs"] if isinstance(e, dict)]
        self.stages = {name: section(stage) for name, stage in self.report["stages"].items()}
        try:
            self.trace = traces.load(os.path.join(self.directory, "trace"))
        except traces.Broken as e:
            raise Bad(str(e)) from e

    def get(self, *path):
        """The value of report[path[0]][path[1]]..., or None."""
        at = self.report
        for key in path:
            at = section(at).get(key)
        return at

    def number(self, *path):
        return number(self.get(*path))

    def column(self, key):
        """The numbers of all epochs."""
        return [number(e.get(key)) for e in self.epochs]

    def parameters(self):
        """{"stage.parameter": text}, and what a command line can set besides."""
        found = {key: show(self.get(key)) for key in ("pipeline", "seed")}
        found["dataset"] = show(self.get("dataset", "dir"))
        found["epochs"] = str(len(self.epochs))
        for name, stage in self.stages.items():
            found[f"{name}: device"] = show(stage.get("device"))
            found[f"{name}: file"] = show(stage.get("run"))
            for key, value in section(stage.get("params")).items():
                found[f"{name}.{key}"] = show(value)
        return found


def show(value):
    """A value as it stands in a pipeline file, but text without quotes."""
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def read(file):
    """The report in a file."""
    try:
        status = os.stat(file)
        if not stat.S_ISREG(status.st_mode):
            raise Bad(f"{file} is not a regular file")
        if status.st_size > REPORT_BYTES_MAX:
            raise Bad(f"{file} has {status.st_size} bytes; a report has at most {REPORT_BYTES_MAX}")
        with open(file, encoding="utf-8") as f:
            report = json.load(f, parse_constant=lambda name: None)
    except FileNotFoundError:
        raise Bad(f"{file} does not exist: a run writes it when it ends (`penstock runs` lists runs)") from None
    except OSError as e:
        raise Bad(f"cannot read {file}: {e.strerror}") from e
    except json.JSONDecodeError as e:
        raise Bad(f"{file}:{e.lineno}:{e.colno}: not JSON: {e.msg}") from e
    except (ValueError, RecursionError) as e:
        raise Bad(f"{file}: not JSON: {e}") from e
    if not isinstance(report, dict):
        raise Bad(f"{file}: expected a JSON object, which `penstock run` writes")
    for key, kind, name in (("status", str, "text"), ("stages", dict, "an object"), ("epochs", list, "an array")):
        if not isinstance(report.get(key), kind):
            raise Bad(f'{file}: "{key}" is missing or is not {name}: `penstock run` has not written this file')
    if (number(report.get("schema")) or SCHEMA) > SCHEMA:
        raise Bad(f"{file}: \"schema\" is {report['schema']}, but this version of Penstock reads reports up to schema {SCHEMA}")
    return report


def load(paths):
    """The runs, each with a name that no other has."""
    runs = [Run(path) for path in paths]
    names = [os.path.basename(os.path.abspath(run.directory)) for run in runs]
    for run, name in zip(runs, names):
        run.name = name if names.count(name) == 1 else run.directory
    if len({run.name for run in runs}) < len(runs):
        raise Bad("two of the given runs are the same run: name each run once")
    return runs
