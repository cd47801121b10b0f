"""penstock experiment: the smallest form measures every figure and writes what it says; mistakes are told."""
import signal
import xml.etree.ElementTree as xml

from harness import *

FILES = {  # the charts of each figure
    "hyperion": {"table-1": ("",), "7": ("",), "9": ("",), "10": ("",), "11": ("",), "12": ("-a", "-b", "-d"), "13a": ("-a", "-b"), "13c": ("",), "13d": ("",), "14": ("-a", "-b"), "15": ("",)},
    "gids": {"5": ("",), "8": ("-optane", "-980pro"), "9": ("",), "10": ("",), "11": ("",), "12": ("",), "13": ("-980pro", "-optane", "-ginex"), "15": ("",)},
    "embeddings": {"marius-7": ("",), "marius-9": ("",), "marius-10": ("",), "marius-11": ("",), "marius-12": ("-a", "-b"), "marius-13": ("",),
                   "legend-table-3": ("",), "legend-table-5": ("",), "legend-18": ("",)},
}


def experiment(*args, code=0, cwd=None, paper="hyperion"):
    return command("experiment", paper, *args, code=code, cwd=cwd)


def stem(name):
    return f"figure-{name}" if name[0].isdigit() else name


def read(out, name):
    with open(os.path.join(out, name), encoding="utf-8") as f:
        return json.load(f) if name.endswith(".json") else f.read()


def is_chart(path):
    """Whether the chart is XML of sound shapes, with something drawn."""
    root = xml.parse(path).getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == space + "svg", root.tag
    numbers = [float(v) for e in root.iter() for k, v in e.attrib.items() if k in ("x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "width", "height")]
    assert all(-1 <= n <= 1000 for n in numbers), path
    data = [e for e in root.iter() if e.tag in (space + "circle", space + "polyline") or e.tag == space + "rect" and e.get("height") not in ("12", "400")]
    assert data, f"{path}: nothing is drawn"


def is_sound(out, name, charts, text):
    found = read(out, stem(name) + ".json")
    assert found["figure"] == name and found["claim"] and found["where"] and found["measured"], found
    assert found["holds"] is None and found["why"], found  # the smallest form judges nothing
    assert found["rows"] and all(len(row) == len(found["columns"]) for row in found["rows"]), found
    assert all(cell is not None for row in found["rows"] for cell in row), found
    assert found["title"] in text and found["title"] in read(out, stem(name) + ".txt")
    for suffix in charts:
        is_chart(os.path.join(out, f"{stem(name)}{suffix}.svg"))


def measures_every_figure(paper):
    if SAN:
        raise Skip("hundreds of processes: the plain build runs them")
    with Place() as p:
        out, figures = p.path("out"), FILES[paper]
        said = experiment("--smallest", "--out", out, paper=paper)
        text, summary = read(out, "summary.txt"), read(out, "summary.json")
        assert [f["figure"] for f in summary["figures"]] == list(figures) and text in said.stdout
        for name, charts in figures.items():
            is_sound(out, name, charts, text)
        wanted = {"summary.txt", "summary.json"} | {f"{stem(n)}{end}" for n, suffixes in figures.items()
                                                    for end in (".txt", ".json", *(s + ".svg" for s in suffixes))}
        assert set(os.listdir(out)) == wanted, set(os.listdir(out)) ^ wanted  # no scratch
        last = said.stderr.strip().splitlines()[-1]
        assert f"{summary['runs']} of {summary['runs']} runs" in last and "s left" in last, last  # all runs were expected


@test
def the_smallest_form_measures_every_figure_of_hyperion():
    measures_every_figure("hyperion")


@test
def the_smallest_form_measures_every_figure_of_gids():
    measures_every_figure("gids")


@test
def the_smallest_form_measures_every_figure_of_marius_and_legend():
    measures_every_figure("embeddings")


@test
def one_figure():
    with Place() as p:
        out = p.path("out")
        experiment("--smallest", "--only", "table-1", "--out", out)
        found = read(out, "table-1.json")
        assert [(r[0], r[2], r[4]) for r in found["rows"]] == [("A", 1, 48971), ("B", 1, 78794), ("C", 8, 45275)], found
        assert set(os.listdir(out)) == {"summary.txt", "summary.json", "table-1.txt", "table-1.json", "table-1.svg"}


@test
def a_claim_is_judged():
    with Place() as p:
        out = p.path("out")
        said = experiment("--only", "table-1", "--out", out)
        assert read(out, "summary.json")["figures"][0]["holds"] is True and "\nholds\n" in said.stdout


@test
def mistakes_are_told():
    with Place() as p:
        os.mkdir(p.path("full"))
        with open(p.path("full/file"), "w"):
            pass
        for args, told in ((["--only", "8"], 'no figure "8"; expected one of table-1, 7'),
                           (["--only", "table-1", "--out", p.path("full")], "is not empty"),
                           (["--alternations", "0"], "expected 1 to 1000, found 0"),
                           (["--alternations", "x"], "invalid int value: 'x'"),
                           (["--fast"], "unrecognized arguments: --fast")):
            r = experiment(*args, code=2, cwd=p.path("full"))
            assert told in r.stderr and "Traceback" not in r.stderr, r.stderr
        r = command("experiment", "legion", code=2)
        assert "invalid choice: 'legion'" in r.stderr and "hyperion" in r.stderr, r.stderr
        r = subprocess.run([PENSTOCK, "experiment", "hyperion", "--list"], capture_output=True, text=True, env=dict(os.environ, PENSTOCK_PYTHON="/no/python"))
        assert r.returncode == 1 and "cannot start /no/python" in r.stderr and "PENSTOCK_PYTHON" in r.stderr, r
        r = subprocess.run(["taskset", "-c", str(min(os.sched_getaffinity(0))), PENSTOCK, "experiment", "hyperion", "--only", "9", "--out", p.path("one")],
                           capture_output=True, text=True)
        assert r.returncode == 2 and "need two cores" in r.stderr, r


@test
def an_interrupted_experiment_leaves_what_is_whole():
    with Place() as p:
        out = p.path("out")
        with subprocess.Popen([PENSTOCK, "experiment", "hyperion", "--only", "table-1", "--only", "11", "--out", out], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as e:
            deadline = time.time() + 60
            while not os.path.exists(os.path.join(out, "summary.json")) and time.time() < deadline:
                time.sleep(0.05)
            time.sleep(1)  # in the first run of figure 11, or in its dataset
            e.send_signal(signal.SIGTERM)
            assert e.wait(timeout=60) == 143
        assert set(os.listdir(out)) == {"summary.txt", "summary.json", "table-1.txt", "table-1.json", "table-1.svg"}, os.listdir(out)
    no_leftovers()


if __name__ == "__main__":
    main()
