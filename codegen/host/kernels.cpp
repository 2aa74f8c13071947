// SPDX-License-Identifier: Apache-2.0
// Attention, operators over tensors, and what differs of those that stand alone: item sizes,
// scratch, and the stub's text.
#include "codegen/host/kernels.h"

#include <algorithm>

#include <fmt/format.h>

#include "codegen/host/stub.h"
#include "codegen/lower/epilogue.h"
#include "codegen/text/elementwise.h"
#include "codegen/text/products.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

using planner::KernelKind;

Kernel HostStub::finish(std::string_view file, std::string_view call,
                        std::string_view args_struct) {
    // As the verifier proved; a kernel that is written without a plan has no tile.
    CLEAVE_CHECK(target.tile.shared_bytes == 0 || launch.shared_bytes <= target.tile.shared_bytes)
        << planner::kernel_kind_name(kind) << " takes " << launch.shared_bytes
        << " bytes of scratch, its tile has " << target.tile.shared_bytes;
    Kernel kernel = writer.finish(kind, fused, file, call, args_struct, launch);
    kernel.tile = target.tile;
    return kernel;
}

void HostStub::epilogue(const Epilogue& e) { write_host_epilogue(writer, e); }

Kernel HostStub::finish_rows(std::string_view call, const Epilogue* epilogue) {
    if (epilogue && !epilogue->empty()) {
        write_host_epilogue(writer, *epilogue);
        writer.epilogue_each_row();
    }
    return finish("host/elementwise.h", call);
}

namespace {

// ---- Attention

// Heads of each item: those that share a KV head, four at most (they read its keys together), fewer
// when there would be less than two items for a thread.
std::vector<int64_t> attention_parts(const AttentionSpec& s, const HostTarget& target) {
    int64_t together =
        std::clamp<int64_t>(s.heads.size() / std::max<int64_t>(2 * target.threads, 1), 1, 4);
    std::vector<int64_t> begins = {0};
    for (int64_t h = 1; h < s.heads.size(); ++h) {
        bool other = (s.heads.begin + h) / s.group != (s.heads.begin + h - 1) / s.group;
        if (other || h - begins.back() >= together) begins.push_back(h);
    }
    begins.push_back(s.heads.size());
    return begins;
}

Kernel make(const AttentionSpec& s, HostStub& stub) {
    constexpr int64_t kItemQueries = 16;
    StubWriter& w = stub.writer;
    int64_t heads = s.heads.size();
    std::vector<int64_t> parts = attention_parts(s, stub.target);
    auto num_parts = static_cast<int64_t>(parts.size()) - 1;
    Extent items;
    items.per_token = s.prefill ? heads : num_parts;
    items.divisor = s.prefill ? kItemQueries : 1;
    // Single tokens beside a prompt go by heads of a group, as in decode.
    if (s.prefill) items.per_single = num_parts * kItemQueries - heads;
    stub.launch.grid[0] = items;
    write_operands(s, stub);
    w.view("Q", s.q);
    w.constant("kByToken", !s.prefill);
    w.constant("kItemQueries", kItemQueries);
    w.constant("kNumParts", num_parts);
    std::string list;
    for (int64_t p : parts) list += fmt::format("{}{}", list.empty() ? "" : ", ", p);
    w.line(fmt::format("static constexpr i64 kPartBegin[] = {{{}}};", list));
    write_parameters(s, stub);
    if (s.prefill) w.arg("i64", "num_singles");
    w.arg("i64", "num_tokens");
    return stub.finish("host/attention.h", "attention", "AttentionArgs");
}

// ---- Single operators

Kernel make(const EmbeddingSpec& s, HostStub& stub) {
    StubWriter& w = stub.writer;
    stub.launch.grid[0] = rows_extent(RowCount::kTokens);
    w.note(fmt::format("shapes: table [{}, {}], out [num_tokens, {}]", s.rows, s.hidden, s.hidden));
    w.note(fmt::format("dtype: table {}, activations f32", describe(s.weight)));
    w.constant("kOut", s.hidden);
    w.constant("kRows", s.rows);
    w.weight("Weight", s.weight, s.hidden, "the embedding table");
    w.real("float", "kScale", s.scale);
    w.arg("const i32*", "ids");
    w.arg("i64", "first");
    w.arg("const Config::Weight*", "table");
    w.arg("float*", "out");
    return stub.finish("host/elementwise.h", "embedding");
}

Kernel make(const TensorSpec& s, HostStub& stub) {
    StubWriter& w = stub.writer;
    stub.launch.grid[0] = Extent{s.items};
    for (const std::string& note : s.notes) w.note(note);
    for (const std::string& line : s.config) w.line(line);
    for (const auto& [type, name] : s.args) w.arg(type, name);
    for (const std::string& file : s.left_out) w.leave_out(file);
    return stub.finish(s.file, s.call, s.args_struct);
}

void check_head(const KernelSpec& spec) {
    auto check = [](const SlabSpec& slab) {
        if (slab.head_dim % 2 || slab.v_head_dim % 2)
            throw UserError(
                "host kernels need even head sizes: this model has heads of {} (values: {})",
                slab.head_dim, slab.v_head_dim);
    };
    if (const auto* s = std::get_if<AttentionSpec>(&spec)) check(s->slab);
}

}  // namespace

Kernel make_host_kernel(const KernelSpec& spec, KernelKind kind,
                        const std::vector<std::string>& fused, const HostTarget& target) {
    check_head(spec);
    return std::visit(
        [&](const auto& s) {
            HostStub stub{kind, fused, target, {}, {}};
            if constexpr (requires { make_product(s, stub); })
                return make_product(s, stub);
            else if constexpr (requires { make_elementwise(s, stub); })
                return make_elementwise(s, stub);
            else
                return make(s, stub);
        },
        spec);
}

}  // namespace cleave::codegen
