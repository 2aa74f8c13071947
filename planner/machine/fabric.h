// SPDX-License-Identifier: Apache-2.0
// What joins the nodes of machines that are planned and not owned: named networks, and what their
// messages and sums cost. Figures across nodes are modelled from published measurements; none was
// run here.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace cleave::planner {

struct Machine;

struct Fabric {
    std::string_view name;  // "ib400"
    std::string_view words;
    double adapter_gb;   // 1e9 bytes/s that one adapter reaches, one direction
    int64_t message_ns;  // from the memory of a device to that of one in another node
    // A step of the vendor's library from node to node: by its protocol of words with flags (LL),
    // by that of lines with flags (LL128), and by the plain one. 0: not used over this network.
    int64_t ll_hop_ns, ll128_hop_ns, plain_hop_ns;
    double ll_gb;       // 1e9 bytes/s that sums reach by LL, at most
    bool one_adapter;   // a node has one, whatever its devices are
    bool through_host;  // payloads stop in the host's memory
    bool is_published;  // sums over it were measured and published; else it is an estimate
};

// Sources. ib400: a 16 MiB message at 45 GB/s and 10 to 17 us for small ones (microsoft/vidur,
// data/profiling/network); hops: NCCL's src/graph/tuning.cc, hwLatencies of NET, but LL's, which is
// fitted to the sums of 2 and 4 nodes of eight H100 in NVIDIA/nccl-tests#309; LL's rate likewise.
// ib200: the same hops at half the rate. roce400: rccl-tests of 2 nodes of eight MI325X with 400
// Gb/s adapters. efa: 4 nodes of eight B200 (stas00/ml-engineering, network/README.md), small sums
// of 2 nodes of eight H100 (aws/aws-k8s-tester#503 and #585). racks400: two GB200 NVL72 racks, 64
// devices of each (oracle-quickstart/oci-hpc-oke). eth*: estimates for TCP; LL goes no faster than
// over efa.
inline constexpr std::array<Fabric, 8> kFabrics{{
    {"ib400", "InfiniBand, 400 Gb/s an adapter", 45, 14'000, 7'500, 8'500, 14'000, 16, false, false,
     true},
    {"ib200", "InfiniBand, 200 Gb/s an adapter", 22.5, 14'000, 7'500, 8'500, 14'000, 16, false,
     false, false},
    {"roce400", "RoCE, 400 Gb/s an adapter", 45, 14'000, 15'000, 0, 10'000, 16, false, false, true},
    {"racks400", "RoCE between racks, 400 Gb/s an adapter", 45, 30'000, 0, 0, 65'000, 0, false,
     false, true},
    {"efa", "AWS Elastic Fabric Adapter, 400 Gb/s", 45, 30'000, 27'000, 0, 53'000, 1, false, false,
     true},
    {"eth100", "TCP over 100 Gb/s Ethernet", 10, 60'000, 30'000, 0, 60'000, 1, true, true, false},
    {"eth25", "TCP over 25 Gb/s Ethernet", 2.8, 60'000, 30'000, 0, 60'000, 1, true, true, false},
    {"eth10", "TCP over 10 Gb/s Ethernet", 1.1, 60'000, 30'000, 0, 60'000, 1, true, true, false},
}};

// nullptr when there is none of that name.
const Fabric* find_fabric(std::string_view name);
std::string fabric_names();  // "ib400, ib200, ..."

// What every figure across nodes says of the network: "ib400 (InfiniBand, 400 Gb/s an adapter)
// joins 2 to 4 nodes: times over it are modelled, not run". Of a name that is no fabric's, the
// machine's links say what the network does.
// One node: of a plan inside it, beside others that are not. `kMeasured`: the links' figures were
// measured.
inline constexpr std::string_view kMeasured = "measured";
// The fabric of a machine, or kMeasured.
std::string_view network_name(const Machine& machine);
std::string network_text(std::string_view name, int64_t least_nodes, int64_t most_nodes);

}  // namespace cleave::planner
