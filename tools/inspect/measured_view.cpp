// SPDX-License-Identifier: Apache-2.0
// A measured pass as JSON and as text.
#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/machine/device_names.h"
#include "planner/plan/text_table.h"
#include "tools/inspect/measured.h"

namespace cleave::tools {

using namespace planner;

namespace {

using Json = nlohmann::ordered_json;

Json sums_json(const TimeSums& sums) {
    return {{"compute_us", microseconds(sums.compute_ns)},
            {"exchange_us", microseconds(sums.exchange_ns)},
            {"waiting_us", microseconds(sums.waiting_ns)}};
}

Json device_json(const Plan& plan, const Phase& phase, const MeasuredDevice& device) {
    Json steps = Json::array();
    for (const MeasuredStep& s : device.steps) {
        Json one{{"id", s.step.index()},
                 {"start_us", microseconds(s.start_ns)},
                 {"end_us", microseconds(s.end_ns)},
                 {"predicted_start_us", microseconds(s.predicted_start_ns)},
                 {"predicted_end_us", microseconds(s.predicted_end_ns)}};
        if (!phase.steps[s.step.index()].compute()) one["ready_us"] = microseconds(s.ready_ns);
        steps.push_back(std::move(one));
    }
    return {{"device", plan.machine.device(device.device).name},
            {"measured", sums_json(device.measured)},
            {"predicted", sums_json(device.predicted)},
            {"steps", std::move(steps)}};
}

double keys_per_token(const MeasuredPass& pass) {
    return static_cast<double>(pass.size.keys) / static_cast<double>(pass.size.tokens);
}

Json pass_json(const Plan& plan, const MeasuredPass& pass) {
    Json devices = Json::array(), differences = Json::array();
    for (const MeasuredDevice& device : pass.devices)
        devices.push_back(device_json(plan, plan.phase(pass.is_prefill), device));
    for (const Difference& d : pass.differences)
        differences.push_back({{"device", plan.machine.device(d.device).name},
                               {"cause", cause_name(d.cause)},
                               {"what", d.what},
                               {"steps", d.steps},
                               {"measured_us", microseconds(d.measured_ns)},
                               {"predicted_us", microseconds(d.predicted_ns)},
                               {"difference_us", microseconds(d.difference_ns())},
                               {"says", d.says}});
    return {{"num_passes", pass.num_passes},
            {"compared_passes", pass.compared},
            {"num_tokens", pass.size.tokens},
            {"keys_per_token", keys_per_token(pass)},
            {"measured_us", microseconds(pass.measured_ns)},
            {"predicted_us", microseconds(pass.predicted_ns)},
            {"devices", std::move(devices)},
            {"differences", std::move(differences)}};
}

std::string signed_time(int64_t ns) { return (ns < 0 ? "-" : "+") + time_text(std::abs(ns)); }

// "4.1 % more than predicted".
std::string against(int64_t measured, int64_t predicted) {
    if (predicted <= 0) return "nothing was predicted";
    if (measured >= 2 * predicted)
        return fmt::format("{:.3g} times the prediction",
                           static_cast<double>(measured) / static_cast<double>(predicted));
    const double more = 100 * (static_cast<double>(measured) / static_cast<double>(predicted) - 1);
    return fmt::format("{:.1f} % {} than predicted", std::abs(more), more < 0 ? "less" : "more");
}

class MeasuredText {
public:
    MeasuredText(const Plan& plan, const Measured& measured, int width, bool color)
        : plan_(plan), measured_(measured), width_(width), color_(color) {}

    std::string run() {
        for (bool is_prefill : {false, true}) {
            const auto& pass = measured_.pass[is_prefill ? 1 : 0];
            if (pass) add(*pass);
        }
        return out_;
    }

private:
    void section(const std::string& name) {
        out_ += "\n" + (color_ ? "\x1b[1m" + name + "\x1b[0m" : name) + "\n";
    }

    void add(const MeasuredPass& pass) {
        section(fmt::format("Measured: a {} pass of {} and {:.0f} keys each, {} beside {}, {}",
                            pass.is_prefill ? "prefill" : "decode",
                            count_text(pass.size.tokens, "token"), keys_per_token(pass),
                            time_text(pass.measured_ns), time_text(pass.predicted_ns),
                            against(pass.measured_ns, pass.predicted_ns)));
        out_ +=
            "  " +
            wrapped(fmt::format("{}: medians of {} of {} passes; the prediction is of that size",
                                measured_.trace, pass.compared, pass.num_passes),
                    2, width_) +
            "\n";
        sums(pass);
        differences(pass);
    }

    void sums(const MeasuredPass& pass) {
        TextTable table("<>>>>>>", "  ");
        table.row({"", "computes", "predicted", "exchanges", "predicted", "waits", "predicted"});
        for (const MeasuredDevice& d : pass.devices) {
            if (d.steps.empty()) continue;
            table.row({plan_.machine.device(d.device).name, time_text(d.measured.compute_ns),
                       time_text(d.predicted.compute_ns), time_text(d.measured.exchange_ns),
                       time_text(d.predicted.exchange_ns), time_text(d.measured.waiting_ns),
                       time_text(d.predicted.waiting_ns)});
        }
        out_ += table.text(width_);
    }

    // Devices that differ in the same thing for the same cause are a row, with their mean.
    struct Row {
        std::vector<DeviceId> devices;
        int64_t measured_ns = 0, predicted_ns = 0;
        const Difference* first = nullptr;
    };

    void differences(const MeasuredPass& pass) {
        std::map<std::pair<std::string, Cause>, size_t> at;
        std::vector<Row> rows;
        for (const Difference& d : pass.differences) {
            const auto [place, is_new] = at.try_emplace({d.what, d.cause}, rows.size());
            if (is_new) rows.push_back({{}, 0, 0, &d});
            Row& row = rows[place->second];
            row.devices.push_back(d.device);
            row.measured_ns += d.measured_ns;
            row.predicted_ns += d.predicted_ns;
        }
        for (Row& row : rows) {
            std::ranges::sort(row.devices);
            const auto count = std::ssize(row.devices);
            row.measured_ns /= count;
            row.predicted_ns /= count;
        }
        std::ranges::stable_sort(rows, std::greater<>(), [](const Row& row) {
            return std::abs(row.measured_ns - row.predicted_ns);
        });
        out_ += "  where they differ most, a device and pass:\n";
        TextTable table("><<>><", "  ");
        table.row({"difference", "in", "on", "measured", "predicted", "because of"});
        constexpr size_t kShown = 8;
        for (size_t i = 0; i < std::min(kShown, rows.size()); ++i) {
            const Row& row = rows[i];
            const std::string says =
                row.devices.size() == 1 || row.first->cause == Cause::kLaunch
                    ? row.first->says
                    : fmt::format("{}: {}", plan_.machine.device(row.first->device).name,
                                  row.first->says);
            const int64_t steps = row.first->steps;
            table.row({signed_time(row.measured_ns - row.predicted_ns),
                       steps > 1 ? fmt::format("{} x {}", row.first->what, steps) : row.first->what,
                       folded_names(plan_.machine, row.devices), time_text(row.measured_ns),
                       time_text(row.predicted_ns),
                       fmt::format("{}: {}", cause_name(row.first->cause), says)});
        }
        if (rows.size() > kShown)
            table.line(fmt::format("and {} more, none larger", rows.size() - kShown));
        out_ += table.text(width_);
    }

    const Plan& plan_;
    const Measured& measured_;
    int width_;
    bool color_;
    std::string out_;
};

}  // namespace

Json measured_json(const Plan& plan, const Measured& measured) {
    Json json{{"trace", measured.trace}, {"prefill", nullptr}, {"decode", nullptr}};
    for (bool is_prefill : {true, false})
        if (const auto& pass = measured.pass[is_prefill ? 1 : 0])
            json[is_prefill ? "prefill" : "decode"] = pass_json(plan, *pass);
    return json;
}

std::string measured_text(const Plan& plan, const Measured& measured, int width, bool color) {
    return MeasuredText(plan, measured, width, color).run();
}

}  // namespace cleave::tools
