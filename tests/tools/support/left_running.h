// SPDX-License-Identifier: Apache-2.0
// Processes that a command leaves behind.
#pragma once

#include <charconv>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/command.h"

namespace cleave::test {

// The command lines of all processes that have NAME=VALUE in their environment. One that was ended
// and is not gone yet is waited for.
inline std::vector<std::string> left_running(const std::string& variable) {
    constexpr int kMostWaits = 500;
    const std::string word = variable + '\0';
    std::vector<std::string> found;
    for (int i = 0; i < kMostWaits; ++i) {
        found.clear();
        for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
            const std::string name = entry.path().filename().string();
            int id = 0;
            if (std::from_chars(name.data(), name.data() + name.size(), id).ec != std::errc())
                continue;
            // What ended meanwhile, or is another user's, reads as empty.
            const std::string environment = read_file(entry.path() / "environ");
            if (('\0' + environment).find('\0' + word) != std::string::npos)
                found.push_back(name + ": " + read_file(entry.path() / "cmdline"));
        }
        if (found.empty()) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return found;
}

}  // namespace cleave::test
