// SPDX-License-Identifier: Apache-2.0
// A card that does nothing any more is found before the first pass, too: nobody waits for it without end.
#include <chrono>
#include <thread>

#include "runtime/drivers/gpu_device.h"
#include "runtime/gpu_devices.h"
#include "tests/e2e/support.h"
#include "tests/runtime/fake_gpus.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;
using Catch::Matchers::Contains;
using planner::DeviceKind;
using runtime::test::fake_kernel;
using runtime::test::InstalledFake;

namespace {

// A card that a kernel holds which never ends, and has room for nothing beside it.
class HeldCard {
public:
    explicit HeldCard(DeviceKind kind) : fake_(kind) {
        fake_.live();
        fake_.one_at_a_time();
    }
    const InstalledFake& fake() const { return fake_; }
    void hold(DeviceKind kind, const planner::Device& info) {
        device_ = make_gpu_device(gpu_driver(kind).driver, 0, info, {});
        device_->load(fake_kernel("nothing"));
        fake_.hang("nothing", 1);
        device_->launch(0, {}, {1, 1, 1}, {});
        while (fake_.calls("hangs") == 0) std::this_thread::yield();
    }
    ~HeldCard() { fake_.release(); }

private:
    InstalledFake fake_;
    std::unique_ptr<runtime::Device> device_;
};

}  // namespace

TEST_CASE(
    "a card that does nothing ends the preparation of a session with its name, or the user does",
    "[e2e]") {
    const importer::Graph graph = random_model(small_shape(), 1);
    // Of one device the weights wait first, of two the words in which they signal.
    const DeviceShape alone{"alone", "cuda[0]", 1, 1}, logical{"logical", "cuda[0]/0-1", 2, 1};
    for (const auto& [shape, what] :
         {std::pair{alone, "bringing the weights"}, std::pair{logical, "clearing its memory"}}) {
        HeldCard card(DeviceKind::kCuda);
        const planner::Plan plan = plan_for(graph, shape, all_logits_workload(1, 32, 32));
        card.hold(DeviceKind::kCuda, plan.machine.devices[0]);
        SessionOptions options;
        options.compile.gpu_compiler = "simt";
        options.watchdog_seconds = 1;
        CHECK_THAT(failure_of<DeviceError>([&] { Session(plan, options); }),
                   Contains(what) && Contains("cuda[0]") && Contains("has done nothing for 1 s"));
        CancelToken cancel;
        options.cancel = &cancel;
        options.watchdog_seconds = 600;
        std::thread user([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
            cancel.cancel();
        });
        CHECK(failure_of<Cancelled>([&] { Session(plan, options); }) == "interrupted");
        user.join();
    }
}
