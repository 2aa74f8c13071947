/* SPDX-License-Identifier: Apache-2.0
 * libcleave_engine: all of libcleave, and an engine that runs a plan for many requests at once.
 * Link it in place of libcleave. It compiles kernels and drives devices of this machine.
 *
 * What cleave.h says of statuses, handles, structs and strings holds here. Threads: the functions
 * of one engine may be called by any threads at once, but for cleave_engine_free. Events come on
 * the engine's own thread; of a plan with replicas on that of the replica which has the request, so
 * that events of two requests may come at once.
 */
#pragma once

#include "cleave.h"

/* NOLINTBEGIN(readability-identifier-naming): names of C */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cleave_engine cleave_engine;

/* Statuses of cleave_engine_add, beside those of cleave.h. */
enum {
    CLEAVE_QUEUE_FULL = 6,   /* the same request may be accepted later */
    CLEAVE_DRAINING = 7,     /* cleave_engine_drain was called */
    CLEAVE_DEVICE_FAILED = 8 /* the engine is dead: the text has the step and the device */
};

typedef struct cleave_engine_options {
    size_t struct_size;
    const char* tokenizer; /* a file or folder; NULL: beside the model, "": none */
    int32_t threads;       /* of all host devices together, in all replicas; 0: one a core */
    int32_t overcommit;    /* 1: requests start without room for their last token, and the latest
                              waits again where the KV pool is full; 0: each has room to its end */
    int32_t no_prefix_sharing;
    int64_t groups;       /* passes in flight, each of other sequences; 0: by the plan's costs */
    int64_t max_queue;    /* requests that wait; 0: 1024 */
    int64_t token_budget; /* of a pass; 0: what the plan has room for */
    int32_t reproducible; /* 1: on hosts a request's logits have the same bits alone, in company, in
                             chunks of any size, from a cached prefix and after a preemption; passes
                             of up to 8 tokens are slower */
} cleave_engine_options;

/* Opens the plan's devices, of all its replicas, compiles its kernels and loads its weights. A
 * request goes to the replica with the fewest. The plan is copied.
 * `options` may be NULL. */
CLEAVE_API cleave_status cleave_engine_new(const cleave_plan* plan,
                                           const cleave_engine_options* options,
                                           cleave_engine** out);
/* Cancels all requests, and returns when their last events have been given. Not from a callback. */
CLEAVE_API void cleave_engine_free(cleave_engine* engine);

/* Why requests run one after another; "" where they run together. Belongs to the engine. */
CLEAVE_API cleave_status cleave_engine_runs_alone(const cleave_engine* engine, const char** why);

typedef struct cleave_token_logprob {
    int32_t id;
    float logprob; /* natural logarithm, in the model's own distribution */
} cleave_token_logprob;

typedef struct cleave_token_logprobs {
    cleave_token_logprob chosen;
    int32_t rank; /* of the chosen token; 0: the most likely */
    size_t num_top;
    const cleave_token_logprob* top; /* the most likely tokens, in order */
} cleave_token_logprobs;

typedef struct cleave_request {
    size_t struct_size;
    const char* text;      /* the prompt, or NULL for ids */
    const int32_t* prompt; /* its ids */
    size_t num_prompt;
    int64_t max_new_tokens; /* of each copy; 0: 128 */
    int32_t prompt_only;    /* 1: log-probabilities of the prompt, and no new token */
    int64_t copies;         /* texts of the prompt; 0: 1 */
    int32_t ignore_eos;     /* 1: the model's own end-of-sequence ids end nothing */
    /* How tokens are chosen. Greedy unless a temperature is given. */
    float temperature;
    float top_p; /* 0: 1 */
    float min_p;
    int32_t top_k;            /* 0: all */
    float repetition_penalty; /* 0: 1, which is none */
    float presence_penalty, frequency_penalty;
    uint64_t seed;
    const int32_t* bias_ids; /* with bias_values: added to these tokens' logits */
    const float* bias_values;
    size_t num_biases;
    /* What ends a text. */
    const int32_t* stop_ids;
    size_t num_stop_ids;
    const char* const* stop_texts;
    size_t num_stop_texts;
    /* What is told of tokens. */
    int32_t with_logprobs, top_logprobs;
    int32_t with_prompt_logprobs, top_prompt_logprobs;
    uint64_t salt; /* only requests of one salt share cached prefixes */
} cleave_request;

typedef int32_t cleave_finish;
enum {
    CLEAVE_GOES_ON = 0,
    CLEAVE_FINISH_STOP = 1,   /* a stop id or text */
    CLEAVE_FINISH_LENGTH = 2, /* max_new_tokens */
    CLEAVE_FINISH_CANCELLED = 3,
    CLEAVE_FINISH_FAULT = 4 /* `message` has whose */
};

/* Pointers are valid while the callback runs. Each copy has one event with a finish and none behind
 * it; nothing follows the event with `ends_request`. */
typedef struct cleave_event {
    size_t struct_size;
    int64_t request, copy;
    const int32_t* tokens;
    size_t num_tokens;
    const char* text; /* whole characters; "" without a tokenizer */
    const cleave_token_logprobs* logprobs;
    size_t num_logprobs;
    const cleave_token_logprobs* prompt_logprobs; /* of the prompt's tokens from its second on */
    size_t num_prompt_logprobs;
    cleave_finish finish;
    const char* message;
    int32_t ends_request;
    /* With ends_request. */
    int64_t prompt_tokens, cached_tokens, new_tokens;
    double queue_seconds, prefill_seconds, decode_seconds;
} cleave_event;

/* Called on the engine's thread: it must return at once. It may call cleave_engine_add and
 * cleave_engine_cancel. */
typedef void (*cleave_event_callback)(void* user, const cleave_event* event);

/* Events begin before this returns, or later. On another status than CLEAVE_OK none comes.
 * `request` may be NULL. */
CLEAVE_API cleave_status cleave_engine_add(cleave_engine* engine, const cleave_request* what,
                                           cleave_event_callback callback, void* user,
                                           int64_t* request);
/* The request ends with CLEAVE_FINISH_CANCELLED, unless it has ended. Does not wait. */
CLEAVE_API cleave_status cleave_engine_cancel(cleave_engine* engine, int64_t request);
/* Takes no more requests, and waits for those that there are. `*all_ended` is 0 where some are left
 * after that time. */
CLEAVE_API cleave_status cleave_engine_drain(cleave_engine* engine, double seconds,
                                             int32_t* all_ended);

typedef struct cleave_engine_statistics {
    size_t struct_size;
    int64_t requests, waiting, running; /* not ended; queued; sequences that have a slot */
    int64_t blocks, blocks_free, blocks_held, blocks_cached; /* of 16 tokens */
    int64_t accepted, refused;
    int64_t finished_stop, finished_length, finished_cancelled, finished_fault; /* copies */
    int64_t prompt_tokens, new_tokens, prefix_queries, prefix_hits, preemptions, passes;
    double pass_seconds;        /* of all passes */
    double oldest_pass_seconds; /* that the oldest pass in flight has lasted; 0: idle */
} cleave_engine_statistics;
CLEAVE_API cleave_status cleave_engine_get_statistics(const cleave_engine* engine,
                                                      cleave_engine_statistics* out);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif
