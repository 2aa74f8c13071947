// SPDX-License-Identifier: Apache-2.0
// What a run measured (`run --trace`, `inspect --trace`) under what was predicted for a pass of its size, over the same time; then
// the difference of each step, and where it adds up. data.measured has a pass of each phase, or null where the trace has none.

const measuredOf = phase => data.measured ? data.measured[phase] : null;
let measuredTracks = null;

function lanesMeasured(phase, from, until) {
    const byDevice = new Map(deviceNames.map(n => [n, []]));
    for (const d of measuredOf(phase).devices)
        for (const m of d.steps) {
            const s = steps[phase][m.id], took = m.end_us - m.start_us, expected = m.predicted_end_us - m.predicted_start_us;
            byDevice.get(d.device).push({start: m[from], end: m[until], s, took, expected,
                note: "measured " + time(took) + ", predicted " + time(expected) + ": " + (took >= expected ? "+" : "−") +
                      time(Math.abs(took - expected)) + (m.ready_us !== undefined ? ", of it waiting " + time(Math.max(0, m.ready_us - m.start_us)) : "")});
        }
    for (const items of byDevice.values()) items.sort((a, b) => a.start - b.start);
    return {lanes: lanesOfTimes(byDevice), spans: layerSpans([...byDevice.values()].flat())};
}
// Slower is red, faster blue, as much as expected grey; full at twice or half the time.
function differenceColour(it) {
    const part = Math.max(-1, Math.min(1, Math.log2(Math.max(it.took, 1e-3) / Math.max(it.expected, 1e-3))));
    return part >= 0 ? "oklch(" + (0.75 - 0.2 * part) + " " + 0.19 * part + " 27)" : "oklch(" + (0.75 + 0.2 * part) + " " + -0.16 * part + " 255)";
}
function addMeasured(body) {
    if (!data.measured) return;
    element("p", body, "Measured: " + data.measured.trace, "dim");
    element("p", body, "", "sentence").id = "measured-says";
    const track = (id, name) => {
        element("h3", body, name).id = id + "-name";
        return addTimeline(body, id, name, {lanes: [], spans: null});
    };
    measuredTracks = {measured: track("timeline-measured", "Measured"), difference: track("timeline-difference", "Difference by step, at its measured time")};
    measuredTracks.difference.colour = differenceColour;
    keys(body, [["slower than predicted", "oklch(0.55 0.19 27)"], ["as predicted", "oklch(0.75 0 0)"], ["faster", "oklch(0.55 0.16 255)"]]).id = "difference-keys";
    element("div", body).id = "differences";
}
// Gives the timelines their lanes of the phase that is shown.
function fillMeasured() {
    if (!measuredTracks) return;
    const pass = measuredOf(state.phase), {measured, difference} = measuredTracks;
    for (const id of ["timeline-measured", "timeline-difference"]) at(id).hidden = at(id + "-name").hidden = pass === null;
    at("difference-keys").hidden = pass === null;
    at("differences").replaceChildren();
    at("predicted-name").textContent = pass ? "Predicted, for a pass of " + plural(pass.num_tokens, "token") : "Predicted";
    if (pass === null) {
        at("measured-says").textContent = "The trace has no pass of " + state.phase + ".";
        Object.assign(measured, {lanes: [], spans: null, end: 0});
        Object.assign(difference, {lanes: [], spans: null, end: 0});
        return;
    }
    at("measured-says").textContent = "A pass of " + state.phase + " took " + time(pass.measured_us) + ", predicted " + time(pass.predicted_us) +
        " (" + (pass.measured_us >= pass.predicted_us ? "+" : "−") + share(Math.abs(pass.measured_us / Math.max(pass.predicted_us, 1e-9) - 1)).replace("×", "times") +
        "): the median of " + plural(pass.compared_passes, "pass", "passes") + " of " + plural(pass.num_tokens, "token") + ", of " + count(pass.num_passes) + ".";
    const end = Math.max(pass.measured_us, pass.predicted_us);
    Object.assign(timelines[0], lanesMeasured(state.phase, "predicted_start_us", "predicted_end_us"), {end});
    Object.assign(measured, lanesMeasured(state.phase, "start_us", "end_us"), {end, at: null});
    Object.assign(difference, {lanes: measured.lanes, spans: null, end, at: null});
    table(element("div", at("differences")), [
        {name: "device", value: d => d.device},
        {name: "what", value: d => d.what},
        {name: "cause", value: d => d.cause},
        {name: "steps", value: d => d.steps, right: true},
        {name: "measured", value: d => d.measured_us, show: d => time(d.measured_us), right: true},
        {name: "predicted", value: d => d.predicted_us, show: d => time(d.predicted_us), right: true},
        {name: "difference", value: d => d.difference_us, show: d => (d.difference_us > 0 ? "+" : "") + time(d.difference_us), right: true},
        {name: "says", value: d => d.says},
    ], pass.differences, {most: 12, label: "differences between measured and predicted", pick: d => selectDevice(d.device)});
}
