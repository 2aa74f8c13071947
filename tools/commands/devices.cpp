// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "codegen/compiler.h"
#include "planner/machine.h"
#include "runtime/base/dynamic_library.h"
#include "runtime/base/errors.h"
#include "runtime/host_topology.h"
#include "tools/cli/files.h"
#include "tools/cli/planning.h"
#include "tools/cli/terminal.h"
#include "tools/commands/commands.h"

namespace cleave::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
    PlanFlags plan;
    bool json = false;
    std::string output;
};

struct Absent {
    std::string kind, reason;
};

// What this build looked for and did not find, with the loader's reason for every name tried.
std::vector<Absent> absent_kinds() {
    std::vector<Absent> absent;
    auto look = [&](const char* kind, std::vector<std::string> names, const char* found) {
        std::string why;
        auto library = DynamicLibrary::open_first(names, &why);
        // The loader's own words matter only for a library that is there and does not load.
        bool nowhere = !library;
        for (size_t at = 0; nowhere && at < why.size();) {
            size_t end = std::min(why.find("; ", at), why.size());
            nowhere = why.substr(at, end - at).find("No such file") != std::string::npos;
            at = end + 2;
        }
        if (nowhere) why = fmt::format("not installed (tried {})", fmt::join(names, ", "));
        absent.push_back(
            {kind, library ? fmt::format("{} was found, but {}", library->name(), found) : why});
    };
    look("cuda", {"libcuda.so.1", "libcuda.so"}, "this version has no CUDA driver yet");
    look("hip", {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"},
         "this version has no HIP driver yet");
    return absent;
}

void print_text(const planner::Machine& machine, const planner::HostFacts& facts,
                const std::vector<Absent>& absent) {
    fmt::print("{}\n", bold(fmt::format("{:<14} {:<14} {:>10} {:>12} {:>14}  {}", "device", "arch",
                                        "memory", "bandwidth", "f32 rate", "kind")));
    for (const planner::Device& d : machine.devices)
        fmt::print("{:<14} {:<14} {:>10} {:>10}/s {:>10} GF/s  {}\n", d.name, d.arch,
                   format_bytes(d.memory_bytes), format_bytes(d.memory_bandwidth),
                   d.flops_f32 / 1000000000, planner::device_kind_name(d.kind));
    for (const planner::Link& l : machine.links)
        fmt::print("link {} -> {}: {}, {}/s, {} ns\n", machine.device(l.from).name,
                   machine.device(l.to).name, planner::link_kind_name(l.kind),
                   format_bytes(l.bandwidth), l.latency_ns);
    codegen::HostCompilerInfo compiler = codegen::host_compiler_info();
    runtime::HostTopology host = runtime::read_host_topology();
    fmt::print("host: {}; {} of {} cores usable, L2 {}, L3 {}, {} memory node{}\n",
               host.cpu_model.empty() ? "CPU" : host.cpu_model, facts.num_cores, host.threads,
               format_bytes(host.l2_bytes), format_bytes(host.l3_bytes), host.numa_nodes,
               host.numa_nodes == 1 ? "" : "s");
    fmt::print("host: {} of memory, compiler {}\n", format_bytes(facts.memory_bytes),
               compiler.available ? compiler.version + " for " + compiler.cpu
                                  : "absent: " + compiler.reason);
    for (const Absent& a : absent) fmt::print("no {}: {}\n", a.kind, a.reason);
}

Json to_json(const planner::Machine& machine, const std::vector<Absent>& absent) {
    Json json = Json::parse(planner::machine_to_json(machine));
    json["absent"] = Json::array();
    for (const Absent& a : absent)
        json["absent"].push_back({{"kind", a.kind}, {"reason", a.reason}});
    return json;
}

void run_devices(const Flags& flags) {
    planner::Machine machine = machine_from_flags(flags.plan, {});
    std::vector<Absent> absent = absent_kinds();
    if (!flags.output.empty()) {
        std::string json = planner::machine_to_json(machine) + "\n";
        write_file("-o", flags.output, json);
    }
    if (flags.json)
        fmt::print("{}\n", to_json(machine, absent).dump(2));
    else
        print_text(machine, planner::read_host_facts(), absent);
}

}  // namespace

void add_devices(CLI::App& app) {
    auto flags = std::make_shared<Flags>();
    CLI::App* command = app.add_subcommand(
        "devices", "list devices, links and limits, and what was not found and why");
    command->add_option("--devices", flags->plan.devices,
                        "devices to describe; default: those found, host among them");
    command->add_option("--machine", flags->plan.machine_file, "describe a machine file");
    command->add_option("-o,--output", flags->output,
                        "write the machine as JSON, to edit and to plan with --machine");
    command->add_flag("--json", flags->json, "JSON on standard output");
    command->footer("Example: cleave devices --devices sim:h100[0-7] -o eight-h100.json");
    command->callback([flags] { run_devices(*flags); });
}

void add_doctor(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "doctor", "check libraries, compilers and devices: what is found, what to install");
    command->footer("Example: cleave doctor");
    command->callback([] {
        codegen::HostCompilerInfo compiler = codegen::host_compiler_info();
        if (compiler.available)
            fmt::print("ok    host compiler: {}, target {}\n", compiler.version, compiler.cpu);
        else
            fmt::print(
                "FAIL  host compiler: {}\n      install LLVM and Clang 19 (Debian: "
                "libclang-cpp19), or run tools/setup\n",
                compiler.reason);
        for (const Absent& a : absent_kinds())
            fmt::print("none  {} devices: {}\n", a.kind, a.reason);
    });
}

}  // namespace cleave::tools
