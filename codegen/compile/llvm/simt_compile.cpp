// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <llvm/IR/AttributeMask.h>
#include <llvm/IR/DebugInfo.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/IPO/GlobalDCE.h>
#include <llvm/Transforms/IPO/Internalize.h>

#include "codegen/compile/llvm/clang_job.h"
#include "codegen/compile/llvm/simt_passes.h"
#include "codegen/compile/llvm/target.h"

#define CLEAVE_EXPORT extern "C" __attribute__((visibility("default")))

namespace cleave::llvm_backend {

namespace {

using namespace llvm;

// Analyses of one module for LLVM's pass pipelines.
class Pipeline {
public:
    Pipeline(TargetMachine& target, const PipelineTuningOptions& tuning)
        : builder_(&target, tuning) {
        builder_.registerModuleAnalyses(modules_);
        builder_.registerCGSCCAnalyses(components_);
        builder_.registerFunctionAnalyses(functions_);
        builder_.registerLoopAnalyses(loops_);
        builder_.crossRegisterProxies(loops_, functions_, components_, modules_);
    }
    void run(Module& module, StringRef text) {
        ModulePassManager passes;
        cantFail(builder_.parsePassPipeline(passes, text));
        passes.run(module, modules_);
    }
    void run(Module& module, OptimizationLevel level) {
        builder_.buildPerModuleDefaultPipeline(level).run(module, modules_);
    }
    void forget(Module& module) { modules_.invalidate(module, PreservedAnalyses::none()); }

private:
    PassBuilder builder_;
    LoopAnalysisManager loops_;
    FunctionAnalysisManager functions_;
    CGSCCAnalysisManager components_;
    ModuleAnalysisManager modules_;
};

constexpr const char* kQuickPasses =
    "always-inline,function(sroa,early-cse,simplifycfg,instcombine<no-verify-fixpoint>,"
    "simplifycfg)";
constexpr const char* kPasses =
    "always-inline,function(sroa,early-cse,simplifycfg,instcombine<no-verify-fixpoint>,"
    "loop-mssa(loop-rotate,licm),loop(indvars,loop-unroll-full),sroa,early-cse,"
    "instcombine<no-verify-fixpoint>,simplifycfg)";

CodeGenOptLevel codegen_level(const cleave_llvm_simt_options& options) {
    const int level = is_quick(options) ? 0 : options.optimization;
    return level >= 2   ? CodeGenOptLevel::Default
           : level == 1 ? CodeGenOptLevel::Less
                        : CodeGenOptLevel::None;
}

std::unique_ptr<TargetMachine> make_target(CodeGenOptLevel level, std::string& error) {
    std::string triple = sys::getProcessTriple();
    const Target* target = TargetRegistry::lookupTarget(triple, error);
    if (!target) return nullptr;
    TargetOptions options;
    options.AllowFPOpFusion = FPOpFusion::Fast;
    return std::unique_ptr<TargetMachine>(
        target->createTargetMachine(triple, cleave_llvm_host_cpu(), cleave_llvm_host_features(),
                                    options, Reloc::PIC_, CodeModel::Small, level));
}

// Target machines that no compilation uses at the moment: a new one reads the processor's features
// for a millisecond.
class TargetMachines {
public:
    std::unique_ptr<TargetMachine> take(CodeGenOptLevel level, std::string& error) {
        {
            std::lock_guard lock(mutex_);
            auto& free = free_[level];
            if (!free.empty()) {
                std::unique_ptr<TargetMachine> target = std::move(free.back());
                free.pop_back();
                return target;
            }
        }
        return make_target(level, error);
    }
    void give_back(std::unique_ptr<TargetMachine> target) {
        std::lock_guard lock(mutex_);
        free_[target->getOptLevel()].push_back(std::move(target));
    }

private:
    std::mutex mutex_;
    std::map<CodeGenOptLevel, std::vector<std::unique_ptr<TargetMachine>>> free_;
};

TargetMachines& target_machines() {
    static TargetMachines& machines = *new TargetMachines;
    return machines;
}

// The target machine knows the processor: a function that names its features would get a
// description of its own.
void forget_processor(Module& module) {
    AttributeMask processor;
    for (const char* name : {"target-cpu", "target-features", "tune-cpu"})
        processor.addAttribute(name);
    for (Function& function : module) function.removeFnAttrs(processor);
}

// Everything but the kernel is local; what it does not use goes.
void keep_only(Module& module, const std::string& entry) {
    internalizeModule(module, [&](const GlobalValue& value) { return value.getName() == entry; });
    ModuleAnalysisManager analyses;
    PassBuilder builder;
    builder.registerModuleAnalyses(analyses);
    GlobalDCEPass().run(module, analyses);
}

// Loads may not be made unconditional: a checker would see accesses that the source does not make.
// LLVM holds such speculation back in functions that a sanitizer will instrument.
void forbid_speculation(Module& module) {
    for (Function& function : module)
        if (!function.isDeclaration()) function.addFnAttr(Attribute::SanitizeThread);
}

// What captures by reference keeps its captures in memory, where every use is checked, until it is
// inlined: small functions and those with one call are.
void inline_closures(Module& module) {
    constexpr unsigned kSmall = 40;
    for (Function& function : module) {
        if (function.isDeclaration() || !function.hasLocalLinkage() ||
            function.hasFnAttribute(Attribute::NoInline) || function.hasAddressTaken())
            continue;
        if (function.hasOneUse() || function.getInstructionCount() <= kSmall)
            function.addFnAttr(Attribute::AlwaysInline);
    }
}

// The steps, in order.
bool lower(Module& module, const std::string& entry, const cleave_llvm_simt_options& options,
           TargetMachine& target, raw_ostream& log) {
    Function* kernel = module.getFunction(entry);
    if (!kernel || kernel->isDeclaration()) {
        log << "the source has no kernel '" << entry << "'\n";
        return false;
    }
    keep_only(module, entry);
    forget_processor(module);
    SharedLayout shared = lower_shared(module);
    PipelineTuningOptions tuning;
    tuning.LoopVectorization = false;
    Pipeline pipeline(target, tuning);
    if (options.checks) {
        forbid_speculation(module);
        // Registers first: less is copied by inlining.
        pipeline.run(module, "function(mem2reg)");
        inline_closures(module);
        pipeline.run(module, "always-inline,function(mem2reg)");
        check_private_arrays(module);
        pipeline.forget(module);
    }
    if (options.optimization >= 2)
        pipeline.run(module,
                     options.optimization == 2 ? OptimizationLevel::O2 : OptimizationLevel::O3);
    else if (options.optimization == 1)
        pipeline.run(module, is_quick(options) ? kQuickPasses : kPasses);
    else
        pipeline.run(module, "always-inline");
    uint32_t cell_bytes = options.checks ? check_accesses(module) : 4;
    StripDebugInfo(module);  // the checks hold the places now
    add_record(module, *kernel, shared, cell_bytes, options);
    keep_only(module, entry + ".simt");
    // A quick compilation runs the passes of our own that the others are verified behind.
    return is_quick(options) || !verifyModule(module, &log);
}

bool write_object(Module& module, const std::string& entry, const cleave_llvm_simt_options& options,
                  TargetMachine& target, SmallVectorImpl<char>& object, raw_ostream& log) {
    module.setDataLayout(target.createDataLayout());
    if (!lower(module, entry, options, target, log)) return false;
    raw_svector_ostream stream(object);
    legacy::PassManager passes;
    if (target.addPassesToEmitFile(passes, stream, nullptr, CodeGenFileType::ObjectFile)) {
        log << "this target writes no object files\n";
        return false;
    }
    passes.run(module);
    return true;
}

bool compile(StringRef source, StringRef name, const std::string& entry,
             const cleave_llvm_simt_options& options, SmallVectorImpl<char>& object,
             raw_ostream& log) {
    LLVMContext context;
    std::unique_ptr<Module> module = parse_simt(source, name, options, context, log);
    if (!module) return false;
    std::string error;
    std::unique_ptr<TargetMachine> target = target_machines().take(codegen_level(options), error);
    if (!target) {
        log << error << "\n";
        return false;
    }
    const bool ok = write_object(*module, entry, options, *target, object, log);
    target_machines().give_back(std::move(target));
    return ok;
}

}  // namespace
}  // namespace cleave::llvm_backend

CLEAVE_EXPORT void cleave_llvm_simt_compile(const char* source, size_t source_size,
                                            const char* name, const char* entry,
                                            const cleave_llvm_simt_options* options,
                                            cleave_llvm_result* result) {
    using namespace cleave::llvm_backend;
    *result = cleave_llvm_result{};
    const auto in_use = use_llvm();
    llvm::SmallVector<char, 0> object;
    std::string log;
    {
        llvm::raw_string_ostream stream(log);
        result->ok =
            compile(llvm::StringRef(source, source_size), name, entry, *options, object, stream);
    }
    result->log = copy_text(log);
    if (!result->ok) return;
    hand_out({object.data(), object.size()}, result);
}
