// SPDX-License-Identifier: Apache-2.0
// `cleave run --simt-seed` all the way to the imitated GPU. Kernels that are right compute the same
// in every order of their threads, so a model is run whose kernels, planted in the compiler's
// cache, are wrong in all threads alike: the reported fault is that of the thread that ran first.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "codegen/compile/object_cache.h"
#include "codegen/compile/simt.h"
#include "codegen/text/templates.h"
#include "models/onnx_writer.h"
#include "runtime/simt/simt.h"
#include "tests/support/command.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
namespace fs = std::filesystem;

namespace {

constexpr const char* kArch = "sm_80";

// Commands of its lifetime cache what they compile in `folder`.
class OwnCache {
public:
    explicit OwnCache(const fs::path& folder) {
        if (const char* before = std::getenv("XDG_CACHE_HOME")) before_ = before;
        ::setenv("XDG_CACHE_HOME", folder.c_str(), 1);
    }
    ~OwnCache() {
        if (before_)
            ::setenv("XDG_CACHE_HOME", before_->c_str(), 1);
        else
            ::unsetenv("XDG_CACHE_HOME");
    }
    OwnCache(const OwnCache&) = delete;
    OwnCache& operator=(const OwnCache&) = delete;

private:
    std::optional<std::string> before_;
};

// A kernel of that name with as many arguments; every thread writes to an address that belongs to
// nothing.
codegen::CompiledKernel faulty(const std::string& name, uint32_t num_args) {
    std::string parameters;
    for (uint32_t i = 0; i < num_args; ++i)
        parameters += fmt::format("{}i64 a{}", i ? ", " : "", i);
    const std::string source = fmt::format(
        "{}namespace cleave {{\n#line 1 \"planted.cu\"\nKERNEL(1024) {}({}) "
        "{{ *reinterpret_cast<u32*>(u64(64)) = 1u; }}\n}}\n",
        codegen::flatten_template("gpu/prelude.cuh"), name, parameters);
    return codegen::compile_simt_kernel(source, name, codegen::gpu_arch(kArch), {});
}

// What a kept kernel was compiled from, which its entry ends with, before the length of that.
std::string made_from(const fs::path& entry) {
    const std::string bytes = read_file(entry);
    uint64_t length = 0;
    REQUIRE(bytes.size() > sizeof length);
    const size_t end = bytes.size() - sizeof length;
    std::memcpy(&length, bytes.data() + end, sizeof length);
    REQUIRE(length <= end);
    return bytes.substr(end - length, length);
}

class FaultyModel {
public:
    explicit FaultyModel(const TemporaryFolder& folder)
        : cache_(folder.path() / "cache"), plan_(write_plan(folder)) {
        REQUIRE(run({}).exit_code == 0);
        const CommandResult emitted = run_cleave({"emit", plan_, "--json"});
        REQUIRE(emitted.exit_code == 0);
        const auto json = nlohmann::json::parse(emitted.output);
        std::set<std::string> names;
        for (const auto& kernel : json["kernels"]) names.insert(kernel["name"].get<std::string>());
        REQUIRE_FALSE(names.empty());
        const fs::path objects = folder.path() / "cache" / "cleave" / "kernels";
        const codegen::ObjectCache cache(objects.string());
        size_t planted = 0;
        for (const auto& entry : fs::directory_iterator(objects)) {
            const std::string key = entry.path().stem().string(), from = made_from(entry.path());
            for (const std::string& name : names)
                if (auto kernel = cache.find(key, name, from)) {
                    const runtime::simt::SimtProgram right(*kernel, codegen::gpu_arch(kArch));
                    cache.store(key, faulty(name, right.record().num_args), from);
                    ++planted;
                }
        }
        REQUIRE(planted == names.size());
    }

    // "thread (17, 0, 0)": which one the first faulty launch of a run names.
    std::string first_thread(std::optional<int> seed) const {
        const CommandResult r = run(seed);
        INFO(r.output << r.error);
        CHECK(r.exit_code != 0);
        CHECK_THAT(r.error, Catch::Matchers::Contains("planted.cu:1"));
        const size_t at = r.error.find("thread (");
        REQUIRE(at != std::string::npos);
        return r.error.substr(at, r.error.find(')', at) - at + 1);
    }

private:
    static std::string write_plan(const TemporaryFolder& folder) {
        models::Shape shape = *models::find_shape("stories-260k");
        shape.config.num_layers = 1;
        const std::string model =
            models::write_onnx_llama(shape, (folder.path() / "model").string(), {});
        const std::string plan = (folder.path() / "model.plan").string();
        const CommandResult planned =
            run_cleave({"plan", model, "--devices", fmt::format("simt:{}[0]", kArch), "--context",
                        "32", "-o", plan});
        INFO(planned.error);
        REQUIRE(planned.exit_code == 0);
        return plan;
    }
    CommandResult run(std::optional<int> seed) const {
        std::vector<std::string> command{"run", plan_, "--input-ids", "1,2,3", "--max-new-tokens",
                                         "1"};
        if (seed) command.insert(command.end(), {"--simt-seed", std::to_string(*seed)});
        return run_cleave(command);
    }

    OwnCache cache_;
    std::string plan_;
};

}  // namespace

TEST_CASE("run hands the seed of the order of threads to the imitated GPU", "[tools]") {
    TemporaryFolder folder;
    const FaultyModel model(folder);
    std::set<std::string> first{model.first_thread({})};
    CHECK(*first.begin() == "thread (0, 0, 0)");
    for (int seed : {1, 2, 3}) first.insert(model.first_thread(seed));
    CHECK(first.size() == 4);
}

TEST_CASE("runs with the same seed have the same order of threads", "[tools]") {
    TemporaryFolder folder;
    const FaultyModel model(folder);
    for (int seed : {0, 5}) CHECK(model.first_thread(seed) == model.first_thread(seed));
}
