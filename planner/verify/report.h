// SPDX-License-Identifier: Apache-2.0
// What the parts of the verifier share: the list of violations, sets of ranges, and what the walk
// over a phase's steps learns. Nothing here knows how a plan is made; every rule is stated from the
// meaning of the operators. Parts run in the order of find_violations; all but the first may index
// freely.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "planner/plan/plan.h"
#include "planner/verify/verify.h"

namespace cleave::planner::verify {

class Report {
public:
    template <class... Args>
    void add(std::string rule, fmt::format_string<Args...> format, Args&&... args) {
        violations_.push_back({std::move(rule), fmt::format(format, std::forward<Args>(args)...)});
    }
    size_t size() const { return violations_.size(); }
    std::vector<Violation> take() { return std::move(violations_); }

private:
    std::vector<Violation> violations_;
};

// ---- Ranges

inline bool overlaps(Range a, Range b) {
    return std::max(a.begin, b.begin) < std::min(a.end, b.end);
}
inline bool contains(Range outer, Range inner) {
    return inner.empty() || (outer.begin <= inner.begin && inner.end <= outer.end);
}

// A union of ranges, kept sorted, disjoint and merged.
class RangeSet {
public:
    // Adds `range`; returns whether some of it was there already.
    bool add(Range range);
    bool covers(Range range) const;
    bool overlaps(Range range) const;
    const std::vector<Range>& ranges() const { return ranges_; }
    friend bool operator==(const RangeSet&, const RangeSet&) = default;

private:
    std::vector<Range> ranges_;
};

// Whether the rectangles together cover [0, rows) x [0, columns).
struct Rectangle {
    Range rows, columns;
};
bool cover_whole(const std::vector<Rectangle>& rectangles, Range rows, Range columns);

// ---- Values

// Of the last dimension, the one that may be split; {0, 1} for a value with one dimension.
Range whole_columns(const Graph& graph, ValueId value);
Range columns_of(const PlacedValue& placed);

// Bytes of a placed value at the phase's largest batch; -1 when a dimension is not the workload's
// to give.
int64_t placed_bytes(const Plan& plan, const PlacedValue& placed, bool is_prefill);
DType placed_dtype(const Plan& plan, ValueId value);

std::string range_text(Range range);

// Whether fast products round what they multiply with such a shard to int8: integer codes whose
// scales serve whole groups of 32.
bool meets_int8(const importer::Weight& weight, DType dtype);

// ---- Sizes of a file: the largest number where a result is beyond 64 bits. All but negative.

int64_t product(std::initializer_list<int64_t> factors);
int64_t sum(int64_t a, int64_t b);
int64_t bytes_of(DType dtype, int64_t elements);

// ---- What the walk learns

// One execution of (a part of) an operator: the elements of its output, and of the axis it sums
// over (input features of a Linear, vocabulary rows of an Embedding; {0, 1} for the others).
// Attention and KvAppend count heads.
struct Execution {
    OpId op;
    DeviceId device;
    size_t step = 0;
    Range columns, contraction;
};

struct Lifetime {
    int64_t first_write = -1;  // step; -1 for an input of the phase
    int64_t last_read = -1;
    bool written = false;
};

struct PhaseTrace {
    std::vector<Execution> executions;
    std::vector<Lifetime> lifetimes;  // of Phase::values
    std::vector<RangeSet> appended;   // heads, of Plan::kv_slabs
    std::vector<bool> weights_used, ropes_used;
};

// ---- Parts, in order

// Every index of the plan is in range and the graph is well formed. False: nothing else may look.
bool check_indices(const Plan& plan, Report& report);
// Stages, weights, tables, KV slabs and buffers, without regard to steps.
void check_placement(const Plan& plan, Report& report);
// One pass over the steps in order.
PhaseTrace check_steps(const Plan& plan, bool is_prefill, Report& report);
// Every operator was executed, as often as its replicas allow; the phases agree about the cache.
void check_coverage(const Plan& plan, bool is_prefill, const PhaseTrace& trace, Report& report);
void check_phases_agree(const Plan& plan, const PhaseTrace& prefill, const PhaseTrace& decode,
                        Report& report);
// Buffers that are alive together do not overlap; the accounts add up and fit.
void check_liveness(const Plan& plan, bool is_prefill, const PhaseTrace& trace, Report& report);
void check_account(const Plan& plan, Report& report);
// Replicas, and users for whom there is memory.
void check_serving(const Plan& plan, Report& report);

}  // namespace cleave::planner::verify
