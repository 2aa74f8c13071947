// SPDX-License-Identifier: Apache-2.0
#include "tests/simt/support.h"

#include "codegen/templates.h"

namespace cleave::simt_test {

std::string with_prelude(const std::string& body) {
    return codegen::flatten_template("gpu/prelude.cuh") + "namespace cleave {\n#line 1 \"test.cu\"\n" + body + "\n}\n";
}

simt::SimtReport run(const simt::SimtProgram& program, const std::vector<uint64_t>& args, const Shape& shape,
                     const simt::LaunchOptions& options) {
    return simt::launch(program, args, {shape.blocks, 1, 1}, {shape.threads, 1, 1}, shape.dynamic_bytes, options);
}

}  // namespace cleave::simt_test
