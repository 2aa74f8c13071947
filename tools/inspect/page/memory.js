// SPDX-License-Identifier: Apache-2.0
// Memory: what fills each device now, and stacked bars over sequences and over context, up to where it ends and on which device.

const memoryParts = [["weights", "weights_bytes", "#3b7dd8"], ["KV", "kv_bytes", "#3fa66b"], ["activations", "activation_bytes", "#e07b39"],
                     ["staging", "staging_bytes", "#b65fc9"], ["scratch", "scratch_bytes", "#c9a227"], ["reserved", "reserved_bytes", "#8a929c"],
                     ["collectives", "collectives_bytes", "#7a5a3c"]]
    .filter(p => plan.devices.some(d => d[p[1]]));

// Devices with the same account are one row.
const alikeMemory = groupBy(plan.devices, d => [d.memory_bytes, ...memoryParts.map(p => d[p[1]] ?? 0), d.arch].join());
function drawMemoryNow(parent) {
    keys(parent, [...memoryParts.map(p => [p[0], p[2]]), ["free", "var(--track)"]]);
    const box = element("div", parent, undefined, "devicebars"), most = Math.max(...plan.devices.map(d => d.memory_bytes), 1);
    for (const group of alikeMemory) {
        const d = group[0], names = group.map(x => x.name);
        const row = element("div", box, undefined, "devicebar");
        row.dataset.devices = group.map(x => deviceAt.get(x.name)).join(" ");
        const name = fold(names) + (names.length > 1 ? " (" + names.length + ")" : "");
        if (names.length === 1) button(row, name, () => selectDevice(names[0])).className = "link name";
        else element("span", row, name, "name");
        const track = element("span", row, undefined, "capacity");
        track.style.width = 100 * d.memory_bytes / most + "%";
        track.append(bar(memoryParts.map(([n, key, colour]) => [n, d[key] ?? 0, colour, bytes(d[key] ?? 0)]), Math.max(d.memory_bytes, 1), name));
        element("span", row, bytes(needed(d)) + " of " + bytes(d.memory_bytes) + ", " + bytes(d.free_bytes) + " free", "dim note");
    }
    markMemory();
}
function markMemory() {
    for (const row of document.querySelectorAll(".devicebar"))
        row.classList.toggle("off", state.device !== null && !row.dataset.devices.split(" ").includes(String(deviceAt.get(state.device))));
}

// ---- What ends where. Of a device: bytes of KV a token, and how many tokens it has room for; all else as in the plan.
function kvOf(d, i) {
    const block = extra.kv_block_bytes[i], tokens = pool.block_tokens;
    return {perToken: block / tokens, most: block > 0 ? pool.tokens + Math.floor(Math.max(0, d.free_bytes) / block) * tokens : Infinity};
}
// The chart over one axis: x(i) sequences or a context, tokens(x) of KV that it takes.
function growth(axis) {
    const ends = plan.devices.map((d, i) => ({name: d.name, ...kvOf(d, i)}));
    const least = ends.reduce((a, b) => b.most < a.most ? b : a);
    const per = axis === "sequences" ? w.context : Math.max(w.batch, 1);
    const exact = extra.room, bound = exact && (axis === "sequences" ? exact.sequences_bound : exact.context_bound);
    const rounded = n => axis === "sequences" ? n : Math.floor(n / pool.block_tokens) * pool.block_tokens;
    // The planner's own figure, exact to the byte; without it what the KV cache alone gives.
    const end = exact ? (axis === "sequences" ? exact.max_sequences : exact.max_context)
                      : rounded(Math.floor(Math.min(pool.bound_tokens, least.most) / Math.max(per, 1)));
    const now = axis === "sequences" ? w.batch : w.context;
    return {axis, per, end, now, bound: bound || pool.bound_by, ends};
}
function niceSteps(end, now) {
    const out = new Set([now, end]), step = Math.max(1, roundStep(end * 1.18 / 9));
    for (let v = step; v <= end * 1.25; v += step) out.add(v);
    return [...out].filter(v => v > 0).sort((a, b) => a - b);
}
function drawGrowth(parent, axis) {
    const g = growth(axis), name = state.device ?? g.bound, i = deviceAt.get(name), d = plan.devices[i], kv = kvOf(d, i);
    const box = element("div", parent, undefined, "growth");
    element("h3", box, axis === "sequences" ? "Over sequences, each of " + count(w.context) + " tokens"
                                            : "Over context, of " + plural(w.batch, "sequence"));
    const positions = extra.room ? extra.room.positions : extra.config.max_positions, limit = axis === "context" && positions > 0 ? positions : Infinity;
    const end = Math.min(g.end, limit);
    const words = end === limit && limit < g.end
        ? "It ends at " + count(limit) + " tokens: the model's positions. Memory would hold " + count(g.end) + "."
        : "It ends at " + count(g.end) + (axis === "sequences" ? (g.end === 1 ? " sequence" : " sequences") : " tokens") + ", on " + g.bound + ".";
    element("p", box, words).className = "ends";
    // Where the model's positions end first, up to these, and then where memory would end.
    const xs = end < g.end ? [...niceSteps(end, g.now).filter(x => x <= end), g.end] : niceSteps(Math.max(g.end, 1), g.now), wide = Math.max(280, Math.min(parent.clientWidth || 600, 600)), tall = 210, left = 62, foot = 34, head = 14;
    const fixed = memoryParts.filter(p => p[1] !== "kv_bytes").map(([n, key, colour]) => ({n, colour, bytes: d[key] ?? 0}));
    const base = fixed.reduce((sum, p) => sum + p.bytes, 0), at_ = x => base + kv.perToken * g.per * x;
    const most = Math.max(d.memory_bytes * 1.16, Math.min(at_(xs[xs.length - 1]), d.memory_bytes * 1.4)), y = b => head + (tall - head - foot) * (1 - b / most);
    const s = picture(box, "Memory of " + name + " over " + axis + ". " + words, wide, tall);
    s.classList.add("growth-picture");
    const slot = (wide - left - 4) / xs.length, barWide = Math.min(46, slot * 0.72);
    const tick = roundStep(most / 4);
    for (let b = 0; b <= most; b += tick) {
        svg("line", s, {x1: left, x2: wide - 2, y1: y(b), y2: y(b), class: "rule"});
        svg("text", s, {x: left - 6, y: y(b) + 4, "text-anchor": "end", class: "dim"}, bytes(b));
    }
    xs.forEach((x, k) => {
        const middle = left + slot * (k + 0.5), over = x > end;
        const b = svg("g", s, {class: "stack" + (over ? " over" : "") + (x === g.now ? " now" : "")});
        let up = 0;
        for (const p of [...fixed, {n: "KV", colour: "#3fa66b", bytes: kv.perToken * g.per * x}]) {
            const top = Math.min(up + p.bytes, most);
            if (top > up) svg("rect", b, {x: middle - barWide / 2, width: barWide, y: y(top), height: Math.max(0, y(up) - y(top)), style: "fill:" + p.colour});
            up += p.bytes;
        }
        const every = Math.ceil((axis === "context" ? 66 : 46) / slot);
        if (x === g.now || x === end || x === g.end || (k % every === 0 && !xs.slice(k + 1, k + every).some(v => v === end || v === g.now)))
            svg("text", s, {x: middle, y: tall - foot + 15, "text-anchor": "middle", class: x === g.now ? "strong" : "dim"}, count(x));
        if (x === g.now) svg("text", s, {x: middle, y: tall - foot + 28, "text-anchor": "middle", class: "dim"}, "now");
        else if (x === g.end && end < g.end) svg("text", s, {x: middle, y: tall - foot + 28, "text-anchor": "middle", class: "dim"}, "memory ends");
        else if (x === end) svg("text", s, {x: middle, y: tall - foot + 28, "text-anchor": "middle", class: "ending"}, "ends");
        svg("title", b, {}, plain(count(x) + " " + axis + ": " + bytes(at_(x)) + (over ? ", does not fit" : "")));
    });
    svg("line", s, {x1: left, x2: wide - 2, y1: y(d.memory_bytes), y2: y(d.memory_bytes), class: "limit"});
    svg("text", s, {x: wide - 4, y: y(d.memory_bytes) - 4, "text-anchor": "end", class: "ending"}, bytes(d.memory_bytes) + ", " + name);
}
// Where each device would end, alike ones together.
function drawEnds(parent) {
    const g = growth("sequences"), groups = groupBy(g.ends, e => String(e.most)).sort((a, b) => a[0].most - b[0].most);
    if (groups.length < 2) return;
    const p = element("p", parent, undefined, "dim");
    p.textContent = plain("Room by device: " + groups.slice(0, 8).map(e => fold(e.map(x => x.name)) + " " +
        (e[0].most === Infinity ? "no KV" : count(e[0].most) + " tokens")).join("; ") + (groups.length > 8 ? "; ..." : "") + ".");
}
function drawRoom() {
    const box = at("growths");
    if (!box) return;
    box.replaceChildren();
    if (pool === null || plan.devices.length === 0) return;
    drawGrowth(box, "sequences");
    drawGrowth(box, "context");
}
function drawMemory() {
    const body = at("memory-body");
    body.replaceChildren();
    drawMemoryNow(body);
    if (pool !== null) {
        element("div", body, undefined, "growths").id = "growths";
        drawRoom();
        element("p", body, "Where it ends is exact; the bars between grow by the KV cache alone, all else as in this plan" +
            (state.device === null ? "; a selected device is shown in place of the one that ends first." : "."), "dim");
        drawEnds(body);
    }
    const details = element("details", body);
    element("summary", details, "What the buffers hold");
    details.addEventListener("toggle", () => {
        if (details.open && details.childElementCount === 1) drawBuffers(details);
    });
}
function drawBuffers(parent) {
    const groups = groupBy(data.memory, m => JSON.stringify([m.activations_fullest_in, m.items]));
    for (const g of groups) {
        const m = g[0];
        element("h4", parent, fold(g.map(x => x.device)) + (m.activations_fullest_in ? ": activations need most in " + m.activations_fullest_in : ""));
        table(element("div", parent), [
            {name: "arena", value: i => i.arena},
            {name: "what", value: i => i.what},
            {name: "buffers", value: i => i.buffers, right: true},
            {name: "bytes", value: i => i.bytes, show: i => bytes(i.bytes), right: true},
        ], m.items, {most: 40, label: "buffers of " + fold(g.map(x => x.device))});
    }
}
view(["device"], () => { markMemory(); drawRoom(); });
