"""The packages in small: what the wheel and the Debian packages contain, and the headers in C++17. Fresh roots, in which they
are installed: tests/accept/test_packages.py."""
import atexit
import base64
import contextlib
import csv
import functools
import hashlib
import io
import re
import zipfile

from harness import *

PUBLIC = ("common/base.h", "common/error.h", "common/stage.h", "common/wire.h", "common/slots/minibatch.h", "common/slots/request.h",
          "common/store/array_id.h", "common/store/store.h", "common/util/rng.h", "kernels/twin.h", "stages/lib/device/device.h",
          "stages/lib/sampling/sampling.h", "stages/lib/sampling/fill_device.h")
EMPTY = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8", "PENSTOCK_TEST": os.environ["PENSTOCK_TEST"]}


@functools.cache
def tree():
    """What `make install` copies. Without CUDA, as without nvcc: that is the largest file."""
    place = Place()
    atexit.register(shutil.rmtree, place.dir)
    prefix = place.path("tree")
    subprocess.run(["make", "-s", "-o", "all", "install", f"PREFIX={prefix}", f"BUILD={os.environ.get('BUILD', 'build')}"], cwd=ROOT, check=True,
                   capture_output=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(prefix + "/lib/libpenstock-cuda.so")
    return prefix


def make(what, p):
    """Runs the recipe. Returns the paths of what it made."""
    if SAN:
        raise Skip("packages are made from the plain build")
    for tool in ("strip", "ldd", "dpkg-query"):
        if not shutil.which(tool):
            raise Skip(f"{tool} is not installed")
    out = p.path("out")
    r = subprocess.run(["/usr/bin/python3", os.path.join(ROOT, "tools", "packages", what + ".py"), tree(), out], capture_output=True, text=True,
                       env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})
    assert r.returncode == 0, r
    return sorted(glob.glob(out + "/*"))


def unpack(wheel, to):
    """As pip does it: programs stay programs."""
    with zipfile.ZipFile(wheel) as z:
        for entry in z.infolist():
            os.chmod(z.extract(entry, to), entry.external_attr >> 16 & 0o777)
    return to


@test
def a_wheel_has_all_that_it_needs():
    with Place() as p:
        wheel, = make("wheel", p)
        with zipfile.ZipFile(wheel) as z:
            names = set(z.namelist())
            record = list(csv.reader(io.StringIO(z.read("penstock-1.dist-info/RECORD").decode())))
            about = z.read("penstock-1.dist-info/WHEEL").decode()
            assert {row[0] for row in record} == names
            for name, digest, size in record[:-1]:
                data = z.read(name)
                sha = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                assert digest == "sha256=" + sha and int(size) == len(data), name
            assert {entry.date_time[:3] for entry in z.infolist()} == {(2023, 11, 14)}
        tag = re.search(r"Tag: (.*)", about)[1]
        assert os.path.basename(wheel) == f"penstock-1-{tag}.whl" and re.fullmatch(r"py3-none-(manylinux_\d+_\d+|linux)_\w+", tag), wheel
        assert {"penstock/__main__.py", "penstock/py.typed", "penstock/__init__.pyi", "penstock/_tree/bin/penstock-stage", "penstock/_tree/lib/penstock/stages/trainer.so",
                "penstock/_tree/share/penstock/pipelines/hyperion.json", "penstock/_tree/include/penstock/common/stage.h",
                "penstock/_tree/licences/libzmq.so.5.txt", "penstock/_tree/lib/libdnnl.so.2"} <= names
        at = unpack(wheel, p.path("site"))
        # each library that is needed is found in the wheel, except those of glibc
        for name in ("penstock", "penstock-stage", "penstock-memory", "penstock-nvme"):
            r = subprocess.run(["ldd", f"{at}/penstock/_tree/bin/{name}"], capture_output=True, text=True, check=True)
            outside = [line.split()[0] for line in r.stdout.splitlines() if "=>" in line and at not in line]
            assert all(re.fullmatch(r"lib(c|m|resolv|pthread|dl|rt)\.so\.\d", lib) for lib in outside), (name, outside)
        it_runs([sys.executable, "-m", "penstock"], {**EMPTY, "PYTHONPATH": at}, p)
        code = "import penstock, penstock.command; print(penstock.command.find_command())"
        r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**EMPTY, "PYTHONPATH": at})
        assert r.stdout == f"{at}/penstock/_tree/bin/penstock\n", r


def it_runs(penstock, env, p):
    """A dataset and a run of an installed pipeline, without the source tree. Part of the command is in Python."""
    def call(*args):
        r = subprocess.run([*penstock, *args], capture_output=True, text=True, env=env, cwd=p.dir, timeout=60)
        assert r.returncode == 0, r
        return r.stdout
    assert call("--version") == command("--version").stdout
    call("gen", "community", "small", "--vertices", "2000", "--seed", "3")
    call("run", "hyperion", "--dataset", "small", "--epochs", "1", "--run-dir", "run", "--set", "stages.planner.params.cpu_cache=64KiB")
    with open(p.path("run/report.json")) as f:
        report = json.load(f)
    assert report["status"] == "ok" and report["io"]["requests"] > 0
    assert "experiment" in call("experiment", "--help")


@test
def debian_packages_divide_the_files():
    for tool in ("dpkg-deb", "dpkg-shlibdeps"):
        if not shutil.which(tool):
            raise Skip(f"{tool} is not installed")
    with Place() as p:
        made = {os.path.basename(path).split("_")[0]: path for path in make("deb", p)}
        mpi = ["penstock-mpi"] if os.path.exists(os.path.join(BUILD, "bin", "penstock-ranks")) else []
        assert sorted(made) == ["penstock", "penstock-dev", *mpi, "python3-penstock"], made
        listed, fields = {}, {}
        for package, path in made.items():
            rows = subprocess.run(["dpkg-deb", "-c", path], capture_output=True, text=True, check=True).stdout.splitlines()
            assert all(row.split()[1] == "root/root" and row.split()[3] <= "2023-11-14" for row in rows), rows
            listed[package] = {row.split()[5].removeprefix(".") for row in rows if not row.startswith("d")}
            fields[package] = subprocess.run(["dpkg-deb", "-f", path], capture_output=True, text=True, check=True).stdout
        assert {"/usr/bin/penstock", "/usr/lib/penstock/lib/libpenstock.so", "/usr/share/man/man1/penstock-run.1.gz",
                "/usr/share/penstock/pipelines/hyperion.json"} <= listed["penstock"]
        assert {"/usr/include/penstock/common/stage.h", "/usr/share/pkgconfig/penstock.pc"} <= listed["penstock-dev"]
        assert "/usr/lib/python3/dist-packages/penstock/__main__.py" in listed["python3-penstock"]
        every = [name for names in listed.values() for name in names]
        assert len(every) == len(set(every))
        depends = re.search(r"^Depends: (.*)", fields["penstock"], re.M)[1]
        assert all(f"{package} (>=" in depends for package in ("libc6", "libzmq5", "libdnnl2", "libmetis5")), depends
        root = p.path("root")
        for path in made.values():
            subprocess.run(["dpkg-deb", "-x", path, root], check=True)
        it_runs([root + "/usr/bin/penstock"], EMPTY, p)
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "penstock"], capture_output=True, text=True,
                               env={**os.environ, "PKG_CONFIG_PATH": root + "/usr/share/pkgconfig"}).stdout.split()
        subprocess.run(["cc", "-shared", "-fPIC", "-o", p.path("mine.so"), os.path.join(ROOT, "tests/pipeline/outside/favour.c"), *flags], check=True)


@test
def headers_compile_as_cpp17():
    if not shutil.which("c++"):
        raise Skip("c++ is not installed")
    with open(os.path.join(ROOT, "Makefile")) as f:
        listed = re.search(r"^public := (.*?[^\\])\n", f.read(), re.M | re.S)[1].replace("\\\n", " ").split()
    assert set(listed) <= set(PUBLIC), "add the new public headers to this test"
    for header in PUBLIC:  # each alone, and twice
        text = f'#include "{header}"\n#include "{header}"\n'
        r = subprocess.run(["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", ROOT, "-x", "c++", "-"], input=text,
                           capture_output=True, text=True)
        assert r.returncode == 0, (header, r.stderr)


if __name__ == "__main__":
    main()
