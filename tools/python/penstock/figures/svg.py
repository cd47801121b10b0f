"""Charts as SVG: grouped bars, and lines over numbers or names."""
import math
from html import escape

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 60, 60
COLOURS = ("#2166ac", "#d6604d", "#4daf4a", "#984ea3", "#ff7f00", "#666666", "#a6761d", "#1b9e77")
TICKS = 5


def _text(x, y, text, anchor="middle", size=12, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{more}>{escape(str(text))}</text>'


def _step(top):
    """The distance of about TICKS ticks up to `top`: 1, 2 or 5 times a power of ten."""
    raw = top / TICKS
    power = 10 ** math.floor(math.log10(raw))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= raw)


class _Axes:
    def __init__(self, title, y_label, names, top):
        step = _step(top if top > 0 else 1)
        self.top = step * math.ceil((top if top > 0 else 1) / step)
        self.names = names
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
                      'font-family="sans-serif">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', _text(WIDTH / 2, 20, title, size=14)]
        for i in range(round(self.top / step) + 1):
            y = self.y(i * step)
            self.parts += [f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#dddddd"/>',
                           _text(LEFT - 6, y + 4, f"{i * step:g}", "end", 11)]
        middle = (TOP + HEIGHT - BOTTOM) / 2
        self.parts.append(_text(18, middle, y_label, more=f' transform="rotate(-90 18 {middle})"'))
        self.parts += [_text(self.x(i), HEIGHT - BOTTOM + 18, name, size=11) for i, name in enumerate(names)]

    def x(self, i):
        return LEFT + (i + 0.5) * (WIDTH - LEFT - RIGHT) / len(self.names)

    def y(self, value):
        return HEIGHT - BOTTOM - value / self.top * (HEIGHT - TOP - BOTTOM)

    def finish(self, series, x_label):
        at = LEFT
        for i, name in enumerate(series):
            self.parts += [f'<rect x="{at}" y="32" width="12" height="12" fill="{COLOURS[i % len(COLOURS)]}"/>', _text(at + 17, 42, name, "start", 11)]
            at += 32 + 7 * len(name)
        self.parts += [f'<line x1="{LEFT}" y1="{self.y(0):.1f}" x2="{WIDTH - RIGHT}" y2="{self.y(0):.1f}" stroke="black"/>',
                       _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 15, x_label), "</svg>"]
        return "\n".join(self.parts) + "\n"


def _top(series):
    return max((v for values in series.values() for v in values if v is not None), default=1)


def bars(title, x_label, y_label, names, series):
    """series: {name: a value or None for each of names}."""
    axes = _Axes(title, y_label, names, _top(series))
    width = 0.8 * (WIDTH - LEFT - RIGHT) / len(names) / len(series)
    for k, values in enumerate(series.values()):
        for i, value in enumerate(values):
            if value is not None:
                x, y = axes.x(i) + (k - len(series) / 2) * width, axes.y(value)
                axes.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{axes.y(0) - y:.1f}" fill="{COLOURS[k % len(COLOURS)]}"/>')
    return axes.finish(series, x_label)


def lines(title, x_label, y_label, names, series):
    """series: {name: a value or None for each of names}; the names are equally far apart."""
    axes = _Axes(title, y_label, names, _top(series))
    for k, values in enumerate(series.values()):
        colour = COLOURS[k % len(COLOURS)]
        points = [(axes.x(i), axes.y(v)) for i, v in enumerate(values) if v is not None]
        axes.parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>')
        axes.parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    return axes.finish(series, x_label)
