// SPDX-License-Identifier: Apache-2.0
// The files that this process has read for its user: a command must not replace one of them by what
// it writes, as in `cleave plan model.onnx -o model.onnx`. Safe from several threads.
#pragma once

#include <filesystem>

namespace cleave {

// Called by whatever reads such files; what is named and not read, as weights that are planned
// only, is told by who knows of it.
void note_input(const std::filesystem::path& file);

// Whether a new file of this name would take the place of an input: of what it leads to, or of a
// link that was followed to it.
bool is_input(const std::filesystem::path& file);

}  // namespace cleave
