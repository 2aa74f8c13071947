// SPDX-License-Identifier: Apache-2.0
// Weights' files and folders of somebody else: damaged, cut short, of several revisions.
#include "models/safetensors.h"

#include <fstream>
#include <random>
#include <string>

#include <nlohmann/json.hpp>

#include "models/convert.h"
#include "models/model_folder.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using Json = nlohmann::json;

fs::path family_folder(const char* name) {
    return source_root() / "tests" / "files" / "families" / name;
}

std::string bytes_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    REQUIRE(file);
    return {std::istreambuf_iterator<char>(file), {}};
}

void write_bytes(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

std::string length_field(uint64_t length) {
    std::string field;
    for (int i = 0; i < 8; ++i) field += static_cast<char>(length >> (8 * i));
    return field;
}

// A file of that header and as many zero bytes of data.
std::string safetensors_bytes(const std::string& header, size_t data) {
    return length_field(header.size()) + header + std::string(data, '\0');
}

std::string error_of_bytes(const std::string& bytes) {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "x.safetensors";
    write_bytes(path, bytes);
    return user_error([&] { models::read_safetensors(path.string()); });
}

// A copy of a family's folder that `damage` changes, and what converting it says.
std::string error_of_folder(const char* name, const std::function<void(const fs::path&)>& damage) {
    const TemporaryFolder folder;
    const fs::path copy = folder.path() / "model";
    fs::copy(family_folder(name), copy);
    damage(copy);
    return user_error([&] { models::import_folder(copy.string()); });
}

void change_json(const fs::path& path, const std::function<void(Json&)>& change) {
    Json json = Json::parse(bytes_of(path));
    change(json);
    write_bytes(path, json.dump());
}

// Gives the file another header, of the same data.
void change_header(const fs::path& path, const std::function<void(Json&)>& change) {
    const std::string bytes = bytes_of(path);
    uint64_t length = 0;
    for (size_t i = 0; i < 8; ++i)
        length |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    Json header = Json::parse(bytes.substr(8, length));
    change(header);
    const std::string text = header.dump();
    write_bytes(path, length_field(text.size()) + text + bytes.substr(8 + length));
}

std::string some_shard(const fs::path& folder) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
        if (entry.path().extension() == ".safetensors") return entry.path().string();
    return {};
}

}  // namespace

TEST_CASE("bytes that are no safetensors file are refused by what is wrong with them", "[models]") {
    const std::string two =
        R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":)";
    const auto one = [](const std::string& entry, size_t data = 8) {
        return safetensors_bytes(R"({"a":)" + entry + "}", data);
    };
    const std::pair<std::string, std::string> cases[] = {
        {"", "cut short (0 bytes)"},
        {"1234567", "cut short (7 bytes)"},
        {length_field(0) + "{}", "no safetensors file"},
        {length_field(100) + "{}",
         "its header has 100 bytes, but the file has 2 after its first 8"},
        {length_field(uint64_t{1} << 63) + "{}", "would have 9223372036854775808 bytes"},
        {length_field(~uint64_t{0}) + "{}", "would have 18446744073709551615 bytes"},
        {safetensors_bytes("{,}", 0), "no JSON"},
        {safetensors_bytes("[ ]", 0), "no JSON object"},
        {safetensors_bytes("{}", 4), "4 bytes behind its last tensor"},
        {one("3"), "tensor 'a' is no object"},
        {one(R"({"shape":[2],"data_offsets":[0,8]})"), "tensor 'a' has no dtype"},
        {one(R"({"dtype":3,"shape":[2],"data_offsets":[0,8]})"), "dtype that is no text"},
        {one(R"({"dtype":"F4","shape":[2],"data_offsets":[0,8]})"), "element type \"F4\""},
        {one(R"({"dtype":"F32","shape":3,"data_offsets":[0,8]})"), "shape that is no list"},
        {one(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), "has -2 in its shape"},
        {one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})"),
         "shape that overflows"},
        {one(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})"), "no beginning and end"},
        {one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), "no beginning and end"},
        {one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,9]})"), "was cut short"},
        {one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,9223372036854775807]})"),
         "has 9223372036854775807 in its data_offsets"},
        {one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), "need 12"},
        {one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})"),
         "4 bytes in front of tensor 'a'"},
        {safetensors_bytes(two + "[4,8]}}", 8), "tensor 'b' overlaps"},
        {safetensors_bytes(two + "[12,16]}}", 16), "4 bytes in front of tensor 'b'"},
        {safetensors_bytes(
             two + R"([8,12]},"a":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})", 12),
         "the name \"a\" is there twice"},
    };
    for (const auto& [bytes, expected] : cases) {
        INFO(expected);
        CHECK_THAT(error_of_bytes(bytes), Contains(expected) && Contains("x.safetensors"));
    }
}

TEST_CASE("a header gives each tensor's place, of any type and size, empty ones too", "[models]") {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "x.safetensors";
    const std::string header =
        R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[4,7]},)"
        R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},)"
        R"("c":{"dtype":"F64","shape":[0,5],"data_offsets":[7,7]},)"
        R"("d":{"dtype":"BOOL","shape":[],"data_offsets":[7,8]}})";
    write_bytes(path, safetensors_bytes(header, 8));
    const models::SafetensorsFile file = models::read_safetensors(path.string());
    std::string found;
    for (const models::StoredTensor& t : file.tensors)
        found +=
            fmt::format("{} {} {}+{};", t.name, t.dtype, t.offset - 8 - header.size(), t.length);
    CHECK(found == "a BF16 0+4;b F8_E4M3 4+3;c F64 7+0;d BOOL 7+1;");
}

TEST_CASE("a folder whose weights do not fit its config.json or its index is refused by name",
          "[models]") {
    const auto weights = [](const auto& change) {
        return error_of_folder("llama", [&](const fs::path& folder) {
            change_header(folder / "model.safetensors", change);
        });
    };
    const auto index = [](const auto& change) {
        return error_of_folder("llama_sharded", [&](const fs::path& folder) {
            change_json(folder / "model.safetensors.index.json",
                        [&](Json& json) { change(json["weight_map"]); });
        });
    };
    CHECK_THAT(weights([](Json& h) {
                   h["x"] = h["model.norm.weight"];
                   h.erase("model.norm.weight");
               }),
               Contains("tensor 'model.norm.weight' [16] is missing"));
    CHECK_THAT(weights([](Json& h) {
                   h["lm_head.bias"] = {{"dtype", "F32"}, {"shape", {0}}, {"data_offsets", {0, 0}}};
               }),
               Contains("tensor 'lm_head.bias' [0] is none that a model"));
    CHECK_THAT(weights([](Json& h) { h["model.norm.weight"]["shape"] = {4, 4}; }),
               Contains("is [4, 4], but config.json asks for [16]"));
    CHECK_THAT(weights([](Json& h) { h["model.norm.weight"]["dtype"] = "I32"; }),
               Contains("is of type I32; supported are F32, F16 and BF16"));
    CHECK_THAT(weights([](Json& h) {
                   h["model.norm.weight"]["dtype"] = "BF16";
                   h["model.norm.weight"]["shape"] = {2, 16};
               }),
               Contains("[2, 16], but config.json asks for [16]"));
    CHECK_THAT(index([](Json& map) { map["model.norm.weight"] = "absent.safetensors"; }),
               Contains("absent.safetensors: model.safetensors.index.json names this file"));
    for (const char* name : {"../x.safetensors", "/etc/passwd", "", "..", "a/b.safetensors"})
        CHECK_THAT(index([&](Json& map) { map["model.norm.weight"] = name; }),
                   Contains("names no file of this folder"));
    CHECK_THAT(index([](Json& map) { map["model.norm.weight"] = 3; }),
               Contains("names no file of this folder"));
    CHECK_THAT(index([](Json& map) { map.erase("model.norm.weight"); }),
               Contains("tensor 'model.norm.weight' is in this file, but not by"));
    CHECK_THAT(index([](Json& map) { map["more"] = map["model.norm.weight"]; }),
               Contains("tensor 'more' is missing"));
    CHECK_THAT(index([](Json& map) { map = Json::array(); }), Contains("no \"weight_map\""));
    CHECK_THAT(error_of_folder("llama_sharded",
                               [](const fs::path& folder) { fs::remove(some_shard(folder)); }),
               Contains("names this file, but it is absent"));
    CHECK_THAT(error_of_folder("llama_sharded",
                               [](const fs::path& folder) {
                                   fs::remove(folder / "model.safetensors.index.json");
                               }),
               Contains(".safetensors files, but neither"));
    CHECK_THAT(error_of_folder("llama",
                               [](const fs::path& folder) {
                                   const fs::path away = folder.parent_path() / "away";
                                   fs::rename(folder / "model.safetensors", away);
                                   fs::create_symlink(away, folder / "model.safetensors");
                               }),
               Contains("is a symbolic link out of the folder"));
    CHECK_THAT(error_of_folder("llama",
                               [](const fs::path& folder) { fs::remove(folder / "config.json"); }),
               Contains("config.json"));
}

TEST_CASE("a field of config.json that is not understood is refused by its name", "[models]") {
    const auto config = [](const char* name, const auto& change) {
        return error_of_folder(
            name, [&](const fs::path& folder) { change_json(folder / "config.json", change); });
    };
    CHECK_THAT(config("llama", [](Json& c) { c["new_trick"] = 3; }),
               Contains("field \"new_trick\" is not supported"));
    CHECK_THAT(config("llama", [](Json& c) { c["sliding_window"] = 4; }),
               Contains("field \"sliding_window\" is not supported"));
    CHECK_THAT(config("llama", [](Json& c) { c["quantization_config"] = Json::object(); }),
               Contains("quantization_config.quant_method"));
    CHECK_THAT(config("llama", [](Json& c) { c["hidden_act"] = "tanh"; }),
               Contains("hidden_act \"tanh\""));
    CHECK_THAT(config("llama", [](Json& c) { c["rope_interleaved"] = true; }),
               Contains("\"rope_interleaved\" is true"));
    CHECK_THAT(config("llama_yarn", [](Json& c) { c["rope_scaling"]["beta"] = 3; }),
               Contains("field \"rope_scaling.beta\" is not supported"));
    CHECK_THAT(config("llama_yarn", [](Json& c) { c["rope_scaling"]["rope_type"] = "mrope"; }),
               Contains("rope type \"mrope\""));
    CHECK_THAT(config("llama_yarn", [](Json& c) { c["rope_scaling"]["factor"] = -1; }),
               Contains("\"rope_scaling.factor\" is -1"));
    CHECK_THAT(config("phi3_partial", [](Json& c) { c["rope_parameters"]["short_factor"] = {1}; }),
               Contains("\"rope_parameters.short_factor\" must be a list of 8"));
    CHECK_THAT(
        config("phi3_partial", [](Json& c) { c["rope_parameters"]["partial_rotary_factor"] = 2; }),
        Contains("partial_rotary_factor"));
    CHECK_THAT(config("gemma2", [](Json& c) { c["layer_types"] = {"full_attention", "ring"}; }),
               Contains("layer_types has \"ring\""));
    CHECK_THAT(config("gemma2", [](Json& c) { c["query_pre_attn_scalar"] = -4; }),
               Contains("\"query_pre_attn_scalar\" is -4"));
    CHECK_THAT(config("gemma2", [](Json& c) { c["use_bidirectional_attention"] = true; }),
               Contains("use_bidirectional_attention"));
    CHECK_THAT(config("gemma", [](Json& c) { c["hidden_act"] = "gelu"; }), Contains("hidden_act"));
    const auto packed = [&](const auto& change) {
        return config("llama_int4", [&](Json& c) { change(c["quantization_config"]); });
    };
    CHECK_THAT(packed([](Json& q) { q["quant_method"] = "bitsandbytes"; }),
               Contains("quant_method\" is \"bitsandbytes\", but must be one that is supported"));
    CHECK_THAT(packed([](Json& q) { q["format"] = "marlin"; }), Contains("\"pack-quantized\""));
    CHECK_THAT(packed([](Json& q) { q["ignore"] = {"re:.*mlp.*"}; }),
               Contains("has the pattern \"re:.*mlp.*\""));
    CHECK_THAT(packed([](Json& q) { q["config_groups"]["group_1"] = Json::object(); }),
               Contains("config_groups.group_1"));
    CHECK_THAT(packed([](Json& q) { q["kv_cache_scheme"] = Json::object(); }),
               Contains("quantised caches are not supported"));
    const auto group = [&](const auto& change) {
        return packed([&](Json& q) { change(q["config_groups"]["group_0"]); });
    };
    CHECK_THAT(group([](Json& g) { g["input_activations"] = Json::object(); }),
               Contains("quantised activations are not supported"));
    CHECK_THAT(group([](Json& g) { g["targets"] = {"Embedding"}; }), Contains("[\"Linear\"]"));
    CHECK_THAT(group([](Json& g) { g["weights"]["num_bits"] = 3; }), Contains("must be 4 or 8"));
    CHECK_THAT(group([](Json& g) { g["weights"]["symmetric"] = false; }),
               Contains("weight_zero_point' is missing"));
    CHECK_THAT(group([](Json& g) { g["weights"]["strategy"] = "token"; }),
               Contains("\"group\" or \"channel\""));
    CHECK_THAT(group([](Json& g) { g["weights"]["strategy"] = "channel"; }),
               Contains("group_size"));
    CHECK_THAT(group([](Json& g) { g["weights"]["group_size"] = 24; }),
               Contains("a power of two from 16"));
    CHECK_THAT(group([](Json& g) { g["weights"]["group_size"] = 64; }),
               Contains("no multiple of the group of 64"));
    CHECK_THAT(group([](Json& g) { g["weights"]["actorder"] = "group"; }),
               Contains("codes in another order"));
    CHECK_THAT(error_of_folder("llama_int4",
                               [](const fs::path& folder) {
                                   change_header(folder / "model.safetensors", [](Json& h) {
                                       h["model.layers.0.mlp.up_proj.weight_packed"]["dtype"] =
                                           "F32";
                                   });
                               }),
               Contains("packed codes are I32"));
    CHECK_THAT(config("ministral3", [](Json& c) { c.erase("rope_parameters"); }),
               Contains("\"rope_parameters\" is missing"));
    CHECK_THAT(
        config("ministral3", [](Json& c) { c["rope_parameters"]["llama_4_scaling_beta"] = "x"; }),
        Contains("llama_4_scaling_beta"));
    CHECK_THAT(config("llama", [](Json& c) { c["model_type"] = "mamba"; }),
               Contains("model_type \"mamba\" is not supported; supported are llama, mistral"));
}

TEST_CASE("how a folder's matrices are quantised is understood whole, or refused by name",
          "[models]") {
    const auto of = [](const char* name, const auto& change) {
        return error_of_folder(name, [&](const fs::path& folder) {
            change_json(folder / "config.json", [&](Json& c) { change(c["quantization_config"]); });
        });
    };
    CHECK_THAT(of("llama_gptq", [](Json& q) { q["bits"] = 3; }), Contains("must be 4 or 8"));
    CHECK_THAT(of("llama_gptq", [](Json& q) { q["desc_act"] = true; }),
               Contains("codes in another order"));
    CHECK_THAT(of("llama_gptq", [](Json& q) { q["checkpoint_format"] = "marlin"; }),
               Contains("checkpoint_format"));
    CHECK_THAT(of("llama_gptq", [](Json& q) { q["group_size"] = 32; }),
               Contains("qzeros' is [2, 4], but config.json asks for [1, 4]"));
    CHECK_THAT(of("llama_awq", [](Json& q) { q["version"] = "gemv"; }), Contains("\"gemm\""));
    CHECK_THAT(of("llama_awq", [](Json& q) { q["zero_point"] = false; }), Contains("zero_point"));
    CHECK_THAT(of("llama_fp8_blocks", [](Json& q) { q["weight_block_size"] = {8, 24}; }),
               Contains("blocks of 8 x 24"));
    CHECK_THAT(of("llama_fp8_blocks", [](Json& q) { q["fmt"] = "e5m2"; }), Contains("\"e4m3\""));
    CHECK_THAT(of("llama_fp8", [](Json& q) { q["format"] = "naive-quantized"; }),
               Contains("float-quantized"));
}

TEST_CASE("tensors of a quantised folder are there, of their types, and in their order",
          "[models]") {
    const auto header = [](const char* name, const auto& change) {
        return error_of_folder(name, [&](const fs::path& folder) {
            change_header(folder / "model.safetensors", change);
        });
    };
    const std::string gate = "model.layers.0.mlp.gate_proj.";
    CHECK_THAT(header("llama_gptq", [&](Json& h) { h[gate + "qweight"]["dtype"] = "F32"; }),
               Contains("is of type F32; supported there: I32"));
    CHECK_THAT(header("llama_awq",
                      [&](Json& h) {
                          h[gate + "zeros"] = h[gate + "qzeros"];
                          h.erase(gate + "qzeros");
                      }),
               Contains("'model.layers.0.mlp.gate_proj.qzeros' is missing"));
    CHECK_THAT(header("llama_awq",
                      [&](Json& h) {
                          h["more"] = h["lm_head.weight"];
                          h.erase("lm_head.weight");
                          h["lm_head.weight"] = h["model.embed_tokens.weight"];
                          h.erase("model.embed_tokens.weight");
                      }),
               Contains("'model.embed_tokens.weight' is missing"));
    const std::string zeros = gate + "weight_zero_point";
    CHECK_THAT(header("llama_int4_zeros", [&](Json& h) { h[zeros]["shape"] = {2, 4}; }),
               Contains("weight_zero_point' is [2, 4], but config.json asks for [4, 2]"));
    CHECK_THAT(header("llama_int4_zeros", [&](Json& h) { h[zeros]["dtype"] = "F32"; }),
               Contains("is of type F32; supported there: I32"));
    CHECK_THAT(error_of_folder("llama_gptq",
                               [](const fs::path& folder) {
                                   const fs::path file = folder / "model.safetensors";
                                   std::string bytes = bytes_of(file);
                                   const std::string name = "self_attn.q_proj.g_idx";
                                   REQUIRE(bytes.find(name) != std::string::npos);
                                   const auto read = models::read_safetensors(file.string());
                                   for (const auto& tensor : read.tensors)
                                       if (tensor.name.ends_with(name)) bytes[tensor.offset] = 1;
                                   write_bytes(file, bytes);
                               }),
               Contains("codes in another order than their groups"));
}

// Each byte of the header and of the index in turn takes some other value: a UserError or a model,
// nothing else.
TEST_CASE("damaged headers, indexes and configurations are refused or read, never worse",
          "[models]") {
    std::mt19937 random(23);
    const TemporaryFolder folder;
    int read = 0, refused = 0;
    for (const char* name : {"llama_sharded", "gemma3", "phi3_partial", "llama_gptq", "llama_fp8"})
        for (const fs::directory_entry& entry : fs::directory_iterator(family_folder(name))) {
            const fs::path copy = folder.path() / name;
            fs::remove_all(copy);
            fs::copy(family_folder(name), copy);
            const fs::path victim = copy / entry.path().filename();
            const std::string whole = bytes_of(victim);
            for (int i = 0; i < 150; ++i) {
                std::string bytes = whole;
                const size_t reach = std::min<size_t>(bytes.size(), 1500);
                for (auto n = random() % 3 + 1; n > 0; --n)
                    bytes[random() % reach] = "0123456789-{}[]\",:ae\0\x7f"[random() % 23];
                if (random() % 8 == 0) bytes.resize(random() % bytes.size());
                write_bytes(victim, bytes);
                try {
                    models::import_folder(copy.string());
                    ++read;
                } catch (const UserError&) {
                    ++refused;
                }
            }
        }
    CHECK(read > 0);
    CHECK(refused > 500);
}

}  // namespace cleave::test
