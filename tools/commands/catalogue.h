// SPDX-License-Identifier: Apache-2.0
// `cleave devices --catalogue`: the devices, networks and model shapes that are known by name, with
// their figures and sources.
#pragma once

namespace cleave::tools {

void print_catalogue(bool json);

}  // namespace cleave::tools
