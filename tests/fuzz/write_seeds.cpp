// SPDX-License-Identifier: Apache-2.0
// write_seeds FOLDER [FILE.onnx...]: the fuzzer's first corpus. Small models of every form that
// models/ builds, and the files given, without their large tensors.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>

#include "models/onnx_writer.h"
#include "tests/fuzz/mutate.h"

namespace {

namespace fs = std::filesystem;

void write_seed(const fs::path& from, const fs::path& to) {
    std::ifstream file(from, std::ios::binary);
    onnx::ModelProto model;
    if (!model.ParseFromIstream(&file)) return;
    cleave::fuzz::shrink_model(model, "absent");
    std::ofstream out(to, std::ios::binary);
    model.SerializeToOstream(&out);
}

cleave::models::Shape one_layer() {
    cleave::models::Shape shape = cleave::models::find_shape("stories-260k").value();
    shape.config.vocab_size = 16;
    shape.config.hidden_size = 16;
    shape.config.intermediate_size = 24;
    shape.config.num_layers = 1;
    shape.config.num_heads = 4;
    shape.config.num_kv_heads = 2;
    shape.config.head_dim = 4;
    shape.config.max_positions = 32;
    return shape;
}

void write_own_forms(const fs::path& folder) {
    using cleave::models::OnnxForm;
    for (OnnxForm form : {OnnxForm::kDecomposed, OnnxForm::kAttention,
                          OnnxForm::kGroupQueryAttention, OnnxForm::kFunctions})
        for (bool external : {false, true}) {
            cleave::models::WriteOptions options;
            options.form = form;
            options.external_data = external;
            const fs::path work = folder / "work";
            const std::string model =
                cleave::models::write_onnx_llama(one_layer(), work.string(), options);
            const std::string name = std::to_string(static_cast<int>(form));
            if (external)
                write_seed(model, folder / ("form" + name));
            else
                fs::copy_file(model, folder / ("inline" + name),
                              fs::copy_options::overwrite_existing);
            fs::remove_all(work);
        }
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc < 2) {
        std::fprintf(stderr, "usage: write_seeds FOLDER [FILE.onnx...]\n");
        return 1;
    }
    const fs::path folder = argv[1];
    fs::create_directories(folder);
    write_own_forms(folder);
    for (int i = 2; i < argc; ++i) write_seed(argv[i], folder / ("file" + std::to_string(i - 2)));
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
