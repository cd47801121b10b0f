"""The document: tables made here, and the data of charts, which page.js draws with Chart.js."""
import json
import os
import re
from html import escape

from . import traces
from .reports import Bad, number, section, show

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARIES = ("/usr/share/javascript/chart.js/chart.min.js", "/usr/share/nodejs/chart.js/dist/chart.min.js")
LIBRARY = "PENSTOCK_CHART_JS"  # in the environment: the path of another copy
VERSION = re.compile(rb"Chart\.js v([34])\.")
MIB = 1 << 20
METRICS = ("accuracy", "micro_f1", "mrr", "mse")
DASH = "–"


def library():
    """The text of Chart.js, which the page contains."""
    named = os.environ.get(LIBRARY)
    places = (named,) if named else LIBRARIES
    for path in places:
        if os.path.isfile(path):
            with open(path, "rb") as f:
                text = f.read()
            if not VERSION.search(text[:400]):
                raise Bad(f"{path} is not version 3 or 4 of Chart.js")
            return re.sub("</(script)", r"<\\/\1", text.decode("utf-8", "replace"), flags=re.I)  # it must not end the element
    if named:
        raise Bad(f"{LIBRARY} is {named}, which is not a file: expected the path of chart.min.js")
    raise Bad(f"Chart.js, which draws the charts, is not installed: install the Debian package libjs-chart.js (apt-get install libjs-chart.js), "
              f"or set {LIBRARY} to the path of a chart.min.js of version 3 or 4")


def asset(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as f:
        return f.read()


# ---- text ------------------------------------------------------------------------------------------

def text(value):
    """Escaped; bytes of a path that are not UTF-8 become question marks."""
    return escape(str(value).encode("utf-8", "replace").decode())


def figure(value, digits=0, unit=""):
    value = number(value)
    return DASH if value is None else f"{value:,.{digits}f}{unit}"


def scaled(value, by, digits=1, unit=""):
    value = number(value)
    return figure(None if value is None else value / by, digits, unit)


def cells(row, kind="td"):
    head, *rest = row
    return f'<tr><th scope="row">{text(head)}</th>' + "".join(f"<{kind}>{text(cell)}</{kind}>" for cell in rest) + "</tr>"


def table(columns, rows, more=""):
    """Right-aligned behind the first column, unless more says otherwise."""
    return f'<div class="wide"><table{more}><thead>{cells(columns, "th")}</thead><tbody>{"".join(cells(row) for row in rows)}</tbody></table></div>'


def runs_table(runs, rows):
    """Fields down, runs across; rows that no run has are left out."""
    return table(["", *(run.name for run in runs)], [row for row in rows if any(cell not in (DASH, "") for cell in row[1:])],
                 "" if len(runs) > 1 else ' class="one"')


# ---- figures ---------------------------------------------------------------------------------------

def last(run, key):
    return run.epochs[-1].get(key) if run.epochs else None


def metric(run):
    """The measure of quality that a run reports: accuracy, micro_f1 or mrr. None: it has none."""
    return next((m for m in METRICS if number(run.get(f"test_{m}")) is not None or number(last(run, f"val_{m}")) is not None), None)


def best(run):
    """The best value of the metric on the validation split: an error is best when it is lowest."""
    values = [v for v in run.column(f"val_{metric(run)}") if v is not None]
    return (min if metric(run) == "mse" else max)(values, default=None)


def label(name):
    return {"accuracy": "accuracy", "micro_f1": "micro-F1", "mrr": "MRR", "mse": "MSE"}.get(name, "metric")


def rate(run):
    """MiB a second from the disk, while batches flowed."""
    read, seconds = run.number("io", "bytes"), run.number("phases", "run_s")
    return read / MIB / seconds if read is not None and seconds else None


def percent(value, digits=1):
    return scaled(value, 0.01, digits, " %")


def summary(runs):
    kinds = {metric(run) for run in runs} - {None}
    name = label(kinds.pop()) if len(kinds) == 1 else "metric"
    rows = [("status", [run.report["status"] for run in runs]),
            ("epochs", [figure(len(run.epochs)) for run in runs]),
            ("last loss", [figure(last(run, "loss"), 4) for run in runs]),
            (f"best validation {name}", [figure(best(run), 4) for run in runs]),
            (f"test {name}", [figure(run.get(f"test_{metric(run)}"), 4) for run in runs]),
            ("seeds a second, last epoch", [figure(last(run, "seeds_per_second")) for run in runs]),
            ("edges a second, last epoch", [figure(last(run, "edges_per_second")) for run in runs]),
            ("read from disk a second", [figure(rate(run), 1, " MiB") for run in runs]),
            ("cache hits", [percent(run.get("cache", "cpu_hit_rate")) for run in runs]),
            ("seconds in total", [figure(run.get("phases", "total_s"), 2) for run in runs]),
            ("bottleneck", [show(run.get("bound_by")) or DASH for run in runs])]
    return runs_table(runs, [(name, *values) for name, values in rows])


def disk(runs):
    fields = (("backend", lambda r: show(r.get("io", "backend")) or DASH),
              ("requests", lambda r: figure(r.get("io", "requests"))),
              ("rows read", lambda r: figure(r.get("io", "rows"))),
              ("read", lambda r: scaled(r.get("io", "bytes"), MIB, 1, " MiB")),
              ("mean request", lambda r: figure((r.number("io", "bytes") or 0) / 1024 / r.number("io", "requests"), 1, " KiB") if r.number("io", "requests") else DASH),
              ("bytes read per byte needed", lambda r: figure(r.get("io", "read_amplification"), 2)),
              ("copied by the disk stage", lambda r: scaled(r.get("io", "copied_bytes"), MIB, 1, " MiB")),
              ("retries", lambda r: figure(r.get("io", "retries"))),
              ("cached rows, CPU", lambda r: figure(r.get("cache", "rows"))),
              ("cached rows, GPU", lambda r: figure(r.get("cache", "gpu_rows"))),
              ("look-ups", lambda r: figure(r.get("cache", "lookups"))),
              ("hits", lambda r: figure(r.get("cache", "hits"))),
              ("hits, GPU", lambda r: figure(r.get("cache", "gpu_hits"))),
              ("hit rate", lambda r: percent(r.get("cache", "cpu_hit_rate"))),
              ("copied between devices", lambda r: scaled(r.get("copies", "bytes"), MIB, 1, " MiB")))
    return runs_table(runs, [(name, *(of(run) for run in runs)) for name, of in fields])


def stages(run):
    columns = ["", "device", "share", "busy s", "disk s", "slot s", "input s", "items"]
    keys = ("busy_s", "wait_disk_s", "wait_credit_s", "wait_input_s")
    return table(columns, [(name, show(s.get("device")), percent(s.get("share"), 0), *(figure(s.get(key), 2) for key in keys), figure(s.get("items")))
                           for name, s in run.stages.items()])


def parameters(runs):
    """The parameters that differ; of one run, all."""
    found = [run.parameters() for run in runs]
    keys = list(dict.fromkeys(key for p in found for key in p))
    if len(runs) > 1:
        keys = [key for key in keys if len({p.get(key) for p in found}) > 1]
        if not keys:
            return "<p>All parameters are equal.</p>"
    return table(["", *(run.name for run in runs)], [(key, *(p.get(key) or DASH for p in found)) for key in keys], ' class="words"')


def verdict(run):
    """The sentence about the time of a batch, or nothing."""
    v = section(run.get("verdict"))
    if number(v.get("t_batch_s")) is None:
        return ""
    ms = lambda key: scaled(v.get(key), 1e-3, 2, " ms")
    return f'A batch needs SSD {ms("t_ssd_s")}, PCIe {ms("t_pcie_s")}, training {ms("t_train_s")}; it took {ms("measured_batch_s")}.'


def command(run):
    words = run.get("command")
    if not isinstance(words, list):
        return DASH
    quote = lambda word: word if re.fullmatch(r"[\w@%+=:,./-]+", word) else "'" + word.replace("'", "'\\''") + "'"
    return " ".join(quote(str(word)) for word in words)


def about(run):
    host, size = section(run.get("host")), number(run.get("host", "memory_bytes"))
    machine = [show(host.get("name")), f'{show(host.get("kernel"))} {show(host.get("machine"))}'.strip(),
               f'{show(host.get("cpus"))} CPUs' if number(host.get("cpus")) else "", f"{size / (1 << 30):.1f} GiB" if size else ""]
    ds = section(run.get("dataset"))
    data = [show(ds.get("dir")), *(f"{figure(ds.get(key))} {key}" for key in ("vertices", "edges") if number(ds.get(key)) is not None)]
    pairs = [("command", command(run)), ("directory", show(run.get("directory"))), ("run", run.directory), ("started", show(run.get("started"))),
             ("version", " ".join(filter(None, (show(run.get("version")), show(run.get("commit")))))), ("host", ", ".join(filter(None, machine))),
             ("dataset", ", ".join(filter(None, data))), ("blocks digest", show(run.get("digest"))), ("weights digest", show(run.get("weights_digest"))),
             ("verdict", verdict(run))]
    pairs += [("failure", f'{show(section(f).get("stage"))}: {show(section(f).get("text"))}') for f in run.get("failures") or [] if isinstance(run.get("failures"), list)]
    return '<dl>' + "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in pairs if value) + "</dl>"


# ---- charts ----------------------------------------------------------------------------------------

def points(run, key, by=1.0):
    """(epoch, value) of the epochs that have the value."""
    found = []
    for i, e in enumerate(run.epochs):
        value = number(e.get(key))
        if value is not None:
            found.append([(number(e.get("epoch")) if number(e.get("epoch")) is not None else i), value / by])
    return found


def curves(runs):
    """Charts over epochs: loss, metric, seconds, throughput."""
    def chart(id, title, keys):
        lines = [{"run": i, "name": name, "dashed": k > 0, "points": points(run, key)} for i, run in enumerate(runs) for k, (name, key) in enumerate(keys(run))]
        lines = [line for line in lines if line["points"]]
        return [{"id": id, "kind": "curves", "title": title, "zero": id not in ("loss", "metric"), "lines": lines}] if lines else []
    kinds = {metric(run) for run in runs} - {None}
    quality = label(next(iter(kinds))) if len(kinds) == 1 else "metric"
    return [*chart("loss", "loss", lambda run: [("", "loss")]),
            *chart("metric", f"{quality}: validation, and training (dashed)",
                   lambda run: [("validation", f"val_{metric(run)}"), ("training", f"train_{metric(run)}")]),
            *chart("seconds", "seconds per epoch", lambda run: [("", "seconds")]),
            *chart("seeds", "seeds a second", lambda run: [("", "seeds_per_second")]),
            *chart("edges", "edges a second", lambda run: [("", "edges_per_second")])]


def times(i, run):
    """Where the time of each stage went."""
    parts = (("working", "busy_s"), ("waiting for its disk", "wait_disk_s"), ("waiting for a free slot", "wait_credit_s"), ("waiting for input", "wait_input_s"))
    return {"id": f"times-{i}", "kind": "times", "title": "seconds of each stage", "stages": list(run.stages),
            "parts": [{"name": name, "values": [number(s.get(key)) or 0 for s in run.stages.values()]} for name, key in parts]}


def over_time(i, run):
    """The charts of a trace."""
    width, active = run.trace.activity()
    order = [name for name in run.stages if name in active] + [name for name in active if name not in run.stages]
    found = [{"id": f"activity-{i}", "kind": "activity", "title": "when each stage worked, over the seconds of the run: the stronger the colour, the greater the share", "width": width,
              "rows": order, "values": [active[name] for name in order]}]
    closer = run.trace.closer()
    if closer:
        start = min(span[3] for span in closer)
        batches = sorted({span[2] for span in closer})
        rows = list(dict.fromkeys(f"{stage}: {traces.NAMES.get(kind, kind)}" for stage, kind, *_ in sorted(closer, key=lambda span: span[3])))
        found.append({"id": f"closer-{i}", "kind": "closer", "title": f"batches {batches[0]} to {batches[-1]}, in milliseconds", "rows": rows, "batches": batches,
                      "spans": [[rows.index(f"{stage}: {traces.NAMES.get(kind, kind)}"), batches.index(batch), round((a - start) * 1e3, 4), round((b - start) * 1e3, 4)]
                                for stage, kind, batch, a, b in closer]})
    return found


def canvas(chart, rows=0):
    height = f' style="height:{(56 if chart["kind"] == "activity" else 84) + 30 * rows}px"' if rows else ""
    return (f'<figure><figcaption>{text(chart["title"])}</figcaption><div class="plot"{height}>'
            f'<canvas id="{chart["id"]}" role="img" aria-label="{text(chart["title"])}"></canvas></div></figure>')


def data(charts, runs):
    """For a script element: its content ends at the first "</", and is otherwise not interpreted."""
    found = json.dumps({"runs": [run.name.encode("utf-8", "replace").decode() for run in runs], "charts": charts}, separators=(",", ":"), allow_nan=False)
    return found.replace("<", "\\u003c")


# ---- the page --------------------------------------------------------------------------------------

def chosen_rows(chart):
    return len(chart.get("rows") or chart.get("stages") or ()) if chart["kind"] != "curves" else 0


def page(runs):
    chart_js = library()
    charts, body, several = curves(runs), [], len(runs) > 1
    title = " · ".join(run.name for run in runs) if len(runs) <= 3 else f"{len(runs)} runs"
    pipelines = ", ".join(dict.fromkeys(show(run.get("pipeline")) for run in runs))
    body.append(f'<header><p class="kicker">Penstock {"runs" if several else "run"} of {text(pipelines)}</p><h1>{text(title)}</h1></header>')
    body.append(f"<section>{summary(runs)}</section>")
    if charts:
        body.append(f'<section><h2>Training</h2><div class="grid">{"".join(canvas(chart) for chart in charts)}</div></section>')
    for name, make in (("Where the time went", lambda i, run: ([times(i, run)], stages(run))), ("Over time", lambda i, run: (over_time(i, run), "") if run.trace else ([], ""))):
        parts = []
        for i, run in enumerate(runs):
            made, more = make(i, run)
            charts = charts + made
            if made:
                parts.append((f"<h3>{text(run.name)}</h3>" if several else "") + "".join(canvas(chart, chosen_rows(chart)) for chart in made) + more)
        if parts:
            body.append(f'<section><h2>{name}</h2>{"".join(parts)}</section>')
    body.append(f"<section><h2>Disk and cache</h2>{disk(runs)}</section>")
    body.append(f'<section><h2>{"Parameters that differ" if several else "Parameters"}</h2>{parameters(runs)}</section>')
    ran = "".join((f"<h3>{text(run.name)}</h3>" if several else "") + about(run) for run in runs)
    body.append(f"<section><h2>What ran</h2>{ran}</section>")
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{text(title)} – Penstock</title>\n'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}"><meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<meta name="color-scheme" content="light dark"><style>{asset("page.css")}</style></head>\n<body><main>{"".join(body)}</main>\n'
            f'<script type="application/json" id="data">{data(charts, runs)}</script>\n'
            f'<script>{chart_js}</script>\n<script>{asset("page.js")}</script></body></html>\n')
