// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/questions.h"

#include <algorithm>
#include <cstdio>
#include <functional>

#include <fmt/format.h>

#include "planner/plan/workload_request.h"
#include "planner/planner.h"
#include "planner/verify/verify.h"
#include "planner/view/csv.h"
#include "tools/cli/model_source.h"
#include "tools/cli/planning.h"
#include "tools/cli/spelling.h"
#include "tools/cli/terminal.h"

namespace cleave::tools {
namespace {

using planner::Figures;

struct FigureRow {
    const char* name;
    std::function<std::string(const Figures&)> text;
};

std::vector<FigureRow> figure_rows() {
    using F = const Figures&;
    const auto number = [](int64_t n) { return n > 0 ? std::to_string(n) : std::string("-"); };
    return {
        {"shape", [](F f) { return f.shape; }},
        {"devices used", [](F f) { return fmt::format("{} of {}", f.devices, f.given); }},
        {"tokens/s", [](F f) { return planner::rate_text(f); }},
        {"objective, a token", [](F f) { return milliseconds(f.objective_ns); }},
        {"users", [number](F f) { return number(f.users); }},
        {"first token after", [](F f) { return milliseconds(f.ttft_ns); }},
        {"then a token each", [](F f) { return milliseconds(f.tpot_ns); }},
        {"cost of a million tokens",
         [](F f) { return f.price_micros > 0 ? fmt::format("{:.3g}", f.cost_per_million) : "-"; }},
        {"prefill", [](F f) { return milliseconds(f.prefill_ns); }},
        {"decode pass", [](F f) { return milliseconds(f.decode_ns); }},
        {"  computing", [](F f) { return milliseconds(f.decode.compute_ns); }},
        {"  sums and gathers", [](F f) { return milliseconds(f.decode.collective_ns); }},
        {"  transfers", [](F f) { return milliseconds(f.decode.transfer_ns); }},
        {"  sharing", [](F f) { return milliseconds(f.decode.sharing_ns); }},
        {"  bytes between devices", [](F f) { return planner::bytes_text(f.link_bytes); }},
        {"fullest device", [](F f) { return f.fullest; }},
        {"  used of it",
         [](F f) {
             return fmt::format("{} of {}", planner::bytes_text(f.needed),
                                planner::bytes_text(f.capacity));
         }},
        {"weights, all devices", [](F f) { return planner::bytes_text(f.weights); }},
        {"KV, all devices", [](F f) { return planner::bytes_text(f.kv); }},
        {"room: sequences", [number](F f) { return number(f.sequences); }},
        {"room: context", [number](F f) { return number(f.room.max_context); }},
        {"room: KV tokens", [number](F f) { return number(f.kv_tokens); }},
        {"room ends on", [](F f) { return f.sequences_bound.empty() ? "-" : f.sequences_bound; }},
    };
}

Json name_or_null(const std::string& name) { return name.empty() ? Json() : Json(name); }

}  // namespace

void add_question_flags(CLI::App& app, QuestionFlags& flags,
                        const std::vector<std::string>& tables) {
    app.add_option("PLAN", flags.model.model,
                   "a .plan file, or a model as `plan` takes it, with its options")
        ->required();
    app.add_option("--weights", flags.model.weights,
                   "none: the file's external data may be absent (plan only)")
        ->check(CLI::IsMember({"any", "none"}));
    add_plan_flags(app, flags.plan);
    app.add_flag("--json", flags.json, "JSON on standard output");
    add_csv_flags(app, flags.csv, tables);
}

Questioned plan_in_question(const QuestionFlags& flags, bool with_case) {
    check_csv_flags(flags.csv, flags.json);
    LoadedModel model = load_model(flags.model, flags.plan.dtype);
    PlanFlags alone = flags.plan;
    alone.alone = true;  // one process asks
    if (model.plan) {
        Questioned q{plan_from_flags(std::move(model), alone, {}, {}, flags.drivers), {}};
        if (with_case) q.asked = planner::case_of(q.plan);
        return q;
    }
    const planner::Workload workload = workload_from_flags(alone, model);
    planner::Case asked = case_from_flags(std::move(model), alone, {}, workload, flags.drivers);
    Questioned q{planner::make_plan(asked.graph, asked.machine, asked.workload, asked.options), {}};
    if (with_case) q.asked = std::move(asked);
    return q;
}

planner::Case case_in_question(const QuestionFlags& flags) {
    LoadedModel model = load_model(flags.model, flags.plan.dtype);
    PlanFlags alone = flags.plan;
    alone.alone = true;
    if (model.plan)
        return planner::case_of(plan_from_flags(std::move(model), alone, {}, {}, flags.drivers));
    const planner::Workload workload = workload_from_flags(alone, model);
    return case_from_flags(std::move(model), alone, {}, workload, flags.drivers);
}

std::string milliseconds(int64_t ns) { return ns == 0 ? "-" : planner::time_text(ns); }

Json parts_json(const planner::TimeParts& p) {
    return {{"compute_ms", in_ms(p.compute_ns)},
            {"collective_ms", in_ms(p.collective_ns)},
            {"transfer_ms", in_ms(p.transfer_ns)},
            {"sharing_ms", in_ms(p.sharing_ns)}};
}

Json figures_json(const Figures& f) {
    const planner::Room& r = f.room;
    Json json{{"shape", f.shape},
              {"replicas", f.replicas},
              {"devices_used", f.devices},
              {"devices_given", f.given},
              {"tokens_per_second", f.tokens_per_second},
              {"objective_ms", in_ms(f.objective_ns)},
              {"decode_ms_per_token", in_ms(f.decode_ns)},
              {"prefill_ms", in_ms(f.prefill_ns)},
              {"decode", parts_json(f.decode)},
              {"link_bytes", f.link_bytes},
              {"fullest_device", f.fullest},
              {"needed_bytes", f.needed},
              {"capacity_bytes", f.capacity},
              {"weights_bytes", f.weights},
              {"kv_bytes", f.kv}};
    if (f.users > 0)
        json.update(
            {{"users", f.users}, {"ttft_ms", in_ms(f.ttft_ns)}, {"tpot_ms", in_ms(f.tpot_ns)}});
    if (f.price_micros > 0)
        json.update({{"price_per_hour", static_cast<double>(f.price_micros) / 1e6},
                     {"cost_per_million_tokens", f.cost_per_million}});
    json["room"] = nullptr;
    if (r.has_kv())
        json["room"] = {{"max_sequences", f.sequences},
                        {"sequences_bound", name_or_null(f.sequences_bound)},
                        {"max_context", r.max_context},
                        {"context_bound", name_or_null(f.context_bound)},
                        {"positions", r.positions},
                        {"positions_end", r.positions_end},
                        {"kv_tokens", f.kv_tokens},
                        {"kv_tokens_now", f.kv_tokens_now},
                        {"kv_bound", name_or_null(f.kv_bound)}};
    add_grounds(f.grounds, json);
    return json;
}

void add_grounds(const planner::Grounds& grounds, Json& figures) {
    figures["network"] = name_or_null(planner::network_text(grounds));
    figures["basis"] = Json::array();
    for (const planner::Basis& basis : grounds.classes) figures["basis"].push_back(basis.name);
}

Json with_network(Json rows, const planner::Grounds& grounds) {
    for (Json& row : rows) row["network"] = name_or_null(planner::network_text(grounds));
    return rows;
}

void show_rests_on(const std::vector<const planner::Grounds*>& plans) {
    std::string label = "rests on";
    show("\n");
    for (const std::string& line : planner::rests_on(plans)) {
        show("  {:<13}{}\n", label,
             planner::wrapped(spell_for_command_line(line), 15, terminal_width()));
        label.clear();
    }
}

Json outcome_json(const planner::Outcome& outcome) {
    Json json{{"fits", outcome.fits()},
              {"refusal", outcome.refusal},
              {"lacks_memory", outcome.lacks_memory},
              {"devices", Json::array()},
              {"fixes", outcome.fixes}};
    for (const planner::Deficit& d : outcome.devices)
        json["devices"].push_back({{"name", d.device},
                                   {"needed_bytes", d.needed_bytes},
                                   {"capacity_bytes", d.capacity_bytes},
                                   {"deficit_bytes", d.deficit_bytes}});
    return json;
}

void print_json(const Json& json) {
    const std::string text =
        spell_for_command_line(json.dump(2, ' ', false, Json::error_handler_t::replace)) + "\n";
    show_exactly(text);
}

namespace {

// {"room": {"kv_tokens": 4}} as {"room_kv_tokens": 4}; lists as words, a space apart.
void flatten(const std::string& prefix, const Json& value, Json& flat) {
    for (const auto& [key, item] : value.items()) {
        const std::string name = prefix.empty() ? key : fmt::format("{}_{}", prefix, key);
        if (item.is_object()) {
            flatten(name, item, flat);
        } else if (item.is_array()) {
            std::string words;
            for (const Json& one : item) {
                if (!words.empty()) words += ' ';
                words += one.is_string() ? one.get<std::string>() : one.dump();
            }
            flat[name] = words;
        } else {
            flat[name] = item;
        }
    }
}

planner::CsvCell cell_of(const Json& value) {
    if (value.is_number_integer()) return value.get<int64_t>();
    if (value.is_number()) return value.get<double>();
    if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
    return value.is_string() ? spell_for_command_line(value.get<std::string>()) : std::string();
}

}  // namespace

std::vector<planner::NamedTable> tables_of(const std::vector<std::pair<std::string, Json>>& lists) {
    std::vector<planner::NamedTable> tables;
    for (const auto& [name, list] : lists) {
        std::vector<Json> rows;
        std::vector<std::string> header;
        for (const Json& element : list) {
            flatten("", element, rows.emplace_back(Json::object()));
            for (const auto& [key, value] : rows.back().items())
                if (std::ranges::find(header, key) == header.end()) header.push_back(key);
        }
        if (rows.empty()) continue;
        planner::CsvTable table(header);
        for (const Json& row : rows) {
            std::vector<planner::CsvCell> cells;
            for (const std::string& key : header)
                cells.push_back(cell_of(row.contains(key) ? row[key] : Json()));
            table.row(cells);
        }
        tables.push_back({name, table.text()});
    }
    return tables;
}

Json figure_rows(const std::vector<std::pair<std::string, const Figures*>>& plans) {
    Json rows = Json::array();
    for (const auto& [name, figures] : plans) {
        Json row{{"plan", name}};
        row.update(figures_json(*figures));
        rows.push_back(std::move(row));
    }
    return rows;
}

bool show_data(bool as_json, const CsvFlags& csv, const Json& json,
               const std::vector<std::pair<std::string, Json>>& lists) {
    if (csv.given()) write_csv(csv, tables_of(lists));
    if (as_json) print_json(json);
    return as_json || csv.given();
}

void show_answer(const std::string& answer) {
    const std::string text = spell_for_command_line(answer);
    show("{}\n", terminal_width() > 0 ? planner::wrapped(text, 0, terminal_width()) : text);
}

void show_table(const planner::TextTable& table) { show("\n{}", table.text(terminal_width())); }

planner::TextTable figures_table(const std::vector<std::string>& heads,
                                 const std::vector<const Figures*>& plans) {
    planner::TextTable table("<" + std::string(plans.size(), '>'), "  ");
    std::vector<std::string> head{""};
    head.insert(head.end(), heads.begin(), heads.end());
    table.row(head);
    for (const FigureRow& row : figure_rows()) {
        std::vector<std::string> cells{row.name};
        bool any = false;
        for (const Figures* f : plans) {
            cells.push_back(row.text(*f));
            any = any || cells.back() != "-";
        }
        if (any) table.row(cells);
    }
    return table;
}

}  // namespace cleave::tools
