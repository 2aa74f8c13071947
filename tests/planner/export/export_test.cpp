// SPDX-License-Identifier: Apache-2.0
// Exports that need the plan alone: what they say is what the plan says, by the other tool's own
// rules, and what would change the result is refused.
#include <fstream>
#include <regex>
#include <set>

#include "models/llama_graph.h"
#include "planner/export/export.h"
#include "planner/export/layers.h"
#include "planner/machine/build_machine.h"
#include "planner/plan/workload_request.h"
#include "planner/planner.h"
#include "tests/planner/support/hand_plan.h"
#include "tests/planner/support/json_schema.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace cleave::planner;
using Catch::Matchers::Contains;
using nlohmann::json;

Plan plan_of(const std::string& shape, const std::string& devices, int tp, int pp,
             const std::vector<std::string>& pins = {}, std::optional<DType> dtype = {},
             Objective objective = Objective::kLatency, std::optional<DType> kv_dtype = {}) {
    const models::Shape s = *models::find_shape(shape);
    PlanOptions options;
    options.tensor_parallel = tp;
    options.pipeline_stages = pp;
    options.objective = objective;
    for (const std::string& pin : pins) options.pins.push_back(parse_pin(pin));
    Workload workload = fill_workload({}, s.config.max_positions);
    workload.dtype = dtype;
    workload.kv_dtype = kv_dtype;
    HostFacts host;
    host.num_cores = 8;
    host.memory_bytes = int64_t{64} << 30;
    host.memory_bandwidth = int64_t{100} << 30;
    host.flops_f32 = int64_t{1} << 40;
    return make_plan(models::build_llama_graph(s, s.dtype),
                     build_machine(parse_devices(devices), host), workload, options);
}

ExportResult exported(const std::string& format, const Plan& plan) {
    return find_exporter(plan_exporters(), format).run(plan);
}

// The words behind `flag` in a script.
std::string flag_of(const std::string& script, const std::string& flag) {
    std::smatch found;
    const bool there = std::regex_search(script, found, std::regex(flag + "[ =]'?([^' \n]+)'?"));
    return there ? found[1].str() : "";
}

std::vector<int> numbers(const std::string& text) {
    std::vector<int> list;
    std::istringstream in(text);
    for (std::string item; std::getline(in, item, ',');) list.push_back(std::stoi(item));
    return list;
}

}  // namespace

TEST_CASE("every export has a manifest that its schema describes, and is the same twice",
          "[planner]") {
    const Plan plan = plan_of("llama-2-7b", "sim:h100[0-1]", 1, 2,
                              {"layers.0-15=sim:h100[0]", "layers.16-31=sim:h100[1]"});
    const json schema =
        json::parse(std::ifstream(source_root() / "tools/schema/export.schema.json"));
    for (const Exporter& exporter : plan_exporters()) {
        INFO(exporter.name);
        const ExportResult result = exporter.run(plan);
        const std::string manifest = export_manifest(exporter.name, result);
        CHECK(schema_errors(schema, json::parse(manifest)) == std::vector<std::string>());
        CHECK(!result.files.empty());
        const ExportResult again = exporter.run(plan);
        for (size_t i = 0; i < result.files.size(); ++i)
            CHECK(result.files[i].contents == again.files.at(i).contents);
        TemporaryFolder folder;
        write_export(exporter.name, result, (folder.path() / "new" / "out").string());
        for (const ExportFile& file : result.files)
            CHECK(std::filesystem::exists(folder.path() / "new" / "out" / file.name));
        CHECK(std::filesystem::exists(folder.path() / "new" / "out" / "manifest.json"));
    }
    CHECK_THAT(user_error([] { find_exporter(plan_exporters(), "tvm"); }),
               Contains("tvm") && Contains("vllm") && Contains("dot"));
    CHECK_THAT(user_error([&] { write_export("text", exported("text", plan), "/dev/null/x"); }),
               Contains("/dev/null/x"));
}

TEST_CASE("an export of which a file cannot be written leaves what was there", "[planner]") {
    TemporaryFolder folder;
    const std::string root = folder.path().string();
    ExportResult result;
    result.files = {{"one.txt", "first"}};
    write_export("text", result, root);
    result.files = {{"one.txt", "second"}, {"two.txt", "new"}, {"one.txt.d/three.txt", "new"}};
    std::ofstream(folder.path() / "one.txt.d") << "no folder";
    CHECK_THAT(user_error([&] { write_export("text", result, root); }), Contains("one.txt.d"));
    std::ifstream one(folder.path() / "one.txt");
    CHECK(std::string(std::istreambuf_iterator<char>(one), {}) == "first");
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
        names.insert(entry.path().filename().string());
    CHECK(names == std::set<std::string>{"manifest.json", "one.txt", "one.txt.d"});
}

TEST_CASE("a dot graph has a node for each decode step and edges between its nodes", "[planner]") {
    Plan plan = hand_plan({{0, 1}, {2}}, {.layers = 3});
    plan.graph.name = "a \"quoted\" \\ name\x1b[2J";
    const std::string dot = exported("dot", plan).files[0].contents;
    CHECK_THAT(dot, Contains("digraph \"a \\\"quoted\\\" \\\\ name [2J\""));
    std::set<std::string> nodes;
    const std::regex node(R"(^ +(s\d+) \[)", std::regex::multiline);
    const std::regex edge(R"((s\d+) -> (s\d+);)");
    for (std::sregex_iterator i(dot.begin(), dot.end(), node), end; i != end; ++i)
        CHECK(nodes.insert((*i)[1].str()).second);
    CHECK(nodes.size() == plan.decode.steps.size());
    size_t edges = 0;
    for (std::sregex_iterator i(dot.begin(), dot.end(), edge), end; i != end; ++i, ++edges)
        CHECK((nodes.count((*i)[1]) == 1 && nodes.count((*i)[2]) == 1));
    CHECK(edges + 1 >= nodes.size());
}

TEST_CASE("vLLM's partition gives each rank the layers of its stage", "[planner]") {
    const Plan plan = plan_of("llama-3-8b", "sim:h100[2,3,0,1]", 2, 2,
                              {"layers.0-19=sim:h100[2]", "layers.20-31=sim:h100[0]"});
    const ExportResult result = exported("vllm", plan);
    const std::string& script = result.files[0].contents;
    INFO(script);
    CHECK(numbers(flag_of(script, "VLLM_PP_LAYER_PARTITION")) == std::vector<int>{20, 12});
    CHECK(flag_of(script, "--tensor-parallel-size") == "2");
    CHECK(flag_of(script, "--pipeline-parallel-size") == "2");
    CHECK(flag_of(script, "CUDA_VISIBLE_DEVICES") == "2,3,0,1");
    CHECK(flag_of(script, "--dtype") == "bfloat16");
    CHECK(flag_of(script, "--max-model-len") == "4096");
    CHECK(!result.not_expressed.empty());
}

TEST_CASE("vLLM's data-parallel engines and llama.cpp's servers have the devices of each replica",
          "[planner]") {
    const Plan plan =
        make_plan(models::build_llama_graph(*models::find_shape("llama-3-8b"), DType::kBF16),
                  build_machine(parse_devices("sim:h100[4-7]"), {}), {.batch = 16},
                  {.tensor_parallel = 2, .objective = Objective::kThroughput, .replicas = 2});
    const std::string vllm = exported("vllm", plan).files[0].contents;
    INFO(vllm);
    CHECK(flag_of(vllm, "--data-parallel-size") == "2");
    CHECK(flag_of(vllm, "--tensor-parallel-size") == "2");
    CHECK(flag_of(vllm, "CUDA_VISIBLE_DEVICES") == "4,5,6,7");
    CHECK(flag_of(vllm, "--max-num-seqs") == "8");
    std::istringstream servers(exported("llama.cpp", plan).files[0].contents);
    std::vector<std::string> devices, ports;
    for (std::string line; std::getline(servers, line);) {
        if (line.find("llama-server") == std::string::npos) continue;
        devices.push_back(flag_of(line, "'-dev'"));
        ports.push_back(flag_of(line, "'--port'"));
    }
    CHECK(devices == std::vector<std::string>{"CUDA4,CUDA5", "CUDA6,CUDA7"});
    CHECK(ports == std::vector<std::string>{"8080", "8081"});
    // Others write the first, and say so.
    const Exporter& dot = find_exporter(plan_exporters(), "dot");
    CHECK_THAT(export_plan(dot, plan).not_expressed.back(), Contains("2 replicas"));
}

// By llama.cpp's documented rule, written again: cumulated shares over layers and output.
TEST_CASE("llama.cpp's split puts every layer, and every MLP that is cut off, on the plan's device",
          "[planner]") {
    bool cut_layers = false, on_cpu = false;
    const std::vector<std::string> halves{"layers.15.attention=sim:h100[0]",
                                          "layers.15.down_proj=sim:h100[1]"};
    for (const char* devices : {"sim:h100[0-1]", "sim:rtx4090[0],sim:h100[1-2]",
                                "host[0],sim:rtx4090[0-1]", "sim:mi300x[0-4]"}) {
        const int count = static_cast<int>(parse_devices(devices).size());
        const Plan plan =
            plan_of("llama-3-8b", devices, 1, count,
                    count == 2 ? halves : std::vector<std::string>(), {}, Objective::kThroughput);
        const std::string script = exported("llama.cpp", plan).files[0].contents;
        INFO(script);
        const int layers = 32, on_gpu = std::stoi(flag_of(script, "'-ngl'"));
        const std::vector<int> shares = numbers(flag_of(script, "'-ts'"));
        std::vector<std::string> names;
        std::istringstream in(flag_of(script, "'-dev'"));
        for (std::string name; std::getline(in, name, ',');) names.push_back(name);
        REQUIRE(names.size() == shares.size());
        const std::string overrides = flag_of(script, "'-ot'");
        const std::vector<LayerStages> stages = stages_of_layers(plan, "test");
        const auto name_of = [&](int stage) {
            const DeviceInfo& d = plan.machine.device(plan.stages.at(stage).devices[0]);
            return is_cpu(d)
                       ? std::string("CPU")
                       : (is_gpu_of(d, Vendor::kAmd) ? "ROCm" : "CUDA") + std::to_string(d.index);
        };
        for (int l = 0; l < layers; ++l) {
            int device = -1;  // the CPU
            for (int i = l - (layers + 1 - on_gpu), sum = 0, d = 0; i >= 0 && device < 0; ++d) {
                sum += shares.at(static_cast<size_t>(d));
                if (i < sum) device = d;
            }
            const std::string attention = device < 0 ? "CPU" : names[static_cast<size_t>(device)];
            on_cpu = on_cpu || device < 0;
            CHECK(attention == name_of(stages[static_cast<size_t>(l)].attention));
            const std::string moved = fmt::format("blk\\.{}\\.ffn_.*=", l);
            const bool is_moved = overrides.find(moved) != std::string::npos;
            const std::string mlp = name_of(stages[static_cast<size_t>(l)].mlp);
            CHECK(is_moved == (mlp != attention));
            if (is_moved) CHECK_THAT(overrides, Contains(moved + mlp));
            cut_layers = cut_layers || is_moved;
        }
    }
    CHECK(cut_layers);
    const Plan plan = plan_of("llama-3-8b", "sim:h100[0-3]", 4, 1);
    const std::string script = exported("llama.cpp", plan).files[0].contents;
    CHECK(flag_of(script, "'-sm'") == "tensor");
    CHECK(flag_of(script, "'-ts'") == "1,1,1,1");
}

TEST_CASE("a device map names every module of a Llama once, on its stage's device", "[planner]") {
    const Plan plan = plan_of("llama-2-7b", "sim:h100[3,1]", 1, 2,
                              {"layers.0-17=sim:h100[3]", "layers.18-31=sim:h100[1]"});
    const json map = json::parse(exported("accelerate", plan).files[0].contents);
    CHECK(map.size() == 32 + 4);
    CHECK(map["model.embed_tokens"] == 3);
    CHECK(map["lm_head"] == 1);
    CHECK(map["model.norm"] == 1);
    for (int l = 0; l < 32; ++l) CHECK(map[fmt::format("model.layers.{}", l)] == (l < 18 ? 3 : 1));
}

TEST_CASE("scales of a KV cache are exported where the other tool has them by head and position",
          "[planner]") {
    for (auto [dtype, name] :
         {std::pair{DType::kInt8, "int8_per_token_head"}, {DType::kF8E4M3, "fp8_per_token_head"}}) {
        const Plan plan =
            plan_of("llama-3-8b", "sim:h100[0-1]", 2, 1, {}, {}, Objective::kLatency, dtype);
        const ExportResult result = exported("vllm", plan);
        CHECK(flag_of(result.files[0].contents, "--kv-cache-dtype") == name);
        CHECK_THAT(user_error([&] { exported("llama.cpp", plan); }),
                   Contains(std::string(dtype_name(dtype))) && Contains("$kv_dtype"));
    }
    const Plan plain = plan_of("llama-3-8b", "sim:h100[0-1]", 2, 1);
    CHECK(flag_of(exported("vllm", plain).files[0].contents, "--kv-cache-dtype").empty());
}

TEST_CASE("an export refuses what the other tool would compute elsewhere or otherwise",
          "[planner]") {
    struct Case {
        const char *format, *shape, *devices;
        int tp, pp;
        std::vector<std::string> pieces;
        std::optional<DType> dtype = {};
    };
    for (const Case& c : std::vector<Case>{
             {"vllm",
              "llama-3-8b",
              "sim:h100[0-2]",
              3,
              1,
              {"12 of 32 query heads", "$tensor_parallel"}},
             {"vllm", "llama-3-8b", "sim:rtx4090[0-2]", 1, 3, {"cuts layer 9", "$whole_layers"}},
             {"vllm", "llama-3.2-1b", "host[0-1]", 2, 1, {"host[0]", "no GPU"}},
             {"vllm", "llama-3-8b", "sim:h100[0-1]", 2, 1, {"int8", "$dtype"}, DType::kInt8},
             {"vllm", "llama-3.2-1b", "sim:h100[0],sim:mi300x[0]", 2, 1, {""}},
             {"vllm",
              "llama-110m",
              "sim:h100[0-2]",
              3,
              1,
              {"vocabulary of 32000", "$tensor_parallel"}},
             {"llama.cpp", "llama-3-8b", "sim:h100[0-15]", 1, 16, {"16 GPUs", "at most 15"}},
             {"llama.cpp",
              "llama-3-8b",
              "sim:h100[0-3]",
              2,
              2,
              {"-sm", "$tensor_parallel 1 $pipeline_stages 4"}},
             {"llama.cpp", "llama-3-8b", "sim:h100[0],host[0]", 1, 2, {"CPU", "$devices"}},
             {"llama.cpp", "llama-3-8b", "sim:h100[0-2]", 3, 1, {"query heads"}},
             {"llama.cpp", "llama-3-8b", "sim:h100[0],sim:a40[0]", 1, 2, {"both number 0"}},
             {"accelerate",
              "llama-3-8b",
              "sim:h100[0-1]",
              2,
              1,
              {"whole modules", "$tensor_parallel 1"}},
             {"accelerate", "llama-3.2-1b", "sim:h100[0-1]", 1, 2, {"one parameter"}}}) {
        INFO(c.format << " " << c.devices << " tp " << c.tp << " pp " << c.pp);
        std::vector<std::string> pins;
        if (c.format == std::string("accelerate") && c.pp == 2)
            pins = {"layers.0-7=sim:h100[0]", "layers.8-15=sim:h100[1]"};
        if (c.pp == 3)
            pins = {"layers.9.attention=sim:rtx4090[0]", "layers.9.down_proj=sim:rtx4090[1]"};
        const Plan plan = plan_of(c.shape, c.devices, c.tp, c.pp, pins, c.dtype,
                                  c.pp == 3 ? Objective::kThroughput : Objective::kLatency);
        const std::string message = user_error([&] { exported(c.format, plan); });
        CHECK_THAT(message, Contains(c.format));
        for (const std::string& piece : c.pieces) CHECK_THAT(message, Contains(piece));
    }
    Plan virtual_stages = hand_plan({{0}, {1}, {0}}, {.layers = 3});
    for (const char* format : {"vllm", "llama.cpp", "accelerate"})
        CHECK_THAT(user_error([&] { exported(format, virtual_stages); }), Contains("stages"));
}

}  // namespace cleave::test
