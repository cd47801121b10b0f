"""A checkpoint of another version of Penstock is refused by name, with what to do."""
import glob

from harness import *
from importing import xxh3
from inferring import infer

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
SMALL = ["--set", "params.batch=256", "--set", "params.fanout=[3,2]", "--set", "stages.trainer.params.hidden=8", "--quiet"]


def rewrite(path, old, new):
    """Changes the text of a checkpoint's header, and its checksum, as the version would have written it."""
    with open(path, "rb") as f:
        data = f.read()
    assert data.count(old) == 1 and len(old) == len(new)
    data = data.replace(old, new)
    at = data.index(b'"checksum":"') + len(b'"checksum":"')
    data = data[:at] + b"0" * 16 + data[at + 16:]
    with open(path, "wb") as f:
        f.write(data[:at] + xxh3(data[8:]).encode() + data[at + 16:])


@test
def an_earlier_checkpoint():
    with Place() as p:
        first = p.run(HYPERION, *SMALL, "--epochs", 1)
        for path in glob.glob(os.path.join(first.run_dir, "checkpoints", "*")):
            rewrite(path, b"penstock-checkpoint-2", b"penstock-checkpoint-1")
        words = ("was written by another version of Penstock: its format is \"penstock-checkpoint-1\", but this version reads and writes "
                 "\"penstock-checkpoint-2\". Use the version that wrote it (\"version\" and \"commit\" in the report.json of its run), or train "
                 "again without --resume")
        # the metric differs, too, as parameters of an earlier version do: the version is the cause, and is told first
        r = p.run(HYPERION, *SMALL, "--epochs", 2, "--set", "stages.trainer.params.metric=macro_f1", "--resume", first.run_dir, code=2)
        assert words in r.err, r
        _, r = infer(p, first.run_dir, code=1)
        assert words in r.stderr, r.stderr


@test
def a_checkpoint_of_something_else():
    with Place() as p:
        first = p.run(HYPERION, *SMALL, "--epochs", 1)
        for path in glob.glob(os.path.join(first.run_dir, "checkpoints", "*")):
            rewrite(path, b"penstock-checkpoint-2", b"somebody-checkpoint-9")
        _, r = infer(p, first.run_dir, code=2)
        assert 'is not a checkpoint of the trainer: its format is "somebody-checkpoint-9", expected "penstock-checkpoint-2"' in r.stderr, r.stderr


if __name__ == "__main__":
    main()
