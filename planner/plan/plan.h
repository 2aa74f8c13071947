// SPDX-License-Identifier: Apache-2.0
// The Plan: one placement of a Graph on the devices of a Machine, and two lists of steps, prefill
// and decode. Artefact of planner/. codegen compiles each Compute step and the runtime executes all
// of them as they are. Plain values: a type refers to another by its position in a list.
//
// What verify_plan (planner/verify/verify.h) proves, with no code of the search:
//  - Operands: an earlier step of the phase produced each one on the device that reads it. A value
//    reaches another device only by a Transfer or a Collective.
//  - Work: each element of each output is computed once per place that holds it. Partial sums of a
//    value meet in one Collective. Collectives of overlapping groups have one order.
//  - Memory: every buffer has a device, a role, an offset and a size. Live buffers do not overlap,
//    and all fit the device.
// Bytes and times are integers. The same input and seed give the same plan, byte for byte.
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
using importer::Rows;
using importer::ValueId;
using importer::WeightId;

using StepId = Index<struct StepTag>;
using BufferId = Index<struct BufferTag>;
using PlacedId = Index<struct PlacedTag>;  // of Phase::values
using WeightShardId = Index<struct WeightShardTag>;
using RopeShardId = Index<struct RopeShardTag>;
using KvSlabId = Index<struct KvSlabTag>;

// ---- Boxes

// A part of a value: [begin, end) per dimension. A symbolic dimension (num_tokens) is always whole:
// {0, kWhole}.
inline constexpr int64_t kWhole = INT64_MAX;
using Box = std::vector<Range>;

// ---- Memory

// Each device allocates each of its arenas once, of the size that DeviceMemory says.
enum class Arena : uint8_t { kWeights, kKv, kActivations, kStaging, kScratch };

// What a buffer holds; it decides the arena. A shard, a slab, a placed value or a step names its
// buffer, of the first five roles. Of each other role a device has one buffer at most: find_buffer
// (planner/plan/plan_queries.h) finds it.
enum class BufferRole : uint8_t {
    kConstant,     // a WeightShard or a RopeShard, in kWeights
    kKvSlab,       // in kKv
    kActivations,  // placed values one after the other, in kActivations
    kInput,        // an input of a phase other than token ids, in kStaging
    kScratch,      // of one launch at a time, in kScratch
    kTokenIds,     // in kStaging, as all below; int32 arrays of a batch (runtime/execute/batch.h)
    kPositions,
    kSlots,
    kSequenceStarts,
    kOutputRows,
    kBlockTable,    // of a device with KV slabs: int32 [Workload::batch, blocks_per_slot()]
    kExchange,      // payloads on their way through memory of the host
    kPeerPayloads,  // payloads that peers read (planner/cost/peer_exchange.h)
    kPeerSignals,   // and the words by which they announce them
    kChosenTokens,  // int32 tokens of the largest logits, on the output device
    kArrivals,      // payloads of one step from devices of other hosts, sender after sender
};
Arena arena_of(BufferRole role);

struct Buffer {
    DeviceId device;
    BufferRole role = BufferRole::kActivations;
    int64_t offset = 0;  // within the device's arena, multiple of 256
    int64_t size = 0;    // bytes at the workload's largest num_tokens

    Arena arena() const { return arena_of(role); }
};

// A rectangle of a weight on a device.
struct WeightShard {
    WeightId weight;
    DeviceId device;
    Range rows, columns;        // of the logical [out, in] shape; columns unused for vectors
    DType dtype = DType::kF32;  // as stored on the device
    BufferId buffer;            // dense row major [rows.size(), columns.size()]
};

// A rotary table on a device: cos then sin, f32, each [context, rotary_dim / 2].
struct RopeShard {
    RopeTableId table;
    DeviceId device;
    BufferId buffer;
};

// The KV cache is a pool of blocks of kKvBlock positions. A block id means the same positions in
// every slab of every device. Block 0 is no sequence's: padding is written there and nobody reads
// it. Row s of the block table has the blocks of slot s in the order of its positions.
struct KvPool {
    int64_t num_blocks = 0;  // 0: the graph has no KV cache
};

// Some KV heads of one layer on a device: K [kv_heads.size(), num_blocks, kKvBlock, head_dim], then
// V with v_head_dim, of the workload's kv_dtype. If that has scales (has_kv_scales), those of K
// follow, f32 [kv_heads.size(), num_blocks, kKvBlock], and then those of V.
struct KvSlab {
    ValueId state;
    DeviceId device;
    Range kv_heads;
    int64_t head_dim = 0;  // of K
    int64_t v_head_dim = 0;
    BufferId buffer;
};

// ---- Steps

// A value's box on one device: row major [rows, box of the last dimension] in its buffer, of the
// type that placed_dtype says.
struct PlacedValue {
    ValueId value;
    DeviceId device;
    Box box;
    bool partial = false;  // a summand of the box, which an all-reduce adds to the others
    BufferId buffer;       // invalid for an empty box
};

// What one launch computes: the operators that it fuses, in graph order. [..]: optional. Epilogue:
// elementwise operators on the result before it is stored.
enum class KernelKind : uint8_t {
    kEmbedding,          // Embedding
    kNormQkvRopeAppend,  // [RmsNorm,] Linear q, k, v [, RmsNorm q, k] [, Rope q, k], KvAppend;
                         // output: q
    kAttention,          // Attention
    kLinear,             // Linear [, Scale] [, Add] [, epilogue]: output and down projections
    kNormGateUp,         // [RmsNorm,] Linear gate, Linear up, GatedActivation [, epilogue]
    kNormLinear,         // [SelectTokens,] [RmsNorm,] Linear [, epilogue]: lm_head
    kRmsNorm,            // and below: one operator that no pattern takes
    kRope,
    kKvAppend,
    kGatedActivation,
    kAdd,
    kScale,
    kSelectTokens,
    kOpaque,  // planned and exported; the runtime refuses it by name
    kTensor,  // ONNX operators over whole tensors
};

// What one pass of a phase sees.
struct PassPoint {
    int64_t num_tokens = 0, num_outputs = 0;
    int64_t num_keys = 0;  // summed over tokens: the keys that each sees
};

// Bytes or operations of a step, as a function of the pass.
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

// How the threads of a GPU launch go through its work.
enum class MainLoop : uint8_t {
    kNone,        // an operator that stands alone; every launch of a host
    kLanes,       // neighbouring lanes share a row of weights or a key: gemv, decode attention
    kWarps,       // each warp multiplies tiles: gemm, prefill attention
    kWarpgroups,  // groups of four warps do, by instructions of their own
};

// What one work item of a host, or one block of a GPU, computes: chosen by arithmetic on
// DeviceLimits. Products: [rows] output features of [tokens], [depth] input features at a time.
// Attention: `tokens` queries with `depth` keys at a time, or `rows` query heads of one token.
struct Tile {
    int64_t rows = 0;
    int64_t tokens = 0;
    int64_t depth = 0;
    int64_t threads = 0;
    int64_t splits = 1;        // of the context, for decode attention
    int64_t shared_bytes = 0;  // of a block; on a host, scratch of a thread
    MainLoop main_loop = MainLoop::kNone;
    int64_t stages = 0;  // of the ring in shared memory that a product's operands pass; 0: none

    bool operator==(const Tile&) const = default;
};

// The tile of a GPU's launch of fewer tokens than the step's largest.
struct NarrowTile {
    int64_t tokens = 0;  // at most
    Tile tile;

    bool operator==(const NarrowTile&) const = default;
};

// How the activations of a gemm come into shared memory.
enum class ActivationPath : uint8_t {
    kConverted,  // through registers, which normalise and narrow them to the weights' staged type
    kCopied,     // by asynchronous copies: they have that type, and no norm comes first
    kPrepared,   // so from `scratch`, where a launch before it selects, normalises and narrows them
};

// One launch on one device.
struct Compute {
    DeviceId device;
    KernelKind kernel = KernelKind::kOpaque;
    std::vector<OpId> ops;
    std::vector<PlacedId> inputs;  // values from outside, in the order in which `ops` read them
    std::vector<PlacedId> outputs;
    std::vector<WeightShardId> weights;  // in the order of the ops' weights
    std::vector<RopeShardId> rope_tables;
    KvSlabId kv;
    Range heads;  // query heads, of attention and QKV steps
    Tile tile;
    // Of products and attention on GPUs. Decode: for each of decode_widths (plan_queries.h) but the
    // last, which is `tile`'s; a pass takes the first that holds its tokens. A prompt's attention
    // whose blocks take several tokens: one, decode's, for those alone in their sequences.
    std::vector<NarrowTile> narrow;
    BufferId scratch;  // invalid: none
    ActivationPath activations = ActivationPath::kConverted;
    Amount flops, weight_bytes, activation_bytes;
};

// What moves the values of a step between devices.
enum class Path : uint8_t {
    kStaged,  // staging memory of the host: always right, whatever the devices are
    kPeer,    // kernels of the devices, which read each other's memory
    kVendor,  // the vendor's library of collectives
};

// Copies a box. The destination's box contains the source's, which may be a column block of it. By
// kStaged or kPeer.
struct Transfer {
    PlacedId source, destination;
    Path path = Path::kStaged;
    Amount bytes;
};

enum class CollectiveOp : uint8_t { kAllReduce, kAllGather };

// How a sum is carried out.
enum class SumForm : uint8_t {
    kOneShot,   // every member adds all contributions
    kTwoPhase,  // each contributor adds a part of the elements, then all take the finished parts
    kRing,      // the vendor's library's, of one node
    // Its forms over several nodes (planner/cost/node_sums.h), of catalogue devices.
    kTree,
    kHierarchical,
};

// An all-reduce sums the contributors' partial boxes in f32, in group order. Then `epilogue` (the
// residual Add, and the RmsNorm that follows it) runs on each member. A member without work is in
// `group` and contributes nothing. An all-gather puts boxes side by side.
struct Collective {
    CollectiveOp op = CollectiveOp::kAllReduce;
    Path path = Path::kStaged;
    bool two_phase = false;               // of a sum that no library carries out
    SumForm by_library = SumForm::kRing;  // of one that a library does
    std::vector<DeviceId> group;  // the members: every receiver, in device order or the ring's
    std::vector<PlacedId> contributions;    // in group order
    std::vector<OpId> epilogue;             // {}, {Add} or {Add, RmsNorm}
    std::vector<PlacedId> epilogue_inputs;  // by member: the residual, with an Add
    std::vector<WeightShardId> weights;     // by member: the norm's, with a RmsNorm
    std::vector<PlacedId> outputs;  // by member; with a RmsNorm, its results by member after them
    Amount bytes;                   // payload of one member

    SumForm form() const {
        return path == Path::kVendor ? by_library
               : two_phase           ? SumForm::kTwoPhase
                                     : SumForm::kOneShot;
    }
};

// A step of one phase. Steps run in list order on each device that takes part; devices wait for one
// another only in transfers and collectives.
struct Step {
    std::variant<Compute, Transfer, Collective> action;
    int layer = -1;            // of the decoder; -1: before the layers; num_layers: behind them
    int stage = 0;             // of Plan::stages
    int64_t predicted_ns = 0;  // alone, at the workload's point of this phase
    int64_t start_ns = 0;      // in the event simulation of one pass
    Amount link_bytes;         // moved between devices; 0 for compute

    const Compute* compute() const { return std::get_if<Compute>(&action); }
    const Transfer* transfer() const { return std::get_if<Transfer>(&action); }
    const Collective* collective() const { return std::get_if<Collective>(&action); }
};

struct Phase {
    std::vector<PlacedValue> values;
    std::vector<Step> steps;        // in an order of execution; a StepId is a position
    std::vector<PlacedId> inputs;   // token ids on the devices that need them; no step makes them
    std::vector<PlacedId> outputs;  // the graph's outputs, whole, on Plan::output_device
};

// A pipeline stage: a contiguous range of operators, divided among its devices.
struct Stage {
    std::vector<DeviceId> devices;
    OpId first_op, last_op;
    int first_layer = 0, last_layer = -1;  // of decoder layers; last < first: none
};

// A device's account, in bytes: each arena, what the driver reserves, and the buffers of a vendor's
// communicators (planner/build/communicator_memory.h).
struct DeviceMemory {
    DeviceId device;
    int64_t capacity = 0;
    int64_t weights = 0, kv = 0, activations = 0, staging = 0, scratch = 0;
    int64_t reserved = 0, collectives = 0;
    int64_t needed() const {
        return weights + kv + activations + staging + scratch + reserved + collectives;
    }
    int64_t free() const { return capacity - needed(); }
};

// Groups of sequences in flight, at most: as many passes as a run keeps (runtime/execute/pass.h).
inline constexpr int64_t kMostGroups = 8;

// Many users at once, where that is the objective (planner/cost/serving.h). Each user has a slot
// and KV for a whole context.
struct Serving {
    int64_t users = 0;    // at once, of all replicas together; 0: not the objective
    int64_t groups = 1;   // passes in flight in each replica, which share its users
    int64_t tpot_ns = 0;  // a round: every user has a token; prompts of those who follow included
    // From a prompt's arrival to its first token: a round of others of its replica, then its
    // passes.
    int64_t ttft_ns = 0;
};

// Of the whole prompt, and of a decode pass; 0: not told.
struct PassPair {
    int64_t prefill_ns = 0, decode_ns = 0;
};
struct Prediction {
    int64_t prefill_ns = 0;               // the whole prompt, all chunks
    int64_t decode_ns_per_token = 0;      // at Workload::decode_past
    int64_t lower_bound_ns = 0;           // of the objective, over all plans
    int64_t objective_ns = 0;             // of this plan
    std::vector<int64_t> decode_busy_ns;  // by device
    Serving serving;
    // Of PCIe cards of the catalogue: what the two take were all of a node behind one x16 link
    // (cost/pcie_range.h).
    PassPair one_pcie_link;
};

// A shape that was scored and not taken.
struct RunnerUp {
    std::string shape;  // "tp 2 x pp 2 (layers 0-10, 11-21)"
    int64_t objective_ns = 0;
    std::string why_not;
};

// Why the plan is as it is, in words for its reader.
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
    KvPool kv_pool;
    std::vector<KvSlab> kv_slabs;
    Phase prefill, decode;
    std::vector<DeviceMemory> memory;  // one per device, in device order
    Prediction prediction;
    Why why;
    // The request's machine is the first replica's, and so is all else. Further replicas run the
    // same plan on these: device for device and link for link they are as good.
    std::vector<Machine> copies;

    const Buffer& buffer(BufferId id) const { return buffers[id.index()]; }
    const Phase& phase(bool is_prefill) const { return is_prefill ? prefill : decode; }
};

struct Plan : PlanRequest, PlanBody {
    static constexpr int kFormatVersion = 3;

    // Replicas of other makes: plans of the same model on other devices, each with its own copies,
    // number of sequences and users. None of them has others.
    std::vector<Plan> others;

    int64_t num_alike() const { return 1 + static_cast<int64_t>(copies.size()); }
    int64_t num_replicas() const;  // the first one, its copies, then those of `others`
};

std::string_view kernel_kind_name(KernelKind kind);
std::string_view arena_name(Arena arena);
std::string_view buffer_role_name(BufferRole role);
std::string_view collective_op_name(CollectiveOp op);
std::string_view sum_form_name(SumForm form);
std::string_view path_name(Path path);
std::string_view compute_mode_name(ComputeMode mode);  // "exact", "fast"

}  // namespace cleave::planner
