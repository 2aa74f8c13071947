// SPDX-License-Identifier: Apache-2.0
// What the fuzz targets share. A target's file defines run_input; libFuzzer calls it for every
// input, and links the rest. A UserError is a right answer; a crash, a hang, a leak, an
// InternalError or any other exception is a bug.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace google::protobuf {
class Message;
}

// libFuzzer's own changes, for targets that change what the bytes mean instead.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace cleave::fuzz {

// Of the target.
void run_input(std::string_view bytes);

// The bytes as a file of that name, in one folder of the process.
std::filesystem::path write_file(std::string_view bytes, const std::string& name);

// Calls `read`; a UserError ends it.
template <class Read>
void try_to(const Read& read);

// A field of the message, or of one inside it, gets another value that its type has: the bounds of
// numbers above all. Lists lose, repeat and exchange elements. Same seed, same change.
void mutate_message(google::protobuf::Message& message, uint64_t seed);

}  // namespace cleave::fuzz

#include "runtime/base/errors.h"

template <class Read>
void cleave::fuzz::try_to(const Read& read) {
    try {
        read();
    } catch (const UserError&) {  // NOLINT(bugprone-empty-catch)
    }
}
