// SPDX-License-Identifier: Apache-2.0
// The passes that goldens are of. In: the text of a case, in the notation of
// tests/support/notation.h, but for `recovery`, which takes ONNX's own. Out: what the pass made, as
// text.
//
// A case of the planner is, in any order and all optional: `model` (models::Shape, of a small Llama
// where nothing is said) or a whole `graph`; `devices LIST`; `workload`; a `place` for each stage
// (planner::StageChoice; one stage over all devices where there is none); `case`, what to show of
// the output: phases, operators from `first` to `last`, arenas. Passes before the one that is asked
// for are run, but for those whose result the text gives: `prefill` and `decode` with their steps.
#pragma once

#include <string>
#include <vector>

namespace cleave::test {

struct Pass {
    std::string name;  // of the folder with its cases
    std::string (*run)(const std::string& text, const std::string& origin);
};
const std::vector<Pass>& passes();

}  // namespace cleave::test
