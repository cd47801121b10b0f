"""Pipelines whose replicas are wrong; how replicas look in a drawing; what a schema and a description say of them."""
from check_cases import *

LEGION = os.path.join(ROOT, "pipelines", "legion.json")
SHIPPED_REPLICAS = os.path.join(ROOT, "pipelines", "replicas.json")


def replicas(**changes):
    with open(SHIPPED_REPLICAS) as f:
        return change(json.load(f), changes)


CASES = [
    Case("replicas a list", replicas(replicas=["sampler"]),
         ('"replicas": [', "replicas", 'expected an object, for example {"stages": ["sampler", "trainer"]', "found a list")),
    Case("unknown key", replicas(replicas__place="cpu:1"),
         ('"place": "cpu:1"', "replicas.place", "unknown key; did you mean places?")),
    Case("no places", replicas(replicas__places=DROP),
         ('"replicas": {', "replicas.places", "expected a list of 1 to 16 places, found nothing")),
    Case("too many places", replicas(replicas__places=["cpu:1"] * 17),
         ('"places": [', "replicas.places", "expected a list of 1 to 16 places, found a longer list")),
    Case("a place twice", replicas(replicas__places=["cpu:1", "cpu:2", "cpu:1"]),
         (52, "replicas.places[2]", "cpu:1 is also replicas.places[0]: each replica needs a device of its own")),
    Case("a place that is none", replicas(replicas__places=["cpu:1", "auto"]),
         (51, "replicas.places[1]", 'expected cpu:N or cuda:N (N from 0 to 15), found "auto"')),
    Case("a place of a wrong type", replicas(replicas__places=["cpu:1", 2]),
         (51, "replicas.places[1]", 'expected a device, for example "cpu:1", or an object', "found an integer")),
    Case("two kinds of places", replicas(replicas__places=["cpu:1", "cuda:0"]),
         ('"cuda:0"', "replicas.places[1]", "cuda:0 is another kind of device than replicas.places[0], cpu:1")),
    Case("cores that are none", replicas(replicas__places=[{"device": "cpu:1", "cores": "x"}]),
         (50, "replicas.places[0]", 'expected a list of cores, for example "0-3,6", found "x"')),
    Case("no stages", replicas(replicas__stages=[]),
         ('"stages": []', "replicas.stages", "expected a list of stages, found an empty list")),
    Case("unknown stage", replicas(replicas__stages=["sampler", "disk", "trainr"]),
         ('"trainr"', "replicas.stages[2]", 'the pipeline has no stage "trainr"; did you mean trainer?')),
    Case("a stage twice", replicas(replicas__stages=["sampler", "disk", "trainer", "disk"]),
         (48, "replicas.stages[3]", "stage disk is in the list twice")),
    Case("a stage that cannot be replicated", replicas(replicas__stages=["planner", "sampler", "disk", "trainer"]),
         (45, "replicas.stages[0]", "planner cannot have replicas, because it cannot share work with them")),
    Case("a stage with a place of its own", replicas(stages__disk__place={"device": "cpu:3"}),
         ('"device": "cpu:3"', "stages.disk.place.device", "replicas.places says where the replicas of stage disk run")),
    Case("grains that replicas do not divide", replicas(replicas__places=["cpu:0", "cpu:1", "cpu:2"]),
         ('"grains": 8', "params.grains", "grains is 8, and 3 replicas cannot divide it equally")),
    Case("fewer grains than replicas", replicas(params__grains=1),
         ('"grains": 1', "params.grains", "grains is 1, and 2 replicas cannot divide it equally")),
    Case("grains that make no tree", replicas(params__grains=6),
         ('"grains": 6', "params.grains", "expected a power of two from 1 to 64, found 6")),
    Case("other grains in the trainer", replicas(stages__trainer__params__grains=4),
         ('"grains": 4', "stages.trainer.params.grains", "trainer.grains is 4, but sampler.grains is 8")),
    Case("batch norm", replicas(stages__trainer__params__norm="batch", stages__sampler__params={"overflow": "error"}),
         (lambda text: text[:text.index('"run": "trainer"')].count("\n") + 2, "stages.trainer.params",
          "norm=batch requires whole batches, but sampler can split a batch because of grains=8")),
    Case("a stage that is left outside", replicas(replicas__stages=["sampler", "disk"]),
         (link(2), "links[2]", "stage disk has replicas, but stage trainer, which gets their slots, has none: add trainer "
                               "to replicas.stages")),
    Case("too many stages", replicas(params__grains=16, stages__sampler__instances=4,
                                     replicas__places=[f"cpu:{i}" for i in range(16)]),
         ('"stages": {', "stages", "the pipeline needs 97 instances of stages", "at most 64 are allowed")),
]


NVME = {"backend": "nvme", "drives": "0000:01:00.0,0000:02:00.0"}

CASES += [
    Case("replicas on the same drives", replicas(stages__disk__params=NVME),
         ('"drives": ', "stages.disk.params.drives", "with backend=nvme, only one process can use the drives "
          "0000:01:00.0,0000:02:00.0, but stage disk has 2 replicas: expected one copy of the stage")),
    Case("instances on the same drives",
         replicas(replicas__places=["cpu:0"], stages__disk__params=NVME, stages__disk__instances=2),
         ('"drives": ', "stages.disk.params.drives", "but stage disk has 2 instances")),
    Case("two stages on the same drive",
         replicas(replicas__stages=["sampler", "trainer"], replicas__places=["cpu:0"], stages__disk__params=NVME,
                  stages__other={"run": "disk", "params": {**NVME, "drives": "0000:03:00.0,0000:02:00.0"}},
                  links=[{"from": "planner.plan", "to": "sampler.plan"},
                         {"from": "sampler.batch", "to": "disk.requests", "slots": 4},
                         {"from": "disk.done", "to": "trainer.batch"},
                         {"from": "sampler.lists", "to": "other.requests", "slots": 4},
                         {"from": "other.done", "to": "sampler.listed", "back": True}], params__topology="ssd"),
         ('"drives": "0000:03', "stages.other.params.drives",
          "only one process can use 0000:02:00.0, but stage disk has it among its drives, too")),
]


@test
def mistakes_in_replicas_are_told():
    all_refused(CASES)


@test
def copies_of_a_program_cannot_share_an_endpoint():
    with Place() as p:
        odd = describes(p, "odd.sh", replicas="each")
        def pipeline(port, **changes):
            return change({"penstock": 1, "name": "t",
                           "stages": {"a": stage("source"), "b": {"run": odd, "endpoint": f"tcp://127.0.0.1:{port}"},
                                      "c": {"run": "discard"}},
                           "replicas": {"stages": ["b", "c"], "places": ["cpu:0", "cpu:1"]},
                           "links": [{"from": "a.out", "to": "b.in"}, {"from": "b.out", "to": "c.in"}]}, changes)
        told = ('"endpoint": ', "stages.b.endpoint", "stage b has 2 replicas, which cannot all listen at tcp://127.0.0.1:5555: "
                "expected a free port for each, tcp://127.0.0.1:*")
        all_refused([Case("a fixed port", pipeline(5555), told),
                     Case("instances", pipeline(5555, replicas=DROP, stages__b__instances=2), (told[0], told[1], "has 2 instances"))])
        with open(p.path("free.json"), "w") as f:
            json.dump(pipeline("*"), f)
        command("check", p.path("free.json"))


@test
def more_replicas_than_vertices_are_told():
    with Place() as p:
        data = p.path("tiny")
        command("gen", "community", data, "--vertices", "1000", "--train", "0.005", "--seed", "3")
        r = p.run(replicas(replicas__places=[f"cpu:{i}" for i in range(8)]), data=data, code=2)
        assert "has only" in r.err and "8 replicas" in r.err and "replicas.places" in r.err, r
        assert not os.path.exists(os.path.join(r.run_dir, "report.json")), r


@test
def a_replica_without_seeds_is_told():
    """There are enough vertices, but the hash gives one replica none of them."""
    with Place() as p:
        data = p.path("tiny")
        command("gen", "community", data, "--vertices", "1000", "--train", "0.008", "--seed", "3")
        r = p.run(replicas(replicas__places=[f"cpu:{i}" for i in range(8)], params__shuffle="local"), data=data, code=2)
        assert "would get none of the 8 vertices" in r.err and "replicas.places" in r.err, r
        assert not os.path.exists(os.path.join(r.run_dir, "report.json")), r


@test
def replicas_are_drawn():
    out = command("graph", SHIPPED_REPLICAS).stdout
    for name in ("sampler", "disk", "trainer"):
        for r in range(2):
            assert f'"{name}.{r}<br/>{name} on cpu:{r}"' in out, out
    assert "copy" not in out, out
    assert out.count('|"plan"|') == 2, out


@test
def the_schema_knows_replicas():
    import jsonschema
    made = json.loads(command("schema").stdout)
    fits = lambda **changes: jsonschema.Draft7Validator(made).is_valid(replicas(**changes))
    assert fits() and fits(replicas__places=["cuda:0", {"device": "cuda:1", "cores": "0-3"}])
    for places in ([], ["auto"], ["cpu:16"], [3], [{"cores": "0"}], ["cpu:0"] * 17):
        assert not fits(replicas__places=places), places
    assert not fits(replicas__stages=[]) and not fits(replicas__more=1) and not fits(params__grains=6)


@test
def a_description_says_what_replicas_may_be_made():
    stages = {name: json.loads(command("stages", name, "--json").stdout) for name in ("trainer", "disk", "planner")}
    assert stages["trainer"]["replicas"] == "meet" and stages["disk"]["replicas"] == "each", stages
    assert "replicas" not in stages["planner"], stages["planner"]
    divided = [p["name"] for p in stages["trainer"]["params"] if p["divided"]]
    assert divided == ["grains"], divided


def legion(**changes):
    with open(LEGION) as f:
        return change(json.load(f), {"replicas__places": ["cuda:0", "cuda:1"], **changes})


@test
def replicas_on_gpus_can_share_caches():
    """Virtual GPUs (kernels/cuda/host) stand for real ones. test_ranks.py: several machines are refused."""
    os.environ["PENSTOCK_CUDA"] = os.path.join(BUILD, "tests", "libpenstock-cuda-host.so")
    try:
        with Place() as p:
            command("check", p.write(legion()))
            command("check", p.write(legion(replicas__places=["cpu:1", "cpu:2"])))
            command("check", p.write(legion(replicas__places=["cuda:0", "cpu:1"])), code=2)
    finally:
        del os.environ["PENSTOCK_CUDA"]


if __name__ == "__main__":
    main()
