// SPDX-License-Identifier: Apache-2.0
#include "runtime/load/peer_access.h"

#include <atomic>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "codegen/kernel/mailbox.h"
#include "planner/cost/peer_exchange.h"
#include "planner/machine/vendor.h"
#include "planner/plan/plan_queries.h"
#include "runtime/base/errors.h"

namespace cleave::runtime {

using namespace planner;

namespace {

void give_access(Device& from, Device& to) {
    const Supports can = from.supports_peer_copy(to);
    if (!can)
        throw UserError(
            "the plan lets {} and {} exchange values by peer memory, and they cannot here: {}; "
            "make the plan anew for these devices",
            from.info().name, to.info().name, can.reason);
    try {
        from.enable_peer_access(to);
    } catch (const DeviceError& error) {
        throw DeviceError(
            fmt::format("mapping the memory of {} for {}", to.info().name, from.info().name),
            fmt::format(
                "{}; to plan without peer memory, save the machine "
                "($save_machine), make the kind of these devices' links pcie without peer_access "
                "there, and plan with $machine FILE",
                error.what()),
            from.info().name);
    }
}

// The vendor's variables by which each launch waits for its kernel, those that are set so:
// "NAME=1"; empty: none.
std::string blocking_text(const VendorFacts& vendor) {
    std::string text;
    for (const char* name : vendor.blocking_variables) {
        const char* value = std::getenv(name);
        if (value && *value && std::string_view(value) != "0")
            text += fmt::format("{}{}={}", text.empty() ? "" : " and ", name, value);
    }
    return text;
}

// What the user may change when devices of one card do not run side by side.
std::string queues_text(DeviceKind kind) {
    const VendorFacts* vendor = vendor_of(kind);
    if (!vendor) return "";
    if (const std::string blocking = blocking_text(*vendor); !blocking.empty())
        return fmt::format(
            "; {} lets a kernel begin when those launched before it have ended: "
            "unset it for such a plan",
            blocking);
    const char* value = std::getenv(vendor->queues_variable);
    return fmt::format(
        "; streams of one card need a hardware queue each ({}={}), and no other program on the "
        "card",
        vendor->queues_variable, value ? value : "");
}

}  // namespace

PeerLinks::PeerLinks(const Plan& plan, std::span<const std::unique_ptr<Device>> devices,
                     int watchdog_seconds)
    : plan_(plan),
      devices_(devices),
      limit_ns_(int64_t{watchdog_seconds} * 900'000'000),
      mailboxes_(devices.size(), nullptr) {
    std::vector<bool> known(devices.size() * devices.size(), false);
    for (const Phase* phase : {&plan.prefill, &plan.decode}) {
        for (const Step& step : phase->steps) {
            if (!goes_by_peers(step)) continue;
            const std::vector<DeviceId> group = step_devices(*phase, step);
            if (!devices[group.front().index()]) continue;  // of another host, as all of them
            for (DeviceId a : group) {
                Device& from = *devices[a.index()];
                for (DeviceId b : group) {
                    const size_t pair = a.index() * devices.size() + b.index();
                    if (a != b && !known[pair]) give_access(from, *devices[b.index()]);
                    known[pair] = true;
                }
                if (mailboxes_[a.index()]) continue;
                const std::span<std::byte> mailbox = from.mailbox();
                CLEAVE_CHECK(mailbox.size() >= kMailWords * sizeof(uint32_t))
                    << from.info().name << " has peers and no mailbox";
                mailboxes_[a.index()] = reinterpret_cast<uint32_t*>(mailbox.data());
                for (int word = 0; word < kMailWords; ++word)
                    std::atomic_ref(mailboxes_[a.index()][word]).store(0);
            }
        }
    }
}

DeviceAddress PeerLinks::mailbox(DeviceId device) const {
    CLEAVE_CHECK(mailboxes_[device.index()])
        << plan_.machine.device(device).name << " has no peers";
    return reinterpret_cast<DeviceAddress>(mailboxes_[device.index()]);
}

int64_t PeerLinks::limit(DeviceId device) const {
    return devices_[device.index()]->kernel_nanoseconds(limit_ns_);
}
int64_t PeerLinks::meeting_limit(DeviceId device) const {
    return devices_[device.index()]->kernel_nanoseconds(meeting_limit_ns());
}

void PeerLinks::stop() {
    for (uint32_t* mailbox : mailboxes_)
        if (mailbox) std::atomic_ref(mailbox[kMailStop]).store(1);
}

void PeerLinks::check(DeviceId device) const {
    uint32_t* mailbox = mailboxes_[device.index()];
    const std::optional<codegen::MissedWait> missed =
        codegen::missed_wait(mailbox ? std::atomic_ref(mailbox[kMailLost]).load() : 0);
    if (!missed) return;
    const auto name = [&](DeviceId id) { return plan_.machine.device(id).name; };
    const double seconds = static_cast<double>(limit_ns_) / 1e9;
    if (missed->is_meeting)
        throw DeviceError(
            "starting the exchange by peer memory",
            fmt::format(
                "kernels of {} and {} did not run at the same time within {:.1f} s, as they must "
                "to wait for one another{}",
                name(device), name(peers_of(plan_, device).at(missed->whom)),
                static_cast<double>(meeting_limit_ns()) / 1e9,
                queues_text(plan_.machine.device(device).kind)),
            name(device));
    const Phase& phase = plan_.phase(missed->is_prefill);
    const Step& step = phase.steps.at(missed->step.index());
    const DeviceId missing = missed->is_unreleased
                                 ? DeviceId(missed->whom)
                                 : phase.values[sent_values(step).at(missed->whom).index()].device;
    throw DeviceError(step_label(plan_, missed->is_prefill, missed->step),
                      fmt::format("{} {}; its kernel was waited for {:.1f} s", name(missing),
                                  missed->is_unreleased
                                      ? "never took the value that was sent to it before this step"
                                      : "never reached this step",
                                  seconds),
                      name(device));
}

}  // namespace cleave::runtime
