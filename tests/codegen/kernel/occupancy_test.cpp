// SPDX-License-Identifier: Apache-2.0
// Predicted occupancy held against the vendors' own: NVIDIA's calculator, a header of the CUDA
// toolkit, and what LLVM says of kernels with so many registers and so much LDS.
#if __has_include(<cuda_occupancy.h>)
#include <cuda_occupancy.h>
#define CLEAVE_HAS_CUDA_OCCUPANCY 1
#endif

#include <array>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "codegen/compile/amdgpu.h"
#include "codegen/kernel/occupancy.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::codegen;

namespace {

#ifdef CLEAVE_HAS_CUDA_OCCUPANCY
// What the driver says of a device of that architecture, as the table has it.
cudaOccDeviceProp properties_of(const GpuArch& arch) {
    cudaOccDeviceProp p;
    p.computeMajor = arch.number / 10;
    p.computeMinor = arch.number % 10;
    p.maxThreadsPerBlock = arch.max_threads;
    p.maxThreadsPerMultiprocessor = arch.unit.threads;
    p.regsPerBlock = p.regsPerMultiprocessor = static_cast<int>(arch.registers);
    p.warpSize = arch.warp_width;
    p.sharedMemPerBlock = 48 * 1024;
    p.sharedMemPerMultiprocessor = static_cast<size_t>(arch.unit.shared_bytes);
    p.numSms = 1;
    p.sharedMemPerBlockOptin = static_cast<size_t>(arch.shared_bytes);
    p.reservedSharedMemPerBlock = arch.number >= 80 ? 1024 : 0;
    return p;
}

int blocks_by_nvidia(const GpuArch& arch, int threads, int shared, int registers) {
    const cudaOccDeviceProp properties = properties_of(arch);
    cudaOccFuncAttributes kernel;
    kernel.maxThreadsPerBlock = threads;
    kernel.numRegs = registers;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.maxDynamicSharedSizeBytes = static_cast<size_t>(shared);
    kernel.numBlockBarriers = 1;
    cudaOccDeviceState state;
    state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    cudaOccResult result{};
    REQUIRE(cudaOccMaxActiveBlocksPerMultiprocessor(&result, &properties, &kernel, &state, threads,
                                                    static_cast<size_t>(shared)) ==
            CUDA_OCC_SUCCESS);
    return result.activeBlocksPerMultiprocessor;
}
#endif

struct Trial {
    int warps, registers, lds;
    // The registers that the kernel names: from 257 on those that accumulate.
    std::string named() const {
        return registers <= 256 ? fmt::format("\"v{}\"", registers - 1)
                                : fmt::format("\"v255\", \"a{}\"", registers - 257);
    }
};

// One OpenCL kernel each.
std::string source_of(const std::vector<Trial>& launches, int warp_width) {
    std::string source;
    for (size_t i = 0; i < launches.size(); ++i) {
        const Trial& l = launches[i];
        const int threads = l.warps * warp_width;
        const std::string hold =
            l.lds == 0
                ? ""
                : fmt::format("local int x[{}]; __asm volatile(\"\" :: \"v\"(x)); ", l.lds / 4);
        source += fmt::format(
            "__attribute__((amdgpu_flat_work_group_size({}, {}))) kernel void k{}(void) {{ {}"
            "__asm volatile(\"\" ::: {}); }}\n",
            threads, threads, i, hold, l.named());
    }
    return source;
}

// Waves of a SIMD, of each kernel in order, from the comments of Clang's assembly.
std::vector<int> waves_by_llvm(const GpuArch& arch, const std::vector<Trial>& launches) {
    test::TemporaryFolder folder;
    const std::string source = (folder.path() / "kernels.cl").string(),
                      assembly = (folder.path() / "kernels.s").string();
    std::ofstream(source) << source_of(launches, arch.warp_width);
    const std::string command = fmt::format(
        "clang-19 -x cl -cl-std=CL2.0 -nogpulib -O1 -target amdgcn-amd-amdhsa -mcpu={} -S -o {} {}",
        arch.name, assembly, source);
    INFO(command);
    REQUIRE(std::system(command.c_str()) == 0);
    std::vector<int> waves;
    const std::string kSays = "; Occupancy: ";
    std::ifstream stream(assembly);
    for (std::string line; std::getline(stream, line);)
        if (line.starts_with(kSays)) waves.push_back(std::stoi(line.substr(kSays.size())));
    REQUIRE(waves.size() == launches.size());
    return waves;
}

// Blocks of 1, 2 and 4 waves fill SIMDs evenly, so that LLVM, which looks at one SIMD, and a count
// of blocks agree; more waves with registers to spare. LDS in whole granules, to which LLVM does
// not round.
std::vector<Trial> launches_of(const GpuArch& arch) {
    std::vector<Trial> launches;
    const bool accumulates =
        arch.matrix == MatrixInstruction::kMfma || arch.matrix == MatrixInstruction::kMfmaGfx90a;
    for (int warps : {1, 2, 4})
        for (int registers :
             {1,   24,  25,  28,  29,  32,  33,  36,  37,  40,  41,  48,  49,  64,  65,
              72,  73,  80,  81,  84,  85,  96,  97,  102, 103, 112, 113, 120, 121, 128,
              129, 144, 145, 168, 169, 192, 193, 240, 241, 256, 257, 300, 512})
            if (registers <= 256 || accumulates)
                for (int lds : {0, 5 * 1024, 17 * 1024})
                    launches.push_back({warps, registers, lds});
    for (int warps : {3, 5, 8, 16})
        if (warps * arch.warp_width <= arch.max_threads)
            for (int lds : {0, 3 * 1024, 64 * 1024}) launches.push_back({warps, 4, lds});
    return launches;
}

}  // namespace

TEST_CASE("predicted blocks of a multiprocessor are those of NVIDIA's occupancy calculator",
          "[codegen]") {
#ifdef CLEAVE_HAS_CUDA_OCCUPANCY
    int compared = 0;
    for (const GpuArch& arch : gpu_archs()) {
        if (arch.vendor != planner::Vendor::kNvidia) continue;
        for (int threads :
             {1, 32, 33, 64, 96, 128, 160, 192, 256, 288, 384, 512, 640, 768, 1024, 1025})
            for (int registers : {1,  16, 24, 25, 32, 33,  40,  41,  48,  56, 64,
                                  65, 72, 80, 96, 97, 128, 129, 168, 200, 255})
                for (int kib_16ths : {0,   1,   2,   3,   16,   17,   47,   160,  161,  200,
                                      321, 512, 768, 800, 1025, 1584, 1585, 2600, 3632, 3633}) {
                    const int shared = kib_16ths * 64;
                    CAPTURE(arch.name, threads, registers, shared);
                    const Occupancy ours = predict_occupancy(arch, threads, shared, registers);
                    const int theirs = blocks_by_nvidia(arch, threads, shared, registers);
                    if (ours.blocks != theirs) CHECK(ours.blocks == theirs);
                    ++compared;
                }
    }
    CHECK(compared > 50000);
#else
    CLEAVE_SKIP("neither this machine nor the tests' packages have a cuda_occupancy.h");
#endif
}

TEST_CASE("predicted waves of an AMD SIMD are those that LLVM states of the same kernel",
          "[codegen]") {
    if (std::system("command -v clang-19 > /dev/null 2>&1") != 0)
        CLEAVE_SKIP("no clang-19 on the search path");
    const std::string known = amdgpu_clang_info().archs + " ";
    int compared = 0;
    for (const GpuArch& arch : gpu_archs()) {
        if (known.find(std::string(arch.name) + " ") == std::string::npos) continue;
        ++compared;
        const std::vector<Trial> launches = launches_of(arch);
        const std::vector<int> theirs = waves_by_llvm(arch, launches);
        for (size_t i = 0; i < launches.size(); ++i) {
            const Trial& l = launches[i];
            CAPTURE(arch.name, l.warps, l.registers, l.lds);
            const Occupancy ours =
                predict_occupancy(arch, l.warps * arch.warp_width, l.lds, l.registers);
            CHECK((ours.warps + planner::kPartsOfUnit - 1) / planner::kPartsOfUnit == theirs[i]);
        }
    }
    CHECK(compared >= 10);  // all but gfx950, which LLVM 19 does not know
}

// Figures of the sources that planner/machine/gpu_arch.cpp names, where neither of the above needs
// to be at hand.
TEST_CASE("each limit of a unit bounds the blocks that it holds", "[codegen]") {
    struct Row {
        const char* arch;
        int64_t threads, shared, registers, blocks;
    };
    const std::array rows = {
        Row{"sm_70", 32, 0, 0, 32},
        Row{"sm_75", 32, 0, 0, 16},
        Row{"sm_86", 32, 0, 0, 16},
        Row{"sm_89", 32, 0, 0, 24},
        Row{"sm_90a", 64, 0, 16, 32},
        Row{"sm_110", 32, 0, 0, 24},
        Row{"sm_120", 32, 0, 0, 24},
        Row{"sm_80", 96, 0, 72, 9},
        Row{"sm_80", 256, 0, 33, 6},
        Row{"sm_80", 128, 19 * 1024 + 1, 0, 8},
        Row{"sm_75", 128, 8 * 1024 + 1, 0, 7},
        Row{"sm_80", 1024, 0, 65, 0},
        Row{"sm_80", 256, 164 * 1024, 0, 0},
        Row{"gfx906", 128, 0, 4, 16},
        Row{"gfx906", 64, 0, 4, 40},
        Row{"gfx90a", 256, 0, 72, 7},
        Row{"gfx90a", 256, 1025, 0, 8},
        Row{"gfx90a", 128, 4 * 1024 + 1, 0, 14},
        Row{"gfx1030", 64, 0, 4, 32},
        Row{"gfx1030", 256, 0, 65, 6},
        Row{"gfx1100", 256, 0, 73, 8},
        Row{"gfx1030", 256, 15 * 1024 + 1, 0, 8},
        Row{"gfx1100", 256, 40 * 1024, 0, 3},
    };
    for (const Row& r : rows) {
        CAPTURE(r.arch, r.threads, r.shared, r.registers);
        const GpuArch& arch = gpu_arch(r.arch);
        const Occupancy o = predict_occupancy(arch, r.threads, r.shared, r.registers);
        CHECK(o.blocks == r.blocks);
        CHECK(o.warps == r.blocks * ((r.threads + arch.warp_width - 1) / arch.warp_width));
        CHECK(o.warps <= o.most_warps);
    }
}
