// SPDX-License-Identifier: Apache-2.0
// Weights beside the model: several files, checked offsets and lengths, nothing outside the folder,
// nothing read.
#include <algorithm>
#include <fstream>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "importer/onnx/import.h"
#include "tests/importer/support/onnx_files.h"
#include "tests/support/reference.h"

namespace cleave {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using onnx::TensorProto;
using test::file_error;

const std::vector<int32_t> kTokens{1, 9, 4, 33, 7};

void set_entry(TensorProto& t, const std::string& key, const std::string& value) {
    for (auto& e : *t.mutable_external_data())
        if (e.key() == key) return e.set_value(value);
    auto* e = t.add_external_data();
    e->set_key(key);
    e->set_value(value);
}

void drop_entry(TensorProto& t, const std::string& key) {
    auto& entries = *t.mutable_external_data();
    for (int i = entries.size(); i-- > 0;)
        if (entries[i].key() == key) entries.DeleteSubrange(i, 1);
}

// The first matrix whose data lies outside the model.
TensorProto& external_matrix(onnx::ModelProto& m) {
    for (TensorProto& t : *m.mutable_graph()->mutable_initializer())
        if (t.data_location() == TensorProto::EXTERNAL && t.dims_size() == 2) return t;
    throw InternalError("no external matrix");
}

// The error after a change to one external matrix, whose name goes to `name`.
std::string error_after(const std::function<void(TensorProto&, const fs::path& folder)>& change,
                        std::string& name) {
    test::TemporaryFolder folder;
    const fs::path path = test::write_tiny(folder.path());
    onnx::ModelProto model = test::load_onnx(path);
    TensorProto& t = external_matrix(model);
    name = t.name();
    change(t, folder.path());
    test::save_onnx(model, path);
    return file_error(path);
}

// Moves every tensor's bytes to a file of its own, every other one in a folder below.
void scatter(const fs::path& path) {
    onnx::ModelProto model = test::load_onnx(path);
    std::ifstream file(path.string() + ".data", std::ios::binary);
    const std::string all((std::istreambuf_iterator<char>(file)), {});
    fs::create_directories(path.parent_path() / "below" / "further");
    int serial = 0;
    for (TensorProto& t : *model.mutable_graph()->mutable_initializer()) {
        if (t.data_location() != TensorProto::EXTERNAL) continue;
        size_t offset = 0, length = 0;
        for (const auto& e : t.external_data()) {
            if (e.key() == "offset") offset = std::stoull(e.value());
            if (e.key() == "length") length = std::stoull(e.value());
        }
        const std::string name =
            (serial % 2 ? "below/further/w" : "w") + std::to_string(serial) + ".bin";
        const std::string before = "left over " + std::to_string(serial++);  // odd offsets too
        std::ofstream(path.parent_path() / name, std::ios::binary)
            << before << all.substr(offset, length) << "and after";
        set_entry(t, "location", name);
        set_entry(t, "offset", std::to_string(before.size()));
        if (serial % 3 == 0) drop_entry(t, "length");  // optional: to be had from the shape
    }
    test::save_onnx(model, path);
    fs::remove(path.string() + ".data");
}

TEST_CASE("Weights in several files, at any offset, give the same logits", "[importer]") {
    test::TemporaryFolder folder;
    const fs::path path = test::write_tiny(folder.path());
    const auto before = test::reference_logits(importer::import_onnx(path.string()), kTokens);
    scatter(path);
    const importer::Graph graph = importer::import_onnx(path.string());
    CHECK(graph.files.size() > 10);
    CHECK(test::reference_logits(graph, kTokens) == before);
}

TEST_CASE("A location that is no file of the model's folder is refused by name", "[importer]") {
    std::string name;
    const auto with_location = [&](const std::string& location) {
        return error_after(
            [&](TensorProto& t, const fs::path& folder) {
                fs::create_directory(folder / "below");
                set_entry(t, "location", location);
            },
            name);
    };
    CHECK_THAT(with_location("below/../../up"), Contains("leaves the model's folder"));
    CHECK_THAT(with_location("../up"), Contains(name));
    CHECK_THAT(with_location("/etc/hostname"), Contains("absolute path"));
    CHECK_THAT(with_location(""), Contains("is empty"));
    CHECK_THAT(with_location("below"), Contains("not a regular file"));
    CHECK_THAT(with_location("none.data"), Contains("none.data") && Contains("is missing"));
    CHECK_THAT(with_location(std::string("model.onnx.data\0x", 17)), Contains("zero byte"));
    CHECK_THAT(
        error_after([](TensorProto& t, const fs::path&) { drop_entry(t, "location"); }, name),
        Contains("is empty") && Contains(name));
    CHECK_THAT(error_after(
                   [](TensorProto& t, const fs::path& folder) {
                       REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
                       set_entry(t, "location", "pipe");  // opening it would wait for ever
                   },
                   name),
               Contains("not a regular file"));
}

TEST_CASE("Symbolic links may point into the model's folder, not out of it", "[importer]") {
    test::TemporaryFolder outside, folder;
    const fs::path path = test::write_tiny(folder.path());
    const fs::path data = path.string() + ".data";
    fs::rename(data, folder.path() / "real.bin");
    fs::create_symlink("real.bin", data);
    CHECK(importer::import_onnx(path.string()).config.num_layers == 2);
    fs::rename(folder.path() / "real.bin", outside.path() / "real.bin");
    fs::remove(data);
    fs::create_symlink(outside.path() / "real.bin", data);
    CHECK_THAT(file_error(path), Contains("symbolic link out of the model's folder"));
    // A linked folder is as good as a linked file.
    fs::remove(data);
    fs::create_directory_symlink(outside.path(), folder.path() / "below");
    onnx::ModelProto model = test::load_onnx(path);
    for (TensorProto& t : *model.mutable_graph()->mutable_initializer())
        if (t.data_location() == TensorProto::EXTERNAL) set_entry(t, "location", "below/real.bin");
    test::save_onnx(model, path);
    CHECK_THAT(file_error(path), Contains("symbolic link out of the model's folder"));
    // The folder itself may be reached through a link.
    test::TemporaryFolder other;
    test::write_tiny(other.path() / "model");
    fs::create_directory_symlink(other.path() / "model", other.path() / "linked");
    CHECK(importer::import_onnx((other.path() / "linked" / "model.onnx").string())
              .config.num_layers == 2);
}

TEST_CASE("Offsets and lengths of external data are checked by initializer", "[importer]") {
    std::string name;
    const auto with = [&](const std::string& key, const std::string& value) {
        return error_after([&](TensorProto& t, const fs::path&) { set_entry(t, key, value); },
                           name);
    };
    for (const char* offset : {"99999999999", "18446744073709551615", "18446744073709551616", "-4",
                               "x", "4 ", "0x10", "1e3", ""}) {
        INFO("offset " << offset);
        CHECK_THAT(with("offset", offset), Contains(name));
    }
    for (const char* length : {"0", "4", "99999999999", "18446744073709551615", "-1", "all"}) {
        INFO("length " << length);
        CHECK_THAT(with("length", length), Contains(name));
    }
}

TEST_CASE("The element of a ConstantOfShape may lie in external data", "[importer]") {
    CLEAVE_NEEDS_SHARED_DATA();
    const fs::path source = test::shared_data() / "models/rand_gqa16/legacy_op17_past_sdpa.onnx";
    onnx::ModelProto model = test::load_onnx(source);
    const std::string inside = importer::to_text(importer::import_onnx(source.string()));
    std::string bytes;
    int moved = 0;
    for (onnx::NodeProto& node : *model.mutable_graph()->mutable_node()) {
        if (node.op_type() != "ConstantOfShape" || node.attribute_size() == 0) continue;
        TensorProto& t = *node.mutable_attribute(0)->mutable_t();
        set_entry(t, "location", "elements.bin");
        set_entry(t, "offset", std::to_string(bytes.size()));
        set_entry(t, "length", std::to_string(t.raw_data().size()));
        bytes += t.raw_data();
        t.clear_raw_data();
        t.set_data_location(TensorProto::EXTERNAL);
        ++moved;
    }
    REQUIRE(moved > 0);
    test::TemporaryFolder folder;
    const fs::path path = folder.path() / source.filename();
    std::ofstream(folder.path() / "elements.bin", std::ios::binary) << bytes;
    test::save_onnx(model, path);
    CHECK(importer::to_text(importer::import_onnx(path.string())) == inside);
    fs::remove(folder.path() / "elements.bin");
    CHECK_THAT(file_error(path), Contains("elements.bin") && Contains("ConstantOfShape"));
}

TEST_CASE("A model without its weights is planned from and refused to run", "[importer]") {
    test::TemporaryFolder folder;
    const fs::path path = test::write_tiny(folder.path());
    const std::string with = importer::to_text(importer::import_onnx(path.string()));
    fs::remove(path.string() + ".data");
    CHECK_THAT(file_error(path), Contains("$weights_may_be_absent"));
    const importer::Graph graph = importer::import_onnx(path.string(), {true});
    CHECK(importer::to_text(graph) == with);
    CHECK_THAT(test::user_error([&] { test::reference_logits(graph, kTokens); }),
               Contains("model.onnx.data") && Contains("absent"));
    // Bad paths stay refused: absence excuses nothing else.
    onnx::ModelProto model = test::load_onnx(path);
    set_entry(external_matrix(model), "location", "../up");
    test::save_onnx(model, path);
    CHECK_THAT(test::user_error([&] { importer::import_onnx(path.string(), {true}); }),
               Contains("leaves the model's folder"));
}

// Pages of a file that lie in memory.
int64_t resident_pages(const fs::path& path) {
    const auto size = static_cast<size_t>(fs::file_size(path));
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    REQUIRE(file >= 0);
    void* map = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
    ::close(file);
    REQUIRE(map != MAP_FAILED);
    std::vector<unsigned char> there(size / static_cast<size_t>(::sysconf(_SC_PAGESIZE)) + 1);
    REQUIRE(::mincore(map, size, there.data()) == 0);
    ::munmap(map, size);
    return std::count_if(there.begin(), there.end(), [](unsigned char c) { return (c & 1) != 0; });
}

TEST_CASE("Importing a model with 16 GB of weights touches none of their pages", "[importer]") {
    test::TemporaryFolder folder;
    models::WriteOptions options;
    options.weights = models::WriteOptions::Weights::kNone;
    options.dtype = DType::kBF16;
    const fs::path path = models::write_onnx_llama(models::find_shape("llama-3-8b").value(),
                                                   folder.path().string(), options);
    const fs::path data = path.string() + ".data";
    std::ofstream(data).close();
    std::error_code error;
    fs::resize_file(data, uintmax_t{17} * 1000 * 1000 * 1000, error);
    if (error)
        CLEAVE_SKIP("the temporary folder holds no sparse file of 17 GB: " + error.message());
    REQUIRE(resident_pages(data) == 0);
    const importer::Graph graph = importer::import_onnx(path.string());
    CHECK(graph.config.num_layers == 32);
    CHECK(resident_pages(data) == 0);
    // The count can be other than 0: reading a weight touches its pages.
    std::ifstream file(data, std::ios::binary);
    file.get();
    CHECK(resident_pages(data) > 0);
}

}  // namespace
}  // namespace cleave
