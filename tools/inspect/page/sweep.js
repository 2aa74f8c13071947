// SPDX-License-Identifier: Apache-2.0
// A sweep (`plan --sweep --json`, given by `inspect --sweep`) as a picture: groups of bars by the first axis, a bar for each value of
// the second, a picture for each combination of the rest. A request without a plan is a cross, with the reason.

const sweepFigures = [
    ["tokens/s", f => f.tokens_per_second, v => number(v)],
    ["decode, a pass", f => f.decode_ms_per_token, v => time(v * 1e3)],
    ["prefill", f => f.prefill_ms, v => time(v * 1e3)],
    ["fullest device", f => f.needed_bytes / Math.max(1, f.capacity_bytes), share],
    ["cost of a million tokens", f => f.cost_per_million_tokens || 0, v => number(v)],
    ["room, sequences", f => f.room ? f.room.max_sequences : 0, count],
];
const sweepColour = i => "oklch(var(--stage-l) var(--stage-c) " + (255 - i * 47 + 360) % 360 + ")";
let sweepFigure = 0;

function sweepBars(parent, rows, axes) {
    const [name, of, show] = sweepFigures[sweepFigure], [first, second] = axes;
    const series = second ? second.values : [""], groups = first.values;
    const values = rows.filter(r => r.figures).map(r => of(r.figures)), most = Math.max(1e-12, ...values);
    const left = 70, foot = 40, head = 10, tall = 250, wide = Math.max(320, Math.min(parent.clientWidth || 900, 70 + groups.length * Math.max(64, 26 * series.length + 18)));
    const s = picture(element("div", parent, undefined, "canvas scrolls"), name + " over " + axes.map(a => a.name).join(" and "), wide, tall);
    const y = v => head + (tall - head - foot) * (1 - v / (most * 1.08)), tick = roundStep(most / 4);
    for (let v = 0; v <= most * 1.08; v += tick) {
        svg("line", s, {x1: left, x2: wide, y1: y(v), y2: y(v), class: "rule"});
        svg("text", s, {x: left - 6, y: y(v) + 4, "text-anchor": "end", class: "dim"}, show(v));
    }
    const slot = (wide - left) / groups.length, one = Math.min(44, slot * 0.84 / series.length);
    groups.forEach((value, g) => {
        const middle = left + slot * (g + 0.5);
        svg("text", s, {x: middle, y: tall - foot + 16, "text-anchor": "middle", class: "dim"}, value);
        series.forEach((other, k) => {
            const row = rows.find(r => r.values[0] === value && (!second || r.values[1] === other));
            if (!row) return;
            const x = middle + (k - series.length / 2) * one, f = row.figures, words = axes.map((a, i) => a.name + " " + row.values[i]).join(", ");
            const b = svg("g", s, {class: "sweepbar"});
            if (f) svg("rect", b, {x: x + 1, width: one - 2, y: y(of(f)), height: Math.max(1, y(0) - y(of(f))), rx: 2, style: "fill:" + sweepColour(k)});
            else svg("text", b, {x: x + one / 2, y: y(0) - 4, "text-anchor": "middle", class: "ending"}, "×");
            if (!f) svg("rect", b, {x, width: one, y: y(0) - 20, height: 20, class: "hit"});
            pickable(s, b, words + ": " + (f ? name + " " + show(of(f)) + ", " + f.shape : row.refusal),
                     () => f ? [words, f.shape, ...sweepFigures.map(([n, get, text]) => n + ": " + text(get(f))), "fullest: " + f.fullest_device]
                             : [words, row.lacks_memory ? "does not fit" : "not possible", row.refusal.slice(0, 300)],
                     () => say(words));
        });
    });
    svg("text", s, {x: (left + wide) / 2, y: tall - 6, "text-anchor": "middle", class: "strong"}, first.name);
    if (second) keys(parent, series.map((v, k) => [second.name + " " + v, sweepColour(k)]));
}
function drawSweep() {
    const sweep = data.sweep;
    if (!sweep || sweep.axes.length === 0) return;
    at("sweep").hidden = false;
    const body = at("sweep-body");
    body.replaceChildren();
    element("p", body, sweep.model + ": each bar is a plan; a cross has none.", "dim");
    choice(element("div", body, undefined, "tools"), "figure of the sweep", sweepFigures.map(([name], i) => [i, name]), i => {
        sweepFigure = i;
        drawSweep();
    })(sweepFigure);
    const shown = sweep.axes.slice(0, 2), rest = sweep.axes.slice(2);
    for (const group of groupBy(sweep.rows, r => r.values.slice(2).join("\n")).slice(0, 12)) {
        if (rest.length) element("h3", body, rest.map((a, i) => a.name + " " + group[0].values[i + 2]).join(", "));
        sweepBars(element("div", body), group, shown);
    }
    const details = element("details", body);
    element("summary", details, "As a table: " + plural(sweep.rows.length, "row"));
    table(element("div", details), [
        ...sweep.axes.map((a, i) => ({name: a.name, value: r => Number(r.values[i]) || r.values[i], show: r => r.values[i]})),
        {name: "shape", value: r => r.figures ? r.figures.shape : r.lacks_memory ? "does not fit" : "not possible"},
        ...sweepFigures.map(([name, of, show]) => ({name, value: r => r.figures ? of(r.figures) : -1, show: r => r.figures ? show(of(r.figures)) : "-", right: true})),
    ], sweep.rows, {label: "sweep", most: 60});
}
