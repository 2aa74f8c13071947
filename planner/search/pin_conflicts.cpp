// SPDX-License-Identifier: Apache-2.0
#include "planner/search/pin_conflicts.h"

#include <algorithm>
#include <set>

#include "planner/analysis/storage.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/text_table.h"
#include "runtime/base/errors.h"

namespace cleave::planner {

using namespace importer;

namespace {

class Conflicts {
public:
    Conflicts(const Analysis& a, const Machine& machine, const Workload& workload)
        : a_(a), machine_(machine), workload_(workload) {}

    [[noreturn]] void one_unit_on_two(const ResolvedPin& x, const ResolvedPin& y) const;

private:
    const std::string& name(DeviceId d) const { return machine_.device(d).name; }

    template <class Visit>
    void each_op(int first, int last, Visit&& visit) const {
        for (int g = a_.units[first].begin; g < a_.units[last].end; ++g) {
            for (OpId id : a_.groups[g].ops) visit(a_.graph.op(id));
            if (a_.groups[g].epilogue.valid()) visit(a_.graph.op(a_.groups[g].epilogue));
        }
    }

    std::set<WeightId> weights_of(int first, int last) const {
        std::set<WeightId> weights;
        each_op(first, last,
                [&](const Op& op) { weights.insert(op.weights.begin(), op.weights.end()); });
        return weights;
    }

    int64_t weight_bytes(const std::set<WeightId>& weights) const {
        int64_t bytes = 0;
        for (WeightId id : weights) {
            const Weight& w = a_.graph.weight(id);
            bool matrix = w.shape.size() > 1;
            int64_t rows = w.shape.empty() ? 1 : matrix ? w.shape[0] : w.num_elements();
            bytes += shard_bytes(w, rows, matrix ? w.shape[1] : 1, device_dtype(w, workload_));
        }
        return bytes;
    }

    // Values made before a unit and read in it or behind it.
    std::vector<ValueId> crossing(int unit) const {
        std::vector<ValueId> values;
        int begin = a_.units[unit].begin;
        for (size_t v = 0; v < a_.graph.values.size(); ++v)
            if (a_.made_by[v] >= 0 && a_.made_by[v] < begin && a_.last_group[v] >= begin)
                values.push_back(ValueId(v));
        return values;
    }

    int64_t bytes_per_token(int unit) const {
        int64_t bytes = 0;
        for (ValueId v : crossing(unit)) {
            const Value& value = a_.graph.value(v);
            bytes += dtype_bytes(placed_dtype(value, workload_), last_dimension(value));
        }
        return bytes;
    }

    std::string link_text(DeviceId from, DeviceId to) const {
        const Link* link = machine_.link(from, to);
        if (!link) return fmt::format("{} to {}, through host memory", name(from), name(to));
        return fmt::format("{} to {}, a link of kind {} with {}/s", name(from), name(to),
                           link_kind_name(link->kind), bytes_text(link->bandwidth));
    }

    // Who makes what crosses into `unit` (`before`: where, if known), and who reads it from there
    // on, on each device.
    std::string consumers(int unit, DeviceId before, const std::vector<DeviceId>& behind) const {
        std::string text;
        for (ValueId v : crossing(unit)) {
            std::string maker, readers;
            for (const Op& op : a_.graph.ops) {
                if (std::find(op.outputs.begin(), op.outputs.end(), v) != op.outputs.end())
                    maker = op.name;
                bool reads = std::find(op.inputs.begin(), op.inputs.end(), v) != op.inputs.end();
                if (!reads || in_units_before(op, unit)) continue;
                for (DeviceId d : behind)
                    readers +=
                        fmt::format("{}{} on {}", readers.empty() ? "" : ", ", op.name, name(d));
            }
            std::string at = before.valid() ? " on " + name(before) : "";
            text += fmt::format("\n  value '{}': made by {}{}, read by {}", a_.graph.value(v).name,
                                maker, at, readers);
        }
        return text;
    }

    bool in_units_before(const Op& op, int unit) const {
        bool found = false;
        if (unit > 0)
            each_op(0, unit - 1, [&](const Op& other) { found = found || &other == &op; });
        return found;
    }

    std::string unit_text(int first, int last) const {
        const Unit &a = a_.units[first], &b = a_.units[last];
        if (a.first_layer >= 0 && b.last_layer >= 0)
            return a.first_layer == b.last_layer
                       ? fmt::format("layers.{}", a.first_layer)
                       : fmt::format("layers.{}-{}", a.first_layer, b.last_layer);
        return a_.graph.op(a_.groups[a.begin].ops[0]).name;
    }

    // `pin` without units [first, last]; empty where that leaves two pieces.
    std::string without(const ResolvedPin& pin, int first, int last) const {
        if (first <= pin.first && last >= pin.last) return "leave out " + pin_text(pin.pin);
        if (first > pin.first && last < pin.last) return "";
        std::string rest =
            first > pin.first ? unit_text(pin.first, first - 1) : unit_text(last + 1, pin.last);
        return fmt::format("{} instead of {}", pin_text({rest, pin.pin.device}), pin_text(pin.pin));
    }

    std::string keep_on(const ResolvedPin& kept, const ResolvedPin& cut, int first,
                        int last) const {
        std::string change = without(cut, first, last);
        if (change.empty()) return "";
        std::string text =
            fmt::format("\n  {}: {} of weights lie on {}", change,
                        bytes_text(weight_bytes(weights_of(first, last))), name(kept.device));
        if (cut.first < first)
            text +=
                fmt::format("; transfer: {} per token from {}", bytes_text(bytes_per_token(first)),
                            link_text(cut.device, kept.device));
        else if (cut.last > last)
            text += fmt::format("; transfer: {} per token from {}",
                                bytes_text(bytes_per_token(last + 1)),
                                link_text(kept.device, cut.device));
        return text;
    }

    // Bytes that each of several devices has of its own where a stage shares these units: norms and
    // biases.
    int64_t replicated_bytes(int first, int last) const {
        std::set<WeightId> vectors;
        for (WeightId id : weights_of(first, last))
            if (a_.graph.weight(id).shape.size() < 2) vectors.insert(id);
        return weight_bytes(vectors);
    }

    const Analysis& a_;
    const Machine& machine_;
    const Workload& workload_;
};

void Conflicts::one_unit_on_two(const ResolvedPin& x, const ResolvedPin& y) const {
    int first = std::max(x.first, y.first), last = std::min(x.last, y.last);
    std::string where = unit_text(first, last);
    std::string text = fmt::format(
        "{} is pinned to {} and to {}, and one stage computes it:\n  {} on {} for {}"
        "\n  {} on {} for {}",
        where, name(x.device), name(y.device), where, name(x.device), pin_text(x.pin), where,
        name(y.device), pin_text(y.pin));
    DeviceId before;
    if (x.first < first) before = x.device;
    if (first > 0) text += consumers(first, before, {x.device, y.device});
    text += "\nways out:" + keep_on(x, y, first, last) + keep_on(y, x, first, last);
    text += fmt::format(
        "\n  leave out one of the two and {}: two devices share it; replicate: {} of norms and "
        "biases on each",
        machine_.devices.size() % 2 == 0
            ? "give $tensor_parallel 2"
            : fmt::format("give $tensor_parallel 2 and a {} device",
                          machine_.devices.size() == 1 ? "second" : "further"),
        bytes_text(replicated_bytes(first, last)));
    throw UserError("{}", text);
}

}  // namespace

std::string pin_text(const Pin& pin) { return fmt::format("$pins '{}={}'", pin.what, pin.device); }

void refuse_conflicts(const Analysis& analysis, const Machine& machine, const Workload& workload,
                      const std::vector<ResolvedPin>& pins) {
    Conflicts conflicts(analysis, machine, workload);
    std::vector<ResolvedPin> sorted = pins;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const ResolvedPin& a, const ResolvedPin& b) { return a.first < b.first; });
    for (size_t i = 0; i < sorted.size(); ++i)
        for (size_t j = i + 1; j < sorted.size(); ++j)
            if (sorted[i].device != sorted[j].device && sorted[j].first <= sorted[i].last)
                conflicts.one_unit_on_two(sorted[i], sorted[j]);
}

}  // namespace cleave::planner
