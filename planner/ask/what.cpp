// SPDX-License-Identifier: Apache-2.0
#include "planner/ask/what.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "planner/analysis/analysis.h"
#include "planner/machine/device_list.h"
#include "planner/plan/plan_queries.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

std::optional<int> layer_number(std::string_view text) {
    int n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    const bool whole = error == std::errc() && end == text.data() + text.size() && n >= 0;
    return whole ? std::optional(n) : std::nullopt;
}

// "layers.3-5", "layers.3", "layers.3.mlp".
struct LayersText {
    int first = 0, last = 0;
    std::string_view half;  // "attention", "mlp", or empty
};

std::optional<LayersText> layers_text(std::string_view text) {
    constexpr std::string_view kPrefix = "layers.";
    if (!text.starts_with(kPrefix)) return std::nullopt;
    text.remove_prefix(kPrefix.size());
    LayersText layers;
    for (const std::string_view half : {std::string_view(".attention"), std::string_view(".mlp")})
        if (text.ends_with(half)) {
            layers.half = half.substr(1);
            text.remove_suffix(half.size());
        }
    const size_t dash = text.find('-');
    const auto first = layer_number(text.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : layer_number(text.substr(dash + 1));
    if (!first || !last || (!layers.half.empty() && *first != *last)) return std::nullopt;
    layers.first = *first;
    layers.last = *last;
    return layers;
}

void check_layers(const Graph& graph, const std::string& text, const LayersText& layers) {
    const auto known = static_cast<int>(graph.config.num_layers);
    if (known == 0)
        throw UserError("{}: {} has no decoder layers that could be told apart", text, graph.name);
    if (layers.first > layers.last)
        throw UserError("{}: from layer {} to layer {} there is none; write layers.{}-{}", text,
                        layers.first, layers.last, layers.last, layers.first);
    if (layers.last >= known)
        throw UserError("{}: {} has no layer {}; it has layers 0 to {}", text, graph.name,
                        layers.last, known - 1);
}

// The operators of a layer's half: those of the unit that has its attention, or of the others.
std::vector<OpId> half_of(const Plan& plan, int layer, bool attention) {
    const Analysis analysis = analyse(plan.graph, plan.workload);
    std::vector<OpId> ops;
    for (const Unit& unit : analysis.units) {
        if (unit.first_layer > layer || unit.last_layer < layer) continue;
        std::vector<OpId> of_unit;
        bool has = false;
        for (int g = unit.begin; g < unit.end; ++g) {
            const FusedGroup& group = analysis.groups[static_cast<size_t>(g)];
            has = has || group.kernel == KernelKind::kAttention;
            of_unit.insert(of_unit.end(), group.ops.begin(), group.ops.end());
            if (group.epilogue.valid()) of_unit.push_back(group.epilogue);
        }
        if (has == attention || analysis.units.size() <= 1)
            ops.insert(ops.end(), of_unit.begin(), of_unit.end());
    }
    return ops;
}

}  // namespace

What find_part(const Plan& plan, const std::string& text) {
    const Graph& graph = plan.graph;
    What what{.text = text, .pin = text};
    // An operator may be called layers.3.attention, too: people mean the half of the layer.
    const std::optional<LayersText> layers = layers_text(text);
    if (!layers) {
        for (size_t i = 0; i < graph.ops.size(); ++i)
            if (graph.ops[i].name == text) what.ops.emplace_back(i);
        return what.ops.empty() ? What{} : what;
    }
    check_layers(graph, text, *layers);
    if (!layers->half.empty()) {
        what.ops = half_of(plan, layers->first, layers->half == "attention");
        if (!what.ops.empty()) what.pin = graph.op(what.ops.front()).name;
        return what;
    }
    for (size_t i = 0; i < graph.ops.size(); ++i)
        if (graph.ops[i].layer >= layers->first && graph.ops[i].layer <= layers->last)
            what.ops.emplace_back(i);
    return what;
}

What parse_what(const Plan& plan, const std::string& text) {
    What what{.text = text};
    if (text == "token" || text == "links") {
        what.kind = text == "token" ? WhatKind::kToken : WhatKind::kLinks;
        return what;
    }
    for (size_t d = 0; d < plan.machine.devices.size(); ++d)
        if (plan.machine.devices[d].name == text || plan.machine.devices[d].name == text + "[0]") {
            what.kind = WhatKind::kDevice;
            what.device = DeviceId(d);
            return what;
        }
    if (What part = find_part(plan, text); !part.ops.empty()) return part;
    for (size_t w = 0; w < plan.graph.weights.size(); ++w)
        if (plan.graph.weights[w].name == text) {
            what.kind = WhatKind::kWeight;
            what.weight = WeightId(w);
            return what;
        }
    const std::vector<std::string> names = buffer_names(plan);
    for (size_t b = 0; b < names.size(); ++b)
        if (names[b] == text) what.buffers.emplace_back(b);
    what.kind = WhatKind::kBuffer;
    if (!what.buffers.empty()) return what;
    const std::string op = plan.graph.ops.empty() ? "" : plan.graph.ops.back().name;
    throw UserError(
        "'{}' is nothing in this plan; ask about embedding, lm_head, layers.N, layers.A-B, "
        "layers.N.attention, layers.N.mlp, an operator ({}), a weight{}, a buffer, a device ({}), "
        "token or links",
        text, op,
        plan.graph.weights.empty() ? "" : fmt::format(" ({})", plan.graph.weights.back().name),
        plan.machine.devices.front().name);
}

}  // namespace cleave::planner
