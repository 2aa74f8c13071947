// SPDX-License-Identifier: Apache-2.0
// The rows of `tools/bench serve` on one host device. In each round both sides of a ratio run, one
// after the other, so that both see what the machine does meanwhile.
#include <algorithm>
#include <thread>
#include <utility>

#include "planner/plan/plan_queries.h"
#include "runtime/base/errors.h"
#include "runtime/base/split_mix.h"
#include "runtime/engine/serve_report.h"
#include "runtime/generate/batching.h"
#include "runtime/generate/generate.h"
#include "tools/benchmarks/bench_model.h"
#include "tools/benchmarks/serve_bench.h"
#include "tools/cli/calibrate.h"

namespace cleave::bench {

namespace {

using Clock = Load::Clock;

constexpr int64_t kShortPrompt = 16, kEqualTokens = 64;
constexpr int64_t kLongPrompt = 4000;

double seconds(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

// Seconds until all of them have ended, sent at once.
double serve_equal(Served& served, int64_t requests, int64_t prompt, int64_t tokens,
                   const runtime::SchedulerOptions& options = {}) {
    Load load(served, options);
    const Clock::time_point start = Clock::now();
    for (int64_t i = 0; i < requests; ++i)
        load.send(runtime::random_prompt(served.plan, i, prompt), tokens);
    load.wait();
    return seconds_since(start);
}

// Passes until all texts have ended: in fixed batches, each as long as its longest text, or with a
// slot given on as soon as a text ends.
struct PassCounts {
    double batches = 0, slots = 0;
};
PassCounts count_passes(const std::vector<int64_t>& lengths) {
    PassCounts counts;
    std::vector<int64_t> slots(kSlots, 0);
    for (size_t i = 0; i < lengths.size(); ++i) {
        if (i % kSlots == 0)
            counts.batches += static_cast<double>(*std::max_element(
                lengths.begin() + static_cast<ptrdiff_t>(i),
                lengths.begin() + static_cast<ptrdiff_t>(std::min(i + kSlots, lengths.size()))));
        *std::min_element(slots.begin(), slots.end()) += lengths[i];
    }
    counts.slots = static_cast<double>(*std::max_element(slots.begin(), slots.end()));
    return counts;
}

}  // namespace

// A fixed batch computes all its rows until its longest text ends.
Row continuous_batching(Served& served, int rounds) {
    constexpr size_t kRequests = 96;
    SplitMix64 random(1);
    std::vector<int64_t> lengths;
    for (size_t i = 0; i < kRequests; ++i) lengths.push_back(16 + random.below(241));
    const PassCounts passes = count_passes(lengths);
    const double bound = passes.batches / passes.slots;
    Row row{.name = "continuous / static", .goal = 0.9};
    std::vector<double> gains;
    for (int round = 0; round < rounds; ++round) {
        Clock::time_point start = Clock::now();
        for (size_t first = 0; first < kRequests; first += kSlots) {
            const auto begin = lengths.begin() + static_cast<ptrdiff_t>(first);
            serve_equal(served, kSlots, kShortPrompt, *std::max_element(begin, begin + kSlots));
        }
        const double fixed = seconds_since(start);
        Load load(served);
        start = Clock::now();
        for (size_t i = 0; i < kRequests; ++i)
            load.send(runtime::random_prompt(served.plan, static_cast<int64_t>(i), kShortPrompt),
                      lengths[i]);
        load.wait();
        gains.push_back(fixed / seconds_since(start));
        row.ratios.push_back(gains.back() / bound);
    }
    row.detail = fmt::format(
        "of the bound: {:.2f}x of {:.2f}x in passes, {} texts of U(16, 256) in {} slots",
        tools::median(gains), bound, kRequests, kSlots);
    return row;
}

// Between tokens while all decode.
Row concurrency(const ServeModel& model, Served& served, int rounds) {
    Row row{.name = "tokens/s at 16 / at 1", .goal = 0.7};
    tools::HostCalibrator calibrator(model.facts, {1, 8, true});
    std::vector<double> one_ms, all_ms;
    for (int round = 0; round < rounds; ++round) {
        calibrator.round([] {}, nullptr);
        for (const int64_t requests : {int64_t{1}, kSlots}) {
            Load load(served);
            for (int64_t i = 0; i < requests; ++i)
                load.send(runtime::random_prompt(served.plan, i, kShortPrompt), kEqualTokens);
            load.wait();
            (requests == 1 ? one_ms : all_ms).push_back(tools::median(load.gaps_ms(0)));
        }
    }
    planner::HostFacts facts = model.facts;
    calibrator.result(facts);
    const planner::MeasuredRates& rates = facts.calibration.rates;
    const auto bytes = static_cast<double>(decode_weight_bytes(model.graph));
    const auto read_rate = static_cast<double>(
        bytes <= static_cast<double>(rates.cache_bytes) ? rates.cache_bandwidth : rates.bandwidth);
    const auto bound_ms = [&](int64_t rows) {
        const double flops = bytes / 4 * 2 * static_cast<double>(rows);
        return 1e3 * std::max(bytes / read_rate, flops / static_cast<double>(rates.flops_f32));
    };
    const double bound = kSlots * bound_ms(1) / bound_ms(kSlots);
    for (size_t i = 0; i < one_ms.size(); ++i)
        row.ratios.push_back(kSlots * one_ms[i] / all_ms[i] / bound);
    row.detail = fmt::format(
        "of the bound {:.2f}x: {:.2f} ms a token of 1, {:.2f} of 16; {:.1f} GB/s, {:.0f} GFLOP/s",
        bound, tools::median(one_ms), tools::median(all_ms), read_rate / 1e9,
        static_cast<double>(rates.flops_f32) / 1e9);
    return row;
}

Row beside_run(Served& served, int rounds) {
    Row row{.name = "engine / run, 16 equal", .goal = 0.95};
    std::vector<std::vector<int32_t>> prompts;
    for (int64_t i = 0; i < kSlots; ++i)
        prompts.push_back(runtime::random_prompt(served.plan, i, kShortPrompt));
    runtime::GenerateOptions options;
    options.max_new_tokens = kEqualTokens;
    std::vector<double> rates;
    for (int round = 0; round < rounds; ++round) {
        const Clock::time_point start = Clock::now();
        runtime::generate(served.session, served.plan, prompts, options);
        const double run = seconds_since(start);
        const double engine = serve_equal(served, kSlots, kShortPrompt, kEqualTokens);
        row.ratios.push_back(run / engine);
        rates.push_back(kSlots * kEqualTokens / engine);
    }
    row.detail =
        fmt::format("tokens/s with their prompts; the engine's {:.0f}", tools::median(rates));
    return row;
}

// Of blocks that are held, over all passes; the scheduler alone says it.
Row kv_waste(const Served& served) {
    runtime::Scheduler scheduler(runtime::limits_of(served.plan), {.share_prefixes = false});
    SplitMix64 random(2);
    for (int i = 0; i < 200; ++i)
        scheduler.add({.prompt = runtime::random_prompt(served.plan, i, 64 + random.below(385)),
                       .max_new_tokens = 16 + random.below(241)});
    double tokens = 0, room = 0, sequences = 0;
    while (const auto pass = scheduler.next()) {
        const runtime::SchedulerStatistics now = scheduler.statistics();
        tokens += static_cast<double>(now.tokens_held);
        room += static_cast<double>(now.blocks_held * planner::kKvBlock);
        sequences += static_cast<double>(now.running);
        scheduler.done(pass->id, std::vector<runtime::OutputToken>(pass->outputs.size()));
    }
    return {
        "KV waste",
        {1 - tokens / room},
        0.04,
        false,
        fmt::format("of the blocks held; {:.0f} tokens a sequence on average", tokens / sequences)};
}

Row sharing_without_hits(Served& served, int rounds) {
    constexpr int64_t kRequests = 32, kPrompt = 256, kTokens = 16;
    Row row{.name = "prefix cache on / off", .goal = 0.99};
    for (int round = 0; round < rounds; ++round) {
        const auto serve = [&](bool share) {
            return serve_equal(served, kRequests, kPrompt, kTokens, {.share_prefixes = share});
        };
        // By turns, as the second of two runs has the warmer machine.
        const bool first_shares = round % 2 == 1;
        const double first = serve(first_shares), second = serve(!first_shares);
        row.ratios.push_back(first_shares ? second / first : first / second);
    }
    row.detail = fmt::format("tokens/s; {} random prompts of {} tokens", kRequests, kPrompt);
    return row;
}

Row shared_prefix(Served& served, int rounds) {
    constexpr int64_t kShared = 512, kOwn = 16;
    Row row{.name = "first token, cold / warm", .goal = 10};
    std::vector<double> cold_ms;
    Load load(served);
    const auto first_token = [&](const std::vector<int32_t>& prompt) {
        const Load::Told told = [&] {
            const size_t request = load.send(prompt, 2);
            load.wait();
            return load.told(request);
        }();
        return seconds(told.sent, told.tokens.front());
    };
    for (int round = 0; round < rounds; ++round) {
        std::vector<int32_t> prompt =
            runtime::random_prompt(served.plan, 1000 + round, kShared + kOwn);
        const double cold = first_token(prompt);
        const std::vector<int32_t> own = runtime::random_prompt(served.plan, 2000 + round, kOwn);
        std::copy(own.begin(), own.end(), prompt.begin() + kShared);
        row.ratios.push_back(cold / first_token(prompt));
        cold_ms.push_back(1e3 * cold);
    }
    row.detail = fmt::format("{} shared tokens and {} own ones; {:.1f} ms cold", kShared, kOwn,
                             tools::median(cold_ms));
    return row;
}

namespace {

// Milliseconds of a pass with a token of each of kSlots - 1 sequences of `past` tokens, and the end
// of a prompt of kLongPrompt tokens.
double full_pass_ms(Served& served, int64_t past) {
    std::vector<int64_t> lengths(kSlots - 1, past + 1);
    lengths.push_back(kLongPrompt);
    const std::vector<int32_t> table = runtime::table_for(served.plan, lengths);
    const auto add = [&](runtime::Batch& batch, int64_t slot, int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) {
            batch.token_ids.push_back(1);
            batch.positions.push_back(static_cast<int32_t>(p));
            batch.slots.push_back(static_cast<int32_t>(slot));
        }
        batch.sequence_starts.push_back(static_cast<int32_t>(batch.num_tokens()));
        batch.output_rows.push_back(static_cast<int32_t>(batch.num_tokens() - 1));
    };
    const auto run = [&](runtime::Batch batch) {
        batch.blocks = table;
        const Clock::time_point start = Clock::now();
        served.session.run_greedy({&batch, 1});
        return 1e3 * seconds_since(start);
    };
    constexpr int64_t kLast = kChunk - (kSlots - 1);
    for (int64_t begin = 0; begin < kLongPrompt - kLast; begin += kChunk) {
        runtime::Batch chunk{.sequence_starts = {0}};
        add(chunk, kSlots - 1, begin, std::min(begin + kChunk, kLongPrompt - kLast));
        run(std::move(chunk));
    }
    for (int64_t slot = 0; slot + 1 < kSlots; ++slot) {
        runtime::Batch prompt{.sequence_starts = {0}};
        add(prompt, slot, 0, past);
        run(std::move(prompt));
    }
    runtime::Batch full{.sequence_starts = {0}};
    for (int64_t slot = 0; slot + 1 < kSlots; ++slot) add(full, slot, past, past + 1);
    add(full, kSlots - 1, kLongPrompt - kLast, kLongPrompt);
    std::vector<double> ms;
    for (int i = 0; i < 5; ++i) ms.push_back(run(full));
    return tools::median(ms);
}

}  // namespace

Row gap_beside_long_prompt(Served& served, int rounds) {
    constexpr int64_t kPrompt = 64, kTokens = 40;
    Row row{.name = "gap beside a long prompt", .goal = 1.3, .at_least = false};
    std::vector<double> gaps;
    for (int round = 0; round < rounds; ++round) {
        const double full_ms = full_pass_ms(served, kPrompt + kTokens / 2);
        Load load(served, {.share_prefixes = false});
        for (int64_t i = 0; i + 1 < kSlots; ++i)
            load.send(runtime::random_prompt(served.plan, i, kPrompt), kTokens);
        load.wait_for(kSlots - 2, 4);
        const size_t prompt = load.send(runtime::random_prompt(served.plan, 99, kLongPrompt), 2);
        load.wait();
        const Load::Told told = load.told(prompt);
        std::vector<double> ms;
        for (size_t i = 0; i + 1 < kSlots; ++i) {
            const Load::Told other = load.told(i);
            for (size_t t = 1; t < other.tokens.size(); ++t)
                if (other.tokens[t] > told.sent && other.tokens[t - 1] < told.tokens.front())
                    ms.push_back(1e3 * seconds(other.tokens[t - 1], other.tokens[t]));
        }
        gaps.push_back(runtime::percentile(ms, 0.99));
        row.ratios.push_back(gaps.back() / full_ms);
    }
    row.detail = fmt::format(
        "p99 {:.1f} ms over a full pass of {} tokens; {} sequences decode, a prompt of {} arrives",
        tools::median(gaps), kChunk, kSlots - 1, kLongPrompt);
    return row;
}

std::vector<Row> short_behind_long(Served& served, int rounds) {
    Row passes{.name = "short behind long, passes", .goal = 3, .at_least = false};
    Row makespan{.name = "long one's first token", .goal = 1.1, .at_least = false};
    const std::vector<int32_t> prompt = runtime::random_prompt(served.plan, 98, kLongPrompt);
    for (int round = 0; round < rounds; ++round) {
        double ms[2] = {};
        for (const bool beside : {false, true}) {
            Load load(served, {.share_prefixes = false});
            const size_t first = load.send(prompt, 2);
            size_t second = first;
            if (beside) {
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
                second = load.send(runtime::random_prompt(served.plan, 97, kShortPrompt), 2);
            }
            load.wait();
            const Load::Told told = load.told(first);
            ms[beside ? 1 : 0] = seconds(told.sent, told.tokens.front());
            if (beside) passes.ratios.push_back(static_cast<double>(load.told(second).passes));
        }
        makespan.ratios.push_back(ms[1] / ms[0]);
    }
    passes.detail = fmt::format("until the first token of {} tokens sent while {} are computed",
                                kShortPrompt, kLongPrompt);
    makespan.detail = "with the short one beside it, over alone";
    return {passes, makespan};
}

std::vector<Row> reproducible(const ServeModel& model, Served& served, int rounds) {
    Served same_bits(model, true);
    std::vector<Row> rows;
    for (const int64_t requests : {int64_t{1}, int64_t{4}, kSlots}) {
        Row row{.name = fmt::format("reproducible, at {}", requests)};
        if (requests == kSlots) row.goal = 0.97;
        for (int round = 0; round < rounds; ++round) {
            const double other = serve_equal(served, requests, kShortPrompt, kEqualTokens);
            row.ratios.push_back(other /
                                 serve_equal(same_bits, requests, kShortPrompt, kEqualTokens));
        }
        row.detail = "tokens/s of --reproducible over those without";
        rows.push_back(row);
    }
    return rows;
}

}  // namespace cleave::bench
