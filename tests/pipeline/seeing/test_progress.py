"""What a terminal shows during a run: the progress line, and colours unless NO_COLOR forbids them."""
import pty
import re
import subprocess

from harness import *

HYPERION = os.path.join(ROOT, "pipelines", "hyperion.json")
LINE = re.compile(r"epoch (\d+)/40  batch (\d+)/(\d+)(  loss [\d.]+)?(  [\d.]+ MB/s)?  [\d.]+ batches/s  \d+ s left")


def on_a_terminal(p, name, epochs, *more, **env):
    """What the run writes to standard error, which is a terminal."""
    ours, theirs = pty.openpty()
    argv = [PENSTOCK, "run", HYPERION, "--dataset", p.data, "--run-dir", p.path(name), "--epochs", str(epochs), "--set", "params.batch=64",
            "--set", "stages.planner.params.cpu_cache=0", "--set", "stop.metric=val_mrr", *(["--group", "all"] if GROUPED else []), *more]
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm"} | env
    run = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=theirs, env=environment)
    os.close(theirs)
    text = b""
    try:
        while part := os.read(ours, 65536):
            text += part
    except OSError:
        pass  # the other end is closed
    os.close(ours)
    assert run.wait(60) == 0, text
    return text.decode()


@test
def the_progress_line_and_its_colours():
    with Place() as p:
        text = on_a_terminal(p, "coloured", 40)
        lines = list(LINE.finditer(text))
        assert lines and text.count("batches/s") == len(lines), text
        assert any(m[4] for m in lines) and any(m[5] for m in lines), text
        assert all(0 < int(m[1]) <= 40 and 0 < int(m[2]) <= int(m[3]) for m in lines), text
        assert "\033[33mwarning:\033[0m supervisor: `stop` waits for the metric val_mrr" in text, text
        plain = on_a_terminal(p, "plain", 4, NO_COLOR="1")
        assert "warning: supervisor: `stop` waits" in plain and "\033[3" not in plain, plain


@test
def planning_and_evaluation_are_shown():
    """Before the first batch and between epochs a terminal shows what the run does, and `top` says it, too."""
    with Place() as p:
        command("gen", "community", p.data, "--vertices", 60000, "--train", 0.04, "--val", 0.001, "--force", "--quiet")
        slow = [a for s in ("planner.params.hotness=presample", "planner.params.epochs=1000", "trainer.params.hidden=1024") for a in ("--set", "stages." + s)]
        text = on_a_terminal(p, "slow", 2, "--set", "params.batch=20", *slow)
        steps = [tuple(map(int, m)) for m in re.findall(r"planning  batch (\d+)/(\d+)  \d+ s", text)]
        assert steps == sorted(steps) and len(steps) > 1 and 0 < steps[0][0] < steps[0][1], text
        assert re.search(r"epoch 1/2  batch \d+/\d+.*?  evaluation  \d+ s", text), text


@test
def a_log_gets_a_line_now_and_then():
    with Place() as p:
        pl = pipeline({"source": stage("source", batches=4), "sink": stage("sink", delay_us=9_000_000)}, links("source.out", "sink.in"))
        jobs = [p.start(pl, *more) for more in ([], ["--quiet"])]
        plain, quiet = (job.wait(60) for job in jobs)
        assert re.search(r"^epoch 1/\d+  batch \d/4  .*batches/s  \d+ s left$", plain.err, re.M) and "\r" not in plain.err + quiet.err, plain
        assert plain.err.count(" s left") == 1 and " s left" not in quiet.err, (plain, quiet)


if __name__ == "__main__":
    main()
