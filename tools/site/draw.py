"""Draws a graph of stages as SVG: boxes in columns, from left to right, and arrows between them."""
import html
import re
import textwrap

BOX_W, BOX_H, GAP_X, GAP_Y, MARGIN = 150, 54, 130, 34, 24
CHAR_W, LINE_H, LABEL_CHARS = 6, 13, 20  # of a label's text
STYLE = """<style>
text { font: 13px sans-serif; fill: #222; text-anchor: middle } .name { font-weight: bold } .label { font-size: 11px; fill: #555 }
.box { fill: #eef3fb; stroke: #4a6fa5; stroke-width: 1.5 } .store { fill: #f4f0e4; stroke: #9a8240 }
path { fill: none; stroke: #555; stroke-width: 1.5 } .rare { stroke-dasharray: 5 4 } .thick { stroke-width: 3 } .under { fill: #fff; opacity: .85 }
</style>"""
ARROW = ('<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">'
         '<path d="M0,0 L8,4 L0,8 z" style="fill:#555;stroke:none"/></marker></defs>')


def columns(nodes, edges):
    """The column of each node: one more than that of the nodes before it. Edges that lead back do not count."""
    at = dict.fromkeys(nodes, 0)
    for _ in nodes:
        for a, b, *_ in edges:
            if list(nodes).index(a) < list(nodes).index(b):
                at[b] = max(at[b], at[a] + 1)
    return at


def place(nodes, edges):
    at, rows, where = columns(nodes, edges), {}, {}
    for node in nodes:
        rows.setdefault(at[node], []).append(node)
    tallest = max(map(len, rows.values()))
    for x, column in rows.items():
        top = (tallest - len(column)) * (BOX_H + GAP_Y) / 2
        for k, node in enumerate(column):
            where[node] = (MARGIN + x * (BOX_W + GAP_X), MARGIN + 20 + top + k * (BOX_H + GAP_Y))
    return where, max(rows) + 1, tallest


def arrow(start, end, kind, bend, above):
    """The path of an arrow between two boxes, and the middle of its label. An arrow that leads back, or over other columns,
    bends around the boxes: below them, or above."""
    (x1, y1), (x2, y2) = start, end
    if x1 < x2 < x1 + 1.5 * (BOX_W + GAP_X):
        ax, ay, bx, by = x1 + BOX_W, y1 + BOX_H / 2 + bend * 16, x2, y2 + BOX_H / 2 + bend * 16
        path, middle = f"M{ax},{ay} C{ax + 50},{ay} {bx - 50},{by} {bx},{by}", ((ax + bx) / 2, (ay + by) / 2 - 5)
    else:
        ax, bx = x1 + BOX_W * .6, x2 + BOX_W * .4
        ay, by, deep = (y1, y2, -46 - 14 * bend) if above else (y1 + BOX_H, y2 + BOX_H, 46 + 14 * bend)
        turn = (min if above else max)(ay, by) + deep
        path, middle = f"M{ax},{ay} C{ax},{turn} {bx},{turn} {bx},{by}", ((ax + bx) / 2, turn * .75 + (ay + by) / 2 * .25 - 3)
    return f'<path class="{kind}" d="{path}" marker-end="url(#a)"/>', middle


def written(label, x, y):
    """A label in lines that fit between two boxes; the last line is at y."""
    lines = textwrap.wrap(label, LABEL_CHARS)
    out = ""
    for k, line in enumerate(lines):
        width, at = CHAR_W * len(line), y - (len(lines) - 1 - k) * LINE_H
        out += (f'<rect class="under" x="{x - width / 2:.0f}" y="{at - 10:.0f}" width="{width:.0f}" height="13"/>'
                f'<text class="label" x="{x:.0f}" y="{at:.0f}">{html.escape(line)}</text>')
    return out


def draw(nodes, edges, title):
    """nodes: {id: (name, second line, class)}, in an order in which most edges lead forward. edges: (from, to, label, class)."""
    where, across, down = place(nodes, edges)
    width = 2 * MARGIN + across * BOX_W + (across - 1) * GAP_X
    height = 2 * MARGIN + 20 + down * BOX_H + (down - 1) * GAP_Y + 50
    lines, labels, between = [], [], {}
    for a, b, label, kind in edges:
        bend = between[a, b] = between.get((a, b), -1) + 1
        beneath = any(x == where[a][0] and y > where[a][1] for x, y in where.values())
        line, middle = arrow(where[a], where[b], kind, bend, beneath)
        lines.append(line)
        labels.append(written(label, *middle))
    boxes = [f'<rect class="box {kind}" x="{x:.0f}" y="{y:.0f}" width="{BOX_W}" height="{BOX_H}" rx="8"/>'
             f'<text class="name" x="{x + BOX_W / 2:.0f}" y="{y + (23 if second else 32):.0f}">{html.escape(name)}</text>'
             f'<text class="label" x="{x + BOX_W / 2:.0f}" y="{y + 41:.0f}">{html.escape(second)}</text>'
             for node, (name, second, kind) in nodes.items() for x, y in [where[node]]]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="img">'
            f'<title>{html.escape(title)}</title>{STYLE}<rect width="100%" height="100%" fill="#fff"/>{ARROW}'
            + "".join(lines + boxes + labels) + "</svg>\n")


def pipeline(pl):
    """A pipeline file: stages, and links with their slots; links that not every run uses are dashed."""
    nodes = {name: (name, "runs " + stage["run"].split("/")[-1], "") for name, stage in pl["stages"].items()}
    edges = []
    for link in pl["links"]:
        (a, port), b = link["from"].split("."), link["to"].split(".")[0]
        label = port + (f" ({link['slots']} slots)" if "slots" in link else "")
        edges.append((a, b, label, "rare" if "when" in link else ""))
    return draw(nodes, edges, pl["name"])


ID = r'(\w+)(?:\[\(([^)]*)\)\]|\["?([^"\]]*)"?\])?'
EDGE = re.compile(rf'^\s*{ID}\s*(?:-\.\s*(?P<dotted>.*?)\s*\.->|--\s*(?P<plain>.*?)\s*-->|(?P<thick>==>)|(?P<bare>-->))\s*{ID}\s*$')


def mermaid(text):
    """The few forms of a flowchart that the READMEs use. ValueError: another form."""
    nodes, edges = {}, []

    def node(name, store, words):
        if name not in nodes or store or words:
            label = store or words or name
            head, _, rest = label.partition(": ")
            nodes[name] = (head, rest, "store" if store else "")
    for line in text.strip().splitlines()[1:]:
        found, alone = EDGE.match(line), re.match(rf"^\s*{ID}\s*$", line)
        if found:
            a, b = found.groups()[:3], found.groups()[-3:]
            node(*a)
            node(*b)
            label = (found["dotted"] or found["plain"] or "").strip('"')
            edges.append((a[0], b[0], label, "rare" if found["dotted"] is not None else "thick" if found["thick"] else ""))
        elif alone:
            node(*alone.groups())
        else:
            raise ValueError(f"tools/site/draw.py cannot draw this line of a flowchart: {line.strip()}")
    return draw(nodes, edges, "flowchart")
