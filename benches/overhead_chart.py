#!/usr/bin/env python3
"""Draws the CPU time of each proxy as a multiple of the relay's, from the file that `overhead.py --out` writes.

    overhead_chart.py RESULTS.json CHART.svg

Each group of bars is one load. The vertical line marks the relay. Uses only the standard library.
"""
import json
import pathlib
import sys
from xml.sax.saxutils import escape

from overhead_loads import LOADS, Values, cpu_us

COLORS = {"nginx": "#9aa5b1", "haproxy": "#7b8794", "envoy": "#616e7c", "tokengauge": "#2f7ed8"}
LABEL_WIDTH, PLOT_WIDTH, BAR, GAP = 390, 420, 14, 12


def ratios(results):
    """Returns the loads of the file, each with the ratio of every proxy to the relay."""
    for load in filter(results.__contains__, LOADS):
        cpu = {name: Values.of([cpu_us(report, load) for report in reports]) for name, reports in results[load].items() if name != "direct"}
        yield load, {name: cpu[name].median / cpu["relay"].median for name in COLORS if cpu.get(name)}


def draw(results):
    groups = list(ratios(results))
    longest = max(max(bars.values()) for _, bars in groups)
    scale = PLOT_WIDTH / longest
    parts, y = [], GAP
    for load, bars in groups:
        middle = y + BAR * len(bars) / 2
        parts.append(f'<text x="{LABEL_WIDTH - 10}" y="{middle + 4:.0f}" text-anchor="end">{escape(LOADS[load].label)}</text>')
        for name, ratio in bars.items():
            width = ratio * scale
            parts.append(f'<rect x="{LABEL_WIDTH}" y="{y}" width="{width:.0f}" height="{BAR - 2}" fill="{COLORS[name]}"/>')
            parts.append(f'<text x="{LABEL_WIDTH + width + 5:.0f}" y="{y + 10}">{name} {ratio:.2f}</text>')
            y += BAR
        y += GAP
    relay = LABEL_WIDTH + scale
    parts.append(f'<path d="M{relay:.0f} 4V{y}" stroke="#d64545" stroke-dasharray="4 3"/>')
    parts.append(f'<text x="{relay:.0f}" y="{y + 14}" text-anchor="middle">relay = 1</text>')
    width, height = LABEL_WIDTH + PLOT_WIDTH + 120, y + 24
    style = "font: 12px sans-serif; fill: #1f2933"
    body = "\n".join(parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
            f'<rect width="100%" height="100%" fill="#fff"/>\n<g style="{style}">\n{body}\n</g>\n</svg>\n')


if __name__ == "__main__":
    source, target = map(pathlib.Path, sys.argv[1:])
    target.write_text(draw(json.loads(source.read_text())["loads"]))
