// SPDX-License-Identifier: Apache-2.0
#include "planner/search/makes.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/machine/device_names.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/used_devices.h"
#include "planner/search/explain.h"
#include "planner/search/propose.h"
#include "planner/search/replicas.h"
#include "planner/search/simplicity.h"

namespace cleave::planner {
namespace {

// The searches of the parts take together about as long as the first one, and three rounds. Of more
// devices than these, what a plan leaves unused is no part.
constexpr size_t kSomeDevices = 32;

using Parts = std::vector<std::vector<DeviceId>>;
using PlanOn = std::function<std::optional<Plan>(const Machine&, int64_t)>;

// Users in proportion to the weights, at least one each. There are as many as weights, or more.
std::vector<int64_t> shared_out(int64_t users, const std::vector<double>& weights) {
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<int64_t> shares;
    for (const double weight : weights)
        shares.push_back(std::max<int64_t>(
            1, all > 0 ? static_cast<int64_t>(static_cast<double>(users) * weight / all) : 0));
    // What rounding took or gave; the largest share is above one while the sum is too large.
    for (int64_t left = users - std::accumulate(shares.begin(), shares.end(), int64_t{0});
         left != 0; left += left > 0 ? -1 : 1)
        *std::ranges::max_element(shares) += left > 0 ? 1 : -1;
    return shares;
}

// The fastest is the first.
Plan joined(std::vector<Plan> makes) {
    std::ranges::stable_sort(makes, std::greater<>(), tokens_per_second);
    Plan plan = std::move(makes.front());
    plan.others.assign(std::make_move_iterator(makes.begin() + 1),
                       std::make_move_iterator(makes.end()));
    return plan;
}

// `may_leave`: a part that has no plan is left unused, where others have one.
std::optional<Plan> plan_parts(const Machine& machine, const Parts& parts, int64_t users,
                               bool most_users, bool may_leave, const PlanOn& plan_on) {
    if (!most_users && users < std::ssize(parts)) return std::nullopt;
    const std::vector<Machine> machines = parts_of(machine, parts);
    std::vector<double> weights;
    for (const Machine& part : machines) {
        weights.push_back(0);
        for (const DeviceInfo& d : part.devices)
            weights.back() += static_cast<double>(d.memory_bandwidth);
    }
    std::optional<Plan> best;
    std::vector<int64_t> last;
    constexpr int kRounds = 3;  // each by the rates of the one before
    for (int round = 0; round < kRounds; ++round) {
        const std::vector<int64_t> shares =
            most_users ? std::vector<int64_t>(parts.size(), users) : shared_out(users, weights);
        if (shares == last) break;
        last = shares;
        std::vector<Plan> makes;
        for (size_t p = 0; p < machines.size(); ++p) {
            std::optional<Plan> plan = plan_on(machines[p], shares[p]);
            if (!plan && !best && may_leave && parts.size() > 1) {
                Parts rest = parts;
                rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(p));
                return plan_parts(machine, rest, users, most_users, may_leave, plan_on);
            }
            if (!plan) return best;
            weights[p] = tokens_per_second(*plan);
            makes.push_back(std::move(*plan));
        }
        Plan plan = joined(std::move(makes));
        if (!best || tokens_per_second(plan) > tokens_per_second(*best)) best = std::move(plan);
    }
    return best;
}

// The devices of `plan`, and those that it leaves unused; none where there are none of them.
Parts used_and_spare(const Machine& machine, const Plan& plan) {
    const std::set<std::string> taken = used_device_names(plan);
    std::vector<DeviceId> used, spare;
    for (size_t d = 0; d < machine.devices.size(); ++d)
        (taken.contains(machine.devices[d].name) ? used : spare).emplace_back(d);
    if (used.empty() || spare.empty()) return {};
    return {used, spare};
}

// Says which devices are in none of its replicas.
void explain_left(const Machine& machine, Plan& plan) {
    const std::vector<std::string> names = all_device_names(plan);
    std::vector<std::string> left;
    for (const DeviceInfo& d : machine.devices)
        if (std::ranges::find(names, d.name) == names.end()) left.push_back(d.name);
    if (!left.empty())
        plan.why.binding +=
            fmt::format("; unused: {} (no replica of their kind fits and keeps the limits)",
                        folded_names(left));
}

// As the search compares plans.
double worth(const Plan& plan) {
    double hardest = 1;
    for (const Plan* make : makes_of(plan)) hardest = std::max(hardest, hardship(make->stages));
    return tokens_per_second(plan) / hardest;
}

std::string words_of_shape(const Plan& plan) {
    std::string text;
    for (const Plan* make : makes_of(plan)) {
        text += (text.empty() ? "" : " and ") + shape_name(make->stages);
        if (make->num_alike() > 1) text += fmt::format(" in {} replicas", make->num_alike());
    }
    return text;
}

ScoredReplicas scored(const Plan& plan) {
    return {words_of_shape(plan), plan.prediction.objective_ns, tokens_per_second(plan)};
}

}  // namespace

bool may_have_makes(const Machine& machine, const PlanOptions& options) {
    const ObjectiveRow& row = row_of(options.objective);
    return options.replicas == 0 && options.tensor_parallel == 0 && options.pipeline_stages == 0 &&
           options.pins.empty() && row.serves && !row.fewest_for_load &&
           (machine.devices.size() <= kSomeDevices ? machine.devices.size() > 1
                                                   : kinds_of(machine).size() > 1);
}

std::optional<Plan> plan_makes(const Machine& machine, const Plan* alike, bool most_users,
                               int64_t users, const PlanOn& plan_on) {
    constexpr double kGain = 1.03;
    constexpr size_t kMostKinds = 4;
    std::optional<Plan> best;
    const auto consider = [&](const Parts& parts, bool may_leave) {
        std::optional<Plan> plan =
            plan_parts(machine, parts, users, most_users, may_leave, plan_on);
        if (plan && (!best || worth(*plan) > worth(*best))) best = std::move(plan);
    };
    if (const Parts kinds = kinds_of(machine); kinds.size() > 1 && kinds.size() <= kMostKinds)
        consider(kinds, true);
    if (alike && machine.devices.size() <= kSomeDevices)
        if (const Parts parts = used_and_spare(machine, *alike); !parts.empty())
            consider(parts, false);
    if (!best || (alike && worth(*best) < kGain * worth(*alike))) return std::nullopt;
    // In which every user has a token, on average.
    best->prediction.objective_ns =
        std::llround(1e9 * static_cast<double>(served_users(*best)) / tokens_per_second(*best));
    if (alike) explain_replicas({scored(*alike), scored(*best)}, 1, {}, *best);
    explain_left(machine, *best);
    return best;
}

}  // namespace cleave::planner
