#!/usr/bin/env python3
"""build_site.py BUILD OUT: writes the documentation as web pages to the folder OUT.

The pages are the READMEs, the pages of this folder, a gallery of the pipelines, and a reference made from headers and
from the command's help. mkdocs (a Debian package) makes HTML of them. The pages make no request to any other host."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
import draw
import gallery
import reference

GUIDES = ("swap-a-sampler", "pytorch-trainer", "two-gpus", "own-drives", "imported-graph", "reading-a-verdict", "first-use")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)
LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def readmes():
    """All of the tree's READMEs, as paths from its root."""
    skipped = {"build", "data", "runs", "installed", "shared"}
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if not f.startswith((".", "build-", "__")) and (folder != ROOT or f not in skipped)]
        if "README.md" in names:
            yield os.path.relpath(os.path.join(folder, "README.md"), ROOT)


def outside_fences(text, change):
    """Applies a change to the text, but not to blocks of code."""
    out, at = [], 0
    for fence in FENCE.finditer(text):
        out += [change(text[at:fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*out, change(text[at:])])


def add(docs, name):
    """Copies a page. What it links to and is no page comes along; flowcharts become pictures."""
    folder, target = os.path.dirname(name), "index.md" if name == "README.md" else name
    with open(os.path.join(ROOT, name)) as f:
        text = f.read()

    def link(found):
        path, mark, anchor = found[2].partition("#")
        if not path or "://" in path:
            return found[0]
        goal = os.path.normpath(os.path.join(folder, path))
        if os.path.isdir(os.path.join(ROOT, goal)):
            path, goal = path.rstrip("/") + "/README.md", goal + "/README.md"
        if goal == "README.md":
            path = os.path.relpath("index.md", folder or ".")
        elif not goal.endswith(".md"):
            os.makedirs(os.path.dirname(os.path.join(docs, goal)), exist_ok=True)
            shutil.copy(os.path.join(ROOT, goal), os.path.join(docs, goal))
        return f"]({path}{mark}{anchor})"
    count = 0

    def picture(found):
        nonlocal count
        count += 1
        file = target.removesuffix(".md") + f"-{count}.svg"
        with open(os.path.join(docs, file), "w") as f:
            f.write(draw.mermaid(found[1]))
        return f"![flowchart]({os.path.basename(file)})\n"
    os.makedirs(os.path.dirname(os.path.join(docs, target)), exist_ok=True)
    text = outside_fences(text, lambda part: LINK.sub(link, part))
    with open(os.path.join(docs, target), "w") as f:
        f.write(re.sub(r"^```mermaid\n(.*?)^```\n", picture, text, flags=re.M | re.S))


def list_rooms(docs, names):
    """A page that links to each README, with its first sentence."""
    lines = ["# Rooms", "", "A room is a folder of the source tree with one subject. Each room has a README.", "", "| room | subject |", "|---|---|"]
    for name in sorted(name for name in names if name != "README.md"):
        with open(os.path.join(ROOT, name)) as f:
            text = LINK.sub("]", f.read().split("\n\n")[1]).replace("\n", " ").replace("[", "").replace("]", "").replace("|", "\\|")
        lines.append(f"| [{os.path.dirname(name)}]({name}) | {re.match(r'.*?[.:](?= |$)|.*', text)[0].rstrip(':')} |")
    with open(os.path.join(docs, "rooms.md"), "w") as f:
        f.write("\n".join(lines) + "\n")


def navigation(pipelines, pages):
    """[{title: file or list}], as mkdocs takes it."""
    guide = "tools/site/pages/{}.md".format
    return [{"Home": "index.md"}, {"Concepts": guide("concepts")},
            {"How to": [{title_of(guide(name)): guide(name)} for name in GUIDES]},
            {"Pipelines": [{"All": "gallery/index.md"}, *[{name: f"gallery/{name}.md"} for name in pipelines]]},
            {"Python": "tools/python/README.md"},
            {"Wire protocol": [{"Messages": "common/host/README.md"}, {"wire.h": "reference/common-wire.md"}]},
            {"Reference": [{title: file} for title, file in pages if not file.endswith("common-wire.md")]},
            {"Rooms": "rooms.md"}]


def title_of(name):
    with open(os.path.join(ROOT, name)) as f:
        return f.readline().lstrip("# ").strip()


def config(docs, out, nav):
    """mkdocs.yml, as JSON, which is YAML. Highlighting would be fetched from another host."""
    return {"site_name": "Penstock", "site_url": "", "docs_dir": docs, "site_dir": out, "use_directory_urls": False, "nav": nav,
            "theme": {"name": "mkdocs", "highlightjs": False, "navigation_depth": 2},
            "markdown_extensions": [{"toc": {"permalink": True}}, "tables", "fenced_code"], "plugins": ["search"]}


def main():
    build, out = map(os.path.abspath, sys.argv[1:])
    mkdocs = shutil.which("mkdocs")
    if not mkdocs:
        raise SystemExit("site: mkdocs is missing: install the Debian package mkdocs")
    penstock = os.path.join(build, "bin", "penstock")
    environment = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "tools", "python")}
    with tempfile.TemporaryDirectory(prefix="penstock-site-") as work:
        docs = os.path.join(work, "docs")
        os.mkdir(docs)
        names = list(readmes())
        for name in [*names, *(f"tools/site/pages/{page}.md" for page in ("concepts", *GUIDES))]:
            add(docs, name)
        pipelines = gallery.write(ROOT, docs, penstock, environment)
        list_rooms(docs, names)
        nav = navigation(pipelines, reference.write(ROOT, docs, penstock))
        with open(os.path.join(work, "mkdocs.yml"), "w") as f:
            json.dump(config(docs, out, nav), f)
        subprocess.run([mkdocs, "build", "--quiet", "--clean", "--strict", "--config-file", os.path.join(work, "mkdocs.yml")], check=True)
    pages = sum(name.endswith(".html") for _, _, files in os.walk(out) for name in files)
    print(f"{out}/index.html: {pages} pages")


if __name__ == "__main__":
    main()
