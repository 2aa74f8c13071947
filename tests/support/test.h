// SPDX-License-Identifier: Apache-2.0
// Catch2, v3 when present, the distribution's v2 otherwise, and what tests share: where data lies,
// skipping with a reason.
#pragma once

#include "runtime/base/errors.h"

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <filesystem>
#include <string>

namespace cleave::test {

// The folder of reference data beside the checkout, or an empty path when it is absent.
std::filesystem::path shared_data();

// The checkout's root.
std::filesystem::path source_root();

// A fresh empty folder, removed when the object goes.
class TemporaryFolder {
public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

// Of so many cases one is tried: of all under a sanitizer, which looks at each access of a case and
// takes ten times as long, one of ten.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kOneOf = 10;
#else
constexpr int kOneOf = 1;
#endif
// So many of `count` drawn cases.
constexpr int cases(int count) { return (count + kOneOf - 1) / kOneOf; }

// Remembers that a test of this process was skipped.
void note_skip();
bool was_skipped();

// The message of the UserError that `call` throws; fails the test when it throws none.
template <class Call>
std::string user_error(Call&& call) {
    try {
        call();
    } catch (const UserError& error) {
        return error.what();
    }
    FAIL("no UserError was thrown");
    return {};
}

}  // namespace cleave::test

// Ends the test as skipped, with the reason on its output; ctest counts it as skipped, not as
// passed.
#define CLEAVE_SKIP(reason)            \
    do {                               \
        WARN("skipped: " << (reason)); \
        cleave::test::note_skip();     \
        return;                        \
    } while (false)

// Ends the test as skipped when the reference data beside the checkout is absent.
#define CLEAVE_NEEDS_SHARED_DATA() \
    if (cleave::test::shared_data().empty()) CLEAVE_SKIP("no ../shared/data beside the checkout")
