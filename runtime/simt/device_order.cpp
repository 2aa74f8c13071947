// SPDX-License-Identifier: Apache-2.0
#include "runtime/simt/device_order.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

namespace cleave::runtime::simt {

namespace {

bool are_of_one_block(const Stamp& a, const Stamp& b) {
    return a.owner == b.owner && a.launch == b.launch && a.block == b.block;
}

// Whether `event` is of the block of `now` and comes before it by barriers, warp_syncs or its thread's own order.
bool precedes(const Stamp& event, const Stamp& now) {
    if (!are_of_one_block(event, now)) return false;
    if (event.interval != now.interval) return event.interval < now.interval;
    return (event.thread == now.thread && event.step <= now.step) ||
           (event.warp == now.warp && event.epoch < now.epoch);
}

struct Names {
    std::mutex mutex;
    std::map<uint32_t, std::string> of;
};
Names& names() {
    static Names all;
    return all;
}

}  // namespace

// ---- Clock ----------------------------------------------------------------------------------------------

void Clock::learn_launches(uint32_t owner, uint32_t launch) {
    const auto found = std::find_if(launches_.begin(), launches_.end(),
                                    [&](const Launches& l) { return l.owner == owner; });
    if (found == launches_.end()) {
        launches_.push_back({owner, launch});
    } else {
        found->before = std::max(found->before, launch);
    }
    std::erase_if(points_, [&](const Point& p) { return has_ended(p.at); });
}

// Of a thread's points, and of a block's in earlier intervals, the last says what all do.
void Clock::learn_block(const Stamp& now, std::shared_ptr<const std::vector<uint32_t>> flushes) {
    if (has_ended(now)) return;
    const auto says_all_of = [](const Stamp& later, const Stamp& earlier) {
        if (!are_of_one_block(later, earlier)) return false;
        if (later.interval != earlier.interval) return later.interval > earlier.interval;
        return later.thread == earlier.thread && later.step >= earlier.step &&
               later.epoch >= earlier.epoch;
    };
    for (const Point& p : points_)
        if (says_all_of(p.at, now)) return;
    std::erase_if(points_, [&](const Point& p) { return says_all_of(now, p.at); });
    points_.push_back({now, std::move(flushes)});
}

void Clock::join(const Clock& other) {
    for (const Launches& l : other.launches_) learn_launches(l.owner, l.before);
    for (const Point& p : other.points_) learn_block(p.at, p.flushes);
}

bool Clock::has_ended(const Stamp& event) const {
    return std::any_of(launches_.begin(), launches_.end(), [&](const Launches& l) {
        return l.owner == event.owner && event.launch < l.before;
    });
}

bool Clock::knows(const Stamp& event) const {
    return has_ended(event) || std::any_of(points_.begin(), points_.end(),
                                           [&](const Point& p) { return precedes(event, p.at); });
}

bool Clock::has_flushed(const Stamp& event) const {
    return has_ended(event) || std::any_of(points_.begin(), points_.end(), [&](const Point& p) {
               return precedes(event, p.at) && p.flushes &&
                      (*p.flushes)[event.thread] > event.flushes;
           });
}

// ---- ExchangeMemory -------------------------------------------------------------------------------------

ExchangeMemory::ExchangeMemory(void* address, uint64_t bytes)
    : begin_(reinterpret_cast<uint64_t>(address)),
      end_(begin_ + bytes),
      pages_((bytes / 4 + kPage) / kPage) {
    watch_slots(address, this);
}

ExchangeMemory::~ExchangeMemory() { watch_slots(reinterpret_cast<void*>(begin_), nullptr); }

ExchangeMemory::Cell& ExchangeMemory::cell(uint64_t index) {
    auto& page = pages_[index / kPage];
    if (!page) page = std::make_unique<Cell[]>(kPage);
    return page[index % kPage];
}

ExchangeMemory::Found ExchangeMemory::touch(const Stamp& now, const Clock& knows, const Clock* seen,
                                            uint64_t address, uint32_t bytes, bool writes,
                                            bool atomic) {
    const uint64_t first = address - begin_, last = first + bytes - 1;
    const auto races = [&](const Access& a, unsigned mask) {
        return a.at.owner != 0 && a.at.owner != now.owner && (a.bytes & mask) != 0 &&
               !(a.atomic && atomic) && !knows.knows(a.at);
    };
    std::lock_guard lock(mutex_);
    for (uint64_t i = first / 4; i <= last / 4; ++i) {
        Cell& c = cell(i);
        const uint64_t from = std::max(first, i * 4) - i * 4,
                       to = std::min(last, i * 4 + 3) - i * 4;
        const auto mask = static_cast<uint8_t>((2u << to) - (1u << from));
        const auto found = [&](Verdict verdict, const Stamp& other) {
            return Found{verdict, i * 4, other};
        };
        const Access& writer = c.writer;
        if (races(writer, mask)) return found(Verdict::kRaceWithWrite, writer.at);
        if (writes) {
            for (const Access& reader : c.readers)
                if (races(reader, mask)) return found(Verdict::kRaceWithRead, reader.at);
            std::erase_if(c.readers, [&](const Access& r) { return (r.bytes & ~mask) == 0; });
            c.writer = {now, mask, atomic};
            continue;
        }
        if (seen && !atomic && writer.at.owner != now.owner && (writer.bytes & mask) != 0 &&
            writer.at.owner != 0) {
            if (!writer.atomic && !knows.has_flushed(writer.at))
                return found(Verdict::kUnflushed, writer.at);
            if (!seen->knows(writer.at)) return found(Verdict::kUnseen, writer.at);
        }
        // A write that this read comes before, those before it come before, too.
        std::erase_if(c.readers, [&](const Access& r) {
            return (r.bytes & ~mask) == 0 && r.atomic == atomic &&
                   (precedes(r.at, now) || knows.knows(r.at));
        });
        c.readers.push_back({now, mask, atomic});
    }
    return {};
}

void ExchangeMemory::release(unsigned* word, unsigned value, Clock clock) {
    std::lock_guard lock(mutex_);
    cell((reinterpret_cast<uint64_t>(word) - begin_) / 4).released =
        std::make_unique<Clock>(std::move(clock));
    // The store and a look at who sleeps stand in the order that a sleeper's count and its own look have.
    std::atomic_ref<unsigned>(*word).store(value, std::memory_order_seq_cst);
}

unsigned ExchangeMemory::acquire(const unsigned* word, Clock& clock) {
    std::lock_guard lock(mutex_);
    const auto& released = cell((reinterpret_cast<uint64_t>(word) - begin_) / 4).released;
    if (released) clock.join(*released);
    return std::atomic_ref<unsigned>(const_cast<unsigned&>(*word)).load(std::memory_order_acquire);
}

void ExchangeMemory::forget(uint64_t address, uint64_t bytes) {
    if (bytes == 0) return;
    std::lock_guard lock(mutex_);
    for (uint64_t i = (address - begin_) / 4; i <= (address + bytes - 1 - begin_) / 4; ++i) {
        auto& page = pages_[i / kPage];
        if (page) page[i % kPage] = Cell{};
    }
}

// ---- DeviceOrder ----------------------------------------------------------------------------------------

DeviceOrder::DeviceOrder(uint32_t owner, std::string name, bool explicit_caches)
    : owner_(owner), explicit_caches_(explicit_caches) {
    std::lock_guard lock(names().mutex);
    names().of[owner] = std::move(name);
}

DeviceOrder::~DeviceOrder() {
    std::lock_guard lock(names().mutex);
    names().of.erase(owner_);
}

std::string DeviceOrder::name_of(uint32_t owner) {
    std::lock_guard lock(names().mutex);
    const auto found = names().of.find(owner);
    return found == names().of.end() ? "a device that is gone" : found->second;
}

uint32_t DeviceOrder::begin_launch() {
    std::lock_guard lock(mutex_);
    clock_.learn_launches(owner_, ++launch_);
    at_start_ = clock_;
    return launch_;
}

void DeviceOrder::learn(const Clock& clock) {
    std::lock_guard lock(mutex_);
    clock_.join(clock);
}

// ---- BlockOrder -----------------------------------------------------------------------------------------

void BlockOrder::begin_launch(DeviceOrder* device, uint32_t launch, uint32_t threads) {
    device_ = device;
    launch_ = launch;
    loaded_ = has_acquired_ = false;
    threads_.resize(threads);
}

void BlockOrder::begin_block(uint32_t block) {
    block_ = block;
    loaded_ = has_acquired_ = false;
}

void BlockOrder::load() {
    if (loaded_) return;
    loaded_ = true;
    known_.assign(1, device_->knows());
    std::fill(threads_.begin(), threads_.end(), Threads{});
    flushes_.assign(device_->explicit_caches() ? threads_.size() : 0, 0);
    published_flushes_.reset();
}

void BlockOrder::end_block() {
    if (!loaded_) return;
    for (const Threads& thread : threads_)
        if (thread.acquired) known_.back().join(*thread.acquired);
    device_->learn(known_.back());
    loaded_ = false;
}

Stamp BlockOrder::stamp(Stamp now) const {
    now.owner = device_->owner();
    now.launch = launch_;
    now.block = block_;
    now.step = threads_[now.thread].steps;
    now.flushes = flushes_.empty() ? 0 : flushes_[now.thread];
    return now;
}

ExchangeMemory::Found BlockOrder::touch(ExchangeMemory& memory, Stamp now, uint64_t address,
                                        uint32_t bytes, bool writes, bool atomic) {
    load();
    const Threads& self = threads_[now.thread];
    now = stamp(now);
    const bool asks = device_->explicit_caches();
    const Clock *knows = &known_.back(), *seen = &known_[self.seen];
    Clock with_own, seen_with_own;
    if (self.acquired && !self.shared) {
        with_own = *knows;
        with_own.join(*self.acquired);
        knows = &with_own;
    }
    if (asks && self.acquired && seen != &known_.back()) {
        seen_with_own = *seen;
        seen_with_own.join(*self.acquired);
        seen = &seen_with_own;
    } else if (seen == &known_.back()) {
        seen = knows;
    }
    return memory.touch(now, *knows, asks ? seen : nullptr, address, bytes, writes, atomic);
}

void BlockOrder::release(ExchangeMemory& memory, Stamp now, unsigned* word, unsigned value) {
    load();
    Threads& self = threads_[now.thread];
    Clock clock = known_.back();
    if (self.acquired) clock.join(*self.acquired);
    if (device_->explicit_caches()) {
        flush(now.thread);
        if (!published_flushes_)
            published_flushes_ = std::make_shared<const std::vector<uint32_t>>(flushes_);
    }
    clock.learn_block(stamp(now), published_flushes_);
    memory.release(word, value, std::move(clock));
    ++self.steps;
}

unsigned BlockOrder::acquire(ExchangeMemory& memory, uint32_t thread, const unsigned* word) {
    load();
    auto& acquired = threads_[thread].acquired;
    if (!acquired) acquired.emplace();
    threads_[thread].shared = false;
    has_acquired_ = true;
    return memory.acquire(word, *acquired);
}

void BlockOrder::share_with_block() {
    has_acquired_ = false;
    Clock all = known_.back();
    for (Threads& thread : threads_) {
        if (thread.acquired && !thread.shared) all.join(*thread.acquired);
        thread.shared = true;
    }
    known_.push_back(std::move(all));
}

void BlockOrder::share_with_warp(uint32_t first_thread, uint32_t threads) {
    Clock all;
    for (uint32_t t = first_thread; t < first_thread + threads; ++t)
        if (threads_[t].acquired) all.join(*threads_[t].acquired);
    for (uint32_t t = first_thread; t < first_thread + threads; ++t) {
        threads_[t].acquired = all;
        threads_[t].shared = false;
    }
}

void BlockOrder::flush(uint32_t thread) {
    if (!keeps() || !device_->explicit_caches()) return;
    load();
    ++flushes_[thread];
    published_flushes_.reset();
}

void BlockOrder::see(uint32_t thread) {
    if (!keeps()) return;
    load();
    threads_[thread].seen = static_cast<uint32_t>(known_.size() - 1);
}

}  // namespace cleave::runtime::simt
