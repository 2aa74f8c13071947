// SPDX-License-Identifier: Apache-2.0
// One compilation by the in-process Clang: source text and the arguments of `clang -cc1` in, an
// object file or diagnostics out. A CompilerInstance per call: nothing is shared between threads.
#pragma once

#include <string>
#include <vector>

#include <clang/Basic/LangStandard.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringRef.h>
#include <llvm/Support/raw_ostream.h>

#include "codegen/compile/llvm/abi.h"

namespace cleave::llvm_backend {

// `name` is the source's file name in diagnostics. False with the reasons in `log`.
bool compile_object(llvm::StringRef source, llvm::StringRef name,
                    const std::vector<std::string>& args, clang::Language language,
                    llvm::SmallVectorImpl<char>& object, llvm::raw_ostream& log);

// Pieces of `text` between separators; empty ones are left out.
std::vector<std::string> split(const std::string& text, char separator);

// Copies into memory that cleave_llvm_free_result frees.
void hand_out(llvm::StringRef object, cleave_llvm_result* result);

}  // namespace cleave::llvm_backend
