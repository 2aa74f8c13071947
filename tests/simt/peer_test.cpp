// SPDX-License-Identifier: Apache-2.0
// Kernels by which devices exchange values over each other's memory, on imitated GPUs of one process: the sums of the staged
// path to the bit, round after round with the same arguments, in any order of threads; and what becomes of a wait for
// somebody who never comes.
#include <random>
#include <thread>

#include "codegen/peer_kernels.h"
#include "runtime/base/errors.h"
#include "runtime/drivers/reduce.h"
#include "runtime/drivers/simt_device.h"
#include "tests/simt/kernel_case.h"
#include "tests/simt/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::codegen;
using runtime::DeviceAddress;

namespace {

constexpr int64_t kSecond = 1'000'000'000;

// Devices that reach each other, each with an area of slices, signals and a mailbox.
class PeerRig {
public:
    PeerRig(const std::string& arch, size_t count, uint64_t seed, DType activations = DType::kF32,
            bool give_access = true)
        : arch_(arch), total_(static_cast<int64_t>(count)) {
        for (size_t d = 0; d < count; ++d) {
            planner::Device info;
            info.name = "simt:" + arch + "[" + std::to_string(d) + "]";
            info.kind = planner::DeviceKind::kSimt;
            info.arch = arch;
            info.memory_bytes = 1 << 26;
            devices.push_back(runtime::make_simt_device(info, {1, true, seed + d, seed != 0}));
            areas.push_back(device(d).allocate_exchange(kSlice * planner::kPeerChannels, "area"));
            signals.push_back(device(d).allocate_exchange(signal_bytes(), "signals"));
            device(d).fill(signals.back(), signal_bytes(), 0);
        }
        for (size_t a = 0; a < count; ++a)
            for (size_t b = 0; b < count && give_access; ++b)
                if (a != b) device(a).enable_peer_access(device(b));
        target.device = "simt:" + arch;
        target.limits = test::limits_of(arch, 8);
        target.activations = activations;
    }

    runtime::Device& device(size_t d) { return *devices[d]; }
    int64_t signal_bytes() const { return 16 * total_ * planner::kPeerChannels; }
    int64_t count() const { return total_; }
    uint64_t here(size_t device, size_t of) const { return signals[device] + of * kRow; }
    uint64_t there(size_t device, size_t of) const { return signals[of] + device * kRow; }
    uint32_t* mailbox(size_t d) { return reinterpret_cast<uint32_t*>(device(d).mailbox().data()); }
    // `rows` and what a wait needs.
    void finish(std::vector<uint64_t>& args, size_t d, int64_t rows, int64_t tag = 5) {
        for (uint64_t word : {static_cast<uint64_t>(rows), reinterpret_cast<uint64_t>(mailbox(d)),
                              static_cast<uint64_t>(limit), static_cast<uint64_t>(tag)})
            args.push_back(word);
    }

    // Loads each device's kernels, and runs kernel `k` of all for which there are arguments, side by side.
    void load(const std::vector<std::vector<PeerSpec>>& specs) {
        kernels.resize(specs.size());
        for (size_t d = 0; d < specs.size(); ++d) {
            std::vector<CompiledKernel> compiled;
            kernels[d].clear();
            for (const PeerSpec& spec : specs[d]) {
                kernels[d].push_back(make_peer_kernel(spec, target));
                const Kernel& k = kernels[d].back();
                auto known = compiled_.find(k.name);
                if (known == compiled_.end())
                    known = compiled_
                                .emplace(k.name,
                                         compile_simt_kernel(k.source, k.name, gpu_arch(arch_), {}))
                                .first;
                compiled.push_back(known->second);
            }
            device(d).load(std::move(compiled));
        }
    }
    void run(int k, const std::vector<std::vector<uint64_t>>& args, int64_t rows, int rounds = 1) {
        std::vector<std::thread> threads;
        std::vector<std::exception_ptr> errors(args.size());
        for (size_t d = 0; d < args.size(); ++d) {
            if (args[d].empty()) continue;
            threads.emplace_back([&, d] {
                try {
                    const Launch& launch = kernels[d][static_cast<size_t>(k)].launch;
                    for (int round = 0; round < rounds; ++round)
                        device(d).launch(k, args[d], {launch.grid[0].at(rows, rows, 1), 1, 1},
                                         launch);
                } catch (...) {
                    errors[d] = std::current_exception();
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
        for (const std::exception_ptr& error : errors)
            if (error) std::rethrow_exception(error);
    }

    static constexpr int64_t kSlice = 16384;
    static constexpr uint64_t kRow = planner::kPeerChannels * 4;
    std::vector<std::unique_ptr<runtime::Device>> devices;
    std::vector<DeviceAddress> areas, signals;
    std::vector<std::vector<Kernel>> kernels;
    GpuTarget target;
    int64_t limit = 60 * kSecond;

private:
    std::string arch_;
    int64_t total_;
    std::map<std::string, CompiledKernel> compiled_;
};

planner::PeerCut cut_of(int64_t row_bytes, int64_t threads, int64_t channels) {
    planner::PeerCut cut;
    cut.threads = threads;
    cut.unit = threads * 16;
    cut.channels = channels;
    cut.row_bytes = row_bytes;
    return cut;
}

struct Sum {
    const char* arch;
    size_t members;
    std::vector<size_t> sources;
    int64_t out, rows;
    bool residual, two_phase;
    DType dtype;
    uint64_t seed;  // 0: threads by index
};

std::vector<std::byte> numbers(std::mt19937& rng, int64_t count, DType dtype) {
    const test::GuardedBuffer values = test::GuardedBuffer::random("values", dtype, count, rng);
    const auto* first = reinterpret_cast<const std::byte*>(values.word());
    return {first, first + values.bytes()};
}

// Arguments of member `d`; `partial` and so on by device.
std::vector<uint64_t> sum_args(PeerRig& rig, const Sum& s, size_t d, uint64_t partial,
                               uint64_t residual, uint64_t out) {
    const auto at = std::find(s.sources.begin(), s.sources.end(), d);
    const bool contributes = at != s.sources.end();
    std::vector<uint64_t> args{contributes ? partial : 0, contributes ? rig.areas[d] : 0,
                               rig.signals[d]};
    for (size_t source : s.sources) args.push_back(rig.areas[source]);
    for (size_t source : s.sources) args.push_back(rig.here(d, source));
    for (size_t source : s.sources) args.push_back(rig.there(d, source));
    for (size_t m = 0; m < s.members; ++m) args.push_back(rig.here(d, m));
    for (size_t m = 0; m < s.members; ++m) args.push_back(rig.there(d, m));
    args.push_back(contributes ? static_cast<uint64_t>(at - s.sources.begin()) : ~uint64_t{0});
    if (s.residual) args.push_back(residual);
    args.push_back(out);
    rig.finish(args, d, s.rows);
    return args;
}

PeerAllReduceSpec sum_spec(const PeerRig& rig, const Sum& s) {
    PeerAllReduceSpec spec;
    spec.cut = cut_of(dtype_bytes(s.dtype, s.out), 64, 3);
    spec.devices = rig.count();
    spec.out = s.out;
    spec.slices.assign(s.sources.size(), PeerRig::kSlice);
    spec.own_slice = PeerRig::kSlice;
    spec.members = static_cast<int64_t>(s.members);
    spec.residual = s.residual;
    spec.two_phase = s.two_phase;
    return spec;
}

}  // namespace

TEST_CASE("a sum by peer memory has the staged sum's bits on every member, round after round",
          "[simt]") {
    const Sum sums[] = {{"sm_80", 2, {0, 1}, 64, 1, true, false, DType::kF32, 0},
                        {"sm_90a", 3, {0, 2}, 96, 40, true, false, DType::kF16, 7},
                        {"gfx90a", 3, {0, 1, 2}, 36, 33, false, true, DType::kF32, 11},
                        {"gfx90a", 8, {1, 3, 4, 5, 7}, 128, 9, true, true, DType::kBF16, 3}};
    for (const Sum& s : sums) {
        INFO(s.arch << ", " << s.sources.size() << " of " << s.members);
        PeerRig rig(s.arch, s.members, s.seed, s.dtype);
        std::mt19937 rng(1);
        const int64_t count = s.rows * s.out, bytes = dtype_bytes(s.dtype, count);
        const std::vector<std::byte> residual = numbers(rng, count, s.dtype);
        std::vector<std::vector<std::byte>> partials;
        std::vector<const std::byte*> sources;
        std::vector<std::vector<uint64_t>> args;
        std::vector<DeviceAddress> outs, inputs;
        for (size_t d = 0; d < s.members; ++d) {
            partials.push_back(numbers(rng, count, s.dtype));
            inputs.push_back(rig.device(d).allocate(bytes, "partial"));
            const DeviceAddress r = rig.device(d).allocate(bytes, "residual");
            rig.device(d).upload(r, residual);
            outs.push_back(rig.device(d).allocate(bytes, "out"));
            args.push_back(sum_args(rig, s, d, inputs[d], r, outs[d]));
        }
        rig.load(std::vector<std::vector<PeerSpec>>(s.members, {sum_spec(rig, s)}));
        // The first rounds alone, to check each; then a storm of them, in which members may be a round apart.
        for (int rounds : {1, 1, 5}) {
            sources.clear();
            for (size_t d = 0; d < s.members; ++d) {
                partials[d] = numbers(rng, count, s.dtype);
                rig.device(d).upload(inputs[d], partials[d]);
            }
            for (size_t d : s.sources) sources.push_back(partials[d].data());
            std::vector<std::byte> want(static_cast<size_t>(bytes)), got(want);
            runtime::reduce_elements(sources, s.residual ? residual.data() : nullptr, want.data(),
                                     0, count, s.dtype);
            rig.run(0, args, s.rows, rounds);
            for (size_t d = 0; d < s.members; ++d) {
                rig.device(d).download(outs[d], got);
                CHECK(got == want);
                CHECK(rig.mailbox(d)[1] == 0);
            }
        }
    }
}

TEST_CASE("blocks of columns gather by peer memory, the receiver's own among them", "[simt]") {
    PeerRig rig("gfx1100", 3, 5);
    // Columns [0, 10), [10, 13) and [13, 20) of a row of 20 floats; the last device receives.
    const int64_t begin[] = {0, 10, 13, 20}, rows = 37, stride = 80;
    const planner::PeerCut cut = cut_of(40, 64, 4);
    PeerReceiveSpec receive{cut, 3, {}, stride};
    std::vector<std::vector<PeerSpec>> specs(3);
    std::vector<std::vector<uint64_t>> sends(3), receives(3);
    std::vector<std::vector<float>> blocks(3);
    std::vector<DeviceAddress> sources;
    const DeviceAddress out = rig.device(2).allocate(rows * stride, "out");
    for (size_t d = 0; d < 3; ++d) {
        const int64_t bytes = 4 * (begin[d + 1] - begin[d]);
        specs[d].push_back(PeerSendSpec{cut, 3, bytes, PeerRig::kSlice, 1});
        receive.sources.push_back({bytes, 4 * begin[d], PeerRig::kSlice});
        sources.push_back(rig.device(d).allocate(rows * bytes, "block"));
        sends[d] = {sources[d], rig.areas[d], rig.signals[d], rig.here(d, 2), rig.there(d, 2)};
        rig.finish(sends[d], d, rows);
    }
    specs[2].push_back(receive);
    for (size_t s = 0; s < 3; ++s) receives[2].push_back(rig.areas[s]);
    for (size_t s = 0; s < 3; ++s) receives[2].push_back(rig.here(2, s));
    for (size_t s = 0; s < 3; ++s) receives[2].push_back(rig.there(2, s));
    receives[2].push_back(out);
    rig.finish(receives[2], 2, rows);
    rig.load(specs);
    for (int round = 0; round < 3; ++round) {
        for (size_t d = 0; d < 3; ++d) {
            blocks[d].resize(static_cast<size_t>(rows * (begin[d + 1] - begin[d])));
            for (size_t i = 0; i < blocks[d].size(); ++i)
                blocks[d][i] = static_cast<float>(1000 * round + 100 * static_cast<int>(d)) +
                               static_cast<float>(i) / 1024.0f;
            rig.device(d).upload(sources[d], std::as_bytes(std::span(blocks[d])));
        }
        rig.run(0, sends, rows);
        rig.run(1, receives, rows);
        std::vector<float> got(static_cast<size_t>(rows * 20));
        rig.device(2).download(out, std::as_writable_bytes(std::span(got)));
        for (int64_t r = 0; r < rows; ++r)
            for (size_t d = 0; d < 3; ++d)
                for (int64_t c = begin[d]; c < begin[d + 1]; ++c)
                    REQUIRE(got[static_cast<size_t>(r * 20 + c)] ==
                            blocks[d][static_cast<size_t>(r * (begin[d + 1] - begin[d]) + c -
                                                          begin[d])]);
    }
    // A sender runs one message ahead of its receiver, not two: the second waits.
    rig.limit = kSecond / 20;
    sends[1][sends[1].size() - 2] = static_cast<uint64_t>(rig.limit);
    rig.run(0, {{}, sends[1], {}}, rows);
    CHECK(rig.mailbox(1)[1] == 0);
    rig.run(0, {{}, sends[1], {}}, rows);
    CHECK(rig.mailbox(1)[1] == (0x80000000u | (64 + 2) << 23 | 5));
}

TEST_CASE(
    "a member that never comes ends its peers' wait with its number, and stop ends it at once",
    "[simt]") {
    const Sum s{"sm_80", 3, {0, 1, 2}, 64, 2, true, false, DType::kF32, 0};
    for (bool stop : {false, true}) {
        PeerRig rig(s.arch, s.members, 0);
        rig.limit = stop ? 100 * kSecond : kSecond / 20;
        rig.load(std::vector<std::vector<PeerSpec>>(3, {sum_spec(rig, s)}));
        std::vector<std::vector<uint64_t>> args(3);
        std::vector<DeviceAddress> outs(3);
        const std::vector<float> marks(128, 7.0f);
        for (size_t d : {0u, 2u}) {
            const DeviceAddress in = rig.device(d).allocate(512, "in");
            rig.device(d).fill(in, 512, 0);
            outs[d] = rig.device(d).allocate(512, "out");
            rig.device(d).upload(outs[d], std::as_bytes(std::span(marks)));
            args[d] = sum_args(rig, s, d, in, in, outs[d]);
        }
        std::thread host([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(30));
            if (stop)
                for (size_t d : {0u, 2u}) std::atomic_ref(rig.mailbox(d)[0]).store(1);
        });
        rig.run(0, args, s.rows);
        // What comes later does not begin: it would wait as long again.
        args[2] = {};
        rig.run(0, args, s.rows);
        host.join();
        for (size_t d : {0u, 2u}) {
            if (!stop && d == 0) CHECK(rig.mailbox(d)[1] == (0x80000000u | 1u << 23 | 5));
            if (stop) CHECK(rig.mailbox(d)[1] == 0);
            std::vector<float> got(128);
            rig.device(d).download(outs[d], std::as_writable_bytes(std::span(got)));
            CHECK(got == marks);
        }
    }
}

TEST_CASE("an exchange with a device that gave no access is reported with its line", "[simt]") {
    const Sum s{"gfx90a", 2, {0, 1}, 64, 1, false, false, DType::kF32, 0};
    PeerRig rig(s.arch, 2, 0, DType::kF32, false);
    rig.load(std::vector<std::vector<PeerSpec>>(2, {sum_spec(rig, s)}));
    const DeviceAddress x = rig.device(0).allocate(256, "x");
    try {
        rig.run(0, {sum_args(rig, s, 0, x, 0, x), {}}, 1);
        FAIL("no report");
    } catch (const InternalError& error) {
        CHECK_THAT(error.what(), Catch::Matchers::Contains("no peer access") &&
                                     Catch::Matchers::Contains("peer.cuh"));
    }
}
