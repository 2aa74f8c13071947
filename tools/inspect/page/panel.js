// SPDX-License-Identifier: Apache-2.0
// What is known of the selected device, layer, value, link: owners, replicas, every transfer. Beside the pictures, or below the
// filters where the page is narrow.

function valueLink(name) {
    const b = button(null, name, () => selectValue(name));
    b.className = "link";
    return b;
}
function linksOf(names) {
    const span = document.createElement("span");
    names.forEach((n, i) => span.append(i ? ", " : "", valueLink(n)));
    return span;
}
// [{device, part, key, bytes, partial}]; of a weight its shards, of a value where it is in decode.
function holders(name) {
    if (weightRows.has(name))
        return weightRows.get(name).map(r => ({device: r.device, bytes: r.bytes, partial: false, dtype: r.dtype,
            part: "rows " + range(r.rows) + (r.columns[1] > r.columns[0] ? ", columns " + range(r.columns) : ""),
            key: [...r.rows, ...r.columns].join()}));
    return (placedOf.get(name) || []).map(r => ({device: r.device, bytes: r.bytes, partial: r.partial,
        part: r.end < 0 ? "all" : "columns " + range([r.begin, r.end]), key: r.begin + "," + r.end + (r.partial ? ",partial" : "")}));
}
function stepButton(parent, s, text) {
    button(parent, text, () => selectStep(s)).className = "link";
}
// Steps that move something, those of alike values of several layers as one line.
function drawExchanges(parent, moving, title) {
    if (moving.length === 0) return;
    const moved = moving.reduce((sum, s) => sum + s.link_bytes, 0), us = moving.reduce((sum, s) => sum + s.predicted_us, 0);
    element("h4", parent, title + ": " + count(moving.length) + ", " + bytes(moved) + ", " + time(us));
    const ul = element("ul", parent);
    const groups = groupBy(moving, s => starred(s.value) + "|" + what(s) + "|" + where(s));
    for (const g of groups.slice(0, 60)) {
        const li = element("li", ul), s = g[0];
        stepButton(li, s, what(s));
        li.append(" ");
        li.append(g.length > 1 ? plain(starred(s.value)) : valueLink(s.value));
        element("div", li, where(s) + (g.length > 1 ? ", in " + (layersWords(g.map(t => t.layer)) || "the graph") : "") + ": " +
            bytes(g.reduce((sum, t) => sum + t.link_bytes, 0)) + ", " + time(g.reduce((sum, t) => sum + t.predicted_us, 0)), "dim");
    }
    if (groups.length > 60) element("p", parent, "and " + (groups.length - 60) + " more kinds; Steps, below, has them all", "dim");
}
const exchangesOf = test => steps[state.phase].filter(s => s.kind !== "compute" && test(s));

function panelDevice(box, name) {
    const d = plan.devices[deviceAt.get(name)], facts_ = extra.machine[deviceAt.get(name)], t = data.passes[state.phase].devices[deviceAt.get(name)];
    element("h3", box, name);
    facts(box, [
        ["model", [facts_.model, d.arch, "on " + d.host].filter(Boolean).join(", ")],
        ["memory", bytes(needed(d)) + " of " + bytes(d.memory_bytes) + ", " + bytes(d.free_bytes) + " free"],
        ["bandwidth", facts_.memory_bandwidth ? number(facts_.memory_bandwidth / 1e9) + " GB/s" : null],
        ["stages", runsOf(d.stages) || "none"],
        ["layers", layersOfDevice(name)],
        ["alike", fold(alikeDevices.find(g => g.includes(name)).filter(n => n !== name)) || "no other"],
    ]);
    box.append(bar(memoryParts.map(([n, key, colour]) => [n, d[key] ?? 0, colour, bytes(d[key] ?? 0)]), Math.max(d.memory_bytes, 1), "memory"));
    element("h4", box, "Time of a pass of " + state.phase);
    box.append(bar(timeParts.map(([n, key, colour]) => [n, t[key], colour, time(t[key])]), passUs(state.phase), "time"));
    const links = [...linkOf.values()].filter(l => (l.from === name || l.to === name) && l.bytes[state.phase] > 0)
        .sort((a, b) => b.bytes[state.phase] - a.bytes[state.phase]);
    if (links.length) {
        element("h4", box, "Links in use: " + links.length);
        const ul = element("ul", box);
        for (const l of links.slice(0, 12)) {
            const li = element("li", ul);
            button(li, l.from === name ? "to " + l.to : "from " + l.from, () => selectLink(l.from, l.to)).className = "link";
            element("div", li, rateWords(l) + ": " + loadWords(l, state.phase), "dim");
        }
        if (links.length > 12) element("p", box, "and " + (links.length - 12) + " with less", "dim");
    }
    drawExchanges(box, exchangesOf(s => s.devices.includes(name)), "Transfers and collectives");
}
function layersOfDevice(name) {
    const whole = [], parts = [];  // numbers; words
    for (const s of sharesOf.get(name)) {
        const p = shareParts(s), text = runName(s.run).replace("layers ", "").replace("layer ", "");
        if (p.attention === null || p.mlp === null || p.weights !== undefined) parts.push(text + (p.weights !== undefined ? "" : p.mlp === null ? " attention" : " MLP"));
        else for (let l = s.run.first_layer; l <= s.run.last_layer; ++l) whole.push(l);
    }
    return [runsOf(whole), ...parts].filter(Boolean).join(", ") || "none";
}
function panelLayer(box, layer) {
    element("h3", box, layerWords(layer));
    for (const run of runsAt(layer)) {
        element("h4", box, "stage " + run.stage + ": computes " + time(run.compute_us) + ", exchanges " + time(run.exchange_us));
        const ul = element("ul", box);
        for (const g of groupBy(run.devices.map(s => ({...s, run})), s => JSON.stringify([shareParts(s), s.weights_bytes])).slice(0, 40)) {
            const li = element("li", ul);
            if (g.length === 1) button(li, g[0].device, () => selectDevice(g[0].device)).className = "link";
            else element("b", li, fold(g.map(s => s.device)));
            element("div", li, g.length === 1 ? shareWords(g[0]) : Object.entries(shareParts(g[0])).filter(e => e[1])
                .map(e => e[0] + " " + share(e[1]) + " each").join("; ") || "no share", "dim");
        }
    }
    const weights = [...weightRows.keys()].filter(n => layerOf.get(n) === layer);
    if (weights.length) {
        element("h4", box, "Weights");
        const ul = element("ul", box);
        for (const n of weights.slice(0, 40)) {
            const li = element("li", ul), rows = weightRows.get(n);
            li.append(valueLink(n));
            element("div", li, ownersWords(n) + ", " + bytes(rows.reduce((sum, r) => sum + r.bytes, 0)), "dim");
        }
    }
    drawExchanges(box, exchangesOf(s => s.layer === layer), "Transfers and collectives");
}
function ownersWords(name) {
    const groups = groupBy(holders(name), h => h.key), copies = groups[0] ? groups[0].length : 0;
    return plural(groups.length, "part") + (copies > 1 && groups.every(g => g.length === copies) ? ", each on " + plural(copies, "device") : "");
}
function panelValue(box, name) {
    const held = holders(name), groups = groupBy(held, h => h.key), isWeight = weightRows.has(name);
    element("h3", box, name);
    element("p", box, isWeight ? "a weight, " + held[0].dtype : "a value of a pass", "dim");
    const made = new Set(steps.decode.filter(s => s.value === name && s.kind === "compute").flatMap(s => s.devices));
    element("h4", box, "Owners: " + plural(groups.length, "part"));
    const ul = element("ul", box);
    for (const g of groups.slice(0, 80)) {
        const li = element("li", ul);
        if (g.length === 1) button(li, g[0].device, () => selectDevice(g[0].device)).className = "link";
        else element("b", li, fold(g.map(h => h.device)));
        const how = isWeight ? "" : g[0].partial ? ", a summand, computed there" : g.every(h => made.has(h.device)) ? ", computed there" : ", received";
        element("div", li, g[0].part + ": " + bytes(g[0].bytes) + (g.length > 1 ? " each" : "") + how, "dim");
    }
    const copies = groups.filter(g => g.length > 1 && !g[0].partial);
    element("p", box, copies.length === 0 ? "Replicas: none."
        : "Replicas: " + (copies.length === 1 && groups.length === 1 ? "all of it" : plural(copies.length, "part")) + " on " +
          plural(copies[0].length, "device") + (copies.some(g => g.length !== copies[0].length) ? " or more" : "") + ".");
    const moving = exchangesOf(s => s.value === name);
    if (moving.length === 0) element("p", box, isWeight ? "It is loaded once; nothing of it moves in a pass." : "Nothing moves it between devices.", "dim");
    drawExchanges(box, moving, "Transfers and collectives");
    const readers = steps.decode.filter(s => isWeight ? usesWeight(s, name) : s.reads && s.reads.includes(name));
    if (readers.length) {
        element("h4", box, "Read by");
        const list_ = element("ul", box);
        for (const g of groupBy(readers, s => what(s))) {
            const li = element("li", list_);
            stepButton(li, g[0], what(g[0]));
            element("div", li, fold([...new Set(g.flatMap(s => s.devices))]), "dim");
        }
    }
}
function panelLink(box, from, to) {
    const there = linkOf.get(pairKey(from, to)), back = linkOf.get(pairKey(to, from));
    element("h3", box, from + " → " + to);
    facts(box, [
        ["link", rateWords(there)],
        ["load", loadWords(there, state.phase)],
        ["the other way", back ? loadWords(back, state.phase) : null],
    ]);
    drawExchanges(box, exchangesOf(s => usesLink(s, from, to)), "Steps that cross it");
}
function drawPanel() {
    const panel = at("panel");
    panel.replaceChildren();
    const any = isSelecting();
    panel.hidden = !any;
    at("body").classList.toggle("with-panel", any);
    if (!any) return;
    const head = element("div", panel, undefined, "panel-head");
    button(head, "×", clearAll, "close and clear the selection");
    if (state.value !== null) panelValue(panel, state.value);
    else if (state.link !== null) panelLink(panel, ...linkEnds());
    else if (state.device !== null) panelDevice(panel, state.device);
    if (state.layer !== null && state.value === null && state.link === null) panelLayer(panel, state.layer);
    panel.scrollTop = 0;
}
view(["device", "layer", "value", "link", "phase"], () => drawPanel());
