"""Pipelines that run programs and shared objects that are no stages."""
import threading

from check_cases import *


def with_run(run, *more):
    """The row with its middle stage replaced, by a function of the place."""
    return lambda p: row(stages__a={"run": run(p) if callable(run) else run})


def odd(words, **changes):
    """A description that is refused with these words."""
    file = "odd-" + "".join(filter(str.isalnum, words))
    return Case(f"describes: {words}", with_run(lambda p: describes(p, file, **changes)),
                (file, "stages.a.run", words))


def says(name, script, *words):
    return Case(name, with_run(lambda p: program(p, "says-" + name.replace(" ", "-"), script)),
                ("says-", "stages.a.run", *words))


def constructor(name, body, *words):
    """A shared object whose constructor does this."""
    text = "#include <stdlib.h>\n#include <unistd.h>\n__attribute__((constructor)) static void begin(void) { %s }" % body
    return Case(f"a constructor that {name}", with_run(lambda p: compiled(p, name + ".so", text)),
                (name + ".so", "stages.a.run", f"/{name}.so", *words))


def pipe_so(p):
    os.mkfifo(p.path("pipe.so"))
    return p.path("pipe.so")


PROGRAMS = [
    Case("a pipe named .so", with_run(pipe_so), ("pipe.so", "stages.a.run", "expected a shared object")),
    constructor("crashes", "abort();", "loading /", "was killed by signal 6"),
    constructor("exits", "_exit(0);", "loading /", "the process exited with status 0, but returned no answer"),
    constructor("fails", "_exit(3);", "loading /", "ended with status 3"),
    Case("path to nothing", with_run("./nothing"), ("./nothing", "stages.a.run", "cannot open stage", "No such file")),
    Case("path to a directory", with_run(lambda p: p.dir + "/"), (10, "stages.a.run", "expected a program, found another kind of file")),
    Case("text named .so", with_run(lambda p: program(p, "text.so", "hello")),
         ("text.so", "stages.a.run", "expected a shared object")),
    Case("empty .so", with_run(lambda p: program(p, "empty.so", "")), ("empty.so", "stages.a.run", "expected a shared object")),
    Case("cut-off .so", with_run(lambda p: cut_off(p)), ("cut.so", "stages.a.run", "truncated")),
    Case("library that is no stage", with_run(lambda p: compiled(p, "library.so", "int pst_other;")),
         ("library.so", "stages.a.run", "not a stage: the symbol pst_stage is missing")),
    Case("stage of another interface", with_run(lambda p: compiled(
        p, "abi.so", '#include "stage.h"\nconst struct pst_stage_desc pst_stage = {.abi = 99, .name = "x"};')),
        ("abi.so", "stages.a.run", "was built for version 99 of the stage interface, but this Penstock")),
    Case("stage without a callback", with_run(lambda p: compiled(
        p, "bare.so", '#include "stage.h"\nconst struct pst_stage_desc pst_stage = {.abi = PST_STAGE_ABI, .name = "x",'
        ' .help = "x"};')), ("bare.so", "stages.a.run", "is not a stage: its description lacks the function on_event")),
    Case("stage with an undefined symbol", with_run(lambda p: compiled(
        p, "undefined.so", 'extern int nowhere_to_be_found(void); int x(void) { return nowhere_to_be_found(); }'
        'int (*y)(void) = nowhere_to_be_found;')), ("undefined.so", "stages.a.run", "nowhere_to_be_found")),
    Case("not executable", with_run(lambda p: program(p, "plain.py", "#!/bin/sh\n", 0o644)),
         ("plain.py", "stages.a.run", "neither a shared object (.so) nor executable")),
    says("describe exits 1", "#!/bin/sh\nexit 1\n", "--describe ended with status 1"),
    says("describe dies", "#!/bin/sh\nkill -9 $$\n", "--describe was killed by signal 9"),
    says("describe says nothing", "#!/bin/sh\n", "expected JSON"),
    says("describe says garbage", "#!/bin/sh\nprintf '\\231\\001{garbage'\n", "expected JSON"),
    says("describe never stops talking", "#!/bin/sh\nexec cat /dev/zero\n", "the program printed more than 262144 bytes"),
    says("describe lists", "#!/bin/sh\necho '[1, 2]'\n", "expected a description, an object"),
    odd("was built for version 8 of the stage interface, but this Penstock", abi=8),
    odd("the stage's description must have name and help", name="not a name"),
    odd("an object with the lists", ports="none"),
    odd("100 ports and 0 parameters; at most 16", ports=[{"name": "x"}] * 100),
    odd("ports[0]", ports__0__dir="sideways"),
    odd("ports[1]", ports__1__flags=["ordred"]),
    odd("ports[0] has", ports__0__rank=99),
    odd("is invalid, or another port has it", ports__1__name="in"),
    odd("which is not an input", ports__1__forwards="nothing"),
    odd("the stage has no integer parameter keep", ports__0__hold_param="keep"),
    odd("params[0]", params=[{"name": "x", "type": "colour"}]),
    odd("parameter x: its default is not valid", params=[{"name": "x", "type": "int", "default": "y", "help": "x"}]),
    Case("expects other elements", with_run(lambda p: describes(p, "floats", ports__0__dtype="float32")),
         (link(0), "links[0]", "source.out carries int64 elements, but a.in expects float32")),
    Case("expects more dimensions", with_run(lambda p: describes(p, "flat", ports__0__rank=2)),
         (link(0), "links[0]", "source.out carries 1 dimensions, but a.in expects 2")),
    Case("works on other memory", with_run(lambda p: describes(p, "gpu", ports__0__memory="cuda")),
         ('"to": "a.in"', "links[0].to", "cannot use cpu memory: it accepts cuda")),
    Case("required parameter", with_run(lambda p: describes(p, "needs", params=[
        {"name": "url", "type": "string", "help": "where"}])), ('"a": {', "stages.a.params.url", "required parameter is missing: where")),
]


def cut_off(p):
    shutil.copy(os.path.join(STAGES, "sink.so"), p.path("cut.so"))
    os.truncate(p.path("cut.so"), 9000)
    return p.path("cut.so")


@test
def programs_that_are_no_stages():
    all_refused(PROGRAMS)


@test
def descriptions_that_hang():
    """A program that never answers, one that closes its output and stays, one whose child keeps the pipe; and a shared
    object whose constructor never returns."""
    with Place() as p:
        os.environ["XDG_CACHE_HOME"] = p.path("cache")
        hanging = compiled(p, "hangs.so", "#include <unistd.h>\n__attribute__((constructor)) static void begin(void) { for (;;) pause(); }")
        scripts = {"sleeps": "sleep 1000\n", "closes": "exec >&-\nexec sleep 1000\n", "leaves": "sleep 1000 &\n",
                   "deaf": "trap '' TERM INT\nwhile :; do sleep 1; done\n"}
        results = {}

        def one(name):
            run = program(p, name, "#!/bin/sh\n" + scripts[name]) if name in scripts else hanging
            file = p.write(row(stages__a={"run": run}), name + ".json")
            t0 = time.time()
            r = subprocess.run([PENSTOCK, "check", file], capture_output=True, text=True, timeout=60)
            results[name] = (r.returncode, r.stderr, time.time() - t0)

        threads = [threading.Thread(target=one, args=(name,)) for name in (*scripts, "hangs.so")]
        [t.start() for t in threads]
        [t.join() for t in threads]
        del os.environ["XDG_CACHE_HOME"]
        for name, (code, err, seconds) in results.items():
            assert code == 2 and "did not answer within 10 s" in err and (f"/{name} --describe" in err or name not in scripts), (name, code, err)
            assert seconds < 13, f"{name} took {seconds:.1f} s"
        no_leftovers()


@test
def a_module_that_changes_changes_the_description():
    with Place() as p:
        os.environ["XDG_CACHE_HOME"] = p.path("cache")
        run = program(p, "asked.sh", f"#!/bin/sh\n. {p.path('module.sh')}\n")
        param = {"name": "size", "type": "int", "min": 1, "max": 9, "default": 3, "help": "how large"}
        file = p.write(row(stages__a={"run": run, "params": {"size": 5}}))
        for params, code in (([param], 0), ([{**param, "max": 4}], 2), ([], 2), ([param], 0)):
            describes(p, "module.sh", params=params)
            r = command("check", file, code=code)
            assert code == 0 or "stages.a.params.size" in r.stderr, r
        assert len(glob.glob(p.path("cache/penstock/*"))) == 1, "one file for a program"
        del os.environ["XDG_CACHE_HOME"]


@test
def a_wrong_description_in_the_cache():
    """As an older version may have left it: the program is asked again, and the cache is right afterwards."""
    with Place() as p:
        os.environ["XDG_CACHE_HOME"] = p.path("cache")
        run = describes(p, "asked.sh")
        text = open(run).read().replace("#!/bin/sh\n", f"#!/bin/sh\necho asked >>{p.path('asked')}\n")
        file = p.write(row(stages__a={"run": program(p, "asked.sh", text)}))
        command("check", file)
        cached, = glob.glob(p.path("cache/penstock/describe-*.json"))
        with open(cached) as f:
            right = f.read()
        for wrong in ('{"abi": 0}', "[]", "{", right.replace('"abi": 7', '"abi": 1'), ""):
            assert wrong != right
            with open(cached, "w") as f:
                f.write(wrong)
            command("check", file)
            with open(cached) as f:
                assert f.read() == right, wrong
        command("check", file)
        with open(p.path("asked")) as f:
            assert f.read() == "asked\n" * 6
        del os.environ["XDG_CACHE_HOME"]


@test
def programs_are_installed_by_name():
    """Shared objects and programs in the directories of PENSTOCK_STAGES; an empty one is that of the installation."""
    with Place() as p:
        mine, times = p.path("mine"), os.path.join(ROOT, "tests", "stages", "times.py")
        os.mkdir(mine)
        for name, mode in (("twice.py", 0o755), ("plain.py", 0o644), ("README.md", 0o644), (".hidden", 0o755), ("wire.py", 0o644)):
            shutil.copy(os.path.join(os.path.dirname(times), "wire.py") if name == "wire.py" else times, os.path.join(mine, name))
            os.chmod(os.path.join(mine, name), mode)
        os.symlink(os.path.join(STAGES, "sink.so"), os.path.join(mine, "end.so"))
        file = p.write(pipeline({"source": stage("source", batches=20), "a": {"run": "twice"}, "sink": {"run": "end", "params": {"factor": 3}}},
                                links("source.out", "a.in", "a.out", "sink.in")))

        def say(*args, code=0, stages=f"{mine}:"):
            r = subprocess.run([PENSTOCK, *args], capture_output=True, text=True, env={**os.environ, "PENSTOCK_STAGES": stages}, timeout=100)
            assert r.returncode == code, r
            return r
        listed = [line.split()[0] for line in say("stages").stdout.splitlines()]
        assert listed == sorted([*(line.split()[0] for line in command("stages").stdout.splitlines()), "end", "twice"]), listed
        assert json.loads(say("stages", "twice", "--json").stdout) == json.loads(command("stages", times, "--json").stdout)
        assert "twice" in say("complete", "--", "stages", "tw").stdout and '"twice"' in say("schema").stdout
        assert "no stage with this name is installed" in say("stages", "plain", code=2).stderr
        r = say("check", file, "--set", "stages.a.run=twic", code=2)
        assert 'stage "twic" is not installed' in r.stderr and 'did you mean twice?' in r.stderr, r
        say("check", file, stages=f":{mine}")
        assert 'stage "twice" is not installed' in say("check", file, stages="", code=2).stderr
        say("run", file, "--dataset", p.data, "--run-dir", p.path("run"))
        with open(p.path("run/report.json")) as f:
            report = json.load(f)
        assert report["sink"]["batches"] == 20 and report["stages"]["a"]["file"] == os.path.join(mine, "twice.py"), report["stages"]["a"]
        # a shared object comes before a program, and a directory before the next
        os.symlink(os.path.join(STAGES, "sink.so"), os.path.join(mine, "twice.so"))
        assert json.loads(say("stages", "twice", "--json").stdout)["name"] == "sink"
        os.mkdir(p.path("first"))
        shutil.copy(times, p.path("first/end"))
        shutil.copy(os.path.join(mine, "wire.py"), p.path("first/wire.py"))
        assert json.loads(say("stages", "end", "--json", stages=f"{p.path('first')}:{mine}:").stdout)["name"] == "times"
        assert "cannot list the installed stages in /nowhere" in say("stages", code=1, stages="/nowhere").stderr


if __name__ == "__main__":
    main()
