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

// Launches or exchanges that differ in devices and little of their times.
struct Row {
    std::string what, where, bytes, how;
    std::string relative;  // `where`, by the devices' places in their stages
    int64_t least_ns = 0, most_ns = 0;
    int64_t least_bytes = 0, most_bytes = 0;
};

// Times of alike work differ by the last digit, or by who is the neighbour.
bool as_long(const Row& a, const Row& b) {
    return std::max(a.most_ns, b.most_ns) <= std::min(a.least_ns, b.least_ns) * 21 / 20;
}
// Bytes of alike work differ by a norm's weights.
bool as_large(const Row& a, const Row& b) {
    const auto near = [](int64_t x, int64_t y) {
        return std::max(x, y) <= std::min(x, y) * 101 / 100;
    };
    return near(a.least_bytes, b.least_bytes) && near(a.most_bytes, b.most_bytes);
}
void join_times(Row& row, const Row& other) {
    row.least_ns = std::min(row.least_ns, other.least_ns);
    row.most_ns = std::max(row.most_ns, other.most_ns);
}

// Consecutive steps of one layer in one stage; what comes from other stages is apart.
struct Block {
    int stage = 0, layer = -1, repeats = 1;
    bool arrives = false;
    std::vector<Row> rows;
    std::string last;  // what the last row does in the last layer, where that is another thing
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

    std::string folded(int width, size_t kinds) const;
    std::string all(int width) const;

private:
    DeviceId device(PlacedId id) const { return phase_.values[id.index()].device; }
    // Names of devices, or their places in their stages.
    std::string names(const std::vector<DeviceId>& devices, bool relative = false) const;
    std::string what(const Step& step) const { return step_words(plan_.graph, step); }
    std::string where(const Step& step, bool relative = false) const;
    std::string bytes(const Step& step) const;
    std::string how(const Step& step) const;
    std::vector<Block> blocks() const;
    std::vector<StageBlocks> stages() const;
    std::vector<std::vector<size_t>> groups(size_t first, size_t end) const;
    Row merged(const std::vector<size_t>& group) const;
    bool continues(const Block& before, const Block& block) const;
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

std::string StepsText::bytes(const Step& step) const {
    if (const Compute* c = step.compute()) {
        const int64_t weights = c->weight_bytes.at(point_);
        const int64_t bytes = weights > 0 ? weights : c->activation_bytes.at(point_);
        return bytes > 0 ? bytes_text(bytes) : "";
    }
    return bytes_text(step_bytes(step, point_));
}

std::string StepsText::how(const Step& step) const {
    if (const Compute* c = step.compute())
        return c->weight_bytes.at(point_) > 0        ? "weights"
               : c->activation_bytes.at(point_) == 0 ? ""
               : c->kv.valid()                       ? "keys and values"
                                                     : "activations";
    const std::string moved = bytes_text(step.link_bytes.at(point_)) + " moved, ";
    const Collective* c = step.collective();
    if (!c) return moved + step_implementation(plan_, phase_, step);
    if (c->path == Path::kVendor)
        return moved + (c->op == CollectiveOp::kAllGather
                            ? "by the vendor's library"
                            : std::string(sum_form_name(c->form())) + " by the vendor's library");
    return moved + std::string(sum_form_name(c->form())) +
           (c->path == Path::kStaged ? ", staged" : " by peer memory");
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
            return step.transfer() && other.transfer() && bytes(other) == bytes(step) &&
                   how(other) == how(step);
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

Row StepsText::merged(const std::vector<size_t>& group) const {
    const Step& step = phase_.steps[group[0]];
    Row row{what(step),        where(step),       bytes(step),      how(step),
            where(step, true), step.predicted_ns, step.predicted_ns};
    row.least_bytes = row.most_bytes = step_bytes(step, point_);
    if (group.size() == 1) return row;
    std::vector<DeviceId> devices, targets;
    const Step *least = &step, *most = &step;
    for (size_t i : group) {
        const Step& s = phase_.steps[i];
        devices.push_back(s.compute() ? s.compute()->device : device(s.transfer()->source));
        if (const Transfer* t = s.transfer()) targets.push_back(device(t->destination));
        if (step_bytes(s, point_) < step_bytes(*least, point_)) least = &s;
        if (step_bytes(s, point_) > step_bytes(*most, point_)) most = &s;
        row.most_ns = std::max(row.most_ns, s.predicted_ns);
    }
    row.least_bytes = step_bytes(*least, point_);
    row.most_bytes = step_bytes(*most, point_);
    row.least_ns = row.most_ns;  // the stage goes on when the last one has ended
    const std::string low = bytes(*least), high = bytes(*most);
    row.bytes = low == high || low.empty() ? high : fmt::format("{} to {}", low, high);
    if (!row.bytes.empty()) row.bytes += " each";
    row.where = names(devices);
    row.relative = names(devices, true);
    if (targets.empty()) return row;
    row.where += " -> " + names(targets);
    row.relative += " -> " + names(targets, true);
    return row;
}

// Whether a layer does what those before it do. The last of a stage may end with another sum.
bool StepsText::continues(const Block& before, const Block& block) const {
    const int64_t layers = plan_.graph.config.num_layers;
    if (block.arrives || before.arrives || before.stage != block.stage || before.layer < 0 ||
        block.layer >= layers || before.rows.size() != block.rows.size() || !before.last.empty())
        return false;
    for (size_t i = 0; i < block.rows.size(); ++i) {
        const Row &a = before.rows[i], &b = block.rows[i];
        const bool ends = i + 1 == block.rows.size();
        if (a.where != b.where || !as_large(a, b) || a.how != b.how) return false;
        // A sum without the norm behind it is another one, and its time joins the range.
        if (a.what != b.what ? !ends : !as_long(a, b)) return false;
    }
    return true;
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
        for (const auto& group : groups(i, end)) block.rows.push_back(merged(group));
        i = end;
        if (blocks.empty() || !continues(blocks.back(), block)) {
            blocks.push_back(std::move(block));
            continue;
        }
        Block& before = blocks.back();
        if (before.rows.back().what != block.rows.back().what) before.last = block.rows.back().what;
        for (size_t r = 0; r < block.rows.size(); ++r) join_times(before.rows[r], block.rows[r]);
        ++before.repeats;
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
    const auto same_row = [](const Row& x, const Row& y) {
        return x.what == y.what && x.relative == y.relative && as_large(x, y) && x.how == y.how &&
               as_long(x, y);
    };
    const auto same = [&](const StageBlocks& a, const StageBlocks& b) {
        return plan_.stages[static_cast<size_t>(a.alike[0])].devices.size() ==
                   plan_.stages[static_cast<size_t>(b.alike[0])].devices.size() &&
               std::equal(a.blocks.begin(), a.blocks.end(), b.blocks.begin(), b.blocks.end(),
                          [&](const Block& x, const Block& y) {
                              return x.repeats == y.repeats && x.arrives == y.arrives &&
                                     x.last == y.last && inside(x) == inside(y) &&
                                     std::equal(x.rows.begin(), x.rows.end(), y.rows.begin(),
                                                y.rows.end(), same_row);
                          });
    };
    std::vector<StageBlocks> folded;
    for (StageBlocks& stage : stages) {
        const auto found = std::find_if(folded.begin(), folded.end(),
                                        [&](const StageBlocks& one) { return same(one, stage); });
        if (found == folded.end()) {
            folded.push_back(std::move(stage));
            continue;
        }
        found->alike.push_back(stage.alike[0]);
        for (size_t b = 0; b < stage.blocks.size(); ++b)
            for (size_t r = 0; r < stage.blocks[b].rows.size(); ++r)
                join_times(found->blocks[b].rows[r], stage.blocks[b].rows[r]);
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

std::string StepsText::folded(int width, size_t kinds) const {
    TextTable table("<<<<>", "  ");
    table.row({"", "on", "bytes", "what of", "time"});
    table.may_drop({3});
    const std::vector<StageBlocks> all = stages();
    size_t left_out = 0;
    for (size_t s = 0; s < all.size(); ++s) {
        // Of very many kinds of stages the first ones, and the last.
        if (all.size() > kinds && s + 1 >= kinds && s + 1 < all.size()) {
            left_out += all[s].alike.size();
            continue;
        }
        if (left_out > 0) table.line(fmt::format("- {} more stages, of other numbers", left_out));
        left_out = 0;
        bool first = true;
        constexpr size_t kLongest = 40;  // names, which the line of the stage has already
        const std::string whole = names(plan_.stages[static_cast<size_t>(all[s].alike[0])].devices);
        for (const Block& block : all[s].blocks) {
            table.line(std::exchange(first, false)
                           ? fmt::format("- {}: {}", head(all[s]), title(block))
                           : "- " + title(block));
            for (const Row& row : block.rows)
                table.row(
                    {"  " + row.what,
                     row.where == whole && whole.size() > kLongest ? "all of the stage" : row.where,
                     row.bytes, row.how,
                     span_text(time_text(row.least_ns), time_text(row.most_ns))});
            if (!block.last.empty())
                table.line(fmt::format("    in layer {}: {}", block.layer + block.repeats - 1,
                                       block.last));
        }
    }
    return table.text(width);
}

std::string StepsText::all(int width) const {
    TextTable table(">><<<<>", "  ");
    table.row({"", "", "", "on", "bytes", "what of", "time"});
    table.may_drop({5});
    for (size_t i = 0; i < phase_.steps.size(); ++i) {
        const Step& s = phase_.steps[i];
        table.row({std::to_string(i), s.layer < 0 ? "" : fmt::format("L{}", s.layer), what(s),
                   where(s), bytes(s), how(s), time_text(s.predicted_ns)});
    }
    return table.text(width);
}

}  // namespace

std::string steps_text(const Plan& plan, bool is_prefill, bool all, int width, size_t kinds) {
    StepsText steps(plan, is_prefill);
    return all ? steps.all(width) : steps.folded(width, kinds);
}

}  // namespace cleave::planner
