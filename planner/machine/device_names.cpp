// SPDX-License-Identifier: Apache-2.0
#include "planner/machine/device_names.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace cleave::planner {
namespace {

constexpr size_t kMostRanges = 6, kMostKinds = 6;

// "sim:h100[", 3 and "]@a"; the number is the one that devices of a card or of a kind differ in.
struct Numbered {
    std::string before, after;
    int64_t number = -1;  // none
};

bool is_number(const std::string& text) {
    if (text.empty() || text.size() > 9) return false;
    for (const char c : text)
        if (!std::isdigit(static_cast<unsigned char>(c))) return false;
    return true;
}

Numbered split_name(const std::string& name) {
    const size_t open = name.rfind('['), close = name.find(']', open);
    if (open == std::string::npos || close == std::string::npos) return {name, "", -1};
    const size_t host = std::min(name.find('@', close), name.size());
    if (close + 1 < name.size() && name[close + 1] == '/') {
        const std::string logical = name.substr(close + 2, host - close - 2);
        if (is_number(logical))
            return {name.substr(0, close + 2), name.substr(host), std::stoll(logical)};
    }
    const std::string index = name.substr(open + 1, close - open - 1);
    if (!is_number(index)) return {name, "", -1};
    return {name.substr(0, open + 1), name.substr(close), std::stoll(index)};
}

// The first two, how it goes on, and the last of more than `most`.
std::string first_and_last(const std::vector<std::string>& parts, size_t most, const char* comma) {
    std::string text;
    for (size_t i = 0; i < parts.size(); ++i) {
        if (parts.size() > most && i == 2) {
            text += fmt::format("{}...", comma);
            i = parts.size() - 1;
        }
        text += (text.empty() ? "" : comma) + parts[i];
    }
    return text;
}

std::vector<std::string> number_ranges(const std::vector<int64_t>& numbers) {
    std::vector<std::string> ranges;
    for (size_t i = 0; i < numbers.size();) {
        size_t last = i;
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
        ranges.push_back(last == i ? std::to_string(numbers[i])
                                   : fmt::format("{}-{}", numbers[i], numbers[last]));
        i = last + 1;
    }
    return ranges;
}

}  // namespace

std::string folded_numbers(const std::vector<int64_t>& numbers) {
    return first_and_last(number_ranges(numbers), kMostRanges, ",");
}

std::string folded_counts(const std::vector<size_t>& counts, const char* comma) {
    std::vector<std::string> runs;
    for (size_t i = 0; i < counts.size();) {
        size_t end = i + 1;
        while (counts.size() > kMostRanges && end < counts.size() && counts[end] == counts[i])
            ++end;
        runs.push_back(end - i == 1 ? std::to_string(counts[i])
                                    : fmt::format("{} (x {})", counts[i], end - i));
        i = end;
    }
    return first_and_last(runs, kMostRanges, comma);
}

std::string folded_names(const std::vector<std::string>& names) {
    std::vector<std::string> parts;
    bool shortened = false;
    for (size_t i = 0; i < names.size();) {
        const Numbered first = split_name(names[i]);
        std::vector<int64_t> numbers{first.number};
        size_t end = i + 1;
        for (; first.number >= 0 && end < names.size(); ++end) {
            const Numbered next = split_name(names[end]);
            if (next.number < 0 || next.before != first.before || next.after != first.after) break;
            numbers.push_back(next.number);
        }
        if (first.number < 0) {
            parts.push_back(names[i]);
        } else {
            const std::vector<std::string> ranges = number_ranges(numbers);
            shortened = shortened || ranges.size() > kMostRanges;
            parts.push_back(first.before + first_and_last(ranges, kMostRanges, ",") + first.after);
        }
        i = end;
    }
    const std::string text = first_and_last(parts, kMostKinds, ", ");
    return shortened || parts.size() > kMostKinds ? fmt::format("{} ({})", text, names.size())
                                                  : text;
}

std::string folded_names(const Machine& machine, const std::vector<DeviceId>& devices) {
    std::vector<std::string> names;
    names.reserve(devices.size());
    for (const DeviceId device : devices) names.push_back(machine.device(device).name);
    return folded_names(names);
}

}  // namespace cleave::planner
