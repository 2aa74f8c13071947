// SPDX-License-Identifier: Apache-2.0
// Timelines of a pass: the predicted one, and where a trace was given the measured one below it, over the same time.

const timeParts = [["computes", "compute_us", "var(--computes)"], ["exchanges", "exchange_us", "var(--exchanges)"],
                   ["waits", "waiting_us", "transparent"]];
const timelines = [];
// Of the pass that is shown: where it was measured, of one of that size.
const passEnd = () => measuredOf(state.phase) ? Math.max(...timelines.map(t => t.end || 0), 0.001) : passUs(state.phase);
const viewFrom = () => state.from ?? 0;
const viewUntil = () => state.until ?? passEnd();

const predictedLanes = {};
function lanesPredicted(phase) {
    if (!predictedLanes[phase]) {
        const byDevice = new Map(deviceNames.map(n => [n, []]));
        for (const s of steps[phase]) {
            const it = {start: s.start_us, end: s.start_us + s.predicted_us, s};
            for (const d of s.devices) byDevice.get(d).push(it);
        }
        for (const items of byDevice.values()) items.sort((a, b) => a.start - b.start);
        predictedLanes[phase] = {lanes: lanesOfTimes(byDevice), spans: layerSpans([...byDevice.values()].flat())};
    }
    return predictedLanes[phase];
}
let waiting = false;
function redraw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
        waiting = false;
        for (const t of timelines) if (!t.canvas.hidden) drawTimeline(t);
    });
}
let settled = 0;
function moveTo(from, until) {
    const end = passEnd(), size = Math.min(Math.max(until - from, 0.02), end);
    from = Math.max(0, Math.min(from, end - size));
    const whole = size >= end * 0.9999;
    state.from = whole ? null : from;
    state.until = whole ? null : from + size;
    redraw();
    clearTimeout(settled);
    settled = setTimeout(() => keepAddress(false), 300);
}
function zoomBy(by, part = 0.5) {
    const size = viewUntil() - viewFrom(), centre = viewFrom() + part * size, next = Math.min(size * by, passEnd());
    moveTo(centre - part * next, centre - part * next + next);
}
function stepLines(it, lane) {
    const s = it.s;
    return ["step " + s.id + ": " + what(s), layerWords(s.layer) + ", stage " + s.stage + ", " + where(s),
            "at " + time(it.start) + " for " + time(it.end - it.start) + ", " + bytes(s.bytes) +
                (s.link_bytes > 0 ? ", " + bytes(s.link_bytes) + " between devices" : ""),
            it.note || "", s.operators ? counted(s.operators) : "", lane.devices.length > 1 ? lane.devices.length + " devices do the same" : ""];
}

// ---- Pointer and keys of one timeline
function listenTo(t) {
    const pointers = new Map();
    let moved = 0, pinch = null;
    const part = x => Math.min(1, Math.max(0, (x - geometry(t).label) / (geometry(t).right - geometry(t).label)));
    t.canvas.addEventListener("wheel", e => {
        if (e.ctrlKey || e.metaKey || e.shiftKey) {
            e.preventDefault();
            zoomBy(Math.exp((e.deltaY || e.deltaX) * 0.002), part(e.offsetX));
        } else if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
            e.preventDefault();
            const by = e.deltaX / geometry(t).scale;
            moveTo(viewFrom() + by, viewUntil() + by);
        }
    }, {passive: false});
    t.canvas.addEventListener("pointerdown", e => {
        pointers.set(e.pointerId, e.offsetX);
        moved = 0;
        t.canvas.setPointerCapture(e.pointerId);
        if (pointers.size === 2) pinch = Math.abs([...pointers.values()][0] - [...pointers.values()][1]);
    });
    const end = e => {
        if (pointers.delete(e.pointerId) && e.type === "pointerup" && moved < 4 && pointers.size === 0) pickAt(t, e.offsetX, e.offsetY);
        pinch = null;
    };
    t.canvas.addEventListener("pointerup", end);
    t.canvas.addEventListener("pointercancel", end);
    t.canvas.addEventListener("pointerleave", hideTip);
    t.canvas.addEventListener("dblclick", e => zoomBy(0.4, part(e.offsetX)));
    t.canvas.addEventListener("pointermove", e => {
        if (pointers.has(e.pointerId)) {
            const by = pointers.get(e.pointerId) - e.offsetX;
            pointers.set(e.pointerId, e.offsetX);
            moved += Math.abs(by);
            if (pinch !== null && pointers.size === 2) {
                const [a, b] = [...pointers.values()], now = Math.max(8, Math.abs(a - b));
                zoomBy(pinch / now, part((a + b) / 2));
                pinch = now;
            } else if (moved >= 4) {
                hideTip();
                moveTo(viewFrom() + by / geometry(t).scale, viewUntil() + by / geometry(t).scale);
            }
            return;
        }
        const hit = itemAt(t, e.offsetX, e.offsetY);
        if (hit) showTip(e, stepLines(hit.it, hit.lane)); else hideTip();
    });
    t.canvas.addEventListener("keydown", e => timelineKey(t, e));
}
function pickAt(t, x, y) {
    const g = geometry(t);
    if (y >= axisTall && y < g.top) {
        const us = t.from() + (x - g.label) / g.scale;
        const span = t.spans.find(s => s.start <= us && us <= s.end);
        if (span) selectLayer(span.layer);
        return;
    }
    const lane = laneAtY(t, y);
    if (lane && x < g.label) {
        if (lane.devices.length === 1) selectDevice(lane.devices[0]);
        return;
    }
    const hit = itemAt(t, x, y);
    if (hit) selectStep(hit.it.s);
}
// Arrow keys go from step to step and from lane to lane; Enter selects; + - 0 zoom.
function timelineKey(t, e) {
    const zooms = {"+": 0.5, "=": 0.5, "-": 2};
    if (e.key in zooms) zoomBy(zooms[e.key]);
    else if (e.key === "0") moveTo(0, passEnd());
    else if (e.key.startsWith("Arrow")) {
        const at_ = t.at || {lane: 0, item: -1};
        if (e.key === "ArrowUp" || e.key === "ArrowDown") {
            const lane = Math.min(t.lanes.length - 1, Math.max(0, at_.lane + (e.key === "ArrowDown" ? 1 : -1)));
            const now = t.lanes[at_.lane].items[at_.item];
            t.at = {lane, item: Math.min(t.lanes[lane].items.length - 1, now ? firstItem(t.lanes[lane].items, now.start) : 0)};
        } else {
            const last = t.lanes[at_.lane].items.length - 1;
            t.at = {lane: at_.lane, item: Math.min(last, Math.max(0, at_.item + (e.key === "ArrowRight" ? 1 : -1)))};
        }
        const lane = t.lanes[t.at.lane], it = lane.items[t.at.item];
        if (!it) return;
        const words = lane.name + ": " + stepLines(it, lane).filter(Boolean).join(", ");
        t.current.setAttribute("aria-label", plain(words));
        t.canvas.setAttribute("aria-activedescendant", t.current.id);
        say(words);
        if (it.start < viewFrom() || it.end > viewUntil()) {
            const size = viewUntil() - viewFrom();
            moveTo(it.start - size * 0.3, it.start + size * 0.7);
        }
        redraw();
    } else if (e.key === "Enter" || e.key === " ") {
        const it = t.at && t.lanes[t.at.lane].items[t.at.item];
        if (it) selectStep(it.s);
    } else return;
    e.preventDefault();
}
function addTimeline(parent, id, name, lanes) {
    const canvas = element("canvas", parent);
    canvas.id = id;
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-roledescription", "timeline");
    canvas.setAttribute("aria-label", name + ": arrow keys go from step to step, Enter selects, + and - zoom, 0 shows the whole pass");
    const current = element("div", canvas);
    current.id = id + "-step";
    current.setAttribute("role", "button");
    current.setAttribute("aria-label", "the step at the cursor");
    const t = {canvas, current, from: viewFrom, until: viewUntil, colour: it => kindColours.get(kindOf(it.s)),
               keeps: (s, lane) => selected(s) && (state.device === null || lane.devices.includes(state.device)),
               marked: s => (state.step === s.id && state.phase === s.phase) || (t.at && document.activeElement === canvas &&
                             t.lanes[t.at.lane].items[t.at.item]?.s === s), ...lanes};
    timelines.push(t);
    listenTo(t);
    canvas.addEventListener("focus", redraw);
    canvas.addEventListener("blur", redraw);
    return t;
}
let pressPhase = null;
function drawTimelines() {
    const body = at("timeline-body");
    if (timelines.length === 0) {
        const tools = element("div", body, undefined, "tools");
        pressPhase = choice(tools, "phase", [["decode", "decode: " + time(passUs("decode"))],
            ["prefill", "prefill of " + count(data.passes.prefill.num_tokens) + " tokens: " + time(passUs("prefill"))]], phase => change({phase}));
        button(tools, "+", () => zoomBy(0.5), "zoom in");
        button(tools, "−", () => zoomBy(2), "zoom out");
        button(tools, "whole pass", () => moveTo(0, passEnd()));
        element("span", tools, "drag: move; Ctrl and wheel: zoom; click: what runs there", "dim");
        element("h3", body, "Predicted").id = "predicted-name";
        addTimeline(body, "timeline-predicted", "Predicted timeline", lanesPredicted(state.phase));
        addMeasured(body);
        keys(body, kinds.map(k => [k, kindColours.get(k)])).id = "legend";
    }
    pressPhase(state.phase);
    Object.assign(timelines[0], lanesPredicted(state.phase), {at: null, end: 0});
    fillMeasured();
    at("predicted-name").hidden = timelines.length === 1;
    redraw();
}
view(["phase"], () => drawTimelines());
view(["device", "layer", "value", "link", "step", "from", "until"], () => redraw());
