// SPDX-License-Identifier: Apache-2.0
// A matrix unit of eight tiles of 16 rows of 64 bytes: Intel AMX (Intel 64 and IA-32 Architectures
// Software Developer's Manual, volume 2: TILELOADD, TDPBF16PS, TDPBUSD, ...). Tiles 0 to 3 hold
// sums [16 rows of weights][16 tokens], tiles 4 and 5 weights, a row of kDepthBytes in each, tiles
// 6 and 7 tokens in units of 32 bits, [kDepthBytes / 4][16 tokens]. With CLEAVE_EMULATE_TILES the
// same arithmetic in plain code, for CPUs without the unit.
#pragma once

#include "prelude.h"

namespace cleave {

#if defined(CLEAVE_EMULATE_TILES)
inline constexpr bool kHasInt8Tiles = true, kHasBf16Tiles = true;
#else
#if defined(__AMX_INT8__) && defined(__AVX512F__)
inline constexpr bool kHasInt8Tiles = true;
#else
inline constexpr bool kHasInt8Tiles = false;
#endif
#if defined(__AMX_BF16__) && defined(__AVX512F__)
inline constexpr bool kHasBf16Tiles = true;
#else
inline constexpr bool kHasBf16Tiles = false;
#endif
#endif

inline constexpr i64 kTileSide = 16;  // rows of a tile, and lanes of 32 bits

#if defined(CLEAVE_EMULATE_TILES)

template <i64 kDepthBytes>
class Tiles {
public:
    template <i64 kTile>
    CLEAVE_INLINE void clear() {
        __builtin_memset(bytes_[kTile], 0, sizeof(bytes_[kTile]));
    }
    // Rows of a tile, `stride` bytes apart.
    template <i64 kTile>
    CLEAVE_INLINE void load(const void* from, i64 stride) {
        for (i64 r = 0; r < rows_of(kTile); ++r)
            __builtin_memcpy(bytes_[kTile][r], static_cast<const u8*>(from) + r * stride,
                             row_bytes(kTile));
    }
    template <i64 kTile>
    CLEAVE_INLINE void store(void* to, i64 stride) const {
        for (i64 r = 0; r < kTileSide; ++r)
            __builtin_memcpy(static_cast<u8*>(to) + r * stride, bytes_[kTile][r], 64);
    }
    // Sums += weights x tokens: of unsigned bytes of weights and signed ones of tokens.
    template <i64 kSums, i64 kWeights, i64 kTokens>
    CLEAVE_INLINE void dot_int8() {
        for (i64 r = 0; r < kTileSide; ++r)
            for (i64 t = 0; t < kTileSide; ++t) {
                i32 sum = get<i32>(kSums, r, t);
                for (i64 b = 0; b < kDepthBytes; ++b)
                    sum +=
                        get<u8>(kWeights, r, b) * get<__INT8_TYPE__>(kTokens, b / 4, t * 4 + b % 4);
                put(kSums, r, t, sum);
            }
    }
    // Of pairs of bf16: the first ones of all pairs, then the second ones, then both.
    template <i64 kSums, i64 kWeights, i64 kTokens>
    CLEAVE_INLINE void dot_bf16() {
        for (i64 r = 0; r < kTileSide; ++r)
            for (i64 t = 0; t < kTileSide; ++t) {
                float sums[2] = {};
                for (i64 i = 0; i < kDepthBytes / 2; ++i)
                    sums[i % 2] = flushed(
                        sums[i % 2] +
                        flushed(load_one_flushed(get<bf16>(kWeights, r, i)) *
                                load_one_flushed(get<bf16>(kTokens, i / 2, t * 2 + i % 2))));
                put(kSums, r, t, flushed(get<float>(kSums, r, t) + flushed(sums[0] + sums[1])));
            }
    }

private:
    static constexpr i64 rows_of(i64 tile) { return tile < 6 ? kTileSide : kDepthBytes / 4; }
    static constexpr i64 row_bytes(i64 tile) { return tile == 4 || tile == 5 ? kDepthBytes : 64; }
    template <class T>
    T get(i64 tile, i64 row, i64 i) const {
        T value;
        __builtin_memcpy(&value, bytes_[tile][row] + i * sizeof(T), sizeof(T));
        return value;
    }
    template <class T>
    void put(i64 tile, i64 row, i64 i, T value) {
        __builtin_memcpy(bytes_[tile][row] + i * sizeof(T), &value, sizeof(T));
    }
    // Subnormal numbers are zero, read or written.
    static float flushed(float x) {
        const u32 bits = __builtin_bit_cast(u32, x);
        return (bits & 0x7f800000u) == 0 ? __builtin_bit_cast(float, bits & 0x80000000u) : x;
    }
    static float load_one_flushed(bf16 x) { return flushed(load_one(&x)); }

    u8 bytes_[8][kTileSide][64];
};

#elif defined(__AMX_TILE__)

// While one lives the thread's tiles have its sizes.
template <i64 kDepthBytes>
class Tiles {
public:
    CLEAVE_INLINE Tiles() {
        struct alignas(64) {
            u8 palette = 1, start_row = 0, reserved[14] = {};
            u16 row_bytes[16] = {64, 64, 64, 64, kDepthBytes, kDepthBytes, 64, 64};
            u8 rows[16] = {16, 16, 16, 16, 16, 16, kDepthBytes / 4, kDepthBytes / 4};
        } sizes;
        static_assert(sizeof(sizes) == 64);
        __builtin_ia32_tile_loadconfig(&sizes);
    }
    CLEAVE_INLINE ~Tiles() { __builtin_ia32_tilerelease(); }
    Tiles(const Tiles&) = delete;
    Tiles& operator=(const Tiles&) = delete;

    template <i64 kTile>
    CLEAVE_INLINE void clear() {
        __builtin_ia32_tilezero(kTile);
    }
    template <i64 kTile>
    CLEAVE_INLINE void load(const void* from, i64 stride) {
        __builtin_ia32_tileloadd64(kTile, from, static_cast<u64>(stride));
    }
    template <i64 kTile>
    CLEAVE_INLINE void store(void* to, i64 stride) const {
        __builtin_ia32_tilestored64(kTile, to, static_cast<u64>(stride));
    }
#if defined(__AMX_INT8__)
    template <i64 kSums, i64 kWeights, i64 kTokens>
    CLEAVE_INLINE void dot_int8() {
        __builtin_ia32_tdpbusd(kSums, kWeights, kTokens);
    }
#endif
#if defined(__AMX_BF16__)
    template <i64 kSums, i64 kWeights, i64 kTokens>
    CLEAVE_INLINE void dot_bf16() {
        __builtin_ia32_tdpbf16ps(kSums, kWeights, kTokens);
    }
#endif
};

#else

// Named where there is no unit, and not used.
template <i64 kDepthBytes>
class Tiles {
public:
    template <i64 kTile>
    void clear();
    template <i64 kTile>
    void load(const void* from, i64 stride);
    template <i64 kTile>
    void store(void* to, i64 stride) const;
    template <i64 kSums, i64 kWeights, i64 kTokens>
    void dot_int8();
    template <i64 kSums, i64 kWeights, i64 kTokens>
    void dot_bf16();
};

#endif

}  // namespace cleave
