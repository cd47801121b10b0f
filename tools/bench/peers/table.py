"""The table of a side-by-side bench, in Markdown; and putting it into the README, where two comments mark its place."""
import os
import textwrap

LINE = 120  # characters of a line of text
README = os.path.join(os.path.dirname(os.path.abspath(__file__)), "README.md")


def extent(values):
    import statistics
    return {"median": statistics.median(values), "least": min(values), "greatest": max(values), "runs": len(values)}


def cell(e, digits):
    return f"{e['median']:.{digits}f} ({e['least']:.{digits}f} to {e['greatest']:.{digits}f})"


def settings_of(chosen):
    return ", ".join(f"{key} {str(value).lower() if isinstance(value, bool) else value}" for key, value in chosen.items())


def markdown(result, machine):
    """result: what side_by_side returns. One row for each peer, those that could not be measured last, with the reason."""
    rows = result["peers"]
    outofcore = result["limit_mib"] is not None
    more = ("read, GiB", "peak, MiB") if outofcore else ()
    head = ("", "epoch, s", "/ Penstock", "processor, s", *more, "settings")
    pairs = "one pair" if result["pairs"] == 1 else f"{result['pairs']} pairs"
    title = (f"{result['title']}. {machine['cpu']}, {machine['cores']} cores, {machine['date']}, {machine['commit']}, load at the start "
             f"{machine['load']:.1f}. Medians of {pairs}, with the least and the greatest.")
    lines = [textwrap.fill(title, LINE), "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, row in rows.items():
        cells = [f"{row['what']} ({row['versions']})" if name != "penstock" else row["what"], cell(row["epoch_s"], 3),
                 cell(row["ratio"], 2) if name != "penstock" else "1", f"{row['cpu_s']:.1f}"]
        cells += [f"{row['read_gib']:.2f}", f"{row['peak_mib']:.0f}"] if outofcore else []
        lines.append("| " + " | ".join([*cells, settings_of(row["settings"])]) + " |")
    for missing in result["not_measured"].values():
        lines.append("| " + " | ".join([missing["what"], "not measured", *[""] * (len(head) - 3), missing["why"].replace("|", "/")]) + " |")
    return "\n".join(lines) + "\n"


def put(name, text, path=README):
    """Replaces what is between <!-- NAME --> and <!-- end of NAME -->."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    with open(path) as f:
        page = f.read()
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"{path}: expected {begin} and, after it, {end}, once each")
    before, after = page[:page.index(begin) + len(begin)], page[page.index(end):]
    with open(path + ".new", "w") as f:
        f.write(f"{before}\n{text}{after}")
    os.replace(path + ".new", path)
