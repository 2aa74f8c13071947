// SPDX-License-Identifier: Apache-2.0
// `cleave serve` as its users have it: a process at a free port, until it is ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/test.h"

namespace cleave::test {

class ServeProcess {
public:
    explicit ServeProcess(const std::string& devices = "host",
                          const std::vector<std::string>& more = {},
                          const std::string& model = bundled_model().string());
    ~ServeProcess();
    ServeProcess(const ServeProcess&) = delete;
    ServeProcess& operator=(const ServeProcess&) = delete;

    uint16_t port() const { return port_; }
    pid_t pid() const { return pid_; }
    void send(int signal) const;
    // Its exit code; a signal's number and 128.
    int wait();
    nlohmann::json get(const std::string& path) const;
    nlohmann::json post(const std::string& path, const nlohmann::json& body) const;
    // Of a metric without labels but the model's.
    double metric(const std::string& name) const;
    // For minutes at most.
    template <class Holds>
    void wait_until(const std::string& name, Holds&& holds) const {
        bool is_so = false;
        for (int i = 0; i < 40'000 && !(is_so = holds(metric(name))); ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        INFO(name);
        REQUIRE(is_so);
    }

private:
    bool read_error();

    pid_t pid_ = 0;
    int error_ = -1;
    uint16_t port_ = 0;
    std::string said_;
};

}  // namespace cleave::test
