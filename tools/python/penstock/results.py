"""What runs leave: report.json, and the planner's plan."""
import json
import os


class Report(dict):
    """A run's report: report.json as a dictionary. text: the table that the command printed, or empty text."""

    text = ""

    def frame(self, section="epochs"):
        """A section as a pandas DataFrame: "epochs" has one row for each epoch, "stages" and "processes" one for each name."""
        import pandas
        rows = self[section]
        if isinstance(rows, list):
            return pandas.DataFrame(rows).set_index("epoch") if rows and "epoch" in rows[0] else pandas.DataFrame(rows)
        named = all(isinstance(row, dict) for row in rows.values())
        return pandas.DataFrame.from_dict(rows if named else {section: rows}, orient="index")


def read_report(path):
    """A run's Report; path is report.json or the run's directory."""
    path = os.fspath(path)
    if os.path.isdir(path):
        path = os.path.join(path, "report.json")
    with open(path, encoding="utf-8") as f:
        return Report(json.load(f))


def read_plan(path):
    """A plan as a dict, with "cache" (vertex ids, hottest first) and, where it is there, "hotness" (hops + 1, vertices)
    as memory maps; path is plan.json or its directory."""
    import numpy as np
    path = os.fspath(path)
    if os.path.isdir(path):
        path = os.path.join(path, "plan.json")
    with open(path, encoding="utf-8") as f:
        plan = json.load(f)
    directory = os.path.dirname(path)
    arrays = {}
    for name in ("cache", "hotness"):
        array = os.path.join(directory, name + ".npy")
        if os.path.exists(array):
            arrays[name] = np.load(array, mmap_mode="r", allow_pickle=False)
    return {**plan, **arrays}
