// SPDX-License-Identifier: Apache-2.0
// The recording fakes of the vendors' driver libraries (tests/runtime_fakes), as tests steer them.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "codegen/kernel/program.h"
#include "runtime/base/errors.h"
#include "runtime/cards/cards.h"
#include "runtime/drivers/gpu/gpu_device.h"
#include "runtime/drivers/vendors.h"

namespace cleave::test {

using runtime::FoundDriver;
using runtime::GpuDriver;

inline const runtime::DriverEntry& entry_of(planner::DeviceKind kind) {
    return runtime::driver_entry(planner::vendor_of(kind)->vendor);
}

// The machine of a device list, real GPUs as the drivers that the environment names have them.
inline planner::Machine machine_at_hand(const std::string& list) {
    runtime::Drivers drivers;
    const runtime::RealGpus gpus(drivers);
    return planner::build_machine(planner::parse_devices(list), planner::read_host_facts(), &gpus);
}

// A fresh fake (a changed copy of one: its file): three cards, nothing alive, nothing recorded.
class FakeGpu {
public:
    explicit FakeGpu(planner::DeviceKind kind, const std::string& changed = "")
        : kind_(kind),
          path_(!changed.empty()                     ? changed
                : kind == planner::DeviceKind::kCuda ? CLEAVE_FAKE_CUDA
                                                     : CLEAVE_FAKE_HIP),
          handle_(::dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        if (!handle_) throw InternalError(::dlerror());
        call<void>("fake_reset");
    }
    ~FakeGpu() { ::dlclose(handle_); }
    FakeGpu(const FakeGpu&) = delete;
    FakeGpu& operator=(const FakeGpu&) = delete;

    const std::string& path() const { return path_; }
    FoundDriver open() const { return entry_of(kind_).open({&path_, 1}); }
    std::shared_ptr<GpuDriver> driver() const { return open().driver; }

    // The nth call of `name` from now on fails with `code`.
    void fail(const std::string& name, int nth, int code) const {
        call<void>("fake_fail", name.c_str(), nth, code);
    }
    // Every call fails from now on, as after a kernel's fault.
    void break_down(int code) const { call<void>("fake_break", code); }
    void show(int cards) const { call<void>("fake_show", cards); }
    // Of libcuda: what cuDriverGetVersion says.
    void version(int version) const { call<void>("fake_version", version); }
    // Of NVIDIA's cards: their compute mode, and that they are parts of cards.
    void compute_mode(int mode) const { call<void>("fake_compute_mode", mode); }
    void in_parts() const { call<void>("fake_parts", 1); }
    // Of AMD's cards: the clock that their kernels read; they are graphics cards; the last is a
    // processor's own; they have no UUID; all have the first one's, and its PCI address.
    void timer(int khz) const { call<void>("fake_timer", khz); }
    void graphics() const { call<void>("fake_graphics", 1); }
    void integrated() const { call<void>("fake_integrated", 1); }
    void nameless() const { call<void>("fake_nameless", 1); }
    void alike() const { call<void>("fake_alike", 1); }
    // Memory that other programs hold.
    void take(int64_t bytes) const { call<void>("fake_take", bytes); }
    // Streams run on their own, as real ones do; each piece of work takes so long at least.
    void live(int64_t lag_us = 0) const { call<void>("fake_live", lag_us); }
    // The next event that is done when it is asked for is told so that much later.
    void seen_late(int64_t microseconds) const { call<void>("fake_seen_late", microseconds); }
    // A card does one piece of work at a time, whatever streams it has.
    void one_at_a_time() const { call<void>("fake_one_at_a_time"); }
    // A stream has room for so much work that is not done: who asks for more waits inside the call,
    // and with it whoever asks a stream of that card. Of each card's streams the work of the one
    // with that number, in the order they were made, is asked for so late, each piece of it.
    void room(int work) const { call<void>("fake_room", work); }
    void late(int stream, int64_t microseconds) const {
        call<void>("fake_late", stream, microseconds);
    }
    // The nth run from now on of a kernel whose name begins with `kernel` faults, or never ends.
    void fault(const std::string& kernel, int nth) const {
        call<void>("fake_trip", kernel.c_str(), nth, 0);
    }
    void hang(const std::string& kernel, int nth) const {
        call<void>("fake_trip", kernel.c_str(), nth, 1);
    }
    // Of kernels on the stream with that number only.
    void only_on(int stream) const { call<void>("fake_trip_on", stream); }
    // Kernels that hang end.
    void release() const { call<void>("fake_release"); }
    // The calls of that name wait inside for as long as a kernel hangs on their card.
    void block(const std::string& name) const { call<void>("fake_block", name.c_str()); }
    // To load a kernel waits for nothing that runs; else it waits for all of the card.
    void load_beside_work() const { call<void>("fake_load_beside_work"); }
    // A block of any kernel has so many threads at most.
    void most_threads(int threads) const { call<void>("fake_most_threads", threads); }
    // What the vendor's variable for hardware queues said when the library was started.
    std::string queues() const { return call<const char*>("fake_queues"); }
    // What a checked kernel did wrong.
    std::string finding() const { return call<const char*>("fake_finding"); }
    // Gives the calling thread's current device, for the fake of the collectives' library.
    using CurrentDevice = int (*)();
    CurrentDevice current_device() const {
        return reinterpret_cast<CurrentDevice>(::dlsym(handle_, "fake_current_device"));
    }
    // By which that fake takes memory of the cards.
    using TakeMemory = int (*)(int, int64_t);
    TakeMemory take_memory() const {
        return reinterpret_cast<TakeMemory>(::dlsym(handle_, "fake_take_on"));
    }
    int alive() const { return call<int>("fake_alive"); }
    int calls(const std::string& name) const { return call<int>("fake_calls", name.c_str()); }
    std::string log() const { return call<const char*>("fake_log"); }

private:
    template <class Result, class... Args>
    Result call(const char* name, Args... args) const {
        return reinterpret_cast<Result (*)(Args...)>(::dlsym(handle_, name))(args...);
    }

    planner::DeviceKind kind_;
    std::string path_;
    void* handle_;
};

// A code object of the fakes: its kernel's name. "nothing"; "add_words": address, value, count.
inline std::vector<codegen::CompiledKernel> fake_kernel(const std::string& name) {
    codegen::CompiledKernel kernel;
    kernel.name = name;
    for (char c : name + '\0') kernel.object.push_back(static_cast<std::byte>(c));
    return {kernel};
}

// What a plan says of a fake's card.
inline planner::DeviceInfo fake_card(planner::DeviceKind kind, int ordinal = 0,
                                     int64_t memory = 1 << 24) {
    planner::DeviceInfo card;
    card.kind = kind;
    card.index = ordinal;
    card.name = fmt::format("{}[{}]", planner::device_kind_name(kind), ordinal);
    card.memory_bytes = memory;
    return card;
}
inline std::unique_ptr<runtime::Device> open_card(const FakeGpu& fake, planner::DeviceKind kind,
                                                  int ordinal = 0) {
    return runtime::make_gpu_device(fake.driver(), ordinal, fake_card(kind, ordinal), {});
}

// An environment variable while it lives; then as it was.
class Environment {
public:
    Environment(std::string name, const std::string& value) : name_(std::move(name)) {
        if (const char* old = std::getenv(name_.c_str())) old_ = old;
        ::setenv(name_.c_str(), value.c_str(), 1);
    }
    ~Environment() {
        if (old_)
            ::setenv(name_.c_str(), old_->c_str(), 1);
        else
            ::unsetenv(name_.c_str());
    }
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;

private:
    std::string name_;
    std::optional<std::string> old_;
};

// A fake as the driver of its kind for whatever looks for one while it lives, and no library of
// collectives beside it that this machine may have. `drivers` is one process's.
class InstalledFake : public FakeGpu {
public:
    explicit InstalledFake(planner::DeviceKind kind, const std::string& changed = "")
        : FakeGpu(kind, changed),
          driver_(entry_of(kind).driver.variable, path()),
          collectives_(entry_of(kind).collectives.variable, "libno-collectives.so"),
          drivers_(std::make_unique<runtime::Drivers>()) {}
    runtime::Drivers& drivers() const { return *drivers_; }

private:
    Environment driver_, collectives_;
    std::unique_ptr<runtime::Drivers> drivers_;
};

}  // namespace cleave::test
