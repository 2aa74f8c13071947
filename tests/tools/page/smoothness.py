# SPDX-License-Identifier: Apache-2.0
"""How fast the page of `cleave inspect --html` is, by Chromium's own trace: its size, when it first paints, and the frames while its
timeline is dragged and its pictures scroll by.

usage: smoothness.py PAGE [CHROMIUM]

Prints figures and judges none: they are those of this machine at this moment. Frames are asked for 60 times a second.
"""

import os
import sys
import time

from browser import Browser

CATEGORIES = "disabled-by-default-devtools.timeline,disabled-by-default-devtools.timeline.frame,devtools.timeline,devtools.timeline.frame,loading,blink.user_timing,cc,benchmark"


def traced(browser, act):
    """Events of a trace while `act` runs."""
    session, browser.session = browser.session, None
    browser.send("Tracing.start", traceConfig={"includedCategories": CATEGORIES.split(","), "excludedCategories": ["*"]}, transferMode="ReportEvents")
    browser.session = session
    act()
    browser.events.clear()
    browser.session = None
    browser.send("Tracing.end")
    events, end = [], time.monotonic() + 60
    while time.monotonic() < end:
        browser.take(time.monotonic() + 0.2)
        for method, parameters in browser.events:
            if method == "Tracing.dataCollected":
                events += parameters["value"]
        done = any(m == "Tracing.tracingComplete" for m, _ in browser.events)
        browser.events.clear()
        if done:
            break
    browser.session = session
    return events


def frames(events):
    """Milliseconds between frames that were drawn, and tasks of the page's main thread above 50 ms."""
    drawn = sorted(e["ts"] for e in events if e["name"] == "DrawFrame")
    gaps = [(b - a) / 1000 for a, b in zip(drawn, drawn[1:])]
    tasks = sorted((e["dur"] / 1000 for e in events if e["name"] in ("RunTask", "ThreadControllerImpl::RunTask") and e.get("dur", 0) > 50_000), reverse=True)
    scripts = sorted(e["dur"] / 1000 for e in events if e["name"] in ("FireAnimationFrame",) and "dur" in e)
    return gaps, tasks, scripts


def report(name, gaps, tasks, scripts):
    gaps.sort()
    part = lambda q: gaps[min(len(gaps) - 1, int(q * len(gaps)))] if gaps else float("nan")
    print(f"{name}: {len(gaps) + 1} frames, between two of them {part(0.5):.1f} ms (median), {part(0.95):.1f} ms (95 %), {part(1):.1f} ms (most); "
          f"the script of a frame {scripts[len(scripts) // 2] if scripts else 0:.1f} ms (median), {scripts[-1] if scripts else 0:.1f} ms (most); "
          f"{len(tasks)} tasks above 50 ms")


def main():
    page, program = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "chromium"
    print(f"{page}: {os.path.getsize(page) / 1e6:.2f} MB")
    with Browser(program) as browser:
        browser.size(1400)
        browser.media()
        for _ in range(3):
            browser.open(page)
            paints = browser.value("performance.getEntriesByType('paint').map(p => [p.name, p.startTime])")
            drawn = browser.value("performance.now()")
            print("  " + ", ".join(f"{name} {at:.0f} ms" for name, at in paints) + f"; all sections drawn before {drawn:.0f} ms")

        def pan():
            browser.value("moveTo(passEnd() * 0.3, passEnd() * 0.5)")
            x, y = browser.middle("document.getElementById('timeline-predicted')")
            browser.mouse("mouseMoved", x + 300, y)
            browser.mouse("mousePressed", x + 300, y, clickCount=1)
            begin = time.monotonic()
            while time.monotonic() - begin < 3:
                along = (time.monotonic() - begin) / 3
                browser.mouse("mouseMoved", x + 300 - 600 * abs((along * 3) % 2 - 1), y, buttons=1)
            browser.mouse("mouseReleased", x, y, clickCount=1)

        report("  pan of the timeline", *frames(traced(browser, pan)))

        def scroll():
            browser.value("scrollTo(0, 0)")
            for _ in range(120):
                browser.send("Input.dispatchMouseEvent", type="mouseWheel", x=700, y=500, deltaX=0, deltaY=60)

        report("  scroll of the page", *frames(traced(browser, scroll)))


if __name__ == "__main__":
    main()
