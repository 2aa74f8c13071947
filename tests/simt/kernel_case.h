// SPDX-License-Identifier: Apache-2.0
// A row of the kernel table: one operator on one shape and dtype, with operands drawn from a seed
// and the results in double precision, to be run by any target. A target is a GPU architecture that
// simt imitates, or the host.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/simt/simt.h"
#include "tests/codegen/support/kernel_reference.h"
#include "tests/support/quantized_matrix.h"

namespace cleave::test {

// A word of the launch: an operand, or an integer.
struct Word {
    int operand = -1;
    int64_t value = 0;
};

struct KernelCase {
    std::string name;
    codegen::KernelSpec spec;
    std::optional<codegen::GpuHelperSpec> helper;  // instead of `spec`; GPUs alone have these
    planner::KernelKind kind = planner::KernelKind::kLinear;
    std::vector<std::string> fused;
    std::vector<GuardedBuffer> operands;
    std::vector<Word> args;  // in the order of the spec's comment
    std::set<int> weights;   // operands
    RaggedBatch batch;       // of attention: what its sequences are
    std::vector<int32_t> starts;
    Counts counts;
    struct Result {
        int operand = -1;
        std::vector<double> want;  // not a number: nobody writes there
        int64_t row = 0;           // numbers whose errors are held against their largest; 0: all
        // Instead of `want`: what is wrong; empty: nothing.
        std::function<std::string(const GuardedBuffer& got, double tolerance)> check = {};
    };
    std::vector<Result> results;
    DType activations = DType::kF32;  // the host knows no other
    double tolerance = 2e-5;          // of |got - want| / the row's largest |want|, products in f32
    double matrix_tolerance =
        2e-5;  // where activations are narrowed to the weights' or cache's type

    int add(GuardedBuffer buffer) {
        operands.push_back(std::move(buffer));
        return static_cast<int>(operands.size()) - 1;
    }
    int add_arg(GuardedBuffer buffer) {
        int operand = add(std::move(buffer));
        args.push_back({operand, 0});
        return operand;
    }
    void add_arg(int64_t value) { args.push_back({-1, value}); }
    // What no launch writes, as a plan's weights and tables: all that a kernel may read before it
    // waits for others.
    int add_weight(GuardedBuffer buffer) {
        weights.insert(add_arg(std::move(buffer)));
        return args.back().operand;
    }
    GuardedBuffer& operand(int i) { return operands[static_cast<size_t>(i)]; }
};

// "host", or the name of an architecture in codegen/kernel/occupancy.h with the limits of a device
// of `units` compute units.
struct Target {
    std::string name;
    int64_t units = 8;
    std::optional<planner::Tile> tile;  // instead of the one that the planner's arithmetic chooses
};

planner::DeviceLimits limits_of(const std::string& arch, int64_t units);
codegen::Kernel make_kernel(const KernelCase& c, const Target& target);

// Runs the case and checks its results; the report of a simt target, and a message on a wrong
// number. Operands that are results are written.
struct Outcome {
    runtime::simt::SimtReport report;
    std::string wrong;  // empty: every number within its bound, guard words intact
};
Outcome run_on_simt(KernelCase& c, const codegen::Kernel& kernel,
                    const runtime::simt::SimtProgram& program,
                    const runtime::simt::LaunchOptions& options = {});
Outcome run_on_host(KernelCase& c, std::mt19937& rng);
// On a real GPU (or a fake one): every operand in memory of its own between guard words, which must
// stay; `device` has the kernel loaded as its only one. `before` may change what is at the
// addresses of the operands.
using BeforeLaunch = std::function<void(const std::vector<uint64_t>& operands)>;
Outcome run_on_device(KernelCase& c, const codegen::Kernel& kernel, runtime::Device& device,
                      const BeforeLaunch& before = {});

struct LinearOptions {
    bool norm = false, bias = false, residual = false, scale = false, select = false,
         logits = false;
    bool prepared = false;  // x as the weights are staged
    bool beyond = false;    // rows of x beyond f16
};
// How the matrices of a case lie: as elements of a type, or quantised as `quantized` has it, whose
// size is the case's own.
struct MatrixForm {
    DType dtype = DType::kF32;  // of norms and biases, too
    std::optional<QuantizedCase> quantized = {};
    MatrixForm(DType d) : dtype(d) {}                     // NOLINT: a type is a form
    MatrixForm(const QuantizedCase& q) : quantized(q) {}  // NOLINT
    std::string text(int64_t rows, int64_t columns) const;
};
KernelCase linear_case(const MatrixForm& form, int64_t in, int64_t out, int64_t tokens,
                       LinearOptions options, DType activations = DType::kF32);

using Cases = std::vector<std::function<KernelCase()>>;

// The table: every operator, dtype and shape, with the cache as hosts or as GPUs arrange it.
Cases all_cases(bool host = false);
// Products of 64 tokens and more in 16 bits: what warpgroups take, in all widths of their tiles.
Cases warpgroup_cases();

}  // namespace cleave::test
