// SPDX-License-Identifier: Apache-2.0
// NCCL and RCCL on a recording fake of both: what they are called with, in which order, what
// becomes of every error and of a rank that never comes; and the real library, where there is one,
// on a machine without a GPU.
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <thread>

#include "planner/machine/build_machine.h"
#include "runtime/device/async_device.h"
#include "runtime/drivers/gpu/gpu_device.h"
#include "runtime/drivers/nccl/collective_library.h"
#include "runtime/drivers/nccl/symbols.h"
#include "tests/runtime/support/support.h"
#include "tests/runtime_fakes/work_queue.h"
#include "tests/support/failures.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using Catch::Matchers::Contains;
using cleave::test::failure_of;

namespace {

thread_local int device_of_thread = -1;

// A fresh fake library, and cards whose streams it puts its work on.
class FakeNccl {
public:
    FakeNccl() : handle_(::dlopen(CLEAVE_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL)), streams_(4) {
        if (!handle_) throw InternalError(::dlerror());
        call<void>("fake_reset", +[] { return device_of_thread; });
    }
    ~FakeNccl() { ::dlclose(handle_); }
    FakeNccl(const FakeNccl&) = delete;
    FakeNccl& operator=(const FakeNccl&) = delete;

    FoundCollectives open() const {
        const std::string names[] = {CLEAVE_FAKE_NCCL};
        return open_collectives(names);
    }
    // Rank r on card cards[r].
    std::unique_ptr<CollectiveGroup> connect(const std::vector<int>& cards,
                                             const CollectiveOptions& options = {}) {
        std::vector<CollectiveMember> members;
        for (size_t r = 0; r < cards.size(); ++r)
            members.push_back({fmt::format("cuda[{}]", r), fmt::format("card {}", r),
                               [card = cards[r]] { device_of_thread = card; }, &streams_[r]});
        return open().library->connect(members, options);
    }
    // What each rank does, in a thread of its own, and then waits for its stream.
    void run(CollectiveGroup& group, const std::function<void(CollectiveRank&, int)>& work) {
        std::vector<std::thread> threads;
        for (int r = 0; r < group.size(); ++r)
            threads.emplace_back([&, r] {
                work(group.rank(r), r);
                streams_[static_cast<size_t>(r)].finish();
            });
        for (std::thread& thread : threads) thread.join();
    }
    // On streams of the drivers' fakes.
    void on(int (*current_device)()) const { call<void>("fake_reset", current_device); }
    cleave::fake::HeldStream& stream(int rank) { return streams_[static_cast<size_t>(rank)]; }

    void fail(const char* name, int nth) const { call<void>("fake_fail", name, nth, 1); }
    void memory(int (*take)(int, int64_t), int64_t to_open, int64_t to_connect) const {
        call<void>("fake_memory", take, to_open, to_connect);
    }
    void fail_later() const { call<void>("fake_late_error", 1); }
    void opens_after(int polls) const { call<void>("fake_opening", polls); }
    int alive() const { return call<int>("fake_alive"); }
    int calls(const char* name) const { return call<int>("fake_calls", name); }
    std::string log() const { return call<const char*>("fake_log"); }

private:
    template <class Result, class... Args>
    Result call(const char* name, Args... args) const {
        return reinterpret_cast<Result (*)(Args...)>(::dlsym(handle_, name))(args...);
    }

    void* handle_;
    std::vector<cleave::fake::HeldStream> streams_;
};

DeviceAddress address(const void* memory) { return reinterpret_cast<DeviceAddress>(memory); }

}  // namespace

TEST_CASE("every rank of a vendor's all-reduce has the sum, in place too", "[runtime]") {
    FakeNccl fake;
    {
        auto group = fake.connect({2, 0, 1});
        std::vector<std::vector<float>> values(3), sums(3, std::vector<float>(5));
        for (int r = 0; r < 3; ++r)
            for (int i = 0; i < 5; ++i)
                values[static_cast<size_t>(r)].push_back(static_cast<float>(100 * r + i));
        fake.run(*group, [&](CollectiveRank& rank, int r) {
            auto& mine = values[static_cast<size_t>(r)];
            auto& sum = sums[static_cast<size_t>(r)];
            rank.all_reduce(address(mine.data()), address(sum.data()), 5, DType::kF32);
            rank.all_reduce(address(mine.data()), address(mine.data()), 5, DType::kF32);
            rank.all_reduce(0, 0, 0, DType::kF32);
            rank.check();
        });
        const std::vector<float> expected{300, 303, 306, 309, 312};
        for (size_t r = 0; r < 3; ++r) {
            CHECK(sums[r] == expected);
            CHECK(values[r] == expected);
        }
    }
    CHECK(fake.calls("ncclAllReduce") == 6);  // none of no elements
    CHECK(fake.calls("ncclCommFinalize") == 3);
    CHECK(fake.calls("ncclCommDestroy") == 3);
    CHECK(fake.calls("ncclCommAbort") == 0);
    CHECK(fake.alive() == 0);
}

TEST_CASE("a vendor's gather takes parts of any length, none too", "[runtime]") {
    FakeNccl fake;
    auto group = fake.connect({0, 1, 2});
    const std::vector<std::vector<int64_t>> lengths{{4, 4, 4}, {1, 0, 6}, {0, 0, 0}};
    for (const std::vector<int64_t>& parts : lengths) {
        std::vector<std::string> own{"aaaaaa", "bbbbbb", "cccccc"}, got(3, std::string(12, '.'));
        fake.run(*group, [&](CollectiveRank& rank, int r) {
            rank.all_gather(address(own[static_cast<size_t>(r)].data()),
                            address(got[static_cast<size_t>(r)].data()), parts);
        });
        std::string expected;
        for (size_t r = 0; r < 3; ++r) expected += own[r].substr(0, static_cast<size_t>(parts[r]));
        expected.resize(12, '.');
        for (const std::string& text : got) CHECK(text == expected);
    }
    CHECK(fake.calls("ncclAllGather") == 3);
    CHECK(fake.calls("ncclBroadcast") == 6);  // two parts that are not empty, three ranks
}

TEST_CASE("messages between ranks are matched in order, and both ways at once", "[runtime]") {
    FakeNccl fake;
    auto group = fake.connect({0, 1});
    std::vector<std::string> own{"abcd", "wxyz"}, got(2, std::string(4, '.'));
    fake.run(*group, [&](CollectiveRank& rank, int r) {
        const DeviceAddress from = address(own[static_cast<size_t>(r)].data());
        const DeviceAddress to = address(got[static_cast<size_t>(r)].data());
        const CollectiveRank::Message sends[] = {{1 - r, from, 1}, {1 - r, from + 1, 3}};
        const CollectiveRank::Message receives[] = {{1 - r, to + 3, 1}, {1 - r, to, 3}};
        rank.exchange(sends, receives);
    });
    CHECK(got[0] == "xyzw");
    CHECK(got[1] == "bcda");
}

TEST_CASE("one rank alone is a group too", "[runtime]") {
    FakeNccl fake;
    auto group = fake.connect({3});
    float value = 7, sum = 0;
    fake.run(*group, [&](CollectiveRank& rank, int) {
        rank.all_reduce(address(&value), address(&sum), 1, DType::kF32);
    });
    CHECK(sum == 7);
}

TEST_CASE("ranks that join by one id, each from a process of its own, are one communicator",
          "[runtime]") {
    FakeNccl fake;
    const auto library = fake.open().library;
    const std::string id = library->new_id("cuda[0]");
    CHECK(id.size() == 128);
    std::array<float, 2> values{3, 4};
    std::vector<std::thread> processes;
    for (int r = 0; r < 2; ++r)
        processes.emplace_back([&, r] {
            const CollectiveMember mine{fmt::format("cuda[0]@{}", r), "card 0",
                                        [r] { device_of_thread = r; }, &fake.stream(r), r};
            auto group = library->join(std::span(&mine, 1), 2, id, {});
            const DeviceAddress value = address(&values[static_cast<size_t>(r)]);
            group->rank(r).all_reduce(value, value, 1, DType::kF32);
            fake.stream(r).finish();
            if (group->size() != 2) values.fill(0);
        });
    for (std::thread& process : processes) process.join();
    CHECK(values == std::array<float, 2>{7, 7});
    CHECK(fake.calls("ncclGetUniqueId") == 1);
    CHECK(fake.calls("ncclCommDestroy") == 2);
    CHECK(fake.alive() == 0);
}

TEST_CASE("a card that stands twice in a group is refused, by Cleave and by the library",
          "[runtime]") {
    FakeNccl fake;
    const CollectiveMember member{"cuda[0]/0", "GPU-1", [] { device_of_thread = 0; },
                                  &fake.stream(0)};
    CollectiveMember other = member;
    other.device = "cuda[0]/1";
    const CollectiveMember twice[] = {member, other};
    const FoundCollectives found = fake.open();
    CHECK_THAT(cleave::test::user_error([&] { found.library->connect(twice, {}); }),
               Contains("cuda[0]/0 and cuda[0]/1 are on one card"));
    CHECK(fake.calls("ncclCommInitRankConfig") == 0);
    // Told that they are two, the library finds out itself.
    CHECK_THAT(failure_of([&] { fake.connect({1, 1}); }),
               Contains("Duplicate GPU detected") && Contains("cuda[0]"));
    CHECK(fake.alive() == 0);
}

TEST_CASE(
    "each call of the library that fails is named with its error and device, and nothing stays",
    "[runtime]") {
    for (const char* call : {"ncclGetUniqueId", "ncclGroupStart", "ncclCommInitRankConfig",
                             "ncclGroupEnd", "ncclCommGetAsyncError", "ncclAllReduce",
                             "ncclBroadcast", "ncclSend", "ncclCommFinalize", "ncclCommDestroy"}) {
        INFO(call);
        FakeNccl fake;
        const bool at_the_end = std::string(call).find("ncclComm") == 0 &&
                                std::string(call).find("ze") != std::string::npos;
        const bool destroys = std::string(call) == "ncclCommDestroy";
        fake.fail(call, 1);
        float value = 0;
        const std::string error = failure_of([&] {
            auto group = fake.connect({0});
            const int64_t parts[] = {4};
            group->rank(0).all_reduce(address(&value), address(&value), 1, DType::kF32);
            const CollectiveRank::Message self[] = {{0, address(&value), 4}};
            group->rank(0).exchange(self, self);
            group->rank(0).all_gather(address(&value), address(&value), parts);
            throw UserError("ran");
        });
        if (at_the_end || destroys || std::string(call) == "ncclBroadcast")
            CHECK(error == "ran");  // equal parts need no broadcast; a destructor says nothing
        else
            CHECK_THAT(error, Contains(call) &&
                                  Contains("unhandled cuda error (as the test asked)") &&
                                  Contains("cuda[0]"));
        CHECK(fake.alive() ==
              (destroys ? 1 : 0));  // the handle that the library would not take back
    }
}

TEST_CASE("a group of which a rank never opens is given up, on time and on Ctrl-C", "[runtime]") {
    FakeNccl fake;
    fake.opens_after(1 << 30);
    CHECK_THAT(failure_of([&] { fake.connect({0, 1}, {0, nullptr}); }),
               Contains("not done after 0 seconds") && Contains("ncclCommInitRankConfig"));
    CHECK(fake.calls("ncclCommAbort") == 2);
    CancelToken cancel;
    cancel.cancel();
    CHECK_THROWS_AS(fake.connect({0, 1}, {60, &cancel}), Cancelled);
    CHECK(fake.alive() == 0);
}

TEST_CASE("a rank that lacks memory ends the opening of all ranks, and is the one that is named",
          "[runtime]") {
    FakeNccl fake;
    // The last of three, behind those that wait for it.
    fake.memory([](int device, int64_t) { return device == 2 ? 2 : 0; }, 1 << 20, 0);
    try {
        fake.connect({0, 1, 2}, {5, nullptr});
        FAIL("no error");
    } catch (const CollectiveError& error) {
        CHECK(error.device() == "cuda[2]");
        CHECK(error.may_lack_memory());
        CHECK_THAT(error.what(), Contains("ncclCommInitRankConfig") &&
                                     Contains("Cuda failure 2 'out of memory'"));
    }
    CHECK(fake.calls("ncclCommAbort") == 3);
    CHECK(fake.alive() == 0);
}

TEST_CASE("ranks that wait for one that never comes leave when the group is aborted", "[runtime]") {
    FakeNccl fake;
    auto group = fake.connect({0, 1, 2});
    std::vector<float> values(3, 1.0f);
    std::vector<std::thread> waiting;
    for (int r = 0; r < 2; ++r)
        waiting.emplace_back([&, r] {
            float* value = &values[static_cast<size_t>(r)];
            group->rank(r).all_reduce(address(value), address(value), 1, DType::kF32);
            fake.stream(r).finish();  // as the driver's wait
        });
    while (fake.calls("ncclAllReduce") < 2) std::this_thread::yield();
    group->abort();
    for (std::thread& thread : waiting) thread.join();
    CHECK(values == std::vector<float>{1, 1, 1});
    CHECK_THAT(failure_of([&] {
                   group->rank(2).all_reduce(address(&values[2]), address(&values[2]), 1,
                                             DType::kF32);
               }),
               Contains("aborted") && Contains("cuda[2]"));
    group.reset();
    CHECK(fake.calls("ncclCommAbort") == 3);
    CHECK(fake.calls("ncclCommDestroy") == 0);
    CHECK(fake.alive() == 0);
}

TEST_CASE("a fault that comes up after the call is reported by the next check", "[runtime]") {
    FakeNccl fake;
    auto group = fake.connect({0});
    fake.fail_later();
    CHECK_THAT(failure_of([&] { group->rank(0).check(); }),
               Contains("an earlier collective") && Contains("cuda[0]"));
}

TEST_CASE("a library of collectives without a file or a symbol says so", "[runtime]") {
    const std::string none[] = {"libnothing.so.1", "libnothing.so"};
    CHECK_THAT(open_collectives(none).reason,
               Contains("libnothing.so.1") && Contains("libnothing.so:"));
    const std::string wrong[] = {CLEAVE_FAKE_CUDA};
    CHECK_THAT(open_collectives(wrong).reason, Contains("lacks ncclGetVersion"));
    CHECK(fmt::format("{}", open_collectives(none).library == nullptr) == "true");
}

namespace {

// A card as the executor has it, and a library for it: the fakes of both vendors, or the card that
// CLEAVE_TEST_GPU names (tools/gpu-check) and what the machine has.
struct Joined {
    std::unique_ptr<Device> device;
    FoundCollectives found;
    std::unique_ptr<CollectiveGroup> group;
};

planner::DeviceInfo card_named(const std::string& name) {
    return cleave::test::machine_at_hand(name).devices.at(0);
}

Joined join_one(const planner::DeviceInfo& info, const std::shared_ptr<GpuDriver>& driver,
                FoundCollectives found) {
    Joined joined{make_gpu_device(driver, info.index, info, {}), std::move(found), nullptr};
    if (!joined.found.library) return joined;
    DeviceStream* stream = joined.device->stream();
    const CollectiveMember member{info.name, "one", [stream] { stream->make_current(); },
                                  stream->native_stream()};
    joined.group = joined.found.library->connect(std::span(&member, 1), {});
    return joined;
}

// Sums, gathers, and sends to itself; what it reads comes before and what reads it behind, on the
// same stream.
void work_alone(Device& device, CollectiveRank& rank) {
    const std::vector<float> values{1.5f, -2, 3, 1e20f};
    const auto bytes = static_cast<int64_t>(4 * values.size());
    const auto place = static_cast<DeviceAddress>(bytes);
    const DeviceAddress from = device.allocate(bytes, "values");
    const DeviceAddress to = device.allocate(3 * bytes, "results");
    device.fill(to, 3 * bytes, 0xee);
    device.upload(from, std::as_bytes(std::span(values)));
    rank.all_reduce(from, to, static_cast<int64_t>(values.size()), DType::kF32);
    const int64_t parts[] = {bytes};
    rank.all_gather(to, to + place, parts);
    const CollectiveRank::Message send{0, to + place, bytes}, receive{0, to + 2 * place, bytes};
    rank.exchange(std::span(&send, 1), std::span(&receive, 1));
    std::vector<float> results(3 * values.size());
    device.download(to, std::as_writable_bytes(std::span(results)));
    device.synchronize();
    rank.check();
    for (size_t i = 0; i < results.size(); ++i) CHECK(results[i] == values[i % values.size()]);
}

}  // namespace

TEST_CASE("a vendor's library works on a driver's stream, in order with its copies",
          "[runtime][drivers]") {
    if (const char* name = std::getenv("CLEAVE_TEST_GPU")) {
        const planner::DeviceInfo info = card_named(name);
        Drivers drivers;
        Joined joined =
            join_one(info, drivers.driver(info.kind).driver, drivers.collectives(info.kind));
        if (!joined.group) {
            WARN("the vendor's library was not tried: " << joined.found.reason);
            return;
        }
        work_alone(*joined.device, joined.group->rank(0));
        return;
    }
    for (const planner::VendorFacts& vendor : planner::vendors()) {
        const FakeNccl library;
        const cleave::test::FakeGpu cards(vendor.kind);
        cards.live();
        library.on(cards.current_device());
        {
            planner::DeviceInfo info = runtime::test::host_info(0, 1 << 20);
            info.kind = vendor.kind;
            Joined joined = join_one(info, cards.driver(), library.open());
            REQUIRE(joined.group);
            work_alone(*joined.device, joined.group->rank(0));
            joined.group.reset();
        }
        CHECK(library.alive() == 0);
        CHECK(cards.alive() == 0);
    }
}

// Of PyPI's nvidia-nccl-cu13, or the file that CLEAVE_TEST_NCCL names (tools/test does), or the
// machine's own.
TEST_CASE("the real libnccl has every symbol, says its version, and names a missing driver",
          "[runtime]") {
    const char* set = std::getenv("CLEAVE_TEST_NCCL");
    const char* named = set && *set ? set : nullptr;
    const std::string names[] = {named ? named : ""};
    const FoundCollectives found =
        named ? open_collectives(names) : Drivers().collectives(planner::DeviceKind::kCuda);
    if (!found.library && !named) {
        CHECK_THAT(found.reason, Contains("libnccl.so.2") && Contains("libnccl.so:"));
        CLEAVE_SKIP("no libnccl here; CLEAVE_TEST_NCCL names one, as tools/test does");
    }
    INFO(found.reason);  // the first symbol that it lacks
    REQUIRE(found.library);
    CHECK_THAT(found.library->version(), Catch::Matchers::StartsWith("2."));
    // Symbol by symbol, apart from the loading that Cleave does; and errors have the library's own
    // words.
    void* library = ::dlopen(found.library->library().c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library);
#define CLEAVE_HAS_SYMBOL(name, parameters) CHECK(::dlsym(library, #name));
    CLEAVE_NCCL_FUNCTIONS(CLEAVE_HAS_SYMBOL)
#undef CLEAVE_HAS_SYMBOL
    CHECK(::dlsym(library, "ncclGetLastError"));
    auto* text = reinterpret_cast<const char* (*)(int)>(::dlsym(library, "ncclGetErrorString"));
    REQUIRE(text);
    CHECK_THAT(text(nccl::ncclSuccess), Contains("no error"));
    CHECK_THAT(text(nccl::ncclInProgress), Contains("in progress"));
    if (std::filesystem::exists("/dev/nvidiactl")) return;  // the test before works with it
    // Without a driver no communicator opens, of one rank or of two, and the error is the library's
    // own.
    const CollectiveMember one{"cuda[0]", "a", [] {}, nullptr}, two{"cuda[1]", "b", [] {}, nullptr};
    const std::vector<CollectiveMember> groups[] = {{one}, {one, two}, {one}};
    for (const std::vector<CollectiveMember>& members : groups)
        CHECK_THAT(failure_of([&] { found.library->connect(members, {}); }),
                   Contains("nccl") && Contains("cuda[0]") &&
                       (Contains("driver") || Contains("CUDA") || Contains("cuda error")));
}
