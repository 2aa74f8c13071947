// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <ranges>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/ask/basis.h"
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

    // In the order of the text.
    static const std::vector<std::pair<std::string, std::string (Text::*)() const>> kParts;

    std::string run(const std::vector<std::string>& wanted) {
        const bool fold = wanted.empty(), all = is_among(wanted, "all");
        std::vector<std::pair<std::string, int64_t>> left_out;
        const std::string measured =
            i_.measured ? measured_text(plan_, *i_.measured, width_, color_) : "";
        std::string out;
        for (const auto& [part, member] : kParts) {
            if (!fold && !all && !is_among(wanted, part)) continue;
            std::string text = (this->*member)();
            const int64_t lines = lines_of(text);
            if (fold && part != "plan" && lines_of(out) + lines_of(measured) + lines > kMostLines) {
                left_out.emplace_back(part, lines);
                continue;
            }
            if (out.empty() && text.starts_with('\n')) text.erase(0, 1);
            out += text;
        }
        out += measured;
        // What the plan's own text says of its times stands with them, too.
        if (const std::string network = network_text(grounds_of(plan_));
            !fold && !all && !is_among(wanted, "plan") && !network.empty())
            out += "\n" + wrapped(network, 0, width_) + "\n";
        if (!left_out.empty()) {
            std::vector<std::string> sizes;
            for (const auto& [part, lines] : left_out)
                sizes.push_back(fmt::format("{} ({} lines)", part, lines));
            out += "\n" +
                   wrapped(fmt::format("Left out for the sake of length: {}; --show {}, or all",
                                       fmt::join(sizes, ", "),
                                       fmt::join(left_out | std::views::keys, ",")),
                           0, width_) +
                   "\n";
        }
        return out;
    }

private:
    static constexpr int64_t kMostLines = 97;  // with what is left out, 100

    static bool is_among(const std::vector<std::string>& words, const std::string& word) {
        return std::find(words.begin(), words.end(), word) != words.end();
    }
    static int64_t lines_of(const std::string& text) {
        return std::count(text.begin(), text.end(), '\n');
    }
    std::string titled(const std::string& name, const std::string& text) const {
        return "\n" + (color_ ? "\x1b[1m" + name + "\x1b[0m" : name) + "\n" + text;
    }

    std::string plan() const {
        TextOptions options;
        options.color = color_;
        options.width = width_;
        options.lines = kMostLines;
        options.spell = spell_for_command_line;
        return plan_to_text(plan_, options);
    }

    std::string layers() const {
        return titled("Layers: what of each is where; times of one layer in a decode pass",
                      layers_text(i_, width_));
    }

    std::string memory() const { return titled("Memory", memory_text(i_, width_)); }

    std::string time() const {
        return titled(fmt::format("Time of a pass: decode {}, prefill of {} tokens {}",
                                  time_text(i_.pass_ns[0]), pass_point(plan_, true).num_tokens,
                                  time_text(i_.pass_ns[1])),
                      times_text(i_, width_));
    }

    std::string prefill() const {
        return titled(
            fmt::format("Prefill: {} tokens in one pass", pass_point(plan_, true).num_tokens),
            steps_text(plan_, true, false, width_));
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

    std::string kernels() const {
        std::string text;
        for (const std::string& why : without_kernels())
            text += "  none for " + wrapped(why, 4, width_) + "\n";
        if (!i_.kernels.empty())
            text += kernels_text(i_, width_) + "  " +
                    wrapped(
                        "Rate: bytes read and written by that time; a step of several launches "
                        "counts for its first; cached: more than the memory's, as queries read "
                        "the same keys. Grid: blocks of so many threads. Warps: of a "
                        "compute unit, without knowledge of registers.",
                        2, width_) +
                    "\n";
        return titled("Kernels: launches of one pass on each device, and the predicted time of all",
                      text);
    }

    const Inspection& i_;
    const Plan& plan_;
    int width_;
    bool color_;
};

const std::vector<std::pair<std::string, std::string (Text::*)() const>> Text::kParts{
    {"plan", &Text::plan}, {"layers", &Text::layers},   {"memory", &Text::memory},
    {"time", &Text::time}, {"prefill", &Text::prefill}, {"kernels", &Text::kernels}};

}  // namespace

std::vector<std::string> inspection_parts() {
    const auto names = Text::kParts | std::views::keys;
    return {names.begin(), names.end()};
}

std::string inspection_text(const Inspection& inspection, const std::vector<std::string>& parts,
                            int width, bool color) {
    return Text(inspection, width, color).run(parts);
}

}  // namespace cleave::tools
