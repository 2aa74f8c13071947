// SPDX-License-Identifier: Apache-2.0
// JSON files of the product's own and of models: machines, cost graphs, configurations, tokens.
#include "models/shapes.h"
#include "planner/cost_graph/cost_graph.h"
#include "planner/machine/machine_file.h"
#include "runtime/text/generation_config.h"
#include "runtime/text/tokenizer_config.h"
#include "tests/fuzz/harness.h"
#include "tools/cli/context_limit.h"

void cleave::fuzz::run_input(std::string_view bytes) {
    const std::filesystem::path config = write_file(bytes, "config.json");
    for (const char* name : {"generation_config.json", "genai_config.json", "tokenizer_config.json",
                             "special_tokens_map.json", "added_tokens.json"})
        write_file(bytes, name);
    try_to([&] { planner::parse_machine(std::string(bytes), "machine.json"); });
    try_to([&] { planner::load_cost_graph(config.string()); });
    try_to([&] { models::shape_from_config(config.string()); });
    try_to([&] { runtime::load_generation_config(config.parent_path()); });
    try_to([&] { runtime::load_tokenizer_config(config.parent_path()); });
    try_to([&] { tools::context_limit({}, config.parent_path()); });
}
