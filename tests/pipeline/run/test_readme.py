"""Every command block of the README, in order, in a copy of the tree, where `make check` is a dry run. And the links of
every README."""
import re
import shlex

from harness import *


def blocks():
    with open(os.path.join(ROOT, "README.md")) as f:
        return re.findall(r"```sh\n(.*?)```", f.read(), re.S)


def tree():
    """The files of the tree, as paths from its root."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.splitlines() if os.path.exists(os.path.join(ROOT, name))]


@test
def every_command_block():
    if SAN:
        raise Skip("the README is run with the plain build")
    assert len(blocks()) >= 8
    with Place() as p:
        copy = p.path("penstock")
        os.mkdir(copy)
        for name in tree():
            os.makedirs(os.path.dirname(os.path.join(copy, name)), exist_ok=True)
            shutil.copy2(os.path.join(ROOT, name), os.path.join(copy, name))
        os.symlink(BUILD, os.path.join(copy, "build"))
        for block in blocks():
            script = re.sub(r"^make check$", "make -n check", block, flags=re.M)
            r = subprocess.run(["bash", "-euo", "pipefail", "-O", "failglob", "-c", script], cwd=copy, capture_output=True, text=True,
                               stdin=subprocess.DEVNULL)
            assert r.returncode == 0, f"{block}\nexit code {r.returncode}\n{r.stdout}\n{r.stderr}"
            assert "no rule" not in r.stderr
        with open(os.path.join(copy, "report.json")) as f:
            assert json.load(f)["status"] == "ok"
        with open(os.path.join(copy, "trace.json")) as f:
            names = {e["name"] for e in json.load(f)["traceEvents"]}
        assert {"N 7.1", "S 7.1", "R 7.1", "L 7.1", "C 7", "T 7"} <= names, "the README's table shows these spans"
        of_disk = []
        for path in sorted(glob.glob(os.path.join(copy, "runs", "*", "report.json"))):
            with open(path) as f:
                report = json.load(f)
            if any(word in " ".join(report["command"]) for word in ("cpu_cache=", "stages.disk.", "topology=ssd", "runs/first/pipeline.json")):
                of_disk.append((report["io"]["requests"], report["command"]))
        assert len(of_disk) >= 7 and all(requests > 0 for requests, _ in of_disk), of_disk


def words_of(p, shell, script):
    """What each command gets as its arguments after the shell's expansions. Of the programs, only mkdir and tee are run."""
    stubs = "\n".join(f'{name}() {{ printf "%s|" {name} "$@"; printf "\\n"; }}' for name in ("penstock", "make", "cc", "sed", "pkg-config"))
    os.makedirs(p.path("data"), exist_ok=True)
    r = subprocess.run([*shell, stubs + "\n" + script.replace("build/bin/penstock", "penstock")], cwd=p.dir, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert r.returncode == 0 and r.stderr == "", (shell, script, r)
    return r.stdout


@test
def zsh_reads_the_blocks_as_bash_does():
    """Both end with an error if a pattern that nobody quoted matches no file."""
    zsh, bash = shutil.which("zsh"), ["bash", "-euo", "pipefail", "-O", "failglob", "-c"]
    if not zsh:
        raise Skip("zsh is not installed")
    with Place() as p:
        said = ""
        for block in blocks():
            one, other = (words_of(p, shell, block) for shell in (bash, [zsh, "-feuo", "pipefail", "-c"]))
            assert one == other, (one, other)
            said += one
        assert said.count("links[1].slots=2") == 1 and said.count("penstock|run|") > 10, said
        for shell in (bash, [zsh, "-feuo", "pipefail", "-c"]):
            try:
                words_of(p, shell, "build/bin/penstock run --set links[1].slots=2")
            except AssertionError as e:
                assert "match" in str(e), e
            else:
                raise RuntimeError(f"{shell} accepts a pattern that matches nothing")


@test
def in_a_directory_with_nothing_in_it():
    """No `make run` came before: the commands make data/ and runs/ themselves."""
    first = next(block for block in blocks() if "--run-dir runs/first" in block)
    with Place() as p:
        os.mkdir(p.path("empty"))
        script = first.replace("build/bin/penstock", shlex.quote(PENSTOCK)).replace("pipelines/", shlex.quote(ROOT) + "/pipelines/")
        r = subprocess.run(["bash", "-euo", "pipefail", "-O", "failglob", "-c", script], cwd=p.path("empty"), capture_output=True, text=True)
        assert r.returncode == 0, r
        with open(p.path("empty/runs/first/report.json")) as f:
            assert json.load(f)["io"]["requests"] > 0


@test
def help_everywhere():
    for name in ("run", "demo", "check", "graph", "stages", "gen", "import", "split", "convert", "features", "infer", "export", "rm", "inspect", "store",
                 "verify", "disks", "bench", "top", "stop", "gc", "tpc", "partition", "order", "caches", "page"):
        r = command(name, "--help")
        assert "usage: penstock " + name in r.stdout and r.stderr == "", name
    assert "usage: penstock COMMAND" in command("--help").stdout
    assert "unknown command" in command("nonsense", code=2).stderr


@test
def folders_have_readmes():
    for folder in ("common", "common/store", "kernels", "stages", "stages/lib/io", "stages/trainer", "pipelines",
                   "tests", "tests/qemu", "tools"):
        assert os.path.exists(os.path.join(ROOT, folder, "README.md")), folder


FENCED = re.compile(r"^```.*?^```$", re.S | re.M)
LINK = re.compile(r"\]\(([^)\s]+)\)")
QUOTED = re.compile(r"`((?:common|kernels|pipelines|stages|tests|tools)/[\w./*-]+)`")


def anchors(text):
    """What #NAME can be: the headings, in lower case, without punctuation, with - for blanks."""
    return {re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-") for line in text.splitlines() if line.startswith("#")}


def broken_links(name):
    """Links of a file of Markdown to files or headings, and paths from the root in `quotes`, that are not there."""
    with open(os.path.join(ROOT, name)) as f:
        text = FENCED.sub("", f.read())
    for link in LINK.findall(text):
        path, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(ROOT, os.path.dirname(name), path)) if path else os.path.join(ROOT, name)
        if "://" in link:
            continue
        if not os.path.exists(target):
            yield link
        elif anchor:
            with open(target) as f:
                if anchor not in anchors(FENCED.sub("", f.read())):
                    yield link
    yield from (path for path in QUOTED.findall(text) if not glob.glob(os.path.join(ROOT, path)))


@test
def links_lead_somewhere():
    readmes = [name for name in tree() if name.endswith(".md")]
    assert len(readmes) > 40, readmes
    broken = [f"{name}: {link}" for name in readmes for link in broken_links(name)]
    assert not broken, "\n".join(broken)


if __name__ == "__main__":
    main()
