// SPDX-License-Identifier: Apache-2.0
// The machine as a picture: hosts, devices, links by rate and by their load in a pass.

const rateWidth = rate => rate ? Math.max(1, Math.min(6, Math.log10(rate) * 1.7)) : 1;
const linkDash = {pcie: "6 3", network: "10 4", host_staged: "2 3"};
const rateWords = l => linkKinds[l.kind] + (l.rate ? " " + number(l.rate) + " GB/s" : "") + (l.latency ? ", " + time(l.latency) : "");
function loadWords(l, phase) {
    const load = linkLoad(l, phase);
    return l.bytes[phase] === 0 ? "nothing in a pass of " + phase
        : bytes(l.bytes[phase]) + " in a pass of " + phase + (load === null ? "" : ", busy " + share(load) + " of it");
}
// Both ways between two devices, as one line of the picture.
function ways(a, b) { return [linkOf.get(pairKey(a, b)), linkOf.get(pairKey(b, a))].filter(Boolean); }
const busier = (links, phase) => links.reduce((x, y) => (linkLoad(y, phase) ?? 0) > (linkLoad(x, phase) ?? 0) ? y : x);

// Between hosts: what each sends and takes in a pass, over all pairs of devices.
function traffic(phase) {
    const pairs = new Map(), hostOf = new Map();
    hosts.forEach((h, i) => h.devices.forEach(d => hostOf.set(d, i)));
    for (const l of linkOf.values()) {
        const a = hostOf.get(l.from), b = hostOf.get(l.to);
        if (a === b) continue;
        const key = a + ">" + b;
        if (!pairs.has(key)) pairs.set(key, {from: a, to: b, bytes: 0, busiest: l});
        const p = pairs.get(key);
        p.bytes += l.bytes[phase];
        if (l.bytes[phase] > p.busiest.bytes[phase]) p.busiest = l;
    }
    return [...pairs.values()];
}

function drawDevice(s, layout, name, phase) {
    const place = layout.devices.get(name), d = plan.devices[deviceAt.get(name)], half = layout.size / 2;
    const g = svg("g", s, {class: "device", "data-device": plain(name)});
    const t = data.passes[phase].devices[deviceAt.get(name)], busy = t.compute_us / passUs(phase);
    const colour = d.stages.length ? stageColour(d.stages[0]) : "var(--line)";
    svg("rect", g, {x: place.x - half, y: place.y - half, width: 2 * half, height: 2 * half, rx: half * 0.3, class: "back",
                    style: "fill:" + colour});
    // How much of the pass it computes, from below.
    svg("rect", g, {x: place.x - half, y: place.y + half - 2 * half * Math.min(1, busy), width: 2 * half,
                    height: 2 * half * Math.min(1, busy), rx: half * 0.3, class: "busy", style: "fill:" + colour});
    if (place.box.beside) {
        const box = place.box, cx = box.x + box.width / 2, cy = box.y + hostHead + (box.height - hostHead) / 2, side = place.x - cx, down = place.y - cy;
        const far = Math.hypot(side, down) || 1, x = place.x + side / far * (half * 1.35 + 4), y = place.y + down / far * (half * 1.35 + 10) + 4;
        svg("text", g, {x, y, "text-anchor": Math.abs(side) < 0.35 * far ? "middle" : side > 0 ? "start" : "end", class: "dim", "font-size": 11},
            name.replace(/^sim:/, ""));
    }
    const number = /\[(\d+)\]/.exec(name);
    svg("text", g, {x: place.x, y: place.y + 4, "text-anchor": "middle", "font-size": layout.size > 30 ? 13 : 9.5},
        number ? number[1] : name.slice(0, 5));
    const text = name + ", " + (d.stages.length ? "stage " + runsOf(d.stages) : "unused") + ", computes " + share(busy) + " of a pass";
    pickable(s, g, text, () => [name + " (" + d.arch + ")", d.stages.length ? "stage " + runsOf(d.stages) : "unused",
        "computes " + time(t.compute_us) + ", exchanges " + time(t.exchange_us) + ", waits " + time(t.waiting_us),
        bytes(needed(d)) + " of " + bytes(d.memory_bytes)], () => selectDevice(name));
}
function drawLink(s, layout, a, b, phase) {
    const links = ways(a, b);
    if (links.length === 0) return;
    const l = busier(links, phase), load = linkLoad(l, phase), used = links.some(x => x.bytes[phase] > 0);
    const path = svg("path", s, {d: chord(layout.devices.get(a), layout.devices.get(b), layout.devices.get(a).box),
        class: "link" + (used ? "" : " unused"), "data-link": plain(l.from + ">" + l.to),
        style: "stroke-width:" + rateWidth(l.rate) + ";stroke:" + (used ? loadColour(load ?? 0.2) : "var(--line)")});
    if (linkDash[l.kind]) path.setAttribute("stroke-dasharray", linkDash[l.kind]);
    pickable(s, path, a + " and " + b + ": " + rateWords(l) + "; " + loadWords(l, phase),
             () => [a + " and " + b, rateWords(l), ...links.map(x => x.from + " → " + x.to + ": " + loadWords(x, phase))],
             () => selectLink(l.from, l.to));
}

// The network: a bus under each row of hosts, each host's line to it by load; arcs where few pairs of hosts talk.
function drawNetwork(s, layout, phase) {
    if (hosts.length < 2) return;
    const pairs = traffic(phase), talking = pairs.filter(p => p.bytes > 0);
    const any = pairs.length ? pairs[0].busiest : null;
    const busY = row => 10 + row * (layout.tall + layout.gapY) + layout.tall + layout.gapY * 0.62;
    const left = 14, right = layout.width - 14;
    for (let row = 0; row < layout.rows; ++row) {
        svg("line", s, {x1: left, x2: right, y1: busY(row), y2: busY(row), class: "bus"});
        if (row) svg("line", s, {x1: left, x2: left, y1: busY(row - 1), y2: busY(row), class: "bus"});
    }
    const name = (plan.network ? plan.network.fabric : "network") + (any && any.rate ? ", " + number(any.rate) + " GB/s a device" : "");
    svg("text", s, {x: right, y: busY(layout.rows - 1) + 15, "text-anchor": "end", class: "dim"}, name);
    layout.boxes.forEach((b, i) => {
        const out = talking.filter(p => p.from === i), into = talking.filter(p => p.to === i);
        const sent = out.reduce((sum, p) => sum + p.bytes, 0), taken = into.reduce((sum, p) => sum + p.bytes, 0);
        const rate = any && any.rate ? any.rate * b.host.devices.length : null;
        const load = rate ? Math.max(sent, taken) / (rate * 1e3) / passUs(phase) : 0, x = b.x + b.width / 2;
        const line = svg("line", s, {x1: x, x2: x, y1: b.y + b.height, y2: busY(b.row), class: "link" + (sent + taken ? "" : " unused"),
            style: "stroke-width:" + (sent + taken ? 5 : 2) + ";stroke:" + (sent + taken ? loadColour(load) : "var(--line)")});
        const busiest = [...out, ...into].sort((p, q) => q.bytes - p.bytes)[0];
        const to = p => hosts[p.from === i ? p.to : p.from].name;
        const words = sent + taken ? "sends " + bytes(sent) + " and takes " + bytes(taken) + " in a pass, busy " + share(load) : "nothing in a pass";
        if (busiest)
            pickable(s, line, "network of " + b.host.name + ": " + words,
                     () => ["network of " + b.host.name, words, ...out.map(p => "to " + to(p) + ": " + bytes(p.bytes)),
                            ...into.map(p => "from " + to(p) + ": " + bytes(p.bytes))].slice(0, 14),
                     () => selectLink(busiest.busiest.from, busiest.busiest.to));
    });
    if (talking.length > 3 * hosts.length) return;
    for (const p of talking) {
        const a = layout.boxes[p.from], b = layout.boxes[p.to];
        const ax = a.x + a.width / 2 + 12, bx = b.x + b.width / 2 - 12, y = busY(a.row), to = busY(b.row);
        svg("path", s, {class: "flow", d: a.row === b.row
            ? "M" + ax + " " + y + "Q" + (ax + bx) / 2 + " " + (y + 16) + " " + bx + " " + y
            : "M" + ax + " " + y + "L" + ax + " " + (y + 9) + "L" + bx + " " + (to - 9) + "L" + bx + " " + to});
    }
}

// Links by load: those of one kind with the same bytes together.
function busiestLinks(parent, phase) {
    const used = [...linkOf.values()].filter(l => l.bytes[phase] > 0);
    if (used.length === 0) return;
    const groups = groupBy(used, l => [l.kind, l.rate, l.bytes[phase]].join()).sort((a, b) => (linkLoad(b[0], phase) ?? 0) - (linkLoad(a[0], phase) ?? 0));
    const box = element("div", parent, undefined, "busiest");
    element("h3", box, "Busiest links in a pass of " + phase);
    for (const g of groups.slice(0, 5)) {
        const l = g[0], load = linkLoad(l, phase), row = element("div", box, undefined, "alternative");
        const name = g.length === 1 ? l.from + " → " + l.to : plural(g.length, "link") + " from " + fold(g.map(x => x.from));
        button(row, name, () => selectLink(l.from, l.to), name + ": " + loadWords(l, phase)).className = "link name";
        const track = element("span", row, undefined, "track"), fill = element("i", track);
        fill.style.width = 100 * Math.min(1, load ?? 0) + "%";
        fill.style.background = loadColour(load ?? 0);
        element("span", track, linkKinds[l.kind] + ", " + bytes(l.bytes[phase]) + (load === null ? "" : ", busy " + share(load)));
    }
    if (groups.length > 5) element("p", box, "The table of links, below, has " + plural(used.length, "link") + ".", "dim");
}
function drawMachine() {
    const body = at("machine-body"), phase = state.phase;
    body.replaceChildren();
    const width = Math.max(320, Math.min(body.clientWidth || 900, 1240)), layout = layoutMachine(width);
    const s = picture(element("div", body, undefined, "canvas"), "The machine: hosts, devices and links", width, layout.height);
    s.id = "machine-picture";
    for (const b of layout.boxes) {
        svg("rect", s, {x: b.x, y: b.y, width: b.width, height: b.height, rx: 8, class: "host"});
        const models = counted(b.host.devices.map(n => n.replace(/^sim:|\[.*$/g, "")));
        svg("text", s, {x: b.x + 10, y: b.y + 17, class: "hostname"}, b.host.name.slice(0, 14));
        if (b.width > 6.6 * (b.host.name.slice(0, 14).length + models.length) + 30)
            svg("text", s, {x: b.x + b.width - 10, y: b.y + 17, "text-anchor": "end", class: "dim"}, models);
    }
    drawNetwork(s, layout, phase);
    for (const unusedFirst of [true, false])
        for (const h of hosts)
            h.devices.forEach((a, i) => h.devices.slice(i + 1).forEach(b => {
                if (ways(a, b).every(l => l.bytes[phase] === 0) === unusedFirst) drawLink(s, layout, a, b, phase);
            }));
    for (const name of deviceNames) drawDevice(s, layout, name, phase);
    busiestLinks(body, phase);
    const kindsHere = [...new Map([...linkOf.values()].map(l => [l.kind + l.rate, l])).values()];
    const legend = element("p", body, undefined, "keys");
    if (kindsHere.length) {
        element("span", legend, "Links: " + kindsHere.map(rateWords).join("; ") + ". ", "dim");
        const ramp = element("span", legend, undefined, "key");
        for (const load of [0.001, 0.05, 0.2, 0.5, 1]) element("i", ramp).style.background = loadColour(load);
        ramp.append("load in a pass: 0 to 100 %");
    }
    element("span", legend, "devices: colour their stage, height how much of a pass they compute", "dim");
    if (plan.replicas)
        element("p", body, "Replicas: " + plan.replicas.map(fold).join("; ") + ". The picture is the first; " +
            (plan.others ? plural(plan.others.reduce((n, o) => n + o.predicted.replicas, 0), "other") + " of another make (inspect --make 2 shows it)." : "the others are as it."), "dim");
    markMachine();
}
function markMachine() {
    const s = at("machine-picture");
    if (!s) return;
    const inLayer = state.layer === null ? null : new Set(data.layers.filter(r => r.first_layer <= state.layer && state.layer <= r.last_layer)
        .flatMap(r => r.devices.map(x => x.device)));
    const held = state.value === null ? null : new Set(holders(state.value).map(h => h.device));
    for (const g of s.querySelectorAll("[data-device]")) {
        const name = g.dataset.device;
        g.classList.toggle("off", (state.device !== null && name !== state.device) || (inLayer !== null && !inLayer.has(name)) ||
            (held !== null && !held.has(name)) || (state.link !== null && !linkEnds().includes(name)));
        g.setAttribute("aria-pressed", name === state.device);
    }
    for (const p of s.querySelectorAll("[data-link]")) {
        const ends = p.dataset.link.split(">"), other = [...ends].reverse().join(">");
        p.classList.toggle("off", (state.device !== null && !ends.includes(state.device)) ||
            (state.link !== null && p.dataset.link !== state.link && other !== state.link) ||
            (inLayer !== null && !ends.every(e => inLayer.has(e))));
        p.setAttribute("aria-pressed", state.link !== null && (p.dataset.link === state.link || other === state.link));
    }
}
view(["phase"], () => drawMachine());
view(["device", "layer", "value", "link"], () => markMachine());
