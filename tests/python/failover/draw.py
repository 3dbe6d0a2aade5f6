"""Renders each kind of panel as SVG or HTML."""
import html
import math
import re

from failover.units import ticks, written

COLOURS = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#8ab8ff", "#fade2a", "#ff7383", "#96d98d", "#ca95e5", "#ffb357")
NAMED = {"green": "#73bf69", "yellow": "#f2cc0c", "orange": "#ff9830", "red": "#f2495c", "blue": "#5794f2", "purple": "#b877d9",
         "text": "#ccccdc", "transparent": "#ccccdc"}
GRID, FAINT, TEXT = "#2c3036", "#8e8e9d", "#ccccdc"
# Margins for the axis labels, in pixels.
LEFT, BOTTOM, TOP, LINE = 64, 18, 4, 14


def escaped(text):
    return html.escape(str(text), quote=True)


class Frame:
    """The drawing area of a panel: maps values to pixels."""

    def __init__(self, width, height, across, up, legend=0, right=False, logarithmic=False):
        self.left, self.right = LEFT, width - (LEFT if right else 8)
        self.top, self.bottom = TOP, max(height - BOTTOM - legend, TOP + 10)
        self.across, self.up, self.logarithmic = across, up, logarithmic

    def x(self, value):
        low, high = self.across
        return self.left + (value - low) / ((high - low) or 1) * (self.right - self.left)

    def y(self, value, up=None):
        low, high = up or self.up
        if self.logarithmic:
            low, high, value = (math.log10(max(one, 1e-9)) for one in (low, high, value))
        share = min(max((value - low) / ((high - low) or 1), 0), 1)
        return self.bottom - share * (self.bottom - self.top)

    def marks(self):
        if not self.logarithmic:
            return ticks(*self.up)
        low, high = (math.log10(max(one, 1e-9)) for one in self.up)
        return [10 ** power for power in range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)]


def text(x, y, content, anchor="start", colour=FAINT, size=11):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">{escaped(content)}</text>'


def minutes(frame):
    """Draws the time axis in minutes since the start."""
    low, high = frame.across
    return [text(frame.x(low + 60 * minute), frame.bottom + 14, f"{minute} min" if minute else "0", "middle")
            for minute in range(int((high - low) // 60) + 1)]


def axes(frame, unit):
    """Draws horizontal grid lines with their values."""
    parts = []
    for mark in frame.marks():
        y = frame.y(mark)
        parts.append(f'<line x1="{frame.left}" x2="{frame.right}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>')
        parts.append(text(frame.left - 5, y + 4, written(mark, unit), "end"))
    return parts


def legend_of(lines, width, height):
    """Lays out as many names as fit on two rows."""
    parts, x, y, rows = [], 6, height - 4, 1
    widths = [22 + 6.1 * len(name) for name, *_ in lines]
    if sum(widths) > width - 12:
        rows, y = 2, y - LINE
    for (name, colour, *_), wide in zip(lines, widths):
        if x + wide > width:
            if y >= height - 5:
                parts.append(text(x, y, "…"))
                break
            x, y = 6, y + LINE
        parts.append(f'<rect x="{x}" y="{y - 6}" width="12" height="3" fill="{colour}"/>' + text(x + 16, y, name, colour=TEXT, size=11))
        x += wide
    return parts, rows * LINE + 4


def pieces(points, gap):
    """Splits points at gaps."""
    run = []
    for point in points:
        if run and point[0] - run[-1][0] > gap:
            yield run
            run = []
        run.append(point)
    if run:
        yield run


def svg(width, height, parts):
    return f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}">{"".join(parts)}</svg>'


def time_series(panel, lines, width, height, span, step):
    """Draws `lines`, a list of (name, points): stacked, as bars and with a second axis if the panel requires that."""
    defaults = panel["fieldConfig"]["defaults"]
    custom, unit = defaults.get("custom", {}), defaults.get("unit", "none")
    other = {one["matcher"]["options"]: {it["id"]: it["value"] for it in one["properties"]}
             for one in panel["fieldConfig"].get("overrides", ()) if one["matcher"]["id"] == "byName"}
    mode = custom.get("stacking", {}).get("mode", "none")
    coloured = [(name, fixed(other.get(name, {})) or COLOURS[at % len(COLOURS)], points) for at, (name, points) in enumerate(lines)]
    on_right = {name for name, *_ in coloured if other.get(name, {}).get("custom.axisPlacement") == "right"}
    if mode != "none":
        coloured = stacked(coloured, mode == "percent")
        unit = "percentunit" if mode == "percent" else unit
    legend, taken = legend_of(coloured, width, height)
    steps = [one["value"] for one in defaults.get("thresholds", {}).get("steps", ()) if one.get("value") is not None]
    dashed = custom.get("thresholdsStyle", {}).get("mode", "off") != "off"
    logarithmic = custom.get("scaleDistribution", {}).get("type") == "log"
    values = [value for name, _, points in coloured if name not in on_right for _, value, *_ in points]
    up = bounds(values + (steps if dashed else []), defaults, logarithmic)
    frame = Frame(width, height, span, up, taken, bool(on_right), logarithmic)
    parts = axes(frame, unit) + minutes(frame)
    fill = custom.get("fillOpacity", 0) / 100
    for name, colour, points in coloured:
        scale = bounds([value for one, _, those in coloured if one in on_right for _, value, *_ in those], {}) if name in on_right else None
        for run in pieces(points, 2.5 * step):
            top = [(frame.x(at), frame.y(value, scale)) for at, value, *_ in run]
            floor = [(frame.x(at), frame.y(base[0] if base else up[0], scale)) for at, _, *base in run]
            if custom.get("drawStyle") == "bars":
                wide = max(frame.x(span[0] + step) - frame.x(span[0]) - 1, 1)
                parts += [f'<rect x="{x - wide:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{max(base - y, 0):.1f}" fill="{colour}" fill-opacity=".6"/>'
                          for (x, y), (_, base) in zip(top, floor)]
                continue
            if fill:
                parts.append(f'<polygon points="{path(top + floor[::-1])}" fill="{colour}" fill-opacity="{fill}"/>')
            parts.append(f'<polyline points="{path(top)}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
            if len(top) == 1:
                parts.append(f'<circle cx="{top[0][0]:.1f}" cy="{top[0][1]:.1f}" r="2" fill="{colour}"/>')
    if on_right:
        scale = bounds([value for one, _, those in coloured if one in on_right for _, value, *_ in those], {})
        says = next((other[name].get("unit", unit) for name in on_right), unit)
        parts += [text(frame.right + 5, frame.y(mark, scale) + 4, written(mark, says)) for mark in ticks(*scale)]
    if dashed:
        parts += [f'<line x1="{frame.left}" x2="{frame.right}" y1="{frame.y(one):.1f}" y2="{frame.y(one):.1f}" stroke="{NAMED["red"]}" '
                  'stroke-dasharray="6 4" stroke-opacity=".7"/>' for one in steps]
    return svg(width, height, parts + legend)


def fixed(properties):
    """Returns the colour that an override gives a line."""
    return NAMED.get(properties.get("color", {}).get("fixedColor"))


def path(points):
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def stacked(coloured, share):
    """Stacks the lines: (time, top, base)."""
    total, done = {}, {}
    for _, _, points in coloured:
        for at, value in points:
            total[at] = total.get(at, 0) + value
    result = []
    for name, colour, points in coloured:
        raised = []
        for at, value in points:
            height = value / total[at] if share and total[at] else value
            base = done.get(at, 0)
            done[at] = base + height
            raised.append((at, base + height, base))
        result.append((name, colour, raised))
    return result


def bounds(values, defaults, logarithmic=False):
    values = [value for value in values if math.isfinite(value) and (value > 0 or not logarithmic)]
    low, high = (min(values), max(values)) if values else (0, 1)
    if logarithmic:
        return 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high) + 1e-9)
    low, high = defaults.get("min", min(low, 0)), defaults.get("max", high)
    return low, high + (high - low) * 0.05 if high > low else low + 1


def heatmap(panel, lines, width, height, span, step):
    """Draws `lines`: (upper bound, counts up to the bound over time), cumulative as in Prometheus."""
    unit = panel["options"].get("yAxis", {}).get("unit", "none")
    buckets = sorted(((float(name), dict(points)) for name, points in lines), key=lambda one: one[0])
    cells, below = [], {}
    for at, (bound, counts) in enumerate(buckets):
        cells.append((bound, {time: max(count - below.get(time, 0), 0) for time, count in counts.items()}))
        below = counts
    filled = [at for at, (_, counts) in enumerate(cells) if any(count > 1e-9 for count in counts.values())]
    cells = cells[max(filled[0] - 1, 0):filled[-1] + 2] if filled else []
    most = max((count for _, counts in cells for count in counts.values()), default=1) or 1
    frame = Frame(width, height, span, (0, len(cells) or 1))
    tall = (frame.bottom - frame.top) / (len(cells) or 1)
    wide = max(frame.x(span[0] + step) - frame.x(span[0]), 1)
    parts = []
    for row, (bound, counts) in enumerate(cells):
        y = frame.bottom - (row + 1) * tall
        if row % max(len(cells) * 14 // int(frame.bottom - frame.top) + 1, 1) == 0:
            parts.append(text(frame.left - 5, y + 4, "∞" if math.isinf(bound) else written(bound, unit), "end"))
        parts += [f'<rect x="{frame.x(time) - wide:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{max(tall - 1, 1):.1f}" '
                  f'fill="#ff9830" fill-opacity="{(count / most) ** 0.5:.2f}"/>' for time, count in counts.items() if count > 1e-9]
    return svg(width, height, parts + minutes(frame))


def coloured_by(panel, value):
    """Returns the colour of a value by the panel's thresholds, and its mapped text if there is one."""
    defaults = panel["fieldConfig"]["defaults"]
    colour = "text"
    for one in defaults.get("thresholds", {}).get("steps", ()):
        if one.get("value") is None or value >= one["value"]:
            colour = one["color"]
    for mapping in defaults.get("mappings", ()):
        if mapping["type"] == "value":
            word = mapping["options"].get(f"{value:g}")
            if word:
                return NAMED.get(word.get("color", colour), TEXT), word.get("text")
    return NAMED.get(colour, colour if colour.startswith("#") else TEXT), None


def mapped_text(panel, value):
    defaults = panel["fieldConfig"]["defaults"]
    colour, word = coloured_by(panel, value)
    return colour, word or written(value, defaults.get("unit", "none"), defaults.get("decimals"))


def stat(panel, values, width, height):
    """Draws `values`, a list of (name, value): one number, or several side by side."""
    if not values:
        return f'<div class="none">{escaped(panel["fieldConfig"]["defaults"].get("noValue", "No data"))}</div>'
    background = panel["options"].get("colorMode") == "background"
    parts = []
    for name, value in values[:6]:
        colour, words = mapped_text(panel, value)
        size = max(min(width / len(values[:6]) / (len(words) * 0.62 + 0.5), height * 0.5, 34), 11)
        style = f"background:{colour};color:#111217" if background and colour != TEXT else f"color:{colour}"
        label = f"<small>{escaped(name)}</small>" if len(values) > 1 else ""
        parts.append(f'<div style="{style};font-size:{size:.0f}px">{label}{escaped(words)}</div>')
    return f'<div class="stat">{"".join(parts)}</div>'


def bar_gauge(panel, values, width, height):
    most = panel["fieldConfig"]["defaults"].get("max") or max((abs(value) for _, value in values), default=1) or 1
    rows = []
    for name, value in values[:max(int(height // 24), 1)]:
        colour, words = mapped_text(panel, value)
        colour = NAMED["blue"] if colour == TEXT else colour
        share = min(max(value / most, 0), 1) * 100
        rows.append(f'<tr><td class="name">{escaped(name)}</td><td class="bar"><div style="width:{share:.1f}%;background:{colour}"></div></td>'
                    f'<td class="number" style="color:{colour}">{escaped(words)}</td></tr>')
    return f'<table class="gauge">{"".join(rows)}</table>' if rows else stat(panel, [], width, height)


def table(panel, columns, rows, height):
    """Draws a table. `columns` holds (title, unit, whether it is a number)."""
    if not rows:
        return stat(panel, [], 0, height)
    head = "".join(f'<th class="{"number" if number else ""}">{escaped(title)}</th>' for title, _, number in columns)
    body = []
    for row in rows[:max(int((height - 24) // 23), 1)]:
        cells = "".join(
            f'<td class="{"number" if number else ""}">{escaped(written(value, unit) if number and value is not None else value or "")}</td>'
            for value, (_, unit, number) in zip(row, columns))
        body.append(f"<tr>{cells}</tr>")
    return f'<table class="rows"><tr>{head}</tr>{"".join(body)}</table>'


def xy_chart(panel, across, lines, width, height):
    """Plots each of `lines` against `across` at their common times."""
    unit = panel["fieldConfig"]["defaults"].get("unit", "none")
    over = {round(at): value for at, value in across}
    drawn = [(name, COLOURS[at % len(COLOURS)], [(over[round(time)], value) for time, value in points if round(time) in over])
             for at, (name, points) in enumerate(lines)]
    points = [point for _, _, those in drawn for point in those]
    legend, taken = legend_of(drawn, width, height)
    frame = Frame(width, height, bounds([x for x, _ in points], {}), bounds([y for _, y in points], {}), taken)
    parts = axes(frame, unit)
    parts += [text(frame.x(mark), frame.bottom + 14, written(mark, "none"), "middle") for mark in ticks(*frame.across)]
    parts += [f'<circle cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="2.5" fill="{colour}" fill-opacity=".8"/>'
              for _, colour, those in drawn for x, y in those]
    return svg(width, height, parts + legend)


def state_timeline(panel, lines, width, height, span, step):
    if not lines:
        return stat(panel, [], width, height)
    wide_name = min(max(len(name) for name, _ in lines) * 6.8 + 12, width * 0.4)
    frame = Frame(width, height, span, (0, len(lines)))
    frame.left = wide_name
    tall = min((frame.bottom - frame.top) / len(lines), 26)
    parts = []
    for row, (name, points) in enumerate(lines):
        y = frame.top + row * tall
        parts.append(text(wide_name - 5, y + tall / 2 + 4, name, "end", TEXT))
        wide = frame.x(span[0] + step) - frame.x(span[0]) + 0.5
        parts += [f'<rect x="{frame.x(at):.1f}" y="{y + 1:.1f}" width="{wide:.1f}" height="{tall - 2:.1f}" fill="{coloured_by(panel, value)[0]}"/>'
                  for at, value in points]
    return svg(width, height, parts + minutes(frame))


def markdown(content):
    shown = escaped(content)
    shown = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", shown)
    shown = re.sub(r"`(.+?)`", r"<code>\1</code>", shown)
    shown = re.sub(r"\[(.+?)\]\((.+?)\)", r"<u>\1</u>", shown)
    return '<div class="words">' + shown.replace("\n\n", "<br><br>").replace("\n- ", "<br>• ") + "</div>"
