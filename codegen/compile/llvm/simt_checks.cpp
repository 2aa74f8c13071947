// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DebugInfoMetadata.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>

#include "codegen/compile/llvm/simt_passes.h"

namespace cleave::llvm_backend {

namespace {

using namespace llvm;

struct Access {
    Instruction* instruction;
    Value* address;
    Value* bytes;  // i64: the size, and in the upper half the alignment that the access relies on
    bool write;
    uint64_t narrow;  // the access's own granularity
};

void collect(Instruction& instruction, const DataLayout& layout, SmallVectorImpl<Access>& out) {
    auto* i64 = Type::getInt64Ty(instruction.getContext());
    auto add = [&](Value* address, Type* type, Align align, bool write) {
        uint64_t bytes = layout.getTypeStoreSize(type);
        Type* element = type->getScalarType();
        uint64_t narrow =
            std::min<uint64_t>({bytes, align.value(), layout.getTypeStoreSize(element)});
        out.push_back({&instruction, address, ConstantInt::get(i64, bytes | align.value() << 32),
                       write, narrow});
    };
    if (auto* load = dyn_cast<LoadInst>(&instruction)) {
        add(load->getPointerOperand(), load->getType(), load->getAlign(), false);
    } else if (auto* store = dyn_cast<StoreInst>(&instruction)) {
        add(store->getPointerOperand(), store->getValueOperand()->getType(), store->getAlign(),
            true);
    } else if (auto* memory = dyn_cast<MemIntrinsic>(&instruction)) {
        IRBuilder<> builder(&instruction);
        Value* bytes = builder.CreateZExtOrTrunc(memory->getLength(), i64);
        auto part = [&](Value* address, MaybeAlign known, bool write) {
            uint64_t align = known.valueOrOne().value();
            out.push_back(
                {&instruction, address, builder.CreateOr(bytes, align << 32), write, align});
        };
        part(memory->getRawDest(), memory->getDestAlign(), true);
        if (auto* transfer = dyn_cast<MemTransferInst>(memory))
            part(transfer->getRawSource(), transfer->getSourceAlign(), false);
    } else if (auto* update = dyn_cast<AtomicRMWInst>(&instruction)) {
        add(update->getPointerOperand(), update->getType(), update->getAlign(), true);
    } else if (auto* exchange = dyn_cast<AtomicCmpXchgInst>(&instruction)) {
        add(exchange->getPointerOperand(), exchange->getNewValOperand()->getType(),
            exchange->getAlign(), true);
    }
}

const CallInst* as_shared(const Value* object) {
    auto* call = dyn_cast<CallInst>(object);
    return call && call->getCalledFunction() &&
                   call->getCalledFunction()->getName() == kSharedAddress
               ? call
               : nullptr;
}

// Private arrays are checked earlier; a constant read at a constant place was checked by the
// compiler.
bool needs_no_check(const Access& access, const Value* object, const DataLayout& layout) {
    if (isa<AllocaInst>(object)) return true;
    auto* global = dyn_cast<GlobalVariable>(object);
    if (!global) return false;
    APInt offset(64, 0);
    const Value* base = access.address->stripAndAccumulateConstantOffsets(layout, offset, true);
    return base == global;
}

void add_call(Module& module, const Access& access, const Value* object) {
    IRBuilder<> builder(access.instruction);
    auto* pointer = builder.getPtrTy();
    SmallVector<Value*, 5> arguments = {access.address, access.bytes,
                                        site_of(module, *access.instruction)};
    SmallVector<Type*, 5> types = {pointer, builder.getInt64Ty(), pointer};
    const CallInst* shared = as_shared(object);
    if (shared) {
        arguments.append({shared->getArgOperand(0), shared->getArgOperand(1)});
        types.append({builder.getInt32Ty(), builder.getInt32Ty()});
    }
    const char* name = shared
                           ? (access.write ? "cleave_simt_shared_store" : "cleave_simt_shared_load")
                           : (access.write ? "cleave_simt_store" : "cleave_simt_load");
    builder.CreateCall(
        module.getOrInsertFunction(name, FunctionType::get(builder.getVoidTy(), types, false)),
        arguments);
}

// Optimisation gives an instruction made of several no line; its neighbours' is then the best there
// is.
const DILocation* place_of(const Instruction& instruction) {
    const DILocation* own = instruction.getDebugLoc().get();
    if (own && own->getLine() > 0) return own;
    for (const Instruction* i = &instruction; i; i = i->getPrevNode())
        if (const DILocation* place = i->getDebugLoc().get(); place && place->getLine() > 0)
            return place;
    for (const Instruction* i = &instruction; i; i = i->getNextNode())
        if (const DILocation* place = i->getDebugLoc().get(); place && place->getLine() > 0)
            return place;
    return own;
}

// Accesses of one line side by side, such as the elements of an unrolled loop: one check covers
// them all.
struct Run {
    size_t access;  // its first one, in program order
    const Value* base;
    int64_t begin, end;  // bytes from the base
    uint64_t align;
    const DILocation* place;
};

constexpr int64_t kLongestRun = 256;

// Takes `access` into an open run that it extends; false when there is none.
bool extend(SmallVectorImpl<Run>& open, const Run& run) {
    for (Run& known : open) {
        bool alike = known.base == run.base && known.place && run.place &&
                     known.place->getLine() == run.place->getLine() &&
                     known.place->getFilename() == run.place->getFilename();
        // What follows may rely on less: 16 bytes that are loaded as 8 and 8 are aligned to 16 and
        // to 8.
        bool behind = run.begin == known.end && run.align <= known.align &&
                      (run.begin - known.begin) % static_cast<int64_t>(run.align) == 0;
        bool before = run.end == known.begin && run.align == known.align &&
                      (run.end - run.begin) % static_cast<int64_t>(run.align) == 0;
        if (!alike || (!behind && !before)) continue;
        if (std::max(run.end, known.end) - std::min(run.begin, known.begin) > kLongestRun) continue;
        known.begin = std::min(known.begin, run.begin);
        known.end = std::max(known.end, run.end);
        return true;
    }
    return false;
}

// Loads wait for no store and stores for no load, nor either for a call: up to there, the order of
// a thread's own accesses decides nothing.
void merge_neighbours(Module& module, BasicBlock& block, SmallVectorImpl<Access>& accesses) {
    const DataLayout& layout = module.getDataLayout();
    SmallVector<Run, 16> open, runs;
    SmallVector<Access, 64> kept;
    bool write = false;
    auto close = [&] {
        runs.append(open.begin(), open.end());
        open.clear();
    };
    size_t next = 0;
    for (Instruction& instruction : block) {
        bool meets = isa<CallInst>(instruction) && !isa<IntrinsicInst>(instruction) &&
                     instruction.mayReadOrWriteMemory();
        if (meets) close();
        for (; next < accesses.size() && accesses[next].instruction == &instruction; ++next) {
            const Access& access = accesses[next];
            if (access.write != write) close();
            write = access.write;
            auto* bytes = dyn_cast<ConstantInt>(access.bytes);
            APInt offset(64, 0);
            const Value* base =
                access.address->stripAndAccumulateConstantOffsets(layout, offset, true);
            if (bytes && isa<LoadInst, StoreInst>(instruction)) {
                int64_t begin = offset.getSExtValue();
                auto length = static_cast<int64_t>(bytes->getZExtValue() & 0xffffffff);
                Run run{
                    kept.size(),          base, begin, begin + length, bytes->getZExtValue() >> 32,
                    place_of(instruction)};
                if (extend(open, run)) continue;
                open.push_back(run);
            }
            kept.push_back(access);
        }
    }
    close();
    for (const Run& run : runs) {
        Access& access = kept[run.access];
        uint64_t length = cast<ConstantInt>(access.bytes)->getZExtValue() & 0xffffffff;
        if (static_cast<uint64_t>(run.end - run.begin) == length) continue;
        IRBuilder<> builder(access.instruction);
        access.address = builder.CreateConstGEP1_64(
            builder.getInt8Ty(), const_cast<Value*>(run.base), static_cast<uint64_t>(run.begin));
        access.bytes =
            builder.getInt64(static_cast<uint64_t>(run.end - run.begin) | run.align << 32);
    }
    accesses = kept;
}

// One variable index into a private array: reports unless 0 <= index + before < length.
struct PrivateIndex {
    Value* index;
    int64_t before;
    uint64_t length;
};

void guard_index(GetElementPtrInst& gep, const PrivateIndex& wanted) {
    Module& module = *gep.getModule();
    IRBuilder<> builder(&gep);
    Value* index = builder.CreateSExtOrTrunc(wanted.index, builder.getInt64Ty());
    if (wanted.before != 0)
        index = builder.CreateAdd(index, builder.getInt64(static_cast<uint64_t>(wanted.before)));
    Value* outside = builder.CreateICmpUGE(index, builder.getInt64(wanted.length));
    Instruction* then = SplitBlockAndInsertIfThen(outside, &gep, false);
    IRBuilder<> report(then);
    auto* pointer = PointerType::get(module.getContext(), 0);
    FunctionCallee callee = module.getOrInsertFunction(
        "cleave_simt_private",
        FunctionType::get(report.getVoidTy(), {report.getInt64Ty(), report.getInt64Ty(), pointer},
                          false));
    cast<Function>(callee.getCallee())->addFnAttr(Attribute::Cold);
    report.CreateCall(callee, {index, report.getInt64(wanted.length), site_of(module, gep)});
}

// The first index steps over whole objects; further ones lie in arrays, outermost first: [i][j] of
// `[4 x [8 x float]]` gives two compares. Steps in pointers of variable distance are left alone.
void guard_gep(GetElementPtrInst& gep, const AllocaInst& object, const DataLayout& layout,
               uint64_t object_bytes) {
    SmallVector<PrivateIndex, 4> indices;
    Type* type = gep.getSourceElementType();
    auto index = gep.idx_begin();
    auto stride = static_cast<int64_t>(layout.getTypeAllocSize(type).getFixedValue());
    APInt offset(64, 0);
    const Value* base =
        gep.getPointerOperand()->stripAndAccumulateConstantOffsets(layout, offset, true);
    if (stride > 0 && base == &object && offset.getSExtValue() % stride == 0)
        indices.push_back({index->get(), offset.getSExtValue() / stride,
                           object_bytes / static_cast<uint64_t>(stride)});
    for (++index; index != gep.idx_end(); ++index) {
        if (auto* array = dyn_cast<ArrayType>(type))
            indices.push_back({index->get(), 0, array->getNumElements()});
        type = GetElementPtrInst::getTypeAtIndex(type, index->get());
    }
    for (const PrivateIndex& wanted : indices) {
        auto* constant = dyn_cast<ConstantInt>(wanted.index);
        int64_t at = constant ? constant->getSExtValue() + wanted.before : -1;
        if (at >= 0 && static_cast<uint64_t>(at) < wanted.length) continue;
        guard_index(gep, wanted);
    }
}

// A pointer that is only compared or stepped may stand one past the end.
bool is_dereferenced(const GetElementPtrInst& gep) {
    for (const User* user : gep.users()) {
        if (isa<LoadInst>(user)) return true;
        if (auto* store = dyn_cast<StoreInst>(user); store && store->getPointerOperand() == &gep)
            return true;
        if (auto* next = dyn_cast<GetElementPtrInst>(user); next && is_dereferenced(*next))
            return true;
        if (isa<MemIntrinsic>(user)) return true;
    }
    return false;
}

// A fault in one of the prelude's functions is its caller's.
bool is_vocabulary(StringRef file) {
    return file.starts_with("gpu/prelude") || file == "gpu/words.cuh" ||
           file == "gpu/fragments.cuh";
}

}  // namespace

Constant* site_of(Module& module, const Instruction& instruction) {
    LLVMContext& context = module.getContext();
    unsigned line = 0;
    StringRef file;
    const DILocation* place = place_of(instruction);
    while (place && place->getInlinedAt() && is_vocabulary(place->getFilename()))
        place = place->getInlinedAt();
    if (place) {
        line = place->getLine();
        file = place->getFilename();
    }
    std::string name = ("site." + file + ":" + Twine(line)).str();
    if (GlobalVariable* known = module.getNamedGlobal(name)) return known;
    std::string text = ("file." + file).str();
    GlobalVariable* text_variable = module.getNamedGlobal(text);
    if (!text_variable) {
        Constant* bytes = ConstantDataArray::getString(context, file);
        text_variable = new GlobalVariable(module, bytes->getType(), true,
                                           GlobalValue::PrivateLinkage, bytes, text);
    }
    auto* i32 = Type::getInt32Ty(context);
    Constant* value = ConstantStruct::getAnon({text_variable, ConstantInt::get(i32, line)});
    return new GlobalVariable(module, value->getType(), true, GlobalValue::PrivateLinkage, value,
                              name);
}

void check_private_arrays(Module& module) {
    const DataLayout& layout = module.getDataLayout();
    for (Function& function : module) {
        struct Indexed {
            GetElementPtrInst* gep;
            AllocaInst* object;
            uint64_t bytes;
        };
        SmallVector<Indexed, 32> geps;
        for (Instruction& instruction : instructions(function)) {
            auto* gep = dyn_cast<GetElementPtrInst>(&instruction);
            if (!gep || !is_dereferenced(*gep)) continue;
            auto* object = dyn_cast<AllocaInst>(const_cast<Value*>(getUnderlyingObject(gep, 0)));
            if (!object) continue;
            std::optional<TypeSize> bytes = object->getAllocationSize(layout);
            if (bytes && !bytes->isScalable())
                geps.push_back({gep, object, bytes->getFixedValue()});
        }
        for (const Indexed& i : geps) guard_gep(*i.gep, *i.object, layout, i.bytes);
    }
}

uint32_t check_accesses(Module& module) {
    const DataLayout& layout = module.getDataLayout();
    uint64_t narrow = 4;
    for (Function& function : module) {
        SmallVector<Access, 64> accesses;
        for (BasicBlock& block : function) {
            SmallVector<Access, 64> own;
            for (Instruction& instruction : block) collect(instruction, layout, own);
            merge_neighbours(module, block, own);
            accesses.append(own);
        }
        for (const Access& access : accesses) {
            const Value* object = getUnderlyingObject(access.address, 0);
            if (needs_no_check(access, object, layout)) continue;
            if (!isa<Argument>(object)) narrow = std::min(narrow, access.narrow);
            add_call(module, access, object);
        }
    }
    return static_cast<uint32_t>(narrow);
}

}  // namespace cleave::llvm_backend
