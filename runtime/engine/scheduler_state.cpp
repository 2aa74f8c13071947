// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/scheduler_state.h"

#include <algorithm>
#include <utility>

#include "runtime/base/errors.h"

namespace cleave::runtime {

using planner::kKvBlock;

namespace {

EngineLimits checked(EngineLimits limits, const SchedulerOptions& options) {
    if (limits.num_blocks - 1 < limits.blocks_per_slot()) {
        throw UserError(
            "the KV pool has {} blocks of {} tokens; a context of {} tokens needs {}: plan with a "
            "shorter context or more KV tokens",
            std::max<int64_t>(0, limits.num_blocks - 1), kKvBlock, limits.context,
            limits.blocks_per_slot());
    }
    int64_t budget = options.token_budget;
    if (budget != 0 && (budget < limits.slots || budget > limits.max_tokens)) {
        throw UserError(
            "a pass of at most {} tokens; the plan takes {} to {}, a token of each of its "
            "sequences to all that a pass has room for",
            budget, limits.slots, limits.max_tokens);
    }
    if (options.groups < 1) throw UserError("{} groups of sequences; at least 1", options.groups);
    if (options.max_queue < 1) throw UserError("a queue of {}; at least 1", options.max_queue);
    CLEAVE_CHECK(limits.slots >= 1 && limits.max_tokens >= limits.slots &&
                 limits.max_outputs >= limits.slots && limits.window >= 0)
        << "a plan for " << limits.slots << " sequences, " << limits.max_tokens << " tokens and "
        << limits.max_outputs << " outputs of a pass";
    if (limits.whole_passes) limits.slots = 1;
    return limits;
}

SchedulerOptions completed(SchedulerOptions options, const EngineLimits& limits) {
    if (options.token_budget == 0) options.token_budget = limits.max_tokens;
    if (limits.whole_passes) {
        options.token_budget = limits.max_tokens;
        options.groups = 1;
        options.share_prefixes = false;
    }
    return options;
}

}  // namespace

SchedulerState::SchedulerState(const EngineLimits& limits, const SchedulerOptions& options)
    : limits_(checked(limits, options)),
      options_(completed(options, limits_)),
      tables_(limits.slots, limits.blocks_per_slot(), limits.num_blocks, limits.window,
              options_.share_prefixes) {
    for (int64_t slot = 0; slot < limits_.slots; ++slot) free_slots_.insert(slot);
}

// That a sequence of `positions` holds at once, at most.
int64_t SchedulerState::blocks_for(int64_t positions) const {
    int64_t blocks = planner::kv_blocks(positions);
    if (limits_.window == 0) return blocks;
    int64_t seen = limits_.window - 1 + options_.token_budget * options_.groups;
    return std::min(blocks, planner::kv_blocks(seen) + 1);
}

// In kOvercommit a sequence is promised its known tokens and the next one alone. Forks share full
// blocks, unless these leave the window one sequence after the other.
void SchedulerState::set_promise(SequenceKey key, Sequence& sequence) const {
    const RequestFacts& request = facts(key.request);
    int64_t positions = options_.kv_mode == KvMode::kReserve
                            ? request.positions()
                            : std::min(request.positions(), sequence.size() + 1);
    sequence.promise = blocks_for(positions);
    int64_t shared = limits_.window > 0 ? 0 : request.prompt_tokens / kKvBlock;
    sequence.fork_promise = sequence.forks * (sequence.promise - shared);
}

// Blocks that are promised to none. A block that sequences of a window share is counted for each:
// it may be given back by one and not by the other.
int64_t SchedulerState::room() const {
    int64_t room = limits_.window > 0 ? limits_.num_blocks - 1 : tables_.pool().available();
    for (const Sequences* sequences : {&running_, &ending_}) {
        for (const auto& [key, sequence] : *sequences) {
            int64_t held = sequence.blocks.held();
            if (limits_.window > 0) room -= held;
            if (sequences == &ending_) continue;
            room -= std::max<int64_t>(0, sequence.promise - held) + sequence.fork_promise;
        }
    }
    return room;
}

std::string SchedulerState::never_fits(const ScheduledRequest& request) const {
    auto prompt = static_cast<int64_t>(request.prompt.size());
    if (prompt == 0) return "an empty prompt";
    if (request.max_new_tokens < 0 || (request.max_new_tokens == 0 && !request.prompt_logits)) {
        return fmt::format("{} new tokens; at least 1, or 0 with logits of the prompt",
                           request.max_new_tokens);
    }
    if (request.copies < 1 || (request.copies > 1 && request.max_new_tokens == 0)) {
        return fmt::format("{} copies of {} new tokens", request.copies, request.max_new_tokens);
    }
    if (request.max_new_tokens > limits_.context - prompt) {
        const uint64_t both =  // of any number of new ones
            static_cast<uint64_t>(prompt) + static_cast<uint64_t>(request.max_new_tokens);
        return fmt::format("a prompt of {} tokens and {} new ones are {}; the context has {}",
                           prompt, request.max_new_tokens, both, limits_.context);
    }
    if (request.copies > limits_.slots) {
        return fmt::format("{} copies; {} sequences run at once", request.copies, limits_.slots);
    }
    if (limits_.whole_passes && prompt > options_.token_budget) {
        return fmt::format(
            "a prompt of {} tokens; this model takes a prompt in one pass, which has {}", prompt,
            options_.token_budget);
    }
    return {};
}

Admission SchedulerState::add(ScheduledRequest request) {
    if (std::string reason = never_fits(request); !reason.empty()) return {.reason = reason};
    auto prompt = static_cast<int64_t>(request.prompt.size());
    RequestId id = next_request_;
    requests_[id] = {.prompt_tokens = prompt,
                     .max_new_tokens = request.max_new_tokens,
                     .salt = request.salt,
                     .prompt_logits = request.prompt_logits};
    Sequence sequence{.tokens = std::move(request.prompt), .forks = request.copies - 1};
    set_promise({id, 0}, sequence);
    if (int64_t blocks = sequence.promise + sequence.fork_promise; blocks >= limits_.num_blocks) {
        requests_.erase(id);
        return {.reason = fmt::format("{} KV blocks of {} tokens needed; the pool has {}", blocks,
                                      kKvBlock, limits_.num_blocks - 1)};
    }
    if (queued_ >= options_.max_queue) {
        requests_.erase(id);
        return {.queue_full = true,
                .reason = fmt::format("{} requests wait; the queue has no room for more", queued_)};
    }
    waiting_.emplace(SequenceKey{id, 0}, std::move(sequence));
    ++queued_;
    ++next_request_;
    return {.request = id};
}

Sequence* SchedulerState::find(SequenceKey key) {
    for (Sequences* sequences : {&running_, &waiting_}) {
        if (auto it = sequences->find(key); it != sequences->end()) return &it->second;
    }
    return nullptr;
}

void SchedulerState::admit() {
    while (!waiting_.empty()) {
        auto& [key, sequence] = *waiting_.begin();
        if (sequence.awaits_end) return;
        if (sequence.forks + 1 > static_cast<int64_t>(free_slots_.size())) return;
        set_promise(key, sequence);
        int64_t wanted = sequence.promise + sequence.fork_promise;
        // Those that run take their next blocks first.
        if (options_.kv_mode == KvMode::kOvercommit) {
            wanted += static_cast<int64_t>(running_.size());
        }
        if (room() < wanted) return;
        if (sequence.preemptions == 0) --queued_;
        start_running(key, sequence);
        running_.insert(waiting_.extract(waiting_.begin()));
    }
}

void SchedulerState::start_running(SequenceKey key, Sequence& sequence) {
    sequence.target = sequence.size();
    auto take = [&] { return free_slots_.extract(free_slots_.begin()).value(); };
    sequence.blocks.slot = take();
    for (int64_t i = 0; i < sequence.forks; ++i) sequence.fork_slots.push_back(take());
    CLEAVE_CHECK(!running_.contains(key)) << "request " << key.request << " runs already";
}

// Its blocks and slots are free; what it knows stays.
void SchedulerState::stop_running(Sequence& sequence) {
    tables_.release(sequence.blocks);
    free_slots_.insert(sequence.blocks.slot);
    free_slots_.insert(sequence.fork_slots.begin(), sequence.fork_slots.end());
    sequence = {.tokens = std::move(sequence.tokens),
                .forks = sequence.forks,
                .preemptions = sequence.preemptions,
                .logits_given = sequence.logits_given,
                .in_flight = sequence.in_flight,
                .awaits_end = sequence.awaits_end,
                .announced = sequence.announced};
}

void SchedulerState::preempt_last() {
    CLEAVE_CHECK(options_.kv_mode == KvMode::kOvercommit)
        << "blocks that were promised are missing";
    auto last = std::prev(running_.end());
    stop_running(last->second);
    ++last->second.preemptions;
    ++preemptions_;
    waiting_.insert(running_.extract(last));
}

bool SchedulerState::make_room(SequenceKey key, Sequence& sequence, int64_t end) {
    while (tables_.extend(sequence.blocks, end) < end) {
        bool itself = std::prev(running_.end())->first == key;
        preempt_last();
        if (itself) return false;
    }
    return true;
}

void SchedulerState::relieve(SequenceKey key) {
    while (tables_.pool().available() == 0 && std::prev(running_.end())->first > key) {
        preempt_last();
    }
}

void SchedulerState::cancel(RequestId request) {
    if (requests_.erase(request) == 0) return;
    SequenceKey first{request, 0}, behind{request + 1, 0};
    for (auto it = waiting_.lower_bound(first); it != waiting_.lower_bound(behind);) {
        if (it->second.preemptions == 0) --queued_;
        it = waiting_.erase(it);
    }
    for (auto it = running_.lower_bound(first); it != running_.lower_bound(behind);) {
        auto node = running_.extract(it++);
        if (node.mapped().in_flight > 0) {
            tables_.hide(node.mapped().blocks);
            ending_.insert(std::move(node));
        } else {
            stop_running(node.mapped());
        }
    }
}

void SchedulerState::landed(SequenceKey key) {
    if (Sequence* sequence = find(key)) {
        --sequence->in_flight;
        return;
    }
    auto it = ending_.find(key);
    if (it == ending_.end() || --it->second.in_flight > 0) return;
    stop_running(it->second);
    ending_.erase(it);
}

void SchedulerState::ended(RequestId request) {
    if (--requests_.at(request).sequences == 0) requests_.erase(request);
}

void SchedulerState::end(SequenceKey key) {
    if (auto it = running_.find(key); it != running_.end()) {
        stop_running(it->second);
        running_.erase(it);
    } else {
        CLEAVE_CHECK(waiting_.erase(key) == 1) << "request " << key.request << " has ended";
    }
    ended(key.request);
}

void SchedulerState::accept(SequenceKey key, int32_t token, bool ends) {
    Sequence* sequence = find(key);
    CLEAVE_CHECK(sequence != nullptr && sequence->awaits_end)
        << "request " << key.request << " awaits no token";
    sequence->awaits_end = false;
    sequence->tokens.push_back(token);
    if (ends) {
        end(key);
    } else if (sequence->blocks.slot >= 0 && sequence->in_prompt) {
        decode(*sequence);
    }
}

// The leader goes on as the first copy that goes on. Where it was preempted, all begin in the
// queue.
void SchedulerState::fork(SequenceKey leader, const std::vector<CopyToken>& copies) {
    std::vector<CopyToken> going;
    std::ranges::copy_if(copies, std::back_inserter(going), [](auto& copy) { return !copy.ends; });
    if (going.empty()) return end(leader);
    requests_.at(leader.request).sequences = static_cast<int64_t>(going.size());
    bool runs = running_.contains(leader);
    Sequences& place = runs ? running_ : waiting_;
    auto node = place.extract(leader);
    Sequence& sequence = node.mapped();
    sequence.forks = 0;
    node.key().copy = going[0].copy;
    set_promise(node.key(), sequence);
    place.insert(std::move(node));
    for (size_t i = 1; i < going.size(); ++i) add_fork(sequence, leader.request, going[i], runs);
    free_slots_.insert(sequence.fork_slots.begin(), sequence.fork_slots.end());
    sequence.fork_slots.clear();
    accept({leader.request, going[0].copy}, going[0].token, false);
}

// Without a block for the end of the prompt it goes to the queue, as if preempted.
void SchedulerState::add_fork(Sequence& leader, RequestId request, const CopyToken& copy,
                              bool runs) {
    SequenceKey key{request, copy.copy};
    Sequence fork{.tokens = leader.tokens,
                  .preemptions = leader.preemptions,
                  .logits_given = leader.logits_given,
                  .announced = true};
    fork.tokens.push_back(copy.token);
    if (runs) {
        fork.blocks.slot = leader.fork_slots.back();
        while (!tables_.fork(leader.blocks, fork.blocks, leader.size())) {
            if (std::prev(running_.end())->first < key) {
                fork.blocks = {};
                ++fork.preemptions;
                ++preemptions_;
                break;
            }
            preempt_last();
        }
    }
    bool fits = fork.blocks.slot >= 0;
    if (fits) {
        leader.fork_slots.pop_back();
        fork.target = fork.issued = fork.computed = leader.size();
        fork.started = true;
        set_promise(key, fork);
        decode(fork);
    }
    (fits ? running_ : waiting_).emplace(key, std::move(fork));
}

// Sequences that decode and their positions, by group.
std::vector<std::pair<int64_t, int64_t>> SchedulerState::group_loads() const {
    std::vector<std::pair<int64_t, int64_t>> loads(static_cast<size_t>(options_.groups));
    for (const auto& [key, sequence] : running_) {
        if (sequence.in_prompt) continue;
        auto& [sequences, positions] = loads[static_cast<size_t>(sequence.group)];
        ++sequences;
        positions += sequence.size();
    }
    return loads;
}

void SchedulerState::decode(Sequence& sequence) {
    auto loads = group_loads();
    sequence.group = std::ranges::min_element(loads) - loads.begin();
    sequence.in_prompt = false;
}

void SchedulerState::balance(int64_t group) {
    if (options_.groups == 1) return;
    auto loads = group_loads();
    for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
        Sequence& sequence = it->second;
        if (sequence.in_prompt || sequence.group != group || sequence.moved) continue;
        auto least = std::ranges::min_element(loads);
        auto& own = loads[static_cast<size_t>(group)];
        if (own.first - least->first < 2) return;
        sequence.group = least - loads.begin();
        sequence.moved = true;
        own.first -= 1;
        own.second -= sequence.size();
        least->first += 1;
        least->second += sequence.size();
    }
}

SchedulerStatistics SchedulerState::statistics() const {
    const BlockPool& pool = tables_.pool();
    SchedulerStatistics result{.blocks_free = pool.free(),
                               .blocks_held = pool.held(),
                               .blocks_cached = pool.cached(),
                               .waiting = static_cast<int64_t>(waiting_.size()),
                               .running = static_cast<int64_t>(running_.size()),
                               .preemptions = preemptions_};
    std::vector<bool> seen(static_cast<size_t>(limits_.num_blocks));
    for (const Sequences* sequences : {&running_, &ending_}) {
        for (const auto& [key, sequence] : *sequences) {
            for (size_t i = 0; i < sequence.blocks.blocks.size(); ++i) {
                auto block = static_cast<size_t>(sequence.blocks.blocks[i]);
                if (block == 0 || seen[block]) continue;
                seen[block] = true;
                int64_t behind = sequence.issued - static_cast<int64_t>(i) * kKvBlock;
                result.tokens_held += std::clamp<int64_t>(behind, 0, kKvBlock);
            }
        }
    }
    return result;
}

std::vector<SequenceView> SchedulerState::views() const {
    std::vector<SequenceView> views;
    auto add = [&](const Sequences& sequences, SequencePlace place) {
        for (const auto& [key, sequence] : sequences) {
            views.push_back({.request = key.request,
                             .copy = key.copy,
                             .place = place,
                             .tokens = sequence.size(),
                             .issued = sequence.issued,
                             .in_prompt = sequence.in_prompt,
                             .slot = sequence.blocks.slot,
                             .group = sequence.group,
                             .blocks = sequence.blocks.blocks});
        }
    };
    add(waiting_, SequencePlace::kQueued);
    add(running_, SequencePlace::kRunning);
    add(ending_, SequencePlace::kEnding);
    return views;
}

}  // namespace cleave::runtime
