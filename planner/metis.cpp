// SPDX-License-Identifier: Apache-2.0
#include "planner/metis.h"

#include <metis.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>

#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

// METIS works in 32 bits and adds weights up; all of a kind are scaled so that their sum stays below 2^30.
std::vector<idx_t> scale_weights(const std::vector<int64_t>& weights) {
    double total = 0;
    for (int64_t w : weights) total += static_cast<double>(w);
    double scale = std::min(1.0, double(1 << 30) / std::max(1.0, total));
    std::vector<idx_t> scaled;
    for (int64_t w : weights) scaled.push_back(static_cast<idx_t>(std::max(w > 0 ? 1.0 : 0.0, static_cast<double>(w) * scale)));
    return scaled;
}

// An empty part takes the lightest vertex of the part with most vertices.
void fill_empty_parts(std::vector<int>& parts, std::span<const int64_t> weights, int num_parts) {
    if (static_cast<int>(parts.size()) < num_parts) return;
    std::vector<int> count(num_parts, 0);
    for (int p : parts) ++count[p];
    for (int empty = 0; empty < num_parts; ++empty) {
        if (count[empty] > 0) continue;
        auto donor = static_cast<int>(std::max_element(count.begin(), count.end()) - count.begin());
        int lightest = -1;
        for (size_t v = 0; v < parts.size(); ++v)
            if (parts[v] == donor && (lightest < 0 || weights[v] < weights[lightest])) lightest = static_cast<int>(v);
        parts[lightest] = empty;
        --count[donor];
        ++count[empty];
    }
}

}  // namespace

std::vector<int> partition_graph(int num_vertices, std::span<const PartitionEdge> edges, std::span<const int64_t> vertex_weights,
                                 std::span<const double> targets, int64_t seed) {
    auto num_parts = static_cast<int>(targets.size());
    CHECK(num_vertices > 0 && num_parts > 0) << num_vertices << " vertices, " << num_parts << " parts";
    CHECK(static_cast<int>(vertex_weights.size()) == num_vertices) << "a weight for each vertex";
    std::vector<int> parts(num_vertices, 0);
    if (num_parts == 1) return parts;
    if (num_parts >= num_vertices) {
        std::iota(parts.begin(), parts.end(), 0);
        return parts;
    }
    std::map<std::pair<int, int>, int64_t> adjacency;
    for (const PartitionEdge& e : edges) {
        CHECK(e.a >= 0 && e.a < num_vertices && e.b >= 0 && e.b < num_vertices && e.weight >= 0) << "edge " << e.a << " - " << e.b;
        if (e.a == e.b || e.weight == 0) continue;
        adjacency[{e.a, e.b}] += e.weight;
        adjacency[{e.b, e.a}] += e.weight;
    }
    std::vector<idx_t> begin(num_vertices + 1, 0), neighbour;
    std::vector<int64_t> weights;
    for (const auto& [pair, weight] : adjacency) {
        ++begin[pair.first + 1];
        neighbour.push_back(pair.second);
        weights.push_back(weight);
    }
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    std::vector<idx_t> edge_weight = scale_weights(weights);
    std::vector<idx_t> vertex_weight = scale_weights({vertex_weights.begin(), vertex_weights.end()});
    double total = std::accumulate(targets.begin(), targets.end(), 0.0);
    std::vector<real_t> share;
    for (double t : targets) share.push_back(static_cast<real_t>(t / total));
    idx_t options[METIS_NOPTIONS];
    METIS_SetDefaultOptions(options);
    options[METIS_OPTION_SEED] = static_cast<idx_t>(seed & 0x7fffffff);
    options[METIS_OPTION_NUMBERING] = 0;
    options[METIS_OPTION_NCUTS] = 4;
    idx_t n = num_vertices, constraints = 1, k = num_parts, cut = 0;
    std::vector<idx_t> part(num_vertices, 0);
    // METIS installs process-wide signal handlers while it runs: one call at a time.
    static std::mutex one_at_a_time;
    std::lock_guard lock(one_at_a_time);
    int status = METIS_PartGraphKway(&n, &constraints, begin.data(), neighbour.data(), vertex_weight.data(), nullptr, edge_weight.data(),
                                     &k, share.data(), nullptr, options, &cut, part.data());
    CHECK(status == METIS_OK) << "METIS_PartGraphKway returned " << status << " for " << num_vertices << " vertices and " << num_parts << " parts";
    parts.assign(part.begin(), part.end());
    fill_empty_parts(parts, vertex_weights, num_parts);
    return parts;
}

int64_t edge_cut(std::span<const PartitionEdge> edges, std::span<const int> parts) {
    int64_t cut = 0;
    for (const PartitionEdge& e : edges)
        if (parts[e.a] != parts[e.b]) cut += e.weight;
    return cut;
}

}  // namespace cleave::planner
