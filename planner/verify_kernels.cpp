// SPDX-License-Identifier: Apache-2.0
// Which operators, in which order, each kind of kernel computes.
#include <array>
#include <string_view>

#include "planner/verify_walk.h"

namespace cleave::planner::verify {
namespace {

using importer::OpKind;

// One letter an operator.
char letter(OpKind kind) {
    static constexpr std::string_view kLetters = "ENLRKTGASMOX";
    return kLetters[static_cast<size_t>(kind)];
}

// Letters in order; those in brackets may be absent, all or none.
constexpr std::array<std::string_view, 15> kPatterns{"E",      "[N]LLL[NN][RR]K",
                                                     "T",      "L[S][A]",
                                                     "[N]LLG", "[M][N]L[S]",
                                                     "N",      "R",
                                                     "K",      "G",
                                                     "A",      "S",
                                                     "M",      "O",
                                                     "X"};

// No pattern needs a second try: what a bracket opens with never stands right after it.
bool matches(std::string_view pattern, std::string_view text) {
    while (!pattern.empty()) {
        const bool optional = pattern[0] == '[';
        std::string_view part =
            optional ? pattern.substr(1, pattern.find(']') - 1) : pattern.substr(0, 1);
        pattern.remove_prefix(optional ? part.size() + 2 : 1);
        if (text.substr(0, part.size()) == part)
            text.remove_prefix(part.size());
        else if (!optional)
            return false;
    }
    return text.empty();
}

}  // namespace

bool kernel_fits(const Graph& graph, const Compute& compute) {
    std::string letters;
    for (OpId id : compute.ops) letters += letter(graph.op(id).kind);
    return matches(kPatterns[static_cast<size_t>(compute.kernel)], letters);
}

}  // namespace cleave::planner::verify
