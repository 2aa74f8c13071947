// SPDX-License-Identifier: Apache-2.0

#include "planner/machine/build_machine.h"
#include "planner/machine/machine_file.h"
#include "tools/libcleave/handles.h"

using namespace cleave;
using namespace cleave::c_api;

namespace {

template <class Make>
cleave_status make_machine(cleave_machine** out, Make&& make) {
    return guard([&] {
        needed(out, "out") = nullptr;
        *out = new cleave_machine{make()};
    });
}

}  // namespace

cleave_status cleave_machine_from_devices(const char* devices, cleave_machine** out) {
    return make_machine(out, [&] {
        return planner::build_machine(planner::parse_devices(text_of(devices, "devices")),
                                      planner::read_host_facts());
    });
}

cleave_status cleave_machine_load(const char* path, cleave_machine** out) {
    return make_machine(out, [&] { return planner::load_machine(text_of(path, "path")); });
}

cleave_status cleave_machine_from_json(const char* json, cleave_machine** out) {
    return make_machine(
        out, [&] { return planner::parse_machine(text_of(json, "json"), "the machine's JSON"); });
}

void cleave_machine_free(cleave_machine* machine) { delete machine; }

cleave_status cleave_machine_num_devices(const cleave_machine* machine, size_t* out) {
    return guard([&] { needed(out, "out") = needed(machine, "machine").machine.devices.size(); });
}

cleave_status cleave_machine_to_json(const cleave_machine* machine, char** out) {
    return guard([&] {
        needed(out, "out") =
            copy_text(planner::machine_to_json(needed(machine, "machine").machine));
    });
}
