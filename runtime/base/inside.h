// SPDX-License-Identifier: Apache-2.0
// Whether a file that a model's folder names is the folder's own, links followed. Those of Hugging
// Face's cache are: models--X/snapshots/REVISION has links into models--X/blobs.
#pragma once

#include <filesystem>

namespace cleave {

bool is_inside(const std::filesystem::path& folder, const std::filesystem::path& file);

}  // namespace cleave
