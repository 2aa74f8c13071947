// SPDX-License-Identifier: Apache-2.0
// The rows of the warpgroups' table that are products.
#include "tests/simt/case_parts.h"
#include "tests/simt/kernel_case.h"

namespace cleave::test {

using namespace codegen;
using importer::Activation;
using importer::Packing;

namespace {

Cases warpgroup_product_cases() {
    const RaggedBatch many = RaggedBatch().add(2, 60, 49).add(0, 0, 5).add(1, 15, 17);
    return {
        [] {
            return linear_case(DType::kF16, 72, 130, 130,
                               {.norm = true, .residual = true, .scale = true});
        },
        [] { return linear_case(DType::kBF16, 200, 40, 64, {.bias = true}, DType::kBF16); },
        [] { return linear_case(DType::kF16, 200, 130, 130, {.bias = true, .beyond = true}); },
        [] {
            return linear_case(DType::kBF16, 132, 70, 65,
                               {.norm = true, .select = true, .logits = true});
        },
        [] { return gate_up_case(DType::kBF16, 132, 50, 66, Activation::kSilu, true); },
        // Quantised, through shared memory.
        [] {
            return linear_case(QuantizedCase{Packing::kMatMulNBits, DType::kUInt4, 0, 0, 32,
                                             DType::kF16, Zeros::kInteger},
                               200, 50, 70, {});
        },
        [] {
            return gate_up_case(QuantizedCase{Packing::kMatMulNBits, DType::kUInt8, 0, 0, 32,
                                              DType::kF16, Zeros::kInteger},
                                72, 30, 65, Activation::kSilu, false, DType::kBF16);
        },
        [=] {
            return qkv_case(false, DType::kF16, DType::kF16, many,
                            {.head_dim = 80, .v_head_dim = 72, .rotary = 80, .head_norms = true});
        },
        [=] {
            return qkv_case(false, DType::kBF16, DType::kBF16, many,
                            {.in = 72, .rotary = 16, .biases = true});
        },
    };
}

Cases warpgroup_prepared_cases() {
    const RaggedBatch many = RaggedBatch().add(2, 60, 49).add(0, 0, 5).add(1, 15, 17);
    return {
        // Prepared activations, through rings of three and four stages, some of them several times.
        [] {
            return linear_case(DType::kBF16, 264, 130, 130,
                               {.residual = true, .scale = true, .prepared = true});
        },
        [] { return linear_case(DType::kF16, 456, 130, 250, {.bias = true, .prepared = true}); },
        // More token tiles than go through the columns together, and not twice as many.
        [] { return linear_case(DType::kBF16, 24, 136, 2100, {.prepared = true}); },
        [] {
            return linear_case(QuantizedCase{Packing::kMatMulNBits, DType::kUInt4, 0, 0, 32,
                                             DType::kF16, Zeros::kInteger},
                               328, 50, 70, {.prepared = true});
        },
        [] {
            return gate_up_case(DType::kBF16, 392, 50, 250, Activation::kSilu, false, DType::kBF16,
                                true);
        },
        [=] {
            return qkv_case(false, DType::kF16, DType::kF16, many,
                            {.in = 328,
                             .head_dim = 80,
                             .v_head_dim = 72,
                             .rotary = 80,
                             .head_norms = true,
                             .norm = false,
                             .prepared = true});
        },
    };
}

}  // namespace

void add_warpgroup_products(Cases& cases) {
    for (const Cases& more : {warpgroup_product_cases(), warpgroup_prepared_cases()})
        cases.insert(cases.end(), more.begin(), more.end());
}

}  // namespace cleave::test
