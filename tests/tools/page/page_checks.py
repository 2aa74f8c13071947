# SPDX-License-Identifier: Apache-2.0
"""What the page of `cleave inspect --html` does in a real browser.

usage: page_checks.py CHROMIUM CHECK PAGE [FOLDER]

CHECK: the name of a function below. Prints each expectation that does not hold and exits with 1. FOLDER: of `pictures`, the kept
ones; with UPDATE_GOLDEN=1 they are written.
"""

import os
import sys

import pictures as kept
from browser import Browser

failures = []


def expect(holds, what):
    if not holds:
        failures.append(what)


def equal(found, wanted, what):
    expect(found == wanted, f"{what}: {found!r}, not {wanted!r}")


def quiet(browser, when):
    expect(not browser.problems, f"{when}: the console has {browser.problems[:5]}")
    foreign = [r for r in browser.requests if not r.startswith(("file://", "about:", "data:"))]
    expect(not foreign, f"{when}: the page asked for {foreign[:5]}")
    browser.problems.clear()


def fragment(browser):
    return browser.value("decodeURIComponent(location.hash)")


def text(browser, script):
    return browser.value(f"({script}).innerText")


def drawn(browser, canvas):
    """Whether a canvas shows more than one of its size that nothing was drawn on."""
    return browser.value(f"(() => {{ const c = document.getElementById('{canvas}'), blank = document.createElement('canvas');"
                         "blank.width = c.width; blank.height = c.height; return c.toDataURL() !== blank.toDataURL(); })()")


# Parts of the pictures, by what a reader would say of them.
def part(selector, words):
    return f"[...document.querySelectorAll({selector!r})].find(e => (e.getAttribute('aria-label') || e.textContent).includes({words!r}))"


def draws(browser, page):
    """Three widths in two themes: every section is there, nothing is wider than the page, the console is silent."""
    for width in (400, 900, 1400):
        for dark in (False, True):
            browser.size(width)
            browser.media(dark=dark)
            browser.open(page)
            when = f"{width} px, {'dark' if dark else 'light'}"
            quiet(browser, when)
            expect(browser.value("document.documentElement.scrollWidth") <= width, f"{when}: the page is wider than its window")
            for section in ("why", "machine", "grid", "timeline", "memory", "tables"):
                expect(browser.value(f"document.getElementById('{section}').getBoundingClientRect().height") > 60, f"{when}: {section} is empty")
            light = browser.value("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number).reduce((a, b) => a + b)")
            expect((light < 200) == dark, f"{when}: the ground has {light} of 765")
            expect(drawn(browser, "timeline-predicted"), f"{when}: the timeline is blank")
    # The system's theme gives way to the chosen one.
    browser.media(dark=True)
    for name, is_dark in (("light", False), ("dark", True), ("auto", True)):
        browser.click("document.getElementById('theme')")
        light = browser.value("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number).reduce((a, b) => a + b)")
        expect((light < 200) == is_dark, f"theme {name}: the ground has {light} of 765")
        expect(name in text(browser, "document.getElementById('theme')"), f"theme {name}: the button says another")


def clicks(browser, page):
    """Each thing that can be clicked does what it says, and the rest of the page follows."""
    browser.size(1400)
    browser.media()
    browser.open(page)
    names = browser.value("deviceNames")
    device = names[1]
    browser.click(part("#machine-picture .pick", device + ", ") + ".querySelector('rect')")
    equal(fragment(browser), "#device=" + device, "a device of the machine")
    expect(device in text(browser, "document.getElementById('panel')"), "the panel is of the device")
    expect(browser.value(f"[...document.querySelectorAll('#table tbody tr')].every(r => r.innerText.includes({device!r}) || r.innerText.includes('['))"),
           "the table of steps holds to the device")
    all_steps = browser.value("steps.decode.length")
    own = browser.value(f"steps.decode.filter(s => s.devices.includes({device!r})).length")
    expect(own < all_steps and str(own) in text(browser, "document.getElementById('steps-found')").replace("\u202f", ""), "steps of the device alone")
    expect(browser.value("document.querySelectorAll('#grid-picture .cell.off').length") > 0, "cells of other devices step back")
    expect(browser.value("document.querySelectorAll('#machine-picture .device.off').length") == len(names) - 1, "other devices step back")

    browser.click(part("#grid-picture .column", "layer 1: "))
    expect("layer=1" in fragment(browser), "a layer of the grid")
    expect("layer 1" in text(browser, "document.getElementById('crumbs')"), "the way down names the layer")
    browser.click(part("#layer-picture .pick", "norm_gate_up"))
    expect("step=" in fragment(browser), "a step of the layer")
    source = text(browser, "document.querySelector('#kernel-source pre')")
    expect("norm_gate_up" in source.lower() or "gate" in source, "the kernel's source is there")
    expect("shared memory" in text(browser, "document.getElementById('operator')") or "scratch" in text(browser, "document.getElementById('operator')"),
           "and its resources")
    browser.click("document.querySelector('#operator dd button')")
    expect("value=" in fragment(browser), "a value of the operator")
    panel = text(browser, "document.getElementById('panel')")
    expect("Owners: " in panel and "Replicas: " in panel and "Read by" in panel, "owners, replicas and readers of a value")
    weight = browser.value("[...weightRows.keys()].find(n => n.includes('q_proj'))")
    browser.value(f"selectValue({weight!r})")
    expect("Owners: " in text(browser, "document.getElementById('panel')"), "owners of a weight")

    browser.click(part("#filters button", "clear all"))
    equal(fragment(browser), "", "all is let go")
    expect(browser.value("document.getElementById('panel').hidden"), "the panel is gone")
    moved = browser.value("(l => l && [l.from, l.to])([...linkOf.values()].find(l => l.bytes.decode > 0))")
    if moved:
        browser.value("showTable('Links')")
        browser.click("document.querySelector('#table td button')")
        expect("link=" in fragment(browser), "a link of the table")
        expect("Steps that cross it" in text(browser, "document.getElementById('panel')"), "what crosses a link")
        browser.click(part("#filters button", "let go: link"))
        expect("link=" not in fragment(browser), "a link is let go")
    quiet(browser, "clicks")


def timelines(browser, page):
    """Zoom, pan, click, phases; and what the address keeps of them."""
    browser.size(1400)
    browser.media()
    browser.open(page)
    canvas = "document.getElementById('timeline-predicted')"
    x, y = browser.middle(canvas)
    browser.click(part("#timeline button", "zoom in"))
    browser.until("location.hash.includes('from=')")
    before = browser.value("[viewFrom(), viewUntil()]")
    x, y = browser.middle(canvas)
    browser.mouse("mouseMoved", x, y)
    browser.mouse("mousePressed", x, y, clickCount=1)
    for i in range(1, 6):
        browser.mouse("mouseMoved", x - 20 * i, y, buttons=1)
    browser.mouse("mouseReleased", x - 100, y, clickCount=1)
    browser.frame()
    after = browser.value("[viewFrom(), viewUntil()]")
    expect(after[0] > before[0] and abs((after[1] - after[0]) - (before[1] - before[0])) < 1e-6 * before[1], f"a drag moves: {before} to {after}")
    expect("step=" not in fragment(browser), "a drag is no click")
    browser.click(part("#timeline button", "whole pass"))
    equal(browser.value("state.from"), None, "the whole pass")
    # The middle of the first lane's longest step.
    at = browser.value("(() => { const t = timelines[0], g = geometry(t), it = t.lanes[0].items.reduce((a, b) => b.end - b.start > a.end - a.start ? b : a);"
                       f"const r = {canvas}.getBoundingClientRect(); return [r.left + g.label + (it.start + it.end) / 2 * g.scale, r.top + g.top + laneTall / 2, it.s.id]; }})()")
    browser.click(None, at[0], at[1])
    expect(f"step={at[2]}" in fragment(browser), f"a click on the timeline selects step {at[2]}: {fragment(browser)}")
    browser.click(part("#timeline button", "prefill"))
    expect("phase=prefill" in fragment(browser) and "step=" not in fragment(browser), "the other phase")
    expect("of a pass of prefill" in text(browser, "document.getElementById('steps-found')"), "its steps")
    quiet(browser, "timelines")


def addresses(browser, page):
    """A link to a view shows that view, the browser's way back goes back, nonsense is left out."""
    browser.size(1400)
    browser.media()
    browser.open(page)
    device = browser.value("deviceNames[0]")
    browser.open(page, f"#phase=prefill&device={device}&layer=1&from=2&until=40")
    equal(browser.value("[state.phase, state.device, state.layer, state.from, state.until]"), ["prefill", device, 1, 2, 40], "a link to a view")
    expect(device in text(browser, "document.getElementById('panel')"), "the panel is there at once")
    expect(browser.value("document.querySelectorAll('#layer-picture .step').length") > 3, "and the layer")
    browser.value("selectLayer(0)")
    browser.value("history.back()")
    browser.until("state.layer === 1", "the way back")
    browser.open(page, "#phase=x&device=<script>&layer=9999&step=-4&value=none&link=a>b&from=9&until=1&every=%%")
    equal(browser.value("JSON.stringify(state) === JSON.stringify(blank)"), True, "nonsense is left out")
    quiet(browser, "addresses")


def keyboard(browser, page):
    """All of it without a mouse."""
    browser.size(1400)
    browser.media()
    browser.open(page)
    browser.key("/")
    equal(browser.value("document.activeElement.id"), "search", "/ goes to the search")
    browser.type("layer 1")
    expect(browser.value("document.querySelectorAll('#found [role=option]').length") > 0, "the search finds")
    browser.key("ArrowDown")
    browser.key("Enter")
    expect("layer=1" in fragment(browser), "Enter picks what was found: " + fragment(browser))
    browser.value("document.activeElement.blur()")
    browser.key("]")
    expect("layer=2" in fragment(browser), "] is the next layer")
    browser.key("Escape")
    equal(fragment(browser), "", "Escape lets go")
    browser.key("p")
    equal(fragment(browser), "#phase=prefill", "p is prefill")
    browser.key("d")
    browser.key("?", shift=True)
    expect(browser.value("document.getElementById('help').open"), "? shows the keys")
    browser.key("Escape")
    expect(not browser.value("document.getElementById('help').open"), "Escape closes them")
    # Into a picture by Tab, along it by arrows, and Enter.
    browser.value("document.getElementById('machine').scrollIntoView(); document.getElementById('search').focus()")
    for _ in range(60):
        browser.key("Tab")
        if browser.value("!!document.activeElement.closest('#machine-picture')"):
            break
    first = browser.value("document.activeElement.getAttribute('aria-label')")
    browser.key("ArrowRight")
    second = browser.value("document.activeElement.getAttribute('aria-label')")
    expect(first != second and browser.value("!!document.activeElement.closest('#machine-picture')"), f"arrows go from {first} to {second}")
    browser.key("Enter")
    expect(fragment(browser) != "", "Enter selects in the machine")
    browser.key("Escape")
    browser.value("document.getElementById('timeline-predicted').focus()")
    browser.key("ArrowRight")
    browser.key("ArrowRight")
    named = browser.value("document.getElementById('timeline-predicted-step').getAttribute('aria-label')")
    expect("step" in named, "the timeline says which step: " + named)
    browser.key("Enter")
    expect("step=" in fragment(browser), "Enter selects it")
    browser.key("+", shift=True)
    expect(browser.value("state.from !== null"), "+ zooms")
    browser.key("0")
    expect(browser.value("state.from === null"), "0 shows the whole pass")
    browser.value("document.getElementById('tab-Steps').focus()")
    browser.key("ArrowRight")
    equal(browser.value("document.activeElement.id"), "tab-Devices", "arrows change the table")
    quiet(browser, "keyboard")


def named(browser, page):
    """All that can be clicked has a name for those who do not see it."""
    browser.size(1400)
    browser.media()
    browser.open(page)
    browser.value("change({device: deviceNames[0], layer: columns[Math.floor(columns.length / 2)]})")
    browser.value("selectStep(steps.decode.find(s => s.layer === state.layer && s.kind === 'compute'))")
    browser.frame()
    nodes = browser.accessible()
    roles = {"button", "link", "tab", "option", "textbox", "searchbox", "combobox", "checkbox", "application", "DisclosureTriangle", "Canvas"}
    nameless = [role for role, name in nodes if role in roles and not name.strip()]
    expect(not nameless, f"without a name: {nameless[:10]}")
    buttons = [name for role, name in nodes if role == "button"]
    for selector in ("#machine-picture .pick", "#grid-picture .pick", "#layer-picture .pick", "#panel button"):
        labels = browser.value(f"[...document.querySelectorAll({selector!r})].map(e => e.getAttribute('aria-label') || e.textContent)")
        expect(labels and all(x in buttons for x in labels), f"{selector}: {len(labels)} parts, some no button of the tree")
    # And whatever has an ear for clicks is among these.
    deaf = browser.value("[...document.querySelectorAll('*')].filter(e => e.onclick && !e.matches('button, a, .pick')).map(e => e.outerHTML.slice(0, 80))")
    expect(not deaf, f"clickable and no button: {deaf}")
    for canvas in ("timeline-predicted",):
        expect(browser.value(f"document.getElementById('{canvas}').tabIndex") == 0, canvas + " takes the keyboard")


def hostile(browser, page):
    """Names from a file are text: this page's plan has them everywhere."""
    browser.size(1400)
    browser.media()
    browser.open(page)
    quiet(browser, "hostile names")
    equal(browser.value("document.querySelectorAll('img, iframe, object, embed, link, base').length"), 0, "elements that a name made")
    equal(browser.value("document.scripts.length"), 2, "scripts")
    equal(browser.value("window.hit === undefined"), True, "a name ran")
    title = text(browser, "document.getElementById('title')")
    expect("<img src=x onerror=" in title, "the name is shown as it is: " + title)
    expect("\\u202e" in title and "\u202e" not in title, "what turns the text around is shown as a code: " + title)
    for device in browser.value("deviceNames"):
        browser.value(f"select({{device: {device!r}}})")
    for layer in browser.value("columns"):
        browser.value(f"change({{layer: {layer}}})")
    browser.value("for (const name of new Set(steps.decode.map(s => s.value))) selectValue(name)")
    for table in ("Steps", "Devices", "Layers", "Kernels", "Links"):
        browser.value(f"showTable('{table}')")
    browser.frame()
    equal(browser.value("document.querySelectorAll('img, iframe, object, embed, link, base').length"), 0, "elements that a name made by clicks")
    equal(browser.value("window.hit === undefined"), True, "a name ran by clicks")
    quiet(browser, "hostile names, clicked")


def printed(browser, page):
    """On paper: light, without tools, nothing cut at the right."""
    browser.size(1400)
    browser.media(dark=True)
    browser.open(page)
    browser.media(kind="print", dark=True)
    browser.frame()
    equal(browser.value("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)", "paper is white")
    equal(browser.value("getComputedStyle(document.getElementById('page-tools')).display"), "none", "no tools on paper")
    pdf = browser.send("Page.printToPDF", printBackground=True)["data"]
    expect(len(pdf) > 20000, f"the print has {len(pdf)} characters")
    browser.size(794)
    browser.frame()
    expect(browser.value("document.documentElement.scrollWidth") <= 794, "a page of paper cuts nothing off")
    quiet(browser, "print")


def swept(browser, page):
    """A sweep as bars, of the figure that is asked for."""
    browser.size(1400)
    browser.media()
    browser.open(page)
    bars = "document.querySelectorAll('#sweep .sweepbar').length"
    rows = browser.value("data.sweep.rows.length")
    equal(browser.value(bars), rows, "bars of the sweep")
    before = browser.value("document.querySelector('#sweep .sweepbar rect').getAttribute('height')")
    browser.click(part("#sweep button", "prefill"))
    expect(browser.value("document.querySelector('#sweep .sweepbar rect').getAttribute('height')") != before, "another figure, other bars")
    expect(browser.value("[...document.querySelectorAll('#sweep .sweepbar')].some(e => e.getAttribute('aria-label').includes('does not fit') || e.querySelector('text'))"),
           "what does not fit is a cross")
    quiet(browser, "a sweep")


def pair(browser, page):
    """Two plans side by side."""
    for width in (400, 1400):
        browser.size(width)
        browser.media()
        browser.open(page)
        body = text(browser, "document.getElementById('against')")
        for words in ("Two plans", "tokens/s", "moved, a decode pass", "the other plan"):
            expect(words in body, f"{width} px: {words!r} is not in the comparison")
        expect("lies elsewhere" in body, f"{width} px: which layers lie elsewhere")
        equal(browser.value("document.querySelectorAll('#against svg').length"), 2, f"{width} px: two grids")
        expect(browser.value("document.documentElement.scrollWidth") <= width, f"{width} px: wider than the window")
    quiet(browser, "two plans")


def many(browser, page):
    """More devices than rows: alike ones are one, until all are asked for."""
    browser.size(1400)
    browser.media()
    browser.open(page)
    few = browser.value("document.querySelectorAll('#grid-picture .rowname').length")
    devices = browser.value("deviceNames.length")
    expect(few < devices, f"{few} rows of {devices} devices")
    browser.click(part("#grid-tools button", "every device"))
    equal(browser.value("document.querySelectorAll('#grid-picture .rowname').length"), devices, "every device has a row")
    expect("every=yes" in fragment(browser), "and the address keeps it")
    quiet(browser, "many devices")


def weights(browser, page):
    """The weights of each layer, and the steps that read each, where an exporter's names say neither."""
    browser.size(1400)
    browser.media()
    browser.open(page)
    names = browser.value("[...weightRows.keys()]")
    expect(sum("layers" not in n for n in names) > len(names) / 2, f"names of an exporter: {names[:5]}")
    listed = []
    for layer in browser.value("columns"):
        browser.value(f"change({{layer: {layer}, step: null, value: null}})")
        listed += browser.value("[...document.querySelectorAll('#panel h4')].filter(h => h.textContent === 'Weights')"
                                ".flatMap(h => [...h.nextElementSibling.querySelectorAll('button')].map(b => b.textContent))")
    equal(sorted(listed), sorted(names), "weights of all layers")
    for name in names:
        browser.value(f"change({{layer: null, value: {name!r}}})")
        expect("Read by" in text(browser, "document.getElementById('panel')"), f"who reads {name}")
        for phase in ("decode", "prefill"):
            expect(browser.value(f"steps.{phase}.filter(selected).length") > 0, f"{phase}: no step reads {name}")
    quiet(browser, "weights")


def measured(browser, page):
    """What a run measured, under its prediction, and the difference."""
    browser.size(1400)
    browser.media()
    browser.open(page)
    for phase in ("decode", "prefill"):
        browser.value(f"change({{phase: '{phase}'}})")
        browser.frame()
        if browser.value(f"data.measured.{phase} === null"):
            continue
        for canvas in ("timeline-predicted", "timeline-measured", "timeline-difference"):
            expect(drawn(browser, canvas), f"{phase}: {canvas} is blank")
        expect("predicted" in text(browser, "document.getElementById('measured-says')"), phase + ": in words")
        equal(browser.value("document.querySelectorAll('#differences tbody tr').length > 0"), True, phase + ": differences")
    names = [n for _, n in browser.accessible()]
    expect(any(n.startswith("Measured: arrow keys") for n in names), "the measured timeline has a name")
    quiet(browser, "measured")


def svg(browser, page):
    """An SVG file of `--svg`: XML that the browser's parser takes, names as text, parts for what the plan has."""
    browser.size(1400)
    browser.send("Page.navigate", url="file://" + os.path.abspath(page))
    browser.until("document.readyState === 'complete' && location.href.endsWith('.svg')")
    equal(browser.value("document.documentElement.nodeName"), "svg", "the root")
    equal(browser.value("document.querySelectorAll('parsererror').length"), 0, "faults of the XML")
    equal(browser.value("document.querySelectorAll('img, script, foreignObject, a').length"), 0, "elements that a name made")
    expect(browser.value("document.querySelectorAll('rect').length") > 5, "it has parts")
    expect(browser.value("[...document.querySelectorAll('text')].some(e => e.textContent.includes('layer'))"), "it names layers")
    quiet(browser, "svg")


def pictures(browser, page, folder):
    """The drawings as they were kept: without text, for fonts differ between machines."""
    kept.compare_all(browser, page, folder, expect)


def main():
    program, check, page, *rest = sys.argv[1:]
    with Browser(program) as browser:
        globals()[check](browser, page, *rest)
    for what in failures:
        print(what)
    return 1 if failures else 0


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    sys.exit(main())
