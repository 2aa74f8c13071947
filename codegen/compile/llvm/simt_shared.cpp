// SPDX-License-Identifier: Apache-2.0
#include <map>

#include <llvm/Demangle/Demangle.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/ReplaceConstant.h>

#include "codegen/compile/llvm/simt_passes.h"
#include "runtime/base/rounding.h"

namespace cleave::llvm_backend {

namespace {

using namespace llvm;

constexpr uint32_t kFirstOffset =
    64;  // a negative index into the first variable stays inside the arena

// A variable's address in the block's shared memory: the same for a thread's whole life, hence free
// to be merged. The call stays the one object behind every address derived from it, so that checks
// know the variable's bounds.
FunctionCallee shared_address(Module& module) {
    auto* i32 = Type::getInt32Ty(module.getContext());
    FunctionCallee callee = module.getOrInsertFunction(
        kSharedAddress, PointerType::get(module.getContext(), 0), i32, i32);
    auto* function = cast<Function>(callee.getCallee());
    function->setDoesNotAccessMemory();
    function->setDoesNotThrow();
    function->addFnAttr(Attribute::WillReturn);
    return callee;
}

SharedLayout place(const Module& module, ArrayRef<GlobalVariable*> variables,
                   std::map<GlobalVariable*, uint32_t>& offsets) {
    SharedLayout layout;
    uint32_t next = kFirstOffset;
    for (GlobalVariable* variable : variables) {
        if (variable->isDeclaration()) continue;  // the dynamic part
        auto bytes = static_cast<uint32_t>(
            module.getDataLayout().getTypeAllocSize(variable->getValueType()));
        uint32_t align = std::max<uint32_t>(
            16, static_cast<uint32_t>(variable->getAlign().valueOrOne().value()));
        offsets[variable] = next = round_up(next, align);
        layout.variables.push_back({demangle(variable->getName()), next, bytes});
        layout.shared_bytes = round_up(layout.shared_bytes, 16) + bytes;
        next += bytes + kSharedGap;
    }
    layout.dynamic_offset = round_up(next, 128);
    for (GlobalVariable* variable : variables)
        if (variable->isDeclaration()) offsets[variable] = layout.dynamic_offset;
    return layout;
}

}  // namespace

SharedLayout lower_shared(Module& module) {
    SmallVector<GlobalVariable*, 16> variables;
    for (GlobalVariable& variable : module.globals())
        if (variable.getSection() == kSharedSection && !variable.use_empty())
            variables.push_back(&variable);
    std::map<GlobalVariable*, uint32_t> offsets;
    SharedLayout layout = place(module, variables, offsets);

    SmallVector<Constant*, 16> constants(variables.begin(), variables.end());
    convertUsersOfConstantsToInstructions(constants);
    FunctionCallee address_of = shared_address(module);
    for (GlobalVariable* variable : variables) {
        std::map<Function*, Instruction*> addresses;  // one call a function
        uint64_t bytes = 0;
        if (!variable->isDeclaration())
            bytes = module.getDataLayout().getTypeAllocSize(variable->getValueType());
        SmallVector<Use*, 32> uses;
        for (Use& use : variable->uses()) uses.push_back(&use);
        for (Use* use : uses) {
            auto* user = cast<Instruction>(use->getUser());
            Instruction*& address = addresses[user->getFunction()];
            if (!address) {
                IRBuilder<> entry(&*user->getFunction()->getEntryBlock().getFirstInsertionPt());
                address =
                    entry.CreateCall(address_of, {entry.getInt32(offsets[variable]),
                                                  entry.getInt32(static_cast<uint32_t>(bytes))});
            }
            use->set(address);
        }
    }
    for (GlobalVariable* variable : variables) variable->eraseFromParent();
    return layout;
}

}  // namespace cleave::llvm_backend
