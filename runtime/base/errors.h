// SPDX-License-Identifier: Apache-2.0
// The three ways a Cleave call can fail. A UserError is the input's fault and names the thing
// (file, node, device, flag), what is supported and the fix; a DeviceError is a driver's; an
// InternalError is ours, raised through CLEAVE_CHECK. The library throws these and nothing else on
// purpose; it never prints and never aborts. `tools/` turns them into one message and an exit code
// (1, 1, 2).
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace cleave {

class Error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

// The input's fault: exit code 1.
class UserError : public Error {
public:
    explicit UserError(const std::string& message) : Error(message) {}
    template <class First, class... Args>
    UserError(fmt::format_string<First, Args...> format, First&& first, Args&&... args)
        : Error(fmt::format(format, std::forward<First>(first), std::forward<Args>(args)...)) {}
};

// A driver call failed: names the call, the driver's error name and the device. Exit code 1.
class DeviceError : public Error {
public:
    DeviceError(const std::string& call, const std::string& error_name, const std::string& device)
        : Error(fmt::format("{} failed on {}: {}", call, device, error_name)) {}
};

// Ours: exit code 2.
class InternalError : public Error {
public:
    using Error::Error;
};

// The user interrupted the work (Ctrl-C): exit code 130.
class Cancelled : public Error {
public:
    Cancelled() : Error("interrupted") {}
};

namespace detail {

// Collects the message of a failed CLEAVE_CHECK and throws when the full expression ends.
class CheckFailure {
public:
    CheckFailure(const char* condition, const char* file, int line) {
        stream_ << file << ":" << line << ": CLEAVE_CHECK(" << condition << ") failed";
    }
    CheckFailure(const CheckFailure&) = delete;
    CheckFailure& operator=(const CheckFailure&) = delete;
    [[noreturn]] ~CheckFailure() noexcept(false) { throw InternalError(stream_.str()); }

    template <class T>
    CheckFailure& operator<<(const T& value) {
        if (first_) stream_ << ": ";
        first_ = false;
        stream_ << value;
        return *this;
    }

private:
    std::ostringstream stream_;
    bool first_ = true;
};

}  // namespace detail
}  // namespace cleave

// Throws InternalError unless `condition` holds: CLEAVE_CHECK(a == b) << "a is " << a.
#define CLEAVE_CHECK(condition) \
    if (condition) [[likely]] { \
    } else                      \
        ::cleave::detail::CheckFailure(#condition, __FILE__, __LINE__)
