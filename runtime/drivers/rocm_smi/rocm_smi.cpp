// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/rocm_smi/rocm_smi.h"

#include <algorithm>

#include "runtime/base/dynamic_library.h"
#include "runtime/base/errors.h"
#include "runtime/drivers/rocm_smi/symbols.h"

namespace cleave::runtime {

namespace {

using namespace rocm_smi;

class RocmSmi final : public LinkFacts {
public:
    explicit RocmSmi(DynamicLibrary opened) : library_(std::move(opened)) {}
    ~RocmSmi() override {
        if (initialised_) call_.rsmi_shut_down();
    }
    RocmSmi(const RocmSmi&) = delete;
    RocmSmi& operator=(const RocmSmi&) = delete;

    // Why it cannot be used, or nothing.
    std::string start() {
        const std::string& file = library_.name();
#define CLEAVE_RESOLVE(name, parameters)                                         \
    call_.name = reinterpret_cast<decltype(call_.name)>(library_.symbol(#name)); \
    if (!call_.name) return fmt::format("{} lacks {}", file, #name);
        CLEAVE_ROCM_SMI_FUNCTIONS(CLEAVE_RESOLVE)
#undef CLEAVE_RESOLVE
        if (const rsmi_status_t code = call_.rsmi_init(0)) return error("rsmi_init", code);
        initialised_ = true;
        uint32_t count = 0;
        if (const rsmi_status_t code = call_.rsmi_num_monitor_devices(&count))
            return error("rsmi_num_monitor_devices", code);
        for (uint32_t i = 0; i < count; ++i) {
            uint64_t id = 0;  // domain in bits 32 to 63, bus in 8 to 15, device in 3 to 7
            if (const rsmi_status_t code = call_.rsmi_dev_pci_id_get(i, &id))
                return error("rsmi_dev_pci_id_get", code);
            places_.push_back({static_cast<unsigned>(id >> 32),
                               static_cast<unsigned>(id >> 8) & 0xff,
                               static_cast<unsigned>(id >> 3) & 0x1f});
        }
        return "";
    }

    std::optional<int64_t> fabric_bandwidth(const std::string& from,
                                            const std::string& to) const override {
        const std::optional<Pair> pair = find(from, to);
        uint64_t least = 0, most = 0;
        // Of direct links alone. The driver counts in MB/s one way, a link's rate the least and all
        // links' the most (Linux, drivers/gpu/drm/amd/amdkfd/kfd_crat.h: maximum_bandwidth_mbs).
        if (!pair || pair->type != RSMI_IOLINK_TYPE_XGMI || pair->hops != 1 ||
            call_.rsmi_minmax_bandwidth_get(pair->from, pair->to, &least, &most) != 0 || most == 0)
            return std::nullopt;
        return static_cast<int64_t>(most) * 1'000'000;
    }

    std::optional<int64_t> pcie_bandwidth(const std::string& from,
                                          const std::string& to) const override {
        const std::optional<Pair> pair = find(from, to);
        if (!pair || pair->type != RSMI_IOLINK_TYPE_PCIEXPRESS) return std::nullopt;
        return pcie_bytes_per_second(4, 16);
    }

private:
    struct Pair {
        uint32_t from = 0, to = 0;
        uint64_t hops = 0;
        RSMI_IO_LINK_TYPE type = 0;
    };

    std::string error(const char* function, rsmi_status_t code) const {
        const char* text = nullptr;
        if (call_.rsmi_status_string(code, &text) != RSMI_STATUS_SUCCESS) text = nullptr;
        return fmt::format("{}: {}: {}", library_.name(), function,
                           text ? text : fmt::format("error {}", code));
    }

    std::optional<Pair> find(const std::string& from, const std::string& to) const {
        const std::optional<uint32_t> a = index_of(from), b = index_of(to);
        if (!a || !b || *a == *b) return std::nullopt;
        Pair pair{*a, *b};
        if (call_.rsmi_topo_get_link_type(*a, *b, &pair.hops, &pair.type) != RSMI_STATUS_SUCCESS)
            return std::nullopt;
        return pair;
    }

    // The library has an order of its own, and all cards, visible to HIP or not.
    std::optional<uint32_t> index_of(const std::string& pci) const {
        const std::optional<PciPlace> place = pci_place(pci);
        const auto found =
            place ? std::find(places_.begin(), places_.end(), *place) : places_.end();
        if (found == places_.end()) return std::nullopt;
        return static_cast<uint32_t>(found - places_.begin());
    }

    DynamicLibrary library_;
    rocm_smi::Functions call_;
    bool initialised_ = false;
    std::vector<PciPlace> places_;
};

}  // namespace

FoundLinkFacts open_rocm_smi(std::span<const std::string> names) {
    std::string why;
    std::optional<DynamicLibrary> opened = DynamicLibrary::open_first(names, &why);
    if (!opened) return {nullptr, why};
    auto smi = std::make_shared<RocmSmi>(std::move(*opened));
    if (std::string reason = smi->start(); !reason.empty()) return {nullptr, reason};
    return {smi, ""};
}

std::vector<std::string> rocm_smi_library_names() {
    static const std::string kNames[] = {"librocm_smi64.so.8", "librocm_smi64.so.7",
                                         "librocm_smi64.so.6", "librocm_smi64.so.5",
                                         "librocm_smi64.so.1", "librocm_smi64.so"};
    return rocm_library_names(kNames);
}

}  // namespace cleave::runtime
