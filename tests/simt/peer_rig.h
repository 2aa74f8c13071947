// SPDX-License-Identifier: Apache-2.0
// Devices that exchange values over each other's memory, and what each exchange must give. In:
// devices of any kind that reach each other, imitated ones among them; out: what was wrong, empty
// for nothing. A kernel that an imitated device reports throws. Every round has other numbers in
// the same buffers, and a member may be a round ahead of another.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codegen/gpu/exchange.h"
#include "runtime/device/device.h"
#include "tests/simt/kernel_case.h"

namespace cleave::test {

class PeerRig {
public:
    using Compile = std::function<codegen::CompiledKernel(const codegen::Kernel&)>;
    using Devices = std::vector<std::unique_ptr<runtime::Device>>;
    struct Options {
        uint64_t seed = 0;  // of the order of imitated threads; 0: by index
        DType activations = DType::kF32;
        bool give_access = true;
        // Of the source that a device gets, for a fault.
        std::function<std::string(const std::string& source, size_t device)> change = {};
        std::map<std::string, codegen::CompiledKernel>* compiled =
            nullptr;  // by source, of earlier rigs
        // All devices begin a round together: what a driver does for one's copies may wait for the
        // kernels of all.
        bool in_step = false;
    };
    // Imitated devices, or opened ones with the compiler of their kernels.
    PeerRig(const std::string& arch, size_t count, const Options& options);
    PeerRig(Devices opened, const std::string& arch, Compile compile, const Options& options);

    runtime::Device& device(size_t d) { return *devices[d]; }
    int64_t count() const { return std::ssize(devices); }
    uint64_t here(size_t device, size_t of) const { return signals[device] + of * kRow; }
    uint64_t there(size_t device, size_t of) const { return signals[of] + device * kRow; }
    // Null where devices have none. Any thread may ask.
    uint32_t* mailbox(size_t d) { return reinterpret_cast<uint32_t*>(mailboxes_[d].data()); }
    // `rows` and what a wait needs.
    void finish(std::vector<uint64_t>& args, size_t d, int64_t rows, int64_t tag = 5);

    // Loads each device's kernels.
    void load(const std::vector<std::vector<codegen::PeerSpec>>& specs);
    // Runs kernel `k` of all devices for which there are arguments side by side, `rounds` times;
    // around each launch what its device does before and after it.
    using Around = std::function<void(size_t device, int round)>;
    void run(int k, const std::vector<std::vector<uint64_t>>& args, int64_t rows, int rounds = 1,
             const Around& before = {}, const Around& after = {});

    static constexpr int64_t kSlice = 16384;
    static constexpr uint64_t kRow = planner::kPeerChannels * 4;
    static constexpr int64_t kSecond = 1'000'000'000;
    Devices devices;
    std::vector<runtime::DeviceAddress> areas, signals;
    std::vector<std::vector<codegen::Kernel>> kernels;
    codegen::GpuTarget target;
    int64_t limit = 60 * kSecond;

private:
    void connect(const std::string& device_name);
    void run_side_by_side(int k, const std::vector<std::vector<uint64_t>>& args, int64_t rows,
                          int rounds, const Around& before, const Around& after);
    std::string arch_;
    Compile compile_;
    Options options_;
    std::map<std::string, codegen::CompiledKernel> own_;
    std::vector<std::span<std::byte>> mailboxes_;
};

// What a norm behind a sum adds: a block of `threads` has whole rows.
struct NormBehind {
    DType weight = DType::kF32;
    int64_t threads = 64;
    double tolerance = 2e-6;
};
struct Sum {
    size_t members;
    std::vector<size_t> sources;
    int64_t out, rows;
    bool residual, two_phase;
    DType dtype = DType::kF32;
    std::optional<NormBehind> norm = {};
};
codegen::PeerAllReduceSpec sum_spec(const PeerRig& rig, const Sum& s);
// Arguments of member `d`; `partial` and so on are its own buffers.
std::vector<uint64_t> sum_args(PeerRig& rig, const Sum& s, size_t d, uint64_t partial,
                               uint64_t residual, uint64_t out);

// The staged sum's bits on every member, and of its norm the same numbers on all. `then_absent`: in
// the end the last contributor stays away, and every other member must say so.
std::string wrong_in_sum(PeerRig& rig, const Sum& s, int rounds, bool then_absent = false);
// Columns of three devices gathered on the third, its own among them.
std::string wrong_in_gather(PeerRig& rig, int rounds);
// Ends when all run.
std::string wrong_in_meeting(PeerRig& rig);
// The second of three devices never comes: the wait of the others ends with its number, or by the
// host's word, and nothing is written.
std::string wrong_in_absence(PeerRig& rig, bool stop = false);

// An exchange as it ships, on imitated devices of one architecture.
struct PeerScenario {
    std::string name, arch;
    size_t devices;
    DType activations;
    std::function<std::string(PeerRig&)> wrong;
};
const std::vector<PeerScenario>& peer_scenarios();

}  // namespace cleave::test
