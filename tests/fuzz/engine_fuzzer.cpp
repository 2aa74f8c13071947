// SPDX-License-Identifier: Apache-2.0
// Requests of any kind to the engine of the C ABI (tools/libcleave/include/cleave_engine.h),
// several at once, some cancelled, over a KV pool that is too small for all of them. The engine
// outlives an input, and now and then another one is made. A request that is accepted ends once,
// each of its copies once, with no more tokens than were asked for; one that is refused has no
// event; when all have ended, no block is held.
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>

#include "tests/fuzz/c_abi.h"
#include "tests/fuzz/harness.h"

namespace {

using namespace cleave::fuzz;

constexpr int64_t kMostNewTokens = 24, kVocabulary = 1024;
constexpr size_t kMostRequests = 12;

cleave_plan* make_plan() {
    cleave_graph* graph = nullptr;
    cleave_machine* machine = nullptr;
    cleave_plan* plan = nullptr;
    cleave_plan_options options{};
    options.struct_size = sizeof options;
    options.batch = 4;
    options.context = 128;
    options.prompt_tokens = 32;
    options.kv_tokens = 256;
    options.tensor_parallel = 1;
    options.pipeline_stages = 2;
    const char* model = std::getenv("CLEAVE_FUZZ_MODEL");
    if (!model) wrong("tests/fuzz/run says which model, in CLEAVE_FUZZ_MODEL");
    if (!good(cleave_graph_import(model, nullptr, &graph)) ||
        !good(cleave_machine_from_devices("host[0-1]", &machine)) ||
        !good(cleave_plan_make(graph, machine, &options, &plan)))
        wrong("no plan for the bundled model");
    cleave_graph_free(graph);
    cleave_machine_free(machine);
    return plan;
}

// What came of the requests of one engine. Events come on its thread.
class Events {
public:
    // Of a request that was accepted, maybe after its first events.
    void expect(int64_t request, int64_t copies, int64_t most_tokens) {
        const std::lock_guard lock(mutex_);
        if (copies < 1 || !expected_.insert({request, {copies, most_tokens}}).second)
            wrong("a request's number twice");
    }
    void take(const cleave_event& event) {
        const std::lock_guard lock(mutex_);
        Seen& seen = seen_[event.request];
        if (seen.ended || event.copy < 0) wrong("an event behind the last");
        if (seen.copies_ended.contains(event.copy)) wrong("an event of a copy that has ended");
        seen.tokens[event.copy] += static_cast<int64_t>(event.num_tokens);
        for (size_t i = 0; i < event.num_tokens; ++i)
            if (event.tokens[i] < 0 || event.tokens[i] >= kVocabulary) wrong("no such token");
        if (!event.text || !event.message) wrong("an event without its texts");
        for (size_t i = 0; i < event.num_logprobs; ++i) {
            const cleave_token_logprobs& token = event.logprobs[i];
            if (!(token.chosen.logprob <= 0)) wrong("a probability above 1");
            for (size_t k = 1; k < token.num_top; ++k)
                if (token.top[k].logprob > token.top[k - 1].logprob) wrong("the top in no order");
        }
        if (event.finish == CLEAVE_FINISH_FAULT) wrong(event.message);
        if (event.finish != CLEAVE_GOES_ON) seen.copies_ended.insert(event.copy);
        if (event.ends_request) seen.ended = true;
        changed_.notify_all();
    }
    void wait_for_all() {
        std::unique_lock lock(mutex_);
        const auto all_ended = [&] {
            for (const auto& [request, asked] : expected_)
                if (!seen_[request].ended) return false;
            return true;
        };
        if (!changed_.wait_for(lock, std::chrono::seconds(60), all_ended))
            wrong("a request without an end");
        for (const auto& [request, asked] : expected_) {
            const Seen& seen = seen_[request];
            if (static_cast<int64_t>(seen.copies_ended.size()) != asked.copies)
                wrong("not every copy has ended");
            for (const auto& [copy, tokens] : seen.tokens)
                if (tokens > asked.most_tokens) wrong("more tokens than were asked for");
        }
        if (seen_.size() != expected_.size()) wrong("events of a refused request");
        expected_.clear();
        seen_.clear();
    }

private:
    struct Asked {
        int64_t copies, most_tokens;
    };
    struct Seen {
        std::map<int64_t, int64_t> tokens;  // by copy
        std::set<int64_t> copies_ended;
        bool ended = false;
    };

    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<int64_t, Asked> expected_;
    std::map<int64_t, Seen> seen_;
};

void take_event(void* user, const cleave_event* event) { static_cast<Events*>(user)->take(*event); }

class Requests {
public:
    Requests(Bytes& from, cleave_engine* engine, Events& events)
        : from_(from), engine_(engine), events_(events) {}

    void run() {
        for (size_t i = 0; i < kMostRequests && from_.remaining_bytes() > 0; ++i) {
            add();
            if (from_.ConsumeProbability<float>() < 0.3F)
                good(cleave_engine_cancel(engine_, from_.ConsumeBool() ? last_ : number()));
            if (from_.ConsumeProbability<float>() < 0.2F) look();
        }
        events_.wait_for_all();
        const cleave_engine_statistics now = look();
        if (now.requests != 0 || now.waiting != 0 || now.running != 0 || now.blocks_held != 0 ||
            now.blocks_free + now.blocks_cached != now.blocks)
            wrong("something is left of requests that have ended");
    }

private:
    int64_t number() {
        constexpr std::array<int64_t, 9> kEnds{0, 1, 2, 5, 64, -1, INT32_MAX, INT64_MAX, INT64_MIN};
        return from_.ConsumeBool() ? from_.PickValueInArray(kEnds)
                                   : from_.ConsumeIntegral<int16_t>();
    }
    // Mostly one that is usual; else any bits, those of no number too.
    float real() {
        constexpr std::array<float, 6> kUsual{0, 1, 0.5F, 2, 0.01F, -1};
        if (from_.ConsumeProbability<float>() < 0.9F) return from_.PickValueInArray(kUsual);
        const auto bits = from_.ConsumeIntegral<uint32_t>();
        float value = 0;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }
    int32_t token() {
        return from_.ConsumeProbability<float>() < 0.95F
                   ? from_.ConsumeIntegralInRange<int32_t>(0, kVocabulary - 1)
                   : from_.ConsumeIntegral<int32_t>();
    }
    std::vector<int32_t> tokens(size_t most) {
        std::vector<int32_t> ids(from_.ConsumeIntegralInRange<size_t>(0, most));
        for (int32_t& id : ids) id = token();
        return ids;
    }

    void add() {
        cleave_request request{};
        if (from_.ConsumeProbability<float>() < 0.3F)
            request.text = strings_.pick(from_, {"Once upon a time", "", "Lily"});
        const std::vector<int32_t> prompt = tokens(160), stops = tokens(3), biased = tokens(4);
        request.prompt = prompt.data();
        request.num_prompt = prompt.size();
        request.max_new_tokens = from_.ConsumeProbability<float>() < 0.95F
                                     ? from_.ConsumeIntegralInRange<int64_t>(1, kMostNewTokens)
                                     : number();
        request.prompt_only = from_.ConsumeProbability<float>() < 0.1F;
        request.copies = from_.ConsumeProbability<float>() < 0.8F
                             ? from_.ConsumeIntegralInRange(0, 3)
                             : number();
        request.ignore_eos = from_.ConsumeBool();
        for (float* field :
             {&request.temperature, &request.top_p, &request.min_p, &request.repetition_penalty,
              &request.presence_penalty, &request.frequency_penalty})
            if (from_.ConsumeBool()) *field = real();
        if (from_.ConsumeBool()) request.top_k = static_cast<int32_t>(number());
        request.seed = from_.ConsumeIntegral<uint64_t>();
        std::vector<float> values(biased.size());
        for (float& value : values) value = real();
        request.bias_ids = biased.data();
        request.bias_values = values.data();
        request.num_biases = biased.size();
        request.stop_ids = stops.data();
        request.num_stop_ids = stops.size();
        std::vector<const char*> texts(from_.ConsumeIntegralInRange<size_t>(0, 2));
        for (const char*& text : texts) text = strings_.pick(from_, {".", " the", ""});
        request.stop_texts = texts.data();
        request.num_stop_texts = texts.size();
        request.with_logprobs = from_.ConsumeBool();
        request.top_logprobs = static_cast<int32_t>(from_.ConsumeBool() ? 3 : number());
        request.with_prompt_logprobs = from_.ConsumeProbability<float>() < 0.2F;
        request.top_prompt_logprobs = static_cast<int32_t>(from_.ConsumeBool() ? 0 : number());
        request.salt = from_.ConsumeIntegralInRange<uint64_t>(0, 2);

        OfAnyAge<cleave_request> given(from_, request);
        const cleave_request read = fields_of(given.get());
        int64_t id = -1;
        if (good(cleave_engine_add(engine_, given.get(), take_event, &events_, &id))) {
            last_ = id;
            const int64_t most = read.max_new_tokens == 0 ? 128 : read.max_new_tokens;
            events_.expect(id, read.copies == 0 ? 1 : read.copies, read.prompt_only ? 0 : most);
        } else if (id != -1) {
            wrong("a refused request has a number");
        }
        if (from_.ConsumeProbability<float>() < 0.02F)
            if (good(cleave_engine_add(engine_, given.get(), nullptr, nullptr, nullptr)))
                wrong("a request without a callback");
    }
    // Of a struct of any age: what it does not reach is 0.
    static cleave_request fields_of(const cleave_request* given) {
        cleave_request read{};
        size_t size = 0;
        std::memcpy(&size, given, sizeof size);
        std::memcpy(&read, given, std::min(size, sizeof read));
        return read;
    }
    cleave_engine_statistics look() {
        cleave_engine_statistics statistics{};
        statistics.struct_size = sizeof statistics;
        if (!good(cleave_engine_get_statistics(engine_, &statistics))) wrong("no statistics");
        return statistics;
    }

    Bytes& from_;
    cleave_engine* engine_;
    Events& events_;
    Strings strings_;
    int64_t last_ = 0;
};

void use_another(Bytes& from, const cleave_plan* plan) {
    Events events;
    cleave_engine_options options{};
    options.tokenizer = from.ConsumeBool() ? nullptr : "";
    options.overcommit = from.ConsumeBool();
    options.no_prefix_sharing = from.ConsumeBool();
    options.reproducible = from.ConsumeBool();
    options.threads = from.ConsumeIntegralInRange<int32_t>(-1, 3);
    for (int64_t* field : {&options.groups, &options.max_queue, &options.token_budget})
        *field = from.ConsumeBool()   ? 0
                 : from.ConsumeBool() ? from.ConsumeIntegralInRange<int64_t>(-1, 16)
                                      : from.ConsumeIntegral<int64_t>();
    OfAnyAge<cleave_engine_options> given(from, options);
    cleave_engine* engine = nullptr;
    if (good(cleave_engine_new(plan, given.get(), &engine)) != (engine != nullptr))
        wrong("an engine without success, or success without");
    if (!engine) return;
    Requests(from, engine, events).run();
    int32_t ended = 0;
    good(cleave_engine_drain(engine, from.ConsumeFloatingPoint<double>(), nullptr));
    if (!good(cleave_engine_drain(engine, 60, &ended)) || !ended)
        wrong("an engine whose requests have ended is drained");
    cleave_request request{};
    request.struct_size = sizeof request;
    request.text = "Once";
    if (cleave_engine_add(engine, &request, take_event, &events, nullptr) == CLEAVE_OK)
        wrong("an engine takes requests when it is drained");
    cleave_engine_free(engine);
}

}  // namespace

void cleave::fuzz::run_input(std::string_view bytes) {
    static const cleave_plan* plan = make_plan();
    static cleave_engine* engine = nullptr;
    static Events events;
    if (!engine) {
        cleave_engine_options options{};
        options.struct_size = sizeof options;
        options.overcommit = 1;
        options.max_queue = 8;
        if (!good(cleave_engine_new(plan, &options, &engine))) wrong("no engine");
    }
    Bytes from(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    if (from.ConsumeProbability<float>() < 0.02F) use_another(from, plan);
    Requests(from, engine, events).run();
}
