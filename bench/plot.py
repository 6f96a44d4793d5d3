#!/usr/bin/env python3
"""Draws the history of instruction counts: one line per metric, as one SVG.

    bench/plot.py [--metrics PREFIX] [--out FILE]     history.csv to target/history.svg

Each step is an entry of history.csv; the y axis is the count relative to the metric's first entry, so that metrics of
different sizes can be compared.
"""

import argparse
import csv
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 480, 60, 300, 30, 40
COLOURS = ("#1b6ca8", "#c0392b", "#27864a", "#8e44ad", "#b9770e", "#117a75", "#5d6d7e", "#7b241c", "#1f618d", "#666600")


def read(prefix):
    """The counts of each metric in the order of the history: {metric: [(step, count)]}, and the steps."""
    steps, series = [], {}
    with (ROOT / "bench" / "history.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if not row["metric"].startswith(prefix) or row["metric"].count("/") > 1:
                continue
            step = (row["date"], row["parent commit"], row["why"])
            if step not in steps:
                steps.append(step)
            series.setdefault(row["metric"], []).append((steps.index(step), int(row["after"])))
    return steps, series


def draw(steps, series):
    last = max(len(steps) - 1, 1)
    relative = {m: [(s, c / points[0][1]) for s, c in points] for m, points in series.items()}
    values = [v for points in relative.values() for _, v in points]
    low, high = min(values + [0.9]), max(values + [1.1])

    def x(step):
        return LEFT + (WIDTH - LEFT - RIGHT) * step / last

    def y(value):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="18">Instructions per request, relative to the first entry</text>',
    ]
    for part in range(5):
        value = low + (high - low) * part / 4
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>')
    for step, (date, commit, why) in enumerate(steps):
        title = escape(f"{date} {commit}: {why}")
        out.append(f'<text x="{x(step):.1f}" y="{HEIGHT - 20}" text-anchor="middle">{step + 1}<title>{title}</title></text>')
    for number, (metric, points) in enumerate(sorted(relative.items())):
        colour = COLOURS[number % len(COLOURS)]
        # A metric keeps its last count until its next entry.
        points = [*points, (last, points[-1][1])]
        path = " ".join(f"{'M' if i == 0 else 'L'}{x(s):.1f},{y(v):.1f}" for i, (s, v) in enumerate(points))
        out.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        row = TOP + 16 * number
        out.append(f'<rect x="{WIDTH - RIGHT + 16}" y="{row - 9}" width="10" height="10" fill="{colour}"/>')
        label = f"{escape(metric)}: {series[metric][-1][1]}"
        out.append(f'<text x="{WIDTH - RIGHT + 32}" y="{row}">{label}</text>')
    out.append("</svg>")
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", metavar="PREFIX", default="", help="only metrics that begin with PREFIX")
    parser.add_argument("--out", metavar="FILE", type=Path, default=ROOT / "target" / "history.svg")
    options = parser.parse_args()
    steps, series = read(options.metrics)
    if not series:
        parser.error(f"history.csv has no metric that begins with {options.metrics!r}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(draw(steps, series), encoding="utf-8")
    print(f"{len(series)} metrics, {len(steps)} entries: {options.out}")


if __name__ == "__main__":
    main()
