// SPDX-License-Identifier: Apache-2.0
// What the rows of `tools/bench serve` share: a model on host devices, requests sent to an engine
// over it with the time of every token, and a row's ratios beside its goal.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "models/stand_in_weights.h"
#include "planner/machine/host_facts.h"
#include "planner/plan/plan.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/replay.h"
#include "runtime/session/session.h"

namespace cleave::bench {

inline constexpr int64_t kSlots = 16, kChunk = 512, kContext = 4352, kPoolTokens = 16 * 1024;

// A shape with random weights in f32, for contexts of 8,192 tokens. UserError for an unknown name.
struct ServeModel {
    explicit ServeModel(const std::string& shape);
    importer::Graph graph;
    models::StandInWeights weights;
    planner::HostFacts facts;
};

// kSlots sequences on one host device.
struct Served {
    explicit Served(const ServeModel& model, bool reproducible = false);
    Served(const Served&) = delete;
    Served& operator=(const Served&) = delete;

    planner::Plan plan;
    runtime::Session session;
    runtime::SessionRunner runner{session};
};

// An engine and what its requests were told. The caller's thread sends and waits.
class Load {
public:
    using Clock = std::chrono::steady_clock;
    struct Told {
        Clock::time_point sent;
        std::vector<Clock::time_point> tokens;
        int64_t passes = 0;  // that ended from its sending to its first token
    };

    explicit Load(Served& served, const runtime::SchedulerOptions& options = {});

    // The request's number: 0, 1, 2, ...
    size_t send(std::vector<int32_t> prompt, int64_t new_tokens);
    void wait();                                   // until all have ended
    void wait_for(size_t request, size_t tokens);  // until it has so many
    Told told(size_t request);
    std::vector<double> gaps_ms(size_t request);  // between its tokens

private:
    void take(size_t request, const runtime::EngineEvent& event);

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Told> told_;
    size_t open_ = 0;
    size_t watched_ = 0, watched_tokens_ = 0;  // whom wait_for() waits for
    std::string fault_;
    runtime::Engine engine_;  // last: its thread uses all of this
};

double seconds_since(std::chrono::steady_clock::time_point start);

// A row of the table: the median of its rounds' ratios, with the least and the most.
struct Row {
    std::string name;
    std::vector<double> ratios;
    double goal = 0;
    bool at_least = true;  // false: at most
    std::string detail;
};

Row continuous_batching(Served& served, int rounds);
Row concurrency(const ServeModel& model, Served& served, int rounds);
Row beside_run(Served& served, int rounds);
Row kv_waste(const Served& served);
Row sharing_without_hits(Served& served, int rounds);
Row shared_prefix(Served& served, int rounds);
Row gap_beside_long_prompt(Served& served, int rounds);
std::vector<Row> short_behind_long(Served& served, int rounds);
// HTTP and server-sent events over passes that take no time, and of an engine's tokens/s.
Row http_alone(const planner::Plan& plan, int rounds);
Row http_beside_engine(Served& served, int rounds);
// The engine's own microseconds for a token of each of `sequences`, over passes that take no time.
Row engine_alone(int64_t sequences, int rounds);
std::vector<Row> reproducible(const ServeModel& model, Served& served, int rounds);

// A trace that keeps all slots busy, by an engine and by llama.cpp's server (FOLDER/llama-server).
std::vector<Row> beside_llama_cpp(Served& served, const std::string& folder, int rounds);

// Groups of sequences in flight on a pipeline of two, as a table; the row is of `sequences` with
// half of the cores a stage.
std::vector<Row> groups_in_flight(const ServeModel& model, int rounds);

}  // namespace cleave::bench
