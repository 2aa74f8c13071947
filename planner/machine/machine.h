// SPDX-License-Identifier: Apache-2.0
// The Machine: devices and links as data. Read from drivers, from the catalogue (`sim:`), or from a
// file, so that a plan can be made without the machine. The user's device order is kept: DeviceId
// is a position in it. All rates are integers: bytes/s, operations/s, nanoseconds.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/index.h"

namespace cleave::planner {

using DeviceId = Index<struct DeviceTag>;

// Of a list or a file: what a plan is made for takes time by the square of it.
inline constexpr int kMostDevices = 1024;

// Of devices that are driven through libraries opened at run time; planner/machine/vendor.h has a
// row of facts for each.
enum class Vendor : uint8_t { kNvidia, kAmd };

enum class DeviceKind : uint8_t { kHost, kCuda, kHip, kSimt, kSim, kNull };

inline constexpr std::array kDeviceKinds{DeviceKind::kHost, DeviceKind::kCuda, DeviceKind::kHip,
                                         DeviceKind::kSimt, DeviceKind::kSim,  DeviceKind::kNull};

// What a kernel may use; the input of every tile choice.
struct DeviceLimits {
    int64_t shared_memory_per_block = 0;  // bytes; for host devices: the scratch of one thread
    int64_t registers_per_block = 0;
    int64_t max_threads_per_block = 0;
    int64_t warp_width = 0;
    int64_t num_compute_units = 0;  // SMs, CUs, or threads of a host device
    // Blocks of a grid in x, y and z. By default those of CUDA's programming guide, table
    // "Technical Specifications per Compute Capability", which AMD's devices have too, or more.
    std::array<int64_t, 3> max_grid{2147483647, 65535, 65535};
    bool operator==(const DeviceLimits&) const = default;

    // Whether the device runs GPU kernels, real, imitated or of the catalogue; hosts have no warps.
    bool has_warps() const { return warp_width > 1; }
};

// What the project's own kernels reached on a host (`cleave devices --measure`), all threads
// together unless said; `bandwidth` 0: not measured.
struct MeasuredRates {
    int64_t bandwidth = 0;        // bytes/s of f32 weights in products of one token, from memory
    int64_t bandwidth_alone = 0;  // the same with one thread
    int64_t widening = 0;         // elements/s of narrower weights in the same
    int64_t cache_bytes = 0;      // weights up to here stay in the cache from token to token
    int64_t cache_bandwidth = 0;  // and are read at this rate, bytes/s
    int64_t flops_f32 = 0;        // per second, in products of many tokens with f32 weights
    int64_t flops_narrow = 0;     // and with bf16 ones, activations rounded to bf16
    int64_t attention_bandwidth = 0;  // bytes/s of keys and values, in decode
    int64_t attention_flops = 0;      // per second, in prefill
    int64_t launch_ns = 0;            // from step to step, with all threads in one device
    int64_t launch_alone_ns = 0;      // with one thread in it
};

struct DeviceInfo {
    std::string name;  // as the user writes it: "host[0]", "sim:h100[3]", "cuda[0]"
    DeviceKind kind = DeviceKind::kHost;
    std::string arch;   // "sm_90a", "gfx942", "x86-64-v4"
    std::string model;  // catalogue or driver name: "h100"
    std::string host = "localhost";
    std::string identity;     // UUID or PCI address; empty when there is none
    std::string pci;          // "0000:3b:00.0"; empty when there is none, or nobody knows it
    std::string collectives;  // the vendor's library that joins its kind: "NCCL 2.28.9"; or empty
    int index = 0;            // within its kind
    int64_t memory_bytes = 0;
    int64_t reserved_bytes = 0;     // what the driver takes for itself
    int64_t collectives_bytes = 0;  // what `collectives` takes for a communicator; 0: unknown
    int64_t memory_bandwidth = 0;   // bytes/s of this device alone
    int memory_domain =
        -1;  // bandwidth domain it shares with others (CPU devices share DRAM), or -1
    int64_t flops_f32 = 0;  // per second, dense
    int64_t flops_f16 = 0;  // f16 and bf16 matrix rate
    int64_t flops_f8 = 0;
    int64_t flops_int8 = 0;
    int64_t launch_overhead_ns = 0;
    DeviceLimits limits;
    MeasuredRates measured;
    // Of a host device that is one NUMA node, the one of number `index` (host[N]@numa): the cores
    // of the whole host, of which it has limits.num_compute_units for itself. 0: it is none.
    int64_t host_cores = 0;
    // What an hour of it costs, in millionths of any one currency; 0: not said.
    int64_t price_micros = 0;

    int64_t flops(DType dtype) const;
    bool is_numa_node() const { return host_cores > 0; }
};

// Directed: from -> to. Two devices without a link are joined through their hosts (staged).
enum class LinkKind : uint8_t { kSameMemory, kNvlink, kXgmi, kPcie, kNetwork };
inline constexpr std::array kLinkKinds{LinkKind::kSameMemory, LinkKind::kNvlink, LinkKind::kXgmi,
                                       LinkKind::kPcie, LinkKind::kNetwork};
struct Link {
    DeviceId from, to;
    LinkKind kind = LinkKind::kPcie;
    int64_t bandwidth = 0;  // bytes/s
    int64_t latency_ns = 0;
    int domain = -1;  // bandwidth domain shared with other links, or -1
    // Of kPcie: kernels of `from` reach memory of `to` all the same. The faster kinds always have
    // it.
    bool peer_access = false;
    // Of an all-reduce over such links, where that was measured apart; 0: as above.
    int64_t exchange_bandwidth = 0, exchange_latency_ns = 0;
};

// Members of a domain share `bandwidth`.
struct BandwidthDomain {
    std::string name;
    int64_t bandwidth = 0;  // bytes/s in all
};

inline constexpr int64_t kMostSumSkewNs = 1'000'000;

struct Machine {
    std::string name;
    std::vector<DeviceInfo> devices;
    std::vector<Link> links;
    std::vector<BandwidthDomain> domains;
    // Of catalogue devices in several nodes: what joins these (planner/machine/fabric.h). Or empty.
    std::string fabric;
    // What a sum of GPUs waits for the last of its members, for each doubling of their number
    // (Wiring::sum_skew_ns).
    int64_t sum_skew_ns = 0;
    bool network_measured = false;  // links between hosts are as these measured them

    const DeviceInfo& device(DeviceId id) const { return devices[id.index()]; }
    // The link from -> to, or nullptr.
    const Link* link(DeviceId from, DeviceId to) const;
};

// Those devices in that order, the links among them, and the domains of either.
Machine part_of(const Machine& machine, const std::vector<DeviceId>& devices);

std::string_view device_kind_name(DeviceKind kind);
std::string_view link_kind_name(LinkKind kind);

}  // namespace cleave::planner
