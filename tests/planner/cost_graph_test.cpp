// SPDX-License-Identifier: Apache-2.0
// Cost graphs: against brute force on random ones, and against the known optima of the published instances.
#include "tests/support/test.h"

#include <fstream>
#include <functional>
#include <random>
#include <sstream>

#include <nlohmann/json.hpp>

#include "planner/cost_graph.h"

using namespace cleave;
using namespace cleave::planner;
using Catch::Matchers::Contains;

namespace {

CostGraph random_graph(std::mt19937& random) {
    auto pick = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(random);
    };
    CostGraph g;
    g.path = "random";
    int n = pick(1, 7);
    for (int i = 0; i < n; ++i) {
        CostNode node;
        node.id = i * 3;
        node.accelerator_latency = pick(0, 9);
        node.cpu_latency = node.accelerator_latency * pick(1, 5);
        node.size = pick(0, 4);
        node.output_cost = pick(0, 4) * 0.5;
        node.color_class = pick(0, 3) == 0 ? pick(0, 2) : 100 + i;
        g.nodes.push_back(node);
    }
    for (int a = 0; a < n; ++a)
        for (int b = a + 1; b < n; ++b)
            if (pick(0, 2) == 0) g.edges.emplace_back(a, b);
    g.num_accelerators = pick(1, 3);
    g.num_cpus = pick(0, 1);
    g.accelerator_memory = pick(6, 30);
    return g;
}

// Whether the devices can be ordered so that every edge goes forward.
bool is_contiguous(const CostGraph& g, const std::vector<int>& device) {
    int k = g.num_accelerators + g.num_cpus;
    std::vector<std::vector<bool>> reaches(k, std::vector<bool>(k, false));
    for (auto [a, b] : g.edges)
        if (device[a] != device[b]) reaches[device[a]][device[b]] = true;
    for (int m = 0; m < k; ++m)
        for (int i = 0; i < k; ++i)
            for (int j = 0; j < k; ++j)
                if (reaches[i][m] && reaches[m][j]) reaches[i][j] = true;
    for (int i = 0; i < k; ++i)
        if (reaches[i][i]) return false;
    return true;
}

bool is_allowed(const CostGraph& g, const std::vector<int>& device) {
    std::vector<double> size(g.num_accelerators + g.num_cpus, 0);
    for (size_t i = 0; i < g.nodes.size(); ++i) {
        size[device[i]] += g.nodes[i].size;
        for (size_t j = 0; j < i; ++j)
            if (g.nodes[i].color_class == g.nodes[j].color_class && device[i] != device[j])
                return false;
    }
    for (int a = 0; a < g.num_accelerators; ++a)
        if (size[a] > g.accelerator_memory) return false;
    return true;
}

double brute_force(const CostGraph& g, bool contiguous) {
    std::vector<int> device(g.nodes.size(), 0);
    double best = INFINITY;
    std::function<void(size_t)> place = [&](size_t i) {
        if (i == device.size()) {
            if (is_allowed(g, device) && (!contiguous || is_contiguous(g, device)))
                best = std::min(best, max_load(g, device));
            return;
        }
        for (int d = 0; d < g.num_accelerators + g.num_cpus; ++d) {
            device[i] = d;
            place(i + 1);
        }
    };
    place(0);
    return best;
}

std::string read_text(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

}  // namespace

TEST_CASE("contiguous plans of random cost graphs equal brute force", "[planner]") {
    std::mt19937 random(5);
    for (int i = 0; i < 300; ++i) {
        CostGraph g = random_graph(random);
        double best = brute_force(g, true);
        INFO("case " << i);
        if (best == INFINITY) {
            REQUIRE_THAT(test::user_error([&] { plan_cost_graph(g, {}); }),
                         Contains("maxSizePerFPGA"));
            continue;
        }
        CostGraphPlan plan = plan_cost_graph(g, {});
        REQUIRE(plan.exact);
        REQUIRE(plan.max_load == Approx(best));
        REQUIRE(is_contiguous(g, plan.device));
        REQUIRE(is_allowed(g, plan.device));
    }
}

TEST_CASE("non-contiguous plans are never worse than contiguous ones nor better than the bound",
          "[planner]") {
    std::mt19937 random(6);
    for (int i = 0; i < 60; ++i) {
        CostGraph g = random_graph(random);
        if (brute_force(g, true) == INFINITY) continue;
        CostGraphOptions options;
        options.contiguous = false;
        options.time_limit_seconds = 0.1;
        CostGraphPlan plan = plan_cost_graph(g, options);
        double best = brute_force(g, false);
        INFO("case " << i);
        REQUIRE(is_allowed(g, plan.device));
        REQUIRE(plan.max_load <= plan_cost_graph(g, {}).max_load + 1e-9);
        REQUIRE(plan.lower_bound <= best + 1e-9);
        REQUIRE(plan.max_load == Approx(best).epsilon(0.02));
    }
}

TEST_CASE("the published instances are cut at their known contiguous optima", "[planner]") {
    CLEAVE_NEEDS_SHARED_DATA();
    std::filesystem::path folder = test::shared_data() / "dnn-partitioning";
    for (const char* name : {"LayerGraphs/bert24", "LayerGraphs/resnet50",
                             "OperatorGraphs/bert_l-3", "OperatorGraphs/resnet50"}) {
        CostGraph g = load_cost_graph(
            (folder / "inputs/throughput-inputs" / (std::string(name) + "_inference.json"))
                .string());
        std::string file = name;
        std::replace(file.begin(), file.end(), '/', '_');
        auto known = nlohmann::json::parse(
            read_text(folder / "optimal-contig" / (file + "_inference.json")));
        CostGraphPlan plan = plan_cost_graph(g, {});
        INFO(name << ": " << plan.why);
        REQUIRE(plan.max_load == Approx(known["maxLoad"].get<double>()).epsilon(1e-4));
        REQUIRE(is_contiguous(g, plan.device));
    }
}

TEST_CASE("the published instances reach the best known non-contiguous loads", "[planner][slow]") {
    CLEAVE_NEEDS_SHARED_DATA();
    std::filesystem::path folder =
        test::shared_data() / "dnn-partitioning/inputs/throughput-inputs";
    for (auto [name, best] : {std::pair{"LayerGraphs/bert24", 17.715},
                              {"LayerGraphs/resnet50", 33.7615},
                              {"OperatorGraphs/bert_l-3", 21.9084},
                              {"OperatorGraphs/resnet50", 124.349}}) {
        CostGraphOptions options;
        options.contiguous = false;
        CostGraphPlan plan = plan_cost_graph(
            load_cost_graph((folder / (std::string(name) + "_inference.json")).string()), options);
        INFO(name);
        REQUIRE(plan.max_load <= best * (1 + 1e-6));
    }
}

TEST_CASE("a bad cost graph is a UserError that names the field", "[planner]") {
    test::TemporaryFolder folder;
    std::string path = (folder.path() / "graph.json").string();
    std::string head = R"({"maxSizePerFPGA": 10, "maxFPGAs": 2, "maxCPUs": 0, )";
    std::string node =
        R"({"id": 1, "cpuLatency": 1, "fpgaLatency": 1, "size": 1, "supportedOnFpga": 1})";
    for (auto [content, says] : std::initializer_list<std::pair<std::string, const char*>>{
             {"{", "not JSON"},
             {"[]", "no JSON object"},
             {R"({"maxFPGAs": 2})", "lacks the field 'maxSizePerFPGA'"},
             {R"({"maxSizePerFPGA": 1, "maxFPGAs": 0, "maxCPUs": 0})", "both 0"},
             {R"({"maxSizePerFPGA": 1, "maxFPGAs": 1.5, "maxCPUs": 0})", "whole number"},
             {head + R"("nodes": []})", "no nodes"},
             {head + R"("edges": []})", "lacks the array 'nodes'"},
             {head + R"("nodes": [{"id": "x"}], "edges": []})", "whole number 'id'"},
             {head + R"("nodes": [{"id": 1}], "edges": []})", "lacks the field 'cpuLatency'"},
             {head + "\"nodes\": [" + node + "," + node + "], \"edges\": []}",
              "two nodes have the id 1"},
             {head + "\"nodes\": [" + node +
                  R"(], "edges": [{"sourceId": 1, "destId": 2, "cost": 0}]})",
              "names no node"},
             {head + R"("nodes": [{"id": 1, "cpuLatency": -1}], "edges": []})",
              "must be finite and not negative"}}) {
        std::ofstream(path) << content;
        INFO(content);
        REQUIRE_THAT(test::user_error([&] { load_cost_graph(path); }), Contains(says));
    }
    REQUIRE_THAT(test::user_error([&] { load_cost_graph(path + ".absent"); }),
                 Contains("cannot be read"));
}
