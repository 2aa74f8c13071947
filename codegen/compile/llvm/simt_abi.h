// SPDX-License-Identifier: Apache-2.0
// The part of libcleave_llvm's C ABI that compiles GPU source for the CPU and loads it. The object
// holds, for the one entry, the constant `ENTRY.simt` (codegen/compile/llvm/simt_record.h).
// Thread-safe, like the rest.
#pragma once

#include "codegen/compile/llvm/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char* const* defines;  // "NAME=VALUE"
    size_t num_defines;
    int warp_width;
    int optimization;  // 0-3; 1 is a short pipeline of our own, 2 and 3 are LLVM's without the loop
                       // vectoriser
    int checks;        // 1: instrument every access to memory
    // Bytes [begin, end) of the source that other sources have too, those up to `prelude_end` all
    // others. They are whole declarations at file scope, and nothing but comments stands before
    // them. From their second use on either run is parsed once for all. Equal: none.
    size_t shared_begin, prelude_end, shared_end;
} cleave_llvm_simt_options;  // NOLINT(readability-identifier-naming): a name of C

void cleave_llvm_simt_compile(const char* source, size_t source_size, const char* name,
                              const char* entry, const cleave_llvm_simt_options* options,
                              cleave_llvm_result* result);

// Links one object against `count` named addresses of this process. Returns a handle that owns the
// code and the address of `ENTRY.simt`, or null with the reason in `log`.
void* cleave_llvm_simt_load(const void* object, size_t size, const char* entry,
                            const char* const* names, void* const* addresses, size_t count,
                            const void** record, char** log);
void cleave_llvm_simt_unload(void* handle);

#ifdef __cplusplus
}
#endif
