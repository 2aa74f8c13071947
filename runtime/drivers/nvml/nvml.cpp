// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/nvml/nvml.h"

#include <algorithm>

#include "runtime/base/dynamic_library.h"
#include "runtime/base/errors.h"
#include "runtime/drivers/nvml/symbols.h"

namespace cleave::runtime {

namespace {

using namespace nvml;

constexpr unsigned kMostLinks =
    64;  // more than any card has; asking for one too many is an error without harm

class Nvml final : public LinkFacts {
public:
    explicit Nvml(DynamicLibrary opened) : library_(std::move(opened)) {}
    ~Nvml() override {
        if (initialised_) call_.nvmlShutdown();
    }
    Nvml(const Nvml&) = delete;
    Nvml& operator=(const Nvml&) = delete;

    // Why it cannot be used, or nothing.
    std::string start() {
        const std::string& file = library_.name();
#define CLEAVE_RESOLVE(name, parameters)                                         \
    call_.name = reinterpret_cast<decltype(call_.name)>(library_.symbol(#name)); \
    if (!call_.name) return fmt::format("{} lacks {}", file, #name);
        CLEAVE_NVML_FUNCTIONS(CLEAVE_RESOLVE)
#undef CLEAVE_RESOLVE
        call_.nvmlErrorString = library_.function<const char*(nvmlReturn_t)>("nvmlErrorString");
        if (const nvmlReturn_t code = call_.nvmlInit_v2(); code != NVML_SUCCESS) {
            const char* text = call_.nvmlErrorString ? call_.nvmlErrorString(code) : nullptr;
            return fmt::format("{}: nvmlInit_v2: {}", file,
                               text ? text : fmt::format("error {}", code));
        }
        initialised_ = true;
        return "";
    }

    std::optional<int64_t> fabric_bandwidth(const std::string& from,
                                            const std::string& to) const override {
        const std::optional<PciPlace> other = pci_place(to);
        const nvmlDevice_t a = handle(from), b = handle(to);
        if (!a || !b || !other) return std::nullopt;
        const Links of_a = links(a, *other), of_b = links(b, {});
        // Through switches both ends matter; a switch joins all that are on it.
        const int count = of_a.direct + std::min(of_a.to_switches, of_b.to_switches);
        nvmlFieldValue_t speed{};
        speed.fieldId = NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON;
        if (count == 0 || call_.nvmlDeviceGetFieldValues(a, 1, &speed) != NVML_SUCCESS ||
            speed.nvmlReturn != NVML_SUCCESS || speed.value.uiVal == 0)
            return std::nullopt;
        return int64_t{count} * speed.value.uiVal * 1'000'000;
    }

    std::optional<int64_t> pcie_bandwidth(const std::string& from,
                                          const std::string& to) const override {
        const std::optional<int64_t> a = slot(from), b = slot(to);
        return a && b ? std::optional(std::min(*a, *b)) : std::nullopt;
    }

private:
    struct Links {
        int direct = 0, to_switches = 0;
    };

    // What a card's slot carries, of its generation and width.
    std::optional<int64_t> slot(const std::string& card) const {
        unsigned generation = 0, width = 0;
        const nvmlDevice_t device = handle(card);
        if (!device ||
            call_.nvmlDeviceGetMaxPcieLinkGeneration(device, &generation) != NVML_SUCCESS ||
            call_.nvmlDeviceGetMaxPcieLinkWidth(device, &width) != NVML_SUCCESS)
            return std::nullopt;
        const int64_t rate = pcie_bytes_per_second(generation, width);
        return rate > 0 ? std::optional(rate) : std::nullopt;
    }

    nvmlDevice_t handle(const std::string& pci) const {
        nvmlDevice_t device = nullptr;
        return call_.nvmlDeviceGetHandleByPciBusId_v2(pci.c_str(), &device) == NVML_SUCCESS
                   ? device
                   : nullptr;
    }

    // Active links of a card that end at `other`, and at switches.
    Links links(nvmlDevice_t device, const PciPlace& other) const {
        Links found;
        for (unsigned link = 0; link < kMostLinks; ++link) {
            nvmlEnableState_t active = 0;
            if (call_.nvmlDeviceGetNvLinkState(device, link, &active) != NVML_SUCCESS) break;
            nvmlIntNvLinkDeviceType_t type = -1;
            if (active != NVML_FEATURE_ENABLED ||
                call_.nvmlDeviceGetNvLinkRemoteDeviceType(device, link, &type) != NVML_SUCCESS)
                continue;
            found.to_switches += type == NVML_NVLINK_DEVICE_TYPE_SWITCH;
            nvmlPciInfo_t pci{};
            if (type == NVML_NVLINK_DEVICE_TYPE_GPU &&
                call_.nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, &pci) == NVML_SUCCESS)
                found.direct += PciPlace{pci.domain, pci.bus, pci.device} == other;
        }
        return found;
    }

    DynamicLibrary library_;
    nvml::Functions call_;
    bool initialised_ = false;
};

}  // namespace

FoundLinkFacts open_nvml(std::span<const std::string> names) {
    std::string why;
    std::optional<DynamicLibrary> opened = DynamicLibrary::open_first(names, &why);
    if (!opened) return {nullptr, why};
    auto nvml = std::make_shared<Nvml>(std::move(*opened));
    if (std::string reason = nvml->start(); !reason.empty()) return {nullptr, reason};
    return {nvml, ""};
}

}  // namespace cleave::runtime
