// SPDX-License-Identifier: Apache-2.0
#include "planner/search/makes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/machine/device_names.h"
#include "planner/plan/kv_room.h"
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

// Of a plan's room for keys and values: where its users take more, the parts of the plan for as
// many users as possible are tried, too.
constexpr double kNearlyFull = 0.7;

using Parts = std::vector<std::vector<DeviceId>>;
using PlanOn = std::function<std::optional<Plan>(const Machine&, std::optional<int64_t>)>;

// Users in proportion to the weights, at least one each and `most` of each at most; there are as
// many as weights, or more. Empty where they have no room.
std::vector<int64_t> shared_out(int64_t users, const std::vector<double>& weights,
                                const std::vector<int64_t>& most) {
    std::vector<bool> is_full(weights.size(), false);
    std::vector<int64_t> shares(weights.size());
    for (bool again = true; std::exchange(again, false);) {
        int64_t left = users;
        double all = 0;
        for (size_t p = 0; p < weights.size(); ++p) {
            if (is_full[p]) left -= most[p];
            if (!is_full[p]) all += weights[p];
        }
        for (size_t p = 0; p < weights.size(); ++p) {
            if (is_full[p]) continue;
            const double share = all > 0 ? static_cast<double>(left) * weights[p] / all : 0;
            is_full[p] = share >= static_cast<double>(most[p]);
            again = again || is_full[p];
            shares[p] = is_full[p] ? most[p] : std::max<int64_t>(1, static_cast<int64_t>(share));
        }
    }
    // What rounding took or gave.
    for (int64_t left = users - std::accumulate(shares.begin(), shares.end(), int64_t{0});
         left != 0; left += left > 0 ? -1 : 1) {
        size_t largest = shares.size();
        for (size_t p = 0; p < shares.size(); ++p)
            if ((left < 0 || shares[p] < most[p]) &&
                (largest == shares.size() || shares[p] > shares[largest]))
                largest = p;
        if (largest == shares.size()) return {};
        shares[largest] += left > 0 ? 1 : -1;
    }
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

// Plans of the parts for shares of the users; of as many as each chooses without a number.
class PartsPlanner {
public:
    PartsPlanner(const Machine& machine, const Parts& parts, std::optional<int64_t> users,
                 const PlanOn& plan_on)
        : machines_(parts_of(machine, parts)),
          users_(users),
          are_few_(machine.devices.size() <= kSomeDevices),
          plan_on_(plan_on),
          most_(parts.size(), INT64_MAX) {
        for (const Machine& part : machines_) {
            weights_.push_back(0);
            for (const DeviceInfo& d : part.devices)
                weights_.back() += static_cast<double>(d.memory_bandwidth);
        }
    }

    // Nothing where no shares were found that all parts have a plan for; then `without` is a part
    // that has none at all, if there is one.
    std::optional<Plan> run() {
        if (users_ && *users_ < std::ssize(machines_)) return std::nullopt;
        if (!users_) return plan_shares();
        constexpr int kRounds = 3;  // each by the rates of the one before
        for (int round = 0; round < kRounds; ++round) {
            const std::optional<bool> fit = try_shares(weights_);
            if (!fit || (!*fit && (knows_room_ || !find_room()))) break;
        }
        // What is limited, memory or time, may be worth filling.
        if (!knows_room_ && are_few_) find_room();
        if (knows_room_ && !without)
            for (size_t p = 0; p < machines_.size(); ++p) {
                std::vector<double> first = weights_;
                first[p] = 1e9 * std::accumulate(first.begin(), first.end(), 0.0);
                try_shares(first);
            }
        return std::move(best_);
    }

    std::optional<size_t> without;

private:
    // Whether each part has a plan for its share; nothing where these were tried, or are none.
    std::optional<bool> try_shares(const std::vector<double>& weights) {
        const std::vector<int64_t> shares = shared_out(*users_, weights, most_);
        if (shares.empty() || !tried_.insert(shares).second) return std::nullopt;
        shares_ = shares;
        std::optional<Plan> plan = plan_shares();
        if (!plan) return false;
        if (!best_ || tokens_per_second(*plan) > tokens_per_second(*best_)) best_ = std::move(plan);
        return true;
    }

    std::optional<Plan> plan_shares() {
        std::vector<Plan> makes;
        for (size_t p = 0; p < machines_.size(); ++p) {
            std::optional<Plan> plan =
                plan_on_(machines_[p], users_ ? std::optional(shares_[p]) : std::nullopt);
            if (!plan && !users_) without = p;
            if (!plan) return std::nullopt;
            weights_[p] = tokens_per_second(*plan);
            makes.push_back(std::move(*plan));
        }
        return joined(std::move(makes));
    }

    // As many users as each part serves alone, and how fast. False where one serves none.
    bool find_room() {
        knows_room_ = true;
        for (size_t p = 0; p < machines_.size(); ++p) {
            const std::optional<Plan> plan = plan_on_(machines_[p], std::nullopt);
            if (!plan) without = p;
            if (!plan) return false;
            most_[p] = served_users(*plan);
            weights_[p] = tokens_per_second(*plan);
        }
        return true;
    }

    const std::vector<Machine> machines_;
    const std::optional<int64_t> users_;
    const bool are_few_;
    const PlanOn& plan_on_;
    std::vector<double> weights_;  // in whose proportion users are shared
    std::vector<int64_t> most_;    // users that a part has room for
    bool knows_room_ = false;
    std::vector<int64_t> shares_;
    std::set<std::vector<int64_t>> tried_;
    std::optional<Plan> best_;
};

// `may_leave`: a part that has no plan is left unused, where others have one.
std::optional<Plan> plan_parts(const Machine& machine, Parts parts, std::optional<int64_t> users,
                               bool may_leave, const PlanOn& plan_on) {
    while (!parts.empty()) {
        PartsPlanner planner(machine, parts, users, plan_on);
        std::optional<Plan> plan = planner.run();
        if (plan || !may_leave || !planner.without) return plan;
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(*planner.without));
    }
    return std::nullopt;
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
            fmt::format("; unused: {} (no replica on them fits, keeps the limits and brings 3 %)",
                        folded_names(left));
}

// As the search compares plans: each further make is to bring 3 % more tokens.
double worth(const Plan& plan) {
    double hardest = 1;
    for (const Plan* make : makes_of(plan)) hardest = std::max(hardest, hardship(make->stages));
    constexpr double kGain = 1.03;
    return tokens_per_second(plan) /
           (hardest * std::pow(kGain, static_cast<double>(plan.others.size())));
}

// Whether more users would find room in few of the plan's forms.
bool is_nearly_full(const Plan& plan) {
    const std::optional<KvBound> bound = kv_bound(plan);
    return bound && static_cast<double>(plan.kv_pool.num_blocks) >
                        kNearlyFull * static_cast<double>(bound->num_blocks);
}

// Without the parts of which the plan has a make of less than 3 % of its tokens.
Parts without_slow(const Parts& parts, const Machine& machine, const Plan& plan) {
    std::set<std::string> slow;
    for (const Plan* make : makes_of(plan)) {
        Plan alone = *make;
        alone.others.clear();
        if (tokens_per_second(alone) < 0.03 * tokens_per_second(plan))
            for (const DeviceInfo& d : make->machine.devices) slow.insert(d.name);
    }
    Parts rest = parts;
    std::erase_if(rest, [&](const std::vector<DeviceId>& part) {
        return slow.contains(machine.device(part.front()).name);
    });
    return rest;
}

// All devices but those of one part.
std::vector<DeviceId> all_but(const Parts& parts, size_t one) {
    std::vector<DeviceId> rest;
    for (size_t p = 0; p < parts.size(); ++p)
        if (p != one) rest.insert(rest.end(), parts[p].begin(), parts[p].end());
    std::ranges::sort(rest);
    return rest;
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
    return {words_of_shape(plan), plan.prediction.objective_ns, tokens_per_second(plan),
            plan.prediction.serving.ttft_ns};
}

}  // namespace

bool may_have_makes(const Machine& machine, const PlanOptions& options) {
    const ObjectiveRow& row = row_of(options.objective);
    return options.replicas == 0 && options.tensor_parallel == 0 && options.pipeline_stages == 0 &&
           options.pins.empty() && row.serves && !row.fewest_for_load &&
           (machine.devices.size() <= kSomeDevices ? machine.devices.size() > 1
                                                   : kinds_of(machine).size() > 1);
}

std::optional<Plan> plan_makes(const Machine& machine, const Plan* alike,
                               std::optional<int64_t> users, const PlanOn& plan_on,
                               const std::function<std::optional<Plan>()>& plan_outside) {
    constexpr size_t kMostKinds = 4;
    const bool are_few = machine.devices.size() <= kSomeDevices;
    std::optional<Plan> best;
    const auto consider = [&](const Parts& parts, bool may_leave) {
        std::optional<Plan> plan = plan_parts(machine, parts, users, may_leave, plan_on);
        if (plan && (!best || worth(*plan) > worth(*best))) best = std::move(plan);
    };
    if (const Parts kinds = kinds_of(machine); kinds.size() > 1 && kinds.size() <= kMostKinds) {
        consider(kinds, true);
        if (best)
            if (const Parts rest = without_slow(kinds, machine, *best);
                !rest.empty() && rest.size() < kinds.size())
                consider(rest, true);
        for (size_t k = 0; are_few && k < kinds.size(); ++k) consider({all_but(kinds, k)}, false);
    }
    const auto consider_spare = [&](const Plan& of) {
        if (const Parts parts = used_and_spare(machine, of); !parts.empty()) consider(parts, false);
    };
    if (alike && are_few) consider_spare(*alike);
    if (are_few)
        if (const std::optional<Plan> outside = plan_outside()) consider_spare(*outside);
    // What as many users as have room are given may be what these have room in.
    if (users && are_few && (!alike || is_nearly_full(*alike)))
        if (const std::optional<Plan> most = plan_on(machine, std::nullopt)) consider_spare(*most);
    if (!best || (alike && worth(*best) <= worth(*alike))) return std::nullopt;
    // In which every user has a token, on average.
    best->prediction.objective_ns =
        std::llround(1e9 * static_cast<double>(served_users(*best)) / tokens_per_second(*best));
    if (alike) explain_replicas({scored(*alike), scored(*best)}, 1, {}, *best);
    explain_left(machine, *best);
    return best;
}

}  // namespace cleave::planner
