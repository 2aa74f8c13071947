// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/node_sums.h"

#include <algorithm>
#include <cmath>

namespace cleave::planner {
namespace {

constexpr double kPerGB = 1e9;

// A protocol that sends flags with its data, along a tree.
struct Protocol {
    double base_ns;      // NCCL's baseLat
    double peer_hop_ns;  // hwLatencies of NVLINK
    double of_adapter;   // share of an adapter's rate: data beside flags, up and down the tree
};
constexpr Protocol kLL{6800, 600, 0.25}, kLL128{14000, 1250, 0.47};
constexpr double kMostLL128 = 49 * kPerGB;  // bytes/s, fitted
constexpr double kPlainBase = 8400;

// `most`: bytes/s that the protocol reaches, however many adapters there are.
double tree_ns(const Protocol& protocol, int64_t hop_ns, double most, const NodeGroup& g,
               double bytes) {
    if (hop_ns == 0) return INFINITY;
    const double adapters = static_cast<double>(g.adapters) * g.adapter_rate;
    const double rate = std::min(most, protocol.of_adapter * adapters);
    const double levels = std::log2(static_cast<double>(g.nodes));
    return protocol.base_ns +
           2 * (static_cast<double>(g.members - 1) * protocol.peer_hop_ns +
                levels * static_cast<double>(hop_ns) * g.slower) +
           bytes / rate * 1e9;
}

}  // namespace

int64_t node_sum_ns(const Fabric& fabric, const NodeGroup& g, int64_t bytes, SumForm form) {
    const auto p = static_cast<double>(bytes), n = static_cast<double>(g.nodes);
    if (form == SumForm::kTree) {
        const double ns = std::min(tree_ns(kLL, fabric.ll_hop_ns, fabric.ll_gb * kPerGB, g, p),
                                   tree_ns(kLL128, fabric.ll128_hop_ns, kMostLL128, g, p));
        return std::isinf(ns) ? INT64_MAX : std::llround(ns);
    }
    // The ring's steps, and one more until the first part is there.
    const double adapters = static_cast<double>(g.adapters) * g.adapter_rate;
    return g.in_node_ns +
           std::llround(kPlainBase +
                        (2 * (n - 1) + 1) * static_cast<double>(fabric.plain_hop_ns) * g.slower +
                        2 * (n - 1) / n * p / adapters * 1e9);
}

}  // namespace cleave::planner
