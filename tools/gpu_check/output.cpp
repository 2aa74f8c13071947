// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/output.h"

#include <sstream>

namespace cleave::gpu_check {

using Json = nlohmann::ordered_json;

std::string tail(const std::string& text) {
    constexpr size_t kMost = 4000;
    return text.size() <= kMost ? text : "[...]" + text.substr(text.size() - kMost);
}

Json last_json(const std::string& output) {
    Json json = Json::parse(output, nullptr, false);
    std::istringstream lines(output);
    if (!json.is_object())
        for (std::string line; std::getline(lines, line);)
            if (Json one = Json::parse(line, nullptr, false); one.is_object())
                json = std::move(one);
    return json;
}

std::optional<double> number_of(const Json& json, const char* key) {
    if (!json.contains(key) || !json[key].is_number()) return std::nullopt;
    return json[key].get<double>();
}

}  // namespace cleave::gpu_check
