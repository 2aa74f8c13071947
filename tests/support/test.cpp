// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test.h"

#include <cstdlib>
#include <stdexcept>

namespace cleave::test {

namespace fs = std::filesystem;

fs::path source_root() { return CLEAVE_SOURCE_DIR; }

fs::path shared_data() {
    fs::path data = source_root() / ".." / "shared" / "data";
    return fs::exists(data / "models") ? data : fs::path();
}

namespace {
bool skipped = false;
}

void note_skip() { skipped = true; }
bool was_skipped() { return skipped; }

TemporaryFolder::TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "cleave-test-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("cannot make a temporary folder " + name);
    path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

}  // namespace cleave::test
