// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/http_server.h"

#include <atomic>
#include <thread>
#include <utility>

#include <boost/asio/error.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/system_error.hpp>

#include "runtime/base/errors.h"
#include "runtime/base/threads.h"
#include "tools/serve/http_connection.h"

namespace cleave::serve {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

// After a failure that may pass.
constexpr std::chrono::milliseconds kPause{50};

struct HttpServer::Impl {
    HttpShared shared;  // outlives the connections, which are the context's
    asio::io_context context{1};
    // The thread runs until stop(), also while nobody is connected.
    asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
    Tcp::acceptor acceptor{context};
    asio::steady_timer pause{context};
    uint16_t port = 0;
    std::vector<std::weak_ptr<HttpConnection>> open;  // some of which have gone
    bool is_accepting = false;                        // or pauses before it does
    std::atomic<bool> is_closed = false;
    std::thread thread;

    // What throws, for want of memory, has cost its client the connection, and no other.
    void run() noexcept {
        while (!context.stopped()) {
            try {
                if (!is_accepting) accept();
                context.run();
            } catch (const std::exception&) {
                std::this_thread::sleep_for(kPause);
            }
        }
    }
    // Is asio's with the handler: also when that is lost, it has gone.
    struct Accepting {
        explicit Accepting(bool& is) : flag(&is, [](bool* is_so) { *is_so = false; }) { is = true; }
        std::unique_ptr<bool, void (*)(bool*)> flag;
    };
    void accept() {
        if (!acceptor.is_open()) return;
        acceptor.async_accept([this, accepting = Accepting(is_accepting)](
                                  ErrorCode error, Tcp::socket socket) mutable {
            accepting.flag.reset();
            if (!acceptor.is_open()) return;
            if (!error) {
                take(std::move(socket));
                return accept();
            }
            // Out of descriptors: those that are open go on, and one may end.
            pause.expires_after(kPause);
            pause.async_wait([this, pausing = Accepting(is_accepting)](ErrorCode) mutable {
                pausing.flag.reset();
                accept();
            });
        });
    }
    void take(Tcp::socket socket) {
        ErrorCode ignored;
        ignored = socket.set_option(Tcp::no_delay(true), ignored);
        auto connection = make_connection(std::move(socket), shared);
        std::erase_if(open, [](const auto& one) { return one.expired(); });
        open.push_back(connection);
        if (shared.count <= shared.limits.connections) return connection->read_request();
        HttpAnswer full = plain_error(503, "too many connections; try again");
        full.retry_after = 1;
        connection->refuse(full);
    }
};

HttpServer::HttpServer(const std::string& host, uint16_t port, const HttpLimits& limits,
                       HttpHandler handler, HttpGate gate) try
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
    if (error)
        throw UserError("cannot listen at {} port {}: {}{}", host, port, error.message(),
                        error == asio::error::address_in_use
                            ? "; give another --port, or 0 for a free one"
                            : "");
    impl_->port = acceptor.local_endpoint().port();
} catch (const boost::system::system_error& error) {
    // Boost's constructors have no other way: no descriptor for its queue of events.
    throw UserError("cannot listen at {} port {}: {}", host, port, error.what());
}

void HttpServer::start() {
    impl_->accept();
    impl_->thread = start_thread([this] { impl_->run(); });
}

HttpServer::~HttpServer() { stop(); }

uint16_t HttpServer::port() const { return impl_->port; }

size_t HttpServer::connections() const { return impl_->shared.count; }

void HttpServer::close() {
    if (!impl_->thread.joinable()) return;
    impl_->is_closed = false;
    const auto close_all = [impl = impl_.get()] {
        ErrorCode ignored;
        ignored = impl->acceptor.close(ignored);
        impl->shared.is_closing = true;
        for (const auto& one : impl->open)
            if (const auto connection = one.lock(); connection && connection->is_idle())
                connection->close();
        impl->is_closed = true;
        impl->is_closed.notify_one();
    };
    if (post_at_last(impl_->context.get_executor(), close_all)) impl_->is_closed.wait(false);
}

void HttpServer::stop() {
    if (!impl_->thread.joinable()) return;
    close();
    // Answers that are given are sent, to those who read them.
    const auto end = std::chrono::steady_clock::now() + kFlushTime;
    while (impl_->shared.count > 0 && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    impl_->context.stop();
    impl_->thread.join();
    // The thread is here now.
    for (const auto& one : impl_->open)
        if (const auto connection = one.lock()) connection->close();
}

}  // namespace cleave::serve
