// SPDX-License-Identifier: Apache-2.0
#include "planner/metis/metis.h"

#include <metis.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <numeric>

#include "planner/metis/metis_guard.h"

namespace cleave::planner {
namespace {

// METIS works in 32 bits and adds weights up; all of a kind are scaled so that their sum stays
// below 2^30.
std::vector<idx_t> scale_weights(const std::vector<int64_t>& weights) {
    double total = 0;
    for (int64_t w : weights) total += static_cast<double>(w);
    double scale = std::min(1.0, double(1 << 30) / std::max(1.0, total));
    std::vector<idx_t> scaled;
    for (int64_t w : weights)
        scaled.push_back(
            static_cast<idx_t>(std::max(w > 0 ? 1.0 : 0.0, static_cast<double>(w) * scale)));
    return scaled;
}

std::string failure_text(const GuardedResult& result, size_t vertices) {
    if (result.signal != 0)
        return fmt::format("METIS raised signal {} ({}) on a graph of {} vertices", result.signal,
                           result.signal == SIGABRT ? "no memory" : "internal error", vertices);
    const char* meaning = result.returned == METIS_ERROR_INPUT    ? "bad input"
                          : result.returned == METIS_ERROR_MEMORY ? "no memory"
                                                                  : "internal error";
    return fmt::format("METIS failed with code {} ({}) on a graph of {} vertices", result.returned,
                       meaning, vertices);
}

struct WeightedGraph {
    std::vector<std::vector<std::pair<int, int64_t>>>
        neighbours;  // by vertex, each once, by number
    std::span<const int64_t> weights;
};

// Two sides of `vertices`, the first with `share` of the weight. METIS prints to standard output
// when it is asked for more parts than a piece of the graph has vertices; two parts of two vertices
// or more never get there.
std::vector<bool> bisect(const WeightedGraph& graph, const std::vector<int>& vertices, double share,
                         int64_t seed) {
    std::vector<int> local(graph.neighbours.size(), -1);
    for (size_t i = 0; i < vertices.size(); ++i) local[vertices[i]] = static_cast<int>(i);
    std::vector<idx_t> begin{0}, neighbour;
    std::vector<int64_t> edge, weight;
    for (int v : vertices) {
        for (auto [to, w] : graph.neighbours[v])
            if (local[to] >= 0) {
                neighbour.push_back(local[to]);
                edge.push_back(w);
            }
        begin.push_back(static_cast<idx_t>(neighbour.size()));
        weight.push_back(std::max<int64_t>(1, graph.weights[v]));
    }
    std::vector<idx_t> edge_weight = scale_weights(edge), vertex_weight = scale_weights(weight);
    real_t targets[2] = {static_cast<real_t>(share), static_cast<real_t>(1 - share)};
    idx_t options[METIS_NOPTIONS];
    METIS_SetDefaultOptions(options);
    options[METIS_OPTION_SEED] = static_cast<idx_t>(seed & 0x7fffffff);
    options[METIS_OPTION_NUMBERING] = 0;
    options[METIS_OPTION_NCUTS] = 4;
    auto n = static_cast<idx_t>(vertices.size());
    idx_t constraints = 1, parts = 2, cut = 0;
    std::vector<idx_t> part(vertices.size(), 0);
    // METIS also seeds the C library's generator: the guard's one call at a time is needed for
    // that, too.
    GuardedResult result = call_guarded([&] {
        return METIS_PartGraphRecursive(&n, &constraints, begin.data(), neighbour.data(),
                                        vertex_weight.data(), nullptr, edge_weight.data(), &parts,
                                        targets, nullptr, options, &cut, part.data());
    });
    if (result.signal != 0 || result.returned != METIS_OK)
        throw MetisError(failure_text(result, vertices.size()));
    std::vector<bool> second;
    for (idx_t p : part) second.push_back(p == 1);
    return second;
}

// Moves the lightest vertices over until each side has as many vertices as parts it will be cut
// into.
void leave_enough(const WeightedGraph& graph, const std::vector<int>& vertices,
                  std::vector<bool>& second, size_t first_parts, size_t second_parts) {
    auto count = [&](bool side) {
        return static_cast<size_t>(std::count(second.begin(), second.end(), side));
    };
    auto move_lightest = [&](bool to) {
        int lightest = -1;
        for (size_t i = 0; i < vertices.size(); ++i)
            if (second[i] != to &&
                (lightest < 0 || graph.weights[vertices[i]] < graph.weights[vertices[lightest]]))
                lightest = static_cast<int>(i);
        second[lightest] = to;
    };
    while (count(false) < first_parts) move_lightest(false);
    while (count(true) < second_parts) move_lightest(true);
}

void partition(const WeightedGraph& graph, const std::vector<int>& vertices,
               std::span<const double> targets, int first_part, int64_t seed,
               std::vector<int>& parts) {
    if (targets.size() == 1 || vertices.size() <= targets.size()) {
        for (size_t i = 0; i < vertices.size(); ++i)
            parts[vertices[i]] = first_part + (targets.size() == 1 ? 0 : static_cast<int>(i));
        return;
    }
    size_t half = targets.size() / 2;
    double left =
        std::accumulate(targets.begin(), targets.begin() + static_cast<std::ptrdiff_t>(half), 0.0);
    double all = std::accumulate(targets.begin(), targets.end(), 0.0);
    std::vector<bool> second = bisect(graph, vertices, left / all, seed);
    leave_enough(graph, vertices, second, half, targets.size() - half);
    std::vector<int> sides[2];
    for (size_t i = 0; i < vertices.size(); ++i) sides[second[i]].push_back(vertices[i]);
    partition(graph, sides[0], targets.subspan(0, half), first_part, seed, parts);
    partition(graph, sides[1], targets.subspan(half), first_part + static_cast<int>(half), seed,
              parts);
}

}  // namespace

std::vector<int> partition_graph(int num_vertices, std::span<const PartitionEdge> edges,
                                 std::span<const int64_t> vertex_weights,
                                 std::span<const double> targets, int64_t seed) {
    CLEAVE_CHECK(num_vertices > 0 && !targets.empty())
        << num_vertices << " vertices, " << targets.size() << " parts";
    CLEAVE_CHECK(static_cast<int>(vertex_weights.size()) == num_vertices)
        << "a weight for each vertex";
    std::map<std::pair<int, int>, int64_t> adjacency;
    for (const PartitionEdge& e : edges) {
        CLEAVE_CHECK(e.a >= 0 && e.a < num_vertices && e.b >= 0 && e.b < num_vertices &&
                     e.weight >= 0)
            << "edge " << e.a << " - " << e.b;
        if (e.a == e.b || e.weight == 0) continue;
        adjacency[{e.a, e.b}] += e.weight;
        adjacency[{e.b, e.a}] += e.weight;
    }
    WeightedGraph graph{std::vector<std::vector<std::pair<int, int64_t>>>(num_vertices),
                        vertex_weights};
    for (const auto& [pair, weight] : adjacency)
        graph.neighbours[pair.first].emplace_back(pair.second, weight);
    std::vector<int> vertices(num_vertices), parts(num_vertices, 0);
    std::iota(vertices.begin(), vertices.end(), 0);
    partition(graph, vertices, targets, 0, seed, parts);
    return parts;
}

}  // namespace cleave::planner
