// SPDX-License-Identifier: Apache-2.0
// lm-eval's local-completions at `cleave serve`. It brings 70 packages (760 MB), so it is no part
// of what tools/setup installs; where it is, CLEAVE_PEERS_PYTHON names its Python:
//
//   python3 -m venv peers && peers/bin/pip install 'lm-eval[api]'
//   CLEAVE_PEERS_PYTHON=$PWD/peers/bin/python build/bin/cleave_test_tools "*lm-eval*"
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>

#include "tests/support/command.h"
#include "tests/support/test.h"
#include "tests/tools/serve/serve_process.h"

using namespace cleave::test;
using Json = nlohmann::json;

TEST_CASE("lm-eval has the score of a text that cleave run --score has", "[tools][serve]") {
    const char* python = std::getenv("CLEAVE_PEERS_PYTHON");
    if (!python || run_program({python, "-c", "import lm_eval, aiohttp"}).exit_code != 0)
        CLEAVE_SKIP("CLEAVE_PEERS_PYTHON names no Python with lm-eval[api]");
    const TemporaryFolder folder;
    const std::vector<std::string> texts{
        "Once upon a time, there was a little dog called Spot. He liked to run in the park.",
        "The cat sat on the mat. \"Where is my ball?\" asked Tim.\n\"It is here,\" said Mia.",
        "\xc3\x9c"
        "bung macht den Meister"};
    double nll = 0;
    size_t bytes = 0;
    std::map<std::string, double> expected;
    {
        std::ofstream lines(folder.path() / "texts.jsonl");
        for (const std::string& text : texts) {
            lines << Json{{"text", text}}.dump() << "\n";
            const std::string path = (folder.path() / "text").string();
            std::ofstream(path) << text;
            const CommandResult score =
                run_cleave({"run", bundled_model().string(), "--devices", "host", "--context",
                            "256", "--score", path, "--json"});
            REQUIRE(score.exit_code == 0);
            const Json told = Json::parse(score.output);
            expected[text] = told["nll"].get<double>() * told["tokens"].get<double>();
            nll += expected[text];
            bytes += text.size();
        }
    }
    const ServeProcess server("host", {"--api-key", "secret"});
    const CommandResult client =
        run_program({"env", "PYTHONDONTWRITEBYTECODE=1", python,
                     (source_root() / "tests/tools/serve/lm_eval_client.py").string(),
                     std::to_string(server.port()), "secret", "0", folder.path().string()});
    INFO(client.error);
    REQUIRE(client.exit_code == 0);
    const Json told = Json::parse(client.output);
    for (const auto& [text, value] : expected) {
        INFO(text);
        CHECK(told["nll"][text].get<double>() == Approx(value).margin(1e-3));
    }
    CHECK(told["bits_per_byte"].get<double>() ==
          Approx(nll / std::log(2) / static_cast<double>(bytes)).margin(1e-5));
}
