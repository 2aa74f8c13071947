// SPDX-License-Identifier: Apache-2.0
// What is declared of libamdhip64 by hand, held against AMD's own header where there is one: the
// compiler checks every name, number and signature; nothing is linked.
#if __has_include(<hip/hip_runtime_api.h>)
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the header's name
#define __HIP_PLATFORM_AMD__
#include <hip/hip_runtime_api.h>
#define CLEAVE_HAS_HIP_HEADER 1
#endif

#include <type_traits>

#include "runtime/drivers/hip/symbols.h"
#include "tests/support/test.h"

#ifdef CLEAVE_HAS_HIP_HEADER
namespace {

// Some are overloaded by templates in C++: the plain function is asked for.
// NOLINTBEGIN(bugprone-macro-parentheses): parts of declarations
#define CLEAVE_SAME(name, parameters) \
    using S_##name = decltype(static_cast<hipError_t(*) parameters>(&::name));
CLEAVE_HIP_FUNCTIONS(CLEAVE_SAME)
CLEAVE_HIP_POOL_FUNCTIONS(CLEAVE_SAME)

#define CLEAVE_EQUAL(name, value, type)                                       \
    static_assert(std::is_same_v<std::remove_cv_t<decltype(::name)>, type> && \
                      static_cast<long long>(::name) == (value),              \
                  #name);
CLEAVE_HIP_CONSTANTS(CLEAVE_EQUAL)

using ErrorName = decltype(static_cast<const char* (*)(hipError_t)>(&::hipGetErrorName));
using ErrorString = decltype(static_cast<const char* (*)(hipError_t)>(&::hipGetErrorString));
using Uuid = decltype(static_cast<hipError_t (*)(hipUUID*, hipDevice_t)>(&::hipDeviceGetUuid));
#if HIP_VERSION >= 50300000
static_assert(cleave::runtime::hip::kWallClockRate == hipDeviceAttributeWallClockRate);
#endif
#if HIP_VERSION >= 60000000  // the driver does without it where it is absent, as in HIP 5
using Upload =
    decltype(static_cast<hipError_t (*)(hipGraphExec_t, hipStream_t)>(&::hipGraphUpload));
#endif

namespace ours = cleave::runtime::hip;
static_assert(sizeof(ours::hipUUID) == sizeof(::hipUUID));
static_assert(sizeof(ours::hipError_t) == sizeof(::hipError_t));
static_assert(sizeof(ours::hipDevice_t) == sizeof(::hipDevice_t));
static_assert(sizeof(ours::hipMemPoolProps) == sizeof(::hipMemPoolProps));
static_assert(offsetof(ours::hipMemPoolProps, location) == offsetof(::hipMemPoolProps, location));
static_assert(sizeof(ours::hipMemAccessDesc) == sizeof(::hipMemAccessDesc));
static_assert(ours::kStreamNonBlocking == hipStreamNonBlocking);
static_assert(ours::kMallocFinegrained == hipDeviceMallocFinegrained);
static_assert(ours::kHostMallocPortable == hipHostMallocPortable);
static_assert(ours::kHostMallocMapped == hipHostMallocMapped);
static_assert(ours::kHostMallocCoherent == hipHostMallocCoherent);
static_assert(ours::kEventDisableTiming == hipEventDisableTiming);
static_assert(sizeof(hipDeviceProp_t) < 8192);

// NOLINTEND(bugprone-macro-parentheses)

}  // namespace
#endif

TEST_CASE("libamdhip64's declarations are AMD's own", "[runtime]") {
#ifdef CLEAVE_HAS_HIP_HEADER
    SUCCEED("compiled against HIP " << HIP_VERSION_MAJOR);
#else
    CLEAVE_SKIP("this machine has no hip/hip_runtime_api.h to compare with");
#endif
}
