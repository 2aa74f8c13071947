// SPDX-License-Identifier: Apache-2.0
#include "tests/simt/peer_rig.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include <fmt/format.h>

#include "codegen/templates/gpu/mailbox.cuh"
#include "runtime/base/convert.h"
#include "runtime/base/errors.h"
#include "runtime/drivers/host/reduce.h"
#include "runtime/drivers/simt_device.h"

namespace cleave::test {

using namespace codegen;
using runtime::DeviceAddress;

PeerRig::PeerRig(const std::string& arch, size_t count, const Options& options)
    : arch_(arch), options_(options) {
    for (size_t d = 0; d < count; ++d) {
        planner::DeviceInfo info;
        info.name = fmt::format("simt:{}[{}]", arch, d);
        info.kind = planner::DeviceKind::kSimt;
        info.arch = arch;
        info.memory_bytes = 1 << 26;
        devices.push_back(
            runtime::make_simt_device(info, {1, true, options.seed + d, options.seed != 0}));
    }
    compile_ = [arch](const Kernel& k) {
        return compile_simt_kernel(k.source, k.name, gpu_arch(arch), {});
    };
    connect("simt:" + arch);
}

PeerRig::PeerRig(Devices opened, const std::string& arch, Compile compile, const Options& options)
    : devices(std::move(opened)), arch_(arch), compile_(std::move(compile)), options_(options) {
    limit = 10 * kSecond;
    connect(arch);
}

void PeerRig::connect(const std::string& device_name) {
    const int64_t signal_bytes =
        kPeerParts * planner::peer_signal_row(planner::DeviceId(devices.size()));
    for (auto& device : devices) {
        mailboxes_.push_back(device->mailbox());
        areas.push_back(device->allocate_exchange(kSlice * planner::kPeerChannels, "area"));
        signals.push_back(device->allocate_exchange(signal_bytes, "signals"));
        device->fill(signals.back(), signal_bytes, 0);
        device->synchronize();
    }
    for (size_t a = 0; a < devices.size(); ++a)
        for (size_t b = 0; b < devices.size() && options_.give_access; ++b)
            if (a != b) device(a).enable_peer_access(device(b));
    target.device = device_name;
    target.limits = limits_of(arch_, 8);
    target.activations = options_.activations;
}

void PeerRig::finish(std::vector<uint64_t>& args, size_t d, int64_t rows, int64_t tag) {
    for (uint64_t word : {static_cast<uint64_t>(rows), reinterpret_cast<uint64_t>(mailbox(d)),
                          static_cast<uint64_t>(limit), static_cast<uint64_t>(tag)})
        args.push_back(word);
}

void PeerRig::load(const std::vector<std::vector<PeerSpec>>& specs) {
    auto& known = options_.compiled ? *options_.compiled : own_;
    kernels.resize(specs.size());
    for (size_t d = 0; d < specs.size(); ++d) {
        std::vector<CompiledKernel> compiled;
        kernels[d].clear();
        for (const PeerSpec& spec : specs[d]) {
            Kernel kernel = make_peer_kernel(spec, target);
            if (options_.change) kernel.source = options_.change(kernel.source, d);
            auto at = known.find(kernel.source);
            if (at == known.end()) at = known.emplace(kernel.source, compile_(kernel)).first;
            compiled.push_back(at->second);
            kernels[d].push_back(std::move(kernel));
        }
        device(d).load(std::move(compiled));
    }
}

void PeerRig::run(int k, const std::vector<std::vector<uint64_t>>& args, int64_t rows, int rounds,
                  const Around& before, const Around& after) {
    if (!options_.in_step) return run_side_by_side(k, args, rows, rounds, before, after);
    const auto each = [&](const Around& what, int round) {
        for (size_t d = 0; d < args.size(); ++d) {
            if (what && !args[d].empty()) what(d, round);
            device(d).synchronize();
        }
    };
    for (int round = 0; round < rounds; ++round) {
        each(before, round);
        run_side_by_side(k, args, rows, 1, {}, {});
        each(after, round);
    }
}

void PeerRig::run_side_by_side(int k, const std::vector<std::vector<uint64_t>>& args, int64_t rows,
                               int rounds, const Around& before, const Around& after) {
    std::vector<std::thread> threads;
    std::vector<std::exception_ptr> errors(args.size());
    std::atomic<bool> failed{false};
    for (size_t d = 0; d < args.size(); ++d) {
        if (args[d].empty()) continue;
        threads.emplace_back([&, d] {
            try {
                const Launch& launch = kernels[d][static_cast<size_t>(k)].launch;
                for (int round = 0; round < rounds && !failed; ++round) {
                    if (before) before(d, round);
                    device(d).launch(k, args[d], {launch.grid[0].at(rows, rows, 1), 1, 1}, launch);
                    device(d).synchronize();
                    if (after) after(d, round);
                }
            } catch (...) {
                errors[d] = std::current_exception();
                failed = true;
                // The others need not wait for it.
                for (size_t other = 0; other < devices.size(); ++other)
                    if (mailbox(other)) std::atomic_ref(mailbox(other)[kMailStop]).store(1);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors)
        if (error) std::rethrow_exception(error);
}

// ---- Sums
// -----------------------------------------------------------------------------------------------

namespace {

planner::PeerCut cut_of(int64_t row_bytes, int64_t threads, int64_t channels) {
    planner::PeerCut cut;
    cut.threads = threads;
    cut.unit = threads * 16;
    cut.channels = channels;
    cut.row_bytes = row_bytes;
    return cut;
}

std::vector<std::byte> numbers(std::mt19937& rng, int64_t count, DType dtype) {
    const GuardedBuffer values = GuardedBuffer::random("values", dtype, count, rng);
    const auto* first = reinterpret_cast<const std::byte*>(values.word());
    return {first, first + values.bytes()};
}

std::vector<float> floats(const std::vector<std::byte>& from, DType dtype) {
    std::vector<float> to(from.size() / static_cast<size_t>(dtype_bytes(dtype, 1)));
    convert_elements(dtype, from.data(), DType::kF32, to.data(), std::ssize(to));
    return to;
}

}  // namespace

PeerAllReduceSpec sum_spec(const PeerRig& rig, const Sum& s) {
    PeerAllReduceSpec spec;
    spec.cut = cut_of(dtype_bytes(s.dtype, s.out), s.norm ? s.norm->threads : 64, 3);
    if (s.norm) spec.cut.unit = spec.cut.row_bytes;
    spec.devices = rig.count();
    spec.out = s.out;
    spec.slices.assign(s.sources.size(), PeerRig::kSlice);
    spec.own_slice = PeerRig::kSlice;
    spec.members = static_cast<int64_t>(s.members);
    spec.residual = s.residual;
    spec.two_phase = s.two_phase;
    if (s.norm) spec.norm = NormSpec{s.norm->weight, 1e-4, 0.25};
    return spec;
}

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

namespace {

// Sums, and what a norm makes of them, between marks.
class SumRun {
public:
    SumRun(PeerRig& rig, const Sum& s, int rounds)
        : rig_(rig), s_(s), count_(s.rows * s.out), bytes_(dtype_bytes(s.dtype, count_)) {
        const PeerAllReduceSpec spec = sum_spec(rig, s);
        const DType weight = s.norm ? s.norm->weight : DType::kF32;
        const std::vector<std::byte> norm = numbers(rng_, s.out, weight);
        weights_ = floats(norm, weight);
        for (size_t d = 0; d < s.members; ++d) {
            partials_.push_back(rig.device(d).allocate(bytes_, "partial"));
            residuals_.push_back(rig.device(d).allocate(bytes_, "residual"));
            for (auto* results : {&sums_, &normed_})
                results->push_back(rig.device(d).allocate(bytes_ + 2 * kMargin, "result") +
                                   kMargin);
            args_.push_back(sum_args(rig, s, d, partials_[d], residuals_[d], sums_[d]));
            if (!s.norm) continue;
            const DeviceAddress at = rig.device(d).allocate(std::ssize(norm), "norm");
            rig.device(d).upload(at, norm);
            const uint64_t further[] = {at, normed_[d]};
            args_[d].insert(args_[d].end() - 4, std::begin(further), std::end(further));
        }
        rig.load(std::vector<std::vector<PeerSpec>>(s.members, {spec}));
        for (int round = 0; round < rounds; ++round) rounds_.push_back(draw());
    }

    std::string run() {
        std::vector<std::string> wrong(s_.members);
        rig_.run(
            0, args_, s_.rows, static_cast<int>(rounds_.size()),
            [&](size_t d, int round) { prepare(d, rounds_[static_cast<size_t>(round)]); },
            [&](size_t d, int round) {
                if (wrong[d].empty())
                    wrong[d] = wrong_on(d, round, rounds_[static_cast<size_t>(round)]);
            });
        for (const std::string& what : wrong)
            if (!what.empty()) return what;
        return "";
    }

    // The last contributor does not come: all others say so.
    std::string run_without_last() {
        const size_t absent = s_.sources.back();
        args_[absent] = {};
        for (std::vector<uint64_t>& of : args_)
            if (!of.empty()) of[of.size() - 2] = static_cast<uint64_t>(PeerRig::kSecond / 20);
        rig_.run(0, args_, s_.rows);
        for (size_t d = 0; d < s_.members; ++d)
            if (d != absent && rig_.mailbox(d)[kMailLost] == 0)
                return fmt::format("device {} does without a contributor", d);
        return "";
    }

private:
    static constexpr int64_t kMargin = 64;
    struct Round {
        std::vector<std::vector<std::byte>> partials;  // by device
        std::vector<std::byte> residual, want;
    };

    Round draw() {
        Round round;
        std::vector<const std::byte*> sources;
        for (size_t d = 0; d < s_.members; ++d)
            round.partials.push_back(numbers(rng_, count_, s_.dtype));
        round.residual = numbers(rng_, count_, s_.dtype);
        for (size_t d : s_.sources) sources.push_back(round.partials[d].data());
        round.want.resize(static_cast<size_t>(bytes_));
        runtime::reduce_elements(sources, s_.residual ? round.residual.data() : nullptr,
                                 round.want.data(), 0, count_, s_.dtype);
        return round;
    }

    void prepare(size_t d, const Round& round) {
        runtime::Device& device = rig_.device(d);
        device.upload(partials_[d], round.partials[d]);
        device.upload(residuals_[d], round.residual);
        for (DeviceAddress result : {sums_[d], normed_[d]})
            device.fill(result - kMargin, bytes_ + 2 * kMargin, 0xa5);
    }

    std::string wrong_on(size_t d, int round, const Round& numbers) {
        const auto named = [&](const char* what) {
            return fmt::format("round {}, device {}: {}", round, d, what);
        };
        std::vector<std::byte> sums, normed;
        if (!read(d, sums_[d], sums) || !read(d, normed_[d], normed))
            return named("bytes beside the result have changed");
        if (rig_.mailbox(d)[kMailLost] != 0) return named("a wait was given up");
        if (sums != numbers.want) return named("the sum is not the staged sum");
        if (s_.norm && worst_of(numbers.want, normed) > s_.norm->tolerance)
            return named("the norm is not that of the stored sum");
        return "";
    }

    // What lies at `at`; false where its margins are not as they were.
    bool read(size_t d, DeviceAddress at, std::vector<std::byte>& result) {
        std::vector<std::byte> all(static_cast<size_t>(bytes_ + 2 * kMargin));
        rig_.device(d).download(at - kMargin, all);
        result.assign(all.begin() + kMargin, all.end() - kMargin);
        const auto is_mark = [](std::byte b) { return b == std::byte{0xa5}; };
        return std::all_of(all.begin(), all.begin() + kMargin, is_mark) &&
               std::all_of(all.end() - kMargin, all.end(), is_mark);
    }

    double worst_of(const std::vector<std::byte>& stored, const std::vector<std::byte>& normed) {
        const std::vector<float> sums = floats(stored, s_.dtype), got = floats(normed, s_.dtype);
        double worst = 0;
        for (int64_t row = 0; row < s_.rows; ++row) {
            const float* x = sums.data() + row * s_.out;
            double squares = 0;
            for (int64_t i = 0; i < s_.out; ++i) squares += double{x[i]} * x[i];
            const double scale = 1 / std::sqrt(squares / static_cast<double>(s_.out) + 1e-4);
            for (int64_t i = 0; i < s_.out; ++i) {
                const double exact = x[i] * scale * (weights_[static_cast<size_t>(i)] + 0.25);
                const double off = std::abs(got[static_cast<size_t>(row * s_.out + i)] - exact);
                if (!(off / (1 + std::abs(exact)) <= worst)) worst = off / (1 + std::abs(exact));
            }
        }
        return std::isnan(worst) ? HUGE_VAL : worst;
    }

    PeerRig& rig_;
    const Sum s_;
    int64_t count_, bytes_;
    std::mt19937 rng_{3};
    std::vector<float> weights_;
    std::vector<Round> rounds_;
    std::vector<std::vector<uint64_t>> args_;
    std::vector<DeviceAddress> partials_, residuals_, sums_, normed_;
};

}  // namespace

std::string wrong_in_sum(PeerRig& rig, const Sum& s, int rounds, bool then_absent) {
    SumRun run(rig, s, rounds);
    const std::string wrong = run.run();
    return wrong.empty() && then_absent ? run.run_without_last() : wrong;
}

// ---- Other exchanges
// ------------------------------------------------------------------------------------

std::string wrong_in_gather(PeerRig& rig, int rounds) {
    // Columns [0, 10), [10, 13) and [13, 20) of a row of 20 floats; the last device receives.
    const int64_t begin[] = {0, 10, 13, 20}, rows = 37, stride = 80;
    const planner::PeerCut cut = cut_of(40, 64, 4);
    PeerReceiveSpec receive{cut, rig.count(), {}, stride};
    std::vector<std::vector<PeerSpec>> specs(3);
    std::vector<std::vector<uint64_t>> sends(3), receives(3);
    std::vector<DeviceAddress> sources;
    const DeviceAddress out = rig.device(2).allocate(rows * stride, "out");
    for (size_t d = 0; d < 3; ++d) {
        const int64_t bytes = 4 * (begin[d + 1] - begin[d]);
        specs[d].push_back(PeerSendSpec{cut, rig.count(), bytes, PeerRig::kSlice, 1});
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
    for (int round = 0; round < rounds; ++round) {
        std::vector<std::vector<float>> blocks(3);
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
                    if (got[static_cast<size_t>(r * 20 + c)] !=
                        blocks[d]
                              [static_cast<size_t>(r * (begin[d + 1] - begin[d]) + c - begin[d])])
                        return fmt::format("round {}: row {}, column {}", round, r, c);
    }
    // A sender runs one message ahead of its receiver, not two: the second waits.
    sends[1][sends[1].size() - 2] = static_cast<uint64_t>(PeerRig::kSecond / 20);
    rig.run(0, {{}, sends[1], {}}, rows);
    if (rig.mailbox(1)[kMailLost] != 0) return "a sender one message ahead waits";
    rig.run(0, {{}, sends[1], {}}, rows);
    if (rig.mailbox(1)[kMailLost] != (kMailMark | (kMailReleaseFrom + 2) << kMailWhomShift | 5))
        return "a sender two messages ahead does not wait";
    return "";
}

std::string wrong_in_meeting(PeerRig& rig) {
    const auto others = rig.count() - 1;
    rig.load(std::vector<std::vector<PeerSpec>>(rig.devices.size(),
                                                {PeerMeetSpec{2, rig.count(), others}}));
    std::vector<std::vector<uint64_t>> args(rig.devices.size());
    for (size_t d = 0; d < rig.devices.size(); ++d) {
        for (size_t m = 0; m < rig.devices.size(); ++m)
            if (m != d) args[d].push_back(rig.here(d, m));
        for (size_t m = 0; m < rig.devices.size(); ++m)
            if (m != d) args[d].push_back(rig.there(d, m));
        rig.finish(args[d], d, 0);
        args[d].erase(args[d].end() - 4);  // no rows
    }
    rig.run(0, args, 1, 3);
    for (size_t d = 0; d < rig.devices.size(); ++d)
        if (rig.mailbox(d)[kMailLost] != 0) return fmt::format("device {} gave up", d);
    // One that stays away keeps the others.
    args[1] = {};
    for (std::vector<uint64_t>& of : args)
        if (!of.empty()) of[of.size() - 2] = static_cast<uint64_t>(PeerRig::kSecond / 20);
    rig.run(0, args, 1);
    if (rig.mailbox(0)[kMailLost] == 0) return "it ends although one device never came";
    return "";
}

std::string wrong_in_absence(PeerRig& rig, bool stop) {
    const Sum s{3, {0, 1, 2}, 64, 2, true, false};
    rig.limit = stop ? 100 * PeerRig::kSecond : PeerRig::kSecond / 5;
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
            for (size_t d : {0u, 2u}) std::atomic_ref(rig.mailbox(d)[kMailStop]).store(1);
    });
    try {
        rig.run(0, args, s.rows);
        // What comes later does not begin: it would wait as long again.
        args[2] = {};
        rig.run(0, args, s.rows);
    } catch (...) {
        host.join();
        throw;
    }
    host.join();
    for (size_t d : {0u, 2u}) {
        const uint32_t said = rig.mailbox(d)[kMailLost];
        if (stop ? said != 0 : d == 0 && said != (kMailMark | 1u << kMailWhomShift | 5))
            return fmt::format("the mailbox of device {} says {:#x}", d, said);
        std::vector<float> got(128);
        rig.device(d).download(outs[d], std::as_writable_bytes(std::span(got)));
        if (got != marks) return fmt::format("device {} wrote a result", d);
    }
    return "";
}

const std::vector<PeerScenario>& peer_scenarios() {
    static const std::vector<PeerScenario> kScenarios = [] {
        std::vector<PeerScenario> all;
        const auto sum = [&](const char* arch, const Sum& s) {
            all.push_back(
                {fmt::format("sum of {} for {}, {} x {} {}{}{}{}", s.sources.size(), s.members,
                             s.rows, s.out, s.dtype, s.residual ? ", residual" : "",
                             s.two_phase ? ", two phases" : "", s.norm ? ", norm" : ""),
                 arch, s.members, s.dtype,
                 [s](PeerRig& rig) { return wrong_in_sum(rig, s, 3, true); }});
        };
        sum("sm_80", {2, {0, 1}, 64, 1, true, false, DType::kF32});
        sum("sm_90a", {3, {0, 2}, 96, 40, true, false, DType::kF16});
        sum("gfx90a", {3, {0, 1, 2}, 36, 33, false, true, DType::kF32});
        sum("gfx90a", {8, {1, 3, 4, 5, 7}, 128, 9, true, true, DType::kBF16});
        // With a norm: rows of one turn and of several, the last of them not full; one row and
        // several for a block.
        sum("sm_80", {2, {0, 1}, 64, 1, true, false, DType::kF32, NormBehind{}});
        sum("sm_90a",
            {3, {0, 2}, 600, 10, true, false, DType::kF16, NormBehind{DType::kBF16, 128, 6e-4}});
        sum("gfx90a",
            {3, {0, 1, 2}, 300, 8, false, false, DType::kF32, NormBehind{DType::kF16, 64, 2e-6}});
        // Rows of which a thread reads a part back.
        sum("sm_80", {2, {0, 1}, 1400, 3, true, false, DType::kF32, NormBehind{}});
        sum("gfx1100", {8,
                        {1, 3, 4, 5, 7},
                        36,
                        33,
                        true,
                        false,
                        DType::kBF16,
                        NormBehind{DType::kF32, 64, 5e-3}});
        for (const char* arch : {"gfx1100", "gfx942"})
            all.push_back({"gather of columns", arch, 3, DType::kF32,
                           [](PeerRig& rig) { return wrong_in_gather(rig, 2); }});
        for (const char* arch : {"sm_80", "gfx90a"})
            all.push_back({"meeting", arch, 3, DType::kF32, wrong_in_meeting});
        all.push_back({"sum with a member that never comes", "sm_80", 3, DType::kF32,
                       [](PeerRig& rig) { return wrong_in_absence(rig); }});
        return all;
    }();
    return kScenarios;
}

}  // namespace cleave::test
