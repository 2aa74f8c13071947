// SPDX-License-Identifier: Apache-2.0
// What becomes of every fault of a session on GPUs, on fakes of both vendors' libraries whose cards
// compute: calls that fail, kernels that fault or never end, too little memory, Ctrl-C.
#include <chrono>
#include <regex>
#include <string>
#include <thread>

#include "runtime/generate/generate.h"
#include "tests/e2e/gpu_sessions.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;
using Catch::Matchers::Contains;
using planner::DeviceKind;

TEST_CASE(
    "whatever call of a driver fails in load, upload, capture or run is named, and all memory "
    "is given back",
    "[e2e]") {
    const cleave::test::Environment pools("CLEAVE_HIP_POOLS", "1");
    for (const GpuCalls& vendor : kBothVendors) {
        for (const char* call : vendor.all) {
            for (int nth : {1, 2}) {
                // The last questions to a stream are asked when the run is over.
                if (nth == 2 && std::string(call).find("StreamQuery") != std::string::npos)
                    continue;
                const InstalledFake fake(vendor.kind);
                fake.live();
                fake.fail(call, nth, 999);
                const std::string error =
                    failure_of<DeviceError>([&] { run_model(vendor.one, options_for_fakes(), 6); });
                INFO(call << " " << nth << ": " << fake.calls(call));
                if (fake.calls(call) >= nth) CHECK_THAT(error, Contains(call));
                CHECK(fake.calls(call) > 0);
                CHECK(fake.alive() == 0);
            }
        }
    }
}

TEST_CASE("a peer mapping that fails names both cards and the way without it", "[e2e]") {
    const cleave::test::Environment pools("CLEAVE_HIP_POOLS", "1");
    for (const GpuCalls& vendor : kBothVendors) {
        const bool cuda = vendor.kind == DeviceKind::kCuda;
        for (const char* call : {cuda ? "cuCtxEnablePeerAccess" : "hipDeviceEnablePeerAccess",
                                 cuda ? "cuMemPoolSetAccess" : "hipMemPoolSetAccess"}) {
            for (int nth : {1, 2}) {
                const InstalledFake fake(vendor.kind);
                fake.live();
                fake.fail(call, nth, 711);  // too many peers
                const std::string error =
                    failure_of<DeviceError>([&] { run_model(vendor.two, options_for_fakes(), 1); });
                INFO(call << " " << nth);
                const std::string card(planner::device_kind_name(vendor.kind));
                CHECK_THAT(error, Contains(call) && Contains(card + "[0]") &&
                                      Contains(card + "[1]") && Contains("$machine"));
                CHECK(fake.alive() == 0);
            }
        }
    }
}

TEST_CASE("too little memory is told with the plan's bytes and the driver's", "[e2e]") {
    for (const GpuCalls& vendor : kBothVendors) {
        const InstalledFake fake(vendor.kind);
        fake.live();
        planner::Plan plan = plan_for(small_model(), vendor.one, all_logits_workload(1, 32, 32));
        const int64_t all = plan.machine.devices[0].memory_bytes;
        fake.take(all - 100'000);
        const std::string error =
            failure_of<DeviceError>([&] { Session session(plan, options_for_fakes()); });
        CHECK_THAT(error, Contains("bytes free") && Contains(std::to_string(all)) &&
                              Contains(plan.machine.devices[0].name));
        CHECK(fake.alive() == 0);
    }
}

TEST_CASE("a kernel's fault names steps and kernels, and with step by step the one", "[e2e]") {
    for (const GpuCalls& vendor : kBothVendors) {
        for (bool step_by_step : {false, true}) {
            const InstalledFake fake(vendor.kind);
            fake.live();
            SessionOptions options = options_for_fakes();
            options.step_by_step = step_by_step;
            const std::string error = failure_of<DeviceError>([&] {
                run_model(vendor.two, options, 6, [&](int token) {
                    if (token == 4) fake.fault("attention", 1);
                });
            });
            INFO(error);
            CHECK_THAT(error, Contains("decode step") && Contains("(kernel ") &&
                                  (Contains("IllegalAddress", Catch::CaseSensitive::No) ||
                                   Contains("ILLEGAL_ADDRESS")));
            if (step_by_step)
                CHECK_THAT(error, Contains("(kernel attention") && !Contains("a step from"));
            else
                CHECK_THAT(error, Contains("a step from") && Contains("$step_by_step"));
            CHECK(fake.alive() == 0);
        }
    }
}

TEST_CASE(
    "a fault of one of a card's devices is told as one of those that share it, with all places",
    "[e2e]") {
    for (const GpuCalls& vendor : kBothVendors) {
        for (bool step_by_step : {false, true}) {
            const InstalledFake fake(vendor.kind);
            fake.live();
            fake.only_on(1);  // the second device's
            SessionOptions options = options_for_fakes();
            options.step_by_step = step_by_step;
            const std::string error = failure_of<DeviceError>([&] {
                run_model(vendor.logical, options, 6, [&](int token) {
                    if (token == 4) fake.fault("attention", 1);
                });
            });
            INFO(error);
            const std::string card(planner::device_kind_name(vendor.kind));
            CHECK_THAT(error, Contains("one of " + card + "[0]/0 in ") &&
                                  Contains(" and " + card + "[0]/1 in ") &&
                                  Contains("share a card") && !Contains("the step that fails"));
            CHECK_THAT(error, Contains("IllegalAddress", Catch::CaseSensitive::No) ||
                                  Contains("ILLEGAL_ADDRESS"));
            if (step_by_step)
                CHECK_THAT(error.substr(error.find(" and ")), Contains("(kernel attention"));
            else
                CHECK_THAT(error, Contains("a step from") && Contains("$step_by_step"));
            CHECK(fake.alive() == 0);
        }
    }
}

TEST_CASE("a fault between staged sums is told with the steps from the one sum to the next",
          "[e2e]") {
    for (const GpuCalls& vendor : kBothVendors) {
        const InstalledFake fake(vendor.kind);
        fake.live();
        const DeviceShape mixed{
            "mixed", vendor.kind == DeviceKind::kCuda ? "cuda[0],host[0]" : "hip[0],host[0]", 2, 1};
        const planner::Plan plan = plan_for(small_model(), mixed, all_logits_workload(1, 32, 32));
        const std::string error = failure_of<DeviceError>([&] {
            run_model(mixed, options_for_fakes(), 6, [&](int token) {
                if (token == 4) fake.fault("attention", 2);  // of the second layer
            });
        });
        INFO(error);
        std::smatch at;
        REQUIRE(std::regex_search(
            error, at,
            std::regex("a step from decode step ([0-9]+) \\(.*\\) of pass ([0-9]+) to decode step "
                       "([0-9]+) \\(.*\\) of pass ([0-9]+)")));
        CHECK(at[2] == at[4]);
        const size_t first = std::stoul(at[1]), last = std::stoul(at[3]);
        REQUIRE(last < plan.decode.steps.size());
        CHECK(plan.decode.steps[first].collective());
        bool attends = false;
        for (size_t s = first + 1; s < last; ++s) {
            CHECK_FALSE(plan.decode.steps[s].collective());
            const planner::Compute* compute = plan.decode.steps[s].compute();
            attends = attends || (compute && compute->kernel == planner::KernelKind::kAttention);
        }
        CHECK(attends);
        CHECK(fake.alive() == 0);
    }
}

TEST_CASE("a lost device ends the run with its name", "[e2e]") {
    for (const GpuCalls& vendor : kBothVendors) {
        const InstalledFake fake(vendor.kind);
        fake.live();
        const std::string error = failure_of<DeviceError>([&] {
            run_model(vendor.two, options_for_fakes(), 6, [&](int token) {
                if (token == 4) fake.break_down(214);  // an ECC error
            });
        });
        CHECK_THAT(error, Contains(std::string(planner::device_kind_name(vendor.kind)) + "["));
        CHECK(fake.alive() == 0);
    }
}

TEST_CASE("a kernel that never ends is given up by the watchdog with its step, or by the user",
          "[e2e]") {
    for (const GpuCalls& vendor : kBothVendors) {
        const bool cuda = vendor.kind == DeviceKind::kCuda;
        for (const DeviceShape& shape : {cuda ? vendor.two : vendor.one, vendor.logical}) {
            const InstalledFake fake(vendor.kind);
            fake.live();
            SessionOptions options = options_for_fakes();
            options.watchdog_seconds = 1;
            const std::string error = failure_of<DeviceError>([&] {
                run_model(shape, options, 6, [&](int token) {
                    if (token == 4) fake.hang("attention", 1);
                });
            });
            INFO(shape.devices << ": " << error);
            // By the waiting host, or by the kernel of a peer that waits for it.
            CHECK_THAT(error,
                       Contains("step") && (Contains("for 1 s") || Contains("waited for 0.9 s")));
            // Neither its device nor one that shares the card, or its memory, was asked for what
            // waits for the kernel.
            CHECK(fake.calls("waits for ever") == 0);
        }
        // Ctrl-C on logical devices of a card.
        const InstalledFake fake(vendor.kind);
        fake.live();
        CancelToken cancel;
        SessionOptions options = options_for_fakes();
        options.watchdog_seconds = 1;  // and as long for a device that is given up
        options.cancel = &cancel;
        std::thread user;
        CHECK(failure_of<Cancelled>([&] {
                  run_model(vendor.logical, options, 6, [&](int token) {
                      if (token != 4) return;
                      fake.hang("attention", 1);
                      user = std::thread([&] {
                          std::this_thread::sleep_for(std::chrono::milliseconds(300));
                          cancel.cancel();
                      });
                  });
              }) == "interrupted");
        user.join();
        CHECK(fake.calls("waits for ever") == 0);
    }
    for (const GpuCalls& vendor : kBothVendors) {
        // Ctrl-C in prefill; the kernel ends a little later, and nothing stays.
        const InstalledFake fake(vendor.kind);
        fake.live();
        CancelToken cancel;
        SessionOptions options = options_for_fakes();
        options.cancel = &cancel;
        fake.hang("attention", 1);
        std::thread user([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
            cancel.cancel();
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            fake.release();
        });
        CHECK(failure_of<Cancelled>([&] { run_model(vendor.two, options, 6); }) == "interrupted");
        user.join();
        CHECK(fake.alive() == 0);
    }
}

TEST_CASE("an interrupt during upload or decode ends the run and gives all back", "[e2e]") {
    for (const GpuCalls& vendor : kBothVendors) {
        for (bool in_upload : {true, false}) {
            const InstalledFake fake(vendor.kind);
            fake.live();
            CancelToken cancel;
            SessionOptions options = options_for_fakes();
            options.cancel = &cancel;
            if (in_upload) options.upload_progress = [&](int64_t, int64_t) { cancel.cancel(); };
            CHECK(failure_of<Cancelled>([&] {
                      run_model(vendor.one, options, 8, [&](int token) {
                          if (token == 4) cancel.cancel();
                      });
                  }) == "interrupted");
            CHECK(fake.alive() == 0);
        }
    }
}

TEST_CASE("a running prompt of several chunks is interrupted before all are asked for", "[e2e]") {
    for (const GpuCalls& vendor : kBothVendors) {
        for (const DeviceShape& shape : {vendor.one, vendor.two}) {
            int launches[2] = {0, 0};
            for (bool interrupted : {false, true}) {
                const InstalledFake fake(vendor.kind);
                fake.live();
                CancelToken cancel;
                SessionOptions options = options_for_fakes();
                options.cancel = &cancel;
                planner::Plan plan = plan_for(small_model(), shape, all_logits_workload(1, 32, 4));
                Session session(plan, options);
                GenerateOptions generation;
                generation.max_new_tokens = 1;
                generation.cancel = &cancel;
                const auto run = [&] {
                    generate(session, plan, {std::vector<int32_t>(28, 17)}, generation);
                };
                if (!interrupted) {
                    run();
                } else {
                    // After both layers of two chunks of seven.
                    fake.hang("attention", 5);
                    std::thread user([&] {
                        while (fake.calls("hangs") == 0) std::this_thread::yield();
                        cancel.cancel();
                        std::this_thread::sleep_for(std::chrono::milliseconds(50));
                        fake.release();
                    });
                    CHECK(failure_of<Cancelled>(run) == "interrupted");
                    user.join();
                }
                launches[interrupted] = fake.calls(vendor.launch);
            }
            INFO(shape.devices << " " << launches[1] << " of " << launches[0]);
            CHECK(launches[1] > 0);
            CHECK(launches[1] < launches[0]);
        }
    }
}
