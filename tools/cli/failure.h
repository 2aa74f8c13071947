// SPDX-License-Identifier: Apache-2.0
// The message with which a command fails.
#pragma once

#include <string>

namespace cleave::tools {

// "cleave: ..." on standard error, once in a process: the thread that first knows why it ends says
// it, and what others say later is not printed. Any thread; returns when the words are out.
void say_failure(const std::string& message);

}  // namespace cleave::tools
