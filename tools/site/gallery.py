"""A page for each shipped pipeline: its picture, what pipelines/README.md says of it, and its file with comments."""
import glob
import json
import os
import re
import subprocess

import draw

EMBEDDINGS = ("marius", "legend")  # they train on data/graph, a graph of triples


def about(readme, name):
    """The paragraphs that begin with **NAME.json**, up to the next such paragraph or heading."""
    found = re.search(rf"^\*\*{name}\.json\*\*.*?(?=^\*\*\w+\.json\*\*|^#|\Z)", readme, re.M | re.S)
    if not found:
        raise SystemExit(f"site: pipelines/README.md has no paragraph that begins with **{name}.json**")
    return found[0]


class Commented:
    """Writes a pipeline as JSON with comments, which are what the stages say of themselves."""

    def __init__(self, penstock, root, environment):
        self.penstock, self.root, self.environment, self.known = penstock, root, environment, {}

    def described(self, run):
        if run not in self.known:
            path = os.path.normpath(os.path.join(self.root, "pipelines", run)) if "/" in run else run
            r = subprocess.run([self.penstock, "stages", path, "--json"], capture_output=True, text=True, env=self.environment)
            if r.returncode:
                raise SystemExit(f"site: `penstock stages {path}` failed: {r.stderr}")
            self.known[run] = json.loads(r.stdout)
        return self.known[run]

    def param(self, name, stages):
        """The help of a parameter of one of the stages."""
        for stage in stages:
            for param in self.described(stage["run"])["params"]:
                if param["name"] == name:
                    return param["help"]
        return ""

    def params(self, params, stages, indent):
        out = []
        for k, (name, value) in enumerate(params.items()):
            out += comment(self.param(name, stages), indent)
            out.append(f'{indent}"{name}": {json.dumps(value)}{"," * (k + 1 < len(params))}')
        return out

    def text(self, pl):
        out, rest = ["{"], {key: value for key, value in pl.items() if key not in ("params", "stages", "links")}
        out += [f'  "{key}": {json.dumps(value)},' for key, value in rest.items()]
        if "params" in pl:
            out += ["  // for every stage that has a parameter of this name", '  "params": {',
                    *self.params(pl["params"], pl["stages"].values(), "    "), "  },"]
        out.append('  "stages": {')
        for k, (name, stage) in enumerate(pl["stages"].items()):
            out += comment(self.described(stage["run"])["help"], "    ")
            out += [f'    "{name}": {{', f'      "run": "{stage["run"]}"' + "," * (len(stage) > 1)]
            more = {key: value for key, value in stage.items() if key not in ("run", "params")}
            for j, (key, value) in enumerate(more.items()):
                out.append(f'      "{key}": {json.dumps(value)}' + "," * (j + 1 < len(more) or "params" in stage))
            if "params" in stage:
                out += ['      "params": {', *self.params(stage["params"], [stage], "        "), "      }"]
            out.append("    }" + "," * (k + 1 < len(pl["stages"])))
        out += ["  },", '  "links": [']
        for k, link in enumerate(pl["links"]):
            stage, port = link["from"].split(".")
            ports = self.described(pl["stages"][stage]["run"])["ports"]
            out += comment(next((p["help"] for p in ports if p["name"] == port), ""), "    ")
            out.append("    " + json.dumps(link) + "," * (k + 1 < len(pl["links"])))
        return "\n".join([*out, "  ]", "}", ""])


def comment(text, indent, width=94):
    lines, line = [], ""
    for word in text.split():
        if len(indent) + 3 + len(line) + 1 + len(word) > width:
            lines, line = [*lines, line], ""
        line = f"{line} {word}".strip()
    return [f"{indent}// {line}" for line in [*lines, line] if line]


def write(root, docs, penstock, environment):
    """Writes gallery/NAME.md and NAME.svg for each pipeline. Returns their names and titles."""
    with open(os.path.join(root, "pipelines", "README.md")) as f:
        readme = f.read()
    os.makedirs(os.path.join(docs, "gallery"))
    writer, pages, index = Commented(penstock, root, environment), [], "# Pipelines\n\nThese pipelines come with Penstock.\n\n"
    for file in sorted(glob.glob(os.path.join(root, "pipelines", "*.json"))):
        with open(file) as f:
            pl = json.load(f)
        name = pl["name"]
        data = "data/graph" if name in EMBEDDINGS else "data/demo"
        # links of pipelines/README.md, seen from gallery/
        words = re.sub(r"\]\((?!#|\w+:)([^)]+)\)", lambda m: f"](../pipelines/{m[1]})", about(readme, name)).replace("](#", "](../pipelines/README.md#")
        page = (f"# {name}\n\n{pl['help'][0].upper() + pl['help'][1:]}.\n\n![the stages of {name}]({name}.svg)\n\n"
                f"A dashed arrow is a link that only some settings use.\n\n{words.strip()}\n\n## Run it\n\n"
                f"```sh\npenstock run {name} --dataset {data}\n```\n\n## The file, with comments\n\n"
                f"The comments are what the stages say of themselves. The file itself has none.\n\n```js\n{writer.text(pl)}```\n")
        with open(os.path.join(docs, "gallery", name + ".md"), "w") as f:
            f.write(page)
        with open(os.path.join(docs, "gallery", name + ".svg"), "w") as f:
            f.write(draw.pipeline(pl))
        pages.append(name)
        index += f"- [{name}]({name}.md): {pl['help']}\n"
    with open(os.path.join(docs, "gallery", "index.md"), "w") as f:
        f.write(index)
    return pages
