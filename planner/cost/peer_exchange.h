// SPDX-License-Identifier: Apache-2.0
// Exchange by peer memory: which devices can, and how a payload is cut. Each block of an exchange's
// kernel has a channel of its own: a slice of the sender's payload buffer, and words in the signals
// of both sides that count messages. A word is written by one device and never
// goes back, so that a captured graph may be replayed.
#pragma once

#include <span>

#include "planner/plan/plan.h"
#include "runtime/base/rounding.h"

namespace cleave::planner {

inline constexpr int64_t kPeerChannels = 32;  // at most

// Channels of a device's payload buffer: so few that the blocks of all devices that share its card
// are resident at the same time, on half of the card. The other half runs what they wait for.
int64_t peer_channels(const Machine& machine, DeviceId device);

// A machine with more devices has no exchanges by peer memory: the first threads of a block look
// after one device each.
inline constexpr int64_t kMostPeerDevices = 64;

// A device's buffer of signals: parts [devices of the machine][kPeerChannels] of 32-bit words
// (codegen/templates/gpu/mailbox.cuh says which). Its bytes, and where the row of a device begins
// in each part.
inline constexpr int64_t kPeerSignalParts = 4;
inline int64_t peer_signal_row(DeviceId device) { return device.value * kPeerChannels * 4; }
inline int64_t peer_signal_bytes(const Machine& machine) {
    return kPeerSignalParts * peer_signal_row(DeviceId(machine.devices.size()));
}

// Whether kernels of each of `group` reach the memory of all others: GPUs of one kind and vendor
// with links that say so.
bool reach_each_other(const Machine& machine, std::span<const DeviceId> group);
// Whether the vendor's library of collectives takes the group: cards of one vendor, of one host or
// of several, that have the same one, each of them once.
bool has_vendor_library(const Machine& machine, std::span<const DeviceId> group);

// Whether kernels carry the step out, over the members' memory.
bool goes_by_peers(const Step& step);

// What a device sends in a step: rows of so many bytes.
struct PeerPayload {
    int64_t row_bytes = 0;
    bool per_output = false;  // rows are num_outputs, not num_tokens
    int64_t most_rows = 0;    // of a pass of this phase
    int64_t most_bytes() const { return row_bytes * most_rows; }
};
PeerPayload peer_payload(const Plan& plan, const Phase& phase, bool is_prefill, PlacedId value);

// How the kernels of a step cut its payloads: block b of n takes the units [u b / n, u (b + 1) / n)
// of the u that the payload has. At most `channels` blocks, as many on every member.
struct PeerCut {
    int64_t threads = 0;
    int64_t unit = 0;  // bytes
    int64_t channels = 1;
    int64_t row_bytes = 0;  // of the largest payload, which decides how many blocks there are
    bool per_output = false;
    // Of a channel, for this payload: whole loads of 16 bytes.
    int64_t slice(const PeerPayload& payload) const {
        return round_up(ceil_div(ceil_div(payload.most_bytes(), unit), channels) * unit, 16);
    }
};
// A sum with a norm is cut by rows: a block's threads share one, of so many of the widest loads
// each.
inline constexpr int64_t kPeerRowThreads = 512, kPeerRowTurns = 8;
PeerCut peer_cut(const Plan& plan, const Phase& phase, bool is_prefill, const Step& step);

// Bytes from one of a device's channels to the next in its payload buffer.
int64_t peer_slice(const Plan& plan, DeviceId device);

// The devices with which `device` exchanges by peer memory, in order.
std::vector<DeviceId> peers_of(const Plan& plan, DeviceId device);

// The values that a communication step sends.
std::vector<PlacedId> sent_values(const Step& step);

}  // namespace cleave::planner
