"""tests/run counts what tests print, whoever prints it: its last line and its exit status decide what lands."""
from harness import *


def counts(*programs, group="check", **env):
    """What tests/run says of test programs that print these lines and end with these statuses."""
    with Place() as p:
        folder = p.path("tests" if group == "check" else f"tests/{group}")
        os.makedirs(folder)
        for i, (text, status) in enumerate(programs):
            path = os.path.join(folder, f"test_made_up_{i}")
            with open(path, "w") as f:
                f.write(f"#!/bin/sh\ncat <<'E'\n{text}\nE\nexit {status}\n")
            os.chmod(path, 0o755)
        # tests/run wants a path below the root; ours leads out of it again
        env = {**os.environ, "BUILD": os.path.relpath(p.dir, ROOT), "SAN": "", "TESTS_TWICE": "", "TESTS_BRIEF": "", "TESTS_BUT": "", "MADE_UP": p.dir, **env}
        r = subprocess.run([os.path.join(ROOT, "tests", "run"), group, "test_made_up"], env=env, capture_output=True, text=True)
        return (r.stdout.splitlines()[-1], r.returncode, r.stdout) if env["TESTS_TWICE"] else (r.stdout.splitlines()[-1], r.returncode)


@test
def passed_and_failed():
    assert counts(("ok 1 - a\nok 2 - b", 0)) == ("2 passed, 0 failed, 0 skipped", 0)
    assert counts(("ok 1 - a\nnot ok 2 - b", 1)) == ("1 passed, 1 failed, 0 skipped", 1)
    assert counts(("ok 1 - a", 3)) == ("1 passed, 1 failed, 0 skipped", 1)
    assert counts(("", 0)) == ("0 passed, 1 failed, 0 skipped", 1)
    assert counts(("ok 1 - a", 0), ("not ok 1 - a", 1)) == ("1 passed, 1 failed, 0 skipped", 1)


@test
def skipped():
    assert counts(("ok 1 - a # SKIP no data", 0)) == ("0 passed, 0 failed, 1 skipped", 0)
    assert counts(("ok 1 - a\nnot ok 2 # SKIP", 0)) == ("1 passed, 0 failed, 1 skipped", 0)  # as cmocka prints it
    assert counts(("not ok 1 # SKIP\nnot ok 2 - b", 1)) == ("0 passed, 1 failed, 1 skipped", 1)
    assert counts(("no GPU here", 77)) == ("0 passed, 0 failed, 1 skipped", 0)


@test
def other_groups_have_programs_in_c():
    assert counts(("ok 1 - a", 0), ("not ok 1 - b", 1), group="accept") == ("1 passed, 1 failed, 0 skipped", 1)


@test
def failures_get_a_second_run_where_asked():
    unsteady = ("ok 1 - a\nE\nif mkdir $MADE_UP/seen; then echo not ok 2 - b; exit 1; fi\ncat <<'E'\nok 2 - b", 0)
    assert counts(unsteady) == ("1 passed, 1 failed, 0 skipped", 1)
    last, code, out = counts(unsteady, TESTS_TWICE="1")
    assert "failed the first time: 2 - b" in out and "not ok" not in out, out
    assert (last, code) == ("2 passed, 0 failed, 0 skipped", 0) and "failed, and is run again; its first output:" in out, out
    assert counts(("ok 1 - a\nnot ok 2 - b", 1), ("ok 1 - c", 0), TESTS_TWICE="1")[:2] == ("2 passed, 1 failed, 0 skipped", 1)
    for report, first, passed in (
        ("AddressSanitizer: heap-use-after-free", "not ok 1 - a", 0),
        ("LeakSanitizer: detected memory leaks", "ok 1 - a", 0),
        ("LeakSanitizer: detected memory leaks", "not ok 1 - a\n# why\n" + 90 * "leaked\n", 1),  # a test that stopped halfway
    ):
        program = f"E\nif mkdir $MADE_UP/seen; then cat <<'E'; exit 1; fi\n{first}\n==7==ERROR: {report}\nE\ncat <<'E'\nok 1 - a", 0
        last, code, out = counts(program, TESTS_TWICE="1")
        assert code == 1 - passed and last.endswith(f" {1 - passed} failed, 0 skipped"), out
        assert "# why" in out or not passed, out


@test
def of_what_passed_nothing_is_printed_where_asked():
    out = counts(("ok 1 - a\nok 2 - b # SKIP no data", 0), TESTS_TWICE="1", TESTS_BRIEF="1")[2]
    assert out == "1 passed, 0 failed, 1 skipped\n", out
    out = counts(("ok 1 - a", 0), ("ok 1 - b\nthe reason\nnot ok 2 - c", 1), TESTS_TWICE="1", TESTS_BRIEF="1")[2]
    assert "the reason\n    not ok 2 - c\n" in out and "ok 1" not in out and "made_up_0" not in out, out


if __name__ == "__main__":
    main()
