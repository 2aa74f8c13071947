// SPDX-License-Identifier: Apache-2.0
#include "models/config_rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "models/llama_graph.h"
#include "runtime/base/errors.h"

namespace cleave::models {
namespace {

// A rotary embedding with its theta; the features that turn are known.
struct Rope {
    const Fields& fields;
    double theta;
    int64_t rotary_dim;
    int64_t positions;  // max_position_embeddings, 0: not stated
    int64_t original;   // original_max_position_embeddings beside the rope's own fields, 0: none

    size_t half() const { return static_cast<size_t>(rotary_dim / 2); }
    double exponent(size_t i) const {
        return 2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim);
    }
    // `divisors`: of each frequency; empty: 1.
    std::vector<float> frequencies(const std::vector<double>& divisors = {}) const {
        std::vector<float> values;
        for (size_t i = 0; i < half(); ++i)
            values.push_back(static_cast<float>(1.0 / std::pow(theta, exponent(i)) /
                                                (divisors.empty() ? 1.0 : divisors[i])));
        return values;
    }
    int64_t original_positions() const {
        const int64_t stated =
            fields.integer_or("original_max_position_embeddings",
                              original > 0 ? original : positions, kMostPositions);
        return original > 0 ? original : stated;
    }
};

double positive(const Fields& fields, const char* name, double value) {
    if (!(value > 0) || !std::isfinite(value)) fields.refuse(name, "above 0");
    return value;
}

double factor_of(const Fields& fields) {
    return positive(fields, "factor", fields.number("factor"));
}

// https://arxiv.org/abs/2309.00071
Frequencies yarn(const Rope& rope) {
    const Fields& f = rope.fields;
    const auto original = static_cast<double>(rope.original_positions());
    if (original <= 0) f.refuse("original_max_position_embeddings", "a number of positions");
    const double factor =
        f.has("factor") ? factor_of(f) : static_cast<double>(rope.positions) / original;
    const auto mscale = [&](double scale) {
        return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
    };
    const double all = f.number_or("mscale_all_dim", 0), one = f.number_or("mscale", 0);
    const double usual = one != 0 && all != 0 ? mscale(one) / mscale(all) : mscale(1);
    const auto n = static_cast<double>(rope.rotary_dim);
    const auto dimension = [&](const char* name, double fallback) {
        const double rotations = positive(f, name, f.number_or(name, fallback));
        return n * std::log(original / (rotations * 2 * std::numbers::pi)) /
               (2 * std::log(rope.theta));
    };
    double low = dimension("beta_fast", 32), high = dimension("beta_slow", 1);
    if (f.boolean("truncate", true)) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0), high = std::min(high, n - 1);
    if (low == high) high += 0.001;
    std::vector<double> divisors;
    for (size_t i = 0; i < rope.half(); ++i) {
        const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
        divisors.push_back(1.0 / (ramp / factor + 1 - ramp));
    }
    return {rope.frequencies(divisors), f.number_or("attention_factor", usual)};
}

// https://arxiv.org/abs/2402.13753
Frequencies longrope(const Rope& rope) {
    const Fields& f = rope.fields;
    const int64_t original = rope.original_positions();
    if (original <= 0) f.refuse("original_max_position_embeddings", "a number of positions");
    const double factor = f.has("factor")
                              ? factor_of(f)
                              : static_cast<double>(rope.positions) / static_cast<double>(original);
    Frequencies result{rope.frequencies(f.numbers("short_factor", rope.half()))};
    if (factor > 1)
        result.magnitude =
            std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original)));
    result.magnitude = f.number_or("attention_factor", result.magnitude);
    result.later = rope.frequencies(f.numbers("long_factor", rope.half()));
    result.change_at = original;
    return result;
}

// https://arxiv.org/abs/2407.21783: wavelengths are kept, divided, or between, by their length.
Frequencies llama3(const Rope& rope, Shape& shape) {
    const Fields& f = rope.fields;
    shape.rope_scaling_factor = factor_of(f);
    shape.rope_low_freq_factor = f.number_or("low_freq_factor", 1.0);
    shape.rope_high_freq_factor = f.number_or("high_freq_factor", 4.0);
    shape.rope_original_positions = std::max<int64_t>(1, rope.original_positions());
    return {rope_frequencies(shape)};
}

// Ministral 3's queries, which transformers scales as Llama 4's.
void read_position_scale(const Rope& rope, Shape& shape) {
    constexpr const char* kBeta = "llama_4_scaling_beta";
    if (shape.config.model_type != "ministral3" || !rope.fields.has(kBeta)) return;
    shape.variation.position_scale.beta = rope.fields.number(kBeta);
    shape.variation.position_scale.length = rope.original_positions();
    if (!std::isfinite(shape.variation.position_scale.beta) ||
        shape.variation.position_scale.length <= 0)
        rope.fields.refuse(kBeta, "a number, beside original_max_position_embeddings");
}

// `shape` has the theta of `rope`.
Frequencies scaled(const Rope& rope, Shape& shape) {
    const Fields& f = rope.fields;
    std::string type = f.text("rope_type", f.text("type", "default"));
    const bool phi3 = shape.config.model_type == "phi3";
    if (type == "su" || (phi3 && type == "yarn")) type = "longrope";
    if (type == "default") return {rope_frequencies(shape)};
    if (type == "linear") return {rope.frequencies(std::vector<double>(rope.half(), factor_of(f)))};
    if (type == "dynamic") {
        Frequencies result{rope.frequencies()};
        result.ntk_factor = factor_of(f);
        result.change_at = rope.positions;
        return result;
    }
    if (type == "yarn") return yarn(rope);
    if (type == "longrope") return longrope(rope);
    if (type == "llama3") return llama3(rope, shape);
    throw UserError(
        "{}: rope type \"{}\" is not supported; supported are default, linear, dynamic, yarn, "
        "longrope and llama3",
        f.path(), type);
}

// One embedding from its own object of the file, or from none; `shape` gets its theta.
Frequencies rope_of(const Fields* object, double theta, const Fields& fields, Shape& shape) {
    const nlohmann::json nothing = nlohmann::json::object();
    const Fields empty(fields.path(), nothing);
    const Fields& own = object ? *object : empty;
    theta = own.number_or("rope_theta", theta);
    if (!(theta > 1)) own.refuse("rope_theta", "above 1");
    shape.config.rope_theta = theta;
    const int64_t dim =
        shape.variation.rotary_dim > 0 ? shape.variation.rotary_dim : shape.config.head_dim;
    const Rope rope{own, theta, dim, shape.config.max_positions,
                    fields.integer_or("original_max_position_embeddings", 0, kMostPositions)};
    Frequencies result = scaled(rope, shape);
    read_position_scale(rope, shape);
    if (!std::isfinite(result.magnitude))
        throw UserError("{}: the rotary embedding's attention_factor is not finite", fields.path());
    for (const std::vector<float>* values : {&result.values, &result.later})
        for (float f : *values)
            if (!std::isfinite(f))
                throw UserError("{}: the rotary embedding has frequencies that are not finite",
                                fields.path());
    own.check_all_known({"partial_rotary_factor", "original_max_position_embeddings",
                         "max_position_embeddings", "type", "rope_type"});
    return result;
}

const char* kTheta = "rope_theta";

}  // namespace

void read_rope(const Fields& fields, Shape& shape) {
    const char* name = fields.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
    std::optional<Fields> object;
    if (fields.has(name)) object.emplace(fields.object(name));
    if (!object && shape.config.model_type == "ministral3")
        throw UserError("{}: field \"rope_parameters\" is missing", fields.path());
    // A part of each head may turn.
    double part = fields.number_or("partial_rotary_factor", 1.0);
    if (object) part = object->number_or("partial_rotary_factor", part);
    const auto features = static_cast<double>(shape.config.head_dim) * part;
    if (!(features >= 2 && features <= static_cast<double>(shape.config.head_dim)))
        fields.refuse("partial_rotary_factor", "a part of a head, with 2 features or more");
    const auto turning = static_cast<int64_t>(features);
    if (turning % 2 != 0) fields.refuse("partial_rotary_factor", "an even number of features");
    if (turning < shape.config.head_dim) shape.variation.rotary_dim = turning;
    shape.config.rope_theta = fields.number_or(kTheta, shape.config.rope_theta);
    Frequencies rope = rope_of(object ? &*object : nullptr, shape.config.rope_theta, fields, shape);
    // A plain one is found again from its theta.
    if (rope.values != rope_frequencies(shape) || rope.magnitude != 1 || rope.change_at > 0)
        shape.rope = {std::move(rope)};
}

void read_two_ropes(const Fields& fields, Shape& shape) {
    const double local = fields.number_or("rope_local_base_freq", 1e4);
    shape.config.rope_theta = fields.number_or(kTheta, shape.config.rope_theta);
    std::optional<Fields> whole, window;
    if (fields.has("rope_parameters")) {
        const Fields both = fields.object("rope_parameters");
        if (both.has("full_attention")) whole.emplace(both.object("full_attention"));
        if (both.has("sliding_attention")) window.emplace(both.object("sliding_attention"));
        both.check_all_known({});
    } else if (fields.has("rope_scaling")) {
        whole.emplace(fields.object("rope_scaling"));
    }
    Shape first = shape, second = shape;
    shape.rope = {rope_of(whole ? &*whole : nullptr, shape.config.rope_theta, fields, first),
                  rope_of(window ? &*window : nullptr, local, fields, second)};
    shape.config.rope_theta = first.config.rope_theta;
    for (LayerKind& layer : shape.layers)
        if (layer.window > 0) layer.rope = 1;
}

}  // namespace cleave::models
