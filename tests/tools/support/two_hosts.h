// SPDX-License-Identifier: Apache-2.0
// Two hosts in one machine, a and b, as tests/two_hosts/two_hosts.sh makes them: network and UTS
// namespaces with a wire between them. Gone with the object, and every process on them.
#pragma once

#include <string>
#include <vector>

#include "tests/support/command.h"
#include "tests/support/test.h"
#include "tests/tools/support/ranks.h"

namespace cleave::test {

class TwoHosts {
public:
    // Why there can be none here; empty: there can.
    static std::string absent() {
        if (const std::string why = no_mpi(); !why.empty()) return why;
        return run_program({script(), "can"}).output;
    }
    // The same of hosts with a delay between them.
    static std::string no_delay() {
        if (const std::string why = absent(); !why.empty()) return why;
        return run_program({script(), "can", "delay"}).output;
    }
    // Each packet between them arrives so many microseconds after it was sent, at least.
    explicit TwoHosts(int delay_us = 0) {
        std::vector<std::string> words{"up", dir()};
        if (delay_us > 0) words.insert(words.end(), {CLEAVE_TEST_RELAY, std::to_string(delay_us)});
        const CommandResult made = call(words);
        INFO(made.error);
        REQUIRE(made.exit_code == 0);
    }
    ~TwoHosts() { call({"down", dir()}); }
    TwoHosts(const TwoHosts&) = delete;
    TwoHosts& operator=(const TwoHosts&) = delete;

    static std::string script() { return CLEAVE_SOURCE_DIR "/tests/two_hosts/two_hosts.sh"; }
    std::string dir() const { return folder_.path().string(); }

    // The script's own commands.
    static CommandResult call(std::vector<std::string> words) {
        words.insert(words.begin(), script());
        return run_program(words);
    }
    // A rank on each host; `words` from the program on.
    CommandResult run(const std::vector<std::string>& words) const {
        std::vector<std::string> all{"timeout", "600", script(), "mpirun", dir(),
                                     "-np",     "2",   "--host", "a,b"};
        all.insert(all.end(), words.begin(), words.end());
        return run_program(all);
    }
    int64_t bytes_sent() const {
        int64_t all = 0;
        for (const char* host : {"a", "b"})
            all += std::stoll(
                call({"on", dir(), host, "cat", "/sys/class/net/net0/statistics/tx_bytes"}).output);
        return all;
    }

private:
    TemporaryFolder folder_;
};

}  // namespace cleave::test
