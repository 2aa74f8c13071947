// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/bus_error.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace cleave::tools {

namespace {

// All below runs in a signal handler: no allocation, no locks, no streams.

void write_error(const char* text, size_t size) {
    [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, text, size);
}

void write_error(const char* text) { write_error(text, std::strlen(text)); }

uintptr_t hexadecimal(const char*& at) {
    uintptr_t value = 0;
    for (;; ++at) {
        if (*at >= '0' && *at <= '9')
            value = value * 16 + static_cast<uintptr_t>(*at - '0');
        else if (*at >= 'a' && *at <= 'f')
            value = value * 16 + static_cast<uintptr_t>(*at - 'a' + 10);
        else
            return value;
    }
}

// The file of a line "7f00-7f80 r--p 00000000 08:01 123   /a/path" of /proc/self/maps when the
// address is in it; null otherwise.
const char* file_of(const char* line, uintptr_t address) {
    const uintptr_t begin = hexadecimal(line);
    if (*line++ != '-') return nullptr;
    const uintptr_t end = hexadecimal(line);
    return address >= begin && address < end ? std::strchr(line, '/') : nullptr;
}

// Writes the name of the file that is mapped at the address, where one is.
bool write_file_at(uintptr_t address) {
    const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (maps < 0) return false;
    static char line[8192];
    size_t length = 0;
    char c = 0;
    while (::read(maps, &c, 1) == 1) {
        if (c != '\n') {
            if (length + 1 < sizeof line) line[length++] = c;
            continue;
        }
        line[length] = 0;
        length = 0;
        if (const char* file = file_of(line, address)) {
            write_error("cleave: ");
            for (const char* at = file; *at; ++at)
                write_error(static_cast<unsigned char>(*at) < 0x20 || *at == 0x7f ? "?" : at, 1);
            return true;
        }
    }
    return false;
}

void on_bus_error(int, siginfo_t* info, void*) {
    ::signal(SIGBUS, SIG_DFL);
    if (!write_file_at(reinterpret_cast<uintptr_t>(info->si_addr))) {
        ::raise(SIGBUS);
        return;
    }
    write_error(
        ": the file became shorter while it was read, or its disk fails; put the whole file there "
        "and start again\n");
    ::_exit(1);
}

}  // namespace

void tell_bus_errors() {
    struct sigaction action{};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace cleave::tools
