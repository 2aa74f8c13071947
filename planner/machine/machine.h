// SPDX-License-Identifier: Apache-2.0
// The Machine: devices and links as data, read from drivers, from the catalogue (`sim:`), or from a
// file, so that a plan for a machine one does not own can be made offline. The user's device order
// is kept: DeviceId is a position in it. All rates are integers: bytes/s, operations/s,
// nanoseconds.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/index.h"

namespace cleave::planner {

using DeviceId = Index<struct DeviceTag>;

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
    int64_t flops_narrow = 0;     // and with narrower ones
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
    int64_t collectives_bytes = 0;  // what `collectives` takes for a communicator; 0: not told
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

    int64_t flops(DType dtype) const;
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

struct Machine {
    std::string name;
    std::vector<DeviceInfo> devices;
    std::vector<Link> links;
    std::vector<BandwidthDomain> domains;

    const DeviceInfo& device(DeviceId id) const { return devices[id.index()]; }
    // The link from -> to, or nullptr.
    const Link* link(DeviceId from, DeviceId to) const;
};

std::string_view device_kind_name(DeviceKind kind);
std::string_view link_kind_name(LinkKind kind);

// ---- Device lists
// --------------------------------------------------------------------------------

// One entry of `--devices`, expanded: "host[0-1]" is two.
struct DeviceSpec {
    DeviceKind kind = DeviceKind::kHost;
    std::string arch;  // after the colon: "gfx90a", "h100"; empty for none
    int index = 0;
    std::string identity;  // UUID or PCI address when so chosen; then index is -1
    int logical = -1;      // cuda[0]/2: the logical device on one card
    std::string text;      // canonical name
};

// Parses the grammar of CLI.md ("cuda[0],hip[0-7],host[0]"; "sim:h100[0-7]"; "cuda[0]/0-3"). Throws
// UserError naming the entry for unknown kinds, bad ranges, duplicates, and the reserved suffix
// @HOST.
std::vector<DeviceSpec> parse_devices(const std::string& text);

// Rates that `cleave devices --measure` found; of nothing when `rates.bandwidth` is 0.
struct HostCalibration {
    MeasuredRates rates;
    int64_t transfer_bandwidth = 0, transfer_latency_ns = 0;  // from one host device to another
    int64_t exchange_bandwidth = 0, exchange_latency_ns = 0;  // an all-reduce of two
};

// What is behind host devices of this process; the caller (tools/) measures or reads it.
struct HostFacts {
    int num_cores = 1;
    int64_t memory_bytes = 0;
    int64_t memory_bandwidth = 0;  // bytes/s of all cores together
    int64_t flops_f32 = 0;         // of all cores together
    std::string arch;              // JIT target name
    HostCalibration calibration;
};

// Facts of the machine the process runs on, from the operating system; rates are estimates unless a
// calibration is given to build_machine.
HostFacts read_host_facts();

// Real GPUs, which only their drivers can describe (runtime/cards/cards.h).
class GpuDescriptions {
public:
    virtual ~GpuDescriptions() = default;
    // UserError for a device that is not there, with the ones that are.
    virtual DeviceInfo describe(const DeviceSpec& spec) const = 0;
    // Of two devices of one kind, on different cards; `from` and `to` are filled in by the caller.
    virtual Link link(const DeviceInfo& from, const DeviceInfo& to) const = 0;
};

// Builds the machine for devices of kinds host, simt and sim (catalogue), and with `gpus` for cuda
// and hip. Host devices share memory, bandwidth and cores, logical devices their card's; the memory
// of one is its equal part, its rates are all of the host's or card's when it works alone.
// UserError for a model the catalogue lacks.
Machine build_machine(const std::vector<DeviceSpec>& specs, const HostFacts& host,
                      const GpuDescriptions* gpus = nullptr);

// Machine files: JSON, schema tools/schema/machine.schema.json. UserError names the file and field.
Machine load_machine(const std::string& path);
std::string machine_to_json(const Machine& machine);

// What a file of two host devices at least, saved by `cleave devices --measure`, says of the host.
// UserError when it holds no measured one.
HostCalibration calibration_of(const Machine& machine, const std::string& path);

}  // namespace cleave::planner
