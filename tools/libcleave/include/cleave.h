/* SPDX-License-Identifier: Apache-2.0
 * libcleave: the planner for other compilers. A graph and a machine go in, a proven plan comes out,
 * in C and for languages that can call C; tools/libcleave/include/cleave.hpp has C++ classes.
 * Needs no compiler and no driver.
 *
 * Status:  every function that can fail returns a cleave_status. The text of the last failure of a
 * thread is cleave_last_error() on that thread. No exception leaves the library, and it never
 * prints or aborts. Handles: opaque, made by functions whose last parameter is `**out`, given back
 * to the cleave_*_free of their type; freeing NULL does nothing. Nothing that a handle gave stays
 * valid after it is freed. Threads: there is no global state but the last error, which each thread
 * has its own of. Different handles may be used from any threads at once. One handle may be used by
 * many threads at once where it is passed as `const`; a function that takes it without const needs
 * it alone. Structs: begin with `struct_size`, which the caller sets to sizeof the struct. Zero in
 * any other field means the default. Libraries and callers of different age agree as long as what
 * one of them does not know is zero; otherwise the call fails. Structs that are filled are filled
 * up to the size that the caller knows. Strings: UTF-8, ended by a zero byte. Arguments are copied.
 * `const char*` results belong to the handle, `char*` results to the caller, who frees them with
 * cleave_string_free.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define CLEAVE_API __attribute__((visibility("default")))
#else
#define CLEAVE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Grows with every addition; what was there before keeps its meaning while the SONAME stays. */
#define CLEAVE_ABI_VERSION 1

/* NOLINTBEGIN(readability-identifier-naming): names of C */

CLEAVE_API int32_t cleave_abi_version(void); /* of the library */
CLEAVE_API const char* cleave_version(void); /* "0.1.0" */

/* ---- Errors ---- */

typedef int32_t cleave_status;
enum {
    CLEAVE_OK = 0,
    CLEAVE_INVALID_INPUT =
        1, /* a file, device list or option: the text says what and how to mend it */
    CLEAVE_INTERNAL_ERROR = 2, /* ours */
    CLEAVE_DOES_NOT_FIT =
        3, /* no plan fits: the text has each device's deficit and what would fit */
    CLEAVE_INVALID_ARGUMENT =
        4, /* the call itself: a null handle, a struct_size, an index beyond the end */
    CLEAVE_OUT_OF_MEMORY = 5 /* of this process */
};

/* Of this thread's last failed call, "" when there was none; valid until its next call. A text
 * names options as the fields here, and what may be done by the functions. */
CLEAVE_API const char* cleave_last_error(void);
/* The same as JSON for a status that has more to it (CLEAVE_DOES_NOT_FIT: schema
 * does_not_fit.schema.json), else "". */
CLEAVE_API const char* cleave_last_error_json(void);

CLEAVE_API void cleave_string_free(char* text);

/* ---- Graphs ---- */

typedef struct cleave_graph cleave_graph;

typedef struct cleave_import_options {
    size_t struct_size;
    int32_t weights_may_be_absent; /* external data need not exist: plans, never runs */
} cleave_import_options;

/* An .onnx file, a folder with one, a Hugging Face folder or a GGUF file. Weights are located, not
 * read. `options` may be NULL. */
CLEAVE_API cleave_status cleave_graph_import(const char* path, const cleave_import_options* options,
                                             cleave_graph** out);
/* A model by its shape's name ("llama-3-8b"), or a Hugging Face config.json. `dtype` of its
 * weights: "f32", "f16", "bf16", NULL for the default. */
CLEAVE_API cleave_status cleave_graph_from_shape(const char* shape, const char* dtype,
                                                 cleave_graph** out);
/* An empty graph for the operators of another compiler, which are added in an order in which each
 * reads only what earlier ones make. */
CLEAVE_API cleave_status cleave_graph_new(const char* name, cleave_graph** out);
CLEAVE_API void cleave_graph_free(cleave_graph* graph);

CLEAVE_API cleave_status cleave_graph_num_operators(const cleave_graph* graph, size_t* out);
CLEAVE_API cleave_status cleave_graph_operator_name(const cleave_graph* graph, size_t index,
                                                    const char** out);
CLEAVE_API cleave_status cleave_graph_to_text(const cleave_graph* graph, char** out);

/* How an operator may be divided among the devices of a stage. Its output is always `columns` wide
 * and has a row for each token (or one row, `rows_are_tokens` = 0). */
typedef int32_t cleave_sharding;
enum {
    /* Not divided: one device computes it. All stages of a graph with one have a single device. */
    CLEAVE_ONCE = 0,
    /* Not divided: each device of a stage may compute it whole (norms, cheap operators). */
    CLEAVE_REPEATED = 1,
    /* A device computes some of the output's columns, from whole inputs and that part of the
     * weights (a matrix product; the matrix is cut by output features). */
    CLEAVE_BY_OUTPUT = 2,
    /* A device takes some of the first input's columns and that part of the weights, and computes
     * a summand of the whole output; the planner adds the all-reduce. */
    CLEAVE_BY_INPUT = 3,
    /* Column by column: divided as its inputs are, which are equally wide; its weights are cut with
     * the columns. */
    CLEAVE_ELEMENTWISE = 4
};

typedef struct cleave_operator {
    size_t struct_size;
    const char* name; /* unique */
    const char* type; /* "mlir.linalg.matmul"; NULL: its name */
    int32_t layer;    /* decoder layer counted from 1, for reports and pins; 0: none */
    cleave_sharding sharding;
    int64_t split_units; /* equal parts that stay whole (heads) of what is divided (BY_OUTPUT: the
                            output's columns, BY_INPUT: the first input's); 0: as many as columns */
    int64_t columns;     /* of the output; at least 1 */
    const char* dtype;   /* of the output: "f32", "f16", ...; NULL: f32 */
    int32_t rows_are_tokens; /* 1: the output has a row for each token of a pass */
    int64_t flops_per_token; /* operations */
    int64_t flops;           /* operations of a pass, for any number of tokens */
    int64_t weight_bytes;    /* constants that stay on the device and are read in every pass */
    int64_t bytes_per_token; /* moved besides inputs, output and weights */
    int64_t bytes;
    const size_t* inputs; /* indices of the earlier operators that it reads, in order */
    size_t num_inputs;
} cleave_operator;

/* Later operators name this one by `index`, which may be NULL. An output that no operator reads is
 * an output of the graph. */
CLEAVE_API cleave_status cleave_graph_add_operator(cleave_graph* graph, const cleave_operator* op,
                                                   size_t* index);

/* ---- Machines ---- */

typedef struct cleave_machine cleave_machine;

/* A device list, "sim:h100[0-3]" or "host[0-1]"; real GPUs come from a file of `cleave devices -o`.
 */
CLEAVE_API cleave_status cleave_machine_from_devices(const char* devices, cleave_machine** out);
/* A machine file (schema machine.schema.json), or its text. */
CLEAVE_API cleave_status cleave_machine_load(const char* path, cleave_machine** out);
CLEAVE_API cleave_status cleave_machine_from_json(const char* json, cleave_machine** out);
CLEAVE_API void cleave_machine_free(cleave_machine* machine);

CLEAVE_API cleave_status cleave_machine_num_devices(const cleave_machine* machine, size_t* out);
CLEAVE_API cleave_status cleave_machine_to_json(const cleave_machine* machine, char** out);

/* ---- Plans ---- */

typedef struct cleave_plan cleave_plan;

typedef int32_t cleave_objective;
enum { CLEAVE_LATENCY = 0, CLEAVE_THROUGHPUT = 1, CLEAVE_MEMORY = 2, CLEAVE_FLEET = 3 };
CLEAVE_API const char* cleave_objective_name(size_t objective); /* NULL beyond the last */

typedef struct cleave_plan_options {
    size_t struct_size;
    cleave_objective objective;
    int32_t tensor_parallel; /* devices of every stage; 0: the planner chooses */
    int32_t pipeline_stages;
    int32_t no_metis;
    int64_t seed;
    int64_t batch;         /* sequences at once; 0: 1 */
    int64_t context;       /* longest sequence; 0: 4096, or the model's limit where that is less */
    int64_t prompt_tokens; /* 0: 512, or half of a short context */
    int64_t prefill_chunk; /* 0: 512 */
    const char* dtype;     /* of weights on devices; NULL: as stored */
    const char* kv_dtype;  /* f32, f16, bf16, f8e4m3 or int8; NULL: that of most weights where it is
                              one of the first three, else f16 on GPUs and f32 on hosts */
    const char* const* pins; /* "layers.0-15=cuda[0]" */
    size_t num_pins;
    int64_t kv_tokens;   /* that the KV cache has room for; 0: batch times context; -1: all that is
                            left on the devices */
    const char* compute; /* how products treat their activations on hosts: exact, in f32; fast,
                            rounded to bf16 or int8 as the weights are; NULL: fast where all devices
                            are hosts and some weights have such a type */
    const char* activation_dtype; /* on GPUs, and of what sums and transfers move: f32, also NULL;
                                     f16 or bf16 */
} cleave_plan_options;

/* Searches, makes the plan explicit and proves it. `options` may be NULL. Deterministic. The plan
 * keeps copies. */
CLEAVE_API cleave_status cleave_plan_make(const cleave_graph* graph, const cleave_machine* machine,
                                          const cleave_plan_options* options, cleave_plan** out);
/* A .plan file; proved when it is read. */
CLEAVE_API cleave_status cleave_plan_load(const char* path, cleave_plan** out);
CLEAVE_API cleave_status cleave_plan_save(const cleave_plan* plan, const char* path);
CLEAVE_API void cleave_plan_free(cleave_plan* plan);

/* Proves the plan with none of the planner's code. CLEAVE_OK with `*violations` set to NULL for a
 * sound one; otherwise CLEAVE_INVALID_INPUT, and `*violations`, unless `violations` is NULL, has a
 * line "rule: what" for each. */
CLEAVE_API cleave_status cleave_plan_verify(const cleave_plan* plan, char** violations);

CLEAVE_API cleave_status cleave_plan_to_text(const cleave_plan* plan, char** out);
CLEAVE_API cleave_status cleave_plan_to_json(const cleave_plan* plan,
                                             char** out); /* plan.schema.json */

/* ---- Looking into a plan ---- */

typedef struct cleave_plan_info {
    size_t struct_size;
    const char* model;
    const char* graph_digest;
    size_t num_devices, num_stages, num_prefill_steps, num_decode_steps;
    int64_t prefill_ns;          /* predicted: the whole prompt */
    int64_t decode_ns_per_token; /* predicted */
    int64_t objective_ns;
    int64_t lower_bound_ns;
    const char* binding; /* what limits the plan */
} cleave_plan_info;

typedef struct cleave_device_info {
    size_t struct_size;
    const char *name, *kind, *arch, *host;
    int64_t memory_bytes;
    int64_t weights_bytes, kv_bytes, activation_bytes, staging_bytes, scratch_bytes, reserved_bytes;
    int64_t free_bytes;
    int64_t decode_busy_ns;    /* of a token's time, predicted */
    int64_t collectives_bytes; /* of the communicators of a vendor's library */
} cleave_device_info;

typedef struct cleave_stage_info {
    size_t struct_size;
    size_t num_devices;
    const size_t* devices; /* indices */
    const char *first_operator, *last_operator;
    int32_t first_layer, last_layer; /* last < first: none */
} cleave_stage_info;

typedef int32_t cleave_phase;
enum { CLEAVE_PREFILL = 0, CLEAVE_DECODE = 1 };
typedef int32_t cleave_step_kind;
enum { CLEAVE_COMPUTE = 0, CLEAVE_TRANSFER = 1, CLEAVE_COLLECTIVE = 2 };

/* Bytes and times are of one pass of the phase: a prefill chunk, or one token of every sequence. */
typedef struct cleave_step_info {
    size_t struct_size;
    cleave_step_kind kind;
    int32_t stage;
    int32_t layer; /* -1: none */
    size_t num_devices;
    const size_t* devices; /* a transfer's: source, destination */
    size_t num_operators;
    const size_t* operators;    /* of the graph; a collective's: its epilogue */
    const char* value;          /* what it makes or moves */
    const char* implementation; /* kernel, route or algorithm */
    const char* collective;     /* "all_reduce", "all_gather"; "" for other kinds */
    int64_t bytes;              /* payload */
    int64_t link_bytes;         /* moved between devices */
    int64_t start_ns, predicted_ns;
} cleave_step_info;

CLEAVE_API cleave_status cleave_plan_get_info(const cleave_plan* plan, cleave_plan_info* out);
CLEAVE_API cleave_status cleave_plan_get_device(const cleave_plan* plan, size_t index,
                                                cleave_device_info* out);
CLEAVE_API cleave_status cleave_plan_get_stage(const cleave_plan* plan, size_t index,
                                               cleave_stage_info* out);
CLEAVE_API cleave_status cleave_plan_get_step(const cleave_plan* plan, cleave_phase phase,
                                              size_t index, cleave_step_info* out);

/* ---- Export ---- */

typedef struct cleave_export cleave_export;

CLEAVE_API size_t cleave_num_formats(void);
CLEAVE_API const char* cleave_format_name(size_t index);    /* NULL beyond the end */
CLEAVE_API const char* cleave_format_summary(size_t index); /* what it writes */

/* The files of a format, in memory. */
CLEAVE_API cleave_status cleave_plan_export(const cleave_plan* plan, const char* format,
                                            cleave_export** out);
/* The same, into a folder, with manifest.json. */
CLEAVE_API cleave_status cleave_plan_export_to(const cleave_plan* plan, const char* format,
                                               const char* folder);
CLEAVE_API void cleave_export_free(cleave_export* exported);
CLEAVE_API cleave_status cleave_export_manifest(const cleave_export* exported, const char** json);
CLEAVE_API cleave_status cleave_export_num_files(const cleave_export* exported, size_t* out);
/* `data` has `size` bytes and belongs to the handle. */
CLEAVE_API cleave_status cleave_export_file(const cleave_export* exported, size_t index,
                                            const char** name, const char** data, size_t* size);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif
