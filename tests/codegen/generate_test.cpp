// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "codegen/compile/compiler.h"
#include "codegen/compile/host.h"
#include "codegen/generate.h"
#include "codegen/kernel/spec.h"
#include "models/llama_graph.h"
#include "models/shapes.h"
#include "planner/machine/build_machine.h"
#include "planner/plan/plan_queries.h"
#include "planner/planner.h"
#include "tests/codegen/support/kernel_runner.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::codegen;

namespace {

planner::Plan plan_for(const std::string& shape, const std::string& devices, int tp, int pp) {
    importer::Graph graph =
        models::build_llama_graph(models::find_shape(shape).value(), DType::kF32);
    planner::HostFacts facts;
    facts.num_cores = 4;
    facts.memory_bytes = int64_t{4} << 40;
    facts.memory_bandwidth = 20'000'000'000;
    facts.flops_f32 = 100'000'000'000;
    facts.arch = "x86-64-v3";
    planner::Machine machine = planner::build_machine(planner::parse_devices(devices), facts);
    planner::Workload workload;
    workload.context = 128;
    workload.prompt_tokens = 64;
    planner::PlanOptions options;
    options.tensor_parallel = tp;
    options.pipeline_stages = pp;
    return planner::make_plan(graph, machine, workload, options);
}

// Steps of a device in each phase have one instruction each, in order.
void check_steps(const planner::Phase& phase, planner::DeviceId device,
                 const std::vector<Instruction>& instructions) {
    size_t next = 0;
    for (size_t i = 0; i < phase.steps.size(); ++i) {
        const planner::Compute* compute = phase.steps[i].compute();
        if (!compute || compute->device != device) continue;
        REQUIRE(next < instructions.size());
        CHECK(instructions[next++].step == planner::StepId(i));
    }
    CHECK(next == instructions.size());
}

}  // namespace

TEST_CASE("every compute step of a plan has one instruction on its device, in step order",
          "[codegen]") {
    for (auto [devices, tp, pp] : {std::tuple("host[0]", 1, 1), std::tuple("host[0-2]", 3, 1),
                                   std::tuple("host[0-3]", 2, 2), std::tuple("host[0-7]", 8, 1)}) {
        CAPTURE(devices, tp, pp);
        planner::Plan plan = plan_for("stories-260k", devices, tp, pp);
        for (size_t d = 0; d < plan.machine.devices.size(); ++d) {
            Program program = generate_program(plan, planner::DeviceId(d));
            check_steps(plan.prefill, planner::DeviceId(d), program.prefill);
            check_steps(plan.decode, planner::DeviceId(d), program.decode);
        }
    }
}

TEST_CASE("equal kernels of a program exist once, whatever the number of layers", "[codegen]") {
    planner::Plan plan = plan_for("stories-260k", "host[0]", 1, 1);
    Program program = generate_program(plan, planner::DeviceId(0));
    std::set<std::string> names;
    for (const Kernel& kernel : program.kernels) CHECK(names.insert(kernel.name).second);
    CHECK(program.decode.size() > 20);   // five layers of five steps
    CHECK(program.kernels.size() <= 9);  // decode and prefill attention differ, all else is shared
}

TEST_CASE("equal shards of different devices have equal kernels, so that each is compiled once",
          "[codegen]") {
    planner::Plan plan = plan_for("stories-260k", "host[0-3]", 4, 1);
    std::vector<Kernel> first = generate_program(plan, planner::DeviceId(0)).kernels;
    std::vector<Kernel> last = generate_program(plan, planner::DeviceId(3)).kernels;
    std::set<std::string> sources;
    for (const Kernel& kernel : first) sources.insert(kernel.source);
    for (const Kernel& kernel : last)
        if (kernel.kind == planner::KernelKind::kAttention ||
            kernel.kind == planner::KernelKind::kNormQkvRopeAppend ||
            kernel.kind == planner::KernelKind::kEmbedding)
            CHECK(sources.count(kernel.source) == 1);
}

TEST_CASE("a kernel's source opens with what it fuses, its shapes, dtype, device, launch and hash",
          "[codegen]") {
    for (const char* devices : {"host", "sim:h100[0-1]"}) {
        const bool host = devices == std::string("host");
        planner::Plan plan = plan_for("stories-260k", devices, host ? 1 : 2, 1);
        for (const Kernel& kernel : generate_program(plan, planner::DeviceId(0)).kernels) {
            CHECK(kernel.source.starts_with("// " + kernel.name + "\n// fused: "));
            std::string head = kernel.source.substr(0, kernel.source.find("\n\n"));
            INFO(head);
            for (const char* word :
                 {"shapes: ", "dtype: ", host ? "device: host" : "device: sm_90a",
                  "launch: ", "hash: "})
                CHECK(head.find(word) != std::string::npos);
            if (host) CHECK(kernel.source.find("#include") == std::string::npos);
        }
    }
}

TEST_CASE("every kernel of tensor-parallel plans with unequal shards compiles and loads",
          "[codegen]") {
    for (auto [devices, tp] : {std::pair("host[0]", 1), std::pair("host[0-2]", 3)}) {
        planner::Plan plan = plan_for("stories-260k", devices, tp, 1);
        for (size_t d = 0; d < plan.machine.devices.size(); ++d) {
            Program program = generate_program(plan, planner::DeviceId(d));
            CompileOptions options;
            options.cache_dir = test::test_cache();
            std::vector<CompiledKernel> compiled = compile(program, options).objects;
            REQUIRE(compiled.size() == program.kernels.size());
            auto loaded = load_host_kernels(compiled);
            for (size_t i = 0; i < compiled.size(); ++i) {
                CHECK(compiled[i].name == program.kernels[i].name);
                CHECK(loaded->entry(i) != nullptr);
            }
        }
    }
}

TEST_CASE("a kernel's scratch is what its plan's tile claims, within the device's limit",
          "[codegen]") {
    for (const char* shape : {"stories-260k", "llama-110m", "llama-3-8b", "llama-3.1-405b"}) {
        planner::Plan plan = plan_for(shape, "host[0-1]", 2, 1);
        Program program = generate_program(plan, planner::DeviceId(0));
        for (const Instruction& instruction : program.prefill) {
            const planner::Compute* compute =
                plan.prefill.steps[instruction.step.index()].compute();
            const Kernel& kernel = program.kernels[static_cast<size_t>(instruction.kernel)];
            CAPTURE(shape, kernel.name);
            CHECK(kernel.launch.shared_bytes == compute->tile.shared_bytes);
            CHECK(kernel.launch.shared_bytes <=
                  plan.machine.device(compute->device).limits.shared_memory_per_block);
        }
    }
}

TEST_CASE("an opaque operator is refused by name and layer", "[codegen]") {
    planner::Plan plan = plan_for("stories-260k", "host[0]", 1, 1);
    for (planner::Step& step : plan.decode.steps) {
        auto* compute = std::get_if<planner::Compute>(&step.action);
        if (!compute || compute->kernel != planner::KernelKind::kAttention) continue;
        importer::Op& op = plan.graph.ops[compute->ops[0].index()];
        op.kind = importer::OpKind::kOpaque;
        op.attrs = importer::OpaqueAttrs{"ai.example", "FancyAttention", 0, 0};
        compute->kernel = planner::KernelKind::kOpaque;
        break;
    }
    plan.prefill.steps.clear();
    std::string message = test::user_error([&] { generate_program(plan, planner::DeviceId(0)); });
    CHECK(message.find("layers.0.attention (ai.example::FancyAttention, layer 0)") !=
          std::string::npos);
}

TEST_CASE("GPUs decode with five launches a layer, and each kernel names what it computes",
          "[codegen]") {
    for (const char* device : {"simt:sm_80[0]", "simt:gfx90a[0]", "sim:h100[0]", "sim:mi300x[0]"})
        for (const char* shape : {"stories-260k", "llama-3-8b"}) {
            CAPTURE(device, shape);
            planner::Plan plan = plan_for(shape, device, 1, 1);
            Program program = generate_program(plan, planner::DeviceId(0));
            check_steps(plan.decode, planner::DeviceId(0), program.decode);
            CHECK(static_cast<int>(program.decode.size()) == 5 * plan.graph.config.num_layers + 2);
            for (const Instruction& instruction : program.decode) {
                const planner::Compute& c = *plan.decode.steps[instruction.step.index()].compute();
                const Kernel& kernel = program.kernels[static_cast<size_t>(instruction.kernel)];
                std::vector<std::string> operators;
                for (importer::OpId op : c.ops)
                    operators.emplace_back(importer::op_kind_name(plan.graph.op(op).kind));
                CHECK(kernel.fused == operators);
                CHECK(kernel.launch.shared_bytes <=
                      plan.machine.devices[0].limits.shared_memory_per_block);
                CHECK(kernel.source.find("// fused: " + operators[0]) != std::string::npos);
                CHECK(kernel.source.find("// hash: " + kernel.hash) != std::string::npos);
            }
        }
}

TEST_CASE(
    "a kernel is called by what its text computes, also where its norm moved into the sum before",
    "[codegen]") {
    std::set<std::string> titles;
    for (auto [devices, tp] : {std::pair("sim:h100[0-1]", 2), std::pair("sim:mi300x[0-3]", 4),
                               std::pair("simt:gfx90a[0]", 1)}) {
        const planner::Plan plan = plan_for("stories-260k", devices, tp, 1);
        for (const Kernel& kernel : generate_program(plan, planner::DeviceId(0)).kernels) {
            CAPTURE(kernel.name, kernel.fused);
            const auto fuses = [&](const char* operation) {
                return std::count(kernel.fused.begin(), kernel.fused.end(), operation);
            };
            const auto has = [&](const char* text) {
                return kernel.source.find(text) != std::string::npos;
            };
            const std::string title = kernel.name.substr(0, kernel.name.rfind('_'));
            titles.insert(title);
            CHECK((fuses("rms_norm") == 1) == has(" kNorm = true"));
            CHECK((fuses("add") == 1) == has(" kResidual = true"));
            CHECK(title.starts_with("norm_") == (has(" kNorm = true") && fuses("linear") > 0));
            if (fuses("all_reduce") == 1)
                CHECK(title.ends_with("rms_norm") == has(" kNorm = true"));
            CHECK(kernel.source.starts_with("// " + kernel.name +
                                            "\n// fused: " + kernel.fused.front()));
        }
    }
    for (const char* title : {"norm_qkv_rope_append", "qkv_rope_append", "norm_gate_up", "gate_up",
                              "norm_linear", "linear", "all_reduce", "all_reduce_add",
                              "all_reduce_add_rms_norm", "attention", "argmax"}) {
        INFO(title);
        CHECK(titles.count(title) == 1);
    }
}

TEST_CASE("the device that has a language model's logits chooses tokens, if it is a GPU",
          "[codegen]") {
    struct Case {
        const char* devices;
        int tp, pp;
        int chooser;  // none: -1
    };
    for (const Case& c : {Case{"sim:h100[0]", 1, 1, 0}, Case{"simt:gfx90a[0-2]", 3, 1, 0},
                          Case{"sim:h100[0-1]", 1, 2, 1}, Case{"host[0],sim:h100[0]", 1, 2, 1},
                          Case{"sim:h100[0],host[0]", 1, 2, -1}, Case{"host[0-1]", 2, 1, -1}}) {
        CAPTURE(c.devices);
        planner::Plan plan = plan_for("stories-260k", c.devices, c.tp, c.pp);
        CHECK(planner::tokens_buffer(plan).valid() == (c.chooser >= 0));
        for (size_t d = 0; d < plan.machine.devices.size(); ++d) {
            const Program program = generate_program(plan, planner::DeviceId(d));
            REQUIRE(program.greedy.has_value() == (static_cast<int>(d) == c.chooser));
            if (!program.greedy) continue;
            CHECK_FALSE(program.greedy->step.valid());
            const Kernel& kernel = program.kernels[static_cast<size_t>(program.greedy->kernel)];
            CHECK(kernel.fused == std::vector<std::string>{"argmax"});
            CHECK(kernel.launch.grid[0].per_output == 1);
            CHECK(kernel.launch.shared_bytes <=
                  plan.machine.devices[d].limits.shared_memory_per_block);
        }
    }
}

TEST_CASE("a device without a back end is refused with the kinds that have one", "[codegen]") {
    planner::Plan plan = plan_for("stories-260k", "host[0]", 1, 1);
    plan.machine.devices[0].kind = planner::DeviceKind::kSim;
    std::string message = test::user_error([&] { generate_program(plan, planner::DeviceId(0)); });
    CHECK(message.find("kind host") != std::string::npos);
}

namespace {

// A hundred thousand tokens of 200 sequences at once.
planner::Plan plan_of_long_chunks(const planner::Machine& machine, int64_t chunk = 100'000) {
    planner::Workload workload{.batch = 200, .prompt_tokens = 64, .context = 512};
    workload.prefill_chunk = chunk;
    importer::Graph graph =
        models::build_llama_graph(models::find_shape("stories-260k").value(), DType::kF16);
    return planner::make_plan(graph, machine, workload, {});
}

planner::Machine one_gpu(const std::string& devices) {
    return planner::build_machine(planner::parse_devices(devices), planner::HostFacts{});
}

}  // namespace

TEST_CASE("chunks of 100,000 tokens plan and keep to the grids of GPUs", "[codegen]") {
    for (const char* devices : {"sim:h100", "sim:mi300x"}) {
        CAPTURE(devices);
        const planner::Plan plan = plan_of_long_chunks(one_gpu(devices));
        REQUIRE(plan.workload.max_tokens() == 100'000);
        const Program program = generate_program(plan, planner::DeviceId(0));
        int64_t widest = 0;
        for (const Instruction& instruction : program.prefill) {
            const Launch& launch = program.kernels[static_cast<size_t>(instruction.kernel)].launch;
            CHECK(launch.grid[1].at(100'000, 200, 200) <= 65'535);
            widest = std::max(widest, launch.grid[0].at(100'000, 200, 200));
        }
        CHECK(widest >= 100'000);  // a block for each token
    }
}

TEST_CASE("GPUs decode one sequence, eight and all by kernels of their own", "[codegen]") {
    const models::Shape shape = models::find_shape("tinyllama-1.1b").value();
    planner::Workload workload;
    workload.batch = 64;
    workload.prompt_tokens = 500;
    workload.context = 2048;
    const planner::Plan plan = planner::make_plan(models::build_llama_graph(shape, DType::kBF16),
                                                  one_gpu("sim:h100"), workload, {});
    const Program program = generate_program(plan, planner::DeviceId(0));
    const auto form = [&](int kernel) { return program.kernels[static_cast<size_t>(kernel)].form; };
    int products = 0, attentions = 0;
    for (const Instruction& i : program.decode) {
        const auto& compute = *plan.decode.steps[i.step.index()].compute();
        CAPTURE(planner::kernel_kind_name(compute.kernel));
        REQUIRE(i.narrow.size() == compute.narrow.size());
        for (size_t n = 0; n < i.narrow.size(); ++n) CHECK(i.narrow[n].tokens == (n == 0 ? 1 : 8));
        if (form(i.kernel) == KernelForm::kGemm) {
            ++products;
            REQUIRE(i.narrow.size() == 2);
            for (const Instruction::Narrow& narrow : i.narrow)
                CHECK(form(narrow.kernel) == KernelForm::kGemv);
            CHECK(compute.narrow[0].tile.tokens == 1);
        } else if (form(i.kernel) == KernelForm::kDecodeAttention) {
            ++attentions;
            REQUIRE(i.narrow.size() == 2);
            // One sequence fills the device by parts of its keys.
            CHECK(compute.narrow[0].tile.splits > compute.narrow[1].tile.splits);
            CHECK(compute.narrow[1].tile.splits > compute.tile.splits);
        } else {
            CHECK(i.narrow.empty());
        }
    }
    const int64_t layers = plan.graph.config.num_layers;
    CHECK(products == 4 * layers + 1);
    CHECK(attentions == layers);
    int of_singles = 0;
    for (size_t i = 0; i < program.prefill.size(); ++i) {
        if (!program.prefill[i].of_singles) continue;
        ++of_singles;
        CHECK(form(program.prefill[i].kernel) == KernelForm::kDecodeAttention);
        CHECK(form(program.prefill[i + 1].kernel) == KernelForm::kPrefillAttention);
        CHECK(program.prefill[i].step == program.prefill[i + 1].step);
    }
    CHECK(of_singles == layers);
}

TEST_CASE("a device whose grids are small gets other tiles, or is refused by name", "[codegen]") {
    planner::Machine machine = one_gpu("sim:h100");
    const auto tokens_of_tiles = [](const planner::Plan& plan) {
        int64_t least = INT64_MAX;
        for (const planner::Step& step : plan.prefill.steps)
            if (const planner::Compute* c = step.compute();
                c && c->kernel == planner::KernelKind::kNormGateUp)
                least = std::min(least, c->tile.tokens);
        return least;
    };
    CHECK(tokens_of_tiles(plan_of_long_chunks(machine, 800)) < 128);
    // 800 tokens lie in y.
    machine.devices[0].limits.max_grid[1] = 8;
    const planner::Plan plan = plan_of_long_chunks(machine, 800);
    CHECK(tokens_of_tiles(plan) == 128);
    CHECK_NOTHROW(generate_program(plan, planner::DeviceId(0)));
    using Catch::Matchers::Contains;
    CHECK_THAT(test::user_error([&] { plan_of_long_chunks(machine, 2000); }),
               Contains("layers.0") && Contains("sim:h100") && Contains("has at most 8") &&
                   Contains("max_grid_y") && Contains("lower $prefill_chunk (it is 2000)"));
    // Heads lie beside tiles in x.
    machine.devices[0].limits.max_grid = {64, 1, 64};
    CHECK_THAT(test::user_error([&] { plan_of_long_chunks(machine, 64); }),
               Contains("larger $tensor_parallel"));
    // After fusion, on the launches themselves.
    planner::Plan broken = plan;
    broken.machine.devices[0].limits.max_grid[0] = 799;
    CHECK_THAT(test::user_error([&] { generate_program(broken, planner::DeviceId(0)); }),
               Contains("embedding") && Contains("max_grid_x") && Contains("$prefill_chunk"));
}
