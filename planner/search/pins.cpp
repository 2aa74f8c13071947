// SPDX-License-Identifier: Apache-2.0
#include "planner/search/pins.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>

#include "planner/machine/device_list.h"
#include "planner/search/pin_conflicts.h"
#include "runtime/base/errors.h"

namespace cleave::planner {

using namespace importer;

namespace {

constexpr size_t kMostOrders = 16;  // each costs a run of the search

std::optional<int> number(std::string_view text) {
    int n = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    bool whole = error == std::errc() && end == text.data() + text.size() && n >= 0;
    return whole ? std::optional(n) : std::nullopt;
}

// "layers.A-B" or "layers.N" as layers; nothing for any other text.
std::optional<std::pair<int, int>> layer_range(std::string_view what) {
    constexpr std::string_view kPrefix = "layers.";
    if (!what.starts_with(kPrefix)) return std::nullopt;
    what.remove_prefix(kPrefix.size());
    size_t dash = what.find('-');
    auto first = number(what.substr(0, dash));
    auto last = dash == std::string_view::npos ? first : number(what.substr(dash + 1));
    if (!first || !last) return std::nullopt;
    return std::pair(*first, *last);
}

int num_layers(const Analysis& a) {
    int layers = 0;
    for (const Unit& u : a.units) layers = std::max(layers, u.last_layer + 1);
    return layers;
}

bool holds_op(const Analysis& a, const FusedGroup& group, const std::string& name) {
    auto named = [&](OpId id) { return a.graph.op(id).name == name; };
    return std::any_of(group.ops.begin(), group.ops.end(), named) ||
           (group.epilogue.valid() && named(group.epilogue));
}

// Units that hold an operator of the pin, as [first, last].
std::pair<int, int> units_of_pin(const Analysis& a, const Pin& pin) {
    auto layers = layer_range(pin.what);
    bool known_op = std::any_of(a.graph.ops.begin(), a.graph.ops.end(),
                                [&](const Op& op) { return op.name == pin.what; });
    if (!layers && !known_op && pin.what != "embedding" && pin.what != "lm_head")
        throw UserError(
            "{}: '{}' is nothing that can be pinned; pin embedding, lm_head, layers.N, layers.A-B "
            "or an operator by its name, such as {}",
            pin_text(pin), pin.what, a.graph.ops.back().name);
    if (layers && layers->first > layers->second)
        throw UserError("{}: from layer {} to layer {} there is none; write layers.{}-{}",
                        pin_text(pin), layers->first, layers->second, layers->second,
                        layers->first);
    int known = num_layers(a);
    if (layers && known == 0)
        throw UserError("{}: {} has no decoder layers that could be told apart", pin_text(pin),
                        a.graph.name);
    if (layers && layers->second >= known)
        throw UserError("{}: {} has no layer {}; it has layers 0 to {}", pin_text(pin),
                        a.graph.name, layers->second, known - 1);
    int first = -1, last = -1;
    for (int u = 0; u < static_cast<int>(a.units.size()); ++u) {
        const Unit& unit = a.units[u];
        bool inside = layers && unit.first_layer >= 0 && unit.first_layer <= layers->second &&
                      unit.last_layer >= layers->first;
        for (int g = unit.begin; g < unit.end && !layers; ++g)
            inside = inside || holds_op(a, a.groups[g], pin.what);
        if (!inside) continue;
        if (first < 0) first = u;
        last = u;
    }
    if (first < 0)
        throw UserError("{}: {} has no operator '{}'", pin_text(pin), a.graph.name, pin.what);
    return {first, last};
}

// What is wrong with a pin's device is said of the pin.
std::vector<DeviceSpec> devices_of(const Pin& pin) {
    try {
        return parse_devices(pin.device, true);
    } catch (const UserError& error) {
        const std::string_view message = error.what();
        const size_t colon = message.find(": ");
        throw UserError("{}: {}", pin_text(pin),
                        colon == message.npos ? message : message.substr(colon + 2));
    }
}

DeviceId device_of(const Machine& machine, const Pin& pin) {
    auto named = [&](const std::string& name) {
        for (size_t d = 0; d < machine.devices.size(); ++d)
            if (machine.devices[d].name == name) return DeviceId(d);
        return DeviceId();
    };
    DeviceId device = named(pin.device);
    if (!device.valid()) {
        const std::vector<DeviceSpec> specs = devices_of(pin);  // "host" is host[0]
        if (specs.size() != 1)
            throw UserError("{}: '{}' is {} devices; pin to one", pin_text(pin), pin.device,
                            specs.size());
        device = named(specs[0].text);
    }
    if (device.valid()) return device;
    std::string known;
    for (const DeviceInfo& d : machine.devices) known += (known.empty() ? "" : ", ") + d.name;
    throw UserError(
        "{}: {} is not declared; the devices are {}. Add it to $devices, or pin to "
        "one of these",
        pin_text(pin), pin.device, known);
}

// Pinned devices in the order of their units.
std::vector<DeviceId> pinned_devices(const PinnedUnits& pins) {
    std::vector<DeviceId> devices;
    for (DeviceId d : pins)
        if (d.valid() && (devices.empty() || devices.back() != d)) devices.push_back(d);
    return devices;
}

// Units before, between and after those of the pinned devices.
std::vector<int> free_units(const PinnedUnits& pins) {
    std::vector<int> gaps{0};
    DeviceId last;
    int open = 0;
    for (DeviceId d : pins) {
        if (!d.valid()) {
            ++open;
            continue;
        }
        if (d != last) {  // units between two pins of one device are its own
            gaps.back() = open;
            gaps.push_back(0);
        }
        open = 0;
        last = d;
    }
    gaps.back() = open;
    return gaps;
}

// Calls `visit` with every way to write `total` as a sum of `parts` numbers; stops when it returns
// false.
bool each_composition(int total, size_t parts, std::vector<int>& sizes,
                      const std::function<bool()>& visit) {
    if (sizes.size() + 1 == parts) {
        sizes.push_back(total);
        bool go_on = visit();
        sizes.pop_back();
        return go_on;
    }
    for (int n = 0; n <= total; ++n) {
        sizes.push_back(n);
        bool go_on = each_composition(total - n, parts, sizes, visit);
        sizes.pop_back();
        if (!go_on) return false;
    }
    return true;
}

// The free devices shared out in proportion to the units of each gap, those of pinned neighbours
// counted for `own` hundredths.
std::vector<int> gaps_in_proportion(const PinnedUnits& pins, int devices, int own) {
    std::vector<int> open = free_units(pins);
    std::vector<int64_t> weights(open.begin(), open.end());
    std::vector<DeviceId> order = pinned_devices(pins);
    for (int64_t& w : weights) w = w * 200 + 1;
    for (size_t i = 0; i < order.size(); ++i) {
        int64_t held = std::count(pins.begin(), pins.end(), order[i]);
        weights[i] += held * own;
        weights[i + 1] += held * own;
    }
    std::vector<int> sizes;
    for (Range r : split_units(devices, 1, weights)) sizes.push_back(static_cast<int>(r.size()));
    return sizes;
}

// Gaps for pinned devices in chosen stages of `width` devices: only these meet a forced width.
void add_stage_slots(const PinnedUnits& pins, int devices, int width,
                     std::vector<std::vector<int>>& found) {
    std::vector<int> open = free_units(pins);
    int pinned = static_cast<int>(pinned_devices(pins).size()), stages = devices / width;
    std::vector<int> between;  // stages without a pin, before each pinned one and at the end
    each_composition(stages - pinned, open.size(), between, [&] {
        for (size_t i = 0; i < open.size(); ++i)
            if (between[i] > open[i]) return true;
        std::vector<int> sizes;
        for (size_t i = 0; i < open.size(); ++i)
            sizes.push_back(between[i] * width + (i > 0 ? width - 1 : 0));
        found.push_back(std::move(sizes));
        return found.size() < kMostOrders;
    });
}

}  // namespace

bool pins_return(const PinnedUnits& pins) {
    std::vector<DeviceId> devices = pinned_devices(pins);
    std::sort(devices.begin(), devices.end());
    return std::adjacent_find(devices.begin(), devices.end()) != devices.end();
}

void check_stage_count(const PinnedUnits& pins, int stages) {
    if (stages == 0 || pins.empty()) return;
    int pinned = static_cast<int>(pinned_devices(pins).size()), most = pinned;
    for (int gap : free_units(pins)) most += gap;
    if (stages < pinned && pins_return(pins))
        throw UserError(
            "the pins return to a device: they part the model into {} stages at least, and the "
            "shape has {}; leave out $pipeline_stages, or leave out pins",
            pinned, stages);
    if (stages < pinned)
        throw UserError(
            "the pins name {} devices, each in a stage of its own, and the shape has {} stage{}; "
            "give $pipeline_stages {} or more, or leave out pins",
            pinned, stages, stages == 1 ? "" : "s", pinned);
    if (stages > most)
        throw UserError(
            "the pins leave at most {} stages, and the shape has {}; give $pipeline_stages {} or "
            "less, or pin "
            "fewer layers to one device",
            most, stages, most);
}

PinnedUnits resolve_pins(const Analysis& analysis, const Machine& machine, const Workload& workload,
                         const std::vector<Pin>& pins, int pipeline_stages) {
    if (pins.empty()) return {};
    std::vector<ResolvedPin> resolved;
    for (const Pin& pin : pins) {
        auto [first, last] = units_of_pin(analysis, pin);
        resolved.push_back({pin, device_of(machine, pin), first, last});
    }
    refuse_conflicts(analysis, machine, workload, resolved);
    PinnedUnits units(analysis.units.size());
    for (const ResolvedPin& r : resolved)
        std::fill(units.begin() + r.first, units.begin() + r.last + 1, r.device);
    check_stage_count(units, pipeline_stages);
    return units;
}

std::vector<Pin> canonical_pins(const Machine& machine, const std::vector<Pin>& pins) {
    std::vector<Pin> named = pins;
    for (Pin& pin : named) pin.device = machine.device(device_of(machine, pin)).name;
    return named;
}

bool meets_pins(const PinnedUnits& pins, const std::vector<DeviceId>& devices, int begin, int end) {
    DeviceId needed;
    for (int u = begin; u < end && !pins.empty(); ++u) {
        if (!pins[u].valid()) continue;
        if (needed.valid() && needed != pins[u]) return false;
        needed = pins[u];
    }
    return !needed.valid() || std::find(devices.begin(), devices.end(), needed) != devices.end();
}

bool meets_pins(const Analysis& analysis, const PinnedUnits& pins, const Placement& placement) {
    if (pins.empty()) return true;
    auto unit_at = [&](int group) {
        auto at = std::partition_point(analysis.units.begin(), analysis.units.end(),
                                       [&](const Unit& u) { return u.begin < group; });
        return static_cast<int>(at - analysis.units.begin());
    };
    return std::all_of(placement.stages.begin(), placement.stages.end(), [&](const StageChoice& s) {
        return meets_pins(pins, s.devices, unit_at(s.begin), unit_at(s.end));
    });
}

std::vector<std::vector<DeviceId>> orders_for(const PinnedUnits& pins,
                                              const std::vector<DeviceId>& order,
                                              int tensor_parallel) {
    std::vector<DeviceId> pinned = pinned_devices(pins), free;
    if (pinned.empty()) return {order};
    for (DeviceId d : order)
        if (std::find(pinned.begin(), pinned.end(), d) == pinned.end()) free.push_back(d);
    auto devices = static_cast<int>(free.size());
    std::vector<std::vector<int>> all_gaps;
    std::vector<int> sizes;
    if (tensor_parallel > 0 && !pins_return(pins))
        add_stage_slots(pins, static_cast<int>(order.size()), tensor_parallel, all_gaps);
    else if (!each_composition(devices, pinned.size() + 1, sizes, [&] {
                 all_gaps.push_back(sizes);
                 return all_gaps.size() <= kMostOrders;
             })) {
        all_gaps.clear();
        for (int own : {0, 50, 100}) all_gaps.push_back(gaps_in_proportion(pins, devices, own));
    }
    std::vector<std::vector<DeviceId>> orders;
    for (const std::vector<int>& gaps : all_gaps) {
        std::vector<DeviceId> arranged;
        auto next = free.begin();
        for (size_t i = 0; i < gaps.size(); ++i) {
            arranged.insert(arranged.end(), next, next + gaps[i]);
            next += gaps[i];
            if (i < pinned.size()) arranged.push_back(pinned[i]);
        }
        if (std::find(orders.begin(), orders.end(), arranged) == orders.end())
            orders.push_back(std::move(arranged));
    }
    return orders;
}

}  // namespace cleave::planner
