// SPDX-License-Identifier: Apache-2.0
#include "runtime/hosts/measure.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

namespace cleave::runtime {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kSmall = 8, kLarge = size_t{1} << 20;
constexpr int kMostSmall = 40, kMostLarge = 12;
constexpr std::chrono::milliseconds kEach{100};  // of small ones, and of large ones
constexpr std::chrono::milliseconds kPause{2};   // before each, as steps compute between messages
constexpr std::chrono::milliseconds kLook{10};   // whether the run has failed

// One payload to the other rank and back, or the other way round. Waits as a step does, asleep
// until the job's thread wakes it: to look now and then made each way 35 microseconds longer.
void exchange(HostJob& job, int other, std::vector<std::byte>& bytes, bool begins) {
    for (const bool sends : {begins, !begins}) {
        // Shared: the job's thread may come to it after a run that failed.
        const auto done = std::make_shared<std::promise<void>>();
        const auto end = [done] { done->set_value(); };
        if (sends)
            job.send_payload(other, 0, bytes, end);
        else
            job.receive_payload(other, 0, bytes, end);
        const std::future<void> ended = done->get_future();
        while (ended.wait_for(kLook) != std::future_status::ready) job.throw_if_failed();
    }
}

// Half of the middle time there and back; the first rank of the pair counts and says when to end.
int64_t half_round_trip(HostJob& job, int other, bool begins, size_t size, int most) {
    std::vector<std::byte> bytes(size);
    std::vector<int64_t> times;
    const Clock::time_point end = Clock::now() + kEach;
    for (int i = 0;; ++i) {
        bool more = i < 3 || (i < most && Clock::now() < end);
        if (begins)
            job.send(other, Message::kPing, more ? "1" : "");
        else
            more = !job.receive(other, Message::kPing).empty();
        if (!more) break;
        if (begins) std::this_thread::sleep_for(kPause);  // the other waits for it, as in a step
        const Clock::time_point before = Clock::now();
        exchange(job, other, bytes, begins);
        times.push_back(
            std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - before).count());
    }
    const auto middle = times.begin() + std::ssize(times) / 2;
    std::nth_element(times.begin(), middle, times.end());
    return *middle / 2;
}

}  // namespace

std::vector<std::vector<planner::NetworkRate>> measure_links(HostJob& job) {
    const int ranks = job.size();
    std::string mine;
    for (int a = 0; a < ranks; ++a)
        for (int b = a + 1; b < ranks; ++b) {
            if (job.rank() == a || job.rank() == b) {
                const bool begins = job.rank() == a;
                const int other = begins ? b : a;
                const int64_t latency = half_round_trip(job, other, begins, kSmall, kMostSmall);
                const int64_t large = half_round_trip(job, other, begins, kLarge, kMostLarge);
                if (begins)
                    mine += fmt::format(
                        "{} {} {} {}\n", a, b, latency,
                        int64_t{kLarge} * 1'000'000'000 / std::max<int64_t>(1, large - latency));
            }
            job.give("");  // the next pair has the network for itself
        }
    std::vector<std::vector<planner::NetworkRate>> rates;
    const std::vector<std::string> all = job.gather(mine);
    if (job.rank() != 0) return rates;
    const auto n = static_cast<size_t>(ranks);
    rates.assign(n, std::vector<planner::NetworkRate>(n));
    for (const std::string& text : all) {
        std::istringstream lines(text);
        size_t a = 0, b = 0;
        planner::NetworkRate rate;
        while (lines >> a >> b >> rate.latency_ns >> rate.bandwidth)
            rates.at(a).at(b) = rates.at(b).at(a) = rate;
    }
    return rates;
}

}  // namespace cleave::runtime
