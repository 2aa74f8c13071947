// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/companions.h"

#include "runtime/base/gguf.h"
#include "runtime/base/path_state.h"
#include "runtime/text/gguf_texts.h"

namespace cleave::runtime {

namespace fs = std::filesystem;

fs::path place_of_companions(const fs::path& model) {
    if (is_folder(model) || is_gguf(model.string())) return model;
    return model.parent_path();
}

std::optional<JsonFile> find_companion(const fs::path& place, const char* name) {
    if (is_file(place)) {
        std::optional<nlohmann::json> document = gguf_document(read_gguf(place.string()), name);
        if (!document) return std::nullopt;
        return JsonFile(std::move(*document), place.string());
    }
    const fs::path path = place / name;
    if (!is_there(path)) return std::nullopt;
    return JsonFile(path);
}

}  // namespace cleave::runtime
