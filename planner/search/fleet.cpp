// SPDX-License-Identifier: Apache-2.0
#include "planner/search/fleet.h"

#include <algorithm>
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
    }

    std::optional<Fleet> find() {
        const size_t most = list_.size() / unit_;
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
    size_t fails_ = 0, serves_ = 0;
    std::optional<Fleet> best_;
};

std::string price_text(const Plan& plan) {
    const std::string count = count_text(fleet_size(plan), "device");
    const int64_t micros = price_micros_per_hour(plan);
    return micros > 0 ? fmt::format("{}, {:.4g} an hour", count, static_cast<double>(micros) / 1e6)
                      : count;
}

void explain_fleet(const Machine& machine, const std::vector<Fleet>& others, Plan& plan) {
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
        const std::string theirs = price_text(other.plan), ours = price_text(plan);
        plan.why.runners_up.insert(
            plan.why.runners_up.begin(),
            {folded_names(names), other.plan.prediction.objective_ns,
             theirs == ours ? fmt::format("takes {} as well, and is slower", theirs)
                            : fmt::format("takes {}, not {}", theirs, ours)});
    }
}

}  // namespace

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
    std::vector<Fleet> found;                    // the best one last
    const auto cost = [&](const Fleet& fleet) {  // of equal ones the faster
        return std::pair(by_price ? price_micros_per_hour(fleet.plan) : fleet_size(fleet.plan),
                         fleet.plan.prediction.objective_ns);
    };
    for (const Devices& list : lists) {
        std::optional<Fleet> fleet = FirstDevices(machine, options, list, plan_on).find();
        if (!fleet) continue;
        const bool best = found.empty() || cost(*fleet) < cost(found.back());
        found.insert(best ? found.end() : found.begin(), std::move(*fleet));
    }
    if (found.empty()) return std::nullopt;
    Fleet best = std::move(found.back());
    found.pop_back();
    explain_fleet(machine, found, best.plan);
    return best;
}

}  // namespace cleave::planner
