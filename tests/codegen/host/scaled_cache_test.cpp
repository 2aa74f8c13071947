// SPDX-License-Identifier: Apache-2.0
// A KV cache of 8-bit elements with scales: what hosts store is, bit for bit, what the arithmetic
// of SlabSpec says on every CPU, and attention in either form is that of the stored numbers.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/codegen/support/kernel_reference.h"
#include "tests/codegen/support/kernel_runner.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::test;
using planner::KernelKind;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kHeads = 2, kHeadDim = 20, kValueDim = 12, kContext = 150;
const std::vector<std::string> kCpus{"", "x86-64", "haswell"};

float number_of(DType dtype, uint8_t stored) {
    if (dtype == DType::kInt8) return static_cast<int8_t>(stored);
    const int exponent = stored >> 3 & 15, mantissa = stored & 7;
    const double size =
        exponent > 0 ? std::ldexp(8 + mantissa, exponent - 10) : std::ldexp(mantissa, -9);
    return static_cast<float>(stored & 0x80 ? -size : size);
}

// By search among all numbers of the type: the nearest, and of two the one with an even code.
uint8_t nearest(DType dtype, float x) {
    uint8_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (int code = 0; code < 256; ++code) {
        const auto stored = static_cast<uint8_t>(code);
        const bool is_number = dtype == DType::kInt8 ? stored != 0x80 : (stored & 0x7f) != 0x7f;
        if (!is_number || (dtype == DType::kF8E4M3 && (stored >> 7 != 0) != std::signbit(x)))
            continue;
        const double off = std::abs(static_cast<double>(x) - number_of(dtype, stored));
        if (off < least || (off == least && stored % 2 == 0)) best = stored, least = off;
    }
    return best;
}

struct StoredRow {
    std::vector<uint8_t> stored;
    float scale = 0.0f;
};

StoredRow quantised(DType dtype, const std::vector<float>& row) {
    const float most = dtype == DType::kInt8 ? 127.0f : 448.0f;
    float largest = 0.0f;
    bool finite = true;
    for (float x : row) {
        finite = finite && std::isfinite(x);
        largest = std::max(largest, std::abs(x));
    }
    StoredRow result{std::vector<uint8_t>(row.size(), 0), finite ? 0.0f : kNaN};
    if (!finite || largest < 0x1p-100f) return result;
    volatile float factor = most / largest;
    for (size_t i = 0; i < row.size(); ++i) {
        volatile float scaled = row[i] * factor;
        result.stored[i] = nearest(dtype, scaled);
    }
    result.scale = largest / most;
    return result;
}

// A slab of bytes: K, V, then the scales of both.
struct Slab {
    SlabPlace place = shuffled_place(2, kContext);
    std::vector<uint8_t> bytes;

    Slab() {
        bytes.assign(static_cast<size_t>(rows() * (kHeadDim + kValueDim + 8)), 0x7f);
        for (int64_t i = 0; i < 2 * rows(); ++i) std::memcpy(scale(i), &kNaN, 4);
    }
    int64_t rows() const { return kHeads * place.num_blocks * SlabPlace::kBlock; }
    uint8_t* scale(int64_t row) { return bytes.data() + rows() * (kHeadDim + kValueDim) + 4 * row; }
    int64_t row_of(int64_t slot, int64_t head, int64_t position) const {
        return place.block_row(slot, head, position) + position % SlabPlace::kBlock;
    }
    StoredRow row(bool is_value, int64_t slot, int64_t head, int64_t position) {
        const int64_t at = row_of(slot, head, position), in_block = position % SlabPlace::kBlock;
        StoredRow found;
        for (int64_t i = 0; i < (is_value ? kValueDim : kHeadDim); ++i)
            found.stored.push_back(bytes.at(static_cast<size_t>(
                is_value ? rows() * kHeadDim + at * kValueDim + i
                         : (at - in_block) * kHeadDim + i * SlabPlace::kBlock + in_block)));
        std::memcpy(&found.scale, scale(is_value ? rows() + at : at), 4);
        return found;
    }
};

SlabSpec spec_of(DType dtype) { return {kHeadDim, kValueDim, kHeads, 0, dtype}; }

// Rows of all sizes, with ties, zeros, and some that are no numbers or next to nothing.
std::vector<float> draw_row(std::mt19937& rng, int64_t dim, int64_t kind, DType dtype) {
    std::normal_distribution<float> normal;
    std::vector<float> row;
    const float size = std::ldexp(1.0f, static_cast<int>(rng() % 240) - 120);
    for (int64_t i = 0; i < dim; ++i)
        row.push_back(kind % 7 == 0 ? std::nearbyint(20 * normal(rng)) / 2 : normal(rng) * size);
    if (kind % 7 == 0) row[3] = dtype == DType::kInt8 ? 127 : -448;
    if (kind % 11 == 3) row[1] *= 1e-4f;
    if (kind == 25) row[5] = kNaN;
    if (kind == 26) row[6] = -std::numeric_limits<float>::infinity();
    if (kind == 27) row.assign(row.size(), 0x1p-101f);
    return row;
}

// Appends rows of keys and values, [tokens, heads, dim] each.
void append(const std::vector<float>& k, const std::vector<float>& v, const RaggedBatch& batch,
            DType dtype, Slab& slab, const std::string& cpu) {
    KvAppendSpec s;
    s.kv_heads = {0, kHeads};
    s.slab = spec_of(dtype);
    s.k = {kHeads * kHeadDim, 0};
    s.v = {kHeads * kValueDim, 0};
    const Kernel kernel =
        make_host_kernel(s, KernelKind::kKvAppend, {"KvAppend"}, HostTarget{2, {}});
    std::vector<uint64_t> args{reinterpret_cast<uint64_t>(k.data()),
                               reinterpret_cast<uint64_t>(v.data()),
                               reinterpret_cast<uint64_t>(slab.bytes.data()),
                               static_cast<uint64_t>(slab.place.num_blocks),
                               reinterpret_cast<uint64_t>(slab.place.blocks.data()),
                               static_cast<uint64_t>(slab.place.blocks_per_slot),
                               reinterpret_cast<uint64_t>(batch.positions.data()),
                               reinterpret_cast<uint64_t>(batch.slots.data())};
    std::mt19937 rng(3);
    run_kernel(kernel, args, {batch.num_tokens()}, rng, cpu);
}

// Attention of that batch over the slab, in double over the numbers that are stored.
std::vector<double> expected(const AttentionSpec& s, const std::vector<float>& q,
                             const RaggedBatch& batch, Slab& slab) {
    std::vector<double> want;
    for (int64_t t = 0; t < batch.num_tokens(); ++t)
        for (int64_t h = 0; h < s.heads.size(); ++h) {
            const int64_t slot = batch.slots[static_cast<size_t>(t)],
                          position = batch.positions[static_cast<size_t>(t)];
            std::vector<double> scores, out(kValueDim);
            double total = 0.0;
            for (int64_t key = 0; key <= position; ++key) {
                const StoredRow row = slab.row(false, slot, h / s.group, key);
                double score = 0.0;
                for (int64_t i = 0; i < kHeadDim; ++i)
                    score += q[static_cast<size_t>((t * s.heads.size() + h) * kHeadDim + i)] *
                             number_of(s.slab.dtype, row.stored[static_cast<size_t>(i)]);
                scores.push_back(std::exp(score * row.scale * s.scale));
                total += scores.back();
            }
            for (int64_t key = 0; key <= position; ++key) {
                const StoredRow row = slab.row(true, slot, h / s.group, key);
                for (size_t i = 0; i < out.size(); ++i)
                    out[i] += scores[static_cast<size_t>(key)] / total * row.scale *
                              number_of(s.slab.dtype, row.stored[i]);
            }
            want.insert(want.end(), out.begin(), out.end());
        }
    return want;
}

}  // namespace

TEST_CASE("rows of 8 bits are stored as the arithmetic says, on every CPU", "[codegen]") {
    for (DType dtype : {DType::kInt8, DType::kF8E4M3})
        for (const std::string& cpu : kCpus) {
            INFO(dtype_name(dtype) << " " << cpu);
            std::mt19937 rng(11);
            const RaggedBatch batch = RaggedBatch().add(1, 0, kContext).add(0, 3, 40);
            std::vector<float> k, v;
            for (int64_t i = 0; i < batch.num_tokens() * kHeads; ++i) {
                for (float x : draw_row(rng, kHeadDim, i % 29, dtype)) k.push_back(x);
                for (float x : draw_row(rng, kValueDim, (i + 5) % 29, dtype)) v.push_back(x);
            }
            Slab slab;
            append(k, v, batch, dtype, slab, cpu);
            int wrong = 0;
            for (int64_t i = 0; i < batch.num_tokens() * kHeads; ++i)
                for (const bool is_value : {false, true}) {
                    const std::vector<float>& from = is_value ? v : k;
                    const int64_t dim = is_value ? kValueDim : kHeadDim;
                    const StoredRow want =
                        quantised(dtype, {from.begin() + i * dim, from.begin() + (i + 1) * dim});
                    const auto t = static_cast<size_t>(i / kHeads);
                    const StoredRow got =
                        slab.row(is_value, batch.slots[t], i % kHeads, batch.positions[t]);
                    wrong += got.stored != want.stored ||
                             (got.scale != want.scale &&
                              !(std::isnan(got.scale) && std::isnan(want.scale)));
                }
            CHECK(wrong == 0);
        }
}

TEST_CASE("attention in either form is that of the numbers which 8 bits hold", "[codegen]") {
    for (DType dtype : {DType::kInt8, DType::kF8E4M3})
        for (const std::string cpu : {"", "haswell"}) {
            std::mt19937 rng(5);
            std::normal_distribution<float> normal;
            const auto draw = [&](int64_t n) {
                std::vector<float> x(static_cast<size_t>(n));
                for (float& value : x) value = normal(rng);
                return x;
            };
            const RaggedBatch all = RaggedBatch().add(1, 0, 131).add(0, 0, 37);
            Slab slab;
            append(draw(all.num_tokens() * kHeads * kHeadDim),
                   draw(all.num_tokens() * kHeads * kValueDim), all, dtype, slab, cpu);
            for (const bool prefill : {false, true}) {
                INFO(dtype_name(dtype) << " " << cpu << " " << prefill);
                AttentionSpec s;
                s.heads = {0, 4};
                s.group = 2;
                s.scale = 0.25;
                s.slab = spec_of(dtype);
                s.q = {4 * kHeadDim, 0};
                s.prefill = prefill;
                const RaggedBatch batch =
                    prefill ? all
                            : RaggedBatch().add(0, 36, 1).add(1, 130, 1).add(1, 15, 2).add(0, 0, 1);
                const std::vector<float> q = draw(batch.num_tokens() * 4 * kHeadDim);
                auto out = GuardedBuffer::output("out", batch.num_tokens() * 4 * kValueDim);
                const Kernel kernel =
                    make_host_kernel(s, KernelKind::kAttention, {"Attention"}, HostTarget{2, {}});
                std::vector<uint64_t> args{reinterpret_cast<uint64_t>(q.data()),
                                           reinterpret_cast<uint64_t>(slab.bytes.data()),
                                           static_cast<uint64_t>(slab.place.num_blocks),
                                           reinterpret_cast<uint64_t>(slab.place.blocks.data()),
                                           static_cast<uint64_t>(slab.place.blocks_per_slot),
                                           out.word(),
                                           reinterpret_cast<uint64_t>(batch.positions.data()),
                                           reinterpret_cast<uint64_t>(batch.slots.data())};
                if (prefill) args.push_back(0);
                args.push_back(static_cast<uint64_t>(batch.num_tokens()));
                run_kernel(kernel, args, {batch.num_tokens()}, rng, cpu);
                check_close(out, expected(s, q, batch, slab), 2e-5);
            }
        }
}
