// SPDX-License-Identifier: Apache-2.0
#include "models/config_quantization.h"

#include <bit>

#include "runtime/base/errors.h"

namespace cleave::models {
namespace {

void check_text(const Fields& fields, const char* name, const std::string& only) {
    if (fields.text(name, only) != only) fields.refuse(name, "\"" + only + "\"");
}

void check_absent(const Fields& fields, const char* name, const char* what) {
    if (fields.has(name)) fields.refuse(name, fmt::format("null: {} are not supported", what));
}

int64_t group_of(const Fields& fields, const char* name) {
    // -1 and absent: the whole row.
    if (!fields.has(name) || fields.number(name) == -1) return 0;
    const int64_t group = fields.integer(name, kMostFeatures);
    if (group < 16 || !std::has_single_bit(static_cast<uint64_t>(group)))
        fields.refuse(name, "-1 or a power of two from 16");
    return group;
}

void read_weights(const Fields& weights, PackedWeights& packed) {
    packed.bits = static_cast<int>(weights.integer("num_bits", 64));
    if (packed.bits != 4 && packed.bits != 8) weights.refuse("num_bits", "4 or 8");
    check_text(weights, "type", "int");
    const std::string strategy = weights.text("strategy", "group");
    if (strategy != "group" && strategy != "channel")
        weights.refuse("strategy", "\"group\" or \"channel\"");
    packed.has_zero_points = !weights.boolean("symmetric", true);
    if (weights.boolean("dynamic", false)) weights.refuse("dynamic", "false");
    const std::string order = weights.text("actorder", "static");
    if (order != "static" && order != "weight")
        weights.refuse("actorder",
                       "null or \"static\": codes in another order than their groups "
                       "are not supported");
    packed.group = group_of(weights, "group_size");
    if ((packed.group == 0) != (strategy == "channel"))
        weights.refuse("group_size", strategy == "channel" ? "null" : "a power of two from 16");
    weights.check_all_known({"observer", "observer_kwargs", "scale_dtype", "zp_dtype"});
}

// compressed-tensors' floats: "float-quantized".
void read_floats(const Fields& weights, PackedWeights& packed) {
    packed.form = PackedWeights::Form::kFloat8;
    if (weights.integer("num_bits", 64) != 8) weights.refuse("num_bits", "8");
    check_text(weights, "type", "float");
    const std::string strategy = weights.text("strategy", "tensor");
    if (strategy == "block") {
        const std::vector<double> sizes = weights.numbers("block_structure", 2);
        packed.rows = static_cast<int64_t>(sizes[0]);
        packed.group = static_cast<int64_t>(sizes[1]);
    } else if (strategy != "tensor" && strategy != "channel") {
        weights.refuse("strategy", "tensor, channel or block");
    }
    if (!weights.boolean("symmetric", true)) weights.refuse("symmetric", "true");
    weights.check_all_known({"dynamic", "observer", "observer_kwargs", "scale_dtype", "zp_dtype",
                             "group_size", "actorder", "block_structure"});
}

PackedWeights compressed_tensors(const Fields& fields) {
    const std::string format = fields.text("format", "pack-quantized");
    if (format != "pack-quantized" && format != "float-quantized")
        fields.refuse("format", "\"pack-quantized\" or \"float-quantized\"");
    const Fields groups = fields.object("config_groups");
    const Fields group = groups.object("group_0");
    groups.check_all_known({});
    PackedWeights packed;
    if (format == "float-quantized") {
        read_floats(group.object("weights"), packed);
        group.has("input_activations");  // stay as they are: nearer to the model before
    } else {
        packed.form = PackedWeights::Form::kCompressedTensors;
        read_weights(group.object("weights"), packed);
        check_absent(group, "input_activations", "quantised activations");
    }
    check_absent(group, "output_activations", "quantised activations");
    check_text(group, "format", format);
    if (group.texts("targets") != std::vector<std::string>{"Linear"})
        group.refuse("targets", "[\"Linear\"]");
    group.check_all_known({});
    check_absent(fields, "kv_cache_scheme", "quantised caches");
    for (const char* empty : {"sparsity_config", "transform_config"})
        if (fields.has(empty)) fields.object(empty).check_all_known({});
    for (const std::string& module : fields.texts("ignore")) {
        if (module.starts_with("re:") && module != "re:.*lm_head")
            throw UserError(
                "{}: quantization_config.ignore has the pattern \"{}\"; modules by name, and "
                "re:.*lm_head, are supported",
                fields.path(), module);
        packed.left_whole.push_back(module == "re:.*lm_head" ? "lm_head" : module);
    }
    fields.check_all_known({"global_compression_ratio", "quantization_status", "version"});
    return packed;
}

// https://github.com/ModelCloud/GPTQModel : "gptq" stores zero points less one.
PackedWeights gptq(const Fields& fields) {
    PackedWeights packed;
    packed.form = PackedWeights::Form::kGptq;
    packed.bits = static_cast<int>(fields.integer("bits", 64));
    if (packed.bits != 4 && packed.bits != 8) fields.refuse("bits", "4 or 8");
    packed.group = group_of(fields, "group_size");
    if (fields.boolean("desc_act", false))
        fields.refuse("desc_act",
                      "false: codes in another order than their groups are not supported");
    const std::string format = fields.text("checkpoint_format", "gptq");
    if (format != "gptq" && format != "gptq_v2")
        fields.refuse("checkpoint_format", "\"gptq\" or \"gptq_v2\"");
    packed.zero_offset = format == "gptq" ? 1 : 0;
    if (fields.boolean("lm_head", false)) fields.refuse("lm_head", "false");
    if (fields.has("dynamic")) fields.object("dynamic").check_all_known({});
    check_text(fields, "pack_dtype", "int32");
    fields.check_all_known({"sym",
                            "damp_percent",
                            "true_sequential",
                            "static_groups",
                            "meta",
                            "model_file_base_name",
                            "model_name_or_path",
                            "is_marlin_format",
                            "backend",
                            "batch_size",
                            "block_name_to_quantize",
                            "cache_block_outputs",
                            "dataset",
                            "disable_exllama",
                            "exllama_config",
                            "max_input_length",
                            "module_name_preceding_first_block",
                            "modules_in_block_to_quantize",
                            "pad_token_id",
                            "tokenizer",
                            "use_cuda_fp16",
                            "use_exllama",
                            "model_seqlen",
                            "desc_act",
                            "version"});
    return packed;
}

// https://github.com/casper-hansen/AutoAWQ : its "gemm" form.
PackedWeights awq(const Fields& fields) {
    PackedWeights packed;
    packed.form = PackedWeights::Form::kAwq;
    packed.bits = static_cast<int>(fields.integer(fields.has("bits") ? "bits" : "w_bit", 64));
    if (packed.bits != 4) fields.refuse("bits", "4");
    packed.group = group_of(fields, fields.has("group_size") ? "group_size" : "q_group_size");
    if (!fields.boolean("zero_point", true)) fields.refuse("zero_point", "true");
    const std::string version = fields.text("version", "gemm");
    if (version != "gemm" && version != "GEMM") fields.refuse("version", "\"gemm\"");
    fields.check_all_known({"modules_to_not_convert", "backend", "do_fuse", "exllama_config",
                            "fuse_max_seq_len", "modules_to_fuse"});
    return packed;
}

// What transformers calls fp8, as DeepSeek's and Qwen's folders have it.
PackedWeights fp8(const Fields& fields) {
    PackedWeights packed;
    packed.form = PackedWeights::Form::kFloat8;
    check_text(fields, "fmt", "e4m3");
    if (fields.has("weight_block_size")) {
        const std::vector<double> sizes = fields.numbers("weight_block_size", 2);
        packed.rows = static_cast<int64_t>(sizes[0]);
        packed.group = static_cast<int64_t>(sizes[1]);
    }
    fields.check_all_known({"activation_scheme", "ignored_layers", "modules_to_not_convert"});
    return packed;
}

void check_block(const Fields& fields, const PackedWeights& packed) {
    const bool whole = packed.rows == 1 && packed.group == 0;
    if (packed.form == PackedWeights::Form::kFloat8 && !whole &&
        (packed.rows < 1 || packed.rows > kMostFeatures || packed.group < 16 ||
         packed.group > kMostFeatures || !std::has_single_bit(static_cast<uint64_t>(packed.group))))
        throw UserError(
            "{}: quantization_config has blocks of {} x {} elements; supported are powers of two "
            "from 16",
            fields.path(), packed.rows, packed.group);
}

}  // namespace

PackedWeights read_quantization(const Fields& fields) {
    const std::string method = fields.text("quant_method", "");
    PackedWeights packed;
    if (method == "compressed-tensors")
        packed = compressed_tensors(fields);
    else if (method == "gptq")
        packed = gptq(fields);
    else if (method == "awq")
        packed = awq(fields);
    else if (method == "fp8")
        packed = fp8(fields);
    else
        fields.refuse("quant_method",
                      "one that is supported: compressed-tensors, gptq, awq or fp8; give the "
                      "folder of the model before quantisation, and quantise it here ($dtype)");
    check_block(fields, packed);
    return packed;
}

}  // namespace cleave::models
