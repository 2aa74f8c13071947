// SPDX-License-Identifier: Apache-2.0
// The structs behind the handles of tools/libcleave/include/cleave.h, and the guard around every
// function of it: exceptions become a status and this thread's last error.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "planner/export/export.h"
#include "planner/plan/plan.h"
#include "runtime/base/errors.h"
#include "tools/libcleave/include/cleave.h"

struct cleave_graph {
    cleave::importer::Graph graph;
    int64_t max_positions = 0;  // the model's context limit, 0 when nothing says
    bool of_operators = false;  // made by cleave_graph_new
};

struct cleave_machine {
    cleave::planner::Machine machine;
};

struct cleave_plan {
    cleave::planner::Plan plan;
    // What cleave_step_info points to, by phase and step.
    struct StepLists {
        std::vector<size_t> devices, operators;
        std::string value, implementation;
    };
    std::vector<StepLists> prefill, decode;
    std::vector<std::vector<size_t>> stage_devices;
};

struct cleave_export {
    cleave::planner::ExportResult result;
    std::string manifest;
};

namespace cleave::c_api {

// The caller's mistake, as opposed to the input's: CLEAVE_INVALID_ARGUMENT.
class ArgumentError : public Error {
public:
    using Error::Error;
};

// The handler of `guard`: the status of the exception in flight, whose text becomes the last error.
// Never throws.
cleave_status status_of_exception() noexcept;
void clear_error() noexcept;

template <class Body>
cleave_status guard(Body&& body) noexcept {
    try {
        clear_error();
        body();
        return CLEAVE_OK;
    } catch (...) {
        return status_of_exception();
    }
}

template <class T>
T& needed(T* pointer, const char* what) {
    if (!pointer) throw ArgumentError(std::string(what) + " is NULL");
    return *pointer;
}

inline std::string text_of(const char* text, const char* what) { return &needed(text, what); }

// A copy that the caller frees with cleave_string_free.
char* copy_text(const std::string& text);

// A caller's struct ends with a whole field, whatever its age.
template <class T>
void check_size(size_t size, const char* what) {
    if (size < sizeof(size_t) || size > (size_t{1} << 16))
        throw ArgumentError(std::string(what) + ".struct_size is not set");
    if (size % alignof(T) != 0)
        throw ArgumentError(std::string(what) + ".struct_size " + std::to_string(size) +
                            " is no size that this struct ever had");
}

// The caller's struct as this library knows it: what the caller's lacks is zero, and what it has
// beyond must be.
template <class T>
T options_of(const T* given, const char* what) {
    T known{};
    if (!given) return known;
    const size_t size = given->struct_size;
    check_size<T>(size, what);
    const auto* bytes = reinterpret_cast<const unsigned char*>(given);
    for (size_t i = sizeof(T); i < size; ++i)
        if (bytes[i] != 0)
            throw ArgumentError(std::string(what) +
                                " has fields that this libcleave does not know: it is older than "
                                "the caller's header");
    std::memcpy(&known, given, size < sizeof(T) ? size : sizeof(T));
    return known;
}

// Fills the caller's struct as far as both know it; what the caller knows beyond becomes zero.
template <class T>
void fill(T* out, T known, const char* what) {
    const size_t size = needed(out, what).struct_size;
    check_size<T>(size, what);
    known.struct_size = size;
    std::memset(out, 0, size);
    std::memcpy(out, &known, size < sizeof(T) ? size : sizeof(T));
}

}  // namespace cleave::c_api
