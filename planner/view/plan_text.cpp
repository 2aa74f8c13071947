// SPDX-License-Identifier: Apache-2.0
#include "planner/view/plan_text.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "planner/plan/plan_queries.h"
#include "planner/plan/text_table.h"
#include "planner/view/text_devices.h"
#include "planner/view/text_steps.h"
#include "planner/view/text_summary.h"

namespace cleave::planner {
namespace {

// How much is told of what there may be very many of.
struct Detail {
    size_t stages, devices, links;  // kinds of each
    size_t shapes, cuts;
};
// The first that gives no more lines than are asked for, else the last.
constexpr Detail kDetails[] = {{kMostKinds, 24, 6, 4, 3}, {4, 24, 6, 4, 3}, {3, 24, 6, 4, 3},
                               {2, 24, 6, 4, 3},          {2, 8, 3, 2, 1},  {2, 4, 2, 1, 1}};

class Text {
public:
    Text(const Plan& plan, const TextOptions& options) : plan_(plan), options_(options) {}

    std::string run() {
        for (const Detail& detail : kDetails) {
            out_.clear();
            tell(detail);
            if (options_.all_steps || std::ranges::count(out_, '\n') <= options_.lines) break;
        }
        return std::move(out_);
    }

private:
    void tell(const Detail& detail) {
        out_ += bold(wrapped(title_text(plan_), 2, options_.width)) + "\n";
        entries(answer_lines(plan_));
        out_ += "\n";
        entries(request_lines(plan_));
        section("Devices, each; a pass: of decode");
        out_ += devices_text(plan_, options_.width, detail.devices);
        for (const Plan& other : plan_.others) {
            section(fmt::format("Devices of {}", shape_text(other)));
            out_ += devices_text(other, options_.width, detail.devices);
        }
        section(fmt::format("Decode pass: one token of every sequence, {} tokens behind it",
                            plan_.workload.decode_past()));
        out_ += decode_steps(detail.stages);
        if (options_.all_steps) {
            section(
                fmt::format("Prefill: {} tokens in one pass", pass_point(plan_, true).num_tokens));
            out_ += steps_text(plan_, true, true, options_.width);
        }
        links(detail.links);
        const std::vector<Line> why = why_lines(plan_, options_.spell, detail.shapes, detail.cuts),
                                machinery = machinery_lines(plan_);
        if (!why.empty() || !machinery.empty()) section("Why");
        entries(why);
        entries(machinery);
    }

    const std::string& decode_steps(size_t stages) {
        const auto [at, fresh] = decode_steps_.try_emplace(stages);
        if (fresh)
            at->second = steps_text(plan_, false, options_.all_steps, options_.width, stages);
        return at->second;
    }

    std::string bold(const std::string& text) const {
        return options_.color ? "\x1b[1m" + text + "\x1b[0m" : text;
    }
    void section(const std::string& name) {
        out_ += "\n" + bold(wrapped(name, 2, options_.width)) + "\n";
    }
    void entries(const std::vector<Line>& lines) {
        constexpr int kColumn = 15;
        for (const Line& line : lines)
            out_ += fmt::format("  {:<{}}{}\n", line.label, kColumn - 2,
                                wrapped(line.text, kColumn, options_.width));
    }

    void links(size_t most) {
        int64_t total = 0, transfers = 0, collectives = 0;
        for (const auto& [pair, bytes] : link_traffic(plan_, false)) total += bytes;
        if (total == 0) return;
        for (const Step& s : plan_.decode.steps) {
            transfers += s.transfer() != nullptr;
            collectives += s.collective() != nullptr;
        }
        section(fmt::format("Links: a decode pass moves {} between devices, in {} and {}",
                            bytes_text(total), count_text(transfers, "transfer"),
                            count_text(collectives, "collective")));
        out_ += links_text(plan_, options_.width, most);
    }

    const Plan& plan_;
    const TextOptions& options_;
    std::map<size_t, std::string> decode_steps_;  // by kinds of stages; of many devices it is slow
    std::string out_;
};

}  // namespace

std::string plan_to_text(const Plan& plan, const TextOptions& options) {
    return Text(plan, options).run();
}

}  // namespace cleave::planner
