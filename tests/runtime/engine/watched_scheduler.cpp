// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/engine/watched_scheduler.h"

#include <algorithm>

#include "runtime/base/errors.h"
#include "tests/support/test.h"

namespace cleave::test {

using namespace runtime;
using planner::kKvBlock;

namespace {

planner::Workload workload_of(const EngineLimits& limits) {
    planner::Workload workload;
    workload.batch = limits.slots;
    workload.context = limits.context;
    workload.prefill_chunk = limits.max_tokens;
    workload.all_logits = limits.max_outputs > limits.slots;
    return workload;
}

}  // namespace

bool WatchedScheduler::Stream::over() const {
    return std::ranges::all_of(ended, [](bool e) { return e; }) &&
           (!request.prompt_logits || logits_seen.size() == request.prompt.size());
}

std::vector<int32_t> WatchedScheduler::Stream::all_tokens(size_t copy) const {
    std::vector<int32_t> all = request.prompt;
    all.insert(all.end(), tokens[copy].begin(), tokens[copy].end());
    return all;
}

WatchedScheduler::WatchedScheduler(const EngineLimits& limits, const SchedulerOptions& options)
    : limits_(limits), options_(options), scheduler_(limits, options), model_(limits) {}

Admission WatchedScheduler::add(ScheduledRequest request) {
    Admission admission = scheduler_.add(request);
    CLEAVE_CHECK(admission.request.has_value() == admission.reason.empty());
    if (admission.request) {
        Stream stream{.request = request};
        auto copies = static_cast<size_t>(request.copies);
        stream.tokens.resize(copies);
        stream.ended.assign(copies, request.max_new_tokens == 0);
        AloneSequence alone(limits_);
        for (int32_t token : request.prompt) stream.prompt_outputs.push_back(alone.add(token));
        stream.alone.assign(copies, alone);
        requests_.emplace(*admission.request, std::move(stream));
    }
    check();
    return admission;
}

void WatchedScheduler::cancel(RequestId request) {
    scheduler_.cancel(request);
    CLEAVE_CHECK(!scheduler_.alive(request));
    if (requests_.erase(request) > 0) {
        if (in_flight()) cancelled_[request] = static_cast<int64_t>(passes_.size());
        std::erase_if(due_, [&](const auto& entry) { return entry.first.first == request; });
    }
    check();
}

bool WatchedScheduler::next() {
    Views before = scheduler_.sequences();
    auto pass = scheduler_.next();
    last_pass_ = pass;
    if (pass) {
        check_pass(*pass, before);
        passes_.push_back(*std::move(pass));
    }
    check();
    return last_pass_.has_value();
}

void WatchedScheduler::done() {
    ScheduledPass pass = std::move(passes_.front());
    passes_.pop_front();
    std::vector<uint64_t> values = model_.run(pass.batch);
    std::vector<OutputToken> tokens(pass.outputs.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
        const ScheduledOutput& output = pass.outputs[i];
        CLEAVE_CHECK(i == 0 || pass.outputs[i - 1].output <= output.output);
        take_output(output, values.at(static_cast<size_t>(output.output)), tokens[i]);
    }
    scheduler_.done(pass.id, tokens);
    for (auto it = cancelled_.begin(); it != cancelled_.end();) {
        it = --it->second == 0 ? cancelled_.erase(it) : std::next(it);
    }
    for (auto it = requests_.begin(); it != requests_.end();) {
        const Stream& stream = it->second;
        if (stream.over()) {
            CLEAVE_CHECK(!scheduler_.alive(it->first)) << "request " << it->first << " goes on";
            ++streams_ended_;
        }
        it = stream.over() ? requests_.erase(it) : std::next(it);
    }
    check();
}

// The token must be the one that the sequence alone would get.
void WatchedScheduler::take_output(const ScheduledOutput& output, uint64_t value,
                                   OutputToken& token) {
    auto it = requests_.find(output.request);
    if (it == requests_.end()) return;
    Stream& stream = it->second;
    auto prompt = static_cast<int64_t>(stream.request.prompt.size());
    if (output.is_prompt_logit) {
        CLEAVE_CHECK(stream.request.prompt_logits && output.copy == 0 && output.position < prompt);
        CLEAVE_CHECK(value == stream.prompt_outputs[static_cast<size_t>(output.position)])
            << "logits of token " << output.position << " of request " << output.request;
        CLEAVE_CHECK(stream.logits_seen.insert(output.position).second) << "given twice";
    }
    CLEAVE_CHECK(output.is_prompt_logit || output.gives_token);
    if (!output.gives_token) return;
    auto copy = static_cast<size_t>(output.copy);
    auto& tokens = stream.tokens.at(copy);
    CLEAVE_CHECK(!stream.ended.at(copy)) << "a token behind the end";
    CLEAVE_CHECK(output.position == prompt + static_cast<int64_t>(tokens.size()) - 1);
    uint64_t expected =
        tokens.empty() ? stream.prompt_outputs.back() : stream.alone[copy].add(tokens.back());
    CLEAVE_CHECK(value == expected)
        << "token " << tokens.size() << " of copy " << copy << " of request " << output.request;
    token.token = token_of(value, output.copy);
    token.ends = stop_every > 0 && token.token % stop_every == 0;
    tokens.push_back(token.token);
    bool last = static_cast<int64_t>(tokens.size()) == stream.request.max_new_tokens;
    CLEAVE_CHECK(output.is_last == last);
    stream.ended[copy] = token.ends || last;
    if (!stream.ended[copy]) due_[{output.request, output.copy}] = 0;
}

bool WatchedScheduler::in_flight(RequestId request) const {
    return std::ranges::any_of(passes_, [&](const ScheduledPass& pass) {
        return std::ranges::count(pass.sequences, request, &ScheduledSequence::request) > 0;
    });
}

void WatchedScheduler::drain() {
    for (int64_t calls = 0; !scheduler_.idle(); ++calls) {
        CLEAVE_CHECK(calls < 200000) << "no end";
        while (next()) {
        }
        CLEAVE_CHECK(in_flight()) << "nothing runs and something waits";
        done();
    }
    CLEAVE_CHECK(requests_.empty()) << requests_.size() << " requests without an end";
    SchedulerStatistics now = scheduler_.statistics();
    CLEAVE_CHECK(now.blocks_held == 0) << now.blocks_held << " blocks held by nobody";
}

void WatchedScheduler::check() {
    Views views = scheduler_.sequences();
    check_owners(views);
    // The queue is in order of arrival, and behind all that run.
    std::pair<RequestId, int64_t> last_running{-1, 0}, first_queued{INT64_MAX, 0};
    std::map<RequestId, int64_t> sequences;
    std::set<int64_t> slots;
    for (const SequenceView& view : views) {
        std::pair key{view.request, view.copy};
        if (view.place == SequencePlace::kRunning) last_running = std::max(last_running, key);
        if (view.place == SequencePlace::kQueued) first_queued = std::min(first_queued, key);
        if (view.place != SequencePlace::kQueued) {
            CLEAVE_CHECK(slots.insert(view.slot).second) << "slot " << view.slot << " twice";
        }
        if (view.place == SequencePlace::kEnding) {
            CLEAVE_CHECK(cancelled_.contains(view.request))
                << "request " << view.request << " holds blocks behind its last pass";
        } else {
            CLEAVE_CHECK(requests_.contains(view.request)) << "request " << view.request;
            ++sequences[view.request];
        }
    }
    CLEAVE_CHECK(last_running < first_queued) << "one that came later runs";
    for (const auto& [request, passes] : cancelled_) {
        bool ends = std::ranges::count(views, request, &SequenceView::request) > 0;
        // Preempted sequences have no blocks in flight.
        CLEAVE_CHECK(ends == in_flight(request) || options_.kv_mode == KvMode::kOvercommit)
            << "request " << request << " has lost the blocks of a pass in flight";
    }
    for (const auto& [id, stream] : requests_) {
        CLEAVE_CHECK(scheduler_.alive(id) == (sequences[id] > 0));
        auto going = std::ranges::count(stream.ended, false);
        bool forked = !stream.tokens[0].empty() || stream.request.copies == 1;
        if (stream.request.max_new_tokens == 0) continue;
        CLEAVE_CHECK(sequences[id] == (forked ? going : 1)) << "request " << id;
    }
    // Sequences that were preempted are not due.
    for (const SequenceView& view : views) {
        if (view.place == SequencePlace::kQueued) due_.erase({view.request, view.copy});
    }
}

// Blocks are counted from what sequences say; the pool must come to the same sums.
void WatchedScheduler::check_owners(const Views& views) {
    std::vector<std::vector<std::pair<const SequenceView*, int64_t>>> owners(
        static_cast<size_t>(limits_.num_blocks));
    int64_t held = 0;
    for (const SequenceView& view : views) {
        CLEAVE_CHECK(view.place != SequencePlace::kQueued || view.blocks.empty());
        CLEAVE_CHECK(static_cast<int64_t>(view.blocks.size()) == planner::kv_blocks(view.issued))
            << "request " << view.request << " has blocks that no pass wanted, or lacks some";
        int64_t seen = FakeModel::first_seen(limits_, view.issued);
        for (size_t i = 0; i < view.blocks.size(); ++i) {
            auto index = static_cast<int64_t>(i);
            int32_t block = view.blocks[i];
            if (block == 0) {
                CLEAVE_CHECK((index + 1) * kKvBlock <= seen) << "a block in the window is gone";
                continue;
            }
            auto& of_block = owners.at(static_cast<size_t>(block));
            if (of_block.empty()) ++held;
            of_block.emplace_back(&view, index);
        }
    }
    SchedulerStatistics now = scheduler_.statistics();
    CLEAVE_CHECK(now.blocks_held == held) << now.blocks_held << " held; owners of " << held;
    CLEAVE_CHECK(now.blocks_free + now.blocks_held + now.blocks_cached == limits_.num_blocks - 1);
    CLEAVE_CHECK(now.blocks_free >= 0 && now.blocks_cached >= 0);
    CLEAVE_CHECK(now.preemptions == 0 || options_.kv_mode == KvMode::kOvercommit);
    for (size_t block = 1; block < owners.size(); ++block) {
        if (owners[block].size() < 2) continue;
        std::vector<const SequenceView*> sharing;
        for (auto [view, index] : owners[block]) {
            CLEAVE_CHECK(index == owners[block][0].second) << "one block at two positions";
            sharing.push_back(view);
        }
        check_shared(static_cast<int32_t>(block), owners[block][0].second, sharing);
    }
}

// A shared block is full, and all who share it have its tokens and those before it.
void WatchedScheduler::check_shared(int32_t block, int64_t index,
                                    const std::vector<const SequenceView*>& owners) {
    const Stream* first = nullptr;
    std::vector<int32_t> prefix;
    for (const SequenceView* view : owners) {
        CLEAVE_CHECK((index + 1) * kKvBlock <= view->issued) << "block " << block << " is not full";
        auto it = requests_.find(view->request);
        if (it == requests_.end()) continue;  // cancelled
        std::vector<int32_t> tokens = it->second.all_tokens(static_cast<size_t>(view->copy));
        tokens.resize(static_cast<size_t>((index + 1) * kKvBlock));
        if (first != nullptr) {
            CLEAVE_CHECK(tokens == prefix) << "block " << block << " of two prefixes";
            CLEAVE_CHECK(first->request.salt == it->second.request.salt) << "two tenants share";
        }
        first = &it->second;
        prefix = std::move(tokens);
    }
    CLEAVE_CHECK(owners.size() < 2 || options_.share_prefixes || first == nullptr ||
                 first->request.copies > 1);
}

void WatchedScheduler::check_pass(const ScheduledPass& pass, const Views& before) {
    const Batch& batch = pass.batch;
    check_batch(batch, workload_of(limits_));
    check_blocks(batch, workload_of(limits_), limits_.num_blocks, limits_.window);
    int64_t budget = options_.token_budget > 0 ? options_.token_budget : limits_.max_tokens;
    CLEAVE_CHECK(batch.num_tokens() <= budget) << batch.num_tokens() << " tokens";
    CLEAVE_CHECK(pass.sequences.size() == static_cast<size_t>(batch.num_sequences()));
    Views views = scheduler_.sequences();
    check_writes(pass, views);
    check_decode_rows(pass, views);
    check_first_prompt(pass, before);
}

// The table has what sequences own and nothing else; rows are the sequences' tokens.
void WatchedScheduler::check_writes(const ScheduledPass& pass, const Views& views) {
    const Batch& batch = pass.batch;
    std::vector<int32_t> table(static_cast<size_t>(limits_.slots * limits_.blocks_per_slot()));
    std::map<std::pair<RequestId, int64_t>, const SequenceView*> running;
    std::vector<int64_t> owners(static_cast<size_t>(limits_.num_blocks));
    for (const SequenceView& view : views) {
        for (int32_t block : view.blocks) ++owners[static_cast<size_t>(block)];
        if (view.place != SequencePlace::kRunning) continue;
        running[{view.request, view.copy}] = &view;
        std::ranges::copy(view.blocks, table.begin() + view.slot * limits_.blocks_per_slot());
    }
    CLEAVE_CHECK(batch.blocks == table) << "the table has what no sequence owns, or lacks some";
    bool single = true;
    for (size_t s = 0; s < pass.sequences.size(); ++s) {
        auto [request, copy] = pass.sequences[s];
        const SequenceView& view = *running.at({request, copy});
        std::vector<int32_t> tokens = requests_.at(request).all_tokens(static_cast<size_t>(copy));
        auto begin = static_cast<size_t>(batch.sequence_starts[s]);
        auto end = static_cast<size_t>(batch.sequence_starts[s + 1]);
        CLEAVE_CHECK(single || end - begin > 1) << "a single token behind a chunk";
        single = end - begin == 1;
        for (size_t row = begin; row < end; ++row) {
            auto position = static_cast<size_t>(batch.positions[row]);
            CLEAVE_CHECK(batch.slots[row] == view.slot);
            CLEAVE_CHECK(batch.token_ids[row] == tokens.at(position));
            CLEAVE_CHECK(row == begin || batch.positions[row] == batch.positions[row - 1] + 1);
            auto block = static_cast<size_t>(view.blocks[position / kKvBlock]);
            CLEAVE_CHECK(owners[block] == 1) << "block " << block << " is shared and written";
        }
        CLEAVE_CHECK(view.issued == batch.positions[end - 1] + 1);
        due_.erase({request, copy});
    }
}

// A sequence that can decode is in the next pass of its group. Between two of its own rows, others
// give no more than each its passes in flight.
void WatchedScheduler::check_decode_rows(const ScheduledPass& pass, const Views& views) {
    for (const SequenceView& view : views) {
        auto it = due_.find({view.request, view.copy});
        if (it == due_.end() || view.place != SequencePlace::kRunning) continue;
        if (view.in_prompt) continue;
        CLEAVE_CHECK(view.group != pass.group) << "request " << view.request << " was passed over";
        CLEAVE_CHECK(++it->second <= 2 * (options_.groups - 1)) << "request " << view.request;
    }
}

// The oldest prompt ends in the pass, or has at least half of what decode rows leave.
void WatchedScheduler::check_first_prompt(const ScheduledPass& pass, const Views& before) {
    if (options_.kv_mode == KvMode::kOvercommit) return;
    const SequenceView* first = nullptr;
    for (const SequenceView& view : before) {
        bool waits = view.place == SequencePlace::kRunning && view.in_prompt;
        if (waits && view.issued < view.tokens && first == nullptr) first = &view;
    }
    // Rows of logits bound such a prompt, too.
    if (first == nullptr || requests_.at(first->request).request.prompt_logits) return;
    int64_t budget = options_.token_budget > 0 ? options_.token_budget : limits_.max_tokens;
    int64_t decode_rows = 0, own = 0, remaining = 0;
    for (size_t s = 0; s < pass.sequences.size(); ++s) {
        auto [request, copy] = pass.sequences[s];
        auto begin = static_cast<size_t>(pass.batch.sequence_starts[s]);
        int64_t count = pass.batch.sequence_starts[s + 1] - pass.batch.sequence_starts[s];
        if (request == first->request && copy == first->copy) {
            own = count;
            remaining = first->tokens - pass.batch.positions[begin];
        }
        auto view = std::ranges::find_if(before, [&](const SequenceView& v) {
            return v.request == request && v.copy == copy && !v.in_prompt;
        });
        if (view != before.end()) ++decode_rows;
    }
    int64_t rest = budget - decode_rows;
    CLEAVE_CHECK(rest == 0 || (own > 0 && own >= std::min(remaining, rest - rest / 2)))
        << "request " << first->request << " got " << own << " of " << rest << " tokens, "
        << remaining << " remained; " << pass.batch.num_tokens() << " in the pass";
}

}  // namespace cleave::test
