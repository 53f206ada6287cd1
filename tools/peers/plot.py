#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what peerbench --json wrote as an SVG, or writes it as tables for a README:

    python3 plot.py FIGURES.json >peers.svg
    python3 plot.py --table FIGURES.json

One column of bars per block size: stores above, loads below (every byte read by the same reader);
bars are medians, whiskers the lowest and the highest round. Axes begin at zero and are the same
within a row. Standard library only.
"""

import json
import sys
from xml.sax.saxutils import escape

# Okabe and Ito's colours, which colour-blind people can tell apart; ours is also outlined.
BLUE, ORANGE, GREY = "#0072B2", "#E69F00", "#999999"
INK, FAINT = "#222222", "#dddddd"
FILES = ("files on tmpfs", "files, page cache", "slots on tmpfs")

LABEL_WIDTH, PANEL_WIDTH, GAP = 290, 270, 44
WIDTH_MIN = 1040  # the title and the legend
BAR, STEP = 13, 20
TOP, BOTTOM, PANEL_HEAD, ROW_GAP = 92, 64, 30, 70


def read(path):
    """{(metric, block bytes, peer, how): value}, and peers in the order of the file."""
    values, order = {}, []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            case = entry["case"]
            key = (entry["metric"], case["block_bytes"], case["peer"], case.get("how"))
            values[key] = entry["value"]
            if case["peer"] not in order:
                order.append(case["peer"])
    return values, order


def rows_of(values, order, metric):
    """(peer, how, label) of every bar, in the order of the file."""
    rows = []
    for peer in order:
        for name, _, owner, how in values:
            label = peer if how is None else f"{peer}, {how}"
            if name == metric and owner == peer and (peer, how, label) not in rows:
                rows.append((peer, how, label))
    return rows


def size_name(block_bytes):
    return f"{block_bytes >> 20} MiB" if block_bytes >= 1 << 20 else f"{block_bytes >> 10} KiB"


def axis_step(top):
    for step in (0.5, 1, 2, 5, 10, 20, 50):
        if top / step <= 5:
            return step
    return 100


def text(x, y, content, size=12, anchor="start", weight="normal", fill=INK):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
        f'font-weight="{weight}" fill="{fill}">{escape(content)}</text>'
    )


def line(x1, y1, x2, y2, colour=INK, width=1.0):
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{colour}" stroke-width="{width}"/>'
    )


def colour_of(peer):
    if peer.startswith("kvcache-daemon"):
        return BLUE
    return GREY if peer in FILES else ORANGE


def bar(x, y, scale, median, low, high, peer):
    out = [
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{median * scale:.1f}" height="{BAR}" '
        f'fill="{colour_of(peer)}"/>'
    ]
    middle = y + BAR / 2
    out.append(line(x + low * scale, middle, x + high * scale, middle))
    for end in (low, high):
        out.append(line(x + end * scale, middle - 3, x + end * scale, middle + 3))
    out.append(text(x + max(median, high) * scale + 5, y + BAR - 2.5, f"{median:.2f}", 11))
    return out


def panel(values, metric, rows, block_bytes, x, y, top):
    height = len(rows) * STEP
    scale = (PANEL_WIDTH - 36) / top
    out = [text(x, y - 8, f"blocks of {size_name(block_bytes)}", 13, weight="bold")]
    step, tick = axis_step(top), 0.0
    while tick <= top:
        at = x + tick * scale
        out.append(line(at, y, at, y + height, FAINT if tick else INK))
        out.append(text(at, y + height + 15, f"{tick:g}", 11, "middle"))
        tick += step
    for i, (peer, how, _) in enumerate(rows):
        median = values.get((metric, block_bytes, peer, how))
        at = y + i * STEP + (STEP - BAR) / 2
        if median is None:
            out.append(text(x + 5, at + BAR - 2.5, "not measured", 11, fill="#666666"))
            continue
        low = values[(metric + "_low", block_bytes, peer, how)]
        high = values[(metric + "_high", block_bytes, peer, how)]
        out += bar(x, at, scale, median / 1e9, low / 1e9, high / 1e9, peer)
    return out


def section(values, title, metric, rows, sizes, y):
    highest = max(v for (m, *_), v in values.items() if m == metric + "_high") / 1e9
    out = [text(16, y - PANEL_HEAD, title, 14, weight="bold")]
    for i, (peer, _, label) in enumerate(rows):
        weight = "bold" if peer.startswith("kvcache-daemon") else "normal"
        out.append(
            text(LABEL_WIDTH - 8, y + i * STEP + STEP / 2 + 4, label, 12, "end", weight)
        )
    for i, block_bytes in enumerate(sizes):
        x = LABEL_WIDTH + i * (PANEL_WIDTH + GAP)
        out += panel(values, metric, rows, block_bytes, x, y, highest * 1.02)
        out.append(text(x, y + len(rows) * STEP + 31, "GB/s (1e9 bytes per second)", 11))
    return out


def legend(y):
    out, x = [], 16
    for colour, name in (
        (BLUE, "kvcache-daemon"),
        (ORANGE, "other caches and stores"),
        (GREY, "files: what copying and mapping alone reach"),
    ):
        out.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
        out.append(text(x + 18, y, name))
        x += 40 + 7 * len(name)
    out.append(text(x, y, "bars: medians, whiskers: lowest and highest round"))
    return out


def draw(values, order):
    sizes = sorted({block_bytes for _, block_bytes, _, _ in values})
    stores = rows_of(values, order, "store_bytes_per_s")
    loads = rows_of(values, order, "load_bytes_per_s")
    width = max(WIDTH_MIN, LABEL_WIDTH + len(sizes) * (PANEL_WIDTH + GAP))
    first = TOP + PANEL_HEAD
    second = first + len(stores) * STEP + ROW_GAP + PANEL_HEAD
    height = second + len(loads) * STEP + BOTTOM
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="DejaVu Sans, Helvetica, Arial, sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        text(16, 28, "Storing and loading blocks, one client: the same values, the same reader", 17,
             weight="bold"),
    ]
    out += legend(52)
    out += section(values, "Store", "store_bytes_per_s", stores, sizes, first)
    out += section(values, "Load, every byte read", "load_bytes_per_s", loads, sizes, second)
    out.append("</svg>")
    return "\n".join(out)


OURS_STORE = ("kvcache-daemon", None)
OURS_LOAD = ("kvcache-daemon", "in place")


def times(values, metric, block_bytes, row, ours):
    """Our rate by theirs, or a dash in our own row."""
    if row == ours or (metric, block_bytes, *ours) not in values:
        return "-"
    return f"{values[(metric, block_bytes, *ours)] / values[(metric, block_bytes, *row)]:.1f}"


def cells(values, block_bytes, row, metrics):
    """Rates in GB/s, latencies in microseconds, seconds per GB."""
    out = []
    for metric in metrics:
        value = values[(metric, block_bytes, *row)]
        if metric.endswith("_bytes_per_s"):
            low, high = (values[(metric + end, block_bytes, *row)] for end in ("_low", "_high"))
            shown = [f"{each / 1e9:.2f}" if each < 1e12 else ">1000" for each in (value, low, high)]
            out.append(f"{shown[0]} ({shown[1]}-{shown[2]})")
        elif metric.endswith("_cpu"):
            out.append(f"{value:.2f}")
        else:
            out.append(f"{value * 1e6:,.0f}")
    return out


def table(values, order, block_bytes, what):
    latencies = [f"{what}_p50", f"{what}_p99", f"{what}_cpu"]
    tail = "p50 us | p99 us | CPU s/GB |"
    if what == "store":
        ours, metrics = OURS_STORE, ["store_bytes_per_s"]
        print(f"| store, {size_name(block_bytes)} | GB/s | ours by it | {tail}")
    else:
        ours, metrics = OURS_LOAD, ["taken_bytes_per_s", "load_bytes_per_s"]
        head = "in hand, GB/s | ours by it | read, GB/s | ours by it"
        print(f"| load, {size_name(block_bytes)} | {head} | {tail}")
    print("|" + "---|" * (4 + 2 * len(metrics)))
    for peer, how, label in rows_of(values, order, metrics[-1]):
        row = (peer, how)
        if (metrics[0], block_bytes, *row) not in values:
            continue
        shown = []
        for metric in metrics:
            shown += cells(values, block_bytes, row, [metric])
            shown.append(times(values, metric, block_bytes, row, ours))
        shown += cells(values, block_bytes, row, latencies)
        print(f"| {label} | " + " | ".join(shown) + " |")
    print()


def main():
    arguments = sys.argv[1:]
    tables = arguments[:1] == ["--table"]
    if len(arguments) != 1 + tables or arguments[-1].startswith("-"):
        sys.exit("usage: python3 plot.py [--table] FIGURES.json")
    values, order = read(arguments[-1])
    if not any(metric == "store_bytes_per_s" for metric, *_ in values):
        sys.exit(f"plot.py: {arguments[-1]}: nothing was measured")
    if not tables:
        print(draw(values, order))
        return
    for block_bytes in sorted({block_bytes for _, block_bytes, _, _ in values}):
        table(values, order, block_bytes, "store")
        table(values, order, block_bytes, "load")


if __name__ == "__main__":
    main()
