// SPDX-License-Identifier: Apache-2.0
// cleave_compile_worker nvrtc|hiprtc NAME...: opens the first library of those names and compiles
// what comes on standard input (protocol.h). A process of its own, because these libraries bring
// compilers that may abort, print, or clash with LLVM in Cleave's process. Whatever they print goes
// to standard error, which the client keeps.
#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "codegen/compile/worker/protocol.h"
#include "codegen/compile/worker/rtc.h"

using namespace cleave;
using namespace cleave::codegen;

namespace {

std::optional<Message> read_message(int fd, std::string& buffer) {
    bool broken = false;
    char bytes[65536];
    while (true) {
        if (std::optional<Message> message = take_message(buffer, broken)) return message;
        if (broken) return std::nullopt;
        ssize_t n = ::read(fd, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return std::nullopt;
        buffer.append(bytes, static_cast<size_t>(n));
    }
}

void serve(const Rtc& rtc, int out) {
    std::string buffer;
    while (std::optional<Message> request = read_message(0, buffer)) {
        Message answer{"failed", "the request has no source", "", ""};
        if (request->size() >= 2) {
            std::vector<std::string> options(request->begin() + 2, request->end());
            RtcResult result = rtc.compile((*request)[0], (*request)[1], options);
            answer = {result.ok ? "ok" : "failed", result.log, result.object, result.ptx};
        }
        std::string text = encode(answer);
        if (!write_all(out, text.data(), text.size())) return;
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        fmt::print(stderr,
                   "usage: cleave_compile_worker nvrtc|hiprtc LIBRARY... (run by cleave)\n");
        return 1;
    }
    std::signal(SIGPIPE, SIG_IGN);
    // The libraries' own output must not mix with the protocol.
    int out = ::dup(1);
    ::dup2(2, 1);
    const std::string kind = argv[1];
    const std::vector<std::string> names(argv + 2, argv + argc);
    Message hello;
    Rtc rtc = Rtc::open(kind, names);
    if (rtc.reason().empty())
        hello = {"ready", rtc.library(), rtc.version(), rtc.archs(), rtc.path()};
    else
        hello = {"missing", rtc.reason()};
    std::string text = encode(hello);
    if (write_all(out, text.data(), text.size()) && rtc.reason().empty()) serve(rtc, out);
    // Not return: destructors of these libraries are known to hang or crash, and nothing is left to
    // be saved.
    ::_exit(0);
}
