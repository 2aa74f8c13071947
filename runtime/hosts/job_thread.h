// SPDX-License-Identifier: Apache-2.0
// The thread of a job, which alone calls MPI, and what it shares with the threads that ask it.
// For job.cpp alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/base/short_sleeps.h"
#include "runtime/hosts/job.h"

namespace cleave::runtime {

using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;

// MPI's tags: one for all messages, and from kFirstChannel on those of payloads.
inline constexpr int kMessages = 1, kFirstChannel = 16;

// Between two looks at MPI: kLongest while devices compute and no payload is under way, as a look
// costs a core some 20 microseconds (Open MPI 4.1, TCP); JobOptions::rarest while all of them do,
// nothing is under way and rank 0 waits for nothing; else a share of the time since something last
// happened, so that a wait is longer by that share at most.
inline constexpr std::chrono::microseconds kShortest{20}, kLongest{1000};
inline constexpr int kShare = 256;

struct HostJob::Impl {
    // What the job's thread has asked MPI for.
    struct Request {
        cleave_mpi_request* request = nullptr;
        std::string bytes;  // of a message
        int64_t size = 0;   // that a receipt must have; -1: of a send
        int peer = 0;
        bool is_message = false;
        std::function<void()> done;
    };
    // What the others ask of it.
    struct Order {
        bool sends = true;
        int peer = 0, tag = 0;
        void* memory = nullptr;
        int64_t size = 0;
        std::string bytes;
        std::function<void()> done;
    };

    Impl(const cleave_mpi_table& m, JobOptions o) : mpi(m), options(std::move(o)) {}

    const cleave_mpi_table& mpi;
    const JobOptions options;
    int rank = 0, size = 1;
    std::string host;
    std::vector<std::string> hosts;

    std::mutex mutex;  // of all below but what the job's thread has for itself
    std::condition_variable changed, asked;
    std::deque<Order> orders;
    std::map<std::pair<int, Message>, std::deque<std::string>> inbox;
    std::string failure;
    std::atomic<bool> failed{false};
    std::vector<bool> left, answered, forgiven;
    std::vector<Clock::time_point> heard;
    Clock::time_point looked;
    // When all others were asked for a sign of life; `answered` has who gave one, or has left.
    std::optional<Clock::time_point> asked_at;
    bool joined = false, stops = false, ended = false, quits = false;
    bool told = false;  // another rank has said why the run failed, and said so to all
    std::atomic<int64_t> payload_bytes{0}, message_bytes{0};
    std::vector<int> unsent;  // messages under way, by rank
    bool lost_rank = false;
    const std::atomic<uint64_t>* progress = nullptr;
    const std::atomic<int>* in_pass = nullptr;
    int devices = 0;            // that may be in a pass
    int awaited = 0;            // messages of other ranks that rank 0 waits for
    bool looks_rarely = false;  // at MPI, until a pass ends
    std::function<std::string()> status;
    std::map<int, std::string> statuses;
    std::vector<std::string> interfaces;
    std::atomic<uint64_t> progress_of_others{0};

    // The job's thread alone.
    std::list<Request> requests;
    std::vector<std::string> counts;  // of the others' progress
    Clock::time_point spoke, happened;

    std::string name(int r) const {
        const auto at = static_cast<size_t>(r);
        return at < hosts.size() && hosts[at] != std::to_string(r)
                   ? fmt::format("rank {} ({})", r, hosts[at])
                   : fmt::format("rank {}", r);
    }

    // ---- The job's thread

    std::string named(int r) {
        const Lock lock(mutex);
        return name(r);
    }

    std::string text_of(int error) const {
        char text[512] = "";
        mpi.error_text(mpi.world, error, text, sizeof text);
        return text;
    }

    void check(int error, const char* what, int peer) {
        if (error == 0) return;
        fail(fmt::format("{} {}: {}", what, named(peer), text_of(error)));
    }

    void fail(const std::string& why) {
        const Lock lock(mutex);
        fail(lock, why);
    }
    void fail(const Lock&, const std::string& why) {
        if (failure.empty()) failure = why;
        if (!failed.exchange(true) && options.failed) options.failed();
        if (options.cancel) options.cancel->cancel();
        changed.notify_all();
    }

    // MPI ends this process where a connection breaks; its thread never comes back from there.
    static void end(void* impl) noexcept {
        auto& job = *static_cast<Impl*>(impl);
        const Lock lock(job.mutex);
        const std::string whom = job.size == 2 ? job.name(1 - job.rank) : "another rank";
        job.fail(lock, job.joined ? fmt::format("the connection to {} broke: it has ended, or the "
                                                "network to it is down",
                                                whom)
                                  : "MPI could not reach the other ranks, and gave up");
        job.joined = job.ended = true;
        job.changed.notify_all();
    }

    void serve() noexcept {
        const ShortSleeps short_sleeps;
        mpi.on_end(mpi.world, end, this);
        if (!join()) return;
        while (turn()) {
        }
        if (!quits) mpi.finalize(mpi.world);
        const Lock lock(mutex);
        ended = true;
        changed.notify_all();
    }

    bool join() {
        char processor[256] = "";
        const int error = mpi.init(mpi.world, &rank, &size, processor, sizeof processor);
        const Lock lock(mutex);
        host = processor;
        left.assign(static_cast<size_t>(size), false);
        answered = forgiven = left;
        unsent.assign(static_cast<size_t>(size), 0);
        heard.assign(static_cast<size_t>(size), Clock::now());
        counts.resize(static_cast<size_t>(size));
        spoke = happened = looked = Clock::now();
        joined = true;
        if (error) fail(lock, "MPI did not start: " + text_of(error));
        changed.notify_all();
        if (error) ended = true;
        return error == 0;
    }

    // One look at everything; false: the thread ends.
    bool turn() {
        std::deque<Order> taken;
        {
            Lock lock(mutex);
            if (orders.empty() && !stops) {
                const Clock::duration wait = until_next_look();
                looks_rarely = wait == options.rarest;
                asked.wait_for(lock, wait);
                looks_rarely = false;
            }
            std::swap(taken, orders);
            if (stops && taken.empty() && (all_sent() || quits)) return false;
        }
        const Clock::time_point now = Clock::now();
        if (!taken.empty()) happened = now;
        for (Order& order : taken) start(order);
        accept();
        test_all();
        tell(now);
        return true;
    }

    // With the mutex.
    Clock::duration until_next_look() const {
        const bool none = std::ranges::all_of(requests, &Request::is_message);
        if (const int busy = none && in_pass ? in_pass->load() : 0)
            return busy == devices && requests.empty() && awaited == 0 ? options.rarest : kLongest;
        return std::clamp<Clock::duration>((Clock::now() - happened) / kShare, kShortest, kLongest);
    }

    void start(Order& order) {
        Request& r = requests.emplace_back();
        r.peer = order.peer;
        r.done = std::move(order.done);
        r.bytes = std::move(order.bytes);
        r.is_message = order.tag == kMessages;
        if (r.is_message) {
            order.memory = r.bytes.data();
            order.size = static_cast<int64_t>(r.bytes.size());
        }
        r.size = order.sends ? -1 : order.size;
        const int error =
            order.sends
                ? mpi.send(mpi.world, order.memory, order.size, r.peer, order.tag, &r.request)
                : mpi.receive(mpi.world, order.memory, order.size, r.peer, order.tag, &r.request);
        if (!error) return;
        check(error, order.sends ? "a message could not be sent to" : "nothing comes from", r.peer);
        finish(requests.back());
        requests.pop_back();
    }

    void finish(Request& r) {
        if (!r.is_message) return;
        const Lock lock(mutex);
        if (r.size < 0) --unsent[static_cast<size_t>(r.peer)];
        changed.notify_all();
    }

    // Receives the messages that are there.
    void accept() {
        for (;;) {
            int found = 0, from = 0;
            int64_t bytes = 0;
            if (mpi.probe(mpi.world, kMessages, &found, &from, &bytes) || !found) return;
            Request& r = requests.emplace_back();
            r.peer = from;
            r.is_message = true;
            r.size = bytes;
            r.bytes.resize(static_cast<size_t>(bytes));
            if (int error =
                    mpi.receive(mpi.world, r.bytes.data(), bytes, from, kMessages, &r.request)) {
                requests.pop_back();
                return check(error, "nothing comes from", from);
            }
            // In the order of their coming: the next is looked for once this one is whole.
            int state = 0;
            while ((state = test(r)) == 0 && still_there(r.peer))
                std::this_thread::sleep_for(kShortest);
            if (state > 0) deliver(r);
            requests.pop_back();
        }
    }

    bool still_there(int peer) {
        const Lock lock(mutex);
        account_for_stop();
        if (Clock::now() - heard[static_cast<size_t>(peer)] < options.silent) return true;
        silence(lock, peer);
        return false;
    }

    // What is under way to it will never arrive, and nobody waits for that. The reason comes at
    // once: a rank that is gone without one would be taken for one that has left.
    void silence(const Lock& lock, int peer) {
        lost_rank = left[static_cast<size_t>(peer)] = true;
        fail(lock,
             fmt::format("{} gave no sign of life for {:.0f} s: it has ended or stopped, or the "
                         "network to it is down",
                         name(peer), std::chrono::duration<double>(options.silent).count()));
    }

    // 1: done, 0: not yet, -1: failed.
    int test(Request& r) {
        int done = 0;
        int64_t size = 0;
        const int error = mpi.test(mpi.world, r.request, &done, &size);
        if (error) {
            check(error, r.size < 0 ? "a message was not sent to" : "a message did not come from",
                  r.peer);
            return -1;
        }
        if (!done) return 0;
        if (r.size >= 0 && size != r.size) {
            fail(fmt::format("{} sent {} bytes for a step that takes {}", named(r.peer), size,
                             r.size));
            return -1;
        }
        return 1;
    }

    void test_all() {
        for (auto r = requests.begin(); r != requests.end();) {
            const int state = test(*r);
            if (state == 0) {
                ++r;
                continue;
            }
            heard_of(*r);
            finish(*r);
            if (state > 0 && r->done) r->done();
            happened = Clock::now();
            r = requests.erase(r);
        }
    }

    void heard_of(const Request& r) {
        if (r.size < 0) return;
        const Lock lock(mutex);
        heard[static_cast<size_t>(r.peer)] = Clock::now();
        forgiven[static_cast<size_t>(r.peer)] = false;
    }

    void deliver(Request& r) {
        heard_of(r);
        if (r.bytes.empty()) return fail(fmt::format("{} sent an empty message", named(r.peer)));
        const auto kind = static_cast<Message>(r.bytes[0]);
        std::string body = r.bytes.substr(1);
        if (kind == Message::kAsk) {
            const Lock lock(mutex);
            if (!stops) say_alive(r.peer);
            return;
        }
        if (kind == Message::kAlive) {
            const size_t space = std::min(body.find(' '), body.size());
            {
                const Lock lock(mutex);
                answered[static_cast<size_t>(r.peer)] = true;
                changed.notify_all();
                statuses[r.peer] = body.substr(std::min(space + 1, body.size()));
            }
            body.resize(space);
            std::string& count = counts[static_cast<size_t>(r.peer)];
            if (count != body) ++progress_of_others;
            count = std::move(body);
            return;
        }
        happened = Clock::now();
        const Lock lock(mutex);
        if (kind == Message::kLeaves)
            left[static_cast<size_t>(r.peer)] = answered[static_cast<size_t>(r.peer)] = true;
        if (kind == Message::kFailed) {
            left[static_cast<size_t>(r.peer)] = true;
            told = told || !failed;
            fail(lock, fmt::format("{} ended: {}", name(r.peer), body));
        }
        inbox[{r.peer, kind}].push_back(std::move(body));
        changed.notify_all();
    }

    // That this rank lives, and whether the others do.
    void tell(Clock::time_point now) {
        if (now - spoke >= options.alive) {
            spoke = now;
            for (int r = 0; r < size; ++r) {
                const Lock lock(mutex);
                if (r != rank && !left[static_cast<size_t>(r)] && !stops) say_alive(r);
            }
        }
        for (int r = 0; r < size; ++r) {
            bool gone = false;
            {
                const Lock lock(mutex);
                gone = r == rank || left[static_cast<size_t>(r)] || failed;
            }
            if (!gone) still_there(r);
        }
    }

    // ---- Any thread, with the mutex

    bool is_under_way() const { return !stops && joined && !ended && !failed; }

    // While this rank was stopped itself, and the job's thread looked at nothing, it heard nobody.
    // Once between two signs of life: on a host without time for this thread a rank can be lost.
    void account_for_stop() {
        const Clock::time_point now = Clock::now();
        const Clock::duration since = now - looked;
        looked = now;
        if (since < options.silent / 10) return;
        for (size_t r = 0; r < heard.size(); ++r) {
            if (!forgiven[r]) heard[r] = std::min(heard[r] + since, now);
            forgiven[r] = true;
        }
    }

    void ask_around(const Lock& lock) {
        if (!is_under_way()) return;
        account_for_stop();  // the signal that ended the stop may be seen here first
        const Clock::time_point now = Clock::now();
        asked_at = now;
        answered = left;
        answered[static_cast<size_t>(rank)] = true;
        std::vector<bool> there(answered.size());
        for (size_t r = 0; r < there.size(); ++r)
            there[r] = answered[r] || now - heard[r] <= options.missed;
        if (std::ranges::count(there, false) > 0)
            return lose(lock, there,
                        fmt::format("gave no sign of life for {:.0f} s or longer",
                                    std::chrono::duration<double>(options.missed).count()));
        for (int r = 0; r < size; ++r)
            if (!answered[static_cast<size_t>(r)]) queue(r, Message::kAsk);
    }

    // The ranks that are not there are why the run fails, and nobody waits for them.
    void lose(const Lock& lock, const std::vector<bool>& there, const std::string& why) {
        std::string names;
        for (size_t r = 0; r < there.size(); ++r) {
            if (there[r]) continue;
            names += (names.empty() ? "" : ", ") + name(static_cast<int>(r));
            lost_rank = left[r] = true;
        }
        fail(lock, fmt::format("{} {}, and mpirun ends this rank", names, why));
    }

    // To those that are there still, or to all.
    bool all_sent() const {
        for (size_t r = 0; r < unsent.size(); ++r)
            if (unsent[r] > 0 && !(lost_rank && left[r])) return false;
        return true;
    }

    void queue(int to, Message kind, std::string bytes = "") {
        Order order;
        order.peer = to;
        order.tag = kMessages;
        order.bytes = std::move(bytes.insert(0, 1, static_cast<char>(kind)));
        message_bytes += static_cast<int64_t>(order.bytes.size());
        ++unsent[static_cast<size_t>(to)];
        orders.push_back(std::move(order));
        asked.notify_one();
    }

    void say_alive(int to) {
        queue(to, Message::kAlive,
              (progress ? std::to_string(*progress) : "") + " " + (status ? status() : ""));
    }

    void throw_if_failed() const {
        if (failed) throw HostError(failure);
        if (options.cancel) options.cancel->throw_if_cancelled();
    }
};

}  // namespace cleave::runtime
