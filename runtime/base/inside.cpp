// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/inside.h"

#include <system_error>

namespace cleave {

namespace {

bool is_below(const std::filesystem::path& folder, const std::filesystem::path& file) {
    const std::filesystem::path way = file.lexically_relative(folder);
    return !way.empty() && *way.begin() != "..";
}

}  // namespace

bool is_inside(const std::filesystem::path& folder, const std::filesystem::path& file) {
    std::error_code error;
    const std::filesystem::path root =
        std::filesystem::weakly_canonical(folder.empty() ? "." : folder, error);
    const std::filesystem::path real = std::filesystem::weakly_canonical(file, error);
    if (is_below(root, real)) return true;
    return root.parent_path().filename() == "snapshots" &&
           is_below(root.parent_path().parent_path() / "blobs", real);
}

}  // namespace cleave
