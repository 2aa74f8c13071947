// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/serve/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

namespace cleave::test {

HttpClient::HttpClient(uint16_t port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{200, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
        throw std::runtime_error(fmt::format("nobody listens at port {}", port));
}

HttpClient::~HttpClient() { close(socket_); }

void HttpClient::write(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
        const ssize_t sent = send(socket_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
        if (sent <= 0) return;  // the server has ended it: what it said is read
        at += static_cast<size_t>(sent);
    }
}

bool HttpClient::fill() {
    char bytes[4096];
    const ssize_t got = recv(socket_, bytes, sizeof bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        throw std::runtime_error("no answer within 200 s");
    if (got <= 0) return false;
    buffer_.append(bytes, static_cast<size_t>(got));
    return true;
}

std::string HttpClient::read_some() {
    if (buffer_.empty()) fill();
    return std::exchange(buffer_, "");
}

void HttpClient::end_writing() { ::shutdown(socket_, SHUT_WR); }

HttpResult HttpClient::read() {
    HttpResult result;
    size_t end = 0;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos)
        if (!fill()) return result;
    result.head = buffer_.substr(0, end + 2);
    buffer_.erase(0, end + 4);
    result.status = std::stoi(result.head.substr(9, 3));
    if (const size_t at = result.head.find("Content-Length: "); at != std::string::npos) {
        const size_t length = std::stoul(result.head.substr(at + 16));
        while (buffer_.size() < length && fill()) {
        }
        result.body = buffer_.substr(0, length);
        buffer_.erase(0, length);
        return result;
    }
    while (true) {
        size_t line = 0;
        while ((line = buffer_.find("\r\n")) == std::string::npos)
            if (!fill()) return result;
        const size_t size = std::stoul(buffer_.substr(0, line), nullptr, 16);
        while (buffer_.size() < line + 2 + size + 2)
            if (!fill()) return result;
        result.body += buffer_.substr(line + 2, size);
        buffer_.erase(0, line + 2 + size + 2);
        if (size == 0) return result;
    }
}

HttpResult HttpClient::get(const std::string& path, const std::string& headers) {
    write(fmt::format("GET {} HTTP/1.1\r\nHost: test\r\n{}\r\n", path, headers));
    return read();
}

HttpResult HttpClient::post(const std::string& path, const std::string& body,
                            const std::string& headers) {
    write(post_text(path, body, headers));
    return read();
}

std::string post_text(const std::string& path, const std::string& body,
                      const std::string& headers) {
    return fmt::format("POST {} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n{}\r\n{}", path,
                       body.size(), headers, body);
}

std::vector<std::string> events_of(const std::string& stream) {
    std::vector<std::string> events;
    for (size_t at = 0; (at = stream.find("data: ", at)) != std::string::npos;) {
        const size_t end = stream.find("\n\n", at);
        events.push_back(stream.substr(at + 6, end - at - 6));
        if (end == std::string::npos) break;
        at = end;
    }
    return events;
}

}  // namespace cleave::test
