// SPDX-License-Identifier: Apache-2.0
// Where objects of kernels become code: JITLink, with no symbol of this process in reach.
#pragma once

#include <memory>

#include <llvm/ExecutionEngine/Orc/LLJIT.h>

namespace cleave::llvm_backend {

llvm::Expected<std::unique_ptr<llvm::orc::LLJIT>> make_jit();

}  // namespace cleave::llvm_backend
