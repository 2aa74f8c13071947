// SPDX-License-Identifier: Apache-2.0
#include "models/folder_views.h"

#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "models/convert.h"
#include "runtime/base/errors.h"
#include "runtime/base/mapped_file.h"
#include "runtime/base/path_state.h"
#include "runtime/base/rounding.h"

namespace cleave::models {
namespace {

namespace fs = std::filesystem;
using PackedForm = PackedWeights::Form;
using importer::Packing;

class Viewer {
public:
    Viewer(const ModelFolder& folder, const Shape& shape)
        : folder_(folder), shape_(shape), packed_(shape.packed) {}

    importer::Graph graph() {
        importer::Graph graph = graph_of_tensors(shape_, DType::kF32);
        graph.path = folder_.config();
        for (const std::string& name : folder_.files) {
            const fs::path file = fs::path(folder_.path) / name;
            graph.files.push_back({file.string(), size_at(file).value_or(0), true});
        }
        graph.config.model_type = shape_.config.model_type;
        graph.notes.clear();
        for (importer::Weight& weight : graph.weights)
            if (!weight.data.blob.valid()) view(weight);
        check_left_over(graph.notes);
        return graph;
    }

private:
    using Sizes = std::vector<int64_t>;

    const ModelFolder::Place* find(const std::string& name) const {
        const auto found = folder_.tensors.find(name);
        return found == folder_.tensors.end() ? nullptr : &found->second;
    }
    std::string file_of(const ModelFolder::Place& place) const {
        return (fs::path(folder_.path) / folder_.files[place.file]).string();
    }
    // Of that shape (one of two) and one of those types.
    const ModelFolder::Place& needed(const std::string& name, const Sizes& sizes,
                                     const std::set<std::string>& types,
                                     const Sizes& or_sizes = {}) {
        const ModelFolder::Place* place = find(name);
        if (!place)
            throw UserError(
                "{}: tensor '{}' is missing, which its config.json asks for; download "
                "the folder again",
                folder_.path, name);
        const StoredTensor& tensor = place->tensor;
        if (tensor.shape != sizes && (or_sizes.empty() || tensor.shape != or_sizes))
            throw UserError("{}: tensor '{}' is [{}], but config.json asks for [{}]",
                            file_of(*place), name, fmt::join(tensor.shape, ", "),
                            fmt::join(sizes, ", "));
        if (!types.contains(tensor.dtype))
            throw UserError("{}: tensor '{}' is of type {}; supported there: {}", file_of(*place),
                            name, tensor.dtype, fmt::join(types, ", "));
        used_.insert(name);
        return *place;
    }
    static importer::DataRef data_of(const ModelFolder::Place& place) {
        return {importer::FileId(place.file), {}, place.tensor.offset, place.tensor.length};
    }
    static DType type_of(const ModelFolder::Place& place) {
        return place.tensor.dtype == "F32"   ? DType::kF32
               : place.tensor.dtype == "F16" ? DType::kF16
                                             : DType::kBF16;
    }

    void view(importer::Weight& weight) {
        CLEAVE_CHECK(weight.initializers.size() == 1 && !weight.transposed)
            << weight.name << ": of several tensors";
        const std::string name = weight.initializers[0];
        const std::string module = name.substr(0, name.rfind('.'));
        const bool words = packed_.form == PackedForm::kGptq || packed_.form == PackedForm::kAwq;
        if (packed_.form == PackedForm::kCompressedTensors && find(module + ".weight_packed"))
            return view_compressed(weight, module);
        if (words && name.ends_with(".weight") && find(module + ".qweight"))
            return view_words(weight, module);
        const ModelFolder::Place* place = find(name);
        if (packed_.form == PackedForm::kFloat8 && place && place->tensor.dtype == "F8_E4M3")
            return view_floats(weight, name, module);
        const ModelFolder::Place& dense = needed(name, weight.source_shape, {"F32", "F16", "BF16"});
        weight.data = data_of(dense);
        weight.dtype = type_of(dense);
    }

    void set_scales(importer::Weight& weight, const ModelFolder::Place& scales, int64_t group) {
        importer::Quantization& q = weight.quantization;
        q.block = group;
        q.scales = data_of(scales);
        q.scale_dtype = type_of(scales);
        q.scale_count = 1;
        for (const int64_t d : scales.tensor.shape) q.scale_count *= d;
    }

    // Of a matrix of whole groups and of words with that many codes.
    std::pair<int64_t, int64_t> group_and_codes(const std::string& module, int64_t out,
                                                int64_t in) const {
        const int64_t codes = 32 / packed_.bits;
        const int64_t group = packed_.group > 0 ? packed_.group : in;
        if (in % group != 0 || out % codes != 0 || in % codes != 0)
            throw UserError("{}: '{}' is [{}, {}], which are no whole groups of {} and words of {}",
                            folder_.path, module, out, in, group, codes);
        return {group, codes};
    }

    // The codes are MatMulNBits', the zero points are not.
    void view_compressed(importer::Weight& weight, const std::string& module) {
        const int64_t out = weight.source_shape[0], in = weight.source_shape[1];
        const auto [group, codes] = group_and_codes(module, out, in);
        weight.packing = Packing::kMatMulNBits;
        weight.dtype = packed_.bits == 4 ? DType::kUInt4 : DType::kUInt8;
        weight.data = data_of(needed(module + ".weight_packed", {out, in / codes}, {"I32"}));
        set_scales(weight,
                   needed(module + ".weight_scale", {out, in / group}, {"F32", "F16", "BF16"}),
                   packed_.group);
        if (!packed_.has_zero_points) return;
        weight.quantization.zero_points =
            data_of(needed(module + ".weight_zero_point", {out / codes, in / group}, {"I32"}));
        weight.quantization.zero_point_dtype = weight.dtype;
        weight.quantization.zero_points_in_words = true;
    }

    void view_words(importer::Weight& weight, const std::string& module) {
        const bool gptq = packed_.form == PackedForm::kGptq;
        const int64_t out = weight.source_shape[0], in = weight.source_shape[1];
        const auto [group, codes] = group_and_codes(module, out, in);
        const auto& words = needed(module + ".qweight",
                                   gptq ? Sizes{in / codes, out} : Sizes{in, out / codes}, {"I32"});
        const auto& zeros = needed(module + ".qzeros", {in / group, out / codes}, {"I32"});
        weight.packing = gptq ? Packing::kGptq : Packing::kAwq;
        weight.dtype = packed_.bits == 4 ? DType::kUInt4 : DType::kUInt8;
        weight.data = data_of(words);
        set_scales(weight, needed(module + ".scales", {in / group, out}, {"F32", "F16", "BF16"}),
                   packed_.group);
        weight.quantization.scales_transposed = true;
        weight.quantization.zero_points = data_of(zeros);
        weight.quantization.zero_point_dtype = weight.dtype;
        weight.quantization.zero_offset = packed_.zero_offset;
        if (gptq && find(module + ".g_idx"))
            check_order(needed(module + ".g_idx", {in}, {"I32"}), group);
    }

    // The group of each input.
    void check_order(const ModelFolder::Place& place, int64_t group) const {
        const MappedFile map(file_of(place));
        const auto bytes = map.bytes().subspan(place.tensor.offset, place.tensor.length);
        for (size_t i = 0; i < bytes.size() / 4; ++i) {
            int32_t number = 0;
            std::memcpy(&number, bytes.data() + i * 4, 4);
            if (number != static_cast<int64_t>(i) / group)
                throw UserError(
                    "{}: tensor '{}' has codes in another order than their groups "
                    "(desc_act), which is not supported",
                    file_of(place), place.tensor.name);
        }
    }

    void view_floats(importer::Weight& weight, const std::string& name, const std::string& module) {
        const int64_t out = weight.source_shape[0], in = weight.source_shape[1];
        weight.packing = Packing::kDequantizeLinear;
        weight.dtype = DType::kF8E4M3;
        weight.data = data_of(needed(name, weight.source_shape, {"F8_E4M3"}));
        // compressed-tensors multiplies by weight_scale, fp8 by what it calls its inverse.
        const std::string scale =
            module + (find(module + ".weight_scale_inv") ? ".weight_scale_inv" : ".weight_scale");
        const std::set<std::string> types{"F32", "F16", "BF16"};
        if (packed_.group > 0) {
            set_scales(
                weight,
                needed(scale, {ceil_div(out, packed_.rows), ceil_div(in, packed_.group)}, types),
                packed_.group);
            weight.quantization.scale_rows = packed_.rows;
            return;
        }
        const ModelFolder::Place* place = find(scale);
        const bool one = place && (place->tensor.shape.empty() || place->tensor.shape == Sizes{1});
        set_scales(weight,
                   one ? needed(scale, {1}, types, place->tensor.shape)
                       : needed(scale, {out, 1}, types, {out}),
                   0);
    }

    // What scales activations is not needed either, as they stay as they are.
    void check_left_over(std::vector<std::string>& notes) const {
        bool scales = false;
        for (const auto& [name, place] : folder_.tensors) {
            if (used_.contains(name)) continue;
            if (is_left_out(name, shape_)) continue;
            const bool activations =
                packed_.form == PackedForm::kFloat8 && name.ends_with(".input_scale");
            if (!activations)
                throw UserError(
                    "{}: tensor '{}' [{}] is none that a model of its config.json has "
                    "(model_type {}); such a model is not supported",
                    file_of(place), name, fmt::join(place.tensor.shape, ", "),
                    shape_.config.model_type);
            scales = true;
        }
        if (packed_.form == PackedForm::kFloat8)
            notes.push_back(fmt::format("activations are not rounded to float8{}",
                                        scales ? ": their scales are not needed" : ""));
    }

    const ModelFolder& folder_;
    const Shape& shape_;
    const PackedWeights& packed_;
    std::set<std::string> used_;
};

}  // namespace

bool needs_views(const ModelFolder& folder, const Shape& shape) {
    if (shape.packed.form != PackedForm::kWhole && !shape.packed.has_onnx_words()) return true;
    std::set<std::string> floats;
    for (const auto& [name, place] : folder.tensors)
        if (place.tensor.dtype != "I32" && !is_left_out(name, shape))
            floats.insert(place.tensor.dtype);
    return floats.size() > 1;
}

bool is_left_out(const std::string& name, const Shape& shape) {
    return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.masked_bias") ||
           (shape.config.tied_embeddings && name == "lm_head.weight") ||
           (shape.packed.form == PackedForm::kCompressedTensors && name.ends_with(".weight_shape"));
}

importer::Graph import_views(const ModelFolder& folder, const Shape& shape) {
    return Viewer(folder, shape).graph();
}

}  // namespace cleave::models
