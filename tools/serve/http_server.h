// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 on one thread, by Boost.Beast. In: requests of any number of clients, within limits.
// Out: one call of the handler for each, with a reply that any thread may answer, at once or piece
// by piece.
// Invariants: a client has one request under way and one write outstanding. A client that leaves,
// or that does not read what it asked for, is told of by HttpReply::when_gone, once. TLS is a
// proxy's work.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cleave::serve {

struct HttpLimits {
    uint32_t header_bytes = 16 << 10;
    uint64_t body_bytes = 4 << 20;
    size_t unread_bytes = 1 << 20;          // of a reply, before its client counts as gone
    size_t connections = 4096;              // more are answered with 503
    std::chrono::seconds request_time{30};  // from a connection's first byte to its whole request
    std::chrono::seconds idle_time{75};     // between requests
    std::chrono::seconds write_time{30};    // of one write
};

struct HttpRequest {
    std::string method;                 // "GET"
    std::string path;                   // without host and query, not percent-encoded
    std::string authorization, accept;  // the headers' values, empty without one
    std::string body;
};

struct HttpAnswer {
    int status = 200;
    std::string content_type = "application/json";
    std::string body;
    int64_t retry_after = 0;  // seconds; 0: no such header
    std::string allow;        // methods, of a 405
};

// Of one request. All functions return at once and may be called by any thread; what comes after
// the end, or for a client that is gone, is dropped. One that goes unanswered ends as a 500.
class HttpReply {
public:
    virtual ~HttpReply() = default;
    // The whole answer.
    virtual void send(HttpAnswer answer) = 0;
    // Or a stream: its head with the first piece, more pieces, the end.
    virtual void write(std::string piece) = 0;  // of text/event-stream
    virtual void finish() = 0;
    // Called once on the server's thread if the client leaves before the end.
    virtual void when_gone(std::function<void()> gone) = 0;
};

// Called on the server's thread: it must not block. What it throws is a 500.
using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<HttpReply>)>;

// Called on the server's thread with a request whose body has not been read: an answer refuses it,
// and ends its connection.
using HttpGate = std::function<std::optional<HttpAnswer>(const HttpRequest& head)>;

class HttpServer {
public:
    // Has the port from here on; `port` 0 takes a free one. UserError where the address cannot be
    // had. Nobody is answered before start().
    HttpServer(const std::string& host, uint16_t port, const HttpLimits& limits,
               HttpHandler handler, HttpGate gate = nullptr);
    ~HttpServer();  // stop()
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;

    void start();
    uint16_t port() const;
    size_t connections() const;
    // Takes no more connections and no more requests; replies under way go on. From its return on
    // the handler is not called. Not from the handler.
    void close();
    // close(), waits some seconds for clients to read what they were answered, ends all connections
    // and the thread.
    void stop();

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace cleave::serve
