// SPDX-License-Identifier: Apache-2.0
// A libnvidia-ml for the three cards of the fake libcuda: the first two are joined by four NVLinks
// directly and have two more to a switch (the second uses one of them); the third has none and half
// a slot. Sessions are counted.
#include <cstdint>
#include <cstring>
#include <string>

#include "runtime/drivers/nvml/symbols.h"

using namespace cleave::runtime::nvml;

namespace {

constexpr nvmlReturn_t kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6, kDriverAbsent = 9;
constexpr unsigned kBus[] = {0x3b, 0x5e, 0x86};
int sessions = 0;
bool driver_absent = false;

unsigned card_of(nvmlDevice_t device) {
    return static_cast<unsigned>(reinterpret_cast<uintptr_t>(device)) - 1;
}
bool is_switched(unsigned link) { return link >= 4; }

}  // namespace

extern "C" {

nvmlReturn_t nvmlInit_v2() {
    if (driver_absent) return kDriverAbsent;
    ++sessions;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlShutdown() {
    --sessions;
    return NVML_SUCCESS;
}
const char* nvmlErrorString(nvmlReturn_t code) {
    return code == kDriverAbsent ? "Driver Not Loaded" : "an error";
}
nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* pci, nvmlDevice_t* device) {
    for (uintptr_t i = 0; i < 3; ++i) {
        if (std::stoul(std::strchr(pci, ':') + 1, nullptr, 16) != kBus[i]) continue;
        *device = reinterpret_cast<nvmlDevice_t>(i + 1);
        return NVML_SUCCESS;
    }
    return kNotFound;
}
nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int* generation) {
    *generation = card_of(device) < 2 ? 5 : 4;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int* width) {
    *width = card_of(device) < 2 ? 16 : 8;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                      nvmlEnableState_t* active) {
    if (card_of(device) == 2) return kNotSupported;
    if (link >= 6) return kInvalidArgument;
    *active = !(card_of(device) == 1 && link == 5);
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t, unsigned int link,
                                                 nvmlIntNvLinkDeviceType_t* type) {
    *type = is_switched(link) ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU;
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int,
                                                 nvmlPciInfo_t* pci) {
    pci->bus = kBus[1 - card_of(device)];
    return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t* values) {
    if (count != 1 || values->fieldId != NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON ||
        card_of(device) == 2)
        return kInvalidArgument;
    values->nvmlReturn = NVML_SUCCESS;
    values->value.uiVal = 26'562;
    return NVML_SUCCESS;
}

// ---- For tests
// ------------------------------------------------------------------------------------

int fake_sessions() { return sessions; }
void fake_driver_absent(int absent) { driver_absent = absent != 0; }

}  // extern "C"
