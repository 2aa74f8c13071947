// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/token_decoder.h"

#include <utility>

#include "runtime/text/byte_level.h"
#include "runtime/text/metaspace.h"

namespace cleave::runtime {

namespace {

constexpr const char* kSupported =
    "ByteLevel, ByteFallback, Replace with a String, Metaspace, Strip, Fuse, Sequence";

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

void flatten(const JsonView& json, std::vector<JsonView>& out) {
    if (json.type() != "Sequence") {
        out.push_back(json);
        return;
    }
    const JsonView list = json.at("decoders");
    for (size_t i = 0; i < list.size(); ++i) flatten(list.at(i), out);
}

size_t count_field(const JsonView& json, const char* key) {
    const int64_t count = json.at(key).as_integer();
    if (count < 0) json.at(key).fail("expected a count of characters, found a negative number");
    return static_cast<size_t>(count);
}

void strip_token(std::string& token, const std::string& what, size_t start, size_t stop) {
    size_t begin = 0;
    size_t end = token.size();
    for (size_t i = 0; i < start && token.compare(begin, what.size(), what) == 0; ++i) {
        begin += what.size();
    }
    for (size_t i = 0; i < stop && end >= begin + what.size() &&
                       token.compare(end - what.size(), what.size(), what) == 0;
         ++i) {
        end -= what.size();
    }
    token = token.substr(begin, end - begin);
}

void add_strip(TokenDecoder& decoder, const JsonView& json, bool fused) {
    const std::string what = json.at("content").as_string();
    if (what.empty()) json.at("content").fail("expected one character");
    const size_t start = count_field(json, "start");
    const size_t stop = count_field(json, "stop");
    if (!fused) {
        decoder.steps.push_back(
            [what, start, stop](std::string& token) { strip_token(token, what, start, stop); });
        return;
    }
    if (stop > 0) json.at("stop").fail("a Strip at the end of the fused text is not supported");
    if (decoder.strip_count > 0) json.fail("a second Strip after Fuse is not supported");
    decoder.strip_char = what;
    decoder.strip_count = start;
}

void add_replace(TokenDecoder& decoder, const JsonView& json) {
    const JsonView pattern = json.at("pattern");
    if (!pattern.has("String")) {
        pattern.fail(std::string("a decoder's Replace with a Regex is not supported (supported: ") +
                     kSupported + ")");
    }
    decoder.steps.push_back([from = pattern.at("String").as_string(),
                             to = json.at("content").as_string()](std::string& token) {
        replace_all(token, from, to);
    });
}

void add_metaspace(TokenDecoder& decoder, const JsonView& json) {
    const Metaspace meta = read_metaspace(json);
    // As in the Hugging Face library, the first token loses all of its marks, not only one.
    if (meta.scheme != Metaspace::Scheme::kNever) decoder.first_token_drops = meta.replacement;
    decoder.steps.push_back(
        [from = meta.replacement](std::string& token) { replace_all(token, from, " "); });
}

void add_byte_level(TokenDecoder& decoder) {
    decoder.steps.push_back([](std::string& token) {
        // An added token may use characters outside the alphabet; it stands for itself.
        if (auto bytes = from_byte_level(token)) token = std::move(*bytes);
    });
}

void add_byte_fallback(TokenDecoder& decoder) {
    decoder.steps.push_back([](std::string& token) {
        const int byte = byte_of_token(token);
        if (byte >= 0) token.assign(1, static_cast<char>(byte));
    });
}

}  // namespace

void check_replaced(size_t bytes, size_t most_bytes) {
    if (bytes > most_bytes)
        throw UserError("the tokenizer's replacements make more than {} bytes of a text",
                        most_bytes);
}

void replace_all(std::string& text, std::string_view from, std::string_view to, size_t most_bytes) {
    if (from.empty()) return;
    std::string out;
    size_t at = 0;
    for (size_t hit = text.find(from); hit != std::string::npos; hit = text.find(from, at)) {
        out.append(text, at, hit - at).append(to);
        at = hit + from.size();
        check_replaced(out.size(), most_bytes);
    }
    if (at == 0) return;
    text = out.append(text, at);
}

int byte_of_token(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
    const int high = hex_digit(token[3]);
    const int low = hex_digit(token[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::string TokenDecoder::bytes_of(std::string_view token, bool first) const {
    std::string bytes = first ? std::string() : separator;
    std::string own(token);
    if (first) replace_all(own, first_token_drops, "");
    for (const auto& step : steps) step(own);
    return bytes += own;
}

TokenDecoder read_token_decoder(const JsonView& json) {
    TokenDecoder decoder;
    if (json.raw().is_null()) {
        // What the Hugging Face library does with no decoder.
        decoder.separator.push_back(' ');
        return decoder;
    }
    std::vector<JsonView> chain;
    flatten(json, chain);
    bool fused = false;
    for (const JsonView& step : chain) {
        const std::string& type = step.type();
        if (type == "Fuse") {
            fused = true;
        } else if (type == "Strip") {
            add_strip(decoder, step, fused);
        } else if (fused) {
            step.fail("decoder '" + type +
                      "' after Fuse or ByteLevel is not supported "
                      "(supported there: Strip at the start)");
        } else if (type == "ByteLevel") {
            add_byte_level(decoder);
            fused = true;
        } else if (type == "ByteFallback") {
            add_byte_fallback(decoder);
        } else if (type == "Replace") {
            add_replace(decoder, step);
        } else if (type == "Metaspace") {
            add_metaspace(decoder, step);
        } else {
            step.fail("decoder '" + type + "' is not supported (supported: " + kSupported + ")");
        }
    }
    return decoder;
}

}  // namespace cleave::runtime
