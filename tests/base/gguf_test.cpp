// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/gguf.h"

#include <cstring>
#include <fstream>
#include <random>

#include "tests/support/test.h"

namespace cleave::test {
namespace {

using Catch::Matchers::Contains;

template <class T>
std::string raw(T value) {
    std::string bytes(sizeof(T), '\0');
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
}
std::string text(const std::string& value) { return raw(uint64_t{value.size()}) + value; }
std::string header(uint64_t tensors, uint64_t pairs, uint32_t version = 3) {
    return "GGUF" + raw(version) + raw(tensors) + raw(pairs);
}
// A matrix of that type, at that byte of the data.
std::string tensor(const std::string& name, const std::vector<uint64_t>& shape, uint32_t type,
                   uint64_t offset) {
    std::string bytes = text(name) + raw(static_cast<uint32_t>(shape.size()));
    for (const uint64_t d : shape) bytes += raw(d);
    return bytes + raw(type) + raw(offset);
}
std::string padded(std::string bytes, size_t data) {
    bytes.resize((bytes.size() + 31) / 32 * 32 + data);
    return bytes;
}

GgufFile read_bytes_of(const std::string& bytes) {
    const TemporaryFolder folder;
    const auto path = folder.path() / "x.gguf";
    std::ofstream(path, std::ios::binary) << bytes;
    return read_gguf(path.string());
}
std::string error_of(const std::string& bytes) {
    return user_error([&] { read_bytes_of(bytes); });
}

}  // namespace

TEST_CASE("a GGUF header gives its keys, and tensors with their places in the file", "[gguf]") {
    const std::string bytes =
        padded(header(2, 3) + text("a") + raw(uint32_t{4}) + raw(uint32_t{7}) + text("b") +
                   raw(uint32_t{8}) + text("x") + text("c") + raw(uint32_t{9}) + raw(uint32_t{5}) +
                   raw(uint64_t{2}) + raw(int32_t{-1}) + raw(int32_t{3}) +
                   tensor("later", {64, 2}, 8, 32) + tensor("first", {4}, 0, 0),
               32 + 4 * 34);
    const GgufFile file = read_bytes_of(bytes);
    CHECK(file.metadata == nlohmann::json{{"a", 7}, {"b", "x"}, {"c", {-1, 3}}});
    REQUIRE(file.tensors.size() == 2);
    CHECK(file.tensors[0].name == "first");
    const GgufTensor& later = *file.find("later");
    CHECK(later.shape == std::vector<int64_t>{2, 64});
    CHECK(later.type == GgufType::kQ80);
    CHECK(later.offset == bytes.size() - 4 * 34);
    CHECK(later.length == 4 * 34);
}

TEST_CASE("a GGUF file that is damaged, later or of a form without support is named", "[gguf]") {
    CHECK_THAT(error_of("ONNX"), Contains("no GGUF file"));
    CHECK_THAT(error_of(header(0, 0, 4)), Contains("is of version 4; supported are 2 and 3"));
    CHECK_THAT(error_of(header(0, 0, 3 << 24)), Contains("big-endian"));
    CHECK_THAT(error_of(header(uint64_t{1} << 63, 0)), Contains("tensors; at most"));
    CHECK_THAT(error_of(header(0, 1) + text("a\nb") + raw(uint32_t{4}) + raw(uint32_t{7})),
               Contains("has control characters in a key"));
    CHECK_THAT(error_of(padded(header(1, 0) + tensor("a\x1b", {4}, 0, 0), 16)),
               Contains("has control characters in a tensor's name"));
    CHECK_THAT(error_of(header(0, 1) + raw(~uint64_t{0})), Contains("ends within a key"));
    const auto pair = [](const std::string& value) { return header(0, 1) + text("k") + value; };
    CHECK_THAT(error_of(pair(raw(uint32_t{13}))), Contains("a value of type 13 for 'k'"));
    CHECK_THAT(error_of(pair(raw(uint32_t{6}) + raw(uint32_t{0x7f800000}))),
               Contains("no finite number for 'k'"));
    CHECK_THAT(error_of(pair(raw(uint32_t{9}) + raw(uint32_t{0}) + raw(uint64_t{1} << 40))),
               Contains("values for 'k'; at most"));
    CHECK_THAT(error_of(pair(raw(uint32_t{9}) + raw(uint32_t{9}) + raw(uint64_t{1}))),
               Contains("arrays within an array"));
    const std::string twice = text("k") + raw(uint32_t{0}) + "1";
    CHECK_THAT(error_of(header(0, 2) + twice + twice), Contains("has 'k' twice"));
    CHECK_THAT(error_of(header(0, 1) + text("split.count") + raw(uint32_t{2}) + raw(uint16_t{3})),
               Contains("one of 3 parts"));
    CHECK_THAT(
        error_of(header(0, 1) + text("general.alignment") + raw(uint32_t{4}) + raw(uint32_t{24})),
        Contains("no power of two"));
}

TEST_CASE("a tensor of a GGUF file lies in it, aligned, and over no other", "[gguf]") {
    const auto one = [](const std::string& t, size_t data = 64) {
        return error_of(padded(header(1, 0) + t, data));
    };
    CHECK(read_bytes_of(padded(header(1, 0) + tensor("t", {16}, 0, 0), 64)).tensors.size() == 1);
    CHECK_THAT(one(tensor("t", {16}, 0, 32)), Contains("it was cut short"));
    CHECK_THAT(one(tensor("t", {16}, 0, ~uint64_t{31})), Contains("it was cut short"));
    CHECK_THAT(one(tensor("t", {8}, 0, 8)), Contains("no multiple of 32"));
    CHECK_THAT(one(tensor("t", {48}, 2, 0)), Contains("no whole blocks of 32 (Q4_0)"));
    CHECK_THAT(one(tensor("t", {16}, 16, 0)), Contains("ggml's type 16, which is not supported"));
    CHECK_THAT(one(tensor("t", {}, 0, 0)), Contains("0 dimensions"));
    CHECK_THAT(one(tensor("t", {uint64_t{1} << 40, uint64_t{1} << 40}, 0, 0)),
               Contains("impossible shape"));
    CHECK_THAT(
        error_of(padded(header(2, 0) + tensor("t", {8}, 0, 0) + tensor("t", {8}, 0, 32), 64)),
        Contains("'t' twice"));
    CHECK_THAT(
        error_of(padded(header(2, 0) + tensor("s", {16}, 0, 0) + tensor("t", {8}, 0, 32), 64)),
        Contains("'t' over 's'"));
}

TEST_CASE("a GGUF file with any bytes changed or cut off is read or refused", "[gguf]") {
    const auto path = source_root() / "tests" / "files" / "gguf" / "tokenizer_gpt2.gguf";
    std::ifstream file(path, std::ios::binary);
    const std::string whole{std::istreambuf_iterator<char>(file), {}};
    REQUIRE(whole.size() > 1000);
    std::mt19937 random(3);
    for (int i = 0; i < 300; ++i) {
        std::string bytes = whole;
        for (int k = 0; k < 4; ++k)
            bytes[random() % (i % 2 ? 600 : bytes.size())] = static_cast<char>(random());
        if (i % 3 == 0) bytes.resize(random() % bytes.size());
        try {
            read_bytes_of(bytes);
        } catch (const UserError&) {  // NOLINT(bugprone-empty-catch): the other right answer
        }
    }
}

}  // namespace cleave::test
