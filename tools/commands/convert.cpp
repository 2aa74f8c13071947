// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <memory>

#include "models/convert.h"
#include "models/model_folder.h"
#include "models/open_model.h"
#include "runtime/base/errors.h"
#include "runtime/base/gguf.h"
#include "runtime/base/path_state.h"
#include "tools/cli/terminal.h"
#include "tools/commands/commands.h"

namespace cleave::tools {
namespace {

struct ConvertArguments {
    std::string folder, form = "attention";
    models::ConvertOptions options;
};

void run_convert(ConvertArguments flags) {
    if (!is_folder(flags.folder))
        throw UserError("{}: {}", flags.folder,
                        is_gguf(flags.folder)
                            ? "a GGUF file is run, planned, inspected and exported as it is; ONNX "
                              "has no form for its blocks"
                            : "no such folder; give one with config.json and .safetensors files");
    if (!models::has_safetensors(flags.folder)) {
        models::refuse_what_is_no_model(flags.folder);
        throw UserError("{}: the folder has an .onnx file, and every command takes that as it is",
                        flags.folder);
    }
    flags.options.form = flags.form == "decomposed" ? models::OnnxForm::kDecomposed
                         : flags.form == "gqa"      ? models::OnnxForm::kGroupQueryAttention
                                                    : models::OnnxForm::kAttention;
    show("{}\n", models::write_converted(flags.folder, flags.options));
}

}  // namespace

void add_convert(CLI::App& app) {
    auto flags = std::make_shared<ConvertArguments>();
    CLI::App* command = app.add_subcommand(
        "convert", "write the ONNX file of a Hugging Face folder; its weights stay where they are");
    command->add_option("FOLDER", flags->folder, "with config.json and .safetensors files")
        ->required();
    command
        ->add_option("-o,--output", flags->options.output,
                     "an .onnx file, or a folder for model.onnx (default: FOLDER/model.onnx)")
        ->type_name("PATH");
    command
        ->add_option("--form", flags->form,
                     "whose operators: attention (opset 23), decomposed (opset 17), gqa (ONNX "
                     "Runtime's GroupQueryAttention); default: attention")
        ->check(CLI::IsMember({"attention", "decomposed", "gqa"}));
    command->add_flag("--copy", flags->options.copy,
                      "copy the weights to an output elsewhere; without it they are hard-linked");
    command->footer("Example: cleave convert ~/models/SmolLM2-135M -o /tmp/smollm/model.onnx");
    command->callback([flags] { run_convert(*flags); });
}

}  // namespace cleave::tools
