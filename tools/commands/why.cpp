// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <memory>

#include <fmt/format.h>

#include "planner/ask/why.h"
#include "planner/machine/device_names.h"
#include "planner/plan/plan_queries.h"
#include "planner/view/text_devices.h"
#include "tools/cli/terminal.h"
#include "tools/commands/commands.h"
#include "tools/commands/questions.h"

namespace cleave::tools {
namespace {

using namespace planner;

constexpr std::array kTables{"holdings", "places", "work", "devices", "links"};

struct WhyArguments : QuestionFlags {
    std::string what;
};

const char* kind_name(WhatKind kind) {
    switch (kind) {
        case WhatKind::kPart: return "part";
        case WhatKind::kDevice: return "device";
        case WhatKind::kWeight: return "weight";
        case WhatKind::kBuffer: return "buffer";
        case WhatKind::kToken: return "token";
        case WhatKind::kLinks: return "links";
    }
    return "";
}

std::vector<const Grounds*> grounds_of_all(const WhyAnswer& a) {
    std::vector<const Grounds*> all{&a.grounds};
    for (const Place& p : a.places)
        if (p.refusal.empty()) all.push_back(&p.grounds);
    return all;
}

Json places_json(const WhyAnswer& a) {
    Json list = Json::array();
    for (const Place& p : a.places) {
        list.push_back({{"change", p.change},
                        {"where", p.where},
                        {"shape", p.shape},
                        {"objective_ms", in_ms(p.objective_ns)},
                        {"decode_ms_per_token", in_ms(p.decode_ns)},
                        {"slower", p.slower},
                        {"refusal", p.refusal},
                        {"lacks_memory", p.lacks_memory}});
        add_grounds(p.grounds, list.back());
    }
    return list;
}

void device_json(const Plan& plan, const WhyAnswer& a, Json& json) {
    const DeviceFacts& f = a.device;
    json["device"] = {{"name", plan.machine.device(a.what.device).name},
                      {"layers", f.layers},
                      {"heads", f.heads},
                      {"capacity_bytes", f.memory.capacity},
                      {"needed_bytes", f.memory.needed()},
                      {"weights_bytes", f.memory.weights},
                      {"kv_bytes", f.memory.kv},
                      {"free_bytes", f.memory.free()},
                      {"compute_ms", in_ms(f.time.compute_ns)},
                      {"exchange_ms", in_ms(f.time.exchange_ns)},
                      {"waiting_ms", in_ms(f.time.waiting_ns)},
                      {"sent_bytes", f.sent},
                      {"received_bytes", f.received}};
}

void token_json(const Plan& plan, const WhyAnswer& a, Json& json) {
    json["decode"] = parts_json(a.decode);
    json["prefill_pass"] = parts_json(a.prefill);
    json["work"] = Json::array();
    for (const WorkTime& w : a.work)
        json["work"].push_back({{"work", w.work}, {"ms", in_ms(w.ns)}, {"steps", w.steps}});
    json["devices"] = Json::array();
    for (const planner::DeviceTime& t : a.times)
        json["devices"].push_back({{"name", plan.machine.device(t.device).name},
                                   {"compute_ms", in_ms(t.compute_ns)},
                                   {"exchange_ms", in_ms(t.exchange_ns)},
                                   {"waiting_ms", in_ms(t.waiting_ns)}});
}

void links_json(const Plan& plan, const WhyAnswer& a, Json& json) {
    json["links"] = Json::array();
    for (const LinkLoad& l : a.links)
        json["links"].push_back(
            {{"from", plan.machine.device(l.from).name},
             {"to", plan.machine.device(l.to).name},
             {"bytes", l.bytes},
             {"gb_per_s", l.bandwidth > 0 ? Json(static_cast<double>(l.bandwidth) / 1e9) : Json()},
             {"ms", in_ms(l.ns)}});
}

Json why_json(const Plan& plan, const WhyAnswer& a) {
    Json json{{"model", plan.graph.name}, {"what", a.what.text},  {"kind", kind_name(a.what.kind)},
              {"answer", a.answer},       {"because", a.because}, {"stages", a.stages}};
    json["holdings"] = Json::array();
    for (const Holding& h : a.holdings)
        json["holdings"].push_back({{"device", plan.machine.device(h.device).name},
                                    {"share", h.share},
                                    {"bytes", h.weight_bytes},
                                    {"kv_bytes", h.kv_bytes},
                                    {"compute_ms", in_ms(h.compute_ns)}});
    json["places"] = places_json(a);
    if (a.what.kind == WhatKind::kDevice) device_json(plan, a, json);
    if (a.what.kind == WhatKind::kToken) token_json(plan, a, json);
    if (a.what.kind == WhatKind::kLinks) links_json(plan, a, json);
    json["rests_on"] = rests_on(grounds_of_all(a));
    return json;
}

// Of devices whose shares are as large: "heads 0-63, 16 each".
std::string shares_text(const std::vector<Holding>& alike) {
    const Holding &first = alike.front(), &last = alike.back();
    if (alike.size() == 1 || first.noun.empty()) return first.share;
    return fmt::format("{} {}-{}, {} each", first.noun, first.range.begin, last.range.end - 1,
                       first.range.size());
}

// Devices whose rows differ in their names and ranges alone are one row.
void show_holdings(const Plan& plan, const WhyAnswer& a) {
    if (a.holdings.empty()) return;
    const bool is_part = a.what.kind == WhatKind::kPart;
    TextTable table(is_part ? "<<>>>" : "<<>", "  ");
    table.row(is_part ? std::vector<std::string>{"each", "share", "weights", "KV", "a decode pass"}
                      : std::vector<std::string>{"each", "share", "bytes"});
    const auto row = [&](const Holding& h) {
        std::vector<std::string> cells{bytes_text(h.weight_bytes)};
        if (is_part) {
            cells.push_back(h.kv_bytes > 0 ? bytes_text(h.kv_bytes) : "-");
            cells.push_back(milliseconds(h.compute_ns));
        }
        return cells;
    };
    const auto key = [&](const Holding& h) {
        return std::tuple(row(h), h.noun, h.noun.empty() ? h.share : "", h.range.size());
    };
    for (const auto& alike : folded(a.holdings, key)) {
        std::vector<DeviceId> devices;
        for (const Holding& h : alike) devices.push_back(h.device);
        std::vector<std::string> cells = row(alike.front());
        cells.insert(cells.begin(), {folded_names(plan.machine, devices), shares_text(alike)});
        table.row(cells);
    }
    table.fold(kMostRows);
    show_table(table);
}

void show_places(const Plan& plan, const WhyAnswer& a) {
    if (a.places.empty()) return;
    TextTable table("<<>>", "  ");
    table.row({"instead", "shape", "a token", ""});
    table.row({"as it is", shape_of(plan), time_text(plan.prediction.objective_ns), ""});
    for (const Place& p : a.places) {
        if (p.refusal.empty())
            table.row({p.change, p.shape, time_text(p.objective_ns), slower_text(p.slower)});
        else
            table.row({p.change, p.lacks_memory ? "does not fit" : "not possible", "-", "-"});
    }
    show_table(table);
}

void show_token(const Plan& plan, const WhyAnswer& a) {
    TextTable work("<>>>", "  ");
    work.row({"of a decode pass", "time", "share", "steps"});
    const auto whole = static_cast<double>(std::max<int64_t>(1, a.decode.whole()));
    for (const WorkTime& w : a.work)
        work.row({w.work, time_text(w.ns),
                  fmt::format("{:.1f} %", 100 * static_cast<double>(w.ns) / whole),
                  std::to_string(w.steps)});
    show_table(work);
    TextTable devices("<>>>", "  ");
    devices.row({"each", "computes", "exchanges", "waits"});
    const auto row = [](const planner::DeviceTime& t) {
        return std::vector{milliseconds(t.compute_ns), milliseconds(t.exchange_ns),
                           milliseconds(t.waiting_ns)};
    };
    for (const auto& alike : folded(a.times, row)) {
        std::vector<DeviceId> names;
        for (const planner::DeviceTime& t : alike) names.push_back(t.device);
        std::vector<std::string> cells = row(alike.front());
        cells.insert(cells.begin(), folded_names(plan.machine, names));
        devices.row(cells);
    }
    devices.fold(kMostRows);
    show_table(devices);
}

void run_why(const WhyArguments& flags) {
    const Questioned q = plan_in_question(flags, false);
    const WhyAnswer a = planner::why(q.plan, flags.what);
    const Json json = why_json(q.plan, a);
    std::vector<std::pair<std::string, Json>> lists;
    for (const char* name : kTables)
        if (json.contains(name))
            lists.emplace_back(name, name == std::string_view("places")
                                         ? json[name]
                                         : with_network(json[name], a.grounds));
    if (show_data(flags.json, flags.csv, json, lists)) return;
    show_answer(a.answer);
    show_holdings(q.plan, a);
    if (a.what.kind == WhatKind::kToken) show_token(q.plan, a);
    if (!a.links.empty()) show("\n{}", links_text(q.plan, terminal_width()));
    show_places(q.plan, a);
    show_rests_on(grounds_of_all(a));
}

}  // namespace

void add_why(CLI::App& app, runtime::Drivers& drivers) {
    auto flags = std::make_shared<WhyArguments>(WhyArguments{{.drivers = drivers}, ""});
    CLI::App* command = app.add_subcommand(
        "why",
        "say where something of a plan is, because of what, and what the next best place costs");
    add_question_flags(*command, *flags, {kTables.begin(), kTables.end()});
    command
        ->add_option("WHAT", flags->what,
                     "layers.12, layers.0-15, layers.12.attention, layers.12.mlp, embedding, "
                     "lm_head, an operator, a weight, a buffer or a device; token: where its "
                     "time goes; links: how busy each is")
        ->required();
    command->footer(
        "Example: cleave why llama-3-70b --devices 'sim:h100[0-7]' layers.12.attention\n"
        "         cleave why llama-3-70b --devices 'sim:h100[0-7]' token");
    command->callback([flags] { run_why(*flags); });
}

}  // namespace cleave::tools
