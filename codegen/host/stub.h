// SPDX-License-Identifier: Apache-2.0
// What the files that turn a spec into a kernel share: the stub being written, and the parts of a
// Config that several kinds have. The templates define what each name means.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "codegen/text/stub_writer.h"

namespace cleave::codegen {

struct HostStub {
    planner::KernelKind kind;
    const std::vector<std::string>& fused;
    const HostTarget& target;
    StubWriter writer;
    Launch launch;

    // For text/products.h.
    static std::string_view in_pointer(bool, const WeightFormat&) { return x_pointer(); }
    static std::string matrix(std::string_view which) {
        return fmt::format("const Config::{}Weight*", which);
    }
    void epilogue(const Epilogue& e);

    // For text/elementwise.h: items are rows.
    static constexpr const char *kEpsilonType = "double", *kNormSums = "f64", *kActivations = "";
    static DType activation_type() { return DType::kF32; }
    static std::string_view x_pointer() { return "const float*"; }
    static std::string_view out_pointer() { return "float*"; }
    void rows(int64_t features, RowCount count, std::initializer_list<int64_t>, const Epilogue&,
              int64_t = 0) {
        launch.grid[0] = rows_extent(count);
        writer.constant("kOut", features);
    }
    void rows_of_cache(int64_t, std::initializer_list<int64_t>) {
        launch.grid[0] = rows_extent(RowCount::kTokens);
    }
    void claim_norm_sums() {}
    Kernel finish_rows(std::string_view call, const Epilogue* epilogue = nullptr);

    // InternalError when the launch needs more scratch than the tile claims.
    Kernel finish(std::string_view file, std::string_view call, std::string_view args_struct = {});
};

// Matrix products, in products.cpp.
Kernel make_product(const LinearSpec& s, HostStub& stub);
Kernel make_product(const GateUpSpec& s, HostStub& stub);
Kernel make_product(const QkvSpec& s, HostStub& stub);

}  // namespace cleave::codegen
