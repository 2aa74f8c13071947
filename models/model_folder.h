// SPDX-License-Identifier: Apache-2.0
// A folder as Hugging Face's tools write it: config.json, and weights in model.safetensors, in
// shards with model.safetensors.index.json, or in the folder's only .safetensors file. Out: every
// tensor with its file. Files are named in the folder; none is outside of it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/safetensors.h"

namespace cleave::models {

struct ModelFolder {
    struct Place {
        size_t file = 0;  // of `files`
        StoredTensor tensor;
    };
    std::string path;
    std::vector<std::string> files;        // names in the folder
    std::map<std::string, Place> tensors;  // by name

    std::string config() const;  // the path of its config.json
};

// Whether a folder, or the folder of a config.json, has weights in .safetensors files.
bool has_safetensors(const std::string& folder);

// UserError for an index that names files or tensors that are absent, for tensors of the shards
// that the index does not name or that are there twice, for names and links that leave the folder,
// and for what read_safetensors refuses.
ModelFolder read_model_folder(const std::string& path);

}  // namespace cleave::models
