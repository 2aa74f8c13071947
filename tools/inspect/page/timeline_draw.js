// SPDX-License-Identifier: Apache-2.0
// Lanes of steps over time, on a canvas: 100 000 steps are drawn in a few milliseconds, for a lane draws at most one step a pixel.
// Devices whose steps begin and end together are one lane.

const laneTall = 24, axisTall = 22, layersTall = 20;

// By device {start, end, s} in order of time -> lanes {name, devices, items}.
function lanesOfTimes(byDevice) {
    const kindAt = new Map(kinds.map((k, i) => [k, i]));
    const hash = items => {
        let a = items.length, b = 7;
        for (const it of items)
            for (const n of [Math.round(it.start * 1000), Math.round(it.end * 1000), kindAt.get(kindOf(it.s)), it.s.layer]) {
                a = Math.imul(a ^ n, 0x9e3779b1) + (b >>> 15) | 0;
                b = Math.imul(b + n, 0x85ebca6b) ^ (a >>> 13);
            }
        return a + "," + b;
    };
    const lanes = groupBy(deviceNames, n => hash(byDevice.get(n)));
    return lanes.map(devices => ({devices, name: fold(devices) + (devices.length > 1 ? " (" + devices.length + ")" : ""),
                                  items: byDevice.get(devices[0])}));
}
function layerSpans(items) {
    const spans = new Map(), compute = items.filter(it => it.s.kind === "compute");
    // An exchange may wait long before its layer begins; it ends with it.
    for (const it of compute.length ? compute : items) {
        const key = it.s.layer + "/" + it.s.stage, span = spans.get(key);
        if (!span) spans.set(key, {layer: it.s.layer, stage: it.s.stage, start: it.start, end: it.end});
        else {
            span.start = Math.min(span.start, it.start);
            span.end = Math.max(span.end, it.end);
        }
    }
    for (const it of items) {
        const span = spans.get(it.s.layer + "/" + it.s.stage);
        if (span) span.end = Math.max(span.end, it.end);
    }
    return [...spans.values()].sort((a, b) => a.start - b.start);
}
// First item that ends behind `from`.
function firstItem(items, from) {
    let low = 0, high = items.length;
    while (low < high) {
        const middle = (low + high) >> 1;
        if (items[middle].end < from) low = middle + 1; else high = middle;
    }
    return low;
}
function geometry(t) {
    const width = t.canvas.clientWidth, label = width < 520 ? 92 : Math.min(220, 24 + 7 * Math.max(0, ...timelines.flatMap(x => x.lanes.map(l => l.name.length))));
    return {width, label, right: width - 6, scale: (width - label - 6) / (t.until() - t.from()), top: axisTall + (t.spans ? layersTall : 0)};
}
const laneAtY = (t, y) => t.lanes[Math.floor((y - geometry(t).top) / laneTall)];
function itemAt(t, offsetX, offsetY) {
    const g = geometry(t), lane = laneAtY(t, offsetY);
    if (!lane || offsetX < g.label) return null;
    const us = t.from() + (offsetX - g.label) / g.scale, slack = 2 / g.scale;
    let best = null;
    for (let i = firstItem(lane.items, us - slack); i < lane.items.length && lane.items[i].start <= us + slack; ++i) {
        const it = lane.items[i], away = us < it.start ? it.start - us : us > it.end ? us - it.end : 0;
        if (!best || away < best.away || (away === best.away && it.start > best.it.start)) best = {it, away, lane};
    }
    return best;
}

function drawAxis(t, g, pen, style) {
    const step = roundStep(86 / g.scale);
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    for (let us = Math.ceil(t.from() / step) * step; us <= t.until(); us += step) {
        const x = g.label + (us - t.from()) * g.scale;
        pen.fillStyle = style.line;
        pen.fillRect(x, axisTall - 5, 1, g.height - axisTall);
        pen.fillStyle = style.dim;
        pen.fillText(time(us), x + 3, 11);
    }
}
// Stages as colours, layers with their numbers as far as there is room: of many the first of each so many pixels.
function drawLayers(t, g, pen, style) {
    const at_ = us => g.label + (us - t.from()) * g.scale, blocks = [];
    for (const s of t.spans) {
        if (s.end <= t.from() || s.start >= t.until()) continue;
        const before = blocks[blocks.length - 1], wide = (s.end - s.start) * g.scale >= 15;
        if (before && !wide && !before.wide && before.stage === s.stage) before.end = Math.max(before.end, s.end);
        else blocks.push({...s, wide});
    }
    for (const s of blocks) {
        const left = Math.max(g.label, at_(s.start)), right = Math.min(g.right, at_(s.end));
        pen.fillStyle = stageColourOf(s.stage);
        pen.globalAlpha = 0.5;
        pen.fillRect(left, axisTall, Math.max(right - left - 1, 1), layersTall - 4);
    }
    pen.globalAlpha = 1;
    let free = g.label;
    for (const s of t.spans) {
        if (s.end <= t.from() || s.start >= t.until()) continue;
        const left = Math.max(g.label, at_(s.start)), right = Math.min(g.right, at_(s.end));
        if (state.layer === s.layer) {
            pen.fillStyle = style.mark;
            pen.fillRect(left, axisTall, Math.max(right - left - 1, 2), layersTall - 4);
        }
        if (left < free) continue;
        const decoder = s.layer >= 0 && s.layer < numLayers, text = right - left > 70 && decoder ? "layer " + s.layer : layerName(s.layer);
        const wide = pen.measureText(text).width + 6;
        if (left + wide > g.right || (!decoder && right - left < wide)) continue;
        pen.fillStyle = style.line;
        pen.fillRect(left, axisTall, 1, g.height - axisTall);
        pen.fillStyle = state.layer === s.layer ? style.ground : style.text;
        pen.fillText(text, left + 3, axisTall + 8);
        free = left + Math.max(wide, 24);
    }
}
function drawLane(t, g, pen, lane, y) {
    let drawnTo = -1;
    const dimmed = isSelecting(), from = t.from(), until = t.until(), {items} = lane;
    for (let i = firstItem(items, from); i < items.length && items[i].start < until; ++i) {
        const it = items[i], left = Math.max(g.label + (it.start - from) * g.scale, g.label);
        const right = Math.min(g.label + (it.end - from) * g.scale, g.right);
        if (right <= drawnTo + 0.6) continue;
        const on = !dimmed || t.keeps(it.s, lane);
        pen.globalAlpha = on ? 1 : 0.14;
        pen.fillStyle = t.colour(it);
        pen.fillRect(Math.max(left, drawnTo), y + 3, Math.max(right - Math.max(left, drawnTo), 0.8), laneTall - 6);
        if (right - left > 54 && on) {
            pen.fillStyle = "#fff";
            const text = it.s.kind === "compute" ? what(it.s) : kindOf(it.s);
            if (pen.measureText(text).width < right - left - 6) pen.fillText(text, left + 4, y + laneTall / 2);
        }
        if (t.marked && t.marked(it.s)) {
            pen.globalAlpha = 1;
            pen.lineWidth = 2;
            pen.strokeStyle = t.style.text;
            pen.strokeRect(left + 1, y + 3, Math.max(right - left - 2, 1), laneTall - 6);
        }
        drawnTo = Math.max(drawnTo, right);
    }
    pen.globalAlpha = 1;
}
const stageCache = new Map();
function stageColourOf(stage) {  // for a canvas, which knows no variables of the style sheet
    if (!stageCache.has(stage)) {
        const style = getComputedStyle(document.documentElement);
        stageCache.set(stage, stageColour(stage).replace("var(--stage-l)", style.getPropertyValue("--stage-l").trim())
            .replace("var(--stage-c)", style.getPropertyValue("--stage-c").trim()));
    }
    return stageCache.get(stage);
}
function drawTimeline(t) {
    const css = getComputedStyle(document.documentElement), of = name => css.getPropertyValue(name).trim();
    t.style = {line: of("--line"), dim: of("--dim"), text: of("--text"), ground: of("--ground"), mark: of("--mark")};
    const g = geometry(t), sharp = devicePixelRatio || 1;
    g.height = g.top + laneTall * t.lanes.length + 4;
    if (t.canvas.width !== Math.round(g.width * sharp) || t.canvas.height !== Math.round(g.height * sharp)) {
        t.canvas.style.height = g.height + "px";
        t.canvas.width = Math.round(g.width * sharp);
        t.canvas.height = Math.round(g.height * sharp);
    }
    const pen = t.canvas.getContext("2d");
    pen.setTransform(sharp, 0, 0, sharp, 0, 0);
    pen.clearRect(0, 0, g.width, g.height);
    pen.font = "12px system-ui, sans-serif";
    drawAxis(t, g, pen, t.style);
    if (t.spans) drawLayers(t, g, pen, t.style);
    t.lanes.forEach((lane, i) => drawLane(t, g, pen, lane, g.top + laneTall * i));
    pen.fillStyle = t.style.text;
    t.lanes.forEach((lane, i) => {
        const most = Math.floor((g.label - 8) / 6.9), name = lane.name.length > most ? "…" + lane.name.slice(-most + 1) : lane.name;
        pen.fillText(plain(name), 4, g.top + laneTall * (i + 0.5));
    });
}
