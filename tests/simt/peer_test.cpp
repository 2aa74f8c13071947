// SPDX-License-Identifier: Apache-2.0
// Kernels by which devices exchange values over each other's memory, on imitated GPUs of one process: the sums of the staged
// path to the bit, round after round with the same arguments, in any order of threads; and what becomes of a wait for
// somebody who never comes.
#include <random>
#include <thread>

#include "codegen/peer_kernels.h"
#include "runtime/base/convert.h"
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
                                .emplace(k.name, compile_simt_kernel(changed(k.source), k.name,
                                                                     gpu_arch(arch_), {}))
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
    std::function<std::string(const std::string&)> change;  // of a kernel's source, for a fault

private:
    std::string changed(const std::string& source) const {
        return change ? change(source) : source;
    }
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

namespace {

// The sum of the rows with a norm behind it, on every member: what lies around the results are marks.
class NormedSum {
public:
    static constexpr int64_t kMargin = 64;
    static constexpr float kEpsilon = 1e-4f, kOffset = 0.25f;

    NormedSum(PeerRig& rig, const Sum& s, DType weight, int64_t threads)
        : rig_(rig), s_(s), count_(s.rows * s.out), bytes_(dtype_bytes(s.dtype, count_)) {
        PeerAllReduceSpec spec = sum_spec(rig, s);
        spec.cut.threads = threads;
        spec.cut.unit = spec.cut.row_bytes;
        spec.norm = NormSpec{weight, kEpsilon, kOffset};
        const std::vector<std::byte> norm = numbers(rng_, s.out, weight);
        weights_ = floats(norm, weight);
        for (size_t d = 0; d < s.members; ++d) {
            partials_.push_back(device(d, bytes_, numbers(rng_, count_, s.dtype)));
            residual_ = numbers(rng_, count_, s.dtype);
            residuals_.push_back(device(d, bytes_, residual_));
            for (auto* results : {&sums_, &normed_})
                results->push_back(device(d, bytes_ + 2 * kMargin, {}) + kMargin);
            args.push_back(sum_args(rig, s, d, partials_[d], residuals_[d], sums_[d]));
            const uint64_t further[] = {device(d, std::ssize(norm), norm), normed_[d]};
            args[d].insert(args[d].end() - 4, std::begin(further), std::end(further));
        }
        rig.load(std::vector<std::vector<PeerSpec>>(s.members, {spec}));
    }

    void run(int rounds) {
        const std::vector<std::byte> marks(static_cast<size_t>(bytes_ + 2 * kMargin),
                                           std::byte{0xa5});
        std::vector<std::vector<std::byte>> partials;
        std::vector<const std::byte*> sources;
        residual_ = numbers(rng_, count_, s_.dtype);
        for (size_t d = 0; d < s_.members; ++d) {
            partials.push_back(numbers(rng_, count_, s_.dtype));
            rig_.device(d).upload(partials_[d], partials[d]);
            rig_.device(d).upload(residuals_[d], residual_);
            for (DeviceAddress result : {sums_[d], normed_[d]})
                rig_.device(d).upload(result - kMargin, marks);
        }
        for (size_t d : s_.sources) sources.push_back(partials[d].data());
        want_.resize(static_cast<size_t>(bytes_));
        runtime::reduce_elements(sources, residual_.data(), want_.data(), 0, count_, s_.dtype);
        rig_.run(0, args, s_.rows, rounds);
    }

    // The sums are the staged ones to the bit; the norm is that of the sums as they are stored.
    void check(double tolerance) {
        const std::vector<float> sums = floats(want_, s_.dtype);
        std::vector<std::byte> first;
        for (size_t d = 0; d < s_.members; ++d) {
            CHECK(result(d, sums_[d]) == want_);
            const std::vector<std::byte> got = result(d, normed_[d]);
            if (d == 0) first = got;
            CHECK(got == first);  // on every member alike
            double worst = 0;
            const std::vector<float> normed = floats(got, s_.dtype);
            for (int64_t row = 0; row < s_.rows; ++row) {
                const float* x = sums.data() + row * s_.out;
                double squares = 0;
                for (int64_t i = 0; i < s_.out; ++i) squares += double{x[i]} * x[i];
                const double scale =
                    1 / std::sqrt(squares / static_cast<double>(s_.out) + double{kEpsilon});
                for (int64_t i = 0; i < s_.out; ++i) {
                    const double exact =
                        x[i] * scale * (weights_[static_cast<size_t>(i)] + double{kOffset});
                    const double off =
                        std::abs(normed[static_cast<size_t>(row * s_.out + i)] - exact);
                    worst = std::max(worst, off / (1 + std::abs(exact)));
                }
            }
            CHECK(worst <= tolerance);
            CHECK(rig_.mailbox(d)[1] == 0);
        }
    }

    std::vector<std::vector<uint64_t>> args;

private:
    static std::vector<float> floats(const std::vector<std::byte>& from, DType dtype) {
        std::vector<float> to(from.size() / static_cast<size_t>(dtype_bytes(dtype, 1)));
        convert_elements(dtype, from.data(), DType::kF32, to.data(), std::ssize(to));
        return to;
    }
    DeviceAddress device(size_t d, int64_t bytes, const std::vector<std::byte>& content) {
        const DeviceAddress at = rig_.device(d).allocate(bytes, "buffer");
        if (!content.empty()) rig_.device(d).upload(at, content);
        return at;
    }
    // What lies at `at`, once its margins are seen to be as they were.
    std::vector<std::byte> result(size_t d, DeviceAddress at) {
        std::vector<std::byte> all(static_cast<size_t>(bytes_ + 2 * kMargin));
        rig_.device(d).download(at - kMargin, all);
        const auto is_mark = [](std::byte b) { return b == std::byte{0xa5}; };
        CHECK(std::all_of(all.begin(), all.begin() + kMargin, is_mark));
        CHECK(std::all_of(all.end() - kMargin, all.end(), is_mark));
        return {all.begin() + kMargin, all.end() - kMargin};
    }

    PeerRig& rig_;
    const Sum s_;
    int64_t count_, bytes_;
    std::mt19937 rng_{3};
    std::vector<float> weights_;
    std::vector<std::byte> residual_, want_;
    std::vector<DeviceAddress> partials_, residuals_, sums_, normed_;
};

}  // namespace

TEST_CASE("a norm behind a sum by peer memory is that of the stored sum, whole rows to a block",
          "[simt]") {
    struct Case {
        Sum sum;
        DType weight;
        int64_t threads;
        double tolerance;
    };
    // Rows of one turn and of several, the last of them not full; one row and several for a block.
    const Case cases[] = {
        {{"sm_80", 2, {0, 1}, 64, 1, true, false, DType::kF32, 0}, DType::kF32, 64, 2e-6},
        {{"sm_90a", 3, {0, 2}, 600, 10, true, false, DType::kF16, 7}, DType::kBF16, 128, 6e-4},
        {{"gfx90a", 3, {0, 1, 2}, 300, 8, true, false, DType::kF32, 11}, DType::kF16, 64, 2e-6},
        {{"gfx1100", 8, {1, 3, 4, 5, 7}, 36, 33, true, false, DType::kBF16, 3},
         DType::kF32,
         64,
         5e-3}};
    for (const Case& c : cases) {
        INFO(c.sum.arch << ", " << c.sum.sources.size() << " of " << c.sum.members);
        PeerRig rig(c.sum.arch, c.sum.members, c.sum.seed, c.sum.dtype);
        NormedSum sum(rig, c.sum, c.weight, c.threads);
        for (int rounds : {1, 4}) {
            sum.run(rounds);
            sum.check(c.tolerance);
        }
        CHECK(rig.kernels[0][0].fused == std::vector<std::string>{"all_reduce", "add", "rms_norm"});
    }
}

TEST_CASE("a norm behind a sum without its barrier is caught", "[simt]") {
    const Sum s{"sm_80", 2, {0, 1}, 256, 4, true, false, DType::kF32, 1};
    PeerRig rig(s.arch, s.members, s.seed);
    rig.change = [](const std::string& source) {
        const size_t part = source.find("peer_sum_norm(");
        const size_t barrier = source.find("barrier();", part);
        REQUIRE(part != std::string::npos);
        REQUIRE(barrier != std::string::npos);
        return source.substr(0, barrier) + source.substr(barrier + 10);
    };
    rig.limit = kSecond;
    NormedSum sum(rig, s, DType::kF32, 64);
    CHECK_THROWS_WITH(sum.run(1),
                      Catch::Matchers::Contains("race") && Catch::Matchers::Contains("peer.cuh"));
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
