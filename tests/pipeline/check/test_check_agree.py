"""Stages that do not fit together, or a dataset that lacks what they need: refused before anything starts."""
from check_cases import *

PASSES = '''#include "stage.h"
static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    return event->kind == PST_EV_FRAME ? pst_send(self, pst_port(self, "out"), event->frame) : PST_OK;
}
static const struct pst_port_desc ports[] = {
    {.name = "in", .dir = PST_IN, .help = "h", .type = "any", .dtype = "any", .rank = -1, .memory = "cpu",
     .requests = %s},
    {.name = "out", .dir = PST_OUT, .help = "h", .type = "any", .dtype = "any", .rank = -1, .memory = "cpu",
     .forwards = "in"},
    {0}};
const struct pst_stage_desc pst_stage = {.abi = PST_STAGE_ABI, .name = "passes", .help = "h", .ports = ports,
                                         .on_event = on_event};
'''


def train(*chain, **stages):
    """planner -> sampler -> what is in the chain -> trainer."""
    made = {"planner": stage("planner", cpu_cache="64KiB"), "sampler": stage("sampler"),
            "trainer": stage("trainer"), **stages}
    ends = ["planner.plan", "sampler.plan", "sampler.batch"]
    for name in chain:
        ends += [f"{name}.requests", f"{name}.done"] if name.startswith("disk") else [f"{name}.in", f"{name}.out"]
    return pipeline(made, links(*ends, "trainer.batch"), params={"fanout": [5, 5], "batch": 256})


def disk():
    return stage("disk", backend="pread")


def foreign(p, **ports):
    """A program that forwards anything."""
    return {"run": describes(p, "foreign" + ports.get("requests", ""), ports=[
        {"name": "in", "dir": "in", "help": "i", "type": "any", **ports},
        {"name": "out", "dir": "out", "help": "o", "type": "any", "forwards": "in"}])}


UNREAD = ("trainer.batch needs data that sampler.batch requests", "requests, but no stage between them reads it")

CASES = [
    Case("no disk", train(), (link(1, "to"), "links[1].to", *UNREAD, "(sampler -> trainer)", "for example disk")),
    Case("only a passthrough", train("a", a=stage("passthrough")),
         (link(2, "to"), "links[2].to", *UNREAD, "(sampler -> a -> trainer)")),
    Case("only a program", lambda p: train("a", a=foreign(p)), (link(2, "to"), "links[2].to", *UNREAD)),
    Case("only the copy between devices", train("a", a=stage("copy")), (link(2, "to"), "links[2].to", *UNREAD)),
    Case("a program that needs rows before the disk", lambda p: train("a", "disk", a=foreign(p, requests="needs"), disk=disk()),
         (link(1, "to"), "links[1].to", "a.in needs data that sampler.batch requests")),
    Case("a fan-out around the disk",
         lambda p: change(train("disk", disk=disk(), late=stage("discard")), {
             "links__1__to": "trainer.batch", "links__2": {"from": "sampler.batch", "to": "disk.requests"},
             "links__add": {"from": "disk.done", "to": "late.in"}}),
         (link(1, "to"), "links[1].to", *UNREAD), ('"disk": {', "stages.disk", "this stage changes slots, and trainer holds the same slots at the same time")),
    Case("fanouts", train("disk", disk=disk(), planner=stage("planner", fanout=[5, 4])),
         ('"fanout": [', "stages.planner.params.fanout", "sampler.fanout is [5, 5], but planner.fanout is [5, 4]", 'sets both')),
    Case("batches", train("disk", disk=disk(), sampler=stage("sampler", batch=128)),
         ('"batch"', "stages.sampler.params.batch", "sampler.batch is 128, but planner.batch is 256")),
    Case("replace", train("disk", disk=disk(), sampler=stage("sampler", replace=True)),
         ('"replace"', "stages.sampler.params.replace", "sampler.replace is true, but planner.replace is false")),
    Case("splits", train("disk", disk=disk(), planner=stage("planner", split="val")),
         ('"split": "val"', "stages.planner.params.split", 'sampler.split is "train", but planner.split is "val"')),
    Case("hops and layers", train("disk", "a", disk=disk(), a=stage("passthrough"), trainer=stage("trainer", layers=3)),
         ('"layers"', "stages.trainer.params.layers",
          "trainer.layers is 3, but sampler.fanout is [5, 5], a list of 2 elements")),
    Case("hops and layers through a copy",
         train("disk", "a", disk=disk(), a=stage("copy"), trainer=stage("trainer", layers=3)),
         ('"layers"', "stages.trainer.params.layers", "a list of 2 elements")),
    *[Case(f"{n} hops", change(train("disk", disk=disk()), {"params__fanout": [2] * n}),
           ('"fanout": [', "params.fanout", f"expected a list of 1 to 8 integers, found {n}"),
           ) for n in (0, 9, 100)],
    Case("two trainers", change(train("disk", disk=disk()), {"stages__trainer__instances": 2}),
         ('"instances"', "stages.trainer.instances", "trainer cannot have 2 instances; at most 1")),
    Case("no drives", train("disk", disk=stage("disk", backend="nvme")),
         (lambda text: lines(text, '"backend"') - 1, "stages.disk.params", "backend=nvme needs the parameter drives")),
    Case("a group with another stage's name", change(train("disk", disk=disk()), {"stages__trainer__group": "disk"}),
         ('"group"', "stages.trainer.group", "the group cannot have the name of stage disk")),
    *[Case(f"no device in {where}", change(train("disk", disk=disk()), {where: {"device": ""}}),
           ('"device": ""', where.replace("__", ".") + ".device", "expected cpu:N, cuda:N or auto"))
      for where in ("place", "stages__disk__place")],
]


@test
def stages_that_do_not_fit():
    all_refused(CASES)


@test
def stages_that_fit():
    """What serves requests, wherever it is in the chain; parameters that only one of two stages has."""
    with Place() as p:
        os.environ["XDG_CACHE_HOME"] = p.path("cache")
        for made in (train("disk", disk=disk()), train("a", "disk", a=stage("passthrough"), disk=disk()),
                     train("disk", "disk2", disk=disk(), disk2=disk()),
                     train("a", a=foreign(p, requests="serves")),
                     train("disk", "a", disk=disk(), a=foreign(p, requests="needs")),
                     change(train("disk", disk=disk()), {"stages__trainer": foreign(p), "links__2__to": "trainer.in",
                                                         "links__add": {"from": "trainer.out", "to": "end.in"},
                                                         "stages__end": stage("discard")})):
            command("check", p.write(made))
        del os.environ["XDG_CACHE_HOME"]


@test
def a_stage_that_serves_nothing():
    """Its description says that it serves requests: the trainer notices."""
    with Place() as p:
        run = compiled(p, "passes.so", PASSES % "PST_REQUESTS_SERVES")
        r = p.run(train("a", a={"run": run}), code=1)
        assert "requested feature rows were never read" in r.err and "trainer" in r.err, r.err
        r = p.run(train("disk", "a", disk=disk(), a={"run": run}))
        one = r.report["weights_digest"]
        r = p.run(train("disk", "disk2", disk=disk(), disk2=disk()))  # the second finds nothing to do
        assert r.report["weights_digest"] == one
        assert r.report["io"]["rows"] == p.run(train("disk", disk=disk())).report["io"]["rows"]


# ---- datasets ----------------------------------------------------------------------------------------

def no_start(p, *args):
    """check and run say the same and start nothing."""
    check = command("check", *args, code=2)
    ran = command("run", "--run-dir", p.path("never"), *args, code=2)
    assert check.stderr == ran.stderr.replace("penstock run", "penstock check") and not os.path.exists(p.path("never")), (check.stderr, ran.stderr)
    return check.stderr.strip().split("\n")


def without(data, array):
    """Takes an array out of a dataset."""
    manifest = os.path.join(data, "dataset.json")
    with open(manifest) as f:
        said = json.load(f)
    del said["arrays"][array]
    if array == "labels":
        said["classes"] = 0
    with open(manifest, "w") as f:
        json.dump(said, f)
    os.remove(os.path.join(data, array + ".npy"))


@test
def datasets_that_lack_something():
    with Place() as p:
        file = p.write(train("disk", disk=disk()))
        command("check", "--dataset", p.data, file)
        bare = p.path("bare")
        command("gen", "rmat", bare, "--vertices", "300", "--edges", "900", "--features", "0")
        err = no_start(p, "--dataset", bare, file)
        assert len(err) == 1 and f"{file}:" in err[0] and "stages.trainer: trainer needs features" in err[0], err
        without(p.data, "val")
        err = no_start(p, "--dataset", p.data, "--set", "params.split=val", file)
        assert len(err) == 1 and "has no split \"val\" (`penstock split` makes splits)" in err[0], err
        assert err[0].startswith("--set: params.split: "), err
        without(p.data, "labels")
        err = no_start(p, "--dataset", p.data, file)
        assert len(err) == 1 and "stages.trainer: trainer needs labels of at least 2 classes, but" in err[0], err
        assert p.path("nowhere") in no_start(p, "--dataset", p.path("nowhere"), file)[0]


if __name__ == "__main__":
    main()
