// SPDX-License-Identifier: Apache-2.0
// The model as a grid of layers x devices. Colour: the stage. A cell has two bars, attention's above and the MLP's below, as thick
// as the device's share of it; before and behind the layers one, of the weights.

const gridRow = 24, gridHead = 66, manyDevices = 16;
const columns = [...new Set(data.layers.flatMap(r => {
    const out = [];
    for (let l = r.first_layer; l <= r.last_layer; ++l) out.push(l);
    return out;
}))].sort((a, b) => a - b);
const columnAt = new Map(columns.map((l, i) => [l, i]));
const runsAt = layer => data.layers.filter(r => r.first_layer <= layer && layer <= r.last_layer);

// Parts of one that a device has of a run: {attention, mlp} of its decoder layers, {weights} of others; null: none of it.
for (const run of data.layers) {
    const sum = pick => run.devices.reduce((total, s) => total + pick(s), 0);
    run.total = {heads: sum(s => sizeOf(s.query_heads)), mlp: sum(s => sizeOf(s.mlp_features)), weights: sum(s => s.weights_bytes)};
}
function shareParts(s) {
    const {heads, mlp, weights} = s.run.total;
    if (heads === 0 && mlp === 0) return weights > 0 ? {weights: s.weights_bytes / weights} : {};
    return {attention: heads ? sizeOf(s.query_heads) / heads : null, mlp: mlp ? sizeOf(s.mlp_features) / mlp : null};
}
const largestShare = Math.max(1e-9, ...[...sharesOf.values()].flat().flatMap(s => Object.values(shareParts(s)).map(v => v || 0)));
function shareWords(s) {
    const p = shareParts(s), parts = [];
    if (p.weights !== undefined) parts.push(share(p.weights) + " of the weights");
    if (p.attention) parts.push("attention " + share(p.attention) + ", heads " + range(s.query_heads));
    if (p.mlp) parts.push("MLP " + share(p.mlp) + ", features " + range(s.mlp_features));
    return parts.length ? parts.join("; ") : "no share";
}
const runName = r => r.first_layer === r.last_layer ? layerWords(r.first_layer) : "layers " + r.first_layer + "-" + r.last_layer;

function gridRows() {
    return deviceNames.length > manyDevices && state.every !== "yes" ? alikeDevices : deviceNames.map(n => [n]);
}
function gridCell(s, g, x, y, unit, names, cell) {
    const run = cell.run, x0 = x(run.first_layer), width = x(run.last_layer) + unit - x0, p = shareParts(cell);
    const c = svg("g", g, {class: "cell", "data-layers": run.first_layer + "-" + run.last_layer, "data-devices": names.map(n => deviceAt.get(n)).join(" ")});
    const colour = "fill:" + stageColour(run.stage), tall = gridRow - 4;
    svg("rect", c, {x: x0 + 0.5, y: y + 2, width: Math.max(width - 1, 1), height: tall, rx: 2, class: "tint", style: colour});
    const strip = (from, height, value) => {
        if (!value) return;
        const thick = Math.max(1.5, height * value / largestShare);
        svg("rect", c, {x: x0 + 0.5, y: from + height - thick, width: Math.max(width - 1, 1), height: thick, class: "fill", style: colour});
    };
    if (p.weights !== undefined) strip(y + 2, tall, p.weights);
    else {
        strip(y + 2, tall / 2 - 0.5, p.attention);
        strip(y + 2 + tall / 2 + 0.5, tall / 2 - 0.5, p.mlp);
    }
    const value = p.weights ?? p.attention ?? p.mlp ?? 0;
    if (width > 46 && value)
        svg("text", s.words, {"data-devices": c.dataset.devices, "data-layers": c.dataset.layers, x: x0 + width / 2, y: y + gridRow / 2 + 4, "text-anchor": "middle", class: "celltext"},
            (names.length > 1 ? names.length + " × " : "") + share(value) +
            (width > 190 && cell.query_heads && names.length === 1 ? " · heads " + range(cell.query_heads) : ""));
    pickable(s, c, fold(names) + ", " + runName(run) + ", stage " + run.stage + ": " + shareWords(cell),
             () => [fold(names), runName(run) + ", stage " + run.stage, shareWords(cell),
                    bytes(cell.weights_bytes) + " of weights, " + bytes(cell.kv_bytes) + " of KV" + (run.last_layer > run.first_layer ? ", of all these layers" : "")],
             event => {
                 const at = s.getBoundingClientRect(), scale = s.viewBox.baseVal.width / at.width;
                 const column = event.clientX ? Math.floor(((event.clientX - at.left) * scale - x(columns[0])) / unit) : columnAt.get(run.first_layer);
                 const layer = Math.min(Math.max(columns[column] ?? run.first_layer, run.first_layer), run.last_layer);
                 select({device: names.length === 1 ? names[0] : null, layer});
             });
}
// Above the grid: each layer's time in a pass, what computes longest and what is exchanged.
function gridTimes(s, x, unit) {
    const per = columns.map(l => {
        const runs = runsAt(l);
        return {layer: l, compute: runs.reduce((a, r) => a + r.compute_us, 0), exchange: runs.reduce((a, r) => a + r.exchange_us, 0), runs};
    });
    const most = Math.max(1e-9, ...per.map(p => p.compute + p.exchange)), tall = 34;
    for (const p of per) {
        const a = tall * p.compute / most, b = tall * p.exchange / most, left = x(p.layer);
        const g = svg("g", s, {class: "column", "data-layer": p.layer});
        svg("rect", g, {x: left, y: 4, width: unit, height: gridHead - 8, class: "hit"});
        svg("rect", g, {x: left + 0.5, y: 4 + tall - a, width: Math.max(unit - 1, 0.7), height: a, class: "computes"});
        svg("rect", g, {x: left + 0.5, y: 4 + tall - a - b, width: Math.max(unit - 1, 0.7), height: b, class: "exchanges"});
        const words = layerWords(p.layer) + ": computes " + time(p.compute) + ", exchanges " + time(p.exchange) + ", on " +
            fold(p.runs.flatMap(r => r.devices.map(d => d.device)));
        pickable(s, g, words, () => [layerWords(p.layer), "computes " + time(p.compute) + ", exchanges " + time(p.exchange) + " in a decode pass",
                                     "on " + fold(p.runs.flatMap(r => r.devices.map(d => d.device)))], () => selectLayer(p.layer));
    }
    const every = [1, 2, 5, 10, 20, 50, 100].find(n => n * unit >= 26) || 100;
    for (const l of columns) {
        const decoder = l >= 0 && l < numLayers;
        if (decoder ? l % every : unit < 46 && columns.length > 1) continue;
        svg("text", s, {x: x(l) + unit / 2, y: gridHead - 12, "text-anchor": "middle", class: "dim tick"}, decoder ? l : layerName(l));
    }
}
function drawGrid() {
    const body = at("grid-body");
    let holder = at("grid-holder");
    if (!holder) {
        const tools = element("div", body, undefined, "tools");
        tools.id = "grid-tools";
        element("div", body).id = "crumbs";
        holder = element("div", body, undefined, "canvas scrolls");
        holder.id = "grid-holder";
        holder.tabIndex = -1;
        element("div", body).id = "zoomed";
    }
    at("grid-tools").replaceChildren();
    if (alikeDevices.length < deviceNames.length && deviceNames.length > manyDevices)
        choice(at("grid-tools"), "rows of the grid", [[null, "alike devices as one row"], ["yes", "every device"]],
               name => change({every: name}))(state.every);
    keys(at("grid-tools"), [["computes", "var(--computes)"], ["exchanges: time of a layer in a decode pass", "var(--exchanges)"]]);
    holder.replaceChildren();
    const rows = gridRows(), longest = Math.max(...rows.map(r => (fold(r) + (r.length > 1 ? " (" + r.length + ")" : "")).length));
    const label = Math.min(230, 20 + longest * 7.2), width = Math.max(300, body.clientWidth || 900);
    const unit = Math.max(3.5, Math.min(90, (width - label - 6) / columns.length));
    const x = layer => label + unit * columnAt.get(layer), full = label + unit * columns.length + 4;
    const height = gridHead + rows.length * gridRow + 8;
    const s = picture(holder, "The model: layers from left to right, devices below each other", full, height);
    s.id = "grid-picture";
    svg("text", s, {x: 4, y: gridHead - 12, class: "dim tick"}, "layer");
    gridTimes(s, x, unit);
    s.words = svg("g");
    rows.forEach((names, i) => {
        const y = gridHead + i * gridRow, g = svg("g", s, {class: "row"});
        const name = fold(names) + (names.length > 1 ? " (" + names.length + ")" : "");
        const t = svg("g", g, {class: "rowname", "data-devices": names.map(n => deviceAt.get(n)).join(" ")});
        svg("rect", t, {x: 0, y: y + 1, width: label - 4, height: gridRow - 2, class: "hit"});
        const most = Math.floor((label - 12) / 7);
        svg("text", t, {x: 4, y: y + gridRow / 2 + 4}, name.length > most ? name.slice(0, most - 1) + "…" : name);
        const d = plan.devices[deviceAt.get(names[0])];
        pickable(s, t, name + ", " + d.arch + ": stages " + runsOf(d.stages), () => [name, d.arch + ", stages " + (runsOf(d.stages) || "none")],
                 () => names.length === 1 ? selectDevice(names[0]) : change({every: "yes"}));
        for (const cell of sharesOf.get(names[0])) gridCell(s, g, x, y, unit, names, cell);
    });
    for (const l of columns)
        if (unit >= 7) svg("line", s, {x1: x(l), x2: x(l), y1: gridHead, y2: height - 8, class: "rule between"});
    s.append(s.words);
    svg("rect", s, {id: "grid-mark", y: 2, height: height - 4, width: unit, class: "mark", visibility: "hidden", rx: 2});
    s.geometry = {x, unit};
    markGrid();
}
function markGrid() {
    const s = at("grid-picture");
    if (!s) return;
    const chosen = state.device === null ? null : String(deviceAt.get(state.device));
    const held = state.value === null ? null : new Set(holders(state.value).map(h => String(deviceAt.get(h.device))));
    const layerOfValue = state.value === null ? null : layerOf.get(state.value) ?? null;
    for (const c of s.querySelectorAll("[data-devices]")) {
        const own = c.dataset.devices.split(" ");
        let off = chosen !== null && !own.includes(chosen);
        if (held !== null && !own.some(d => held.has(d))) off = true;
        if (c.dataset.layers) {
            const [a, b] = /^(-?\d+)-(-?\d+)$/.exec(c.dataset.layers).slice(1).map(Number);
            const layer = state.layer ?? layerOfValue;
            if (layer !== null && (layer < a || layer > b)) off = true;
        }
        c.classList.toggle("off", off);
    }
    for (const c of s.querySelectorAll(".column")) c.setAttribute("aria-pressed", Number(c.dataset.layer) === state.layer);
    const mark = s.querySelector("#grid-mark");
    mark.setAttribute("visibility", state.layer === null || !columnAt.has(state.layer) ? "hidden" : "visible");
    if (state.layer !== null && columnAt.has(state.layer)) mark.setAttribute("x", s.geometry.x(state.layer));
}
view(["every"], () => drawGrid());
view(["device", "layer", "value"], () => markGrid());
