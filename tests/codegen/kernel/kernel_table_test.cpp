// SPDX-License-Identifier: Apache-2.0
// The one place where the arguments of a launch meet the parameters of its kernel.
#include <string>
#include <utility>
#include <vector>

#include "codegen/gpu/kernels.h"
#include "codegen/host/kernels.h"
#include "codegen/kernel/kernel_table.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::codegen;

namespace {

// As its parameters are called, in their order.
std::vector<Arg> args_of(const Kernel& kernel) {
    std::vector<Arg> args;
    for (const std::string& name : kernel.parameters) args.push_back(immediate_arg(0, name));
    return args;
}

// Each pair of neighbours swapped, one too few, and one too many.
std::vector<std::vector<Arg>> wrong_args(const std::vector<Arg>& args) {
    std::vector<std::vector<Arg>> wrong;
    for (size_t i = 0; i + 1 < args.size(); ++i) {
        wrong.push_back(args);
        std::swap(wrong.back()[i], wrong.back()[i + 1]);
    }
    wrong.push_back(args);
    wrong.back().pop_back();
    wrong.push_back(args);
    wrong.back().push_back(immediate_arg(0, "other"));
    return wrong;
}

std::vector<Kernel> kernels() {
    LinearSpec linear;
    linear.in = linear.out = 64;
    linear.x = {64, 0};
    linear.norm = NormSpec{};
    linear.residual = View{64, 0};
    TensorSpec tensor;
    tensor.file = "host/tensor_norm.h";
    tensor.call = "tensor_rms_norm";
    tensor.args_struct = "TensorNormArgs";
    tensor.args = {{"const float*", "X"}, {"float*", "out"}, {"i64", "features"}};
    GpuTarget gpu;
    gpu.device = "sm_80";
    gpu.limits = {48 << 10, 65536, 1024, 32, 108};
    return {make_host_kernel(linear, planner::KernelKind::kNormLinear, {"linear"}, {}),
            make_host_kernel(tensor, planner::KernelKind::kTensor, {"RMSNormalization"}, {}),
            make_gpu_kernel(linear, planner::KernelKind::kNormLinear, {"linear"}, gpu),
            make_gpu_helper(AllReduceSpec{64, 2, true, {}}, gpu)};
}

}  // namespace

TEST_CASE("arguments that are not a kernel's parameters in their order are refused with both",
          "[codegen]") {
    for (const Kernel& kernel : kernels()) {
        CAPTURE(kernel.name);
        REQUIRE(kernel.parameters.size() >= 3);
        const std::vector<Arg> right = args_of(kernel);
        Program program;
        KernelTable table(program);
        CHECK(table.launch(planner::StepId(3), kernel, right).step == planner::StepId(3));
        for (const std::vector<Arg>& args : wrong_args(right)) {
            const std::string takes = kernel.name + " takes (" + kernel.parameters[0],
                              given = "), and is given (" + args[0].name;
            CHECK_THROWS_WITH(table.launch(planner::StepId(3), kernel, args),
                              Catch::Contains(takes) && Catch::Contains(given));
            CHECK_THROWS_WITH(table.launch(planner::StepId(3), 0, args),
                              Catch::Contains(takes) && Catch::Contains(given));
        }
        CHECK(program.kernels.size() == 1);
    }
}
