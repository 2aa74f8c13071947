// SPDX-License-Identifier: Apache-2.0
// The texts of a tokenizer's tokens, by id and back.
// Moves keep the index valid; copies do not exist, because the index points into the texts.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cleave::runtime {

// Token texts by id and back. Ids may have gaps; a gap's text is empty.
class Vocabulary {
public:
    Vocabulary() = default;
    Vocabulary(Vocabulary&&) = default;
    Vocabulary& operator=(Vocabulary&&) = default;
    Vocabulary(const Vocabulary&) = delete;
    Vocabulary& operator=(const Vocabulary&) = delete;

    void set(int32_t id, std::string text);
    void index();  // call once, after the last set()
    // One more text that find() answers with `id`.
    void add_alias(std::string text, int32_t id) { aliases_.insert_or_assign(std::move(text), id); }

    std::optional<int32_t> find(std::string_view text) const;
    const std::vector<std::string>& texts() const { return texts_; }

private:
    std::vector<std::string> texts_;
    std::vector<bool> used_;
    std::unordered_map<std::string_view, int32_t> ids_;  // views into texts_
    std::map<std::string, int32_t, std::less<>> aliases_;
};

}  // namespace cleave::runtime
