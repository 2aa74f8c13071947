// SPDX-License-Identifier: Apache-2.0
// Llamas with one edge rewired, one node bypassed, one attribute or constant changed: each is
// refused with an error that names a part of the graph, or what was recovered gives the logits that
// ONNX Runtime gives for the file. The changes and the verdict are rewire.py's; recovery and our
// logits are in this process.
#include <cstdlib>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "importer/onnx/import.h"
#include "tests/importer/support/onnx_files.h"
#include "tests/support/reference.h"

namespace cleave {
namespace {

namespace fs = std::filesystem;
using models::OnnxForm;

const std::vector<int32_t> kLongPrompt{1, 9, 4, 33, 7, 2, 2, 50, 14, 31, 8};

// Same tiny model, with heads of 16, which ONNX Runtime's GroupQueryAttention needs.
models::Shape rewired_shape() {
    models::Shape shape = test::tiny_shape();
    shape.config.hidden_size = 64;
    shape.config.head_dim = 16;
    shape.config.vocab_size = 60;
    return shape;
}

bool run_script(const std::string& arguments) {
    const fs::path script = test::source_root() / "tests" / "importer" / "onnx" / "rewire.py";
    return std::system(fmt::format("'{}' '{}' {}", std::getenv("CLEAVE_TEST_PYTHON"),
                                   script.string(), arguments)
                           .c_str()) == 0;
}

std::set<std::string> names_in(const onnx::ModelProto& model) {
    std::set<std::string> names;
    for (const auto& v : model.graph().input()) names.insert(v.name());
    for (const auto& v : model.graph().output()) names.insert(v.name());
    for (const auto& t : model.graph().initializer()) names.insert(t.name());
    auto add_nodes = [&](auto&& self, const auto& nodes) -> void {
        for (const onnx::NodeProto& n : nodes) {
            names.insert(n.name());
            names.insert(n.output().begin(), n.output().end());
            for (const onnx::AttributeProto& a : n.attribute())
                if (a.has_g()) self(self, a.g().node());
        }
    };
    add_nodes(add_nodes, model.graph().node());
    for (const onnx::FunctionProto& f : model.functions()) add_nodes(add_nodes, f.node());
    return names;
}

// Whether the message has a name of the graph (inlining puts prefixes before names).
bool names_a_part(const std::string& message, const onnx::ModelProto& model) {
    for (const std::string& name : names_in(model))
        if (name.size() > 3 && message.find(name) != std::string::npos) return true;
    return false;
}

struct Count {
    int refused = 0, run = 0;
    Count& operator+=(const Count& other) {
        refused += other.refused;
        run += other.run;
        return *this;
    }
};

// Writes what the file was recovered as beside it, for the judge; or checks the refusal.
void recover(const fs::path& file, Count& count) {
    std::string what;
    std::getline(std::ifstream(file.parent_path() / (file.stem().string() + ".txt")), what);
    INFO(file << ": " << what);
    std::string error;
    try {
        const importer::Graph graph = importer::import_onnx(file.string());
        const std::vector<double> logits = test::reference_logits(graph, kLongPrompt);
        std::ofstream(fs::path(file).replace_extension(".f64"), std::ios::binary)
            .write(reinterpret_cast<const char*>(logits.data()),
                   static_cast<std::streamsize>(logits.size() * sizeof(double)));
        const bool padding =
            graph.interface.has_attention_mask && !graph.interface.assumes_right_padding;
        std::ofstream(fs::path(file).replace_extension(".json")) << fmt::format(
            "{{\"tokens\": [{}], \"padding\": {}}}", fmt::join(kLongPrompt, ","), padding);
        ++count.run;
        return;
    } catch (const UserError& e) {
        error = e.what();
    }
    ++count.refused;
    INFO(error);
    CHECK(names_a_part(error, test::load_onnx(file)));
}

// Changes `base` in `changes` ways; every one must be refused or right.
Count check_rewired(const fs::path& base, int changes, int seed) {
    INFO(base << ", seed " << seed);
    test::TemporaryFolder folder;
    fs::copy_file(base, folder.path() / "base.onnx");
    const fs::path mutants = folder.path() / "mutants";
    fs::create_directory(mutants);
    for (const auto& entry : fs::directory_iterator(base.parent_path()))
        if (entry.path().extension() == ".data")
            for (const fs::path& to : {folder.path(), mutants})
                fs::copy_file(entry.path(), to / entry.path().filename());
    REQUIRE(run_script(fmt::format("make '{}' '{}' {} {}", (folder.path() / "base.onnx").string(),
                                   mutants.string(), changes, seed)));
    Count count;
    for (const auto& entry : fs::directory_iterator(mutants))
        if (entry.path().extension() == ".onnx") recover(entry.path(), count);
    CHECK(run_script(fmt::format("judge '{}'", mutants.string())));
    CHECK(count.refused + count.run == changes);
    return count;
}

struct OwnForm {
    const char* name;
    OnnxForm form;
};

const OwnForm kOwnForms[] = {{"decomposed", OnnxForm::kDecomposed},
                             {"attention", OnnxForm::kAttention},
                             {"gqa", OnnxForm::kGroupQueryAttention},
                             {"functions", OnnxForm::kFunctions}};

const char* const kFiles[] = {
    "rand_gqa16/legacy_op17_past_sdpa.onnx",
    "rand_gqa16/dynamo_op18_idsonly_sdpa.onnx",
    "rand_gqa16/genai0114_fp32_cpu/model.onnx",
    "rand_gqa16/mobius_default/model.onnx",
    "rand_mha16/dynamo_op23_past_sdpa.onnx",
    "rand_llama3rope/dynamo_op18_past_sdpa.onnx",
    "rand_llama3rope/genaiHEAD_fp32_cpu/model.onnx",
    "rand_bias_headdim32/dynamo_op18_past_sdpa.onnx",
    "mistral_sw8/dynamo_op23_past_sdpa.onnx",
    "phi3/dynamo_op23_past_sdpa.onnx",
    "qwen2/genai018_fp32_cpu/model.onnx",
    "qwen3/dynamo_op23_past_sdpa.onnx",
    "gemma/legacy_op17_past_sdpa.onnx",
    "llama_yarn/legacy_op17_past_sdpa.onnx",
};

Count check_own_form(const OwnForm& own, int changes, int seed) {
    test::TemporaryFolder folder;
    models::WriteOptions options;
    options.form = own.form;
    options.external_data = false;
    return check_rewired(test::write_tiny(folder.path(), options, rewired_shape()), changes, seed);
}

constexpr const char* kNoPython =
    "CLEAVE_TEST_PYTHON names no Python with onnxruntime (tools/test sets it)";

// Neither all refused nor all run: then the test would show nothing.
void check_both_happen(const Count& all) {
    WARN(all.refused << " refused, " << all.run << " run");
    CHECK(all.refused > all.run / 4);
    CHECK(all.run > all.refused / 20);
}

void check_own_forms(int changes, int seed) {
    Count all;
    for (const OwnForm& own : kOwnForms) all += check_own_form(own, changes, seed);
    check_both_happen(all);
}

void check_files(int changes, int seed) {
    Count all;
    for (const char* file : kFiles)
        all += check_rewired(test::shared_data() / "models" / file, changes, seed);
    check_both_happen(all);
}

TEST_CASE("A graph of our own with one edge rewired is refused by name or runs as what it says",
          "[importer]") {
    if (!std::getenv("CLEAVE_TEST_PYTHON")) CLEAVE_SKIP(kNoPython);
    check_own_forms(40, 1);
}

TEST_CASE("An exporter's graph with one edge rewired is refused by name or runs as what it says",
          "[importer]") {
    CLEAVE_NEEDS_SHARED_DATA();
    if (!std::getenv("CLEAVE_TEST_PYTHON")) CLEAVE_SKIP(kNoPython);
    check_files(12, 1);
}

// What single models of the family have, each alone and in both forms that can say it.
std::vector<models::Variation> variations() {
    std::vector<models::Variation> all;
    const auto add = [&](auto change) {
        models::Variation v;
        change(v);
        all.push_back(v);
    };
    using models::Rotation;
    for (Rotation rotation : {Rotation::kHalvesApart, Rotation::kNeighboursSliced,
                              Rotation::kNeighboursPaired, Rotation::kNeighboursGathered})
        add([&](auto& v) { v.rotation = rotation; });
    add([](auto& v) { v.frequencies_change_at = 48; });
    add([](auto& v) { v.score_softcap = 0.5, v.logits_softcap = 2.0; });
    add([](auto& v) { v.logits_divisor = 4.0, v.residual_factor = 0.25; });
    add([](auto& v) { v.norms_behind = true; });
    add([](auto& v) { v.qk_norm = true; });
    add([](auto& v) { v.joint_qk_norm = true; });
    add([](auto& v) { v.square_mask = true; });
    add([](auto& v) { v.cut_tables = true; });
    add([](auto& v) { v.keys_first = true; });
    return all;
}

TEST_CASE("Every variation gives ONNX Runtime's logits: whole, with its cache, and left-padded",
          "[importer]") {
    if (!std::getenv("CLEAVE_TEST_PYTHON")) CLEAVE_SKIP(kNoPython);
    test::TemporaryFolder folder;
    Count count;
    int padded = 0;
    for (OnnxForm form : {OnnxForm::kDecomposed, OnnxForm::kAttention})
        for (const models::Variation& v : variations()) {
            if (form == OnnxForm::kAttention &&
                (v.rotation != models::Rotation::kHalves || v.frequencies_change_at > 0 ||
                 v.score_softcap > 0 || v.cut_tables))
                continue;
            if (form == OnnxForm::kDecomposed && v.square_mask) continue;
            test::TemporaryFolder own;
            models::WriteOptions options;
            options.form = form;
            options.external_data = false;
            models::Shape shape = rewired_shape();
            shape.variation = v;
            const fs::path name = folder.path() / fmt::format("{:05}.onnx", count.run);
            fs::copy_file(test::write_tiny(own.path(), options, shape), name);
            std::ofstream(fs::path(name).replace_extension(".txt"))
                << fmt::format("variation {} of form {}\n", count.run, static_cast<int>(form));
            recover(name, count);
            const importer::Graph graph = importer::import_onnx(name.string());
            padded += graph.interface.has_attention_mask && !graph.interface.assumes_right_padding;
        }
    CHECK(count.refused == 0);
    CHECK(padded == count.run);
    CHECK(run_script(fmt::format("judge '{}'", folder.path().string())));
}

TEST_CASE("Thousands of rewired graphs are refused by name or run as what they say",
          "[importer][slow]") {
    if (!std::getenv("CLEAVE_TEST_PYTHON")) CLEAVE_SKIP(kNoPython);
    check_own_forms(400, 2);
    if (!test::shared_data().empty()) check_files(200, 2);
}

}  // namespace
}  // namespace cleave
