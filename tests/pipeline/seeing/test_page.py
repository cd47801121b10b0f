"""penstock page: what the HTML file contains, and what a browser makes of it."""
import html.parser
import re
import struct
import zlib

from crash import *

LIBRARY = "/usr/share/javascript/chart.js/chart.min.js"
WIDTH = 900
PAPER = {"light": (252, 252, 251), "dark": (22, 24, 27)}  # of page.css
ACCENT = {"light": (47, 111, 178), "dark": (121, 174, 230)}
LINKS = {"src", "href", "srcset", "action", "formaction", "data", "poster", "background", "ping", "manifest"}


class Page(html.parser.HTMLParser):
    """elements: (tag, attributes); texts: {tag: [its texts]}; data: of the charts."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self.open = [], {}, []
        self.feed(text)
        self.close()
        found = [i for i, (tag, attributes) in enumerate(e for e in self.elements if e[0] == "script") if attributes.get("id") == "data"]
        self.data = json.loads(self.texts["script"][found[0]]) if found else None

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)

    def chart(self, id):
        return next(c for c in self.data["charts"] if c["id"] == id)


def need_library():
    if not os.path.exists(LIBRARY):
        raise Skip("libjs-chart.js is not installed")


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def three_runs(p):
    """One with a trace; one with names that HTML would read as elements; one with other parameters."""
    odd = p.path('b <script>alert("1")<!-- & --><b>')
    runs = [p.run(HYPERION, "--trace", p.path("t.json"), "--epochs", 3, "--set", "params.batch=100", "--set", "stages.planner.params.cpu_cache=16KiB")]
    for args in (("--run-dir", odd), ("--set", "stages.trainer.params.hidden=24")):
        runs.append(p.run(HYPERION, "--epochs", 2, "--set", "params.batch=100", *args))
    runs[1].run_dir = odd
    runs[1].report = json.loads(read(os.path.join(odd, "report.json")))
    return runs


def is_alone(page, text):
    """The page asks no host for anything."""
    for tag, attributes in page.elements:
        assert not LINKS & attributes.keys() and tag not in ("link", "iframe", "object", "embed", "img", "base"), (tag, attributes)
    style = "".join(page.texts["style"])
    assert "url(" not in style and "@import" not in style
    assert "content=\"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'\"" in text
    own = "".join(t for t in page.texts["script"] if "Chart.js v" not in t)
    assert not re.search(r"fetch|XMLHttpRequest|WebSocket|import\s*\(|https?:", own)


@test
def three_runs_are_compared():
    need_library()
    with Place() as p:
        runs = three_runs(p)
        out = p.path("page.html")
        said = command("page", *(r.run_dir for r in runs), "--out", out).stdout
        text = read(out)
        assert len(text.encode()) < 2_000_000 and said.startswith(out + ": ") and "3 runs" in said, said
        page = Page(text)
        is_alone(page, text)
        names = [os.path.basename(r.run_dir) for r in runs]
        assert page.data["runs"] == names, page.data["runs"]
        assert [tag for tag, _ in page.elements].count("script") == 3 and "<script>alert" not in text
        canvases = [a["id"] for tag, a in page.elements if tag == "canvas"]
        assert canvases == [c["id"] for c in page.data["charts"]] and len(set(canvases)) == len(canvases)
        for k, r in enumerate(runs):
            loss = page.chart("loss")["lines"][k]
            assert loss["run"] == k and [y for _, y in loss["points"]] == [e["loss"] for e in r.report["epochs"]]
            lines = [line for line in page.chart("metric")["lines"] if line["run"] == k]
            assert [[y for _, y in line["points"]] for line in lines] == [[e[f"{n}_accuracy"] for e in r.report["epochs"]] for n in ("val", "train")]
            times = page.chart(f"times-{k}")
            assert times["stages"] == list(r.report["stages"])
            keys = ("busy_s", "wait_disk_s", "wait_credit_s", "wait_input_s")
            assert [part["values"] for part in times["parts"]] == [[s[key] for s in r.report["stages"].values()] for key in keys]
        traced = {c["id"] for c in page.data["charts"] if c["id"].split("-")[0] in ("activity", "closer")}
        assert traced == {"activity-0", "closer-0"}, traced
        activity = page.chart("activity-0")
        assert activity["rows"] == list(runs[0].report["stages"]) and all(0 <= v <= 1 for row in activity["values"] for v in row)
        worked = dict(zip(activity["rows"], (sum(row) * activity["width"] for row in activity["values"])))
        busy = runs[0].report["stages"]["trainer"]["busy_s"]
        assert 0.5 * busy <= worked["trainer"] <= 1.1 * busy + 0.01, (worked, busy)
        closer = page.chart("closer-0")
        assert closer["spans"] and all(0 <= a <= b for _, _, a, b in closer["spans"]) and {s[0] for s in closer["spans"]} == set(range(len(closer["rows"])))
        cells = page.texts["th"] + page.texts["td"]
        for value in (f"{runs[0].report['epochs'][-1]['loss']:.4f}", f"{runs[0].report['io']['requests']:,}", "trainer.hidden", "24"):
            assert value in cells, value
        for differs, parameter in ((True, "planner.cpu_cache"), (False, "trainer.lr"), (False, "sampler.batch")):
            assert (parameter in cells) == differs, parameter
        for r in runs:
            for value in (r.report["started"], r.report["weights_digest"], r.report["directory"]):
                assert value in page.texts["dd"], value


@test
def one_run():
    """By its directory or its report; the page is beside the report."""
    need_library()
    with Place() as p:
        r = p.run(HYPERION, "--set", "params.batch=100")
        command("page", os.path.join(r.run_dir, "report.json"))
        page = Page(read(os.path.join(r.run_dir, "page.html")))
        assert page.data["runs"] == [os.path.basename(r.run_dir)] and "Over time" not in page.texts["h2"] and "Parameters" in page.texts["h2"]
        assert "sampler.fanout" in page.texts["th"] and f"{r.report['io']['requests']:,}" in page.texts["td"]
        assert command("page", r.run_dir, "--out", "-").stdout == read(os.path.join(r.run_dir, "page.html"))


@test
def mistakes_are_told():
    need_library()
    with Place() as p:
        run = p.path("run")
        os.mkdir(run)
        report = os.path.join(run, "report.json")

        def fails(*words, args=(run,), **environment):
            r = subprocess.run([PENSTOCK, "page", *args], capture_output=True, text=True, cwd=p.dir, env={**os.environ, **environment}, timeout=60)
            assert r.returncode == 2 and r.stdout == "" and r.stderr.startswith("penstock page: ") and "Traceback" not in r.stderr, r
            assert all(word in r.stderr for word in words), r.stderr
            assert os.listdir(p.dir) == ["run"] and set(os.listdir(run)) <= {"report.json", "trace"}, os.listdir(run)

        fails(report, "does not exist", "penstock runs")
        os.mkfifo(report)
        fails(report, "not a regular file")
        os.unlink(report)
        good = {"status": "ok", "stages": {"a": {}}, "epochs": []}
        for text, words in (('{"status": "ok",\n "stages": }', [f"{report}:2:12", "not JSON"]), ("[1]", ["expected a JSON object"]), ("[" * 100000, ["not JSON"]),
                            (json.dumps({**good, "stages": 3}), ['"stages"', "not an object"]), (json.dumps({**good, "schema": 9}), ["schema", "9"])):
            with open(report, "w") as f:
                f.write(text)
            fails(report, *words)
        with open(report, "wb") as f:
            f.write(b'{"status": "\xff"}')
        fails(report, "not JSON")
        with open(report, "w") as f:  # whatever else is wrong with the fields is not shown
            json.dump({**good, "epochs": [3, {"loss": "x", "epoch": []}], "stages": {"a": 3, "b": {"params": 4, "share": []}}, "io": [], "command": [1, None],
                       "host": 7, "failures": {"a": 1}, "verdict": 0, "phases": {"run_s": 0}, "cache": {"hits": True}}, f)
        assert "ok" in Page(command("page", run, "--out", "-").stdout).texts["td"]
        fails("name each run once", args=(run, run))
        fails("at most", args=(run,) * 13)
        fails("--out", "nothing/x.html", args=(run, "--out", "nothing/x.html"))
        fails("--out", "not a regular file", args=(run, "--out", "run"))
        fails("PENSTOCK_CHART_JS is nothing.js", PENSTOCK_CHART_JS="nothing.js")
        code = "from penstock.pages import document; document.LIBRARIES = (); document.library()"
        r = subprocess.run(["/usr/bin/python3", "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "tools", "python")})
        assert r.returncode == 1 and "install the Debian package libjs-chart.js" in r.stderr, r.stderr
        fails("is not version 3 or 4 of Chart.js", PENSTOCK_CHART_JS=report)
        os.mkdir(os.path.join(run, "trace"))
        with open(os.path.join(run, "trace", "a.json"), "w") as f:
            f.write('{"ph":"M","name":"process_name","args":{"name":"a"}},\n{"ph":"X"},\n')
        fails("trace/a.json:2", "not an event of a trace")


@test
def events_for_tensorboard():
    with Place() as p:
        r = p.run(HYPERION, "--epochs", 2, "--set", "params.batch=100")
        package = os.path.join(ROOT, "tools", "python")
        without = "import sys; sys.modules['tensorboard'] = None; from penstock.page import main; sys.exit(main(['penstock', *sys.argv[1:]]))"
        argv = ["/usr/bin/python3", "-c", without, r.run_dir, "--tensorboard", p.path("events")]
        said = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": package})
        assert said.returncode == 2 and "penstock page: this needs the Python package tensorboard, which /usr/bin/python3 does not have" in said.stderr, said
        assert not os.path.exists(p.path("events"))
        python = os.environ.get("PENSTOCK_TORCH_PYTHON", sys.executable)
        there = subprocess.run([python, "-c", "import tensorboard"], capture_output=True, text=True)
        if there.returncode:
            raise Skip(f"{python} has no tensorboard: {there.stderr.strip().splitlines()[-1]}")
        environment = {**os.environ, "PENSTOCK_PYTHON": python}
        said = subprocess.run([PENSTOCK, "page", r.run_dir, "--tensorboard", p.path("events")], capture_output=True, text=True, env=environment)
        folder = os.path.join(p.path("events"), os.path.basename(r.run_dir))
        assert said.returncode == 0 and said.stdout == f"{folder}: 2 epochs\n" and not os.path.exists(os.path.join(r.run_dir, "page.html")), said
        code = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1]).Reload()
print(json.dumps({tag: [[e.step, e.value, e.wall_time] for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
"""
        read_back = subprocess.run([python, "-c", code, folder], capture_output=True, text=True, check=True)
        found = json.loads(read_back.stdout)
        for name in ("loss", "val_accuracy", "seconds"):
            want = [(row["epoch"], row[name]) for row in r.report["epochs"]]
            assert [(step, round(value, 5)) for step, value, _ in found[name]] == [(step, round(value, 5)) for step, value in want], (found, want)
        assert abs(found["test_accuracy"][0][1] - r.report["test_accuracy"]) < 1e-6 and found["loss"][0][2] > 1e9
        run = p.start(HYPERION, "--epochs", 100000, "--set", "params.batch=100")
        wait_for(lambda: os.path.exists(os.path.join(run.run_dir, "epochs.jsonl")))
        live = subprocess.Popen([PENSTOCK, "page", run.run_dir, "--tensorboard", p.path("live"), "--follow"], stdout=subprocess.PIPE, text=True, env=environment)
        folder = os.path.join(p.path("live"), os.path.basename(run.run_dir))
        read = lambda: subprocess.run([python, "-c", code, folder], capture_output=True, text=True).stdout
        wait_for(lambda: '"loss"' in read())  # while the run is active
        run.process.send_signal(2)
        report = run.wait().report
        assert live.communicate(timeout=60)[0] == folder + "\n" and live.returncode == 0
        found = json.loads(read())
        assert [step for step, *_ in found["loss"]] == [row["epoch"] for row in report["epochs"]] and found["loss"][0][2] > 1e9, (found, report)


def browser():
    found = shutil.which("chromium")
    if not found:
        raise Skip("chromium is not installed")
    if SAN:
        raise Skip("a browser shows the pages of the plain build")
    return found


def chromium(p, page, *args):
    argv = [browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={p.path('profile')}", f"--window-size={WIDTH},1000", *args, "file://" + page]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True).stdout


def pixels(path):
    """The rows of a PNG of 8-bit RGB or RGBA, as lists of colours."""
    with open(path, "rb") as f:
        data = f.read()
    at, packed = 8, b""
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack_from(">IIBB", data, at + 8)
        elif kind == b"IDAT":
            packed += data[at + 8:at + 8 + size]
        at += size + 12
    assert depth == 8 and colour in (2, 6), (depth, colour)
    n, raw = 3 if colour == 2 else 4, zlib.decompress(packed)
    rows, above = [], bytearray(width * n)
    for y in range(height):
        kind, *line = raw[y * (width * n + 1):(y + 1) * (width * n + 1)]
        if kind == 2 and not any(line):
            line, kind = above, 0
        for i in range(len(line)) if kind else ():  # PNG, section 9: filters
            a, b, c = line[i - n] if i >= n else 0, above[i], above[i - n] if i >= n else 0
            paeth = min(((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c)))[2]
            line[i] = (line[i] + (0, a, b, (a + b) // 2, paeth)[kind]) & 255
        above = line
        rows.append([tuple(line[i:i + 3]) for i in range(0, len(line), n)])
    return rows


@test
def a_browser_draws_it_in_light_and_dark():
    need_library()
    browser()
    with Place() as p:
        r = p.run(HYPERION, "--epochs", 2, "--set", "params.batch=100", "--trace", p.path("t.json"))
        out = p.path("page.html")
        command("page", r.run_dir, "--out", out)
        with open(p.path("wide.html"), "w", encoding="utf-8") as f:
            f.write(read(out) + "<script>document.body.dataset.wide = document.documentElement.scrollWidth</script>")
        page = Page(chromium(p, p.path("wide.html"), "--dump-dom"))
        canvases = [a for tag, a in page.elements if tag == "canvas"]
        assert len(canvases) == len(page.data["charts"]) >= 7
        for a in canvases:
            assert int(a["data-drawn"]) > 0, a
        assert int(dict(page.elements)["body"]["data-wide"]) <= WIDTH, "the page is wider than the window"
        for mode, scheme in (("light", 1), ("dark", 0)):
            picture = p.path(mode + ".png")
            chromium(p, out, f"--blink-settings=preferredColorScheme={scheme}", f"--screenshot={picture}")
            colours = {}
            for row in pixels(picture)[::3]:
                for colour in row:
                    colours[colour] = colours.get(colour, 0) + 1
            assert max(colours, key=colours.get) == PAPER[mode], (mode, max(colours, key=colours.get))
            assert colours.get(ACCENT[mode], 0) > 100, (mode, colours.get(ACCENT[mode]))  # curves are drawn


if __name__ == "__main__":
    main()
