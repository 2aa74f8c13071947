// SPDX-License-Identifier: Apache-2.0
// What the fuzz targets of the C ABI share: looking at statuses, and arguments of any kind.
#pragma once

#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "tools/libcleave/include/cleave_engine.h"

namespace cleave::fuzz {

using Bytes = FuzzedDataProvider;

[[noreturn]] inline void wrong(const char* what) {
    std::fprintf(stderr, "%s: %s\n", what, cleave_last_error());
    std::abort();
}

// Whether the call did what it is for.
inline bool good(cleave_status status) {
    if (status < CLEAVE_OK || status > CLEAVE_DEVICE_FAILED) wrong("no such status");
    if (status == CLEAVE_INTERNAL_ERROR) wrong("an internal error");
    if ((status == CLEAVE_OK) != (*cleave_last_error() == '\0'))
        wrong(status == CLEAVE_OK ? "success with a text" : "failure without a text");
    if ((status == CLEAVE_DOES_NOT_FIT) != (*cleave_last_error_json() != '\0'))
        wrong("JSON is for what does not fit");
    return status == CLEAVE_OK;
}

// A string that lives as long as the calls, or null: one of `known`, or anything.
class Strings {
public:
    const char* pick(Bytes& from, std::initializer_list<const char*> known) {
        const size_t at = from.ConsumeIntegralInRange<size_t>(0, known.size() + 1);
        if (at < known.size()) return known.begin()[at];
        if (at == known.size()) return nullptr;
        return all_.emplace_back(std::make_unique<std::string>(from.ConsumeRandomLengthString(64)))
            ->c_str();
    }

private:
    std::vector<std::unique_ptr<std::string>> all_;
};

// A caller's struct of another age: as many bytes as it says, in memory of just that size.
template <class Struct>
class OfAnyAge {
public:
    OfAnyAge(Bytes& from, const Struct& filled) {
        size_t size = sizeof(Struct);
        if (from.ConsumeProbability<float>() < 0.1F)
            size = from.ConsumeIntegralInRange<size_t>(0, 256);
        bytes_.reset(static_cast<unsigned char*>(std::calloc(std::max(size, sizeof(size_t)), 1)));
        std::memcpy(bytes_.get(), &filled, std::min(size, sizeof(Struct)));
        std::memcpy(bytes_.get(), &size, sizeof(size_t));
        if (size > sizeof(Struct) && from.ConsumeBool()) bytes_.get()[size - 1] = 1;
    }
    Struct* get() { return reinterpret_cast<Struct*>(bytes_.get()); }

private:
    struct Free {
        void operator()(unsigned char* bytes) const { std::free(bytes); }
    };
    std::unique_ptr<unsigned char, Free> bytes_;
};

}  // namespace cleave::fuzz
