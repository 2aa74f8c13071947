// SPDX-License-Identifier: Apache-2.0
#include "runtime/simt/device_order.h"

#include <algorithm>
#include <utility>

namespace cleave::runtime::simt {

namespace {

bool are_of_one_block(const Stamp& a, const Stamp& b) {
    return a.device == b.device && a.launch == b.launch && a.block == b.block;
}

// Whether `event` is of the block of `now` and comes before it by barriers, warp_syncs or its
// thread's own order.
bool precedes(const Stamp& event, const Stamp& now) {
    if (!are_of_one_block(event, now)) return false;
    if (event.interval != now.interval) return event.interval < now.interval;
    return (event.thread == now.thread && event.step <= now.step) ||
           (event.warp == now.warp && event.epoch < now.epoch);
}

// Of all devices that there are: an empty place is free.
struct Names {
    std::mutex mutex;
    std::vector<std::optional<std::string>> of;
};
Names& names() {
    static Names all;
    return all;
}

uint32_t number_for(std::string name) {
    std::lock_guard lock(names().mutex);
    auto& of = names().of;
    auto place = std::find(of.begin(), of.end(), std::nullopt);
    if (place == of.end()) place = of.emplace(of.end());
    *place = std::move(name);
    return static_cast<uint32_t>(place - of.begin());
}

// Launches of all devices are counted by one number: what is known of a device that is gone does
// not apply to another in its place.
std::atomic<uint32_t> launches{0};
std::atomic<uint64_t> releases{0};

}  // namespace

// ---- Clock

void Clock::learn_launches(uint32_t device, uint32_t launch) {
    if (device >= devices_.size()) devices_.resize(device + 1);
    OfDevice& of = devices_[device];
    if (of.ended >= launch) return;
    of.ended = launch;
    std::erase_if(of.running, [&](const Running& r) { return r.launch < launch; });
}

void Clock::learn_block(uint32_t device, const Running& block) {
    if (device >= devices_.size()) devices_.resize(device + 1);
    OfDevice& of = devices_[device];
    if (block.launch < of.ended) return;
    const auto place = std::find_if(of.running.begin(), of.running.end(), [&](const Running& r) {
        return r.launch == block.launch && r.block == block.block;
    });
    if (place == of.running.end()) {
        of.running.push_back(block);
        return;
    }
    if (place->interval < block.interval) {
        place->interval = block.interval;
        place->flushes = block.flushes;
    } else if (place->interval == block.interval && place->flushes != block.flushes) {
        auto most = std::make_shared<std::vector<uint32_t>>(*place->flushes);
        for (size_t t = 0; t < most->size(); ++t)
            (*most)[t] = std::max((*most)[t], (*block.flushes)[t]);
        place->flushes = std::move(most);
    }
    for (const Stamp& release : block.releases) {
        const auto own = std::find_if(place->releases.begin(), place->releases.end(),
                                      [&](const Stamp& s) { return s.thread == release.thread; });
        if (own == place->releases.end()) {
            place->releases.push_back(release);
        } else if (precedes(*own, release)) {
            *own = release;
        }
    }
}

void Clock::learn_block(const Stamp& now, std::shared_ptr<const std::vector<uint32_t>> flushes) {
    learn_block(now.device, {now.launch, now.block, now.interval, std::move(flushes), {now}});
}

void Clock::join(const Clock& other) {
    for (uint32_t d = 0; d < other.devices_.size(); ++d) {
        learn_launches(d, other.devices_[d].ended);
        for (const Running& block : other.devices_[d].running) learn_block(d, block);
    }
}

const Clock::Running* Clock::running(const Stamp& event) const {
    if (event.device >= devices_.size()) return nullptr;
    for (const Running& r : devices_[event.device].running)
        if (r.launch == event.launch && r.block == event.block) return &r;
    return nullptr;
}

bool Clock::knows(const Stamp& event) const {
    if (has_ended(event)) return true;
    const Running* block = running(event);
    return block && (event.interval < block->interval ||
                     std::any_of(
                         block->releases.begin(), block->releases.end(),
                         [&](const Stamp& r) { return precedes(event, r); }));
}

bool Clock::has_flushed(const Stamp& event) const {
    if (has_ended(event)) return true;
    const Running* block = running(event);
    if (!block) return false;
    if (block->flushes && (*block->flushes)[event.thread] > event.flushes) return true;
    return std::any_of(block->releases.begin(), block->releases.end(), [&](const Stamp& r) {
        return r.thread == event.thread && precedes(event, r);
    });
}

// ---- ExchangeMemory

ExchangeMemory::ExchangeMemory(void* address, uint64_t bytes, const DeviceOrder& owner)
    : begin_(reinterpret_cast<uint64_t>(address)),
      owner_(owner.number()),
      pages_(bytes / (kCell * kPage) + 1) {
    watch_slots(address, this);
}

ExchangeMemory::~ExchangeMemory() {
    watch_slots(reinterpret_cast<void*>(begin_), nullptr);
    for (const std::atomic<Page*>& page : pages_) delete page.load();
}

uint16_t ExchangeMemory::bytes_of_cell(uint64_t cell, uint64_t first, uint64_t last) {
    const uint64_t begin = cell * kCell, from = std::max(first, begin) - begin,
                   to = std::min(last, begin + kCell - 1) - begin;
    return static_cast<uint16_t>((2u << to) - (1u << from));
}

ExchangeMemory::Page& ExchangeMemory::page(uint64_t cell) {
    std::atomic<Page*>& place = pages_[cell / kPage];
    Page* page = place.load(std::memory_order_acquire);
    if (page) return *page;
    auto fresh = std::make_unique<Page>();
    if (place.compare_exchange_strong(page, fresh.get())) return *fresh.release();
    return *page;
}

ExchangeMemory::Found ExchangeMemory::touch_cell(Cell& cell, const Access& access,
                                                 const Clock& knows, const Clock* seen,
                                                 bool writes) {
    const auto is_foreign = [&](const Access& other) {
        return other.at.device != access.at.device && (other.bytes & access.bytes) != 0;
    };
    const auto races = [&](const Access& other) {
        return is_foreign(other) && !(other.atomic && access.atomic) && !knows.knows(other.at);
    };
    for (const Access& writer : cell.writers)
        if (races(writer)) return {Verdict::kRaceWithWrite, 0, writer.at};
    if (writes) {
        for (const Access& reader : cell.readers)
            if (races(reader)) return {Verdict::kRaceWithRead, 0, reader.at};
        const auto covered = [&](const Access& other) { return !(other.bytes & ~access.bytes); };
        std::erase_if(cell.readers, covered);
        std::erase_if(cell.writers, covered);
        cell.writers.push_back(access);
        return {};
    }
    for (const Access& writer : cell.writers) {
        if (!seen || access.atomic || !is_foreign(writer)) continue;
        if (!writer.atomic && !knows.has_flushed(writer.at))
            return {Verdict::kUnflushed, 0, writer.at};
        if (!seen->knows(writer.at)) return {Verdict::kUnseen, 0, writer.at};
    }
    // A write that this read comes before, a thread's earlier reads come before, too.
    for (Access& reader : cell.readers)
        if (reader.at.device == access.at.device && reader.at.block == access.at.block &&
            reader.at.thread == access.at.thread && !(reader.bytes & ~access.bytes) &&
            reader.atomic == access.atomic) {
            reader = access;
            return {};
        }
    constexpr size_t kMany = 64;
    if (cell.readers.size() >= kMany)
        std::erase_if(cell.readers, [&](const Access& r) {
            return !(r.bytes & ~access.bytes) && r.atomic == access.atomic &&
                   (precedes(r.at, access.at) || knows.knows(r.at));
        });
    cell.readers.push_back(access);
    return {};
}

ExchangeMemory::Found ExchangeMemory::touch(const Stamp& now, const Clock& knows, const Clock* seen,
                                            uint64_t address, uint32_t bytes, bool writes,
                                            bool atomic) {
    const uint64_t first = address - begin_, last = first + bytes - 1;
    for (uint64_t i = first / kCell; i <= last / kCell; ++i) {
        const uint16_t mask = bytes_of_cell(i, first, last);
        const bool reads_own = !writes && now.device == owner_;
        if (reads_own && !pages_[i / kPage].load(std::memory_order_acquire)) continue;
        Page& of = page(i);
        std::lock_guard lock(of.mutex);
        Cell& cell = of.cells[i % kPage];
        if (reads_own && cell.writers.empty()) continue;
        Found found = touch_cell(cell, {now, mask, atomic}, knows, seen, writes);
        found.offset = std::max(first, i * kCell);
        if (found.verdict != Verdict::kFine) return found;
    }
    return {};
}

void ExchangeMemory::release(unsigned* word, unsigned value, Clock clock) {
    const uint64_t at = reinterpret_cast<uint64_t>(word) - begin_;
    Page& of = page(at / kCell);
    std::lock_guard lock(of.mutex);
    auto& released = of.cells[at / kCell % kPage].released;
    auto place = std::find_if(released.begin(), released.end(),
                              [&](const Released& r) { return r.word == at; });
    if (place == released.end()) place = released.insert(place, Released{at, 0, {}});
    place->version = ++releases;
    place->clock = std::move(clock);
    // The store and the look at the sleepers have the same order as a sleeper's count and its own
    // look.
    std::atomic_ref<unsigned>(*word).store(value, std::memory_order_seq_cst);
}

unsigned ExchangeMemory::acquire(const unsigned* word, Clock& clock, uint64_t& version) {
    const uint64_t at = reinterpret_cast<uint64_t>(word) - begin_;
    Page& of = page(at / kCell);
    std::lock_guard lock(of.mutex);
    for (const Released& released : of.cells[at / kCell % kPage].released)
        if (released.word == at && released.version != version) {
            clock.join(released.clock);
            version = released.version;
        }
    return std::atomic_ref<unsigned>(const_cast<unsigned&>(*word)).load(std::memory_order_acquire);
}

void ExchangeMemory::forget(uint64_t address, uint64_t bytes) {
    if (bytes == 0) return;
    const uint64_t first = address - begin_, last = first + bytes - 1;
    for (uint64_t i = first / kCell; i <= last / kCell; ++i) {
        Page* of = pages_[i / kPage].load(std::memory_order_acquire);
        if (!of) continue;
        std::lock_guard lock(of->mutex);
        Cell& cell = of->cells[i % kPage];
        const uint16_t mask = bytes_of_cell(i, first, last);
        for (std::vector<Access>* accesses : {&cell.writers, &cell.readers}) {
            for (Access& access : *accesses) access.bytes &= static_cast<uint16_t>(~mask);
            std::erase_if(*accesses, [](const Access& access) { return access.bytes == 0; });
        }
        std::erase_if(cell.released,
                      [&](const Released& r) { return first <= r.word && r.word <= last; });
    }
}

// ---- DeviceOrder

DeviceOrder::DeviceOrder(std::string name, bool explicit_caches)
    : number_(number_for(std::move(name))), explicit_caches_(explicit_caches) {}

DeviceOrder::~DeviceOrder() {
    std::lock_guard lock(names().mutex);
    names().of[number_].reset();
}

std::string DeviceOrder::name_of(uint32_t number) {
    std::lock_guard lock(names().mutex);
    return names().of.at(number).value_or("a device that is gone");
}

uint32_t DeviceOrder::begin_launch() {
    std::lock_guard lock(mutex_);
    launch_ = ++launches;
    clock_.learn_launches(number_, launch_);
    at_start_ = clock_;
    return launch_;
}

void DeviceOrder::learn(const Clock& clock) {
    std::lock_guard lock(mutex_);
    clock_.join(clock);
}

// ---- BlockOrder

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
    now.device = device_->number();
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
    if (self.acquired && !self.shared) clock.join(*self.acquired);
    if (device_->explicit_caches() && !published_flushes_)
        published_flushes_ = std::make_shared<const std::vector<uint32_t>>(flushes_);
    clock.learn_block(stamp(now), published_flushes_);
    memory.release(word, value, std::move(clock));
    ++self.steps;
}

unsigned BlockOrder::acquire(ExchangeMemory& memory, uint32_t thread, const unsigned* word) {
    load();
    Threads& self = threads_[thread];
    if (!self.acquired) self.acquired.emplace();
    const uint64_t before = self.word == word ? self.version : 0;
    self.word = word;
    self.version = before;
    const unsigned value = memory.acquire(word, *self.acquired, self.version);
    if (self.version == before) return value;
    self.shared = false;
    has_acquired_ = true;
    return value;
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
