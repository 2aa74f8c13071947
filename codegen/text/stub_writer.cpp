// SPDX-License-Identifier: Apache-2.0
#include "codegen/text/stub_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

// As the templates call it.
std::string_view spelling(DType dtype) {
    return dtype == DType::kF32 ? "float" : dtype_name(dtype);
}

}  // namespace

std::string_view element_type(DType dtype, std::string_view what) {
    if (is_floating(dtype) && dtype != DType::kF64) return spelling(dtype);
    throw UserError(
        "kernels cannot read {} as {}: they read f32, f16, bf16, f8e4m3 and the "
        "quantised forms of MatMulNBits, DequantizeLinear and MatMulInteger; convert with "
        "$dtype f32, f16 or bf16 (the KV cache: $kv_dtype)",
        what, dtype);
}

std::string element_pointer(DType dtype, std::string_view what) {
    return fmt::format("const {}*", element_type(dtype, what));
}

Extent rows_extent(RowCount count, int64_t divisor, int64_t blocks) {
    Extent e;
    (count == RowCount::kTokens ? e.per_token : e.per_output) = blocks;
    e.divisor = divisor;
    return e;
}

void write_norm(StubWriter& w, const std::optional<NormSpec>& norm, std::string_view epsilon_type,
                std::string_view prefix) {
    w.operand(fmt::format("k{}Norm", prefix), fmt::format("{}NormWeight", prefix),
              norm ? std::optional(norm->weight) : std::nullopt);
    if (norm && prefix.empty()) w.normalises();
    NormSpec n = norm.value_or(NormSpec{});
    w.real(epsilon_type, prefix.empty() ? "kEpsilon" : fmt::format("k{}NormEpsilon", prefix),
           n.epsilon);
    w.real("float", fmt::format("k{}NormOffset", prefix), n.offset);
}

void optional_arg(StubWriter& w, const std::optional<DType>& dtype, std::string_view name) {
    if (dtype) w.arg(element_pointer(*dtype, name), name);
}

void write_slab(StubWriter& w, const SlabSpec& slab, int64_t first_head) {
    w.constant("kHeadDim", slab.head_dim);
    w.constant("kVHeadDim", slab.v_head_dim);
    w.constant("kSlabHeads", slab.heads);
    w.constant("kSlabOffset", first_head);
    w.type("Kv", slab.dtype == DType::kInt8 ? "int8" : element_type(slab.dtype, "the KV cache"));
}

void write_block_table(StubWriter& w) {
    w.arg("i64", "num_blocks");
    w.arg("const i32*", "blocks");
    w.arg("i64", "blocks_per_slot");
}

void StubWriter::constant(std::string_view name, int64_t value) {
    config_.push_back(fmt::format("static constexpr i64 {} = {};", name, value));
}

void StubWriter::constant(std::string_view name, bool value) {
    config_.push_back(fmt::format("static constexpr bool {} = {};", name, value));
}

void StubWriter::real(std::string_view type, std::string_view name, double value) {
    config_.push_back(
        fmt::format("static constexpr {0} {1} = static_cast<{0}>({2:.17g});", type, name, value));
}

void StubWriter::activation(std::string_view name, importer::Activation value) {
    config_.push_back(fmt::format("static constexpr Activation {} = Activation::{};", name,
                                  importer::row_of(value).spelling));
}

void StubWriter::type(std::string_view name, std::string_view value) {
    config_.push_back(fmt::format("using {} = {};", name, value));
}

void StubWriter::line(std::string text) { config_.push_back(std::move(text)); }

namespace {

std::string zero_type(const importer::QuantizedFormat& q) {
    switch (q.zero_points) {
        case importer::ZeroPoints::kConstant:
            return fmt::format("ConstantZero<{}>", q.constant_zero);
        case importer::ZeroPoints::kInteger: return "IntegerZero";
        case importer::ZeroPoints::kFloating:
            return fmt::format("FloatZero<{}>", element_type(q.zero_point, "zero points"));
    }
    return "";
}

}  // namespace

std::string describe(const WeightFormat& format) {
    if (!format.quantized) return std::string(dtype_name(format.dtype));
    const importer::QuantizedFormat& q = *format.quantized;
    return fmt::format(
        "{} {}, scales {}{}{}", q.code,
        q.block > 0 ? fmt::format("in blocks of {}", q.block) : std::string("by row"), q.scale,
        q.zero_points == importer::ZeroPoints::kConstant ? "" : ", zero points",
        q.dynamic_activations ? ", times integers" : "");
}

void StubWriter::weight(std::string_view name, const WeightFormat& format, int64_t columns,
                        std::string_view what) {
    if (!format.quantized) return type(name, element_type(format.dtype, what));
    has_quantized_ = true;
    const importer::QuantizedFormat& q = *format.quantized;
    type(name, fmt::format("Quantized<{}, {}, {}, {}, {}{}>",
                           importer::quantized_type(q.code).spelling, columns, q.block,
                           spelling(q.scale), zero_type(q), q.dynamic_activations ? ", true" : ""));
}

void StubWriter::operand(std::string_view flag, std::string_view type_name,
                         const std::optional<DType>& dtype) {
    constant(flag, dtype.has_value());
    type(type_name, dtype ? element_type(*dtype, type_name) : "float");
}

void StubWriter::view(std::string_view prefix, const View& view) {
    constant(fmt::format("k{}Stride", prefix), view.stride);
    constant(fmt::format("k{}Offset", prefix), view.offset);
}

void StubWriter::arg(std::string_view type, std::string_view name) {
    args_.push_back({std::string(type), std::string(name)});
}

std::string StubWriter::config() const {
    std::string text = "\nnamespace cleave {\n\nstruct Config {\n";
    for (const std::string& line : config_) text += "    " + line + "\n";
    return text + "};\n\n}  // namespace cleave\n\n";
}

std::string StubWriter::Argument::value(size_t i) const {
    std::string_view cast = type.back() == '*' ? "reinterpret_cast" : "static_cast";
    return fmt::format("{}<{}>(args[{}])", cast, type, i);
}

std::string StubWriter::body(std::string_view call, std::string_view args_struct) const {
    std::string text = config();
    text +=
        "extern \"C\" void ENTRY(const cleave::u64* args, cleave::i64 begin, cleave::i64 end, "
        "void* scratch) {\n";
    text += "    using namespace cleave;\n    (void)scratch;\n";
    if (args_struct.empty()) return text + row_calls(call) + "}\n";
    text += fmt::format("    {}<Config> a{{}};\n", args_struct);
    for (size_t i = 0; i < args_.size(); ++i)
        text += fmt::format("    a.{} = {};\n", args_[i].name, args_[i].value(i));
    return text + fmt::format("    cleave::{}<Config>(a, begin, end, scratch);\n}}\n", call);
}

// The call with the arguments in order: for all items, or row by row where an epilogue follows.
std::string StubWriter::row_calls(std::string_view call) const {
    std::string text;
    std::vector<std::string> passed, others;
    for (size_t i = 0; i < args_.size(); ++i) {
        if (args_[i].name.ends_with(']')) {
            others.push_back(args_[i].value(i));
            continue;
        }
        text += fmt::format("    auto {} = {};\n", args_[i].name, args_[i].value(i));
        passed.push_back(args_[i].name);
    }
    const std::string all = fmt::format("{}", fmt::join(passed, ", "));
    if (!epilogue_each_row_)
        return text + fmt::format("    cleave::{}<Config>({}, begin, end);\n", call, all);
    others.emplace_back("nullptr");
    return text + fmt::format(
                      "    const float* const other[] = {{{}}};\n"
                      "    for (i64 t = begin; t < end; ++t) {{\n"
                      "        cleave::{}<Config>({}, t, t + 1);\n"
                      "        apply_epilogue<Config>(out + t * Config::kOut, other, t, 0, "
                      "Config::kOut);\n    }}\n",
                      fmt::join(others, ", "), call, all);
}

std::string StubWriter::gpu_body(std::string_view call, std::string_view args_struct,
                                 int threads) const {
    std::string text = config() + "namespace cleave {\n";
    std::vector<std::string> parameters, passed;
    for (const Argument& a : args_) {
        // "source[1]" is the field's name; the parameter's is "source_1".
        std::string parameter = a.name.substr(0, a.name.find('['));
        if (parameter.size() < a.name.size())
            parameter +=
                "_" + a.name.substr(parameter.size() + 1, a.name.size() - parameter.size() - 2);
        parameters.push_back(fmt::format("{} {}", a.type, parameter));
        passed.push_back(parameter);
    }
    text += fmt::format("{}({}) ENTRY({}) {{\n", alone_ ? "KERNEL_ALONE" : "KERNEL", threads,
                        fmt::join(parameters, ", "));
    std::string arguments = fmt::format("{}", fmt::join(passed, ", "));
    if (!args_struct.empty()) {
        text += fmt::format("    {}<Config> a;\n", args_struct);
        for (size_t i = 0; i < args_.size(); ++i)
            text += fmt::format("    a.{} = {};\n", args_[i].name, passed[i]);
        arguments = "a";
    }
    // Here, where every thread of every block comes by.
    if (!ahead_.empty()) text += fmt::format("    {}<Config>({});\n", ahead_, arguments);
    if (overlaps_) text += "    await_previous_launch();\n";
    text += fmt::format("    {}<Config>({});\n", call, arguments);
    return text + "}\n}  // namespace cleave\n";
}

std::string describe_extent(const Extent& e) {
    std::string text;
    auto term = [&](int64_t n, const char* of) {
        if (n != 0) text += fmt::format("{}{}{}", text.empty() ? "" : " + ", n, of);
    };
    term(e.constant, "");
    term(e.per_token, " per token");
    term(e.per_output, " per output");
    term(e.per_sequence, " per sequence");
    term(e.per_single, " per single token");
    if (text.empty()) text = "0";
    if (e.divisor != 1) text = fmt::format("({}) / {}, rounded up", text, e.divisor);
    if (e.most > 0) text += fmt::format(", at most {}", e.most);
    return text;
}

std::string describe_items(const Extent& e) {
    return describe_extent(e) + (e.divisor != 1 ? ", items" : " items");
}

Kernel StubWriter::finish(planner::KernelKind kind, const std::vector<std::string>& fused,
                          std::string_view file, std::string_view call,
                          std::string_view args_struct, const Launch& launch) const {
    return complete(kind, fused, flattened_template(file, left_out_), body(call, args_struct),
                    launch,
                    fmt::format("{}, scratch {} bytes a thread", describe_items(launch.grid[0]),
                                launch.shared_bytes),
                    "host");
}

Kernel StubWriter::finish_gpu(planner::KernelKind kind, const std::vector<std::string>& fused,
                              std::string_view file, std::string_view call,
                              std::string_view args_struct, const Launch& launch,
                              std::string_view device) const {
    std::string launched =
        fmt::format("grid [{}] x [{}] x [{}] blocks of {} threads, {} bytes of shared memory",
                    describe_extent(launch.grid[0]), describe_extent(launch.grid[1]),
                    describe_extent(launch.grid[2]), launch.block[0], launch.shared_bytes);
    if (overlaps_) launched += ", begins before the launches before it have ended";
    std::set<std::string> left_out = left_out_;
    if (!has_quantized_) left_out.insert("gpu/quantized_rows.cuh");
    Launch own = launch;
    own.overlaps = overlaps_;
    return complete(kind, fused, flattened_template(file, left_out),
                    gpu_body(call, args_struct, launch.block[0]), own, launched, device);
}

namespace {

// Its kind, without the norm in front where the launch before it computes that. Kernels between a
// plan's steps have no kind of their own.
std::string title_of(planner::KernelKind kind, const std::vector<std::string>& fused,
                     bool normalises) {
    if (kind == planner::KernelKind::kOpaque && !fused.empty())
        return fmt::format("{}", fmt::join(fused, "_"));
    constexpr std::string_view kNorm = "norm_";
    const std::string_view title = planner::kernel_kind_name(kind);
    return std::string(title.starts_with(kNorm) && !normalises ? title.substr(kNorm.size())
                                                               : title);
}

}  // namespace

// The launch belongs to the identity: two kernels may share their text and differ in it.
Kernel StubWriter::complete(planner::KernelKind kind, const std::vector<std::string>& fused,
                            const FlattenedTemplate& files, std::string stub, const Launch& launch,
                            const std::string& launched, std::string_view device) const {
    Kernel kernel;
    kernel.kind = kind;
    kernel.fused = fused;
    for (const Argument& a : args_) kernel.parameters.push_back(a.name);
    kernel.launch = launch;
    kernel.claimed.shared_bytes = launch.shared_bytes;
    kernel.claimed.known = true;
    kernel.hash =
        Digest(files.digest).add(std::string_view(stub)).add(std::string_view(launched)).hex();
    kernel.name =
        fmt::format("{}_{}", title_of(kind, fused, normalises_), kernel.hash.substr(0, 12));
    const std::string entry = "ENTRY";
    stub.replace(stub.rfind(entry), entry.size(), kernel.name);
    std::string head = fmt::format("// {}\n// fused: {}\n", kernel.name, fmt::join(fused, " + "));
    for (const std::string& note : notes_) head += "// " + note + "\n";
    head +=
        fmt::format("// device: {}\n// launch: {}\n// hash: {}\n\n", device, launched, kernel.hash);
    kernel.source = head + files.text + stub;
    return kernel;
}

}  // namespace cleave::codegen
