// SPDX-License-Identifier: Apache-2.0
// What is declared of libnccl by hand, held against NVIDIA's own nccl.h where there is one: the
// compiler checks every name, number and signature; nothing is linked.
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define CLEAVE_HAS_NCCL_HEADER 1
#endif

#include <type_traits>

#include "runtime/drivers/nccl/symbols.h"
#include "tests/support/test.h"

#ifdef CLEAVE_HAS_NCCL_HEADER
namespace {

// NOLINTBEGIN(bugprone-macro-parentheses): parts of declarations
#define CLEAVE_SAME(name, parameters) \
    static_assert(std::is_same_v<decltype(&::name), ncclResult_t(*) parameters>, #name);
CLEAVE_NCCL_FUNCTIONS(CLEAVE_SAME)
static_assert(std::is_same_v<decltype(&::ncclGetErrorString), const char* (*)(ncclResult_t)>);
static_assert(std::is_same_v<decltype(&::ncclGetLastError), const char* (*)(ncclComm_t)>);

#define CLEAVE_EQUAL(name, value, type)                                       \
    static_assert(std::is_same_v<std::remove_cv_t<decltype(::name)>, type> && \
                      static_cast<long long>(::name) == (value),              \
                  #name);
CLEAVE_NCCL_CONSTANTS(CLEAVE_EQUAL)

namespace ours = cleave::runtime::nccl;
static_assert(sizeof(ours::ncclUniqueId) == sizeof(::ncclUniqueId));
static_assert(sizeof(ours::ncclResult_t) == sizeof(::ncclResult_t));
static_assert(sizeof(ours::ncclDataType_t) == sizeof(::ncclDataType_t));
static_assert(sizeof(ours::ncclConfig_t) <= sizeof(::ncclConfig_t));
static_assert(offsetof(ours::ncclConfig_t, magic) == offsetof(::ncclConfig_t, magic));
static_assert(offsetof(ours::ncclConfig_t, version) == offsetof(::ncclConfig_t, version));
static_assert(offsetof(ours::ncclConfig_t, blocking) == offsetof(::ncclConfig_t, blocking));

// NOLINTEND(bugprone-macro-parentheses)

}  // namespace
#endif

TEST_CASE("libnccl's declarations are NVIDIA's own", "[runtime]") {
#ifdef CLEAVE_HAS_NCCL_HEADER
    const ::ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
    CHECK(ours::ncclConfig_t{}.magic == theirs.magic);
    SUCCEED("compiled against NCCL " << NCCL_VERSION_CODE);
#else
    CLEAVE_SKIP("neither this machine nor the tests' packages have an nccl.h to compare with");
#endif
}
