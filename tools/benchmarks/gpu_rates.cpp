// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/gpu_rates.h"

#include <array>
#include <chrono>
#include <cstdlib>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "codegen/gpu/kernels.h"
#include "runtime/base/errors.h"
#include "runtime/cards/open_devices.h"
#include "runtime/device/async_device.h"
#include "tools/gpu_check/process.h"

namespace cleave::bench {

namespace {

// Rows are a grid's second dimension, which CUDA limits to 65535: so they are long.
constexpr int64_t kRow = 1 << 16, kSmallRow = 32, kFloat = 4;
constexpr int kRepeats = 5, kTorchSeconds = 180;

// In: the card's number, bytes of a copy, tokens, a layer's products as "4096x6144,...". Each is
// done until the card is at its clocks, then timed between two events.
constexpr const char* kTorchScript = R"(
import json, sys, time, torch
card, size, tokens = (int(word) for word in sys.argv[1:4])
d = torch.device('cuda', card)
torch.cuda.set_device(d)
def seconds(work, times):
    until = time.monotonic() + 0.5
    while True:
        work()
        torch.cuda.synchronize(d)
        if time.monotonic() > until: break
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a.record()
    for _ in range(times): work()
    b.record()
    torch.cuda.synchronize(d)
    return a.elapsed_time(b) / 1e3 / times
def values(*shape): return torch.randn(*shape, device=d, dtype=torch.bfloat16)
said = {'name': torch.cuda.get_device_name(d), 'version': torch.__version__}
n = 8192
a, b = values(n, n), values(n, n)
said['square'] = 2 * n ** 3 / seconds(lambda: a @ b, 50)
del a, b
shapes = [tuple(int(n) for n in pair.split('x')) for pair in sys.argv[4].split(',')]
pairs = [(values(tokens, i), values(o, i)) for i, o in shapes]
def layer():
    for x, w in pairs: torch.nn.functional.linear(x, w)
said['model'] = sum(2 * tokens * i * o for i, o in shapes) / seconds(layer, 50)
del pairs
try:
    x = torch.ones(size, device=d, dtype=torch.uint8)
    y = torch.empty_like(x)
    said['copy'] = 2 * size / min(seconds(lambda: y.copy_(x), 10) for _ in range(3))
except torch.cuda.OutOfMemoryError as error:
    said['copy_error'] = str(error)
print(json.dumps(said))
)";

// A card that was idle runs at lower clocks: a slow copy would flatter what is held against it.
constexpr std::chrono::milliseconds kWarmUp{300};

}  // namespace

double middle(std::vector<double> values) {
    CLEAVE_CHECK(!values.empty()) << "the middle of nothing";
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), at, values.end());
    return *at;
}

Card::Card(const planner::Machine& machine, runtime::Drivers& drivers,
           const codegen::CompileOptions& compile) {
    planner::Plan plan;
    plan.machine.devices = {machine.devices.at(0)};
    device_ = std::move(runtime::open_devices(plan, drivers, {}).front());
    const planner::DeviceInfo& info = device_->info();
    codegen::GpuTarget target;
    target.device = info.arch;
    target.limits = info.limits;
    program_.arch = info.arch;
    for (int64_t row : {kRow, kSmallRow})
        program_.kernels.push_back(
            codegen::make_gpu_helper(codegen::CopySpec{row, DType::kF32, DType::kF32}, target));
    codegen::CompileOptions options = compile;
    options.drivers = drivers.versions(machine);
    device_->load(codegen::compile(program_, options).objects);
}

void Card::launch(runtime::DeviceAddress from, runtime::DeviceAddress to, int kernel,
                  int64_t rows) {
    const auto row = static_cast<uint64_t>(kernel == 0 ? kRow : kSmallRow);
    const uint64_t args[] = {from, row, to, row};
    const codegen::Launch& how = program_.kernels[static_cast<size_t>(kernel)].launch;
    std::array<int64_t, 3> grid;
    for (size_t i = 0; i < 3; ++i) grid[i] = how.grid[i].at(rows, rows, 1);
    device_->launch(kernel, args, grid, how);
}

template <class Work>
std::vector<double> Card::times(Work work) {
    runtime::DeviceStream& stream = *device_->stream();
    const auto until = std::chrono::steady_clock::now() + kWarmUp;
    do {
        work();
        device_->synchronize();
    } while (std::chrono::steady_clock::now() < until);
    std::vector<double> ms;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
        stream.mark();
        work();
        stream.mark();
        const std::vector<int64_t> times = stream.take_marks();
        ms.push_back(static_cast<double>(times.at(1) - times.at(0)) * 1e-6);
    }
    return ms;
}

Card::Copies Card::copy_bandwidth(int64_t bytes) {
    const planner::DeviceInfo& info = device_->info();
    const int64_t room = (info.memory_bytes - info.reserved_bytes) / 4;
    const int64_t rows = std::min(bytes, room) / (kRow * kFloat);
    if (rows < 1) throw UserError("{}: no room for a copy of {} bytes", info.name, kRow * kFloat);
    Copies copies;
    copies.bytes = rows * kRow * kFloat;
    const runtime::DeviceAddress from = device_->allocate(copies.bytes, "the source of a copy");
    const runtime::DeviceAddress to = device_->allocate(copies.bytes, "its destination");
    device_->fill(from, copies.bytes, 1);
    const auto rate = [&](const std::vector<double>& ms) {
        return 2.0 * static_cast<double>(copies.bytes) /
               (*std::min_element(ms.begin(), ms.end()) * 1e-3);
    };
    copies.kernel = rate(times([&] { launch(from, to, 0, rows); }));
    const runtime::Rectangle whole{1, copies.bytes, copies.bytes, copies.bytes};
    copies.driver = rate(times([&] { device_->stream()->copy_within(from, to, whole); }));
    device_->free(from);
    device_->free(to);
    return copies;
}

double Card::empty_launch_ms(int64_t launches) {
    runtime::DeviceStream& stream = *device_->stream();
    const runtime::DeviceAddress from = device_->allocate(2 * kSmallRow * kFloat, "words");
    const runtime::DeviceAddress to = from + kSmallRow * kFloat;
    device_->fill(from, 2 * kSmallRow * kFloat, 1);
    launch(from, to, 1, 1);
    device_->synchronize();
    stream.begin_capture();
    for (int64_t i = 0; i < launches; ++i) launch(from, to, 1, 1);
    const int graph = stream.end_capture();
    const double ms = middle(times([&] { stream.replay(graph); }));
    device_->synchronize();
    stream.drop_captures();
    device_->free(from);
    return ms / static_cast<double>(launches);
}

std::vector<std::string> unset_driver_variables() {
    std::vector<std::string> unset;
    std::vector<const char*> ours = {"CUDA_MODULE_LOADING"};
    for (const planner::VendorFacts& vendor : planner::vendors())
        ours.push_back(vendor.queues_variable);
    for (const char* name : ours)
        if (!std::getenv(name)) unset.emplace_back(name);
    return unset;
}

TorchRates torch_rates(const std::string& python, const TorchWork& work,
                       const std::vector<std::string>& own_settings) {
    std::string products;
    for (const auto& [in, out] : work.products)
        products += fmt::format("{}{}x{}", products.empty() ? "" : ",", in, out);
    const gpu_check::Outcome ran =
        gpu_check::run({python, "-c", kTorchScript, std::to_string(work.card),
                        std::to_string(work.copy_bytes), std::to_string(work.tokens), products},
                       kTorchSeconds, own_settings);
    TorchRates rates;
    const auto json = nlohmann::json::parse(ran.output, nullptr, false);
    const auto has = [&](const char* key) { return json.is_object() && json.contains(key); };
    if (ran.code == 0 && has("name") && has("version") && has("square") && has("model")) {
        rates.version = json.at("version");
        const std::string name = json.at("name");
        if (name != work.card_name) {
            rates.reason =
                fmt::format("PyTorch's card {} is {}, not {}", work.card, name, work.card_name);
            return rates;
        }
        rates.square_flops = json.at("square");
        rates.model_flops = json.at("model");
        rates.copy_bytes_per_second = json.value("copy", 0.0);
        rates.copy_reason = json.value("copy_error", "");
    } else if (ran.timed_out) {
        rates.reason = fmt::format("{} with PyTorch: not done in {} s", python, kTorchSeconds);
    } else if (ran.code == 127) {
        rates.reason = fmt::format("{}: no such program; --python names one with PyTorch", python);
    } else {
        const size_t from = ran.errors.size() > 1000 ? ran.errors.size() - 1000 : 0;
        rates.reason =
            fmt::format("{} with PyTorch: {}{}", python, ran.output, ran.errors.substr(from));
    }
    return rates;
}

}  // namespace cleave::bench
