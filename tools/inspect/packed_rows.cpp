// SPDX-License-Identifier: Apache-2.0
#include <unordered_map>

#include "tools/inspect/inspection_tree.h"

namespace cleave::tools {

using Json = nlohmann::ordered_json;

namespace {

// Numbers as runs: neighbours are most often equal, or one more.
Json runs_of(const std::vector<int64_t>& numbers) {
    Json runs = Json::array();
    for (size_t i = 0; i < numbers.size();) {
        const int64_t step = i + 1 < numbers.size() ? numbers[i + 1] - numbers[i] : 0;
        size_t end = i + 1;
        while (end < numbers.size() && numbers[end] - numbers[end - 1] == step) ++end;
        for (int64_t n : {numbers[i], step, static_cast<int64_t>(end - i)}) runs.push_back(n);
        i = end;
    }
    return runs;
}

// One column of all elements; null in a row without it.
Json packed_column(const std::vector<const Json*>& column) {
    std::vector<int64_t> numbers;
    numbers.reserve(column.size());
    for (const Json* element : column) {
        if (!element || !element->is_number_integer()) break;
        numbers.push_back(element->get<int64_t>());
    }
    if (numbers.size() == column.size()) return {{"runs", runs_of(numbers)}};
    numbers.clear();
    Json values = Json::array();
    std::unordered_map<std::string, int64_t> places;  // looked up alone
    const Json* last = nullptr;
    for (const Json* element : column) {
        if (!element) {
            numbers.push_back(-1);
        } else if (last && *element == *last) {
            numbers.push_back(numbers.back());
        } else {
            auto [at, fresh] =
                places.try_emplace(element->dump(-1, ' ', false, Json::error_handler_t::replace),
                                   static_cast<int64_t>(places.size()));
            if (fresh) values.push_back(*element);
            numbers.push_back(at->second);
        }
        last = element;
    }
    return {{"values", std::move(values)}, {"runs", runs_of(numbers)}};
}

}  // namespace

Json packed_list(const Json& list) {
    std::vector<const Json*> column;
    for (const Json& element : list) column.push_back(&element);
    return packed_column(column);
}

Json packed_rows(const Json& rows) {
    std::vector<std::string> keys;
    std::unordered_map<std::string, std::vector<const Json*>> columns;
    for (size_t i = 0; i < rows.size(); ++i)
        for (const auto& [key, value] : rows[i].items()) {
            auto [column, fresh] = columns.try_emplace(key, rows.size(), nullptr);
            if (fresh) keys.push_back(key);
            column->second[i] = &value;
        }
    Json packed{{"rows", rows.size()}, {"columns", Json::object()}};
    for (const std::string& key : keys) packed["columns"][key] = packed_column(columns.at(key));
    return packed;
}

}  // namespace cleave::tools
