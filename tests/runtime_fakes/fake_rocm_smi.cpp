// SPDX-License-Identifier: Apache-2.0
// A librocm_smi64 for the three cards of the fake libamdhip64, in another order: the first two are
// joined by four links of Infinity Fabric directly; the third is one card further from the second,
// and joined to the first by PCI Express. Sessions are counted, and any call fails when a test asks
// for it.
#include <cstdint>
#include <string>

#include "runtime/drivers/rocm_smi/symbols.h"

using namespace cleave::runtime::rocm_smi;

namespace {

constexpr rsmi_status_t kNotSupported = 2, kOutOfBounds = 7, kInitError = 8;
constexpr uint64_t kBus[] = {0xd1, 0xc1, 0xc6};  // third, first, second
int sessions = 0;
std::string failing;

rsmi_status_t outcome(const char* call) { return failing == call ? kInitError : 0; }
bool joins(uint32_t a, uint32_t b, uint32_t one, uint32_t other) {
    return (a == one && b == other) || (a == other && b == one);
}

}  // namespace

extern "C" {

rsmi_status_t rsmi_init(uint64_t) {
    if (const rsmi_status_t code = outcome("rsmi_init")) return code;
    ++sessions;
    return RSMI_STATUS_SUCCESS;
}
rsmi_status_t rsmi_shut_down() {
    --sessions;
    return RSMI_STATUS_SUCCESS;
}
rsmi_status_t rsmi_status_string(rsmi_status_t status, const char** text) {
    *text = status == kInitError ? "RSMI_STATUS_INIT_ERROR: An error occurred" : "an error";
    return RSMI_STATUS_SUCCESS;
}
rsmi_status_t rsmi_num_monitor_devices(uint32_t* count) {
    *count = 3;
    return outcome("rsmi_num_monitor_devices");
}
rsmi_status_t rsmi_dev_pci_id_get(uint32_t device, uint64_t* place) {
    if (device >= 3) return kOutOfBounds;
    *place = kBus[device] << 8;
    return outcome("rsmi_dev_pci_id_get");
}
rsmi_status_t rsmi_topo_get_link_type(uint32_t source, uint32_t destination, uint64_t* hops,
                                      RSMI_IO_LINK_TYPE* type) {
    if (source >= 3 || destination >= 3) return kOutOfBounds;
    const bool direct = joins(source, destination, 1, 2);
    *type = joins(source, destination, 0, 1) ? RSMI_IOLINK_TYPE_PCIEXPRESS : RSMI_IOLINK_TYPE_XGMI;
    *hops = direct ? 1 : 2;
    return outcome("rsmi_topo_get_link_type");
}
rsmi_status_t rsmi_minmax_bandwidth_get(uint32_t source, uint32_t destination, uint64_t* least,
                                        uint64_t* most) {
    if (!joins(source, destination, 1, 2)) return kNotSupported;
    *least = 50'000;
    *most = 200'000;
    return outcome("rsmi_minmax_bandwidth_get");
}

// ---- For tests
// ------------------------------------------------------------------------------------

int fake_sessions() { return sessions; }
void fake_failing(const char* call) { failing = call; }

}  // extern "C"
