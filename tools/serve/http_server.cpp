// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/http_server.h"

#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include "runtime/base/errors.h"

namespace cleave::serve {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

namespace {

// For a client to read the end of its answer.
constexpr std::chrono::seconds kFlushTime{5};

// What is still read of a client that was refused, so that its system does not drop the answer.
constexpr size_t kMostLingeringBytes = 64 << 20;

// What all connections share; of the server's thread, but for `count`.
struct Shared {
    HttpLimits limits;
    HttpHandler handler;
    HttpGate gate;
    std::atomic<size_t> count{0};
    bool is_closing = false;
};

std::string head_of(http::status status, std::string_view content_type, bool keep_alive,
                    std::string_view more) {
    return fmt::format(
        "HTTP/1.1 {} {}\r\nServer: cleave\r\nContent-Type: {}\r\nConnection: {}\r\n{}",
        static_cast<unsigned>(status), std::string(http::obsolete_reason(status)), content_type,
        keep_alive ? "keep-alive" : "close", more);
}

std::string whole_answer(const HttpAnswer& answer, bool keep_alive, bool is_head) {
    std::string more = fmt::format("Content-Length: {}\r\n", answer.body.size());
    if (answer.retry_after > 0) more += fmt::format("Retry-After: {}\r\n", answer.retry_after);
    if (!answer.allow.empty()) more += fmt::format("Allow: {}\r\n", answer.allow);
    return head_of(static_cast<http::status>(answer.status), answer.content_type, keep_alive,
                   more) +
           "\r\n" + (is_head ? std::string() : answer.body);
}

HttpAnswer plain_error(int status, const std::string& message) {
    return {
        status, "application/json",
        fmt::format(R"({{"error":{{"message":"{}","type":"invalid_request_error"}}}})", message)};
}

// A client. All functions are called on the server's thread.
class Connection : public std::enable_shared_from_this<Connection> {
public:
    Connection(Tcp::socket socket, Shared& shared) : stream_(std::move(socket)), shared_(shared) {
        ++shared_.count;
    }
    ~Connection() { --shared_.count; }

    // No request is under way, and nothing is to be written.
    bool is_idle() const { return turn_ == 0 && pending_.empty() && writing_.empty(); }

    auto executor() { return stream_.get_executor(); }

    void refuse(const HttpAnswer& answer) {
        pending_ += whole_answer(answer, false, false);
        is_last_ = true;
        write_next();
    }

    void read_request() {
        if (shared_.is_closing) return close();
        parser_.emplace();
        parser_->header_limit(shared_.limits.header_bytes);
        parser_->body_limit(shared_.limits.body_bytes);
        // The first byte may be long in coming; what follows it may not.
        stream_.expires_after(buffer_.size() > 0 ? shared_.limits.request_time
                                                 : shared_.limits.idle_time);
        if (buffer_.size() > 0) return read_whole();
        stream_.async_read_some(buffer_.prepare(4096),
                                [self = shared_from_this()](ErrorCode error, size_t bytes) {
                                    if (error) return self->close();
                                    self->buffer_.commit(bytes);
                                    self->stream_.expires_after(self->shared_.limits.request_time);
                                    self->read_whole();
                                });
    }

    void send(uint64_t turn, const HttpAnswer& answer) {
        if (turn != turn_ || is_streaming_) return;
        pending_ += whole_answer(answer, keep_alive_, is_head_);
        end_reply();
    }
    void write(uint64_t turn, const std::string& piece) {
        if (turn != turn_) return;
        if (!std::exchange(is_streaming_, true))
            pending_ += head_of(http::status::ok, "text/event-stream", keep_alive_,
                                fmt::format("Cache-Control: no-cache\r\n{}\r\n",
                                            is_chunked_ ? "Transfer-Encoding: chunked\r\n" : ""));
        if (!piece.empty() && !is_head_)
            pending_ += is_chunked_ ? fmt::format("{:x}\r\n{}\r\n", piece.size(), piece) : piece;
        if (pending_.size() + writing_.size() > shared_.limits.unread_bytes) return close();
        write_next();
    }
    void finish(uint64_t turn) {
        if (turn != turn_ || !is_streaming_) return;
        if (is_chunked_ && !is_head_) pending_ += "0\r\n\r\n";
        end_reply();
    }
    void when_gone(uint64_t turn, std::function<void()> gone) {
        if (turn == turn_)
            gone_ = std::move(gone);
        else if (closed_in_ == turn)
            gone();
    }
    // Nobody will answer.
    void abandon(uint64_t turn) {
        if (turn != turn_) return;
        if (is_streaming_) return close();
        send(turn, plain_error(500, "the server gave no answer"));
    }

    // Also after a time that ran out, when Beast has closed the socket.
    void close() {
        if (std::exchange(is_closed_, true)) return;
        ErrorCode ignored;
        ignored = stream_.socket().shutdown(Tcp::socket::shutdown_both, ignored);
        ignored = stream_.socket().close(ignored);
        closed_in_ = std::exchange(turn_, 0);
        pending_.clear();
        if (auto gone = std::exchange(gone_, nullptr)) gone();
    }

private:
    void read_whole() {
        http::async_read_header(
            stream_, buffer_, *parser_,
            [self = shared_from_this()](ErrorCode error, size_t) { self->read_body(error); });
    }
    void read_body(ErrorCode error);
    void take_request(ErrorCode error);
    void watch();
    void write_next();
    void linger();
    void end_reply() {
        turn_ = 0;
        gone_ = nullptr;
        is_streaming_ = false;
        is_last_ = !keep_alive_;
        has_ended_ = true;
        write_next();
    }

    beast::tcp_stream stream_;
    Shared& shared_;
    beast::flat_buffer buffer_;
    std::optional<http::request_parser<http::string_body>> parser_;

    uint64_t turns_ = 0, turn_ = 0;  // of the request under way; 0: none
    uint64_t closed_in_ = 0;
    bool keep_alive_ = false, is_head_ = false, is_chunked_ = false;
    bool is_streaming_ = false, is_closed_ = false;
    bool has_ended_ = false, is_last_ = false;  // the reply; and the connection with it
    std::function<void()> gone_;

    std::string pending_, writing_;  // the second is the write under way; empty: there is none
    size_t lingering_ = 0;
};

// Posts to the server's thread. The last owner's going without an answer is an answer, too.
class Reply : public HttpReply {
public:
    Reply(std::shared_ptr<Connection> connection, uint64_t turn)
        : connection_(std::move(connection)), turn_(turn) {}
    ~Reply() override {
        post([turn = turn_](Connection& c) { c.abandon(turn); });
    }
    void send(HttpAnswer answer) override {
        post([turn = turn_, answer = std::move(answer)](Connection& c) { c.send(turn, answer); });
    }
    void write(std::string piece) override {
        post([turn = turn_, piece = std::move(piece)](Connection& c) { c.write(turn, piece); });
    }
    void finish() override {
        post([turn = turn_](Connection& c) { c.finish(turn); });
    }
    void when_gone(std::function<void()> gone) override {
        post([turn = turn_, gone = std::move(gone)](Connection& c) { c.when_gone(turn, gone); });
    }

private:
    template <class Work>
    void post(Work work) {
        asio::post(connection_->executor(),
                   [connection = connection_, work = std::move(work)] { work(*connection); });
    }
    std::shared_ptr<Connection> connection_;
    uint64_t turn_;
};

HttpRequest request_of(const http::request<http::string_body>& message) {
    const std::string target(message.target());
    return {std::string(message.method_string()), target.substr(0, target.find('?')),
            std::string(message[http::field::authorization]),
            std::string(message[http::field::accept]), ""};
}

// curl waits for this line before it sends a long body.
void Connection::read_body(ErrorCode error) {
    if (error) return take_request(error);
    if (shared_.gate && !parser_->is_done())
        if (const auto answer = shared_.gate(request_of(parser_->get()))) return refuse(*answer);
    const bool waits =
        beast::iequals(parser_->get()[http::field::expect], "100-continue") && buffer_.size() == 0;
    const auto read = [self = shared_from_this()](ErrorCode written, size_t) {
        if (written) return self->close();
        http::async_read(self->stream_, self->buffer_, *self->parser_,
                         [self](ErrorCode failed, size_t) { self->take_request(failed); });
    };
    if (!waits) return read({}, 0);
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    asio::async_write(stream_, asio::buffer(kContinue), read);
}

void Connection::take_request(ErrorCode error) {
    if (error == http::error::body_limit)
        return refuse(plain_error(
            413, fmt::format("a request's body has at most {} bytes", shared_.limits.body_bytes)));
    if (error == http::error::header_limit)
        return refuse(plain_error(431, fmt::format("a request's header has at most {} bytes",
                                                   shared_.limits.header_bytes)));
    if (error && error.category() != http::make_error_code(http::error::bad_method).category())
        return close();
    if (error == http::error::end_of_stream || error == http::error::partial_message)
        return close();
    if (error) return refuse(plain_error(400, "this is no HTTP request: " + error.message()));
    if (shared_.is_closing) return refuse(plain_error(503, "the server is ending"));
    stream_.expires_never();
    auto message = parser_->release();
    is_chunked_ = message.version() >= 11;
    keep_alive_ = message.keep_alive() && is_chunked_;
    is_head_ = message.method() == http::verb::head;
    is_streaming_ = has_ended_ = false;
    turn_ = ++turns_;
    HttpRequest request = request_of(message);
    request.body = std::move(message.body());
    auto reply = std::make_shared<Reply>(shared_from_this(), turn_);
    try {
        shared_.handler(std::move(request), reply);
    } catch (const std::exception&) {
        reply->send(plain_error(500, "the server failed on this request"));
    }
    watch();
}

// While a reply is under way: an end of the stream is a client that left.
void Connection::watch() {
    if (turn_ == 0) return;
    stream_.socket().async_wait(
        Tcp::socket::wait_read, [self = shared_from_this(), turn = turn_](ErrorCode error) {
            if (error || self->turn_ != turn) return;
            char byte = 0;
            const ssize_t got =
                recv(self->stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return self->close();
            // More bytes are the next request: whether its client leaves shows when it is read.
            if (got < 0) self->watch();
        });
}

// All that is pending, in one write.
void Connection::write_next() {
    if (!writing_.empty() || is_closed_) return;
    if (pending_.empty()) {
        if (is_last_) return linger();
        if (std::exchange(has_ended_, false)) read_request();
        return;
    }
    writing_.swap(pending_);
    stream_.expires_after(shared_.limits.write_time);
    asio::async_write(stream_, asio::buffer(writing_),
                      [self = shared_from_this()](ErrorCode error, size_t) {
                          self->writing_.clear();
                          if (error) return self->close();
                          self->stream_.expires_never();
                          self->write_next();
                      });
}

// Closing while bytes are unread would reset the connection, and the answer would be lost with it.
void Connection::linger() {
    if (lingering_ == 0) {
        ErrorCode ignored;
        ignored = stream_.socket().shutdown(Tcp::socket::shutdown_send, ignored);
        stream_.expires_after(kFlushTime);
    }
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(16 << 10),
                            [self = shared_from_this()](ErrorCode error, size_t bytes) {
                                self->lingering_ += bytes;
                                if (error || self->lingering_ > kMostLingeringBytes)
                                    return self->close();
                                self->linger();
                            });
}

}  // namespace

struct HttpServer::Impl {
    Shared shared;  // outlives the connections, which are the context's
    asio::io_context context{1};
    // The thread runs until stop(), also while nobody is connected.
    asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
    Tcp::acceptor acceptor{context};
    asio::steady_timer pause{context};
    uint16_t port = 0;
    std::vector<std::weak_ptr<Connection>> open;  // some of which have gone
    std::thread thread;

    void accept() {
        acceptor.async_accept([this](ErrorCode error, Tcp::socket socket) {
            if (!acceptor.is_open()) return;
            if (!error) {
                take(std::move(socket));
                return accept();
            }
            // Out of descriptors: those that are open go on, and one may end.
            pause.expires_after(std::chrono::milliseconds(50));
            pause.async_wait([this](ErrorCode) {
                if (acceptor.is_open()) accept();
            });
        });
    }
    void take(Tcp::socket socket) {
        ErrorCode ignored;
        ignored = socket.set_option(Tcp::no_delay(true), ignored);
        auto connection = std::make_shared<Connection>(std::move(socket), shared);
        std::erase_if(open, [](const auto& one) { return one.expired(); });
        open.push_back(connection);
        if (shared.count > shared.limits.connections)
            connection->refuse(plain_error(503, "too many connections; try again"));
        else
            connection->read_request();
    }
};

HttpServer::HttpServer(const std::string& host, uint16_t port, const HttpLimits& limits,
                       HttpHandler handler, HttpGate gate)
    : impl_(std::make_unique<Impl>()) {
    impl_->shared.limits = limits;
    impl_->shared.handler = std::move(handler);
    impl_->shared.gate = std::move(gate);
    ErrorCode error;
    const asio::ip::address address =
        asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
    if (error)
        throw UserError("{} is no address: give 127.0.0.1 (this machine alone), 0.0.0.0 or ::",
                        host);
    const Tcp::endpoint endpoint(address, port);
    Tcp::acceptor& acceptor = impl_->acceptor;
    error = acceptor.open(endpoint.protocol(), error);
    if (!error) error = acceptor.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) error = acceptor.bind(endpoint, error);
    if (!error) error = acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (error) throw UserError("cannot listen at {} port {}: {}", host, port, error.message());
    impl_->port = acceptor.local_endpoint().port();
}

void HttpServer::start() {
    impl_->accept();
    impl_->thread = std::thread([this] { impl_->context.run(); });
}

HttpServer::~HttpServer() { stop(); }

uint16_t HttpServer::port() const { return impl_->port; }

size_t HttpServer::connections() const { return impl_->shared.count; }

void HttpServer::close() {
    if (!impl_->thread.joinable()) return;
    std::promise<void> closed;
    asio::post(impl_->context, [impl = impl_.get(), &closed] {
        ErrorCode ignored;
        ignored = impl->acceptor.close(ignored);
        impl->shared.is_closing = true;
        for (const auto& one : impl->open)
            if (const auto connection = one.lock(); connection && connection->is_idle())
                connection->close();
        closed.set_value();
    });
    closed.get_future().wait();
}

void HttpServer::stop() {
    if (!impl_->thread.joinable()) return;
    close();
    // Answers that are given are sent, to those who read them.
    const auto end = std::chrono::steady_clock::now() + kFlushTime;
    while (impl_->shared.count > 0 && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    asio::post(impl_->context, [impl = impl_.get()] {
        for (const auto& one : impl->open)
            if (const auto connection = one.lock()) connection->close();
        impl->context.stop();
    });
    impl_->thread.join();
}

}  // namespace cleave::serve
