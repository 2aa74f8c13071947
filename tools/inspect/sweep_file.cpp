// SPDX-License-Identifier: Apache-2.0
#include "tools/inspect/sweep_file.h"

#include "runtime/base/json_file.h"
#include "runtime/text/json_view.h"

namespace cleave::tools {
namespace {

using runtime::JsonView;

void check_number(const JsonView& value) {
    if (!value.raw().is_number()) value.fail("expected a number");
}

void check_texts(const JsonView& list) {
    for (size_t i = 0; i < list.size(); ++i) list.at(i).as_string();
}

void check_axis(const JsonView& axis) {
    axis.at("name").as_string();
    check_texts(axis.at("values"));
}

void check_figures(const JsonView& figures) {
    for (const char* text : {"shape", "fullest_device"}) figures.at(text).as_string();
    for (const char* number : {"tokens_per_second", "decode_ms_per_token", "prefill_ms",
                               "needed_bytes", "capacity_bytes"})
        check_number(figures.at(number));
    if (figures.has("cost_per_million_tokens")) check_number(figures.at("cost_per_million_tokens"));
    if (figures.has("room")) check_number(figures.at("room").at("max_sequences"));
}

void check_row(const JsonView& row, size_t num_axes) {
    const JsonView values = row.at("values");
    check_texts(values);
    if (values.size() != num_axes)
        values.fail("expected a value for each of " + std::to_string(num_axes) + " axes");
    row.at("refusal").as_string();
    row.at("lacks_memory").as_bool();
    if (row.has("figures")) check_figures(row.at("figures"));
}

}  // namespace

nlohmann::ordered_json read_sweep(const std::string& path) {
    const std::string origin = "--sweep " + path;
    const nlohmann::json json =
        parse_json(read_regular_file(path), origin,
                   "give what `cleave plan ... --sweep AXIS=VALUES --json` printed");
    const JsonView sweep(json, origin, "");
    sweep.at("model").as_string();
    const JsonView axes = sweep.at("axes"), rows = sweep.at("rows");
    for (size_t i = 0; i < axes.size(); ++i) check_axis(axes.at(i));
    for (size_t i = 0; i < rows.size(); ++i) check_row(rows.at(i), axes.size());
    return nlohmann::ordered_json(json);
}

}  // namespace cleave::tools
