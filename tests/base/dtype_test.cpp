// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

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
