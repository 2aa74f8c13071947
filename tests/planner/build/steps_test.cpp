// SPDX-License-Identifier: Apache-2.0
// The explicit part of plans: steps, values, shards and buffers, on every shape of stages and
// shards.
#include "tests/support/plan_forms.h"
#include "tests/support/test.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "models/llama_graph.h"
#include "planner/cost/collective_form.h"
#include "planner/cost/peer_exchange.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "planner/search/device_order.h"
#include "planner/verify/verify.h"
#include "planner/view/plan_text.h"
#include "tests/planner/support/machines.h"

using namespace cleave;
using namespace cleave::planner;

namespace {

Plan plan_of(const std::string& shape, const std::string& devices, int tp, int pp,
             Workload workload = {}) {
    auto found = models::find_shape(shape);
    REQUIRE(found);
    Graph graph = models::build_llama_graph(*found, DType::kF32);
    if (workload.context == 4096) {
        workload.context = 512;
        workload.prompt_tokens = 64;
    }
    PlanOptions options;
    options.tensor_parallel = tp;
    options.pipeline_stages = pp;
    return make_plan(graph, test::machine_of(devices, test::small_host(2)), workload, options);
}

std::map<std::string, int> count_steps(const Phase& phase) {
    std::map<std::string, int> count;
    for (const Step& step : phase.steps) {
        if (const Compute* c = step.compute()) ++count[std::string(kernel_kind_name(c->kernel))];
        if (step.transfer()) ++count["transfer"];
        if (const Collective* c = step.collective())
            ++count[std::string(collective_op_name(c->op))];
    }
    return count;
}

}  // namespace

TEST_CASE("one device runs five kernels a layer and moves nothing", "[planner]") {
    Plan plan = plan_of("stories-260k", "host", 1, 1);
    auto count = count_steps(plan.decode);
    int layers = static_cast<int>(plan.graph.config.num_layers);
    REQUIRE(count == std::map<std::string, int>{{"embedding", 1},
                                                {"norm_qkv_rope_append", layers},
                                                {"attention", layers},
                                                {"linear", 2 * layers},
                                                {"norm_gate_up", layers},
                                                {"norm_linear", 1}});
}

TEST_CASE(
    "a tensor-parallel stage has two all-reduces a layer, one for the embedding, and a gather",
    "[planner]") {
    Plan plan = plan_of("stories-260k", "host[0-1]", 2, 1);
    auto count = count_steps(plan.prefill);
    int layers = static_cast<int>(plan.graph.config.num_layers);
    REQUIRE(count["all_reduce"] == 2 * layers + 1);
    REQUIRE(count["all_gather"] == 1);
    REQUIRE(count["attention"] == 2 * layers);
    REQUIRE(count["transfer"] == 0);
}

TEST_CASE("a stage boundary is one transfer for each device behind it", "[planner]") {
    Plan plan = plan_of("stories-260k", "host[0-3]", 2, 2);
    auto count = count_steps(plan.prefill);
    REQUIRE(count["transfer"] == 2);
    REQUIRE(plan.stages.size() == 2);
    REQUIRE(plan.output_device == DeviceId(2));
}

TEST_CASE("every operand of a step was made on its device by an earlier step", "[planner]") {
    for (auto [devices, tp, pp] : {std::tuple{"host[0-2]", 3, 1},
                                   {"host[0-7]", 8, 1},
                                   {"host[0-3]", 2, 2},
                                   {"host[0-7]", 2, 4}}) {
        Plan plan = plan_of("stories-260k", devices, tp, pp);
        for (const Phase* phase : {&plan.prefill, &plan.decode}) {
            std::set<PlacedId> made(phase->inputs.begin(), phase->inputs.end());
            auto need = [&](PlacedId id) { REQUIRE(made.count(id) == 1); };
            auto make = [&](PlacedId id) { REQUIRE(made.insert(id).second); };
            for (const Step& step : phase->steps) {
                if (const Compute* c = step.compute()) {
                    for (PlacedId id : c->inputs) {
                        need(id);
                        REQUIRE(phase->values[id.index()].device == c->device);
                    }
                    for (PlacedId id : c->outputs) make(id);
                } else if (const Transfer* t = step.transfer()) {
                    need(t->source);
                    make(t->destination);
                } else if (const Collective* sum = step.collective()) {
                    for (PlacedId id : sum->contributions) need(id);
                    for (PlacedId id : sum->epilogue_inputs) need(id);
                    for (PlacedId id : sum->outputs) make(id);
                }
            }
            for (PlacedId id : phase->outputs) need(id);
        }
    }
}

TEST_CASE("the shards of a matrix cover it once where it is split", "[planner]") {
    for (int tp : {2, 3, 5, 8}) {
        Plan plan = plan_of("stories-260k", "host[0-" + std::to_string(tp - 1) + "]", tp, 1);
        std::map<std::string, int64_t> elements;
        for (const WeightShard& s : plan.weights) {
            const auto& w = plan.graph.weight(s.weight);
            if (w.shape.size() == 2) elements[w.name] += s.rows.size() * s.columns.size();
        }
        for (const auto& w : plan.graph.weights) {
            if (w.shape.size() != 2) continue;
            bool kv = w.name.find("k_proj") != std::string::npos ||
                      w.name.find("v_proj") != std::string::npos;
            INFO(w.name << " at tp " << tp);
            if (kv)
                REQUIRE(elements[w.name] >=
                        w.num_elements());  // a KV head lies wherever one of its queries does
            else
                REQUIRE(elements[w.name] == w.num_elements());
        }
    }
}

TEST_CASE("a device without heads joins the collectives and computes nothing of attention",
          "[planner]") {
    // 8 query heads in 4 groups over 8 devices: whole groups leave four devices without any.
    Plan plan = plan_of("stories-260k", "host[0-7]", 8, 1);
    std::set<DeviceId> with_attention, with_mlp;
    for (const Step& step : plan.decode.steps)
        if (const Compute* c = step.compute()) {
            if (c->kernel == KernelKind::kAttention) with_attention.insert(c->device);
            if (c->kernel == KernelKind::kNormGateUp) with_mlp.insert(c->device);
        }
    REQUIRE(!with_attention.empty());
    REQUIRE(with_mlp.size() == 8);
    for (const Step& step : plan.decode.steps)
        if (const Collective* c = step.collective(); c && c->op == CollectiveOp::kAllReduce)
            REQUIRE(c->group.size() == 8);
}

TEST_CASE("buffers that live at once do not overlap, and arenas are as large as their last buffer",
          "[planner]") {
    Plan plan = plan_of("stories-260k", "host[0-3]", 2, 2);
    for (const Buffer& b : plan.buffers) {
        REQUIRE(b.offset % 256 == 0);
        const DeviceMemory& m = plan.memory[b.device.index()];
        std::map<Arena, int64_t> sizes{{Arena::kWeights, m.weights},
                                       {Arena::kKv, m.kv},
                                       {Arena::kActivations, m.activations},
                                       {Arena::kStaging, m.staging},
                                       {Arena::kScratch, m.scratch}};
        REQUIRE(b.offset + b.size <= sizes[b.arena()]);
    }
    for (const PlacedValue& v : plan.prefill.values)
        if (!v.box.empty() && !v.box.back().empty()) REQUIRE(v.buffer.valid());
}

TEST_CASE("a ring visits the devices of a node one after the other, whatever their order",
          "[planner]") {
    // Two nodes, their devices in turn: fast links inside, slow ones between.
    Machine machine = build_machine(parse_devices("sim:h100[0-7]"), {});
    for (Link& l : machine.links)
        if (l.from.index() % 2 != l.to.index() % 2) l.bandwidth /= 10, l.latency_ns *= 2;
    LinkTable links(machine);
    std::vector<DeviceId> group = user_order(machine);
    std::vector<DeviceId> ring = ring_order(links, group);
    int crossings = 0;
    for (size_t i = 0; i < ring.size(); ++i)
        crossings += ring[i].index() % 2 != ring[(i + 1) % ring.size()].index() % 2;
    CHECK(crossings == 2);
    std::sort(ring.begin(), ring.end());
    CHECK(ring == group);
    // Where links are alike the user's order stands.
    Machine alike = build_machine(parse_devices("sim:h100[0-7]"), {});
    CHECK(ring_order(LinkTable(alike), group) == group);
}

TEST_CASE(
    "an all-reduce takes the form that is cheapest on its links, and the plan keeps the ring's "
    "order",
    "[planner]") {
    // Cards on a ring of fast links, numbered every third; all other pairs are far apart.
    Machine machine = build_machine(parse_devices("sim:h100[0-7]"), {});
    for (Link& l : machine.links)
        if (int apart = (l.to.value - l.from.value + 8) % 8; apart != 3 && apart != 5)
            l.bandwidth /= 100, l.latency_ns *= 20;
    LinkTable links(machine);
    std::vector<DeviceId> group = user_order(machine);
    for (int64_t bytes : {int64_t{1} << 10, int64_t{1} << 16, int64_t{1} << 26})
        for (bool is_prefill : {false, true}) {
            CollectiveForm chosen = choose_all_reduce(links, group, bytes, is_prefill);
            for (auto form : {SumForm::kOneShot, SumForm::kTwoPhase})
                CHECK(chosen.ns <= links.all_reduce_ns(group, bytes, form));
        }
    Plan plan =
        make_plan(models::build_llama_graph(*models::find_shape("llama-3-8b"), DType::kBF16),
                  machine, {}, {.tensor_parallel = 8});
    bool ring = false;
    for (const Step& s : plan.prefill.steps)
        if (const Collective* c = s.collective(); c && c->form() == SumForm::kRing) {
            ring = true;
            CHECK(c->group == ring_order(links, group));
        }
    CHECK(ring);
    CHECK(find_violations(plan).empty());
}

namespace {

// A post-norm and a soft-capped sum in every layer: x -> cap(x + norm(down)).
Graph graph_with_chains() {
    Graph graph = models::build_llama_graph(*models::find_shape("stories-260k"), DType::kF32);
    auto copy_of = [&](ValueId value, const std::string& name) {
        graph.values.push_back(graph.value(value));
        graph.values.back().name += name;
        return ValueId(graph.values.size() - 1);
    };
    for (size_t i = 0; i < graph.ops.size(); ++i) {
        if (!graph.ops[i].name.ends_with(".mlp_residual")) continue;
        const importer::Op sum = graph.ops[i];
        const auto norm =
            std::find_if(graph.ops.begin(), graph.ops.end(),
                         [](const importer::Op& op) { return op.name == "layers.0.post_norm"; });
        importer::Op after = *norm, cap = sum;
        after.name = sum.name + "_norm";
        after.layer = sum.layer;
        const size_t down = graph.ops[i - 1].outputs[0] == sum.inputs[1] ? 1 : 0;
        after.inputs = {sum.inputs[down]};
        after.outputs = {copy_of(sum.inputs[down], "_normed")};
        cap.kind = importer::OpKind::kScale;
        cap.attrs = importer::ScaleAttrs{1.0, 30.0};
        cap.name = sum.name + "_cap";
        cap.inputs = {copy_of(sum.outputs[0], "_sum")};
        graph.ops[i].inputs[down] = after.outputs[0];
        graph.ops[i].outputs = cap.inputs;
        graph.ops.insert(graph.ops.begin() + static_cast<ptrdiff_t>(i), after);
        graph.ops.insert(graph.ops.begin() + static_cast<ptrdiff_t>(i) + 2, cap);
        i += 2;
    }
    return graph;
}

}  // namespace

TEST_CASE("a chain of elementwise operators belongs to the launch that makes its input",
          "[planner]") {
    const Graph graph = graph_with_chains();
    const auto layers = static_cast<int>(graph.config.num_layers);
    for (int tp : {1, 2}) {
        Workload workload;
        workload.context = 512;
        PlanOptions options;
        options.tensor_parallel = tp;
        Plan plan =
            make_plan(graph, test::machine_of("host[0-1]", test::small_host(2)), workload, options);
        auto count = count_steps(plan.decode);
        REQUIRE(count["rms_norm"] == layers * tp);
        REQUIRE(count["add"] + count["scale"] == 0);
        REQUIRE(find_violations(plan).empty());

        // Without its second operator the third has nothing to read.
        for (Step& step : plan.decode.steps) {
            auto* compute = std::get_if<Compute>(&step.action);
            if (!compute || compute->kernel != KernelKind::kRmsNorm) continue;
            REQUIRE(compute->ops.size() == 3);
            compute->ops.erase(compute->ops.begin() + 1);
            break;
        }
        bool found = false;
        for (const Violation& v : find_violations(plan)) found = found || v.rule == "kernel";
        REQUIRE(found);
    }
}

TEST_CASE("devices that reach each other's memory exchange by it, and nobody else does",
          "[planner]") {
    struct Case {
        const char* devices;
        int tp, pp;
        bool by_peers;
    };
    const Case cases[] = {{"simt:gfx90a[0-7]", 4, 2, true},
                          {"sim:h100[0-1]", 2, 1, true},
                          {"sim:h100[0-1]", 1, 2, true},
                          {"sim:a40[0-1]", 2, 1, false},
                          {"host[0-2]", 3, 1, false},
                          {"simt:sm_90a[0],simt:gfx90a[0]", 2, 1, false},
                          {"simt:sm_90a[0],host[0]", 1, 2, false}};
    for (const Case& c : cases) {
        INFO(c.devices << " tp " << c.tp << " pp " << c.pp);
        Plan plan = plan_of("stories-260k", c.devices, c.tp, c.pp);
        for (const Phase* phase : {&plan.prefill, &plan.decode})
            for (const Step& step : phase->steps) {
                if (step.compute()) continue;
                const Collective* sum = step.collective();
                const bool ring = sum && sum->form() == SumForm::kRing;
                CHECK(goes_by_peers(step) == (c.by_peers && !ring));
            }
        const auto signals =
            std::count_if(plan.buffers.begin(), plan.buffers.end(),
                          [](const Buffer& b) { return b.role == BufferRole::kPeerSignals; });
        CHECK(signals == (c.by_peers ? std::ssize(plan.machine.devices) : 0));
        CHECK(find_violations(plan).empty());
        // Two norms a layer, but for the first of each stage and that of the selected rows.
        const auto layers = static_cast<int>(plan.graph.config.num_layers);
        const bool rides =
            c.by_peers && c.tp > 1 &&
            std::any_of(plan.decode.steps.begin(), plan.decode.steps.end(), [](const Step& step) {
                const Collective* sum = step.collective();
                return sum && sum->op == CollectiveOp::kAllReduce &&
                       sum->form() == SumForm::kOneShot;
            });
        CHECK((rides || std::string(c.devices) != "sim:h100[0-1]" || c.tp == 1));
        CHECK(test::count_norms(plan.decode) == (rides ? 2 * layers - c.pp : 0));
        CHECK(test::count_norms(plan.prefill) == 0);
        // Nor may a plan say so that was changed by hand.
        for (Step& step : plan.decode.steps) {
            if (auto* sum = std::get_if<Collective>(&step.action)) sum->path = Path::kPeer;
            if (auto* t = std::get_if<Transfer>(&step.action)) t->path = Path::kPeer;
        }
        CHECK(find_violations(plan).empty() == c.by_peers);
    }
}

TEST_CASE(
    "a norm rides on the sum before it by peer memory, on every member, and its launch reads the "
    "result",
    "[planner]") {
    // Whole groups of heads leave devices without attention; they normalise all the same.
    Plan plan = plan_of("stories-260k", "sim:h100[0-7]", 8, 1);
    const Graph& graph = plan.graph;
    const auto bytes_of = [](const Compute& c) { return c.weight_bytes.constant; };
    int checked = 0;
    for (size_t i = 0; i < plan.decode.steps.size(); ++i) {
        const Collective* sum = plan.decode.steps[i].collective();
        if (!sum || sum->weights.empty()) continue;
        ++checked;
        REQUIRE(sum->epilogue.size() == 2);
        REQUIRE(sum->outputs.size() == 16);
        const importer::Op &add = graph.op(sum->epilogue[0]), &norm = graph.op(sum->epilogue[1]);
        CHECK(norm.inputs[0] == add.outputs[0]);
        for (size_t m = 0; m < 8; ++m) {
            const WeightShard& shard = plan.weights[sum->weights[m].index()];
            CHECK(shard.weight == norm.weights[0]);
            CHECK(shard.device == sum->group[m]);
            CHECK(shard.rows == Range{0, graph.config.hidden_size});
            const PlacedValue& normed = plan.decode.values[sum->outputs[8 + m].index()];
            CHECK(normed.value == norm.outputs[0]);
            CHECK(normed.device == sum->group[m]);
        }
        const Compute* reader = plan.decode.steps[i + 1].compute();
        REQUIRE(reader);
        CHECK(reader->inputs[0] == sum->outputs[8]);
        CHECK(std::find(reader->ops.begin(), reader->ops.end(), sum->epilogue[1]) ==
              reader->ops.end());
    }
    CHECK(checked == 2 * graph.config.num_layers - 1);
    // The same launches with their norms are as sound, and read the weight as well.
    Plan apart = plan_of("stories-260k", "sim:h100[0-1]", 2, 1);
    REQUIRE(test::count_norms(apart.decode) == 2 * graph.config.num_layers - 1);
    test::norms_in_readers(apart);
    CHECK(find_violations(apart).empty());
    const Plan host = plan_of("stories-260k", "host[0-7]", 8, 1);
    const auto gate_up = [](const Plan& p) {
        for (const Step& s : p.decode.steps)
            if (const Compute* c = s.compute(); c && c->kernel == KernelKind::kNormGateUp)
                return *c;
        throw InternalError("no such launch");
    };
    CHECK(bytes_of(gate_up(plan)) == bytes_of(gate_up(host)) - graph.config.hidden_size * 4);
    CHECK(gate_up(plan).ops.size() + 1 == gate_up(host).ops.size());
    // Rows that a block cannot hold, here for loads of one element each, stay with their launch.
    for (auto [hidden, fits] : {std::pair{4099, false}, {4100, true}}) {
        models::Shape wide = *models::find_shape("stories-260k");
        wide.config.hidden_size = hidden;
        const Plan of_wide = make_plan(models::build_llama_graph(wide, DType::kF32), plan.machine,
                                       plan.workload, {.tensor_parallel = 8});
        CHECK((test::count_norms(of_wide.decode) > 0) == fits);
    }
}

TEST_CASE("a PCIe link counts as direct only where the driver gives access", "[planner]") {
    Machine machine = test::machine_of("sim:a40[0-1]", test::small_host(2));
    const std::vector<DeviceId> both{DeviceId(0), DeviceId(1)};
    CHECK_FALSE(reach_each_other(machine, both));
    machine.links[0].peer_access = true;
    CHECK_FALSE(reach_each_other(machine, both));
    machine.links[1].peer_access = true;
    CHECK(reach_each_other(machine, both));
    // Logical devices of one card have fewer blocks to wait with.
    CHECK(peer_channels(machine, DeviceId(0)) == kPeerChannels);
    for (DeviceInfo& d : machine.devices) {
        d.kind = DeviceKind::kCuda;
        d.limits.num_compute_units = 40;
    }
    machine.devices[1].index = 0;
    CHECK(peer_channels(machine, DeviceId(1)) == 10);
}

namespace {

// Cards of this machine with their vendor's library, which do not reach each other's memory.
Machine cards_apart(int count) {
    Machine machine = build_machine(parse_devices(fmt::format("sim:h100[0-{}]", count - 1)), {});
    for (DeviceInfo& d : machine.devices) {
        d.kind = DeviceKind::kCuda;
        d.identity = fmt::format("GPU-{}", d.index);
        d.collectives = "NCCL 2.28.9";
    }
    for (Link& l : machine.links) {
        l.kind = LinkKind::kPcie;
        l.bandwidth /= 20;
        l.peer_access = false;
    }
    return machine;
}

bool breaks_rule(const Plan& plan, const std::string& rule) {
    for (const Violation& v : find_violations(plan))
        if (v.rule == rule) return true;
    return false;
}

}  // namespace

TEST_CASE("cards of one vendor sum by its library where it gains, and by nothing that it refuses",
          "[planner]") {
    const std::vector<DeviceId> group{DeviceId(0), DeviceId(1), DeviceId(2)};
    const auto by_library = [&](const Machine& machine, int64_t bytes, bool is_rows = true) {
        return choose_all_reduce(LinkTable(machine), group, bytes, true, is_rows).form ==
               SumForm::kRing;
    };
    const Machine apart = cards_apart(3);
    CHECK(by_library(apart, 1 << 10));
    CHECK(by_library(apart, 1 << 24));
    CHECK_FALSE(by_library(apart, 1 << 24, false));  // tensors of other graphs
    Machine near = apart;
    for (Link& l : near.links) l.peer_access = true;
    CHECK_FALSE(by_library(near, (8 << 20) - 4));
    CHECK(by_library(near, 8 << 20));
    const std::vector<std::function<void(DeviceInfo&)>> changes{
        [](DeviceInfo& d) { d.collectives.clear(); },
        [](DeviceInfo& d) { d.collectives = "NCCL 2.30.0"; },
        [](DeviceInfo& d) { d.kind = DeviceKind::kHip; },
        [](DeviceInfo& d) { d.identity = "GPU-0", d.index = 0; }};
    for (size_t i = 0; i < changes.size(); ++i) {
        INFO(i);
        Machine machine = apart;
        changes[i](machine.devices[1]);
        CHECK_FALSE(by_library(machine, 1 << 24));
    }
    // What is simulated keeps the form that costs least.
    Machine simulated = build_machine(parse_devices("sim:h100[0-2]"), {});
    const auto without = choose_all_reduce(LinkTable(simulated), group, 1 << 12, false);
    for (DeviceInfo& d : simulated.devices) d.collectives = "NCCL 2.28.9";
    CHECK(choose_all_reduce(LinkTable(simulated), group, 1 << 12, false).form == without.form);

    const Graph graph = models::build_llama_graph(*models::find_shape("stories-260k"), DType::kF32);
    Workload workload{.batch = 2, .prompt_tokens = 32, .context = 128};
    const Plan plan = make_plan(graph, apart, workload, {.tensor_parallel = 3});
    CHECK(find_violations(plan).empty());
    size_t sums = 0, gathers = 0;
    for (const Step& s : plan.decode.steps)
        if (const Collective* c = s.collective()) {
            ++(c->op == CollectiveOp::kAllReduce ? sums : gathers);
            CHECK(c->path == Path::kVendor);
        }
    CHECK(sums > 0);
    CHECK(gathers == 1);
    for (size_t i = 0; i < changes.size(); ++i) {
        INFO(i);
        Plan broken = plan;
        changes[i](broken.machine.devices[1]);
        CHECK(breaks_rule(broken, "exchange-vendor"));
    }
    // The gather alone: in two phases, and without room for blocks of two rows.
    Plan broken = plan;
    for (Step& s : broken.decode.steps)
        if (auto* c = std::get_if<Collective>(&s.action); c && c->op == CollectiveOp::kAllGather)
            c->two_phase = true;
    CHECK(breaks_rule(broken, "exchange-path"));
    broken = plan;
    for (Buffer& b : broken.buffers)
        if (b.role == BufferRole::kExchange) b.role = BufferRole::kInput;
    CHECK(breaks_rule(broken, "exchange-vendor"));
    CHECK_THAT(plan_to_text(plan, {}), Catch::Matchers::Contains("moved, by the vendor's library"));
    const auto gathered = [&](const Machine& machine, bool is_rows = true) {
        return gathers_by_library(LinkTable(machine), group, is_rows);
    };
    CHECK(gathered(apart));
    CHECK_FALSE(gathered(apart, false));
    CHECK_FALSE(gathered(near));  // by kernels over each other's memory
    CHECK_FALSE(gathered(simulated));
}

TEST_CASE(
    "cards of several hosts sum 64 KiB and more by the vendor's library, and gather without it",
    "[planner]") {
    const std::vector<DeviceId> group{DeviceId(0), DeviceId(1), DeviceId(2)};
    Machine machine = cards_apart(3);
    DeviceInfo& abroad = machine.devices[2];
    abroad.host = "another";
    // Each host numbers its own cards, and addresses on its buses.
    abroad.index = machine.devices[0].index;
    abroad.identity = machine.devices[0].identity;
    for (Link& l : machine.links)
        if (machine.device(l.from).host != machine.device(l.to).host)
            l = {l.from, l.to, LinkKind::kNetwork, 10'000'000'000, 10'000};
    const LinkTable links(machine);
    CHECK(choose_all_reduce(links, group, (64 << 10) - 4, true).form != SumForm::kRing);
    CHECK(choose_all_reduce(links, group, 64 << 10, true).form == SumForm::kRing);
    CHECK(choose_all_reduce(links, group, 64 << 10, false).form == SumForm::kRing);
    CHECK_FALSE(gathers_by_library(links, group, true));
    // Cards of one host among them keep to what they had.
    CHECK(choose_all_reduce(links, std::span(group).first(2), 1 << 10, true).form ==
          SumForm::kRing);

    const Graph graph = models::build_llama_graph(*models::find_shape("stories-260k"), DType::kF32);
    const Plan plan = make_plan(graph, machine, {.prompt_tokens = 300, .context = 400},
                                {.tensor_parallel = 3, .pipeline_stages = 1});
    CHECK(find_violations(plan).empty());
    for (const bool is_prefill : {true, false})
        for (const Step& s : plan.phase(is_prefill).steps)
            if (const Collective* c = s.collective())
                CHECK((c->path == Path::kVendor) ==
                      (is_prefill && c->op == CollectiveOp::kAllReduce));
    for (size_t d = 0; d < 3; ++d) CHECK(plan.memory[d].collectives > 0);
    Plan gathers = plan;
    for (Step& s : gathers.decode.steps)
        if (auto* c = std::get_if<Collective>(&s.action); c && c->op == CollectiveOp::kAllGather)
            c->path = Path::kVendor;
    CHECK(breaks_rule(gathers, "exchange-vendor"));
    Plan twice = plan;
    twice.machine.devices[2].host = twice.machine.devices[0].host;
    CHECK(breaks_rule(twice, "exchange-vendor"));
}

TEST_CASE("what lacks memory is told by its memory, and what fits but for a grid by the grid",
          "[planner]") {
    const Graph graph = models::build_llama_graph(*models::find_shape("stories-260k"), DType::kF32);
    const auto machine_of = [](int64_t memory) {
        Machine machine = build_machine(parse_devices("sim:h100[0]"), {});
        machine.devices[0].memory_bytes = machine.devices[0].reserved_bytes + memory;
        machine.devices[0].limits.max_grid = {1 << 20, 64, 64};
        return machine;
    };
    const auto workload_of = [](int64_t batch, int64_t chunk) {
        return Workload{
            .batch = batch, .prompt_tokens = 64, .context = 128, .prefill_chunk = chunk};
    };
    const auto refusal = [&](int64_t batch, int64_t memory) {
        return test::user_error(
            [&] { make_plan(graph, machine_of(memory), workload_of(batch, 1 << 20), {}); });
    };
    const std::string both = refusal(4096, int64_t{1} << 30);
    CHECK_THAT(both, Catch::Matchers::Contains("does not fit") &&
                         Catch::Matchers::Contains("short") && !Catch::Matchers::Contains("grid"));
    // A little that lacks is told as such.
    CHECK_THAT(refusal(1, int64_t{1} << 20),
               Catch::Matchers::Matches("[^]*lacks [1-9][0-9.]* [kM]B on 1 device[^]*"));
    // What would fit fits the grids, too: 64 rows of blocks.
    REQUIRE_THAT(both, Catch::Matchers::Contains("$prefill_chunk "));
    const size_t at = both.find("$prefill_chunk ") + 15;
    const int64_t chunk = std::stoll(both.substr(at));
    CHECK_NOTHROW(make_plan(graph, machine_of(int64_t{1} << 30), workload_of(4096, chunk), {}));
    CHECK_THAT(refusal(4096, int64_t{1} << 42), Catch::Matchers::Contains("max_grid_y") &&
                                                    Catch::Matchers::Contains("$prefill_chunk"));
}
