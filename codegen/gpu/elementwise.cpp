// SPDX-License-Identifier: Apache-2.0
// Operators of GPUs that stand alone (what text/elementwise.h leaves to a target), and the kernels
// between the steps of a plan: a spec -> launch, shared memory, and the stub's text.
#include <numeric>

#include <fmt/format.h>

#include "codegen/gpu/formats.h"
#include "codegen/gpu/stub.h"
#include "codegen/lower/epilogue.h"
#include "planner/tiles/gpu.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

// Neighbours that a thread takes: they divide all of `lengths` and `all`; a load of each type takes
// them at once.
int64_t run_of(std::initializer_list<int64_t> lengths, int64_t all = 0) {
    for (int64_t length : lengths) all = std::gcd(all, length);
    return planner::load_width(4, all);
}

// Blocks of one row each, in x, which alone has no limit that a batch can meet; `blocks` of them a
// row, 0: as many as it has runs.
void write_rows(GpuStub& stub, int64_t features, int64_t run, RowCount count, int64_t blocks = 0) {
    stub.take(planner::elementwise_tile(stub.target.limits, features));
    stub.smaller = planner::smaller_elementwise_tile(stub.target.limits, stub.tile);
    if (blocks == 0) blocks = (features + stub.tile.threads * run - 1) / (stub.tile.threads * run);
    stub.launch.grid[0] = rows_extent(count, 1, blocks);
    stub.writer.constant("kBlocks", blocks);
    stub.writer.type("X", stub.activations());
    stub.writer.constant("kOut", features);
    stub.writer.constant("kRun", run);
    stub.writer.constant("kThreads", stub.tile.threads);
}

// `words` of shared memory for each warp of a block.
void claim_warp_words(GpuStub& stub, int64_t words) {
    stub.launch.shared_bytes = 4 * words * stub.tile.threads / stub.target.limits.warp_width;
    stub.writer.constant("kSharedBytes", stub.launch.shared_bytes);
}

}  // namespace

void GpuStub::rows(int64_t features, RowCount count, std::initializer_list<int64_t> lengths,
                   const Epilogue& epilogue, int64_t blocks) {
    write_rows(*this, features, run_of(lengths, epilogue_alignment(epilogue)), count, blocks);
}

void GpuStub::rows_of_cache(int64_t features, std::initializer_list<int64_t> lengths) {
    write_rows(*this, features, run_of(lengths), RowCount::kTokens);
}

void GpuStub::claim_norm_sums() { claim_warp_words(*this, 1); }

Kernel GpuStub::finish_rows(std::string_view call, const Epilogue* epilogue) {
    if (epilogue) this->epilogue(*epilogue);
    return finish("gpu/elementwise.cuh", call);
}

Kernel make_elementwise(const EmbeddingSpec& s, GpuStub& stub) {
    StubWriter& w = stub.writer;
    planner::ProductShape shape{s.hidden, s.rows, 1};
    set_format(s.weight, "the embedding table", shape);
    const bool whole = s.weight.quantized.has_value();
    write_rows(stub, s.hidden, whole ? planner::weight_width(shape) : run_of({s.hidden}),
               RowCount::kTokens);
    w.note(fmt::format("shapes: table [{}, {}], out [num_tokens, {}]", s.rows, s.hidden, s.hidden));
    w.note(fmt::format("dtype: table {}, activations {}", describe(s.weight),
                       stub.target.activations));
    w.constant("kRows", s.rows);
    w.weight("Weight", s.weight, s.hidden, "the embedding table");
    w.real("float", "kScale", s.scale);
    w.arg("const i32*", "ids");
    w.arg("i64", "first");
    w.arg(GpuStub::matrix(""), "table");
    w.arg(stub.out_pointer(), "out");
    return stub.finish("gpu/elementwise.cuh", "embedding");
}

// ---- Between the steps of a plan

Kernel make_elementwise(const AllReduceSpec& s, GpuStub& stub) {
    StubWriter& w = stub.writer;
    write_rows(stub, s.out, run_of({s.out}), RowCount::kTokens, 1);
    claim_warp_words(stub, 1);
    w.note(fmt::format("shapes: {} partial values [rows, {}]", s.sources, s.out));
    w.note(fmt::format("dtype: values {}, sums f32", stub.target.activations));
    w.constant("kSources", s.sources);
    w.constant("kResidual", s.residual);
    write_norm(w, s.norm, "float");
    for (int64_t i = 0; i < s.sources; ++i) w.arg(stub.x_pointer(), fmt::format("source[{}]", i));
    if (s.residual) w.arg(stub.x_pointer(), "residual");
    w.arg(stub.out_pointer(), "out");
    if (s.norm) {
        w.arg(element_pointer(s.norm->weight, "norm"), "norm");
        w.arg(stub.out_pointer(), "normed");
    }
    return stub.finish("gpu/reduce.cuh", "all_reduce", "AllReduceArgs");
}

Kernel make_elementwise(const ArgmaxSpec& s, GpuStub& stub) {
    const int64_t run = run_of({s.out});
    stub.take(planner::argmax_tile(stub.target.limits, s.out, run));
    stub.writer.constant("kOut", s.out);
    stub.writer.constant("kRun", run);
    stub.writer.constant("kThreads", stub.tile.threads);
    stub.launch.grid = {rows_extent(RowCount::kOutputs), Extent{1}, Extent{1}};
    claim_warp_words(stub, 2);
    stub.writer.note(fmt::format("shapes: logits [num_outputs, {}], tokens [num_outputs]", s.out));
    stub.writer.note("dtype: logits f32");
    stub.writer.arg("const float*", "logits");
    stub.writer.arg("i32*", "tokens");
    return stub.finish("gpu/reduce.cuh", "argmax");
}

Kernel make_elementwise(const CopySpec& s, GpuStub& stub) {
    StubWriter& w = stub.writer;
    write_rows(stub, s.out, run_of({s.out}), RowCount::kTokens);
    w.note(fmt::format("shapes: rows of {}", s.out));
    w.note(fmt::format("dtype: {} to {}", s.from, s.to));
    w.type("From", element_type(s.from, "the source"));
    w.type("To", element_type(s.to, "the destination"));
    w.arg(element_pointer(s.from, "the source"), "from");
    w.arg("i64", "from_stride");
    w.arg(fmt::format("{}*", element_type(s.to, "the destination")), "to");
    w.arg("i64", "to_stride");
    return stub.finish("gpu/reduce.cuh", "copy_rows");
}

Kernel make_elementwise(const PrepareSpec& s, GpuStub& stub) {
    constexpr int64_t kRun = 8;  // a store of 16 bytes
    CLEAVE_CHECK(s.in % kRun == 0 && s.to_offset % kRun == 0) << "rows of whole copies";
    StubWriter& w = stub.writer;
    stub.take(planner::elementwise_tile(stub.target.limits, s.in));
    stub.launch.grid[0] = rows_extent(s.count);
    claim_warp_words(stub, s.factors() ? 2 : 1);
    w.note(fmt::format("shapes: x, out [rows, {}]", s.in));
    w.note(fmt::format("dtype: activations {}, narrowed to {}, sums f32", stub.target.activations,
                       s.to));
    w.constant("kIn", s.in);
    w.constant("kRun", kRun);
    w.constant("kThreads", stub.tile.threads);
    w.constant("kSelect", s.select);
    w.constant("kToOffset", s.to_offset);
    w.constant("kFactors", s.factors());
    w.type("To", element_type(s.to, "narrowed activations"));
    write_norm(w, s.norm, "float");
    stub.x_type(s.x);
    w.arg(stub.x_pointer(), "x");
    if (s.norm) w.arg(element_pointer(s.norm->weight, "norm"), "norm");
    if (s.select) w.arg("const i32*", "rows");
    w.arg(fmt::format("{}*", element_type(s.to, "narrowed activations")), "out");
    return stub.finish("gpu/prepare.cuh", "prepare", "PrepareArgs");
}

}  // namespace cleave::codegen
