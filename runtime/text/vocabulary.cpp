// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/vocabulary.h"

namespace cleave::runtime {

void Vocabulary::set(int32_t id, std::string text) {
    const auto index = static_cast<size_t>(id);
    if (index >= texts_.size()) {
        texts_.resize(index + 1);
        used_.resize(index + 1);
    }
    texts_[index] = std::move(text);
    used_[index] = true;
}

void Vocabulary::index() {
    ids_.clear();
    ids_.reserve(texts_.size());
    for (size_t id = 0; id < texts_.size(); ++id) {
        if (used_[id]) ids_.insert_or_assign(texts_[id], static_cast<int32_t>(id));
    }
}

std::optional<int32_t> Vocabulary::find(std::string_view text) const {
    const auto it = ids_.find(text);
    if (it != ids_.end()) return it->second;
    const auto alias = aliases_.find(text);
    if (alias == aliases_.end()) return std::nullopt;
    return alias->second;
}

}  // namespace cleave::runtime
