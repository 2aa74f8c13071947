// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/environment.h"

#include <algorithm>
#include <cstdlib>

#include "runtime/base/errors.h"

namespace cleave {

namespace {

constexpr EnvironmentVariable kVariables[] = {
    {"CLEAVE_LLVM_LIBRARY", "opens this libcleave_llvm.so, with Clang in it, and no other"},
    {"CLEAVE_COMPILE_WORKER", "runs vendors' compilers in this cleave_compile_worker"},
    {"CLEAVE_GPU_COMPILER", "simt: kernels of GPUs are compiled for fakes that the CPU runs"},
    {"CLEAVE_NVRTC", "compiles for NVIDIA GPUs with this library, or one in this folder"},
    {"CLEAVE_HIPRTC", "compiles for AMD GPUs with this library, or one in this folder"},
    {"CLEAVE_CUDA_LIBRARY", "drives NVIDIA GPUs by this library in place of libcuda"},
    {"CLEAVE_NCCL_LIBRARY", "collectives of NVIDIA GPUs by this library in place of libnccl"},
    {"CLEAVE_NVML_LIBRARY", "links of NVIDIA GPUs from this library in place of libnvidia-ml"},
    {"CLEAVE_HIP_LIBRARY", "drives AMD GPUs by this library in place of libamdhip64"},
    {"CLEAVE_RCCL_LIBRARY", "collectives of AMD GPUs by this library in place of librccl"},
    {"CLEAVE_ROCM_SMI_LIBRARY", "links of AMD GPUs from this library in place of librocm_smi64"},
    {"CLEAVE_GPU_GRAPHS", "0: decode is not captured as graphs"},
    {"CLEAVE_GPU_OVERLAP", "0: no launch begins before the one before it has ended"},
    {"CLEAVE_HIP_POOLS", "1: memory of AMD GPUs is allocated from pools"},
};

}  // namespace

std::span<const EnvironmentVariable> environment_variables() { return kVariables; }

std::string environment(std::string_view name) {
    const bool known =
        std::any_of(std::begin(kVariables), std::end(kVariables),
                    [&](const EnvironmentVariable& variable) { return variable.name == name; });
    CLEAVE_CHECK(known) << name << " is not in the list of variables";
    const char* value = std::getenv(std::string(name).c_str());
    return value ? value : "";
}

}  // namespace cleave
