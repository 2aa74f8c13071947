// SPDX-License-Identifier: Apache-2.0
// What the files that turn a spec into a kernel share: the stub being written, and the parts of a
// Config that several kinds have. The templates define what each name means.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codegen/text/stub_writer.h"

namespace cleave::codegen {

struct HostStub {
    planner::KernelKind kind;
    const std::vector<std::string>& fused;
    const HostTarget& target;
    StubWriter writer;
    Launch launch;

    // InternalError when the launch needs more scratch than the tile claims.
    Kernel finish(std::string_view file, std::string_view call, std::string_view args_struct = {});
};

// Matrix products, in products.cpp.
Kernel make_product(const LinearSpec& s, HostStub stub);
Kernel make_product(const GateUpSpec& s, HostStub stub);
Kernel make_product(const QkvSpec& s, HostStub stub);

}  // namespace cleave::codegen
