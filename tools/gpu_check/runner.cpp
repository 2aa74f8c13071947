// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/runner.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include "codegen/compile/host.h"
#include "runtime/base/errors.h"
#include "tools/gpu_check/output.h"

namespace cleave::gpu_check {

namespace fs = std::filesystem;

namespace {

constexpr int kDoctorSeconds = 120;

// Reports are kept: nobody's home folder is named in them.
std::string without_home(std::string text) {
    const char* home = std::getenv("HOME");
    const std::string folder = home && *home ? std::string(home) + "/" : "/";
    if (folder == "/") return text;
    for (size_t at = 0; (at = text.find(folder, at)) != std::string::npos; at += 2)
        text.replace(at, folder.size(), "~/");
    return text;
}

}  // namespace

Folder::Folder() {
    std::error_code none;
    const fs::path temporary = fs::temp_directory_path(none);
    if (none) {
        const char* named = std::getenv("TMPDIR");
        throw UserError("TMPDIR={}: no such folder; name one that can be written",
                        named ? named : "/tmp");
    }
    path_ = (temporary / "cleave-gpu-check-XXXXXX").string();
    if (!::mkdtemp(path_.data()))
        throw UserError("{}: no temporary folder can be made there; set TMPDIR", path_);
}

Folder::~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

Runner::Runner(const Arguments& arguments, std::string programs, const Folder& temporary,
               Report& report)
    : arguments_(arguments),
      programs_(std::move(programs)),
      temporary_(temporary),
      report_(report) {}

void Runner::settle_environment() {
    if (!arguments_.nvrtc.empty()) environment_.push_back("CLEAVE_NVRTC=" + arguments_.nvrtc);
    const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
    const char* base = cache && *cache ? cache : home && *home ? home : "";
    if (!*base || ::access(base, W_OK) != 0)
        environment_.push_back("XDG_CACHE_HOME=" + temporary("cache"));
    const codegen::HostCompilerInfo host = codegen::host_compiler_info();
    if (!host.available) no_host_ = host.reason;
    const Outcome doctor =
        run_for(kDoctorSeconds, {program("cleave"), "doctor", "--json"}, environment_);
    const Json facts = Json::parse(without_home(doctor.output), nullptr, false);
    report_["doctor"] = facts.is_discarded() ? Json(tail(doctor.errors)) : facts;
}

int64_t Runner::seconds_left() const {
    constexpr int64_t kMuch = 1'000'000;
    if (arguments_.time_limit == 0) return kMuch;
    return std::max<int64_t>(arguments_.time_limit - static_cast<int64_t>(report_.seconds()), 0);
}

Outcome Runner::run_for(int limit, const std::vector<std::string>& command,
                        const std::vector<std::string>& environment) const {
    const int64_t seconds = std::min<int64_t>(limit, std::max<int64_t>(seconds_left(), 1));
    return gpu_check::run(command, static_cast<int>(seconds), environment);
}

Outcome Runner::start(const std::string& part, const std::vector<std::string>& command,
                      const std::vector<std::string>& more) {
    report_.begin(part, command);
    const Outcome outcome = run(part, command, more);
    judge(part, outcome);
    report_.write();
    return outcome;
}

Outcome Runner::run(const std::string& part, const std::vector<std::string>& command,
                    const std::vector<std::string>& more) {
    std::vector<std::string> environment = environment_;
    environment.insert(environment.end(), more.begin(), more.end());
    Outcome outcome = run_for(seconds_of(part), command, environment);
    if (outcome.lives_on) stuck_ = part;
    return outcome;
}

bool Runner::judge(const std::string& part, const Outcome& outcome) {
    if (outcome.timed_out)
        report_.fail(part, fmt::format("not done after {} seconds, {}: {}{}", outcome.limit,
                                       outcome.lives_on ? "and cannot be ended" : "ended",
                                       tail(outcome.errors), tail(outcome.output)));
    else if (outcome.code != 0)
        report_.fail(part, fmt::format("exit code {}: {}{}", outcome.code, tail(outcome.errors),
                                       tail(outcome.output)));
    return !outcome.timed_out && outcome.code == 0;
}

Json Runner::json_of(const std::string& part, const Outcome& outcome) {
    if (outcome.timed_out || outcome.code != 0) return Json::object();
    Json result = last_json(outcome.output);
    if (!result.is_object()) {
        report_.fail(part, "its output is no JSON: " + tail(outcome.output));
        return Json::object();
    }
    return result;
}

void Runner::keep_result(const std::string& part, const Outcome& outcome) {
    const Json result = last_json(outcome.output);
    if (result.is_object() && !result.empty()) report_.part(part)["result"] = result;
}

}  // namespace cleave::gpu_check
