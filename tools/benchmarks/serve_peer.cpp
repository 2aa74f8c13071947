// SPDX-License-Identifier: Apache-2.0
// One trace by our server and by llama.cpp's, both over HTTP, with f32 weights and as many threads
// as the machine has cores; llama.cpp's own defaults beyond that.
#include <filesystem>
#include <thread>

#include <unistd.h>

#include "runtime/base/split_mix.h"
#include "runtime/engine/serve_report.h"
#include "tools/benchmarks/llama_server.h"
#include "tools/benchmarks/random_gguf.h"
#include "tools/benchmarks/serve_bench.h"
#include "tools/benchmarks/serve_http.h"
#include "tools/cli/calibrate.h"

namespace cleave::bench {

std::vector<Row> beside_llama_cpp(Served& served, const std::string& folder, int rounds) {
    constexpr int kRequests = 48;
    SplitMix64 random(5);
    std::vector<runtime::TraceRequest> trace;
    for (int i = 0; i < kRequests; ++i)
        trace.push_back({20.0 * i, 16 + random.below(369), 16 + random.below(113)});
    const std::filesystem::path model =
        std::filesystem::temp_directory_path() / fmt::format("cleave-bench-{}.gguf", ::getpid());
    write_random_gguf(served.plan.graph.config, model.string());
    LlamaServer server(folder, model.string(), kSlots, kPoolTokens,
                       static_cast<int>(std::thread::hardware_concurrency()));
    std::filesystem::remove(model);
    const int64_t vocab = served.plan.graph.config.vocab_size;
    server.serve({trace.begin(), trace.begin() + 4}, vocab);
    Row rate{.name = "tokens/s, of llama.cpp's", .goal = 1};
    Row gap{.name = "its p99 gap, of ours", .goal = 1};
    Row first{.name = "its first token, of ours"};
    std::vector<double> ours, theirs, our_gap, their_gap;
    for (int round = 0; round < rounds; ++round) {
        server.pause();
        const HttpTimes own = OverHttp(served.plan, served.runner).serve(trace);
        server.resume();
        const HttpTimes peer = server.serve(trace, vocab);
        ours.push_back(own.tokens_per_second);
        theirs.push_back(peer.tokens_per_second);
        our_gap.push_back(runtime::percentile(own.gaps_ms, 0.99));
        their_gap.push_back(runtime::percentile(peer.gaps_ms, 0.99));
        rate.ratios.push_back(ours.back() / theirs.back());
        gap.ratios.push_back(their_gap.back() / our_gap.back());
        first.ratios.push_back(runtime::percentile(peer.first_ms, 0.5) /
                               runtime::percentile(own.first_ms, 0.5));
    }
    rate.detail =
        fmt::format("{:.0f} against {:.0f}; {} prompts of U(16, 384), texts of U(16, 128)",
                    tools::median(ours), tools::median(theirs), kRequests);
    gap.detail =
        fmt::format("{:.1f} ms against {:.1f}", tools::median(our_gap), tools::median(their_gap));
    first.detail = "p50";
    return {rate, gap, first};
}

}  // namespace cleave::bench
