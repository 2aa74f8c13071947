// SPDX-License-Identifier: Apache-2.0
// One client of an HttpServer. In: a connected stream socket; what all clients share. Out: one call
// of the handler for each of its requests, in order, and the bytes of each reply.
// All functions are called on the thread of the socket's context, which the caller runs. A
// connection lives until it is closed and its last reply is gone.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

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

// Posts what ends something, and must therefore arrive: without memory it tries again for some
// seconds. False where there was none.
template <class Executor, class Work>
bool post_at_last(Executor&& executor, const Work& work) noexcept {
    constexpr std::chrono::milliseconds kPause{10};
    for (auto left = kFlushTime / kPause; left > 0; --left) {
        try {
            boost::asio::post(executor, work);
            return true;
        } catch (const std::bad_alloc&) {
            std::this_thread::sleep_for(kPause);
        }
    }
    return false;
}

class HttpConnection {
public:
    virtual ~HttpConnection() = default;
    // No request is under way, and nothing is to be written.
    virtual bool is_idle() const = 0;
    // The next request, and those behind it.
    virtual void read_request() = 0;
    // Answers, and closes once that is read.
    virtual void refuse(const HttpAnswer& answer) = 0;
    virtual void close() noexcept = 0;
};

std::shared_ptr<HttpConnection> make_connection(boost::asio::ip::tcp::socket socket,
                                                HttpShared& shared);

// Of an error that no route has a text for.
HttpAnswer plain_error(int status, const std::string& message);

}  // namespace cleave::serve
