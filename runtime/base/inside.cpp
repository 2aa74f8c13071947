// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/inside.h"

#include "runtime/base/path_state.h"

namespace cleave {

namespace {

bool is_below(const std::filesystem::path& folder, const std::filesystem::path& file) {
    const std::filesystem::path way = file.lexically_relative(folder);
    return !way.empty() && *way.begin() != "..";
}

}  // namespace

bool is_inside(const std::filesystem::path& folder, const std::filesystem::path& file) {
    const std::filesystem::path root = real_path(folder.empty() ? "." : folder);
    const std::filesystem::path real = real_path(file);
    if (is_below(root, real)) return true;
    return root.parent_path().filename() == "snapshots" &&
           is_below(root.parent_path().parent_path() / "blobs", real);
}

}  // namespace cleave
