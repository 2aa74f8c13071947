// SPDX-License-Identifier: Apache-2.0
#include "importer/onnx/probe/probe.h"

#include <algorithm>

#include <cstring>

#include "importer/onnx/probe/evaluate.h"
#include "runtime/base/convert.h"
#include "runtime/base/errors.h"

namespace cleave::importer::from_onnx {
namespace {

// Of all probes of one import together. Real graphs stay below a tenth of either.
constexpr int64_t kMostHeld = int64_t{1} << 26;
constexpr int64_t kMostEvaluated = int64_t{1} << 28;
constexpr int kMaxDepth =
    3000;  // of nodes that only feed each other's data; real graphs need under 200

template <class T>
void load(std::span<const std::byte> bytes, Tensor& tensor) {
    for (size_t i = 0; i < tensor.integers.size(); ++i) {
        T value;
        std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
        tensor.integers[i] = static_cast<int64_t>(value);  // NOLINT(bugprone-signed-char-misuse)
    }
}

}  // namespace

void to_doubles(DType dtype, const std::byte* bytes, double* out, int64_t count) {
    if (count == 0) return;  // there may be no bytes to point at
    if (dtype == DType::kF64) {
        std::memcpy(out, bytes, count * sizeof(double));
        return;
    }
    std::vector<float> floats(count);
    convert_elements(dtype, bytes, DType::kF32, floats.data(), count);
    std::copy(floats.begin(), floats.end(), out);
}

std::optional<Tensor> read_constant(const Model& model, const Constant& c) {
    if (c.count() > kMostElements) return std::nullopt;
    if (c.data.file.valid() && !model.files[c.data.file.index()].present) return std::nullopt;
    using T = onnx::TensorProto;
    std::span<const std::byte> bytes = model.bytes(c.data);
    Tensor t = Tensor::of(c.dims, c.is_floating());
    if (t.real) {
        to_doubles(*dtype_of(c.elem_type), bytes.data(), t.reals.data(), t.count());
        return t;
    }
    switch (c.elem_type) {
        case T::INT64: load<int64_t>(bytes, t); break;
        case T::INT32: load<int32_t>(bytes, t); break;
        case T::INT16: load<int16_t>(bytes, t); break;
        case T::INT8: load<int8_t>(bytes, t); break;
        case T::UINT8:
        case T::BOOL: load<uint8_t>(bytes, t); break;
        case T::UINT32: load<uint32_t>(bytes, t); break;
        default: return std::nullopt;
    }
    return t;
}

Probe::Probe(const Model& model, const std::vector<InputRole>& roles, Scenario scenario)
    : model_(model), roles_(roles), scenario_(std::move(scenario)), known_(model.values.size()) {}

Probe::~Probe() { model_.probe_work.held -= held_; }

const Dims* Probe::shape(Ref value) {
    if (value == kNone) return nullptr;
    Known& known = known_[value];
    if (!known.shape_tried) {
        known.shape_tried = true;
        if (!fill_source(value, false)) evaluate(model_.values[value].producer, false);
    }
    return known_[value].shape ? &*known_[value].shape : nullptr;
}

const Tensor* Probe::data(Ref value) {
    if (value == kNone) return nullptr;
    if (!known_[value].data_tried) {
        known_[value].data_tried = true;
        if (!fill_source(value, true)) evaluate(model_.values[value].producer, true);
    }
    return known_[value].data.get();
}

// Constants and graph inputs. False for what a node makes.
bool Probe::fill_source(Ref v, bool with_data) {
    const ModelValue& value = model_.values[v];
    Known& known = known_[v];
    if (value.producer >= 0) return false;
    if (value.constant >= 0) {
        const Constant& c = model_.constants[value.constant];
        known.shape = c.dims;
        if (with_data && model_.probe_work.held + c.count() <= kMostHeld)
            if (std::optional<Tensor> t = read_constant(model_, c)) {
                model_.probe_work.held += t->count();
                held_ += t->count();
                known.data = std::make_unique<Tensor>(std::move(*t));
            }
        return true;
    }
    CLEAVE_CHECK(value.input >= 0) << value.name << " has no source";
    const ModelInput& input = model_.inputs[value.input];
    const InputRole role = roles_[value.input];
    Dims dims;
    for (size_t i = 0; i < input.dims.size(); ++i) {
        int64_t d = input.dims[i].value;
        if (!input.dims[i].is_static()) {
            d = scenario_.past + (input.static_cache ? scenario_.tokens : 0);
            if (i == 0) d = scenario_.batch;
            if (i == 1 && role != InputRole::kPast)
                d = role == InputRole::kAttentionMask ? scenario_.past + scenario_.tokens
                                                      : scenario_.tokens;
        }
        dims.push_back(d);
    }
    known.shape = dims;
    if (with_data) known.data = input_data(input, role, dims);
    return true;
}

std::unique_ptr<Tensor> Probe::input_data(const ModelInput&, InputRole role, const Dims& dims) {
    if (role == InputRole::kPastLengths || role == InputRole::kTotalLengths) {
        auto t = std::make_unique<Tensor>(Tensor::of(dims, false));
        const int64_t fresh = role == InputRole::kTotalLengths ? scenario_.tokens : 0;
        std::fill(t->integers.begin(), t->integers.end(), scenario_.past + fresh);
        return t;
    }
    if (role == InputRole::kKeptLogits) return std::make_unique<Tensor>(Tensor::of(dims, false));
    if (role != InputRole::kAttentionMask && role != InputRole::kPositionIds) return nullptr;
    if (dims.empty() || dims.size() > 2 || product(dims) > kMostElements) return nullptr;
    auto t = std::make_unique<Tensor>(Tensor::of(dims, false));
    const int64_t columns = dims.back(), rows = dims.size() == 2 ? dims[0] : 1;
    for (int64_t b = 0; b < rows; ++b)
        for (int64_t i = 0; i < columns; ++i) {
            const int64_t pad = scenario_.pad(b);
            t->integers[b * columns + i] = role == InputRole::kAttentionMask
                                               ? i >= pad
                                               : std::max<int64_t>(0, scenario_.past + i - pad);
        }
    return t;
}

void Probe::evaluate(int index, bool with_data) {
    const Node& node = model_.nodes[index];
    Rule rule = find_rule(node.domain, node.op);
    if (!rule) return;
    if (++depth_ > kMaxDepth)
        throw UserError(
            "{}: more than {} nodes in a row only compute shapes, up to {}; the graph is "
            "not one that an exporter writes",
            model_.path, kMaxDepth, describe(model_, node));
    Evaluation evaluation(*this, node, with_data);
    rule(evaluation);
    if (with_data) count_work(node);
    --depth_;
}

// What a rule reads and makes bounds what it does.
void Probe::count_work(const Node& node) {
    int64_t& evaluated = model_.probe_work.evaluated;
    for (const std::vector<Ref>* values : {&node.in, &node.out})
        for (Ref v : *values)
            if (v != kNone && known_[v].data) evaluated += known_[v].data->count();
    if (evaluated > kMostEvaluated)
        throw UserError(
            "{}: what the graph computes about shapes, positions and masks takes more than {} "
            "numbers, up to {}; the graph is not one that an exporter writes",
            model_.path, kMostEvaluated, describe(model_, node));
}

// Products of a shape's dimensions and of its strides stay far from overflow.
bool is_reasonable(const Dims& dims) {
    constexpr int64_t kMost = int64_t{1} << 50;
    int64_t count = 1;
    for (int64_t d : dims) {
        if (d < 0 || d > kMost / count) return false;
        count *= std::max<int64_t>(1, d);
    }
    return true;
}

void Evaluation::set_shape(size_t i, Dims dims) {
    if (node.output(i) == kNone || !is_reasonable(dims)) return;
    Probe::Known& known = probe_.known_[node.output(i)];
    known.shape_tried = true;
    if (!known.shape) known.shape = std::move(dims);
}

void Evaluation::set_data(size_t i, Tensor tensor) {
    set_shape(i, tensor.dims);
    if (node.output(i) == kNone) return;
    Probe::Known& known = probe_.known_[node.output(i)];
    known.data_tried = true;
    ProbeWork& work = probe_.model_.probe_work;
    if (known.data || work.held + tensor.count() > kMostHeld)
        return;  // or a hostile graph; the value stays unknown
    work.held += tensor.count();
    probe_.held_ += tensor.count();
    known.data = std::make_unique<Tensor>(std::move(tensor));
}

std::optional<std::vector<int64_t>> Evaluation::integers(size_t input, std::string_view attribute) {
    if (given(input)) {
        const Tensor* t = data(input);
        if (!t || t->real) return std::nullopt;
        return t->integers;
    }
    return attribute.empty() ? std::nullopt : node.integers(attribute);
}

namespace {

std::unordered_map<std::string_view, Rule> make_table() {
    std::unordered_map<std::string_view, Rule> table;
    for (const auto& rules : {elementwise_rules(), layout_rules(), creation_rules(),
                              reduction_rules(), activation_rules()})
        for (const NamedRule& r : rules) table.emplace(r.op, r.rule);
    return table;
}

}  // namespace

Rule find_rule(std::string_view domain, std::string_view op) {
    static const std::unordered_map<std::string_view, Rule> kTable = make_table();
    if (!domain.empty() && domain != "com.microsoft") return nullptr;
    auto found = kTable.find(op);
    return found == kTable.end() ? nullptr : found->second;
}

}  // namespace cleave::importer::from_onnx
