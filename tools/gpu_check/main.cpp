// SPDX-License-Identifier: Apache-2.0
// The program of tools/gpu-check: proves Cleave on the GPUs of a bare machine. Runs each part in processes of its own, with a
// time limit, and writes one JSON report (tools/schema/gpu_check.schema.json): device, driver, date, commit, what each part
// gave, what was left out and why, errors. It is whole after each of them: one that was ended in between says which part was
// running, and that it is not finished. Exit code 0 when every part that ran passed, 1 otherwise; without a GPU it says so and
// why, in the report too.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <nlohmann/json.hpp>

#include "codegen/compiler.h"
#include "runtime/base/atomic_file.h"
#include "runtime/base/errors.h"
#include "runtime/gpu_devices.h"
#include "tools/gpu_check/arguments.h"
#include "tools/gpu_check/logits.h"
#include "tools/gpu_check/origin.h"
#include "tools/gpu_check/process.h"

namespace cleave::gpu_check {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// Largest difference from the host's logits, as a share of the largest: an error of a kernel is far larger. That of bf16 is the
// one of tests/e2e.
constexpr double kF32Bound = 2e-3, kBf16Bound = 8e-2;
constexpr int kDoctorSeconds = 120;
constexpr int64_t kLeastSeconds = 1;  // for which a part is begun

constexpr const char* kShortPrompt = "Once upon a time";
// Over 128 tokens of the bundled tokenizer: a prompt that takes the kernels of many tokens.
constexpr const char* kLongPrompt =
    "Once upon a time there was a little girl named Lily who lived in a small house near the "
    "forest. Every morning she went outside to play with her dog Max and her friend Tom. One day "
    "they found a big red ball under a tree. Tom wanted to keep it, but Lily said that somebody "
    "must be looking for it. They walked from door to door and asked everyone they met. At last an "
    "old man smiled and said that the ball was his. He was so happy that he gave them three sweet "
    "apples and told them a long story about a brave rabbit. That evening Lily told her mom";

struct TextPart {
    std::string name;
    fs::path model;
    std::string devices;
    int tp = 1;
    bool bf16 = false;
};

std::string tail(const std::string& text) {
    constexpr size_t kMost = 4000;
    return text.size() <= kMost ? text : "[...]" + text.substr(text.size() - kMost);
}

class Folder {
public:
    Folder() {
        std::string name = (fs::temp_directory_path() / "cleave-gpu-check-XXXXXX").string();
        if (!::mkdtemp(name.data()))
            throw UserError("{}: no temporary folder can be made there; set TMPDIR", name);
        path_ = name;
    }
    ~Folder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    fs::path operator/(const std::string& name) const { return path_ / name; }

private:
    fs::path path_;
};

class Check {
public:
    explicit Check(Arguments arguments)
        : arguments_(std::move(arguments)),
          programs_(fs::canonical("/proc/self/exe").parent_path()) {
        report_["format"] = "cleave gpu-check 4";
        read_commit();
        report_["date"] =
            fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::now()));
        utsname system{};
        ::uname(&system);
        report_["host"] = {
            {"system", system.sysname}, {"release", system.release}, {"machine", system.machine}};
        report_["variables"] = cleave_variables();
        report_["devices"] = Json::array();
        report_["drivers"] = Json::array();
        report_["device"] = "";
        report_["passed"] = false;
        report_["finished"] = false;
        report_["seconds"] = 0;
        if (arguments_.time_limit > 0) report_["time_limit"] = arguments_.time_limit;
        report_["skipped"] = Json::array();
        report_["errors"] = Json::array();
        report_["parts"] = Json::object();
        write();  // a path that cannot be written is told now
    }

    int run() {
        if (find_devices()) {
            guard("doctor", [&] { settle_environment(); });
            for (const std::string& part : order()) {
                const auto begin = Clock::now();
                guard(part, [&] { take(part); });
                end(part, seconds_since(begin));
            }
        }
        const bool passed = report_["errors"].empty() && !left_out_;
        report_["passed"] = passed;
        report_["finished"] = true;
        write();
        return passed ? 0 : 1;
    }

private:
    // As tools/gpu-check wrote it: the commit, and whether anything differed from it.
    void read_commit() {
        std::ifstream file(programs_ / ".." / "COMMIT");
        std::string commit, state;
        std::getline(file, commit);
        std::getline(file, state);
        report_["commit"] = commit.empty() ? "unknown" : commit;
        report_["dirty"] = state != "clean";
    }

    // Where time is limited, what the whole is for comes before what takes longest.
    std::vector<std::string> order() const {
        std::vector<std::string> parts = part_names();
        if (arguments_.time_limit == 0) return parts;
        const std::vector<std::string> first{"conformance", "bundled_model", "benchmark"};
        std::stable_partition(parts.begin(), parts.end(), [&](const std::string& part) {
            return std::find(first.begin(), first.end(), part) != first.end();
        });
        return parts;
    }

    // What one part throws ends that part alone.
    template <class Act>
    void guard(const std::string& part, Act act) {
        try {
            act();
        } catch (const std::exception& error) {
            fail(part, error.what());
        }
    }

    // The cards of both vendors; false, with the reasons in the report, when there is none.
    bool find_devices() {
        std::string first, reasons;
        for (planner::DeviceKind kind : planner::kCardKinds) {
            const std::string name(planner::device_kind_name(kind));
            Json driver{{"kind", name}};
            runtime::GpuListing listing;
            try {
                listing = runtime::list_gpus(kind);
            } catch (const std::exception& error) {
                listing.reason = error.what();
            }
            if (listing.reason.empty()) {
                driver["library"] = listing.library;
                driver["version"] = listing.version;
                driver["fake"] = is_fake(listing.library);
            } else {
                driver["absent"] = listing.reason;
                reasons +=
                    fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", name, listing.reason);
            }
            if (!listing.visible.empty()) driver["visible"] = listing.visible;
            report_["drivers"].push_back(driver);
            for (size_t i = 0; i < listing.cards.size(); ++i) {
                if (!listing.errors[i].empty()) {
                    fail("devices", listing.errors[i]);
                    continue;
                }
                const runtime::GpuFacts& card = listing.cards[i];
                const std::string device = fmt::format("{}[{}]", name, i);
                if (first.empty()) first = device;
                cards_[name].push_back(i);
                report_["devices"].push_back({{"device", device},
                                              {"name", card.name},
                                              {"uuid", card.uuid},
                                              {"pci", card.pci},
                                              {"arch", card.arch},
                                              {"memory_bytes", card.memory_bytes}});
            }
        }
        if (arguments_.device.empty()) arguments_.device = first;
        report_["device"] = arguments_.device;
        if (first.empty()) fail("devices", "no GPU was found: " + reasons);
        return !first.empty();
    }

    // What every part gets: the compiler that was named, and a folder for compiled kernels where there is no home.
    void settle_environment() {
        if (!arguments_.nvrtc.empty()) environment_.push_back("CLEAVE_NVRTC=" + arguments_.nvrtc);
        const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
        const char* base = cache && *cache ? cache : home && *home ? home : "";
        if (!*base || ::access(base, W_OK) != 0)
            environment_.push_back("XDG_CACHE_HOME=" + (folder_ / "cache").string());
        const codegen::HostCompilerInfo host = codegen::host_compiler_info();
        if (!host.available) no_host_ = host.reason;
        const Outcome doctor =
            run_for(kDoctorSeconds, {program("cleave"), "doctor", "--json"}, environment_);
        const Json facts = Json::parse(doctor.output, nullptr, false);
        report_["doctor"] = facts.is_discarded() ? Json(tail(doctor.errors)) : facts;
    }

    // The bundle's own where none is named; empty where it was packed without.
    fs::path stories15m() const {
        if (!arguments_.stories15m.empty()) return arguments_.stories15m;
        const fs::path own = programs_ / ".." / "models" / "stories15M";
        return fs::exists(own) ? own : fs::path();
    }

    void take(const std::string& part) {
        const std::string gpu = arguments_.device;
        const fs::path bundled = programs_ / ".." / "models" / "bundled" / "model.onnx";
        const std::vector<std::string>& chosen = arguments_.parts;
        const bool is_long =
            part == "checked_model" || part == "random_model" || part == "benchmark";
        if (!chosen.empty() && std::find(chosen.begin(), chosen.end(), part) == chosen.end())
            skip(part, "not in --parts");
        else if (arguments_.quick && is_long)
            skip(part, "--quick");
        else if (part == "stories15m" && stories15m().empty())
            skip(part, "the bundle was packed without it, and there is no --stories15m");
        else if (part == "checked_model" && !no_host_.empty())
            skip(part, "nothing to compare with: " + no_host_);
        else if (!stuck_.empty())
            skip(part,
                 fmt::format("a process of {} cannot be ended: the card may be lost", stuck_));
        else if (const int64_t left = seconds_left(); left < kLeastSeconds) {
            skip(part, fmt::format("--time-limit {}: {} s are left", arguments_.time_limit, left));
            left_out_ = true;
        } else if (part == "conformance")
            test(part, "cleave_test_runtime", "[drivers]");
        else if (part == "kernel_table")
            test(part, "cleave_test_simt", "[gpu]");
        else if (part == "tp4_logical_devices")
            text({part, bundled, gpu + "/0-3", 4});
        else if (part == "tp2_cards")
            two_cards(part, bundled);
        else if (part == "stories15m")
            text({part, stories15m(), gpu});
        else if (is_long)
            bench(part);
        else
            text({part, bundled, gpu, 1, part == "bundled_model_bf16"});
    }

    void two_cards(const std::string& part, const fs::path& model) {
        const std::string kind = arguments_.device.substr(0, arguments_.device.find('['));
        const std::vector<size_t>& cards = cards_[kind];
        if (cards.size() < 2)
            skip(part, "one " + kind + " card alone");
        else
            text({part, model, fmt::format("{}[{},{}]", kind, cards[0], cards[1]), 2});
    }

    std::string program(const char* name) const { return (programs_ / name).string(); }

    void test(const std::string& part, const char* name, const char* tag) {
        std::vector<std::string> environment = environment_;
        environment.push_back("CLEAVE_TEST_GPU=" + arguments_.device);
        const Outcome outcome = start(part, {program(name), tag}, environment);
        if (outcome.code == 0 && outcome.output.find("skipped") != std::string::npos)
            fail(part, "it left tests out: " + tail(outcome.output));
        report_["parts"][part]["summary"] = tail(outcome.output);
        write();
    }

    // Text by the command itself: once with its logits, which are compared with the host's, and once as a user has it, where the
    // GPU chooses the tokens.
    void text(const TextPart& part) {
        std::vector<std::string> command{program("cleave"),
                                         "run",
                                         part.model.string(),
                                         "--devices",
                                         part.devices,
                                         "--prompt",
                                         part.bf16 ? kLongPrompt : kShortPrompt,
                                         "--max-new-tokens",
                                         "64",
                                         "--ignore-eos",
                                         "--json"};
        if (part.tp > 1) command.insert(command.end(), {"--tp", std::to_string(part.tp)});
        if (part.bf16) command.insert(command.end(), {"--dtype", "bf16", "--kv-dtype", "bf16"});
        const std::string dump = folder_ / (part.name + ".logits");
        std::vector<std::string> checked = command;
        checked.insert(checked.end(), {"--dump-logits", dump});
        if (no_host_.empty())
            checked.emplace_back("--check");
        else
            skip(part.name + " on the host", no_host_);
        const Outcome first = start(part.name, checked, environment_);
        Json& entry = report_["parts"][part.name];
        keep_result(entry, first);
        const Json with_logits = json_of(part.name, first);
        if (with_logits.empty()) return explain(part.name, command);
        if (no_host_.empty() && !number_of(with_logits, "check_max_difference")) {
            fail(part.name, "its difference from the host's logits is no finite number: " +
                                with_logits.value("check_reason", "no reason is given"));
            explain(part.name, command);
        }
        const std::vector<int32_t> tokens = with_logits.at("token_ids");
        const Logits logits(dump, with_logits.at("prompt_ids").size(), tokens.size());
        const double bound = (part.bf16 ? kBf16Bound : kF32Bound) * logits.largest();
        entry["largest_logit"] = logits.largest();
        entry["bound"] = bound;
        if (const auto difference = number_of(with_logits, "check_max_difference");
            no_host_.empty() && difference && !(*difference < bound)) {
            fail(part.name, fmt::format("its logits differ from the host's by {}, over {}",
                                        *difference, bound));
            explain(part.name, command);
        }

        Json& own = entry["own_choice"] = Json::object();
        const Outcome outcome = run_for(seconds_of(part.name), command, environment_);
        own["seconds"] = outcome.seconds;
        if (!judge(part.name, outcome)) return explain(part.name, command);
        const Json result = json_of(part.name, outcome);
        if (result.empty()) return;
        own["result"] = result;
        const std::vector<int32_t> chosen = result.at("token_ids");
        if (const std::string wrong =
                logits.disagreement(tokens, chosen, part.bf16 ? 2 * bound : 0);
            !wrong.empty()) {
            fail(part.name, "the GPU's own choice of tokens: " + wrong);
            explain(part.name, command);
        }
        compare_with_one_device(part, logits, tokens, bound);
        if (part.tp == 1) compare_without_overlap(part, command, chosen);
        write();
    }

    // Launches that begin early change no number: `overlap` of the results says where there were any.
    void compare_without_overlap(const TextPart& part, const std::vector<std::string>& command,
                                 const std::vector<int32_t>& chosen) {
        std::vector<std::string> environment = environment_;
        environment.emplace_back("CLEAVE_GPU_OVERLAP=0");
        const Outcome outcome = run_for(seconds_of(part.name), command, environment);
        Json& entry = report_["parts"][part.name]["without_overlap"] = Json::object();
        entry["seconds"] = outcome.seconds;
        if (!judge(part.name, outcome)) return;
        const Json result = json_of(part.name, outcome);
        if (result.empty()) return;
        entry["result"] = result;
        if (result.at("token_ids") != Json(chosen))
            fail(part.name,
                 "its tokens are others where launches do not overlap (CLEAVE_GPU_OVERLAP=0)");
    }

    // In f32 the tokens do not depend on how many devices ran, but where two logits are so near that the order of a sum decides.
    void compare_with_one_device(const TextPart& part, const Logits& logits,
                                 const std::vector<int32_t>& tokens, double bound) {
        if (part.name == "bundled_model") one_device_ = tokens;
        if (part.tp == 1 || one_device_.empty()) return;
        if (const std::string wrong = logits.disagreement(tokens, one_device_, 2 * bound);
            !wrong.empty())
            fail(part.name, "its tokens are not those of one device: " + wrong);
    }

    // Of a text that failed, or came out wrong: step by step, without captured graphs, so that the step is named.
    void explain(const std::string& part, std::vector<std::string> command) {
        if (report_["parts"][part].contains("step_by_step")) return;  // it was run already
        if (!stuck_.empty() || seconds_left() < kLeastSeconds) return;
        command.emplace_back("--step-by-step");
        const Outcome outcome = run_for(seconds_of(part), command, environment_);
        if (outcome.lives_on) stuck_ = part;
        report_["parts"][part]["step_by_step"] =
            fmt::format("exit code {}: {}", outcome.code,
                        tail(outcome.code == 0 ? outcome.output : outcome.errors));
        write();
    }

    void bench(const std::string& part) {
        std::vector<std::string> command{
            program("cleave_bench_gpu"),
            part,
            "--device",
            arguments_.device,
            "--shape",
            part == "checked_model" ? arguments_.checked_shape : arguments_.shape};
        if (!arguments_.copy_mib.empty())
            command.insert(command.end(), {"--copy-mib", arguments_.copy_mib});
        if (!arguments_.tokens.empty())
            command.insert(command.end(), {"--tokens", arguments_.tokens});
        if (!arguments_.python.empty())
            command.insert(command.end(), {"--python", arguments_.python});
        const Outcome outcome = start(part, command, environment_);
        json_of(part, outcome);
        keep_result(report_["parts"][part], outcome);
        write();
    }

    static double seconds_since(Clock::time_point begin) {
        return std::chrono::duration<double>(Clock::now() - begin).count();
    }
    // Of --time-limit.
    int64_t seconds_left() const {
        constexpr int64_t kMuch = 1'000'000;
        if (arguments_.time_limit == 0) return kMuch;
        return std::max<int64_t>(
            arguments_.time_limit - static_cast<int64_t>(seconds_since(began_)), 0);
    }
    Outcome run_for(int limit, const std::vector<std::string>& command,
                    const std::vector<std::string>& environment) const {
        const int64_t seconds = std::min<int64_t>(limit, std::max<int64_t>(seconds_left(), 1));
        return gpu_check::run(command, static_cast<int>(seconds), environment);
    }

    Outcome start(const std::string& part, const std::vector<std::string>& command,
                  const std::vector<std::string>& environment) {
        fmt::print(stderr, "{} ...\n", part);
        Json& entry = report_["parts"][part];
        entry["status"] = "running";
        entry["command"] = command;
        entry["command"][0] = fs::path(command[0]).filename().string();
        write();  // what is known so far, should the machine go down
        const Outcome outcome = run_for(seconds_of(part), command, environment);
        judge(part, outcome);
        write();
        return outcome;
    }

    // A part that ran has passed when nothing failed.
    void end(const std::string& part, double seconds) {
        if (!report_["parts"].contains(part)) return;
        Json& entry = report_["parts"][part];
        if (entry["status"] == "running") entry["status"] = "passed";
        entry["seconds"] = seconds;
        fmt::print(stderr, "{}: {}, {:.1f} s\n", part, entry["status"].get<std::string>(), seconds);
        write();
    }

    bool judge(const std::string& part, const Outcome& outcome) {
        if (outcome.lives_on) stuck_ = part;
        if (outcome.timed_out)
            fail(part, fmt::format("not done after {} seconds, {}: {}{}", outcome.limit,
                                   outcome.lives_on ? "and cannot be ended" : "ended",
                                   tail(outcome.errors), tail(outcome.output)));
        else if (outcome.code != 0)
            fail(part, fmt::format("exit code {}: {}{}", outcome.code, tail(outcome.errors),
                                   tail(outcome.output)));
        return !outcome.timed_out && outcome.code == 0;
    }

    // Empty where it failed, which has been told, or gave no JSON.
    Json json_of(const std::string& part, const Outcome& outcome) {
        if (outcome.timed_out || outcome.code != 0) return Json::object();
        Json result = last_json(outcome.output);
        if (!result.is_object()) {
            fail(part, "its output is no JSON: " + tail(outcome.output));
            return Json::object();
        }
        return result;
    }

    // The output as a whole, or its last line that is JSON: one that was ended may have cut the very last.
    static Json last_json(const std::string& output) {
        Json json = Json::parse(output, nullptr, false);
        std::istringstream lines(output);
        if (!json.is_object())
            for (std::string line; std::getline(lines, line);)
                if (Json one = Json::parse(line, nullptr, false); one.is_object())
                    json = std::move(one);
        return json;
    }
    // Of one that failed, too: what it said before.
    static void keep_result(Json& entry, const Outcome& outcome) {
        const Json result = last_json(outcome.output);
        if (result.is_object() && !result.empty()) entry["result"] = result;
    }
    // JSON has null for what is not finite.
    static std::optional<double> number_of(const Json& json, const char* key) {
        if (!json.contains(key) || !json[key].is_number()) return std::nullopt;
        return json[key].get<double>();
    }

    void skip(const std::string& part, const std::string& why) {
        report_["skipped"].push_back({{"part", part}, {"reason", why}});
    }
    void fail(const std::string& part, const std::string& why) {
        fmt::print(stderr, "{}: {}\n", part, why);
        report_["errors"].push_back({{"part", part}, {"error", why}});
        if (report_["parts"].contains(part)) report_["parts"][part]["status"] = "failed";
    }

    // Whole or not at all, but into what is no file of its own, such as a pipe.
    void write() {
        report_["seconds"] = seconds_since(began_);
        const std::string text = report_.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
        std::error_code none;
        bool written = false;
        if (fs::exists(arguments_.output, none) && !fs::is_regular_file(arguments_.output, none)) {
            std::ofstream file(arguments_.output);
            written = static_cast<bool>((file << text).flush());
        } else {
            AtomicFile file(arguments_.output);
            if (!file.error()) file.stream() << text;
            written = !file.error() && !file.commit();
        }
        if (!written)
            throw UserError("-o {}: cannot be written; name a file in a folder that can be",
                            arguments_.output);
    }

    Arguments arguments_;
    Clock::time_point began_ = Clock::now();
    bool left_out_ = false;  // a part, for want of time
    std::string stuck_;      // the part of which a process does not end
    fs::path programs_;
    Folder folder_;
    std::vector<std::string> environment_;
    std::string no_host_;  // why nothing can be compiled for the host
    std::vector<int32_t> one_device_;
    std::map<std::string, std::vector<size_t>> cards_;  // by kind, that say what they are
    Json report_;
};

}  // namespace
}  // namespace cleave::gpu_check

int main(int argc, char** argv) {
    using namespace cleave::gpu_check;
    try {
        const Arguments arguments = parse(argc, argv);
        if (arguments.help) {
            fmt::print("{}", usage());
            return 0;
        }
        const int code = Check(arguments).run();
        fmt::print(stderr, "gpu-check: {}; the report is {}\n", code == 0 ? "passed" : "failed",
                   arguments.output);
        return code;
    } catch (const std::exception& error) {
        fmt::print(stderr, "gpu-check: {}\n", error.what());
        return 1;
    }
}
