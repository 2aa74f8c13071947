// SPDX-License-Identifier: Apache-2.0
// `cleave run` of a graph over tensors, from .npy files to .npy files.
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
using Catch::Matchers::Contains;

namespace {

// As numpy.save writes f32.
void save_npy(const std::filesystem::path& path, const std::string& shape,
              const std::vector<float>& values) {
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + shape + "), }";
    header.append(117 - header.size(), ' ');
    header += '\n';
    std::ofstream file(path, std::ios::binary);
    file << "\x93NUMPY" << '\x01' << '\0' << static_cast<char>(header.size()) << '\0' << header;
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
}

std::vector<float> load_npy(const std::filesystem::path& path, const std::string& shape) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    const std::string bytes = text.str();
    CHECK_THAT(bytes, Contains("'descr': '<f4', 'fortran_order': False, 'shape': (" + shape + ")"));
    const size_t end = bytes.find('\n') + 1;
    CHECK(end % 64 == 0);
    std::vector<float> values((bytes.size() - end) / sizeof(float));
    std::memcpy(values.data(), bytes.data() + end, values.size() * sizeof(float));
    return values;
}

std::string normalization() {
    return (shared_data() / "onnx-node-tests/test_rms_normalization_2d_axis1/model.onnx").string();
}

}  // namespace

TEST_CASE("run takes tensors from .npy files and writes a graph's outputs as such", "[tools]") {
    CLEAVE_NEEDS_SHARED_DATA();
    TemporaryFolder folder;
    const std::string model = normalization();
    const std::string x = (folder.path() / "x.npy").string(),
                      w = (folder.path() / "w.npy").string();
    save_npy(x, "3, 4", {2, 2, 2, 2, 0, 0, 0, 0, 1, -1, 1, -1});
    save_npy(w, "4,", {1, 2, 3, 4});
    CommandResult r =
        run_cleave({"run", model, "--devices", "host", "--tensor", "X=" + x, "--tensor", "W=" + w,
                    "--output-dir", folder.path().string(), "--json"});
    INFO(r.error << r.output);
    REQUIRE(r.exit_code == 0);
    const auto json = nlohmann::json::parse(r.output);
    CHECK(json["outputs"][0]["name"] == "Y");
    CHECK(json["outputs"][0]["shape"] == nlohmann::json({3, 4}));
    const std::vector<float> y = load_npy(json["outputs"][0]["file"], "3, 4");
    const std::vector<float> wanted{1, 2, 3, 4, 0, 0, 0, 0, 1, -2, 3, -4};
    REQUIRE(y.size() == wanted.size());
    for (size_t i = 0; i < y.size(); ++i) CHECK(std::abs(y[i] - wanted[i]) < 1e-4);

    r = run_cleave({"run", model, "--devices", "host", "--tensor", "X=" + x});
    CHECK(r.exit_code == 1);
    CHECK_THAT(r.error, Contains("'W'") && Contains("not given"));
    r = run_cleave({"run", model, "--devices", "host", "--tensor", "X=" + model});
    CHECK(r.exit_code == 1);
    CHECK_THAT(r.error, Contains("numpy.save"));
    r = run_cleave({"run", model, "--devices", "host", "--prompt", "Once"});
    CHECK(r.exit_code == 1);
    CHECK_THAT(r.error, Contains("no language model") && Contains("--tensor NAME=FILE.npy"));
}

TEST_CASE("a file that is no .npy file is not read, whatever its size", "[tools]") {
    CLEAVE_NEEDS_SHARED_DATA();
    const TemporaryFolder folder;
    const std::filesystem::path large = folder.path() / "large.npy";
    std::ofstream(large) << "x";
    std::filesystem::resize_file(large, 20'000'000'000);
    const CommandResult r =
        run_program({"sh", "-c", "ulimit -v 8000000; exec \"$@\"", "sh", CLEAVE_BINARY, "run",
                     normalization(), "--devices", "host", "--tensor", "X=" + large.string()});
    CHECK(r.exit_code == 1);
    CHECK_THAT(r.error, Contains("large.npy"));
}
