"""What make prints: a line a file; V=1 all commands; -s nothing. Objects are compiled by ccache where it is installed."""
from harness import *


@test
def output():
    with Place() as p:
        target = p.path("b/obj/common/util/tempname.o")

        def made(*args):
            r = subprocess.run(["make", *args, f"BUILD={p.path('b')}", "SAN=", target], cwd=ROOT, capture_output=True, text=True,
                               env={key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL", "V")})
            assert r.returncode == 0 and os.path.exists(target) and not r.stderr, r
            os.unlink(target)
            return r.stdout.splitlines()
        assert made() == [f"  {target}"]
        assert made("-s") == []
        loud = made("V=1")
        assert any(" -c -o " in line for line in loud), loud
        compilers = [line.split()[0] for line in loud if " -c -o " in line]
        assert os.path.basename(compilers[0]) == ("ccache" if shutil.which("ccache") else "cc"), loud
        assert not any("ccache" in line for line in made("V=1", "CCACHE="))


if __name__ == "__main__":
    main()
