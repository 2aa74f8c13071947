// SPDX-License-Identifier: Apache-2.0
#include "planner/view/plan_text.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "planner/plan/plan_queries.h"
#include "planner/plan/text_table.h"
#include "planner/view/text_devices.h"
#include "planner/view/text_steps.h"
#include "planner/view/text_summary.h"

namespace cleave::planner {
namespace {

class Text {
public:
    Text(const Plan& plan, const TextOptions& options) : plan_(plan), options_(options) {}

    std::string run() {
        out_ += bold(title_text(plan_)) + "\n";
        entries(answer_lines(plan_));
        out_ += "\n";
        entries(request_lines(plan_));
        section("Devices, each; a pass: of decode");
        out_ += devices_text(plan_, options_.width);
        for (const Plan& other : plan_.others) {
            section(fmt::format("Devices of {}", shape_text(other)));
            out_ += devices_text(other, options_.width);
        }
        section(fmt::format("Decode pass: one token of every sequence, {} tokens behind it",
                            plan_.workload.decode_past()));
        const std::string before = std::exchange(out_, "");
        if (options_.all_steps) {
            section(
                fmt::format("Prefill: {} tokens in one pass", pass_point(plan_, true).num_tokens));
            out_ += steps_text(plan_, true, true, options_.width);
        }
        links();
        const std::vector<Line> why = why_lines(plan_, options_.spell),
                                machinery = machinery_lines(plan_);
        if (!why.empty() || !machinery.empty()) section("Why");
        entries(why);
        entries(machinery);
        return before + steps(lines_of(before) + lines_of(out_)) + out_;
    }

private:
    static int64_t lines_of(const std::string& text) { return std::ranges::count(text, '\n'); }

    // With so many other lines: of fewer kinds of stages where the text would be long.
    std::string steps(int64_t others) const {
        constexpr int64_t kMostLines = 100;
        std::string text;
        for (const size_t kinds : {kMostKinds, size_t{4}, size_t{3}, size_t{2}}) {
            text = steps_text(plan_, false, options_.all_steps, options_.width, kinds);
            if (options_.all_steps || others + lines_of(text) <= kMostLines) break;
        }
        return text;
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

    void links() {
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
        out_ += links_text(plan_, options_.width);
    }

    const Plan& plan_;
    const TextOptions& options_;
    std::string out_;
};

}  // namespace

std::string plan_to_text(const Plan& plan, const TextOptions& options) {
    return Text(plan, options).run();
}

}  // namespace cleave::planner
