// SPDX-License-Identifier: Apache-2.0
// What stubs share, and attention; products are in products.cpp, all else in elementwise.cpp.
#include "codegen/gpu/kernels.h"

#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/gpu/formats.h"
#include "codegen/gpu/stub.h"
#include "codegen/kernel/occupancy.h"
#include "codegen/lower/epilogue.h"
#include "codegen/text/elementwise.h"
#include "codegen/text/products.h"
#include "planner/tiles/gpu.h"
#include "runtime/base/errors.h"
#include "runtime/base/rounding.h"

namespace cleave::codegen {

using planner::KernelKind;
using planner::Tile;

std::string GpuStub::activations() const {
    return std::string(element_type(target.activations, "activations"));
}

std::string GpuStub::x_pointer() const {
    return element_pointer(target.activations, "activations");
}

void GpuStub::epilogue(const Epilogue& e) { write_gpu_epilogue(writer, e, x_pointer()); }

void GpuStub::x_type(const View& x) {
    writer.type("X", activations());
    writer.view("X", x);
    writer.constant("kXAlign", planner::load_width(dtype_bytes(target.activations, 1),
                                                   std::gcd(x.stride, x.offset)));
}

std::string GpuStub::in_pointer(bool prepared, const WeightFormat& weight) const {
    return prepared ? element_pointer(weight.staged(), "prepared activations") : x_pointer();
}

void GpuStub::in_type(const View& x, bool prepared, const WeightFormat& weight) {
    if (!prepared) {
        x_type(x);
        writer.type("In", activations());
        return;
    }
    CLEAVE_CHECK(planner::has_whole_copies(0, x.stride, x.offset))
        << "prepared rows start every " << x.stride << " elements from " << x.offset << " on";
    writer.type("X", activations());
    writer.type("In", element_type(weight.staged(), "prepared activations"));
    writer.view("X", x);
    writer.constant("kXAlign", int64_t{8});
}

void GpuStub::take(const Tile& chosen) {
    tile = target.tile.threads > 0 ? target.tile : chosen;
    launch.block = {static_cast<int>(tile.threads), 1, 1};
}

Kernel GpuStub::finish(std::string_view file, std::string_view call, std::string_view args_struct) {
    // Of a plan file alone: the planner gives its tiles what their kernels need.
    if (launch.shared_bytes > tile.shared_bytes)
        throw UserError(
            "{} on {} needs {} bytes of shared memory, and the plan has {} for it: plan again from "
            "the model with $save_plan",
            planner::kernel_kind_name(kind), target.device, launch.shared_bytes, tile.shared_bytes);
    CLEAVE_CHECK(launch.shared_bytes <= target.limits.shared_memory_per_block)
        << planner::kernel_kind_name(kind) << " needs " << launch.shared_bytes << " bytes of "
        << target.limits.shared_memory_per_block;
    if (overlaps && gpu_arch(gpu_arch_of(target.device)).overlaps_launches) writer.overlap();
    if (has_ring) writer.begin_with(fmt::format("{}_ahead", call));
    Kernel kernel = writer.finish_gpu(kind, fused, file, call, args_struct, launch, target.device);
    kernel.form = form;
    kernel.tile = tile;
    return kernel;
}

namespace {

Kernel make(const AttentionSpec& s, GpuStub& stub) {
    StubWriter& w = stub.writer;
    const planner::DeviceLimits& limits = stub.target.limits;
    // Counted from the slab's first group, so that equal shards of different devices share their
    // kernel.
    const int64_t first = s.heads.begin - s.slab.first_head * s.group, heads = s.heads.size();
    const int64_t kv_heads = ceil_div(first + heads, s.group) - first / s.group;
    planner::AttentionShape shape{heads,
                                  kv_heads,
                                  s.group,
                                  s.slab.head_dim,
                                  s.slab.v_head_dim,
                                  dtype_bytes(s.slab.dtype, 1),
                                  stub.target.max_tokens,
                                  stub.target.context,
                                  s.prefill,
                                  gpu_arch(gpu_arch_of(stub.target.device)).warpgroups};
    stub.take(planner::attention_tile(limits, shape));
    stub.smaller = planner::smaller_attention_tile(limits, shape, stub.tile);
    const Tile& tile = stub.tile;
    const bool many = is_prefill_attention(tile);
    stub.form = many ? KernelForm::kPrefillAttention : KernelForm::kDecodeAttention;
    stub.launch.shared_bytes = planner::attention_shared_bytes(limits, shape, tile);
    stub.overlaps = !many;
    write_operands(s, stub);
    w.type("X", stub.activations());
    w.view("Q", s.q);
    w.constant("kXAlign",
               planner::load_width(dtype_bytes(stub.target.activations, 1),
                                   std::gcd(std::gcd(s.q.stride, s.q.offset), s.slab.head_dim)));
    w.constant("kThreads", tile.threads);
    w.constant("kSharedBytes", stub.launch.shared_bytes);
    if (many) {
        w.constant("kQueries", tile.tokens);
        w.constant("kKeys", tile.depth);
        // Whole tiles times heads. A sequence may leave its last tile almost empty; single tokens
        // have none.
        Extent& blocks = stub.launch.grid[0];
        blocks.constant = blocks.per_sequence = heads * (tile.tokens - 1);
        blocks.per_token = heads;
        blocks.per_single = -heads * tile.tokens;
        blocks.divisor = tile.tokens;
    } else {
        w.constant("kTogether", tile.rows);
        w.constant("kLanes", planner::attention_lanes(limits, shape));
        w.constant("kSplits", tile.splits);
        const int64_t blocks = kv_heads * ceil_div(s.group, tile.rows);
        w.constant("kBlocks", blocks);
        stub.launch.grid[0] = rows_extent(RowCount::kTokens, 1, blocks);
        stub.launch.grid[2] = Extent{tile.splits};
    }
    write_parameters(s, stub);
    if (many) {
        w.arg("i64", "num_singles");
        w.arg("const i32*", "sequence_starts");
        w.arg("i64", "num_sequences");
    } else if (attention_is_split(tile)) {
        w.arg("float*", "scratch");
    }
    w.arg("i64", "num_tokens");
    if (!many) return stub.finish("gpu/attention_decode.cuh", "attention_decode", "AttentionArgs");
    return tile.main_loop == planner::MainLoop::kWarpgroups
               ? stub.finish("gpu/attention_warpgroups.cuh", "attention_warpgroups",
                             "AttentionArgs")
               : stub.finish("gpu/attention_prefill.cuh", "attention_prefill", "AttentionArgs");
}

std::vector<std::string> helper_operators(const AllReduceSpec& s) {
    std::vector<std::string> operators = {"all_reduce"};
    if (s.residual) operators.emplace_back("add");
    if (s.norm) operators.emplace_back("rms_norm");
    return operators;
}
std::vector<std::string> helper_operators(const ArgmaxSpec&) { return {"argmax"}; }
std::vector<std::string> helper_operators(const CopySpec&) { return {"copy"}; }
std::vector<std::string> helper_operators(const PrepareSpec& s) {
    std::vector<std::string> operators;
    if (s.select) operators.emplace_back("select_tokens");
    if (s.norm) operators.emplace_back("rms_norm");
    operators.emplace_back("narrow");
    return operators;
}

Kernel make(const TensorSpec&, const GpuStub& stub) {
    throw UserError(
        "{} has no kernel for {}: operators over tensors (of graphs that are no language model) "
        "have kernels for devices of kind host only; run with $devices host",
        fmt::join(stub.fused, " + "), stub.target.device);
}

template <class Spec>
Kernel make_any(const Spec& s, GpuStub& stub) {
    if constexpr (requires { make_product(s, stub); })
        return make_product(s, stub);
    else if constexpr (requires { make_elementwise(s, stub); })
        return make_elementwise(s, stub);
    else
        return make(s, stub);
}

}  // namespace

bool is_prefill_attention(const Tile& tile) { return planner::multiplies_tiles(tile); }
bool attention_is_split(const Tile& tile) { return tile.splits > 1; }

std::string describe_tile(KernelKind kind, const Tile& t) {
    const std::string threads = fmt::format("{} threads", t.threads);
    if (kind != KernelKind::kAttention)
        return fmt::format("{} tokens x {} features, {}", t.tokens, t.rows, threads);
    if (is_prefill_attention(t))
        return fmt::format("{} queries x {} keys at a time, {}", t.tokens, t.depth, threads);
    return fmt::format("{} heads of a token, {}, {} parts of the keys", t.rows, threads, t.splits);
}

Kernel make_gpu_kernel(const KernelSpec& spec, KernelKind kind,
                       const std::vector<std::string>& fused, const GpuTarget& target) {
    const KernelSpec settled = with_settled_formats(spec);
    return std::visit(
        [&](const auto& s) {
            GpuStub stub{kind, fused, target};
            Kernel kernel = make_any(s, stub);
            kernel.origin = GpuOrigin{spec, target, stub.smaller};
            kernel.origin->target.tile = kernel.tile;
            return kernel;
        },
        settled);
}

std::optional<Kernel> with_smaller_tile(const Kernel& kernel) {
    if (!kernel.origin || !kernel.origin->smaller) return std::nullopt;
    GpuTarget target = kernel.origin->target;
    target.tile = *kernel.origin->smaller;
    Kernel smaller = make_gpu_kernel(kernel.origin->spec, kernel.kind, kernel.fused, target);
    CLEAVE_CHECK(smaller.parameters == kernel.parameters)
        << kernel.name << " has other parameters with a "
        << "smaller tile";
    smaller.launch.constant_args = kernel.launch.constant_args;
    return smaller;
}

Kernel make_gpu_helper(const GpuHelperSpec& spec, const GpuTarget& given) {
    GpuTarget target = given;
    target.tile = {};
    const std::vector<std::string> fused =
        std::visit([](const auto& s) { return helper_operators(s); }, spec);
    return std::visit(
        [&](const auto& s) {
            GpuStub stub{KernelKind::kOpaque, fused, target};
            return make_any(s, stub);
        },
        spec);
}

}  // namespace cleave::codegen
