// SPDX-License-Identifier: Apache-2.0
// The C ABI of libcleave_llvm, the only library of Cleave that links LLVM and Clang. In: source
// text and a target; out: an object file, or the compiler's log. No exception and no C++ type
// crosses it. All functions are thread-safe; compilations run in parallel. Memory that a function
// hands out is returned through `cleave_llvm_free_result` or `cleave_llvm_unload`.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CLEAVE_LLVM_ABI_VERSION 5

typedef struct {
    int ok;        // 0: `log` says why
    void* object;  // an ELF relocatable object of `object_size` bytes
    size_t object_size;
    int64_t code_bytes;   // of the text sections
    int64_t stack_bytes;  // largest frame of a function
    char* log;            // diagnostics, never null
} cleave_llvm_result;     // NOLINT(readability-identifier-naming): a name of C

// ABI version of the library that was opened.
int cleave_llvm_abi_version(void);

// "19.1.7".
const char* cleave_llvm_version(void);

// This machine's CPU as LLVM names it, and its features as "+avx2,-avx512f,...", sorted.
const char* cleave_llvm_host_cpu(void);
const char* cleave_llvm_host_features(void);

// 1 when `cpu` is a name that the x86-64 (or native) target knows.
int cleave_llvm_knows_cpu(const char* cpu);

// Features of `cpu` that `features` (of the form above) lacks, with spaces between: empty when code
// for `cpu` runs here. To be freed with cleave_llvm_free_log.
char* cleave_llvm_missing_features(const char* cpu, const char* features);

// Every option of the compiler that is not the CPU or its features: part of a cache key.
const char* cleave_llvm_options(void);

// Compiles one freestanding C++20 source for `cpu` with `features`. `name` appears in diagnostics.
void cleave_llvm_compile(const char* source, size_t source_size, const char* name, const char* cpu,
                         const char* features, cleave_llvm_result* result);
void cleave_llvm_free_result(cleave_llvm_result* result);

// Links `count` objects into this process and looks up one entry of each. Returns a handle that
// owns the code, or null with the reason in `log` (to be freed with cleave_llvm_free_log).
void* cleave_llvm_load(const void* const* objects, const size_t* sizes, const char* const* entries,
                       size_t count, void** functions, char** log);
void cleave_llvm_unload(void* handle);
void cleave_llvm_free_log(char* log);

// ---- AMD GPUs ----

// 1 when `arch` ("gfx942") is a processor that the AMDGPU target knows.
int cleave_llvm_knows_amdgpu(const char* arch);

// Every option of the AMDGPU compiler and linker: part of a cache key.
const char* cleave_llvm_amdgpu_options(void);

// Compiles one kernel source (codegen/templates/gpu) for `arch` and links it to a code object that
// the HIP driver loads, with neither ROCm nor its headers. `code_bytes` and `stack_bytes` stay 0:
// cleave_llvm_amdgpu_inspect has them.
void cleave_llvm_amdgpu_compile(const char* source, size_t source_size, const char* name,
                                const char* arch, cleave_llvm_result* result);

typedef struct {
    int64_t vgprs, agprs,
        sgprs;  // of a work item, and of a wave; `vgprs` counts AGPRs too where they share a file
    int64_t vgpr_spills, sgpr_spills;  // registers
    int64_t lds_bytes;                 // static
    int64_t private_bytes;             // scratch of a work item: spills and arrays
    int64_t code_bytes;
    char* matrix_instructions;  // "v_mfma_f32_16x16x16_f16 32\n", one line each, sorted; null: no
                                // disassembly
    char* log;                  // why something is missing; never null
} cleave_llvm_amdgpu_report;    // NOLINT(readability-identifier-naming)

// What a code object (of any compiler) says of kernel `entry`: its metadata note, and a disassembly
// for `arch`. 0 with `log` when it cannot be read. Both texts are to be freed with
// cleave_llvm_free_log.
int cleave_llvm_amdgpu_inspect(const void* object, size_t size, const char* entry, const char* arch,
                               cleave_llvm_amdgpu_report* report);

#ifdef __cplusplus
}
#endif
