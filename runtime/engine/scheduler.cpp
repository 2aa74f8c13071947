// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/scheduler.h"

#include <algorithm>
#include <deque>
#include <span>
#include <utility>

#include "importer/weights/quantized_shard.h"
#include "planner/plan/plan_queries.h"
#include "runtime/base/errors.h"
#include "runtime/engine/scheduler_state.h"

namespace cleave::runtime {

namespace {

// Tokens [begin, begin + count) of a sequence, in a pass.
struct SequenceRows {
    SequenceKey key;
    Sequence* sequence = nullptr;  // while the pass is made
    int64_t begin = 0, count = 0;
    int64_t preemptions = 0;  // of the sequence when the pass was given

    int64_t end() const { return begin + count; }
};

struct PassInFlight {
    PassId id = 0;
    int64_t group = 0;
    std::vector<SequenceRows> rows;
    std::vector<ScheduledOutput> outputs;
};

// Rows of logits that tokens [issued, end) of a sequence have.
struct WantedRows {
    int64_t first_prompt_logit = 0, end_prompt_logits = 0;
    bool next_token = false;  // of the last row

    int64_t count(int64_t end) const {
        int64_t logits = std::max<int64_t>(0, end_prompt_logits - first_prompt_logit);
        return logits + (next_token && end_prompt_logits < end ? 1 : 0);
    }
};

WantedRows wanted_rows(const RequestFacts& facts, const Sequence& sequence, int64_t end) {
    WantedRows wanted;
    wanted.next_token = facts.max_new_tokens > 0 && end == sequence.size();
    if (facts.prompt_logits) {
        wanted.first_prompt_logit = std::max(sequence.issued, sequence.logits_given);
        wanted.end_prompt_logits = std::min(end, facts.prompt_tokens);
    }
    return wanted;
}

}  // namespace

struct Scheduler::Impl {
    Impl(const EngineLimits& limits, const SchedulerOptions& options) : state(limits, options) {}

    std::optional<ScheduledPass> make_pass(int64_t group);
    void add_decode_rows(int64_t group);
    void add_prompts();
    void start(SequenceKey key, Sequence& sequence);
    int64_t add_rows(SequenceKey key, Sequence& sequence, int64_t count);
    void give_rows(ScheduledPass& pass, SequenceRows& rows);
    void give_output(ScheduledPass& pass, const SequenceRows& rows, int64_t position);
    void take_rows(const SequenceRows& rows);
    void take_tokens(const PassInFlight& pass, const std::vector<OutputToken>& tokens);

    SchedulerState state;
    std::deque<PassInFlight> in_flight;
    int64_t next_group = 0;
    PassId next_pass = 0;
    SchedulerStatistics counts;
    // Of the pass that is being made.
    std::vector<SequenceRows> rows;
    int64_t tokens_left = 0, outputs_left = 0;
};

// Every sequence of the group that decodes has a row in each of its passes.
void Scheduler::Impl::add_decode_rows(int64_t group) {
    auto& running = state.running();
    for (auto it = running.begin(); it != running.end(); ++it) {
        auto& [key, sequence] = *it;
        if (sequence.in_prompt || sequence.group != group) continue;
        if (!state.make_room(key, sequence, sequence.size())) return;
        add_rows(key, sequence, 1);
    }
}

// Looks for its prefix when its first rows are due, so that it finds what passes before them made.
void Scheduler::Impl::start(SequenceKey key, Sequence& sequence) {
    if (std::exchange(sequence.started, true)) return;
    const RequestFacts& facts = state.facts(key.request);
    int64_t limit = sequence.size() - 1;
    if (facts.prompt_logits) limit = std::min(limit, sequence.logits_given);
    sequence.cached =
        state.tables().take_prefix(sequence.blocks, facts.salt, sequence.tokens, limit);
    sequence.issued = sequence.computed = sequence.cached;
    counts.prefix_queries += limit;
    counts.prefix_hits += sequence.cached;
}

// As many of the next `count` tokens as there are blocks and rows of logits for.
int64_t Scheduler::Impl::add_rows(SequenceKey key, Sequence& sequence, int64_t count) {
    const RequestFacts& facts = state.facts(key.request);
    int64_t end = sequence.issued + count;
    while (wanted_rows(facts, sequence, end).count(end) > outputs_left) --end;
    int64_t wanted = end;
    end = state.tables().extend(sequence.blocks, wanted);
    while (wanted_rows(facts, sequence, end).count(end) > outputs_left) --end;
    count = end - sequence.issued;
    sequence.starved = count == 0 && wanted > end;
    if (count == 0) return 0;
    rows.push_back({key, &sequence, sequence.issued, count, sequence.preemptions});
    outputs_left -= wanted_rows(facts, sequence, end).count(end);
    tokens_left -= count;
    return count;
}

// Prompts that end in this pass, in order of arrival. The first that does not leaves up to half of
// what is left to shorter ones behind it.
void Scheduler::Impl::add_prompts() {
    std::vector<SequenceKey> order;
    for (auto& [key, sequence] : state.running()) {
        if (sequence.in_prompt && sequence.remaining() > 0) order.push_back(key);
    }
    auto& running = state.running();
    size_t next = 0;
    for (; next < order.size() && tokens_left > 0; ++next) {
        Sequence& sequence = running.at(order[next]);
        start(order[next], sequence);
        if (sequence.remaining() > tokens_left) break;
        add_rows(order[next], sequence, sequence.remaining());
    }
    if (next == order.size() || tokens_left == 0) return;
    SequenceKey first = order[next];
    std::vector<std::pair<SequenceKey, int64_t>> beside;
    int64_t half = tokens_left / 2;
    order.erase(order.begin(), order.begin() + static_cast<ptrdiff_t>(next) + 1);
    std::ranges::stable_sort(order, {}, [&](auto key) { return running.at(key).remaining(); });
    for (SequenceKey key : order) {
        if (half == 0 || running.at(key).remaining() >= running.at(first).remaining()) break;
        start(key, running.at(key));
        int64_t count = std::min(half, running.at(key).remaining());
        beside.emplace_back(key, count);
        half -= count;
    }
    int64_t shared = tokens_left / 2 - half;
    add_rows(first, running.at(first), tokens_left - shared);
    for (auto [key, count] : beside) add_rows(key, running.at(key), count);
}

std::optional<ScheduledPass> Scheduler::Impl::make_pass(int64_t group) {
    rows.clear();
    tokens_left = state.options().token_budget;
    outputs_left = state.limits().max_outputs;
    auto& running = state.running();
    auto starved = std::ranges::find_if(running, [](auto& entry) { return entry.second.starved; });
    if (starved != running.end()) state.relieve(starved->first);
    add_decode_rows(group);
    add_prompts();
    if (rows.empty()) return std::nullopt;

    ScheduledPass pass{.id = next_pass++, .group = group};
    std::ranges::stable_partition(rows, [](const SequenceRows& r) { return r.count == 1; });
    pass.batch.sequence_starts.push_back(0);
    for (SequenceRows& of_sequence : rows) give_rows(pass, of_sequence);
    pass.batch.is_prefill = pass.batch.num_sequences() != pass.batch.num_tokens() ||
                            pass.batch.num_outputs() != pass.batch.num_tokens();
    pass.batch.blocks = state.tables().table();
    pass.batch.copies = state.tables().take_copies();
    ++counts.passes;
    counts.tokens += pass.batch.num_tokens();
    in_flight.push_back({pass.id, group, std::exchange(rows, {}), pass.outputs});
    return pass;
}

void Scheduler::Impl::give_rows(ScheduledPass& pass, SequenceRows& of_sequence) {
    Sequence& sequence = *std::exchange(of_sequence.sequence, nullptr);
    const SequenceKey& key = of_sequence.key;
    const RequestFacts& facts = state.facts(key.request);
    if (!std::exchange(sequence.announced, true)) {
        pass.started.push_back({key.request, sequence.cached});
    }
    WantedRows wanted = wanted_rows(facts, sequence, of_sequence.end());
    Batch& batch = pass.batch;
    for (int64_t p = of_sequence.begin; p < of_sequence.end(); ++p) {
        bool is_prompt_logit = wanted.first_prompt_logit <= p && p < wanted.end_prompt_logits;
        bool gives_token = wanted.next_token && p + 1 == of_sequence.end();
        ScheduledOutput output{
            .output = batch.num_outputs(),
            .request = key.request,
            .copy = key.copy,
            .position = p,
            .is_prompt_logit = is_prompt_logit,
            .gives_token = gives_token,
            .is_last =
                gives_token && sequence.size() + 1 == facts.prompt_tokens + facts.max_new_tokens};
        if (is_prompt_logit || gives_token) {
            batch.output_rows.push_back(static_cast<int32_t>(batch.num_tokens()));
            pass.outputs.push_back(output);
        }
        for (int64_t i = 0; gives_token && i < sequence.forks; ++i) {
            ++output.copy;
            output.is_prompt_logit = false;
            pass.outputs.push_back(output);
        }
        batch.token_ids.push_back(sequence.tokens[static_cast<size_t>(p)]);
        batch.positions.push_back(static_cast<int32_t>(p));
        batch.slots.push_back(static_cast<int32_t>(sequence.blocks.slot));
    }
    batch.sequence_starts.push_back(static_cast<int32_t>(batch.num_tokens()));
    pass.sequences.push_back({key.request, key.copy});
    sequence.logits_given = std::max(sequence.logits_given, wanted.end_prompt_logits);
    sequence.issued = of_sequence.end();
    sequence.awaits_end = of_sequence.end() == sequence.size();
    sequence.moved = false;
    ++sequence.in_flight;
}

// The keys and values of these rows are in the pool, unless their blocks went to others meanwhile.
void Scheduler::Impl::take_rows(const SequenceRows& of_sequence) {
    state.landed(of_sequence.key);
    Sequence* sequence = state.find(of_sequence.key);
    if (sequence == nullptr) return;
    const RequestFacts& facts = state.facts(of_sequence.key.request);
    if (facts.max_new_tokens == 0 && of_sequence.end() == facts.prompt_tokens) {
        return state.end(of_sequence.key);
    }
    if (sequence->preemptions != of_sequence.preemptions) return;
    sequence->computed = of_sequence.end();
    std::span<const int32_t> tokens(sequence->tokens);
    state.tables().index(sequence->blocks, facts.salt,
                         tokens.first(static_cast<size_t>(sequence->computed)));
    state.tables().give_back(sequence->blocks, sequence->computed);
}

void Scheduler::Impl::take_tokens(const PassInFlight& pass,
                                  const std::vector<OutputToken>& tokens) {
    for (size_t i = 0; i < pass.outputs.size();) {
        const ScheduledOutput& output = pass.outputs[i];
        std::vector<SchedulerState::CopyToken> copies;
        for (; i < pass.outputs.size() && pass.outputs[i].output == output.output; ++i) {
            bool ends = tokens[i].ends || pass.outputs[i].is_last;
            copies.push_back({pass.outputs[i].copy, tokens[i].token, ends});
        }
        if (!output.gives_token || !state.alive(output.request)) continue;
        SequenceKey key{output.request, output.copy};
        if (copies.size() > 1) {
            state.fork(key, copies);
        } else {
            state.accept(key, copies[0].token, copies[0].ends);
        }
    }
}

Scheduler::Scheduler(const EngineLimits& limits, const SchedulerOptions& options)
    : impl_(std::make_unique<Impl>(limits, options)) {}
Scheduler::~Scheduler() = default;

Admission Scheduler::add(ScheduledRequest request) { return impl_->state.add(std::move(request)); }
void Scheduler::cancel(RequestId request) { impl_->state.cancel(request); }
bool Scheduler::alive(RequestId request) const { return impl_->state.alive(request); }
bool Scheduler::idle() const { return impl_->state.idle() && impl_->in_flight.empty(); }

std::optional<ScheduledPass> Scheduler::next() {
    impl_->state.admit();
    int64_t groups = impl_->state.options().groups;
    for (int64_t i = 0; i < groups; ++i) {
        int64_t group = (impl_->next_group + i) % groups;
        if (std::ranges::count(impl_->in_flight, group, &PassInFlight::group) > 0) continue;
        if (auto pass = impl_->make_pass(group)) {
            impl_->next_group = (group + 1) % groups;
            return pass;
        }
    }
    return std::nullopt;
}

void Scheduler::done(PassId pass, const std::vector<OutputToken>& tokens) {
    CLEAVE_CHECK(!impl_->in_flight.empty() && impl_->in_flight.front().id == pass)
        << "pass " << pass << " is not the oldest in flight";
    PassInFlight ended = std::move(impl_->in_flight.front());
    CLEAVE_CHECK(tokens.size() == ended.outputs.size())
        << tokens.size() << " tokens for " << ended.outputs.size() << " outputs";
    impl_->in_flight.pop_front();
    for (const SequenceRows& rows : ended.rows) impl_->take_rows(rows);
    impl_->take_tokens(ended, tokens);
    impl_->state.balance(ended.group);
}

SchedulerStatistics Scheduler::statistics() const {
    SchedulerStatistics result = impl_->state.statistics();
    result.in_flight = static_cast<int64_t>(impl_->in_flight.size());
    result.passes = impl_->counts.passes;
    result.tokens = impl_->counts.tokens;
    result.prefix_queries = impl_->counts.prefix_queries;
    result.prefix_hits = impl_->counts.prefix_hits;
    return result;
}

std::vector<SequenceView> Scheduler::sequences() const { return impl_->state.views(); }

EngineLimits limits_of(const planner::Plan& plan) {
    return {.slots = plan.workload.batch,
            .context = plan.workload.context,
            .num_blocks = plan.kv_pool.num_blocks,
            .max_tokens = plan.workload.max_tokens(),
            .max_outputs = plan.workload.max_outputs(),
            .window = planner::longest_window(plan.graph),
            .whole_passes = importer::has_dynamic_activations(plan.graph)};
}

}  // namespace cleave::runtime
