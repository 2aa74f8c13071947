// SPDX-License-Identifier: Apache-2.0
// Published speeds beside predictions (tools/lib/published.py).
#include <filesystem>
#include <fstream>

#include "tests/support/command.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using Catch::Matchers::Contains;
namespace fs = std::filesystem;

CommandResult published(const std::string& rows) {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "rows.csv";
    std::ofstream(path) << "class,model,dtype,device,n,tp,pp,batch,prompt,context,metric,"
                           "published value,unit,source,cleave command\n"
                        << rows;
    return run_program({"python3", (source_root() / "tools/lib/published.py").string(),
                        path.string(), "--cleave", std::string(CLEAVE_BUILD_DIR) + "/bin/cleave"});
}

std::string decode_row(const std::string& speed, const std::string& device = "sim:h100[0]") {
    return "decode b1 1 GPU,llama-3-8b,bf16,h100,1,1,1,1,512,4096,decode," + speed +
           ",tok/s,a test,cleave plan llama-3-8b --devices '" + device +
           "' --batch 1 --prompt-tokens 512 --context 4096 --tp 1 --pp 1\n";
}

}  // namespace

TEST_CASE("a class of published speeds outside its bounds fails, and no row is passed over unseen",
          "[tools]") {
    const CommandResult inside = published(decode_row("145"));
    INFO(inside.output << inside.error);
    CHECK(inside.exit_code == 0);
    CHECK_THAT(inside.output, Contains("145 tok/s published") && !Contains("OUTSIDE"));
    const CommandResult outside = published(decode_row("30"));
    CHECK(outside.exit_code == 1);
    CHECK_THAT(outside.output, Contains("OUTSIDE"));
    const CommandResult refused = published(decode_row("145") + decode_row("145", "sim:nothing"));
    CHECK_THAT(refused.output,
               Contains("the catalogue has no model 'nothing'") && Contains("1 not predicted"));
}

}  // namespace cleave::test
