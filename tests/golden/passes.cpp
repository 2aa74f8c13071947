// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/passes.h"

#include <algorithm>
#include <memory>
#include <set>

#include "codegen/generate.h"
#include "codegen/lower/lower_step.h"
#include "codegen/lower/prepare_activations.h"
#include "importer/weights/quantize.h"
#include "models/llama_graph.h"
#include "planner/analysis/analysis.h"
#include "planner/build/assign_memory.h"
#include "planner/build/choose_tiles.h"
#include "planner/build/placement.h"
#include "planner/build/steps.h"
#include "planner/cost/simulate.h"
#include "planner/machine/build_machine.h"
#include "planner/plan/plan_queries.h"
#include "tests/golden/recovery.h"
#include "tests/planner/support/machines.h"
#include "tests/support/notation.h"

namespace cleave::test {

using namespace planner;

template <>
inline constexpr size_t num_fields<codegen::WeightFormat> = 2;

namespace {

struct Devices {
    std::string name = "host[0]";  // as `--devices` has it
    int num_cores = 4;
};
enum class PhaseKind : uint8_t { kPrefill, kDecode };

struct Case {
    models::Shape model;
    Devices devices;
    std::vector<StageChoice> places;
    std::vector<PhaseKind> phases{PhaseKind::kDecode};
    OpId first, last;           // what to show: from that operator's to that one's; all by default
    std::vector<Arena> arenas;  // likewise
};

// What is shown of a value, a launch and a step.
struct Part {
    Box box;
};
struct Chosen {
    Tile tile;
    ActivationPath activations = ActivationPath::kConverted;
    std::vector<NarrowTile> narrow;
};
struct Times {
    int64_t start_ns = 0, predicted_ns = 0;
};

models::Shape small_llama() {
    models::Shape shape;
    shape.name = "small";
    shape.config.vocab_size = 96;
    shape.config.hidden_size = 64;
    shape.config.intermediate_size = 96;
    shape.config.num_layers = 1;
    shape.config.num_heads = 4;
    shape.config.num_kv_heads = 2;
    shape.config.head_dim = 16;
    shape.config.max_positions = 64;
    shape.config.rope_theta = 1e4;
    shape.dtype = DType::kF32;
    return shape;
}

// A case as the passes see it.
class Setting {
public:
    Setting(const std::string& text, const std::string& origin) {
        Reader reader(text, origin);
        case_.model = small_llama();
        plan.workload = {.prompt_tokens = 16, .context = 64};
        reader.read(case_);
        reader.read(plan);
        if (plan.graph.ops.empty())
            plan.graph = models::build_llama_graph(case_.model, case_.model.dtype);
        if (plan.workload.dtype && importer::is_quantizing(*plan.workload.dtype))
            plan.graph = importer::quantize_weights(plan.graph, *plan.workload.dtype);
        if (!plan.workload.kv_dtype) plan.workload.kv_dtype = DType::kF32;
        if (!plan.workload.compute) plan.workload.compute = ComputeMode::kExact;
        if (plan.machine.devices.empty())
            plan.machine = machine_of(case_.devices.name, small_host(case_.devices.num_cores));
        reader.resolve(plan);
        importer::check_graph(plan.graph);
        graph_ = plan.graph;
        analysis = std::make_unique<Analysis>(analyse(graph_, plan.workload));
        placement.stages = case_.places;
        if (placement.stages.empty()) placement.stages.emplace_back();
        for (StageChoice& stage : placement.stages) {
            if (stage.devices.empty())
                for (size_t d = 0; d < plan.machine.devices.size(); ++d)
                    stage.devices.push_back(DeviceId(d));
            if (stage.end == 0) stage.end = static_cast<int>(analysis->groups.size());
            if (stage.shares.weights.empty()) stage.shares.weights.assign(stage.devices.size(), 1);
        }
    }
    // Runs what comes before tiles, memory or times.
    void build_until_steps() {
        if (plan.prefill.steps.empty() && plan.decode.steps.empty())
            build_steps(*analysis, placement, plan);
    }
    void build_until_memory() {
        build_until_steps();
        choose_tiles(plan);
        assign_memory(plan);
    }
    bool shows(OpId op) const {
        return (!case_.first.valid() || op >= case_.first) &&
               (!case_.last.valid() || op <= case_.last);
    }
    bool shows(Arena arena) const {
        return case_.arenas.empty() ||
               std::find(case_.arenas.begin(), case_.arenas.end(), arena) != case_.arenas.end();
    }
    // visit(phase, steps), of what is to show. What moves a value is shown with what made it.
    template <class Visit>
    void each_phase(Printer& printer, Visit&& visit) {
        for (const PhaseKind kind : case_.phases) {
            const Phase& phase = plan.phase(kind == PhaseKind::kPrefill);
            printer.in_decode(kind == PhaseKind::kDecode);
            std::vector<const Step*> steps;
            OpId at;
            for (const Step& step : phase.steps) {
                if (const Compute* c = step.compute()) at = c->ops.back();
                if (shows(at)) steps.push_back(&step);
            }
            visit(phase, steps);
        }
    }

    Plan plan;
    std::unique_ptr<Analysis> analysis;
    Placement placement;

private:
    Case case_;
    Graph graph_;
};

std::string sharding(const std::string& text, const std::string& origin) {
    Setting s(text, origin);
    Printer printer(s.plan);
    std::string out;
    std::set<Split> seen;
    for (size_t i = 0; i < s.plan.graph.ops.size(); ++i) {
        const OpSplit& split = s.analysis->splits.ops[i];
        const bool whole = split.effect == SplitEffect::kWhole && split.work.whole();
        if (!whole) seen.insert(split.work);
        if (s.shows(OpId(i)))
            out += fmt::format("{}: {}\n", s.plan.graph.ops[i].name,
                               whole ? "whole" : printer.value_text(split));
    }
    for (size_t i = 0; i < s.plan.graph.values.size(); ++i)
        if (const Split& split = s.analysis->splits.values[i]; !split.whole()) seen.insert(split);
    for (const StageChoice& stage : s.placement.stages)
        for (const Split& split : seen)
            if (stage.devices.size() > 1)
                out += fmt::format("{} -> {}\n", printer.value_text(split),
                                   printer.value_text(ranges_of(stage.shares, split)));
    return out;
}

std::string fusion(const std::string& text, const std::string& origin) {
    Setting s(text, origin);
    Printer printer(s.plan);
    for (FusedGroup group : s.analysis->groups) {
        group.split = {};  // goldens of `sharding` have it
        group.first = group.last = {};
        printer.line("group", group);
    }
    for (const Unit& unit : s.analysis->units) printer.line("unit", unit);
    return printer.text();
}

std::string steps(const std::string& text, const std::string& origin) {
    Setting s(text, origin);
    s.build_until_steps();
    Printer printer(s.plan);
    for (const Stage& stage : s.plan.stages) printer.line("stage", stage);
    s.each_phase(printer, [&](const Phase& phase, const std::vector<const Step*>& steps) {
        // Where a value is not whole: its part.
        std::set<PlacedId> shown;
        const auto show = [&](const std::vector<PlacedId>& ids) {
            for (const PlacedId id : ids) {
                const PlacedValue& p = phase.values[id.index()];
                const importer::Value& v = s.plan.graph.value(p.value);
                if (!shown.insert(id).second || p.box.size() < 2 ||
                    p.box.back() == Range{0, v.shape.back().value})
                    continue;
                printer.line("part " + printer.value_text(id), Part{p.box});
            }
        };
        for (const Step* step : steps) {
            Step bare = *step;
            if (auto* c = std::get_if<Compute>(&bare.action)) {
                show(c->outputs);
                c->flops = c->weight_bytes = c->activation_bytes = {};
                c->weights.clear();  // goldens of `shards` have them
                c->rope_tables.clear();
            }
            printer.line("step", bare);
        }
    });
    return printer.text();
}

std::string shards(const std::string& text, const std::string& origin) {
    Setting s(text, origin);
    s.build_until_steps();
    Printer printer(s.plan);
    std::set<WeightId> shown;
    for (size_t i = 0; i < s.plan.graph.ops.size(); ++i)
        if (s.shows(OpId(i)))
            shown.insert(s.plan.graph.ops[i].weights.begin(), s.plan.graph.ops[i].weights.end());
    for (const WeightShard& shard : s.plan.weights)
        if (shown.count(shard.weight)) printer.line("weight", shard);
    for (const RopeShard& shard : s.plan.rope_tables) printer.line("rope_table", shard);
    for (const KvSlab& slab : s.plan.kv_slabs) printer.line("kv_slab", slab);
    return printer.text();
}

std::string tiles(const std::string& text, const std::string& origin) {
    Setting s(text, origin);
    s.build_until_steps();
    choose_tiles(s.plan);
    Printer printer(s.plan);
    s.each_phase(printer, [&](const Phase&, const std::vector<const Step*>& steps) {
        for (const Step* step : steps)
            if (const Compute* c = step->compute())
                printer.line(fmt::format("{} {}", printer.value_text(c->device),
                                         printer.value_text(c->ops.back())),
                             Chosen{c->tile, c->activations, c->narrow});
    });
    return printer.text();
}

std::string memory(const std::string& text, const std::string& origin) {
    Setting s(text, origin);
    s.build_until_memory();
    Printer printer(s.plan);
    const std::vector<std::string> names = buffer_names(s.plan);
    for (size_t i = 0; i < names.size(); ++i)
        if (s.shows(s.plan.buffers[i].arena()))
            printer.line("buffer " + names[i], s.plan.buffers[i]);
    for (const DeviceMemory& m : s.plan.memory) printer.line("memory", m);
    return printer.text();
}

std::string times(const std::string& text, const std::string& origin) {
    Setting s(text, origin);
    s.build_until_memory();
    simulate(*s.analysis, s.plan);
    Printer printer(s.plan);
    s.each_phase(printer, [&](const Phase&, const std::vector<const Step*>& steps) {
        for (const Step* step : steps) {
            std::string what;
            if (const Compute* c = step->compute())
                what = printer.value_text(c->device) + " " + printer.value_text(c->ops.back());
            else if (const Transfer* t = step->transfer())
                what = "transfer " + printer.value_text(t->destination);
            else
                what = printer.value_text(step->collective()->op) + " " +
                       printer.value_text(step->collective()->group);
            printer.line(what, Times{step->start_ns, step->predicted_ns});
        }
    });
    printer.line("prediction", s.plan.prediction);
    return printer.text();
}

std::string lowering(const std::string& text, const std::string& origin) {
    using namespace codegen;
    Setting s(text, origin);
    s.build_until_memory();
    Printer printer(s.plan);
    const DeviceId device(0);
    const Program program = generate_program(s.plan, device);
    s.each_phase(printer, [&](const Phase& phase, const std::vector<const Step*>& steps) {
        const bool is_prefill = &phase == &s.plan.prefill;
        const Step* before = nullptr;
        for (const Instruction& i : is_prefill ? program.prefill : program.decode) {
            const Step* step = &phase.steps[i.step.index()];
            const Compute* c = step->compute();
            if (!c || std::find(steps.begin(), steps.end(), step) == steps.end()) continue;
            Lowered lowered = lower_step(StepReader(s.plan, phase, *c, is_prefill));
            const auto front = prepare_activations(*c, s.plan.workload.activation_dtype, lowered);
            std::string kernel = "kernel " + printer.value_text(c->ops.back());
            if (i.of_singles) {
                std::get<AttentionSpec>(lowered.spec).prefill = false;
                kernel += " of single tokens";
            }
            if (front && step != before)
                printer.line(kernel + " in front", *front);
            else
                printer.line(kernel, Lowered{lowered.spec, i.args});
            printer.line("launch", program.kernels[static_cast<size_t>(i.kernel)].launch, 1);
            before = step;
        }
    });
    return printer.text();
}

}  // namespace

const std::vector<Pass>& passes() {
    static const std::vector<Pass> kAll{
        {"recovery", recovery}, {"sharding", sharding}, {"fusion", fusion},
        {"steps", steps},       {"shards", shards},     {"tiles", tiles},
        {"memory", memory},     {"times", times},       {"lowering", lowering}};
    return kAll;
}

}  // namespace cleave::test
