// SPDX-License-Identifier: Apache-2.0
#include "tools/inspect/inspection.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "codegen/generate.h"
#include "codegen/kernel/program.h"
#include "planner/plan/plan_queries.h"
#include "runtime/base/errors.h"
#include "tools/cli/spelling.h"

namespace cleave::tools {

using namespace planner;

namespace {

bool same_range(const Range& a, const Range& b) {
    return a.size() == b.size() && (a.size() == 0 || a.begin == b.begin);
}

bool lie_alike(const LayerRun& a, const LayerRun& b) {
    return a.stage == b.stage && a.compute_ns == b.compute_ns && a.exchange_ns == b.exchange_ns &&
           std::equal(a.shares.begin(), a.shares.end(), b.shares.begin(), b.shares.end(),
                      [](const LayerShare& x, const LayerShare& y) {
                          return x.device == y.device && same_range(x.query_heads, y.query_heads) &&
                                 same_range(x.kv_heads, y.kv_heads) && same_range(x.mlp, y.mlp) &&
                                 x.weight_bytes == y.weight_bytes && x.kv_bytes == y.kv_bytes;
                      });
}

// How layers are placed on devices, by the steps of decode.
class Layers {
public:
    explicit Layers(const Plan& plan) : plan_(plan) {}

    std::vector<LayerRun> run() {
        for (const Step& step : plan_.decode.steps) take(step);
        std::vector<LayerRun> runs;
        for (LayerRun& layer : layers_) {
            finish(layer);
            const bool decoder = layer.first >= 0 && layer.first < plan_.graph.config.num_layers;
            if (!runs.empty() && decoder && runs.back().last + 1 == layer.first &&
                runs.back().first >= 0 && lie_alike(runs.back(), layer))
                runs.back().last = layer.first;
            else
                runs.push_back(std::move(layer));
        }
        return runs;
    }

private:
    LayerRun& layer_of(const Step& step) {
        for (LayerRun& l : layers_)
            if (l.first == step.layer && l.stage == step.stage) return l;
        LayerRun layer;
        layer.first = layer.last = step.layer;
        layer.stage = step.stage;
        for (DeviceId d : plan_.stages[static_cast<size_t>(step.stage)].devices)
            layer.shares.push_back({d, {}, {}, {}, 0, 0});
        layers_.push_back(std::move(layer));
        busy_.emplace_back();
        return layers_.back();
    }

    // A device outside of the stage (one that only receives) gets no share.
    static LayerShare* share_of(LayerRun& layer, DeviceId device) {
        for (LayerShare& s : layer.shares)
            if (s.device == device) return &s;
        return nullptr;
    }

    void take(const Step& step) {
        LayerRun& layer = layer_of(step);
        if (const Compute* c = step.compute()) {
            busy_[static_cast<size_t>(&layer - layers_.data())][c->device] += step.predicted_ns;
            LayerShare* share = share_of(layer, c->device);
            if (!share) return;
            for (WeightShardId id : c->weights) count(*share, id);
            if (c->kernel == KernelKind::kAttention) {
                const KvSlab& slab = plan_.kv_slabs[c->kv.index()];
                share->query_heads = c->heads;
                share->kv_heads = slab.kv_heads;
                share->kv_bytes += plan_.buffer(slab.buffer).size;
            }
            if (c->kernel == KernelKind::kNormGateUp || c->kernel == KernelKind::kGatedActivation) {
                const Box& box = plan_.decode.values[c->outputs[0].index()].box;
                share->mlp = box.back();
            }
            return;
        }
        layer.exchange_ns += step.predicted_ns;
        if (const Collective* c = step.collective())
            for (WeightShardId id : c->weights)
                if (LayerShare* share = share_of(layer, plan_.weights[id.index()].device))
                    count(*share, id);
    }

    void count(LayerShare& share, WeightShardId id) {
        if (!id.valid() || !counted_.insert(id).second) return;
        share.weight_bytes += plan_.buffer(plan_.weights[id.index()].buffer).size;
    }

    void finish(LayerRun& layer) {
        for (const auto& [device, ns] : busy_[static_cast<size_t>(&layer - layers_.data())])
            layer.compute_ns = std::max(layer.compute_ns, ns);
    }

    const Plan& plan_;
    std::vector<LayerRun> layers_;
    std::vector<std::map<DeviceId, int64_t>> busy_;  // beside layers_
    std::set<WeightShardId> counted_;
};

// "layers.12.q_proj.weight" and "state.12" of all layers are one: their numbers become stars.
std::string without_layer(const std::string& name) {
    std::string text;
    for (size_t i = 0; i < name.size();) {
        size_t end = i;
        while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
        const bool begins = i == 0 || name[i - 1] == '.' || name[i - 1] == '/';
        const bool ends = end == name.size() || name[end] == '.' || name[end] == '/';
        if (end > i && begins && ends)
            text += '*';
        else
            text.append(name, i, end == i ? 1 : end - i);
        i = end == i ? i + 1 : end;
    }
    return text;
}

class Maps {
public:
    explicit Maps(const Plan& plan)
        : plan_(plan),
          maps_(plan.machine.devices.size()),
          lives_{lives(plan.decode), lives(plan.prefill)} {}

    std::vector<DeviceMap> run() {
        std::vector<std::map<std::pair<Arena, std::string>, size_t>> at(maps_.size());
        const std::vector<std::string> names = names_with_layers();
        for (size_t i = 0; i < plan_.buffers.size(); ++i) {
            const Buffer& b = plan_.buffers[i];
            if (b.role == BufferRole::kActivations) continue;
            std::vector<MemoryItem>& items = maps_[b.device.index()].items;
            std::string what = without_layer(names[i]);
            auto [found, fresh] = at[b.device.index()].try_emplace({b.arena(), what}, items.size());
            if (fresh) items.push_back({b.arena(), what, 0, 0});
            ++items[found->second].buffers;
            items[found->second].bytes += b.size;
        }
        activations();
        for (DeviceMap& map : maps_)
            std::stable_sort(map.items.begin(), map.items.end(),
                             [](const MemoryItem& a, const MemoryItem& b) {
                                 return std::pair(a.arena, -a.bytes) < std::pair(b.arena, -b.bytes);
                             });
        return std::move(maps_);
    }

private:
    // A weight whose name says no layer goes by its operator's, so that those of all layers are
    // one item.
    std::vector<std::string> names_with_layers() const {
        std::map<WeightId, std::string> of_operator;
        for (const importer::Op& op : plan_.graph.ops)
            for (size_t i = 0; i < op.weights.size(); ++i)
                if (op.layer >= 0 && op.layer < plan_.graph.config.num_layers)
                    of_operator.try_emplace(op.weights[i],
                                            op.name + (i == 0 ? ".weight" : ".bias"));
        std::vector<std::string> names = buffer_names(plan_);
        for (const WeightShard& s : plan_.weights) {
            std::string& name = names[s.buffer.index()];
            const auto at = of_operator.find(s.weight);
            if (at != of_operator.end() && without_layer(name) == name) name = at->second;
        }
        return names;
    }

    struct Moment {
        int64_t bytes = 0;
        bool is_prefill = false;
        size_t step = 0;
    };

    // Of each value: [first, last] steps in which it is needed.
    static std::vector<std::pair<size_t, size_t>> lives(const Phase& phase) {
        std::vector<std::pair<size_t, size_t>> life(phase.values.size(), {SIZE_MAX, 0});
        const auto use = [&](PlacedId id, size_t step) {
            if (!id.valid()) return;
            life[id.index()].first = std::min(life[id.index()].first, step);
            life[id.index()].second = std::max(life[id.index()].second, step);
        };
        for (size_t i = 0; i < phase.steps.size(); ++i) {
            const Step& s = phase.steps[i];
            if (const Compute* c = s.compute()) {
                for (PlacedId id : c->inputs) use(id, i);
                for (PlacedId id : c->outputs) use(id, i);
            } else if (const Transfer* t = s.transfer()) {
                use(t->source, i);
                use(t->destination, i);
            } else {
                const Collective& all = *s.collective();
                for (const auto* ids : {&all.contributions, &all.epilogue_inputs, &all.outputs})
                    for (PlacedId id : *ids) use(id, i);
            }
        }
        for (PlacedId id : phase.outputs) use(id, phase.steps.size());
        return life;
    }

    bool is_activation(const PlacedValue& v) const {
        return v.buffer.valid() && plan_.buffer(v.buffer).role == BufferRole::kActivations;
    }

    void activations() {
        std::vector<Moment> fullest(maps_.size());
        for (bool is_prefill : {true, false}) {
            const Phase& phase = plan_.phase(is_prefill);
            const auto& life = lives_[is_prefill];
            // Bytes that begin and end to live with each step, by device.
            std::vector<std::vector<int64_t>> change(
                maps_.size(), std::vector<int64_t>(phase.steps.size() + 2, 0));
            for (size_t i = 0; i < phase.values.size(); ++i) {
                const PlacedValue& v = phase.values[i];
                if (!is_activation(v) || life[i].first == SIZE_MAX) continue;
                change[v.device.index()][life[i].first] += plan_.buffer(v.buffer).size;
                change[v.device.index()][life[i].second + 1] -= plan_.buffer(v.buffer).size;
            }
            for (size_t d = 0; d < maps_.size(); ++d) {
                int64_t bytes = 0;
                for (size_t i = 0; i < phase.steps.size(); ++i) {
                    bytes += change[d][i];
                    if (bytes > fullest[d].bytes) fullest[d] = {bytes, is_prefill, i};
                }
            }
        }
        for (size_t d = 0; d < maps_.size(); ++d)
            if (fullest[d].bytes > 0) list(DeviceId(d), fullest[d]);
    }

    void list(DeviceId device, const Moment& moment) {
        const Phase& phase = plan_.phase(moment.is_prefill);
        const Step& step = phase.steps[moment.step];
        DeviceMap& map = maps_[device.index()];
        map.fullest =
            fmt::format("{}{}, {}", moment.is_prefill ? "prefill" : "decode",
                        step.layer < 0 ? "" : fmt::format(", layer {}", step.layer),
                        step.compute() ? step_implementation(plan_, phase, step) : step_kind(step));
        const auto& life = lives_[moment.is_prefill];
        for (size_t i = 0; i < phase.values.size(); ++i) {
            const PlacedValue& v = phase.values[i];
            if (v.device != device || !is_activation(v) || life[i].first > moment.step ||
                life[i].second < moment.step)
                continue;
            map.items.push_back({Arena::kActivations, plan_.graph.value(v.value).name, 1,
                                 plan_.buffer(v.buffer).size});
        }
    }

    const Plan& plan_;
    std::vector<DeviceMap> maps_;
    std::array<std::vector<std::pair<size_t, size_t>>, 2> lives_;  // decode, prefill
};

std::vector<DeviceTime> times(const Plan& plan, bool is_prefill, int64_t& pass_ns) {
    const Phase& phase = plan.phase(is_prefill);
    std::vector<DeviceTime> times(plan.machine.devices.size());
    pass_ns = 0;
    for (const Step& s : phase.steps) {
        pass_ns = std::max(pass_ns, s.start_ns + s.predicted_ns);
        for (DeviceId d : step_devices(phase, s))
            (s.compute() ? times[d.index()].compute_ns : times[d.index()].exchange_ns) +=
                s.predicted_ns;
    }
    for (DeviceTime& t : times)
        t.waiting_ns = std::max<int64_t>(0, pass_ns - t.compute_ns - t.exchange_ns);
    return times;
}

// The place of a kernel's text; programs of one arch share their kernels' names.
int text_of(const codegen::Program& program, const codegen::Kernel& kernel,
            std::map<std::pair<std::string, std::string>, int>& known,
            std::vector<KernelText>& texts) {
    auto [found, fresh] =
        known.try_emplace({program.arch, kernel.name}, static_cast<int>(texts.size()));
    if (fresh) texts.push_back({kernel.name, program.arch, kernel.source, kernel.tile});
    return found->second;
}

// Which text each step of the device is computed by: of several launches the last one's.
void add_texts(const codegen::Program& program, bool is_prefill,
               std::map<std::pair<std::string, std::string>, int>& known, Inspection& out) {
    for (const codegen::Instruction& i : is_prefill ? program.prefill : program.decode)
        if (i.step.valid())
            out.step_texts[is_prefill][i.step.index()] =
                text_of(program, program.kernels[static_cast<size_t>(i.kernel)], known, out.texts);
}

// The last names of the projections that a step computes, "q_proj" of "layers.3.q_proj", each once.
void add_operators(const Plan& plan, const Compute& compute, std::vector<std::string>& names) {
    for (const OpId id : compute.ops) {
        const importer::Op& op = plan.graph.op(id);
        if (op.kind != importer::OpKind::kLinear) continue;
        std::string name = op.name.substr(op.name.rfind('.') + 1);
        if (std::find(names.begin(), names.end(), name) == names.end())
            names.push_back(std::move(name));
    }
}

// The kernels of one device's Program, with the facts that its steps have of each launch.
void add_kernels(const Plan& plan, DeviceId device, bool is_prefill,
                 const codegen::Program& program, std::vector<KernelUse>& out) {
    const Phase& phase = plan.phase(is_prefill);
    const PassPoint point = pass_point(plan, is_prefill);
    const int64_t sequences = plan.workload.batch;
    const codegen::GpuArch* arch = codegen::find_gpu_arch(codegen::gpu_arch_of(program.arch));
    std::map<int, size_t> at;  // kernel -> place in `out`
    std::set<StepId> priced;   // a step of several launches has one time
    const std::vector<codegen::Instruction>& all = is_prefill ? program.prefill : program.decode;
    for (const codegen::Instruction& i : all) {
        if (i.of_singles) continue;  // a prompt's pass has none
        auto [found, fresh] = at.try_emplace(i.kernel, out.size());
        const codegen::Kernel& kernel = program.kernels[static_cast<size_t>(i.kernel)];
        if (fresh) {
            KernelUse use;
            use.device = device;
            use.is_prefill = is_prefill;
            use.name = kernel.name;
            use.arch = program.arch;
            use.fused = kernel.fused;
            for (size_t axis = 0; axis < 3; ++axis)
                use.grid[axis] =
                    kernel.launch.grid[axis].at(point.num_tokens, point.num_outputs, sequences);
            use.threads = kernel.launch.block[0];
            use.shared_bytes = kernel.launch.shared_bytes;
            use.shared_limit = plan.machine.device(device).limits.shared_memory_per_block;
            use.is_gpu = arch != nullptr;
            if (arch)
                use.occupancy = codegen::predict_occupancy(*arch, use.threads, use.shared_bytes, 0);
            out.push_back(std::move(use));
        }
        KernelUse& use = out[found->second];
        ++use.launches;
        if (!i.step.valid()) continue;
        const Step& step = phase.steps[i.step.index()];
        if (const Compute* compute = step.compute()) add_operators(plan, *compute, use.operators);
        // What prepares activations leaves the time to the product behind it.
        if (step.compute() && &i != &all.back() && (&i + 1)->step == i.step) continue;
        if (!priced.insert(i.step).second) continue;
        use.predicted_ns += step.predicted_ns;
        use.bytes += step_bytes(step, point);
    }
}

}  // namespace

Inspection inspect_plan(const Plan& plan) {
    Inspection inspection;
    inspection.plan = &plan;
    inspection.layers = Layers(plan).run();
    inspection.memory = Maps(plan).run();
    for (bool is_prefill : {false, true})
        inspection.time[is_prefill] = times(plan, is_prefill, inspection.pass_ns[is_prefill]);
    for (bool is_prefill : {false, true})
        inspection.step_texts[is_prefill].assign(plan.phase(is_prefill).steps.size(), -1);
    std::map<std::pair<std::string, std::string>, int> known;
    for (size_t d = 0; d < plan.machine.devices.size(); ++d) {
        try {
            const codegen::Program program = codegen::generate_program(plan, DeviceId(d));
            for (bool is_prefill : {true, false}) {
                add_kernels(plan, DeviceId(d), is_prefill, program, inspection.kernels);
                add_texts(program, is_prefill, known, inspection);
            }
        } catch (const UserError& error) {
            // What cannot be compiled can be planned, exported and looked at.
            inspection.no_kernels.push_back(fmt::format("{}: {}", plan.machine.devices[d].name,
                                                        spell_for_command_line(error.what())));
        }
    }
    return inspection;
}

}  // namespace cleave::tools
