"""What the tests of broken pipelines share: each is refused with exit code 2 and all of its errors, each at its line,
and nothing starts."""
import subprocess

from harness import *

SHIPPED = os.path.join(ROOT, "pipelines", "hyperion.json")


class Case:
    """A broken pipeline and its errors: each (place, path, words...): `place` is text whose first line in the file is
    the error's line, a number, link(index), None for a message without a line, or "--set"."""

    def __init__(self, name, make, *errors, args=()):
        self.name, self.make, self.errors, self.args = name, make, errors, args


def shipped(**changes):
    """The shipped pipeline with members replaced: shipped(stages__disk__run="dsik"); DROP removes."""
    with open(SHIPPED) as f:
        return change(json.load(f), changes)


DROP = object()


def change(pl, changes):
    for path, value in changes.items():
        at = pl
        *way, last = path.split("__")
        for key in way:
            at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
        if value is DROP:
            del at[int(last) if isinstance(at, list) else last]
        elif isinstance(at, list) and last == "add":
            at.append(value)
        else:
            at[int(last) if isinstance(at, list) else last] = value
    return pl


def row(**changes):
    """source -> a -> sink, with members replaced."""
    return change(pipeline({"source": stage("source"), "a": stage("passthrough"), "sink": stage("sink")},
                           links("source.out", "a.in", "a.out", "sink.in", slots=4)), changes)


def link(index, member=None):
    """The place of links[index], or of a member of it, in what json.dumps(indent=1) writes."""
    def find(text):
        rows = text.split("\n")
        at = rows.index(' "links": [')
        for _ in range(index + 1):
            at = rows.index("  {", at + 1)
        while member and f'"{member}"' not in rows[at]:
            at += 1
        return at + 1
    return find


def lines(text, place):
    if place is None or isinstance(place, int):
        return place
    if callable(place):
        return place(text)
    for number, line in enumerate(text.split("\n"), 1):
        if place in line:
            return number
    raise AssertionError(f"the test's own place {place!r} is not in\n{text}")


def told(file, text, error):
    """What an error's line must begin with."""
    place, path, *_ = error
    if place == "--set":
        where = "--set: "
    else:
        line = lines(text, place)
        where = f"{file}:{line}: " if line else f"{file}: "
    return where + (f"{path}: " if path else "")


def refused(p, case):
    made = case.make(p) if callable(case.make) else case.make
    data = made if isinstance(made, bytes) else (made if isinstance(made, str) else json.dumps(made, indent=1)).encode()
    file = p.path("broken.json")
    with open(file, "wb") as f:
        f.write(data)
    text = data[:1 << 20].decode(errors="replace")
    r = subprocess.run([PENSTOCK, "check", *case.args, file], capture_output=True, text=True, errors="replace",
                       cwd=p.dir, timeout=60)
    err = r.stderr.strip().split("\n")
    assert r.returncode == 2 and not r.stdout, f"exit code {r.returncode}\n{r.stdout}{r.stderr}"
    for error in case.errors:
        begin = told(file, text, error)
        assert any(line.startswith(begin) and all(word in line for word in error[2:]) for line in err), \
            f"no line begins with {begin!r} and has {error[2:]} in\n{r.stderr}"
    assert len(err) == len(case.errors), f"expected {len(case.errors)} errors:\n{r.stderr}"
    ran = subprocess.run([PENSTOCK, "run", *case.args, file, "--dataset", p.data, "--run-dir", p.path("never")],
                         capture_output=True, text=True, errors="replace", cwd=p.dir, timeout=60)
    assert ran.returncode == 2 and ran.stderr == r.stderr, f"run: exit code {ran.returncode}\n{ran.stderr}"
    assert not os.path.exists(p.path("never")) and not os.path.exists(p.path("runs")), "a run directory was made"


def all_refused(cases):
    with Place() as p:
        os.environ["XDG_CACHE_HOME"] = p.path("cache")  # descriptions of foreign stages
        failures = []
        for case in cases:
            try:
                refused(p, case)
                no_leftovers()
            except Exception as e:
                failures.append(f"--- {case.name}: {e}")
        del os.environ["XDG_CACHE_HOME"]
        assert not failures, f"{len(failures)} of {len(cases)}:\n" + "\n".join(failures)
        assert len({case.name for case in cases}) == len(cases)


def program(p, name, text, mode=0o755):
    path = p.path(name)
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, mode)
    return path


def describes(p, file, **changes):
    """A foreign stage whose description differs from a good one."""
    good = {"abi": 7, "name": "odd", "help": "for tests", "params": [],
            "ports": [{"name": "in", "dir": "in", "help": "i", "type": "words", "dtype": "int64", "rank": 1},
                      {"name": "out", "dir": "out", "help": "o", "type": "words", "dtype": "int64", "rank": 1,
                       "forwards": "in"}]}
    return program(p, file, "#!/bin/sh\ncat <<'END'\n" + json.dumps(change(good, changes)) + "\nEND\n")


def compiled(p, name, source):
    path, text = p.path(name), p.path(name + ".c")
    with open(text, "w") as f:
        f.write(source)
    subprocess.run([os.environ.get("CC", "gcc"), "-shared", "-fPIC", "-I" + ROOT, "-I" + os.path.join(ROOT, "common"), "-o", path,
                    text], check=True)
    return path
