// SPDX-License-Identifier: Apache-2.0
// A wire with a delay, where the kernel has no netem: relay MICROSECONDS NAMESPACE NAMESPACE makes
// a TUN device `net0` in each of two network namespaces and carries every packet from one to the
// other, that long after it was sent. Says "ready" once both are there; runs until it is ended.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Packet {
    Clock::time_point due;
    std::vector<char> bytes;
};

int fail(const char* what) {
    std::perror(what);
    return -1;
}

int open_tun(const std::string& name) {
    const int home = ::open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
    if (home < 0 || ::setns(home, CLONE_NEWNET) != 0) return fail(name.c_str());
    ::close(home);
    const int tun = ::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (tun < 0) return fail("/dev/net/tun");
    ifreq request{};
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    std::strcpy(request.ifr_name, "net0");
    if (::ioctl(tun, TUNSETIFF, &request) != 0) return fail("TUNSETIFF");
    return tun;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fputs("relay MICROSECONDS NAMESPACE NAMESPACE\n", stderr);
        return 1;
    }
    const std::chrono::microseconds delay(std::atoll(argv[1]));
    const std::array<int, 2> ends{open_tun(argv[2]), open_tun(argv[3])};
    if (ends[0] < 0 || ends[1] < 0) return 1;
    ::prctl(PR_SET_TIMERSLACK, 1UL);
    // A wire waits for no core: it goes before whatever computes, where the system lets it.
    const sched_param first{.sched_priority = 1};
    if (::sched_setscheduler(0, SCHED_FIFO, &first) != 0) std::perror("SCHED_FIFO");
    std::puts("ready");
    std::fflush(stdout);
    std::array<std::deque<Packet>, 2> under_way;  // by the end that sent them
    std::vector<char> room(size_t{1} << 16);
    for (;;) {
        pollfd polled[2] = {{ends[0], POLLIN, 0}, {ends[1], POLLIN, 0}};
        auto due = Clock::time_point::max();
        for (const auto& queue : under_way)
            if (!queue.empty()) due = std::min(due, queue.front().due);
        timespec wait{};
        if (const auto left = due - Clock::now();
            due != Clock::time_point::max() && left.count() > 0)
            wait = {left.count() / 1'000'000'000, left.count() % 1'000'000'000};
        ::ppoll(polled, 2, due == Clock::time_point::max() ? nullptr : &wait, nullptr);
        for (size_t from = 0; from < 2; ++from) {
            for (ssize_t n = 0; (n = ::read(ends[from], room.data(), room.size())) > 0;)
                under_way[from].push_back(
                    {Clock::now() + delay, std::vector<char>(room.data(), room.data() + n)});
            auto& queue = under_way[from];
            for (; !queue.empty() && queue.front().due <= Clock::now(); queue.pop_front())
                // A packet that finds no room is lost, as on a wire.
                if (::write(ends[1 - from], queue.front().bytes.data(),
                            queue.front().bytes.size()) < 0)
                    continue;
        }
    }
}
