// SPDX-License-Identifier: Apache-2.0
#include "planner/search/best_users.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "planner/analysis/storage.h"
#include "planner/plan/kv_room.h"
#include "planner/plan/plan_queries.h"
#include "planner/search/check_options.h"
#include "planner/search/simplicity.h"

namespace cleave::planner {

namespace {

class BestUsers {
public:
    BestUsers(const PlanOptions& options, int64_t bound, double least,
              std::function<std::optional<Found>(int64_t)> plan_for)
        : limits_(limits_of(options)),
          bound_(std::min(bound, kMostUsers)),
          least_(least),
          plan_for_(std::move(plan_for)) {}

    std::optional<Found> run() {
        if (!limited_) try_parts_of(bound_);
        if (!best_) {  // limits are kept by few, and little memory may hold no part of the bound
            best_ = plan_for_(1);
            if (!best_ || excess(limits_, best_->plan.prediction.serving) > 0)
                return std::move(best_);
            held_[1] = held_by(best_->plan);
            try_parts_of(most_users());
        }
        // The most users of any shape need not be those that the fastest one holds.
        for (int64_t last = 0; last != best_users();) {
            last = best_users();
            int64_t more = std::min(held_[last], kMostUsers);
            for (int tries = 0; tries < 3 && more - last > last / kFine && best_users() == last;
                 ++tries) {
                fits(more);
                more = last + (more - last) / 2;
            }
        }
        // Kernels have tiles of so many sequences: somewhat fewer may fill them, in other shapes,
        // too.
        if (const int64_t most = best_users(); most > kTile && is_near())
            fits(most / kTile * kTile);
        return std::move(best_);
    }

private:
    static constexpr int64_t kTile = 32;
    static constexpr double kNear = 0.9;         // of the best tokens/s: what may yet be the best
    static constexpr int64_t kMostUsers = 4096;  // of a replica: engines hold about a thousand
    static constexpr int64_t kFine = 64;         // a part in so many is not searched for

    static int64_t held_by(const Plan& plan) {
        const std::optional<KvBound> bound = kv_bound(plan);
        return bound ? kv_tokens(bound->num_blocks) / (plan.workload.blocks_per_slot() * kKvBlock)
                     : plan.workload.batch;
    }
    int64_t best_users() const { return best_ ? best_->plan.workload.batch : 0; }
    double rate() const { return best_ ? tokens_per_second(best_->plan) : 0; }

    bool is_near() const { return limited_ || rate() >= kNear / kFar * least_; }

    // The most are not always the fastest, and each shape has a most of its own: somewhat less than
    // a plan of fewer says, as more users take more working memory.
    void try_parts_of(int64_t most) {
        for (const int64_t eighths : {6, 7, 4, 2, 1}) {
            const int64_t fewer = most * eighths / 8;
            if (eighths == 7 && !is_near()) continue;
            if (fewer <= 1 || !fits(fewer)) continue;
            const int64_t held = std::min(held_[fewer], kMostUsers), full = held - held / kFine;
            if (full > fewer && std::abs(full - best_users()) > full / kFine) fits(full);
            if (!limited_ && (rate() < least_ || rates_[fewer] < kFar * rate())) break;
        }
    }

    // Whether so many fit and keep the limits.
    bool fits(int64_t users) {
        if (const auto known = held_.find(users); known != held_.end()) return known->second > 0;
        std::optional<Found> found = plan_for_(users);
        const bool good = found && excess(limits_, found->plan.prediction.serving) == 0;
        held_[users] = good ? held_by(found->plan) : 0;
        if (!good) return false;
        rates_[users] = tokens_per_second(found->plan);
        if (rates_[users] > rate()) best_ = std::move(found);
        return true;
    }

    int64_t most_users() {
        int64_t users = 1, too_many = kMostUsers + 1;
        for (int failures = 0;;) {  // A plan that holds more than it was made for says how many.
            int64_t next = std::min(held_[users], kMostUsers);
            // Of too many for the memory somewhat fewer fit most often: less 1/32, 1/8, 1/2.
            if (failures > 0)
                next = std::max(users + (too_many - users) / 2,
                                limited_ ? 0 : too_many - (too_many >> (7 - 2 * failures)));
            if (next - users > users / kFine) {
                const bool good = fits(next);
                (good ? users : too_many) = next;
                if (!good) failures = std::min(failures + 1, 3);
                continue;
            }
            // Another shape may hold more than this one.
            const int64_t more = std::min(users + users / 8 + 1, kMostUsers);
            if (failures > 0 || more == users || !fits(more)) return users;
            users = more;
        }
    }

    Limits limits_;
    int64_t bound_;
    double least_;
    std::function<std::optional<Found>(int64_t)> plan_for_;
    bool limited_ = limits_.ttft_ns > 0 || limits_.tpot_ns > 0;
    std::optional<Found> best_;
    std::map<int64_t, int64_t> held_;  // by number of users: of its plan; 0: none
    std::map<int64_t, double> rates_;  // tokens/s
};

}  // namespace

int64_t users_bound(const Analysis& analysis, const Machine& machine, Workload workload,
                    const PlanOptions& options) {
    check_options(analysis, machine, workload, options);  // settles the cache's type
    int64_t room = 0, position = 0;
    for (const DeviceInfo& d : machine.devices) room += d.memory_bytes - d.reserved_bytes;
    room -= weights_bytes(analysis.graph, workload);
    for (const importer::Op& op : analysis.graph.ops)
        if (op.kind == importer::OpKind::kKvAppend) {
            const auto& kv = op.as<importer::KvAppendAttrs>();
            position +=
                kv_position_bytes(*workload.kv_dtype, kv.num_kv_heads, kv.head_dim, kv.v_head_dim);
        }
    const int64_t user = position * workload.blocks_per_slot() * kKvBlock;
    return user > 0 ? std::max<int64_t>(room, 0) / user : INT64_MAX;
}

std::optional<Found> plan_for_most(const PlanOptions& options, int64_t bound, double least,
                                   std::function<std::optional<Found>(int64_t)> plan_for) {
    return BestUsers(options, bound, least, std::move(plan_for)).run();
}

}  // namespace cleave::planner
