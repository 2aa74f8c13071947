// SPDX-License-Identifier: Apache-2.0
// The program of tools/gpu-check: proves Cleave on the GPUs of a bare machine. Runs each part as a process of its own, with a
// time limit, and writes one JSON report: device, driver, date, commit, what each part gave, errors. Exit code 0 when every part
// that could run passed, 1 otherwise; without a GPU it says so and why, in the report too.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <nlohmann/json.hpp>

#include "runtime/base/errors.h"
#include "runtime/gpu_devices.h"
#include "tools/gpu_check/process.h"

namespace cleave::gpu_check {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Arguments {
    std::string device;  // "cuda[0]"; empty: the first that is found
    std::string output = "gpu-check.json";
    std::string stories15m;            // a folder or file of that model
    std::string python;                // with PyTorch, for the matrix rate
    std::string shape = "llama-3-8b";  // of the random model
    std::string nvrtc, copy_mib, tokens;
    bool quick = false;  // without the random model and the benchmark
};

constexpr const char* kUsage =
    "usage: gpu-check [--device cuda[0]] [--stories15m MODEL] [--python PYTHON] [--shape SHAPE]\n"
    "                 [--nvrtc PATH] [--copy-mib 4096] [--tokens 512] [--quick] [-o REPORT.json]\n"
    "Runs on the GPU: the kernel table, the device conformance suite, the bundled model, "
    "stories15M (where given),\n"
    "an 8B-shaped random model in bf16, four logical devices of the card, the benchmark. One JSON "
    "report.\n"
    "--python: a Python with PyTorch, whose matmul the prefill is compared with. --quick: no "
    "random model, no benchmark.\n";

Arguments parse(int argc, char** argv) {
    Arguments arguments;
    const std::vector<std::pair<std::string, std::string*>> values{
        {"--device", &arguments.device}, {"--stories15m", &arguments.stories15m},
        {"--python", &arguments.python}, {"--shape", &arguments.shape},
        {"--nvrtc", &arguments.nvrtc},   {"--copy-mib", &arguments.copy_mib},
        {"--tokens", &arguments.tokens}, {"-o", &arguments.output}};
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "--help" || word == "-h") {
            fmt::print("{}", kUsage);
            std::exit(0);
        }
        if (word == "--quick") {
            arguments.quick = true;
            continue;
        }
        bool known = false;
        for (const auto& [name, value] : values) {
            if (word != name) continue;
            if (i + 1 == argc) throw UserError("{} wants a value\n{}", word, kUsage);
            *value = argv[++i];
            known = true;
        }
        if (!known) throw UserError("{} is no flag of gpu-check\n{}", word, kUsage);
    }
    return arguments;
}

std::string first_line(const fs::path& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

std::string tail(const std::string& text) {
    constexpr size_t kMost = 4000;
    return text.size() <= kMost ? text : "[...]" + text.substr(text.size() - kMost);
}

class Check {
public:
    explicit Check(Arguments arguments)
        : arguments_(std::move(arguments)),
          programs_(fs::canonical("/proc/self/exe").parent_path()) {
        report_["format"] = "cleave gpu-check 1";
        report_["commit"] = first_line(programs_ / ".." / "COMMIT");
        report_["date"] =
            fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::now()));
        utsname system{};
        ::uname(&system);
        report_["host"] = {
            {"system", system.sysname}, {"release", system.release}, {"machine", system.machine}};
        report_["devices"] = Json::array();
        report_["drivers"] = Json::array();
        report_["parts"] = Json::object();
        report_["errors"] = Json::array();
    }

    int run() {
        if (find_devices()) parts();
        const bool passed = report_["errors"].empty();
        report_["passed"] = passed;
        write();
        return passed ? 0 : 1;
    }

private:
    // The cards of both vendors; false, with the reasons in the report, when there is none.
    bool find_devices() {
        std::string first, reasons;
        for (planner::DeviceKind kind : {planner::DeviceKind::kCuda, planner::DeviceKind::kHip}) {
            const runtime::GpuListing listing = runtime::list_gpus(kind);
            const std::string name(planner::device_kind_name(kind));
            Json driver{{"kind", name}};
            if (listing.reason.empty()) {
                driver["library"] = listing.library;
                driver["version"] = listing.version;
            } else {
                driver["absent"] = listing.reason;
                reasons +=
                    fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", name, listing.reason);
            }
            if (!listing.visible.empty()) driver["visible"] = listing.visible;
            report_["drivers"].push_back(driver);
            for (size_t i = 0; i < listing.cards.size(); ++i) {
                const runtime::GpuFacts& card = listing.cards[i];
                const std::string device = fmt::format("{}[{}]", name, i);
                if (first.empty()) first = device;
                report_["devices"].push_back({{"device", device},
                                              {"name", card.name},
                                              {"uuid", card.uuid},
                                              {"pci", card.pci},
                                              {"arch", card.arch},
                                              {"memory_bytes", card.memory_bytes}});
            }
        }
        if (arguments_.device.empty()) arguments_.device = first;
        if (first.empty()) fail("devices", "no GPU was found: " + reasons);
        report_["device"] = arguments_.device;
        return !first.empty();
    }

    void parts() {
        const std::string gpu = arguments_.device;
        const fs::path model = programs_ / ".." / "models" / "bundled" / "model.onnx";
        const std::vector<std::string> choose{"CLEAVE_TEST_GPU=" + gpu};
        test("kernel_table", "cleave_test_simt", "[gpu]", choose);
        test("conformance", "cleave_test_runtime", "[drivers]", choose);
        const Json one = generate("bundled_model", model, gpu, 1);
        const Json four = generate("tp4_logical_devices", model, gpu + "/0-3", 4);
        if (one.contains("token_ids") && four.contains("token_ids") &&
            one["token_ids"] != four["token_ids"])
            fail("tp4_logical_devices", "its tokens are not those of one device");
        if (arguments_.stories15m.empty())
            skip("stories15m", "no --stories15m");
        else
            generate("stories15m", arguments_.stories15m, gpu, 1);
        for (const char* part : {"random_model", "benchmark"}) {
            if (arguments_.quick)
                skip(part, "--quick");
            else
                bench(part);
        }
    }

    void test(const std::string& part, const char* program, const char* tag,
              const std::vector<std::string>& environment) {
        const Outcome outcome =
            start(part, {(programs_ / program).string(), tag}, 1800, environment);
        if (outcome.code == 0 && outcome.output.find("skipped") != std::string::npos)
            fail(part, "it left tests out: " + tail(outcome.output));
        report_["parts"][part]["summary"] = tail(outcome.output);
    }

    // Text by the command itself, its logits compared with the host's.
    Json generate(const std::string& part, const fs::path& model, const std::string& devices,
                  int tp) {
        std::vector<std::string> command{(programs_ / "cleave").string(),
                                         "run",
                                         model.string(),
                                         "--devices",
                                         devices,
                                         "--prompt",
                                         "Once upon a time",
                                         "--max-new-tokens",
                                         "64",
                                         "--json",
                                         "--check"};
        if (tp > 1) command.insert(command.end(), {"--tp", std::to_string(tp)});
        if (!arguments_.nvrtc.empty()) command.insert(command.end(), {"--nvrtc", arguments_.nvrtc});
        const Outcome outcome = start(part, command, 900);
        Json result = Json::parse(outcome.output, nullptr, false);
        if (outcome.code != 0 || result.is_discarded()) return Json::object();
        report_["parts"][part]["result"] = result;
        // Logits in f32 against f32: an error of a kernel is far larger.
        if (const double difference = result.value("check_max_difference", 1e9);
            !(difference < 0.05))
            fail(part, fmt::format("its logits differ from the host's by {}", difference));
        return result;
    }

    void bench(const std::string& part) {
        std::vector<std::string> command{(programs_ / "cleave_bench_gpu").string(),
                                         part,
                                         "--device",
                                         arguments_.device,
                                         "--shape",
                                         arguments_.shape};
        if (!arguments_.copy_mib.empty())
            command.insert(command.end(), {"--copy-mib", arguments_.copy_mib});
        if (!arguments_.tokens.empty())
            command.insert(command.end(), {"--tokens", arguments_.tokens});
        if (!arguments_.python.empty())
            command.insert(command.end(), {"--python", arguments_.python});
        if (!arguments_.nvrtc.empty()) command.insert(command.end(), {"--nvrtc", arguments_.nvrtc});
        const Outcome outcome = start(part, command, 3600);
        Json result = Json::parse(outcome.output, nullptr, false);
        if (outcome.code == 0 && !result.is_discarded()) report_["parts"][part]["result"] = result;
    }

    Outcome start(const std::string& part, const std::vector<std::string>& command, int limit,
                  const std::vector<std::string>& environment = {}) {
        fmt::print(stderr, "{} ...\n", part);
        const Outcome outcome = gpu_check::run(command, limit, environment);
        Json& entry = report_["parts"][part];
        entry["status"] = "passed";
        entry["seconds"] = outcome.seconds;
        entry["command"] = command;
        entry["command"][0] = fs::path(command[0]).filename().string();
        if (outcome.timed_out)
            fail(part, fmt::format("not done after {} seconds, ended", limit));
        else if (outcome.code != 0)
            fail(part, fmt::format("exit code {}: {}{}", outcome.code, tail(outcome.errors),
                                   tail(outcome.output)));
        write();  // what is known so far, should the machine go down
        return outcome;
    }

    void skip(const std::string& part, const std::string& why) {
        report_["parts"][part] = {{"status", "skipped"}, {"reason", why}};
    }
    void fail(const std::string& part, const std::string& why) {
        fmt::print(stderr, "{}: {}\n", part, why);
        report_["errors"].push_back({{"part", part}, {"error", why}});
        if (report_["parts"].contains(part)) report_["parts"][part]["status"] = "failed";
    }

    void write() {
        std::ofstream file(arguments_.output);
        file << report_.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
        if (!file.flush()) throw UserError("-o {}: cannot be written", arguments_.output);
    }

    Arguments arguments_;
    fs::path programs_;
    Json report_;
};

}  // namespace
}  // namespace cleave::gpu_check

int main(int argc, char** argv) {
    try {
        const cleave::gpu_check::Arguments arguments = cleave::gpu_check::parse(argc, argv);
        const int code = cleave::gpu_check::Check(arguments).run();
        fmt::print(stderr, "gpu-check: {}; the report is {}\n", code == 0 ? "passed" : "failed",
                   arguments.output);
        return code;
    } catch (const std::exception& error) {
        fmt::print(stderr, "gpu-check: {}\n", error.what());
        return 1;
    }
}
