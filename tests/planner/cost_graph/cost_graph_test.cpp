// SPDX-License-Identifier: Apache-2.0
// Cost graphs: against brute force on random ones, and against the known optima of the published
// instances.
#include "tests/support/test.h"

#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

#include "planner/cost_graph/cost_graph.h"

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
        REQUIRE(plan.max_load == Approx(best));
    }
}

TEST_CASE("more time never gives a worse plan", "[planner]") {
    std::mt19937 random(8);
    for (int i = 0; i < 6; ++i) {
        CostGraph g;
        g.path = "random";
        g.num_accelerators = 5;
        g.accelerator_memory = 1e9;
        for (int n = 0; n < 40; ++n) {
            CostNode node;
            node.id = n;
            node.accelerator_latency = 1 + static_cast<double>(random() % 50);
            node.cpu_latency = 10 * node.accelerator_latency;
            node.output_cost = static_cast<double>(random() % 8);
            node.color_class = 100 + n;
            g.nodes.push_back(node);
            for (int e = 0; n > 0 && e < 2; ++e) g.edges.emplace_back(random() % n, n);
        }
        double last = INFINITY;
        for (const double seconds : {0.01, 0.1, 0.4}) {
            CostGraphOptions options;
            options.contiguous = false;
            options.time_limit_seconds = seconds;
            const double load = plan_cost_graph(g, options).max_load;
            INFO("case " << i << ", " << seconds << " s");
            CHECK(load <= last * (1 + 1e-9));
            last = load;
        }
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

// The best plan whose devices take runs of one topological order, by a programme of the test's own:
// what an exact plan may never be worse than. Infinity where nothing fits.
double best_over_one_order(const CostGraph& g) {
    size_t n = g.nodes.size();
    std::vector<int> indegree(n, 0), order;
    for (auto [a, b] : g.edges) ++indegree[b];
    for (size_t i = 0; i < n; ++i)
        if (indegree[i] == 0) order.push_back(static_cast<int>(i));
    for (size_t i = 0; i < order.size(); ++i)
        for (auto [a, b] : g.edges)
            if (a == order[i] && --indegree[b] == 0) order.push_back(b);
    std::vector<int> place(n);
    for (size_t i = 0; i < n; ++i) place[order[i]] = static_cast<int>(i);
    std::map<int64_t, std::pair<int, int>> spans;  // of each class: no cut inside
    for (size_t i = 0; i < n; ++i) {
        auto [at, fresh] = spans.try_emplace(g.nodes[i].color_class, place[i], place[i]);
        at->second.first = std::min(at->second.first, place[i]);
        at->second.second = std::max(at->second.second, place[i]);
    }
    std::vector<bool> may_cut(n + 1, true);
    for (auto [cls, span] : spans)
        for (int i = span.first + 1; i <= span.second; ++i) may_cut[i] = false;
    int k = g.num_accelerators;
    std::vector<std::vector<double>> best(k + 1, std::vector<double>(n + 1, INFINITY));
    for (int d = 0; d <= k; ++d) best[d][0] = 0;
    for (size_t from = 0; from < n; ++from) {
        if (!may_cut[from]) continue;
        // Loads of a device with order[from, to), for each `to`.
        std::vector<int> device(n, 1);
        double size = 0;
        for (size_t to = from + 1; to <= n; ++to) {
            const CostNode& node = g.nodes[order[to - 1]];
            if (!node.on_accelerator) break;
            size += node.size;
            if (size > g.accelerator_memory) break;
            device[order[to - 1]] = 0;
            if (!may_cut[to]) continue;
            double load = 0;
            std::set<int> heard;
            std::vector<bool> sends(n, false);
            for (auto [a, b] : g.edges) {
                if (device[a] == 0 && device[b] == 1) sends[a] = true;
                if (device[a] == 1 && device[b] == 0) heard.insert(a);
            }
            for (size_t i = from; i < to; ++i)
                load += g.nodes[order[i]].accelerator_latency +
                        (sends[order[i]] ? g.nodes[order[i]].output_cost : 0.0);
            for (int a : heard) load += g.nodes[a].output_cost;
            for (int d = 1; d <= k; ++d)
                best[d][to] = std::min(best[d][to], std::max(best[d - 1][from], load));
        }
    }
    return best[k][n];
}

TEST_CASE("contiguous plans are exact where there are some 28,000 downward-closed sets",
          "[planner]") {
    std::mt19937 random(10);
    for (const int chains : {2, 4}) {
        CostGraph g;
        g.path = "chains";
        g.num_accelerators = 4;
        g.accelerator_memory = 1e9;
        const auto add = [&] {
            CostNode node;
            node.id = static_cast<int64_t>(g.nodes.size());
            node.accelerator_latency = 1 + static_cast<double>(random() % 90) / 10;
            node.cpu_latency = 20 * node.accelerator_latency;
            node.output_cost = static_cast<double>(random() % 20) / 10;
            node.color_class = 100 + node.id;
            g.nodes.push_back(node);
            return static_cast<int>(g.nodes.size()) - 1;
        };
        const int first = add();
        std::vector<int> ends;
        for (int chain = 0; chain < chains; ++chain) {
            ends.push_back(first);
            for (int i = 0; i < 12; ++i) {
                const int next = add();
                g.edges.emplace_back(ends.back(), next);
                ends.back() = next;
            }
        }
        const int last = add();
        for (const int end : ends) g.edges.emplace_back(end, last);
        const CostGraphPlan plan = plan_cost_graph(g, {});
        INFO(plan.why);
        CHECK(plan.exact);
        CHECK(is_contiguous(g, plan.device));
        CHECK(plan.max_load == Approx(max_load(g, plan.device)));
        CHECK(plan.max_load <= best_over_one_order(g) * (1 + 1e-9));
    }
}

TEST_CASE(
    "unseen instances of the published family are planned soundly and never worse than a plain "
    "order",
    "[planner]") {
    CLEAVE_NEEDS_SHARED_DATA();
    std::filesystem::path folder =
        test::shared_data() / "dnn-partitioning/inputs/throughput-inputs";
    std::mt19937 random(9);
    auto factor = [&](double low, double high) {
        return std::uniform_real_distribution<double>(low, high)(random);
    };
    for (const char* name : {"LayerGraphs/bert24", "LayerGraphs/resnet50",
                             "OperatorGraphs/bert_l-3", "OperatorGraphs/resnet50"}) {
        const CostGraph published =
            load_cost_graph((folder / (std::string(name) + "_inference.json")).string());
        for (int variant = 0; variant < 5; ++variant) {
            CostGraph g = published;
            // Other costs, other counts of devices, other memory.
            for (CostNode& node : g.nodes) {
                node.accelerator_latency *= factor(0.5, 2);
                node.cpu_latency *= factor(0.5, 2);
                node.size *= factor(0.8, 1.2);
                node.output_cost *= factor(0.2, 3);
            }
            g.num_accelerators = 2 + 2 * variant;
            g.accelerator_memory *= factor(1, 2);
            INFO(name << ", variant " << variant);
            double simple = best_over_one_order(g);
            CostGraphPlan plan;
            try {
                plan = plan_cost_graph(g, {});
            } catch (const UserError&) {
                CHECK(simple == INFINITY);
                continue;
            }
            CHECK(is_contiguous(g, plan.device));
            CHECK(is_allowed(g, plan.device));
            CHECK(plan.max_load == Approx(max_load(g, plan.device)));
            CHECK(plan.max_load <= simple * (1 + 1e-9));
            CHECK(plan.lower_bound <= plan.max_load * (1 + 1e-9));
            CostGraphOptions options;
            options.contiguous = false;
            options.time_limit_seconds = 0.2;
            CostGraphPlan any = plan_cost_graph(g, options);
            CHECK(is_allowed(g, any.device));
            CHECK(any.max_load == Approx(max_load(g, any.device)));
            CHECK(any.max_load <= plan.max_load * (1 + 1e-9));
            CHECK(any.lower_bound <= any.max_load * (1 + 1e-9));
        }
    }
}

TEST_CASE("where only devices that return fit, the non-contiguous mode still finds a plan",
          "[planner]") {
    // a -> b -> c: a and c share the one accelerator that has room for them, b needs the other.
    CostGraph g;
    g.path = "sandwich";
    g.num_accelerators = 2;
    g.accelerator_memory = 10;
    for (int i = 0; i < 3; ++i) {
        CostNode node;
        node.id = i;
        node.accelerator_latency = 1;
        node.cpu_latency = 1;
        node.size = i == 1 ? 10 : 5;
        node.color_class = 100 + i;
        g.nodes.push_back(node);
    }
    g.edges = {{0, 1}, {1, 2}};
    CHECK_THAT(test::user_error([&] { plan_cost_graph(g, {}); }), Contains("no contiguous plan"));
    CostGraphOptions options;
    options.contiguous = false;
    options.time_limit_seconds = 0.1;
    CostGraphPlan plan = plan_cost_graph(g, options);
    CHECK(is_allowed(g, plan.device));
    CHECK(plan.device[0] == plan.device[2]);
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
    for (const auto& [content, says] : std::initializer_list<std::pair<std::string, const char*>>{
             {"{", "no JSON: "},
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
              "must be finite and not negative"},
             {head + R"("nodes": [{"id": 1, "cpuLatency": 1e300}], "edges": []})",
              "1000000000000000 at most"}}) {
        std::ofstream(path) << content;
        INFO(content);
        REQUIRE_THAT(test::user_error([&] { load_cost_graph(path); }), Contains(says));
    }
    REQUIRE_THAT(test::user_error([&] { load_cost_graph(path + ".absent"); }),
                 Contains("cannot be read"));
}
