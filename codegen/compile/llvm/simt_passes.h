// SPDX-License-Identifier: Apache-2.0
// GPU source to an object for the CPU, step by step; `simt_compile.cpp` lists the steps in order.
// Each takes the module of one kernel. Invariants: the calls `cleave_simt_*` of the source stay as
// they are; a checked access is preceded by one call that gets its address, its size and alignment,
// and its place in the source.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include "codegen/compile/llvm/simt_abi.h"

namespace cleave::llvm_backend {

// Where the prelude puts variables of shared memory.
inline constexpr const char* kSharedSection = "cleave_shared";
inline constexpr uint32_t kSharedGap =
    32;  // bytes between static variables, where no access is right

// void* (u32 offset, u32 bytes): a variable of shared memory; 0 bytes: the dynamic part, whose
// length the launch says.
inline constexpr const char* kSharedAddress = "cleave_simt_shared";

struct SharedLayout {
    struct Variable {
        std::string name;
        uint32_t offset = 0, bytes = 0;
    };
    std::vector<Variable> variables;
    uint32_t dynamic_offset = 0;
    uint32_t shared_bytes = 0;
};

// Calls of the checker are most of what a checked kernel does: what it is compiled to matters less
// than how soon. With them, loops stay rolled and registers are given out in one pass: half the
// time to compile, a third more to run.
inline bool is_quick(const cleave_llvm_simt_options& options) {
    return options.optimization == 1 && options.checks;
}

// Parses the source as C++ for this machine's CPU. Null with diagnostics in `log`.
std::unique_ptr<llvm::Module> parse_simt(llvm::StringRef source, llvm::StringRef name,
                                         const cleave_llvm_simt_options& options,
                                         llvm::LLVMContext& context, llvm::raw_ostream& log);

// Turns variables of shared memory into calls of kSharedAddress, with gaps between their places.
SharedLayout lower_shared(llvm::Module& module);

// Before private arrays become registers: compares each variable index into one with its length.
void check_private_arrays(llvm::Module& module);

// After optimisation: a call before every other access. Returns the narrowest access that may be to
// shared memory.
uint32_t check_accesses(llvm::Module& module);

// Writes `ENTRY.simt` and the function behind its `run`, and hides everything else.
void add_record(llvm::Module& module, llvm::Function& kernel, const SharedLayout& shared,
                uint32_t cell_bytes, const cleave_llvm_simt_options& options);

// The place of an instruction, as a constant of type SimtSite.
llvm::Constant* site_of(llvm::Module& module, const llvm::Instruction& instruction);

}  // namespace cleave::llvm_backend
