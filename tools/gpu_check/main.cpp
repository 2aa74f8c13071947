// SPDX-License-Identifier: Apache-2.0
// The program of tools/gpu-check: proves Cleave on the GPUs of a bare machine. Runs each part in
// processes of its own, with a time limit, and writes one JSON report: device, driver, date,
// commit, what each part gave, what was left out and why, errors. Exit code 0 when every part that
// ran passed, 1 otherwise; without a GPU it says so and why, in the report too.
#include <filesystem>

#include <fmt/format.h>

#include "tools/cli/spelling.h"
#include "tools/gpu_check/arguments.h"
#include "tools/gpu_check/devices.h"
#include "tools/gpu_check/parts.h"
#include "tools/gpu_check/report.h"
#include "tools/gpu_check/runner.h"

namespace cleave::gpu_check {
namespace {

int check(const Arguments& arguments) {
    const std::string programs =
        std::filesystem::canonical("/proc/self/exe").parent_path().string();
    const Folder temporary;  // refused before there is a report
    Report report(arguments, programs);
    Runner runner(arguments, programs, temporary, report);
    const Cards cards = find_cards(report);
    const std::string device = arguments.device.empty() ? cards.first : arguments.device;
    report["device"] = device;
    bool all_had_time = true;
    if (!cards.first.empty()) {
        report.guard("doctor", [&] { runner.settle_environment(); });
        all_had_time = Parts(runner, cards, device).run();
    }
    const bool passed = !report.has_errors() && all_had_time;
    report.finish(passed);
    return passed ? 0 : 1;
}

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
        const int code = check(arguments);
        fmt::print(stderr, "gpu-check: {}; the report is {}\n", code == 0 ? "passed" : "failed",
                   arguments.output);
        return code;
    } catch (const std::exception& error) {
        fmt::print(stderr, "gpu-check: {}\n", cleave::tools::spell_for_command_line(error.what()));
        return 1;
    }
}
