// SPDX-License-Identifier: Apache-2.0
#include "models/convert.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <set>

#include <fmt/ranges.h>

#include "importer/onnx/import.h"
#include "models/folder_views.h"
#include "models/llama_graph.h"
#include "models/model_folder.h"
#include "models/onnx_forms.h"
#include "runtime/base/errors.h"
#include "runtime/base/file_set.h"
#include "runtime/base/json_file.h"
#include "runtime/base/path_state.h"

namespace cleave::models {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEmbedding = "model.embed_tokens.weight";

// What is beside the weights and says how to use the model.
constexpr std::array kCompanions{
    "config.json",     "generation_config.json",  "tokenizer.json",    "tokenizer_config.json",
    "tokenizer.model", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt",      "chat_template.jinja"};

std::string shape_text(const std::vector<int64_t>& shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

DType dtype_of(const ModelFolder& folder, const ModelFolder::Place& place) {
    const std::string& type = place.tensor.dtype;
    if (type == "F32") return DType::kF32;
    if (type == "F16") return DType::kF16;
    if (type == "BF16") return DType::kBF16;
    throw UserError("{}: tensor '{}' is of type {}; supported are F32, F16 and BF16",
                    (fs::path(folder.path) / folder.files[place.file]).string(), place.tensor.name,
                    type);
}

void add_entry(onnx::TensorProto& proto, const char* key, const std::string& value) {
    auto* entry = proto.add_external_data();
    entry->set_key(key);
    entry->set_value(value);
}

// An initializer for each tensor that the graph needs, in the folder's files.
void add_initializers(const ModelFolder& folder, const Shape& shape, const OnnxBuilder& builder,
                      DType dtype, onnx::GraphProto& graph, std::vector<std::string>& notes) {
    std::set<std::string> used;
    for (const Tensor& tensor : builder.tensors()) {
        const auto found = folder.tensors.find(tensor.name);
        if (found == folder.tensors.end())
            throw UserError(
                "{}: tensor '{}' {} is missing, which its config.json asks for (model_type {}); "
                "download the folder again",
                folder.path, tensor.name, shape_text(tensor.shape), shape.config.model_type);
        const ModelFolder::Place& place = found->second;
        const std::string file = (fs::path(folder.path) / folder.files[place.file]).string();
        const bool packed = !tensor.stored_as_int32.empty();
        const std::vector<int64_t>& asked = packed ? tensor.stored_as_int32 : tensor.shape;
        if (place.tensor.shape != asked)
            throw UserError("{}: tensor '{}' is {}, but config.json asks for {}", file, tensor.name,
                            shape_text(place.tensor.shape), shape_text(asked));
        if (packed && place.tensor.dtype != "I32")
            throw UserError("{}: tensor '{}' is of type {}; packed codes are I32", file,
                            tensor.name, place.tensor.dtype);
        if (!packed && dtype_of(folder, place) != dtype)
            throw UserError("{}: tensor '{}' is of type {}, others of {}; one type is supported",
                            file, tensor.name, place.tensor.dtype, dtype);
        used.insert(tensor.name);
        onnx::TensorProto* proto = graph.add_initializer();
        proto->set_name(tensor.name);
        proto->set_data_type(packed ? onnx::TensorProto::UINT8 : builder.dtype());
        for (int64_t d : tensor.shape) proto->add_dims(d);
        proto->set_data_location(onnx::TensorProto::EXTERNAL);
        add_entry(*proto, "location", folder.files[place.file]);
        add_entry(*proto, "offset", std::to_string(place.tensor.offset));
        add_entry(*proto, "length", std::to_string(place.tensor.length));
    }
    for (const auto& [name, place] : folder.tensors) {
        if (used.contains(name)) continue;
        if (!is_left_out(name, shape))
            throw UserError(
                "{}: tensor '{}' {} is none that a model of its config.json has (model_type {}); "
                "such a model is not supported",
                (fs::path(folder.path) / folder.files[place.file]).string(), name,
                shape_text(place.tensor.shape), shape.config.model_type);
        notes.push_back(fmt::format("tensor '{}' is not needed", name));
    }
}

// Files beside the output.
class Companions {
public:
    Companions(fs::path from, fs::path to, bool copy, FileSet& files)
        : from_(std::move(from)), to_(std::move(to)), copy_(copy), files_(files) {}

    void put_all(const std::vector<std::string>& weights) {
        for (const std::string& name : weights) put(name, false);
        for (const char* name : kCompanions)
            if (is_there(from_ / name)) put(name, true);
    }

private:
    void put(const std::string& name, bool copy) {
        std::error_code error;
        const fs::path source = from_ / name, target = to_ / name;
        if (fs::equivalent(source, target, error)) return;
        if (copy && fs::is_regular_file(target, error) &&
            read_regular_file(source) == read_regular_file(target))
            return;
        const fs::file_type there = fs::symlink_status(target, error).type();
        if (there == fs::file_type::none)
            throw UserError("{}: {}", target.string(), error.message());
        if (there != fs::file_type::not_found)
            throw UserError("{}: another file is there; name an empty folder ($output)",
                            target.string());
        if (copy || copy_) {
            files_.add(target, [&](std::ostream& to) { copy_regular_file(source, to); });
            return;
        }
        const fs::path real = fs::canonical(source, error);
        if (error) throw UserError("{}: {}", source.string(), error.message());
        files_.link(target, real, "copy it instead ($copy)");
    }

    fs::path from_, to_;
    bool copy_;
    FileSet& files_;
};

struct ConvertedModel {
    std::unique_ptr<onnx::ModelProto> proto;
    std::vector<std::string> files;  // of weights, named in the folder
    std::vector<std::string> notes;  // a line for each thing that was left out
};

std::string folder_name(const std::string& path) {
    return fs::absolute(path).lexically_normal().filename();
}

ConvertedModel convert_folder(const ModelFolder& folder, const Shape& shape, OnnxForm form) {
    const std::string& path = folder.path;
    if (needs_views(folder, shape))
        throw UserError(
            "{}: {}; the folder is run, planned, inspected and exported as it is", path,
            shape.packed.form == PackedWeights::Form::kWhole
                ? "its weights are of several types, and only a folder of one type is converted"
                : "ONNX has no words for how its weights are quantised (quantization_config)");
    const auto embedding = folder.tensors.find(kEmbedding);
    if (embedding == folder.tensors.end())
        throw UserError("{}: tensor '{}' is missing; the folder is none of a language model", path,
                        kEmbedding);
    WriteOptions options;
    options.form = form;
    options.dtype = dtype_of(folder, embedding->second);
    options.as_hugging_face = true;
    ConvertedModel result{std::make_unique<onnx::ModelProto>(), folder.files, {}};
    result.proto->set_producer_name("cleave");
    result.proto->mutable_graph()->set_name(folder_name(path));
    OnnxBuilder builder(*result.proto, options.dtype);
    build_onnx_graph(shape, options, *result.proto, builder);
    add_initializers(folder, shape, builder, options.dtype, *result.proto->mutable_graph(),
                     result.notes);
    return result;
}

}  // namespace

importer::Graph import_folder(const std::string& path) {
    const ModelFolder folder = read_model_folder(path);
    const Shape shape = shape_from_config(folder.config());
    if (needs_views(folder, shape)) {
        importer::Graph graph = import_views(folder, shape);
        graph.name = folder_name(path);
        return graph;
    }
    ConvertedModel model = convert_folder(folder, shape, OnnxForm::kAttention);
    const std::string name = model.proto->graph().name();
    importer::Graph graph =
        importer::import_onnx(std::move(model.proto), (fs::path(path) / "config.json").string());
    graph.name = name;
    graph.notes.insert(graph.notes.end(), model.notes.begin(), model.notes.end());
    return graph;
}

importer::Graph graph_of_shape(const Shape& shape, DType weight_dtype) {
    return shape.is_plain() ? build_llama_graph(shape, weight_dtype)
                            : graph_of_tensors(shape, weight_dtype);
}

importer::Graph graph_of_tensors(const Shape& shape, DType weight_dtype) {
    WriteOptions options;
    options.weights = WriteOptions::Weights::kNone;
    options.form = OnnxForm::kAttention;
    options.dtype = weight_dtype;
    options.as_hugging_face = true;
    auto proto = std::make_unique<onnx::ModelProto>();
    OnnxBuilder builder(*proto, weight_dtype);
    build_onnx_graph(shape, options, *proto, builder);
    for (const Tensor& tensor : builder.tensors()) {
        onnx::TensorProto* weight = proto->mutable_graph()->add_initializer();
        weight->set_name(tensor.name);
        weight->set_data_type(tensor.stored_as_int32.empty() ? builder.dtype()
                                                             : onnx::TensorProto::UINT8);
        for (int64_t d : tensor.shape) weight->add_dims(d);
        weight->set_data_location(onnx::TensorProto::EXTERNAL);
        add_entry(*weight, "location", "absent");
    }
    importer::Graph graph = importer::import_onnx(std::move(proto), shape.name, {true});
    graph.name = shape.name;
    graph.path.clear();
    graph.files.clear();
    for (importer::Weight& weight : graph.weights)
        if (weight.data.file.valid()) weight.data = {};
    return graph;
}

std::string write_converted(const std::string& folder, const ConvertOptions& options) {
    const ModelFolder read = read_model_folder(folder);
    const ConvertedModel model =
        convert_folder(read, shape_from_config(read.config()), options.form);
    fs::path output = options.output.empty() ? fs::path(folder) : fs::path(options.output);
    const bool names_file = output.extension() == ".onnx" && !is_folder(output);
    const fs::path target = names_file ? output.parent_path() : output;
    if (!names_file) output /= "model.onnx";
    if (options.output.empty() && is_there(output))
        throw UserError("{}: the folder has an ONNX file already; name another one ($output)",
                        output.string());
    const fs::path place = target.empty() ? fs::path(".") : target;
    FileSet files;
    files.make_folder(place);
    std::error_code error;
    if (!fs::equivalent(folder, place, error))
        Companions(folder, place, options.copy, files).put_all(model.files);
    files.add(output, [&](std::ostream& file) { model.proto->SerializeToOstream(&file); });
    files.commit();
    return output.string();
}

}  // namespace cleave::models
