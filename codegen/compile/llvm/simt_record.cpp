// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <llvm/IR/Constants.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>

#include "codegen/compile/llvm/simt_passes.h"
#include "codegen/compile/llvm/simt_record.h"

namespace cleave::llvm_backend {

namespace {

using namespace llvm;

// Frames of calls, spilled registers, and the engine's own functions, which run on the same stack.
constexpr uint64_t kStackBeyondArrays = 24 * 1024;

// void run(const uint64_t* args): one word an argument, narrowed to the parameter's type.
Function* add_run(Module& module, Function& kernel) {
    LLVMContext& context = module.getContext();
    auto* type = FunctionType::get(Type::getVoidTy(context), {PointerType::get(context, 0)}, false);
    auto* run =
        Function::Create(type, GlobalValue::InternalLinkage, kernel.getName() + ".run", module);
    IRBuilder<> builder(BasicBlock::Create(context, "", run));
    SmallVector<Value*, 16> values;
    for (Argument& argument : kernel.args()) {
        Value* place =
            builder.CreateConstGEP1_64(builder.getInt64Ty(), run->getArg(0), argument.getArgNo());
        Value* word = builder.CreateLoad(builder.getInt64Ty(), place);
        values.push_back(argument.getType()->isPointerTy()
                             ? builder.CreateIntToPtr(word, argument.getType())
                             : builder.CreateTrunc(word, argument.getType()));
    }
    builder.CreateCall(&kernel, values);
    builder.CreateRetVoid();
    return run;
}

GlobalVariable* add_array(Module& module, ArrayRef<Constant*> elements, const char* name) {
    if (elements.empty()) return nullptr;
    auto* type = ArrayType::get(elements[0]->getType(), elements.size());
    return new GlobalVariable(module, type, true, GlobalValue::PrivateLinkage,
                              ConstantArray::get(type, elements), name);
}

Constant* add_text(Module& module, StringRef text) {
    Constant* bytes = ConstantDataArray::getString(module.getContext(), text);
    return new GlobalVariable(module, bytes->getType(), true, GlobalValue::PrivateLinkage, bytes,
                              "text");
}

// Private arrays; where registers are given out in one pass, also a place for every value.
uint64_t private_bytes(const Module& module, bool spills_all) {
    const DataLayout& layout = module.getDataLayout();
    uint64_t bytes = 0;
    for (const Function& function : module)
        for (const Instruction& instruction : instructions(function)) {
            Type* type = instruction.getType();
            if (auto* object = dyn_cast<AllocaInst>(&instruction)) {
                if (auto size = object->getAllocationSize(layout)) bytes += size->getFixedValue();
            } else if (spills_all && type->isSized()) {
                bytes += std::max<uint64_t>(8, layout.getTypeAllocSize(type).getFixedValue());
            }
        }
    return bytes;
}

}  // namespace

void add_record(Module& module, Function& kernel, const SharedLayout& shared, uint32_t cell_bytes,
                const cleave_llvm_simt_options& options) {
    LLVMContext& context = module.getContext();
    auto* i32 = Type::getInt32Ty(context);
    auto word = [&](uint64_t value) { return ConstantInt::get(i32, value); };
    auto or_null = [&](Constant* array) {
        return array ? array : ConstantPointerNull::get(PointerType::get(context, 0));
    };
    SmallVector<Constant*, 16> constants, variables;
    for (GlobalVariable& global : module.globals()) {
        if (!global.isConstant() || global.isDeclaration() || global.getName().starts_with("site."))
            continue;
        uint64_t bytes = module.getDataLayout().getTypeAllocSize(global.getValueType());
        constants.push_back(
            ConstantStruct::getAnon({&global, ConstantInt::get(Type::getInt64Ty(context), bytes)}));
    }
    for (const SharedLayout::Variable& variable : shared.variables)
        variables.push_back(ConstantStruct::getAnon(
            {add_text(module, variable.name), word(variable.offset), word(variable.bytes)}));

    Constant* fields[] = {word(codegen::kSimtRecordVersion),
                          word(static_cast<uint64_t>(options.warp_width)),
                          word(kernel.arg_size()),
                          word(options.checks ? 1 : 0),
                          word(shared.dynamic_offset),
                          word(shared.shared_bytes),
                          word(cell_bytes),
                          word(private_bytes(module, is_quick(options)) + kStackBeyondArrays),
                          word(variables.size()),
                          word(constants.size()),
                          or_null(add_array(module, variables, "variables")),
                          or_null(add_array(module, constants, "constants")),
                          add_run(module, kernel),
                          add_text(module, kernel.getName())};
    Constant* record = ConstantStruct::getAnon(fields);
    new GlobalVariable(module, record->getType(), true, GlobalValue::ExternalLinkage, record,
                       kernel.getName() + ".simt");
}

}  // namespace cleave::llvm_backend
