// SPDX-License-Identifier: Apache-2.0
// Answers of a schema and calls of tools, asked for by OpenAI's own package.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/test.h"
#include "tests/tools/serve/serve_process.h"

using namespace cleave::test;
namespace fs = std::filesystem;

namespace {

// Llama 3's, in short: tools before the first user's text, calls as the model writes them.
const std::string kTemplate =
    "{{ bos_token }}{% if tools %}{{ '<|user|>Tools: ' }}{% for t in tools %}{{ t | tojson }}"
    "{% endfor %}{% endif %}{% for m in messages %}{% if m.tool_calls %}{% set c = "
    "m.tool_calls[0].function %}{{ '<|assistant|>{\"name\": \"' + c.name + '\", \"parameters\": ' "
    "}}{{ c.arguments | tojson }}{{ '}' + eos_token }}{% else %}{{ '<|' + ('assistant' if m.role "
    "== "
    "'assistant' else 'user') + '|>' + m.content }}{% endif %}{% endfor %}{% if "
    "add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";

// The bundled tokenizer with that template, beside a model.
void add_tokenizer(const fs::path& folder) {
    const fs::path bundled = bundled_model().parent_path();
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
        fs::copy_file(bundled / name, folder / name, fs::copy_options::overwrite_existing);
    std::ofstream(folder / "chat_template.jinja") << kTemplate;
}

}  // namespace

TEST_CASE("OpenAI's own package has answers of its schemas and calls of its tools, of any model",
          "[tools][serve]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP("CLEAVE_TEST_PYTHON names no Python (tools/test sets it)");
    const bool is_random = GENERATE(false, true);
    const TemporaryFolder folder;
    std::string model = bundled_model().string();
    if (is_random) {
        const std::string config = (bundled_model().parent_path() / "config.json").string();
        const CommandResult made = run_cleave(
            {"model", config, "-o", folder.path().string(), "--seed", "7", "--dtype", "f32"});
        REQUIRE(made.exit_code == 0);
        model = (folder.path() / "model.onnx").string();
    }
    add_tokenizer(folder.path());
    const ServeProcess server(
        "host", {"--name", "m", "--context", "512", "--tokenizer", folder.path().string()}, model);
    const CommandResult client =
        run_program({"env", "PYTHONDONTWRITEBYTECODE=1", python,
                     (source_root() / "tests/tools/serve/structured_client.py").string(),
                     std::to_string(server.port()), "m"});
    INFO(client.error);
    CHECK(client.output.empty());
    CHECK(client.exit_code == 0);
}
