// SPDX-License-Identifier: Apache-2.0
// What the files that turn a spec into a GPU kernel share: the stub being written, and the parts of
// a Config that several kinds have. The templates define what each name means; planner/tiles/gpu.h
// is the arithmetic of tiles.
#pragma once

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
    bool by_warpgroups = false;
    planner::Tile tile = {};
    std::optional<planner::Tile> smaller = {};
    // Where the device has such launches it may begin before those in front have ended, and fetch
    // weights ahead.
    bool overlaps = true, fetches_ahead = false;
    // Weights pass through a ring in shared memory, which is filled first.
    bool has_ring = false;

    std::string activations() const;
    std::string x_pointer() const;
    std::string out_pointer() const { return activations() + "*"; }
    void x_type(const View& x);
    // Of a product: X, and In, which prepared activations have.
    void in_type(const View& x, bool prepared, const WeightFormat& weight);
    std::string in_pointer(bool prepared, const WeightFormat& weight) const;

    // Takes the plan's tile, or `chosen` where the plan gave none.
    void take(const planner::Tile& chosen);

    // InternalError when the launch needs more shared memory than its tile claims, or than the
    // device has.
    Kernel finish(std::string_view file, std::string_view call, std::string_view args_struct = {});
};

// The matrix as a parameter.
inline constexpr std::string_view kGpuMatrix = "const Config::Weight*";

// Matrix products, in products.cpp.
Kernel make_product(const LinearSpec& s, GpuStub& stub);
Kernel make_product(const GateUpSpec& s, GpuStub& stub);
Kernel make_product(const QkvSpec& s, GpuStub& stub);

// Operators that stand alone, and what lies between the steps of a plan, in elementwise.cpp.
Kernel make_elementwise(const EmbeddingSpec& s, GpuStub& stub);
Kernel make_elementwise(const RmsNormSpec& s, GpuStub& stub);
Kernel make_elementwise(const RopeOnlySpec& s, GpuStub& stub);
Kernel make_elementwise(const KvAppendSpec& s, GpuStub& stub);
Kernel make_elementwise(const GatedActivationSpec& s, GpuStub& stub);
Kernel make_elementwise(const AddSpec& s, GpuStub& stub);
Kernel make_elementwise(const ScaleSpec& s, GpuStub& stub);
Kernel make_elementwise(const SelectTokensSpec& s, GpuStub& stub);
Kernel make_elementwise(const AllReduceSpec& s, GpuStub& stub);
Kernel make_elementwise(const ArgmaxSpec& s, GpuStub& stub);
Kernel make_elementwise(const CopySpec& s, GpuStub& stub);
Kernel make_elementwise(const PrepareSpec& s, GpuStub& stub);

}  // namespace cleave::codegen
