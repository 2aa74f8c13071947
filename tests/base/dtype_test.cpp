// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/base/convert.h"
#include "runtime/base/hash.h"
#include "runtime/base/index.h"
#include "tests/support/test.h"

using namespace cleave;

TEST_CASE("every f16 value survives the way to f32 and back", "[base]") {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        float value = f16_to_f32(static_cast<uint16_t>(bits));
        if (std::isnan(value)) continue;
        REQUIRE(f32_to_f16(value) == bits);
    }
}

TEST_CASE("every bf16 value survives the way to f32 and back", "[base]") {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        float value = bf16_to_f32(static_cast<uint16_t>(bits));
        if (std::isnan(value)) continue;
        REQUIRE(f32_to_bf16(value) == bits);
    }
}

TEST_CASE("every f8e4m3 value survives the way to f32 and back", "[base]") {
    for (uint32_t bits = 0; bits < 0x100; ++bits) {
        float value = f8e4m3_to_f32(static_cast<uint8_t>(bits));
        if (std::isnan(value)) continue;
        REQUIRE(f32_to_f8e4m3(value) == bits);
    }
}

TEST_CASE("narrowing rounds to nearest even and saturates or overflows as the format says",
          "[base]") {
    CHECK(f32_to_f16(65519.0f) == 0x7bff);
    CHECK(f32_to_f16(65520.0f) == 0x7c00);
    CHECK(f32_to_f16(1.0f + 0x1p-11f) == 0x3c00);
    CHECK(f32_to_f16(1.0f + 3 * 0x1p-11f) == 0x3c02);
    CHECK(f32_to_f8e4m3(1000.0f) == 0x7e);
    CHECK(std::isnan(f16_to_f32(f32_to_f16(std::numeric_limits<float>::quiet_NaN()))));
    CHECK(std::isnan(bf16_to_f32(f32_to_bf16(std::numeric_limits<float>::quiet_NaN()))));
}

namespace {

// Between any two neighbours of a format values go to the nearer, and from the middle to the even
// one.
template <class Widen, class Narrow>
void check_rounding(uint32_t largest, uint32_t sign, Widen widen, Narrow narrow) {
    for (uint32_t bits = 0; bits < largest; ++bits) {
        const float low = widen(bits), high = widen(bits + 1);
        const float middle = low + (high - low) / 2;
        const uint32_t even = bits % 2 ? bits + 1 : bits;
        INFO("between " << bits << " and the next");
        REQUIRE(narrow(middle) == even);
        REQUIRE(narrow(-middle) == (even | sign));
        REQUIRE(narrow(std::nextafter(middle, 0.0f)) == bits);
        REQUIRE(narrow(std::nextafter(middle, 1e9f)) == bits + 1);
        REQUIRE(narrow(-std::nextafter(middle, 1e9f)) == ((bits + 1) | sign));
    }
}

}  // namespace

TEST_CASE(
    "between neighbours of f16 and of f8e4m3 values go to the nearer, from the middle to the even "
    "one",
    "[base]") {
    // What would be the next after the largest of f16 is where infinity begins.
    const auto widen_f16 = [](uint32_t bits) {
        return bits == 0x7c00 ? 65536.0f : f16_to_f32(static_cast<uint16_t>(bits));
    };
    check_rounding(0x7c00, 0x8000, widen_f16, [](float v) { return uint32_t{f32_to_f16(v)}; });
    check_rounding(
        0x7e, 0x80, [](uint32_t bits) { return f8e4m3_to_f32(static_cast<uint8_t>(bits)); },
        [](float v) { return uint32_t{f32_to_f8e4m3(v)}; });
    const float infinity = std::numeric_limits<float>::infinity();
    for (float v : {65536.0f, 1e30f, infinity}) {
        CHECK(f32_to_f16(v) == 0x7c00);
        CHECK(f32_to_f16(-v) == 0xfc00);
        CHECK(f32_to_f8e4m3(-v) == 0xfe);
    }
    CHECK(f16_to_f32(0xfc00) == -infinity);
    CHECK(f32_to_f16(1e-30f) == 0);
    CHECK(f32_to_f8e4m3(-1e-30f) == 0x80);
}

TEST_CASE("conversions of many elements give what those of one give", "[base]") {
    std::vector<float> values;
    for (uint32_t bits = 0; bits < 0x10000; ++bits)
        values.push_back(std::bit_cast<float>(bits << 16 | bits));
    const auto count = static_cast<int64_t>(values.size());
    std::vector<uint16_t> f16(values.size()), bf16(values.size());
    std::vector<uint8_t> f8(values.size());
    convert_elements(DType::kF32, values.data(), DType::kF16, f16.data(), count);
    convert_elements(DType::kF32, values.data(), DType::kBF16, bf16.data(), count);
    convert_elements(DType::kF32, values.data(), DType::kF8E4M3, f8.data(), count);
    for (size_t i = 0; i < values.size(); ++i) {
        REQUIRE(f16[i] == f32_to_f16(values[i]));
        REQUIRE(bf16[i] == f32_to_bf16(values[i]));
        REQUIRE(f8[i] == f32_to_f8e4m3(values[i]));
    }
}

TEST_CASE("dtype names parse back to the dtype and sizes count packed bits", "[base]") {
    for (int i = 0; i <= static_cast<int>(DType::kBool); ++i)
        CHECK(parse_dtype(dtype_name(static_cast<DType>(i))) == static_cast<DType>(i));
    CHECK(!parse_dtype("float32"));
    CHECK(dtype_bytes(DType::kInt4, 3) == 2);
    CHECK(dtype_bytes(DType::kBF16, 3) == 6);
}

TEST_CASE("digests separate what concatenation would merge", "[base]") {
    CHECK(Digest().add("ab").add("c").hex() != Digest().add("a").add("bc").hex());
    CHECK(Digest().add(int64_t{1}).hex() == Digest().add(int64_t{1}).hex());
    CHECK(Digest().add("x").hex().size() == 32);
}

TEST_CASE("a failed check throws an InternalError with its text", "[base]") {
    auto fail = [] { detail::CheckFailure("a == b", "file.cpp", 7) << "a is " << 3; };
    CHECK_THROWS_WITH(fail(),
                      Catch::Matchers::Contains("a == b") && Catch::Matchers::Contains("a is 3"));
    CHECK_THROWS_AS(fail(), InternalError);
}
