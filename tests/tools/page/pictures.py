# SPDX-License-Identifier: Apache-2.0
"""Pictures compared with kept ones, at half their size and without text: fonts differ between machines. The bound: at most 1 % of
the points differ by more than 32 of 255 in a channel, and all of them by 2 on average. The plan is kept, too (plan.json: what a page of
`cleave inspect stories-260k --devices 'sim:h100[0-3]' --tp 2 --pp 2` carried): only the drawing is compared, not the planner."""

import json
import os
import pathlib
import struct
import zlib

FAR, MOST_FAR, MOST_MEAN = 32, 0.01, 2.0
NO_TEXT = """
(() => {
    const style = document.createElement("style");
    style.textContent = "* { color: transparent !important; caret-color: transparent } svg text { fill: transparent !important }";
    document.head.append(style);
    CanvasRenderingContext2D.prototype.fillText = () => {};
    if (typeof redraw === "function") redraw();
})()
"""
# Name: what is pictured, the window's width, dark, the view.
KEPT = {
    "machine": ("document.getElementById('machine-picture')", 1000, False, ""),
    "grid": ("document.getElementById('grid-picture')", 1000, True, ""),
    "grid_selected": ("document.getElementById('grid-picture')", 400, False, "#layer=3"),
    "timeline": ("document.getElementById('timeline-predicted')", 1000, False, ""),
    "memory": ("document.querySelector('.growth-picture')", 1000, False, ""),
}


def decode(png):
    """(width, height, rows of bytes, channels) of an 8-bit picture without interlacing."""
    at, data, width, height, channels = 8, b"", 0, 0, 0
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            channels = {2: 3, 6: 4}[colour]
            assert depth == 8
        elif kind == b"IDAT":
            data += body
        at += 12 + length
    raw, stride, before, rows = zlib.decompress(data), width * channels, bytes(width * channels), []
    for y in range(height):
        filter_, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1 : (y + 1) * (stride + 1)])
        for x in range(stride):
            left = line[x - channels] if x >= channels else 0
            up, corner = before[x], before[x - channels] if x >= channels else 0
            if filter_ == 1:
                line[x] = (line[x] + left) & 255
            elif filter_ == 2:
                line[x] = (line[x] + up) & 255
            elif filter_ == 3:
                line[x] = (line[x] + (left + up) // 2) & 255
            elif filter_ == 4:
                p = left + up - corner
                a, b, c = abs(p - left), abs(p - up), abs(p - corner)
                line[x] = (line[x] + (left if a <= b and a <= c else up if b <= c else corner)) & 255
        before = bytes(line)
        rows.append(before)
    return width, height, rows, channels


def difference(one, other):
    """(share of points that are far apart, mean distance of all channels), or None for other sizes."""
    a, b = decode(one), decode(other)
    if a[:2] != b[:2]:
        return None
    far = total = 0
    for row, kept in zip(a[2], b[2]):
        for x in range(a[0]):
            apart = [abs(row[x * a[3] + c] - kept[x * b[3] + c]) for c in range(3)]
            total += sum(apart)
            far += max(apart) > FAR
    points = a[0] * a[1]
    return far / points, total / (3 * points)


def with_kept_plan(page, folder):
    """The page with the kept plan in place of its own; the path of that page."""
    html, path = pathlib.Path(page).read_text(), pathlib.Path(folder) / "plan.json"
    opening = '<script type="application/json" id="data">'
    begin = html.index(opening) + len(opening)
    end = html.index("</script>", begin)
    if os.environ.get("UPDATE_GOLDEN"):
        plan = json.loads(html[begin:end])
        plan["page"]["texts"]["paragraphs"] = ["" for _ in plan["page"]["texts"]["paragraphs"]]
        path.write_text(json.dumps(plan, separators=(",", ":")).replace("<", "\\u003c") + "\n")
    changed = pathlib.Path(page).with_name("kept.html")
    changed.write_text(html[:begin] + path.read_text() + html[end:])
    return changed


def compare_all(browser, page, folder, expect):
    page = with_kept_plan(page, folder)
    for name, (script, width, dark, view) in KEPT.items():
        browser.size(width)
        browser.media(dark=dark)
        browser.open(page, view)
        browser.value(NO_TEXT)
        browser.frame()
        png, path = browser.picture(script, scale=0.5), pathlib.Path(folder) / (name + ".png")
        if os.environ.get("UPDATE_GOLDEN"):
            path.write_bytes(png)
            continue
        expect(path.exists(), f"{path} is not there; UPDATE_GOLDEN=1 writes it")
        if not path.exists():
            continue
        apart = difference(png, path.read_bytes())
        if apart is None:
            expect(False, f"{name}: of another size than {path}")
            continue
        far, mean = apart
        expect(far <= MOST_FAR and mean <= MOST_MEAN,
               f"{name}: {100 * far:.2f} % of its points are far from {path}, {mean:.2f} of 255 on average; look at it, then UPDATE_GOLDEN=1")
