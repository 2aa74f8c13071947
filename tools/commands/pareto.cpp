// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/pareto.h"

#include <algorithm>

#include <fmt/format.h>

#include "planner/view/csv.h"
#include "tools/cli/terminal.h"

namespace cleave::tools {
namespace {

using planner::Pareto;
using planner::ParetoPoint;

std::vector<const planner::Grounds*> grounds_of_all(const Pareto& pareto) {
    std::vector<const planner::Grounds*> all;
    for (const ParetoPoint& p : pareto.points) all.push_back(&p.grounds);
    return all;
}

std::string rate(double tokens) {
    return tokens >= 100 ? fmt::format("{:.0f}", tokens) : fmt::format("{:.1f}", tokens);
}

}  // namespace

Pareto run_pareto(const QuestionFlags& flags) {
    QuestionFlags many = flags;
    if (many.plan.concurrency > 0 || many.plan.batch > 0)
        throw UserError("--pareto: it tries numbers of users itself; leave out {}",
                        many.plan.batch > 0 ? "--batch" : "--concurrency");
    many.plan.objective = "throughput";
    const planner::Case base = case_in_question(many);
    ProgressBar bar("planning");
    Pareto pareto = planner::pareto(base, [&](size_t done, size_t of) {
        bar.update(static_cast<int64_t>(done), static_cast<int64_t>(of));
    });
    if (pareto.points.empty())
        throw UserError("--pareto: no plan serves a user: {}", pareto.refusal);
    return pareto;
}

Json pareto_json(const Pareto& pareto) {
    Json json{{"model", pareto.model}, {"points", Json::array()}};
    for (const ParetoPoint& p : pareto.points) {
        json["points"].push_back({{"tokens_per_second_per_device", p.per_device},
                                  {"tokens_per_second_per_user", p.per_user},
                                  {"shape", p.shape},
                                  {"devices_of_replica", p.devices},
                                  {"replicas", p.replicas},
                                  {"users", p.users},
                                  {"ttft_ms", in_ms(p.ttft_ns)},
                                  {"tpot_ms", in_ms(p.tpot_ns)}});
        if (p.cost_per_million > 0)
            json["points"].back()["cost_per_million_tokens"] = p.cost_per_million;
        add_grounds(p.grounds, json["points"].back());
    }
    json["rests_on"] = rests_on(grounds_of_all(pareto));
    return json;
}

std::string pareto_csv(const Pareto& pareto) {
    planner::CsvTable table({"tokens_per_second_per_device", "tokens_per_second_per_user", "shape",
                             "devices_of_replica", "replicas", "users", "ttft_ms", "tpot_ms",
                             "cost_per_million_tokens", "network", "basis"});
    for (const ParetoPoint& p : pareto.points)
        table.row(
            {p.per_device, p.per_user, p.shape, p.devices, p.replicas, p.users, in_ms(p.ttft_ns),
             in_ms(p.tpot_ns),
             p.cost_per_million > 0 ? planner::CsvCell(p.cost_per_million) : planner::CsvCell(),
             network_text(p.grounds), class_names(p.grounds)});
    return table.text();
}

void show_pareto(const Pareto& pareto) {
    planner::TextTable table(">><>>>>>", "  ");
    const bool costs = std::ranges::any_of(
        pareto.points, [](const ParetoPoint& p) { return p.cost_per_million > 0; });
    table.row({"a user", "a device", "replica", "replicas", "users", "first token", "a token",
               costs ? "a million tokens" : ""});
    for (const ParetoPoint& p : pareto.points)
        table.row({rate(p.per_user), rate(p.per_device), p.shape, std::to_string(p.replicas),
                   std::to_string(p.users), milliseconds(p.ttft_ns), milliseconds(p.tpot_ns),
                   p.cost_per_million > 0 ? fmt::format("{:.3g}", p.cost_per_million) : ""});
    show("{}: tokens/s of a user against tokens/s of a device; nothing tried has more of both\n",
         pareto.model);
    show_table(table);
    show_rests_on(grounds_of_all(pareto));
}

}  // namespace cleave::tools
