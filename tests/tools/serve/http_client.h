// SPDX-License-Identifier: Apache-2.0
// A client that tests write bytes with and read bytes from: one connection to 127.0.0.1, 200 s at
// most for each answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cleave::test {

struct HttpResult {
    int status = 0;  // 0: the connection ended before an answer
    std::string head;
    std::string body;  // chunks put together
};

class HttpClient {
public:
    explicit HttpClient(uint16_t port);
    ~HttpClient();
    HttpClient(const HttpClient&) = delete;
    HttpClient& operator=(const HttpClient&) = delete;

    void write(const std::string& bytes);
    // Nothing more is written; what the server says can still be read.
    void end_writing();
    HttpResult read();
    // The next bytes that come; empty at the end.
    std::string read_some();
    bool has_ended() { return read_some().empty(); }

    HttpResult get(const std::string& path, const std::string& headers = "");
    HttpResult post(const std::string& path, const std::string& body,
                    const std::string& headers = "");

private:
    bool fill();
    int socket_ = -1;
    std::string buffer_;
};

std::string post_text(const std::string& path, const std::string& body,
                      const std::string& headers = "");

// The data of each server-sent event, in order.
std::vector<std::string> events_of(const std::string& stream);

}  // namespace cleave::test
