// SPDX-License-Identifier: Apache-2.0
#include "runtime/load/peer_access.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "planner/cost/peer_exchange.h"
#include "planner/plan/plan_queries.h"
#include "runtime/base/errors.h"
#include "runtime/drivers/cuda/cuda_driver.h"
#include "runtime/drivers/hip/hip_driver.h"
#include "runtime/load/residency.h"

namespace cleave::runtime {

using namespace planner;

namespace {

// Words of a mailbox (codegen/templates/gpu/peer.cuh): the host's, and the kernels': bit 31, whom
// it waited for in bits 23 to 29 (a source by its number, or 64 + a device that had not released),
// the step's tag below.
constexpr size_t kStop = 0, kLost = 1;
constexpr uint32_t kReleaseFrom = 64;

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

// Variables that let each launch wait for its kernel, those that are set so: "NAME=1"; empty: none.
std::string blocking_text(DeviceKind kind) {
    const auto names = kind == DeviceKind::kCuda ? std::vector<const char*>{"CUDA_LAUNCH_BLOCKING"}
                                                 : std::vector<const char*>{"HIP_LAUNCH_BLOCKING",
                                                                            "AMD_SERIALIZE_KERNEL"};
    std::string text;
    for (const char* name : names) {
        const char* value = std::getenv(name);
        if (value && *value && std::string_view(value) != "0")
            text += fmt::format("{}{}={}", text.empty() ? "" : " and ", name, value);
    }
    return text;
}

// What the user may change when devices of one card do not run side by side.
std::string queues_text(DeviceKind kind) {
    if (!is_card(kind)) return "";
    if (const std::string blocking = blocking_text(kind); !blocking.empty())
        return fmt::format(
            "; {} lets a kernel begin when those launched before it have ended: "
            "unset it for such a plan",
            blocking);
    const char* variable = kind == DeviceKind::kCuda ? kCudaQueues : kHipQueues;
    const char* value = std::getenv(variable);
    return fmt::format(
        "; streams of one card need a hardware queue each ({}={}), and no other program on the "
        "card",
        variable, value ? value : "");
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
            for (DeviceId a : group) {
                Device& from = *devices[a.index()];
                for (DeviceId b : group) {
                    const size_t pair = a.index() * devices.size() + b.index();
                    if (a != b && !known[pair]) give_access(from, *devices[b.index()]);
                    known[pair] = true;
                }
                if (mailboxes_[a.index()]) continue;
                const std::span<std::byte> mailbox = from.mailbox();
                CHECK(mailbox.size() >= 2 * sizeof(uint32_t))
                    << from.info().name << " has peers and no mailbox";
                mailboxes_[a.index()] = reinterpret_cast<uint32_t*>(mailbox.data());
                for (size_t word : {kStop, kLost})
                    std::atomic_ref(mailboxes_[a.index()][word]).store(0);
            }
        }
    }
}

DeviceAddress PeerLinks::mailbox(DeviceId device) const {
    CHECK(mailboxes_[device.index()]) << plan_.machine.device(device).name << " has no peers";
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
        if (mailbox) std::atomic_ref(mailbox[kStop]).store(1);
}

void PeerLinks::check(DeviceId device) const {
    uint32_t* mailbox = mailboxes_[device.index()];
    const uint32_t lost = mailbox ? std::atomic_ref(mailbox[kLost]).load() : 0;
    if (lost == 0) return;
    const double seconds = static_cast<double>(limit_ns_) / 1e9;
    const uint32_t whom = lost >> 23 & 127;
    if ((lost & 0x7fffff) == kMeetingTag)
        throw DeviceError(
            "starting the exchange by peer memory",
            fmt::format(
                "kernels of {} and {} did not run at the same time within {:.1f} s, as they must "
                "to wait for one another{}",
                plan_.machine.device(device).name,
                plan_.machine.device(peers_of(plan_, device).at(whom)).name,
                static_cast<double>(meeting_limit_ns()) / 1e9,
                queues_text(plan_.machine.device(device).kind)),
            plan_.machine.device(device).name);
    const PeerStep at = peer_step(lost & 0x7fffff);
    const Phase& phase = plan_.phase(at.is_prefill);
    const Step& step = phase.steps.at(at.step.index());
    const bool unread = whom >= kReleaseFrom;
    const DeviceId missing = unread ? DeviceId(whom - kReleaseFrom)
                                    : phase.values[sent_values(step).at(whom).index()].device;
    throw DeviceError(
        step_label(plan_, at.is_prefill, at.step),
        unread ? fmt::format("{} never took the value that was sent to it before this step; its "
                             "kernel was waited for {:.1f} s",
                             plan_.machine.device(missing).name, seconds)
               : fmt::format("{} never reached this step; its kernel was waited for {:.1f} s",
                             plan_.machine.device(missing).name, seconds),
        plan_.machine.device(device).name);
}

}  // namespace cleave::runtime
