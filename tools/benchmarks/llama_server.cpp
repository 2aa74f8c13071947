// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/llama_server.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string_view>
#include <thread>

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/errors.h"
#include "runtime/base/split_mix.h"

namespace cleave::bench {

namespace {

using Clock = std::chrono::steady_clock;

std::string body_of(const runtime::TraceRequest& request, int64_t vocab, uint64_t seed) {
    SplitMix64 random(seed);
    std::vector<int> prompt;
    for (int64_t i = 0; i < request.prompt_tokens; ++i)
        prompt.push_back(random.below(static_cast<int>(vocab)));
    return fmt::format(
        R"({{"prompt":[{}],"n_predict":{},"temperature":0,"samplers":["temperature"],)"
        R"("ignore_eos":true,"stream":true,"cache_prompt":false,"return_tokens":true}})",
        fmt::join(prompt, ","), request.output_tokens);
}

}  // namespace

LlamaServer::LlamaServer(const std::string& folder, const std::string& model, int64_t slots,
                         int64_t kv_tokens, int threads)
    : port_(20000 + static_cast<int>(::getpid() % 12000)) {
    const std::vector<std::string> words{folder + "/llama-server",
                                         "-m",
                                         model,
                                         "--host",
                                         "127.0.0.1",
                                         "--port",
                                         fmt::format("{}", port_),
                                         "-np",
                                         fmt::format("{}", slots),
                                         "-c",
                                         fmt::format("{}", kv_tokens),
                                         "-t",
                                         fmt::format("{}", threads),
                                         "-tb",
                                         fmt::format("{}", threads),
                                         "--log-disable"};
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    process_ = ::fork();
    if (process_ == 0) {
        const int nothing = ::open("/dev/null", O_RDWR);
        ::dup2(nothing, STDOUT_FILENO);
        ::dup2(nothing, STDERR_FILENO);
        ::execv(arguments[0], arguments.data());
        ::_exit(127);
    }
    constexpr int kTries = 600;
    for (int i = 0; i < kTries; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        if (::waitpid(process_, nullptr, WNOHANG) != 0) break;
        const int socket = connect_to(port_);
        if (socket < 0) continue;
        send_all(socket, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        char answer[64] = {};
        const ssize_t size = ::recv(socket, answer, sizeof answer - 1, 0);
        ::close(socket);
        if (size > 0 && std::string_view(answer).find(" 200 ") != std::string_view::npos) return;
    }
    throw UserError("{}/llama-server ended, or was never ready", folder);
}

LlamaServer::~LlamaServer() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
}

void LlamaServer::pause() { ::kill(process_, SIGSTOP); }
void LlamaServer::resume() { ::kill(process_, SIGCONT); }

HttpTimes LlamaServer::serve(const std::vector<runtime::TraceRequest>& trace, int64_t vocab) {
    std::vector<std::string> bodies;
    for (size_t i = 0; i < trace.size(); ++i) bodies.push_back(body_of(trace[i], vocab, i));
    return stream_trace(port_, "/completion", bodies, trace);
}

}  // namespace cleave::bench
