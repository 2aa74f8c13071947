// SPDX-License-Identifier: Apache-2.0
#include "tests/support/onnx_quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <vector>

#include "models/onnx_builder.h"
#include "runtime/base/convert.h"
#include "runtime/base/errors.h"

namespace cleave::test {
namespace {

using onnx::TensorProto;
using QuantizedForm = QuantizeOptions::Form;
using Zeros = QuantizeOptions::ZeroPoints;

int onnx_code(DType code) {
    switch (code) {
        case DType::kInt4: return TensorProto::INT4;
        case DType::kUInt4: return TensorProto::UINT4;
        case DType::kInt8: return TensorProto::INT8;
        case DType::kUInt8: return TensorProto::UINT8;
        case DType::kF8E4M3: return TensorProto::FLOAT8E4M3FN;
        case DType::kMxfp4: return TensorProto::FLOAT4E2M1;
        default: break;
    }
    throw UserError(
        "{} is no type of quantised weights; int4, uint4, int8, uint8, f8e4m3 and mxfp4 are", code);
}

bool is_signed(DType code) { return code == DType::kInt4 || code == DType::kInt8; }

// A matrix [out, in] as codes [out, in], and scales and zero points [out, blocks].
struct Codes {
    int64_t out = 0, in = 0, block = 0, blocks = 0;
    std::vector<int> codes;  // bits
    std::vector<float> scales, zeros;
};

struct Span {
    float low = 0, high = 0;
    void add(float v) {
        low = std::min(low, v);
        high = std::max(high, v);
    }
};

class Quantizer {
public:
    explicit Quantizer(const QuantizeOptions& options) : o_(options) {}

    Codes run(const std::vector<float>& w, int64_t out, int64_t in) const {
        Codes c{out, in, o_.block > 0 ? o_.block : in, 0, {}, {}, {}};
        c.blocks = (in + c.block - 1) / c.block;
        std::vector<Span> spans(static_cast<size_t>(out * c.blocks));
        const auto block_of = [&](int64_t r, int64_t k) {
            return static_cast<size_t>(r * c.blocks + k / c.block);
        };
        for (int64_t r = 0; r < out; ++r)
            for (int64_t k = 0; k < in; ++k) spans[block_of(r, k)].add(w[r * in + k]);
        if (o_.one_scale) {
            Span whole;
            for (const Span& s : spans) whole.add(s.low), whole.add(s.high);
            std::fill(spans.begin(), spans.end(), whole);
        }
        for (const Span& s : spans) add_scale(c, s);
        for (int64_t r = 0; r < out; ++r)
            for (int64_t k = 0; k < in; ++k) {
                const size_t b = block_of(r, k);
                c.codes.push_back(code(w[r * in + k] / c.scales[b], c.zeros[b]));
            }
        return c;
    }

    int least() const { return is_signed(o_.code) ? -(1 << (bits() - 1)) : 0; }
    int most() const { return least() + (1 << bits()) - 1; }
    int bits() const { return dtype_bits(o_.code); }
    bool f8() const { return o_.code == DType::kF8E4M3; }
    bool mxfp4() const { return o_.code == DType::kMxfp4; }
    int middle() const { return is_signed(o_.code) || f8() || mxfp4() ? 0 : 1 << (bits() - 1); }

private:
    void add_scale(Codes& c, const Span& s) const {
        float scale = 0, zero = static_cast<float>(middle());
        if (mxfp4()) {
            // The power of two that brings the largest magnitude into [4, 8).
            scale = std::exp2(std::floor(std::log2(std::max(-s.low, s.high))) - 2);
        } else if (o_.zero_points == Zeros::kNone || f8()) {
            const float largest = std::max(-s.low, s.high);
            scale = largest / (f8() ? 448.0f : static_cast<float>((1 << (bits() - 1)) - 1));
        } else {
            scale = (s.high - s.low) / static_cast<float>(most() - least());
            zero = static_cast<float>(least()) - (scale > 0 ? s.low / scale : 0);
            if (o_.zero_points == Zeros::kInteger) zero = std::nearbyint(zero);
        }
        c.scales.push_back(scale > 0 ? scale : 1.0f);
        c.zeros.push_back(zero);
    }
    int code(float steps, float zero) const {
        if (f8()) return f32_to_f8e4m3(steps);
        if (mxfp4()) return e2m1(steps);
        return std::clamp(static_cast<int>(std::nearbyint(steps + zero)), least(), most());
    }

    // The nearest of 0, 0.5, 1, 1.5, 2, 3, 4 and 6, the one with the even code of two.
    static int e2m1(float x) {
        constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
        int nearest = 0;
        for (int i = 1; i < 8; ++i) {
            const float now = std::abs(std::abs(x) - kValues[nearest]),
                        then = std::abs(std::abs(x) - kValues[i]);
            if (then < now || (then == now && i % 2 == 0)) nearest = i;
        }
        return nearest | (x < 0 ? 8 : 0);
    }

    const QuantizeOptions& o_;
};

// Integers of 4 or 8 bits one after the other, the lower half of a byte first.
class Packed {
public:
    explicit Packed(int bits) : bits_(bits) {}
    void add(int code) {
        if (bits_ == 8 || count_ % 2 == 0)
            bytes_.push_back(static_cast<char>(code & (bits_ == 8 ? 255 : 15)));
        else
            bytes_.back() = static_cast<char>(bytes_.back() | (code << 4));
        ++count_;
    }
    void pad_to_byte() { count_ += bits_ == 4 ? count_ % 2 : 0; }
    std::string take() { return std::move(bytes_); }

private:
    int bits_;
    int64_t count_ = 0;
    std::string bytes_;
};

class Rewriter {
public:
    Rewriter(onnx::ModelProto& model, const QuantizeOptions& options)
        : graph_(*model.mutable_graph()), o_(options), q_(options) {
        for (int i = 0; i < graph_.initializer_size(); ++i)
            stored_[graph_.initializer(i).name()] = graph_.initializer(i);
        for (const onnx::NodeProto& n : graph_.node())
            if (n.op_type() == "Transpose" && stored_.count(n.input(0)))
                transposes_[n.output(0)] = n.input(0);
    }

    void run() {
        onnx::GraphProto old = graph_;
        graph_.clear_node();
        for (const onnx::NodeProto& n : old.node()) rewrite(n);
        drop_unused();
    }

private:
    // The f32 matrix behind a MatMul's right side as [out, in]; its own name in `source`.
    bool matrix_of(const std::string& name, std::vector<float>& w, int64_t& out, int64_t& in,
                   std::string& source) const {
        const auto transposed = transposes_.find(name);
        source = transposed == transposes_.end() ? name : transposed->second;
        const auto found = stored_.find(source);
        if (found == stored_.end() || found->second.dims_size() != 2 ||
            found->second.data_type() != TensorProto::FLOAT)
            return false;
        const TensorProto& t = found->second;
        if (t.data_location() == TensorProto::EXTERNAL)
            throw UserError("{}: its data lie in another file; write the model with inline weights",
                            t.name());
        const std::vector<float> values = floats_of(t);
        const bool in_first = transposed == transposes_.end();
        in = t.dims(in_first ? 0 : 1), out = t.dims(in_first ? 1 : 0);
        w.resize(values.size());
        for (int64_t r = 0; r < out; ++r)
            for (int64_t k = 0; k < in; ++k)
                w[r * in + k] = values[in_first ? k * out + r : r * in + k];
        return true;
    }

    static std::vector<float> floats_of(const TensorProto& t) {
        if (!t.has_raw_data()) return {t.float_data().begin(), t.float_data().end()};
        std::vector<float> values(t.raw_data().size() / sizeof(float));
        std::memcpy(values.data(), t.raw_data().data(), values.size() * sizeof(float));
        return values;
    }

    void rewrite(const onnx::NodeProto& n) {
        std::vector<float> w;
        int64_t out = 0, in = 0;
        std::string source;
        if (o_.embedding && n.op_type() == "Gather" && stored_.count(n.input(0)) &&
            stored_.at(n.input(0)).dims_size() == 2)
            return gather(n);
        if (n.op_type() != "MatMul" || !matrix_of(n.input(1), w, out, in, source)) {
            *graph_.add_node() = n;
            return;
        }
        switch (o_.form) {
            case QuantizedForm::kMatMulNBits:
                return matmul_nbits(n, nbits(source, w, out, in), out, in);
            case QuantizedForm::kDequantizeLinear:
                return dequantize_linear(n, source, q_.run(w, out, in));
            case QuantizedForm::kMatMulInteger:
                return matmul_integer(n, source, q_.run(w, out, in));
        }
    }

    onnx::NodeProto* node(const std::string& type, const std::vector<std::string>& inputs,
                          const std::vector<std::string>& outputs,
                          const std::vector<models::Attribute>& attributes = {}) {
        onnx::NodeProto* n = graph_.add_node();
        n->set_op_type(type);
        n->set_name(outputs[0] + "/" + type);
        for (const std::string& i : inputs) n->add_input(i);
        for (const std::string& o : outputs) n->add_output(o);
        for (const models::Attribute& a : attributes) models::set_attribute(*n, a);
        return n;
    }

    std::string tensor(const std::string& name, int type, const std::vector<int64_t>& dims,
                       std::string bytes) {
        if (!made_.insert(name).second) return name;
        TensorProto* t = graph_.add_initializer();
        t->set_name(name);
        t->set_data_type(type);
        for (int64_t d : dims) t->add_dims(d);
        t->set_raw_data(std::move(bytes));
        return name;
    }
    std::string floats(const std::string& name, const std::vector<float>& values,
                       const std::vector<int64_t>& dims) {
        std::string bytes(values.size() * sizeof(float), '\0');
        std::memcpy(bytes.data(), values.data(), bytes.size());
        return tensor(name, TensorProto::FLOAT, dims, std::move(bytes));
    }

    // ---- MatMulNBits
    // -----------------------------------------------------------------------------

    // Codes [out, blocks, bytes], scales, zero points ("" for none).
    std::vector<std::string> nbits(const std::string& source, const std::vector<float>& w,
                                   int64_t out, int64_t in) {
        const Codes c = q_.run(w, out, in);
        Packed codes(q_.bits()), zeros(q_.bits());
        for (int64_t r = 0; r < out; ++r) {
            for (int64_t k = 0; k < c.blocks * c.block; ++k)
                codes.add(k < in ? c.codes[r * in + k] : q_.middle());
            for (int64_t b = 0; b < c.blocks; ++b)
                zeros.add(static_cast<int>(c.zeros[r * c.blocks + b]));
            zeros.pad_to_byte();
        }
        const std::string name = source + fmt::format("_Q{}", q_.bits());
        tensor(name, TensorProto::UINT8, {out, c.blocks, c.block * q_.bits() / 8}, codes.take());
        const std::string scales = floats(source + "_scales", c.scales, {out, c.blocks});
        if (o_.zero_points == Zeros::kNone) return {name, scales};
        const std::string zero = source + "_zero_points";
        if (o_.zero_points == Zeros::kFloating)
            floats(zero, c.zeros, {out, c.blocks});
        else
            tensor(zero, TensorProto::UINT8, {out, (c.blocks * q_.bits() + 7) / 8}, zeros.take());
        return {name, scales, zero};
    }

    void matmul_nbits(const onnx::NodeProto& n, const std::vector<std::string>& parts, int64_t out,
                      int64_t in) {
        std::vector<std::string> inputs{n.input(0)};
        inputs.insert(inputs.end(), parts.begin(), parts.end());
        node("MatMulNBits", inputs, {n.output(0)},
             {{"K", in}, {"N", out}, {"bits", int64_t{q_.bits()}}, {"block_size", o_.block}})
            ->set_domain("com.microsoft");
    }

    // The table and a tied lm_head share their codes.
    void gather(const onnx::NodeProto& n) {
        const TensorProto& t = stored_.at(n.input(0));
        const int64_t vocab = t.dims(0), hidden = t.dims(1);
        std::vector<std::string> parts = nbits(n.input(0), floats_of(t), vocab, hidden);
        if (hidden % o_.block != 0)
            throw UserError(
                "rows of {} are no whole blocks of {}, which a GatherBlockQuantized needs", hidden,
                o_.block);
        const int64_t row[] = {vocab, hidden * q_.bits() / 8};
        const std::string shape =
            tensor(n.input(0) + "_shape", TensorProto::INT64, {2},
                   std::string(reinterpret_cast<const char*>(row), sizeof row));
        node("Reshape", {parts[0], shape}, {n.input(0) + "_rows"});
        std::vector<std::string> inputs{n.input(0) + "_rows", n.input(1)};
        inputs.insert(inputs.end(), parts.begin() + 1, parts.end());
        node("GatherBlockQuantized", inputs, {n.output(0)},
             {{"bits", int64_t{q_.bits()}},
              {"block_size", o_.block},
              {"gather_axis", int64_t{0}},
              {"quantize_axis", int64_t{1}}})
            ->set_domain("com.microsoft");
    }

    // ---- DequantizeLinear and MatMulInteger: codes [in, out]
    // ----------------------------------------

    std::string transposed_codes(const std::string& source, const Codes& c) {
        Packed codes(q_.bits());
        for (int64_t k = 0; k < c.in; ++k)
            for (int64_t r = 0; r < c.out; ++r) codes.add(c.codes[r * c.in + k]);
        return tensor(source + "_quantized", onnx_code(o_.code), {c.in, c.out}, codes.take());
    }
    // [blocks, out], [out] or one; the same for zero points.
    std::vector<int64_t> scale_dims(const Codes& c) const {
        if (o_.one_scale) return {};
        return o_.block > 0 ? std::vector<int64_t>{c.blocks, c.out} : std::vector<int64_t>{c.out};
    }
    std::vector<float> by_block(const Codes& c, const std::vector<float>& values) const {
        if (o_.one_scale) return {values[0]};
        std::vector<float> result;
        for (int64_t b = 0; b < c.blocks; ++b)
            for (int64_t r = 0; r < c.out; ++r) result.push_back(values[r * c.blocks + b]);
        return result;
    }
    std::string zero_points(const std::string& source, const Codes& c) {
        Packed zeros(q_.bits());
        for (float z : by_block(c, c.zeros)) zeros.add(static_cast<int>(z));
        return tensor(source + "_zero_point", onnx_code(o_.code), scale_dims(c), zeros.take());
    }

    std::string scales(const std::string& name, const Codes& c) {
        const std::vector<float> values = by_block(c, c.scales);
        if (!q_.mxfp4()) return floats(name, values, scale_dims(c));
        std::string bytes(values.size(), '\0');
        convert_elements(DType::kF32, values.data(), DType::kF8E8M0, bytes.data(),
                         std::ssize(values));
        return tensor(name, TensorProto::FLOAT8E8M0, scale_dims(c), std::move(bytes));
    }

    void dequantize_linear(const onnx::NodeProto& n, const std::string& source, const Codes& c) {
        std::vector<std::string> inputs{transposed_codes(source, c), scales(source + "_scale", c)};
        if (o_.zero_points == Zeros::kInteger) inputs.push_back(zero_points(source, c));
        std::vector<models::Attribute> attributes;
        if (o_.block > 0) attributes = {{"axis", int64_t{0}}, {"block_size", o_.block}};
        if (q_.mxfp4()) attributes.push_back({"output_dtype", int64_t{TensorProto::FLOAT}});
        const std::string w = n.output(0) + "_dequantized";
        node("DequantizeLinear", inputs, {w}, attributes);
        node("MatMul", {n.input(0), w}, {n.output(0)});
    }

    void matmul_integer(const onnx::NodeProto& n, const std::string& source, const Codes& c) {
        const std::string& y = n.output(0);
        const std::string scale = floats(source + "_scale", by_block(c, c.scales), scale_dims(c));
        node("DynamicQuantizeLinear", {n.input(0)}, {y + "_x", y + "_x_scale", y + "_x_zero"});
        node("MatMulInteger",
             {y + "_x", transposed_codes(source, c), y + "_x_zero", zero_points(source, c)},
             {y + "_integers"});
        node("Cast", {y + "_integers"}, {y + "_cast"}, {{"to", int64_t{TensorProto::FLOAT}}});
        node("Mul", {y + "_x_scale", scale}, {y + "_scales"});
        node("Mul", {y + "_cast", y + "_scales"}, {y});
    }

    // Weights, and their transposes, that nothing reads any more.
    void drop_unused() {
        for (bool again = true; again;) {
            again = false;
            std::set<std::string> read;
            for (const onnx::NodeProto& n : graph_.node())
                read.insert(n.input().begin(), n.input().end());
            for (const onnx::ValueInfoProto& v : graph_.output()) read.insert(v.name());
            for (int i = graph_.node_size() - 1; i >= 0; --i)
                if (transposes_.count(graph_.node(i).output(0)) &&
                    !read.count(graph_.node(i).output(0))) {
                    graph_.mutable_node()->DeleteSubrange(i, 1);
                    again = true;
                }
            if (again) continue;
            for (int i = graph_.initializer_size() - 1; i >= 0; --i)
                if (!read.count(graph_.initializer(i).name()))
                    graph_.mutable_initializer()->DeleteSubrange(i, 1);
        }
    }

    onnx::GraphProto& graph_;
    const QuantizeOptions& o_;
    Quantizer q_;
    std::map<std::string, TensorProto> stored_;
    std::map<std::string, std::string> transposes_;  // output -> initializer
    std::set<std::string> made_;
};

void check(const QuantizeOptions& o, int64_t opset) {
    const bool nbits = o.form == QuantizedForm::kMatMulNBits,
               integer = o.form == QuantizedForm::kMatMulInteger;
    onnx_code(o.code);
    if (nbits && o.code != DType::kUInt4 && o.code != DType::kUInt8)
        throw UserError("MatMulNBits of {}: its codes are uint4 or uint8", o.code);
    if (nbits && (o.block < 16 || o.one_scale))
        throw UserError("MatMulNBits has blocks of 16, 32, 64, 128 or more input features, not {}",
                        o.block);
    if (integer && ((o.code != DType::kInt8 && o.code != DType::kUInt8) || o.block != 0))
        throw UserError(
            "MatMulInteger of {} in blocks of {}: it takes int8 or uint8, without blocks", o.code,
            o.block);
    if (!nbits && (o.embedding || o.zero_points == Zeros::kFloating))
        throw UserError(
            "a quantised embedding and floating zero points are written for MatMulNBits only");
    const bool mxfp4 = o.code == DType::kMxfp4, floating = mxfp4 || o.code == DType::kF8E4M3;
    if (mxfp4 && (o.block != 32 || o.one_scale || o.zero_points != Zeros::kNone))
        throw UserError("mxfp4 has blocks of 32 with scales of their own, and no zero points");
    if (!nbits && o.zero_points == Zeros::kNone && !is_signed(o.code) && !floating)
        throw UserError("{} weights need zero points", o.code);
    const int64_t needed = o.form != QuantizedForm::kDequantizeLinear ? 13
                           : mxfp4                                    ? 24
                           : o.block > 0 || dtype_bits(o.code) == 4   ? 21
                           : o.code == DType::kF8E4M3                 ? 19
                                                                      : 13;
    if (opset < needed)
        throw UserError("the model has opset {}, and this form needs {}; export it again", opset,
                        needed);
}

}  // namespace

void quantize_onnx(const std::string& from, const std::string& to, const QuantizeOptions& options) {
    onnx::ModelProto model;
    std::ifstream in(from, std::ios::binary);
    if (!in || !model.ParseFromIstream(&in))
        throw UserError("{}: cannot be read as an ONNX model", from);
    int64_t opset = 0;
    bool contrib = false;
    for (const auto& import : model.opset_import()) {
        if (import.domain().empty()) opset = import.version();
        contrib |= import.domain() == "com.microsoft";
    }
    check(options, opset);
    Rewriter(model, options).run();
    if (!contrib && options.form == QuantizedForm::kMatMulNBits) {
        auto* import = model.add_opset_import();
        import->set_domain("com.microsoft");
        import->set_version(1);
    }
    std::ofstream out(to, std::ios::binary);
    if (!out || !model.SerializeToOstream(&out))
        throw UserError("{}: cannot be written; name a file in a folder that exists", to);
}

}  // namespace cleave::test
