// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/parts.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "tools/gpu_check/output.h"

namespace cleave::gpu_check {

namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_bench(const std::string& part) {
    return part == "checked_model" || part == "random_model" || part == "benchmark";
}

}  // namespace

bool Parts::run() {
    for (const std::string& part : order()) {
        const double begin = report_.seconds();
        report_.guard(part, [&] {
            if (const std::string why = reason_against(part); !why.empty())
                report_.skip(part, why);
            else
                take(part);
        });
        report_.end(part, report_.seconds() - begin);
    }
    return !left_out_;
}

// Where time is limited, what the whole is for comes before what takes longest.
std::vector<std::string> Parts::order() const {
    std::vector<std::string> parts = part_names();
    if (runner_.arguments().time_limit == 0) return parts;
    const std::vector<std::string> first{"conformance", "bundled_model", "benchmark"};
    std::stable_partition(parts.begin(), parts.end(),
                          [&](const std::string& part) { return contains(first, part); });
    return parts;
}

std::string Parts::reason_against(const std::string& part) {
    const Arguments& arguments = runner_.arguments();
    if (!arguments.parts.empty() && !contains(arguments.parts, part)) return "not in --parts";
    if (arguments.quick && is_bench(part)) return "--quick";
    if (part == "stories15m" && stories15m().empty())
        return "the bundle was packed without it, and there is no --stories15m";
    if (part == "checked_model" && !runner_.no_host().empty())
        return "nothing to compare with: " + runner_.no_host();
    if (!runner_.stuck().empty())
        return fmt::format("a process of {} cannot be ended: the card may be lost",
                           runner_.stuck());
    if (!runner_.has_time()) {
        left_out_ = true;
        return fmt::format("--time-limit {}: {} s are left", arguments.time_limit,
                           runner_.seconds_left());
    }
    return "";
}

// The bundle's own where none is named; empty where it was packed without.
std::string Parts::stories15m() const {
    if (!runner_.arguments().stories15m.empty()) return runner_.arguments().stories15m;
    const std::string own = runner_.bundled("models/stories15M");
    return std::filesystem::exists(own) ? own : "";
}

void Parts::take(const std::string& part) {
    const std::string bundled = runner_.bundled("models/bundled/model.onnx");
    if (part == "conformance")
        test(part, "cleave_test_runtime", "[drivers]");
    else if (part == "kernel_table")
        test(part, "cleave_test_simt", "[gpu]");
    else if (part == "tp4_logical_devices")
        texts_.run({part, bundled, device_ + "/0-3", 4});
    else if (part == "tp2_cards")
        two_cards(part, bundled);
    else if (part == "stories15m")
        texts_.run({part, stories15m(), device_});
    else if (is_bench(part))
        bench(part);
    else
        texts_.run({part, bundled, device_, 1, part == "bundled_model_bf16"});
}

void Parts::two_cards(const std::string& part, const std::string& model) {
    const std::string kind = device_.substr(0, device_.find('['));
    const std::vector<size_t>& cards = cards_.by_kind[kind];
    if (cards.size() < 2)
        report_.skip(part, "one " + kind + " card alone");
    else
        texts_.run({part, model, fmt::format("{}[{},{}]", kind, cards[0], cards[1]), 2});
}

void Parts::test(const std::string& part, const char* name, const char* tag) {
    const Outcome outcome =
        runner_.start(part, {runner_.program(name), tag}, {"CLEAVE_TEST_GPU=" + device_});
    if (outcome.code == 0 && outcome.output.find("skipped") != std::string::npos)
        report_.fail(part, "it left tests out: " + tail(outcome.output));
    report_.part(part)["summary"] = tail(outcome.output);
    report_.write();
}

void Parts::bench(const std::string& part) {
    const Arguments& arguments = runner_.arguments();
    std::vector<std::string> command{
        runner_.program("cleave_bench_gpu"),
        part,
        "--device",
        device_,
        "--shape",
        part == "checked_model" ? arguments.checked_shape : arguments.shape};
    if (!arguments.copy_mib.empty())
        command.insert(command.end(), {"--copy-mib", arguments.copy_mib});
    if (!arguments.tokens.empty()) command.insert(command.end(), {"--tokens", arguments.tokens});
    if (!arguments.python.empty()) command.insert(command.end(), {"--python", arguments.python});
    const Outcome outcome = runner_.start(part, command);
    runner_.json_of(part, outcome);
    runner_.keep_result(part, outcome);
    const Json result = report_.part(part).value("result", Json::object());
    if (const std::string why = result.value("pytorch", Json::object()).value("reason", "");
        !why.empty())
        report_.skip(part + " against PyTorch", why);
    report_.write();
}

}  // namespace cleave::gpu_check
