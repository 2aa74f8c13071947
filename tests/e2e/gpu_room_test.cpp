// SPDX-License-Identifier: Apache-2.0
// A driver's launch waits inside the driver once its stream holds about a thousand operations, and
// with it whoever else asks that card's context for something: sessions never ask for so many. On
// fakes whose streams have that little room.
#include <chrono>
#include <string>
#include <thread>

#include "runtime/drivers/gpu/stream_points.h"
#include "runtime/generate/generate.h"
#include "tests/e2e/gpu_sessions.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;
using Catch::Matchers::Contains;
using planner::DeviceKind;

namespace {

constexpr int kRoom = static_cast<int>(StreamPoints::kMostPending) + 16;

// So deep that two passes have more launches than a stream has room for.
const importer::Graph& deep_model() {
    static const importer::Graph kGraph = [] {
        models::Shape shape = small_shape();
        shape.config.num_layers = 40;
        return random_model(shape, 1);
    }();
    return kGraph;
}

// A prompt of three passes, and its token.
std::vector<int32_t> run_prompt(const DeviceShape& shape, const SessionOptions& options) {
    planner::Plan plan = plan_for(deep_model(), shape, all_logits_workload(1, 16, 4));
    Session session(plan, options);
    GenerateOptions generation;
    generation.max_new_tokens = 1;
    return generate(session, plan, {{1, 17, 23, 5, 9, 2, 30, 31, 32, 8, 7}}, generation)
        .sequences[0]
        .token_ids;
}

DeviceShape four_on_a_card(DeviceKind kind) {
    return {"four", kind == DeviceKind::kCuda ? "cuda[0]/0-3" : "hip[0]/0-3", 4, 1};
}

}  // namespace

TEST_CASE("no launch of a long prompt waits in the driver behind a kernel that never ends",
          "[e2e]") {
    for (const GpuCalls& vendor : kBothVendors) {
        for (const DeviceShape& shape : {vendor.one, four_on_a_card(vendor.kind)}) {
            for (bool trace : {false, true}) {
                if (trace && vendor.kind == DeviceKind::kHip) continue;
                const InstalledFake fake(vendor.kind);
                fake.live();
                fake.room(kRoom);
                SessionOptions options = options_for_fakes();
                options.watchdog_seconds = 1;
                options.record_trace = trace;
                fake.hang("attention", 1);
                const std::string error =
                    failure_of<DeviceError>([&] { run_prompt(shape, options); });
                INFO(shape.devices << ": " << error);
                CHECK_THAT(error, Contains("step") &&
                                      (Contains("for 1 s") || Contains("waited for 0.9 s")));
                CHECK(fake.calls("waits for ever") == 0);
            }
        }
    }
}

TEST_CASE("logical devices of a card end a long prompt when one of them comes late", "[e2e]") {
    for (const GpuCalls& vendor : kBothVendors) {
        const DeviceShape shape = four_on_a_card(vendor.kind);
        std::vector<int32_t> texts[2];
        for (bool late : {false, true}) {
            const InstalledFake fake(vendor.kind);
            fake.live();
            SessionOptions options = options_for_fakes();
            if (late) {
                fake.room(kRoom);
                fake.late(3, 400);
            }
            texts[late] = run_prompt(shape, options);
            CHECK(fake.alive() == 0);
        }
        CHECK(texts[0] == texts[1]);
    }
}
