// SPDX-License-Identifier: Apache-2.0
// The forms that the project's own writer makes: each is recovered as the shape's graph, with the
// same logits.
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "importer/onnx/import.h"
#include "models/llama_graph.h"
#include "tests/importer/support/onnx_files.h"
#include "tests/support/reference.h"

namespace cleave {
namespace {

using models::OnnxForm;
using test::difference;
using test::kPrompt;

std::vector<double> logits_of(const std::filesystem::path& path) {
    return test::reference_logits(importer::import_onnx(path.string()), kPrompt);
}

// The operators without values that tables and frequencies print differently.
std::vector<std::string> outline(const importer::Graph& graph) {
    std::vector<std::string> lines;
    for (const importer::Op& op : graph.ops) {
        std::string line = op.name + " " + std::string(importer::op_kind_name(op.kind));
        for (importer::ValueId v : op.inputs) line += fmt::format(" %{}", v);
        for (importer::WeightId w : op.weights)
            for (int64_t d : graph.weight(w).shape) line += fmt::format(" {}", d);
        lines.push_back(line);
    }
    return lines;
}

TEST_CASE("Each form of our writer is recovered as the graph of its shape", "[importer]") {
    const auto expected = outline(models::build_llama_graph(test::tiny_shape(), DType::kF32));
    std::vector<double> first;
    for (OnnxForm form : {OnnxForm::kDecomposed, OnnxForm::kAttention,
                          OnnxForm::kGroupQueryAttention, OnnxForm::kFunctions})
        for (bool external : {false, true}) {
            INFO("form " << static_cast<int>(form) << ", external data " << external);
            test::TemporaryFolder folder;
            models::WriteOptions options;
            options.form = form;
            options.external_data = external;
            const auto path = test::write_tiny(folder.path(), options);
            const importer::Graph graph = importer::import_onnx(path.string());
            CHECK(outline(graph) == expected);
            CHECK(graph.interface.has_past);
            CHECK(graph.config.num_layers == 2);
            const std::vector<double> logits = test::reference_logits(graph, kPrompt);
            if (first.empty()) first = logits;
            CHECK(difference(logits, first) <
                  1e-4);  // the table forms round cos and sin to float32
        }
}

TEST_CASE("Files without past, without position ids and in narrow types are read", "[importer]") {
    for (OnnxForm form : {OnnxForm::kDecomposed, OnnxForm::kAttention, OnnxForm::kFunctions})
        for (bool past : {true, false})
            for (bool positions : {true, false}) {
                INFO("form " << static_cast<int>(form) << ", past " << past << ", positions "
                             << positions);
                test::TemporaryFolder a, b;
                models::WriteOptions options;
                options.form = form;
                const auto usual = logits_of(test::write_tiny(a.path(), options));
                options.with_past = past;
                options.with_position_ids = positions;
                const auto path = test::write_tiny(b.path(), options);
                CHECK(difference(logits_of(path), usual) < 1e-4);
                CHECK(importer::import_onnx(path.string()).interface.has_past == past);
                CHECK(importer::import_onnx(path.string()).interface.has_position_ids == positions);
            }
    for (DType dtype : {DType::kF16, DType::kBF16}) {
        test::TemporaryFolder folder;
        models::WriteOptions options;
        options.dtype = dtype;
        const importer::Graph graph =
            importer::import_onnx(test::write_tiny(folder.path(), options).string());
        CHECK(graph.dtype == dtype);
        CHECK(graph.weights[0].dtype == dtype);
    }
}

TEST_CASE("A sliding window is recovered whatever its size", "[importer]") {
    for (int64_t window : {int64_t{1}, int64_t{3}, int64_t{100}, int64_t{4096}}) {
        models::Shape shape = test::tiny_shape();
        shape.sliding_window = window;
        for (OnnxForm form :
             {OnnxForm::kDecomposed, OnnxForm::kAttention, OnnxForm::kGroupQueryAttention}) {
            test::TemporaryFolder folder;
            models::WriteOptions options;
            options.form = form;
            const importer::Graph graph =
                importer::import_onnx(test::write_tiny(folder.path(), options, shape).string());
            for (const importer::Op& op : graph.ops)
                if (op.kind == importer::OpKind::kAttention)
                    CHECK(op.as<importer::AttentionAttrs>().window == window);
        }
    }
}

TEST_CASE("Random names of nodes, values and initializers change nothing", "[importer]") {
    std::vector<std::filesystem::path> files;
    test::TemporaryFolder folder;
    for (OnnxForm form : {OnnxForm::kDecomposed, OnnxForm::kAttention,
                          OnnxForm::kGroupQueryAttention, OnnxForm::kFunctions}) {
        models::WriteOptions options;
        options.form = form;
        options.external_data = false;
        files.push_back(
            test::write_tiny(folder.path() / std::to_string(static_cast<int>(form)), options));
    }
    if (!test::shared_data().empty())
        for (const char* below : {"models", "public-onnx"})
            for (const auto& entry :
                 std::filesystem::recursive_directory_iterator(test::shared_data() / below))
                if (entry.path().extension() == ".onnx") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    size_t compared = 0;
    for (const std::filesystem::path& file : files) {
        INFO(file);
        onnx::ModelProto model = test::load_onnx(file);
        test::randomize_names(model, 7);
        test::TemporaryFolder renamed;
        for (const auto& entry : std::filesystem::directory_iterator(file.parent_path()))
            if (entry.path().extension() == ".data")
                std::filesystem::copy(entry.path(), renamed.path() / entry.path().filename());
        test::save_onnx(model, renamed.path() / "model.onnx");
        const auto imported =
            [](const std::filesystem::path& path) -> std::optional<importer::Graph> {
            try {
                return importer::import_onnx(path.string());
            } catch (const UserError&) {
                return std::nullopt;  // files that are to be refused stay refused
            }
        };
        const auto before = imported(file), after = imported(renamed.path() / "model.onnx");
        CHECK(before.has_value() == after.has_value());
        if (!before || !after) continue;
        ++compared;
        const importer::Graph &a = *before, &b = *after;
        if (a.config.num_layers == 0) {
            // Opaque graphs keep their ONNX names; their operators must be the same ones.
            CHECK(a.ops.size() == b.ops.size());
            continue;
        }
        CHECK(importer::to_text(a) == importer::to_text(b));
        CHECK(a.interface.has_position_ids == b.interface.has_position_ids);
        CHECK(a.interface.has_attention_mask == b.interface.has_attention_mask);
    }
    CHECK(compared * 10 >= files.size() * 8);
}

// Rewrites x * cos + concat(-x2, x1) * sin as concat(x1 * cos - x2 * sin, x2 * cos + x1 * sin).
void write_rotations_in_halves(onnx::GraphProto& graph) {
    const auto maker = [&](const std::string& name) {
        for (const onnx::NodeProto& n : graph.node())
            if (n.output(0) == name) return n;
        return onnx::NodeProto();
    };
    onnx::GraphProto out;
    int serial = 0;
    const auto add = [&](const std::string& op, const std::vector<std::string>& in,
                         const std::string& result = "") {
        onnx::NodeProto* n = out.add_node();
        n->set_op_type(op);
        for (const std::string& i : in) n->add_input(i);
        n->add_output(result.empty() ? "halves" + std::to_string(serial++) : result);
        return n->output(0);
    };
    for (const onnx::NodeProto& n : graph.node()) {
        const onnx::NodeProto a = n.op_type() == "Add" ? maker(n.input(0)) : onnx::NodeProto();
        const onnx::NodeProto b = n.op_type() == "Add" ? maker(n.input(1)) : onnx::NodeProto();
        const onnx::NodeProto join = b.op_type() == "Mul" ? maker(b.input(0)) : onnx::NodeProto();
        if (join.op_type() != "Concat" || maker(join.input(0)).op_type() != "Neg") {
            *out.add_node() = n;
            continue;
        }
        const std::string high = maker(join.input(0)).input(0);
        const std::string& low = join.input(1);
        const onnx::NodeProto slice = maker(low);
        const auto half = [&](const std::string& table) {
            return add("Slice", {table, slice.input(1), slice.input(2), slice.input(3)});
        };
        const std::string cos = half(a.input(1)), sin = half(b.input(1));
        const std::string x = add("Sub", {add("Mul", {low, cos}), add("Mul", {high, sin})});
        const std::string y = add("Add", {add("Mul", {sin, low}), add("Mul", {high, cos})});
        add("Concat", {x, y}, n.output(0));
        onnx::AttributeProto* axis = out.mutable_node(out.node_size() - 1)->add_attribute();
        axis->set_name("axis");
        axis->set_type(onnx::AttributeProto::INT);
        axis->set_i(-1);
    }
    graph.mutable_node()->Swap(out.mutable_node());
}

TEST_CASE("A rotation written in halves is the same rotation", "[importer]") {
    test::TemporaryFolder folder;
    models::WriteOptions options;
    options.external_data = false;
    const auto path = test::write_tiny(folder.path(), options);
    const std::string before = importer::to_text(importer::import_onnx(path.string()));
    onnx::ModelProto model = test::load_onnx(path);
    const int nodes = model.graph().node_size();
    write_rotations_in_halves(*model.mutable_graph());
    REQUIRE(model.graph().node_size() > nodes);
    test::save_onnx(model, path);
    CHECK(importer::to_text(importer::import_onnx(path.string())) == before);
}

TEST_CASE("A graph that is no Llama is kept node by node", "[importer]") {
    test::TemporaryFolder folder;
    onnx::ModelProto model;
    model.set_ir_version(10);
    model.add_opset_import()->set_version(18);
    auto tensor = [](onnx::ValueInfoProto* v, const char* name) {
        v->set_name(name);
        auto* t = v->mutable_type()->mutable_tensor_type();
        t->set_elem_type(onnx::TensorProto::FLOAT);
        t->mutable_shape()->add_dim()->set_dim_param("n");
        t->mutable_shape()->add_dim()->set_dim_value(4);
    };
    tensor(model.mutable_graph()->add_input(), "x");
    tensor(model.mutable_graph()->add_output(), "z");
    onnx::TensorProto* w = model.mutable_graph()->add_initializer();
    w->set_name("w");
    w->set_data_type(onnx::TensorProto::FLOAT);
    for (int i = 0; i < 2; ++i) w->add_dims(4);
    for (int i = 0; i < 16; ++i) w->add_float_data(1.0f);
    for (auto [op, in, out] : {std::tuple{"MatMul", "x", "y"}, std::tuple{"Cosh", "y", "z"}}) {
        onnx::NodeProto* n = model.mutable_graph()->add_node();
        n->set_op_type(op);
        n->add_input(in);
        if (std::string(op) == "MatMul") n->add_input("w");
        n->add_output(out);
    }
    test::save_onnx(model, folder.path() / "other.onnx");
    const importer::Graph graph = importer::import_onnx((folder.path() / "other.onnx").string());
    REQUIRE(graph.ops.size() == 2);
    CHECK(graph.ops[0].as<importer::OpaqueAttrs>().op_type == "MatMul");
    CHECK(graph.ops[0].as<importer::OpaqueAttrs>().flops > 0);
    CHECK(graph.ops[1].inputs == graph.ops[0].outputs);
    CHECK(graph.weights.size() == 1);
    CHECK_THAT(test::user_error([&] { test::reference_logits(graph, kPrompt); }),
               Catch::Matchers::Contains("MatMul"));
}

TEST_CASE("Functions of another opset than the model's are inlined all the same", "[importer]") {
    test::TemporaryFolder folder;
    models::WriteOptions options;
    options.form = OnnxForm::kFunctions;
    options.external_data = false;
    const auto path = test::write_tiny(folder.path(), options);
    const std::vector<double> before = logits_of(path);
    for (int64_t version : {17, 24, 25}) {
        onnx::ModelProto model = test::load_onnx(path);
        for (auto& set : *model.mutable_opset_import())
            if (set.domain().empty()) set.set_version(version);
        test::save_onnx(model, folder.path() / "other.onnx");
        INFO("opset " << version);
        CHECK(difference(logits_of(folder.path() / "other.onnx"), before) == 0.0);
    }
}

TEST_CASE("Nodes in any order are sorted", "[importer]") {
    test::TemporaryFolder folder;
    models::WriteOptions options;
    options.external_data = false;
    const auto path = test::write_tiny(folder.path(), options);
    const std::vector<double> before = logits_of(path);
    onnx::ModelProto model = test::load_onnx(path);
    auto& nodes = *model.mutable_graph()->mutable_node();
    for (int i = 0; i < nodes.size() / 2; ++i) nodes.SwapElements(i, nodes.size() - 1 - i);
    test::save_onnx(model, path);
    CHECK(difference(logits_of(path), before) == 0.0);
}

}  // namespace
}  // namespace cleave
