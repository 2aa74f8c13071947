// SPDX-License-Identifier: Apache-2.0
#include "runtime/generate/generate.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <iterator>
#include <system_error>

#include "importer/weights/quantized_shard.h"
#include "runtime/base/threads.h"
#include "runtime/execute/greedy.h"
#include "runtime/generate/batching.h"
#include "runtime/generate/nan_check.h"

namespace cleave::runtime {

namespace {

using Clock = std::chrono::steady_clock;
using planner::Plan;
using planner::Workload;

double milliseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void check_prompts(const Plan& plan, const std::vector<std::vector<int32_t>>& prompts,
                   const GenerateOptions& options) {
    const Workload& workload = plan.workload;
    if (prompts.empty()) throw UserError("no prompt was given");
    if (static_cast<int64_t>(prompts.size()) > workload.batch) {
        throw UserError(
            "{} prompts were given, but the plan was made for a batch of {}; plan with $batch {}",
            prompts.size(), workload.batch, prompts.size());
    }
    for (size_t s = 0; s < prompts.size(); ++s) {
        std::string what = prompts.size() == 1
                               ? "the prompt"
                               : fmt::format("prompt {}", options.first_sequence + s + 1);
        if (prompts[s].empty()) throw UserError("{} is empty; at least one token is needed", what);
        check_token_ids(prompts[s], plan.graph.config.vocab_size, what);
        int64_t needed = static_cast<int64_t>(prompts[s].size()) + options.max_new_tokens;
        if (needed > workload.context) {
            throw UserError(
                "{} has {} tokens, which with {} new ones is {}: more than the context of {}; give "
                "a "
                "shorter prompt, a smaller $max_new_tokens or a larger $context",
                what, prompts[s].size(), options.max_new_tokens, needed, workload.context);
        }
    }
    // Padding would be quantised with the tokens, and is not computed here.
    const bool even = std::all_of(prompts.begin(), prompts.end(), [&](const auto& prompt) {
        return prompt.size() == prompts[0].size();
    });
    if (!even && importer::has_dynamic_activations(plan.graph))
        throw UserError(
            "{} quantises its activations by all tokens of a batch (DynamicQuantizeLinear), the "
            "padding of shorter prompts included, so prompts of unequal length have no logits of "
            "their own; run them one by one",
            plan.graph.name);
    if (options.keep_logits && !workload.all_logits) {
        throw UserError(
            "the plan has no room for the logits of every prompt token; plan with all logits "
            "wanted");
    }
}

// The state of one generate() call.
class Generation {
public:
    Generation(Session& session, const Plan& plan, const std::vector<std::vector<int32_t>>& prompts,
               const GenerateOptions& options)
        : session_(session),
          plan_(plan),
          prompts_(prompts),
          options_(options),
          vocab_(plan.graph.config.vocab_size) {
        std::vector<int64_t> lengths;
        for (const std::vector<int32_t>& prompt : prompts)
            lengths.push_back(std::ssize(prompt) + options.max_new_tokens);
        blocks_ = table_for(plan, lengths);
        result_.sequences.resize(prompts.size());
        counts_.resize(prompts.size());
        if (!needs_counts(options.sampling)) return;
        for (size_t s = 0; s < prompts.size(); ++s) counts_[s].add_prompt(prompts[s]);
    }

    GenerateResult run() {
        prefill();
        decode();
        return std::move(result_);
    }

private:
    void prefill() {
        Clock::time_point start = Clock::now();
        std::vector<PrefillPass> passes =
            make_prefill_passes(prompts_, plan_.workload.prefill_chunk, options_.keep_logits);
        std::vector<Batch> batches;
        for (const PrefillPass& pass : passes) batches.push_back(pass.batch);
        for (Batch& batch : batches) batch.blocks = blocks_;
        const std::vector<Outputs> outputs = run(batches);
        result_.prefill_ms = milliseconds_since(start);
        // The last row of a sequence is that of its last token.
        std::vector<std::pair<size_t, size_t>> last(prompts_.size());  // pass and row
        for (size_t i = 0; i < passes.size(); ++i) {
            for (size_t row = 0; row < passes[i].output_sequences.size(); ++row) {
                size_t s = passes[i].output_sequences[row];
                last[s] = {i, row};
                keep(s, outputs[i], row);
            }
        }
        if (options_.max_new_tokens == 0) return;
        for (size_t s = 0; s < prompts_.size(); ++s)
            take(s, outputs[last[s].first], last[s].second);
    }

    void decode() {
        Clock::time_point start = Clock::now();
        int64_t steps = 0, tokens = 0;
        while (!live_.empty()) {
            if (options_.cancel) options_.cancel->throw_if_cancelled();
            std::vector<LiveSequence> stepping = std::exchange(live_, {});
            Batch batch = make_decode_pass(stepping);
            batch.blocks = blocks_;
            const Outputs outputs = std::move(run({&batch, 1}).front());
            for (size_t row = 0; row < stepping.size(); ++row) {
                keep(stepping[row].sequence, outputs, row);
                take(stepping[row].sequence, outputs, row);
            }
            ++steps;
            tokens += static_cast<int64_t>(stepping.size());
        }
        if (steps == 0) return;
        double elapsed = milliseconds_since(start);
        result_.decode_ms_per_token = elapsed / static_cast<double>(steps);
        result_.tokens_per_second = static_cast<double>(tokens) / (elapsed / 1000.0);
    }

    // What a pass gives: logits, or where nothing else is done with them the greedy choice from
    // each row.
    struct Outputs {
        std::vector<float> logits;    // [num_outputs, vocab]
        std::vector<int32_t> tokens;  // [num_outputs]
    };

    std::vector<Outputs> run(std::span<const Batch> passes) {
        std::vector<Outputs> outputs(passes.size());
        if (!takes_largest_logit(options_.sampling) || options_.keep_logits || options_.logprobs) {
            std::vector<std::vector<float>> logits = session_.run(passes);
            for (size_t i = 0; i < passes.size(); ++i) outputs[i].logits = std::move(logits[i]);
        } else {
            std::vector<std::vector<int32_t>> tokens = session_.run_greedy(passes);
            for (size_t i = 0; i < passes.size(); ++i) outputs[i].tokens = std::move(tokens[i]);
        }
        return outputs;
    }

    std::span<const float> row_of(const std::vector<float>& logits, size_t row) const {
        return std::span(logits).subspan(row * static_cast<size_t>(vocab_),
                                         static_cast<size_t>(vocab_));
    }

    void keep(size_t s, const Outputs& outputs, size_t row) {
        if (!options_.keep_logits) return;
        const std::span<const float> more = row_of(outputs.logits, row);
        std::vector<float>& logits = result_.sequences[s].logits;
        check_numbers(plan_, more, place(s, static_cast<int64_t>(logits.size()) / vocab_));
        logits.insert(logits.end(), more.begin(), more.end());
    }

    // The place of a row of logits, for messages.
    std::string place(size_t s, int64_t position) const {
        const auto length = static_cast<int64_t>(prompts_[s].size());
        return fmt::format(
            "position {}{} of {}", position,
            position < length ? "" : fmt::format(" (new token {})", position - length + 1),
            prompts_.size() == 1 ? "the prompt" : fmt::format("prompt {}", s + 1));
    }

    // Draws the next token of sequence `s`; the sequence stays live unless that token ends it.
    void take(size_t s, const Outputs& outputs, size_t row) {
        std::vector<int32_t>& tokens = result_.sequences[s].token_ids;
        int64_t position = static_cast<int64_t>(prompts_[s].size() + tokens.size());
        const int32_t token = outputs.logits.empty()
                                  ? outputs.tokens[row]
                                  : sample_token(row_of(outputs.logits, row), options_.sampling,
                                                 options_.first_sequence + s,
                                                 static_cast<uint64_t>(position), counts_[s]);
        if (token == kNoToken) throw_not_numbers(plan_, place(s, position - 1));
        tokens.push_back(token);
        if (needs_counts(options_.sampling)) counts_[s].add(token);
        if (options_.logprobs)
            result_.sequences[s].logprobs.push_back(
                logprobs_of(row_of(outputs.logits, row), token, *options_.logprobs));
        bool goes_on = !options_.on_token || options_.on_token(options_.first_sequence + s, token);
        const std::vector<int32_t>& stops = options_.stop_ids;
        if (std::find(stops.begin(), stops.end(), token) != stops.end()) goes_on = false;
        if (static_cast<int64_t>(tokens.size()) >= options_.max_new_tokens) goes_on = false;
        if (goes_on) live_.push_back({s, token, position});
    }

    Session& session_;
    const Plan& plan_;
    const std::vector<std::vector<int32_t>>& prompts_;
    const GenerateOptions& options_;
    int64_t vocab_;
    std::vector<int32_t> blocks_;      // the block table; empty: the identity
    std::vector<LiveSequence> live_;   // in sequence order
    std::vector<TokenCounts> counts_;  // of each sequence, where penalties look at them
    GenerateResult result_;
};

}  // namespace

GenerateResult generate(Session& session, const Plan& plan,
                        const std::vector<std::vector<int32_t>>& prompts,
                        const GenerateOptions& options) {
    if (options.max_new_tokens < 0) {
        throw UserError("$max_new_tokens {} is negative; give 0 or more", options.max_new_tokens);
    }
    check_sampling(options.sampling, plan.graph.config.vocab_size);
    if (options.logprobs) check_top_logprobs(*options.logprobs);
    check_prompts(plan, prompts, options);
    return Generation(session, plan, prompts, options).run();
}

std::vector<size_t> parts_of_prompts(std::span<const planner::Plan* const> replicas,
                                     size_t num_prompts) {
    std::vector<size_t> users{0};
    for (const planner::Plan* plan : replicas)
        users.push_back(users.back() +
                        static_cast<size_t>(std::max<int64_t>(0, plan->prediction.serving.users)));
    std::vector<size_t> cuts;
    for (size_t r = 0; r <= replicas.size(); ++r)
        cuts.push_back(users.back() > 0 ? users[r] * num_prompts / users.back()
                                        : r * num_prompts / replicas.size());
    return cuts;
}

GenerateResult generate(std::span<const OpenReplica> replicas,
                        const std::vector<std::vector<int32_t>>& prompts,
                        const GenerateOptions& options) {
    CLEAVE_CHECK(!replicas.empty()) << "no replica to generate on";
    std::vector<std::future<GenerateResult>> running;
    std::vector<const planner::Plan*> plans;
    for (const OpenReplica& replica : replicas) plans.push_back(&replica.plan);
    const std::vector<size_t> cuts = parts_of_prompts(plans, prompts.size());
    const auto cut = [&](size_t r) {
        return prompts.begin() + static_cast<std::ptrdiff_t>(cuts[r]);
    };
    for (size_t r = 0; r < replicas.size(); ++r) {
        if (cut(r) == cut(r + 1)) continue;
        const auto part_of_it = [&options, replica = replicas[r],
                                 first = static_cast<size_t>(cut(r) - prompts.begin()),
                                 part = std::vector(cut(r), cut(r + 1))] {
            GenerateOptions mine = options;
            mine.first_sequence += first;
            return generate(replica.session, replica.plan, part, mine);
        };
        try {
            running.push_back(std::async(std::launch::async, part_of_it));
        } catch (const std::system_error& error) {
            throw no_thread(error);
        }
    }
    GenerateResult all;
    std::exception_ptr failed;  // of the first; the others end by themselves
    for (std::future<GenerateResult>& one : running) {
        try {
            GenerateResult result = one.get();
            std::ranges::move(result.sequences, std::back_inserter(all.sequences));
            all.prefill_ms = std::max(all.prefill_ms, result.prefill_ms);
            all.decode_ms_per_token = std::max(all.decode_ms_per_token, result.decode_ms_per_token);
            all.tokens_per_second += result.tokens_per_second;
        } catch (...) {
            if (!failed) failed = std::current_exception();
        }
    }
    if (failed) std::rethrow_exception(failed);
    return all;
}

}  // namespace cleave::runtime
