"""penstock tpc: predictions from a profile whose answer is known, a real profile, prices and their mistakes; and
`run --batches`, with which it profiles."""
import struct

from crash import HYPERION
from harness import *

# One P5510 brings 48e6 transactions of 64 bytes a second: this batch takes it 0.1 s. Training takes 0.03 s: four are best.
VERDICT = {"batches": 10, "samples_per_batch": 1000, "t_train_s": 0.03, "n_ssd": 4.8e6, "n_mem": 0, "access_bytes": 4096,
           "th_ssd": 48e6, "th_pcie": None, "ssds": 2, "alpha_s": 0, "why": {"th_pcie": "this test has no bus"}}
SCORES = [4, 0, 1, 3, 2]  # of all lookups, the hottest row has 40 %, the next 30 %, ...
BASE_USD = 14098 + 14177 + 17000


def profile(p, name="profile", scores=SCORES, **changes):
    """A run's directory with this verdict."""
    run = p.path(name)
    os.makedirs(os.path.join(run, "plan"))
    report = {"status": changes.pop("status", "ok"), "verdict": {**VERDICT, **changes}, "io": {"model": {"preset": "p5510", "dilate": 1}},
              "dataset": {"vertices": 5, "feature_bytes": 5 * 4096}, "sampler": {"batches": 10},
              "cache": {"rows": 1, "hits": 400, "lookups": 1000}, "trainer": {"gradient_bytes": 12_500_000}}
    with open(os.path.join(run, "report.json"), "w") as f:
        json.dump(report, f)
    if scores:
        head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': (2, {len(scores)})}}".ljust(117) + "\n"
        with open(os.path.join(run, "plan", "hotness.npy"), "wb") as f:
            f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + struct.pack(f"<{2 * len(scores)}f", *[9] * len(scores), *scores))
    return run


def answer(run, *args):
    return json.loads(command("tpc", "--from", run, "--json", *args).stdout)


def near(found, wanted):
    assert abs(found - wanted) <= 1e-6 * abs(wanted), f"expected {wanted}, found {found}"


@test
def a_known_profile():
    with Place() as p:
        run = profile(p)
        a = answer(run)
        assert a["now"]["ssds"] == 2 and a["now"]["bound_by"] == "ssd" and a["now"]["t_pcie_s"] is None, a["now"]
        near(a["now"]["t_ssd_s"], 0.05)
        near(a["now"]["cost_usd"], BASE_USD + 2 * 308)
        near(a["now"]["tpc"], 1000 / 0.05 / (BASE_USD + 2 * 308))
        assert (a["best_ssds"]["gpu"], a["best_ssds"]["ssd"], a["best_ssds"]["ssds"], a["best_ssds"]["bound_by"]) == ("a100", "p5510", 4, "train"), a
        assert (a["best"]["gpu"], a["best"]["ssd"], a["best"]["ssds"], a["best"]["bound_by"]) == ("h800", "980pro", 10, "train"), a["best"]
        assert len(a["options"]) == 2 * 2 * 16 and max(o["tpc"] for o in a["options"]) == a["best"]["tpc"]
        twelve = next(o for o in a["options"] if (o["gpu"], o["ssd"], o["ssds"]) == ("h800", "p5510", 12))
        near(twelve["t_train_s"], 0.03 * 19.5 / 51)
        near(twelve["cost_usd"], 78794)
        assert {name: s["usd"] for name, s in a["systems"].items()} == {"A": 48971, "B": 78794, "C": 8 * 45275}
        out = command("tpc", "--from", run).stdout
        assert "A: 48,971 dollars" in out and "B: 78,794 dollars" in out and "C: 8 x 45,275 = 362,200 dollars" in out, out
        assert "SSDs only: Add 2 p5510: the TPC is then 1.64 times as high" in out and "and the 2 p5510 by 10 980pro" in out and "T_pcie is unknown, because this test has no bus" in out, out


@test
def limits():
    with Place() as p:
        run = profile(p, th_pcie=1e8)
        near(answer(run)["now"]["t_pcie_s"], 0.048)
        assert answer(run, "--slots", "2")["best"]["ssds"] == 2
        cheap = answer(run, "--budget", str(BASE_USD + 250))  # two 980 Pro, no P5510
        assert (cheap["best"]["ssd"], cheap["best"]["ssds"], len(cheap["options"])) == ("980pro", 2, 2), cheap["best"]
        assert cheap["best_ssds"] is None and "No such system is within the budget" in cheap["hint"], cheap["hint"]
        none = answer(run, "--budget", "100")
        assert none["best"] is None and none["options"] == [] and "No such system is within the budget" in none["hint"], none
        assert "none is within the budget" in command("tpc", "--from", run, "--budget", "100").stdout


@test
def cache_sizes():
    """With one cached row, 60 % of lookups missed. The two hottest rows leave 30 %, all rows nothing."""
    with Place() as p:
        a = answer(profile(p))
        assert [c["rows"] for c in a["caches"]] == [0, 1, 2, 5], a["caches"]
        for c, missed in zip(a["caches"], (1, 0.6, 0.3, 0)):
            near(c["now"]["t_ssd_s"], 0.05 * missed / 0.6)
            near(c["bytes"], c["rows"] * 4096)
        assert a["caches"][3]["best"]["ssds"] == 1 and a["caches"][3]["now"]["bound_by"] == "train", a["caches"][3]
        # everything is cached: nothing was read, so rows count as they are stored, at the prices' rate
        b = answer(profile(p, "cached", scores=[1, 0, 0, 0, 0], n_ssd=0, th_ssd=None, access_bytes=None))
        assert b["now"]["t_ssd_s"] == 0 and b["now"]["bound_by"] == "train", b["now"]
        near(b["caches"][0]["now"]["t_ssd_s"], 100 * 4096 / 3.072e9 / 2)
        c = answer(profile(p, "bare", scores=None))
        assert c["caches"] == [] and "no plan/hotness.npy" in c["profile"]["caches_unknown"], c
        for scores, told in (([1, -1, 0, 0, 0], "a hotness score of -1"), ([0] * 5, "all hotness scores of the plan are 0"), ([1] * 4, "of 5 vertices")):
            c = answer(profile(p, f"bad{told[:5]}{len(scores)}", scores=scores))
            assert c["caches"] == [] and told in c["profile"]["caches_unknown"], c["profile"]


@test
def unusable_runs():
    with Place() as p:
        for name, changes, told in (("a", {"n_ssd": None, "why": {"n_ssd": "nobody counted"}}, "does not contain verdict.n_ssd, which the prediction needs: nobody counted"),
                                    ("b", {"status": "failed"}, "describes a run that failed"),
                                    ("c", {"t_train_s": "fast"}, "does not contain verdict.t_train_s")):
            r = command("tpc", "--from", profile(p, name, **changes), code=None)
            assert r.returncode in (1, 2) and told in r.stderr and r.stdout == "", r
        assert "No such file" in command("tpc", "--from", p.path("nowhere"), code=2).stderr
        broken = p.path("broken")
        os.mkdir(broken)
        for text, told in (("{", "report.json:1"), ("[]", "report.json"), ("{}", 'no section "verdict"')):
            with open(os.path.join(broken, "report.json"), "w") as f:
                f.write(text)
            r = command("tpc", "--from", broken, code=None)
            assert r.returncode in (1, 2) and told in r.stderr, (text, r)


@test
def mistakes():
    with Place() as p:
        run = profile(p)
        prices = json.loads(command("tpc", "--show-prices").stdout)
        good = p.write(prices, "good.json")
        assert answer(run, "--prices", good) == answer(run)

        def told(change, *parts):
            wrong = json.loads(json.dumps(prices))
            change(wrong)
            r = command("tpc", "--from", run, "--prices", p.write(wrong, "wrong.json"), code=2)
            assert all(part in r.stderr for part in ("wrong.json:", *parts)) and r.stdout == "", r

        told(lambda w: w["ssds"]["p5510"].pop("usd"), "ssds.p5510", 'the key "usd" is missing')
        told(lambda w: w["gpus"]["a100"].update(usd=-1), "gpus.a100.usd", "at least 0, found -1")
        told(lambda w: w.update(machine_usd="14098"), "machine_usd", "expected a number, found a string")
        told(lambda w: w.update(machin_usd=1), "machin_usd", 'did you mean "machine_usd"?')
        told(lambda w: w["ssds"]["p5510"].update(iops=float("nan")), "not JSON")
        told(lambda w: w["systems"]["A"].update(ssd="p5511"), "systems.A.ssd", '"p5511" is not one of the names in "ssds"')
        for args, part in ((["--budget", "much"], "--budget: expected a number"), (["--budget", "-1"], "at least 0"), (["--slots", "0"], "from 1 to 64"),
                           (["--gpu", "b200"], 'no GPU "b200"'), (["--ssd", "floppy"], 'no SSD "floppy"'), (["--prices", p.path("none")], "cannot open"),
                           (["--nonsense"], "--help"), ([HYPERION], "expected no pipeline file")):
            assert part in command("tpc", "--from", run, *args, code=2).stderr, args
        assert "expected one pipeline file" in command("tpc", code=2).stderr
        unnamed = profile(p, "unnamed")
        path = os.path.join(unnamed, "report.json")
        with open(path) as f:
            report = json.load(f)
        del report["io"]["model"]
        with open(path, "w") as f:
            json.dump(report, f)
        assert "name their model with --ssd" in command("tpc", "--from", unnamed, code=2).stderr
        assert answer(unnamed, "--ssd", "980pro")["now"]["ssd"] == "980pro"


@test
def a_real_profile():
    with Place() as p:
        run = p.path("profiled")
        r = command("tpc", HYPERION, "--dataset", p.data, "--run-dir", run, "--seed", 2, "--json", "--set", "params.batch=64", "--set",
                    "stages.planner.params.cpu_cache=100KiB", "--set", "stages.disk.params.backend=emulated", "--set",
                    "stages.disk.params.preset=980pro", "--set", "stages.disk.params.dilate=50", "--set", "stages.disk.params.ssds=2")
        a = json.loads(r.stdout)
        with open(os.path.join(run, "report.json")) as f:
            report = json.load(f)
        verdict = report["verdict"]
        assert report["status"] == "ok" and report["epochs"] == [] and verdict["batches"] == a["profile"]["batches"] == 10, report
        assert verdict["measured_batch_s"] > 0, verdict
        assert (a["now"]["ssd"], a["now"]["ssds"], a["profile"]["dilate"]) == ("980pro", 2, 50), a["now"]
        for mine, reported in (("t_ssd_s", "t_ssd_s"), ("t_train_s", "t_train_s"), ("t_batch_s", "t_batch_s")):
            near(a["now"][mine], verdict[reported])
        assert [c["rows"] for c in a["caches"]][-1] == 2000 and a["caches"][-1]["now"]["t_ssd_s"] < 1e-4, a["caches"]
        assert "run failed" not in r.stderr and not glob.glob("/tmp/penstock-tpc-*"), r
        assert command("tpc", HYPERION, "--dataset", p.path("none"), code=2).stdout == ""


MACHINES = os.path.join(ROOT, "pipelines", "machines")
EIGHT = ("--machine", os.path.join(MACHINES, "dgx-v100.json"))  # devices


@test
def steps_on_several_machines():
    """A batch reads 4.8e6 transactions, of which the SSDs bring 96e6 a second; it misses 60 rows of 4096 bytes."""
    with Place() as p:
        run = profile(p)
        scale = lambda *args, of=run: json.loads(command("scale", "--from", of, *EIGHT, "--nodes", "5", "--json", *args).stdout)
        a = scale("--nic", "100Gb")
        steps = {s["nodes"]: s for s in a["predicted"]}
        assert list(steps) == [1, 2, 4, 5] and a["given"]["devices"] == 8 and a["measured"]["batches"] == 10, a
        near(a["measured"]["missed_rows"], 60)
        near(a["given"]["nic_bytes_per_s"], 12.5e9)
        near(steps[4]["ssd_s"], 8 * 4.8e6 / 96e6)
        near(steps[4]["rows_s"], 8 * 60 * 3 / 4 * (4096 + 8) / 12.5e9)
        near(steps[4]["gradient_s"], 2 * (1e-3 + 5e-6))
        near(steps[5]["gradient_s"], 3 * (1e-3 + 5e-6))
        near(steps[4]["network_s"], steps[4]["rows_s"] + steps[4]["gradient_s"])
        assert steps[1]["network_s"] == 0 and {s["bound_by"] for s in a["predicted"]} == {"ssd"}, a
        near(steps[4]["step_s"], 0.4 + steps[4]["rows_s"])
        near(steps[4]["samples_per_s"], 4 * 8 * 1000 / steps[4]["step_s"])
        near(steps[4]["efficiency"], 0.4 / steps[4]["step_s"])
        slow = {s["nodes"]: s for s in scale("--nic", "0.02GB", "--latency", "0")["predicted"]}
        assert slow[1]["bound_by"] == "ssd" and slow[4]["bound_by"] == "network", slow
        near(slow[4]["step_s"], 2 * 0.625 + 8 * 60 * 3 / 4 * (4096 + 8) / 2e7)
        near(slow[4]["efficiency"], 0.4 / slow[4]["step_s"])
        idle = scale("--nic", "100Gb", of=profile(p, "cached", n_ssd=0))["predicted"]
        assert {s["bound_by"] for s in idle} == {"compute"} and idle[0]["ssd_s"] == 0, idle
        more = scale("--nic", "100Gb", "--cache", "8K", "--gradient", "1M")  # the two hottest rows: 30 % of look-ups miss
        assert more["given"]["cached_rows"] == 2 and more["given"]["gradient_bytes"] == 1 << 20, more
        near(more["predicted"][1]["rows_s"], 8 * 30 / 2 * (4096 + 8) / 12.5e9)
        near(more["predicted"][1]["ssd_s"], 0.2)
        out = command("scale", "--from", run, *EIGHT, "--nodes", "4", "--nic", "100Gb").stdout
        assert "Everything below is predicted" in out and out.count("ssd") == 3, out


@test
def mistakes_of_scale():
    with Place() as p:
        run, good = profile(p), ["--nodes", "4", "--nic", "100Gb"]
        unknown = profile(p, "unknown")
        with open(os.path.join(unknown, "report.json")) as f:
            report = json.load(f)
        for change, part in ((lambda r: r.pop("trainer"), "give it with --gradient SIZE"),
                             (lambda r: r.update(stages={"trainer.1": {}}), "several replicas of the trainer"),
                             (lambda r: r.pop("cache"), "how many feature rows a batch needs")):
            changed = json.loads(json.dumps(report))
            change(changed)
            with open(os.path.join(unknown, "report.json"), "w") as f:
                json.dump(changed, f)
            r = command("scale", "--from", unknown, *EIGHT, *good, code=2)
            assert part in r.stderr and r.stdout == "", (part, r)
        for args, part in (([*EIGHT, "--nodes", "4", "--nic", "fast"], '--nic: expected a rate above 0 in bits or bytes a second'),
                           ([*EIGHT, "--nodes", "0", "--nic", "1Gb"], "--nodes: expected"), ([*EIGHT, "--nodes", "4"], "--nic RATE is missing"),
                           (good, "--machine FILE is missing"), ([*EIGHT, *good, "--latency", "-1"], "at least 0 microseconds"),
                           ([*EIGHT, *good, HYPERION], "expected no pipeline file"), (["--machine", p.path("none"), *good], "cannot open")):
            assert part in command("scale", "--from", run, *args, code=2).stderr, args
        one_sided = p.write(json.dumps({"machine": 1, "name": "x", "sockets": [{"cores": 1, "memory_bytes": 1}], "devices": [
            {"socket": 0, "memory_bytes": 1, "links": [1]}, {"socket": 0, "memory_bytes": 1, "links": []}]}), "one-sided.json")
        assert "device 0 lists device 1, but not the reverse" in command("scale", "--from", run, "--machine", one_sided, *good, code=2).stderr


@test
def runs_of_some_batches():
    with Place() as p:
        for more in ([], ["--set", "stages.sampler.instances=2"]):
            r = p.run(HYPERION, "--set", "params.batch=64", "--epochs", 2, "--batches", 15, *more)
            assert r.report["trainer"]["batches"] == 15 and r.report["sampler"]["batches"] == 15, r.report["trainer"]
            assert len(r.report["epochs"]) == 1 and r.report["status"] == "ok", r.report["epochs"]  # 13 batches are an epoch
        rest = p.run(HYPERION, "--set", "params.batch=64", "--epochs", 2, "--resume", r.run_dir, "--batches", 3)
        assert rest.report["trainer"]["batches"] == 3, rest.report["trainer"]
        assert p.run(HYPERION, "--epochs", 1, "--batches", 10**12).report["status"] == "ok"
        assert "--batches: expected an integer" in p.run(HYPERION, "--batches", 0, code=2).err


if __name__ == "__main__":
    main()
