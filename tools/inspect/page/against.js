// SPDX-License-Identifier: Apache-2.0
// Two plans side by side (`--against`): what is faster, what needs more memory, which layers moved.

function headline(tree) {
    const p = tree.plan, fullest_ = p.devices.reduce((a, b) => needed(b) / Math.max(1, b.memory_bytes) > needed(a) / Math.max(1, a.memory_bytes) ? b : a);
    return {p, fullest: fullest_, moved: phase => tree.steps[phase].reduce((sum, s) => sum + s.link_bytes, 0)};
}
// Time of a pass by cause, over all devices: sums of steps by kind.
function causes(tree, phase) {
    const out = new Map();
    for (const s of tree.steps[phase]) out.set(kindOf(s), (out.get(kindOf(s)) || 0) + s.predicted_us * (s.kind === "compute" ? 1 : 1));
    return out;
}
function twoBars(parent, name, a, b, show, better) {
    const row = element("div", parent, undefined, "two");
    element("span", row, name, "name");
    const most = Math.max(a, b, 1e-12);
    [a, b].forEach((v, i) => {
        const track = element("span", row, undefined, "track plan-" + (i ? "b" : "a"));
        element("i", track).style.width = 100 * v / most + "%";
        element("span", track, show(v));
    });
    const change_ = a > 0 ? b / a - 1 : 0, text = a === b ? "equal" : (change_ > 0 ? "+" : "−") + (Math.abs(change_) > 9.99 ? number(b / a) + " ×" : share(Math.abs(change_)));
    element("span", row, text, "verdict " + (a === b || !better ? "" : (better === "more") === (b > a) ? "good" : "bad"));
}
// The other plan's grid, small: layers from left to right, devices below each other.
function smallGrid(parent, tree, name) {
    const devices = tree.plan.devices.map(d => d.name), row = devices.length > 24 ? 6 : 14, wide = Math.max(260, Math.min(parent.clientWidth || 560, 620)), label = row > 10 ? 104 : 4;
    const ls = [...new Set(tree.layers.flatMap(r => Array.from({length: r.last_layer - r.first_layer + 1}, (_, i) => r.first_layer + i)))].sort((a, b) => a - b);
    const unit = (wide - label - 4) / ls.length, x = l => label + unit * ls.indexOf(l);
    const s = svg("svg", parent, {viewBox: "0 0 " + wide + " " + (devices.length * row + 4), width: wide, height: devices.length * row + 4, role: "img", "aria-label": "layers and devices of " + name});
    devices.forEach((d, i) => { if (row > 10) svg("text", s, {x: 2, y: i * row + 11, class: "dim"}, d.length > 15 ? "…" + d.slice(-14) : d); });
    for (const run of tree.layers)
        for (const share_ of run.devices) {
            if (!share_.weights_bytes && !share_.query_heads && !share_.mlp_features) continue;
            const rect = svg("rect", s, {x: x(run.first_layer), y: devices.indexOf(share_.device) * row + 1, width: Math.max(1, unit * (run.last_layer - run.first_layer + 1) - 0.6),
                height: row - 2, style: "fill:" + stageColour(run.stage)});
            svg("title", rect, {}, share_.device + ", " + runName(run) + ", stage " + run.stage);
        }
}
function movedLayers(a, b) {
    const place = tree => {
        const of = new Map();
        for (const run of tree.layers)
            for (let l = run.first_layer; l <= run.last_layer; ++l)
                of.set(l, [...new Set([...(of.get(l) || []), ...run.devices.filter(d => d.weights_bytes > 0).map(d => d.device)])].sort());
        return of;
    };
    const was = place(a), is = place(b), moved = [];
    for (const [l, on] of was) if (is.has(l) && on.join() !== is.get(l).join()) moved.push({l, from: fold(on), to: fold(is.get(l))});
    return groupBy(moved, m => m.from + "|" + m.to);
}
function drawAgainst() {
    const other = data.against;
    if (!other) return;
    at("against").hidden = false;
    const body = at("against-body"), a = headline(data), b = headline(other);
    if (data.difference) {
        element("p", body, data.difference.answer.replace(/^this plan/, "This plan")).className = "ends";
        for (const d of data.difference.asked) element("p", body, d.what + ": " + d.a + " → " + d.b, "dim");
    }
    const head = element("div", body, undefined, "two head");
    element("span", head);
    element("b", head, "this: " + a.p.model + ", " + plural(a.p.devices.length, "device"));
    element("b", head, "other: " + b.p.model + ", " + plural(b.p.devices.length, "device"));
    element("span", head, "the other is");
    twoBars(body, "tokens/s", a.p.predicted.tokens_per_second, b.p.predicted.tokens_per_second, v => number(v), "more");
    twoBars(body, "decode, a pass", a.p.predicted.decode_ms_per_token, b.p.predicted.decode_ms_per_token, v => time(v * 1e3), "less");
    twoBars(body, "prefill", a.p.predicted.prefill_ms, b.p.predicted.prefill_ms, v => time(v * 1e3), "less");
    twoBars(body, "fullest device", needed(a.fullest) / Math.max(1, a.fullest.memory_bytes), needed(b.fullest) / Math.max(1, b.fullest.memory_bytes), share, "less");
    if (a.p.kv_pool && b.p.kv_pool) twoBars(body, "room, tokens of KV", a.p.kv_pool.bound_tokens, b.p.kv_pool.bound_tokens, count, "more");
    twoBars(body, "moved, a decode pass", a.moved("decode"), b.moved("decode"), bytes, "less");
    twoBars(body, "moved, a prefill pass", a.moved("prefill"), b.moved("prefill"), bytes, "less");
    element("h3", body, "Time of a decode pass by cause, summed over devices");
    const x = causes(data, "decode"), y = causes(other, "decode");
    for (const k of new Set([...x.keys(), ...y.keys()])) twoBars(body, k, x.get(k) || 0, y.get(k) || 0, time, "less");
    const grids = element("div", body, undefined, "side");
    [[data, "this plan"], [other, "the other plan"]].forEach(([tree, name]) => {
        const box = element("div", grids);
        element("h3", box, name);
        smallGrid(box, tree, name);
    });
    const moved = movedLayers(data, other);
    element("h3", body, moved.length ? "What lies elsewhere" : "Every layer lies on the same devices");
    const ul = element("ul", body);
    for (const g of moved.slice(0, 40))
        element("li", ul, (layersWords(g.map(m => m.l)) || "the graph") + ": " + g[0].from + " → " + g[0].to);
    if (moved.length > 40) element("p", body, "and " + (moved.length - 40) + " more", "dim");
}
