// SPDX-License-Identifier: Apache-2.0
// What a kernel compiled for the CPU tells the engine of runtime/simt: a constant named
// `ENTRY.simt` in its object, laid out as SimtRecord, written by
// codegen/compile/llvm/simt_record.cpp. Plain C types; both sides are this build's.
#pragma once

#include <cstdint>

namespace cleave::codegen {

inline constexpr uint32_t kSimtRecordVersion = 5;

// Where a checked access stands in the source.
struct SimtSite {
    const char* file;
    uint32_t line;
};

// One static variable in shared memory.
struct SimtSharedVariable {
    const char* name;
    uint32_t offset;
    uint32_t bytes;
};

// A constant table that a checked load may read.
struct SimtConstant {
    const void* address;
    uint64_t bytes;
};

struct SimtRecord {
    uint32_t version;
    uint32_t warp_width;
    uint32_t num_args;
    uint32_t checked;         // 1: accesses were instrumented
    uint32_t dynamic_offset;  // of the dynamic shared memory; gaps between variables included
    uint32_t shared_bytes;    // static, as the GPU counts it: without the gaps
    uint32_t cell_bytes;      // of the race detector: the narrowest access to shared memory
    uint32_t stack_bytes;     // of one thread: its private arrays and a bound on the rest
    uint32_t num_variables;
    uint32_t num_constants;
    const SimtSharedVariable* variables;
    const SimtConstant* constants;
    void (*run)(const uint64_t* args);  // the kernel, for one thread
    const char* name;
};

}  // namespace cleave::codegen
