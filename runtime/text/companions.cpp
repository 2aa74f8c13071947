// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/companions.h"

#include "runtime/base/gguf.h"
#include "runtime/text/gguf_texts.h"

namespace cleave::runtime {

namespace fs = std::filesystem;

fs::path place_of_companions(const fs::path& model) {
    std::error_code ignored;
    if (fs::is_directory(model, ignored)) return model;
    if (fs::is_regular_file(model, ignored) && is_gguf(model.string())) return model;
    return model.parent_path();
}

std::optional<JsonFile> find_companion(const fs::path& place, const char* name) {
    std::error_code ignored;
    if (fs::is_regular_file(place, ignored)) {
        std::optional<nlohmann::json> document = gguf_document(read_gguf(place.string()), name);
        if (!document) return std::nullopt;
        return JsonFile(std::move(*document), place.string());
    }
    const fs::path path = place / name;
    if (!fs::exists(path, ignored)) return std::nullopt;
    return JsonFile(path);
}

}  // namespace cleave::runtime
