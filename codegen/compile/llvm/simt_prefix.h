// SPDX-License-Identifier: Apache-2.0
// Text that opens many sources, parsed once: Clang's precompiled headers, made and kept in memory.
// In: the text, and the arguments of the compilation; out: the bytes that a later compilation with
// the same arguments loads instead of parsing. Code and diagnostics are the same with and without.
// Thread-safe; at most kMostPrefixes are kept.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <clang/Frontend/CompilerInstance.h>

namespace cleave::llvm_backend {

inline constexpr size_t kMostPrefixes = 64;  // about 0.4 MB each: those of a few architectures

using PrecompiledPrefix = std::shared_ptr<const std::string>;

// Null where parsing is as good: at the first use, while another thread makes it, or when it does
// not compile, which the source's own compilation then reports.
PrecompiledPrefix precompile_prefix(const std::string& text, const std::vector<std::string>& args);

// Makes `instance` open its source with the prefix, which must outlive it, if there is one. It
// reads no files either way.
void use_prefix(clang::CompilerInstance& instance, const PrecompiledPrefix& prefix);

// The `#line` mark that gives the text after `prefix` the place that it has behind it.
std::string line_after(llvm::StringRef prefix, llvm::StringRef file);

}  // namespace cleave::llvm_backend
