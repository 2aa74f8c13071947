// SPDX-License-Identifier: Apache-2.0
// Files of weights are mapped into memory. One that becomes shorter while it is read, or whose disk
// or server fails, ends a process by SIGBUS.
#pragma once

namespace cleave::tools {

// From now on such a fault is a message with the file's name and exit code 1; any other SIGBUS ends
// the process as before.
void tell_bus_errors();

}  // namespace cleave::tools
