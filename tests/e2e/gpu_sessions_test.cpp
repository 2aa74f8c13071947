// SPDX-License-Identifier: Apache-2.0
// What a session asks of a GPU's driver for each token, and what its trace says, on fakes of both
// vendors' libraries whose cards compute.
#include <string>

#include "runtime/generate/generate.h"
#include "tests/e2e/gpu_sessions.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;
using Catch::Matchers::Contains;
using planner::DeviceKind;

TEST_CASE("a token is one copy in, one graph and four bytes out", "[e2e]") {
    for (const GpuCalls& vendor : kBothVendors) {
        const InstalledFake fake(vendor.kind);
        fake.live();
        std::vector<std::array<int, 6>> counts;
        run_model(vendor.one, options_for_fakes(), 8, [&](int) {
            counts.push_back({fake.calls(vendor.launch), fake.calls(vendor.graph),
                              fake.calls(vendor.in), fake.calls(vendor.out),
                              fake.calls(vendor.event), fake.calls("bytes out")});
        });
        INFO(fake.log());
        // Also of the prompt the host wants no more than the token.
        CHECK(counts[0][5] == 4);
        // Token 1 is the prompt's, 2 runs step by step, 3 is captured.
        for (size_t t = 3; t < counts.size(); ++t) {
            CHECK(counts[t][0] == counts[t - 1][0]);
            CHECK(counts[t][1] == counts[t - 1][1] + 1);
            // HIP has one name for both ways.
            const int copies = vendor.in == std::string(vendor.out) ? 2 : 1;
            CHECK(counts[t][2] == counts[t - 1][2] + copies);
            CHECK(counts[t][3] == counts[t - 1][3] + copies);
            CHECK(counts[t][4] == counts[t - 1][4] + 1);  // by which the host sees the token come
            CHECK(counts[t][5] == counts[t - 1][5] + 4);
        }
        CHECK(counts[2][0] == 2 * counts[1][0] - counts[0][0]);  // captured once
        CHECK(fake.calls("pageable copy") == 0);
        CHECK(fake.alive() == 0);
    }
}

TEST_CASE("a token of devices with peers is one graph on each", "[e2e]") {
    for (const GpuCalls& vendor : kBothVendors) {
        const bool cuda = vendor.kind == DeviceKind::kCuda;
        for (const DeviceShape& shape :
             {DeviceShape{"tp 2", cuda ? "cuda[0-1]" : "hip[0-1]", 2, 1}, vendor.logical}) {
            const InstalledFake fake(vendor.kind);
            fake.live();
            std::vector<std::array<int, 3>> counts;
            run_model(shape, options_for_fakes(), 6, [&](int) {
                counts.push_back(
                    {fake.calls(vendor.launch), fake.calls(vendor.graph), fake.calls("bytes out")});
            });
            INFO(shape.devices);
            for (size_t t = 3; t < counts.size(); ++t) {
                CHECK(counts[t][0] == counts[t - 1][0]);
                CHECK(counts[t][1] == counts[t - 1][1] + 2);
                CHECK(counts[t][2] == counts[t - 1][2] + 4);
            }
            CHECK(fake.alive() == 0);
        }
    }
}

TEST_CASE("logical devices whose kernels cannot run side by side are told so, and given back",
          "[e2e]") {
    for (const GpuCalls& vendor : kBothVendors) {
        const InstalledFake fake(vendor.kind);
        fake.live();
        fake.one_at_a_time();
        SessionOptions options = options_for_fakes();
        options.watchdog_seconds = 3;
        const std::string error =
            failure_of<DeviceError>([&] { run_model(vendor.logical, options, 1); });
        const std::string card(planner::device_kind_name(vendor.kind));
        CHECK_THAT(error,
                   Contains("starting the exchange by peer memory") && Contains(card + "[0]/0") &&
                       Contains(card + "[0]/1") &&
                       Contains("did not run at the same time within 2.7 s") &&
                       Contains(vendor.kind == DeviceKind::kCuda ? "CUDA_DEVICE_MAX_CONNECTIONS="
                                                                 : "GPU_MAX_HW_QUEUES="));
        CHECK(fake.alive() == 0);
    }
}

TEST_CASE("where a variable lets launches wait for their kernels it is told as why none meet",
          "[e2e]") {
    struct Variable {
        const GpuCalls& vendor;
        const char *name, *value;
        bool blocks;
    };
    for (const Variable& each : {Variable{kBothVendors[0], "CUDA_LAUNCH_BLOCKING", "1", true},
                                 {kBothVendors[0], "CUDA_LAUNCH_BLOCKING", "0", false},
                                 {kBothVendors[1], "HIP_LAUNCH_BLOCKING", "1", true},
                                 {kBothVendors[1], "AMD_SERIALIZE_KERNEL", "3", true}}) {
        const InstalledFake fake(each.vendor.kind);
        fake.live();
        fake.one_at_a_time();
        const cleave::test::Environment set(each.name, each.value);
        SessionOptions options = options_for_fakes();
        options.watchdog_seconds = 3;
        const std::string error =
            failure_of<DeviceError>([&] { run_model(each.vendor.logical, options, 1); });
        const std::string told = fmt::format("{}={}", each.name, each.value);
        CHECK_THAT(error, Contains("did not run at the same time"));
        if (each.blocks)
            CHECK_THAT(error, Contains(told + " lets") && !Contains("hardware queue"));
        else
            CHECK_THAT(error, !Contains(told) && Contains("hardware queue"));
    }
}

TEST_CASE("all events of a session are made before its first kernel is launched", "[e2e]") {
    for (const GpuCalls& vendor : kBothVendors) {
        const char* mixed = vendor.kind == DeviceKind::kCuda ? "cuda[0],host[0]" : "hip[0],host[0]";
        for (const DeviceShape& shape :
             {vendor.logical, vendor.two, DeviceShape{"mixed", mixed, 2, 1}}) {
            for (int recorded = 0; recorded < 3; ++recorded) {
                const InstalledFake fake(vendor.kind);
                fake.live();
                SessionOptions options = options_for_fakes();
                options.record_trace = recorded == 1;
                options.record_passes = recorded == 2;
                run_model(shape, options, 6);
                INFO(shape.devices << " " << recorded);
                CHECK(fake.calls(vendor.launch) > 0);
                CHECK(fake.calls("event beside kernels") == 0);
                CHECK(fake.alive() == 0);
            }
        }
    }
}

TEST_CASE("a trace of passes has all of more passes in a row than it has marks for", "[e2e]") {
    const GpuCalls& vendor = kBothVendors[0];
    const InstalledFake fake(vendor.kind);
    fake.live();
    planner::Plan plan = plan_for(small_model(), vendor.logical, all_logits_workload(1, 32, 32));
    SessionOptions options = options_for_fakes();
    options.record_passes = true;
    Session session(plan, options);
    fake.seen_late(20'000);  // of the first row's origin: the rows are still one after another
    const std::vector<Batch> passes(150, {{5}, {0}, {0}, {0, 1}, {0}, false});
    session.run_greedy(passes);
    CHECK(fake.calls("event beside kernels") == 0);
    const std::vector<TraceEvent>& events = session.trace().events;
    REQUIRE(events.size() == 2 * passes.size());
    for (size_t i = 0; i < events.size(); ++i) {
        CHECK(events[i].pass == static_cast<int32_t>(i % passes.size()));
        CHECK(events[i].start_ns <= events[i].end_ns);
        if (events[i].pass > 0) CHECK(events[i - 1].end_ns <= events[i].start_ns);
    }
}

TEST_CASE("a trace of passes has each pass once, whole, with decode replayed", "[e2e]") {
    for (const GpuCalls& vendor : kBothVendors) {
        const InstalledFake fake(vendor.kind);
        fake.live();
        planner::Plan plan = plan_for(small_model(), vendor.one, all_logits_workload(1, 32, 32));
        SessionOptions options = options_for_fakes();
        options.record_passes = true;
        {
            Session session(plan, options);
            std::vector<Batch> passes{{{1, 17}, {0, 1}, {0, 0}, {0, 2}, {1}, true}};
            for (int32_t i = 2; i < 8; ++i) passes.push_back({{5}, {i}, {0}, {0, 1}, {0}, false});
            session.run_greedy(std::span(passes).first(1));
            session.run_greedy(std::span(passes).subspan(1));
            CHECK(fake.calls(vendor.graph) == 5);  // all tokens but the first
            const std::vector<TraceEvent>& events = session.trace().events;
            REQUIRE(events.size() == passes.size());
            for (size_t i = 0; i < events.size(); ++i) {
                CHECK(events[i].pass == static_cast<int32_t>(i));
                CHECK(events[i].is_prefill == passes[i].is_prefill);
                CHECK_FALSE(events[i].step.valid());
                CHECK(events[i].start_ns <= events[i].end_ns);
                // Passes of one call share the origin of their times; the host's clock sets it anew
                // for each.
                if (i > 1) CHECK(events[i - 1].end_ns <= events[i].start_ns);
            }
            CHECK_THAT(trace_to_perfetto(session.trace(), plan),
                       Contains("\"name\":\"prefill\"") && Contains("\"name\":\"decode\""));
        }
        CHECK(fake.alive() == 0);
    }
}

TEST_CASE("the host is two chunks of a prompt ahead of a card, no more", "[e2e]") {
    for (const GpuCalls& vendor : kBothVendors) {
        const InstalledFake fake(vendor.kind);
        fake.live(300);
        planner::Workload workload = all_logits_workload(1, 32, 4);
        workload.all_logits = false;
        planner::Plan plan = plan_for(small_model(), vendor.one, workload);
        Session session(plan, options_for_fakes());
        const int before = fake.calls(vendor.event);
        const std::vector<int32_t> prompt(24, 7);
        GenerateOptions generation;
        generation.max_new_tokens = 1;
        generate(session, plan, {prompt}, generation);
        // A fence for each of six chunks, and the last one's logits.
        CHECK(fake.calls(vendor.event) == before + 6 + 1);
    }
}

TEST_CASE("no peer replays a graph before all have theirs on their cards", "[e2e]") {
    for (const GpuCalls& vendor : kBothVendors) {
        const InstalledFake fake(vendor.kind);
        fake.live();
        run_model(vendor.logical, options_for_fakes(), 5);
        const bool cuda = vendor.kind == DeviceKind::kCuda;
        const std::string log = fake.log(), upload = cuda ? "cuGraphUpload" : "hipGraphUpload";
        CHECK(fake.calls(upload) == 2);
        CHECK(fake.calls(vendor.graph) == 2 * 3);
        CHECK(log.rfind(upload) < log.find(vendor.graph));
        CHECK(log.rfind(cuda ? "cuGraphInstantiateWithFlags" : "hipGraphInstantiate") <
              log.find(vendor.graph));
        CHECK(fake.alive() == 0);
    }
}

TEST_CASE("of more shapes than graphs are kept of, no peer gives its graphs back while one waits",
          "[e2e]") {
    // Numbers of sequences, and of those that give logits or tokens: 42 shapes, each captured at
    // its second pass.
    const auto pass = [](int tokens, int outputs) {
        Batch batch;
        batch.is_prefill = false;
        for (int i = 0; i < tokens; ++i) {
            batch.token_ids.push_back(7 * i + 1);
            batch.positions.push_back(0);
            batch.slots.push_back(i);
            batch.sequence_starts.push_back(i);
        }
        batch.sequence_starts.push_back(tokens);
        for (int i = 0; i < outputs; ++i) batch.output_rows.push_back(i);
        return batch;
    };
    for (const GpuCalls& vendor : kBothVendors) {
        const InstalledFake fake(vendor.kind);
        fake.live();
        planner::Plan plan =
            plan_for(small_model(), vendor.logical, all_logits_workload(6, 32, 32));
        SessionOptions options = options_for_fakes();
        options.watchdog_seconds = 20;
        Session session(plan, options);
        std::vector<std::vector<float>> first, second;
        for (auto* logits : {&first, &second})
            for (int tokens = 1; tokens <= 6; ++tokens)
                for (int outputs = 1; outputs <= tokens; ++outputs) {
                    const std::vector<Batch> twice(2, pass(tokens, outputs));
                    for (auto& rows : session.run(twice)) logits->push_back(std::move(rows));
                    session.run_greedy(twice);
                }
        CHECK(first == second);
        CHECK(fake.calls(vendor.kind == DeviceKind::kCuda ? "cuGraphExecDestroy"
                                                          : "hipGraphExecDestroy") >= 2 * 32);
        CHECK(fake.calls("waits for ever") == 0);
    }
}

TEST_CASE("without graphs the kernels of a token are launched one by one", "[e2e]") {
    for (const GpuCalls& vendor : kBothVendors) {
        const InstalledFake fake(vendor.kind);
        fake.live();
        {
            const cleave::test::Environment off("CLEAVE_GPU_GRAPHS", "0");
            run_model(vendor.logical, options_for_fakes(), 4);
        }
        CHECK(fake.calls(vendor.graph) == 0);
        const cleave::test::Environment odd("CLEAVE_GPU_GRAPHS", "off");
        CHECK_THAT(user_error([&] { run_model(vendor.one, options_for_fakes(), 1); }),
                   Contains("CLEAVE_GPU_GRAPHS=off"));
        CHECK(fake.alive() == 0);
    }
}

TEST_CASE("no copy of a mixed plan is from or to memory that its driver has not pinned", "[e2e]") {
    for (const DeviceShape& shape : {DeviceShape{"stages", "host[0],cuda[0],hip[0],host[1]", 1, 4},
                                     DeviceShape{"shards", "cuda[0],hip[0],host[0]", 3, 1}}) {
        INFO(shape.name);
        const InstalledFake cuda(DeviceKind::kCuda), hip(DeviceKind::kHip);
        cuda.live();
        hip.live();
        int cuda_pinned = 0, hip_pinned = 0;
        run_model(shape, options_for_fakes(), 4, [&](int token) {
            if (token > 1) {
                CHECK(cuda.calls("cuMemHostAlloc") == cuda_pinned);
                CHECK(hip.calls("hipHostMalloc") == hip_pinned);
            }
            cuda_pinned = cuda.calls("cuMemHostAlloc");
            hip_pinned = hip.calls("hipHostMalloc");
        });
        for (const InstalledFake* fake : {&cuda, &hip}) {
            CHECK(fake->calls("bytes in") > 0);
            CHECK(fake->calls("pageable copy") == 0);
            CHECK(fake->alive() == 0);
        }
    }
}

TEST_CASE("a trace from devices' events holds the plan step by step", "[e2e]") {
    const InstalledFake cuda(DeviceKind::kCuda), hip(DeviceKind::kHip);
    cuda.live(100);
    hip.live(100);
    planner::Plan plan = plan_for(small_model(), {"both", "cuda[0],hip[0],host[0]", 3, 1},
                                  all_logits_workload(1, 32, 32));
    SessionOptions options = options_for_fakes();
    options.record_trace = true;
    Session session(plan, options);
    GenerateOptions generation;
    generation.max_new_tokens = 3;
    generate(session, plan, {{1, 17, 23, 5}}, generation);
    std::map<std::pair<int, int>, std::vector<TraceEvent>> traced;  // by pass and device
    for (const TraceEvent& event : session.trace().events)
        traced[{event.pass, event.device.value}].push_back(event);
    REQUIRE(traced.size() == 3 * plan.machine.devices.size());
    for (const auto& [key, events] : traced) {
        const planner::Phase& phase = plan.phase(key.first == 0);
        size_t next = 0;
        for (size_t s = 0; s < phase.steps.size(); ++s) {
            const planner::Compute* compute = phase.steps[s].compute();
            if (compute && compute->device.value != key.second) continue;
            if (!compute && events.size() > next && events[next].step.index() != s)
                continue;  // a communication of others
            REQUIRE(next < events.size());
            CHECK(events[next].step.index() == s);
            CHECK(events[next].start_ns <= events[next].end_ns);
            if (next > 0) CHECK(events[next - 1].end_ns <= events[next].start_ns);
            ++next;
        }
        CHECK(next == events.size());
        // Of a card: each piece of its work takes 100 us, and a launch is between two marks.
        if (plan.machine.devices[static_cast<size_t>(key.second)].kind != DeviceKind::kHost)
            CHECK(events.front().end_ns - events.front().start_ns >= 100'000);
    }
}
