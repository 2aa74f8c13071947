// SPDX-License-Identifier: Apache-2.0
// Numbers and names as people read them. Nothing here touches the document.

function number(value) {
    return value < 9.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1) : value.toFixed(0);
}
function bytes(value) {
    const units = ["kB", "MB", "GB", "TB", "PB"];
    if (Math.abs(value) < 1000) return Math.round(value) + " B";
    const sign = value < 0 ? "-" : "";
    value = Math.abs(value);
    let i = -1;
    while (value >= 999.5 && i < units.length - 1) {
        value /= 1000;
        ++i;
    }
    return sign + number(value) + " " + units[i];
}
function time(us) {
    if (us < 0) return "-" + time(-us);
    return us === 0 ? "0" : us < 1 ? Math.round(us * 1000) + " ns" : us < 999.5 ? number(us) + " µs"
         : us < 999.5e3 ? number(us / 1e3) + " ms" : number(us / 1e6) + " s";
}
// Thousands apart, which stay on one line: 131 072, 1 048 576.
function count(value) {
    return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}
function share(value) {
    return value <= 0 ? "0 %" : value < 0.001 ? "< 0.1 %" : value >= 9.995 ? number(value) + " ×"
         : (100 * value).toFixed(value < 0.995 ? 1 : 0).replace(/\.0$/, "") + " %";
}
const plural = (n, one, many) => count(n) + " " + (n === 1 ? one : many || one + "s");
const range = r => r === null || r === undefined ? "-" : r[1] - r[0] === 1 ? String(r[0]) : r[0] + "-" + (r[1] - 1);

// Integers in ascending order as "0-3, 5".
function runsOf(numbers) {
    const sorted = [...new Set(numbers)].sort((a, b) => a - b), out = [];
    for (let i = 0; i < sorted.length;) {
        let end = i;
        while (end + 1 < sorted.length && sorted[end + 1] === sorted[end] + 1) ++end;
        out.push(end === i ? String(sorted[i]) : sorted[i] + "-" + sorted[end]);
        i = end + 1;
    }
    return out.join(", ");
}
// Names of devices, those that differ by their number alone together: "sim:h100[0-7], host[0]".
function fold(names) {
    const groups = new Map();
    for (const name of names) {
        const m = /^(.*\[)(\d+)(\].*)$/.exec(name);
        const key = m ? m[1] + "\n" + m[3] : name;
        if (!groups.has(key)) groups.set(key, {m, name, numbers: []});
        if (m) groups.get(key).numbers.push(Number(m[2]));
    }
    return [...groups.values()].map(g => g.m ? g.m[1] + runsOf(g.numbers).replaceAll(" ", "") + g.m[3] : g.name).join(", ");
}
// "layers.12.o_proj" of all layers is one: its numbers become stars.
const starred = name => name.replace(/(^|[./])\d+(?=$|[./])/g, "$1*");

function counted(items) {
    const counts = new Map();
    for (const o of items) counts.set(o, (counts.get(o) || 0) + 1);
    return [...counts].map(([o, n]) => n > 1 ? n + " " + o : o).join(" + ");
}
// What a file may call its operators: a name that turns its surroundings around (Unicode's bidirectional controls) or holds
// control characters shows these as their codes.
function plain(text) {
    return String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
        c => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"));
}
// 1, 2 or 5 times a power of ten, at least `least`.
function roundStep(least) {
    let step = Math.pow(10, Math.floor(Math.log10(least)));
    for (const by of [1, 2, 5, 10]) if (step * by >= least) return step * by;
    return step * 10;
}
