// SPDX-License-Identifier: Apache-2.0
#include "planner/machine/device_hints.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include <fmt/format.h>

#include "planner/machine/catalogue.h"
#include "runtime/base/suggest.h"

namespace cleave::planner {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::string plain(const std::string& text) {
    std::string out;
    for (const char c : text)
        if (std::isalnum(static_cast<unsigned char>(c)))
            out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return out;
}

// "4xh100", "4*h100" and "h100x4" are four of "h100".
struct Counted {
    int count = 1;
    std::string name;
};
Counted counted(const std::string& text) {
    const auto is_times = [](char c) { return c == 'x' || c == 'X' || c == '*'; };
    size_t digits = 0;
    while (digits < text.size() && is_digit(text[digits])) ++digits;
    if (digits > 0 && digits < 5 && digits + 1 < text.size() && is_times(text[digits]))
        return {std::stoi(text.substr(0, digits)), text.substr(digits + 1)};
    size_t end = text.size();
    while (end > 0 && is_digit(text[end - 1])) --end;
    if (end > 1 && end < text.size() && text.size() - end < 5 && is_times(text[end - 1]))
        return {std::stoi(text.substr(end)), text.substr(0, end - 1)};
    return {1, text};
}

std::string without_vendor(const std::string& text) {
    std::string name = plain(text);
    for (const char* vendor : {"nvidia", "amd", "geforce", "instinct", "tesla"})
        if (name.starts_with(vendor)) name.erase(0, std::string(vendor).size());
    return name;
}

// The catalogue's own name of what is written otherwise ("RTX-4090"); empty for what it has not.
std::string named_model(const std::string& text) {
    const std::string name = without_vendor(text);
    for (const CatalogueModel& model : catalogue())
        if (plain(std::string(model.name)) == name) return std::string(model.name);
    return {};
}

// By its whole name, one that begins or ends with it ("a100", "4090"), or the nearest.
std::string model_of(const std::string& text) {
    const std::string name = without_vendor(text);
    if (name.size() < 2) return {};
    if (std::string exact = named_model(text); !exact.empty()) return exact;
    std::vector<std::string> names;
    for (const CatalogueModel& model : catalogue()) names.emplace_back(model.name);
    std::string longest;  // "a100-80" before "a100-40"
    for (const std::string& one : names)
        if (plain(one).starts_with(name) || (name.size() > 2 && plain(one).ends_with(name)))
            longest = std::max(longest, one);
    if (!longest.empty()) return longest;
    return nearest_word(name, names);
}

struct Kind {
    const char* name;
    const char* here;
};
constexpr std::array<Kind, 9> kKinds{{{"cpu", "host"},
                                      {"cpus", "host"},
                                      {"gpu", "cuda"},
                                      {"gpus", "cuda"},
                                      {"nvidia", "cuda"},
                                      {"cuda", "cuda"},
                                      {"amd", "hip"},
                                      {"rocm", "hip"},
                                      {"hip", "hip"}}};

}  // namespace

std::string likely_device(const std::string& entry) {
    const size_t open = entry.find('[');
    const std::string items = open == std::string::npos ? "" : entry.substr(open);
    const std::string whole = entry.substr(0, open);
    // "rtx4090" is no 4090 of "rt".
    const Counted devices = named_model(whole).empty() ? counted(whole) : Counted{1, whole};
    const auto listed = [&](const std::string& kind) {
        if (!items.empty()) return kind + items;
        return devices.count > 1 ? fmt::format("{}[0-{}]", kind, devices.count - 1) : kind + "[0]";
    };
    // "cuda:0" and "cuda0" are devices of one kind.
    std::string kind = plain(devices.name), index;
    while (!kind.empty() && is_digit(kind.back())) {
        index.insert(index.begin(), kind.back());
        kind.pop_back();
    }
    for (const Kind& known : kKinds)
        if (kind == known.name)
            return index.empty() ? listed(known.here) : fmt::format("{}[{}]", known.here, index);
    const std::string model = model_of(devices.name);
    return model.empty() ? "" : listed("sim:" + model);
}

}  // namespace cleave::planner
