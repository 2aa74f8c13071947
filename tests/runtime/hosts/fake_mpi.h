// SPDX-License-Identifier: Apache-2.0
// MPI in one process: a table for each rank, over queues of bytes. It records what was sent, and
// tests choose its faults.
#pragma once

#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <unistd.h>

#include "runtime/hosts/mpi_table.h"

struct cleave_mpi_request {
    bool receives = false;
    void* memory = nullptr;
    int64_t size = 0;
    int from = 0, tag = 0;
};

namespace cleave::test {

class FakeMpi {
public:
    // A rank of each, whose host has that name.
    explicit FakeMpi(std::vector<std::string> hosts) : hosts_(std::move(hosts)) {
        for (size_t r = 0; r < hosts_.size(); ++r) {
            auto& world = worlds_.emplace_back(std::make_unique<World>());
            world->mpi = this;
            world->rank = static_cast<int>(r);
            world->table = {
                CLEAVE_MPI_ABI_VERSION,  world.get(), "fake MPI", init, send, receive, test, probe,
                [](void*) { return 0; }, error_text,  on_end};
        }
    }
    const cleave_mpi_table& table(int rank) { return worlds_[static_cast<size_t>(rank)]->table; }

    // Nothing that this rank sends arrives from now on.
    void cut(int rank) {
        const std::lock_guard lock(mutex_);
        worlds_[static_cast<size_t>(rank)]->cut = true;
    }
    // Each message from one rank to another comes only after 200 looks for it.
    void slow(int from, int to) {
        const std::lock_guard lock(mutex_);
        looks_[{from, to}] = 0;
    }
    // Every further sending of this rank fails with this code.
    void fail_sends(int rank, int error) {
        const std::lock_guard lock(mutex_);
        worlds_[static_cast<size_t>(rank)]->error = error;
    }
    // Ranks that begin from now on wait in MPI for ever, as for one that never comes.
    void never_join() {
        const std::lock_guard lock(mutex_);
        joins_ = false;
    }
    // The library would end this rank's process, at its next call.
    void end(int rank) {
        const std::lock_guard lock(mutex_);
        worlds_[static_cast<size_t>(rank)]->ends = true;
    }
    // Payloads of steps, in bytes, that were sent from one rank to another.
    std::vector<int64_t> payloads(int from, int to) {
        const std::lock_guard lock(mutex_);
        return sent_[{from, to}];
    }

    // How often this rank has looked for messages.
    int64_t looks(int rank) {
        const std::lock_guard lock(mutex_);
        return worlds_[static_cast<size_t>(rank)]->looks;
    }

private:
    struct World {
        FakeMpi* mpi = nullptr;
        int rank = 0;
        int64_t looks = 0;
        bool cut = false;
        int error = 0;
        bool ends = false;
        void (*told)(void* context) = nullptr;
        void* context = nullptr;
        cleave_mpi_table table{};
    };
    using Key = std::tuple<int, int, int>;  // from, to, tag

    static World& of(void* world) { return *static_cast<World*>(world); }

    static void on_end(void* world, void (*told)(void* context), void* context) {
        const std::lock_guard lock(of(world).mpi->mutex_);
        of(world).told = told;
        of(world).context = context;
    }
    static void error_text(void*, int error, char* text, int capacity) {
        std::snprintf(text, static_cast<size_t>(capacity), "error %d", error);
    }
    static int init(void* world, int* rank, int* size, char* host, int capacity) {
        const World& w = of(world);
        {
            std::unique_lock lock(w.mpi->mutex_);
            if (!w.mpi->joins_) {
                lock.unlock();
                for (;;) ::pause();
            }
        }
        *rank = w.rank;
        *size = static_cast<int>(w.mpi->hosts_.size());
        std::snprintf(host, static_cast<size_t>(capacity), "%s",
                      w.mpi->hosts_[static_cast<size_t>(w.rank)].c_str());
        return 0;
    }
    static int send(void* world, const void* bytes, int64_t size, int to, int tag,
                    cleave_mpi_request** request) {
        World& w = of(world);
        const std::lock_guard lock(w.mpi->mutex_);
        if (w.error) return w.error;
        *request = w.mpi->add({});
        if (w.cut) return 0;
        if (tag > 1) w.mpi->sent_[{w.rank, to}].push_back(size);
        w.mpi->queues_[{w.rank, to, tag}].emplace_back(static_cast<const char*>(bytes),
                                                       static_cast<size_t>(size));
        return 0;
    }
    static int receive(void* world, void* bytes, int64_t size, int from, int tag,
                       cleave_mpi_request** request) {
        const World& w = of(world);
        const std::lock_guard lock(w.mpi->mutex_);
        *request = w.mpi->add({true, bytes, size, from, tag});
        w.mpi->asked_[{from, w.rank, tag}].push_back(*request);
        return 0;
    }
    cleave_mpi_request* add(const cleave_mpi_request& request) {
        return requests_.emplace_back(std::make_unique<cleave_mpi_request>(request)).get();
    }
    static int test(void* world, cleave_mpi_request* request, int* done, int64_t* size) {
        const World& w = of(world);
        const std::lock_guard lock(w.mpi->mutex_);
        *done = 0;
        if (request->receives) {
            // MPI matches in the order of asking, not of looking.
            const Key key{request->from, w.rank, request->tag};
            auto& queue = w.mpi->queues_[key];
            auto& asked = w.mpi->asked_[key];
            if (queue.empty() || asked.front() != request) return 0;
            asked.pop_front();
            *size = static_cast<int64_t>(queue.front().size());
            if (*size > request->size) return 15;  // truncated
            std::memcpy(request->memory, queue.front().data(), queue.front().size());
            queue.pop_front();
        }
        *done = 1;
        return 0;
    }
    static int probe(void* world, int tag, int* found, int* from, int64_t* size) {
        World& w = of(world);
        std::unique_lock lock(w.mpi->mutex_);
        *found = 0;
        ++w.looks;
        if (std::exchange(w.ends, false)) {
            lock.unlock();
            w.told(w.context);
            for (;;) ::pause();
        }
        for (size_t r = 0; r < w.mpi->hosts_.size() && !*found; ++r) {
            const auto& queue = w.mpi->queues_[{static_cast<int>(r), w.rank, tag}];
            if (queue.empty()) continue;
            const auto looks = w.mpi->looks_.find({static_cast<int>(r), w.rank});
            if (looks != w.mpi->looks_.end() && ++looks->second % 200 != 0) continue;
            *found = 1;
            *from = static_cast<int>(r);
            *size = static_cast<int64_t>(queue.front().size());
        }
        return 0;
    }

    std::mutex mutex_;
    bool joins_ = true;
    std::vector<std::string> hosts_;
    std::vector<std::unique_ptr<World>> worlds_;
    std::vector<std::unique_ptr<cleave_mpi_request>> requests_;
    std::map<Key, std::deque<std::string>> queues_;
    std::map<Key, std::deque<const cleave_mpi_request*>> asked_;  // receipts that wait
    std::map<std::pair<int, int>, std::vector<int64_t>> sent_;
    std::map<std::pair<int, int>, int> looks_;
};

}  // namespace cleave::test
