// SPDX-License-Identifier: Apache-2.0
// Calls about sockets, and waiting for them, that may be made to fail (fail_call.cpp).
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/types.h>

#include "tests/faults/fail_call.h"

using namespace cleave::faults;

// NOLINTBEGIN(readability-identifier-naming): the C library's names.
extern "C" {

int socket(int domain, int type, int protocol) {
    static auto* const kReal = next<int(int, int, int)>("socket");
    return fails(Kind::kSocket) ? refused(EMFILE, -1) : kReal(domain, type, protocol);
}
int socketpair(int domain, int type, int protocol, int ends[2]) {
    static auto* const kReal = next<int(int, int, int, int*)>("socketpair");
    return fails(Kind::kSocket) ? refused(EMFILE, -1) : kReal(domain, type, protocol, ends);
}
int setsockopt(int socket, int level, int name, const void* value, socklen_t size) {
    static auto* const kReal = next<int(int, int, int, const void*, socklen_t)>("setsockopt");
    return fails(Kind::kSocket) ? refused(ENOBUFS, -1) : kReal(socket, level, name, value, size);
}
int bind(int socket, const sockaddr* address, socklen_t size) {
    static auto* const kReal = next<int(int, const sockaddr*, socklen_t)>("bind");
    return fails(Kind::kSocket) ? refused(EADDRINUSE, -1) : kReal(socket, address, size);
}
int listen(int socket, int waiting) {
    static auto* const kReal = next<int(int, int)>("listen");
    return fails(Kind::kSocket) ? refused(EADDRINUSE, -1) : kReal(socket, waiting);
}
int getsockname(int socket, sockaddr* address, socklen_t* size) {
    static auto* const kReal = next<int(int, sockaddr*, socklen_t*)>("getsockname");
    return fails(Kind::kSocket) ? refused(ENOBUFS, -1) : kReal(socket, address, size);
}
int accept(int socket, sockaddr* address, socklen_t* size) {
    static auto* const kReal = next<int(int, sockaddr*, socklen_t*)>("accept");
    if (fails(Kind::kAccept)) return refused(EMFILE, -1);
    const int accepted = kReal(socket, address, size);
    if (accepted >= 0) note_client();
    return accepted;
}

int epoll_create1(int flags) {
    static auto* const kReal = next<int(int)>("epoll_create1");
    return fails(Kind::kWait) ? refused(EMFILE, -1) : kReal(flags);
}
// Of a file that is waited for already the system never refuses a change. Asio does not look at the
// answer for its own events and timers.
int epoll_ctl(int poll, int what, int file, epoll_event* event) {
    static auto* const kReal = next<int(int, int, int, epoll_event*)>("epoll_ctl");
    return what == EPOLL_CTL_ADD && !is_event(file) && fails(Kind::kWait)
               ? refused(ENOSPC, -1)
               : kReal(poll, what, file, event);
}
int epoll_wait(int poll, epoll_event* events, int most, int milliseconds) {
    static auto* const kReal = next<int(int, epoll_event*, int, int)>("epoll_wait");
    return fails(Kind::kWait) ? refused(EINTR, -1) : kReal(poll, events, most, milliseconds);
}
int eventfd(unsigned value, int flags) {
    static auto* const kReal = next<int(unsigned, int)>("eventfd");
    return fails(Kind::kWait) ? refused(EMFILE, -1) : kReal(value, flags);
}
int timerfd_create(int clock, int flags) {
    static auto* const kReal = next<int(int, int)>("timerfd_create");
    return fails(Kind::kWait) ? refused(EMFILE, -1) : kReal(clock, flags);
}
int poll(pollfd* files, nfds_t count, int milliseconds) {
    static auto* const kReal = next<int(pollfd*, nfds_t, int)>("poll");
    return fails(Kind::kWait) ? refused(EINTR, -1) : kReal(files, count, milliseconds);
}

ssize_t recv(int socket, void* to, size_t size, int flags) {
    static auto* const kReal = next<ssize_t(int, void*, size_t, int)>("recv");
    return fails(Kind::kReceive) ? refused<ssize_t>(ECONNRESET, -1)
                                 : kReal(socket, to, size, flags);
}
ssize_t recvmsg(int socket, msghdr* message, int flags) {
    static auto* const kReal = next<ssize_t(int, msghdr*, int)>("recvmsg");
    return fails(Kind::kReceive) ? refused<ssize_t>(ECONNRESET, -1) : kReal(socket, message, flags);
}
ssize_t send(int socket, const void* from, size_t size, int flags) {
    static auto* const kReal = next<ssize_t(int, const void*, size_t, int)>("send");
    return fails(Kind::kSend) ? refused<ssize_t>(EPIPE, -1) : kReal(socket, from, size, flags);
}
ssize_t sendmsg(int socket, const msghdr* message, int flags) {
    static auto* const kReal = next<ssize_t(int, const msghdr*, int)>("sendmsg");
    return fails(Kind::kSend) ? refused<ssize_t>(EPIPE, -1) : kReal(socket, message, flags);
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
