// SPDX-License-Identifier: Apache-2.0
#include "planner/cost_graph/classes.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace cleave::planner::cost_graph {
namespace {

// Strongly connected components by Tarjan's algorithm, iterative; numbers are arbitrary.
std::vector<int> components(int count, const std::vector<std::vector<int>>& after) {
    std::vector<int> index(count, -1), low(count, 0), component(count, -1), stack;
    std::vector<size_t> next(count, 0);
    std::vector<bool> on_stack(count, false);
    int counter = 0, found = 0;
    for (int root = 0; root < count; ++root) {
        if (index[root] >= 0) continue;
        std::vector<int> path{root};
        while (!path.empty()) {
            int v = path.back();
            if (index[v] < 0) {
                index[v] = low[v] = counter++;
                stack.push_back(v);
                on_stack[v] = true;
            }
            if (next[v] < after[v].size()) {
                int w = after[v][next[v]++];
                if (index[w] < 0)
                    path.push_back(w);
                else if (on_stack[w])
                    low[v] = std::min(low[v], index[w]);
                continue;
            }
            if (low[v] == index[v]) {
                for (int w = -1; w != v;) {
                    w = stack.back();
                    stack.pop_back();
                    on_stack[w] = false;
                    component[w] = found;
                }
                ++found;
            }
            path.pop_back();
            if (!path.empty()) low[path.back()] = std::min(low[path.back()], low[v]);
        }
    }
    return component;
}

// Numbers groups 0, 1, ... in the order in which their first member appears.
int renumber(std::vector<int>& group) {
    std::map<int, int> number;
    for (int& g : group) g = number.try_emplace(g, static_cast<int>(number.size())).first->second;
    return static_cast<int>(number.size());
}

std::vector<std::vector<int>> neighbours(const CostGraph& graph, const std::vector<int>& of_node,
                                         int count) {
    std::vector<std::vector<int>> after(count);
    for (auto [a, b] : graph.edges)
        if (of_node[a] != of_node[b]) after[of_node[a]].push_back(of_node[b]);
    for (auto& list : after) {
        std::sort(list.begin(), list.end());
        list.erase(std::unique(list.begin(), list.end()), list.end());
    }
    return after;
}

// Renumbers pieces so that edges go to larger numbers; of the ready ones, the one that continues
// the latest first, which keeps chains together.
void sort_topologically(const CostGraph& graph, std::vector<int>& of_node, int count) {
    auto after = neighbours(graph, of_node, count);
    std::vector<int> waiting(count, 0), place(count, -1), ready;
    for (const auto& list : after)
        for (int b : list) ++waiting[b];
    for (int p = count - 1; p >= 0; --p)
        if (waiting[p] == 0) ready.push_back(p);
    int position = 0;
    while (!ready.empty()) {
        int p = ready.back();
        ready.pop_back();
        place[p] = position++;
        for (size_t i = after[p].size(); i-- > 0;)
            if (--waiting[after[p][i]] == 0) ready.push_back(after[p][i]);
    }
    for (int& p : of_node) p = place[p];
}

}  // namespace

Pieces contract(const CostGraph& graph, bool acyclic) {
    Pieces pieces;
    std::map<int64_t, int> classes;
    for (const CostNode& n : graph.nodes)
        pieces.of_node.push_back(
            classes.try_emplace(n.color_class, static_cast<int>(classes.size())).first->second);
    pieces.count = renumber(pieces.of_node);
    if (acyclic) {
        std::vector<int> component =
            components(pieces.count, neighbours(graph, pieces.of_node, pieces.count));
        for (int& p : pieces.of_node) p = component[p];
        pieces.count = renumber(pieces.of_node);
        sort_topologically(graph, pieces.of_node, pieces.count);
    }
    pieces.accelerator.assign(pieces.count, 0);
    pieces.cpu.assign(pieces.count, 0);
    pieces.size.assign(pieces.count, 0);
    pieces.makes.resize(pieces.count);
    pieces.reads.resize(pieces.count);
    std::vector<std::set<int>> readers(graph.nodes.size());
    for (auto [a, b] : graph.edges)
        if (pieces.of_node[a] != pieces.of_node[b]) readers[a].insert(pieces.of_node[b]);
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
        const CostNode& node = graph.nodes[n];
        int piece = pieces.of_node[n];
        pieces.accelerator[piece] += node.on_accelerator ? node.accelerator_latency
                                                         : std::numeric_limits<double>::infinity();
        pieces.cpu[piece] += node.cpu_latency;
        pieces.size[piece] += node.size;
        if (readers[n].empty()) continue;
        auto id = static_cast<int>(pieces.outputs.size());
        pieces.outputs.push_back({piece, node.output_cost, {readers[n].begin(), readers[n].end()}});
        pieces.makes[piece].push_back(id);
        for (int r : readers[n]) pieces.reads[r].push_back(id);
    }
    pieces.after = neighbours(graph, pieces.of_node, pieces.count);
    pieces.before.resize(pieces.count);
    for (int a = 0; a < pieces.count; ++a)
        for (int b : pieces.after[a]) pieces.before[b].push_back(a);
    return pieces;
}

}  // namespace cleave::planner::cost_graph
