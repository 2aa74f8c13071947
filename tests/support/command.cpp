// SPDX-License-Identifier: Apache-2.0
#include "tests/support/command.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <sys/wait.h>

#include "tests/support/test.h"

namespace cleave::test {
namespace {

// 'text' for the shell, whatever is in it.
std::string quoted(const std::string& text) {
    std::string out = "'";
    for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

CommandResult run_program(const std::vector<std::string>& arguments) {
    TemporaryFolder folder;
    // What the user has measured on this machine must not change what tests see.
    std::string line = "XDG_CONFIG_HOME=" + quoted((folder.path() / "config").string());
    for (const std::string& a : arguments) line += " " + quoted(a);
    line += " >" + quoted((folder.path() / "out").string()) + " 2>" +
            quoted((folder.path() / "err").string()) + " </dev/null";
    int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            read_file(folder.path() / "out"), read_file(folder.path() / "err")};
}

std::vector<std::string> joined(std::vector<std::string> first,
                                const std::vector<std::string>& others) {
    first.insert(first.end(), others.begin(), others.end());
    return first;
}

CommandResult run_cleave(const std::vector<std::string>& arguments) {
    return run_program(joined({CLEAVE_BINARY}, arguments));
}

std::filesystem::path bundled_model() {
    return source_root() / "models" / "bundled" / "model.onnx";
}

}  // namespace cleave::test
