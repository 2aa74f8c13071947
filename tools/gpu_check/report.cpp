// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/report.h"

#include <filesystem>
#include <fstream>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include "runtime/base/atomic_file.h"
#include "runtime/base/errors.h"
#include "tools/gpu_check/origin.h"

namespace cleave::gpu_check {

namespace fs = std::filesystem;

Report::Report(const Arguments& arguments, const std::string& programs) : path_(arguments.output) {
    json_["format"] = "cleave gpu-check 4";
    read_commit(programs);
    json_["date"] =
        fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::now()));
    utsname system{};
    ::uname(&system);
    json_["host"] = {
        {"system", system.sysname}, {"release", system.release}, {"machine", system.machine}};
    json_["variables"] = cleave_variables();
    json_["devices"] = Json::array();
    json_["drivers"] = Json::array();
    json_["device"] = "";
    json_["passed"] = false;
    json_["finished"] = false;
    json_["seconds"] = 0;
    if (arguments.time_limit > 0) json_["time_limit"] = arguments.time_limit;
    json_["skipped"] = Json::array();
    json_["errors"] = Json::array();
    json_["parts"] = Json::object();
    write();  // a path that cannot be written is an error now
}

// As tools/gpu-check wrote it: the commit, and whether anything differed from it.
void Report::read_commit(const std::string& programs) {
    std::ifstream file(fs::path(programs) / ".." / "COMMIT");
    std::string commit, state;
    std::getline(file, commit);
    std::getline(file, state);
    json_["commit"] = commit.empty() ? "unknown" : commit;
    json_["dirty"] = state != "clean";
}

void Report::skip(const std::string& part, const std::string& why) {
    json_["skipped"].push_back({{"part", part}, {"reason", why}});
}

void Report::fail(const std::string& part, const std::string& why) {
    fmt::print(stderr, "{}: {}\n", part, why);
    json_["errors"].push_back({{"part", part}, {"error", why}});
    if (has(part)) this->part(part)["status"] = "failed";
}

void Report::begin(const std::string& part, const std::vector<std::string>& command) {
    fmt::print(stderr, "{} ...\n", part);
    Json& entry = this->part(part);
    entry["status"] = "running";
    entry["command"] = command;
    entry["command"][0] = fs::path(command[0]).filename().string();
    write();  // what is known so far, should the machine go down
}

void Report::end(const std::string& part, double seconds) {
    if (!has(part)) return;
    Json& entry = this->part(part);
    if (entry["status"] == "running") entry["status"] = "passed";
    entry["seconds"] = seconds;
    fmt::print(stderr, "{}: {}, {:.1f} s\n", part, entry["status"].get<std::string>(), seconds);
    write();
}

void Report::finish(bool passed) {
    json_["passed"] = passed;
    json_["finished"] = true;
    write();
}

double Report::seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

// Whole or not at all, but into what is no file of its own, such as a pipe.
void Report::write() {
    json_["seconds"] = seconds();
    const std::string text = json_.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    std::error_code none;
    bool written = false;
    if (fs::exists(path_, none) && !fs::is_regular_file(path_, none)) {
        std::ofstream file(path_);
        written = static_cast<bool>((file << text).flush());
    } else {
        AtomicFile file(path_);
        if (!file.error()) file.stream() << text;
        written = !file.error() && !file.commit();
    }
    if (!written)
        throw UserError("-o {}: cannot be written; name a file in a folder that can be", path_);
}

}  // namespace cleave::gpu_check
