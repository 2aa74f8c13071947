// SPDX-License-Identifier: Apache-2.0
// The words by which kernels that exchange values over peer memory, and the host, understand each
// other. Read by peer.cuh and by the host (codegen/kernel/mailbox.h), so each layout is written
// once. Freestanding; also plain C++.
#pragma once

namespace cleave {

// A device's mailbox: words of 32 bits. The host writes the first, kernels the second.
constexpr int kMailStop = 0, kMailLost = 1, kMailWords = 2;

// What a kernel writes that waited in vain: kMailMark | whom << kMailWhomShift | tag of the step.
// Whom: a source of the step by its position, or kMailReleaseFrom + the device that has not
// released the message before.
constexpr unsigned kMailMark = 0x80000000u;
constexpr int kMailWhomShift = 23;
constexpr unsigned kMailWhomMask = 0x7fu, kMailReleaseFrom = 64;

// A step's tag: its position in its phase, and a bit for prefill. Or that of the meeting.
constexpr unsigned kMailTagMask = (1u << kMailWhomShift) - 1;
constexpr unsigned kMailPrefill = 1u << 22, kMailMeeting = kMailPrefill - 1;

// Parts of a device's signals, each [devices of the machine][channels] words that count messages:
// those that this device has sent to another, those that the other has made ready for it, those
// that this device has taken, and those that the other has released. The other device writes the
// second and the fourth.
enum PeerPart { kPeerSent, kPeerReady, kPeerTaken, kPeerReleased, kPeerParts };

}  // namespace cleave
