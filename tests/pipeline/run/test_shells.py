"""Completion, manual pages and installation: all say what the command's own tables and --help say."""
import pty
import re
import select

from harness import *

ABOUT = os.path.join(ROOT, "tools", "penstock", "about")
HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
IN_PYTHON = {"compare", "experiment"}  # argparse has their options


def complete(*words, cwd=None):
    """{word: help} of what can stand at the end of a line."""
    return dict(line.split("\t", 1) if "\t" in line else (line, "") for line in
                command("complete", "--", *words, cwd=cwd).stdout.splitlines())


def commands():
    return [word for word in complete("") if not word.startswith("-")]


def tables():
    """{file: {option: does it take a value?}} and {command: file}, from the tables that getopt gets."""
    found, of = {}, {}
    with open(os.path.join(ROOT, "tools", "penstock", "run", "pipeline_options.h")) as f:
        shared = f.read().replace("\\\n", "")
    entry = re.compile(r'"([a-z0-9-]+)",\s*(no|required|optional)_argument')
    for file in glob.glob(os.path.join(ROOT, "tools", "penstock", "*", "*.c")):
        with open(file) as f:
            text = f.read()
        found[file] = {"--" + name: takes == "required" for name, takes in
                       entry.findall(text) + (entry.findall(shared) if re.search(r"\bPIPELINE_OPTIONS,", text) else [])}
        of.update({name: file for name in re.findall(r"^int cmd_(\w+)\(", text, re.M)})
    return found, of


def shell(name):
    path = shutil.which(name)
    if not path:
        raise Skip(f"{name} is not installed")
    return path


@test
def every_option_is_offered():
    """No more and no fewer than getopt knows: a file can have the tables of several commands."""
    found, of = tables()
    offered = {}
    for name in commands():
        if name in IN_PYTHON:
            continue
        kinds = [[name, kind] for kind in complete(name, "") if name == "gen" and kind[0] != ":"] or [[name]]
        for kind in kinds:
            options = {word for word in complete(*kind, "--") if word.startswith("--")}
            assert "--help" in options
            offered.setdefault(of[name], set()).update(options)
            assert options - {"--help"} <= set(found[of[name]]) or not found[of[name]], (kind, options - set(found[of[name]]))
    checked = 0
    for file, options in offered.items():
        missing = {option for option in found[file] if not option.startswith("--no-")} - options
        assert not missing, (file, missing)
        checked += len(options)
    assert checked > 150, checked
    assert {"--pairs", "--set", "--json"} <= set(complete("compare", "--"))


@test
def words_and_places():
    assert {"run", "runs", "rm"} <= set(complete("r")) and "complete" not in complete("") and "--version" in complete("--")
    assert {"ogb", "snap", "triples"} <= set(complete("import", "")) and set(complete("import", "og")) == {"ogb"}
    assert set(complete("import", "csv", "a", "b", "--ids", "")) == {"keep", "compact", "strings"}
    assert set(complete("import", "csv", "a", "b", "--ids=s")) == {"--ids=strings"}
    assert set(complete("gen", "")) == {"community", "rmat", "typed"} and "--scale" in complete("gen", "rmat", "x", "--")
    assert {"disk", "trainer", ":files"} <= set(complete("stages", "")) and set(complete("run", "")) == {":files"}
    assert set(complete("run", "--run-dir", "")) == {":directories"} and set(complete("run", "--report", "")) == {":files"}
    assert set(complete("run", "x.json", "--group", "")) == {"all"} and set(complete("run", "x.json", "--device", "a")) == {"auto"}
    assert set(complete("import", "npy", "")) == {":files"} and set(complete("import", "--threads", "2", "npy", "a", "")) == {":directories"}
    assert complete("run", "x.json", "") == {} and complete("nothing", "") == {} and complete("verify", "--quiet", "") == {":directories": ""}


@test
def settings_of_the_pipeline_at_hand():
    """Names, values and help of the parameters come from the stages, after --with and earlier --set."""
    def after(text, *more):
        return complete("run", *more, HYPERION, "--set", text)
    names = [param["name"] for param in json.loads(command("stages", "trainer", "--json").stdout)["params"]]
    assert set(after("stages.trainer.params.")) == {f"stages.trainer.params.{name}=" for name in names}
    assert set(after("stages.")) == {"stages.planner.", "stages.sampler.", "stages.disk.", "stages.trainer."}
    assert "stages.disk.instances=" in after("stages.disk.") and "stages.disk.params." in after("stages.disk.")
    assert after("links[1]") == {"links[1].slots=": "sampler.batch to disk.requests"}
    assert set(after("stages.sampler.params.replace=")) == {"stages.sampler.params.replace=true", "stages.sampler.params.replace=false"}
    assert after("stages.disk.params.depth=") == {"stages.disk.params.depth=auto": "the stage chooses"}
    assert after("stages.trainer.params.hidden=") == {"stages.trainer.params.hidden=64": "default"}
    assert "neighbours drawn" in after("params.fan")["params.fanout="] and list(after("ep")) == ["epochs="]
    assert set(after("params.overflow=s")) == {"params.overflow=split"}
    # another stage is at hand
    other = after("stages.trainer.params.", "--set=stages.trainer.run=embedder")
    assert "stages.trainer.params.hidden=" not in other and "stages.trainer.params.dim=" in other, other
    with Place() as p:
        with open(p.path("over.json"), "w") as f:
            json.dump({"stages": {"watch": {"run": os.path.join(ROOT, "tests", "stages", "times.py")}}}, f)
        assert "stages.watch.params.factor=" in after("stages.watch.params.", "--with", p.path("over.json"))
        with open(p.path("broken.json"), "w") as f:
            f.write('{"stages": {"a": {"run": "disk"')
        assert complete("run", p.path("broken.json"), "--set", "stages.") == {} == complete("run", p.path("none.json"), "--set", "")


@test
def in_bash():
    bash = shell("bash")

    def tab(line, cwd=None):
        """What bash would put in the place of the last piece of a word; it ends words at = and :."""
        script = (f"source {ABOUT}/completion.bash; COMP_WORDBREAKS=$' \\t\\n=:'; COMP_LINE=$1; COMP_POINT=${{#COMP_LINE}}; "
                  "_penstock; printf '%s\\n' \"${COMPREPLY[@]}\"")
        r = subprocess.run([bash, "-uc", script, "bash", line], capture_output=True, text=True, cwd=cwd, timeout=60)
        assert r.returncode == 0 and not r.stderr, r
        return set(filter(None, r.stdout.split("\n")))
    assert tab(f"{PENSTOCK} ru") == {"run", "runs"}
    assert tab(f"{PENSTOCK} run {HYPERION} --set stages.trainer.params.hid") == {"stages.trainer.params.hidden="}
    assert tab(f"{PENSTOCK} run {HYPERION} --set stages.sampler.params.replace=") == {"true", "false"}
    assert tab(f"{PENSTOCK} run {HYPERION} --set 'stages.") == set()
    with Place() as p:
        for name in ("one.json", "other.json", "with blank.json"):
            p.write({}, name)
        os.mkdir(p.path("folder"))
        assert tab(f"{PENSTOCK} run ", cwd=p.dir) == {"one.json", "other.json", "with blank.json", "folder"}
        assert tab(f"{PENSTOCK} run --with=o", cwd=p.dir) == {"one.json", "other.json"}
        assert tab(f"{PENSTOCK} verify ", cwd=p.dir) == {"folder"}
    r = subprocess.run([bash, "-c", f"source {ABOUT}/completion.bash; complete -p penstock"], capture_output=True, text=True)
    assert r.stdout.strip() == "complete -F _penstock penstock", r


def in_terminal(argv, setup, line, result):
    """Types into a program on a terminal of its own, until it has written the file `result`. Returns what is in it."""
    try:
        master, slave = pty.openpty()
    except OSError as e:
        raise Skip(f"this machine has no pseudo-terminals: {e}") from None
    env = {**os.environ, "TERM": "vt100", "COLUMNS": "500", "HOME": os.path.dirname(result)}
    program = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True)
    os.close(slave)
    shown, until = b"", time.time() + 30
    try:
        os.write(master, setup.encode() + b"\n")
        while not os.path.exists(result) and time.time() < until:
            if select.select([master], [], [], 0.05)[0]:
                shown += os.read(master, 65536)
            if line and b"READY" in shown:
                os.write(master, line.encode())
                line = None
        with open(result) as f:
            return f.read()
    except OSError:
        raise AssertionError(f"nothing was completed: {shown.decode(errors='replace')}")
    finally:
        program.kill()
        program.wait()
        os.close(master)


@test
def in_zsh():
    """What a tab makes of a line, in an interactive shell."""
    zsh, count = shell("zsh"), 0
    with Place() as p:
        p.write({}, "only.json")

        def tab(line):
            nonlocal count
            count += 1
            result = p.path(f"buffer{count}")
            setup = (f"cd {p.dir}; autoload -Uz compinit; compinit -u -D; source {ABOUT}/completion.zsh; "
                     f"tab() {{ zle complete-word; print -rn -- \"$BUFFER\" >part; mv part {result}; }}; zle -N tab; bindkey '^T' tab; echo REA''DY")
            return in_terminal([zsh, "-fi"], setup, line + "\x14", result)
        assert tab(f"{PENSTOCK} replay --win") == f"{PENSTOCK} replay --window "
        assert tab(f"{PENSTOCK} run {HYPERION} --set stages.trainer.params.hid") == f"{PENSTOCK} run {HYPERION} --set stages.trainer.params.hidden="
        assert tab(f"{PENSTOCK} run {HYPERION} --set stages.sampler.params.replace=f") == \
            f"{PENSTOCK} run {HYPERION} --set stages.sampler.params.replace=false "
        assert tab(f"{PENSTOCK} run --with=on") == f"{PENSTOCK} run --with=only.json "


@test
def in_fish():
    fish = shell("fish")

    def tab(line):
        env = {**os.environ, "PATH": os.path.dirname(PENSTOCK) + ":" + os.environ["PATH"], "HOME": tempfile.gettempdir()}
        r = subprocess.run([fish, "-c", f"source {ABOUT}/completion.fish; complete -C '{line}'"], capture_output=True, text=True, env=env,
                           timeout=60)
        return dict(line.split("\t", 1) if "\t" in line else (line, "") for line in r.stdout.splitlines())
    assert tab("penstock ru") == {"run": "run a pipeline", "runs": "list runs"}
    assert set(tab(f"penstock run {HYPERION} --set stages.sampler.params.replace=")) == {f"stages.sampler.params.replace={v}" for v in ("true", "false")}
    assert f"{ROOT}/pipelines/hyperion.json" in tab(f"penstock run {ROOT}/pipelines/hyp")


def plain(roff):
    """The words of a page, without macros and escapes."""
    words = []
    for line in roff.splitlines():
        line = line.removeprefix(".B ")
        if not line.startswith("."):
            words += line.replace("\\&", "").replace("\\-", "-").replace("\\e", "\\").split()
    return words


@test
def manual_pages_say_what_help_says():
    found, of = tables()
    with Place() as p:
        command("man", p.dir)
        pages = sorted(glob.glob(p.path("*.1")))
        assert [os.path.basename(page) for page in pages] == sorted(["penstock.1", *(f"penstock-{name}.1" for name in commands())])
        if shutil.which("mandoc"):
            lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *pages], capture_output=True, text=True).stdout
            assert not [line for line in lint.splitlines() if "missing date" not in line], lint
        for name in commands():
            if name in IN_PYTHON:
                continue  # wrapped as the terminal is
            with open(p.path(f"penstock-{name}.1")) as f:
                roff = f.read()
            text = command(name, "--help").stdout.removeprefix("usage: ")
            body = roff[roff.index(".SH SYNOPSIS"):roff.index('.SH "PENSTOCK' if name == "gen" else ".SH SEE ALSO")]
            assert plain(body) == text.split(), name
            # an option has a value there if it takes one
            for line in re.findall(r"^\.B (.*)$", roff, re.M):
                for option, value in re.findall(r"(--[a-z0-9-]+)(?:,|$| (?!--)(\S+))?", line.replace("\\-", "-")):
                    known = found[of[name]].get(option)
                    assert known is None or known == bool(value), (name, line)
        with open(p.path("penstock.1")) as f:
            page = f.read()
        assert all(f"penstock\\-{name} (1)" in page for name in commands())
        assert "expected a directory" in command("man", p.path("none"), code=2).stderr


def everything(path):
    return sorted(os.path.relpath(os.path.join(d, name), path) for d, dirs, files in os.walk(path) for name in dirs + files)


@test
def what_is_installed_is_removed():
    if SAN:
        raise Skip("built against the plain installation")

    def make(target, prefix, code=0):
        r = subprocess.run(["make", "-s", "-o", "all", target, f"PREFIX={prefix}", f"BUILD={os.environ.get('BUILD', 'build')}"], cwd=ROOT,
                           capture_output=True, text=True)
        assert (r.returncode == 0) == (code == 0), r
        return r
    with Place() as p:
        prefix = p.path("usr")
        os.makedirs(prefix + "/share/man/man1")
        for name in ("share/man/man1/other.1", "share/penstock.txt"):
            with open(os.path.join(prefix, name), "w") as f:
                f.write("mine")
        before = everything(prefix)
        assert "nothing was installed" in make("uninstall", prefix, 2).stderr
        make("install", prefix)
        first = everything(prefix)
        make("install", prefix)  # again, over it
        assert everything(prefix) == first and len(first) > 150
        for name in ("bin/penstock", "bin/penstock-stage", "share/bash-completion/completions/penstock", "share/zsh/site-functions/_penstock",
                     "share/fish/vendor_completions.d/penstock.fish", "share/man/man1/penstock-run.1", "share/pkgconfig/penstock.pc",
                     "share/penstock/pipelines/settings/gat/cora.json", "share/penstock/python/penstock/figures/lab.py",
                     "share/penstock/stages/examples/graphsage.py",
                     "share/doc/penstock/README.md", "share/doc/penstock/stages/README.md", "share/doc/penstock/examples/passthrough.c", "include/penstock/common/stage.h", "lib/penstock/stages/trainer.so"):
            assert os.path.isfile(os.path.join(prefix, name)), name
        moved = p.path("moved")  # it runs elsewhere
        shutil.copytree(prefix, moved)
        version = subprocess.run([moved + "/bin/penstock", "--version"], capture_output=True, text=True).stdout
        assert version == command("--version").stdout and re.fullmatch(r"penstock \d+( \([0-9a-f]+(-dirty)?\))?\n", version), version
        pc = subprocess.run(["pkg-config", "--cflags", "penstock"], capture_output=True, text=True,
                            env={**os.environ, "PKG_CONFIG_PATH": moved + "/share/pkgconfig"}).stdout
        assert moved in pc and os.path.isfile(re.search(r"-I(\S+)", pc).group(1) + "/penstock/common/stage.h"), pc
        if shutil.which("man"):
            page = subprocess.run(["man", "-l", moved + "/share/man/man1/penstock-runs.1"], capture_output=True, text=True,
                                  env={**os.environ, "MANPAGER": "cat"}).stdout
            assert re.search(r"penstock-runs\s+-\s+list runs", page) and "--json" in page, page
        with open(prefix + "/lib/penstock/stages/mine.so", "w") as f:
            f.write("mine")
        make("uninstall", prefix)
        assert everything(prefix) == sorted([*before, "lib", "lib/penstock", "lib/penstock/stages", "lib/penstock/stages/mine.so"])
        make("install", p.path("new"))
        make("uninstall", p.path("new"))
        assert not os.path.exists(p.path("new"))
    left = [tree for tree in glob.glob(os.path.join(BUILD, "tree-*")) if not os.path.exists("/proc/" + tree.rpartition("-")[2])]
    assert not left, left  # a tree has the number of its make; other tests may run one now


if __name__ == "__main__":
    main()
