// SPDX-License-Identifier: Apache-2.0
// What is selected and shown, which the address keeps (its fragment): a link to the page is a link to the view. Sections register a
// function that draws them; each change draws those that it concerns.

const blank = {phase: "decode", device: null, layer: null, value: null, step: null, link: null, words: "", from: null, until: null,
               every: null};
let state = {...blank};
const views = [];  // {keys, draw}: drawn when one of these keys changes
const view = (keys, draw) => views.push({keys, draw});

function fragment(s) {
    const parts = [];
    for (const key in blank)
        if (s[key] !== blank[key] && s[key] !== null && s[key] !== "")
            parts.push(key + "=" + encodeURIComponent(typeof s[key] === "number" ? Number(s[key].toPrecision(7)) : s[key]));
    return parts.join("&");
}
// What a fragment says that fits this plan; the rest is left out.
function fromFragment(text) {
    const s = {...blank}, given = new URLSearchParams(text.replace(/^#/, "").replaceAll("+", "%2B"));
    const numberOf = key => given.has(key) && given.get(key) !== "" && Number.isFinite(Number(given.get(key))) ? Number(given.get(key)) : null;
    if (given.get("phase") === "prefill") s.phase = "prefill";
    if (deviceAt.has(given.get("device"))) s.device = given.get("device");
    const layer = numberOf("layer");
    if (layer !== null && Number.isInteger(layer) && layer >= -1 && layer <= numLayers) s.layer = layer;
    const value = given.get("value");
    if (value && (placedOf.has(value) || weightRows.has(value) || plan.steps.some(t => t.value === value))) s.value = value;
    const step = numberOf("step");
    if (step !== null && steps[s.phase][step]) s.step = step;
    const link = given.get("link");
    if (link && linkOf.has(link.replace(">", "\n"))) s.link = link;
    s.words = given.get("words") || "";
    s.every = given.get("every") === "yes" ? "yes" : null;
    const from = numberOf("from"), until = numberOf("until");
    if (from !== null && until !== null && from >= 0 && from < until) Object.assign(s, {from, until});
    return s;
}
function keepAddress(add) {
    const text = fragment(state), now = location.hash.replace(/^#/, "");
    if (text === now) return;
    history[add ? "pushState" : "replaceState"](null, "", "#" + text);
}
// `add`: a step of the browser's history.
function change(patch, add = true) {
    const before = state;
    state = {...state, ...patch};
    if (patch.phase && patch.phase !== before.phase) Object.assign(state, {step: patch.step ?? null, from: null, until: null});
    const changed = Object.keys(blank).filter(key => before[key] !== state[key]);
    if (changed.length === 0) return;
    keepAddress(add && changed.some(key => key !== "words" && key !== "from" && key !== "until"));
    for (const v of views) if (v.keys.some(key => changed.includes(key))) v.draw();
}
function readAddress() {
    const before = state;
    state = fromFragment(location.hash);
    const changed = Object.keys(blank).filter(key => before[key] !== state[key]);
    for (const v of views) if (v.keys.some(key => changed.includes(key))) v.draw();
}
addEventListener("popstate", readAddress);
addEventListener("hashchange", readAddress);

const select = patch => change({value: null, step: null, link: null, ...patch});
const selectDevice = name => select({device: state.device === name ? null : name});
const selectLayer = layer => select({layer: state.layer === layer ? null : layer});
function selectStep(s) { change({phase: s.phase, step: s.id, layer: s.layer, value: null, link: null}); }
const selectValue = name => change({value: name, step: null, link: null});
const selectLink = (from, to) => change({link: from + ">" + to, step: null, value: null});
const clearAll = () => change({...blank, phase: state.phase, every: state.every, from: state.from, until: state.until});
const linkEnds = () => state.link ? state.link.split(">") : null;

// ---- Which steps the selection leaves
function stepText(s) {
    return [s.id, what(s), "L" + s.layer, s.value, ...s.devices, ...(s.operators || [])].join(" ").toLowerCase();
}
function selected(s) {
    if (state.device !== null && !s.devices.includes(state.device)) return false;
    if (state.layer !== null && s.layer !== state.layer) return false;
    if (state.value !== null && s.value !== state.value && !(s.reads && s.reads.includes(state.value)) &&
        !usesWeight(s, state.value)) return false;
    if (state.link !== null && !usesLink(s, ...linkEnds())) return false;
    return true;
}
const isSelecting = () => state.device !== null || state.layer !== null || state.value !== null || state.link !== null;

// ---- The row of what is selected, each with a button that lets it go
function drawFilters() {
    const row = at("filters");
    row.replaceChildren();
    const chips = [["device", state.device], ["layer", state.layer === null ? null : layerWords(state.layer)], ["value", state.value],
                   ["link", state.link && state.link.replace(">", " → ")],
                   ["step", state.step === null ? null : state.step + ", " + what(steps[state.phase][state.step])],
                   ["steps with", state.words || null]];
    for (const [name, text] of chips) {
        if (text === null) continue;
        const chip = element("span", row, undefined, "chip");
        element("span", chip, name + " ", "dim");
        element("b", chip, text);
        const key = name === "steps with" ? "words" : name;
        button(chip, "×", () => change({[key]: key === "words" ? "" : null}), "let go: " + name + " " + text);
    }
    if (row.childElementCount > 1) button(row, "clear all", clearAll);
    row.hidden = row.childElementCount === 0;
}
view(["device", "layer", "value", "link", "step", "words", "phase"], drawFilters);
