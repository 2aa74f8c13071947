// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include <fmt/format.h>

#include "planner/machine/device_names.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/text_table.h"
#include "planner/view/plan_text.h"
#include "planner/view/text_steps.h"
#include "tools/cli/spelling.h"
#include "tools/inspect/inspection.h"
#include "tools/inspect/inspection_tables.h"

namespace cleave::tools {

using namespace planner;

namespace {

class Text {
public:
    Text(const Inspection& inspection, int width, bool color)
        : i_(inspection), plan_(*inspection.plan), width_(width), color_(color) {}

    std::string run() {
        TextOptions options;
        options.color = color_;
        options.width = width_;
        options.spell = spell_for_command_line;
        out_ = plan_to_text(plan_, options);
        section(fmt::format("Prefill: {} tokens in one pass", pass_point(plan_, true).num_tokens));
        out_ += steps_text(plan_, true, false, width_);
        layers();
        memory();
        time();
        kernels();
        if (i_.measured) out_ += measured_text(plan_, *i_.measured, width_, color_);
        return out_;
    }

private:
    void section(const std::string& name) {
        out_ += "\n" + (color_ ? "\x1b[1m" + name + "\x1b[0m" : name) + "\n";
    }
    void layers() {
        section("Layers: what of each is where; times of one layer in a decode pass");
        out_ += layers_text(i_, width_);
    }

    void memory() {
        section("Memory");
        out_ += memory_text(i_, width_);
    }

    void time() {
        section(fmt::format("Time of a pass: decode {}, prefill of {} tokens {}",
                            time_text(i_.pass_ns[0]), pass_point(plan_, true).num_tokens,
                            time_text(i_.pass_ns[1])));
        out_ += times_text(i_, width_);
    }

    // Devices without kernels for one reason, together.
    std::vector<std::string> without_kernels() const {
        std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
        for (const std::string& why : i_.no_kernels) {
            const size_t colon = why.find(": ");
            const std::string reason = why.substr(std::min(colon, why.size()));
            auto found = std::find_if(reasons.begin(), reasons.end(),
                                      [&](const auto& one) { return one.first == reason; });
            if (found == reasons.end()) found = reasons.insert(found, {reason, {}});
            found->second.push_back(why.substr(0, colon));
        }
        std::vector<std::string> lines;
        for (const auto& [reason, devices] : reasons)
            lines.push_back(folded_names(devices) + reason);
        return lines;
    }

    void kernels() {
        section("Kernels: launches of one pass on each device, and the predicted time of all");
        for (const std::string& why : without_kernels())
            out_ += "  none for " + wrapped(why, 4, width_) + "\n";
        if (i_.kernels.empty()) return;
        out_ += kernels_text(i_, width_);
        out_ += "  " +
                wrapped(
                    "Rate: bytes read and written by that time; a step of several launches counts "
                    "for its first. Grid: blocks of so many threads. Warps: of a compute unit, "
                    "without knowledge of registers.",
                    2, width_) +
                "\n";
    }

    const Inspection& i_;
    const Plan& plan_;
    int width_;
    bool color_;
    std::string out_;
};

}  // namespace

std::string inspection_text(const Inspection& inspection, int width, bool color) {
    return Text(inspection, width, color).run();
}

}  // namespace cleave::tools
