// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/host/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/base/errors.h"
#include "runtime/base/rounding.h"
#include "runtime/drivers/host/numa_node.h"

namespace cleave::runtime {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

HostMemory::~HostMemory() {
    for (const auto& [address, block] : blocks_) ::munmap(address, block.mapped);
}

void* HostMemory::allocate(int64_t bytes, const std::string& what, const NumaBinding* node) {
    CLEAVE_CHECK(bytes >= 0) << what << " of " << bytes << " bytes";
    std::string call = fmt::format("allocating {} bytes for {}", bytes, what);
    if (capacity_ > 0 && bytes > capacity_ - allocated_) {
        throw DeviceError(
            call,
            fmt::format("only {} of its {} bytes are left", capacity_ - allocated_, capacity_),
            device_);
    }
    size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    size_t usable = round_up(std::max<size_t>(static_cast<size_t>(bytes), 1), page);
    size_t mapped = usable + page;
    void* address = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) throw DeviceError(call, std::strerror(errno), device_);
    try {
        if (node) node->keep_memory(address, usable);
    } catch (...) {
        ::munmap(address, mapped);
        throw;
    }
    ::mprotect(static_cast<char*>(address) + usable, page, PROT_NONE);
    // Weights are read front to back once a token: huge pages save the page walks.
    if (usable >= 2 * kHugePage) ::madvise(address, usable, MADV_HUGEPAGE);
    if (poison_) std::memset(address, kPoisonByte, static_cast<size_t>(bytes));
    blocks_[address] = {bytes, mapped};
    allocated_ += bytes;
    peak_ = std::max(peak_, allocated_);
    return address;
}

void HostMemory::free(void* address) {
    auto found = blocks_.find(address);
    CLEAVE_CHECK(found != blocks_.end()) << "freeing memory that " << device_ << " does not own";
    ::munmap(address, found->second.mapped);
    allocated_ -= found->second.bytes;
    blocks_.erase(found);
}

}  // namespace cleave::runtime
