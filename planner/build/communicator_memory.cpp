// SPDX-License-Identifier: Apache-2.0
// Buffers are made for each channel of each connection (sjeaugey in NVIDIA/nccl#986: linear in the
// channels; a ring has two connections whatever the number of cards; a communicator more is as much
// again):
// - A connection, one in and one out, takes 10 + 2 MiB a channel: the allocations of 10485760 and
// 2097152 bytes in
//   NVIDIA/nccl#1685. They hold the buffers of three protocols, of which NCCL_BUFFSIZE sets the
//   largest, 4 MiB.
// - Channels: 32 over NVLink (NVIDIA/nccl#1685 and #1646, on eight H100 and B200), 64 over Infinity
// Fabric
//   (ROCm/rocm-systems#9764), 8 over PCI Express and a network (NVIDIA/nccl#1713).
// - A sum goes around a ring, or along a tree, which in one machine is a chain: two neighbours
// more. Only what is used is
//   connected (since NCCL 2.22, NCCL_RUNTIME_CONNECT), but which of the two that is, is the
//   library's choice by size.
// - Cards that do not reach each other's memory exchange through the host's, and their buffers lie
// there (NCCL user guide,
//   NCCL_SHM_DISABLE).
// - Kernels and queues of the first communicator of a card: 484 MiB were measured with nothing
// connected, the CUDA context,
//   which a machine's `reserved_bytes` has, included (NVIDIA/nccl#2366).
// Measured for one communicator of A100s joined by NVLink: 544 MB of two cards, 688 MB of four
// (NVIDIA/nccl#964); here 784 and 1168 MiB, as they had fewer channels.
#include "planner/build/communicator_memory.h"

#include <algorithm>
#include <map>
#include <set>

#include "planner/machine/vendor.h"
#include "planner/plan/plan_queries.h"

namespace cleave::planner {

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kConnectionBytes = 12 * kMiB;  // of a channel
constexpr int64_t kQueueBytes = 16 * kMiB;       // of a communicator
constexpr int64_t kKernelBytes = 256 * kMiB;     // of a card

// 8 over PCI Express and a network (NVIDIA/nccl#1713).
int64_t channels(LinkKind kind) {
    const VendorFacts* own = vendor_of(kind);
    return own ? own->collectives_channels : 8;
}

// The communicators that a device is in, by their members in order.
using Communicators = std::map<std::set<DeviceId>, CommunicatorUse>;

Communicators communicators_of(const Plan& plan) {
    Communicators all;
    for (const Phase* phase : {&plan.prefill, &plan.decode})
        for (const Step& step : phase->steps) {
            const Collective* c = step.collective();
            if (!c || c->path != Path::kVendor) continue;
            const std::vector<DeviceId> devices = step_devices(*phase, step);
            CommunicatorUse& use = all[{devices.begin(), devices.end()}];
            (c->op == CollectiveOp::kAllReduce ? use.sums : use.messages) = true;
        }
    return all;
}

}  // namespace

int64_t communicator_bytes(const Machine& machine, std::span<const DeviceId> members,
                           DeviceId device, CommunicatorUse use) {
    if (const int64_t told = machine.device(device).collectives_bytes; told > 0) return told;
    int64_t peers = 0, most_channels = 0;
    for (DeviceId other : members) {
        const Link* link = other == device ? nullptr : machine.link(device, other);
        if (!link || (link->kind == LinkKind::kPcie && !link->peer_access)) continue;
        ++peers;
        most_channels = std::max(most_channels, channels(link->kind));
    }
    int64_t connections = use.messages ? peers : 0;
    if (use.sums && peers > 0) connections += 1 + std::min<int64_t>(2, peers);
    return kQueueBytes + connections * most_channels * kConnectionBytes;
}

int64_t only_communicator_bytes(const Machine& machine, std::span<const DeviceId> members,
                                DeviceId device, CommunicatorUse use) {
    const bool told = machine.device(device).collectives_bytes > 0;
    return communicator_bytes(machine, members, device, use) + (told ? 0 : kKernelBytes);
}

std::vector<int64_t> library_bytes(const Plan& plan) {
    std::vector<int64_t> bytes(plan.machine.devices.size(), 0);
    for (const auto& [set, use] : communicators_of(plan)) {
        const std::vector<DeviceId> members(set.begin(), set.end());
        for (DeviceId d : members) {
            int64_t& sum = bytes[d.index()];
            sum += sum == 0 ? only_communicator_bytes(plan.machine, members, d, use)
                            : communicator_bytes(plan.machine, members, d, use);
        }
    }
    return bytes;
}

std::string library_name(const DeviceInfo& device) {
    if (!device.collectives.empty()) return device.collectives;
    // Simulated devices of no vendor count as the first vendor's.
    const VendorFacts* vendor = vendor_of(device);
    return std::string((vendor ? *vendor : vendors().front()).collectives);
}

}  // namespace cleave::planner
