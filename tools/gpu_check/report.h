// SPDX-License-Identifier: Apache-2.0
// The JSON report of gpu-check (tools/schema/gpu_check.schema.json), whole in its file after each
// write: one that was cut off names the part that was running, and is not `finished`.
#pragma once

#include <chrono>
#include <string>

#include <nlohmann/json.hpp>

#include "tools/cli/spelling.h"
#include "tools/gpu_check/arguments.h"

namespace cleave::gpu_check {

using Json = nlohmann::ordered_json;

class Report {
public:
    // `programs`: their folder; COMMIT is beside it. UserError when the file cannot be
    // written.
    Report(const Arguments& arguments, const std::string& programs);

    Json& operator[](const char* key) { return json_[key]; }
    // Its status, "running" at first, its command, and what it gave.
    Json& part(const std::string& name) { return json_["parts"][name]; }
    bool has(const std::string& part) const { return json_["parts"].contains(part); }
    bool has_errors() const { return !json_["errors"].empty(); }

    void skip(const std::string& part, const std::string& why);
    void fail(const std::string& part, const std::string& why);
    // What `act` throws ends that part alone.
    template <class Act>
    void guard(const std::string& part, Act act) {
        try {
            act();
        } catch (const std::exception& error) {
            fail(part, tools::spell_for_command_line(error.what()));
        }
    }

    void begin(const std::string& part, const std::vector<std::string>& command);
    // A part that ran has passed when nothing failed; one that never began stays out.
    void end(const std::string& part, double seconds);
    void finish(bool passed);
    double seconds() const;  // since it was made

    // UserError when it cannot be written.
    void write();

private:
    void read_commit(const std::string& programs);

    std::string path_;
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
    Json json_;
};

}  // namespace cleave::gpu_check
