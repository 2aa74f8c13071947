// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/inputs.h"

#include <mutex>
#include <set>
#include <system_error>

namespace cleave {

namespace {

namespace fs = std::filesystem;

struct Inputs {
    std::mutex mutex;
    std::set<fs::path> names;
};

Inputs& inputs() {
    static Inputs& kept = *new Inputs;  // never destroyed: threads may outlive main
    return kept;
}

// A name in its folder, whose own links are followed; the name itself may be a link.
fs::path own_name(const fs::path& file) {
    std::error_code error;
    const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
    return fs::weakly_canonical(folder, error) / file.filename();
}

}  // namespace

void note_input(const fs::path& file) {
    std::error_code error;
    const fs::path name = own_name(file), real = fs::weakly_canonical(file, error);
    Inputs& all = inputs();
    const std::lock_guard lock(all.mutex);
    all.names.insert(name);
    if (!error) all.names.insert(real);
}

bool is_input(const fs::path& file) {
    const fs::path name = own_name(file);
    Inputs& all = inputs();
    const std::lock_guard lock(all.mutex);
    return all.names.contains(name);
}

}  // namespace cleave
