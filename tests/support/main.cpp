// SPDX-License-Identifier: Apache-2.0
// Runs the tests of one program. Under ctest, which runs one test per process, a test that passed
// only because it was skipped answers with a code of its own (tests/CMakeLists.txt).
#define CATCH_CONFIG_RUNNER
#include "tests/support/test.h"

#include <cstdlib>

int main(int argc, char** argv) {
    const int result = Catch::Session().run(argc, argv);
    const char* skip_code = std::getenv("CLEAVE_TEST_SKIP_CODE");
    if (result == 0 && skip_code && cleave::test::was_skipped()) return std::atoi(skip_code);
    return result;
}
