"""The results of an experiment: a table and charts for each figure, and the summary."""
import dataclasses
import json
import os
import textwrap
from collections.abc import Callable

WIDTH = 110  # columns of the texts
QUIET_LOAD = 0.5  # below it, an experiment that uses two cores has them


@dataclasses.dataclass(frozen=True)
class Figure:
    """One figure of a paper. runs(size): programs that measure(lab) starts through the lab."""
    name: str
    title: str
    where: str  # section of the paper
    claim: str  # what the paper reports
    runs: Callable
    measure: Callable


@dataclasses.dataclass(frozen=True)
class Paper:
    name: str
    title: str
    figures: tuple
    full: dict
    smallest: dict  # the same keys


@dataclasses.dataclass
class Result:
    """holds: None if it is not judged."""
    columns: tuple
    rows: list
    charts: dict  # {suffix of the file's name: SVG}
    measured: str
    holds: bool | None
    why: str  # why it does not hold, or is not judged; "" if it holds
    notes: tuple = ()


def verdict(lab, conditions):
    """(holds, why) of {what is wrong if it is false: whether it is true}."""
    if not lab.judged:
        return None, "the smallest form only shows that the figure can be measured"
    wrong = [text for text, ok in conditions.items() if not ok]
    return not wrong, "; ".join(wrong)


def _cell(value):
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def table(columns, rows):
    cells = [list(columns), *([_cell(v) for v in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    return "".join("  ".join(c.rjust(w) for c, w in zip(row, widths)).rstrip() + "\n" for row in cells)


def _is_number(figure):
    """Whether the name is a figure's number, such as 13d. Other titles say what the figure is."""
    return figure.name[0].isdigit()


def _label(figure):
    return f"Figure {figure.name}: {figure.title}" if _is_number(figure) else figure.title


def _paragraph(label, text):
    return textwrap.fill(f"{label}: {text}", WIDTH, subsequent_indent="  ") + "\n"


def _judgement(result):
    if result.holds:
        return "holds\n"
    return _paragraph("not judged" if result.holds is None else "does not hold", result.why)


def _about(figure, result):
    return _label(figure) + "\n" + _paragraph(f"claim ({figure.where})", figure.claim) + _paragraph("measured", result.measured) + _judgement(result)


def _write(path, text):
    with open(path + ".tmp", "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(path + ".tmp", path)


def _json(path, value):
    _write(path, json.dumps(value, indent=1) + "\n")


def _facts(figure, result):
    return {"figure": figure.name, "title": figure.title, "where": figure.where, "claim": figure.claim, "measured": result.measured,
            "holds": result.holds, "why": result.why}


def stem(figure):
    return f"figure-{figure.name}" if _is_number(figure) else figure.name


def write_figure(out, paper, figure, result):
    """STEM.txt, STEM.json and STEM[-SUFFIX].svg."""
    base = os.path.join(out, stem(figure))
    notes = "".join(_paragraph("note", n) for n in result.notes)
    _write(base + ".txt", f"{paper.title}\n{_about(figure, result)}\n{table(result.columns, result.rows)}" + ("\n" + notes if notes else ""))
    _json(base + ".json", {**_facts(figure, result), "columns": list(result.columns), "rows": result.rows, "notes": list(result.notes)})
    for suffix, chart in result.charts.items():
        _write(base + (f"-{suffix}" if suffix else "") + ".svg", chart)


def write_summary(out, paper, lab, results):
    about = {"paper": paper.title, "judged": lab.judged, "alternations": lab.size["alternations"], "drive_core": lab.drive_core,
             "train_core": lab.train_core, "load_at_start": lab.load, "runs": lab.done}
    _json(os.path.join(out, "summary.json"), {**about, "figures": [_facts(*r) for r in results]})
    head = (f"{paper.title}\nload at the start {lab.load:.2f}; drives, drivers and sampler on core {lab.drive_core}, the trainer "
            f"(one thread) on core {lab.train_core}; medians of {lab.size['alternations']} alternations\n")
    if lab.load > QUIET_LOAD:
        head += _paragraph("warning", "other programs were running at the start. They slow the trainer more while the drives' core is busy, too, "
                           "so ratios and predictions suffer; measure on a quiet machine")
    _write(os.path.join(out, "summary.txt"), head + "".join("\n" + _about(*r) for r in results))


def list_of(paper, figures):
    return f"{paper.title}\n" + "".join(f"\n{f.name}: {f.title}\n{_paragraph(f.where, f.claim)}" for f in figures)
