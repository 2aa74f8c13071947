// SPDX-License-Identifier: Apache-2.0
// What is declared of libcuda by hand, held against NVIDIA's own header where there is one: the
// compiler checks every name, number and signature; nothing is linked.
#if __has_include(<cuda.h>)
#include <cuda.h>
#define CLEAVE_HAS_CUDA_HEADER 1
#endif

#include <type_traits>

#include "runtime/drivers/cuda/symbols.h"
#include "tests/support/test.h"

#ifdef CLEAVE_HAS_CUDA_HEADER
namespace {

// NOLINTBEGIN(bugprone-macro-parentheses): parts of declarations
#define CLEAVE_SAME(name, parameters) \
    static_assert(std::is_same_v<decltype(&::name), CUresult(*) parameters>, #name);
CLEAVE_CUDA_FUNCTIONS(CLEAVE_SAME)
CLEAVE_CUDA_NEWER_FUNCTIONS(CLEAVE_SAME)

#define CLEAVE_EQUAL(name, value, type)                                       \
    static_assert(std::is_same_v<std::remove_cv_t<decltype(::name)>, type> && \
                      static_cast<long long>(::name) == (value),              \
                  #name);
CLEAVE_CUDA_CONSTANTS(CLEAVE_EQUAL)

namespace ours = cleave::runtime::cuda;
static_assert(sizeof(ours::CUuuid) == sizeof(::CUuuid));
static_assert(sizeof(ours::CUdeviceptr) == sizeof(::CUdeviceptr));
static_assert(sizeof(ours::CUdevice) == sizeof(::CUdevice));
static_assert(sizeof(ours::CUresult) == sizeof(::CUresult));
static_assert(sizeof(ours::CUDA_MEMCPY2D) == sizeof(::CUDA_MEMCPY2D));
static_assert(ours::kHostAllocPortable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(sizeof(ours::CUmemPoolProps) == sizeof(::CUmemPoolProps));
static_assert(offsetof(ours::CUmemPoolProps, location) == offsetof(::CUmemPoolProps, location));
static_assert(offsetof(ours::CUmemPoolProps, win32SecurityAttributes) ==
              offsetof(::CUmemPoolProps, win32SecurityAttributes));
static_assert(sizeof(ours::CUmemAccessDesc) == sizeof(::CUmemAccessDesc));
static_assert(offsetof(ours::CUmemAccessDesc, flags) == offsetof(::CUmemAccessDesc, flags));
static_assert(sizeof(ours::CUlaunchAttribute) == sizeof(::CUlaunchAttribute));
static_assert(offsetof(ours::CUlaunchAttribute, value) == offsetof(::CUlaunchAttribute, value));
static_assert(std::is_same_v<
              decltype(::CUlaunchAttributeValue::programmaticStreamSerializationAllowed), int>);
static_assert(sizeof(ours::CUlaunchConfig) == sizeof(::CUlaunchConfig));
static_assert(offsetof(ours::CUlaunchConfig, sharedMemBytes) ==
              offsetof(::CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(ours::CUlaunchConfig, hStream) == offsetof(::CUlaunchConfig, hStream));
static_assert(offsetof(ours::CUlaunchConfig, attrs) == offsetof(::CUlaunchConfig, attrs));
static_assert(offsetof(ours::CUlaunchConfig, numAttrs) == offsetof(::CUlaunchConfig, numAttrs));
#define CLEAVE_PLACE(member)                                                                  \
    static_assert(offsetof(ours::CUDA_MEMCPY2D, member) == offsetof(::CUDA_MEMCPY2D, member), \
                  #member);
CLEAVE_PLACE(srcXInBytes)
CLEAVE_PLACE(srcMemoryType)
CLEAVE_PLACE(srcHost)
CLEAVE_PLACE(srcDevice)
CLEAVE_PLACE(srcPitch)
CLEAVE_PLACE(dstMemoryType)
CLEAVE_PLACE(dstHost)
CLEAVE_PLACE(dstDevice)
CLEAVE_PLACE(dstPitch)
CLEAVE_PLACE(WidthInBytes)
CLEAVE_PLACE(Height)

// NOLINTEND(bugprone-macro-parentheses)

}  // namespace
#endif

TEST_CASE("libcuda's declarations are NVIDIA's own", "[runtime]") {
#ifdef CLEAVE_HAS_CUDA_HEADER
    SUCCEED("compiled against CUDA " << CUDA_VERSION);
#else
    CLEAVE_SKIP("neither this machine nor the tests' packages have a cuda.h to compare with");
#endif
}
