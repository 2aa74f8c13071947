// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>

#include <llvm/IR/DebugInfo.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/IPO/GlobalDCE.h>
#include <llvm/Transforms/IPO/Internalize.h>

#include "codegen/llvm/clang_job.h"
#include "codegen/llvm/simt_passes.h"
#include "codegen/llvm/target.h"

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

std::unique_ptr<TargetMachine> make_target(const cleave_llvm_simt_options& lowered,
                                           std::string& error) {
    const int optimization = is_quick(lowered) ? 0 : lowered.optimization;
    std::string triple = sys::getProcessTriple();
    const Target* target = TargetRegistry::lookupTarget(triple, error);
    if (!target) return nullptr;
    auto level = optimization >= 2   ? CodeGenOptLevel::Default
                 : optimization == 1 ? CodeGenOptLevel::Less
                                     : CodeGenOptLevel::None;
    TargetOptions options;
    options.AllowFPOpFusion = FPOpFusion::Fast;
    return std::unique_ptr<TargetMachine>(
        target->createTargetMachine(triple, cleave_llvm_host_cpu(), cleave_llvm_host_features(),
                                    options, Reloc::PIC_, CodeModel::Small, level));
}

// Everything but the kernel is local; what it does not use goes.
void keep_only(Module& module, const std::string& entry) {
    internalizeModule(module, [&](const GlobalValue& value) { return value.getName() == entry; });
    ModuleAnalysisManager analyses;
    PassBuilder builder;
    builder.registerModuleAnalyses(analyses);
    GlobalDCEPass().run(module, analyses);
}

// Loads may not be made unconditional: a checker would see accesses that the source does not make. LLVM holds
// such speculation back in functions that a sanitizer will instrument.
void forbid_speculation(Module& module) {
    for (Function& function : module)
        if (!function.isDeclaration()) function.addFnAttr(Attribute::SanitizeThread);
}

// The steps, in order.
bool lower(Module& module, const std::string& entry, const cleave_llvm_simt_options& options,
           TargetMachine& target, raw_ostream& log) {
    Function* kernel = module.getFunction(entry);
    if (!kernel || kernel->isDeclaration()) {
        log << "the source has no kernel '" << entry << "'\n";
        return false;
    }
    kernel->addFnAttr(Attribute::NoInline);  // inlined into its caller it would lose its checks
    keep_only(module, entry);
    SharedLayout shared = lower_shared(module);
    PipelineTuningOptions tuning;
    tuning.LoopVectorization = false;
    Pipeline pipeline(target, tuning);
    if (options.checks) {
        forbid_speculation(module);
        // Registers first: less is copied by inlining.
        pipeline.run(module, "function(mem2reg),always-inline,function(mem2reg)");
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

bool compile(StringRef source, StringRef name, const std::string& entry,
             const cleave_llvm_simt_options& options, SmallVectorImpl<char>& object,
             raw_ostream& log) {
    LLVMContext context;
    std::unique_ptr<Module> module = parse_simt(source, name, options, context, log);
    if (!module) return false;
    std::string error;
    std::unique_ptr<TargetMachine> target = make_target(options, error);
    if (!target) {
        log << error << "\n";
        return false;
    }
    module->setDataLayout(target->createDataLayout());
    if (!lower(*module, entry, options, *target, log)) return false;
    raw_svector_ostream stream(object);
    legacy::PassManager passes;
    if (target->addPassesToEmitFile(passes, stream, nullptr, CodeGenFileType::ObjectFile)) {
        log << "this target writes no object files\n";
        return false;
    }
    passes.run(*module);
    return true;
}

}  // namespace
}  // namespace cleave::llvm_backend

CLEAVE_EXPORT void cleave_llvm_simt_compile(const char* source, size_t source_size,
                                            const char* name, const char* entry,
                                            const cleave_llvm_simt_options* options,
                                            cleave_llvm_result* result) {
    using namespace cleave::llvm_backend;
    *result = cleave_llvm_result{};
    initialise();
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
