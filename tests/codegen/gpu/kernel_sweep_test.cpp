// SPDX-License-Identifier: Apache-2.0
// The sweep of planner/gpu_tiles_test.cpp, compiled: every kind of kernel x limit of shared memory
// x model x dtype x context x target, which is an architecture and its compiler. Otherwise a sample
// in which every pair of values occurs; [slow]: all of it, with a report in the folder
// $CLEAVE_SWEEP_REPORT (tools/test --all: tests/reports). The KV cache has the weights' type, f16
// with int4. Types share kernels (attention on a cache of f16, the rotation): $CLEAVE_SWEEP_CACHE
// keeps their objects from one test, or run, to the next.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <fmt/format.h>

#include "codegen/compile/choose.h"
#include "codegen/compile/drive.h"
#include "codegen/gpu/kernels.h"
#include "codegen/kernel/spec.h"
#include "planner/tiles/gpu.h"
#include "tests/codegen/support/kernel_runner.h"
#include "tests/codegen/support/plan_programs.h"
#include "tests/support/model_sizes.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::codegen;
using planner::KernelKind;

namespace {

using Names = std::vector<std::string>;

// What fused launches compute, of a prompt and of one token, then what stands alone in unfused
// ones, then a prompt's products behind a launch that prepares their activations, and that launch.
enum Kind : int {
    kQkvPrompt,
    kQkvToken,
    kAttentionPrompt,
    kAttentionToken,
    kOutPrompt,
    kOutToken,
    kGateUpPrompt,
    kGateUpToken,
    kHead,
    kEmbed,
    kProjectionPrompt,
    kProjectionToken,
    kNorm,
    kRope,
    kAppend,
    kGated,
    kQkvPrepared,
    kOutPrepared,
    kGateUpPrepared,
    kProjectionPrepared,
    kPrepare,
    kKinds
};
constexpr const char* kKindNames[kKinds] = {"norm + qkv + rope + append, prompt",
                                            "norm + qkv + rope + append, token",
                                            "attention, prompt",
                                            "attention, token",
                                            "output + residual, prompt",
                                            "output + residual, token",
                                            "norm + gate and up, prompt",
                                            "norm + gate and up, token",
                                            "final norm + lm_head",
                                            "embedding",
                                            "projection alone, prompt",
                                            "projection alone, token",
                                            "norm alone",
                                            "rope alone",
                                            "append alone",
                                            "activation alone",
                                            "qkv + rope + append, prompt, prepared",
                                            "output + residual, prompt, prepared",
                                            "gate and up, prompt, prepared",
                                            "projection alone, prompt, prepared",
                                            "norm + narrowing, prompt"};

bool is_prepared(int kind) {
    return kind == kQkvPrepared || kind == kOutPrepared || kind == kGateUpPrepared ||
           kind == kProjectionPrepared;
}
// Launches whose tiles have many tokens.
bool is_prompt(int kind) {
    return kind == kQkvPrompt || kind == kAttentionPrompt || kind == kOutPrompt ||
           kind == kGateUpPrompt || kind == kProjectionPrompt || is_prepared(kind);
}

constexpr std::array kSweepDtypes = {DType::kF32,    DType::kF16,  DType::kBF16,
                                     DType::kF8E4M3, DType::kInt8, DType::kInt4};
// The keys of a short context are few for as many parts as fill a device.
constexpr std::array<int64_t, 3> kContexts = {512, 4096, 131072};

struct SweepTarget {
    const char *arch, *compiler;
};
// Those whose compilers are here; hipRTC is where it knows the arch.
const std::vector<SweepTarget>& sweep_targets() {
    static const std::vector<SweepTarget> kHere = [] {
        constexpr SweepTarget kAll[] = {
            {"sm_80", "nvrtc"},   {"sm_90a", "nvrtc"},   {"sm_100", "nvrtc"},  {"gfx90a", "clang"},
            {"gfx942", "clang"},  {"gfx1100", "clang"},  {"gfx1201", "clang"}, {"gfx90a", "hiprtc"},
            {"gfx942", "hiprtc"}, {"gfx1100", "hiprtc"}, {"gfx1201", "hiprtc"}};
        std::vector<SweepTarget> found;
        for (const SweepTarget& target : kAll) {
            CompileOptions options;
            options.cache_dir = test::test_cache();
            options.gpu_compiler = target.compiler;
            try {
                make_gpu_compiler(gpu_arch(target.arch), options);
                found.push_back(target);
            } catch (const UserError& error) {
                WARN("nothing is compiled for " << target.arch << ": " << error.what());
            }
        }
        return found;
    }();
    return kHere;
}

// A combination: an index into each factor.
enum Factor : int { kOfKind, kOfLimit, kOfModel, kOfDtype, kOfTarget, kOfContext, kFactors };
int size_of(size_t factor) {
    const std::array<size_t, kFactors> sizes = {kKinds,
                                                test::kSharedKiB.size(),
                                                test::kModelSizes.size(),
                                                kSweepDtypes.size(),
                                                sweep_targets().size(),
                                                kContexts.size()};
    return static_cast<int>(sizes[factor]);
}
using Combination = std::array<int, kFactors>;  // -1: open

template <class Values>
auto value(const Values& values, int i) {
    return values[static_cast<size_t>(i)];
}

const GpuArch& arch_of(const Combination& c) {
    return gpu_arch(value(sweep_targets(), c[kOfTarget]).arch);
}

// No device has more shared memory than its architecture; activations are prepared for products of
// 16 bits on devices that copy asynchronously.
bool is_possible(const Combination& c) {
    if (is_prepared(c[kOfKind]) || c[kOfKind] == kPrepare) {
        if (c[kOfDtype] >= 0 && value(kSweepDtypes, c[kOfDtype]) == DType::kF32) return false;
        if (c[kOfTarget] >= 0 && !arch_of(c).copies_asynchronously) return false;
    }
    // A head whose cache has a scale is not cut: of 256 features it leaves 32 KiB no tile of many
    // tokens, whose activations alone are prepared.
    if (c[kOfKind] == kQkvPrepared && c[kOfLimit] >= 0 && c[kOfModel] >= 0 && c[kOfDtype] >= 0 &&
        value(test::kSharedKiB, c[kOfLimit]) <= 32 &&
        value(test::kModelSizes, c[kOfModel]).head_dim >= 256 &&
        (value(kSweepDtypes, c[kOfDtype]) == DType::kInt8 ||
         value(kSweepDtypes, c[kOfDtype]) == DType::kF8E4M3))
        return false;
    if (c[kOfLimit] < 0 || c[kOfTarget] < 0) return true;
    return value(test::kSharedKiB, c[kOfLimit]) * 1024 <= arch_of(c).shared_bytes;
}

// Greedy: the first pair that is left, then the value of each other factor that meets most pairs
// that are left.
std::vector<Combination> pairwise_sample() {
    std::set<std::array<int, 4>> left;  // factor, value, factor, value
    auto each_pair = [&](auto visit) {
        for (int f = 0; f < kFactors; ++f)
            for (int g = f + 1; g < kFactors; ++g)
                for (int a = 0; a < size_of(static_cast<size_t>(f)); ++a)
                    for (int b = 0; b < size_of(static_cast<size_t>(g)); ++b) visit(f, a, g, b);
    };
    auto with_pair = [](int f, int a, int g, int b) {
        Combination c;
        c.fill(-1);
        c[static_cast<size_t>(f)] = a;
        c[static_cast<size_t>(g)] = b;
        return c;
    };
    each_pair([&](int f, int a, int g, int b) {
        if (is_possible(with_pair(f, a, g, b))) left.insert({f, a, g, b});
    });
    std::vector<Combination> sample;
    while (!left.empty()) {
        auto [f0, a0, g0, b0] = *left.begin();
        Combination c = with_pair(f0, a0, g0, b0);
        for (size_t f = 0; f < kFactors; ++f) {
            if (c[f] >= 0) continue;
            int best = -1, most = -1;
            for (int a = 0; a < size_of(f); ++a) {
                Combination tried = c;
                tried[f] = a;
                if (!is_possible(tried)) continue;
                int met = 0;
                for (size_t g = 0; g < kFactors; ++g)
                    if (c[g] >= 0 && g != f)
                        met += static_cast<int>(
                            f < g
                                ? left.count({static_cast<int>(f), a, static_cast<int>(g), c[g]})
                                : left.count({static_cast<int>(g), c[g], static_cast<int>(f), a}));
                if (met > most) {
                    most = met;
                    best = a;
                }
            }
            c[f] = best;
        }
        for (size_t f = 0; f < kFactors; ++f)
            for (size_t g = f + 1; g < kFactors; ++g)
                left.erase({static_cast<int>(f), c[f], static_cast<int>(g), c[g]});
        sample.push_back(c);
    }
    return sample;
}

// Of projections and of what computes no product.
Kernel small_kernel_of(int kind, const test::ModelSize& m, DType weight, const NormSpec& norm,
                       const SlabSpec& slab, const GpuTarget& target) {
    const int64_t q = m.heads * m.head_dim, k = m.kv_heads * m.head_dim;
    switch (kind) {
        case kEmbed: {
            EmbeddingSpec s;
            s.hidden = m.hidden;
            s.rows = m.vocabulary;
            s.weight = weight;
            return make_gpu_kernel(s, KernelKind::kEmbedding, {"embedding"}, target);
        }
        case kPrepare: {
            PrepareSpec s;
            s.in = m.hidden;
            s.x = {m.hidden, 0};
            s.norm = norm;
            s.to = WeightFormat(weight).staged();
            return make_gpu_helper(s, target);
        }
        case kNorm: {
            const RmsNormSpec s{m.hidden, m.hidden, norm, {m.hidden, 0}, RowCount::kTokens};
            return make_gpu_kernel(s, KernelKind::kRmsNorm, {"rms_norm"}, target);
        }
        case kRope: {
            const RopeOnlySpec s{q, m.head_dim, {m.head_dim, false}, {q, 0}};
            return make_gpu_kernel(s, KernelKind::kRope, {"rope"}, target);
        }
        case kAppend: {
            const KvAppendSpec s{{0, m.kv_heads}, slab, {k, 0}, {k, 0}};
            return make_gpu_kernel(s, KernelKind::kKvAppend, {"kv_append"}, target);
        }
        default: {
            const View row{m.intermediate, 0};
            const GatedActivationSpec s{m.intermediate, importer::Activation::kSilu, row, row};
            return make_gpu_kernel(s, KernelKind::kGatedActivation, {"gated_activation"}, target);
        }
    }
}

QkvSpec qkv_spec(const test::ModelSize& m, DType weight, const SlabSpec& slab) {
    QkvSpec s;
    s.in = m.hidden;
    s.q_heads = m.heads;
    s.kv_heads = {0, m.kv_heads};
    s.q = s.k = s.v = weight;
    s.q_rope = s.k_rope = RopeSpec{m.head_dim, false};
    s.slab = slab;
    s.x = {m.hidden, 0};
    return s;
}

GateUpSpec gate_up_spec(const test::ModelSize& m, DType weight) {
    GateUpSpec s;
    s.in = m.hidden;
    s.out = m.intermediate;
    s.gate = s.up = weight;
    s.x = {m.hidden, 0};
    return s;
}

GpuTarget target_of(const Combination& c) {
    const GpuArch& arch = arch_of(c);
    const int kind = c[kOfKind];
    GpuTarget target;
    target.device = std::string(arch.name);
    target.limits = {value(test::kSharedKiB, c[kOfLimit]) * 1024, arch.registers, arch.max_threads,
                     arch.warp_width, 108};
    target.max_tokens = is_prompt(kind) || kind == kPrepare ? 512 : 1;
    target.context = value(kContexts, c[kOfContext]);
    return target;
}

AttentionSpec attention_spec(const test::ModelSize& m, const SlabSpec& slab, bool prefill) {
    AttentionSpec s;
    s.heads = {0, m.heads};
    s.group = m.heads / m.kv_heads;
    s.slab = slab;
    s.q = {m.heads * m.head_dim, 0};
    s.prefill = prefill;
    return s;
}

Kernel kernel_of(const Combination& c) {
    const test::ModelSize& m = value(test::kModelSizes, c[kOfModel]);
    const DType weight = value(kSweepDtypes, c[kOfDtype]);
    const DType plain = dtype_bytes(weight, 2) <= 2 ? DType::kF16 : weight;  // norms
    const DType cache = weight == DType::kInt4 ? DType::kF16 : weight;
    const int64_t q = m.heads * m.head_dim;
    const SlabSpec slab{m.head_dim, m.head_dim, m.kv_heads, 0, cache};
    const NormSpec norm{plain, 1e-5, 0.0};
    const int kind = c[kOfKind];
    const bool prepared = is_prepared(kind);
    const bool factors = prepared && WeightFormat(weight).staged() == DType::kF16;
    const GpuTarget target = target_of(c);
    auto linear = [&](int64_t in, int64_t out) {
        LinearSpec s;
        s.in = in;
        s.out = out;
        s.weight = weight;
        s.x = {in, 0};
        s.prepared = prepared;
        s.factors = factors;
        return s;
    };
    auto fused = [&](std::vector<std::string> product) {
        if (!prepared) product.insert(product.begin(), "rms_norm");
        return product;
    };
    auto make = [&](const KernelSpec& spec, KernelKind of, const Names& operators) {
        return make_gpu_kernel(spec, of, operators, target);
    };
    switch (kind) {
        case kQkvPrompt:
        case kQkvToken:
        case kQkvPrepared: {
            QkvSpec s = qkv_spec(m, weight, slab);
            s.prepared = prepared;
            s.factors = factors;
            if (!prepared) s.norm = norm;
            return make(s, KernelKind::kNormQkvRopeAppend,
                        fused({"linear", "linear", "linear", "rope", "rope", "kv_append"}));
        }
        case kAttentionPrompt:
        case kAttentionToken: {
            const AttentionSpec s = attention_spec(m, slab, kind == kAttentionPrompt);
            return make(s, KernelKind::kAttention, {"attention"});
        }
        case kOutPrompt:
        case kOutToken:
        case kOutPrepared: {
            LinearSpec s = linear(kind == kOutToken ? q : m.intermediate, m.hidden);
            s.residual = View{m.hidden, 0};
            return make(s, KernelKind::kLinear, {"linear", "add"});
        }
        case kGateUpPrompt:
        case kGateUpToken:
        case kGateUpPrepared: {
            GateUpSpec s = gate_up_spec(m, weight);
            s.prepared = prepared;
            s.factors = factors;
            if (!prepared) s.norm = norm;
            return make(s, KernelKind::kNormGateUp,
                        fused({"linear", "linear", "gated_activation"}));
        }
        case kHead: {
            LinearSpec s = linear(m.hidden, m.vocabulary);
            s.norm = norm;
            s.select = s.logits = true;
            s.count = RowCount::kOutputs;
            return make(s, KernelKind::kNormLinear, {"select_tokens", "rms_norm", "linear"});
        }
        case kProjectionPrompt:
        case kProjectionToken:
        case kProjectionPrepared:
            return make(linear(m.hidden, m.kv_heads * m.head_dim), KernelKind::kLinear, {"linear"});
        default: return small_kernel_of(kind, m, weight, norm, slab, target);
    }
}

// Kernels of one architecture, each once, with a combination that has it.
struct Sweep {
    Program program;
    std::vector<Combination> of;
    std::set<std::string> known;

    void add(const Combination& c) {
        Kernel kernel = kernel_of(c);
        CHECK(kernel.launch.shared_bytes <= value(test::kSharedKiB, c[kOfLimit]) * 1024);
        if (!known.insert(kernel.hash).second) return;
        program.kernels.push_back(std::move(kernel));
        of.push_back(c);
    }
};

std::vector<TakenKernel> compile(const Sweep& sweep, const SweepTarget& target) {
    const char* kept = std::getenv("CLEAVE_SWEEP_CACHE");
    CompileOptions options;
    options.cache_dir = kept && *kept ? kept : test::test_cache();
    options.gpu_compiler = target.compiler;
    const GpuArch& arch = gpu_arch(target.arch);
    return drive(*make_gpu_compiler(arch, options), sweep.program.kernels, {}, options);
}

void check_compiled(const Combination& c, const TakenKernel& taken) {
    const CompiledKernel& kernel = taken.object;
    const Resources& r = kernel.measured;
    const GpuArch& arch = arch_of(c);
    const int kind = c[kOfKind];
    const DType dtype = value(kSweepDtypes, c[kOfDtype]);
    CAPTURE(kKindNames[kind], value(test::kSharedKiB, c[kOfLimit]),
            value(test::kModelSizes, c[kOfModel]).name, dtype_name(dtype), kernel.compiler,
            value(kContexts, c[kOfContext]), r.registers, r.spill_bytes, r.shared_bytes);
    CHECK((r.known && r.registers > 0));
    CHECK(r.shared_bytes <= value(test::kSharedKiB, c[kOfLimit]) * 1024);
    if (!is_prompt(kind)) CHECK(r.spill_bytes == 0);
    // What takes many tokens, and nothing else; a limit may have shrunk a tile of attention to
    // single ones. Codes are staged as f16.
    const KernelForm form = taken.kernel.form;
    const bool many = form == KernelForm::kGemm || form == KernelForm::kPrefillAttention;
    CHECK((!many || is_prompt(kind)));
    CHECK((many || !is_prompt(kind) || kind == kAttentionPrompt));
    const DType staged = dtype == DType::kF32 || dtype == DType::kBF16 ? dtype : DType::kF16;
    CHECK(kernel.matrix_instructions.empty() != (many && multiplies_matrices_of(arch, staged)));
}

// ---- The report

// "32, 48, 64": those that a block of the architecture may have.
std::string limits_of(const GpuArch& arch) {
    std::string text;
    for (int64_t kib : test::kSharedKiB)
        if (kib * 1024 <= arch.shared_bytes)
            text += fmt::format("{}{}", text.empty() ? "" : ", ", kib);
    return text;
}

struct Line : test::KernelTotals {
    std::map<std::string, int64_t> matrix;
};

void write_report(const std::string& path, const SweepTarget& target, DType dtype,
                  const Sweep& sweep, const std::vector<TakenKernel>& compiled) {
    std::map<int, Line> lines;
    for (size_t i = 0; i < compiled.size(); ++i) {
        const CompiledKernel& k = compiled[i].object;
        Line& line = lines[sweep.of[i][kOfKind]];
        line.add(k);
        for (const auto& [name, count] : k.matrix_instructions)
            line.matrix[name.substr(0, name.find('.'))] += count;
    }
    std::ofstream out(path);
    const char* source = std::getenv("CLEAVE_SWEEP_SOURCE");
    out << fmt::format(
        "# Compiled kernels: {}, {}\n\nWritten by `tools/test --all` ({}): every kind of kernel "
        "for blocks of {} KiB of shared memory, {} models, contexts of 512 to 131072, with {}: {} "
        "kernels, equal ones once. A tile shrank where the object of the larger one spilled "
        "registers or was over a limit. Most of any kernel of the row.\n\n"
        "| kernel | kernels | shrunk | registers | shared bytes | that spill | bytes spilled | "
        "matrix instructions |\n|---|---|---|---|---|---|---|---|\n",
        target.arch, dtype_name(dtype), source && *source ? source : "source unknown",
        limits_of(gpu_arch(target.arch)), test::kModelSizes.size(), compiled.at(0).object.compiler,
        compiled.size());
    for (const auto& [kind, l] : lines) {
        std::string matrix;
        for (const auto& [name, count] : l.matrix)
            matrix += fmt::format("{}{} {}", matrix.empty() ? "" : ", ", count, name);
        out << fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", kKindNames[kind],
                           l.kernels, l.shrunk, l.registers, l.shared, l.spilling, l.spills,
                           matrix);
    }
}

void compile_everything(const SweepTarget& wanted, DType dtype) {
    const std::vector<SweepTarget>& here = sweep_targets();
    const auto target = std::find_if(here.begin(), here.end(), [&](const SweepTarget& t) {
        return std::string_view(t.arch) == wanted.arch &&
               std::string_view(t.compiler) == wanted.compiler;
    });
    if (target == here.end())
        CLEAVE_SKIP(fmt::format("no {} that compiles for {}", wanted.compiler, wanted.arch));
    const auto target_index = static_cast<int>(target - here.begin());
    const auto dtype_index = static_cast<int>(
        std::find(kSweepDtypes.begin(), kSweepDtypes.end(), dtype) - kSweepDtypes.begin());
    Sweep sweep;
    for (int kind = 0; kind < kKinds; ++kind)
        for (int limit = 0; limit < size_of(kOfLimit); ++limit)
            for (int model = 0; model < size_of(kOfModel); ++model)
                // Only the keys of one token's attention are split by the context.
                for (int context = 0; context < size_of(kOfContext); ++context) {
                    if (kind != kAttentionToken && context > 0) continue;
                    Combination c{kind, limit, model, dtype_index, target_index, context};
                    if (is_possible(c)) sweep.add(c);
                }
    std::vector<TakenKernel> compiled = compile(sweep, *target);
    for (size_t i = 0; i < compiled.size(); ++i) check_compiled(sweep.of[i], compiled[i]);
    if (const char* folder = std::getenv("CLEAVE_SWEEP_REPORT"); folder && *folder) {
        const bool second = std::string_view(wanted.compiler) == "hiprtc";
        write_report(fmt::format("{}/compiled_{}{}_{}.md", folder, wanted.arch,
                                 second ? "_hiprtc" : "", dtype_name(dtype)),
                     *target, dtype, sweep, compiled);
    }
}

}  // namespace

TEST_CASE("kernels of every pair of kind and limit and model and dtype and target compile",
          "[codegen]") {
    REQUIRE_FALSE(sweep_targets().empty());
    std::map<int, Sweep> by_target;
    const std::vector<Combination> sample = pairwise_sample();
    CHECK(sample.size() >= kKinds * 9);
    CHECK(sample.size() < 260);
    for (const Combination& c : sample) by_target[c[kOfTarget]].add(c);
    CHECK(by_target.size() == sweep_targets().size());
    for (const auto& [index, sweep] : by_target) {
        const SweepTarget& target = value(sweep_targets(), index);
        std::vector<TakenKernel> compiled = compile(sweep, target);
        REQUIRE(compiled.size() == sweep.program.kernels.size());
        for (size_t i = 0; i < compiled.size(); ++i) check_compiled(sweep.of[i], compiled[i]);
        fmt::print("{} kernels for {} with {}\n", compiled.size(), target.arch, target.compiler);
    }
    fmt::print("of {} combinations\n", sample.size());
}

// A test each, so that none takes all the time there is.
#define CLEAVE_SWEEP_TEST(arch, compiler, dtype_text, dtype)                      \
    TEST_CASE("every " dtype_text " kernel compiles for " arch " with " compiler, \
              "[codegen][slow]") {                                                \
        compile_everything({arch, compiler}, dtype);                              \
    }
#define CLEAVE_SWEEP_TESTS(arch, compiler)                      \
    CLEAVE_SWEEP_TEST(arch, compiler, "f32", DType::kF32)       \
    CLEAVE_SWEEP_TEST(arch, compiler, "f16", DType::kF16)       \
    CLEAVE_SWEEP_TEST(arch, compiler, "bf16", DType::kBF16)     \
    CLEAVE_SWEEP_TEST(arch, compiler, "f8e4m3", DType::kF8E4M3) \
    CLEAVE_SWEEP_TEST(arch, compiler, "int8", DType::kInt8)     \
    CLEAVE_SWEEP_TEST(arch, compiler, "int4", DType::kInt4)

CLEAVE_SWEEP_TESTS("sm_80", "nvrtc")
CLEAVE_SWEEP_TESTS("sm_90a", "nvrtc")
CLEAVE_SWEEP_TESTS("sm_100", "nvrtc")
CLEAVE_SWEEP_TESTS("gfx90a", "clang")
CLEAVE_SWEEP_TESTS("gfx942", "clang")
CLEAVE_SWEEP_TESTS("gfx1100", "clang")
CLEAVE_SWEEP_TESTS("gfx1201", "clang")
CLEAVE_SWEEP_TESTS("gfx90a", "hiprtc")
