// SPDX-License-Identifier: Apache-2.0
// A config.json of somebody else: fields that are missing, of another type, or of no model's size.
#include "models/shapes.h"

#include <fstream>
#include <limits>
#include <string>

#include <nlohmann/json.hpp>

#include "importer/graph/graph.h"
#include "models/convert.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using Json = nlohmann::json;

const Json kConfig{
    {"model_type", "llama"},    {"vocab_size", 512},      {"hidden_size", 64},
    {"intermediate_size", 172}, {"num_hidden_layers", 5}, {"num_attention_heads", 8},
    {"num_key_value_heads", 4}, {"head_dim", 8},          {"max_position_embeddings", 512}};

std::string error_with(const char* field, const Json& value) {
    const TemporaryFolder folder;
    const auto path = folder.path() / "config.json";
    Json json = kConfig;
    json[field] = value;
    std::ofstream(path) << json.dump();
    return user_error([&] { models::shape_from_config(path.string()); });
}

}  // namespace

TEST_CASE("a size of config.json that is null, absurd or no integer is refused by its name",
          "[models]") {
    for (const char* field : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                              "num_attention_heads"})
        CHECK_THAT(error_with(field, nullptr),
                   Catch::Contains(fmt::format("field \"{}\" is missing", field)));
    for (const auto& [field, most] : {std::pair{"num_hidden_layers", 4096},
                                      {"head_dim", 65536},
                                      {"num_attention_heads", 65536},
                                      {"hidden_size", 1048576}})
        for (const Json& value : {Json(0), Json(-1), Json(int64_t{most} + 1), Json(1.5), Json("8"),
                                  Json(Json::array()), Json(std::numeric_limits<int64_t>::max()),
                                  Json(std::numeric_limits<uint64_t>::max())})
            CHECK_THAT(error_with(field, value),
                       Catch::Contains(fmt::format("field \"{}\" is {}, but must be an integer "
                                                   "from 1 to {}",
                                                   field, value.dump(), most)));
}

TEST_CASE("the texts' part of a model of pictures and texts is the model of its name", "[models]") {
    // What Gemma 3 4B's own file states; it leaves the heads and the vocabulary to defaults.
    const Json text{{"model_type", "gemma3_text"},
                    {"hidden_size", 2560},
                    {"intermediate_size", 10240},
                    {"num_hidden_layers", 34},
                    {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                    {"sliding_window", 1024}};
    const Json json{{"model_type", "gemma3"},
                    {"architectures", {"Gemma3ForConditionalGeneration"}},
                    {"mm_tokens_per_image", 256},
                    {"text_config", text},
                    {"vision_config", {{"model_type", "siglip_vision_model"}}}};
    const models::Shape read = models::shape_from_json(json, "config.json");
    const models::Shape named = *models::find_shape("gemma-3-4b");
    CHECK(importer::to_text(models::graph_of_shape(read, DType::kBF16)) == importer::to_text([&] {
              importer::Graph graph = models::graph_of_shape(named, DType::kBF16);
              graph.name = read.name;
              return graph;
          }()));
    Json without = json;
    without.erase("text_config");
    CHECK_THAT(user_error([&] { models::shape_from_json(without, "config.json"); }),
               Catch::Contains("without an object \"text_config\""));
}

TEST_CASE("letters say which layers have windows", "[models]") {
    Json json = kConfig;
    json["model_type"] = "exaone4";
    json["sliding_window"] = 16;
    json["sliding_window_pattern"] = "LLG";
    const models::Shape shape = models::shape_from_json(json, "config.json");
    REQUIRE(shape.layers.size() == 5);
    for (size_t i = 0; i < 5; ++i) CHECK(shape.layers[i].window == (i % 3 == 2 ? 0 : 16));
    json["sliding_window_pattern"] = "LXG";
    CHECK_THAT(user_error([&] { models::shape_from_json(json, "config.json"); }),
               Catch::Contains("a number or letters L and G"));
}

}  // namespace cleave::test
