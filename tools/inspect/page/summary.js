// SPDX-License-Identifier: Apache-2.0
// The head of the page: what the plan is, whether it fits and with which room, how fast it is, what limits it, and the alternatives.

const w = plan.workload, pool = plan.kv_pool;
const needed = d => d.memory_bytes - d.free_bytes;
const fullest = plan.devices.reduce((a, b) => needed(b) / Math.max(b.memory_bytes, 1) > needed(a) / Math.max(a.memory_bytes, 1) ? b : a);

function drawTitle() {
    const replicas = plan.replicas ? plan.replicas.length : 1;
    const title = plan.model + " on " + plural(plan.replicas ? plan.replicas.flat().length : plan.devices.length, "device");
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
    const full = tile("fits, " + share(needed(fullest) / Math.max(fullest.memory_bytes, 1)), "the fullest device",
                      bytes(needed(fullest)) + " of " + bytes(fullest.memory_bytes) + ", " + fullest.name);
    full.append(bar([["used", needed(fullest), "var(--mark)", ""]], fullest.memory_bytes, "memory of " + fullest.name));
    tile(p.tokens_per_second.toFixed(p.tokens_per_second < 100 ? 1 : 0) + " tokens/s", "speed, predicted",
         p.concurrency ? count(p.concurrency) + " users at once" : "batch " + count(w.batch));
    tile(time(p.decode_ms_per_token * 1e3), "decode, a pass", "a token of " + (w.batch === 1 ? "the sequence" : "each of " + count(w.batch) + " sequences"));
    if (p.ttft_ms !== undefined) tile(time(p.ttft_ms * 1e3), "time to first token", "of a user among " + count(p.concurrency));
    else tile(time(p.prefill_ms * 1e3), "time to first token", w.batch === 1 ? "a prompt of " + count(w.prompt_tokens) : count(w.batch) + " prompts of " + count(w.prompt_tokens));
    if (pool !== null && extra.room)
        tile(plural(extra.room.max_sequences, "sequence"), "room at context " + count(w.context),
             count(extra.room.kv_tokens) + " tokens of KV" + (extra.room.sequences_bound ? "; ends on " + extra.room.sequences_bound : ""));
    if (p.cost_per_million_tokens) tile(number(p.cost_per_million_tokens), "cost of a million tokens", number(p.price_per_hour) + " an hour");
    const moved = plan.links.reduce((sum, l) => sum + l.bytes_per_token, 0);
    if (plan.devices.length > 1) tile(bytes(moved * w.batch), "between devices, a pass", w.batch > 1 ? bytes(moved) + " a sequence" : "decode");
}

// ---- Room, in words: how far this placement reaches
function roomSentences() {
    const room = extra.room;
    if (pool === null || !room) return [];
    const on = device => device ? ", then " + device + " is full" : "";
    const context = room.positions > 0 && room.max_context > room.positions
        ? count(room.positions) + " tokens, the model's positions; memory would hold " + count(room.max_context)
        : count(room.max_context) + " tokens" + on(room.context_bound);
    return ["For " + plural(room.max_sequences, "sequence") + " of " + count(w.context) + " tokens" + on(room.sequences_bound) + ".",
            "Or for " + (w.batch === 1 ? "a context" : count(w.batch) + " contexts") + " of " + context + ".",
            "The KV cache has " + count(pool.tokens) + " tokens and could have " + count(room.kv_tokens) + "."];
}

// ---- Alternatives: bars of what the search makes best, with the bound as a line across. For throughput tokens/s, more is better;
// a runner-up says its own in its reason, else it is the plan's by the objective. Else time, less is better.
const rates = plan.predicted.concurrency > 0 && plan.predicted.tokens_per_second > 0;
function alternatives() {
    const own = plan.objective_ms, speed = plan.predicted.tokens_per_second;
    const rate = r => {
        const said = /([\d.]+) tokens\/s/.exec(r.why_not);
        return said ? Number(said[1]) : r.objective_ms > 0 ? speed * own / r.objective_ms : 0;
    };
    const fits = r => r.objective_ms > 0 && !/does not fit/.test(r.why_not);
    return [{name: "this plan", value: rates ? speed : own, note: "", own: true, fits: true},
            ...plan.why.runners_up.map(r => ({name: r.shape, value: rates ? rate(r) : r.objective_ms, note: r.why_not, fits: fits(r)}))];
}
function drawAlternatives(parent) {
    const rows = alternatives(), own = rows[0].value, known = rows.filter(r => r.fits && r.value > 0);
    if (known.length === 0) return;
    const bound = plan.lower_bound_ms <= 0 ? 0 : rates ? own * plan.objective_ms / plan.lower_bound_ms : plan.lower_bound_ms;
    const most = Math.max(Math.min(Math.max(...known.map(r => r.value)), own * 4), bound <= own * 2 ? bound : 0);
    const show = v => rates ? number(v) + " tokens/s" : time(v * 1e3);
    element("h3", parent, "Alternatives, by " + (rates ? "tokens/s: more is better" : plan.objective === "memory" ? "the objective" : "time of a token: less is better"));
    const box = element("div", parent, undefined, "alternatives");
    box.setAttribute("role", "list");
    for (const r of rows) {
        const row = element("div", box, undefined, "alternative" + (r.own ? " own" : "") + (r.fits ? "" : " none"));
        row.setAttribute("role", "listitem");
        element("span", row, r.name, "name");
        const track = element("span", row, undefined, "track");
        if (r.value > 0) {
            const fill = element("i", track), more = r.value / own - 1;
            fill.style.width = 100 * Math.min(r.value / most, 1) + "%";
            if (r.value > most) fill.className = "cut";
            element("span", track, show(r.value) + (r.own || Math.abs(more) < 5e-4 ? "" : more >= 0 ? ", +" + share(more) : ", −" + share(-more)) +
                    (r.fits ? "" : ", does not fit") + (/by the estimate/.test(r.note) ? ", estimated" : ""));
        } else element("span", track, r.fits || !/does not fit/.test(r.note) ? "not possible" : "does not fit", "dim");
        if (bound > 0 && bound <= most) {
            const line = element("u", track);
            line.style.left = "calc(" + 100 * bound / most + "% - 2px)";
            line.title = "no plan can be better than " + show(bound);
        }
        // What the bar says already is not said again.
        const note = r.note.replace(/^does not fit in memory$|^[\d.]+ tokens\/s, [\d.]+ % fewer$|^[\d.]+ % slower( by the estimate)?$/, "");
        if (note) element("span", row, note, "dim note");
    }
    if (bound > 0)
        element("p", parent, (bound <= most ? "The green line: no" : "No") + " plan can " + (rates ? "give more than " : "take less than ") + show(bound) +
                "; this one is " + share(plan.gap) + " from that.", "dim");
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
    const rest = [why.cuts.length ? plural(why.cuts.length, "cut") + " between stages" : "", why.metis.note ? "METIS" : ""].filter(Boolean);
    if (rest.length === 0) return;
    const details = element("details", box);
    element("summary", details, rest.join(", "));
    for (const cut of why.cuts) element("p", details, cut);
    if (why.metis.note) element("p", details, "METIS: " + why.metis.note);
}
