// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/http_connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

namespace cleave::serve {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

HttpAnswer plain_error(int status, const std::string& message) {
    return {
        status, "application/json",
        fmt::format(R"({{"error":{{"message":"{}","type":"invalid_request_error"}}}})", message)};
}

namespace {

// What is still read of a client that was refused, so that its system does not drop the answer.
constexpr size_t kMostLingeringBytes = 64 << 20;

// Of requests that a client sends before it has the answer to the one under way.
constexpr size_t kMostBytesAhead = 64 << 10;

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

// A client. All functions are called on the server's thread.
class Connection : public HttpConnection, public std::enable_shared_from_this<Connection> {
public:
    Connection(Tcp::socket socket, HttpShared& shared)
        : stream_(std::move(socket)), shared_(shared) {
        ++shared_.count;
    }
    ~Connection() override { --shared_.count; }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    // What asio calls later, as long as it keeps the connection. What throws, for want of memory,
    // ends the connection: its client may have lost a piece.
    template <class Work>
    auto handler(Work work) {
        return [self = shared_from_this(), work = std::move(work)](auto... results) {
            try {
                work(results...);
            } catch (const std::exception&) {
                self->close();
            }
        };
    }

    // No request is under way, and nothing is to be written.
    bool is_idle() const override { return turn_ == 0 && pending_.empty() && writing_.empty(); }

    auto executor() { return stream_.get_executor(); }

    void refuse(const HttpAnswer& answer) override {
        pending_ += whole_answer(answer, false, false);
        is_last_ = true;
        write_next();
    }

    void read_request() override {
        if (shared_.is_closing) return close();
        parser_.emplace();
        parser_->header_limit(shared_.limits.header_bytes);
        parser_->body_limit(shared_.limits.body_bytes);
        // The first byte may be long in coming; what follows it may not.
        stream_.expires_after(buffer_.size() > 0 ? shared_.limits.request_time
                                                 : shared_.limits.idle_time);
        if (buffer_.size() > 0) return read_whole();
        stream_.async_read_some(buffer_.prepare(4096),
                                handler([this](ErrorCode error, size_t bytes) {
                                    if (error) return close();
                                    buffer_.commit(bytes);
                                    stream_.expires_after(shared_.limits.request_time);
                                    read_whole();
                                }));
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
    void close() noexcept override {
        if (std::exchange(is_closed_, true)) return;
        ErrorCode ignored;
        ignored = stream_.socket().shutdown(Tcp::socket::shutdown_both, ignored);
        ignored = stream_.socket().close(ignored);
        closed_in_ = std::exchange(turn_, 0);
        pending_.clear();
        try {
            if (auto gone = std::exchange(gone_, nullptr)) gone();
        } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
            // Without memory to cancel them its requests go on, for nobody.
        }
    }

private:
    void read_whole() {
        // The parser holds the limit against what it has not taken apart yet.
        http::async_read_header(stream_, buffer_, *parser_,
                                handler([this](ErrorCode error, size_t bytes) {
                                    if (!error && bytes > shared_.limits.header_bytes)
                                        error = http::error::header_limit;
                                    read_body(error);
                                }));
    }
    void read_body(ErrorCode error);
    void take_request(ErrorCode error);
    void watch();
    bool keep_for_later();
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
    HttpShared& shared_;
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
        post_at_last(connection_->executor(), [connection = connection_, turn = turn_] {
            connection->handler([&] { connection->abandon(turn); })();
        });
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
                   connection_->handler([connection = connection_.get(), work = std::move(work)] {
                       work(*connection);
                   }));
    }
    std::shared_ptr<Connection> connection_;
    uint64_t turn_;
};

// A request's target as a path: without the query, without the scheme and host that proxies write
// (RFC 9112, 3.2.2), and with its percent-encoded characters (RFC 3986, 2.1).
std::string path_of(std::string_view target) {
    for (const std::string_view scheme : {"http://", "https://"}) {
        const std::string_view start = target.substr(0, scheme.size());
        if (beast::iequals({start.data(), start.size()}, {scheme.data(), scheme.size()})) {
            target.remove_prefix(scheme.size());
            target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
            if (!target.starts_with('/')) return "/";
        }
    }
    target = target.substr(0, target.find('?'));
    const auto digit = [](char c) {
        if (c >= '0' && c <= '9') return c - '0';
        const char lower = static_cast<char>(c | 0x20);
        return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
    };
    std::string path;
    for (size_t i = 0; i < target.size(); ++i) {
        const bool is_escape = target[i] == '%' && i + 2 < target.size() &&
                               digit(target[i + 1]) >= 0 && digit(target[i + 2]) >= 0;
        path += is_escape ? static_cast<char>(digit(target[i + 1]) * 16 + digit(target[i + 2]))
                          : target[i];
        if (is_escape) i += 2;
    }
    return path;
}

HttpRequest request_of(const http::request<http::string_body>& message) {
    const auto target = message.target();
    return {std::string(message.method_string()), path_of({target.data(), target.size()}),
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
    const auto read = [this](ErrorCode written, size_t) {
        if (written) return close();
        http::async_read(stream_, buffer_, *parser_,
                         handler([this](ErrorCode failed, size_t) { take_request(failed); }));
    };
    if (!waits) return read({}, 0);
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    asio::async_write(stream_, asio::buffer(kContinue), handler(read));
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
    if (error == http::error::end_of_stream) return close();
    // The client may have ended its side alone, and read on.
    if (error == http::error::partial_message)
        return refuse(plain_error(400, "this is no HTTP request: it ends before it is whole"));
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
        Tcp::socket::wait_read, handler([this, turn = turn_](ErrorCode error) {
            if (error || turn_ != turn) return;
            char byte = 0;
            const ssize_t got =
                ::recv(stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return close();
            if (got > 0 && !keep_for_later()) return;
            watch();
        }));
}

// What comes before the reply has ended is the next request, and the end of the stream may be
// behind it. False where it is more than a client may send ahead: the rest is read in its turn.
bool Connection::keep_for_later() {
    constexpr size_t kPiece = 4096;
    if (buffer_.size() + kPiece > kMostBytesAhead) return false;
    const auto space = buffer_.prepare(kPiece);
    const ssize_t got =
        ::recv(stream_.socket().native_handle(), space.data(), space.size(), MSG_DONTWAIT);
    if (got > 0) buffer_.commit(static_cast<size_t>(got));
    return true;
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
    asio::async_write(stream_, asio::buffer(writing_), handler([this](ErrorCode error, size_t) {
                          writing_.clear();
                          if (error) return close();
                          stream_.expires_never();
                          write_next();
                      }));
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
                            handler([this](ErrorCode error, size_t bytes) {
                                lingering_ += bytes;
                                if (error || lingering_ > kMostLingeringBytes) return close();
                                linger();
                            }));
}

}  // namespace

std::shared_ptr<HttpConnection> make_connection(Tcp::socket socket, HttpShared& shared) {
    return std::make_shared<Connection>(std::move(socket), shared);
}

}  // namespace cleave::serve
