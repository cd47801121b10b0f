"""GIDS's Figure 8: the rate of bursts of accesses, and the model of it."""
import json

from . import svg
from .gids_bench import DRIVES, overhead_s, share_of_peak
from .lab import median
from .report import Figure, Result, verdict

NEAR = 0.10  # of the model
BUSY = 0.8  # shares of the peak from which on the model is judged
QUEUES = 16  # so that the largest burst fits the queues of one drive
BYTES = 512  # of an access: a drive that takes 4 KiB at its peak begins no more of them a second, and the core has less to move
SPAN = "4MiB"  # of each drive; filling it is most of a short measurement


def rate(lab, ssd, ssds, accesses):
    """IOPS of all drives, as if they were not dilated. Each burst takes as long as the sizes say, so that the core can emulate it."""
    s, peak = lab.size["burst"], DRIVES[ssd][0] * ssds
    dilate = max(1.0, round(max(s["burst_s"], accesses * s["access_s"]) / (accesses / peak + overhead_s(ssd)), 1))
    model = json.dumps({"latency_us": overhead_s(ssd) * 1e6})
    found = lab.bench_io("--burst", "--depth", accesses, "--queues", QUEUES, "--preset", ssd, "--ssds", ssds, "--span", SPAN, "--bytes", BYTES,
                         "--dilate", f"{dilate:g}", "--emulated", model, "--seconds", s["burst_s"])
    return found["iops"] * dilate


def point(lab, ssd, ssds, accesses):
    found = median([rate(lab, ssd, ssds, accesses) for _ in range(lab.size["alternations"])]) / (DRIVES[ssd][0] * ssds)
    model = share_of_peak(accesses, ssd, ssds)
    return [ssd, ssds, accesses, found, model, found / model]


def bursts(lab):
    s = lab.size["burst"]
    table = [point(lab, ssd, n, a) for ssd in DRIVES for n in s["ssds"] for a in s["accesses"]]
    judged = [r for r in table if r[4] >= BUSY]
    off = [r for r in judged if abs(r[5] - 1) > NEAR]
    holds, why = verdict(lab, {f"{len(off)} of {len(judged)} rates from {BUSY} of the peak on differ from the model by more than 10 %": not off})
    names = [str(a) for a in s["accesses"]]
    charts = {ssd: svg.lines(f"Bursts to {ssd}", "accesses at once", "share of the peak IOPS", names,
                             {f"{what}, {n} SSD": [r[k] for r in table if r[:2] == [ssd, n]] for n in s["ssds"] for what, k in (("measured", 3), ("model", 4))})
              for ssd in DRIVES}
    told = f"where it is at least {BUSY}, the measured rate is {min(r[5] for r in judged):.3f} to {max(r[5] for r in judged):.3f} of the model's; " if judged else ""
    return Result(("SSD", "SSDs", "accesses", "measured f", "model f(N)", "measured / model"), table, charts,
                  f"{told}over all bursts {min(r[5] for r in table):.3f} to {max(r[5] for r in table):.3f}", holds, why,
                  (f"f: of the peak of {', '.join(f'{ssd} {iops:.3g}' for ssd, (iops, _) in DRIVES.items())} IOPS of a drive. Driver and drives have one core. Accesses have "
                   f"{BYTES} bytes; the peak is that of 4 KiB.",
                   f"Each burst is dilated so that it takes {s['burst_s']} s, or {1e6 * s['access_s']:.0f} us for each access if that is longer, "
                   "with the launch of a kernel (25 us) and its end (5 us) in the latency.",
                   "The model takes one latency a burst. A drive's latencies are spread (sigma 0.1), and a burst ends with its last access, which matters where the burst "
                   "is not much longer than a latency: those points are not judged."))


FIGURES = (
    Figure("8", "bursts of accesses", "section 4.2, Figure 8",
           "the model predicts the bandwidth of a burst, above all near the peak; 95 % of the peak of an Optane take about 1,000 accesses",
           lambda size: len(DRIVES) * len(size["burst"]["ssds"]) * len(size["burst"]["accesses"]) * size["alternations"], bursts),
)
