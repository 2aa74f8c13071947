// SPDX-License-Identifier: Apache-2.0
// The head of the page: what the plan is, whether it fits and with which room, how fast it is, what limits it, and the alternatives.

const w = plan.workload, pool = plan.kv_pool;
const needed = d => d.memory_bytes - d.free_bytes;
const fullest = plan.devices.reduce((a, b) => needed(b) / Math.max(b.memory_bytes, 1) > needed(a) / Math.max(a.memory_bytes, 1) ? b : a);

function drawTitle() {
    const replicas = plan.replicas ? plan.replicas.length : 1;
    const title = plan.model + " on " + plural(plan.devices.length * replicas, "device");
    at("title").textContent = plain(title);
    document.title = plain("Cleave: " + title);
    const widths = [...new Set(plan.stages.map(s => s.devices.length))].sort((a, b) => a - b);
    const shape = plural(plan.stages.length, "stage") + " of " +
        (widths.length === 1 ? plural(widths[0], "device") : widths[0] + " to " + widths[widths.length - 1] + " devices");
    at("model").textContent = plain(fold(deviceNames) + (replicas > 1 ? ", " + replicas + " replicas" : "") + "; " + shape +
        "; for " + plan.objective + ": batch " + count(w.batch) + ", prompt " + count(w.prompt_tokens) + ", context " + count(w.context) +
        ", prefill in chunks of " + count(w.prefill_chunk) + "; weights " + w.dtype + ", KV " + w.kv_dtype + ", activations " +
        w.activation_dtype);
}

function tile(value, name, note, title) {
    const t = element("div", at("tiles"), undefined, "tile");
    element("span", t, name, "dim");
    element("b", t, value);
    if (note) element("span", t, note, "note");
    if (title) t.title = plain(title);
    return t;
}
function drawTiles() {
    const p = plan.predicted;
    tile(p.tokens_per_second.toFixed(p.tokens_per_second < 100 ? 1 : 0) + " tokens/s", "speed, predicted",
         p.concurrency ? count(p.concurrency) + " users at once" : "batch " + count(w.batch));
    tile(time(p.decode_ms_per_token * 1e3), "decode, a pass", "a token of " + (w.batch === 1 ? "the sequence" : "each of " + count(w.batch) + " sequences"));
    if (p.ttft_ms !== undefined) tile(time(p.ttft_ms * 1e3), "time to first token", "of a user among " + count(p.concurrency));
    else tile(time(p.prefill_ms * 1e3), "prefill", w.batch === 1 ? "a prompt of " + count(w.prompt_tokens) : count(w.batch) + " prompts of " + count(w.prompt_tokens));
    const full = tile("fits, " + share(needed(fullest) / Math.max(fullest.memory_bytes, 1)), "memory, the fullest device",
                      bytes(needed(fullest)) + " of " + bytes(fullest.memory_bytes) + ", " + fullest.name);
    full.append(bar([["used", needed(fullest), "var(--mark)", ""]], fullest.memory_bytes, "memory of " + fullest.name));
    if (pool !== null) {
        const block = Math.max(w.context, 1);
        tile(plural(Math.floor(pool.bound_tokens / block), "sequence"), "room at context " + count(w.context),
             count(pool.bound_tokens) + " tokens of KV; ends on " + pool.bound_by);
    }
    const moved = plan.links.reduce((sum, l) => sum + l.bytes_per_token, 0);
    if (plan.devices.length > 1) tile(bytes(moved * w.batch), "between devices, a pass", w.batch > 1 ? bytes(moved) + " a sequence" : "decode");
}

// ---- Room, in words
function roomSentences() {
    const out = [];
    if (pool === null) return out;
    const context = Math.max(w.context, 1), most = Math.floor(pool.bound_tokens / context);
    out.push("The KV cache has " + count(pool.tokens) + " tokens: " + plural(pool.sequences, "sequence") + " of " + count(w.context) +
             ". Its devices have room for " + count(pool.bound_tokens) + ": " + plural(most, "sequence") + " of " + count(w.context) +
             (w.batch > 0 ? ", or " + count(w.batch) + " of " + count(Math.floor(pool.bound_tokens / w.batch)) : "") + ".");
    out.push(pool.bound_by + " ends first.");
    return out;
}

// ---- Alternatives: bars of what the search makes best, the bound a line across
function drawAlternatives(parent) {
    const rows = [{name: "this plan", ms: plan.objective_ms, note: "", own: true},
                  ...plan.why.runners_up.map(r => ({name: r.shape, ms: r.objective_ms, note: r.why_not}))];
    const known = rows.filter(r => r.ms > 0);
    if (known.length === 0) return;
    const own = plan.objective_ms, most = Math.min(Math.max(...known.map(r => r.ms)), Math.max(own, 1e-9) * 4);
    element("h3", parent, "Instead");
    const box = element("div", parent, undefined, "alternatives");
    box.setAttribute("role", "list");
    for (const r of rows) {
        const row = element("div", box, undefined, "alternative" + (r.own ? " own" : ""));
        row.setAttribute("role", "listitem");
        element("span", row, r.name, "name");
        const track = element("span", row, undefined, "track");
        if (r.ms > 0) {
            const fill = element("i", track);
            fill.style.width = 100 * Math.min(r.ms / most, 1) + "%";
            if (r.ms > most) fill.className = "cut";
            element("span", track, time(r.ms * 1e3) + (r.own || own <= 0 ? "" : r.ms >= own ? ", +" + share(r.ms / own - 1) : ", −" + share(1 - r.ms / own)));
        } else element("span", track, "not possible", "dim");
        if (plan.lower_bound_ms > 0) {
            const line = element("u", track);
            line.style.left = 100 * Math.min(plan.lower_bound_ms / most, 1) + "%";
            line.title = "no plan can take less than " + time(plan.lower_bound_ms * 1e3);
        }
        if (r.note) element("span", row, r.note, "dim note");
    }
    if (plan.lower_bound_ms > 0)
        element("p", parent, "The line: no plan can take less than " + time(plan.lower_bound_ms * 1e3) + "; this one is within " +
                share(plan.gap) + " of it.", "dim");
}

function drawWhy() {
    const box = at("why-body"), why = plan.why;
    const sentences = element("div", box, undefined, "sentences");
    const sentence = (name, text) => {
        if (!text) return;
        const p = element("p", sentences);
        element("b", p, name);
        p.append(" ", plain(text));
    };
    sentence("Limit", why.binding);
    sentence("Room", roomSentences().join(" "));
    sentence("Heads", why.heads);
    for (const pin of plan.pins) sentence("Pin", pin.what + " on " + pin.device);
    drawAlternatives(box);
    const rest = why.cuts.length + (why.metis.note ? 1 : 0);
    if (rest === 0) return;
    const details = element("details", box);
    element("summary", details, plural(why.cuts.length, "cut") + " between stages" + (why.metis.note ? ", and METIS" : ""));
    for (const cut of why.cuts) element("p", details, cut);
    if (why.metis.note) element("p", details, "METIS: " + why.metis.note);
}
