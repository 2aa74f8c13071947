// SPDX-License-Identifier: Apache-2.0
// Files of others: of a kind, a size and a depth that can be read, and errors in plain words.
#include "runtime/base/json_file.h"

#include <sys/stat.h>

#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/test.h"

using namespace cleave;
using Catch::Contains;

TEST_CASE("JSON that is none is told with line and column, in words", "[base]") {
    const auto error_of = [](const std::string& text) {
        const std::string error = test::user_error([&] { parse_json(text, "x.json"); });
        CHECK_THAT(error, !Contains("json.exception"));
        return error;
    };
    CHECK_THAT(error_of("{\n\"a\" 1}"), Contains("x.json: line 2, column 5: no JSON: "));
    CHECK_THAT(error_of("{'a': 1}"), Contains("no JSON: invalid literal; expected string literal"));
    CHECK_THAT(error_of("[1,\n 1e999\n]"), Contains("x.json: line 2, column 6: no JSON: number"));
    CHECK_THAT(error_of("{\"a\": 1,\n \"a\": 2}"),
               Contains("x.json: line 2, column 4: the name \"a\" is there twice"));
    // Where the library sees the end.
    CHECK_THAT(error_of(std::string("{\n}\0{{", 6)), Contains("x.json: line 2, column 2: no JSON"));
    CHECK_THAT(error_of(""), Contains("x.json: line 1, column 1: no JSON"));
    CHECK(parse_json("{\"a\": [1, 2]}", "x.json")["a"][1] == 2);
}

TEST_CASE("JSON has a depth that recursion bears", "[base]") {
    const auto nested = [](int depth) {
        return std::string(static_cast<size_t>(depth), '[') +
               std::string(static_cast<size_t>(depth), ']');
    };
    const int most = static_cast<int>(kMostJsonDepth);
    CHECK_NOTHROW(parse_json(nested(most), "x.json"));
    for (const int depth : {most + 1, 1'000'000})
        CHECK_THAT(test::user_error([&] { parse_json(nested(depth), "x.json"); }),
                   Contains("x.json: line 1, column 65: values are more than 64 levels inside"));
}

TEST_CASE("JSON takes time by its length, and has so many values at most", "[base]") {
    const auto list_of = [](size_t count, const std::string& value) {
        std::string text = "[";
        for (size_t i = 0; i < count; ++i) text += value + ",";
        text.back() = ']';
        return text;
    };
    // Minutes where each object looks at all that are before it.
    CHECK(parse_json(list_of(1'000'000, "{}"), "x.json").size() == 1'000'000);
    CHECK_THAT(test::user_error([&] { parse_json(list_of(kMostJsonValues, "0"), "x.json"); }),
               Contains("x.json: line 1, column 16777217: more than 8388608 values"));
}

TEST_CASE("ordered JSON keeps the order of names, and has so many in an object at most", "[base]") {
    CHECK(parse_ordered_json(R"({"z": {"b": 1, "a": 2}, "c": 3})", "x.json").dump() ==
          R"({"z":{"b":1,"a":2},"c":3})");
    const auto object_of = [](size_t names) {
        std::string text = R"([{"a": 1}, {)";
        for (size_t i = 0; i < names; ++i) text += '"' + std::to_string(i) + R"(": 1,)";
        text.back() = '}';
        return text + "]";
    };
    CHECK(parse_ordered_json(object_of(kMostOrderedNames), "x.json")[1].size() ==
          kMostOrderedNames);
    CHECK_THAT(
        test::user_error([&] { parse_ordered_json(object_of(kMostOrderedNames + 1), "x.json"); }),
        Contains("x.json: line 1, column 39868: an object of more than 4096 names"));
}

TEST_CASE("what is no regular file, or too large, is refused before it is read", "[base]") {
    const test::TemporaryFolder folder;
    const auto error_of = [](const std::filesystem::path& path) {
        return test::user_error([&] { read_regular_file(path, 1000); });
    };
    const auto path = folder.path() / "file";
    CHECK_THAT(error_of(path), Contains(path.string()) && Contains("No such file"));
    CHECK_THAT(error_of(folder.path()), Contains("is a folder"));
    CHECK_THAT(error_of("/dev/zero"), Contains("is a pipe or a device"));
    std::ofstream(path) << std::string(1001, 'x');
    CHECK_THAT(error_of(path), Contains("has 1001 bytes; such files have at most 1000"));
    std::filesystem::resize_file(path, 1000);
    CHECK(read_regular_file(path, 1000).size() == 1000);
    std::filesystem::remove(path);
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    CHECK_THAT(error_of(path), Contains("is a pipe or a device"));
}

TEST_CASE("a copy of a file is whole, or an error", "[base]") {
    const test::TemporaryFolder folder;
    const auto path = folder.path() / "file";
    const std::string text = std::string(3'000'000, 'x') + "end";
    std::ofstream(path) << text;
    std::ostringstream copy;
    copy_regular_file(path, copy);
    CHECK(copy.str() == text);
    const auto error_of = [](const std::filesystem::path& from, int64_t bytes) {
        std::ostringstream to;
        return test::user_error([&] { copy_regular_file(from, to, bytes); });
    };
    CHECK_THAT(error_of(path, 3'000'004), Contains("had 3000004 bytes and has 3000003 now"));
    CHECK_THAT(error_of("/dev/zero", -1), Contains("is a pipe or a device"));
    CHECK_THAT(error_of(folder.path(), -1), Contains("is a folder"));
    std::filesystem::remove(path);
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    CHECK_THAT(error_of(path, -1), Contains("is a pipe or a device"));
}
