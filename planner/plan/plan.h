// SPDX-License-Identifier: Apache-2.0
// The Plan: one placement and two step lists (prefill, decode). Artefact of planner/; what codegen
// compiles and the runtime executes, to the letter.
//
// Invariants (proved by planner/verify/verify.h without the planner's code):
//  - every operand of a step is a PlacedValue that an earlier step of the same phase produced, on
//  the device
//    that needs it; a value reaches another device only through a Transfer or a Collective;
//  - each element of each output is computed exactly once per place that holds it; partial sums
//  meet in
//    exactly one Collective;
//  - collectives of overlapping groups are in the same order on every member;
//  - every buffer has a device, an arena, an offset and a size; live buffers do not overlap;
//  - bytes and times are integers; the same input and seed give the same plan, byte for byte.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "importer/graph/graph.h"
#include "planner/machine/machine.h"
#include "planner/plan/workload.h"

namespace cleave::planner {

using importer::Graph;
using importer::OpId;
using importer::Range;
using importer::RopeTableId;
using importer::ValueId;
using importer::WeightId;

using StepId = Index<struct StepTag>;
using BufferId = Index<struct BufferTag>;
using PlacedId = Index<struct PlacedTag>;  // of Phase::values
using WeightShardId = Index<struct WeightShardTag>;
using RopeShardId = Index<struct RopeShardTag>;
using KvSlabId = Index<struct KvSlabTag>;

// [begin, end) per dimension. A symbolic dimension (num_tokens) is always whole: {0, kWhole}.
inline constexpr int64_t kWhole = INT64_MAX;
using Box = std::vector<Range>;

// ---- Memory
// --------------------------------------------------------------------------------------

enum class Arena : uint8_t { kWeights, kKv, kActivations, kStaging, kScratch };

struct Buffer {
    DeviceId device;
    Arena arena = Arena::kActivations;
    int64_t offset = 0;  // within the device's arena, multiple of 256
    int64_t size = 0;    // bytes at the workload's largest num_tokens
    std::string name;
};

struct WeightShard {
    WeightId weight;
    DeviceId device;
    Range rows, columns;        // of the logical [out, in] shape; columns unused for vectors
    DType dtype = DType::kF32;  // as stored on the device
    BufferId buffer;            // dense row major [rows.size(), columns.size()]
};

// cos then sin, f32, each [context, rotary_dim / 2].
struct RopeShard {
    RopeTableId table;
    DeviceId device;
    BufferId buffer;
};

// K then V of some KV heads of one layer: each [num_slots, kv_heads.size(), context, head_dim],
// dtype kv_dtype.
struct KvSlab {
    ValueId state;
    DeviceId device;
    Range kv_heads;
    int64_t head_dim = 0;  // of K
    int64_t v_head_dim = 0;
    BufferId buffer;
};

// ---- Steps
// ---------------------------------------------------------------------------------------

// A value's box on one device. Row major [rows, box of the last dimension] in its buffer,
// activation dtype.
struct PlacedValue {
    ValueId value;
    DeviceId device;
    Box box;
    bool partial = false;
    BufferId buffer;  // invalid for an empty box
};

// What one launch computes; each is a template of codegen/. Ops in `Compute::ops` are in graph
// order.
enum class KernelKind : uint8_t {
    kEmbedding,          // Embedding
    kNormQkvRopeAppend,  // [RmsNorm,] Linear q, k, v [, RmsNorm q, k] [, Rope q, k], KvAppend;
                         // output: q
    kAttention,          // Attention
    kLinear,  // Linear [, Scale] [, Add] [, epilogue]: output and down projections with residual
    kNormGateUp,  // [RmsNorm,] Linear gate, Linear up, GatedActivation [, epilogue]
    kNormLinear,  // [SelectTokens,] [RmsNorm,] Linear [, epilogue]: lm_head
    kRmsNorm,     // what no pattern takes; epilogue: a chain of elementwise operators
    kRope,
    kKvAppend,
    kGatedActivation,
    kAdd,
    kScale,
    kSelectTokens,
    kOpaque,
    kTensor,  // Tensor: one ONNX operator over whole tensors
};

// What one pass of a phase sees.
struct PassPoint {
    int64_t num_tokens = 0, num_outputs = 0;
    int64_t num_keys = 0;  // summed over tokens: the keys that each sees
};

// c + t * num_tokens + o * num_outputs + p * (sum over tokens of keys seen): bytes or operations of
// a step.
struct Amount {
    int64_t constant = 0;
    int64_t per_token = 0;
    int64_t per_output = 0;
    int64_t per_key = 0;
    int64_t at(const PassPoint& p) const {
        return constant + per_token * p.num_tokens + per_output * p.num_outputs +
               per_key * p.num_keys;
    }
};

// Tile chosen by arithmetic on DeviceLimits; meaning per kernel kind, see codegen/README.md.
struct Tile {
    int64_t rows = 0;  // output features an item or block computes
    int64_t tokens = 0;
    int64_t depth = 0;
    int64_t threads = 0;
    int64_t splits = 1;  // of the context, for decode attention
    int64_t shared_bytes = 0;

    bool operator==(const Tile&) const = default;
};

// How the blocks of a GPU's product of many tokens come by its activations.
enum class ActivationPath : uint8_t {
    kConverted,  // through registers: normalised and narrowed to the type that weights are staged
                 // as
    kCopied,     // asynchronously, as they lie: of that type, with nothing to do before the product
    kPrepared,  // likewise from `scratch`, where a launch in front leaves them selected, normalised
                // and narrowed
};

struct Compute {
    DeviceId device;
    KernelKind kernel = KernelKind::kOpaque;
    std::vector<OpId> ops;
    std::vector<PlacedId> inputs;  // in the order in which the fused ops consume outside values
    std::vector<PlacedId> outputs;
    std::vector<WeightShardId> weights;  // in the order of the ops' weights
    std::vector<RopeShardId> rope_tables;
    KvSlabId kv;
    Range heads;  // query heads, for attention and QKV steps
    Tile tile;
    BufferId scratch;  // invalid when none
    ActivationPath activations = ActivationPath::kConverted;
    Amount flops, weight_bytes, activation_bytes;
};

// kPeer: kernels of both devices, by the source's memory. All others: through staging memory of the
// host.
enum class Route : uint8_t { kSameMemory, kPeer, kHostStaged, kNetwork };

// Copies a box: destination's box contains source's box (a column block of a wider buffer is
// allowed).
struct Transfer {
    PlacedId source, destination;
    Route route = Route::kHostStaged;
    Amount bytes;
};

enum class CollectiveOp : uint8_t { kAllReduce, kAllGather };
enum class CollectiveImplementation : uint8_t { kOneShot, kTwoPhase, kRing, kVendor };
// What moves a collective's values: staging memory of the host, which is always right, whatever
// devices are in the group; kernels of the members, which read each other's memory; the vendor's
// library, which has the ring.
enum class Transport : uint8_t { kStaged, kPeer, kVendor };

// All-reduce: every contributor's partial box is summed in f32 in group order, then `epilogue` (the
// residual Add, and the RmsNorm that follows it) runs on each member. A member with no work is in
// `group` but contributes no input.
struct Collective {
    CollectiveOp op = CollectiveOp::kAllReduce;
    CollectiveImplementation implementation = CollectiveImplementation::kOneShot;
    Transport transport = Transport::kStaged;
    std::vector<DeviceId> group;  // every receiver, in device order; a ring's in ring order
    std::vector<PlacedId>
        contributions;  // partial values (all_reduce) or boxes (all_gather), in group order
    std::vector<OpId> epilogue;             // {}, {Add} or {Add, RmsNorm}
    std::vector<PlacedId> epilogue_inputs;  // per member, in group order: the residual, with an Add
    std::vector<WeightShardId> weights;  // per member, in group order: the norm's, with a RmsNorm
    std::vector<PlacedId>
        outputs;   // per member, in group order; with a RmsNorm, its per member after them
    Amount bytes;  // payload of one member
};

struct Step {
    std::variant<Compute, Transfer, Collective> action;
    int layer = -1;
    int stage = 0;
    int64_t predicted_ns = 0;  // alone, at the workload's point of this phase
    int64_t start_ns = 0;      // in the event simulation of one pass
    Amount link_bytes;         // moved between devices; 0 for compute

    const Compute* compute() const { return std::get_if<Compute>(&action); }
    const Transfer* transfer() const { return std::get_if<Transfer>(&action); }
    const Collective* collective() const { return std::get_if<Collective>(&action); }
};

struct Phase {
    std::vector<PlacedValue> values;
    std::vector<Step> steps;        // a valid execution order; StepId is the position
    std::vector<PlacedId> inputs;   // token ids where they are needed (no step produces them)
    std::vector<PlacedId> outputs;  // logits, whole, on `Plan::output_device`
};

struct Stage {
    std::vector<DeviceId> devices;
    OpId first_op, last_op;
    int first_layer = 0, last_layer = -1;  // of decoder layers; last < first: none
};

struct DeviceMemory {
    DeviceId device;
    int64_t capacity = 0;
    int64_t weights = 0, kv = 0, activations = 0, staging = 0, scratch = 0, reserved = 0;
    int64_t collectives =
        0;  // of the communicators of a vendor's library (planner/build/communicator_memory.h)
    int64_t needed() const {
        return weights + kv + activations + staging + scratch + reserved + collectives;
    }
    int64_t free() const { return capacity - needed(); }
};

struct Prediction {
    int64_t prefill_ns = 0;               // whole prompt, all chunks
    int64_t decode_ns_per_token = 0;      // at past = prompt + (context - prompt) / 2
    int64_t lower_bound_ns = 0;           // over all plans, of the objective
    int64_t objective_ns = 0;             // of this plan
    std::vector<int64_t> decode_busy_ns;  // per device
};

struct RunnerUp {
    std::string shape;  // "tp 2 x pp 2 (layers 0-10, 11-21)"
    int64_t objective_ns = 0;
    std::string why_not;
};

struct Why {
    std::string binding;  // what limits this plan: "memory of sim:a40[2]", "weights read on host"
    std::vector<RunnerUp> runners_up;
    std::vector<std::string> cuts;  // cost of each stage boundary
    int64_t metis_cost_ns = 0;      // objective with the METIS order, 0 when unused
    int64_t topological_cost_ns = 0;
    std::string metis;  // one line
};

// What a plan is made for.
struct PlanRequest {
    std::string graph_digest;
    Graph graph;  // without blobs' owner: weights by path, offset and length
    Machine machine;
    Workload workload;
    PlanOptions options;
};

// What the planner makes of a request: all that differs between the search's candidates.
struct PlanBody {
    std::vector<Stage> stages;
    DeviceId output_device;
    std::vector<Buffer> buffers;
    std::vector<WeightShard> weights;
    std::vector<RopeShard> rope_tables;
    std::vector<KvSlab> kv_slabs;
    Phase prefill, decode;
    std::vector<DeviceMemory> memory;  // one per device, in device order
    Prediction prediction;
    Why why;

    const Buffer& buffer(BufferId id) const { return buffers[id.index()]; }
    const Phase& phase(bool is_prefill) const { return is_prefill ? prefill : decode; }
};

struct Plan : PlanRequest, PlanBody {
    static constexpr int kFormatVersion = 1;
};

std::string_view kernel_kind_name(KernelKind kind);
std::string_view arena_name(Arena arena);
std::string_view route_name(Route route);
std::string_view collective_op_name(CollectiveOp op);
std::string_view collective_implementation_name(CollectiveImplementation implementation);
std::string_view transport_name(Transport transport);

}  // namespace cleave::planner
