// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/inputs.h"

#include <mutex>
#include <set>

#include "runtime/base/path_state.h"

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
    return real_path(file.has_parent_path() ? file.parent_path() : ".") / file.filename();
}

}  // namespace

void note_input(const fs::path& file) {
    const fs::path name = own_name(file), real = real_path(file);
    Inputs& all = inputs();
    const std::lock_guard lock(all.mutex);
    all.names.insert(name);
    all.names.insert(real);
}

bool is_input(const fs::path& file) {
    const fs::path name = own_name(file);
    Inputs& all = inputs();
    const std::lock_guard lock(all.mutex);
    return all.names.contains(name);
}

}  // namespace cleave
