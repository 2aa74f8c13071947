// SPDX-License-Identifier: Apache-2.0
#include "planner/view/text_steps.h"

#include <algorithm>
#include <climits>
#include <map>
#include <utility>

#include "planner/machine/device_names.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/text_table.h"
#include "planner/view/stage_text.h"
#include "planner/view/step_words.h"

namespace cleave::planner {
namespace {

using Row = std::vector<std::string>;  // what, where, how much, time

// Consecutive steps of one layer in one stage; what comes from other stages is apart.
struct Block {
    int stage = 0, layer = -1, repeats = 1;
    bool arrives = false;
    std::vector<Row> rows;
    std::vector<Row> relative;  // the same, where devices are places in their stages
};

// Blocks of one stage, and the stages whose blocks differ from them in devices and layers alone.
struct StageBlocks {
    std::vector<Block> blocks;
    std::vector<int> alike;  // this stage first
};

class StepsText {
public:
    StepsText(const Plan& plan, bool is_prefill)
        : plan_(plan), phase_(plan.phase(is_prefill)), point_(pass_point(plan, is_prefill)) {
        for (const Stage& stage : plan.stages)
            for (size_t i = 0; i < stage.devices.size(); ++i)
                place_.try_emplace(stage.devices[i], static_cast<int64_t>(i));
    }

    std::string folded(int width) const;
    std::string all(int width) const;

private:
    DeviceId device(PlacedId id) const { return phase_.values[id.index()].device; }
    // Names of devices, or their places in their stages.
    std::string names(const std::vector<DeviceId>& devices, bool relative = false) const;
    std::string what(const Step& step) const { return step_words(plan_.graph, step); }
    std::string where(const Step& step, bool relative = false) const;
    std::string amount(const Step& step) const;
    std::vector<Block> blocks() const;
    std::vector<StageBlocks> stages() const;
    std::vector<std::vector<size_t>> groups(size_t first, size_t end) const;
    Row merged(const std::vector<size_t>& group, bool relative) const;
    std::string title(const Block& block) const;
    std::string head(const StageBlocks& stage) const;

    const Plan& plan_;
    const Phase& phase_;
    PassPoint point_;
    std::map<DeviceId, int64_t> place_;
};

std::string StepsText::names(const std::vector<DeviceId>& devices, bool relative) const {
    if (!relative) return folded_names(plan_.machine, devices);
    std::vector<int64_t> places;
    for (const DeviceId d : devices)
        places.push_back(place_.count(d) > 0 ? place_.at(d) : static_cast<int64_t>(d.index()));
    return folded_numbers(places);
}

std::string StepsText::where(const Step& step, bool relative) const {
    if (const Transfer* t = step.transfer())
        return fmt::format("{} -> {}", names({device(t->source)}, relative),
                           names({device(t->destination)}, relative));
    if (const Collective* c = step.collective(); c && c->op == CollectiveOp::kAllGather)
        return fmt::format("to {}", names(c->group, relative));
    return names(step_devices(phase_, step), relative);
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

// The steps [first, end) as rows: between two exchanges, one kernel on several devices is one row,
// and so are transfers of as much, one behind the other.
std::vector<std::vector<size_t>> StepsText::groups(size_t first, size_t end) const {
    std::vector<std::vector<size_t>> groups;
    size_t open = 0;  // groups before this one are closed by an exchange
    for (size_t i = first; i < end; ++i) {
        const Step& step = phase_.steps[i];
        const Compute* c = step.compute();
        const auto same = [&](const std::vector<size_t>& group) {
            const Step& other = phase_.steps[group[0]];
            if (c)
                return other.compute() && other.compute()->kernel == c->kernel &&
                       other.compute()->ops == c->ops;
            return step.transfer() && other.transfer() && amount(other) == amount(step);
        };
        const size_t last = groups.empty() ? 0 : groups.size() - 1;
        const auto from = groups.begin() + static_cast<std::ptrdiff_t>(c ? open : last);
        const auto found = std::find_if(from, groups.end(), same);
        if (found != groups.end())
            found->push_back(i);
        else
            groups.push_back({i});
        if (!c) open = groups.size();
    }
    return groups;
}

Row StepsText::merged(const std::vector<size_t>& group, bool relative) const {
    const Step& step = phase_.steps[group[0]];
    if (group.size() == 1)
        return {what(step), where(step, relative), amount(step), time_text(step.predicted_ns)};
    std::vector<DeviceId> devices, targets;
    std::string least, most;
    int64_t least_bytes = INT64_MAX, most_bytes = -1, ns = 0;
    for (size_t i : group) {
        const Step& s = phase_.steps[i];
        devices.push_back(s.compute() ? s.compute()->device : device(s.transfer()->source));
        if (const Transfer* t = s.transfer()) targets.push_back(device(t->destination));
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
    std::string on = names(devices, relative);
    if (!targets.empty()) on += " -> " + names(targets, relative);
    return {what(step), on, each.empty() ? each : each + " each", time_text(ns)};
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
        Block block{first.stage, first.layer, 1, arrives, {}, {}};
        for (const auto& group : groups(i, end)) {
            block.rows.push_back(merged(group, false));
            block.relative.push_back(merged(group, true));
        }
        i = end;
        if (!blocks.empty() && blocks.back().stage == block.stage &&
            blocks.back().rows == block.rows && !block.arrives)
            ++blocks.back().repeats;
        else
            blocks.push_back(std::move(block));
    }
    return blocks;
}

// Blocks by stage, alike stages together. A stage that comes again, as virtual stages do, is
// another one.
std::vector<StageBlocks> StepsText::stages() const {
    std::vector<StageBlocks> stages;
    for (Block& block : blocks()) {
        if (stages.empty() || stages.back().alike[0] != block.stage)
            stages.push_back({{}, {block.stage}});
        stages.back().blocks.push_back(std::move(block));
    }
    const int layers = static_cast<int>(plan_.graph.config.num_layers);
    const auto inside = [&](const Block& b) { return b.layer >= 0 && b.layer < layers; };
    const auto same = [&](const StageBlocks& a, const StageBlocks& b) {
        return plan_.stages[static_cast<size_t>(a.alike[0])].devices.size() ==
                   plan_.stages[static_cast<size_t>(b.alike[0])].devices.size() &&
               std::equal(a.blocks.begin(), a.blocks.end(), b.blocks.begin(), b.blocks.end(),
                          [&](const Block& x, const Block& y) {
                              return x.relative == y.relative && x.repeats == y.repeats &&
                                     x.arrives == y.arrives && inside(x) == inside(y);
                          });
    };
    std::vector<StageBlocks> folded;
    for (StageBlocks& stage : stages) {
        const auto found = std::find_if(folded.begin(), folded.end(),
                                        [&](const StageBlocks& one) { return same(one, stage); });
        if (found == folded.end())
            folded.push_back(std::move(stage));
        else
            found->alike.push_back(stage.alike[0]);
    }
    return folded;
}

std::string StepsText::title(const Block& b) const {
    const int64_t layers = plan_.graph.config.num_layers;
    if (b.arrives) return "arriving";
    if (b.layer < 0) return "before the layers";
    if (layers > 0 && b.layer >= layers) return "after the layers";
    if (b.repeats == 1) return fmt::format("layer {}", b.layer);
    return fmt::format("layers {}-{} (x {})", b.layer, b.layer + b.repeats - 1, b.repeats);
}

std::string StepsText::head(const StageBlocks& stage) const {
    const auto of = [&](int s) -> const Stage& { return plan_.stages[static_cast<size_t>(s)]; };
    std::string text =
        fmt::format("stage {} on {}", stage.alike[0], names(of(stage.alike[0]).devices));
    if (stage.alike.size() == 1) return text;
    std::vector<int64_t> numbers;
    std::vector<DeviceId> devices;
    int first = INT_MAX, last = -1;
    for (size_t i = 1; i < stage.alike.size(); ++i) {
        const Stage& other = of(stage.alike[i]);
        numbers.push_back(stage.alike[i]);
        devices.insert(devices.end(), other.devices.begin(), other.devices.end());
        if (other.last_layer < other.first_layer) continue;
        first = std::min(first, other.first_layer);
        last = std::max(last, other.last_layer);
    }
    text += fmt::format(", and alike stage{} {} on {}", numbers.size() == 1 ? "" : "s",
                        folded_numbers(numbers), names(devices));
    return last < first ? text : fmt::format("{} (layers {})", text, first_to_last(first, last));
}

std::string StepsText::folded(int width) const {
    constexpr size_t kMost = 8;
    TextTable table("<<<>", "  ");
    const std::vector<StageBlocks> all = stages();
    size_t left_out = 0;
    for (size_t s = 0; s < all.size(); ++s) {
        // Of very many kinds of stages the first ones, and the last.
        if (all.size() > kMost && s >= kMost - 1 && s + 1 < all.size()) {
            left_out += all[s].alike.size();
            continue;
        }
        if (left_out > 0) table.line(fmt::format("- {} more stages, of other numbers", left_out));
        left_out = 0;
        bool first = true;
        for (const Block& block : all[s].blocks) {
            table.line(std::exchange(first, false)
                           ? fmt::format("- {}: {}", head(all[s]), title(block))
                           : "- " + title(block));
            for (Row row : block.rows) {
                row[0] = "  " + row[0];
                table.row(std::move(row));
            }
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
