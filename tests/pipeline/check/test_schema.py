"""penstock schema: what it accepts and refuses, against penstock check."""
import re

import jsonschema
from check_cases import *

SIZE = r"[0-9]+(\.[0-9]+)?(B|[KMGT]iB|[kMGT]B)"

# for each type of a parameter, values that some stage could take, and values that none does
TRIED = {
    "bool": [True, False, 1, "true", None],
    "int": [0, 1, -1, 7, 1 << 40, "3", 1.5, [], True, "auto"],
    "real": [0, 0.5, 1, -1, 1e300, "0.5", None, "auto"],
    "string": ["", "word", 3, ["word"]],
    "enum": ["no-such-choice", "", 3, "auto"],
    "bytes": [0, 1, 4096, "64KiB", "1.5GiB", "1MB", "12B", 1 << 62, "64 KiB", "-1", "KiB", "1e3", -1, 1.5, None, "auto"],
    "named_ints": [[], [1], [5, 5], {"a": [1]}, {"a": [1, 2], "b": [0, -1]}, {}, {"a": []}, {"a": 1}, {"a": [1 << 40]}, [{"a": 1}, {"a": 2}], [{}], [{"a": "1"}], 5],
    "ints": [[], [1], [5, 5], [-1, -1], [1] * 16, [1.5], ["1"], 5, [1 << 40]],
}


def schema(*args, **more):
    made = json.loads(command("schema", *args, **more).stdout)
    jsonschema.Draft7Validator.check_schema(made)
    return made


def faults(made, pl):
    """Where the schema finds mistakes, as paths of the file."""
    def names(error):
        yield ".".join(str(part) for part in error.absolute_path)
        for inner in error.context or []:
            yield from names(inner)
    return {name for error in jsonschema.Draft7Validator(made).iter_errors(pl) for name in names(error)}


def accepts(made, pl):
    return jsonschema.Draft7Validator(made).is_valid(pl)


def told_by_check(p, pl, paths):
    """Which of these paths `check` complains of."""
    file = p.write(pl, "tried.json")
    err = command("check", file, code=None, cwd=p.dir).stderr
    found = {line[len(file):].split(": ")[1] for line in err.splitlines() if line.startswith(file) and line.count(": ") > 1}
    return found & set(paths)


def merged(pl, overlay):
    """As --with does it."""
    if isinstance(pl, list) and isinstance(overlay, dict):
        pl = dict(enumerate(pl))
        return list(merged({str(i): value for i, value in pl.items()}, overlay).values())
    if isinstance(pl, dict) and isinstance(overlay, dict):
        return {**pl, **{key: merged(pl.get(key), value) for key, value in overlay.items()}}
    return overlay


def read(file):
    with open(file) as f:
        return json.load(f)


@test
def all_shipped_pipelines_and_settings_are_accepted():
    made, settings = schema(), schema("--settings")
    files = glob.glob(os.path.join(ROOT, "pipelines", "*.json"))
    assert len(files) >= 6
    for file in files:
        assert not faults(made, read(file)), (file, faults(made, read(file)))
    for args in [*shipped_pipelines().values(), *shipped_models().values(), *shipped_embeddings().values()]:
        whole = read(args[0])
        for file in args[2::2]:
            assert not faults(settings, read(file)), (file, faults(settings, read(file)))
            whole = merged(whole, read(file))
        assert not faults(made, whole), (args, faults(made, whole))


@test
def broken_ones_are_refused():
    """Each is refused by check, too."""
    path = os.path.join(STAGES, "source.so")
    broken = {
        "penstock__DROP": None, "stages__DROP": None,
        "penstock": 2, "nmae": "x", "name": "a b", "help": 3, "dataset": 7, "seed": -1, "epochs": 0, "overlap": "no", "stages": [],
        "bus": {"dilate": 2}, "bus__x": {"bytes_per_s": 1e9, "delate": 2}, "place": {"device": "gpu"}, "params": 5,
        "params__bach": 128, "params__batch": "many", "params__fanout": [10, "5"], "links": {}, "links__0": {"from": "planner.plan"},
        "links__1__slots": 0, "links__1__slot": 4, "links__0__back": "yes", "links__0__from": "planner",
        "stages__a b": {"run": "disk"}, "stages__disk__run": "dsik", "stages__disk__run__DROP": None, "stages__disk__parms": {},
        "stages__disk__params__depht": 1, "stages__disk__params__backend": "tape", "stages__disk__params__retries": -1,
        "stages__trainer__params": {"optimizer": "adamw", "momentum": 0.5}, "stages__trainer__params__dropout": 2, "stages__trainer__params__hidden": "64", "stages__trainer__params__residual": 1,
        "stages__planner__params__cpu_cache": "4 MB", "stages__disk__instances": 17, "stages__trainer__instances": 2,
        "stages__disk__place": {"device": "cpu:16"}, "stages__disk__place__cores": "0-", "stages__disk__place__sm_percent": 0,
        "stages__disk__group": "a.b", "stages__disk__endpoint": "udp://x", "stages__disk": "disk",
    }
    made = schema()
    with Place() as p:
        assert accepts(made, shipped())
        for what, value in broken.items():
            pl = shipped(**{what[:-len("__DROP")]: DROP} if what.endswith("__DROP") else {what.removesuffix("__x"): value})
            assert not accepts(made, pl), f"the schema accepts {what}: {value}"
            r = command("check", p.write(pl, "broken.json"), code=2, cwd=p.dir)
            assert r.stderr, what
        # a stage that is named by a path may have any parameters, and the pipeline's may be for it
        assert accepts(made, shipped(stages__disk={"run": path, "params": {"any": 1}}, params__any=2))
        assert not accepts(made, shipped(params__any=2))


def is_too_much(param, chosen):
    """By at_most."""
    whole, _, part = param.get("at_most", "").partition(" unless ")[0].partition("-")
    values = [chosen[param["name"]], chosen.get(whole), chosen[part] if part else 0]
    return all(isinstance(x, int) for x in values) and values[0] > values[1] - values[2]


@test
def values_of_all_parameters_are_judged_as_by_check():
    made, names = schema(), [line.split()[0] for line in command("stages").stdout.splitlines()]
    tried = refused = 0
    with Place() as p:
        for name in names:
            params = json.loads(command("stages", name, "--json").stdout)["params"]
            values = {}
            for param in params:
                values[param["name"]] = [*TRIED[param["type"]], *param.get("choices", "").split("|"), param.get("default")]
                if param["min"] < param["max"] and param["type"] not in ("ints", "named_ints"):
                    low, high = param["min"], param["max"]
                    whole = param["type"] != "real"
                    limits = [low, high, low - 1, high + 1] if abs(high) < 1e15 else [low, low - 1]
                    values[param["name"]] += [int(x) if whole else x for x in limits]
            for turn in range(max(map(len, values.values()), default=0)):
                chosen = {key: choices[turn % len(choices)] for key, choices in values.items()}
                pl = {"penstock": 1, "stages": {"x": {"run": name, "params": chosen}}}
                paths = [f"stages.x.params.{key}" for key in chosen]
                by_check, by_schema = told_by_check(p, pl, paths), faults(made, pl)
                by_schema = {path for path in paths if any(fault == path or fault.startswith(path + ".") for fault in by_schema)}
                # no pattern compares the number in a text with a limit
                unsaid = {path for path in paths if path in by_check and isinstance(chosen[path.rsplit(".", 1)[1]], str)
                          and re.fullmatch(SIZE, chosen[path.rsplit(".", 1)[1]])}
                # nor does a schema compare two values
                unsaid |= {f"stages.x.params.{param['name']}" for param in params if param.get("below") and
                           isinstance(chosen[param["name"]], int) and isinstance(chosen[param["below"]], int) and
                           chosen[param["name"]] >= chosen[param["below"]] != 1}
                unsaid |= {f"stages.x.params.{param['name']}" for param in params if is_too_much(param, chosen)}
                # nor does it know on what device a stage runs
                unsaid |= {f"stages.x.params.{param['name']}" for param in params if
                           f"{chosen[param['name']]} if device=" in (param.get("choice_if") or "")}
                wrong = {path: chosen[path.rsplit(".", 1)[1]] for path in (by_check ^ by_schema) - unsaid}
                assert not wrong, (name, wrong, by_check)
                tried, refused = tried + len(paths), refused + len(by_check)
    assert tried > 500 and refused > tried / 10, (tried, refused)


@test
def stages_outside_are_added():
    """A required parameter may be the stage's own or the pipeline's."""
    with Place() as p:
        needs = describes(p, "needs.sh", params=[{"name": "size", "type": "int", "min": 1, "max": 9, "help": "how large"}])
        made = schema(needs)
        assert made["definitions"]["stage"]["allOf"][-1]["then"]["properties"]["params"]["properties"]["size"]["description"] == "how large"

        def pl(**more):
            return change(pipeline({"x": {"run": needs}}, []), more)
        assert accepts(made, pl(stages__x__params={"size": 3})) and accepts(made, pl(params={"size": 3}))
        assert not accepts(made, pl()) and not accepts(made, pl(stages__x__params={"size": 10})) and not accepts(made, pl(params={"size": 0}))
        assert not accepts(made, pl(stages__x__params={"size": 3, "sise": 3}))
        assert accepts(schema(), pl())  # the stage is not known there
        assert "no-such.so" in command("schema", "./no-such.so", code=2).stderr


@test
def numbers_of_stages_outside_are_compared():
    """By below, at_most and even_if of a description that a program prints."""
    with Place() as p:
        number = lambda name, value, **more: {"name": name, "type": "int", "default": value, "min": 0, "max": 99, "help": "how many", **more}
        path = describes(p, "numbers.sh", params=[number("all", 8), number("some", 3, below="all"), number("rest", 5, at_most="all-some unless all=1"),
                                                  number("pairs", 2, even_if="all=8")])
        for params, want in (({}, None), ({"some": 8}, "some is 8, and all is 8"), ({"rest": 6}, "rest is 6, but all is 8 and some is 3: expected at most 5"),
                             ({"all": 1, "rest": 9, "pairs": 3}, None), ({"pairs": 3}, "pairs is 3, but with all 8 it must be even")):
            pl = {"penstock": 1, "stages": {"x": {"run": path, "params": params}}}
            err = command("check", p.write(pl, "numbers.json"), code=None, cwd=p.dir).stderr
            found = [line for line in err.splitlines() if "stages.x.params" in line]
            assert (len(found) == 1 and want in found[0]) if want else not found, (params, err)


@test
def every_key_of_the_schema_is_known_to_check():
    """And "$schema" is accepted, for editors."""
    made = schema()
    with Place() as p:
        pl = shipped(**{"$schema": "pipeline.schema.json"})
        assert accepts(made, pl)
        command("check", p.write(pl, "named.json"))
        stage_keys, link_keys = (made["definitions"][kind]["properties"] for kind in ("stage", "link"))
        pl = {**{key: None for key in made["properties"]}, "stages": {"disk": {key: None for key in stage_keys}}, "links": [{key: None for key in link_keys}]}
        err = command("check", p.write(pl, "keys.json"), code=2).stderr
        assert "unknown key" not in err and err.count("found null") > 8, err


if __name__ == "__main__":
    main()
