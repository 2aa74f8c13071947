// SPDX-License-Identifier: Apache-2.0
// Runs the bundle's programs for the parts, within their limits and --time-limit, and
// reports how they ended.
#pragma once

#include <string>
#include <vector>

#include "tools/gpu_check/arguments.h"
#include "tools/gpu_check/process.h"
#include "tools/gpu_check/report.h"

namespace cleave::gpu_check {

// A temporary folder, gone with it.
class Folder {
public:
    Folder();
    ~Folder();
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    std::string operator/(const std::string& name) const { return path_ + "/" + name; }

private:
    std::string path_;
};

class Runner {
public:
    // All but `programs`, their folder, outlive it.
    Runner(const Arguments& arguments, std::string programs, const Folder& temporary,
           Report& report);

    // What every program gets: the compiler that was named, and a folder for compiled kernels where
    // there is no home. The report gets the output of `cleave doctor`.
    void settle_environment();

    std::string program(const char* name) const { return programs_ + "/" + name; }
    // In the folder of the bundle.
    std::string bundled(const char* name) const { return programs_ + "/../" + name; }
    std::string temporary(const std::string& name) const { return temporary_ / name; }
    const Arguments& arguments() const { return arguments_; }
    Report& report() { return report_; }
    const std::string& no_host() const { return no_host_; }  // why nothing compiles for the host
    // The part with a process that does not end.
    const std::string& stuck() const { return stuck_; }

    int64_t seconds_left() const;  // of --time-limit
    bool has_time() const { return seconds_left() >= kLeastSeconds; }

    // A part's first program: the report has it as running before it starts.
    Outcome start(const std::string& part, const std::vector<std::string>& command,
                  const std::vector<std::string>& more = {});
    // A further program of the part; `more` is added to the environment. The caller judges
    // it, or calls judge().
    Outcome run(const std::string& part, const std::vector<std::string>& command,
                const std::vector<std::string>& more = {});
    // Whether it ended well; else the part has failed.
    bool judge(const std::string& part, const Outcome& outcome);
    // Empty if it failed, which is reported already, or gave no JSON, which this reports.
    Json json_of(const std::string& part, const Outcome& outcome);
    // Of one that failed, too: its output until then.
    void keep_result(const std::string& part, const Outcome& outcome);

private:
    static constexpr int64_t kLeastSeconds = 1;  // for which a part is begun
    Outcome run_for(int limit, const std::vector<std::string>& command,
                    const std::vector<std::string>& environment) const;

    const Arguments& arguments_;
    std::string programs_;
    const Folder& temporary_;
    Report& report_;
    std::vector<std::string> environment_;
    std::string no_host_, stuck_;
};

}  // namespace cleave::gpu_check
