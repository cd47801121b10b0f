"""Pages made from the public headers, and from the command's own help."""
import os
import re
import subprocess

SECTION = re.compile(r"/\* -{4} (.*?) -+ \*/")
COMMENT = re.compile(r"/\*(.*?)\*/\s*", re.S)
NOISE = re.compile(r"#(ifndef|define) PST_\w+_H\b.*\n|#include.*\n|#endif.*\n|PST_(BEGIN|END)_DECLS;?\n|#if(def)? .*\n|#else.*\n")


def prose(comment):
    """A comment as Markdown: paragraphs, and as code what is indented in it. Names of C become code."""
    out, literal = [], False
    for line in comment.strip().splitlines():
        line = re.sub(r"^\s*\* ?", "", line).rstrip()
        if line.startswith("   ") != literal and line:
            literal = not literal
            out.append("")
        out.append("    " + line if literal else names(line).replace("<", "&lt;"))
    return "\n".join(out)


def names(line):
    return line if "`" in line else re.sub(r"\b(pst_\w+(?:\(\))?|PST_\w+)", r"`\1`", line)


def declared(code):
    """The name that a piece of code declares."""
    for pattern in (r"^(?:typedef )?(?:struct|enum|union) (\w+) \{", r"^#define (\w+)", r"\b(pst_\w+)\)?\s*\(", r"^(?:extern )?.*?\b(\w+);", r"^(struct \w+);"):
        found = re.search(pattern, code, re.M)
        if found:
            return found[1]
    return None


def header(path, name):
    """A page for a header: its first comment, its sections, and each declaration with the comment before it."""
    with open(path) as f:
        text = f.read()
    first = COMMENT.match(text)
    about = prose(re.sub(r"^\s*\S+\.h: ", "", first[1]))
    page = [f"# {name}", about[0].upper() + about[1:]]
    body = NOISE.sub("", text[first.end():])
    for part in re.split(r"\n\s*\n", join_bodies(body)):
        part = part.strip("\n")
        section = SECTION.match(part)
        if section:
            page.append(f"## {section[1]}")
            part = part[section.end():].strip("\n")
        while part:
            lead = COMMENT.match(part)
            code = part[lead.end():] if lead else part
            if lead and not code:
                page.append(prose(lead[1]))
                break
            name_ = declared(code)
            if name_:
                page.append(f"### `{name_}`")
            if lead:
                page.append(prose(lead[1]))
            page.append("```c\n" + code.replace("\0", "\n").rstrip() + "\n```")
            break
    return "\n\n".join(page) + "\n"


def join_bodies(text):
    """Blank lines within braces do not separate declarations."""
    out, depth = [], 0
    for line in text.split("\n"):
        out.append("\0" if depth and not line.strip() else line)
        depth += line.count("{") - line.count("}")
    return "\n".join(out)


def public(root):
    """The headers that `make install` installs for others to include."""
    with open(os.path.join(root, "Makefile")) as f:
        found = re.search(r"^public := (.*?[^\\])\n", f.read(), re.M | re.S)
    return found[1].replace("\\\n", " ").split()


def write(root, docs, penstock):
    """Writes reference/*.md. Returns [(title, file)]."""
    os.makedirs(os.path.join(docs, "reference"))
    pages = []
    for path in sorted(set(public(root)) | {"common/base.h", "common/error.h"}):
        file = path.replace("/", "-").removesuffix(".h") + ".md"
        with open(os.path.join(docs, "reference", file), "w") as f:
            f.write(header(os.path.join(root, path), path))
        pages.append((path, "reference/" + file))
    pages.append(("Commands", commands(docs, penstock)))
    return pages


def commands(docs, penstock):
    def said(*args):
        return subprocess.run([penstock, *args], capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "100"}).stdout
    top = said("--help")
    page = f"# Commands\n\n```text\n{top}```\n"
    for name in re.findall(r"^  (\w+) ", top, re.M):
        page += f"\n## penstock {name}\n\n```text\n{said(name, '--help')}```\n"
    with open(os.path.join(docs, "reference", "commands.md"), "w") as f:
        f.write(page)
    return "reference/commands.md"
