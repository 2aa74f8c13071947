// SPDX-License-Identifier: Apache-2.0
// What goes through the host's memory in pieces, where a GPU sends or receives: transfers and sums.
#include <numeric>
#include <thread>

#include "runtime/drivers/gpu/gpu_device.h"
#include "runtime/drivers/host/host_device.h"
#include "runtime/exchange/communication.h"
#include "tests/runtime/support/support.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using cleave::test::FakeGpu;
using planner::DeviceKind;

TEST_CASE("a transfer in pieces brings every row, pass after pass", "[runtime]") {
    const FakeGpu cuda(DeviceKind::kCuda), hip(DeviceKind::kHip);
    cuda.live(200);
    runtime::test::TinyPlan tiny;
    tiny.plan.machine.devices[0].kind = DeviceKind::kCuda;
    tiny.plan.machine.devices[1].kind = DeviceKind::kHip;
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(make_gpu_device(cuda.driver(), 0, tiny.plan.machine.devices[0], {}));
    devices.push_back(make_gpu_device(hip.driver(), 0, tiny.plan.machine.devices[1], {}));
    {
        const Arenas arenas(tiny.plan, devices);
        RunControl control(10, nullptr, false);
        const planner::Phase& phase = tiny.plan.prefill;
        CommunicationContext context{tiny.plan, phase, arenas, control, "the transfer"};
        context.piece_bytes = 40;  // two and a half rows of four numbers
        auto transfer = make_communication(context, phase.steps[1]);
        const planner::Transfer& step = *phase.steps[1].transfer();
        const PlacedView from = arenas.view(phase, step.source),
                         to = arenas.view(phase, step.destination);
        std::vector<StagingLane> lanes;
        for (size_t d = 0; d < 2; ++d) {
            const ExchangeArea area = arenas.exchange(planner::DeviceId(d));
            lanes.emplace_back("lane", devices[d]->stream()->pinned_memory(256).data(),
                               area.bytes ? area.bytes : 256);
        }
        for (uint64_t round = 0; round < 6; ++round) {
            const int64_t tokens = round % 2 ? 1 : 8;
            std::vector<float> sent(static_cast<size_t>(tokens) * 4), got(sent.size());
            std::iota(sent.begin(), sent.end(), static_cast<float>(100 * round));
            devices[0]->upload(from.address, std::as_bytes(std::span(sent)));
            const PassShape shape{tokens, 1, 1};
            std::thread receiver([&] {
                transfer->take_part({planner::DeviceId(1), *devices[1], lanes[1]}, shape, round);
            });
            CHECK(transfer->take_part({planner::DeviceId(0), *devices[0], lanes[0]}, shape,
                                      round) == 0);
            receiver.join();
            devices[1]->download(to.address, std::as_writable_bytes(std::span(got)));
            CHECK(got == sent);
        }
    }
    devices.clear();
    CHECK(cuda.alive() + hip.alive() == 0);
}

TEST_CASE(
    "a sum in pieces is every member's, in both forms, beside a host and after long and short",
    "[runtime]") {
    for (bool two_phase : {false, true}) {
        const FakeGpu cuda(DeviceKind::kCuda);
        cuda.live(100);
        runtime::test::TinyPlan tiny;
        tiny.plan.machine.devices[0].kind = DeviceKind::kCuda;
        size_t at = 0;
        planner::Phase& phase = tiny.plan.prefill;
        while (!phase.steps[at].collective()) ++at;
        auto& step = std::get<planner::Collective>(phase.steps[at].action);
        step.two_phase = two_phase;
        REQUIRE(step.group.size() == 2);
        std::vector<std::unique_ptr<Device>> devices;
        devices.push_back(make_gpu_device(cuda.driver(), 0, tiny.plan.machine.devices[0], {}));
        devices.push_back(make_host_device(tiny.plan.machine.devices[1], {1, false, false},
                                           runtime::test::fixed_kernels({})));
        {
            const Arenas arenas(tiny.plan, devices);
            RunControl control(10, nullptr, false);
            CommunicationContext context{tiny.plan, phase, arenas, control, "the sum"};
            context.piece_bytes = 40;
            auto sum = make_communication(context, phase.steps[at]);
            std::vector<StagingLane> lanes;
            lanes.emplace_back("cuda", devices[0]->stream()->pinned_memory(256).data(), 256);
            lanes.emplace_back("host", nullptr, 256);
            for (uint64_t round = 0; round < 6; ++round) {
                const int64_t tokens = round % 2 ? 1 : 8;
                const auto count = static_cast<size_t>(tokens * runtime::test::TinyPlan::kColumns);
                std::vector<float> wanted(count, 0.0f), got(count);
                const auto put = [&](planner::PlacedId id, float scale) {
                    std::vector<float> values(count);
                    for (size_t i = 0; i < count; ++i)
                        values[i] = scale * static_cast<float>(i + 10 * round);
                    const size_t d = phase.values[id.index()].device.index();
                    devices[d]->upload(arenas.view(phase, id).address,
                                       std::as_bytes(std::span(values)));
                    return values;
                };
                for (size_t c = 0; c < step.contributions.size(); ++c) {
                    const auto values = put(step.contributions[c], static_cast<float>(c + 1));
                    for (size_t i = 0; i < count; ++i) wanted[i] += values[i];
                }
                for (size_t m = 0; m < step.epilogue_inputs.size(); ++m) {
                    const auto values = put(step.epilogue_inputs[m], 0.5f);
                    for (size_t i = 0; m == 0 && i < count; ++i) wanted[i] += values[i];
                }
                const int before = cuda.calls("cuMemcpyDtoHAsync_v2");
                const PassShape shape{tokens, 1, 1};
                std::thread host([&] {
                    sum->take_part({planner::DeviceId(1), *devices[1], lanes[1]}, shape, round);
                });
                const int64_t received =
                    sum->take_part({planner::DeviceId(0), *devices[0], lanes[0]}, shape, round);
                host.join();
                CHECK(received == static_cast<int64_t>(count * sizeof(float)));
                // 128 bytes go in four pieces.
                if (tokens == 8) CHECK(cuda.calls("cuMemcpyDtoHAsync_v2") >= before + 4);
                for (planner::PlacedId out : step.outputs) {
                    const size_t d = phase.values[out.index()].device.index();
                    devices[d]->download(arenas.view(phase, out).address,
                                         std::as_writable_bytes(std::span(got)));
                    CHECK(got == wanted);
                }
            }
        }
        devices.clear();
        CHECK(cuda.alive() == 0);
    }
}

TEST_CASE("a sum goes to the card piece by piece, while later pieces of its sources still come",
          "[runtime]") {
    for (const planner::VendorFacts& vendor : planner::vendors()) {
        const DeviceKind kind = vendor.kind;
        for (bool with_residual : {false, true}) {
            const FakeGpu fake(kind);
            fake.live();
            planner::DeviceInfo info = runtime::test::host_info(0, 1 << 24);
            info.kind = kind;
            auto device = make_gpu_device(fake.driver(), 0, info, {});
            constexpr int64_t kCount = 5 * (int64_t{1} << 18);  // 5 MiB
            const DeviceAddress a = device->allocate(4 * kCount, "a");
            std::vector<float> terms(kCount, 0.0f), got(kCount);
            device->upload(a, std::as_bytes(std::span(terms)));
            device->synchronize();
            const std::byte* sources[] = {reinterpret_cast<const std::byte*>(terms.data())};
            const int before = fake.calls("bytes in");
            int64_t arrived = 0, pieces = 0;
            device->reduce(sources, with_residual ? a : 0, a, kCount, DType::kF32, [&](int64_t n) {
                // All that came before is on its way to the card.
                CHECK(fake.calls("bytes in") - before == arrived);
                for (int64_t i = arrived / 4; i < n / 4; ++i)
                    terms[static_cast<size_t>(i)] = static_cast<float>(i);
                arrived = n;
                ++pieces;
            });
            CHECK(pieces == 5);
            device->download(a, std::as_writable_bytes(std::span(got)));
            CHECK(got == terms);
        }
    }
}
