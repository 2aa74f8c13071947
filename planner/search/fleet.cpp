// SPDX-License-Identifier: Apache-2.0
#include "planner/search/fleet.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "planner/machine/device_names.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/text_table.h"
#include "planner/plan/used_devices.h"
#include "planner/search/replicas.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

using Devices = std::vector<DeviceId>;

int64_t fleet_size(const Plan& plan) { return std::ssize(used_device_names(plan)); }

// Whether prices are what is compared.
bool has_prices(const Machine& machine) {
    const DeviceInfo *priced = nullptr, *other = nullptr;
    for (const DeviceInfo& d : machine.devices) {
        const DeviceInfo*& first = d.price_micros > 0 ? priced : other;
        if (!first) first = &d;
    }
    if (priced && other)
        throw UserError(
            "{} has a price and {} has none: the cheapest is not known; give $price of "
            "all, or of none",
            priced->name, other->name);
    return priced != nullptr;
}

// Whether a shape and a number of replicas take so many devices and no more.
bool takes_fixed_number(const PlanOptions& o) {
    return o.tensor_parallel > 0 && o.pipeline_stages > 0 && o.replicas > 0;
}

// Of the first devices of a list as few as serve the load.
class FirstDevices {
public:
    FirstDevices(const Machine& machine, const PlanOptions& options, const Devices& list,
                 const std::function<std::optional<Plan>(const Machine&)>& plan_on)
        : machine_(machine), list_(list), plan_on_(plan_on) {
        const auto least = [](int given) { return static_cast<size_t>(std::max(given, 1)); };
        unit_ = least(options.replicas) * least(options.tensor_parallel);
        if (options.tensor_parallel > 0)
            unit_ *= least(options.pipeline_stages);
        else
            fewest_ = least(options.pipeline_stages);
        if (takes_fixed_number(options)) most_ = 1;
    }

    std::optional<Fleet> find() {
        const size_t most = std::min(list_.size() / unit_, most_);
        fails_ = fewest_ - 1;
        for (size_t units = fewest_; units <= most && !best_;) {
            look(units);
            if (units == most) break;
            units = std::min(2 * units, most);
        }
        while (best_ && serves_ - fails_ > 1) look(fails_ + (serves_ - fails_) / 2);
        return std::move(best_);
    }

private:
    void look(size_t units) {
        const auto end = list_.begin() + static_cast<std::ptrdiff_t>(units * unit_);
        Machine part = part_of(machine_, {list_.begin(), end});
        part.name = machine_.name;
        std::optional<Plan> plan = plan_on_(part);
        (plan ? serves_ : fails_) = units;
        if (plan) best_ = Fleet{std::move(*plan), std::move(part)};
    }

    const Machine& machine_;
    const Devices& list_;
    const std::function<std::optional<Plan>(const Machine&)>& plan_on_;
    size_t unit_ = 1, fewest_ = 1;  // devices that a forced shape wants at once; units
    size_t most_ = SIZE_MAX;        // units
    size_t fails_ = 0, serves_ = 0;
    std::optional<Fleet> best_;
};

std::string price_text(const Plan& plan) {
    const std::string count = count_text(fleet_size(plan), "device");
    const int64_t micros = price_micros_per_hour(plan);
    return micros > 0 ? fmt::format("{}, {:.6g} an hour", count, static_cast<double>(micros) / 1e6)
                      : count;
}

// What fleets are compared by: their price or devices, and of equal ones their speed.
std::pair<int64_t, int64_t> cost_of(const Plan& plan, bool by_price) {
    return {by_price ? price_micros_per_hour(plan) : fleet_size(plan),
            plan.prediction.objective_ns};
}

// Why `other` is not taken.
std::string dearer(const Plan& other, const Plan& plan, bool by_price) {
    const auto theirs = cost_of(other, by_price), ours = cost_of(plan, by_price);
    if (theirs.first != ours.first)
        return fmt::format("takes {}, not {}", price_text(other), price_text(plan));
    return fmt::format("takes {} as well, and is {}", price_text(other),
                       theirs.second > ours.second ? "slower" : "as fast");
}

void explain_fleet(const Machine& machine, const std::vector<Fleet>& others, bool by_price,
                   Plan& plan) {
    std::set<std::string> taken;
    for (const DeviceInfo& d : plan.machine.devices) taken.insert(d.name);
    for (const Machine& copy : plan.copies)
        for (const DeviceInfo& d : copy.devices) taken.insert(d.name);
    Devices spare;
    for (size_t d = 0; d < machine.devices.size(); ++d)
        if (!taken.contains(machine.devices[d].name)) spare.emplace_back(d);
    if (!spare.empty())
        plan.why.binding += fmt::format("; unused: {} ({} serve {})", folded_names(machine, spare),
                                        price_micros_per_hour(plan) > 0 ? "cheaper ones" : "fewer",
                                        count_text(plan.prediction.serving.users, "user"));
    const std::set<std::string> used = used_device_names(plan);
    for (const Fleet& other : others) {
        if (used_device_names(other.plan) == used) continue;  // of another list, the same devices
        std::vector<std::string> names;
        for (const DeviceInfo& d : other.machine.devices) names.push_back(d.name);
        plan.why.runners_up.insert(plan.why.runners_up.begin(),
                                   {folded_names(names), other.plan.prediction.objective_ns,
                                    dearer(other.plan, plan, by_price)});
    }
}

}  // namespace

Machine largest_fleet(const Machine& machine, const PlanOptions& o) {
    if (!takes_fixed_number(o)) return machine;
    const int64_t number = int64_t{o.tensor_parallel} * o.pipeline_stages * o.replicas;
    if (number >= std::ssize(machine.devices)) return machine;
    Devices first;
    for (int64_t d = 0; d < number; ++d) first.emplace_back(d);
    Machine part = part_of(machine, first);
    part.name = machine.name;
    return part;
}

std::optional<Fleet> fewest_devices(
    const Machine& machine, const PlanOptions& options,
    const std::function<std::optional<Plan>(const Machine&)>& plan_on) {
    const bool by_price = has_prices(machine);
    std::vector<Devices> lists = kinds_of(machine);
    // Replicas of several kinds have as many of each: only all devices are looked at then.
    if (lists.size() > 1 && options.replicas <= 1) {
        Devices all;
        for (size_t d = 0; d < machine.devices.size(); ++d) all.emplace_back(d);
        lists.push_back(std::move(all));
    }
    std::vector<Fleet> found;  // the best one last
    const auto cost = [&](const Fleet& fleet) { return cost_of(fleet.plan, by_price); };
    for (const Devices& list : lists) {
        std::optional<Fleet> fleet = FirstDevices(machine, options, list, plan_on).find();
        if (!fleet) continue;
        const bool best = found.empty() || cost(*fleet) < cost(found.back());
        found.insert(best ? found.end() : found.begin(), std::move(*fleet));
    }
    if (found.empty()) return std::nullopt;
    Fleet best = std::move(found.back());
    found.pop_back();
    explain_fleet(machine, found, by_price, best.plan);
    return best;
}

}  // namespace cleave::planner
