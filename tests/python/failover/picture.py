"""Images of dashboards with the data of the run. Each image states that it is not drawn by Grafana."""
import pathlib
import re
import subprocess
import tempfile

from failover import draw, panels, png
from rig import WAIT_LIMIT

# A Grafana dashboard has 24 columns. The pixel height of a grid row follows.
WIDTH, COLUMNS, ROW, GAP, TITLE = 1400, 24, 24, 6, 26
LARGEST = 250_000

STYLE = """
body{margin:0;background:#111217;color:#ccccdc;font:13px Inter,"DejaVu Sans",Helvetica,sans-serif;width:%dpx;position:relative}
header{padding:10px 14px;font-size:18px} header small{color:#8e8e9d;font-size:12px;margin-left:14px}
.panel{position:absolute;background:#181b1f;border:1px solid #24272c;border-radius:2px;overflow:hidden;box-sizing:border-box}
.panel h3{margin:5px 8px 2px;font-size:12.5px;font-weight:500;white-space:nowrap;overflow:hidden}
.row{position:absolute;font-size:14px;padding:3px 8px} .row i{color:#8e8e9d;font-style:normal}
.stat{display:flex;height:calc(100%% - 26px);gap:4px;padding:0 4px 4px;box-sizing:border-box}
.stat div{flex:1;display:flex;flex-direction:column;align-items:center;justify-content:center;border-radius:2px;font-weight:600}
.stat small{font-size:11px;font-weight:400} .none{height:calc(100%% - 26px);display:flex;align-items:center;justify-content:center;color:#8e8e9d;font-size:15px}
table{border-collapse:collapse;width:100%%;font-size:12px} td,th{padding:3px 8px;text-align:left;white-space:nowrap;height:16px}
.rows td{border-top:1px solid #24272c} th{color:#8ab8ff;font-weight:500} .number{text-align:right}
.gauge .bar{width:50%%} .gauge .bar div{height:14px;border-radius:2px;min-width:1px} .gauge .name{max-width:200px;overflow:hidden}
.words{padding:4px 10px;color:#ccccdc;line-height:1.45} code{background:#24272c;padding:0 3px} svg text{font-family:inherit}
"""


class Renderer:
    """Draws one dashboard from one store."""

    def __init__(self, dashboard, store, data, interval):
        loaded = [phase for phase in data["phases"] if phase["calls"]]
        # The view at the time of the last failures.
        self.start, self.end = data["began"], loaded[-1]["ended"]
        self.dashboard, self.store = dashboard, store
        # A comparison needs one value, not all.
        choice = panels.ONE if dashboard["uid"].endswith("compare") else panels.ALL
        # The options are the values under normal load.
        self.variables = panels.Variables(dashboard, store, data["phases"][0]["ended"], self.end - self.start, choice, interval)
        self.step = max(int((self.end - self.start) / 200), 1)

    def page(self):
        parts, bottom = [], 0
        for panel in self.dashboard["panels"]:
            place = panel["gridPos"]
            unit = (WIDTH - GAP) / COLUMNS
            x, y = GAP + place["x"] * unit, 46 + place["y"] * (ROW + GAP)
            width, height = int(place["w"] * unit - GAP), place["h"] * (ROW + GAP) - GAP
            bottom = max(bottom, y + height)
            where = f"left:{x:.0f}px;top:{y:.0f}px;width:{width}px;height:{height}px"
            if panel["type"] == "row":
                title = draw.escaped(self.variables.fill(panel["title"]))
                folded = f"▸ {title} <i>({len(panel['panels'])} panels)</i>" if panel.get("collapsed") else f"▾ {title}"
                parts.append(f'<div class="row" style="{where}">{folded}</div>')
                continue
            drawn = self.drawn(panel, width - 4, height - TITLE - 4)
            title = draw.escaped(self.variables.fill(panel["title"]))
            parts.append(f'<div class="panel" style="{where}"><h3>{title}</h3>{drawn}</div>')
        note = "drawn by tokengauge's own renderer, not Grafana, from the data of tests/python/failover_check.py"
        head = f"<header>{draw.escaped(self.dashboard['title'])}<small>{note}</small></header>"
        page = f"<!doctype html><meta charset=utf-8><style>{STYLE % WIDTH}</style><body style='height:{bottom + 8:.0f}px'>{head}{''.join(parts)}"
        return page, int(bottom + 8)

    def drawn(self, panel, width, height):
        kind = panel["type"]
        if kind == "text":
            return draw.markdown(panel["options"].get("content", ""))
        if kind == "table":
            return draw.table(panel, *self.rows(panel), height)
        if kind in ("stat", "gauge", "bargauge"):
            # Grafana does not order series. Draw the one with the most samples first.
            values = sorted((name, points[-1][1]) for name, points in self.lines(panel, instant=True))
            return draw.bar_gauge(panel, values, width, height) if kind == "bargauge" else draw.stat(panel, values, width, height)
        lines, span = self.lines(panel), (self.start, self.end)
        if not lines:
            return draw.stat(panel, [], width, height)
        if kind == "heatmap":
            return draw.heatmap(panel, lines, width, height, span, self.step)
        if kind == "xychart":
            return draw.xy_chart(panel, lines[0][1], lines[1:], width, height)
        if kind == "state-timeline":
            return draw.state_timeline(panel, lines, width, height, span, self.step)
        if kind == "timeseries":
            return draw.time_series(panel, lines, width, height, span, self.step)
        raise ValueError(f"a panel of the kind {kind} cannot be drawn")

    def lines(self, panel, instant=False):
        """Returns name and points of each series of each query."""
        lines = []
        for target in panel["targets"]:
            text = self.variables.fill(target["expr"])
            if instant:
                found = [(labels, [(self.end, value)]) for labels, value in self.store.now(text, self.end)]
            else:
                found = self.store.range(text, self.start, self.end, self.step)
            lines += [(named(target.get("legendFormat", ""), labels), points) for labels, points in found]
        return lines

    def rows(self, panel):
        """Returns one row per label set, like Grafana's transformations `merge` and `organize`."""
        organised = next((one["options"] for one in panel.get("transformations", ()) if one["id"] == "organize"), {})
        titles, order = organised.get("renameByName", {}), organised.get("indexByName", {})
        hidden = {name for name, out in organised.get("excludeByName", {}).items() if out}
        rows, fields = {}, set()
        for target in panel["targets"]:
            column = "Value" if len(panel["targets"]) == 1 else f"Value #{target['refId']}"
            fields.add(column)
            for labels, value in self.store.now(self.variables.fill(target["expr"]), self.end):
                labels = {key: value for key, value in labels.items() if key != "__name__"}
                fields |= labels.keys()
                rows.setdefault(tuple(sorted(labels.items())), dict(labels))[column] = value
        shown = sorted(fields - hidden - {"Time"}, key=lambda name: (order.get(name, 99), name))
        units = {one["matcher"]["options"]: it["value"] for one in panel["fieldConfig"].get("overrides", ())
                 for it in one["properties"] if it["id"] == "unit"}
        usual = panel["fieldConfig"]["defaults"].get("unit", "none")
        columns = [(titles.get(name, name), units.get(titles.get(name, name), usual), name.startswith("Value")) for name in shown]
        return columns, [[row.get(name) for name in shown] for _, row in sorted(rows.items())]


def named(legend, labels):
    """Returns the name of a series by its legend format."""
    if legend in ("", "__auto"):
        return labels.get("le") or ", ".join(str(value) for key, value in sorted(labels.items()) if key != "__name__") or "value"
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), legend)


def draw_all(dashboards, store, data, folder, interval, tally):
    """Draws one image of each dashboard with Chromium."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="night-pictures-") as scratch:
        for uid, dashboard in dashboards.items():
            page, height = Renderer(dashboard, store, data, interval).page()
            path, picture = pathlib.Path(scratch) / f"{uid}.html", folder / f"{uid}.png"
            path.write_text(page)
            # A process that Chromium leaves behind would keep a pipe open and block this program.
            subprocess.run([
                "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={scratch}/profile",
                f"--window-size={WIDTH},{height}", f"--screenshot={picture}", path.as_uri()],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=2 * WAIT_LIMIT, check=False)
            if picture.exists():
                picture.write_bytes(png.smaller(picture.read_bytes()))
            size = picture.stat().st_size if picture.exists() else 0
            tally.check(f"{picture} is drawn, and no larger than {LARGEST:,} bytes", 0 < size <= LARGEST, size)
