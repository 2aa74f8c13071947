// SPDX-License-Identifier: Apache-2.0
// The first part: after it, every id, enumeration and number of the plan may be used without
// looking.

#include <algorithm>
#include <new>
#include <optional>

#include "planner/verify/report.h"

namespace cleave::planner::verify {
namespace {

// No size or offset of a real plan comes near the first, no dimension the second, no time in ns the
// third (a year): sums stay in 64 bits, and products of two dimensions. For others there is
// `product`.
constexpr int64_t kLargest = int64_t{1} << 50, kWidest = int64_t{1} << 31;
constexpr int64_t kLongest = int64_t{1} << 55;

constexpr int kMostLayers = 1 << 20;

bool sane(int64_t n) { return n >= 0 && n <= kLargest; }
bool is_time(int64_t n) { return n >= 0 && n <= kLongest; }
bool is_width(int64_t n) { return n >= 0 && n <= kWidest; }
bool sane(Range r) { return r.begin >= 0 && r.begin <= r.end && r.end <= kWidest; }

class Indices {
public:
    Indices(const Plan& plan, Report& report) : plan_(plan), report_(report) {}

    template <class Id, class Items>
    void id(Id id, const Items& items, const std::string& where, const char* what) {
        if (!id.valid() || id.index() >= items.size())
            report_.add("index", "{}: {} {} does not exist, there are {}", where, what, id,
                        items.size());
    }
    template <class Id, class Items>
    void optional_id(Id i, const Items& items, const std::string& where, const char* what) {
        if (i.value != -1) id(i, items, where, what);
    }
    template <class Id, class Items>
    void ids(const std::vector<Id>& all, const Items& items, const std::string& where,
             const char* what) {
        for (Id i : all) id(i, items, where, what);
    }
    void range(Range r, const std::string& where) {
        if (!sane(r)) report_.add("index", "{}: {} is no range", where, range_text(r));
    }
    void device(DeviceId i, const std::string& where) {
        if (!i.valid() || i.index() >= plan_.machine.devices.size())
            report_.add("device", "{}: device {} is not declared, the machine has {}", where, i,
                        plan_.machine.devices.size());
    }
    template <class Enum>
    void enumeration(Enum value, Enum last, const std::string& where) {
        if (value > last)
            report_.add("index", "{}: {} is no such kind", where, static_cast<int>(value));
    }

    void graph();
    void machine();
    void placement();
    void phase(const Phase& phase, const char* name);

private:
    void op(const importer::Op& op);
    void kinds(const importer::Op& op);
    void rope_table(const importer::RopeTable& table);
    void tile(const Tile& tile, const std::string& where);
    void action(const Phase& phase, const Compute& compute, const std::string& where);
    void action(const Phase& phase, const Transfer& transfer, const std::string& where);
    void action(const Phase& phase, const Collective& collective, const std::string& where);

    const Plan& plan_;
    Report& report_;
};

// How many inputs and weights an operator must have for the rules to read them.
struct Arity {
    size_t inputs, least_weights, most_weights;
};
Arity arity(const importer::Op& op) {
    using importer::OpKind;
    switch (op.kind) {
        case OpKind::kEmbedding: return {1, 1, 1};
        case OpKind::kRmsNorm: return {1, 0, 1};
        case OpKind::kLinear: {
            size_t weights = op.as<importer::LinearAttrs>().has_bias ? 2 : 1;
            return {1, weights, weights};
        }
        case OpKind::kKvAppend:
        case OpKind::kAttention:
        case OpKind::kGatedActivation:
        case OpKind::kAdd: return {2, 0, 0};
        default: return {1, 0, 0};
    }
}

// The numbers that rules divide by.
bool attributes_are_sane(const importer::Op& op) {
    using importer::OpKind;
    if (op.kind == OpKind::kAttention) {
        const auto& a = op.as<importer::AttentionAttrs>();
        return a.num_heads > 0 && a.num_kv_heads > 0 && a.num_heads % a.num_kv_heads == 0 &&
               a.head_dim > 0 && a.v_head_dim > 0 && is_width(a.num_heads) &&
               is_width(a.head_dim) && is_width(a.v_head_dim);
    }
    if (op.kind == OpKind::kKvAppend) {
        const auto& a = op.as<importer::KvAppendAttrs>();
        return a.num_kv_heads > 0 && a.head_dim > 0 && a.v_head_dim > 0 &&
               is_width(a.num_kv_heads) && is_width(a.head_dim) && is_width(a.v_head_dim);
    }
    if (op.kind == OpKind::kRope) {
        const auto& a = op.as<importer::RopeAttrs>();
        return a.num_heads > 0 && a.head_dim > 0 && is_width(a.num_heads) && is_width(a.head_dim) &&
               a.rotary_dim > 0 && a.rotary_dim <= a.head_dim;
    }
    if (op.kind == OpKind::kRmsNorm) return is_width(op.as<importer::RmsNormAttrs>().group);
    return true;
}

// Keys and values are what kv_append makes and attention reads second, and nothing else; an
// embedding alone reads ids, which nothing makes; logits are scaled at most; a Llama's operators
// make no tensors.
void Indices::kinds(const importer::Op& op) {
    using importer::OpKind;
    using importer::ValueKind;
    const auto kind = [&](ValueId v) {
        return v.valid() && v.index() < plan_.graph.values.size()
                   ? std::optional(plan_.graph.value(v).kind)
                   : std::nullopt;
    };
    const auto must_be = [&](ValueId v, ValueKind wanted, bool is, const char* what) {
        if (const auto k = kind(v); k && (*k == wanted) != is)
            report_.add("graph", "{}: {} is {}{}", op.name, plan_.graph.value(v).name,
                        is ? "no " : "", what);
    };
    for (size_t i = 0; i < op.inputs.size(); ++i) {
        must_be(op.inputs[i], ValueKind::kKvState, op.kind == OpKind::kAttention && i == 1,
                "keys and values");
        if (keeps_onnx_form(op)) continue;
        must_be(op.inputs[i], ValueKind::kTokenIds, op.kind == OpKind::kEmbedding, "token ids");
        if (op.kind != OpKind::kScale) must_be(op.inputs[i], ValueKind::kLogits, false, "logits");
    }
    for (ValueId v : op.outputs) {
        must_be(v, ValueKind::kKvState, op.kind == OpKind::kKvAppend, "keys and values");
        must_be(v, ValueKind::kTokenIds, false, "token ids");
        if (kind(v) == ValueKind::kTensor && !keeps_onnx_form(op))
            report_.add("graph", "{}: {} is a tensor", op.name, plan_.graph.value(v).name);
    }
}

void Indices::op(const importer::Op& op) {
    const std::string& where = op.name;
    if (op.attrs.index() != static_cast<size_t>(op.kind)) {
        report_.add("graph", "{}: kind and attributes disagree", where);
        return;
    }
    ids(op.inputs, plan_.graph.values, where, "value");
    ids(op.outputs, plan_.graph.values, where, "value");
    ids(op.weights, plan_.graph.weights, where, "weight");
    kinds(op);
    if (op.layer < -1 || op.layer > kMostLayers)
        report_.add("graph", "{}: is in layer {}", where, op.layer);
    if (op.kind == importer::OpKind::kRope) {
        const auto& a = op.as<importer::RopeAttrs>();
        id(a.table, plan_.graph.rope_tables, where, "rope table");
        if (a.table.valid() && a.table.index() < plan_.graph.rope_tables.size() &&
            plan_.graph.rope_table(a.table).rotary_dim != a.rotary_dim)
            report_.add("graph", "{}: it turns {} features, its table {}", where, a.rotary_dim,
                        plan_.graph.rope_table(a.table).rotary_dim);
    }
    if (!keeps_onnx_form(op)) {
        Arity a = arity(op);
        if (op.inputs.size() != a.inputs || op.outputs.size() != 1 ||
            op.weights.size() < a.least_weights || op.weights.size() > a.most_weights)
            report_.add("graph", "{}: a {} with {} inputs, {} weights and {} outputs", where,
                        op_kind_name(op.kind), op.inputs.size(), op.weights.size(),
                        op.outputs.size());
    }
    for (size_t i = 0; i < op.weights.size(); ++i) {
        size_t dimensions = op.kind == importer::OpKind::kEmbedding ||
                                    (op.kind == importer::OpKind::kLinear && i == 0)
                                ? 2
                                : 1;
        if (!keeps_onnx_form(op) && op.weights[i].valid() &&
            op.weights[i].index() < plan_.graph.weights.size() &&
            plan_.graph.weight(op.weights[i]).shape.size() < dimensions)
            report_.add("graph", "{}: its weight has too few dimensions", where);
    }
    if (!attributes_are_sane(op)) report_.add("graph", "{}: its attributes make no sense", where);
}

void Indices::graph() {
    const Graph& g = plan_.graph;
    for (const importer::Op& o : g.ops) op(o);
    ids(g.inputs, g.values, "graph inputs", "value");
    ids(g.outputs, g.values, "graph outputs", "value");
    for (const importer::Value& v : g.values)
        for (const importer::Dim& d : v.shape)
            if (d.is_static() && !is_width(d.value))
                report_.add("graph", "{}: a dimension of {}", v.name, d.value);
    for (const importer::Weight& w : g.weights) {
        bool fine = w.shape.size() <= 8;
        int64_t elements = 1;
        for (int64_t d : w.shape)
            fine = fine && is_width(d) && !__builtin_mul_overflow(elements, d, &elements) &&
                   sane(elements);
        if (!fine || !is_width(w.quantization.block))
            report_.add("graph", "{}: its shape makes no sense", w.name);
    }
    for (const importer::RopeTable& t : g.rope_tables) rope_table(t);
    const importer::ModelConfig& c = g.config;
    for (int64_t n : {c.vocab_size, c.hidden_size, c.intermediate_size, c.num_heads, c.num_kv_heads,
                      c.head_dim})
        if (!is_width(n)) report_.add("graph", "its configuration has {}", n);
    if (c.num_layers < 0 || c.num_layers > kMostLayers || !sane(c.max_positions))
        report_.add("graph", "its configuration has {} layers and {} positions", c.num_layers,
                    c.max_positions);
    const Workload& w = plan_.workload;
    constexpr int64_t kMost = int64_t{1} << 31;
    for (int64_t n : {w.batch, w.prompt_tokens, w.context, w.prefill_chunk})
        if (n < 1 || n > kMost) report_.add("workload", "{} is no batch, length or chunk", n);
    if (w.kv_tokens < Workload::kAllThatIsLeft || !sane(std::max<int64_t>(0, w.kv_tokens)))
        report_.add("workload", "{} is no number of tokens", w.kv_tokens);
}

// Its angles are computed, or rows of two weights that have as many as it says.
void Indices::rope_table(const importer::RopeTable& t) {
    const Graph& g = plan_.graph;
    if (!is_width(t.rotary_dim) || !is_width(t.max_positions)) {
        report_.add("graph", "{}: its shape makes no sense", t.name);
        return;
    }
    if (!t.frequencies.empty()) {
        if (static_cast<int64_t>(t.frequencies.size()) * 2 != t.rotary_dim)
            report_.add("graph", "{}: {} frequencies for {} features", t.name, t.frequencies.size(),
                        t.rotary_dim);
        return;
    }
    for (const importer::WeightId w : {t.cos, t.sin}) {
        id(w, g.weights, t.name, "weight");
        if (!w.valid() || w.index() >= g.weights.size()) continue;
        const std::vector<int64_t>& shape = g.weight(w).shape;
        if (shape.size() != 2 || shape[0] < t.max_positions || shape[1] * 2 < t.rotary_dim)
            report_.add("graph", "{}: {} does not have its angles", t.name, g.weight(w).name);
    }
}

void Indices::machine() {
    const Machine& m = plan_.machine;
    const auto domain = [&](int i, const std::string& where) {
        if (i < -1 || i >= static_cast<int>(m.domains.size()))
            report_.add("index", "{}: domain {} does not exist, there are {}", where, i,
                        m.domains.size());
        else if (i >= 0 && m.domains[static_cast<size_t>(i)].bandwidth < 1)
            report_.add("index", "{}: domain {} lets nothing through", where, i);
    };
    for (const DeviceInfo& d : m.devices) {
        domain(d.memory_domain, d.name);
        const int64_t cores = d.limits.num_compute_units;
        if (d.host_cores != 0 && (d.kind != DeviceKind::kHost || d.index < 0 || cores < 1 ||
                                  cores > d.host_cores || !is_width(d.host_cores)))
            report_.add("index", "{}: a NUMA node with {} of {} cores", d.name, cores,
                        d.host_cores);
    }
    for (const Link& link : m.links) {
        device(link.from, "a link");
        device(link.to, "a link");
        domain(link.domain, "a link");
    }
}

void Indices::placement() {
    for (const Stage& s : plan_.stages) {
        for (DeviceId d : s.devices) device(d, "a stage");
        id(s.first_op, plan_.graph.ops, "a stage", "operator");
        id(s.last_op, plan_.graph.ops, "a stage", "operator");
    }
    device(plan_.output_device, "output device");
    for (size_t i = 0; i < plan_.buffers.size(); ++i) {
        const Buffer& b = plan_.buffers[i];
        const std::string where = fmt::format("buffer {}", i);
        device(b.device, where);
        enumeration(b.role, BufferRole::kArrivals, where);
        if (!sane(b.offset) || !sane(b.size))
            report_.add("buffer-bounds", "{}: offset {}, size {}", where, b.offset, b.size);
    }
    for (const WeightShard& s : plan_.weights) {
        device(s.device, "a weight shard");
        id(s.weight, plan_.graph.weights, "a weight shard", "weight");
        id(s.buffer, plan_.buffers, "a weight shard", "buffer");
        range(s.rows, "a weight shard");
        range(s.columns, "a weight shard");
    }
    for (const RopeShard& s : plan_.rope_tables) {
        device(s.device, "a rope table");
        id(s.table, plan_.graph.rope_tables, "a rope table", "table");
        id(s.buffer, plan_.buffers, "a rope table", "buffer");
    }
    const Prediction& predicted = plan_.prediction;
    const Serving& serving = predicted.serving;
    for (int64_t n : {serving.users, serving.groups})
        if (!sane(n)) report_.add("index", "its figures of many users have {}", n);
    for (int64_t ns : {serving.tpot_ns, serving.ttft_ns, predicted.prefill_ns,
                       predicted.decode_ns_per_token, predicted.objective_ns})
        if (!is_time(ns)) report_.add("index", "its figures have {} ns", ns);
    if (!sane(plan_.kv_pool.num_blocks))
        report_.add("index", "a KV pool of {} blocks", plan_.kv_pool.num_blocks);
    for (const KvSlab& s : plan_.kv_slabs) {
        device(s.device, "a KV slab");
        id(s.state, plan_.graph.values, "a KV slab", "value");
        id(s.buffer, plan_.buffers, "a KV slab", "buffer");
        range(s.kv_heads, "a KV slab");
        if (!is_width(s.head_dim) || !is_width(s.v_head_dim))
            report_.add("index", "a KV slab: head dimensions {} and {}", s.head_dim, s.v_head_dim);
    }
    for (const DeviceMemory& m : plan_.memory) {
        device(m.device, "the memory account");
        for (int64_t n : {m.capacity, m.weights, m.kv, m.activations, m.staging, m.scratch,
                          m.reserved, m.collectives})
            if (!sane(n)) report_.add("index", "the memory account has {} bytes", n);
    }
}

void Indices::tile(const Tile& t, const std::string& where) {
    enumeration(t.main_loop, MainLoop::kWarpgroups, where);
    for (const int64_t part :
         {t.rows, t.tokens, t.depth, t.threads, t.splits, t.shared_bytes, t.stages})
        if (!sane(part)) report_.add("index", "{}: a tile with {}", where, part);
}

void Indices::action(const Phase& phase, const Compute& c, const std::string& where) {
    device(c.device, where);
    enumeration(c.kernel, KernelKind::kTensor, where);
    ids(c.ops, plan_.graph.ops, where, "operator");
    ids(c.inputs, phase.values, where, "placed value");
    ids(c.outputs, phase.values, where, "placed value");
    ids(c.weights, plan_.weights, where, "weight shard");
    ids(c.rope_tables, plan_.rope_tables, where, "rope table");
    optional_id(c.kv, plan_.kv_slabs, where, "KV slab");
    optional_id(c.scratch, plan_.buffers, where, "buffer");
    tile(c.tile, where);
    for (const NarrowTile& narrow : c.narrow) {
        if (!sane(narrow.tokens)) report_.add("index", "{}: {} tokens", where, narrow.tokens);
        tile(narrow.tile, where);
    }
    enumeration(c.activations, ActivationPath::kPrepared, where);
    range(c.heads, where);
}

void Indices::action(const Phase& phase, const Transfer& t, const std::string& where) {
    id(t.source, phase.values, where, "placed value");
    id(t.destination, phase.values, where, "placed value");
    enumeration(t.path, Path::kVendor, where);
}

void Indices::action(const Phase& phase, const Collective& c, const std::string& where) {
    enumeration(c.op, CollectiveOp::kAllGather, where);
    enumeration(c.path, Path::kVendor, where);
    enumeration(c.by_library, SumForm::kHierarchical, where);
    for (DeviceId d : c.group) device(d, where);
    ids(c.contributions, phase.values, where, "placed value");
    ids(c.epilogue, plan_.graph.ops, where, "operator");
    ids(c.epilogue_inputs, phase.values, where, "placed value");
    ids(c.weights, plan_.weights, where, "weight shard");
    ids(c.outputs, phase.values, where, "placed value");
}

void Indices::phase(const Phase& phase, const char* name) {
    for (const PlacedValue& p : phase.values) {
        std::string where = fmt::format("{}: a placed value", name);
        device(p.device, where);
        id(p.value, plan_.graph.values, where, "value");
        optional_id(p.buffer, plan_.buffers, where, "buffer");
        for (Range r : p.box)
            if (r != Range{0, kWhole}) range(r, where);
    }
    ids(phase.inputs, phase.values, fmt::format("{}: inputs", name), "placed value");
    ids(phase.outputs, phase.values, fmt::format("{}: outputs", name), "placed value");
    for (size_t i = 0; i < phase.steps.size(); ++i) {
        std::string where = fmt::format("{} step {}", name, i);
        int stage = phase.steps[i].stage;
        if (stage < 0 || static_cast<size_t>(stage) >= plan_.stages.size())
            report_.add("index", "{}: stage {} does not exist", where, stage);
        if (!is_time(phase.steps[i].start_ns) || !is_time(phase.steps[i].predicted_ns))
            report_.add("index", "{}: from {} ns on, for {} ns", where, phase.steps[i].start_ns,
                        phase.steps[i].predicted_ns);
        std::visit([&](const auto& a) { action(phase, a, where); }, phase.steps[i].action);
    }
}

}  // namespace

bool check_indices(const Plan& plan, Report& report) {
    Indices indices(plan, report);
    indices.graph();
    indices.machine();
    indices.placement();
    indices.phase(plan.prefill, "prefill");
    indices.phase(plan.decode, "decode");
    if (report.size() > 0) return false;
    // Names and order of the operators, one producer for each value, weights that are stored.
    if (const std::string fault = importer::graph_fault(plan.graph); !fault.empty()) {
        report.add("graph", "{}", fault);
        return false;
    }
    const std::string digest = importer::graph_digest(plan.graph);
    if (digest != plan.graph_digest)
        report.add("digest", "the plan is of graph {}, but carries graph {}", plan.graph_digest,
                   digest);
    return true;
}

}  // namespace cleave::planner::verify
