// SPDX-License-Identifier: Apache-2.0
// What the files that turn a spec into a GPU kernel share: the stub being written, and the parts of
// a Config that several kinds have. The templates define what each name means; planner/tiles/gpu.h
// is the arithmetic of tiles.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "codegen/text/stub_writer.h"

namespace cleave::codegen {

struct GpuStub {
    planner::KernelKind kind;
    const std::vector<std::string>& fused;
    const GpuTarget& target;
    StubWriter writer = {};
    Launch launch = {};
    KernelForm form = KernelForm::kPlain;
    planner::Tile tile = {};
    std::optional<planner::Tile> smaller = {};
    // Where the device has such launches it may begin before those in front have ended.
    bool overlaps = true;
    // Weights pass through a ring in shared memory, which is filled first.
    bool has_ring = false;

    std::string activations() const;
    std::string x_pointer() const;
    std::string out_pointer() const { return activations() + "*"; }
    void x_type(const View& x);
    // Of a product: X, and In, which prepared activations have.
    void in_type(const View& x, bool prepared, const WeightFormat& weight);
    std::string in_pointer(bool prepared, const WeightFormat& weight) const;
    static std::string_view matrix(std::string_view) { return "const Config::Weight*"; }
    void epilogue(const Epilogue& e);

    // For text/elementwise.h: a block takes a part of a row, `blocks` of them (0: as many as it has
    // runs of neighbours, which divide `lengths`).
    static constexpr const char *kEpsilonType = "float", *kNormSums = "f32",
                                *kActivations = "activations ";
    DType activation_type() const { return target.activations; }
    void rows(int64_t features, RowCount count, std::initializer_list<int64_t> lengths,
              const Epilogue& epilogue, int64_t blocks = 0);
    void rows_of_cache(int64_t features, std::initializer_list<int64_t> lengths);
    void claim_norm_sums();
    Kernel finish_rows(std::string_view call, const Epilogue* epilogue = nullptr);

    // Takes the plan's tile, or `chosen` where the plan gave none.
    void take(const planner::Tile& chosen);

    // InternalError when the launch needs more shared memory than its tile claims, or than the
    // device has.
    Kernel finish(std::string_view file, std::string_view call, std::string_view args_struct = {});
};

// Matrix products, in products.cpp.
Kernel make_product(const LinearSpec& s, GpuStub& stub);
Kernel make_product(const GateUpSpec& s, GpuStub& stub);
Kernel make_product(const QkvSpec& s, GpuStub& stub);

// Tables, and kernels between the steps of a plan, in elementwise.cpp; other operators that stand
// alone: text/elementwise.h.
Kernel make_elementwise(const EmbeddingSpec& s, GpuStub& stub);
Kernel make_elementwise(const AllReduceSpec& s, GpuStub& stub);
Kernel make_elementwise(const ArgmaxSpec& s, GpuStub& stub);
Kernel make_elementwise(const CopySpec& s, GpuStub& stub);
Kernel make_elementwise(const PrepareSpec& s, GpuStub& stub);

}  // namespace cleave::codegen
