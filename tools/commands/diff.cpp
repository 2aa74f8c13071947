// SPDX-License-Identifier: Apache-2.0
#include "planner/ask/diff.h"

#include <memory>

#include <fmt/format.h>

#include "planner/machine/device_names.h"
#include "planner/verify/verify.h"
#include "tools/cli/model_source.h"
#include "tools/cli/terminal.h"
#include "tools/commands/commands.h"
#include "tools/commands/diff_json.h"

namespace cleave::tools {
namespace {

using namespace planner;

struct DiffArguments {
    std::string a, b;
    bool json = false;
    CsvFlags csv;
};

Plan load(const std::string& path) {
    ModelFlags flags;
    flags.model = path;
    LoadedModel model = load_model(flags, "");
    if (!model.plan)
        throw UserError(
            "{}: diff compares .plan files; write one with `cleave plan {} -o FILE.plan`", path,
            path);
    verify_plan(*model.plan);
    return std::move(*model.plan);
}

std::string both(int64_t a, int64_t b) {
    const std::string x = bytes_text(a), y = bytes_text(b);
    return x == y ? x : x + " -> " + y;
}

// "0-15", "16-31", "32-47" as "0-47": of devices that are one row, their heads.
std::string joined_ranges(const std::vector<std::string>& ranges) {
    const std::string &first = ranges.front(), &last = ranges.back();
    if (first.empty() || first == last) return first;
    return first.substr(0, first.find('-')) + "-" + last.substr(last.rfind('-') + 1);
}

void show_devices(const PlanDiff& d) {
    if (d.devices.empty()) return;
    TextTable table("<<<>>>>", "  ");
    table.row({"", "each", "heads", "weights", "KV", "used", "busy"});
    const auto text = [](const std::string& a, const std::string& b) {
        return a == b ? a : (a.empty() ? "-" : a) + " -> " + (b.empty() ? "-" : b);
    };
    const auto row = [&](const DeviceChange& c) {
        return std::vector<std::string>{both(c.a.weights, c.b.weights), both(c.a.kv, c.b.kv),
                                        both(c.a.needed, c.b.needed),
                                        text(milliseconds(c.a.busy_ns), milliseconds(c.b.busy_ns))};
    };
    // What is only in one of the plans, and what differs in more than its heads' numbers.
    const auto only = [](const DeviceChange& c) {
        return c.a.capacity == 0 ? "+" : c.b.capacity == 0 ? "-" : "";
    };
    const auto key = [&](const DeviceChange& c) {
        return std::tuple(std::string(only(c)), row(c), c.a.heads.empty(), c.b.heads.empty(),
                          c.a.heads == c.b.heads);
    };
    for (const auto& alike : folded(d.devices, key)) {
        std::vector<std::string> names, a, b;
        for (const DeviceChange& c : alike) {
            names.push_back(c.device);
            a.push_back(c.a.heads);
            b.push_back(c.b.heads);
        }
        std::vector<std::string> cells = row(alike.front());
        cells.insert(cells.begin(), {only(alike.front()), folded_names(names),
                                     text(joined_ranges(a), joined_ranges(b))});
        table.row(cells);
    }
    table.fold(kMostRows);
    show_table(table);
}

void run_diff(const DiffArguments& flags) {
    check_csv_flags(flags.csv, flags.json);
    const Plan a = load(flags.a), b = load(flags.b);
    const PlanDiff d = planner::diff(a, b, flags.a, flags.b);
    const Json json = diff_json(d);
    if (show_data(flags.json, flags.csv, json,
                  {{"figures", figure_rows({{flags.a, &d.a}, {flags.b, &d.b}})},
                   {"asked", json["asked"]},
                   {"moved", json["moved"]},
                   {"devices", device_rows(json)}}))
        return;
    show_answer(d.answer);
    if (!d.same()) show_diff(d, flags.a, flags.b);
    show_rests_on({&d.a.grounds, &d.b.grounds});
}

}  // namespace

Json diff_json(const PlanDiff& d) {
    Json json{{"answer", d.answer},     {"same", d.same()},      {"same_model", d.same_model},
              {"model_a", d.model_a},   {"model_b", d.model_b},  {"slower", d.slower},
              {"a", figures_json(d.a)}, {"b", figures_json(d.b)}};
    json["rests_on"] = rests_on({&d.a.grounds, &d.b.grounds});
    json["prefill_pass_a"] = parts_json(d.prefill_a);
    json["prefill_pass_b"] = parts_json(d.prefill_b);
    json["asked"] = Json::array();
    for (const Difference& one : d.asked)
        json["asked"].push_back({{"what", one.what}, {"a", one.a}, {"b", one.b}});
    json["moved"] = Json::array();
    for (const Moved& one : d.moved)
        json["moved"].push_back({{"what", one.what}, {"a", one.a}, {"b", one.b}});
    json["devices"] = Json::array();
    for (const DeviceChange& c : d.devices)
        json["devices"].push_back({{"device", c.device},
                                   {"heads_a", c.a.heads},
                                   {"heads_b", c.b.heads},
                                   {"weights_bytes_a", c.a.weights},
                                   {"weights_bytes_b", c.b.weights},
                                   {"kv_bytes_a", c.a.kv},
                                   {"kv_bytes_b", c.b.kv},
                                   {"needed_bytes_a", c.a.needed},
                                   {"needed_bytes_b", c.b.needed},
                                   {"busy_ms_a", in_ms(c.a.busy_ns)},
                                   {"busy_ms_b", in_ms(c.b.busy_ns)}});
    return json;
}

Json device_rows(const Json& difference) {
    Json rows = difference["devices"];
    for (Json& row : rows) {
        row["network_a"] = difference["a"]["network"];
        row["network_b"] = difference["b"]["network"];
    }
    return rows;
}

void show_diff(const PlanDiff& d, const std::string& a, const std::string& b) {
    if (!d.asked.empty()) {
        TextTable asked("<<<", "  ");
        asked.row({"asked", a, b});
        for (const Difference& one : d.asked) asked.row({one.what, one.a, one.b});
        asked.fold(kMostRows);
        show_table(asked);
    }
    show_table(figures_table({a, b}, {&d.a, &d.b}));
    if (!d.moved.empty()) {
        TextTable moved("<<<", "  ");
        moved.row({"moved", a, b});
        for (const Moved& one : d.moved) moved.row({one.what, one.a, one.b});
        moved.fold(kMostRows);
        show_table(moved);
    }
    show_devices(d);
}

void add_diff(CLI::App& app) {
    auto flags = std::make_shared<DiffArguments>();
    CLI::App* command =
        app.add_subcommand("diff", "say what differs between two plans: places, bytes and time");
    command->add_option("A", flags->a, "a .plan file")->required();
    command->add_option("B", flags->b, "another")->required();
    command->add_flag("--json", flags->json, "JSON on standard output");
    add_csv_flags(*command, flags->csv, {"figures", "asked", "moved", "devices"});
    command->footer("Example: cleave diff before.plan after.plan");
    command->callback([flags] { run_diff(*flags); });
}

}  // namespace cleave::tools
