// SPDX-License-Identifier: Apache-2.0
// One client of an HttpServer. In: a connected stream socket; what all clients share. Out: one call
// of the handler for each of its requests, in order, and the bytes of each reply.
// All functions are called on the thread of the socket's context, which the caller runs. A
// connection lives until it is closed and its last reply is gone.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include <boost/asio/ip/tcp.hpp>

#include "tools/serve/http_server.h"

namespace cleave::serve {

// For a client to read the end of its answer.
inline constexpr std::chrono::seconds kFlushTime{5};

// What all connections share; outlives them. Of the context's thread, but for `count`.
struct HttpShared {
    HttpLimits limits;
    HttpHandler handler;
    HttpGate gate;  // may be empty
    std::atomic<size_t> count{0};
    bool is_closing = false;
};

class HttpConnection {
public:
    virtual ~HttpConnection() = default;
    // No request is under way, and nothing is to be written.
    virtual bool is_idle() const = 0;
    // The next request, and those behind it.
    virtual void read_request() = 0;
    // Answers, and closes once that is read.
    virtual void refuse(const HttpAnswer& answer) = 0;
    virtual void close() = 0;
};

std::shared_ptr<HttpConnection> make_connection(boost::asio::ip::tcp::socket socket,
                                                HttpShared& shared);

// Of an error that no route has a text for.
HttpAnswer plain_error(int status, const std::string& message);

}  // namespace cleave::serve
