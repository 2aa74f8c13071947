// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/collective_form.h"

#include <algorithm>
#include <map>

namespace cleave::planner {

std::vector<DeviceId> ring_order(const LinkTable& links, std::span<const DeviceId> group) {
    std::vector<DeviceId> order(group.begin(), group.end());
    if (const LinkTable::Uniform* uniform = links.uniform()) {  // host after host, as they come
        if (!uniform->inside || !uniform->between ||
            uniform->inside->bandwidth <= uniform->between->bandwidth)
            return order;
        std::map<int, size_t> place;
        for (DeviceId d : group) place.try_emplace(links.node(d), place.size());
        std::ranges::stable_sort(order, {}, [&](DeviceId d) { return place.at(links.node(d)); });
        return order;
    }
    auto rate = [&](DeviceId from, DeviceId to) {
        const Link* link = links.at(from, to);
        return link ? link->bandwidth : 0;
    };
    for (size_t i = 1; i + 1 < order.size(); ++i) {
        const auto rate_to = [&, last = order[i - 1]](DeviceId d) { return rate(last, d); };
        auto next = order.begin() + static_cast<std::ptrdiff_t>(i);
        // Of many alike the first; none is looked for behind one that no other can surpass.
        auto best = std::ranges::find(next, order.end(), links.fastest_from(order[i - 1]), rate_to);
        if (best == order.end()) best = std::ranges::max_element(next, order.end(), {}, rate_to);
        std::rotate(next, best, best + 1);  // the others keep their order
    }
    return order;
}

namespace {

// From here on vLLM leaves a sum to NCCL, too
// (vllm/distributed/device_communicators/custom_all_reduce.py, max_size).
constexpr int64_t kLibraryBytes = int64_t{8} << 20;

// Of cards of several hosts. Open MPI sends a smaller message without asking its receiver
// (btl_tcp_eager_limit), and members that add in contributor order have the bits of one host. A
// larger sum would pay for two copies through host memory, and for every payload at every member.
constexpr int64_t kLibraryBytesBetweenHosts = int64_t{64} << 10;

}  // namespace

bool gathers_by_library(const LinkTable& links, std::span<const DeviceId> devices, bool is_rows) {
    return is_rows && links.runs_here(devices) && links.on_one_host(devices) &&
           !links.reach_each_other(devices) && links.has_vendor_library(devices);
}

CollectiveForm choose_all_reduce(const LinkTable& links, std::span<const DeviceId> group,
                                 int64_t bytes, bool is_prefill, bool is_rows) {
    const bool by_executor = links.sums_by_executor(group);
    const bool by_peers = by_executor && links.reach_each_other(group);
    const int64_t least = by_peers                    ? kLibraryBytes
                          : !links.on_one_host(group) ? kLibraryBytesBetweenHosts
                                                      : 0;
    const bool by_library = is_rows && links.has_vendor_library(group) && bytes >= least;
    CollectiveForm best;
    // Nothing waits for the host where the library sums; kernels of the members are faster for what
    // is small.
    if (by_library) {
        std::vector<DeviceId> ring = ring_order(links, group);
        const int64_t ns = links.all_reduce_ns(ring, bytes, SumForm::kRing);
        return {SumForm::kRing, std::move(ring), ns};
    }
    if (is_rows && links.sums_over_nodes(group)) {
        best.group = ring_order(links, group);
        best.ns = INT64_MAX;
        for (SumForm form : {SumForm::kTree, SumForm::kHierarchical})
            if (const int64_t ns = links.all_reduce_ns(group, bytes, form); ns < best.ns) {
                best.form = form;
                best.ns = ns;
            }
        return best;
    }
    // A ring has an order of its own; the other forms name their members in device order, whatever
    // the stage's is.
    std::vector<DeviceId> members(group.begin(), group.end());
    std::sort(members.begin(), members.end());
    best.group = members;
    best.form = all_reduce_form(by_executor, is_prefill, group.size());
    if (best.form == SumForm::kRing) best.group = ring_order(links, group);
    best.ns = links.all_reduce_ns(best.group, bytes, best.form);
    for (SumForm form : {SumForm::kOneShot, SumForm::kTwoPhase, SumForm::kRing}) {
        if (group.size() < 2 || form == best.form) continue;
        if (by_executor && (!by_peers || form == SumForm::kRing)) continue;
        std::vector<DeviceId> order = members;
        if (form == SumForm::kRing) order = ring_order(links, group);
        int64_t ns = links.all_reduce_ns(order, bytes, form);
        if (ns < best.ns) best = {form, std::move(order), ns};
    }
    return best;
}

}  // namespace cleave::planner
