// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <new>

#include <nlohmann/json.hpp>

#include "planner/planner.h"
#include "planner/view/plan_text.h"
#include "tools/cli/spelling.h"
#include "tools/libcleave/handles.h"

namespace cleave::c_api {
namespace {

struct LastError {
    std::string text, json;
};

LastError& last_error() noexcept {
    thread_local LastError error;
    return error;
}

cleave_status remember(cleave_status status, const char* text) noexcept {
    try {
        last_error().text = tools::spell_for_api(text);
    } catch (...) {  // no memory for the text: the status alone has to do
        last_error().text.clear();
    }
    return status;
}

}  // namespace

void clear_error() noexcept {
    last_error().text.clear();
    last_error().json.clear();
}

cleave_status status_of_exception() noexcept {
    try {
        throw;
    } catch (const planner::DoesNotFit& error) {
        try {
            last_error().json = tools::spell_for_api(planner::does_not_fit_to_json(error));
        } catch (...) {
            last_error().json.clear();
        }
        return remember(CLEAVE_DOES_NOT_FIT, error.what());
    } catch (const ArgumentError& error) {
        return remember(CLEAVE_INVALID_ARGUMENT, error.what());
    } catch (const InternalError& error) {
        return remember(CLEAVE_INTERNAL_ERROR, error.what());
    } catch (const Error& error) {
        return remember(CLEAVE_INVALID_INPUT, error.what());
    } catch (const std::bad_alloc&) {
        return remember(CLEAVE_OUT_OF_MEMORY, "out of memory");
    } catch (const std::system_error& error) {
        return remember(CLEAVE_INVALID_INPUT, error.what());
    } catch (const std::exception& error) {
        return remember(CLEAVE_INTERNAL_ERROR, error.what());
    } catch (...) {
        return remember(CLEAVE_INTERNAL_ERROR, "an exception of an unknown type");
    }
}

char* copy_text(const std::string& text) {
    auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
    if (!copy) throw std::bad_alloc();
    std::memcpy(copy, text.c_str(), text.size() + 1);
    return copy;
}

}  // namespace cleave::c_api

using namespace cleave::c_api;

int32_t cleave_abi_version(void) { return CLEAVE_ABI_VERSION; }
const char* cleave_version(void) { return CLEAVE_VERSION; }
const char* cleave_last_error(void) { return last_error().text.c_str(); }
const char* cleave_last_error_json(void) { return last_error().json.c_str(); }
void cleave_string_free(char* text) { std::free(text); }
