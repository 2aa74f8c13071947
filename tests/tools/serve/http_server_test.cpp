// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/http_server.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "runtime/base/errors.h"
#include "tests/support/failures.h"
#include "tests/support/test.h"
#include "tests/tools/serve/http_client.h"

namespace cleave::serve {

using namespace cleave::test;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

// A server whose handler the test gives.
struct Serving {
    explicit Serving(HttpHandler handler, const HttpLimits& limits = {})
        : server("127.0.0.1", 0, limits, std::move(handler)) {
        server.start();
    }
    uint16_t port() const { return server.port(); }
    HttpServer server;
    std::vector<std::jthread> writers;  // end before the server does
    std::shared_ptr<HttpReply> kept;    // so does it
};

void echo(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
    reply->send({.body = request.method + " " + request.path + " " + request.body});
}

// Something that another thread says once.
class Told {
public:
    void tell() {
        const std::lock_guard lock(mutex_);
        ++times_;
        changed_.notify_all();
    }
    bool wait() {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, 200s, [&] { return times_ > 0; });
    }
    int times() {
        const std::lock_guard lock(mutex_);
        return times_;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int times_ = 0;
};

}  // namespace

TEST_CASE("requests of one connection are answered one after the other", "[tools][serve]") {
    Serving serving(echo);
    HttpClient client(serving.port());
    CHECK(client.get("/a?b=c").body == "GET /a ");
    CHECK(client.post("/d", "{\"e\": 1}").body == "POST /d {\"e\": 1}");
    // Two at once, as a client that does not wait sends them.
    client.write(post_text("/f", "1") + post_text("/g", "2"));
    CHECK(client.read().body == "POST /f 1");
    CHECK(client.read().body == "POST /g 2");
    const HttpResult last = client.get("/h", "Connection: close\r\n");
    CHECK(last.body == "GET /h ");
    CHECK_THAT(last.head, Contains("Connection: close"));
    CHECK(client.has_ended());
}

TEST_CASE("a stream's client gets each piece in order, then the next answer", "[tools][serve]") {
    Serving serving([&](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
        if (request.path != "/stream") return echo(request, reply);
        serving.writers.emplace_back([reply] {
            for (int i = 0; i < 100; ++i) reply->write(fmt::format("data: {}\n\n", i));
            reply->finish();
        });
    });
    HttpClient client(serving.port());
    const HttpResult stream = client.get("/stream");
    CHECK(stream.status == 200);
    CHECK_THAT(stream.head, Contains("text/event-stream"));
    const std::vector<std::string> events = events_of(stream.body);
    REQUIRE(events.size() == 100);
    for (size_t i = 0; i < events.size(); ++i) CHECK(events[i] == std::to_string(i));
    CHECK(client.get("/next").body == "GET /next ");
}

TEST_CASE("a client that leaves is told of once, while nothing is written and in a stream",
          "[tools][serve]") {
    for (const bool streams : {false, true}) {
        Told asked, gone;
        std::mutex mutex;
        std::shared_ptr<HttpReply> kept;
        Serving serving([&](const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
            reply->when_gone([&] { gone.tell(); });
            if (streams) reply->write("data: 1\n\n");
            const std::lock_guard lock(mutex);
            kept = reply;
            asked.tell();
        });
        {
            HttpClient client(serving.port());
            client.write("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
            if (streams) CHECK_FALSE(client.read_some().empty());
            REQUIRE(asked.wait());
            CHECK(gone.times() == 0);
        }
        CHECK(gone.wait());
        const std::lock_guard lock(mutex);
        // To nobody.
        kept->write("data: 2\n\n");
        kept->finish();
        kept.reset();
        CHECK(gone.times() == 1);
    }
}

TEST_CASE("a client that has sent its next request and leaves is told of as any other",
          "[tools][serve]") {
    Told asked, gone;
    Serving serving([&](const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
        reply->when_gone([&] { gone.tell(); });
        serving.kept = reply;
        asked.tell();
    });
    {
        HttpClient client(serving.port());
        client.write("GET /a HTTP/1.1\r\nHost: test\r\n\r\n");
        REQUIRE(asked.wait());
        client.write("GET /b HTTP/1.1\r\nHost: test\r\n\r\n");
    }
    CHECK(gone.wait());
}

TEST_CASE("requests that come while another runs are answered in their turn, however many",
          "[tools][serve]") {
    Told asked;
    Serving serving([&](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
        if (request.path != "/slow") return echo(request, reply);
        serving.kept = reply;
        asked.tell();
    });
    HttpClient client(serving.port());
    client.write("GET /slow HTTP/1.1\r\nHost: test\r\n\r\n");
    REQUIRE(asked.wait());
    // More than is read ahead.
    std::string many;
    for (int i = 0; i < 40; ++i)
        many +=
            post_text(fmt::format("/{}", i), std::string(5000, static_cast<char>('a' + i % 26)));
    client.write(many);
    serving.kept->send({.body = "done"});
    CHECK(client.read().body == "done");
    for (int i = 0; i < 40; ++i)
        CHECK(client.read().body ==
              fmt::format("POST /{} {}", i, std::string(5000, static_cast<char>('a' + i % 26))));
}

TEST_CASE("a path is the same however a client or a proxy writes it", "[tools][serve]") {
    Serving serving(echo);
    HttpClient client(serving.port());
    CHECK(client.get("/v1/%6dodels?a=/b").body == "GET /v1/models ");
    CHECK(client.get("http://127.0.0.1:8080/v1/models").body == "GET /v1/models ");
    CHECK(client.get("HTTP://host").body == "GET / ");
    CHECK(client.get("/a%2Fb%20c").body == "GET /a/b c ");
    CHECK(client.get("/100%25%2").body == "GET /100%%2 ");
}

TEST_CASE("a body in chunks is the body", "[tools][serve]") {
    Serving serving(echo);
    HttpClient client(serving.port());
    client.write("POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    client.write("4;name=value\r\ndefg\r\n0\r\nTrailer: x\r\n\r\n");
    CHECK(client.read().body == "POST /a abcdefg");
    CHECK(client.get("/next").body == "GET /next ");
}

TEST_CASE("HEAD has the head of GET's answer and no body", "[tools][serve]") {
    Serving serving(echo);
    HttpClient client(serving.port());
    client.write("HEAD /a HTTP/1.1\r\nHost: test\r\n\r\nGET /b HTTP/1.1\r\nHost: test\r\n\r\n");
    std::string all;
    while (all.find("GET /b ") == std::string::npos) {
        const std::string piece = client.read_some();
        REQUIRE_FALSE(piece.empty());
        all += piece;
    }
    CHECK_THAT(all, Contains("Content-Length: 8\r\n\r\nHTTP/1.1 200 OK"));
}

TEST_CASE("a client that does not read what it asked for is gone", "[tools][serve]") {
    Told gone;
    HttpLimits limits;
    limits.unread_bytes = 100'000;
    Serving serving(
        [&](const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
            reply->when_gone([&] { gone.tell(); });
            serving.writers.emplace_back([&, reply] {
                while (gone.times() == 0) reply->write(std::string(10'000, 'x'));
            });
        },
        limits);
    HttpClient client(serving.port());
    client.write("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    CHECK(gone.wait());
}

TEST_CASE("a client that takes too long over one write is gone", "[tools][serve]") {
    Told gone;
    HttpLimits limits;
    limits.unread_bytes = size_t{1} << 30;
    limits.write_time = 1s;
    Serving serving(
        [&](const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
            reply->when_gone([&] { gone.tell(); });
            reply->write(std::string(64 << 20, 'x'));
            serving.kept = reply;
        },
        limits);
    HttpClient client(serving.port());
    client.write("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    CHECK(gone.wait());
}

TEST_CASE("a client that asks before it sends a body is told to go on", "[tools][serve]") {
    Serving serving(echo);
    HttpClient client(serving.port());
    client.write("POST /a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    CHECK(client.read_some() == "HTTP/1.1 100 Continue\r\n\r\n");
    client.write("body");
    CHECK(client.read().body == "POST /a body");
}

TEST_CASE("who is refused by the head of a request is told before its body is read",
          "[tools][serve]") {
    std::atomic<int> handled{0};
    HttpServer server(
        "127.0.0.1", 0, {},
        [&](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
            ++handled;
            echo(request, reply);
        },
        [](const HttpRequest& head) -> std::optional<HttpAnswer> {
            if (head.authorization == "Bearer right") return std::nullopt;
            return HttpAnswer{.status = 401, .body = head.method + " " + head.path};
        });
    server.start();
    const std::string length = "Content-Length: 4000000\r\n\r\n";
    HttpClient stranger(server.port());
    stranger.write("POST /a HTTP/1.1\r\n" + length + "a few bytes of many");
    const HttpResult refused = stranger.read();
    CHECK(refused.status == 401);
    CHECK(refused.body == "POST /a");
    CHECK(stranger.has_ended());
    HttpClient waiting(server.port());
    waiting.write("POST /a HTTP/1.1\r\nExpect: 100-continue\r\n" + length);
    CHECK(waiting.read().status == 401);
    CHECK(handled == 0);
    HttpClient friendly(server.port());
    CHECK(friendly.post("/a", "b", "Authorization: Bearer right\r\n").body == "POST /a b");
}

TEST_CASE("a stream to a client of HTTP/1.0 is not chunked and ends with its connection",
          "[tools][serve]") {
    Serving serving([](const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
        reply->write("data: 1\n\n");
        reply->write("data: 2\n\n");
        reply->finish();
    });
    HttpClient client(serving.port());
    client.write("GET / HTTP/1.0\r\n\r\n");
    std::string all;
    for (std::string piece; !(piece = client.read_some()).empty();) all += piece;
    CHECK(all.ends_with("\r\n\r\ndata: 1\n\ndata: 2\n\n"));
}

TEST_CASE("what goes over a limit, or is no HTTP, is refused by name and ends the connection",
          "[tools][serve]") {
    HttpLimits limits;
    limits.body_bytes = 1000;
    limits.header_bytes = 2000;
    Serving serving(echo, limits);
    const auto refused = [&](const std::string& bytes) {
        HttpClient client(serving.port());
        client.write(bytes);
        const HttpResult result = client.read();
        CHECK(client.has_ended());
        return result;
    };
    const HttpResult body = refused(post_text("/", std::string(1001, 'x')));
    CHECK(body.status == 413);
    CHECK_THAT(body.body, Contains("at most 1000 bytes"));
    const HttpResult header =
        refused("GET / HTTP/1.1\r\nA: " + std::string(5000, 'x') + "\r\n\r\n");
    CHECK(header.status == 431);
    CHECK_THAT(header.body, Contains("at most 2000 bytes"));
    CHECK(refused("what is this\r\n\r\n").status == 400);
    HttpClient client(serving.port());
    CHECK(client.get("/on").body == "GET /on ");
}

TEST_CASE("a header's limit is of all its bytes, however they come", "[tools][serve]") {
    HttpLimits limits;
    limits.header_bytes = 2000;
    Serving serving(echo, limits);
    HttpClient client(serving.port());
    client.write("GET / HTTP/1.1\r\nA: " + std::string(1500, 'x') + "\r\nB: ");
    for (int i = 0; i < 600; ++i) client.write("x");
    client.write("\r\n\r\n");
    CHECK(client.read().status == 431);
}

TEST_CASE("a request that ends before it is whole is told so, and none is no request",
          "[tools][serve]") {
    Serving serving(echo);
    for (const std::string& part :
         {std::string("GET / HT"), std::string("GET / HTTP/1.1\r\nHost: a"),
          std::string("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nfour")}) {
        INFO(part);
        HttpClient client(serving.port());
        client.write(part);
        client.end_writing();
        const HttpResult refused = client.read();
        CHECK(refused.status == 400);
        CHECK_THAT(refused.body, Contains("ends before it is whole"));
        CHECK(client.has_ended());
    }
    HttpClient silent(serving.port());
    silent.end_writing();
    CHECK(silent.has_ended());
}

TEST_CASE("a handler that throws, and a reply that nobody gives, are a 500", "[tools][serve]") {
    Serving serving([](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
        if (request.path == "/throws") throw std::runtime_error("no");
        if (request.path == "/answers") echo(request, reply);
    });
    HttpClient client(serving.port());
    CHECK(client.get("/throws").status == 500);
    CHECK(client.get("/forgets").status == 500);
    CHECK(client.get("/answers").status == 200);
}

TEST_CASE("connections over the limit are told to try again", "[tools][serve]") {
    HttpLimits limits;
    limits.connections = 2;
    Serving serving(echo, limits);
    HttpClient first(serving.port()), second(serving.port());
    CHECK(first.get("/").status == 200);
    CHECK(second.get("/").status == 200);
    const HttpResult third = HttpClient(serving.port()).read();
    CHECK(third.status == 503);
    CHECK_THAT(third.head, Contains("Retry-After: 1\r\n"));
    CHECK(first.get("/").status == 200);
}

TEST_CASE("a server that stops sends what was answered", "[tools][serve]") {
    Told asked;
    std::mutex mutex;
    std::shared_ptr<HttpReply> kept;
    Serving serving([&](const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
        const std::lock_guard lock(mutex);
        kept = reply;
        asked.tell();
    });
    HttpClient client(serving.port()), idle(serving.port());
    client.write("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    REQUIRE(asked.wait());
    serving.server.close();
    CHECK(idle.has_ended());
    CHECK_THROWS(HttpClient(serving.port()));
    const std::string body(300'000, 'x');
    {
        const std::lock_guard lock(mutex);
        kept->send({.body = body});
        kept.reset();
    }
    std::thread stopping([&] { serving.server.stop(); });
    CHECK(client.read().body == body);
    stopping.join();
}

TEST_CASE("an address that cannot be had is refused by name", "[tools][serve]") {
    Serving serving(echo);
    CHECK_THAT(failure_of<UserError>([&] { HttpServer("127.0.0.1", serving.port(), {}, echo); }),
               Contains(fmt::format("127.0.0.1 port {}", serving.port())));
    CHECK_THAT(failure_of<UserError>([] { HttpServer("example", 0, {}, echo); }),
               Contains("example is no address"));
}

}  // namespace cleave::serve
