// SPDX-License-Identifier: Apache-2.0
#include "tests/codegen/support/scaled_slab.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "tests/codegen/support/kernel_reference.h"

namespace cleave::test {

namespace {

std::byte* bytes_of(const GuardedBuffer& kv) { return reinterpret_cast<std::byte*>(kv.word()); }

int64_t dim_of(const codegen::SlabSpec& s, const SlabRow& row) {
    return row.is_value ? s.v_head_dim : s.head_dim;
}
int64_t element_index(const codegen::SlabSpec& s, const SlabPlace& place, const SlabRow& row,
                      int64_t d) {
    return row.is_value ? value_index(s, place, row.slot, row.head, row.position) + d
                        : key_index(s, place, row.slot, row.head, row.position, d);
}

// Distance between the type's numbers about v, which is at most its largest.
double step_about(DType dtype, double v) {
    if (dtype == DType::kInt8) return 1.0;
    const double exponent = v == 0.0 ? -6.0 : std::floor(std::log2(std::abs(v)));
    return std::exp2(std::max(exponent, -6.0) - 3.0);
}

struct Scaled {
    float scale = 0.0f;
    std::vector<double> elements;
};

Scaled scaled(DType dtype, const std::vector<double>& features) {
    float largest = 0.0f;
    bool finite = true;
    for (double v : features) {
        finite = finite && std::isfinite(v);
        largest = std::max(largest, std::abs(static_cast<float>(v)));
    }
    Scaled out{0.0f, std::vector<double>(features.size(), 0.0)};
    if (!finite) out.scale = std::numeric_limits<float>::quiet_NaN();
    if (!finite || largest < 0x1p-100f) return out;
    const auto most = static_cast<float>(largest_element(dtype));
    const float factor = most / largest;
    out.scale = largest / most;
    for (size_t i = 0; i < features.size(); ++i) {
        const double v = static_cast<float>(features[i]) * factor;
        const double step = step_about(dtype, std::clamp<double>(v, -most, most));
        out.elements[i] = std::clamp<double>(std::nearbyint(v / step) * step, -most, most);
    }
    return out;
}

std::string describe(const SlabRow& row) {
    return fmt::format("the {} of slot {}, head {}, position {}", row.is_value ? "value" : "key",
                       row.slot, row.head, row.position);
}

}  // namespace

int64_t scale_byte(const codegen::SlabSpec& s, const SlabPlace& place, const SlabRow& row) {
    const int64_t positions = s.heads * place.num_blocks * SlabPlace::kBlock;
    const int64_t index = (row.is_value ? positions : 0) +
                          place.block_row(row.slot, row.head, row.position) +
                          row.position % SlabPlace::kBlock;
    return positions * (s.head_dim + s.v_head_dim) + 4 * index;
}

float scale_of(const GuardedBuffer& kv, const codegen::SlabSpec& s, const SlabPlace& place,
               const SlabRow& row) {
    float scale = 1.0f;
    if (is_scaled(s.dtype)) std::memcpy(&scale, bytes_of(kv) + scale_byte(s, place, row), 4);
    return scale;
}

void set_scale(GuardedBuffer& kv, const codegen::SlabSpec& s, const SlabPlace& place,
               const SlabRow& row, float scale) {
    std::memcpy(bytes_of(kv) + scale_byte(s, place, row), &scale, 4);
}

double slab_at(const GuardedBuffer& kv, const codegen::SlabSpec& s, const SlabPlace& place,
               const SlabRow& row, int64_t d) {
    return kv.at(element_index(s, place, row, d)) * scale_of(kv, s, place, row);
}

void set_row(GuardedBuffer& kv, const codegen::SlabSpec& s, const SlabPlace& place,
             const SlabRow& row, const std::vector<double>& features) {
    const Scaled rounded = is_scaled(s.dtype) ? scaled(s.dtype, features) : Scaled{1.0f, features};
    for (int64_t d = 0; d < dim_of(s, row); ++d)
        kv.set(element_index(s, place, row, d), rounded.elements[static_cast<size_t>(d)]);
    if (is_scaled(s.dtype)) set_scale(kv, s, place, row, rounded.scale);
}

GuardedBuffer random_slab(const codegen::SlabSpec& s, const SlabPlace& place, std::mt19937& rng) {
    if (!is_scaled(s.dtype))
        return GuardedBuffer::random("kv", s.dtype, slab_elements(s, place), rng);
    const double most = largest_element(s.dtype);
    auto kv = GuardedBuffer::random("kv", s.dtype, slab_elements(s, place), rng, most);
    const int64_t positions = s.heads * place.num_blocks * SlabPlace::kBlock;
    std::uniform_real_distribution<double> of_key(0.25, 1.0), exponent(-6.0, 3.0);
    for (int64_t i = 0; i < 2 * positions; ++i) {
        const double size = i < positions ? of_key(rng) : std::exp2(exponent(rng));
        const auto scale = static_cast<float>(size / most);
        std::memcpy(bytes_of(kv) + positions * (s.head_dim + s.v_head_dim) + 4 * i, &scale, 4);
    }
    return kv;
}

std::string compare_scaled_slab(const GuardedBuffer& got, GuardedBuffer before,
                                const codegen::SlabSpec& s, const SlabPlace& place,
                                const std::vector<WrittenRow>& written, double tolerance) {
    for (const WrittenRow& one : written) {
        const Scaled want = scaled(s.dtype, one.features);
        const float scale = scale_of(got, s, place, one.row);
        const bool none = std::isnan(want.scale);
        if (std::isnan(scale) != none ||
            (!none && !(std::abs(scale - want.scale) <= tolerance * std::abs(want.scale))))
            return fmt::format("the scale of {} is {}, want {}", describe(one.row), scale,
                               want.scale);
        for (int64_t d = 0; d < dim_of(s, one.row); ++d) {
            const int64_t at = element_index(s, place, one.row, d);
            const auto i = static_cast<size_t>(d);
            const double element = got.at(at), exact = want.elements[i];
            // An element may be that of the neighbour where a feature is between two.
            const double bound = tolerance > 0.0 && want.scale > 0.0f
                                     ? step_about(s.dtype, exact) * 0.5 * want.scale +
                                           tolerance * want.scale * largest_element(s.dtype)
                                     : 0.0;
            const bool right = bound > 0.0 ? std::abs(element * scale - one.features[i]) <= bound
                                           : element == exact;
            if (!right)
                return fmt::format("element {} of {} is {} x {}, want {} x {}", d,
                                   describe(one.row), element, scale, exact, want.scale);
            before.set(at, element);
        }
        set_scale(before, s, place, one.row, scale);
    }
    if (std::memcmp(bytes_of(got), bytes_of(before), static_cast<size_t>(got.bytes())) != 0)
        return "bytes of the slab that no row of the launch has were changed";
    return "";
}

}  // namespace cleave::test
