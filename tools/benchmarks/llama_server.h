// SPDX-License-Identifier: Apache-2.0
// llama.cpp's server on a trace: the server over a model file, and requests by HTTP whose tokens
// are streamed. Linux.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "runtime/engine/serve_trace.h"
#include "tools/benchmarks/http_load.h"

namespace cleave::bench {

class LlamaServer {
public:
    // Starts FOLDER/llama-server and waits until it is ready. UserError where it ends before.
    LlamaServer(const std::string& folder, const std::string& model, int64_t slots,
                int64_t kv_tokens, int threads);
    ~LlamaServer();
    LlamaServer(const LlamaServer&) = delete;
    LlamaServer& operator=(const LlamaServer&) = delete;

    // In real time. Prompts are random tokens under `vocab`.
    HttpTimes serve(const std::vector<runtime::TraceRequest>& trace, int64_t vocab);

    void pause();  // takes no time of the cores until resume()
    void resume();

private:
    int port_ = 0;
    pid_t process_ = -1;
};

}  // namespace cleave::bench
