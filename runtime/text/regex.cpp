// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>

#include "runtime/base/errors.h"
#include "runtime/text/utf8.h"

namespace cleave::runtime {

namespace {

std::string message_of(int error) {
    PCRE2_UCHAR buffer[256];
    pcre2_get_error_message(error, buffer, sizeof buffer);
    return reinterpret_cast<const char*>(buffer);
}

const pcre2_code* as_code(const std::shared_ptr<void>& code) {
    return static_cast<const pcre2_code*>(code.get());
}

}  // namespace

Regex::Regex(std::string pattern, const std::string& where) : pattern_(std::move(pattern)) {
    if (pattern_.find("&&") != std::string::npos) {
        throw UserError("{}: regular expression '{}' uses '&&' (class intersection), which is not "
                        "supported; write the class out",
                        where, pattern_);
    }
    int error = 0;
    PCRE2_SIZE offset = 0;
    // MULTILINE: in Oniguruma's default syntax ^ and $ always match at line ends.
    pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern_.data()), pattern_.size(),
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset,
                                     nullptr);
    if (code == nullptr) {
        throw UserError("{}: regular expression '{}' is not supported at offset {}: {}", where,
                        pattern_, offset, message_of(error));
    }
    code_ = std::shared_ptr<void>(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); });
    // A failure leaves the interpreter, which gives the same matches.
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
}

std::vector<TextRange> Regex::find_all(std::string_view text) const {
    const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
        pcre2_match_data_create_from_pattern(as_code(code_), nullptr), pcre2_match_data_free);
    std::vector<TextRange> matches;
    size_t at = 0;
    uint32_t options = PCRE2_NO_UTF_CHECK;
    while (at <= text.size()) {
        const int rc = pcre2_match(as_code(code_), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                   text.size(), at, options, data.get(), nullptr);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0) {
            throw UserError("regular expression '{}' gave up at byte {} of a text of {} bytes: {}",
                            pattern_, at, text.size(), message_of(rc));
        }
        const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
        matches.push_back({range[0], range[1]});
        at = range[1];
        if (range[0] == range[1]) {
            if (at >= text.size()) break;
            at += next_char(text, at).size;
        }
    }
    return matches;
}

}  // namespace cleave::runtime
