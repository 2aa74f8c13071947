// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/serve_trace.h"

#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "runtime/base/errors.h"
#include "runtime/base/json_file.h"
#include "runtime/base/split.h"
#include "runtime/base/split_mix.h"

namespace cleave::runtime {

namespace {

constexpr std::string_view kTraceHeader = "arrival_ms,prompt_tokens,output_tokens";
constexpr int64_t kMostTraceTokens = 1'000'000'000;

template <class Number>
std::optional<Number> number_of(std::string_view text) {
    Number number{};
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return number;
}

// Where a field is in the file, for errors.
struct TraceField {
    const std::string& name;
    size_t line = 0, column = 0;
    std::string_view text;

    UserError error(std::string_view what) const {
        return UserError("{}:{}:{}: \"{}\" is no {}", name, line, column, text, what);
    }
    int64_t tokens(std::string_view of) const {
        auto number = number_of<int64_t>(text);
        if (!number || *number < 1 || *number > kMostTraceTokens) {
            throw error(fmt::format("{}: a whole number from 1 to {}", of, kMostTraceTokens));
        }
        return *number;
    }
};

// The three fields of a row.
std::vector<TraceField> fields_of(std::string_view row, const std::string& name, size_t line) {
    std::vector<TraceField> fields;
    for (size_t begin = 0; begin <= row.size();) {
        size_t end = std::min(row.find(',', begin), row.size());
        fields.push_back({name, line, begin + 1, row.substr(begin, end - begin)});
        begin = end + 1;
    }
    if (fields.size() != 3) {
        throw UserError("{}:{}:1: {} fields; a row has three: {}", name, line, fields.size(),
                        kTraceHeader);
    }
    return fields;
}

}  // namespace

std::vector<TraceRequest> parse_trace(std::string_view text, const std::string& name) {
    std::vector<TraceRequest> trace;
    size_t line = 0;
    while (!text.empty()) {
        size_t end = std::min(text.find('\n'), text.size());
        std::string_view row = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (!row.empty() && row.back() == '\r') row.remove_suffix(1);
        if (++line == 1) {
            if (row == kTraceHeader) continue;
            throw UserError("{}:1:1: the header is \"{}\"; a trace begins with {}", name,
                            row.substr(0, 80), kTraceHeader);
        }
        if (row.empty()) continue;
        std::vector<TraceField> fields = fields_of(row, name, line);
        auto arrival = number_of<double>(fields[0].text);
        if (!arrival || !std::isfinite(*arrival) || *arrival < 0) {
            throw fields[0].error("arrival_ms: milliseconds since the start, from 0 on");
        }
        if (!trace.empty() && *arrival < trace.back().arrival_ms) {
            throw fields[0].error("arrival after the row above: sort rows by arrival_ms");
        }
        trace.push_back(
            {*arrival, fields[1].tokens("prompt_tokens"), fields[2].tokens("output_tokens")});
    }
    if (line == 0) throw UserError("{}:1:1: empty; a trace begins with {}", name, kTraceHeader);
    if (trace.empty()) throw UserError("{}:{}:1: no request below the header", name, line + 1);
    return trace;
}

std::string prompt_too_long(const TraceRequest& request, int64_t context) {
    if (request.prompt_tokens <= context) return {};
    return fmt::format("a prompt of {} tokens; the context has {}", request.prompt_tokens, context);
}

std::vector<TraceRequest> load_trace(const std::string& path) {
    std::string text;
    try {
        text = read_regular_file(path);
    } catch (const UserError& error) {
        throw UserError("{}; a trace is a CSV file with the header {}", error.what(), kTraceHeader);
    }
    return parse_trace(text, path);
}

std::vector<TraceRequest> trace_at_rate(const std::string& words) {
    constexpr std::string_view kSupported = "rate=R,prompt=P,output=O[,requests=N][,seed=S]";
    std::map<std::string, double> values{{"requests", 256}, {"seed", 0}};
    for (const std::string& word : split_ended(words, ',')) {
        size_t equals = word.find('=');
        std::string key = word.substr(0, equals);
        std::string_view behind(word);
        behind.remove_prefix(equals == std::string::npos ? word.size() : equals + 1);
        double value = number_of<double>(behind).value_or(NAN);
        bool known = key == "rate" || key == "prompt" || key == "output" || key == "requests" ||
                     key == "seed";
        if (!known || std::isnan(value)) {
            throw UserError("\"{}\" in \"{}\"; supported: {}", word, words, kSupported);
        }
        double least = key == "seed" ? 0 : key == "rate" ? 1e-6 : 1;
        double most = key == "requests" ? 1e6 : 1e9;
        bool whole = key == "rate" || value == std::floor(value);
        if (!(value >= least && value <= most) || !whole) {
            throw UserError("\"{}\": {} is a {} from {} to {}", word, key,
                            key == "rate" ? "number a second" : "whole number", least, most);
        }
        values[key] = value;
    }
    for (const char* key : {"rate", "prompt", "output"}) {
        if (!values.contains(key)) {
            throw UserError("no {}= in \"{}\"; supported: {}", key, words, kSupported);
        }
    }
    SplitMix64 random(static_cast<uint64_t>(values["seed"]));
    std::vector<TraceRequest> trace(static_cast<size_t>(values["requests"]));
    double arrival = 0;
    for (TraceRequest& request : trace) {
        request = {arrival, static_cast<int64_t>(values["prompt"]),
                   static_cast<int64_t>(values["output"])};
        arrival -= std::log1p(-random.unit()) * 1e3 / values["rate"];
    }
    return trace;
}

}  // namespace cleave::runtime
