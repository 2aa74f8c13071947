// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/dynamic_library.h"

#include <cstdlib>

#include "tests/support/test.h"

using Catch::Matchers::Contains;
using cleave::DynamicLibrary;

TEST_CASE(
    "a library of Cleave's is looked for in ../lib, beside the program, and where the loader looks",
    "[base]") {
    const auto program = std::filesystem::canonical("/proc/self/exe").parent_path();
    const auto names = cleave::library_names("libx.so");
    REQUIRE(names.size() == 3);
    CHECK(names[0] == (program.parent_path() / "lib" / "libx.so").string());
    CHECK(names[1] == (program / "libx.so").string());
    CHECK(names[2] == "libx.so");
}

TEST_CASE("the reason that no library opened has every name that was tried", "[base]") {
    for (const auto scope : {DynamicLibrary::Scope::kShared, DynamicLibrary::Scope::kIsolated}) {
        const auto names = cleave::library_names("libcleave_no_such_thing.so");
        std::string why;
        CHECK_FALSE(DynamicLibrary::open_first(names, &why, scope));
        for (const std::string& name : names) CHECK_THAT(why, Contains(name + ":"));
    }
}

TEST_CASE("a library that lacks one it needs is told by its own name and by the missing one's",
          "[base]") {
    if (std::system("command -v cc > /dev/null 2>&1") != 0) CLEAVE_SKIP("no C compiler here");
    cleave::test::TemporaryFolder folder;
    const std::string f = folder.path().string(), needs = f + "/libcleave_needs.so";
    const std::string command =
        "cd " + f +
        " && echo 'int gone(void) { return 1; }' | cc -xc -shared -fPIC - "
        "-o libcleave_gone.so && echo 'int gone(void); int f(void) { return "
        "gone(); }' | cc -xc -shared -fPIC - -L. -lcleave_gone -o " +
        needs + " && rm libcleave_gone.so";
    REQUIRE(std::system(command.c_str()) == 0);
    const std::vector<std::string> names = {"libcleave_no_such_thing.so", needs};
    std::string why;
    CHECK_FALSE(DynamicLibrary::open_first(names, &why));
    CHECK_THAT(why, Contains("libcleave_no_such_thing.so:") && Contains(needs + ":") &&
                        Contains("libcleave_gone.so"));
}

TEST_CASE("an isolated library opens, and its functions are found", "[base]") {
    std::string why;
    const std::vector<std::string> names = {"libcleave_no_such_thing.so", "libm.so.6"};
    const auto library = DynamicLibrary::open_first(names, &why, DynamicLibrary::Scope::kIsolated);
    INFO(why);
    REQUIRE(library);
    CHECK(library->name() == "libm.so.6");
    auto* root = library->function<double(double)>("sqrt");
    REQUIRE(root);
    CHECK(root(9.0) == 3.0);
    CHECK(library->symbol("no_such_function") == nullptr);
}
