// SPDX-License-Identifier: Apache-2.0
// Which bytes of a device's memory hold keys and values that somebody has written. In: rows that
// kernels write (kv_wrote of codegen/templates/gpu/prelude.cuh), what the host uploads, memory that
// begins anew. Out: the first byte of a row to be read (kv_reads) that nobody wrote since.
// Bytes that a kernel stores otherwise do not count. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace cleave::runtime::simt {

class WrittenRows {
public:
    void wrote(uint64_t address, uint64_t bytes);
    // Freed or filled memory: nobody's rows.
    void forget(uint64_t address, uint64_t bytes);
    // How many bytes from `address` on were written, `bytes` at most.
    uint64_t written_from(uint64_t address, uint64_t bytes) const;

private:
    mutable std::mutex mutex_;
    std::map<uint64_t, uint64_t> runs_;  // begin to end; disjoint, with gaps between
};

}  // namespace cleave::runtime::simt
