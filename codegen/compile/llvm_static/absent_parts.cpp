// SPDX-License-Identifier: Apache-2.0
// What a statically linked libcleave_llvm leaves out of LLVM: targets that Cleave makes no code
// for, which lld and Clang would initialise with all others, and Polly. Each is an empty function,
// so that its archives are not linked.
#include <llvm/Passes/PassPlugin.h>

#define CLEAVE_ABSENT_TARGETS(X) \
    X(AArch64)                   \
    X(ARM)                       \
    X(AVR)                       \
    X(BPF)                       \
    X(Hexagon)                   \
    X(Lanai)                     \
    X(LoongArch)                 \
    X(M68k)                      \
    X(MSP430)                    \
    X(Mips)                      \
    X(NVPTX)                     \
    X(PowerPC)                   \
    X(RISCV)                     \
    X(Sparc)                     \
    X(SystemZ)                   \
    X(VE)                        \
    X(WebAssembly)               \
    X(XCore)                     \
    X(Xtensa)

#define CLEAVE_ABSENT(target)                      \
    void LLVMInitialize##target##TargetInfo() {}   \
    void LLVMInitialize##target##Target() {}       \
    void LLVMInitialize##target##TargetMC() {}     \
    void LLVMInitialize##target##AsmPrinter() {}   \
    void LLVMInitialize##target##AsmParser() {}    \
    void LLVMInitialize##target##Disassembler() {} \
    void LLVMInitialize##target##TargetMCA() {}

extern "C" {
CLEAVE_ABSENT_TARGETS(CLEAVE_ABSENT)
}

// LLVM's name.
// NOLINTNEXTLINE(readability-identifier-naming)
llvm::PassPluginLibraryInfo getPollyPluginInfo() {
    return {LLVM_PLUGIN_API_VERSION, "Polly", "absent", [](llvm::PassBuilder&) {}};
}
