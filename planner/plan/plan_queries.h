// SPDX-License-Identifier: Apache-2.0
// What the text and JSON views of a plan share: a phase's point, the bytes that cross each link,
// and the names of steps. In: a sound plan. All figures are of one pass of a phase at its
// workload's point.
#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::planner {

// The pass at which steps are quoted: the first prefill chunk, or one token of every sequence at
// decode_past.
PassPoint pass_point(const Plan& plan, bool is_prefill);

// Bytes that go from one device to another in one pass, by the pattern of each collective's form.
using LinkTraffic = std::map<std::pair<DeviceId, DeviceId>, int64_t>;
LinkTraffic link_traffic(const Plan& plan, bool is_prefill);

// Of a step: every device that takes part, each once; the value it makes; the kernel, route or
// form of a collective, which is "vendor" for a gather by the vendor's library.
std::vector<DeviceId> step_devices(const Phase& phase, const Step& step);
ValueId step_value(const Plan& plan, const Phase& phase, const Step& step);
std::string step_kind(const Step& step);
std::string step_implementation(const Plan& plan, const Phase& phase, const Step& step);
int64_t step_bytes(const Step& step, const PassPoint& point);

// "peer", or what a staged transfer crosses: "same_memory", "network", or else "host_staged".
std::string_view route_name(const Plan& plan, const Phase& phase, const Transfer& transfer);

// "decode step 12 (all_reduce of layers.0.o_proj)": how messages name a step.
std::string step_label(const Plan& plan, bool is_prefill, StepId step);

// The buffer of `device` with that role; invalid where it has none.
BufferId find_buffer(const Plan& plan, DeviceId device, BufferRole role);
// Where the output device finds the tokens of the largest logits itself. A plan has it where that
// device is a GPU by its limits (real, of the catalogue or imitated: a host's logits are in reach
// of the host) and its outputs are a language model's logits; invalid elsewhere.
inline BufferId tokens_buffer(const Plan& plan) {
    return find_buffer(plan, plan.output_device, BufferRole::kChosenTokens);
}

// How many hosts the stages' devices are on.
int64_t nodes_used(const Plan& plan);

// The plan and its others, each a plan of replicas that are alike.
std::vector<const Plan*> makes_of(const Plan& plan);

// Which of them replica 0 to num_replicas() - 1 is of, and its number there: 0, then the copies.
struct ReplicaOfMake {
    const Plan& make;
    int64_t number;
};
ReplicaOfMake find_replica(const Plan& plan, int64_t replica);

// At once, of all replicas; 0: many users are not the objective.
int64_t served_users(const Plan& plan);

// The least and the most of a plan's makes.
std::pair<int64_t, int64_t> range_of_makes(const Plan& plan, int64_t Serving::* time);

// Sequences of all replicas together, of which each has its slot.
int64_t sequences_at_once(const Plan& plan);

// A replica by itself: the plan on its machine, without copies, for its part of the users.
Plan replica_plan(const Plan& plan, int64_t replica);

// Of a plan that is to be carried out as it is, by what runs one replica alone. UserError where it
// has several; `what` begins the message: "a session runs".
void demand_one_replica(const Plan& plan, std::string_view what);

// What each buffer holds, in their order: "layers.0.q_proj.weight", "input.x", "staging.exchange".
std::vector<std::string> buffer_names(const Plan& plan);

// Numbers of sequences that GPUs have kernels of decode for: 1 and 8, where these are fewer than
// the batch, and the batch. A pass takes those of the least that holds its rows.
std::vector<int64_t> decode_widths(const Workload& workload);
// Whether a launch of the plan has several.
bool decodes_by_widths(const Plan& plan);

// The int32 arrays of a batch on every device, and the numbers of each at most.
struct BatchBuffer {
    BufferRole role;
    int64_t count = 0;
    int64_t bytes() const { return 4 * count; }
};
std::array<BatchBuffer, 5> batch_buffers(const Workload& workload);
// And the one of a device that has KV slabs, which changes more seldom.
BatchBuffer block_table(const Workload& workload);
bool has_kv(const Plan& plan, DeviceId device);
// How many positions, with its own, a token sees at most in any layer; 0: all before it.
int64_t longest_window(const Graph& graph);

// Whether the host's cores do a device's work: a host, or a GPU that it imitates.
inline bool is_on_cores(DeviceKind kind) {
    return kind == DeviceKind::kHost || kind == DeviceKind::kSimt;
}
// How many threads each device gets of `cores` of the host. The devices of a stage that compute
// there divide the cores, the first ones take what is left
// over, and each has one at least. Stages work one after the other on a token, so each divides all
// cores; a device of several stages has its largest share. 0 for devices that compute elsewhere.
std::vector<int64_t> core_shares(const Plan& plan, int64_t cores);

// Type of a value on devices: int32 token ids, f32 logits, activations as the workload says,
// anything else its own.
DType placed_dtype(const importer::Value& value, const Workload& workload);

// The weights' dtype on devices: of the largest share of their bytes.
DType weights_dtype(const Plan& plan);

// Of all users, where the plan serves many; else of one batch alone.
double tokens_per_second(const Plan& plan);
// objective / lower bound - 1; 0 without a bound.
double gap(const Plan& plan);

// Of the devices that the plan uses, of all replicas, in millionths an hour; 0 where one of them
// has no price.
int64_t price_micros_per_hour(const Plan& plan);
// Of a million tokens at that price and at tokens_per_second; 0 where there is no price.
double cost_per_million_tokens(const Plan& plan);

// How query heads are shared among the devices of the widest tensor-parallel stage, in words; empty
// without such a stage.
std::string head_split(const Plan& plan);

}  // namespace cleave::planner
