// SPDX-License-Identifier: Apache-2.0
// Zoom: model > layer > operator > kernel. A layer is its steps from above to below, a lane for each device of it, or for devices
// whose steps are alike; an exchange spans the lanes that take part. An operator shows its kernel: resources, then its source.

function crumb(parent, text, act, last) {
    if (parent.childElementCount) element("span", parent, " › ", "dim");
    if (last) element("b", parent, text).setAttribute("aria-current", "true");
    else button(parent, text, act).className = "link";
}
function drawCrumbs() {
    const row = at("crumbs");
    row.replaceChildren();
    row.className = "crumbs";
    const s = state.step === null ? null : steps[state.phase][state.step], text = s && s.text >= 0 ? texts[s.text] : null;
    crumb(row, plan.model, () => change({layer: null, step: null, value: null}), state.layer === null && !s);
    if (state.layer !== null) crumb(row, layerWords(state.layer), () => change({step: null}), !s);
    if (s) crumb(row, what(s), () => at("operator").scrollIntoView({block: "nearest"}), !text);
    if (text) crumb(row, text.name, () => at("kernel-source").scrollIntoView({block: "nearest"}), true);
    if (state.layer === null) return;
    const near = element("span", row, undefined, "near");
    const i = columnAt.get(state.layer);
    const go = to => change({layer: columns[to], step: null});
    if (i > 0) button(near, "‹", () => go(i - 1), "the layer before: " + layerWords(columns[i - 1]));
    if (i < columns.length - 1) button(near, "›", () => go(i + 1), "the next layer: " + layerWords(columns[i + 1]));
}

// Devices of the layer whose steps are alike are one lane: same kinds, bytes and times in the same order.
function lanesOf(layerSteps) {
    const of = new Map();
    for (const s of layerSteps)
        for (const d of s.devices) {
            if (!of.has(d)) of.set(d, []);
            of.get(d).push(s);
        }
    const key = d => of.get(d).map(s => s.kind === "compute" ? [kindOf(s), s.bytes, s.predicted_us, s.value].join() : s.id).join(";");
    const lanes = groupBy([...of.keys()].sort((a, b) => deviceAt.get(a) - deviceAt.get(b)), key);
    return lanes.map(devices => ({devices, stage: Math.min(...of.get(devices[0]).map(s => s.stage))}));
}
// Steps that differ by their lane's device alone are one box: {s, on: lanes}.
function boxesOf(layerSteps, lanes) {
    const laneOf = new Map();
    lanes.forEach((l, i) => l.devices.forEach(d => laneOf.set(d, i)));
    const boxes = [];
    for (const s of layerSteps) {
        const on = [...new Set(s.devices.map(d => laneOf.get(d)))].sort((a, b) => a - b);
        if (s.kind !== "compute" || s.devices[0] === lanes[on[0]].devices[0]) boxes.push({s, on});
    }
    return boxes;
}
function drawLayerSteps(parent) {
    const all = steps[state.phase].filter(s => s.layer === state.layer);
    if (all.length === 0) {
        element("p", parent, "No step of a pass of " + state.phase + " is in " + layerWords(state.layer) + ".", "dim");
        return;
    }
    const lanes = lanesOf(all), boxes = boxesOf(all, lanes), room = Math.max(300, parent.clientWidth || 900);
    const laneWidth = Math.max(150, Math.min(330, (room - 8) / lanes.length)), boxHeight = 40, gap = 12, head = 30;
    const bottom = lanes.map(() => head);
    for (const b of boxes) {
        b.first = b.on[0];
        b.last = b.on[b.on.length - 1];
        const spanned = bottom.slice(b.first, b.last + 1);
        b.y = Math.max(...spanned);
        for (let i = b.first; i <= b.last; ++i) bottom[i] = b.y + boxHeight + gap;
    }
    const height = Math.max(...bottom);
    const s = picture(element("div", parent, undefined, "canvas scrolls"), "Steps of " + layerWords(state.layer) + " from above to below, devices side by side",
                      laneWidth * lanes.length + 4, height);
    s.id = "layer-picture";
    lanes.forEach((lane, i) => {
        svg("text", s, {x: i * laneWidth + laneWidth / 2, y: 17, "text-anchor": "middle", class: "hostname"},
            fold(lane.devices) + (lane.devices.length > 1 ? " (" + lane.devices.length + ")" : ""));
        svg("line", s, {x1: (i + 0.5) * laneWidth, x2: (i + 0.5) * laneWidth, y1: 24, y2: bottom[i] - gap, class: "lane",
                        style: "stroke:" + stageColour(lane.stage)});
    });
    for (const b of boxes) stepBox(s, b, lanes, laneWidth, boxHeight);
}
function stepBox(s, b, lanes, laneWidth, boxHeight) {
    const step = b.s, x = b.first * laneWidth + 6, width = (b.last - b.first + 1) * laneWidth - 12;
    const g = svg("g", s, {class: "step " + step.kind, "data-step": step.id});
    svg("rect", g, {x, y: b.y, width, height: boxHeight, rx: step.kind === "compute" ? 4 : 14, style: "--kind:" + kindColours.get(kindOf(step))});
    const most = Math.floor((width - 14) / 7.6), name = what(step);
    svg("text", g, {x: x + width / 2, y: b.y + 17, "text-anchor": "middle", class: "name"}, name.length > most ? name.slice(0, most - 1) + "…" : name);
    const lane = lanes[b.first], note = time(step.predicted_us) + ", " + (step.kind === "compute"
        ? bytes(step.bytes) + (lane.devices.length > 1 ? " each" : "") : bytes(step.link_bytes) + " moved");
    svg("text", g, {x: x + width / 2, y: b.y + 32, "text-anchor": "middle", class: "dim"}, note);
    const on = step.kind === "compute" ? fold(lane.devices) : where(step);
    pickable(s, g, name + " on " + on + ": " + note, () => [name, on, note, step.value, step.operators ? counted(step.operators) : ""],
             () => selectStep(step));
}

function resourcesOf(text, phase, s) {
    return data.kernels.find(k => k.name === text.name && k.arch === text.arch && k.phase === phase && s.devices.includes(k.device)) ||
        data.kernels.find(k => k.name === text.name && k.phase === phase);
}
function drawOperator(parent, s) {
    const box = element("div", parent, undefined, "operator");
    box.id = "operator";
    element("h3", box, what(s));
    facts(box, [
        ["operators", s.operators ? s.operators.join(", ") : null],
        ["makes", s.value ? valueLink(s.value) : null],
        ["reads", s.reads && s.reads.length ? linksOf(s.reads) : null],
        ["on", where(s)],
        ["predicted", time(s.predicted_us) + " at " + time(s.start_us)],
        ["payload", bytes(s.bytes) + (s.predicted_us > 0 && s.kind === "compute" ?
            ", " + (isCached(s.bytes, s.predicted_us, s.devices[0]) ? "from a cache" : number(s.bytes / s.predicted_us / 1e3) + " GB/s") : "")],
        ["between devices", s.link_bytes > 0 ? bytes(s.link_bytes) : null],
    ]);
    const text = s.text >= 0 ? texts[s.text] : null;
    if (!text) {
        if (s.kind === "compute" && data.without_kernels.length) for (const why of data.without_kernels) element("p", box, "No kernel: " + why, "dim");
        return;
    }
    const k = resourcesOf(text, s.phase, s);
    element("h3", box, "Kernel " + text.name);
    if (k)
        facts(box, [
            ["for", text.arch],
            ["fuses", counted(k.fused)],
            ["launches", plural(k.launches, "launch", "launches") + " in a pass of " + s.phase],
            ["grid", k.occupancy ? k.grid.join(" × ") + " blocks of " + k.threads + " threads" : k.grid[0] + " work items"],
            [k.occupancy ? "shared memory" : "scratch of a thread", bytes(k.shared_memory_bytes) + " of " + bytes(k.limit_shared_memory_bytes)],
            ["occupancy", k.occupancy ? k.occupancy.blocks + " blocks, " + k.occupancy.warps + " of " + k.occupancy.most_warps +
                " warps of a unit, without knowledge of registers" : null],
            ["tile", text.tile],
        ]);
    const source = element("details", box), source_ = text.lines();
    source.id = "kernel-source";
    source.open = true;
    element("summary", source, "Source, " + plural(source_.split("\n").length, "line"));
    const pre = element("pre", source);
    pre.tabIndex = 0;
    pre.setAttribute("aria-label", plain("source of " + text.name));
    pre.textContent = plain(source_);
}
function drawZoom() {
    drawCrumbs();
    const box = at("zoomed");
    const focused = box.contains(document.activeElement) ? document.activeElement.closest("[data-step]") : null, step = focused && focused.dataset.step;
    box.replaceChildren();
    if (state.layer !== null) drawLayerSteps(element("div", box));
    if (state.step !== null) drawOperator(box, steps[state.phase][state.step]);
    for (const g of box.querySelectorAll("[data-step]")) {
        g.setAttribute("aria-pressed", Number(g.dataset.step) === state.step);
        if (g.dataset.step === step) g.focus();
    }
}
view(["layer", "step", "phase"], () => drawZoom());
