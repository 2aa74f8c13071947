// SPDX-License-Identifier: Apache-2.0
// What compiled kernels call, as codegen/templates/gpu/prelude_simt.cuh and
// codegen/compile/llvm/simt_checks.cpp declare it. Each runs on the stack of the current fiber;
// `bytes` of a check is the size, with the alignment in its upper half.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/compile/llvm/simt_record.h"

extern "C" {
int cleave_simt_thread(int axis);
int cleave_simt_block(int axis);
int cleave_simt_threads(int axis);
int cleave_simt_blocks(int axis);
void* cleave_simt_shared(uint32_t offset, uint32_t bytes);
void cleave_simt_barrier(const char* file, int line);
void cleave_simt_warp_sync(const char* file, int line);
void cleave_simt_fence();
unsigned long long cleave_simt_shuffle(unsigned long long lanes, unsigned long long bits, int how,
                                       int operand, const char* file, int line);
unsigned cleave_simt_shuffle_all(unsigned bits, int how, int operand, const char* file, int line);
unsigned long long cleave_simt_ballot(int predicate, const char* file, int line);
float cleave_simt_reduce(float v, int width, int operation, const char* file, int line);
void cleave_simt_matrix(int kind, float* c, const unsigned* a, const unsigned* b, const char* file,
                        int line);
void cleave_simt_await_previous(const char* file, int line);
void cleave_simt_kv_block(int id, long long num_blocks, const char* file, int line);
void cleave_simt_kv_wrote(const void* p, long long bytes);
void cleave_simt_kv_reads(const void* p, long long bytes, const char* file, int line);
unsigned cleave_simt_shared_address(const void* p, const char* file, int line);
void cleave_simt_async_fence();
void cleave_simt_wgmma(int kind, int n, float* sum, unsigned long long a, unsigned long long b,
                       const char* file, int line);
void cleave_simt_wgmma_registers(int kind, int n, float* sum, const unsigned* a,
                                 unsigned long long b, const char* file, int line);
void cleave_simt_wgmma_fence();
void cleave_simt_wgmma_commit();
void cleave_simt_wgmma_wait(int pending, const char* file, int line);
void cleave_simt_wgmma_read(const float* sum, const char* file, int line);
unsigned cleave_simt_atomic_u32(unsigned* p, unsigned v, int operation, const char* file, int line);
int cleave_simt_atomic_i32(int* p, int v, int operation, const char* file, int line);
unsigned long long cleave_simt_atomic_u64(unsigned long long* p, unsigned long long v,
                                          const char* file, int line);
float cleave_simt_atomic_f32(float* p, float v, const char* file, int line);
unsigned cleave_simt_atomic_cas(unsigned* p, unsigned expected, unsigned v, const char* file,
                                int line);
unsigned cleave_simt_load_acquire(const unsigned* p, const char* file, int line);
void cleave_simt_store_release(unsigned* p, unsigned v, const char* file, int line);
void cleave_simt_flush_to_peers();
void cleave_simt_see_peers();
void cleave_simt_pause(const unsigned* p, unsigned seen);
unsigned long long cleave_simt_nanoseconds();
void cleave_simt_async_copy(void* shared, const void* global, int bytes, int valid,
                            const char* file, int line);
void cleave_simt_async_commit();
void cleave_simt_async_wait(int pending, const char* file, int line);
void cleave_simt_load(const void* p, uint64_t bytes, const cleave::codegen::SimtSite* site);
void cleave_simt_store(const void* p, uint64_t bytes, const cleave::codegen::SimtSite* site);
void cleave_simt_shared_load(const void* p, uint64_t bytes, const cleave::codegen::SimtSite* site,
                             uint32_t offset, uint32_t length);
void cleave_simt_shared_store(const void* p, uint64_t bytes, const cleave::codegen::SimtSite* site,
                              uint32_t offset, uint32_t length);
void cleave_simt_private(int64_t index, int64_t length, const cleave::codegen::SimtSite* site);
}

namespace cleave::runtime::simt {

// Every name that an object may refer to, with its address.
struct EntryPoint {
    const char* name;
    void* address;
};
const std::vector<EntryPoint>& entry_points();

}  // namespace cleave::runtime::simt
