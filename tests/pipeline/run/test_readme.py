"""Every command block of the README, in order, in a copy of the tree. `make check` is only dry-run: this is it."""
import re

from harness import *


def blocks():
    with open(os.path.join(ROOT, "README.md")) as f:
        return re.findall(r"```sh\n(.*?)```", f.read(), re.S)


@test
def every_command_block():
    if SAN:
        raise Skip("the README is run with the plain build")
    assert len(blocks()) >= 8
    with Place() as p:
        copy = p.path("penstock")
        os.mkdir(copy)
        files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
                               capture_output=True, text=True).stdout.split("\n")
        for name in filter(None, files):
            if os.path.exists(os.path.join(ROOT, name)):
                os.makedirs(os.path.dirname(os.path.join(copy, name)), exist_ok=True)
                shutil.copy2(os.path.join(ROOT, name), os.path.join(copy, name))
        os.symlink(BUILD, os.path.join(copy, "build"))
        for block in blocks():
            script = re.sub(r"^make check$", "make -n check", block, flags=re.M)
            r = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=copy, capture_output=True, text=True,
                               stdin=subprocess.DEVNULL)
            assert r.returncode == 0, f"{block}\nexit code {r.returncode}\n{r.stdout}\n{r.stderr}"
            assert "no rule" not in r.stderr
        with open(os.path.join(copy, "report.json")) as f:
            assert json.load(f)["status"] == "ok"


@test
def help_everywhere():
    for name in ("run", "check", "graph", "stages", "gen", "import", "split", "convert", "features", "infer", "export", "rm", "inspect", "store",
                 "verify", "disks", "bench", "top", "stop", "gc"):
        r = command(name, "--help")
        assert "usage: penstock " + name in r.stdout and r.stderr == "", name
    assert "usage: penstock COMMAND" in command("--help").stdout
    assert "there is no command" in command("nonsense", code=2).stderr


@test
def folders_have_readmes():
    for folder in ("common", "common/store", "kernels", "stages", "stages/lib/io", "stages/trainer", "pipelines",
                   "tests", "tests/qemu", "tools"):
        assert os.path.exists(os.path.join(ROOT, folder, "README.md")), folder


if __name__ == "__main__":
    main()
