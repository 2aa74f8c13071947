// SPDX-License-Identifier: Apache-2.0
// Patterns that some exporters and some models of the family use: each is recovered as what it
// says.
#include <cmath>
#include <map>

#include "importer/onnx/import.h"
#include "tests/importer/support/onnx_files.h"
#include "tests/support/onnx_quantize.h"
#include "tests/support/reference.h"

namespace cleave {
namespace {

using test::difference;
using test::kPrompt;

using importer::AttentionAttrs;
using importer::Graph;
using importer::Op;
using importer::OpKind;
using importer::RopeAttrs;
using importer::ScaleAttrs;
using models::OnnxForm;
using models::Rotation;
using models::Variation;

std::string write_variation(const std::filesystem::path& folder, const Variation& variation,
                            OnnxForm form, bool rename, bool external_data = true) {
    models::WriteOptions options;
    options.form = form;
    options.external_data = external_data;
    models::Shape shape = test::tiny_shape();
    shape.variation = variation;
    const auto path = test::write_tiny(folder, options, shape);
    if (rename) {
        onnx::ModelProto model = test::load_onnx(path);
        test::randomize_names(model, 5);
        test::save_onnx(model, path);
    }
    return path.string();
}

Graph import_variation(const Variation& variation, OnnxForm form = OnnxForm::kDecomposed,
                       bool rename = false) {
    test::TemporaryFolder folder;
    Graph graph =
        importer::import_onnx(write_variation(folder.path(), variation, form, rename, false));
    // The weights lie in the file, which goes with the folder.
    graph.blobs.clear();
    return graph;
}

// Logits, and the graph that gave them, while the file is there.
struct Imported {
    Graph graph;
    std::vector<double> logits;
};

Imported run_variation(const Variation& variation, OnnxForm form = OnnxForm::kDecomposed,
                       bool rename = false) {
    test::TemporaryFolder folder;
    Graph graph = importer::import_onnx(write_variation(folder.path(), variation, form, rename));
    std::vector<double> logits = test::reference_logits(graph, kPrompt);
    return {std::move(graph), std::move(logits)};
}

// The plain model, changed by `change` after import: what a variation must equal.
template <class Change>
std::vector<double> logits_of_changed(Change change) {
    test::TemporaryFolder folder;
    const auto path = test::write_tiny(folder.path());
    Graph graph = importer::import_onnx(path.string());
    change(graph);
    return test::reference_logits(graph, kPrompt);
}

const std::vector<double>& plain_logits() {
    static const std::vector<double> kLogits = logits_of_changed([](Graph&) {});
    return kLogits;
}

TEST_CASE("Rotations of halves written apart are those of concatenated halves", "[importer]") {
    Variation v;
    v.rotation = Rotation::kHalvesApart;
    CHECK(difference(run_variation(v).logits, plain_logits()) < 1e-9);
}

TEST_CASE("Rotations of neighbouring features in pieces are interleaved RoPE", "[importer]") {
    const auto expected = logits_of_changed([](Graph& graph) {
        for (Op& op : graph.ops)
            if (op.kind == OpKind::kRope) std::get<RopeAttrs>(op.attrs).interleaved = true;
    });
    REQUIRE(difference(expected, plain_logits()) > 1e-3);
    for (Rotation rotation :
         {Rotation::kNeighboursSliced, Rotation::kNeighboursPaired, Rotation::kNeighboursGathered})
        for (bool rename : {false, true}) {
            INFO("rotation " << static_cast<int>(rotation) << ", renamed " << rename);
            Variation v;
            v.rotation = rotation;
            const Imported found = run_variation(v, OnnxForm::kDecomposed, rename);
            for (const Op& op : found.graph.ops)
                if (op.kind == OpKind::kRope) CHECK(op.as<RopeAttrs>().interleaved);
            CHECK(difference(found.logits, expected) < 1e-9);
        }
}

TEST_CASE("Frequencies that change with the largest position hold up to it, and the table says so",
          "[importer]") {
    Variation v;
    v.frequencies_change_at = 48;
    const Imported found = run_variation(v);
    REQUIRE(found.graph.rope_tables.size() == 1);
    CHECK(found.graph.rope_tables[0].max_positions == 48);
    CHECK(difference(found.logits, plain_logits()) < 1e-9);
}

TEST_CASE("Soft caps of scores and of logits are read as such", "[importer]") {
    Variation v;
    v.score_softcap = 0.5;
    v.logits_softcap = 2.0;
    const Imported found = run_variation(v);
    const auto expected = logits_of_changed([](Graph& graph) {
        for (Op& op : graph.ops)
            if (op.kind == OpKind::kAttention) std::get<AttentionAttrs>(op.attrs).softcap = 0.5;
    });
    REQUIRE(difference(expected, plain_logits()) > 1e-3);
    std::vector<double> capped = expected;
    for (double& x : capped) x = 2.0 * std::tanh(x / 2.0);
    CHECK(difference(found.logits, capped) < 1e-6);
    CHECK(found.graph.ops.back().as<ScaleAttrs>().softcap == 2.0);
}

TEST_CASE("Factors of logits and of what is added to the residual stream are operators",
          "[importer]") {
    Variation v;
    v.logits_divisor = 4.0;
    v.residual_factor = 0.25;
    const Imported found = run_variation(v);
    int scales = 0;
    for (const Op& op : found.graph.ops) scales += op.kind == OpKind::kScale;
    CHECK(scales == 5);  // two in each of two layers, and the logits
    v.logits_divisor = 1.0;
    std::vector<double> undivided = run_variation(v).logits;
    REQUIRE(difference(undivided, plain_logits()) > 1e-3);
    for (double& x : undivided) x /= 4.0;
    CHECK(difference(found.logits, undivided) < 1e-9);
}

TEST_CASE("Norms behind attention and MLP stand before the sum", "[importer]") {
    Variation v;
    v.norms_behind = true;
    const Imported found = run_variation(v), other = run_variation(v, OnnxForm::kAttention);
    int norms = 0;
    for (const Op& op : found.graph.ops) norms += op.kind == OpKind::kRmsNorm;
    CHECK(norms == 9);
    CHECK(difference(found.logits, plain_logits()) > 1e-3);
    CHECK(difference(found.logits, other.logits) < 1e-6);
}

TEST_CASE("q and k norms inside GroupQueryAttention are those in pieces", "[importer]") {
    Variation v;
    v.qk_norm = true;
    const Imported inside = run_variation(v, OnnxForm::kGroupQueryAttention);
    const Imported pieces = run_variation(v), attention = run_variation(v, OnnxForm::kAttention);
    CHECK(difference(inside.logits, plain_logits()) > 1e-3);
    CHECK(difference(inside.logits, pieces.logits) < 1e-6);
    CHECK(difference(inside.logits, attention.logits) < 1e-6);
}

TEST_CASE("q and k norms over all heads together are norms of whole rows", "[importer]") {
    Variation v;
    v.joint_qk_norm = true;
    const Imported pieces = run_variation(v), attention = run_variation(v, OnnxForm::kAttention);
    std::vector<int64_t> groups;
    for (const Op& op : pieces.graph.ops)
        if (op.kind == OpKind::kRmsNorm && op.name.find("_norm") != std::string::npos &&
            op.name.find("layers.0.") == 0)
            groups.push_back(op.as<importer::RmsNormAttrs>().group);
    CHECK(groups == std::vector<int64_t>{32, 32, 16, 32});  // input, q, k, post
    CHECK(difference(pieces.logits, plain_logits()) > 1e-3);
    CHECK(difference(pieces.logits, attention.logits) < 1e-6);
}

TEST_CASE("A mask that fits only whole prompts and single tokens is causal where it fits",
          "[importer]") {
    Variation v;
    v.square_mask = true;
    const Imported found = run_variation(v, OnnxForm::kAttention);
    for (const Op& op : found.graph.ops)
        if (op.kind == OpKind::kAttention) CHECK(op.as<AttentionAttrs>().window == 0);
    CHECK(found.graph.interface.has_attention_mask);
    CHECK(!found.graph.interface.assumes_right_padding);
    CHECK(difference(found.logits, plain_logits()) < 1e-6);
}

TEST_CASE("Tables that are cut to the tokens so far are the whole tables", "[importer]") {
    Variation v;
    v.cut_tables = true;
    for (bool rename : {false, true}) {
        const Imported found = run_variation(v, OnnxForm::kDecomposed, rename);
        REQUIRE(found.graph.rope_tables.size() == 1);
        CHECK(found.graph.rope_tables[0].max_positions == test::tiny_shape().config.max_positions);
        CHECK(difference(found.logits, plain_logits()) < 1e-6);
    }
}

TEST_CASE("The number that hides a key in f16 is no window, with a cache or without",
          "[importer]") {
    for (bool with_past : {false, true}) {
        test::TemporaryFolder folder;
        models::WriteOptions options;
        options.dtype = DType::kF16;
        options.with_past = with_past;
        const Graph graph =
            importer::import_onnx(test::write_tiny(folder.path(), options).string());
        for (const Op& op : graph.ops)
            if (op.kind == OpKind::kAttention) CHECK(op.as<AttentionAttrs>().window == 0);
    }
}

TEST_CASE("Static caches written in place are the Graph's own cache", "[importer]") {
    Variation v;
    v.static_cache = true;
    for (bool rename : {false, true}) {
        const Imported found = run_variation(v, OnnxForm::kAttention, rename);
        CHECK(found.graph.interface.has_past);
        CHECK(found.graph.interface.assumes_right_padding);
        CHECK(difference(found.logits, plain_logits()) < 1e-6);
    }
}

TEST_CASE("A ring cache of the window is the Graph's cache with that window", "[importer]") {
    models::Shape shape = test::tiny_shape();
    shape.sliding_window = 4;
    std::vector<double> logits[2];
    for (bool ring : {false, true}) {
        test::TemporaryFolder folder;
        models::WriteOptions options;
        options.form = OnnxForm::kGroupQueryAttention;
        shape.variation.ring_cache = ring;
        const Graph graph =
            importer::import_onnx(test::write_tiny(folder.path(), options, shape).string());
        for (const Op& op : graph.ops)
            if (op.kind == OpKind::kAttention) CHECK(op.as<AttentionAttrs>().window == 4);
        logits[ring] = test::reference_logits(graph, kPrompt);
    }
    CHECK(difference(logits[0], logits[1]) == 0.0);
    CHECK(difference(logits[1], plain_logits()) > 1e-3);
}

TEST_CASE("A ring cache without a window, or one that others read, is refused by name",
          "[importer]") {
    Variation v;
    v.ring_cache = true;
    CHECK_THAT(test::user_error([&] { import_variation(v, OnnxForm::kGroupQueryAttention); }),
               Catch::Matchers::Contains("GroupQueryAttention") &&
                   Catch::Matchers::Contains("ring cache (sliding_window_cache)"));
    test::TemporaryFolder folder;
    models::Shape shape = test::tiny_shape();
    shape.sliding_window = 4;
    models::WriteOptions options;
    options.form = OnnxForm::kGroupQueryAttention;
    shape.variation = v;
    options.external_data = false;
    const auto path = test::write_tiny(folder.path(), options, shape);
    onnx::ModelProto model = test::load_onnx(path);
    // total_sequence_length as the ring's length and the new tokens: wrong once the ring is full.
    auto* node = model.mutable_graph()->add_node();
    node->set_op_type("Shape");
    node->add_input("past_key_values.0.key");
    node->add_output("length of the ring");
    test::save_onnx(model, path);
    CHECK_THAT(test::user_error([&] { importer::import_onnx(path.string()); }),
               Catch::Matchers::Contains("length of the ring") &&
                   Catch::Matchers::Contains("reads its ring cache"));
}

TEST_CASE("All keys may stand before all values, and the batch may be fixed", "[importer]") {
    for (OnnxForm form : {OnnxForm::kDecomposed, OnnxForm::kAttention,
                          OnnxForm::kGroupQueryAttention, OnnxForm::kFunctions})
        for (int64_t batch : {0, 1, 2}) {
            INFO("form " << static_cast<int>(form) << ", batch " << batch);
            Variation v;
            v.keys_first = true;
            v.batch = batch;
            CHECK(difference(run_variation(v, form).logits, plain_logits()) < 1e-6);
        }
}

TEST_CASE("A decoder without its head stays opaque and says why", "[importer]") {
    Variation v;
    v.head = false;
    for (OnnxForm form : {OnnxForm::kDecomposed, OnnxForm::kGroupQueryAttention}) {
        const Graph graph = import_variation(v, form);
        for (const Op& op : graph.ops) CHECK(op.kind == OpKind::kOpaque);
        bool said = false;
        for (const std::string& note : graph.notes)
            said = said || note.find("without its language-model head") != std::string::npos;
        CHECK(said);
    }
}

onnx::TypeProto_Tensor* add_input(onnx::GraphProto& graph, const std::string& name, bool scalar) {
    onnx::ValueInfoProto& input = *graph.add_input();
    input.set_name(name);
    auto* type = input.mutable_type()->mutable_tensor_type();
    type->mutable_shape();
    if (!scalar) type->mutable_shape()->add_dim()->set_dim_value(1);
    return type;
}

void add_numbers(onnx::GraphProto& graph, const std::string& name,
                 const std::vector<int64_t>& numbers) {
    onnx::TensorProto& t = *graph.add_initializer();
    t.set_name(name);
    t.set_data_type(onnx::TensorProto::INT64);
    t.add_dims(static_cast<int64_t>(numbers.size()));
    for (int64_t n : numbers) t.add_int64_data(n);
}

void add_node(onnx::GraphProto& graph, const std::string& op,
              const std::vector<std::string>& inputs, const std::string& output) {
    onnx::NodeProto& node = *graph.add_node();
    node.set_op_type(op);
    for (const std::string& input : inputs) node.add_input(input);
    node.add_output(output);
}

// logits[:, -keep:, :] as transformers writes it, with `keep` an input: 0 keeps all.
TEST_CASE("How many logits to keep may be an input", "[importer]") {
    for (bool scalar : {true, false}) {
        test::TemporaryFolder folder;
        const auto path = test::write_tiny(folder.path());
        onnx::ModelProto model = test::load_onnx(path);
        onnx::GraphProto& graph = *model.mutable_graph();
        auto& type = *add_input(graph, "logits_to_keep", scalar);
        type.set_elem_type(onnx::TensorProto::INT64);
        onnx::NodeProto* head = nullptr;
        for (onnx::NodeProto& node : *graph.mutable_node())
            if (node.output(0) == "logits") head = &node;
        REQUIRE(head != nullptr);
        const std::string hidden = head->input(0);
        head->set_input(0, "kept");
        add_numbers(graph, "axis", {0});
        add_numbers(graph, "tokens", {1});
        add_numbers(graph, "end", {INT64_MAX});
        add_node(graph, "Neg", {"logits_to_keep"}, "from");
        if (scalar) add_node(graph, "Unsqueeze", {"from", "axis"}, "start");
        add_node(graph, "Slice", {hidden, scalar ? "start" : "from", "end", "tokens"}, "kept");
        test::save_onnx(model, path);
        const Graph recovered = importer::import_onnx(path.string());
        CHECK(difference(test::reference_logits(recovered, kPrompt), plain_logits()) == 0);
    }
}

// The length that keys of one dimension add to the past is nowhere to be read (found by fuzzing,
// with a sanitizer).
TEST_CASE("Attention over keys of too few dimensions is refused", "[importer]") {
    models::WriteOptions options;
    options.form = OnnxForm::kAttention;
    const std::string error = test::import_error(
        [](onnx::ModelProto& m) {
            add_numbers(*m.mutable_graph(), "no keys", {1});
            add_node(*m.mutable_graph(), "Cast", {"no keys"}, "flat keys");
            onnx::AttributeProto* to = m.mutable_graph()->mutable_node()->rbegin()->add_attribute();
            to->set_name("to");
            to->set_type(onnx::AttributeProto::INT);
            to->set_i(onnx::TensorProto::FLOAT);
            test::node_of(m, "Attention").set_input(1, "flat keys");
        },
        options);
    CHECK_THAT(error, Catch::Matchers::Contains("Attention"));
}

// ONNX Runtime's dynamic quantiser makes QAttention of the standard's Attention, which it cannot
// load itself.
TEST_CASE("An attention operator that is unknown is refused by name, not its mask", "[importer]") {
    models::WriteOptions options;
    options.form = OnnxForm::kAttention;
    CHECK_THAT(test::import_error(
                   [](onnx::ModelProto& m) {
                       onnx::NodeProto& node = test::node_of(m, "Attention");
                       node.set_op_type("QAttention");
                       node.set_domain("com.microsoft");
                       auto* set = m.add_opset_import();
                       set->set_domain("com.microsoft");
                       set->set_version(1);
                   },
                   options),
               Catch::Matchers::Contains("(com.microsoft.QAttention)"));
}

TEST_CASE("g_idx in the order of the groups changes nothing, and another one is refused by node",
          "[importer]") {
    test::TemporaryFolder folder;
    models::WriteOptions plain;
    plain.form = OnnxForm::kDecomposed;
    plain.external_data = false;
    const std::string path = test::write_tiny(folder.path(), plain).string();
    test::QuantizeOptions options;
    options.form = test::QuantizeOptions::Form::kMatMulNBits;
    test::quantize_onnx(path, path, options);
    onnx::ModelProto model = test::load_onnx(path);
    onnx::NodeProto& node = test::node_of(model, "MatMulNBits");
    int64_t rows = 0, block = 0;
    for (const onnx::AttributeProto& a : node.attribute()) {
        if (a.name() == "K") rows = a.i();
        if (a.name() == "block_size") block = a.i();
    }
    onnx::TensorProto& groups = *model.mutable_graph()->add_initializer();
    groups.set_name("groups");
    groups.set_data_type(onnx::TensorProto::INT32);
    groups.add_dims(rows);
    for (int64_t i = 0; i < rows; ++i) groups.add_int32_data(static_cast<int32_t>(i / block));
    while (node.input_size() < 4) node.add_input("");
    node.add_input("groups");
    test::save_onnx(model, path);
    CHECK(importer::import_onnx(path).config.num_layers == test::tiny_shape().config.num_layers);
    model.mutable_graph()
        ->mutable_initializer(model.graph().initializer_size() - 1)
        ->set_int32_data(0, 1);
    test::save_onnx(model, path);
    CHECK_THAT(test::file_error(path),
               Catch::Matchers::Contains("(com.microsoft.MatMulNBits): its rows are not in the "
                                         "order of their groups"));
}

TEST_CASE("SkipSimplifiedLayerNormalization's bias is the product's", "[importer]") {
    test::TemporaryFolder folder;
    models::WriteOptions options;
    options.form = OnnxForm::kGroupQueryAttention;
    options.external_data = false;
    const auto path = test::write_tiny(folder.path(), options);
    onnx::ModelProto model = test::load_onnx(path);
    onnx::TensorProto* bias = model.mutable_graph()->add_initializer();
    bias->set_name("a bias");
    bias->set_data_type(onnx::TensorProto::FLOAT);
    bias->add_dims(32);
    std::vector<float> values(32);
    for (size_t i = 0; i < values.size(); ++i) values[i] = 0.1f * static_cast<float>(i % 5);
    bias->set_raw_data(values.data(), values.size() * sizeof(float));
    test::node_of(model, "SkipSimplifiedLayerNormalization").add_input("a bias");
    test::save_onnx(model, path);
    const Graph graph = importer::import_onnx(path.string());
    int biases = 0;
    for (const Op& op : graph.ops)
        if (op.kind == OpKind::kLinear && op.as<importer::LinearAttrs>().has_bias) {
            CHECK(op.name == "layers.0.o_proj");
            ++biases;
        }
    CHECK(biases == 1);
    CHECK(difference(test::reference_logits(graph, kPrompt), plain_logits()) > 1e-3);
}

TEST_CASE("Graphs of public repositories import opaque, or the error names what stops them",
          "[importer]") {
    CLEAVE_NEEDS_SHARED_DATA();
    // The error's part, or nothing: the file imports for planning. One lacks the weights with its
    // frequencies.
    const std::map<std::string, std::string> expected{
        {"dort-llama-llama-ort_1.onnx", ""},
        {"llama_export_dynamic.onnx", ""},
        {"llama_export_static.onnx", ""},
        {"llama_layer_norm.onnx", "node 'add_Tensor3' (Add): its cos and sin cannot be evaluated"},
    };
    for (const auto& [file, error] : expected) {
        INFO(file);
        importer::ImportOptions options;
        options.weights_may_be_absent = true;
        const std::string path = (test::shared_data() / "public-onnx" / file).string();
        if (error.empty()) {
            const Graph graph = importer::import_onnx(path, options);
            CHECK(!graph.ops.empty());
            for (const Op& op : graph.ops) CHECK(op.kind == OpKind::kOpaque);
        } else {
            const std::string said =
                test::user_error([&] { importer::import_onnx(path, options); });
            CHECK(said.find(error) != std::string::npos);
        }
    }
}

TEST_CASE("Phi-3.5's short factors hold up to the position at which its If takes the long ones",
          "[importer]") {
    CLEAVE_NEEDS_SHARED_DATA();
    importer::ImportOptions options;
    options.weights_may_be_absent = true;
    const Graph graph =
        importer::import_onnx((test::shared_data() / "public-onnx" /
                               "model_microsoft_Phi-3_5-mini-instruct-custom-default-d1rt1.onnx")
                                  .string(),
                              options);
    REQUIRE(graph.rope_tables.size() == 1);
    CHECK(graph.rope_tables[0].max_positions == 4096);
    CHECK(graph.rope_tables[0].magnitude > 1.0);
}

TEST_CASE("GELU with constants in a file's narrow type is the GELU of its definition",
          "[importer]") {
    using importer::Activation;
    for (const Activation activation : {Activation::kGeluTanh, Activation::kGeluErf})
        for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
            INFO(activation_name(activation) << " in " << dtype_name(dtype));
            test::TemporaryFolder folder;
            models::WriteOptions options;
            options.dtype = dtype;
            options.external_data = false;
            models::Shape shape = test::tiny_shape();
            shape.variation.activation = activation;
            const Graph graph =
                importer::import_onnx(test::write_tiny(folder.path(), options, shape).string());
            int gates = 0;
            for (const Op& op : graph.ops) {
                if (op.kind != OpKind::kGatedActivation) continue;
                ++gates;
                CHECK(op.as<importer::GatedActivationAttrs>().activation == activation);
            }
            CHECK(gates == 2);
        }
}

}  // namespace
}  // namespace cleave
