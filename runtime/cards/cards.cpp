// SPDX-License-Identifier: Apache-2.0
#include "runtime/cards/cards.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <fmt/ranges.h>

#include "codegen/kernel/occupancy.h"
#include "planner/machine/catalogue.h"
#include "runtime/base/environment.h"
#include "runtime/base/errors.h"
#include "runtime/hosts/job.h"

namespace cleave::runtime {

namespace {

using planner::DeviceKind;

constexpr int64_t kPcieBytesPerSecond = 25'000'000'000;  // PCIe 4.0 x16, effective
constexpr int64_t kPcieLatencyNs = 8'000;
constexpr int64_t kFabricLatencyNs = 2'500;  // as the catalogue's cards have it
constexpr int64_t kLaunchNs = 3'000;
// What a session takes of a card beside the plan's bytes, and has not taken yet when the card is
// asked: modules loaded eagerly, executable graphs, and the rounding of pools, which grow by
// blocks of 2 MiB and more. An estimate, not measured.
constexpr int64_t kSessionBytes = int64_t{256} << 20;

// The variables that choose among a vendor's cards, as far as they are set:
// "CUDA_VISIBLE_DEVICES=2,3".
std::vector<std::string> visible_settings(DeviceKind kind) {
    std::vector<std::string> settings;
    for (const char* variable : planner::vendor_of(kind)->visible_variables)
        if (const char* value = std::getenv(variable))
            settings.push_back(fmt::format("{}={}", variable, value));
    return settings;
}

// By the device files of the kernel. A library that the user names may have cards of its own.
bool may_have_cards(const planner::VendorFacts& vendor) {
    if (!environment(driver_entry(vendor.vendor).driver.variable).empty()) return true;
    return std::any_of(vendor.device_nodes.begin(), vendor.device_nodes.end(),
                       [](const char* file) {
                           std::error_code none;
                           return std::filesystem::exists(file, none);
                       });
}

std::string card_text(DeviceKind kind, int ordinal, const GpuFacts& facts) {
    return fmt::format("{}[{}] ({}, {}{}{})", planner::device_kind_name(kind), ordinal, facts.name,
                       facts.uuid, facts.uuid.empty() ? "" : ", ", facts.pci);
}

// All cards of all vendors, where one has none the reason, and what chose among them.
std::string all_cards_text(Drivers& drivers) {
    std::vector<std::string> texts;
    for (const planner::VendorFacts& vendor : planner::vendors()) {
        const DeviceKind kind = vendor.kind;
        const FoundDriver& found = drivers.driver(kind);
        if (!found.driver)
            texts.push_back(fmt::format("no {} device: {}", planner::device_kind_name(kind),
                                        short_reason(found.reason)));
        for (int i = 0; found.driver && i < found.driver->count(); ++i)
            texts.push_back(card_text(kind, i, found.driver->facts(i)));
        for (const std::string& setting : visible_settings(kind))
            if (std::string text = setting + " chooses";
                std::find(texts.begin(), texts.end(), text) == texts.end())
                texts.push_back(std::move(text));
    }
    return fmt::format("{}", fmt::join(texts, ", "));
}

// A UUID may be shortened as far as it stays the only one; a PCI address has its domain or not.
bool is_called(const GpuFacts& facts, const std::string& identity) {
    const std::string lower = lower_case(identity);
    return lower_case(facts.uuid).starts_with(lower) || facts.pci == lower ||
           (facts.pci.size() > 5 && facts.pci.substr(5) == lower);
}

// The identity of a card among all others of its driver: its UUID, else its PCI address. Parts of
// one card may share both; then it has none.
std::string identity_of(const GpuDriver& driver, const GpuFacts& facts) {
    const auto is_own = [&](const std::string GpuFacts::* name) {
        int cards = 0;
        for (int i = 0; i < driver.count(); ++i) cards += driver.facts(i).*name == facts.*name;
        return !(facts.*name).empty() && cards == 1;
    };
    if (is_own(&GpuFacts::uuid)) return facts.uuid;
    return is_own(&GpuFacts::pci) ? facts.pci : "";
}

GpuDriver& driver_for(Drivers& drivers, DeviceKind kind, const std::string& device) {
    const FoundDriver& found = drivers.driver(kind);
    if (!found.driver)
        throw UserError(
            "{}: no {} device can be used; this machine has {}; run on 'host' devices, or plan for "
            "the catalogue with sim:MODEL[N]",
            device, planner::device_kind_name(kind), all_cards_text(drivers));
    return *found.driver;
}

// Rates of a card that the catalogue does not know: lanes of a compute unit (CUDA C++ Programming
// Guide, "Arithmetic instructions"; CDNA and RDNA ISA manuals), two operations a multiply-add,
// matrices at four times the f32 rate.
void estimate_rates(const GpuFacts& facts, planner::DeviceInfo& d) {
    const int64_t lanes = facts.arch == "sm_80" || facts.limits.warp_width == 64 ? 64 : 128;
    d.memory_bandwidth = std::max<int64_t>(1, facts.memory_bandwidth);
    d.flops_f32 = std::max<int64_t>(1, facts.limits.num_compute_units * lanes * 2 * facts.clock_hz);
    d.flops_f16 = d.flops_f8 = d.flops_int8 = 4 * d.flops_f32;
}

// The library of collectives that this machine has for the kind's cards: "NCCL 2.28.9"; or empty.
std::string collectives_name(Drivers& drivers, DeviceKind kind) {
    const FoundCollectives& found = drivers.collectives(kind);
    return found.library ? fmt::format("{} {}", planner::vendor_of(kind)->collectives,
                                       found.library->version())
                         : "";
}

// Links of the cards' own as they are: fewer than the model's where some are down, none on its
// PCI Express form. Else the slower slot.
void adopt(const LinkFacts& known, const std::string& from, const std::string& to,
           planner::LinkKind own, planner::Link& link) {
    if (const auto rate = known.fabric_bandwidth(from, to); rate && link.peer_access) {
        if (link.kind != own) link.latency_ns = kFabricLatencyNs;
        link.kind = own;
        link.bandwidth = *rate;
    } else if (const auto slots = known.pcie_bandwidth(from, to)) {
        link.kind = planner::LinkKind::kPcie;
        link.bandwidth = *slots;
        link.latency_ns = kPcieLatencyNs;
    }
}

[[noreturn]] void refuse(Drivers& drivers, const planner::DeviceSpec& spec, const char* why) {
    throw UserError(
        "{}: {}; this machine has {}; choose among these, by index, UUID or PCI address", spec.text,
        why, all_cards_text(drivers));
}

int ordinal_of(Drivers& drivers, const GpuDriver& driver, const planner::DeviceSpec& spec) {
    if (spec.index >= 0) {
        if (spec.index < driver.count()) return spec.index;
        refuse(drivers, spec, "there is no such device");
    }
    std::vector<int> called;
    for (int i = 0; i < driver.count(); ++i)
        if (is_called(driver.facts(i), spec.identity)) called.push_back(i);
    if (called.size() != 1)
        refuse(drivers, spec,
               called.empty() ? "there is no such device" : "several devices are so called");
    return called[0];
}

}  // namespace

planner::DeviceInfo RealGpus::describe(const planner::DeviceSpec& spec) const {
    GpuDriver& driver = driver_for(drivers_, spec.kind, spec.text);
    const int ordinal = ordinal_of(drivers_, driver, spec);
    const GpuFacts facts = driver.facts(ordinal);
    if (!codegen::find_gpu_arch(facts.arch))
        throw UserError(
            "{}: {} is of architecture {}, for which there are no kernels; there are for {}",
            spec.text, facts.name, facts.arch, codegen::gpu_arch_names());
    planner::DeviceInfo d;
    d.name = spec.text;
    d.kind = spec.kind;
    d.arch = facts.arch;
    d.model = facts.name;
    d.identity = identity_of(driver, facts);
    d.pci = facts.pci;
    d.index = ordinal;
    // A card alone has others to exchange with on other hosts only.
    if (driver.count() > 1 || is_launched_by_mpi())
        d.collectives = collectives_name(drivers_, spec.kind);
    d.memory_bytes = facts.memory_bytes;
    // Its context is the process's own; what others hold cannot be had either.
    d.reserved_bytes =
        kSessionBytes + facts.memory_bytes - driver.open(ordinal, spec.text)->free_bytes();
    d.launch_overhead_ns = kLaunchNs;
    d.limits = facts.limits;
    estimate_rates(facts, d);
    if (const auto* model = planner::find_model_of(facts.name, facts.memory_bytes))
        planner::set_rates(*model, d);
    return d;
}

planner::Link RealGpus::link(const planner::DeviceInfo& from, const planner::DeviceInfo& to) const {
    planner::Link link;
    link.kind = planner::LinkKind::kPcie;
    link.bandwidth = kPcieBytesPerSecond;
    link.latency_ns = kPcieLatencyNs;
    const GpuDriver& driver = driver_for(drivers_, from.kind, from.name);
    const auto* a = planner::find_model_of(from.model, from.memory_bytes);
    const auto* b = planner::find_model_of(to.model, to.memory_bytes);
    link.peer_access = driver.has_peer_access(from.index, to.index);
    if (a && a == b && link.peer_access) {
        link.kind = a->peer;
        link.bandwidth = static_cast<int64_t>(a->peer_gb * 1e9);
        link.latency_ns = a->peer_latency_ns;
    }
    if (const auto& known = drivers_.links(from.kind).facts)
        adopt(*known, driver.facts(from.index).pci, driver.facts(to.index).pci,
              planner::vendor_of(from.kind)->own_link, link);
    return link;
}

FoundGpus found_gpus(Drivers& drivers) {
    std::vector<std::string> lists, others;
    for (const planner::VendorFacts& vendor : planner::vendors()) {
        const DeviceKind kind = vendor.kind;
        const FoundDriver* found = may_have_cards(vendor) ? &drivers.driver(kind) : nullptr;
        std::vector<int> known;
        for (int i = 0; found && found->driver && i < found->driver->count(); ++i) {
            const GpuFacts facts = found->driver->facts(i);
            if (codegen::find_gpu_arch(facts.arch))
                known.push_back(i);
            else
                others.push_back(
                    fmt::format("{} of architecture {}", card_text(kind, i, facts), facts.arch));
        }
        if (!known.empty())
            lists.push_back(
                fmt::format("{}[{}]", planner::device_kind_name(kind), fmt::join(known, ",")));
    }
    FoundGpus gpus{fmt::format("{}", fmt::join(lists, ",")), ""};
    if (!others.empty())
        gpus.left_out = fmt::format("left out: {}; there are kernels for {}",
                                    fmt::join(others, ", "), codegen::gpu_arch_names());
    return gpus;
}

std::string short_reason(const std::string& reason) {
    std::vector<std::string> tried;
    for (size_t at = 0; at < reason.size();) {
        const size_t end = std::min(reason.find("; ", at), reason.size());
        const std::string one = reason.substr(at, end - at);
        if (one.find("No such file") == std::string::npos) return reason;
        tried.push_back(one.substr(0, one.find(':')));
        at = end + 2;
    }
    return fmt::format("not installed (tried {})", fmt::join(tried, ", "));
}

GpuListing list_gpus(Drivers& drivers, DeviceKind kind) {
    GpuListing listing;
    listing.kind = kind;
    listing.visible = fmt::format("{}", fmt::join(visible_settings(kind), ", "));
    const FoundDriver& found = drivers.driver(kind);
    listing.reason = found.reason;
    if (!found.driver) return listing;
    listing.library = found.driver->library();
    listing.version = found.driver->version();
    for (int i = 0; i < found.driver->count(); ++i) {
        GpuFacts& card = listing.cards.emplace_back();
        std::string& error = listing.errors.emplace_back();
        try {
            card = found.driver->facts(i);
        } catch (const DeviceError& failed) {
            error = fmt::format("{}[{}]: {}", planner::device_kind_name(kind), i, failed.what());
        }
    }
    listing.links_library = driver_entry(planner::vendor_of(kind)->vendor).links.name;
    listing.no_links = drivers.links(kind).reason;
    return listing;
}

int find_card(Drivers& drivers, const planner::DeviceInfo& device,
              const std::vector<planner::DeviceInfo>& of_plan) {
    const std::shared_ptr<GpuDriver> driver = drivers.driver(device.kind).driver;
    for (int i = 0; driver && i < driver->count(); ++i) {
        const GpuFacts facts = driver->facts(i);
        const bool same = device.identity.empty()
                              ? i == device.index
                              : device.identity == facts.uuid || device.identity == facts.pci;
        if (same && facts.arch == device.arch) return i;
    }
    std::vector<std::string> planned;
    for (const planner::DeviceInfo& d : of_plan)
        planned.push_back(planner::is_card(d.kind)
                              ? fmt::format("{} ({}{}{})", d.name, d.model,
                                            d.identity.empty() ? "" : ", ", d.identity)
                              : d.name);
    throw UserError(
        "{}: the plan was made for other devices: {}; this machine has {}; make the plan anew here",
        device.name, fmt::join(planned, ", "), all_cards_text(drivers));
}

}  // namespace cleave::runtime
