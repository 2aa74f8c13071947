// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/mapped_file.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/descriptor.h"
#include "runtime/base/errors.h"

namespace cleave {

MappedFile::MappedFile(const std::string& path) : path_(path) {
    // Not blocking: a pipe would wait for a writer.
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (!file) throw UserError("cannot open {}: {}", path, std::strerror(errno));
    struct stat info{};
    if (::fstat(file.get(), &info) != 0)
        throw UserError("cannot read {}: {}", path, std::strerror(errno));
    if (!S_ISREG(info.st_mode)) throw UserError("cannot read {}: it is not a regular file", path);
    size_ = static_cast<size_t>(info.st_size);
    if (size_ == 0) return;
    void* map = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (map == MAP_FAILED) throw UserError("cannot map {}: {}", path, std::strerror(errno));
    data_ = static_cast<const std::byte*>(map);
}

MappedFile::~MappedFile() {
    if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

namespace {

void advise(std::span<const std::byte> bytes, int advice) {
    if (bytes.empty()) return;
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<uintptr_t>(bytes.data()) / page * page;
    const auto end = reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size();
    ::madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

void will_need(std::span<const std::byte> bytes) { advise(bytes, MADV_WILLNEED); }

void bring_in(std::span<const std::byte> bytes) { advise(bytes, MADV_POPULATE_READ); }

}  // namespace cleave
