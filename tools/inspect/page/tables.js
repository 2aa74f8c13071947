// SPDX-License-Identifier: Apache-2.0
// The same as tables, which sort by their columns and hold to the selection: devices, layers, kernels, links, steps.

const has = (names, wanted) => wanted === null || names.includes(wanted);
// Rows that differ in their devices alone are one, the first, with `all` of them.
const foldedRows = (rows, key) => groupBy(rows, key).map(all => ({...all[0], all}));
const layersOfRun = run => Array.from({length: run.last_layer - run.first_layer + 1}, (_, i) => run.first_layer + i);
// "0-63, 8 each" of ranges as large.
function rangesText(ranges) {
    const some = ranges.filter(r => r !== null);
    if (some.length === 0) return "-";
    if (new Set(some.map(range)).size === 1) return range(some[0]);
    return range([Math.min(...some.map(r => r[0])), Math.max(...some.map(r => r[1]))]) + ", " + sizeOf(some[0]) + " each";
}

function tableDevices(parent) {
    const time_ = (phase, d) => data.passes[phase].devices[deviceAt.get(d.name)];
    const timeBar = d => bar(timeParts.map(([n, key, colour]) => [n, time_(state.phase, d)[key], colour, time(time_(state.phase, d)[key])]),
                             passUs(state.phase), "time of " + d.name);
    table(parent, [
        {name: "device", value: d => fold(d.all.map(one => one.name))},
        {name: "arch", value: d => d.arch},
        {name: "host", value: d => d.host},
        {name: "stages", value: d => runsOf(d.stages) || "-"},
        {name: "layers", value: d => layersOfDevice(d.name)},
        {name: "needed", value: needed, show: d => bytes(needed(d)), right: true},
        {name: "capacity", value: d => d.memory_bytes, show: d => bytes(d.memory_bytes), right: true},
        {name: "free", value: d => d.free_bytes, show: d => bytes(d.free_bytes), right: true},
        {name: "time of a pass", value: d => time_(state.phase, d).compute_us, show: timeBar},
        {name: "computes", value: d => time_(state.phase, d).compute_us, show: d => time(time_(state.phase, d).compute_us), right: true},
        {name: "exchanges", value: d => time_(state.phase, d).exchange_us, show: d => time(time_(state.phase, d).exchange_us), right: true},
        {name: "waits", value: d => time_(state.phase, d).waiting_us, show: d => time(time_(state.phase, d).waiting_us), right: true},
    ], foldedRows(plan.devices.filter(d => has([d.name], state.device)), d => plan.devices.length > manyDevices ? [d.arch, d.host, runsOf(d.stages),
        layersOfDevice(d.name), bytes(needed(d)), d.memory_bytes, ...timeParts.map(p => time(time_(state.phase, d)[p[1]]))].join() : d.name), {pick: d => selectDevice(d.name), label: "devices"});
}
function tableLayers(parent) {
    const rows = foldedRows(data.layers.flatMap(layer => layer.devices.map(s => ({...s, run: layer})))
        .filter(r => has([r.device], state.device) && (state.layer === null || (r.run.first_layer <= state.layer && state.layer <= r.run.last_layer))),
        r => [layersOfRun(r.run).some(l => l < 0 || l >= numLayers), r.run.stage, time(r.run.compute_us), time(r.run.exchange_us), sizeOf(r.query_heads), sizeOf(r.kv_heads), sizeOf(r.mlp_features),
              bytes(r.weights_bytes), bytes(r.kv_bytes)].join());
    const ranges = (r, key) => rangesText(r.all.map(one => one[key]));
    table(parent, [
        {name: "layers", value: r => r.run.first_layer, show: r => layersWords([...new Set(r.all.flatMap(one => layersOfRun(one.run)))]) || "the graph"},
        {name: "stage", value: r => r.run.stage, right: true},
        {name: "devices", value: r => fold([...new Set(r.all.map(one => one.device))])},
        {name: "query heads", value: r => r.query_heads === null ? -1 : r.query_heads[0], show: r => ranges(r, "query_heads"), right: true},
        {name: "KV heads", value: r => r.kv_heads === null ? -1 : r.kv_heads[0], show: r => ranges(r, "kv_heads"), right: true},
        {name: "MLP features", value: r => r.mlp_features === null ? -1 : r.mlp_features[0], show: r => ranges(r, "mlp_features"), right: true},
        {name: "weights", value: r => r.weights_bytes, show: r => bytes(r.weights_bytes), right: true},
        {name: "KV", value: r => r.kv_bytes, show: r => bytes(r.kv_bytes), right: true},
        {name: "compute, a layer", value: r => r.run.compute_us, show: r => time(r.run.compute_us), right: true},
        {name: "exchange, a layer", value: r => r.run.exchange_us, show: r => time(r.run.exchange_us), right: true},
    ], rows, {pick: r => selectLayer(r.run.first_layer), label: "layers"});
}
// Equal kernels of several devices are one row; each has the operators that it computes.
function tableKernels(parent) {
    element("p", parent, "Launches and predicted time in one pass; the rate is what they read and write by that time; a step of several " +
            "launches counts for its first; cached: more than the memory's, as queries read the same keys. Warps without knowledge of registers.", "dim");
    const firstOf = new Map(), textAt = new Map(texts.map((t, i) => [t.name + "\n" + t.arch, i]));
    for (const phase of ["decode", "prefill"])
        for (const s of steps[phase]) {
            const key = phase + s.text;
            if (s.text >= 0 && (!firstOf.has(key) || (state.layer !== null && s.layer === state.layer))) firstOf.set(key, s);
        }
    const rows = groupBy(data.kernels.filter(k => has([k.device], state.device)),
                         k => [k.name, k.phase, k.launches, k.predicted_us, k.bytes].join())
        .map(g => ({...g[0], devices: g.map(k => k.device), step: firstOf.get(g[0].phase + textAt.get(g[0].name + "\n" + g[0].arch))}));
    const named = k => k.step && k.step.operators ? counted(k.step.operators.map(o => starred(o).replace(/^layers\.\*\./, ""))) : counted(k.fused);
    table(element("div", parent), [
        {name: "kernel", value: k => k.name},
        {name: "operators", value: named},
        {name: "devices", value: k => fold(k.devices)},
        {name: "phase", value: k => k.phase},
        {name: "launches", value: k => k.launches, right: true},
        {name: "time", value: k => k.predicted_us, show: k => k.predicted_us > 0 ? time(k.predicted_us) : "-", right: true},
        {name: "GB/s", value: k => k.predicted_us > 0 ? k.bytes / k.predicted_us / 1e3 : 0,
         show: k => k.predicted_us > 0 ? isCached(k.bytes, k.predicted_us, k.device) ? "cached" : (k.bytes / k.predicted_us / 1e3).toFixed(0) : "", right: true},
        {name: "grid", value: k => k.grid[0] * k.grid[1] * k.grid[2], show: k => k.occupancy ? k.grid.join(" × ") : k.grid[0] + " items", right: true},
        {name: "threads", value: k => k.threads, right: true},
        {name: "shared memory", value: k => k.shared_memory_bytes, show: k => bytes(k.shared_memory_bytes) + " of " + bytes(k.limit_shared_memory_bytes), right: true},
        {name: "warps of a unit", value: k => k.occupancy ? k.occupancy.warps : -1,
         show: k => k.occupancy ? k.occupancy.warps + " of " + k.occupancy.most_warps : "-", right: true},
    ], rows, {pick: k => {
        if (!k.step) return;
        selectStep(k.step);
        at("operator").scrollIntoView({block: "start"});
    }, label: "kernels"});
    for (const why of data.without_kernels) element("p", parent, "no kernels for " + why);
}
function tableLinks(parent) {
    const rows = [...linkOf.values()].filter(l => l.bytes[state.phase] > 0 && (state.device === null || l.from === state.device || l.to === state.device));
    if (rows.length === 0) {
        element("p", parent, "Nothing goes between devices in a pass of " + state.phase + ".");
        return;
    }
    const many = deviceNames.length > manyDevices;
    table(parent, [
        {name: "from", value: l => fold([...new Set(l.all.map(one => one.from))])},
        {name: "to", value: l => fold([...new Set(l.all.map(one => one.to))])},
        ...many ? [{name: "links", value: l => l.all.length, right: true}] : [],
        {name: "kind", value: l => linkKinds[l.kind]},
        {name: "rate", value: l => l.rate || 0, show: l => l.rate === null ? "" : number(l.rate) + " GB/s", right: true},
        {name: "latency", value: l => l.latency || 0, show: l => l.latency === null ? "" : time(l.latency), right: true},
        {name: "bytes, a pass", value: l => l.bytes[state.phase], show: l => bytes(l.bytes[state.phase]), right: true},
        {name: "busy", value: l => linkLoad(l, state.phase) ?? 0, show: l => linkLoad(l, state.phase) === null ? "" : share(linkLoad(l, state.phase)), right: true},
    ], foldedRows(rows, l => many ? [l.kind, l.rate, l.latency, l.bytes[state.phase]].join() : l.from + ">" + l.to),
    {pick: l => selectLink(l.from, l.to), label: "links"});
}
function tableSteps(parent) {
    const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
    const found = steps[state.phase].filter(s => {
        if (!selected(s)) return false;
        const text = words.length ? stepText(s) : "";
        return words.every(word => text.includes(word));
    });
    element("p", parent, count(found.length) + " of " + count(steps[state.phase].length) + " steps of a pass of " + state.phase +
            "; those of several devices that differ in nothing else are one row", "dim").id = "steps-found";
    table(element("div", parent), [
        {name: "step", value: s => s.id},
        {name: "layer", value: s => s.layer, show: s => layerName(s.layer), right: true},
        {name: "stage", value: s => s.stage, right: true},
        {name: "what", value: what},
        {name: "where", value: s => s.kind === "compute" ? fold(s.all.map(one => one.devices[0])) : where(s)},
        {name: "value", value: s => s.value, show: s => valueLink(s.value)},
        {name: "bytes", value: s => s.bytes, show: s => bytes(s.bytes), right: true},
        {name: "between devices", value: s => s.link_bytes, show: s => s.link_bytes > 0 ? bytes(s.link_bytes) : "", right: true},
        {name: "starts", value: s => s.start_us, show: s => time(s.start_us), right: true},
        {name: "takes", value: s => s.predicted_us, show: s => time(s.predicted_us), right: true},
    ], foldedRows(found, s => s.kind === "compute" ? [s.layer, s.stage, kindOf(s), s.value, s.bytes, s.predicted_us, s.start_us].join() : s.id),
    {pick: selectStep, most: 60, label: "steps"});
}

const tableKinds = [["Steps", tableSteps], ["Devices", tableDevices], ["Layers", tableLayers], ["Kernels", tableKernels], ["Links", tableLinks]];
let shownTable = "Steps";
function drawTables() {
    const body = at("tables-body");
    if (body.childElementCount === 0) {
        const tabs = element("div", body, undefined, "tabs");
        tabs.setAttribute("role", "tablist");
        tabs.setAttribute("aria-label", "tables");
        for (const [name] of tableKinds) {
            const tab = button(tabs, name, () => showTable(name));
            tab.setAttribute("role", "tab");
            tab.id = "tab-" + name;
            tab.setAttribute("aria-controls", "table");
        }
        tabs.addEventListener("keydown", e => {
            const i = tableKinds.findIndex(k => k[0] === shownTable), to = {ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tableKinds.length - 1}[e.key];
            if (to === undefined) return;
            e.preventDefault();
            showTable(tableKinds[(to + tableKinds.length) % tableKinds.length][0]);
            at("tab-" + shownTable).focus();
        });
        const box = element("div", body);
        box.id = "table";
        box.setAttribute("role", "tabpanel");
    }
    showTable(shownTable);
}
function showTable(name) {
    shownTable = name;
    for (const [n] of tableKinds) {
        at("tab-" + n).setAttribute("aria-selected", n === name);
        at("tab-" + n).tabIndex = n === name ? 0 : -1;
    }
    const box = at("table");
    box.setAttribute("aria-labelledby", "tab-" + name);
    box.replaceChildren();
    tableKinds.find(k => k[0] === name)[1](box);
}
view(["device", "layer", "value", "link", "words", "phase"], () => drawTables());
