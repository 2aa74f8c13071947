// SPDX-License-Identifier: Apache-2.0
// Chains of elementwise operators over tensors: one launch gives the bits of a launch for each
// operator. Making every value an output of the graph keeps them apart.
#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>

#include <fmt/ranges.h>

#include "codegen/generate.h"
#include "codegen/kernel/program.h"
#include "runtime/base/errors.h"
#include "tests/conformance/model_writer.h"
#include "tests/conformance/node_case.h"
#include "tests/support/test.h"

using namespace cleave;
using Catch::Matchers::Contains;
using onnx::TensorProto;
using runtime::Tensor;
using test::floats, test::integers, test::ModelWriter, test::Shape;

namespace {

int onnx_type(DType dtype) {
    return dtype == DType::kF32   ? TensorProto::FLOAT
           : dtype == DType::kF16 ? TensorProto::FLOAT16
                                  : TensorProto::BFLOAT16;
}

// A graph that grows by one operator behind the last, and what is to be fed to it.
class Drawn {
public:
    static constexpr unsigned kProducers = 13;

    Drawn(unsigned seed, bool apart)
        : random_(seed), apart_(apart), knows_shape_(seed % kProducers < 7) {
        // Mostly f32, so that launches of one operator share kernels.
        dtype_ = seed % 4 == 1 ? DType::kF16 : seed % 4 == 3 ? DType::kBF16 : DType::kF32;
        make_producer(seed);
        const int count =
            seed == 0 ? 8 : 1 + pick(2);  // a long one; behind the others what matters is the first
        for (int i = 0; i < count; ++i) follow();
        if (!apart_) writer_.output(value_);
    }
    importer::Graph graph() const { return writer_.graph(); }
    const std::vector<Tensor>& inputs() const { return inputs_; }
    const std::vector<std::string>& operators() const { return operators_; }
    const std::string& last() const { return value_; }

private:
    int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
    std::string operand(const Shape& shape) { return operand(shape, dtype_); }
    std::string operand(const Shape& shape, DType dtype) {
        const std::string name = "in" + std::to_string(inputs_.size());
        writer_.input(name, shape, onnx_type(dtype));
        inputs_.push_back(floats(name, shape, dtype, 0.3 * static_cast<double>(inputs_.size())));
        return name;
    }
    std::string bytes(const Shape& shape, DType dtype) {
        const std::string name = "in" + std::to_string(inputs_.size());
        writer_.input(name, shape, dtype == DType::kInt8 ? TensorProto::INT8 : TensorProto::UINT8);
        Tensor tensor{name, dtype, shape, {}};
        for (int64_t i = 0, n = std::accumulate(shape.begin(), shape.end(), int64_t{1},
                                                std::multiplies<>());
             i < n; ++i)
            tensor.data.push_back(static_cast<std::byte>(i * 37 % 251));
        inputs_.push_back(std::move(tensor));
        return name;
    }
    onnx::NodeProto& add(const std::string& op, const std::vector<std::string>& from) {
        value_ = "v" + std::to_string(operators_.size());
        operators_.push_back(op);
        if (apart_) writer_.output(value_);
        return writer_.node(op, from, {value_});
    }
    void cast(int type) { writer_.number(add("Cast", {value_}), "to", type); }

    // Every kernel behind which a chain may stand; of the first ones the importer knows the shape
    // before it reads them, which Flatten needs.
    void make_producer(unsigned seed) {
        switch (seed % kProducers) {
            case 0: add("Mul", {operand({3, 5, 37}), operand({37})}); break;
            case 1: add("MatMul", {operand({3, 5, 16}), operand({16, 37})}); break;
            case 2: add("Softmax", {operand({3, 5, 37})}); break;
            case 3: add("RMSNormalization", {operand({3, 5, 37}), operand({37})}); break;
            case 4:
                writer_.integers("axes", {3});
                writer_.number(add("ReduceMean", {operand({3, 5, 37, 4}), "axes"}), "keepdims", 0);
                break;
            case 5:
                writer_.input("rows", {3, 5}, TensorProto::INT64);
                inputs_.push_back(
                    integers("rows", {3, 5}, {1, 0, 6, -1, 2, 3, 3, 5, 4, -7, 0, 1, 2, 3, 4}));
                add("Gather", {operand({7, 37}), "rows"});
                break;
            case 6:
                writer_.number(add("Concat", {operand({3, 5, 30}), operand({3, 5, 7})}), "axis",
                               -1);
                break;
            case 7:
                writer_.integers("pads", {0, 0, 3, 0, 0, 4});
                add("Pad", {operand({3, 5, 30}), "pads"});
                break;
            case 8:
                writer_.input("tuples", {3, 5, 1}, TensorProto::INT64);
                inputs_.push_back(
                    integers("tuples", {3, 5, 1}, {1, 0, 6, -1, 2, 3, 3, 5, 4, -7, 0, 1, 2, 3, 4}));
                add("GatherND", {operand({7, 37}), "tuples"});
                break;
            case 9:
                writer_.number(
                    add("DequantizeLinear", {bytes({3, 5, 37}, DType::kInt8), operand({37})}),
                    "axis", 2);
                break;
            case 10:
                add("MatMulInteger",
                    {bytes({3, 5, 16}, DType::kUInt8), bytes({16, 37}, DType::kInt8)});
                cast(onnx_type(dtype_));
                break;
            case 11:
                add("QuantizeLinear", {operand({3, 5, 37}), operand({1})});
                cast(onnx_type(dtype_));
                break;
            default: add("Transpose", {operand({37, 5, 3})}); break;
        }
    }
    Shape row() const { return {shape_.back()}; }
    Shape column() const {
        Shape column = shape_;
        column.back() = 1;
        return column;
    }

    void follow() {
        switch (pick(9)) {
            case 0: add("Add", {value_, operand(row())}); break;
            case 1: add("Mul", {operand(column()), value_}); break;
            case 2: add("Mul", {value_, value_}); break;
            case 3: add("Sub", {operand(shape_), value_}); break;
            case 4: add("Sigmoid", {value_}); break;
            case 5: add("Add", {value_, operand({1})}); break;
            case 6:
                dtype_ = dtype_ == DType::kF32 ? DType::kF16 : DType::kF32;
                cast(onnx_type(dtype_));
                break;
            case 7: {
                add("Less", {value_, operand(row())});
                if (pick(2)) add("Not", {value_});
                add("Where", {value_, operand(shape_), operand({1})});
                break;
            }
            default:
                cast(TensorProto::INT32);
                add("Add", {value_, value_});
                if (shape_.size() > 2 && knows_shape_) {
                    writer_.number(add("Flatten", {value_}), "axis", 1);
                    shape_ = {3, 185};
                }
                cast(onnx_type(dtype_));
                break;
        }
    }

    std::mt19937 random_;
    bool apart_, knows_shape_;
    ModelWriter writer_;
    DType dtype_ = DType::kF32;
    Shape shape_{3, 5, 37};
    std::string value_;
    std::vector<std::string> operators_;
    std::vector<Tensor> inputs_;
};

std::vector<Tensor> run_plan(planner::Plan plan, const std::vector<Tensor>& inputs) {
    runtime::SessionOptions options;
    options.poison = true;
    options.threads = 2;
    return runtime::Session(plan, options).run_tensors(inputs);
}

const Tensor& by_name(const std::vector<Tensor>& all, const std::string& name) {
    const auto at =
        std::find_if(all.begin(), all.end(), [&](const Tensor& t) { return t.name == name; });
    REQUIRE(at != all.end());
    return *at;
}

std::vector<std::string> fused_of(const planner::Plan& plan) {
    const codegen::Program program = codegen::generate_program(plan, planner::DeviceId(0));
    REQUIRE(program.decode.size() == 1);
    return program.kernels.at(static_cast<size_t>(program.decode[0].kernel)).fused;
}

// The operators of each launch, by ONNX's names.
std::vector<std::string> launches(const ModelWriter& writer) {
    const planner::Plan plan = test::plan_tensors(writer.graph());
    std::vector<std::string> all;
    for (const planner::Step& step : plan.decode.steps) {
        std::string text;
        for (importer::OpId id : step.compute()->ops)
            text += (text.empty() ? "" : " ") + importer::onnx_op_type(plan.graph.op(id));
        all.push_back(text);
    }
    return all;
}

using Launches = std::vector<std::string>;

}  // namespace

TEST_CASE("a chain over tensors is one launch, with the bits of a launch for each operator",
          "[conformance]") {
    for (unsigned seed = 0; seed < Drawn::kProducers; ++seed) {
        const Drawn together(seed, false), apart(seed, true);
        const planner::Plan one = test::plan_tensors(together.graph());
        const planner::Plan many = test::plan_tensors(apart.graph());
        INFO("seed " << seed << ", " << fmt::format("{}", fmt::join(together.operators(), " ")));
        CHECK(one.decode.steps.size() == 1);
        CHECK(many.decode.steps.size() == together.operators().size());
        CHECK(fused_of(one) == together.operators());
        const std::vector<Tensor> a = run_plan(one, together.inputs()),
                                  b = run_plan(many, apart.inputs());
        REQUIRE(a.size() == 1);
        const Tensor& expected = by_name(b, together.last());
        CHECK(a[0].dtype == expected.dtype);
        CHECK(a[0].data == expected.data);
    }
}

TEST_CASE("a product and a sum over tensors are rounded apart though they are one launch",
          "[conformance]") {
    ModelWriter w;
    w.input("a", {1, 64});
    w.input("b", {1, 64});
    w.node("Mul", {"a", "b"}, {"product"});
    w.node("Sub", {"product", "c"}, {"y"});
    w.input("c", {1, 64});
    w.output("y");
    const Tensor a = floats("a", {1, 64}), b = floats("b", {1, 64}, DType::kF32, 1.0);
    Tensor c = floats("c", {1, 64});
    const std::vector<double> x = test::elements_of(a), y = test::elements_of(b);
    for (size_t i = 0; i < x.size(); ++i) {
        const float rounded = static_cast<float>(x[i]) * static_cast<float>(y[i]);
        std::memcpy(c.data.data() + i * sizeof(float), &rounded, sizeof(rounded));
    }
    CHECK(launches(w) == Launches{"Mul Sub"});
    // A multiply-add would leave what the product's rounding took away.
    for (double d : test::elements_of(run_plan(test::plan_tensors(w.graph()), {a, b, c}).at(0)))
        CHECK(d == 0.0);
}

TEST_CASE("a chain over tensors ends where a value is read twice, given out, or not read in place",
          "[conformance]") {
    const auto begun = [] {
        ModelWriter w;
        w.input("x", {4, 6});
        w.input("y", {6, 4});
        w.input("big", {5, 4, 6});
        w.node("Sigmoid", {"x"}, {"a"});
        return w;
    };
    ModelWriter twice = begun();
    twice.node("Relu", {"a"}, {"b"});
    twice.node("Add", {"a", "b"}, {"z"});
    twice.output("z");
    CHECK(launches(twice) == Launches{"Sigmoid", "Relu Add"});
    ModelWriter given = begun();
    given.node("Relu", {"a"}, {"b"});
    given.output("a");
    given.output("b");
    CHECK(launches(given) == Launches{"Sigmoid", "Relu"});
    ModelWriter repeated = begun();  // more elements behind it than it makes
    repeated.node("Add", {"a", "big"}, {"z"});
    repeated.output("z");
    CHECK(launches(repeated) == Launches{"Sigmoid", "Add"});
    ModelWriter turned = begun();
    turned.node("Transpose", {"a"}, {"t"});
    turned.node("Mul", {"t", "y"}, {"z"});
    turned.output("z");
    CHECK(launches(turned) == Launches{"Sigmoid", "Transpose Mul"});
    ModelWriter shared = begun();  // in place, and elsewhere, too
    shared.node("Softmax", {"a"}, {"s"});
    shared.node("Neg", {"s"}, {"z"});
    shared.output("z");
    CHECK(launches(shared) == Launches{"Sigmoid", "Softmax Neg"});
}

TEST_CASE("kernels that make their elements in another order, or several results, take no chain",
          "[conformance]") {
    ModelWriter split;
    split.input("x", {4, 6});
    split.node("Split", {"x"}, {"a", "b"});
    split.node("Neg", {"a"}, {"c"});
    split.node("Abs", {"b"}, {"d"});
    split.output("c");
    split.output("d");
    CHECK(launches(split) == Launches{"Split", "Neg", "Abs"});
    ModelWriter across;
    across.input("x", {4, 6});
    across.number(across.node("Softmax", {"x"}, {"a"}), "axis", 0);
    across.node("Neg", {"a"}, {"b"});
    across.output("b");
    CHECK(launches(across) == Launches{"Softmax", "Neg"});
}

TEST_CASE("rows that end inside each other, and more dimensions than kernels walk, end a chain",
          "[conformance]") {
    ModelWriter rows;  // of 6, then of 8
    rows.input("x", {4, 6});
    rows.input("r", {6});
    rows.input("s", {8});
    rows.node("Add", {"x", "r"}, {"a"});
    rows.integers("shape", {3, 8});
    rows.node("Reshape", {"a", "shape"}, {"b"});
    rows.node("Add", {"b", "s"}, {"c"});
    rows.output("c");
    CHECK(launches(rows) == Launches{"Add Reshape", "Add"});
    ModelWriter deep;  // four dimensions each, all of them others but the first
    deep.input("x", {2, 2, 2, 2, 2, 2, 2});
    deep.input("p", {2, 2, 1, 1, 2, 1, 2});
    deep.input("q", {2, 1, 1, 2, 1, 1, 2});
    deep.node("Mul", {"x", "p"}, {"a"});
    deep.node("Neg", {"a"}, {"b"});
    deep.node("Mul", {"b", "q"}, {"c"});
    deep.output("c");
    CHECK(launches(deep) == Launches{"Mul Neg", "Mul"});
}

TEST_CASE("operators over tensors are refused by name on GPUs", "[conformance]") {
    ModelWriter w;
    w.input("x", {4, 6});
    w.node("Sigmoid", {"x"}, {"a"});
    w.node("Neg", {"a"}, {"b"});
    w.output("b");
    const planner::Plan plan = test::plan_tensors(w.graph(), "simt:sm_80[0]");
    CHECK_THAT(test::user_error([&] { codegen::generate_program(plan, planner::DeviceId(0)); }),
               Contains("Sigmoid + Neg") && Contains("simt:sm_80") && Contains("$devices host"));
}
