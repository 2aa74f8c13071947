// SPDX-License-Identifier: Apache-2.0
// Elements that all sections are made of. Text goes in as text, never as markup, whatever a file calls its operators.

const at = id => document.getElementById(id);
function element(tag, parent, text, className) {
    const e = document.createElement(tag);
    if (text !== undefined && text !== null) e.textContent = plain(text);
    if (className) e.className = className;
    if (parent) parent.append(e);
    return e;
}
const svgSpace = at("space").namespaceURI;
function svg(tag, parent, attributes, text) {
    const e = document.createElementNS(svgSpace, tag);
    for (const key in attributes) e.setAttribute(key, attributes[key]);
    if (text !== undefined) e.textContent = plain(text);
    if (parent) parent.append(e);
    return e;
}
function button(parent, text, act, label) {
    const b = element("button", parent, text);
    b.type = "button";
    b.onclick = act;
    if (label) {
        b.setAttribute("aria-label", plain(label));
        b.title = plain(label);
    }
    return b;
}
// Buttons of which one is pressed; `press` shows another as pressed.
function choice(parent, label, names, chosen) {
    const group = element("span", parent, undefined, "choice");
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", label);
    const buttons = names.map(([name, text]) => [name, button(group, text, () => chosen(name))]);
    const press = name => buttons.forEach(([n, b]) => b.setAttribute("aria-pressed", n === name));
    press(names[0][0]);
    return press;
}
function say(text) { at("said").textContent = plain(text); }

// ---- Colours. Stages: hues as far apart as their number lets neighbours be; light and dark by the style sheet.
function stageColour(stage) {
    return "oklch(var(--stage-l) var(--stage-c) " + ((stage * 137.5 + 250) % 360).toFixed(1) + ")";
}
const palette = ["#3b7dd8", "#4aa3a2", "#3fa66b", "#7a86c8", "#c9a227", "#5aa9b8", "#8c6d4f", "#a0526d", "#6f8f3a", "#b65fc9"];
const kindColours = new Map([["transfer", "#e0662f"], ["all_reduce", "#d4413f"], ["all_gather", "#e0607f"]]);
const kinds = [...new Set(plan.steps.map(kindOf))];
{
    let next = 0;
    for (const k of kinds) if (!kindColours.has(k)) kindColours.set(k, palette[next++ % palette.length]);
}
// How busy a link or a device is: from grey over amber to red, on a root scale, for most links are hardly busy.
function loadColour(load) {
    const t = Math.min(1, Math.sqrt(Math.max(load, 0)));
    return "oklch(" + (0.72 - 0.14 * t).toFixed(3) + " " + (0.03 + 0.17 * t).toFixed(3) + " " + (95 - 67 * t).toFixed(0) + ")";
}

function keys(parent, entries) {
    const where = element("p", parent, undefined, "keys");
    for (const [name, colour] of entries) {
        const key = element("span", where, undefined, "key");
        element("i", key).style.background = colour;
        key.append(plain(name));
    }
    return where;
}
// A bar of parts [name, value, colour, text]; a part wide enough has its text inside.
function bar(parts, whole, label) {
    const b = element("div", null, undefined, "bar");
    b.setAttribute("role", "img");
    b.setAttribute("aria-label", plain((label ? label + ": " : "") +
        parts.filter(p => p[1] > 0).map(p => p[0] + " " + p[3]).join(", ")));
    for (const [name, value, colour, text] of parts) {
        if (value <= 0) continue;
        const part = value / whole, i = element("i", b);
        i.style.width = 100 * part + "%";
        i.style.background = colour;
        i.title = plain(name + ": " + text);
        if (part > 0.14) element("span", i, text);
    }
    return b;
}

// ---- The tip beside the pointer: lines of text, the first one bold.
function showTip(event, lines) {
    const tip = at("tip");
    tip.replaceChildren();
    lines.filter(Boolean).forEach((line, i) => element(i ? "div" : "b", tip, line));
    tip.style.display = "block";
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = Math.max(4, Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8)) + "px";
}
function hideTip() { at("tip").style.display = "none"; }

// ---- What can be picked in an SVG: a button with a name. A picture is one stop of the Tab key; arrow keys go to the nearest
// part in that direction, Enter picks it.
function pickable(picture, e, name, lines, pick) {
    e.setAttribute("role", "button");
    e.setAttribute("aria-label", plain(name));
    e.classList.add("pick");
    e.setAttribute("tabindex", picture.querySelector("[tabindex='0']") ? -1 : 0);
    e.pick = pick;
    e.lines = lines;
}
function picture(parent, label, width, height) {
    const s = svg("svg", parent, {viewBox: "0 0 " + width + " " + height, width, height, role: "group", "aria-label": plain(label)});
    const target = event => event.target.closest(".pick");
    s.addEventListener("click", event => {
        const e = target(event);
        if (e) e.pick(event);
    });
    s.addEventListener("pointermove", event => {
        const e = target(event);
        if (e) showTip(event, typeof e.lines === "function" ? e.lines() : e.lines); else hideTip();
    });
    s.addEventListener("pointerleave", hideTip);
    s.addEventListener("keydown", event => pictureKey(s, event));
    return s;
}
function pictureKey(s, event) {
    const here = event.target.closest(".pick");
    if (!here) return;
    if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        here.pick(event);
        return;
    }
    const way = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
    if (!way) return;
    event.preventDefault();
    const middle = e => { const r = e.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; };
    const [x, y] = middle(here);
    let best = null, least = Infinity;
    for (const e of s.querySelectorAll(".pick")) {
        if (e === here) continue;
        const [a, b] = middle(e), along = (a - x) * way[0] + (b - y) * way[1], aside = Math.abs((a - x) * way[1]) + Math.abs((b - y) * way[0]);
        if (along < 1) continue;
        const distance = along + 3 * aside;
        if (distance < least) {
            least = distance;
            best = e;
        }
    }
    if (!best) return;
    here.setAttribute("tabindex", -1);
    best.setAttribute("tabindex", 0);
    best.focus();
}

// ---- Tables. columns: {name, value(row) -> text or number to sort by, show(row) -> text or element, right}; `pick(row)`: what a
// click on the row's first cell selects, `most`: rows shown at first.
function table(parent, columns, rows, options = {}) {
    const {pick, most = 200, label} = options;
    parent.replaceChildren();
    const scroll = element("div", parent, undefined, "scroll");
    let order = null, all = false;
    const more = element("p", parent, undefined, "dim");
    const draw = () => {
        scroll.replaceChildren();
        const t = element("table", scroll);
        if (label) t.setAttribute("aria-label", label);
        const head = element("tr", element("thead", t));
        columns.forEach((c, i) => {
            const th = element("th", head, undefined, c.right ? "n" : "");
            const mark = order && order.column === i ? (order.down ? " ▾" : " ▴") : "";
            th.scope = "col";
            th.setAttribute("aria-sort", !mark ? "none" : order.down ? "descending" : "ascending");
            button(th, c.name + mark, () => {
                order = {column: i, down: order && order.column === i ? !order.down : !!c.right};
                draw();
                scroll.querySelectorAll("th button")[i].focus();
            });
        });
        const body = element("tbody", t);
        let sorted = rows;
        if (order) {
            const value = columns[order.column].value, sign = order.down ? -1 : 1;
            sorted = [...rows].sort((a, b) => {
                const x = value(a), y = value(b);
                return sign * (typeof x === "number" ? x - y : String(x).localeCompare(String(y), undefined, {numeric: true}));
            });
        }
        for (const row of all ? sorted : sorted.slice(0, most)) tableRow(body, columns, row, pick);
        more.replaceChildren();
        if (!all && rows.length > most) {
            more.append(plural(rows.length, "row") + ", the first " + most + " shown ");
            button(more, "show all", () => { all = true; draw(); });
        }
    };
    draw();
}
function tableRow(body, columns, row, pick) {
    const tr = element("tr", body);
    columns.forEach((c, i) => {
        const shown = (c.show || c.value)(row), td = element("td", tr, undefined, c.right ? "n" : "");
        if (shown instanceof Node) td.append(shown);
        else if (i === 0 && pick) button(td, shown, () => pick(row)).className = "link";
        else td.textContent = plain(shown);
    });
}
// Whether bytes come faster than the device's memory gives them: each query counts the keys that it reads.
const isCached = (count, us, device) => {
    const most = extra.machine[deviceAt.get(device)].memory_bandwidth;
    return most > 0 && 1e6 * count / us > 1.05 * most;
};
// Pairs of name and text or element.
function facts(parent, pairs) {
    const dl = element("dl", parent, undefined, "facts");
    for (const [name, value] of pairs) {
        if (value === null || value === undefined || value === "") continue;
        element("dt", dl, name);
        const dd = element("dd", dl);
        if (value instanceof Node) dd.append(value); else dd.textContent = plain(value);
    }
    return dl;
}
