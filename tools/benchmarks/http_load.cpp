// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/http_load.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include "runtime/base/errors.h"

namespace cleave::bench {

namespace {

using Clock = std::chrono::steady_clock;

std::string post(const std::string& path, const std::string& body) {
    return fmt::format(
        "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
        path, body.size(), body);
}

// An answer that is on its way.
struct Stream {
    int socket = -1;
    double arrival_ms = 0, last_ms = 0;
    int64_t tokens = 0;
    std::string rest;  // after its last whole line
    bool is_done = false;
};

// Lines "data: {...}" are tokens, but for the last, which sums up.
void take_lines(Stream& stream, std::string_view more, double now_ms, HttpTimes& result) {
    stream.rest += more;
    size_t begin = 0;
    for (size_t end; (end = stream.rest.find('\n', begin)) != std::string::npos; begin = end + 1) {
        const std::string_view line(stream.rest.data() + begin, end - begin);
        if (line.starts_with("error:") || line.find("\"error\":{") != std::string_view::npos)
            throw UserError("the server: {}", line.substr(0, 300));
        if (!line.starts_with("data: {") || line.find("\"tokens\":[]") != std::string_view::npos)
            continue;
        if (stream.tokens++ == 0)
            result.first_ms.push_back(now_ms - stream.arrival_ms);
        else
            result.gaps_ms.push_back(now_ms - stream.last_ms);
        stream.last_ms = now_ms;
    }
    stream.rest.erase(0, begin);
}

}  // namespace

void send_all(int socket, std::string_view text) {
    while (!text.empty()) {
        const ssize_t sent = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
        if (sent <= 0) throw UserError("the server takes no request: {}", std::strerror(errno));
        text.remove_prefix(static_cast<size_t>(sent));
    }
}

int connect_to(int port) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
        return socket;
    ::close(socket);
    return -1;
}

HttpTimes stream_trace(int port, const std::string& path, const std::vector<std::string>& bodies,
                       const std::vector<runtime::TraceRequest>& trace) {
    HttpTimes result;
    int64_t tokens = 0;
    for (const runtime::TraceRequest& request : trace) tokens += request.output_tokens;
    const Clock::time_point start = Clock::now();
    const auto now_ms = [&] {
        return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    };
    std::vector<Stream> streams;
    size_t open = 0;
    while (streams.size() < trace.size() || open > 0) {
        while (streams.size() < trace.size() && trace[streams.size()].arrival_ms <= now_ms()) {
            const size_t number = streams.size();
            Stream& stream = streams.emplace_back();
            stream.arrival_ms = trace[number].arrival_ms;
            stream.socket = connect_to(port);
            if (stream.socket < 0) throw UserError("port {} takes no connection", port);
            send_all(stream.socket, post(path, bodies[number]));
            ++open;
        }
        std::vector<pollfd> waits;
        std::vector<size_t> of;
        for (size_t i = 0; i < streams.size(); ++i)
            if (!streams[i].is_done) {
                waits.push_back({streams[i].socket, POLLIN, 0});
                of.push_back(i);
            }
        double wait_ms = 1000;
        if (streams.size() < trace.size())
            wait_ms = std::clamp(trace[streams.size()].arrival_ms - now_ms(), 0.0, wait_ms);
        ::poll(waits.data(), waits.size(), static_cast<int>(wait_ms));
        for (size_t w = 0; w < waits.size(); ++w) {
            if (waits[w].revents == 0) continue;
            Stream& stream = streams[of[w]];
            char buffer[16384];
            const ssize_t size = ::recv(stream.socket, buffer, sizeof buffer, 0);
            if (size > 0) {
                take_lines(stream, {buffer, static_cast<size_t>(size)}, now_ms(), result);
                continue;
            }
            ::close(stream.socket);
            stream.is_done = true;
            --open;
        }
    }
    double last_ms = 0;
    int64_t seen = 0;
    for (const Stream& stream : streams) {
        last_ms = std::max(last_ms, stream.last_ms);
        seen += stream.tokens;
    }
    // A byte that is no whole character is held back, with the next token.
    if (seen < tokens * 9 / 10) throw UserError("the server gave {} tokens of {}", seen, tokens);
    result.tokens_per_second =
        static_cast<double>(tokens) * 1e3 / (last_ms - trace.front().arrival_ms);
    return result;
}

}  // namespace cleave::bench
