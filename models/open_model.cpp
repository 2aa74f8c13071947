// SPDX-License-Identifier: Apache-2.0
#include "models/open_model.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "models/convert.h"
#include "models/gguf_model.h"
#include "models/model_folder.h"
#include "runtime/base/errors.h"
#include "runtime/base/folder.h"
#include "runtime/base/gguf.h"
#include "runtime/base/path_state.h"

namespace cleave::models {
namespace {

namespace fs = std::filesystem;

size_t onnx_files(const fs::path& folder) {
    size_t count = 0;
    for (const fs::path name : names_if_folder(folder))
        if (name.extension() == ".onnx") ++count;
    return count;
}

bool is_hugging_face(const fs::path& folder) {
    return has_safetensors(folder.string()) && onnx_files(folder) == 0;
}

// What a file is that is neither ONNX nor a plan, and the way on; empty: nothing that is known.
std::string known_as(const fs::path& file) {
    const std::string type = file.extension().string();
    if (!is_file(file)) return {};  // a pipe would wait for a writer
    char magic[4] = {};
    std::ifstream(file, std::ios::binary).read(magic, sizeof(magic));
    const std::string_view begins(magic, sizeof(magic));
    if (type == ".safetensors")
        return "weights of a Hugging Face folder; give the folder, which has config.json, too";
    if (begins == "GGUF") return "a GGUF file; name the file itself";
    if (type == ".gguf") return "no GGUF file, whatever its name says; download it again";
    if (type == ".bin" || type == ".pt" || type == ".pth" || type == ".ckpt")
        return "a PyTorch checkpoint, which is not supported: reading one runs code of its "
               "author's; give a folder of safetensors (save_pretrained of transformers writes "
               "one)";
    if (type == ".h5" || type == ".keras" || type == ".msgpack" || type == ".tflite")
        return "a file of TensorFlow or Flax, which is not supported; give an .onnx file or a "
               "folder of safetensors";
    return {};
}

}  // namespace

void refuse_what_is_no_model(const fs::path& path) {
    if (!is_folder(path)) {
        if (const std::string what = known_as(path); !what.empty())
            throw UserError("{}: this is {}", path.string(), what);
        return;
    }
    const std::vector<std::string> names = names_if_folder(path);
    for (const fs::path name : names)
        if (name.extension() == ".onnx") return;
    for (const std::string& name : names)
        if (const std::string what = known_as(path / name); !what.empty())
            throw UserError("{}: neither an .onnx file nor safetensors are in the folder; {} is {}",
                            path.string(), name, what);
    if (is_there(path / "config.json"))
        throw UserError(
            "{}: the folder has config.json, but no weights; download its .safetensors files, or "
            "plan without weights by its config.json",
            path.string());
    throw UserError(
        "{}: the folder has no model: neither an .onnx file, nor config.json with .safetensors; a "
        "GGUF file is named itself",
        path.string());
}

bool is_model_folder(const fs::path& folder) {
    return onnx_files(folder) == 1 || is_hugging_face(folder);
}

importer::Graph open_model(const fs::path& path, const importer::ImportOptions& options) {
    if (is_gguf(path.string())) return import_gguf(path.string());
    if (is_hugging_face(path)) return import_folder(path.string());
    refuse_what_is_no_model(path);
    return importer::import_onnx(path.string(), options);
}

}  // namespace cleave::models
