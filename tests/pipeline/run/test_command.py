"""The command line: what it prints, and what it does when it cannot print."""
import re
import signal
import xml.etree.ElementTree
from concurrent.futures import ThreadPoolExecutor

from crash import *


@test
def version_and_unknown_words():
    said = command("--version").stdout
    assert said.startswith("penstock 1") and said.count("\n") == 1, said
    for words, asked in ((["chek"], 'did you mean "check"?'), (["imoprt"], 'did you mean "import"?'),
                         (["gen", "comunity"], 'did you mean "community"?'), (["gen", "rmatt"], 'did you mean "rmat"?')):
        said = command(*words, code=2).stderr.splitlines()
        assert words[-1] in said[0] and said[0].endswith(asked), said
    assert "did you mean" not in command("xyzzy", code=2).stderr


@test
def demo_and_pipelines_by_name():
    """The name of an installed pipeline is not a path, and a file of this name comes first."""
    assert "usage: penstock demo" in command("demo", "--help").stdout
    assert "usage: penstock demo" in command("demo", "data/mine", code=2).stderr
    with Place() as p:
        os.makedirs(p.path("work/data"))
        os.symlink(p.data, p.path("work/data/demo"))
        r = command("demo", cwd=p.path("work"))  # the dataset is there: it is not made again
        report, = glob.glob(p.path("work/runs/*/report.json"))
        with open(report) as f:
            found = json.load(f)
        assert found["status"] == "ok" and found["pipeline"] == "hyperion" and found["dataset"]["vertices"] == 2000, r
        os.mkdir(p.path("full"))
        p.write("{}", "full/data")  # where a directory should be
        assert "data" in command("demo", code=1, cwd=p.path("full")).stderr
        assert "trainer" in command("graph", "hyperion", cwd=p.dir).stdout
        assert "./hyperion: cannot open" in command("graph", "./hyperion", code=2, cwd=p.dir).stderr
        assert "nothing: cannot open" in command("graph", "nothing", code=2, cwd=p.dir).stderr
        p.write("{}", "hyperion")
        assert "hyperion:" in command("check", "hyperion", code=2, cwd=p.dir).stderr


@test
def numbers_are_numbers():
    with Place() as p:
        for option, text in (("--seed", " 7"), ("--seed", "+7"), ("--seed", "0x7"), ("--seed", ""), ("--memory", "1 MiB"), ("--memory", "1e3"),
                             ("--memory", "-1"), ("--memory", " 5M"), ("--memory", "+5M"), ("--vertices", "-5")):
            r = command("gen", "community", p.path("x"), option, text, code=2)
            assert f"{option}: expected" in r.stderr, (option, text, r.stderr)


WORDS = (["--nonsense"], ["-Z"], [b"\xff"], [""], ["x" * 5000], ["x"] * 300)
VALUES = ([""], ["-1"], ["9" * 20], ["1e999"], [b"\xff\xfe"], ["%s%n"])
IN_PYTHON = {"compare", "experiment", "page"}  # no sanitizer sees what they do


@test
def nonsense_on_every_command():
    """Each command with each of its options without a value and with two of VALUES: told, with exit code 2, and nothing is
    made."""
    with Place() as p:
        def call(*words):
            return subprocess.run([PENSTOCK, *words], capture_output=True, cwd=p.dir, timeout=60, stdin=subprocess.DEVNULL)

        commands = re.findall(r"^  (\w+) ", call("--help").stdout.decode(), re.M)
        assert {"run", "gen", "import", "gc", "bench", *IN_PYTHON} <= set(commands)
        commands = [name for name in commands if not SAN or name not in IN_PYTHON]
        cases = [[name, *words] for name in commands for words in WORDS]
        for name in commands:
            said = call(name, "--help")
            assert said.returncode == 0 and said.stdout.startswith(f"usage: penstock {name}".encode()) and not said.stderr, said
            options = set(re.findall(rb"--[a-z][a-z-]*", said.stdout)) - {b"--help"}
            cases += [[name, option, *value] for i, option in enumerate(sorted(options))
                      for value in ([], VALUES[i % len(VALUES)], VALUES[(i + 3) % len(VALUES)])]
        assert len(cases) > 500
        with ThreadPoolExecutor(2) as pool:
            for case, said in zip(cases, pool.map(lambda words: call(*words), cases)):
                good = case in (["stages", b"--json"], ["disks", b"--json"], ["gc", b"--dry-run"], ["tpc", b"--systems"], ["tpc", b"--show-prices"],
                                 ["probe", b"--topology"], ["probe", b"--cliques"], ["schema", b"--settings"])
                assert said.returncode == (0 if good else 2) and (good or said.stderr), (case, said)
        assert os.listdir(p.dir) == []


@test
def closed_descriptors():
    """Nobody's messages go into a file that got the number of a closed descriptor."""
    with Place() as p:
        for i, closed in enumerate(("2>&-", ">&- 2>&-", "<&- >&- 2>&-", "<&-")):
            run_dir, ds = p.path(f"run{i}"), p.path(f"ds{i}")
            argv = [PENSTOCK, "run", HYPERION, "--dataset", p.data, "--run-dir", run_dir, *map(str, SMALL)]
            r = Running(["sh", "-c", f'"$@" {closed}', "sh", *argv], run_dir).wait()
            assert r.code == 0 and r.report["status"] == "ok", (closed, r)
            with open(os.path.join(run_dir, "lock")) as f:
                words = f.read().split()
            assert len(words) == 4 and words[0].isdigit() and words[2] == "made", (closed, words)
            made = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", PENSTOCK, "gen", "community", ds, "--vertices", "300"])
            assert made.returncode == 0
            command("verify", "--quiet", ds)


@test
def small_outputs():
    with Place() as p:
        pl = pipeline({"source": stage("source", batches=5), "sink": stage("sink")}, links("source.out", "sink.in"))
        assert "ok, 2 stages, 1 route\n" in command("check", p.write(pl)).stdout
        longer = pipeline({**pl["stages"], "a": stage("passthrough")}, links("source.out", "a.in"))
        added = command("check", p.write(longer), "--set", 'links[1]={"from": "a.out", "to": "sink.in"}', "--device", "auto", "--dataset", p.data)
        assert "ok, 3 stages, 1 route\n" in added.stdout, added
        for name, kind in (("p", "npy"), ("q", "csv")):
            said = command("export", p.data, p.path(name), "--format", kind).stdout
            assert said.startswith(f"{p.path(name)}: 2000 vertices") and said.endswith(f" edges, as {kind}\n") and said.count("\n") == 1, said
        pl["stages"]["sink"]["run"] = "./nothere.py"
        r = command("check", os.path.basename(p.write(pl, "x.json")), code=2, cwd=p.dir)
        assert "cannot open stage ./nothere.py" in r.stderr, r.stderr
        with open(p.path("drive"), "w") as f:
            f.write("x" * 70000)
        r = subprocess.run([PENSTOCK, "store", p.data, "--to", p.path("drive"), "--force"], input="no\n", capture_output=True, text=True)
        assert "70.00 kB" in r.stderr and r.returncode == 2, r.stderr


@test
def what_was_read_and_copied():
    with Place() as p:
        r = p.run(HYPERION, "--epochs", 1, "--set", "stages.disk.params.backend=pread", "--set", "stages.planner.params.cpu_cache=0",
                  "--set", 'stages.disk.place={"device": "cpu:1"}')
        io, copies = r.report["io"], r.report["copies"]
        want = (f"pread: {io['requests']} requests, {io['bytes'] / 2**20:.1f} MiB read, {io['read_amplification']:.2f} bytes per byte "
                f"needed; {io['copied_bytes'] / 2**20:.1f} MiB copied by the disk stage\n")
        assert want in r.out and f"{copies['bytes'] / 2**20:.1f} MiB between devices\n" in r.out, r.out
        r = p.run(HYPERION, "--epochs", 1, "--set", "stages.planner.params.cpu_cache=16MiB")  # all rows are cached
        assert "0 requests, 0.0 MiB read; 0.0 MiB copied by the disk stage\n" in r.out and "between devices" not in r.out, r.out


@test
def two_disks_are_told_apart():
    """`io` adds up what the disks of training and of validation read; each stage's own part is there, too."""
    with Place() as p:
        with open(os.path.join(ROOT, "pipelines", "pytorch.json")) as f:
            pl = json.load(f)
        pl["stages"]["trainer"], pl["stages"]["val"] = {"run": "discard"}, {"run": "discard"}
        pl["links"][2]["to"], pl["links"][5]["to"] = "trainer.in", "val.in"
        r = p.run(pl, "--epochs", 1, "--set", "stages.planner.params.cpu_cache=0")
        io, stages = r.report["io"], r.report["stages"]
        train, val = (stages[name]["reports"]["io"] for name in ("disk", "val-disk"))
        assert train["requests"] > val["requests"] > 0 and train["bytes"] == stages["disk"]["bytes"] and val["bytes"] == stages["val-disk"]["bytes"]
        assert all(io[key] == train[key] + val[key] for key in ("requests", "bytes", "rows")) and train["read_amplification"] > 0, (io, train, val)
        for name, part in (("disk", io), ("  disk", train), ("  val-disk", val)):
            assert f"\n  {name:<20}{part['backend']}: {part['requests']} requests, " in r.out, r.out
        assert "reports" not in stages["trainer"] and "reports" not in r.report
        one = p.run(HYPERION, "--epochs", 1)
        assert not any("reports" in stage for stage in one.report["stages"].values()) and one.out.count(" requests, ") == 1, one.out


@test
def pipelines_are_drawn():
    """As text, for Mermaid and Graphviz, and as a picture; all say the same stages, links and routes."""
    pl = pipeline({"source": stage("source", batches=5), "a": stage("passthrough", group="g"), "b": stage("passthrough", instances=2), "sink": stage("sink")},
                  links("source.out", "a.in", "a.out", "sink.in", "source.out", "b.in", "b.out", "end.in"))
    pl["stages"]["end"] = stage("sink", instances=2)
    with Place() as p:
        file = p.write(pl)
        drawn = {kind: command("graph", file, "--format", kind).stdout for kind in ("mermaid", "text", "dot", "svg")}
        assert command("graph", file).stdout == drawn["mermaid"] and drawn["mermaid"].startswith("flowchart LR\n")
        text = drawn["text"].splitlines()
        assert text[0] == "t" and re.fullmatch(r"  a +passthrough on cpu:0, group g", text[4]), text
        assert re.fullmatch(r"    out +-> b\.in +route 0, \d slots", text[3]), text
        for name in pl["stages"]:
            assert f'["{name}<br/>' in drawn["mermaid"] and f'[label="{name}\\n' in drawn["dot"] and f">{name}</text>" in drawn["svg"], (name, drawn)
        assert drawn["dot"].count(" -> ") == 4 == drawn["svg"].count('<path class="') and "passthrough on cpu:0 x2" in drawn["svg"]
        picture = xml.etree.ElementTree.fromstring(drawn["svg"])
        x, y, width, height = map(int, picture.get("viewBox").split())
        boxes = [{key: int(box.get(key)) for key in ("x", "y", "width", "height")} for box in picture.iter() if box.tag.endswith("rect") and box.get("x")]
        assert len(boxes) == 5 and all(x <= b["x"] and b["x"] + b["width"] <= width and b["y"] + b["height"] <= height for b in boxes), boxes
        apart = [a["x"] + a["width"] <= b["x"] or b["x"] + b["width"] <= a["x"] or a["y"] + a["height"] <= b["y"] or b["y"] + b["height"] <= a["y"]
                 for k, a in enumerate(boxes) for b in boxes[:k]]
        assert all(apart), boxes
        if shutil.which("dot"):
            subprocess.run(["dot", "-Tsvg"], input=drawn["dot"], text=True, check=True, capture_output=True)
        assert 'unknown format "svgg": did you mean "svg"?' in command("graph", file, "--format", "svgg", code=2).stderr
        for name in ("hyperion", "gids", "marius", "typed"):
            shipped = os.path.join(ROOT, "pipelines", name + ".json")
            xml.etree.ElementTree.fromstring(command("graph", shipped, "--format", "svg").stdout)
            assert command("graph", shipped, "--format", "text").stdout.startswith(name + "\n")


PRODUCT = ("common", "kernels", "stages", "tools")
OF_THE_PROGRAM = {"PENSTOCK_ATTACH", "PENSTOCK_VIRTUAL_HANG"}  # between two of our own processes; of the virtual GPUs, whose README has it


@test
def every_environment_variable_is_documented():
    """tools/README.md and the manual page have the variables that the programs read, no more and no fewer."""
    read = re.compile(r'(?:getenv\(|environ\.get\(|environ\[|_ENV |^LIBRARY = )"(PENSTOCK(?:_[A-Z_]+)?)"|\$\{(PENSTOCK_[A-Z_]+)', re.M)
    used = set()
    for room in PRODUCT:
        for folder, _, names in os.walk(os.path.join(ROOT, room)):
            for name in names:
                if name.endswith((".c", ".h", ".cu", ".cuh", ".py")) or name == "install-deps":
                    with open(os.path.join(folder, name)) as f:
                        used |= {a or b for a, b in read.findall(f.read())}
    with open(os.path.join(ROOT, "tools", "README.md")) as f:
        table = f.read().split("**Environment variables.**")[1].split("\n\n")[1]
    documented = set(re.findall(r"`(PENSTOCK\w*)`", " ".join(line.split("|")[1] for line in table.splitlines())))
    assert documented == used - OF_THE_PROGRAM, documented ^ (used - OF_THE_PROGRAM)
    with Place() as p:
        command("man", p.dir)
        with open(p.path("penstock.1")) as f:
            page = f.read()
    listed = set(re.findall(r"^\.B (PENSTOCK\w*|NO_COLOR)$", page, re.M))
    assert listed and listed <= documented | {"NO_COLOR"}, listed
    r = subprocess.run([PENSTOCK, "run", HYPERION, "--dataset", "x"], capture_output=True, text=True, env={**os.environ, "PENSTOCK_BIN": "/nowhere"})
    assert r.returncode == 2 and "/nowhere/../lib/penstock/stages" in r.stderr, r


@test
def an_interrupted_run_says_how_to_resume():
    with Place() as p:
        run = p.start(HYPERION, *SMALL, *ENDLESS)
        wait_for(lambda: has_checkpoint(run.run_dir))
        run.process.send_signal(signal.SIGINT)
        r = run.wait()
        last = sorted(os.listdir(os.path.join(run.run_dir, "checkpoints")))[-1]
        assert r.code == 130, r
        assert f"the last checkpoint is {run.run_dir}/checkpoints/{last}\n" in r.err and f"repeat the command with --resume {run.run_dir}\n" in r.err
        assert r.out.splitlines()[-1] == f"report: {run.run_dir}/report.json"
        again = Running([PENSTOCK, "run", HYPERION, "--dataset", p.data, *map(str, SMALL), "--epochs", "1", "--resume", run.run_dir,
                         "--run-dir", run.run_dir], run.run_dir).wait()
        assert again.code == 0, again


if __name__ == "__main__":
    main()
