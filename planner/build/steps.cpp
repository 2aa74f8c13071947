// SPDX-License-Identifier: Apache-2.0
#include "planner/build/steps.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "planner/analysis/storage.h"
#include "planner/analysis/work.h"
#include "planner/build/norm_epilogue.h"
#include "planner/cost/collective_form.h"
#include "planner/cost/link_times.h"
#include "runtime/base/errors.h"

namespace cleave::planner {

using namespace importer;

namespace {

// Weight shards, rope tables and KV slabs of all devices. Each exists once, for all its steps.
class Constants {
public:
    Constants(const Analysis& analysis, Plan& plan) : analysis_(analysis), plan_(plan) {}

    WeightShardId weight(WeightId id, DeviceId device, const WeightBox& box) {
        auto key = std::tuple(id, device, box.rows.begin, box.rows.end, box.columns.begin,
                              box.columns.end);
        auto [at, fresh] = weights_.try_emplace(key, WeightShardId(plan_.weights.size()));
        if (fresh)
            plan_.weights.push_back({id,
                                     device,
                                     box.rows,
                                     box.columns,
                                     device_dtype(analysis_.graph.weight(id), plan_.workload),
                                     {}});
        return at->second;
    }
    RopeShardId rope(RopeTableId id, DeviceId device) {
        auto [at, fresh] =
            ropes_.try_emplace(std::pair(id, device), RopeShardId(plan_.rope_tables.size()));
        if (fresh) plan_.rope_tables.push_back({id, device, {}});
        return at->second;
    }
    // Of heads [kv_heads) of the state that `append` makes.
    KvSlabId kv(ValueId state, DeviceId device, Range kv_heads, const KvAppendAttrs& append) {
        auto [at, fresh] =
            slabs_.try_emplace(std::pair(state, device), KvSlabId(plan_.kv_slabs.size()));
        if (fresh)
            plan_.kv_slabs.push_back(
                {state, device, kv_heads, append.head_dim, append.v_head_dim, {}});
        return at->second;
    }

private:
    const Analysis& analysis_;
    Plan& plan_;
    std::map<std::tuple<WeightId, DeviceId, int64_t, int64_t, int64_t, int64_t>, WeightShardId>
        weights_;
    std::map<std::pair<RopeTableId, DeviceId>, RopeShardId> ropes_;
    std::map<std::pair<ValueId, DeviceId>, KvSlabId> slabs_;
};

// Writes one phase's values and steps.
class PhaseBuilder {
public:
    PhaseBuilder(const Analysis& analysis, const Placement& placement, Plan& plan,
                 Constants& constants, const LinkTable& links, bool is_prefill)
        : a_(analysis),
          graph_(analysis.graph),
          placement_(placement),
          plan_(plan),
          constants_(constants),
          phase_(is_prefill ? plan.prefill : plan.decode),
          is_prefill_(is_prefill),
          links_(links),
          point_(is_prefill ? prefill_point(plan.workload) : decode_point(plan.workload)),
          normed_(analysis.groups.size()),
          home_(graph_.values.size()) {}

    void run() {
        for (stage_ = 0; stage_ < static_cast<int>(placement_.stages.size()); ++stage_) {
            choice_ = &placement_.stages[stage_];
            ranges_.clear();
            for (number_ = choice_->begin; number_ < choice_->end; ++number_) {
                const FusedGroup& group = a_.groups[static_cast<size_t>(number_)];
                if (normed_[static_cast<size_t>(number_)])
                    emit_group(without_norm(graph_, group));
                else
                    emit_group(group);
            }
        }
        stage_ = static_cast<int>(placement_.stages.size()) - 1;
        for (ValueId v : graph_.outputs) emit_output(v);
    }

private:
    // Where a value lies in each stage that has it: per device of the stage; invalid where that
    // device has none.
    struct Home {
        int made_in = -1;
        std::map<int, std::vector<PlacedId>> stages;
    };

    size_t width() const { return choice_->devices.size(); }

    const std::vector<Range>& ranges(const Split& split) {
        auto [at, fresh] = ranges_.try_emplace(split);
        if (fresh) at->second = ranges_of(choice_->shares, split);
        return at->second;
    }
    Range work(const Split& split, size_t i) { return split.whole() ? Range{} : ranges(split)[i]; }
    bool has_work(const Split& split, size_t i) {
        return split.whole() || !ranges(split)[i].empty();
    }

    Box box_of(ValueId v, size_t i) {
        const Value& value = graph_.value(v);
        Box box;
        for (const Dim& d : value.shape) box.push_back({0, d.is_static() ? d.value : kWhole});
        const Split& split = a_.splits.values[v.index()];
        if (!split.whole() && !box.empty()) {
            Range r = ranges(split)[i];
            box.back() = {r.begin * split.unit_size, r.end * split.unit_size};
        }
        return box;
    }
    // The columns that a device makes of a gathered group's output.
    Box piece_of(const FusedGroup& group, size_t i) {
        Box box = box_of(group.outputs[0], i);
        const Range r = ranges(group.split.work)[i];
        box.back() = {r.begin * group.split.work.unit_size, r.end * group.split.work.unit_size};
        return box;
    }
    PlacedId place(ValueId value, DeviceId device, Box box, bool partial) {
        phase_.values.push_back({value, device, std::move(box), partial, {}});
        return PlacedId(phase_.values.size() - 1);
    }
    Step& push(std::variant<Compute, Transfer, Collective> action, int layer) {
        Step step;
        step.action = std::move(action);
        step.layer = layer;
        step.stage = stage_;
        phase_.steps.push_back(std::move(step));
        return phase_.steps.back();
    }
    std::vector<PlacedId>& local(ValueId v) { return home_[v.index()].stages[stage_]; }

    // Makes `v` readable on every device of this stage that needs it; transfers it when an earlier
    // stage made it.
    const std::vector<PlacedId>& need(ValueId v, int layer) {
        Home& home = home_[v.index()];
        if (auto at = home.stages.find(stage_); at != home.stages.end()) return at->second;
        std::vector<PlacedId> here(width());
        for (size_t i = 0; i < width(); ++i) {
            here[i] = held(home, choice_->devices[i]);
            if (here[i].valid()) continue;
            if (home.made_in < 0) {  // an input of the graph: given to whoever needs it
                here[i] = place(v, choice_->devices[i], box_of(v, i), false);
                phase_.inputs.push_back(here[i]);
            } else {
                const std::vector<PlacedId>& from = home.stages.at(home.made_in);
                here[i] = transfer(from[i % from.size()], choice_->devices[i], layer);
            }
        }
        return local(v) = std::move(here);
    }

    // The value on a device to which the pipeline returns: it is there from an earlier stage.
    PlacedId held(const Home& home, DeviceId device) const {
        for (const auto& [stage, placed] : home.stages)
            for (PlacedId id : placed)
                if (id.valid() && phase_.values[id.index()].device == device) return id;
        return {};
    }

    PlacedId transfer(PlacedId source, DeviceId to, int layer) {
        CLEAVE_CHECK(source.valid())
            << "a value that crosses stages lies whole on every device of its stage";
        const PlacedValue from = phase_.values[source.index()];
        PlacedId destination = place(from.value, to, from.box, false);
        Transfer t;
        t.source = source;
        t.destination = destination;
        if (by_peers(from.value, std::array{from.device, to})) t.path = Path::kPeer;
        t.bytes = value_bytes(graph_.value(from.value), 0, plan_.workload);
        push(t, layer).link_bytes = t.bytes;
        return destination;
    }

    // Kernels exchange rows of tokens or outputs.
    bool by_peers(ValueId value, std::span<const DeviceId> devices) const {
        return graph_.value(value).kind != importer::ValueKind::kTensor &&
               links_.reach_each_other(devices);
    }

    void emit_group(const FusedGroup& group) {
        const bool sum = is_partial(group) && width() > 1;
        const bool gather = is_gathered(group) && width() > 1;
        std::vector<std::vector<PlacedId>> inputs;
        for (ValueId v : group.inputs) inputs.push_back(need(v, group.layer));
        std::vector<PlacedId> residual;
        if (group.residual.valid()) residual = need(group.residual, group.layer);
        std::vector<PlacedId> partials;
        std::vector<std::vector<PlacedId>> made(group.outputs.size(),
                                                std::vector<PlacedId>(width()));
        bool first = true;
        for (size_t i = 0; i < width(); ++i) {
            if (!has_work(group.split.work, i)) continue;
            Compute c = compute(group, i, first, !sum);
            for (const auto& placed : inputs) c.inputs.push_back(placed[i]);
            if (sum) {
                Box box = box_of(group.partial, i);
                partials.push_back(place(group.partial, choice_->devices[i], std::move(box), true));
                c.outputs = {partials.back()};
            } else {
                if (group.residual.valid()) c.inputs.push_back(residual[i]);
                for (size_t k = 0; k < group.outputs.size(); ++k) {
                    Box box = gather ? piece_of(group, i) : box_of(group.outputs[k], i);
                    made[k][i] =
                        place(group.outputs[k], choice_->devices[i], std::move(box), false);
                    c.outputs.push_back(made[k][i]);
                }
            }
            first = false;
            push(std::move(c), group.layer);
        }
        if (sum) made[0] = all_reduce(group, partials, residual);
        if (gather) made[0] = all_gather(group.outputs[0], made[0], choice_->devices, group.layer);
        for (size_t k = 0; k < group.outputs.size(); ++k) {
            home_[group.outputs[k].index()].made_in = stage_;
            local(group.outputs[k]) = std::move(made[k]);
        }
        if (group.kv_state.valid()) home_[group.kv_state.index()].made_in = stage_;
    }

    Compute compute(const FusedGroup& group, size_t i, bool is_first, bool with_epilogue) {
        Compute c;
        c.device = choice_->devices[i];
        c.kernel = group.kernel;
        c.ops = group.ops;
        Range units = work(group.split.work, i);
        for (OpId id : group.ops) {
            const Op& op = graph_.op(id);
            const OpSplit& split = a_.splits.ops[id.index()];
            Range op_units = work(split.work, i);
            for (size_t w = 0; w < op.weights.size(); ++w) {
                // The bias of a split sum is added once.
                if (w > 0 && split.weight == WeightCut::kColumns && !is_first) continue;
                c.weights.push_back(
                    constants_.weight(op.weights[w], c.device,
                                      weight_box(graph_.weight(op.weights[w]), split, op_units)));
            }
            if (op.kind == OpKind::kRope) add_rope(c, op.as<RopeAttrs>().table);
            if (op.kind == OpKind::kAttention && split.work.whole())
                units = {0, op.as<AttentionAttrs>().num_heads};
            if (op.kind == OpKind::kRope && split.work.whole())
                units = {0, op.as<RopeAttrs>().num_heads};
            if (op.kind == OpKind::kKvAppend && split.work.whole() &&
                group.kernel == KernelKind::kNormQkvRopeAppend)
                units = {0, last_dimension(graph_.value(group.outputs[0])) /
                                op.as<KvAppendAttrs>().head_dim};
        }
        if (with_epilogue && group.epilogue.valid()) c.ops.push_back(group.epilogue);
        std::sort(c.ops.begin(), c.ops.end());
        if (group.kv_state.valid()) c.kv = slab(group.kv_state, i);
        bool heads = group.kernel == KernelKind::kAttention ||
                     group.kernel == KernelKind::kNormQkvRopeAppend ||
                     group.kernel == KernelKind::kRope || group.kernel == KernelKind::kKvAppend;
        if (heads) c.heads = units;
        LaunchAmounts amounts =
            launch_amounts(a_, group, work(group.split.work, i), plan_.workload, with_epilogue);
        c.flops = amounts.flops;
        c.weight_bytes = amounts.weight_bytes;
        c.activation_bytes = amounts.activation_bytes;
        return c;
    }

    void add_rope(Compute& c, RopeTableId table) {
        RopeShardId id = constants_.rope(table, c.device);
        if (std::find(c.rope_tables.begin(), c.rope_tables.end(), id) == c.rope_tables.end())
            c.rope_tables.push_back(id);
    }

    KvSlabId slab(ValueId state, size_t i) {
        const Split& split = a_.splits.values[state.index()];
        for (OpId id : a_.groups[a_.made_by[state.index()]].ops)
            if (graph_.op(id).kind == OpKind::kKvAppend) {
                const auto& attrs = graph_.op(id).as<KvAppendAttrs>();
                Range heads = split.whole() ? Range{0, attrs.num_kv_heads} : ranges(split)[i];
                return constants_.kv(state, choice_->devices[i], heads, attrs);
            }
        CLEAVE_CHECK(false) << "a KV state without an append";
        return {};
    }

    // Layers repeat: one choice for each stage and payload.
    const CollectiveForm& all_reduce_form_of(ValueId partial, int64_t bytes) {
        auto [at, fresh] = forms_.try_emplace({stage_, bytes});
        if (fresh)
            at->second =
                choose_all_reduce(links_, choice_->devices, bytes, is_prefill_,
                                  graph_.value(partial).kind != importer::ValueKind::kTensor);
        return at->second;
    }

    std::vector<PlacedId> all_reduce(const FusedGroup& group, const std::vector<PlacedId>& partials,
                                     const std::vector<PlacedId>& residual) {
        Collective c;
        c.op = CollectiveOp::kAllReduce;
        c.bytes = value_bytes(graph_.value(group.partial), 0, plan_.workload);
        CollectiveForm form = all_reduce_form_of(group.partial, c.bytes.at(point_));
        c.group = form.group;
        c.two_phase = form.form == SumForm::kTwoPhase;
        const bool by_library = form.form >= SumForm::kRing;
        if (by_library) c.by_library = form.form;
        c.path = by_library                         ? Path::kVendor
                 : by_peers(group.partial, c.group) ? Path::kPeer
                                                    : Path::kStaged;
        c.contributions = partials;
        if (group.epilogue.valid()) c.epilogue = {group.epilogue};
        std::vector<PlacedId> made(width());  // in the stage's order, which a ring's need not be
        for (DeviceId member : c.group) {
            const size_t i = place_in_stage(member);
            if (group.epilogue.valid()) c.epilogue_inputs.push_back(residual[i]);
            made[i] = place(group.outputs[0], member, box_of(group.outputs[0], i), false);
            c.outputs.push_back(made[i]);
        }
        int64_t members = static_cast<int64_t>(width()),
                given = static_cast<int64_t>(partials.size());
        Amount link = by_library                        ? c.bytes * (2 * (members - 1))
                      : form.form == SumForm::kTwoPhase ? c.bytes * (given + members - 2)
                                                        : c.bytes * (given * (members - 1));
        // Of few tokens: an exchange of many is bound by its bytes, and divides them finer than by
        // rows.
        if (!is_prefill_ && c.path == Path::kPeer && !c.two_phase) add_norm(c);
        push(std::move(c), group.layer).link_bytes = link;
        return made;
    }

    size_t place_in_stage(DeviceId member) const {
        return static_cast<size_t>(
            std::find(choice_->devices.begin(), choice_->devices.end(), member) -
            choice_->devices.begin());
    }

    // The norm of the sum joins it on every member; the launch that begins with it will read its
    // result.
    void add_norm(Collective& c) {
        const int reader = reader_of_norm(a_, plan_.workload, number_, choice_->end);
        if (reader < 0) return;
        const OpId id = a_.groups[static_cast<size_t>(reader)].ops.front();
        const Op& norm = graph_.op(id);
        const WeightBox whole =
            weight_box(graph_.weight(norm.weights[0]), a_.splits.ops[id.index()], {});
        const ValueId value = norm.outputs[0];
        std::vector<PlacedId> made(width());
        c.epilogue.push_back(id);
        for (DeviceId member : c.group) {
            const size_t i = place_in_stage(member);
            c.weights.push_back(constants_.weight(norm.weights[0], member, whole));
            made[i] = place(value, member, box_of(value, i), false);
            c.outputs.push_back(made[i]);
        }
        home_[value.index()].made_in = stage_;
        local(value) = std::move(made);
        normed_[static_cast<size_t>(reader)] = true;
    }

    // Brings an output whole to the plan's output device.
    void emit_output(ValueId v) {
        Home& home = home_[v.index()];
        CLEAVE_CHECK(home.made_in >= 0)
            << "output " << graph_.value(v).name << " is an input of the graph";
        stage_ = home.made_in;
        choice_ = &placement_.stages[stage_];
        ranges_.clear();
        std::vector<PlacedId> placed = local(v);
        const Split& split = a_.splits.values[v.index()];
        if (split.whole() || width() == 1) {
            PlacedId there = placed[0];
            if (phase_.values[there.index()].device != plan_.output_device)
                there = transfer(there, plan_.output_device, -1);
            phase_.outputs.push_back(there);
            return;
        }
        const int last =
            graph_.config.num_layers > 0 ? static_cast<int>(graph_.config.num_layers) : -1;
        phase_.outputs.push_back(all_gather(v, placed, {plan_.output_device}, last)[0]);
    }

    // The columns of `pieces` side by side on each of `members`; pieces of devices without work are
    // invalid.
    std::vector<PlacedId> all_gather(ValueId v, const std::vector<PlacedId>& pieces,
                                     const std::vector<DeviceId>& members, int layer) {
        Collective c;
        c.op = CollectiveOp::kAllGather;
        c.group = members;
        std::sort(c.group.begin(), c.group.end());
        c.bytes = value_bytes(graph_.value(v), 0, plan_.workload);
        Amount link;
        for (PlacedId id : pieces) {
            if (!id.valid()) continue;
            c.contributions.push_back(id);
            const PlacedValue piece = phase_.values[id.index()];
            const auto others = static_cast<int64_t>(members.size()) -
                                std::count(members.begin(), members.end(), piece.device);
            link = link +
                   value_bytes(graph_.value(v), piece.box.back().size(), plan_.workload) * others;
        }
        Box box;
        for (const Dim& d : graph_.value(v).shape)
            box.push_back({0, d.is_static() ? d.value : kWhole});
        std::vector<PlacedId> made(members.size());  // in the stage's order
        for (DeviceId member : c.group) {
            const auto i = std::find(members.begin(), members.end(), member) - members.begin();
            made[static_cast<size_t>(i)] = place(v, member, box, false);
            c.outputs.push_back(made[static_cast<size_t>(i)]);
        }
        std::vector<DeviceId> all = c.group;
        for (PlacedId id : c.contributions) all.push_back(phase_.values[id.index()].device);
        std::sort(all.begin(), all.end());
        all.erase(std::unique(all.begin(), all.end()), all.end());
        const bool is_rows = graph_.value(v).kind != importer::ValueKind::kTensor;
        c.path = gathers_by_library(links_, all, is_rows) ? Path::kVendor
                 : by_peers(v, all)                       ? Path::kPeer
                                                          : Path::kStaged;
        push(std::move(c), layer).link_bytes = link;
        return made;
    }

    const Analysis& a_;
    const Graph& graph_;
    const Placement& placement_;
    Plan& plan_;
    Constants& constants_;
    Phase& phase_;
    bool is_prefill_;
    int stage_ = 0, number_ = 0;  // of the stage, of the group
    const StageChoice* choice_ = nullptr;
    const LinkTable& links_;
    PassPoint point_;
    std::vector<bool> normed_;  // by group: an all-reduce before it has computed its norm
    std::map<std::pair<int, int64_t>, CollectiveForm> forms_;
    std::map<Split, std::vector<Range>> ranges_;
    std::vector<Home> home_;
};

Stage describe_stage(const Analysis& a, const StageChoice& choice) {
    Stage stage;
    stage.devices = choice.devices;
    stage.first_op = OpId(a.graph.ops.size());
    stage.first_layer = 0;
    stage.last_layer = -1;
    bool any = false;
    for (int g = choice.begin; g < choice.end; ++g) {
        stage.first_op = std::min(stage.first_op, a.groups[g].first);
        stage.last_op = std::max(stage.last_op, a.groups[g].last);
        for (OpId id : a.groups[g].ops) {
            int layer = a.graph.op(id).layer;
            if (layer < 0 || (a.graph.config.num_layers > 0 && layer >= a.graph.config.num_layers))
                continue;
            stage.first_layer = any ? std::min(stage.first_layer, layer) : layer;
            stage.last_layer = std::max(stage.last_layer, layer);
            any = true;
        }
    }
    return stage;
}

}  // namespace

void build_steps(const Analysis& analysis, const Placement& placement, Plan& plan) {
    CLEAVE_CHECK(!placement.stages.empty()) << "a plan has a stage";
    for (const StageChoice& choice : placement.stages)
        plan.stages.push_back(describe_stage(analysis, choice));
    plan.output_device = placement.stages.back().devices[0];
    if (!analysis.graph.outputs.empty()) {
        int made_by = analysis.made_by[analysis.graph.outputs[0].index()];
        for (const StageChoice& choice : placement.stages)
            if (choice.begin <= made_by && made_by < choice.end)
                plan.output_device = choice.devices[0];
    }
    Constants constants(analysis, plan);
    LinkTable links(plan.machine);
    PhaseBuilder(analysis, placement, plan, constants, links, true).run();
    PhaseBuilder(analysis, placement, plan, constants, links, false).run();
}

// The forms of sums, and the rows of values that have one a sequence.
std::vector<int64_t> size_choices(const Analysis& a, const Placement& placement,
                                  const PlanRequest& request) {
    const Workload& workload = request.workload;
    const LinkTable links(request.machine);
    std::vector<int64_t> choices;
    for (const Value& value : a.graph.values)
        if (value.kind != ValueKind::kKvState && rows_of(value) == Rows::kSequences &&
            choices.empty())
            choices = {workload.batch};
    for (const bool is_prefill : {true, false})
        for (const StageChoice& stage : placement.stages) {
            std::map<std::pair<int64_t, bool>, CollectiveForm> forms;
            for (int g = stage.begin; g < stage.end && stage.devices.size() > 1; ++g) {
                const FusedGroup& group = a.groups[static_cast<size_t>(g)];
                if (!is_partial(group)) continue;
                const Value& partial = a.graph.value(group.partial);
                const int64_t bytes =
                    value_bytes(partial, 0, workload)
                        .at(is_prefill ? prefill_point(workload) : decode_point(workload));
                const bool is_rows = partial.kind != importer::ValueKind::kTensor;
                auto [at, fresh] = forms.try_emplace({bytes, is_rows});
                if (fresh)
                    at->second =
                        choose_all_reduce(links, stage.devices, bytes, is_prefill, is_rows);
                choices.push_back(static_cast<int64_t>(at->second.form));
                for (DeviceId d : at->second.group)
                    choices.push_back(static_cast<int64_t>(d.index()));
            }
        }
    return choices;
}

}  // namespace cleave::planner
