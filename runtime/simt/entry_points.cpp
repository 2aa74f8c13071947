// SPDX-License-Identifier: Apache-2.0
#include "runtime/simt/entry_points.h"

#include <cstring>

#include "runtime/simt/block.h"

namespace cleave::runtime::simt {

extern "C" {

int cleave_simt_thread(int axis) { return current_block().current->place[axis]; }
int cleave_simt_block(int axis) { return current_block().place[axis]; }
int cleave_simt_threads(int axis) { return current_block().threads_in[axis]; }
int cleave_simt_blocks(int axis) { return current_block().blocks_in[axis]; }
void* cleave_simt_shared(uint32_t offset, uint32_t) { return current_block().shared + offset; }

}  // extern "C"

const std::vector<EntryPoint>& entry_points() {
#define POINT(name) {#name, reinterpret_cast<void*>(&(name))}
    static const std::vector<EntryPoint> kPoints = {
        POINT(cleave_simt_thread),
        POINT(cleave_simt_block),
        POINT(cleave_simt_threads),
        POINT(cleave_simt_blocks),
        POINT(cleave_simt_shared),
        POINT(cleave_simt_barrier),
        POINT(cleave_simt_warp_sync),
        POINT(cleave_simt_fence),
        POINT(cleave_simt_shuffle),
        POINT(cleave_simt_shuffle_all),
        POINT(cleave_simt_ballot),
        POINT(cleave_simt_reduce),
        POINT(cleave_simt_matrix),
        POINT(cleave_simt_await_previous),
        POINT(cleave_simt_kv_block),
        POINT(cleave_simt_kv_wrote),
        POINT(cleave_simt_kv_reads),
        POINT(cleave_simt_shared_address),
        POINT(cleave_simt_async_fence),
        POINT(cleave_simt_wgmma),
        POINT(cleave_simt_wgmma_registers),
        POINT(cleave_simt_wgmma_fence),
        POINT(cleave_simt_wgmma_commit),
        POINT(cleave_simt_wgmma_wait),
        POINT(cleave_simt_wgmma_read),
        POINT(cleave_simt_atomic_u32),
        POINT(cleave_simt_atomic_i32),
        POINT(cleave_simt_atomic_u64),
        POINT(cleave_simt_atomic_f32),
        POINT(cleave_simt_atomic_cas),
        POINT(cleave_simt_load_acquire),
        POINT(cleave_simt_store_release),
        POINT(cleave_simt_flush_to_peers),
        POINT(cleave_simt_see_peers),
        POINT(cleave_simt_pause),
        POINT(cleave_simt_nanoseconds),
        POINT(cleave_simt_async_copy),
        POINT(cleave_simt_async_commit),
        POINT(cleave_simt_async_wait),
        POINT(cleave_simt_load),
        POINT(cleave_simt_store),
        POINT(cleave_simt_shared_load),
        POINT(cleave_simt_shared_store),
        POINT(cleave_simt_private),
        {"memcpy", reinterpret_cast<void*>(&std::memcpy)},
        {"memmove", reinterpret_cast<void*>(&std::memmove)},
        {"memset", reinterpret_cast<void*>(&std::memset)},
        {"exp2f", reinterpret_cast<void*>(static_cast<float (*)(float)>(&::exp2f))},
        {"log2f", reinterpret_cast<void*>(static_cast<float (*)(float)>(&::log2f))},
        {"sqrtf", reinterpret_cast<void*>(static_cast<float (*)(float)>(&::sqrtf))},
        {"fmaf", reinterpret_cast<void*>(static_cast<float (*)(float, float, float)>(&::fmaf))},
        {"floorf", reinterpret_cast<void*>(static_cast<float (*)(float)>(&::floorf))},
    };
#undef POINT
    return kPoints;
}

}  // namespace cleave::runtime::simt
