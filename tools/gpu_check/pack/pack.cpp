// SPDX-License-Identifier: Apache-2.0
// pack compress|expand|narrow|widen: from standard input to standard output, for the bundle of
// tools/gpu-check. The first two are zstd, as a bare machine may have tar and gzip alone. `narrow`
// turns f32 weights into blocks of 32 codes of 8 bits with a scale, as --dtype int8 does; `widen`
// gives f32 again, each value within half a step of its block. One file of the C library and
// libzstd, linked statically: it runs wherever the bundle might.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include <zstd.h>

namespace {

constexpr int kLevel = 19, kWindowLog = 27;  // 128 MiB: the programs share much of their code
constexpr size_t kBlock = 32;
constexpr char kMagic[8] = {'c', 'l', 'e', 'a', 'v', 'e', 'q', '8'};

int fail(const char* what, const char* why) {
    std::fprintf(stderr, "pack: %s: %s\n", what, why);
    return 1;
}

bool put(const void* bytes, size_t size) { return std::fwrite(bytes, 1, size, stdout) == size; }

int compress() {
    ZSTD_CCtx* context = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, kLevel);
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, kWindowLog);
    ZSTD_CCtx_setParameter(context, ZSTD_c_enableLongDistanceMatching, 1);
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    std::vector<char> from(ZSTD_CStreamInSize()), to(ZSTD_CStreamOutSize());
    for (bool last = false; !last;) {
        const size_t size = std::fread(from.data(), 1, from.size(), stdin);
        last = size < from.size();
        ZSTD_inBuffer in{from.data(), size, 0};
        for (bool done = false; !done;) {
            ZSTD_outBuffer out{to.data(), to.size(), 0};
            const size_t left =
                ZSTD_compressStream2(context, &out, &in, last ? ZSTD_e_end : ZSTD_e_continue);
            if (ZSTD_isError(left)) return fail("compress", ZSTD_getErrorName(left));
            if (!put(to.data(), out.pos)) return fail("compress", "the output cannot be written");
            done = last ? left == 0 : in.pos == in.size;
        }
    }
    ZSTD_freeCCtx(context);
    return std::ferror(stdin) ? fail("compress", "the input cannot be read") : 0;
}

int expand() {
    ZSTD_DCtx* context = ZSTD_createDCtx();
    ZSTD_DCtx_setParameter(context, ZSTD_d_windowLogMax, kWindowLog);
    std::vector<char> from(ZSTD_DStreamInSize()), to(ZSTD_DStreamOutSize());
    size_t left = 1;  // until a frame has ended
    while (const size_t size = std::fread(from.data(), 1, from.size(), stdin)) {
        ZSTD_inBuffer in{from.data(), size, 0};
        while (in.pos < in.size) {
            ZSTD_outBuffer out{to.data(), to.size(), 0};
            left = ZSTD_decompressStream(context, &out, &in);
            if (ZSTD_isError(left)) return fail("expand", ZSTD_getErrorName(left));
            if (!put(to.data(), out.pos)) return fail("expand", "the output cannot be written");
        }
    }
    ZSTD_freeDCtx(context);
    return left == 0 ? 0 : fail("expand", "the input ends before its time");
}

std::vector<char> whole_input() {
    std::vector<char> all;
    char part[1 << 16];
    while (const size_t size = std::fread(part, 1, sizeof part, stdin))
        all.insert(all.end(), part, part + size);
    return all;
}

// The upper half of an f32, as bfloat16 is.
float scale_of(uint16_t upper) {
    const uint32_t bits = uint32_t{upper} << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// Scales first, then codes: each compresses better among its like.
int narrow() {
    const std::vector<char> in = whole_input();
    if (in.empty() || in.size() % (kBlock * sizeof(float)) != 0)
        return fail("narrow", "the input is not f32 values in whole blocks of 32");
    const size_t blocks = in.size() / (kBlock * sizeof(float));
    std::vector<uint16_t> scales(blocks);
    std::vector<int8_t> codes(blocks * kBlock);
    for (size_t b = 0; b < blocks; ++b) {
        float values[kBlock], largest = 0;
        std::memcpy(values, in.data() + b * sizeof values, sizeof values);
        for (float value : values) {
            if (!std::isfinite(value)) return fail("narrow", "a value is not a number");
            largest = std::max(largest, std::fabs(value));
        }
        const float exact = largest / 127;
        uint32_t bits;
        std::memcpy(&bits, &exact, sizeof bits);
        scales[b] =
            static_cast<uint16_t>((bits + 0xffff) >> 16);  // up, so that no code is over 127
        const float scale = scale_of(scales[b]);
        for (size_t i = 0; i < kBlock; ++i)
            codes[b * kBlock + i] =
                scale > 0 ? static_cast<int8_t>(std::lrint(values[i] / scale)) : int8_t{0};
    }
    const uint64_t count = blocks;
    const bool written = put(kMagic, sizeof kMagic) && put(&count, sizeof count) &&
                         put(scales.data(), blocks * sizeof(uint16_t)) &&
                         put(codes.data(), codes.size());
    return written ? 0 : fail("narrow", "the output cannot be written");
}

int widen() {
    const std::vector<char> in = whole_input();
    uint64_t blocks = 0;
    constexpr size_t kHeader = sizeof kMagic + sizeof blocks;
    if (in.size() < kHeader || std::memcmp(in.data(), kMagic, sizeof kMagic) != 0)
        return fail("widen", "the input is not what `pack narrow` writes");
    std::memcpy(&blocks, in.data() + sizeof kMagic, sizeof blocks);
    if (blocks > in.size() || in.size() != kHeader + blocks * (sizeof(uint16_t) + kBlock))
        return fail("widen", "the input ends before its time");
    const char* scales = in.data() + kHeader;
    const char* codes = scales + blocks * sizeof(uint16_t);
    for (size_t b = 0; b < blocks; ++b) {
        uint16_t upper;
        std::memcpy(&upper, scales + b * sizeof upper, sizeof upper);
        float values[kBlock];
        for (size_t i = 0; i < kBlock; ++i)
            values[i] =
                static_cast<float>(static_cast<int8_t>(codes[b * kBlock + i])) * scale_of(upper);
        if (!put(values, sizeof values)) return fail("widen", "the output cannot be written");
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const char* task = argc == 2 ? argv[1] : "";
    int result = 1;
    if (std::strcmp(task, "compress") == 0)
        result = compress();
    else if (std::strcmp(task, "expand") == 0)
        result = expand();
    else if (std::strcmp(task, "narrow") == 0)
        result = narrow();
    else if (std::strcmp(task, "widen") == 0)
        result = widen();
    else
        return fail("usage", "pack compress|expand|narrow|widen <INPUT >OUTPUT");
    if (result == 0 && std::fflush(stdout) != 0) return fail(task, "the output cannot be written");
    return result;
}
