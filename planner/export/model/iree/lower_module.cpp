// SPDX-License-Identifier: Apache-2.0
#include "planner/export/model/iree/lower_module.h"

#include <algorithm>
#include <map>

#include "planner/analysis/sharding.h"
#include "planner/export/model/iree/mlir_writer.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

using namespace importer;

constexpr const char* kZero = "0.0 : f32";
constexpr const char* kLowest = "-3.4028234663852886e+38 : f32";
constexpr const char* kMultiplyAdd =
    "%p = arith.mulf %i0, %i1 : f32\n%y = arith.addf %acc, %p : f32";

// A value on a device, and which columns of the whole it has.
struct Local {
    MlirTensor tensor;  // [tokens, columns]
    Range columns;
};

class ModuleLowering {
public:
    ModuleLowering(const Plan& plan, const Schedule& schedule,
                   const std::vector<std::shared_ptr<TensorFile>>& data)
        : plan_(plan),
          graph_(plan.graph),
          schedule_(schedule),
          data_(data),
          locals_(plan.machine.devices.size()) {}

    IreeModule run() {
        find_ids();
        for (const ScheduleItem& item : schedule_.order) {
            if (item.exchange >= 0) {
                exchange(schedule_.exchanges[static_cast<size_t>(item.exchange)]);
                continue;
            }
            const Segment& segment = schedule_.segments[static_cast<size_t>(item.segment)];
            device_ = segment.device;
            for (const SegmentOp& op : segment.ops) lower(op);
        }
        const Local& logits = locals_[plan_.output_device.index()].at(schedule_.logits.value);
        result_.text = module_text(logits.tensor);
        return std::move(result_);
    }

private:
    // ---- The module

    void find_ids() {
        for (const PlacedId id : plan_.prefill.inputs) {
            const PlacedValue& placed = plan_.prefill.values[id.index()];
            const std::string name = fmt::format("%ids{}", result_.id_devices.size());
            result_.id_devices.push_back(placed.device);
            locals_[placed.device.index()][placed.value] = {{name, {kTokens}, "i32"}, {}};
        }
        CLEAVE_CHECK(!result_.id_devices.empty()) << "a plan whose devices read no token ids";
    }

    std::string module_text(const MlirTensor& logits) const {
        std::string arguments;
        for (size_t i = 0; i < result_.id_devices.size(); ++i)
            arguments += fmt::format("%ids{}: tensor<?xi32> {{{}}}, ", i,
                                     affinity("iree.abi.affinity", result_.id_devices[i]));
        std::string text = "module @cleave {\n";
        text += globals_;
        text += fmt::format("  func.func @forward({}%past_i32: i32{}) -> ({} {{{}}}) {{\n",
                            arguments, batched() ? ", %sequence_i32: i32" : "", mlir_type(logits),
                            affinity("iree.abi.affinity", plan_.output_device));
        text +=
            "    %past = arith.index_cast %past_i32 : i32 to index\n"
            "    %first = arith.constant 0 : index\n"
            "    %tokens = tensor.dim %ids0, %first : tensor<?xi32>\n"
            "    %total = arith.addi %past, %tokens : index\n";
        if (batched())
            text += fmt::format(
                "    %sequence = arith.index_cast %sequence_i32 : i32 to index\n"
                "    %context = arith.constant {} : index\n"
                "    %first_row = arith.muli %sequence, %context : index\n"
                "    %next_row = arith.addi %first_row, %past : index\n",
                plan_.workload.context);
        text += w_.text();
        text += fmt::format("    return {} : {}\n  }}\n}}\n", logits.ssa, mlir_type(logits));
        return text;
    }

    bool batched() const { return plan_.workload.batch > 1; }

    static std::string affinity(const char* attribute, DeviceId device) {
        return fmt::format("{} = #hal.device.promise<@{}>", attribute, iree_device(device));
    }

    // The constant as a value of the function: a global of this device, loaded once.
    MlirTensor constant(const StoredTensor& stored) {
        auto [at, fresh] = constants_.try_emplace({device_, stored.name});
        if (!fresh) return at->second;
        MlirTensor type{"", stored.shape, mlir_element(stored.dtype)};
        const std::string symbol = fmt::format("constant{}", constants_.size() - 1);
        globals_ += fmt::format(
            "  util.global private @{} {{{}}} = #flow.parameter.named<{}::{}> : {}\n", symbol,
            affinity("stream.affinity", device_), mlir_string(iree_device(device_)),
            mlir_string(stored.name), mlir_type(type));
        return at->second = w_.load_global(symbol, type, false);
    }
    TensorFile& data() { return *data_[device_.index()]; }
    MlirTensor constant_of(const WeightShard& shard) {
        return constant(data().weight(shard, false));
    }

    // ---- Exchanges

    MlirTensor move(const MlirTensor& x, DeviceId from, DeviceId to) {
        if (from == to) return x;
        ++result_.transfers;
        return w_.transfer(x, iree_device(to));
    }

    void exchange(const Exchange& e) {
        w_.comment(fmt::format("stage {}: {}", e.stage, e.result.name));
        std::vector<Local> parts;
        for (size_t i = 0; i < e.from.size(); ++i)
            parts.push_back(locals_[e.from[i].index()].at(e.sources[i].value));
        switch (e.kind) {
            case Exchange::Kind::kTransfer:
                put(e.to[0], e.result.value,
                    {move(parts[0].tensor, e.from[0], e.to[0]), e.result.columns});
                return;
            case Exchange::Kind::kAllGather: return gather(e, parts);
            case Exchange::Kind::kAllReduce: break;
        }
        if (e.form == SumForm::kOneShot) {
            for (DeviceId to : e.to) put(to, e.result.value, {sum(e, parts, to), e.result.columns});
            return;
        }
        // Two passes over the links: to the first, which adds, and back.
        const DeviceId root = e.from[0];
        const MlirTensor total = sum(e, parts, root);
        for (DeviceId to : e.to) put(to, e.result.value, {move(total, root, to), e.result.columns});
    }

    // The parts added on a device, in the order of the plan.
    MlirTensor sum(const Exchange& e, const std::vector<Local>& parts, DeviceId to) {
        MlirTensor total = move(parts[0].tensor, e.from[0], to);
        for (size_t i = 1; i < parts.size(); ++i)
            total = w_.elementwise({total, move(parts[i].tensor, e.from[i], to)},
                                   "%y = arith.addf %i0, %i1 : f32");
        return total;
    }

    void gather(const Exchange& e, const std::vector<Local>& parts) {
        for (const DeviceId to : e.to) {
            MlirTensor whole = w_.empty({kTokens, e.result.columns.size()});
            for (size_t i = 0; i < parts.size(); ++i)
                whole = w_.insert(move(parts[i].tensor, e.from[i], to), whole,
                                  {"0", std::to_string(parts[i].columns.begin)});
            put(to, e.result.value, {whole, e.result.columns});
        }
    }

    void put(DeviceId device, ValueId value, Local local) {
        locals_[device.index()][value] = std::move(local);
    }

    // ---- Operators

    void lower(const SegmentOp& item) {
        const Op& op = graph_.op(item.op);
        item_ = &item;
        w_.comment(fmt::format("{} on {}", op.name, plan_.machine.device(device_).name));
        switch (op.kind) {
            case OpKind::kEmbedding: return embedding(op);
            case OpKind::kRmsNorm: return rms_norm(op);
            case OpKind::kLinear: return linear(op);
            case OpKind::kRope: return rope(op);
            case OpKind::kKvAppend: return kv_append(op);
            case OpKind::kAttention: return attention(op);
            case OpKind::kGatedActivation: return gated_activation(op);
            case OpKind::kAdd: return add(op);
            case OpKind::kScale: return scale(op);
            case OpKind::kSelectTokens: return give(op, in(op, 0));  // every token's logits
            case OpKind::kOpaque:
            case OpKind::kTensor: break;
        }
        CLEAVE_CHECK(false) << op.name << " is no Llama operator";
    }

    const Local& in(const Op& op, size_t i) const {
        return locals_[device_.index()].at(op.inputs.at(i));
    }
    void give(const Op& op, Local local) { put(device_, op.outputs.at(0), std::move(local)); }

    const WeightShard* find_weight(const Op&, size_t i) const {
        return find_shard(plan_, *item_, i);
    }
    const WeightShard& weight(const Op&, size_t i) const { return shard_of(plan_, *item_, i); }
    MlirTensor columns(const Local& x, Range wanted) {
        if (wanted == x.columns) return x.tensor;
        CLEAVE_CHECK(x.columns.begin <= wanted.begin && wanted.end <= x.columns.end)
            << "a value lacks columns that its reader needs";
        return w_.slice(x.tensor, 1, wanted.begin - x.columns.begin, wanted.size());
    }

    void embedding(const Op& op) {
        const WeightShard& shard = weight(op, 0);
        const MlirTensor table = constant_of(shard);
        const int64_t hidden = table.shape[1];
        std::string widen =
            fmt::format("%x = tensor.extract %TABLE[%row, %h] : {}", mlir_type(table));
        widen.replace(widen.find("%TABLE"), 6, table.ssa);
        if (table.element != "f32")
            widen.replace(0, 2, "%n")
                .append(fmt::format("\n%x = arith.extf %n : {} to f32", table.element));
        // Rows of other devices' tokens are zero: the sum over devices has each token's once.
        const std::string body = fmt::format(
            "%h = linalg.index 1 : index\n"
            "%id = arith.index_cast %i0 : i32 to index\n"
            "%begin = arith.constant {} : index\n"
            "%size = arith.constant {} : index\n"
            "%none = arith.constant 0 : index\n"
            "%zero = arith.constant {}\n"
            "%factor = arith.constant {}\n"
            "%local = arith.subi %id, %begin : index\n"
            "%held = arith.cmpi ult, %local, %size : index\n"
            "%row = arith.select %held, %local, %none : index\n"
            "{}\n"
            "%scaled = arith.mulf %x, %factor : f32\n"
            "%y = arith.select %held, %scaled, %zero : f32",
            shard.rows.begin, shard.rows.size(), kZero, mlir_float(op.as<EmbeddingAttrs>().scale),
            widen);
        give(op, {w_.generic({kTokens, hidden}, "pp", "d0, d1", {{in(op, 0).tensor, "d0"}}, body),
                  {0, hidden}});
    }

    void rms_norm(const Op& op) {
        const auto& attrs = op.as<RmsNormAttrs>();
        const Local& given = in(op, 0);
        const int64_t group = attrs.group > 0 ? attrs.group : given.columns.size();
        const bool grouped = group != given.columns.size();
        MlirTensor x = given.tensor;
        if (grouped) x = w_.split_last(x, {given.columns.size() / group, group});
        std::vector<int64_t> rows(x.shape.begin(), x.shape.end() - 1);
        const char* all = grouped ? "d0, d1, d2" : "d0, d1";
        const char* outer = grouped ? "d0, d1" : "d0";
        MlirTensor squares =
            w_.generic(rows, grouped ? "ppr" : "pr", outer, {{x, all}},
                       "%p = arith.mulf %i0, %i0 : f32\n%y = arith.addf %acc, %p : f32", kZero);
        const std::string body = fmt::format(
            "%count = arith.constant {}\n"
            "%epsilon = arith.constant {}\n"
            "%offset = arith.constant {}\n"
            "%mean = arith.divf %i1, %count : f32\n"
            "%shifted = arith.addf %mean, %epsilon : f32\n"
            "%root = math.sqrt %shifted : f32\n"
            "%normed = arith.divf %i0, %root : f32\n"
            "%w = arith.addf %i2, %offset : f32\n"
            "%y = arith.mulf %normed, %w : f32",
            mlir_float(static_cast<double>(group)), mlir_float(attrs.epsilon),
            mlir_float(attrs.weight_offset));
        MlirTensor y = w_.generic(
            x.shape, grouped ? "ppp" : "pp", all,
            {{x, all}, {squares, outer}, {constant_of(weight(op, 0)), grouped ? "d2" : "d1"}},
            body);
        if (grouped) y = w_.join_last(y, 1);
        give(op, {y, given.columns});
    }

    void linear(const Op& op) {
        const WeightShard& shard = weight(op, 0);
        const WeightShard* bias = op.as<LinearAttrs>().has_bias ? find_weight(op, 1) : nullptr;
        const MlirTensor x = columns(in(op, 0), shard.columns);
        MlirTensor y =
            w_.generic({kTokens, shard.rows.size()}, "ppr", "d0, d1",
                       {{x, "d0, d2"}, {constant_of(shard), "d1, d2"}}, kMultiplyAdd, kZero);
        if (bias)
            y = w_.generic(y.shape, "pp", "d0, d1", {{y, "d0, d1"}, {constant_of(*bias), "d1"}},
                           "%y = arith.addf %i0, %i1 : f32");
        give(op, {y, shard.rows});
    }

    // Feature d of a head turns with its partner, by the angle of its pair.
    void rope(const Op& op) {
        const auto& a = op.as<RopeAttrs>();
        const Local& given = in(op, 0);
        const int64_t half = a.rotary_dim / 2;
        const MlirTensor x =
            w_.split_last(given.tensor, {given.columns.size() / a.head_dim, a.head_dim});
        const MlirTensor cos = constant(data().rope_cos(a.table)),
                         sin = constant(data().rope_sin(a.table));
        const char* pairs = a.interleaved ? "%pair = arith.divui %d, %two : index\n"
                                            "%rest = arith.remui %d, %two : index\n"
                                            "%is_first = arith.cmpi eq, %rest, %none : index\n"
                                            "%next = arith.addi %d, %one : index\n"
                                            "%before = arith.subi %d, %one : index\n"
                                          : "%is_first = arith.cmpi ult, %d, %half : index\n"
                                            "%next = arith.addi %d, %half : index\n"
                                            "%before = arith.subi %d, %half : index\n"
                                            "%pair = arith.select %is_first, %d, %before : index\n";
        const std::string body = fmt::format(
            "%t = linalg.index 0 : index\n"
            "%head = linalg.index 1 : index\n"
            "%feature = linalg.index 2 : index\n"
            "%none = arith.constant 0 : index\n"
            "%one = arith.constant 1 : index\n"
            "%two = arith.constant 2 : index\n"
            "%half = arith.constant {} : index\n"
            "%turned = arith.constant {} : index\n"
            "%turns = arith.cmpi ult, %feature, %turned : index\n"
            "%d = arith.select %turns, %feature, %none : index\n"
            "{}"
            "%partner = arith.select %is_first, %next, %before : index\n"
            "%position = arith.addi %past, %t : index\n"
            "%c = tensor.extract {}[%position, %pair] : {}\n"
            "%s = tensor.extract {}[%position, %pair] : {}\n"
            "%other = tensor.extract {}[%t, %head, %partner] : {}\n"
            "%back = arith.negf %other : f32\n"
            "%signed = arith.select %is_first, %back, %other : f32\n"
            "%along = arith.mulf %i0, %c : f32\n"
            "%across = arith.mulf %signed, %s : f32\n"
            "%sum = arith.addf %along, %across : f32\n"
            "%y = arith.select %turns, %sum, %i0 : f32",
            half, a.rotary_dim, pairs, cos.ssa, mlir_type(cos), sin.ssa, mlir_type(sin), x.ssa,
            mlir_type(x));
        give(op, {w_.join_last(w_.elementwise({x}, body), 1), given.columns});
    }

    // ---- Attention

    struct Kv {
        MlirTensor key, value;  // [batch * context, KV heads, dim]
    };

    MlirTensor append(const Local& fresh, KvSlabId id, bool is_key) {
        const KvSlab& slab = plan_.kv_slabs[id.index()];
        const int64_t dim = is_key ? slab.head_dim : slab.v_head_dim;
        const std::string symbol = fmt::format("kv{}_{}", id.index(), is_key ? "key" : "value");
        MlirTensor cache{"",
                         {plan_.workload.batch * plan_.workload.context, slab.kv_heads.size(), dim},
                         mlir_element(plan_.workload.kv_dtype.value_or(DType::kF32))};
        // IREE 3.13 gives mutable globals with equal initial values one buffer, and one cache then
        // overwrites another: each gets a number of its own (as bits; no row is read before it is
        // written).
        const int digits = dtype_bits(plan_.workload.kv_dtype.value_or(DType::kF32)) / 4;
        CLEAVE_CHECK(++caches_ < 0x7c00) << "more KV caches than distinct numbers";
        globals_ += fmt::format(
            "  util.global private mutable @{} {{{}}} = dense<0x{:0{}X}> : {}\n", symbol,
            affinity("stream.affinity", device_), caches_, digits, mlir_type(cache));
        MlirTensor rows =
            w_.split_last(columns(fresh, {slab.kv_heads.begin * dim, slab.kv_heads.end * dim}),
                          {slab.kv_heads.size(), dim});
        cache = w_.insert(w_.narrow(rows, cache.element), w_.load_global(symbol, cache, true),
                          {batched() ? "%next_row" : "%past", "0", "0"});
        w_.store_global(symbol, cache);
        return cache;
    }
    void kv_append(const Op& op) {
        const KvSlabId id = item_->compute->kv;
        kv_[id] = {append(in(op, 0), id, true), append(in(op, 1), id, false)};
    }

    void attention(const Op& op) {
        const auto& a = op.as<AttentionAttrs>();
        const KvSlabId id = item_->compute->kv;
        const KvSlab& slab = plan_.kv_slabs[id.index()];
        const Local& q = in(op, 0);
        const Range heads{q.columns.begin / a.head_dim, q.columns.end / a.head_dim};
        const Range result{heads.begin * a.v_head_dim, heads.end * a.v_head_dim};
        const int64_t group = a.num_heads / a.num_kv_heads, kv_heads = slab.kv_heads.size();
        const std::string row = batched() ? "%first_row" : "0";
        const MlirTensor key = w_.slice(kv_.at(id).key, 0, row, kTotal),
                         value = w_.slice(kv_.at(id).value, 0, row, kTotal);
        if (heads.begin == slab.kv_heads.begin * group && heads.end == slab.kv_heads.end * group) {
            const MlirTensor query = w_.split_last(q.tensor, {kv_heads, group, a.head_dim});
            return give(op, {attend(a, query, key, value), result});
        }
        // The device has only some queries of a KV head: one KV head at a time.
        MlirTensor y = w_.empty({kTokens, result.size()});
        for (int64_t kv = slab.kv_heads.begin; kv < slab.kv_heads.end; ++kv) {
            const Range part{std::max(heads.begin, kv * group),
                             std::min(heads.end, (kv + 1) * group)};
            const MlirTensor some = columns(q, {part.begin * a.head_dim, part.end * a.head_dim});
            const MlirTensor query = w_.split_last(some, {1, part.size(), a.head_dim});
            const int64_t at = kv - slab.kv_heads.begin;
            const MlirTensor made =
                attend(a, query, w_.slice(key, 1, at, 1), w_.slice(value, 1, at, 1));
            y = w_.insert(made, y,
                          {"0", std::to_string((part.begin - heads.begin) * a.v_head_dim)});
        }
        give(op, {y, result});
    }

    // query [tokens, KV heads, group, head_dim], key and value [total, KV heads, dim] -> [tokens,
    // heads * v_head_dim]
    MlirTensor attend(const AttentionAttrs& a, const MlirTensor& query, const MlirTensor& key,
                      const MlirTensor& value) {
        const int64_t kv_heads = query.shape[1], group = query.shape[2];
        const std::vector<int64_t> rows{kv_heads, group, kTokens},
            pairs{kv_heads, group, kTokens, kTotal};
        const char *all = "d0, d1, d2, d3", *outer = "d0, d1, d2";
        MlirTensor scores =
            w_.generic(pairs, "ppppr", all, {{query, "d2, d0, d1, d4"}, {key, "d3, d0, d4"}},
                       kMultiplyAdd, kZero);
        scores = w_.elementwise({scores}, masked_score(a));
        MlirTensor largest = w_.generic(rows, "pppr", outer, {{scores, all}},
                                        "%y = arith.maximumf %i0, %acc : f32", kLowest);
        MlirTensor weights = w_.generic(pairs, "pppp", all, {{scores, all}, {largest, outer}},
                                        "%d = arith.subf %i0, %i1 : f32\n%y = math.exp %d : f32");
        MlirTensor sum = w_.generic(rows, "pppr", outer, {{weights, all}},
                                    "%y = arith.addf %acc, %i0 : f32", kZero);
        weights = w_.generic(pairs, "pppp", all, {{weights, all}, {sum, outer}},
                             "%y = arith.divf %i0, %i1 : f32");
        MlirTensor y =
            w_.generic({kTokens, kv_heads, group, a.v_head_dim}, "ppppr", all,
                       {{weights, "d1, d2, d0, d4"}, {value, "d4, d1, d3"}}, kMultiplyAdd, kZero);
        return w_.join_last(y, 1);
    }

    static std::string soft_cap(double cap, const char* x, const char* y) {
        return fmt::format(
            "%cap = arith.constant {}\n%bent = arith.divf {}, %cap : f32\n"
            "%bounded = math.tanh %bent : f32\n{} = arith.mulf %bounded, %cap : f32\n",
            mlir_float(cap), x, y);
    }

    static std::string masked_score(const AttentionAttrs& a) {
        std::string body = fmt::format(
            "%t = linalg.index 2 : index\n"
            "%key = linalg.index 3 : index\n"
            "%position = arith.addi %past, %t : index\n"
            "%scale = arith.constant {}\n"
            "%lowest = arith.constant {}\n"
            "%scaled = arith.mulf %i0, %scale : f32\n",
            mlir_float(a.scale), kLowest);
        const char* score = a.softcap > 0 ? "%capped" : "%scaled";
        if (a.softcap > 0) body += soft_cap(a.softcap, "%scaled", "%capped");
        if (!a.causal)
            return body + fmt::format("%zero = arith.constant {}\n%y = arith.addf {}, %zero : f32",
                                      kZero, score);
        body += "%seen = arith.cmpi ule, %key, %position : index\n";
        const char* seen = a.window > 0 ? "%near" : "%seen";
        if (a.window > 0)
            body += fmt::format(
                "%window = arith.constant {} : index\n"
                "%end = arith.addi %key, %window : index\n"
                "%within = arith.cmpi ult, %position, %end : index\n"
                "%near = arith.andi %seen, %within : i1\n",
                a.window);
        return body + fmt::format("%y = arith.select {}, {}, %lowest : f32", seen, score);
    }

    // ---- The rest

    void gated_activation(const Op& op) {
        const Local &gate = in(op, 0), &up = in(op, 1);
        CLEAVE_CHECK(gate.columns == up.columns) << op.name << ": operands of unequal columns";
        const std::string body = activation_body(op.as<GatedActivationAttrs>().activation) +
                                 "%y = arith.mulf %g, %i1 : f32";
        give(op, {w_.elementwise({gate.tensor, up.tensor}, body), gate.columns});
    }

    static std::string activation_body(Activation activation) {
        const std::string one = "%one = arith.constant 1.0 : f32\n";
        const std::string halves =
            "%two = arith.constant 0.5 : f32\n%half = arith.mulf %i0, %two : f32\n"
            "%more = arith.addf %e, %one : f32\n%g = arith.mulf %half, %more : f32\n";
        switch (activation) {
            case Activation::kSilu:
                return one +
                       "%minus = arith.negf %i0 : f32\n%e = math.exp %minus : f32\n"
                       "%under = arith.addf %e, %one : f32\n%g = arith.divf %i0, %under : f32\n";
            case Activation::kRelu:
                return "%none = arith.constant 0.0 : f32\n%g = arith.maximumf %i0, %none : f32\n";
            case Activation::kRelu2:
                return "%none = arith.constant 0.0 : f32\n"
                       "%above = arith.maximumf %i0, %none : f32\n"
                       "%g = arith.mulf %above, %above : f32\n";
            case Activation::kGeluErf:
                return one +
                       fmt::format(
                           "%root = arith.constant {}\n%at = arith.mulf %i0, %root : "
                           "f32\n%e = math.erf %at : f32\n",
                           mlir_float(0.70710678118654752)) +
                       halves;
            case Activation::kGeluTanh:  // sqrt(2 / pi)
                return one +
                       fmt::format(
                           "%a = arith.constant {}\n%b = arith.constant {}\n"
                           "%square = arith.mulf %i0, %i0 : f32\n"
                           "%cube = arith.mulf %square, %i0 : f32\n"
                           "%bent = arith.mulf %cube, %a : f32\n"
                           "%sum = arith.addf %i0, %bent : f32\n"
                           "%at = arith.mulf %sum, %b : f32\n"
                           "%e = math.tanh %at : f32\n",
                           mlir_float(0.044715), mlir_float(0.79788456080286536)) +
                       halves;
        }
        CLEAVE_CHECK(false) << "unknown activation";
        return {};
    }

    void add(const Op& op) {
        const Local &a = in(op, 0), &b = in(op, 1);
        // A device's columns of a product may meet a whole value.
        const Range common = a.columns.size() < b.columns.size() ? a.columns : b.columns;
        give(op, {w_.elementwise({columns(a, common), columns(b, common)},
                                 "%y = arith.addf %i0, %i1 : f32"),
                  common});
    }

    void scale(const Op& op) {
        const auto& attrs = op.as<ScaleAttrs>();
        const Local& x = in(op, 0);
        std::string body =
            fmt::format("%factor = arith.constant {}\n{} = arith.mulf %i0, %factor : f32\n",
                        mlir_float(attrs.factor), attrs.softcap > 0 ? "%scaled" : "%y");
        if (attrs.softcap > 0) body += soft_cap(attrs.softcap, "%scaled", "%y");
        give(op, {w_.elementwise({x.tensor}, body), x.columns});
    }

    const Plan& plan_;
    const Graph& graph_;
    const Schedule& schedule_;
    const std::vector<std::shared_ptr<TensorFile>>& data_;
    MlirWriter w_;
    std::string globals_;
    IreeModule result_;
    DeviceId device_;
    const SegmentOp* item_ = nullptr;
    std::vector<std::map<ValueId, Local>> locals_;  // by device
    std::map<std::pair<DeviceId, std::string>, MlirTensor> constants_;
    std::map<KvSlabId, Kv> kv_;
    int caches_ = 0;
};

}  // namespace

std::string iree_device(DeviceId device) { return fmt::format("device{}", device.index()); }

IreeModule lower_module(const Plan& plan, const Schedule& schedule,
                        const std::vector<std::shared_ptr<TensorFile>>& data) {
    return ModuleLowering(plan, schedule, data).run();
}

}  // namespace cleave::planner
