// SPDX-License-Identifier: Apache-2.0
#include "planner/view/text_steps.h"

#include <algorithm>

#include "planner/plan/plan_queries.h"
#include "planner/plan/text_table.h"
#include "planner/view/step_words.h"

namespace cleave::planner {
namespace {

using Row = std::vector<std::string>;  // what, where, how much, time

// Consecutive steps of one layer in one stage; what comes from other stages is apart.
struct Block {
    int stage = 0, layer = -1, repeats = 1;
    bool arrives = false;
    std::vector<Row> rows;
};

class StepsText {
public:
    StepsText(const Plan& plan, bool is_prefill)
        : plan_(plan), phase_(plan.phase(is_prefill)), point_(pass_point(plan, is_prefill)) {}

    std::string folded(int width) const;
    std::string all(int width) const;

private:
    std::string name(PlacedId id) const {
        return plan_.machine.device(phase_.values[id.index()].device).name;
    }
    std::string names(const std::vector<DeviceId>& devices) const {
        return folded_names(plan_.machine, devices);
    }
    std::string what(const Step& step) const { return step_words(plan_.graph, step); }
    std::string where(const Step& step) const;
    std::string amount(const Step& step) const;
    std::vector<Block> blocks() const;
    std::vector<std::vector<size_t>> groups(size_t first, size_t end) const;
    Row merged(const std::vector<size_t>& group) const;
    std::string title(const Block& block) const;

    const Plan& plan_;
    const Phase& phase_;
    PassPoint point_;
};

std::string StepsText::where(const Step& step) const {
    if (const Transfer* t = step.transfer())
        return fmt::format("{} -> {}", name(t->source), name(t->destination));
    if (const Collective* c = step.collective(); c && c->op == CollectiveOp::kAllGather)
        return fmt::format("to {}", names(c->group));
    return names(step_devices(phase_, step));
}

std::string StepsText::amount(const Step& step) const {
    if (const Compute* c = step.compute()) {
        if (int64_t weights = c->weight_bytes.at(point_); weights > 0)
            return bytes_text(weights) + " of weights";
        int64_t bytes = c->activation_bytes.at(point_);
        return bytes > 0
                   ? bytes_text(bytes) + (c->kv.valid() ? " of keys and values" : " of activations")
                   : "";
    }
    const std::string text = fmt::format("{}, {} moved, ", bytes_text(step_bytes(step, point_)),
                                         bytes_text(step.link_bytes.at(point_)));
    const Collective* c = step.collective();
    if (!c) return text + step_implementation(plan_, phase_, step);
    if (c->op == CollectiveOp::kAllGather && c->path == Path::kVendor)
        return text + "by the vendor's library";
    return text + std::string(sum_form_name(c->form())) +
           (c->path == Path::kStaged ? ", staged"
            : c->path == Path::kPeer ? " by peer memory"
                                     : " by the vendor's library");
}

// The steps [first, end) as rows: between two exchanges, one kernel on several devices is one row.
std::vector<std::vector<size_t>> StepsText::groups(size_t first, size_t end) const {
    std::vector<std::vector<size_t>> groups;
    size_t open = 0;  // groups before this one are closed by an exchange
    for (size_t i = first; i < end; ++i) {
        const Compute* c = phase_.steps[i].compute();
        auto same = [&](const std::vector<size_t>& group) {
            const Compute* other = phase_.steps[group[0]].compute();
            return other && other->kernel == c->kernel && other->ops == c->ops;
        };
        auto found =
            c ? std::find_if(groups.begin() + static_cast<std::ptrdiff_t>(open), groups.end(), same)
              : groups.end();
        if (found != groups.end())
            found->push_back(i);
        else
            groups.push_back({i});
        if (!c) open = groups.size();
    }
    return groups;
}

Row StepsText::merged(const std::vector<size_t>& group) const {
    const Step& step = phase_.steps[group[0]];
    if (group.size() == 1)
        return {what(step), where(step), amount(step), time_text(step.predicted_ns)};
    std::vector<DeviceId> devices;
    std::string least, most;
    int64_t least_bytes = INT64_MAX, most_bytes = -1, ns = 0;
    for (size_t i : group) {
        const Step& s = phase_.steps[i];
        devices.push_back(s.compute()->device);
        int64_t bytes = step_bytes(s, point_);
        if (bytes < least_bytes) least = amount(s);
        if (bytes > most_bytes) most = amount(s);
        least_bytes = std::min(least_bytes, bytes);
        most_bytes = std::max(most_bytes, bytes);
        ns = std::max(ns, s.predicted_ns);
    }
    std::string each = least == most || least.empty()
                           ? most
                           : fmt::format("{} to {}", least.substr(0, least.find(" of ")), most);
    return {what(step), names(devices), each.empty() ? each : each + " each", time_text(ns)};
}

std::vector<Block> StepsText::blocks() const {
    std::vector<Block> blocks;
    for (size_t i = 0; i < phase_.steps.size();) {
        const Step& first = phase_.steps[i];
        const bool arrives = first.transfer() != nullptr;
        size_t end = i;
        for (; end < phase_.steps.size(); ++end) {
            const Step& s = phase_.steps[end];
            if (s.layer != first.layer || s.stage != first.stage ||
                (s.transfer() != nullptr) != arrives)
                break;
        }
        Block block{first.stage, first.layer, 1, arrives, {}};
        for (const auto& group : groups(i, end)) block.rows.push_back(merged(group));
        i = end;
        if (!blocks.empty() && blocks.back().stage == block.stage &&
            blocks.back().rows == block.rows && !block.arrives)
            ++blocks.back().repeats;
        else
            blocks.push_back(std::move(block));
    }
    return blocks;
}

std::string StepsText::title(const Block& b) const {
    const int64_t layers = plan_.graph.config.num_layers;
    if (b.arrives) return "arriving";
    if (b.layer < 0) return "before the layers";
    if (layers > 0 && b.layer >= layers) return "after the layers";
    if (b.repeats == 1) return fmt::format("layer {}", b.layer);
    return fmt::format("layers {}-{} (x {})", b.layer, b.layer + b.repeats - 1, b.repeats);
}

std::string StepsText::folded(int width) const {
    TextTable table("<<<>", "  ");
    int stage = -1;
    for (const Block& block : blocks()) {
        std::string head = title(block);
        if (block.stage != stage) {
            stage = block.stage;
            const Stage& s = plan_.stages[static_cast<size_t>(stage)];
            head = fmt::format("stage {} on {}: {}", stage, names(s.devices), head);
        }
        table.line("- " + head);
        for (Row row : block.rows) {
            row[0] = "  " + row[0];
            table.row(std::move(row));
        }
    }
    return table.text(width);
}

std::string StepsText::all(int width) const {
    TextTable table(">><<<>", "  ");
    for (size_t i = 0; i < phase_.steps.size(); ++i) {
        const Step& s = phase_.steps[i];
        table.row({std::to_string(i), s.layer < 0 ? "" : fmt::format("L{}", s.layer), what(s),
                   where(s), amount(s), time_text(s.predicted_ns)});
    }
    return table.text(width);
}

}  // namespace

std::string steps_text(const Plan& plan, bool is_prefill, bool all, int width) {
    StepsText steps(plan, is_prefill);
    return all ? steps.all(width) : steps.folded(width);
}

}  // namespace cleave::planner
