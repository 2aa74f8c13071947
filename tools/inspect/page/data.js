// SPDX-License-Identifier: Apache-2.0
// The JSON that the page carries, unpacked and indexed. Long lists come packed (tools/inspect/inspection_tree.h): runs of first,
// step and count, of integers or of places in `values`; place -1: the row lacks the key.

const data = JSON.parse(document.getElementById("data").textContent);
const plan = data.plan, extra = data.page;

function list(packed) {
    const out = [], {values, runs} = packed;
    for (let i = 0; i < runs.length; i += 3)
        for (let n = 0; n < runs[i + 2]; ++n) {
            const place = runs[i] + n * runs[i + 1];
            out.push(values ? values[place] : place);
        }
    return out;
}
function objects(packed) {
    const out = Array.from({length: packed.rows}, () => ({}));
    for (const key in packed.columns)
        list(packed.columns[key]).forEach((value, i) => { if (value !== undefined) out[i][key] = value; });
    return out;
}
function unpack(tree) {
    tree.plan.steps = objects(tree.plan.steps);
    tree.plan.links = objects(tree.plan.links);
    tree.kernels = objects(tree.kernels);
    tree.steps = {};
    for (const phase of ["decode", "prefill"]) {
        const pass = tree.passes[phase];
        pass.start_us = list(pass.start_us);
        tree.steps[phase] = tree.plan.steps.filter(s => s.phase === phase);
        tree.steps[phase].forEach((s, i) => { s.start_us = pass.start_us[i]; });
    }
    return tree;
}
unpack(data);
if (data.against) unpack(data.against);

const steps = data.steps;
// Kernels' texts, of paragraphs that they have in common.
const texts = extra.texts.kernels.map(t => ({...t, lines: () => list(t.source).map(i => extra.texts.paragraphs[i]).join("\n\n")}));
for (const phase in steps) {
    const kernels = list(extra.step_kernels[phase]);
    steps[phase].forEach((s, i) => { s.text = kernels[i]; });
}
const deviceAt = new Map(plan.devices.map((d, i) => [d.name, i]));
const deviceNames = plan.devices.map(d => d.name);
const lastLayer = Math.max(-1, ...plan.stages.map(s => s.last_layer));
const numLayers = lastLayer + 1;
const passUs = phase => Math.max(data.passes[phase].predicted_us, 0.001);
// -1: before the layers, numLayers: behind them.
const layerName = l => l < 0 ? "before" : l >= numLayers ? "behind" : String(l);
// Of several: "before the layers, layers 0-3".
const layersWords = ls => [ls.includes(-1) && numLayers > 0 ? "before the layers" : "", (d => d.length ? (d.length > 1 ? "layers " : "layer ") + runsOf(d) : "")(
    ls.filter(l => l >= 0 && l < numLayers)), ls.some(l => l >= numLayers) ? "behind the layers" : ""].filter(Boolean).join(", ");
const layerWords = l => numLayers === 0 ? "the graph" : l < 0 ? "before the layers" : l >= numLayers ? "behind the layers" : "layer " + l;

// ---- Values: who holds what. Rows: value and device (places), columns [begin, end) (-1: whole), partial, bytes.
const placedOf = new Map();
{
    const {names, rows} = extra.values;
    for (const r of objects(rows)) {
        const name = names[r.value];
        if (!placedOf.has(name)) placedOf.set(name, []);
        placedOf.get(name).push({device: deviceNames[r.device], begin: r.begin, end: r.end, partial: r.partial === 1, bytes: r.bytes});
    }
    list(extra.values.reads).forEach((read, i) => { if (read && steps.decode[i]) steps.decode[i].reads = read.map(v => names[v]); });
}
const weightRows = new Map();  // name -> shards
for (const r of objects(extra.weights.rows)) {
    const name = extra.weights.names[r.weight];
    if (!weightRows.has(name)) weightRows.set(name, []);
    weightRows.get(name).push({device: deviceNames[r.device], rows: [r.row_begin, r.row_end], columns: [r.column_begin, r.column_end],
                               bytes: r.bytes, dtype: extra.weights.dtypes[r.dtype]});
}
for (const phase of ["decode", "prefill"])
    list(extra.weights.reads[phase]).forEach((read, i) => { if (read) steps[phase][i].weights = read.map(w => extra.weights.names[w]); });
const usesWeight = (s, name) => s.weights !== undefined && s.weights.includes(name);
// Of a weight its operator's, of a value that of the first step that makes it.
const layerOf = new Map(list(extra.weights.layers).map((layer, i) => [extra.weights.names[i], layer]));
for (const s of steps.decode) if (s.value && !layerOf.has(s.value)) layerOf.set(s.value, s.layer);

// ---- Links: rate and load, by pair
const linkOf = new Map();
const pairKey = (from, to) => from + "\n" + to;
for (const l of plan.links)
    linkOf.set(pairKey(l.from, l.to), {from: l.from, to: l.to, kind: l.kind, rate: l.gb_per_s, latency: l.latency_us,
                                       bytes: {decode: 0, prefill: 0}});
for (const phase of ["decode", "prefill"])
    for (const r of objects(extra.links[phase])) {
        const from = deviceNames[r.from], to = deviceNames[r.to], key = pairKey(from, to);
        if (!linkOf.has(key))
            linkOf.set(key, {from, to, kind: "host_staged", rate: null, latency: null, bytes: {decode: 0, prefill: 0}});
        linkOf.get(key).bytes[phase] = r.bytes;
    }
// Part of a pass that a link's bytes take at its rate; null where the rate is unknown.
function linkLoad(link, phase) {
    return link.rate ? link.bytes[phase] / (link.rate * 1e3) / passUs(phase) : null;
}
const linkKinds = {nvlink: "NVLink", xgmi: "xGMI", pcie: "PCIe", network: "network", same_memory: "same memory",
                   host_staged: "through the host"};

// ---- Hosts, in order of their first device
const hosts = [];
for (const d of plan.devices) {
    let host = hosts.find(h => h.name === d.host);
    if (!host) hosts.push(host = {name: d.host, devices: []});
    host.devices.push(d.name);
}

// ---- Layers by device: shares of each, in order
const sharesOf = new Map(deviceNames.map(n => [n, []]));
data.layers.forEach((run, i) => {
    run.at = i;
    for (const s of run.devices) sharesOf.get(s.device).push({...s, run});
});
// Devices that nothing of the picture tells apart are one row: same shares in the same layers, except which heads.
const sizeOf = r => r ? r[1] - r[0] : 0;
function alikeKey(name) {
    return sharesOf.get(name).map(s => [s.run.at, s.weights_bytes, s.kv_bytes, sizeOf(s.query_heads), sizeOf(s.mlp_features)].join()).join(";");
}
function groupBy(items, key) {
    const groups = new Map();
    for (const item of items) {
        const k = key(item);
        if (!groups.has(k)) groups.set(k, []);
        groups.get(k).push(item);
    }
    return [...groups.values()];
}
const alikeDevices = groupBy(deviceNames, n => alikeKey(n) + "|" + plan.devices[deviceAt.get(n)].arch +
    "|" + plan.devices[deviceAt.get(n)].memory_bytes);

// ---- Steps
const kindOf = s => s.kind === "compute" ? s.implementation : s.kind === "transfer" ? "transfer" : s.op;
// Of several linear launches of a layer each says which: "linear o_proj".
const named = s => s.implementation.endsWith("linear") && s.operators && s.operators.length
    ? s.implementation + " " + s.operators[s.operators.length - 1].split(".").pop() : s.implementation;
function what(s) {
    return s.kind === "compute" ? named(s)
         : s.kind === "transfer" ? "transfer (" + s.route + ")"
         : s.op + (s.epilogue.length ? " + " + s.epilogue.map(e => e.split(".").pop()).join(" + ") : "") +
           " (" + s.implementation + ", " + s.transport + ")";
}
const where = s => s.kind === "transfer" ? s.source + " → " + s.destination : fold(s.devices);
const usesLink = (s, from, to) => s.kind === "transfer" ? s.source === from && s.destination === to
    : s.kind === "collective" && s.devices.includes(from) && s.devices.includes(to);
