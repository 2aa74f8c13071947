// SPDX-License-Identifier: Apache-2.0
// Counts how deep the evaluator's recursion is, so that a macro that calls itself is an error and
// not the end of the stack.
#pragma once

#include "runtime/text/jinja/budget.h"
#include "runtime/text/jinja/evaluator.h"

namespace cleave::runtime::jinja {

class Evaluator::Nesting {
public:
    explicit Nesting(Evaluator& evaluator, int line) : evaluator_(evaluator) {
        constexpr int kMaxDepth = 1500;
        if (evaluator_.depth_ >= kMaxDepth)
            throw TemplateError("the template calls itself too often", line);
        spend(Budget::kNode);
        ++evaluator_.depth_;
    }
    ~Nesting() { --evaluator_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

private:
    Evaluator& evaluator_;
};

}  // namespace cleave::runtime::jinja
