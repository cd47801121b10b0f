"""penstock compare: turns, ratios, equal results, the chart, and what is refused."""
import xml.etree.ElementTree as xml

from harness import *

PIPELINES = [os.path.join(ROOT, "pipelines", name + ".json") for name in ("hyperion", "gids")]
SMALL = ("--epochs", 1, "--set", "params.batch=128")


@test
def ratios_of_medians():
    with Place() as p:
        chart = p.path("chart.svg")
        found = json.loads(command("compare", *PIPELINES, "--dataset", p.data, *SMALL, "--pairs", 3, "--same-result", "--svg", chart, "--json").stdout)
        first, second = found["pipelines"]
        assert found["pairs"] == 3 and found["same_result"] and len(first["seconds"]) == len(second["seconds"]) == 3
        assert first["times_faster"] == 1 and first["quartiles_faster"] == [1, 1]
        assert abs(second["times_faster"] - sorted(first["seconds"])[1] / sorted(second["seconds"])[1]) < 1e-9
        assert first["quartiles_s"][0] <= first["median_s"] <= first["quartiles_s"][1]
        assert xml.parse(chart).getroot().tag.endswith("svg")
        text = command("compare", *PIPELINES, "--dataset", p.data, *SMALL, "--pairs", 1).stdout
        assert "equal weights" in text and "gids.json" in text, text


@test
def different_results_are_an_error():
    with Place() as p:
        with open(PIPELINES[0]) as f:
            pl = json.load(f)
        pl["stages"]["trainer"]["params"]["rate"] = 0.02
        other = p.write(pl)
        args = ("compare", PIPELINES[0], other, "--dataset", p.data, *SMALL, "--pairs", 1)
        assert "DIFFERENT weights" in command(*args).stdout
        r = command(*args, "--same-result", code=1)
        assert "ended with the weights" in r.stderr, r.stderr


@test
def mistakes_are_told():
    with Place() as p:
        for args, words in ((PIPELINES[:1], "at least two"), ([*PIPELINES, "--pairs", 0], "--pairs"),
                            ([PIPELINES[0], p.path("none.json"), "--dataset", p.data, *SMALL, "--pairs", 1], "none.json"),
                            ([*PIPELINES, "--set", "params.nothing=1", "--dataset", p.data], "nothing")):
            r = command("compare", *args, code=2)
            assert words in r.stderr, (args, r.stderr)


if __name__ == "__main__":
    main()
