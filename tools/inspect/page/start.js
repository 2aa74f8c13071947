// SPDX-License-Identifier: Apache-2.0
// Search, keys, theme, and the order in which sections are drawn: the head first, the rest after the first paint.

// ---- Theme: the system's, unless chosen here
const themes = ["auto", "light", "dark"];
let theme = "auto";
function setTheme(name) {
    theme = name;
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    stageCache.clear();
    redraw();
    at("theme").textContent = "theme: " + name;
    at("theme").setAttribute("aria-label", "theme: " + name + "; the next is " + themes[(themes.indexOf(name) + 1) % themes.length]);
}
const nextTheme = () => setTheme(themes[(themes.indexOf(theme) + 1) % themes.length]);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { stageCache.clear(); redraw(); });

// ---- Search: devices, layers, operators and their values, weights, kernels; what is not picked filters the steps
let places = null;
function searchable() {
    if (places) return places;
    places = deviceNames.map(n => ({kind: "device", name: n, go: () => change({device: n})}));
    for (const l of columns) places.push({kind: "layer", name: layerWords(l), go: () => change({layer: l, step: null})});
    for (const n of new Set(steps.decode.map(s => s.value))) if (n) places.push({kind: "value", name: n, go: () => selectValue(n)});
    for (const n of weightRows.keys()) places.push({kind: "weight", name: n, go: () => selectValue(n)});
    texts.forEach((t, i) => {
        const s = steps.decode.find(x => x.text === i) || steps.prefill.find(x => x.text === i);
        if (s) places.push({kind: "kernel", name: t.name + " " + t.arch, go: () => selectStep(s)});
    });
    return places;
}
function found(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length === 0) return [];
    return searchable().map(p => ({p, name: (p.kind + " " + p.name).toLowerCase()}))
        .filter(x => words.every(word => x.name.includes(word)))
        .sort((a, b) => (a.p.name.toLowerCase() === text.toLowerCase() ? 0 : 1) - (b.p.name.toLowerCase() === text.toLowerCase() ? 0 : 1) ||
                        a.name.length - b.name.length).slice(0, 12).map(x => x.p);
}
function addSearch(tools) {
    const box = element("span", tools, undefined, "search");
    const input = element("input", box);
    input.type = "search";
    input.id = "search";
    input.placeholder = "layer 12, h100[1], q_proj   ( / )";
    input.setAttribute("role", "combobox");
    input.setAttribute("aria-label", "search devices, layers, operators, weights, kernels");
    input.setAttribute("aria-expanded", "false");
    input.setAttribute("aria-controls", "found");
    input.setAttribute("aria-autocomplete", "list");
    const options = element("div", box, undefined, "found");
    options.id = "found";
    options.setAttribute("role", "listbox");
    options.setAttribute("aria-label", "found");
    options.hidden = true;
    let at_ = -1, shown = [];
    const close = () => {
        options.hidden = true;
        input.setAttribute("aria-expanded", "false");
        input.removeAttribute("aria-activedescendant");
    };
    const pick = i => {
        const place = shown[i];
        close();
        if (place) {
            input.value = "";
            change({words: ""});
            place.go();
        } else change({words: input.value});
    };
    const mark = () => {
        [...options.children].forEach((o, i) => o.setAttribute("aria-selected", i === at_));
        if (at_ >= 0) input.setAttribute("aria-activedescendant", "found-" + at_); else input.removeAttribute("aria-activedescendant");
    };
    input.oninput = () => {
        shown = found(input.value);
        at_ = -1;
        options.replaceChildren();
        shown.forEach((p, i) => {
            const o = element("div", options);
            element("span", o, p.kind + " ", "dim");
            o.append(plain(p.name));
            o.id = "found-" + i;
            o.setAttribute("role", "option");
            o.onpointerdown = e => { e.preventDefault(); pick(i); };
        });
        options.hidden = shown.length === 0;
        input.setAttribute("aria-expanded", String(shown.length > 0));
        mark();
        if (input.value === "" && state.words) change({words: ""});
    };
    input.onkeydown = e => {
        if (e.key === "ArrowDown" || e.key === "ArrowUp") {
            e.preventDefault();
            at_ = Math.max(-1, Math.min(shown.length - 1, at_ + (e.key === "ArrowDown" ? 1 : -1)));
            mark();
        } else if (e.key === "Enter") {
            e.preventDefault();
            pick(at_);
        } else if (e.key === "Escape") {
            e.stopPropagation();
            if (!options.hidden) close(); else input.blur();
        }
    };
    input.onblur = close;
}
const help = [["/", "search"], ["d, p", "decode, prefill"], ["[ ]", "the layer before, the next"], ["Esc", "clear the selection"],
              ["t", "theme"], ["Tab, arrows, Enter", "into a picture, from part to part, select"], ["+ − 0", "on a timeline: zoom, whole pass"], ["?", "these keys"]];
function addTools() {
    const tools = at("page-tools");
    addSearch(tools);
    button(tools, "link", async () => {
        try {
            await navigator.clipboard.writeText(location.href);
            say("the link is copied");
        } catch {
            say(location.href);
        }
    }, "copy a link to this view");
    button(tools, "theme: auto", nextTheme).id = "theme";
    setTheme("auto");
    button(tools, "?", () => at("help").showModal(), "keys");
    const dialog = element("dialog", document.body);
    dialog.id = "help";
    dialog.setAttribute("aria-label", "keys");
    facts(dialog, help);
    button(dialog, "close", () => dialog.close());
}
addEventListener("keydown", e => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, textarea, dialog")) return;
    const next = by => {
        const i = state.layer === null ? (by > 0 ? -1 : columns.length) : columnAt.get(state.layer);
        const to = columns[Math.min(columns.length - 1, Math.max(0, i + by))];
        if (to !== undefined) change({layer: to, step: null});
    };
    const act = {"/": () => at("search").focus(), d: () => change({phase: "decode"}), p: () => change({phase: "prefill"}), t: nextTheme,
                 "[": () => next(-1), "]": () => next(1), "?": () => at("help").showModal(), Escape: clearAll}[e.key];
    if (!act) return;
    e.preventDefault();
    act();
});
at("skip").onclick = e => { e.preventDefault(); at("main").focus(); };

// ---- Drawing: what is in sight first
function later(tasks) {
    const next = () => {
        const task = tasks.shift();
        if (!task) {
            document.documentElement.dataset.drawn = "yes";
            return;
        }
        task();
        setTimeout(next, 0);
    };
    requestAnimationFrame(() => setTimeout(next, 0));
}
state = fromFragment(location.hash);
drawTitle();
drawTiles();
drawWhy();
addTools();
drawFilters();
later([drawPanel, drawMachine, drawGrid, drawZoom, drawAgainst, drawSweep, drawTimelines, drawMemory, drawTables]);
new ResizeObserver(redraw).observe(at("main"));
let wideBefore = innerWidth;
addEventListener("resize", () => {
    if (innerWidth === wideBefore) return;
    wideBefore = innerWidth;
    requestAnimationFrame(() => { drawMachine(); drawGrid(); drawZoom(); drawRoom(); redraw(); });
});
// On paper everything is light, and timelines are as wide as the page.
addEventListener("beforeprint", () => { for (const t of timelines) if (!t.canvas.hidden) drawTimeline(t); });
