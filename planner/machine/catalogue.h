// SPDX-License-Identifier: Apache-2.0
// Devices known from public specifications, for `sim:` (plans for machines one does not own). Rates
// are the data sheets' dense peaks; what kernels reach of them is the cost model's matter
// (planner/cost/link_times.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "planner/machine/gpu_arch.h"
#include "planner/machine/machine.h"

namespace cleave::planner {

struct CatalogueModel {
    std::string_view name;
    std::string_view arch;
    int64_t memory_mib;   // as the driver reports it
    double bandwidth_gb;  // 1e9 bytes/s
    double tflops_f32, tflops_f16, tflops_f8, tops_int8;
    int64_t compute_units;
    LinkKind peer;   // between two of them in one node
    double peer_gb;  // 1e9 bytes/s, one direction, one pair
    int64_t peer_latency_ns;
    int per_node;             // devices of a server
    int adapters;             // network adapters of it, shared out in order
    std::string_view fabric;  // what such servers are commonly joined by; empty: no such thing
    std::string_view source;
    int dies_per_card = 1;  // devices of one card, joined at `die_gb`
    double die_gb = 0;
};

std::span<const CatalogueModel> catalogue();  // GPUs
// nullptr when there is none.
const CatalogueModel* find_model(std::string_view name);
std::string catalogue_names();  // "h100, h200, ..."

// The model that a driver calls `name` ("NVIDIA A100-SXM4-80GB", "AMD Instinct MI300X") with so
// much memory, or nullptr.
const CatalogueModel* find_model_of(std::string_view name, int64_t memory_bytes);

// Of a device of one compute unit; of a model.
DeviceLimits limits_of(const GpuArch& arch);
DeviceLimits limits_of(const CatalogueModel& model);
// Its bandwidth and its operations a second.
void set_rates(const CatalogueModel& model, DeviceInfo& device);

}  // namespace cleave::planner
