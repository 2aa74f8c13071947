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

void read_weights(const Fields& weights, PackedWeights& packed) {
    packed.bits = static_cast<int>(weights.integer("num_bits", 64));
    if (packed.bits != 4 && packed.bits != 8) weights.refuse("num_bits", "4 or 8");
    check_text(weights, "type", "int");
    check_text(weights, "strategy", "group");
    if (!weights.boolean("symmetric", true)) weights.refuse("symmetric", "true");
    if (weights.boolean("dynamic", false)) weights.refuse("dynamic", "false");
    const std::string order = weights.text("actorder", "static");
    if (order != "static" && order != "weight")
        weights.refuse("actorder",
                       "null or \"static\": codes in another order than their groups "
                       "are not supported");
    packed.group = weights.integer("group_size", kMostFeatures);
    if (packed.group < 16 || !std::has_single_bit(static_cast<uint64_t>(packed.group)))
        weights.refuse("group_size", "a power of two from 16");
    weights.check_all_known({"observer", "observer_kwargs", "scale_dtype", "zp_dtype"});
}

}  // namespace

PackedWeights read_quantization(const Fields& fields) {
    if (fields.text("quant_method", "") != "compressed-tensors")
        fields.refuse("quant_method",
                      "\"compressed-tensors\", the one that is supported; give the folder of the "
                      "model before quantisation, and quantise it here ($dtype)");
    check_text(fields, "format", "pack-quantized");
    const Fields groups = fields.object("config_groups");
    const Fields group = groups.object("group_0");
    groups.check_all_known({});
    PackedWeights packed;
    read_weights(group.object("weights"), packed);
    check_absent(group, "input_activations", "quantised activations");
    check_absent(group, "output_activations", "quantised activations");
    check_text(group, "format", "pack-quantized");
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

}  // namespace cleave::models
