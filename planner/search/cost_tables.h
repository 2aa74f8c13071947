// SPDX-License-Identifier: Apache-2.0
// In: an analysed Graph, a Machine, a Workload and an order of the devices. Out: for every
// contiguous range of that order, the cost and memory of every run of units as differences of
// prefix sums: what the search's dynamic programme reads. Equal operators and equal ranges are
// computed once. Memory is per member of the range.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "planner/analysis/analysis.h"
#include "planner/build/communicator_memory.h"
#include "planner/cost/launch_times.h"
#include "planner/cost/link_times.h"

namespace cleave::planner {

// How a range of unequal devices shares its work.
enum class ShareMode : uint8_t { kBySpeed, kByMemory };

// One class of device ranges; index u of a prefix vector is the sum over units before u.
struct RangeTable {
    StageShares shares;
    std::vector<int64_t> decode, prefill;  // ns of one pass, [num_units + 1]
    std::vector<int64_t> cost;  // decode x generated tokens + prefill x passes, [num_units + 1]
    std::vector<std::vector<int64_t>> memory;  // bytes, by distinct member, [num_units + 1]
    std::vector<int64_t> room;                 // by distinct member: what weights and KV may take
    std::vector<int> first_fit;  // by end, [num_units + 1]: from there on a run to it fits
    int64_t memory_of(size_t member, int from, int to) const {
        return memory[member][to] - memory[member][from];
    }
    // Whether units [from, to) fit every member.
    bool fits(int from, int to) const;
};

// As `slack`: weights, keys and values alone count. What fits no memory so fits none at all.
inline constexpr int64_t kShardsAlone = -1;
// The same in twice the memory: more placements, of which what is built is the judge.
inline constexpr int64_t kTwiceTheMemory = -2;

class CostTables {
public:
    // `slack`: parts per thousand of each device's memory kept free, for what the estimate of
    // activations misses; or one of those above.
    CostTables(const Analysis& analysis, const Machine& machine, const Workload& workload,
               std::vector<DeviceId> order, int64_t slack);

    int num_units() const { return static_cast<int>(analysis_.units.size()); }
    int num_devices() const { return static_cast<int>(order_.size()); }
    const std::vector<DeviceId>& order() const { return order_; }

    // Devices [first, first + count) of the order, as a stage has them: in the user's order.
    std::vector<DeviceId> devices_of(int first, int count) const;
    // Their costs. The reference stays valid as long as the tables.
    const RangeTable& range(int first, int count, ShareMode mode);
    bool unequal(int first, int count) const;
    // Whether the device before it is of another host.
    bool begins_host(int first) const;
    // Whether a device is in the range more than once.
    bool repeats(int first, int count) const;

    // Cost of bringing what crosses into each unit to the range that begins at device `first`; 0
    // for unit 0.
    const std::vector<int64_t>& entry_costs(int first, int count);
    // The same from the range that begins at device `from`.
    const std::vector<int64_t>& crossing_costs(int from, int first, int count);

    // The cost's parts put together for a whole pass: generated tokens and prefill passes.
    int64_t generated() const { return generated_; }
    int64_t passes() const { return passes_; }

private:
    struct GroupCost {
        int64_t decode = 0, prefill = 0;
        std::vector<int64_t> memory;  // by member
    };
    void classify_groups();
    void classify_devices();
    // ns in which the device alone would do the whole work.
    double time_alone(DeviceId device);
    StageShares choose_shares(int first, int count, ShareMode mode);
    GroupCost group_cost(const FusedGroup& group, const std::vector<DeviceId>& devices,
                         const StageShares& shares) const;
    int64_t shard_memory(const FusedGroup& group, const std::vector<Range>& work, size_t member,
                         const StageShares& shares) const;
    std::unique_ptr<RangeTable> make_range(const std::vector<DeviceId>& devices,
                                           StageShares shares) const;
    CommunicatorUse library_use(const std::vector<DeviceId>& devices) const;
    double domain_slowdown(const std::vector<DeviceId>& devices) const;
    int64_t fixed_bytes(size_t count) const;
    int64_t counted_again() const;

    const Analysis& analysis_;
    const Machine& machine_;
    Workload workload_;
    LinkTable links_;
    LaunchCosts launches_;
    std::vector<DeviceId> order_;
    bool repeats_ = false;  // a device is in the order more than once
    int64_t slack_;
    int64_t generated_, passes_;
    PassPoint decode_point_, prefill_point_;
    std::vector<int> group_class_, device_class_;  // by group; by DeviceId
    bool hosts_tell_links_ = false;                // beside the classes of two devices
    std::map<int, double> time_alone_;             // by device class
    std::vector<int> class_example_;               // a group of each class
    std::vector<std::pair<int64_t, int64_t>>
        crossing_;  // bytes into each unit, of a decode and a prefill pass
    std::map<std::tuple<int, int, int>, std::vector<int64_t>> entry_;
    std::map<std::vector<int64_t>, std::unique_ptr<RangeTable>> ranges_;
    std::map<std::tuple<int, int, int>, const RangeTable*> by_place_;
};

}  // namespace cleave::planner
