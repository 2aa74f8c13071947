// SPDX-License-Identifier: Apache-2.0
// A card that does nothing any more is found before the first pass, too: nobody waits for it
// without end, nor for calls of its driver that wait for it.
#include <chrono>
#include <functional>
#include <thread>

#include "runtime/cards/cards.h"
#include "runtime/drivers/gpu/gpu_device.h"
#include "tests/e2e/support.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;
using Catch::Matchers::Contains;
using planner::DeviceKind;

namespace {

// A card that a kernel holds which never ends.
class HeldCard {
public:
    explicit HeldCard(DeviceKind kind) : fake_(kind), kind_(kind) { fake_.live(); }
    Drivers& drivers() const { return fake_.drivers(); }
    const InstalledFake& fake() const { return fake_; }
    void hold(const planner::DeviceInfo& info) {
        device_ = make_gpu_device(drivers().driver(kind_).driver, 0, info, {});
        device_->load(fake_kernel("nothing"));
        fake_.hang("nothing", 1);
        device_->launch(0, {}, {1, 1, 1}, {});
        while (fake_.calls("hangs") == 0) std::this_thread::yield();
    }
    ~HeldCard() {
        fake_.release();
        while (drivers().has_card_left_alone()) std::this_thread::yield();
    }

private:
    InstalledFake fake_;
    DeviceKind kind_;
    std::unique_ptr<runtime::Device> device_;
};

struct Preparation {
    DeviceKind kind;
    DeviceShape shape;
    std::function<void(const InstalledFake&)> arrange;
    const char* what;  // is done when the card is found to do nothing
};

const DeviceShape kAlone{"alone", "cuda[0]", 1, 1};

// A card that has room for nothing beside the kernel, and one on which the calls of that name wait
// for it.
void has_no_room(const InstalledFake& fake) {
    fake.load_beside_work();
    fake.one_at_a_time();
}
std::function<void(const InstalledFake&)> blocks_in(const char* call) {
    return [=](const InstalledFake& fake) {
        fake.load_beside_work();
        fake.block(call);
    };
}

// In session after session on the card that is held.
void check_watchdog(const Preparation& each, bool and_user) {
    const importer::Graph graph = random_model(small_shape(), 1);
    HeldCard card(each.kind);
    planner::Plan plan = plan_for(graph, each.shape, all_logits_workload(1, 32, 32));
    each.arrange(card.fake());
    card.hold(plan.machine.devices[0]);
    SessionOptions options = options_for_fakes();
    options.drivers = &card.drivers();
    options.watchdog_seconds = 1;
    CHECK_THAT(failure_of<DeviceError>([&] { Session(plan, options); }),
               Contains(each.what) && Contains(plan.machine.devices[0].name) &&
                   Contains("has done nothing for 1 s"));
    if (and_user) {
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
    // Nobody asked the driver to give back what waits for the kernel.
    CHECK(card.fake().calls("waits for ever") == 0);
}

}  // namespace

TEST_CASE(
    "a card that does nothing ends the preparation of a session with its name, or the user does",
    "[e2e]") {
    const auto loads_wait = [](const InstalledFake&) {};
    // Of one device the weights wait first, of two the words in which they signal.
    for (const Preparation& each :
         {Preparation{DeviceKind::kCuda, kAlone, loads_wait, "loading its kernels"},
          {DeviceKind::kHip, {"alone", "hip[0]", 1, 1}, loads_wait, "loading its kernels"},
          {DeviceKind::kCuda, kAlone, has_no_room, "bringing the weights"},
          {DeviceKind::kCuda,
           {"logical", "cuda[0]/0-1", 2, 1},
           has_no_room,
           "clearing its memory"}})
        check_watchdog(each, true);
}

TEST_CASE("a call that waits inside the driver for a kernel without end is left there", "[e2e]") {
    for (const Preparation& each :
         {Preparation{DeviceKind::kCuda, kAlone, blocks_in("cuModuleLoadData"),
                      "loading its kernels"},
          {DeviceKind::kCuda, kAlone, blocks_in("cuMemHostAlloc"), "loading its kernels"},
          {DeviceKind::kCuda, kAlone, blocks_in("cuMemAllocFromPoolAsync"), "clearing its memory"},
          {DeviceKind::kCuda,
           {"logical", "cuda[0]/0-1", 2, 1},
           blocks_in("cuMemAlloc_v2"),
           "clearing its memory"}})
        check_watchdog(each, false);
}

TEST_CASE("a call that ends soon after the user has interrupted it leaves nothing behind",
          "[e2e]") {
    const importer::Graph graph = random_model(small_shape(), 1);
    for (const char* call : {"cuModuleGetFunction", "cuMemHostAlloc", "cuMemAllocFromPoolAsync"}) {
        INFO(call);
        HeldCard card(DeviceKind::kCuda);
        planner::Plan plan = plan_for(graph, kAlone, all_logits_workload(1, 32, 32));
        blocks_in(call)(card.fake());
        card.hold(plan.machine.devices[0]);
        const int alive = card.fake().alive(), before = card.fake().calls(call);
        CancelToken cancel;
        SessionOptions options = options_for_fakes();
        options.drivers = &card.drivers();
        options.cancel = &cancel;
        std::thread user([&] {
            while (card.fake().calls(call) == before) std::this_thread::yield();
            cancel.cancel();
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            card.fake().release();
        });
        CHECK(failure_of<Cancelled>([&] { Session(plan, options); }) == "interrupted");
        user.join();
        CHECK_FALSE(card.drivers().has_card_left_alone());
        CHECK(card.fake().alive() == alive);
    }
}
