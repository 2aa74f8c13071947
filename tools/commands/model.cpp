// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/onnx_writer.h"
#include "runtime/base/errors.h"
#include "runtime/base/suggest.h"
#include "tools/cli/options.h"
#include "tools/cli/terminal.h"
#include "tools/commands/commands.h"

namespace cleave::tools {
namespace {

struct ModelArguments {
    std::string shape, directory, weights = "random", dtype = "f32", form = "decomposed";
    uint64_t seed = 0;
};

void run_model(const ModelArguments& flags) {
    std::optional<models::Shape> shape = models::find_shape(flags.shape);
    if (!shape && flags.shape.ends_with(".json")) shape = models::shape_from_config(flags.shape);
    if (!shape)
        throw UserError("{}: no such shape{}; shapes are {}, or a config.json", flags.shape,
                        did_you_mean(flags.shape, models::shape_names()),
                        fmt::join(models::shape_names(), ", "));
    if (!shape->is_plain())
        throw UserError(
            "{}: only plain Llamas are written with random weights or none; `cleave convert` "
            "writes "
            "a model of this family from its weights",
            flags.shape);
    models::WriteOptions options;
    options.weights = flags.weights == "none" ? models::WriteOptions::Weights::kNone
                                              : models::WriteOptions::Weights::kRandom;
    options.dtype = dtype_flag("--dtype", flags.dtype);
    options.seed = flags.seed;
    options.form = flags.form == "attention"   ? models::OnnxForm::kAttention
                   : flags.form == "gqa"       ? models::OnnxForm::kGroupQueryAttention
                   : flags.form == "functions" ? models::OnnxForm::kFunctions
                                               : models::OnnxForm::kDecomposed;
    Interruptible interruptible;
    options.cancel = &cancel_token();
    show("{}\n", models::write_onnx_llama(*shape, flags.directory, options));
}

}  // namespace

void add_model(CLI::App& app) {
    auto flags = std::make_shared<ModelArguments>();
    CLI::App* command = app.add_subcommand("model", "write an ONNX Llama of a shape");
    command->add_option("SHAPE", flags->shape, "a shape name or a config.json")->required();
    command->add_option("-o,--output", flags->directory, "folder to write to")
        ->type_name("DIR")
        ->required();
    command
        ->add_option("--weights", flags->weights,
                     "random, or none (structure only); default: random")
        ->check(CLI::IsMember({"none", "random"}));
    command->add_option("--dtype", flags->dtype, "f32, f16 or bf16; default: f32");
    command->add_option("--seed", flags->seed, "of the random weights; default: 0");
    command
        ->add_option(
            "--form", flags->form,
            "whose operators: decomposed (opset 17), attention (opset 23), gqa, functions; "
            "default: decomposed")
        ->check(CLI::IsMember({"decomposed", "attention", "gqa", "functions"}));
    command->footer("Example: cleave model llama-110m -o /tmp/llama-110m --dtype f32");
    command->callback([flags] { run_model(*flags); });
}

}  // namespace cleave::tools
