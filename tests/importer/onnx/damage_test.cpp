// SPDX-License-Identifier: Apache-2.0
// Each bad input gives a UserError that names the thing.
#include <fstream>
#include <random>

#include <google/protobuf/text_format.h>

#include "importer/onnx/import.h"
#include "importer/weights/weight_reader.h"
#include "tests/importer/support/onnx_files.h"
#include "tests/support/reference.h"

namespace cleave {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using onnx::ModelProto;
using test::file_error;
using test::import_error;
using test::node_of;

void write_text(const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
}

TEST_CASE("A path that is no ONNX model is refused", "[importer]") {
    test::TemporaryFolder folder;
    CHECK_THAT(file_error(folder.path() / "none.onnx"), Contains("no such file"));
    CHECK_THAT(file_error(folder.path()), Contains("no .onnx file"));
    write_text(folder.path() / "text.onnx", "this is no model\n");
    CHECK_THAT(file_error(folder.path() / "text.onnx"), Contains("not an ONNX model"));
    write_text(folder.path() / "empty.onnx", "");
    CHECK_THAT(file_error(folder.path() / "empty.onnx"), Contains("not an ONNX model"));
    CHECK_THAT(file_error(folder.path()), Contains("2 .onnx files"));
}

TEST_CASE("A truncated model file is refused at any length", "[importer]") {
    test::TemporaryFolder folder;
    models::WriteOptions options;
    options.external_data = false;
    const fs::path path = test::write_tiny(folder.path(), options);
    const auto size = static_cast<int64_t>(fs::file_size(path));
    for (int64_t keep = size - 1; keep > 0; keep -= size / 37 + 1) {
        fs::resize_file(path, static_cast<uintmax_t>(keep));
        CHECK_THROWS_AS(importer::import_onnx(path.string()), UserError);
    }
}

TEST_CASE("External data that is missing or short is refused by name", "[importer]") {
    test::TemporaryFolder folder;
    const fs::path path = test::write_tiny(folder.path());
    const fs::path data = path.string() + ".data";
    REQUIRE(fs::exists(data));
    fs::resize_file(data, fs::file_size(data) - 4);
    CHECK_THAT(file_error(path), Contains("cut short") && Contains("model.onnx.data"));
    fs::remove(data);
    CHECK_THAT(file_error(path), Contains("model.onnx.data") && Contains("is missing"));
}

TEST_CASE("A model whose external data is absent can be planned but not run", "[importer]") {
    test::TemporaryFolder folder;
    const fs::path path = test::write_tiny(folder.path());
    fs::remove(path.string() + ".data");
    const importer::Graph graph =
        importer::import_onnx(path.string(), {.weights_may_be_absent = true});
    CHECK(graph.config.num_layers == 2);
    CHECK_THAT(test::user_error([&] { test::reference_logits(graph, std::vector<int32_t>{1}); }),
               Contains("absent"));
}

TEST_CASE("External data outside the model's folder is refused", "[importer]") {
    test::TemporaryFolder outside;
    for (const std::string& location : {std::string("../model.onnx.data"), std::string("a/../../b"),
                                        std::string("/etc/passwd")}) {
        test::TemporaryFolder folder;
        const fs::path path = test::write_tiny(folder.path());
        ModelProto model = test::load_onnx(path);
        for (auto& t : *model.mutable_graph()->mutable_initializer())
            for (auto& e : *t.mutable_external_data())
                if (e.key() == "location") e.set_value(location);
        test::save_onnx(model, path);
        CHECK_THAT(file_error(path), Contains(location));
    }
    test::TemporaryFolder folder;
    const fs::path path = test::write_tiny(folder.path());
    fs::rename(path.string() + ".data", outside.path() / "data");
    fs::create_symlink(outside.path() / "data", path.string() + ".data");
    CHECK_THAT(file_error(path), Contains("symbolic link"));
}

TEST_CASE("Offsets beyond the file and numbers that are none are refused", "[importer]") {
    for (const std::string& bad : {std::string("99999999999"), std::string("18446744073709551615"),
                                   std::string("-4"), std::string("x")}) {
        test::TemporaryFolder folder;
        const fs::path path = test::write_tiny(folder.path());
        ModelProto model = test::load_onnx(path);
        for (auto& t : *model.mutable_graph()->mutable_initializer())
            for (auto& e : *t.mutable_external_data())
                if (e.key() == "offset") e.set_value(bad);
        test::save_onnx(model, path);
        CHECK_THAT(file_error(path), Contains("initializer"));
    }
}

TEST_CASE("A file that carries our own marker of inline data is refused", "[importer]") {
    const std::string error = import_error([](ModelProto& m) {
        auto* e = m.mutable_graph()->mutable_initializer(0)->add_external_data();
        e->set_key("cleave.inline");
        e->set_value("0,100000");
    });
    CHECK_THAT(error, Contains("not an ONNX model"));
}

onnx::TensorProto& large_initializer(ModelProto& m) {
    for (onnx::TensorProto& t : *m.mutable_graph()->mutable_initializer())
        if (t.dims_size() == 2 && t.raw_data().size() > 1000) return t;
    throw InternalError("no large initializer");
}

TEST_CASE("Initializers with impossible shapes, types and sizes are refused by name",
          "[importer]") {
    std::string name;
    const auto bad = [&](auto change) {
        return import_error([&](ModelProto& m) {
            onnx::TensorProto& t = large_initializer(m);
            name = t.name();
            change(t);
        });
    };
    CHECK_THAT(bad([](auto& t) { t.set_dims(0, -2); }), Contains("negative dimension"));
    CHECK_THAT(bad([](auto& t) { t.set_dims(0, int64_t{1} << 60); }), Contains("overflows"));
    CHECK_THAT(bad([](auto& t) { t.set_dims(0, t.dims(0) + 1); }),
               Contains("its shape and type (FLOAT) need"));
    CHECK_THAT(bad([](auto& t) { t.set_data_type(onnx::TensorProto::STRING); }),
               Contains("STRING"));
    CHECK_THAT(bad([](auto& t) {
                   t.set_data_type(onnx::TensorProto::INT64);
                   t.set_dims(0, t.dims(0) / 2);
               }),
               Contains("node"));
    CHECK_THAT(bad([](auto& t) { t.clear_raw_data(); }), Contains("0 bytes"));
    CHECK_THAT(bad([](auto& t) { t.clear_raw_data(); }), Contains(name));
}

TEST_CASE("A weight of no elements is refused by name", "[importer]") {
    // The empty region of interest that exporters give Resize.
    onnx::ModelProto model;
    REQUIRE(google::protobuf::TextFormat::ParseFromString(
        R"(ir_version: 8 opset_import { version: 17 }
           graph {
             name: "g"
             node { input: "x" input: "roi" input: "scales" output: "y" op_type: "Resize"
                    attribute { name: "mode" type: STRING s: "nearest" } }
             initializer { name: "roi" data_type: 1 dims: 0 }
             initializer { name: "scales" data_type: 1 dims: 2 float_data: 1 float_data: 2 }
             input { name: "x" type { tensor_type { elem_type: 1 shape {
                     dim { dim_value: 3 } dim { dim_value: 2 } } } } }
             output { name: "y" type { tensor_type { elem_type: 1 shape {
                      dim { dim_value: 3 } dim { dim_value: 4 } } } } }
           })",
        &model));
    test::TemporaryFolder folder;
    const fs::path path = folder.path() / "model.onnx";
    test::save_onnx(model, path);
    CHECK_THAT(file_error(path), Contains("the initializer 'roi' has no elements"));
}

TEST_CASE("Initializers of types that nothing here has are kept as their bytes", "[importer]") {
    using T = onnx::TensorProto;
    for (const auto& [type, bytes] : {std::pair{T::UINT16, 2},
                                      {T::UINT32, 4},
                                      {T::UINT64, 8},
                                      {T::COMPLEX64, 8},
                                      {T::COMPLEX128, 16},
                                      {T::FLOAT8E4M3FNUZ, 1},
                                      {T::FLOAT8E5M2, 1},
                                      {T::FLOAT8E5M2FNUZ, 1}}) {
        CAPTURE(type);
        onnx::ModelProto model;
        REQUIRE(google::protobuf::TextFormat::ParseFromString(
            R"(ir_version: 8 opset_import { version: 17 }
               graph {
                 name: "g"
                 node { input: "x" input: "w" output: "y" op_type: "Mystery" }
                 initializer { name: "w" dims: 3 dims: 2 }
                 input { name: "x" type { tensor_type { elem_type: 1 shape {
                         dim { dim_value: 3 } dim { dim_value: 2 } } } } }
                 output { name: "y" type { tensor_type { elem_type: 1 } } }
               })",
            &model));
        onnx::TensorProto& w = *model.mutable_graph()->mutable_initializer(0);
        w.set_data_type(type);
        w.set_raw_data(std::string(static_cast<size_t>(6 * bytes), 'w'));
        test::TemporaryFolder folder;
        const fs::path path = folder.path() / "model.onnx";
        test::save_onnx(model, path);
        const importer::Graph graph = importer::import_onnx(path.string());
        REQUIRE(graph.weights.size() == 1);
        CHECK(graph.weights[0].dtype == DType::kUInt8);
        CHECK(graph.weights[0].num_elements() == 6 * bytes);
    }
}

TEST_CASE("A missing initializer, a cycle and a name defined twice are refused by node",
          "[importer]") {
    std::string name;
    CHECK_THAT(import_error([&](ModelProto& m) {
                   m.mutable_graph()->mutable_initializer()->DeleteSubrange(3, 1);
               }),
               Contains("no initializer, node or graph input makes it"));
    CHECK_THAT(import_error([&](ModelProto& m) {
                   onnx::NodeProto& softmax = node_of(m, "Softmax");
                   name = softmax.name();
                   softmax.set_input(0, softmax.output(0));
               }),
               Contains("cycle"));
    CHECK_THAT(import_error(
                   [&](ModelProto& m) { *m.mutable_graph()->add_node() = node_of(m, "Softmax"); }),
               Contains("defined twice"));
    CHECK_THAT(import_error([&](ModelProto& m) {
                   m.mutable_graph()->mutable_output(0)->set_name("nothing");
               }),
               Contains("nothing makes the graph output"));
}

TEST_CASE("Names that would break lines of what is printed are refused", "[importer]") {
    const std::string forged = "softmax\ncleave: all is well";
    const std::string error =
        import_error([&](ModelProto& m) { node_of(m, "Softmax").set_name(forged); });
    CHECK_THAT(error, Contains("'softmax?cleave: all is well' has control characters"));
    CHECK_THAT(import_error([&](ModelProto& m) { m.set_producer_name("a\nb"); }),
               Contains("has control characters"));
}

TEST_CASE("An operator that a layer cannot have is refused by node and operator", "[importer]") {
    std::string name;
    const std::string error = import_error([&](ModelProto& m) {
        node_of(m, "Softmax", 1).set_op_type("Hardmax");
        name = node_of(m, "Hardmax").name();
    });
    CHECK_THAT(error, Contains(name) && Contains("Hardmax"));
    CHECK_THAT(import_error([&](ModelProto& m) { node_of(m, "Sigmoid").set_op_type("Softsign"); }),
               Contains("Softsign"));
    CHECK_THAT(import_error([&](ModelProto& m) {
                   node_of(m, "Softmax").set_domain("com.example");
                   m.add_opset_import()->set_domain("com.example");
               }),
               Contains("com.example.Softmax"));
}

TEST_CASE("Functions that call themselves or explode are refused", "[importer]") {
    models::WriteOptions functions;
    functions.form = models::OnnxForm::kFunctions;
    CHECK_THAT(import_error(
                   [](ModelProto& m) {
                       onnx::FunctionProto& f = *m.mutable_functions(0);
                       onnx::NodeProto* call = f.add_node();
                       call->set_domain(f.domain());
                       call->set_op_type(f.name());
                   },
                   functions),
               Contains("calls itself"));
    CHECK_THAT(import_error(
                   [](ModelProto& m) {
                       for (int i = 0; i < 40; ++i) {
                           onnx::FunctionProto* f = m.add_functions();
                           f->set_domain("bomb");
                           f->set_name("f" + std::to_string(i));
                           for (int k = 0; k < 2; ++k) {
                               onnx::NodeProto* call = f->add_node();
                               call->set_domain("bomb");
                               call->set_op_type("f" + std::to_string(i + 1));
                           }
                       }
                       onnx::NodeProto* call = m.mutable_graph()->add_node();
                       call->set_domain("bomb");
                       call->set_op_type("f0");
                   },
                   functions),
               Contains("expand to more than"));
}

// Rewired graphs: what they say is no Llama any more.
TEST_CASE("Keys taken from another layer are refused", "[importer]") {
    // The second layer's k_proj reads the first layer's norm.
    const std::string error = import_error([](ModelProto& m) {
        std::vector<onnx::NodeProto*> products;
        for (onnx::NodeProto& n : *m.mutable_graph()->mutable_node())
            if (n.op_type() == "MatMul" && n.input(1).find("k_proj") != std::string::npos)
                products.push_back(&n);
        REQUIRE(products.size() == 2);
        products[1]->set_input(0, products[0]->input(0));
    });
    CHECK_THAT(error, Contains("another value than the queries"));
}

TEST_CASE("A cache of another layer is refused", "[importer]") {
    CHECK_THAT(import_error([](ModelProto& m) {
                   for (onnx::NodeProto& n : *m.mutable_graph()->mutable_node())
                       if (n.op_type() == "Concat" && n.input(0) == "past_key_values.1.key")
                           n.set_input(0, "past_key_values.0.key");
               }),
               Contains("past_key_values.0.key"));
    // Exchanged in pairs: every cache has a reader, but grows into another.
    CHECK_THAT(import_error([](ModelProto& m) {
                   for (onnx::NodeProto& n : *m.mutable_graph()->mutable_node())
                       if (n.op_type() == "Concat" && n.input(0).starts_with("past_key_values.") &&
                           n.input(0).ends_with(".key"))
                           n.set_input(0, n.input(0) == "past_key_values.1.key"
                                              ? "past_key_values.0.key"
                                              : "past_key_values.1.key");
               }),
               Contains("another one's past"));
    CHECK_THAT(import_error([](ModelProto& m) {
                   for (onnx::NodeProto& n : *m.mutable_graph()->mutable_node())
                       if (n.op_type() == "Concat" && n.input(0) == "past_key_values.1.key")
                           n.set_input(0, "past_key_values.1.value");
               }),
               Contains("past_key_values.1.value"));
}

TEST_CASE("A missing rotation, a missing mask and a mask of another kind are refused",
          "[importer]") {
    // The first rotation's sum is bypassed: the queries are not rotated, the keys are.
    CHECK_THAT(import_error([](ModelProto& m) {
                   onnx::NodeProto& rotated = node_of(m, "Neg");
                   std::string x = rotated.input(0);  // the upper half
                   for (onnx::NodeProto& n : *m.mutable_graph()->mutable_node())
                       if (n.op_type() == "Slice" && n.output(0) == x) x = n.input(0);
                   for (onnx::NodeProto& n : *m.mutable_graph()->mutable_node())
                       if (n.op_type() == "MatMul" &&
                           n.input(1).find("weight") == std::string::npos &&
                           n.input(0).find("rotary") == std::string::npos) {
                           const std::string before = n.input(0);
                           for (const onnx::NodeProto& p : m.graph().node())
                               if (p.op_type() == "Add" && p.output(0) == before) {
                                   n.set_input(0, x);
                                   return;
                               }
                       }
               }),
               Contains("only the keys are rotated"));
    const auto mask_add = [](ModelProto& m) -> onnx::NodeProto& {
        const std::string softmax_input = node_of(m, "Softmax").input(0);
        for (onnx::NodeProto& n : *m.mutable_graph()->mutable_node())
            if (n.output_size() > 0 && n.output(0) == softmax_input) return n;
        throw InternalError("no mask");
    };
    CHECK_THAT(import_error([&](ModelProto& m) {
                   onnx::NodeProto& add = mask_add(m);
                   node_of(m, "Softmax").set_input(0, add.input(0));
               }),
               Contains("lets tokens see later ones"));
    CHECK_THAT(import_error(
                   [&](ModelProto& m) { node_of(m, "LessOrEqual").set_op_type("GreaterOrEqual"); }),
               Contains("mask"));
    CHECK_THAT(import_error([&](ModelProto& m) { node_of(m, "LessOrEqual").set_op_type("Less"); }),
               Contains("hides"));
}

TEST_CASE("Shapes that disagree are refused by node", "[importer]") {
    CHECK_THAT(import_error([](ModelProto& m) {
                   for (auto& t : *m.mutable_graph()->mutable_initializer())
                       if (t.name().find("layers.1.mlp.up_proj") != std::string::npos) {
                           t.set_dims(1, t.dims(1) / 2);
                           t.mutable_raw_data()->resize(t.raw_data().size() / 2);
                       }
               }),
               Contains("node"));
}

TEST_CASE("A file with random bytes changed is imported or refused, never worse", "[importer]") {
    using models::OnnxForm;
    for (OnnxForm form : {OnnxForm::kDecomposed, OnnxForm::kAttention,
                          OnnxForm::kGroupQueryAttention, OnnxForm::kFunctions}) {
        test::TemporaryFolder folder;
        models::WriteOptions options;
        options.form = form;
        const fs::path path = test::write_tiny(folder.path(), options);
        std::ifstream file(path, std::ios::binary);
        const std::string before((std::istreambuf_iterator<char>(file)), {});
        int refused = 0;
        for (uint64_t seed = 0; seed < 300; ++seed) {
            INFO("form " << static_cast<int>(form) << ", seed " << seed);
            std::mt19937_64 random(seed);
            std::string bytes = before;
            for (uint64_t i = random() % 5; i < 5; ++i)
                bytes[random() % bytes.size()] = static_cast<char>(random());
            write_text(path, bytes);
            try {
                importer::import_onnx(path.string());
            } catch (const UserError&) {
                ++refused;
            }
        }
        CHECK(refused > 0);
    }
}

TEST_CASE("An axis outside a value's dimensions is refused by node", "[importer]") {
    CHECK_THAT(import_error([](ModelProto& m) {
                   for (onnx::NodeProto& n : *m.mutable_graph()->mutable_node())
                       if (n.op_type() == "Concat" && n.input(0) == "past_key_values.0.key")
                           n.mutable_attribute(0)->set_i(1 << 20);
               }),
               Contains("axis") && Contains("Concat"));
}

TEST_CASE("Reading a weight whose file shrank after import is refused", "[importer]") {
    test::TemporaryFolder folder;
    const fs::path path = test::write_tiny(folder.path());
    const importer::Graph graph = importer::import_onnx(path.string());
    fs::resize_file(path.string() + ".data", 16);
    CHECK_THAT(test::user_error([&] { test::reference_logits(graph, std::vector<int32_t>{1}); }),
               Contains("truncated or replaced"));
}

TEST_CASE("Exporter-made files that no one can run are refused with the reason", "[importer]") {
    CLEAVE_NEEDS_SHARED_DATA();
    const fs::path models = test::shared_data() / "models";
    CHECK_THAT(file_error(models / "negative/llama_mqa_genai018_int4_cuda_prepacked/model.onnx"),
               Contains("weight_prepacked") && Contains("MatMulNBits"));
    CHECK_THAT(file_error(models / "stories260K/genai_HEAD_fp32_cuda_INVALID/model.onnx"),
               Contains("present.0.key"));
}

}  // namespace
}  // namespace cleave
