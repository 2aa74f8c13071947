// SPDX-License-Identifier: Apache-2.0
// planner/plan/plan.h <-> planner/file/plan.proto, field by field; the two directions of a type
// are side by side. Nothing is checked but what a field can hold: enumerations are in range.
// Indices are the reader's to check.
#pragma once

#include <optional>
#include <vector>

#include "planner/file/plan.pb.h"
#include "planner/plan/plan.h"
#include "runtime/base/errors.h"

namespace cleave::planner::codec {

namespace pb = cleave::plan::v1;

// An enumeration read from a file, at most `last`. UserError otherwise.
template <class Enum>
void take(uint32_t number, Enum last, Enum& out) {
    if (number > static_cast<uint32_t>(last))
        throw UserError("it holds {} where kinds end at {}", number, static_cast<int>(last));
    out = static_cast<Enum>(number);
}
inline void take(uint32_t number, DType& out) { take(number, kLastDType, out); }

template <class Id, class List>
void put_ids(const std::vector<Id>& ids, List* out) {
    for (Id id : ids) out->Add(id.value);
}
template <class Id, class List>
void take_ids(const List& in, std::vector<Id>& ids) {
    for (auto id : in) ids.push_back(Id(id));
}

inline void put(importer::Range r, pb::Range* out) {
    out->set_begin(r.begin);
    out->set_end(r.end);
}
inline void take(const pb::Range& in, importer::Range& r) { r = {in.begin(), in.end()}; }

void put(const Graph& graph, pb::Graph* out);
void take(const pb::Graph& in, Graph& graph);
void put(const Machine& machine, pb::Machine* out);
void take(const pb::Machine& in, Machine& machine);
void put(const Workload& workload, pb::Workload* out);
void take(const pb::Workload& in, Workload& workload);
void put(const PlanOptions& options, pb::PlanOptions* out);
void take(const pb::PlanOptions& in, PlanOptions& options);
void put(const Phase& phase, pb::Phase* out);
void take(const pb::Phase& in, Phase& phase);
void put(const Plan& plan, pb::Plan* out);
void take(const pb::Plan& in, Plan& plan);

}  // namespace cleave::planner::codec
