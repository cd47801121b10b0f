"""Pipelines broken in their text, their head, or by --set; files that are none."""
from check_cases import *


# ---- the text itself ---------------------------------------------------------------------------------

TEXTS = [
    Case("empty", "", (1, "", "empty")),
    Case("only blanks", " \n\n ", (3, "", "not JSON")),
    Case("a list", "[1]", (1, "", "expected an object, found a list")),
    Case("a string", '"hello"', (1, "", "not JSON")),
    Case("cut off", '{"penstock": 1,\n"stages": {"a": {"run": "disk"', (2, "", "not JSON")),
    Case("trailing comma", '{"penstock": 1,\n "links": [],\n}', (3, "", "not JSON")),
    Case("two objects", '{}\n{}', (2, "", "not JSON")),
    Case("comment", '{\n// no\n"penstock": 1}', (2, "", "not JSON")),
    Case("not valid UTF-8", b'{"penstock": 1,\n "name": "\xff\xfe"}', (2, "", "column 10: not JSON: unable to decode byte 0xff")),
    Case("half a surrogate", '{"penstock": 1, "name": "\\ud800"}', (1, "", "not JSON")),
    Case("NUL byte", b'{"penstock": 1,\n\0 "name": "x"}', (2, "", "not JSON")),
    Case("NUL in a string", '{"penstock": 1, "name": "a\\u0000b"}', (1, "", "not JSON")),
    Case("random bytes", bytes(range(128, 256)) * 10, (1, "", "not JSON")),
    Case("integer beyond 64 bits", '{"penstock": 1,\n"seed": 123456789012345678901234567890}',
         (2, "", "not JSON", "too big")),
    Case("real beyond double", '{"penstock": 1,\n"seed": 1e999}', (2, "", "not JSON")),
    Case("not a number", '{"penstock": 1, "seed": NaN}', (1, "", "not JSON")),
    Case("deep lists", "[" * 100000, (1, "", "not JSON", "depth")),
    Case("deep objects", '{"a":' * 100000, (1, "", "not JSON", "depth")),
    Case("too many values", '{"params": [' + "0," * 20000 + "0]}", (1, "", "the file has too many values: at most 8192 are allowed")),
    Case("more than a mebibyte", b'{"help": "' + b"x" * (1 << 20) + b'"}', (None, "", "larger than")),
    Case("duplicate keys", lambda p: json.dumps(shipped(), indent=1).replace(
        '"seed": 1,', '"seed": 1,\n "seed": 2,').replace('"dropout": 0.5', '"dropout": 0.5,\n    "dropout": 0.4'),
        (7, "seed", "duplicate key: it is already set in line 6"),
        (39, "stages.trainer.params.dropout", "duplicate key: it is already set in line 38")),
    Case("duplicate key, spelled differently", lambda p: json.dumps(shipped(), indent=1).replace(
        '"seed": 1,', '"seed": 1,\n "s\\u0065ed": 2,'), (7, "seed", "duplicate key: it is already set in line 6")),
]


@test
def broken_texts():
    all_refused(TEXTS)


# ---- the head ----------------------------------------------------------------------------------------

HEADS = [
    Case("no version", shipped(penstock=DROP), (None, "", '"penstock" is missing')),
    Case("later version", shipped(penstock=2), ('"penstock"', "penstock", "expected an integer from 1 to 1, found 2")),
    Case("version as text", shipped(penstock="1"), ('"penstock"', "penstock", "expected an integer, found a string")),
    Case("unknown key", shipped(epoch=3), ('"epoch":', "epoch", "unknown key; did you mean epochs?")),
    Case("name of a wrong type", shipped(name=3), ('"name"', "name", "expected a string, found an integer")),
    Case("name that is a path", shipped(name="../../etc"), ('"name"', "name", "letters, digits")),
    Case("name too long", shipped(name="x" * 80), ('"name"', "name", "longer than 63")),
    Case("help of a wrong type", shipped(help=[]), ('"help"', "help", "expected a string, found a list")),
    Case("seed below 0", shipped(seed=-1), ('"seed"', "seed", "expected an integer from 0", "found -1")),
    Case("overlap a word", shipped(overlap="no"), ('"overlap"', "overlap", "expected true or false, found a string")),
    Case("seed a real", shipped(seed=1.5), ('"seed"', "seed", "expected an integer, found a real number")),
    Case("epochs 0", shipped(epochs=0), ('"epochs"', "epochs", "expected an integer from 1", "found 0")),
    Case("epochs null", shipped(epochs=None), ('"epochs"', "epochs", "expected an integer, found null")),
    Case("params a list", shipped(params=[10, 5]), ('"params": [', "params", "expected an object, found a list")),
    Case("shared parameter of no stage", shipped(params__fanuot=[1]),
         ('"fanuot"', "params.fanuot", "unknown key; did you mean fanout?")),
    Case("no stages", shipped(stages=DROP, links=[]), (1, "stages", "expected an object of stages, found nothing")),
    Case("empty stages", shipped(stages={}, links=[]), ('"stages"', "stages", "found an empty object")),
    Case("stages a list", shipped(stages=[], links=[]), ('"stages"', "stages", "found a list")),
    Case("links an object", shipped(links={}), ('"links"', "links", "expected a list, found an object"),
         ('"disk": {', "stages.disk", "input", "requests", "not linked"),
         ('"trainer": {', "stages.trainer", "input", "batch", "not linked")),
]


@test
def broken_heads():
    all_refused(HEADS)


# ---- --set ---------------------------------------------------------------------------------------------

@test
def nonsense_for_set():
    S = shipped()

    def case(name, text, *errors):
        return Case(name, S, *errors, args=("--set", text))

    all_refused([
        case("no value", "epochs", ("--set", "epochs", "expected PATH=VALUE")),
        case("no path", "=3", ("--set", "=3", "expected PATH=VALUE")),
        case("path of dots", "..=3", ("--set", "..=3", "the pipeline has no member")),
        case("path that ends in a dot", "epochs.=3", ("--set", "epochs.=3", "the pipeline has no member")),
        case("into a number", "epochs.x=3", ("--set", "epochs.x=3", "the pipeline has no member")),
        case("into a list by name", "links.x=3", ("--set", "links.x=3", "the pipeline has no member")),
        case("beyond a list", "links[9].slots=3", ("--set", "links[9].slots=3", "the pipeline has no member")),
        case("below a list", "links[-1].slots=3", ("--set", "links[-1].slots=3", "the pipeline has no member")),
        case("huge index", "links[99999999999999999999].slots=3", ("--set", "links[99999999999999999999].slots=3", "the pipeline has no member")),
        case("index unfinished", "links[0=3", ("--set", "links[0=3", "the pipeline has no member")),
        case("index then letters", "links[0]x=3", ("--set", "links[0]x=3", "the pipeline has no member")),
        case("index of an object", "stages[0]=3", ("--set", "stages[0]=3", "the pipeline has no member")),
        case("wrong type", "epochs=many", ("--set", "epochs", "expected an integer, found a string")),
        case("out of range", "stages.disk.params.depth=9999", ("--set", "stages.disk.params.depth", "found 9999")),
        case("unknown parameter", "stages.disk.params.dpeth=9",
             ("--set", "stages.disk.params.dpeth", "did you mean depth?")),
        case("unknown stage", "stages.dsik.params.depth=9",
             ("--set", "stages.dsik", '"run" is missing', "did you mean disk?")),
        case("unknown object", "a.b=1", ("--set", "a", "unknown key")),
        case("index with a sign", "links[+1].slots=2", ("--set", "links[+1].slots=2", "no member links[+1].slots")),
        case("index with a blank", "links[ 1].slots=2", ("--set", "links[ 1].slots=2", "the pipeline has no member")),
        case("unknown stage to run", "stages.disk.run=dsik", ("--set", "stages.disk.run", "did you mean disk?")),
        case("value that is deep", "params.fanout=" + "[" * 5000,
             ("--set", "params.fanout", "expected a list")),
    ])
    swapped = shipped(links__3=DROP, links__2__to="trainer.in")
    swap = ("--set", "stages.trainer.run=discard")
    all_refused([Case("another stage's parameters", swapped, ("--set", "stages.trainer.params.other", "unknown key"),
                      (lambda text: lines(text, '"model"') - 1, "stages.trainer.params",
                       "replaces: model, layers, hidden, dropout, rate; --set stages.trainer.params={} removes them"),
                      args=(*swap, "--set", "stages.trainer.params.other=1"))])
    with Place() as p:
        command("check", *swap, "--set", "stages.trainer.params={}", p.write(swapped))
    with Place() as p:
        bad = subprocess.run([PENSTOCK, "check", "--set", b"stages.\xff.x=1", SHIPPED], capture_output=True)
        assert bad.returncode == 2 and b"the pipeline has no member" in bad.stderr, bad
        r = command("check", "--set", "name=a\x1b[31m\x07b", SHIPPED, code=2)
        assert "\x1b" not in r.stderr and "\x07" not in r.stderr, r.stderr
        # what is right is taken: objects on the way are made
        command("check", "--set", "stages.planner.params.cpu_cache_percent=3", "--set", "links[1].slots=9", "--set",
                "stages.disk.params.backend=pread", SHIPPED)


# ---- files ---------------------------------------------------------------------------------------------

@test
def files_that_cannot_be_read():
    with Place() as p:
        for file, words in ((p.path("nothing.json"), "cannot open: No such file"), (p.dir, "cannot read: Is a directory"),
                            ("/dev/zero", "larger than"), ("/dev/null", "empty")):
            r = command("check", file, code=2)
            assert r.stderr.startswith(file + ":") and words in r.stderr, r.stderr
        locked = p.write("{}", "locked.json")
        os.chmod(locked, 0)
        switch = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        os.chmod(p.dir, 0o755)
        r = subprocess.run([*switch, PENSTOCK, "check", locked], capture_output=True, text=True)
        if r.returncode < 126:  # the other user can reach the program
            assert r.returncode == 2 and "cannot open: Permission denied" in r.stderr, r
        # one bad file does not hide another, nor a good one
        a, b = p.write("{", "a.json"), p.write("[]", "b.json")
        r = command("check", a, SHIPPED, b, code=2)
        assert a in r.stderr and b in r.stderr and "ok, 4 stages" in r.stdout, r


@test
def a_hundred_megabytes_of_brackets():
    with Place() as p:
        for name, text in (("lists", b"["), ("objects", b'{"a":'), ("quotes", b'"')):
            file = p.path(name + ".json")
            with open(file, "wb") as f:
                for _ in range(100):
                    f.write(text * ((1 << 20) // len(text)))
            t0 = time.time()
            process = subprocess.Popen([PENSTOCK, "check", file], stderr=subprocess.PIPE, text=True)
            err = process.stderr.read()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode == 2 and "larger than" in err, (process.returncode, err)
            assert time.time() - t0 < (10 if SAN else 1), f"{time.time() - t0:.1f} s"
            assert SAN or used.ru_maxrss < 32 << 10, f"{used.ru_maxrss} KiB"
            os.unlink(file)


@test
def links_that_branch_do_not_blow_up():
    """Ways double at every step: searching them one by one would take for ever."""
    with Place() as p:
        stages, wires = {"source": stage("source")}, [{"from": "source.out", "to": "s0.in"}]
        for i in range(40):
            stages[f"s{i}"] = stage("passthrough")
            wires += [{"from": f"s{i}.out", "to": f"s{k}.in"} for k in (i + 1, i + 2, i + 3) if k < 40]
        r = subprocess.run([PENSTOCK, "check", p.write(pipeline(stages, wires))], capture_output=True, text=True, timeout=20)
        assert r.returncode == 2 and "already linked" in r.stderr


@test
def good_pipelines_are_checked_quickly():
    with Place() as p:
        best = {}
        for name, args in shipped_pipelines().items():
            for _ in range(5):
                t0 = time.time()
                command("check", *args)
                best[name] = min(best.get(name, 9), time.time() - t0)
        assert SAN or best["hyperion"] < 0.1, f"{best['hyperion'] * 1e3:.0f} ms"
        assert shipped_models()
        for args in shipped_models().values():
            command("check", *args)


@test
def overlays():
    """--with merges files over the pipeline, in order; errors name the file and line that a value came from."""
    with Place() as p:
        file = p.write(shipped(), "base.json")
        one = p.write('{"stages": {"disk": {"params":\n {"depth": 64, "dept": 2}}}}', "one.json")
        two = p.write('{\n"stages": {"disk": {"params": {"depth": 9999}}, "dsik": {"instances": 2}},\n"epoch": 3}', "two.json")
        r = command("check", file, "--with", one, code=2)
        assert r.stderr == f"{one}:2: stages.disk.params.dept: unknown key; did you mean depth?\n", r.stderr
        r = command("run", file, "--with", one, "--with", two, "--dataset", p.data, code=2)
        for words in (f"{one}:2: stages.disk.params.dept: unknown key", f"{two}:2: stages.disk.params.depth: expected an integer",
                      f'{two}:2: stages.dsik: "run" is missing', f"{two}:3: epoch: unknown key; did you mean epochs?"):
            assert any(line.startswith(words) for line in r.stderr.split("\n")), (words, r.stderr)
        # the last one counts, and --set is last, wherever it is written
        three = p.write({"stages": {"disk": {"params": {"depth": 0}}}}, "three.json")
        four = p.write({"stages": {"disk": {"params": {"depth": 7}}}, "links": {"1": {"slots": 6}}}, "four.json")
        command("check", file, "--with", three, "--with", four)
        command("check", "--set", "stages.disk.params.depth=5", file, "--with", three)
        r = command("check", file, "--with", four, "--with", three, code=2)
        assert r.stderr.startswith(f"{three}:5: stages.disk.params.depth: "), r.stderr
        assert "(route 0, 6 slots" in command("graph", file, "--with", four).stdout
        for text, words in (('{"links": {"9": {}}}', 'links.9: expected the index of a list element, from 0 to 6, found "9"'),
                            ("[]", "expected an object, found a list"), ("{", "not JSON"), ("", "the file is empty")):
            bad = p.write(text, "bad.json")
            r = command("check", file, "--with", bad, code=2)
            assert r.stderr.startswith(bad + ":") and words in r.stderr and len(r.stderr.split("\n")) == 2, r.stderr
        r = command("check", file, "--with", p.path("none.json"), code=2)
        assert r.stderr == f"{p.path('none.json')}: cannot open: No such file or directory\n", r.stderr
        assert command("check", file, *["--with", four] * 17, code=2).stderr.startswith("--with can be given at most 16 times\n")
        # the path of an overlay begins at the current directory, as the path of the pipeline does
        here = command("check", "base.json", "--with", "four.json", cwd=p.dir)
        assert here.stdout.startswith("base.json: ok"), here.stdout
        r = command("check", "base.json", "--with", "three.json", code=2, cwd=p.dir)
        assert r.stderr.startswith("three.json:5: stages.disk.params.depth: "), r.stderr


if __name__ == "__main__":
    main()
