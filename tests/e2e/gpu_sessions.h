// SPDX-License-Identifier: Apache-2.0
// What tests of sessions on the fakes of both vendors' drivers share: what each calls the same
// thing, and a small model's run.
#pragma once

#include <functional>
#include <vector>

#include "tests/e2e/support.h"

namespace cleave::test {

struct GpuCalls {
    planner::DeviceKind kind;
    DeviceShape one, two, logical;
    const char *launch, *graph, *in, *out, *event;
    std::vector<const char*> all;  // that may fail
};
extern const GpuCalls kBothVendors[2];

// The small model of all these tests.
const importer::Graph& small_model();

// A session that runs a prompt and so many tokens; `at_token` is called with each.
void run_model(const DeviceShape& shape, const runtime::SessionOptions& options, int64_t new_tokens,
               const std::function<void(int)>& at_token = {});

}  // namespace cleave::test
