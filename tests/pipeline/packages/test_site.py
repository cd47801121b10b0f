"""The site of `make site`: each link and picture is there, nothing is fetched from another host, and the commands of the how-tos
run as they stand."""
import functools
import html.parser
import re
import urllib.parse
import xml.etree.ElementTree

from harness import *

FETCHED = {("link", "href"), ("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("object", "data")}
GUIDES = sorted(glob.glob(os.path.join(ROOT, "tools", "site", "pages", "*.md")))


@functools.cache
def site():
    """The site, built once, or a reason to skip."""
    if SAN:
        raise Skip("the site is made with the plain build")
    if not shutil.which("mkdocs"):
        raise Skip("mkdocs is not installed")
    out = tempfile.mkdtemp(prefix="penstock-test-")
    r = subprocess.run(["/usr/bin/python3", os.path.join(ROOT, "tools", "site", "build_site.py"), BUILD, out], capture_output=True, text=True)
    assert r.returncode == 0, r
    return out


class Page(html.parser.HTMLParser):
    """The ids, the links and the other addresses of a page."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.fetched = set(), [], []
        with open(path, encoding="utf-8") as f:
            self.text = f.read()
        self.feed(self.text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("id", "name"):
                self.ids.add(value)
            if (tag, name) in FETCHED:
                self.fetched.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)


@functools.cache
def pages():
    found = glob.glob(site() + "/**/*.html", recursive=True)
    return {path: Page(path) for path in found if os.path.basename(path) != "404.html"}


@test
def all_links_lead_somewhere():
    broken, seen = [], 0
    for path, page in pages().items():
        for link in page.links + page.fetched:
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc or not link:
                continue
            goal = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(url.path))) if url.path else path
            if os.path.isdir(goal):
                goal += "/index.html"
            seen += 1
            if not os.path.isfile(goal) or (url.fragment and goal in pages() and urllib.parse.unquote(url.fragment) not in pages()[goal].ids):
                broken.append(f"{os.path.relpath(path, site())}: {link}")
    assert seen > 3000 and not broken, (seen, broken[:40])


@test
def nothing_is_fetched_from_another_host():
    for path, page in pages().items():
        outside = [address for address in page.fetched if urllib.parse.urlsplit(address).netloc]
        assert not outside, (path, outside)
    for path in glob.glob(site() + "/**/*.css", recursive=True):
        with open(path, encoding="utf-8") as f:
            assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", f.read()), path


def page(name):
    return pages()[os.path.join(site(), name)].text


@test
def the_gallery_has_every_pipeline_with_comments():
    files = glob.glob(os.path.join(ROOT, "pipelines", "*.json"))
    assert len(files) >= 8
    for file in files:
        with open(file) as f:
            pl = json.load(f)
        text = html.unescape(page(f"gallery/{pl['name']}.html"))
        code = re.search(r"<code[^>]*>(\{.*?)</code>", text, re.S)[1]
        assert json.loads(re.sub(r"^ *//.*$", "", code, flags=re.M)) == pl, file  # comments added, nothing else
        assert code.count("//") > len(pl["stages"])
        drawn = xml.etree.ElementTree.parse(os.path.join(site(), "gallery", pl["name"] + ".svg")).getroot()
        words = {e.text for e in drawn.iter("{http://www.w3.org/2000/svg}text")}
        assert set(pl["stages"]) <= words and len(drawn.findall("{http://www.w3.org/2000/svg}path")) == len(pl["links"])


@test
def the_reference_is_made_from_the_headers():
    text = html.unescape(page("reference/common-stage.html"))
    with open(os.path.join(ROOT, "common", "stage.h")) as f:
        functions = set(re.findall(r"^PST_API [^;=]*?\b(pst_\w+)\(", f.read(), re.M))
    missing = [name for name in functions if name not in text]
    assert len(functions) > 40 and not missing, missing
    assert "PST_WIRE_RELEASE" in page("reference/common-wire.html") and "struct pst_wire" in page("reference/common-wire.html")
    every = command("--help").stdout
    assert all(f"penstock {name}" in page("reference/commands.html") for name in re.findall(r"^  (\w+) ", every, re.M))


@test
def the_front_page_draws_its_flowchart():
    text = page("index.html")
    assert "flowchart LR" not in text and 'src="index-1.svg"' in text
    for path in glob.glob(site() + "/**/*.svg", recursive=True) + glob.glob(os.path.join(ROOT, "tools/site/pictures/*.svg")):
        xml.etree.ElementTree.parse(path)


@test
def the_commands_of_the_how_tos():
    if SAN:
        raise Skip("the how-tos are run with the plain build")
    assert len(GUIDES) == 8
    with Place() as p:
        for name in ("pipelines", "tests", "tools", "stages", "common", "kernels", "Makefile"):
            os.symlink(os.path.join(ROOT, name), p.path(name))
        os.symlink(BUILD, p.path("build"))
        os.makedirs(p.path("bin"))
        with open(p.path("bin/make"), "w") as f:  # what is built is not built again
            f.write(f'#!/bin/sh\nexec /usr/bin/make -s -o all -C {ROOT} BUILD={os.environ.get("BUILD", "build")} "$@" >/dev/null\n')
        os.chmod(p.path("bin/make"), 0o755)
        command("gen", "community", p.path("data/demo"), "--vertices", "3000", "--quiet", cwd=p.dir)
        run = 0
        for guide in GUIDES:
            with open(guide) as f:
                blocks = re.findall(r"^```sh\n(.*?)^```", f.read(), re.M | re.S)
            for block in blocks:
                r = subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=p.dir, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                                   env={**os.environ, "PATH": p.path("bin") + ":" + os.environ["PATH"]}, timeout=120)
                assert r.returncode == 0, f"{os.path.basename(guide)}:\n{block}\nexit code {r.returncode}\n{r.stdout}\n{r.stderr}"
                run += 1
        assert run >= 7, run


@test
def the_table_of_first_use():
    """Each line count is that of the files as they are, and the tasks of Python take at most half the lines of before."""
    sys.path.insert(0, os.path.join(ROOT, "tools", "site"))
    import first_use
    with open(first_use.PAGE) as f:
        rows = [[cell.strip() for cell in line.strip("| \n").split(" | ")] for line in f if line.startswith("| ")]
    tasks = {task: (first_use.written(files), before, measure) for task, _, files, before, _, measure in first_use.TASKS}
    assert [row[0] for row in rows[1:]] == list(tasks), rows
    for task, _, lines, before, taken, _ in rows[1:]:
        assert lines == tasks[task][0] and before == str(tasks[task][1] or "-"), (task, lines, tasks[task])
        assert re.fullmatch(r"(\d+ min )?[\d.]+ s( \((\d+ min )?[\d.]+ s of CPU\))?|not measured.*", taken), (task, taken)
        if "Python" in task and before != "-" or "trainer" in task and before != "-":
            assert int(lines) <= int(before) / 2, (task, lines, before)


if __name__ == "__main__":
    try:
        main()
    finally:
        if site.cache_info().currsize:
            shutil.rmtree(site())
