// SPDX-License-Identifier: Apache-2.0
// Files that no exporter wrote, or that were damaged on the way: each is refused with an error that
// names the thing.
#include <fstream>
#include <limits>

#include "importer/onnx/import.h"
#include "importer/onnx/recover/view.h"
#include "models/onnx_builder.h"
#include "tests/importer/support/onnx_files.h"
#include "tests/support/onnx_quantize.h"
#include "tests/support/reference.h"

namespace cleave {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using models::OnnxForm;
using onnx::ModelProto;
using onnx::NodeProto;
using onnx::TensorProto;
using test::import_error;
using test::node_of;

models::WriteOptions form(OnnxForm f) {
    models::WriteOptions options;
    options.form = f;
    return options;
}

onnx::ValueInfoProto& input_of(ModelProto& m, const std::string& name) {
    for (auto& v : *m.mutable_graph()->mutable_input())
        if (v.name() == name) return v;
    throw InternalError("no such input: " + name);
}

void set_type(ModelProto& m, const std::string& input, TensorProto::DataType type) {
    input_of(m, input).mutable_type()->mutable_tensor_type()->set_elem_type(type);
}

TEST_CASE("A file cut short after any byte is refused", "[importer]") {
    for (OnnxForm f : {OnnxForm::kGroupQueryAttention, OnnxForm::kFunctions}) {
        test::TemporaryFolder folder;
        models::Shape shape = test::tiny_shape();
        shape.config.num_layers = 1;
        const fs::path path = test::write_tiny(folder.path(), form(f), shape);
        std::ifstream file(path, std::ios::binary);
        const std::string bytes((std::istreambuf_iterator<char>(file)), {});
        // Tags, lengths, names, numbers, whole messages: every byte is the last one once.
        for (size_t keep = 0; keep < bytes.size(); ++keep) {
            std::ofstream(path, std::ios::binary) << bytes.substr(0, keep);
            try {
                // One that lost a function at its end is a graph with an operator that nobody
                // knows: not to be run.
                test::reference_logits(importer::import_onnx(path.string()),
                                       std::vector<int32_t>{1});
                FAIL("the first " << keep << " of " << bytes.size() << " bytes were run");
            } catch (const UserError& error) {
                const std::string what = error.what();
                if (what.find("model.onnx") == std::string::npos &&
                    what.find("Llama operator") == std::string::npos)
                    FAIL("the file is not named: " << error.what());
            }
        }
    }
}

// The error of importing the changed model; where it is kept node by node (only planning is left to
// it), that of running it.
std::string refusal(const std::function<void(ModelProto&)>& change, OnnxForm f) {
    test::TemporaryFolder folder;
    models::WriteOptions options = form(f);
    options.external_data = false;
    const fs::path path = test::write_tiny(folder.path(), options);
    ModelProto model = test::load_onnx(path);
    change(model);
    test::save_onnx(model, path);
    return test::user_error([&] {
        test::reference_logits(importer::import_onnx(path.string()), std::vector<int32_t>{1, 2});
    });
}

TEST_CASE("Graph inputs of a type that their use does not have are refused by node", "[importer]") {
    for (OnnxForm f :
         {OnnxForm::kDecomposed, OnnxForm::kAttention, OnnxForm::kGroupQueryAttention}) {
        const auto with = [&](const std::string& input, TensorProto::DataType type) {
            INFO("form " << static_cast<int>(f) << ", " << input << " of type " << type);
            const std::string error = refusal([&](ModelProto& m) { set_type(m, input, type); }, f);
            CHECK_THAT(error, Contains("node") || Contains(input));
        };
        with("input_ids", TensorProto::FLOAT);
        with("attention_mask", TensorProto::STRING);
        with("past_key_values.0.key", TensorProto::INT64);
        with("past_key_values.1.value", TensorProto::FLOAT16);
    }
}

TEST_CASE("Weights of a type that their operator cannot take are refused by name", "[importer]") {
    for (TensorProto::DataType type : {TensorProto::INT32, TensorProto::FLOAT8E5M2,
                                       TensorProto::COMPLEX64, TensorProto::UINT8}) {
        std::string name;
        const std::string error = import_error([&](ModelProto& m) {
            for (TensorProto& t : *m.mutable_graph()->mutable_initializer())
                if (t.name().find("layers.1.mlp.up_proj") != std::string::npos) {
                    name = t.name();
                    t.set_data_type(type);
                    const int bytes = type == TensorProto::COMPLEX64 ? 8
                                      : type == TensorProto::INT32   ? 4
                                                                     : 1;
                    t.mutable_raw_data()->resize(t.dims(0) * t.dims(1) * bytes);
                }
        });
        INFO(error);
        CHECK((error.find("node") != std::string::npos || error.find(name) != std::string::npos));
    }
    // Float weights of two widths in one product: ONNX has no such MatMul.
    CHECK_THAT(import_error([&](ModelProto& m) {
                   for (TensorProto& t : *m.mutable_graph()->mutable_initializer())
                       if (t.name().find("layers.1.mlp.up_proj") != std::string::npos) {
                           t.set_data_type(TensorProto::DOUBLE);
                           t.mutable_raw_data()->resize(t.dims(0) * t.dims(1) * 8);
                       }
               }),
               Contains("up_proj"));
}

TEST_CASE("FLOAT4E2M1 weights are MXFP4 or refused by their node", "[importer]") {
    test::TemporaryFolder folder;
    models::WriteOptions plain = form(OnnxForm::kAttention);
    plain.external_data = false;
    models::Shape shape = test::tiny_shape();
    shape.variation.static_cache = true;
    const std::string path = test::write_tiny(folder.path(), plain, shape).string();
    test::QuantizeOptions options;
    options.form = test::QuantizeOptions::Form::kDequantizeLinear;
    options.code = DType::kMxfp4;
    const auto quantize = [&](const test::QuantizeOptions& o) {
        test::quantize_onnx(path, (folder.path() / "mxfp4.onnx").string(), o);
    };
    quantize(options);
    const ModelProto model = test::load_onnx(folder.path() / "mxfp4.onnx");
    for (const importer::Weight& w :
         importer::import_onnx((folder.path() / "mxfp4.onnx").string()).weights)
        if (w.packing != importer::Packing::kDense) CHECK(w.dtype == DType::kMxfp4);
    // The scales of one weight in another type, of as many elements.
    for (auto [type, bytes, why] :
         {std::tuple(TensorProto::FLOAT, 4, "in blocks of 32 with f8e8m0 scales"),
          std::tuple(TensorProto::INT8, 1, "scales of INT8 are not supported")}) {
        ModelProto changed = model;
        std::string node;
        for (const NodeProto& n : changed.graph().node())
            if (n.op_type() == "DequantizeLinear" && node.empty()) {
                node = n.name();
                for (TensorProto& t : *changed.mutable_graph()->mutable_initializer())
                    if (t.name() == n.input(1)) {
                        const size_t count = t.raw_data().size();
                        t.set_data_type(type);
                        t.mutable_raw_data()->resize(count * static_cast<size_t>(bytes));
                    }
            }
        const auto hostile = folder.path() / "hostile.onnx";
        test::save_onnx(changed, hostile);
        CHECK_THAT(test::user_error([&] { importer::import_onnx(hostile.string()); }),
                   Contains(node) && Contains(why));
    }
    options.block = 16;
    CHECK_THAT(test::user_error([&] { quantize(options); }), Contains("blocks of 32"));
}

TEST_CASE("Sizes of quantised weights that overflow are refused by their node", "[importer]") {
    using Form = test::QuantizeOptions::Form;
    for (Form f : {Form::kMatMulNBits, Form::kDequantizeLinear})
        for (const char* attribute : {"block_size", "K", "N"}) {
            if (f == Form::kDequantizeLinear && attribute != std::string("block_size")) continue;
            INFO(static_cast<int>(f) << " " << attribute);
            test::TemporaryFolder folder;
            models::WriteOptions plain =
                form(f == Form::kMatMulNBits ? OnnxForm::kDecomposed : OnnxForm::kAttention);
            plain.external_data = false;
            const std::string path = test::write_tiny(folder.path(), plain).string();
            test::QuantizeOptions options;
            options.form = f;
            if (f == Form::kDequantizeLinear)
                options.zero_points = test::QuantizeOptions::ZeroPoints::kInteger;
            test::quantize_onnx(path, path, options);
            for (const int64_t size : {std::numeric_limits<int64_t>::max(), int64_t{1} << 60}) {
                ModelProto model = test::load_onnx(path);
                std::string changed;
                for (NodeProto& node : *model.mutable_graph()->mutable_node())
                    for (auto& a : *node.mutable_attribute())
                        if (a.name() == attribute && changed.empty()) {
                            a.set_i(size);
                            changed = node.name().empty() ? node.output(0) : node.name();
                        }
                const auto hostile = folder.path() / "hostile.onnx";
                test::save_onnx(model, hostile);
                const std::string error = test::user_error([&] {
                    test::reference_logits(importer::import_onnx(hostile.string()),
                                           std::vector<int32_t>{1, 2});
                });
                CHECK_THAT(error, Contains(changed));
            }
        }
}

TEST_CASE("An attention mask of more sequences than the tokens have is refused by its node",
          "[importer]") {
    for (OnnxForm f : {OnnxForm::kDecomposed, OnnxForm::kAttention}) {
        INFO("form " << static_cast<int>(f));
        const std::string error = refusal(
            [](ModelProto& m) {
                auto* type = input_of(m, "attention_mask").mutable_type()->mutable_tensor_type();
                type->mutable_shape()->mutable_dim(0)->set_dim_value(255);
            },
            f);
        CHECK_THAT(error, Contains("attention mask") && Contains("node"));
    }
}

TEST_CASE("Negative and overflowing dimensions are refused by name", "[importer]") {
    CHECK_THAT(import_error([](ModelProto& m) {
                   input_of(m, "past_key_values.0.key")
                       .mutable_type()
                       ->mutable_tensor_type()
                       ->mutable_shape()
                       ->mutable_dim(1)
                       ->set_dim_value(-2);
               }),
               Contains("past_key_values.0.key") && Contains("negative dimension"));
    CHECK_THAT(import_error([](ModelProto& m) {
                   auto* shape = input_of(m, "past_key_values.0.key")
                                     .mutable_type()
                                     ->mutable_tensor_type()
                                     ->mutable_shape();
                   for (int i : {1, 3}) shape->mutable_dim(i)->set_dim_value(int64_t{1} << 62);
               }),
               Contains("past_key_values.0.key"));
    // Found by the fuzzer: a size that every mask and position would have to be evaluated at.
    for (const char* input : {"attention_mask", "input_ids"})
        for (int dim : {0, 1})
            CHECK_THAT(import_error([&](ModelProto& m) {
                           input_of(m, input)
                               .mutable_type()
                               ->mutable_tensor_type()
                               ->mutable_shape()
                               ->mutable_dim(dim)
                               ->set_dim_value(int64_t{1} << 40);
                       }),
                       Contains("node"));
    // Inside the graph: a Reshape that asks for less than nothing, for more than there is.
    for (int64_t bad : {int64_t{-7}, int64_t{1} << 62, std::numeric_limits<int64_t>::min()})
        CHECK_THAT(import_error([&](ModelProto& m) {
                       const std::string shape = node_of(m, "Reshape").input(1);
                       for (TensorProto& t : *m.mutable_graph()->mutable_initializer())
                           if (t.name() == shape) {
                               t.mutable_raw_data()->resize(0);
                               t.clear_int64_data();
                               t.clear_dims();
                               t.clear_raw_data();
                               for (int64_t d : {int64_t{0}, int64_t{0}, bad, bad})
                                   t.add_int64_data(d);
                               t.add_dims(4);
                           }
                   }),
                   Contains("node"));
}

TEST_CASE("A window too large to be checked without a cache limits the context", "[importer]") {
    const auto import_with = [](int64_t window) {
        test::TemporaryFolder folder;
        models::Shape shape = test::tiny_shape();
        shape.sliding_window = window;
        models::WriteOptions options;
        options.with_past = false;
        return importer::import_onnx(test::write_tiny(folder.path(), options, shape).string());
    };
    for (const importer::Op& op : import_with(100).ops)
        if (op.kind == importer::OpKind::kAttention)
            CHECK(op.as<importer::AttentionAttrs>().window == 100);
    // Within so many tokens it hides nothing.
    const importer::Graph graph = import_with(4096);
    REQUIRE(!graph.rope_tables.empty());
    for (const importer::RopeTable& table : graph.rope_tables) {
        CHECK(table.max_positions >= 512);
        CHECK(table.max_positions <= 2048);
    }
    CHECK(graph.config.max_positions == graph.rope_tables[0].max_positions);
    CHECK_THAT(graph.notes.at(0), Contains("attention mask was checked for"));
}

TEST_CASE("Names that two things have are refused by name", "[importer]") {
    CHECK_THAT(
        import_error([](ModelProto& m) { *m.mutable_graph()->add_input() = m.graph().input(0); }),
        Contains("input_ids") && Contains("defined twice"));
    CHECK_THAT(import_error([](ModelProto& m) {
                   TensorProto& t = *m.mutable_graph()->add_initializer();
                   t = m.graph().initializer(0);
               }),
               Contains("defined twice"));
    CHECK_THAT(import_error([](ModelProto& m) {
                   node_of(m, "Softmax").set_output(0, m.graph().initializer(0).name());
               }),
               Contains("defined twice") && Contains("Softmax"));
    std::string name;
    CHECK_THAT(import_error(
                   [&](ModelProto& m) {
                       *m.add_functions() = m.functions(0);
                       name = m.functions(0).name();
                   },
                   form(OnnxForm::kFunctions)),
               Contains("defined twice"));
}

void call(google::protobuf::RepeatedPtrField<NodeProto>& nodes, const std::string& function) {
    NodeProto* n = nodes.Add();
    n->set_domain("loop");
    n->set_op_type(function);
}

onnx::FunctionProto& add_function(ModelProto& m, const std::string& name) {
    onnx::FunctionProto& f = *m.add_functions();
    f.set_domain("loop");
    f.set_name(name);
    return f;
}

TEST_CASE("Functions that reach themselves are refused by name, however they do it", "[importer]") {
    // f calls g, g calls h, h calls f.
    CHECK_THAT(import_error([](ModelProto& m) {
                   for (const auto& [from, to] : {std::pair{"f", "g"}, {"g", "h"}, {"h", "f"}})
                       call(*add_function(m, from).mutable_node(), to);
                   call(*m.mutable_graph()->mutable_node(), "f");
               }),
               Contains("calls itself") && Contains("loop."));
    // f has an If whose branch calls f.
    const auto through_branch = [](ModelProto& m) {
        NodeProto* n = add_function(m, "f").add_node();
        n->set_op_type("If");
        onnx::AttributeProto* a = n->add_attribute();
        a->set_name("then_branch");
        a->set_type(onnx::AttributeProto::GRAPH);
        call(*a->mutable_g()->mutable_node(), "f");
    };
    CHECK_THAT(import_error([&](ModelProto& m) {
                   through_branch(m);
                   call(*m.mutable_graph()->mutable_node(), "f");
               }),
               Contains("calls itself"));
    // Nobody calls it: refused all the same, for inlining looks at every function.
    CHECK_THAT(import_error([&](ModelProto& m) { through_branch(m); }), Contains("calls itself"));
    // The graphs of a list.
    CHECK_THAT(import_error([](ModelProto& m) {
                   NodeProto* n = add_function(m, "f").add_node();
                   n->set_op_type("Odd");
                   onnx::AttributeProto* a = n->add_attribute();
                   a->set_name("bodies");
                   a->set_type(onnx::AttributeProto::GRAPHS);
                   call(*a->add_graphs()->mutable_node(), "f");
                   call(*m.mutable_graph()->mutable_node(), "f");
               }),
               Contains("calls itself"));
}

TEST_CASE("Functions beside a loop without its two inputs are refused", "[importer]") {
    CHECK_THAT(import_error(
                   [](ModelProto& m) {
                       // Functions of an opset as old as this are converted, for which ONNX infers
                       // shapes.
                       for (auto& f : *m.mutable_functions())
                           for (auto& set : *f.mutable_opset_import()) set.set_version(12);
                       NodeProto* loop = m.mutable_graph()->add_node();
                       loop->set_op_type("Loop");
                       loop->add_output("turns");
                       onnx::AttributeProto* body = loop->add_attribute();
                       body->set_name("body");
                       body->set_type(onnx::AttributeProto::GRAPH);
                       body->mutable_g()->set_name("body");
                       for (const char* name : {"turn", "go on"})
                           body->mutable_g()->add_input()->set_name(name);
                       body->mutable_g()->add_output()->set_name("go on");
                   },
                   form(OnnxForm::kFunctions)),
               Contains("cannot be inlined"));
}

TEST_CASE("A chain of functions as deep as a file can hold is refused or imported", "[importer]") {
    const std::string error = import_error([](ModelProto& m) {
        constexpr int kDepth = 20000;
        for (int i = 0; i < kDepth; ++i)
            call(*add_function(m, "f" + std::to_string(i)).mutable_node(),
                 "f" + std::to_string(i + 1));
        add_function(m, "f" + std::to_string(kDepth));
        call(*m.mutable_graph()->mutable_node(), "f0");
    });
    CHECK_THAT(error, Contains("deep"));
}

// Found among rewired graphs.
TEST_CASE("An empty mask and flags that are neither 0 nor 1 are refused by node", "[importer]") {
    CHECK_THAT(import_error(
                   [](ModelProto& m) {
                       TensorProto& t = *m.mutable_graph()->add_initializer();
                       t.set_name("no mask");
                       t.set_data_type(TensorProto::BOOL);
                       for (int d : {1, 0, 1, 1}) t.add_dims(d);
                       node_of(m, "Attention").set_input(3, "no mask");
                   },
                   form(OnnxForm::kAttention)),
               Contains("no mask") && Contains("empty"));
    CHECK_THAT(import_error(
                   [](ModelProto& m) {
                       onnx::AttributeProto* a = node_of(m, "Attention").add_attribute();
                       a->set_name("is_causal");
                       a->set_type(onnx::AttributeProto::INT);
                       a->set_i(2);
                   },
                   form(OnnxForm::kAttention)),
               Contains("is_causal") && Contains("Attention"));
}

void set_integer(NodeProto& node, const std::string& name, int64_t value) {
    for (auto& a : *node.mutable_attribute())
        if (a.name() == name) return a.set_i(value);
    models::set_attribute(node, {name, value});
}

TEST_CASE("Counts of heads, parts and tokens whose products overflow are refused by node",
          "[importer]") {
    const int64_t largest = std::numeric_limits<int64_t>::max();
    const auto gqa = form(OnnxForm::kGroupQueryAttention);
    for (const char* name : {"num_heads", "kv_num_heads", "local_window_size"})
        for (int64_t value : {largest, largest / 2 + 1, std::numeric_limits<int64_t>::min()}) {
            INFO(name << " " << value);
            CHECK_THAT(import_error(
                           [&](ModelProto& m) {
                               NodeProto& node = node_of(m, "GroupQueryAttention");
                               set_integer(node, name, value);
                           },
                           gqa),
                       Contains("GroupQueryAttention"));
        }
    CHECK_THAT(import_error(
                   [&](ModelProto& m) {
                       set_integer(node_of(m, "Attention"), "left_window_size", largest);
                   },
                   form(OnnxForm::kAttention)),
               Contains("left_window_size"));
    for (int64_t parts : {int64_t{1}, int64_t{3}, largest})
        CHECK_THAT(import_error(
                       [&](ModelProto& m) {
                           for (auto& f : *m.mutable_functions())
                               for (auto& n : *f.mutable_node())
                                   if (n.op_type() == "Split") set_integer(n, "num_outputs", parts);
                       },
                       form(OnnxForm::kFunctions)),
                   Contains("node"));
}

TEST_CASE("A mask for another number of heads than the attention has is refused by node",
          "[importer]") {
    for (OnnxForm f : {OnnxForm::kDecomposed, OnnxForm::kAttention})
        CHECK_THAT(import_error(
                       [&](ModelProto& m) {
                           const bool fused = f == OnnxForm::kAttention;
                           NodeProto& user =
                               fused ? node_of(m, "Attention") : node_of(m, "Softmax");
                           NodeProto* reader = &user;
                           for (auto& n : *m.mutable_graph()->mutable_node())
                               if (!fused && n.output(0) == user.input(0)) reader = &n;
                           const int input = fused ? 3 : 1;
                           NodeProto two;
                           two.set_op_type("Concat");
                           for (int i = 0; i < 2; ++i) two.add_input(reader->input(input));
                           two.add_output("two masks");
                           models::set_attribute(two, {"axis", int64_t{1}});
                           reader->set_input(input, "two masks");
                           *m.mutable_graph()->add_node() = two;
                       },
                       form(f)),
                   Contains("its mask is given for 2 heads, not for 1 or 4"));
}

TEST_CASE("Nodes whose results have no name change nothing", "[importer]") {
    test::TemporaryFolder folder;
    const std::filesystem::path path = test::write_tiny(folder.path());
    const std::string whole = importer::to_text(importer::import_onnx(path.string()));
    ModelProto model = test::load_onnx(path);
    onnx::GraphProto& graph = *model.mutable_graph();
    for (NodeProto node : std::vector<NodeProto>(graph.node().begin(), graph.node().end()))
        if (node.op_type() == "Gather" && node.input(1) == "input_ids") {
            node.set_name("lost rows");
            node.set_output(0, "");
            *graph.add_node() = node;
            node.set_name("lost ids");
            node.set_op_type("Identity");
            node.clear_attribute();
            node.clear_input();
            node.add_input("input_ids");
            *graph.add_node() = node;
        }
    REQUIRE(graph.node_size() == test::load_onnx(path).graph().node_size() + 2);
    test::save_onnx(model, path);
    CHECK(importer::to_text(importer::import_onnx(path.string())) == whole);
}

TEST_CASE("What a rotation of whole heads leaves over, of no features, has no other shape",
          "[importer]") {
    namespace onnx_form = importer::from_onnx;
    const onnx_form::View nothing = onnx_form::whole_view(onnx_form::TermId(), 0, {1, 1}, {2, 5});
    CHECK_FALSE(onnx_form::reshaped(nothing, {{1, 1}, {2, 5}, {2, 2}, {16, 16}}));
}

TEST_CASE("A graph without an operator is refused", "[importer]") {
    CHECK_THAT(import_error([](ModelProto& m) {
                   m.mutable_graph()->clear_node();
                   m.mutable_graph()->clear_output();
               }),
               Contains("no operator"));
}

TEST_CASE("Cycles inside functions and branches are refused by node", "[importer]") {
    CHECK_THAT(import_error(
                   [](ModelProto& m) {
                       NodeProto& n = *m.mutable_functions(0)->mutable_node(0);
                       n.set_input(0, n.output(0));
                   },
                   form(OnnxForm::kFunctions)),
               Contains("node"));
}

}  // namespace
}  // namespace cleave
