// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/sweeping.h"

#include <fmt/format.h>

#include "planner/view/csv.h"
#include "tools/cli/spelling.h"
#include "tools/cli/terminal.h"

namespace cleave::tools {
namespace {

using planner::Sweep;
using planner::SweepRow;

std::vector<const planner::Grounds*> grounds_of_all(const Sweep& sweep) {
    std::vector<const planner::Grounds*> all;
    for (const SweepRow& row : sweep.rows)
        if (row.figures) all.push_back(&row.figures->grounds);
    return all;
}

}  // namespace

std::vector<planner::SweepAxis> axes_from_flags(const std::vector<std::string>& axes) {
    std::vector<planner::SweepAxis> parsed;
    for (const std::string& text : axes) {
        try {
            parsed.push_back(planner::parse_axis(text));
        } catch (const UserError& error) {
            throw UserError("--sweep {}", error.what());
        }
    }
    return parsed;
}

Sweep run_sweep(const QuestionFlags& flags, const std::vector<planner::SweepAxis>& axes) {
    const planner::Case base = case_in_question(flags);
    ProgressBar bar("planning");
    return planner::sweep(base, axes, [&](size_t done, size_t of) {
        bar.update(static_cast<int64_t>(done), static_cast<int64_t>(of));
    });
}

Json sweep_json(const Sweep& sweep) {
    Json json{{"model", sweep.model}, {"axes", Json::array()}, {"rows", Json::array()}};
    for (const planner::SweepAxis& axis : sweep.axes)
        json["axes"].push_back({{"name", axis.name}, {"values", axis.values}});
    for (const SweepRow& row : sweep.rows)
        json["rows"].push_back({{"values", row.values},
                                {"fits", row.figures.has_value()},
                                {"refusal", row.refusal},
                                {"lacks_memory", row.lacks_memory},
                                {"figures", row.figures ? figures_json(*row.figures) : Json()}});
    json["rests_on"] = rests_on(grounds_of_all(sweep));
    return json;
}

std::string sweep_csv(const Sweep& sweep) {
    std::vector<std::string> header;
    for (const planner::SweepAxis& axis : sweep.axes) header.push_back(axis.name);
    const size_t axes = header.size();
    for (const char* name : {"fits", "shape", "devices_used", "tokens_per_second", "objective_ms",
                             "decode_ms_per_token", "prefill_ms", "fullest_device", "needed_bytes",
                             "capacity_bytes", "max_sequences", "max_context", "kv_tokens",
                             "cost_per_million_tokens", "network", "basis", "refusal"})
        header.emplace_back(name);
    planner::CsvTable table(header);
    for (const SweepRow& row : sweep.rows) {
        std::vector<planner::CsvCell> cells(row.values.begin(), row.values.end());
        if (const auto& f = row.figures)
            cells.insert(
                cells.end(),
                {"yes", f->shape, f->devices, f->tokens_per_second, in_ms(f->objective_ns),
                 in_ms(f->decode_ns), in_ms(f->prefill_ns), f->fullest, f->needed, f->capacity,
                 f->sequences, f->room.max_context, f->kv_tokens,
                 f->price_micros > 0 ? planner::CsvCell(f->cost_per_million) : planner::CsvCell(),
                 network_text(f->grounds), class_names(f->grounds)});
        else
            cells.emplace_back("no");
        cells.resize(axes + 16);
        cells.emplace_back(row.figures ? std::string() : spell_for_command_line(row.refusal));
        table.row(cells);
    }
    return table.text();
}

void show_sweep(const Sweep& sweep) {
    const size_t axes = sweep.axes.size();
    planner::TextTable table(std::string(axes, '>') + "<>>>>>", "  ");
    std::vector<std::string> head;
    for (const planner::SweepAxis& axis : sweep.axes) head.push_back(axis.name);
    for (const char* name : {"shape", "tokens/s", "a token", "prefill", "fullest", "room"})
        head.emplace_back(name);
    table.row(head);
    for (const SweepRow& row : sweep.rows) {
        std::vector<std::string> cells = row.values;
        if (const auto& f = row.figures) {
            cells.push_back(f->shape);
            cells.push_back(planner::rate_text(*f));
            cells.push_back(milliseconds(f->objective_ns));
            cells.push_back(milliseconds(f->prefill_ns));
            cells.push_back(fmt::format("{:.0f} %", f->capacity > 0
                                                        ? 100 * static_cast<double>(f->needed) /
                                                              static_cast<double>(f->capacity)
                                                        : 0.0));
            cells.push_back(std::to_string(f->sequences));
        } else {
            cells.emplace_back(row.lacks_memory ? "does not fit" : "not possible");
            cells.resize(axes + 6, "-");
        }
        table.row(cells);
        if (row.figures) continue;
        const std::string why = spell_for_command_line(row.refusal);
        table.line(std::string(axes, ' ') + (row.lacks_memory ? "it " : "") +
                   why.substr(0, why.find('\n')));
    }
    show("{}: each row is a plan; room is sequences of a whole context\n", sweep.model);
    show_table(table);
    if (const auto grounds = grounds_of_all(sweep); !grounds.empty()) show_rests_on(grounds);
}

}  // namespace cleave::tools
