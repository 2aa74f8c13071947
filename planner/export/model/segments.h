// SPDX-License-Identifier: Apache-2.0
// A plan's steps cut into programs for tools that run one device's graph at a time. In: a proven
// plan. Out: segments, each a run of operators of one device between two exchanges, and the
// exchanges (transfers, all-reduces, gathers), in an order in which both can run. Taken from the
// prefill steps: placement is the same in both phases.
//
// Invariants: every operator of a launch is in exactly one segment of that launch's device; what an
// exchange reads is an output of a segment before it; the epilogue of an all-reduce begins the next
// segment of each member, so that the exchange itself only moves and adds; a segment whose results
// nobody reads is left out.
#pragma once

#include <string>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::planner {

// A value on a device, under a name that is unique there: "layers.0.o_proj.partial". The name of
// the operator that makes it, "input_ids" for token ids and "logits" for the logits.
struct DeviceTensor {
    std::string name;
    ValueId value;
    Range columns;  // of the last dimension; 0 to 0 for token ids
};

struct SegmentOp {
    OpId op;
    const Compute* compute = nullptr;  // its launch; null: the epilogue of an all-reduce
    DeviceTensor result;        // of `op`, named; an operator inside a launch keeps its own name
    WeightShardId weight = {};  // of a norm in an epilogue; others have those of their launch
};

struct Segment {
    DeviceId device;
    int stage = 0;
    std::vector<SegmentOp> ops;
    std::vector<DeviceTensor> inputs, outputs;
    std::vector<KvSlabId> appends;  // KV that it extends
    std::vector<KvSlabId> reads;    // KV that an earlier segment of the device extended
};

struct Exchange {
    enum class Kind : uint8_t { kTransfer, kAllReduce, kAllGather } kind = Kind::kTransfer;
    std::vector<DeviceId> from, to;
    std::vector<DeviceTensor> sources;  // one per `from`, in the order of addition or of columns
    DeviceTensor result;                // on each of `to`
    SumForm form = SumForm::kOneShot;
    int stage = 0;
};

struct ScheduleItem {
    int segment = -1, exchange = -1;  // exactly one is set
};

struct Schedule {
    std::vector<Segment> segments;
    std::vector<Exchange> exchanges;
    std::vector<ScheduleItem> order;
    DeviceTensor logits;  // on Plan::output_device
};

// UserError naming the operator for graphs with operators that are none of a Llama's.
Schedule make_schedule(const Plan& plan);

// The shard of weight `i` of a segment's operator. Null: another device adds it, or there is none.
const WeightShard* find_shard(const Plan& plan, const SegmentOp& item, size_t i);
// InternalError where there is none.
const WeightShard& shard_of(const Plan& plan, const SegmentOp& item, size_t i);

// Name of the KV of one layer: its append's layer.
int layer_of(const Plan& plan, const KvSlab& slab);

}  // namespace cleave::planner
