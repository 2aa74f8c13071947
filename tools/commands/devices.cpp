// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "codegen/compile/host.h"
#include "planner/machine/build_machine.h"
#include "planner/machine/device_names.h"
#include "planner/machine/fabric.h"
#include "planner/machine/machine.h"
#include "planner/machine/machine_file.h"
#include "planner/plan/text_table.h"
#include "runtime/base/errors.h"
#include "runtime/base/file_set.h"
#include "runtime/cards/cards.h"
#include "runtime/drivers/host/host_topology.h"
#include "tools/cli/calibrate.h"
#include "tools/cli/files.h"
#include "tools/cli/hosts.h"
#include "tools/cli/planning.h"
#include "tools/cli/terminal.h"
#include "tools/commands/catalogue.h"
#include "tools/commands/commands.h"

namespace cleave::tools {
namespace {

using Json = nlohmann::ordered_json;

struct DevicesArguments {
    runtime::Drivers& drivers;
    PlanFlags plan;
    bool json = false;
    bool measure = false;
    bool catalogue = false;
    std::string output;
};

struct Absent {
    std::string kind, reason;
};

// The kinds that were not found, with the reason. `chosen_by` gets the variables that hide devices.
std::vector<Absent> absent_kinds(runtime::Drivers& drivers, std::vector<std::string>& chosen_by) {
    std::vector<Absent> absent;
    for (const planner::VendorFacts& vendor : planner::vendors()) {
        const runtime::GpuListing listing = runtime::list_gpus(drivers, vendor.kind);
        if (!listing.visible.empty() &&
            std::find(chosen_by.begin(), chosen_by.end(), listing.visible) == chosen_by.end())
            chosen_by.push_back(listing.visible);
        if (listing.cards.empty())
            absent.push_back(
                {std::string(vendor.kind_name), runtime::short_reason(listing.reason)});
        if (!listing.no_links.empty())
            absent.push_back({listing.links_library, runtime::short_reason(listing.no_links)});
    }
    return absent;
}

void print_measured(const planner::Machine& machine, const planner::DeviceInfo& device) {
    const planner::MeasuredRates& m = device.measured;
    auto us = [](int64_t ns) { return static_cast<double>(ns) * 1e-3; };
    show(
        "host, measured: {}/s of weights from memory ({}/s with one thread), {}/s from {} of "
        "cache\n",
        format_bytes(m.bandwidth), format_bytes(m.bandwidth_alone), format_bytes(m.cache_bandwidth),
        format_bytes(m.cache_bytes));
    show(
        "host, measured: products {:.0f} GF/s in f32, {:.0f} GF/s in bf16 ({} elements/s with one "
        "token)\n",
        static_cast<double>(m.flops_f32) * 1e-9, static_cast<double>(m.flops_narrow) * 1e-9,
        format_count(m.widening));
    show(
        "host, measured: attention {}/s of keys and values, {:.0f} GF/s in prefill; a launch "
        "{:.1f} us, {:.1f} us with one thread\n",
        format_bytes(m.attention_bandwidth), static_cast<double>(m.attention_flops) * 1e-9,
        us(m.launch_ns), us(m.launch_alone_ns));
    for (const planner::Link& l : machine.links)
        if (l.exchange_latency_ns > 0) {
            show(
                "host, measured: a transfer {:.1f} us and {}/s, an all-reduce of two {:.1f} us and "
                "{}/s\n",
                us(l.latency_ns), format_bytes(l.bandwidth), us(l.exchange_latency_ns),
                format_bytes(l.exchange_bandwidth));
            break;
        }
}

// GPUs of one vendor that differ: no fault, but worth knowing.
std::vector<std::string> unequal_cards(const planner::Machine& machine) {
    std::vector<std::string> notes;
    for (const planner::VendorFacts& vendor : planner::vendors()) {
        const planner::DeviceInfo* first = nullptr;
        for (const planner::DeviceInfo& d : machine.devices) {
            if (d.kind != vendor.kind) continue;
            if (!first) first = &d;
            if (d.model != first->model || d.arch != first->arch)
                notes.push_back(fmt::format(
                    "{} ({}) and {} ({}) are unequal; plans share out by speed and memory",
                    first->name, first->model, d.name, d.model));
        }
    }
    return notes;
}

// "133", "12.5", "0.0012": GB/s, three digits.
std::string rate_text(int64_t bandwidth) {
    const double rate = static_cast<double>(bandwidth) * 1e-9;
    return rate >= 100 ? fmt::format("{:.0f}", rate) : fmt::format("{:.3g}", rate);
}

// So many devices have a row and a column each.
constexpr size_t kMatrixDevices = 16;

// How many links there are of each sort, with one of them.
void print_sorts_of_links(const planner::Machine& machine) {
    struct Sort {
        int64_t count = 0;
        const planner::Link* first = nullptr;
    };
    std::map<std::tuple<planner::LinkKind, bool, int64_t, int64_t>, Sort> sorts;
    for (const planner::Link& l : machine.links) {
        Sort& sort = sorts[{l.kind, l.peer_access, l.bandwidth, l.latency_ns}];
        if (!sort.count++) sort.first = &l;
    }
    for (const auto& [key, sort] : sorts) {
        const planner::Link& l = *sort.first;
        const std::string line = fmt::format(
            "{} of {}{}, {} GB/s, {}: {} -> {}{}", planner::count_text(sort.count, "link"),
            planner::link_kind_name(l.kind),
            l.kind == planner::LinkKind::kPcie && l.peer_access ? " with peer access" : "",
            rate_text(l.bandwidth), planner::time_text(l.latency_ns), machine.device(l.from).name,
            machine.device(l.to).name, sort.count > 1 ? ", ..." : "");
        const int width = terminal_width();
        show("{}\n", width > 0 ? planner::wrapped(line, 2, width) : line);
    }
}

// Rates from each row's device to each column's, and below them the latencies of each kind of link.
void print_links(const planner::Machine& machine) {
    const size_t n = machine.devices.size();
    if (n > kMatrixDevices) return print_sorts_of_links(machine);
    if (machine.links.empty()) return;
    std::vector<std::vector<std::string>> cells(n, std::vector<std::string>(n, "-"));
    std::map<planner::LinkKind, std::pair<int64_t, int64_t>> latencies;  // least, most
    bool by_peers = false;
    for (const planner::Link& l : machine.links) {
        const bool peers = l.kind == planner::LinkKind::kPcie && l.peer_access;
        cells[l.from.index()][l.to.index()] = fmt::format(
            "{}{} {}", planner::link_kind_name(l.kind), peers ? "*" : "", rate_text(l.bandwidth));
        by_peers |= peers;
        auto& [least, most] =
            latencies.try_emplace(l.kind, l.latency_ns, l.latency_ns).first->second;
        least = std::min(least, l.latency_ns);
        most = std::max(most, l.latency_ns);
    }
    planner::TextTable table("<" + std::string(n, '>'), "");
    std::vector<std::string> header = {"GB/s to"};
    for (const planner::DeviceInfo& d : machine.devices) header.push_back(d.name);
    table.row(header);
    for (size_t from = 0; from < n; ++from) {
        std::vector<std::string> row = {machine.devices[from].name};
        row.insert(row.end(), cells[from].begin(), cells[from].end());
        table.row(std::move(row));
    }
    const std::string matrix = table.text(0);
    const int width = terminal_width();
    if (width > 0 && static_cast<int>(matrix.find('\n')) > width) {
        print_sorts_of_links(machine);
    } else {
        show("\n{}", matrix);
        for (const auto& [kind, latency] : latencies)
            show(
                "latency of {}: {}{}\n", planner::link_kind_name(kind),
                planner::time_text(latency.first),
                latency.first == latency.second ? "" : " to " + planner::time_text(latency.second));
    }
    std::map<int, std::set<planner::DeviceId>> sharing;
    for (const planner::Link& l : machine.links)
        if (l.domain >= 0 && l.kind != planner::LinkKind::kSameMemory)
            sharing[l.domain].insert(l.from);
    for (const auto& [domain, senders] : sharing) {
        const planner::BandwidthDomain& shared = machine.domains[static_cast<size_t>(domain)];
        show("{}: {} GB/s for all that {} {} over it\n", shared.name, rate_text(shared.bandwidth),
             planner::folded_names(machine, {senders.begin(), senders.end()}),
             senders.size() == 1 ? "sends" : "send");
    }
    if (machine.sum_skew_ns > 0)
        show("sums of GPUs wait {} for each doubling of their number\n",
             planner::time_text(machine.sum_skew_ns));
    if (by_peers) show("pcie*: kernels reach each other's memory\n");
    show("\n");
}

// Of many devices those alike are one row.
void print_devices(const planner::Machine& machine) {
    std::vector<std::vector<std::string>> rows;
    std::vector<std::vector<std::string>> names;  // beside them
    for (const planner::DeviceInfo& d : machine.devices) {
        std::vector<std::string> row{d.arch, format_bytes(d.memory_bytes),
                                     format_bytes(d.memory_bandwidth) + "/s",
                                     fmt::format("{} GF/s", d.flops_f32 / 1000000000),
                                     std::string(planner::device_kind_name(d.kind))};
        const auto same = std::ranges::find(rows, row);
        if (machine.devices.size() > kMatrixDevices && same != rows.end()) {
            names[static_cast<size_t>(same - rows.begin())].push_back(d.name);
            continue;
        }
        rows.push_back(std::move(row));
        names.push_back({d.name});
    }
    planner::TextTable table("<<>>><", "");
    table.row({"device", "arch", "memory", "bandwidth", "f32 rate", "kind"});
    for (size_t i = 0; i < rows.size(); ++i) {
        rows[i].insert(rows[i].begin(), planner::folded_names(names[i]));
        table.row(std::move(rows[i]));
    }
    show("{}", table.text(terminal_width()));
}

void print_text(const planner::Machine& machine, const planner::HostFacts& facts,
                const std::vector<Absent>& absent, const std::vector<std::string>& chosen_by) {
    print_devices(machine);
    print_links(machine);
    codegen::HostCompilerInfo compiler = codegen::host_compiler_info();
    runtime::HostTopology host = runtime::read_host_topology();
    if (host_job() && host_job()->size() > 1) show("of {} alone:\n", host_job()->name(0));
    show("host: {}; {} of {} cores usable, L2 {}, L3 {}, {} memory node{}\n",
         host.cpu_model.empty() ? "CPU" : host.cpu_model, facts.num_cores, host.threads,
         format_bytes(host.l2_bytes), format_bytes(host.l3_bytes), host.numa_nodes,
         host.numa_nodes == 1 ? "" : "s");
    show("host: {} of memory, compiler {}\n", format_bytes(facts.memory_bytes),
         compiler.available ? compiler.version + " for " + compiler.cpu
                            : "absent: " + compiler.reason);
    for (const planner::DeviceInfo& d : machine.devices)
        if (d.measured.bandwidth > 0) {
            print_measured(machine, d);
            break;
        }
    for (const planner::DeviceInfo& d : machine.devices)
        if (!d.identity.empty() && d.kind != planner::DeviceKind::kHost)
            show("{}: {}, {}{}; shared memory of a block {}, {} compute units{}{}\n", d.name,
                 d.model, d.identity, d.pci.empty() || d.pci == d.identity ? "" : ", PCI " + d.pci,
                 format_bytes(d.limits.shared_memory_per_block), d.limits.num_compute_units,
                 d.collectives.empty() ? "" : "; ", d.collectives);
    for (const std::string& note : unequal_cards(machine)) show("note: {}\n", note);
    for (const std::string& variable : chosen_by)
        show("{}: the driver shows these devices alone, in this order\n", variable);
    for (const Absent& a : absent) show("no {}: {}\n", a.kind, a.reason);
}

Json to_json(const planner::Machine& machine, const std::vector<Absent>& absent) {
    Json json = Json::parse(planner::machine_to_json(machine));
    json["absent"] = Json::array();
    for (const Absent& a : absent)
        json["absent"].push_back({{"kind", a.kind}, {"reason", a.reason}});
    return json;
}

Json measurement_json(const Measurement& measurement, const std::string& warning) {
    return {{"spread", measurement.spread},
            {"other_load", measurement.other_load},
            {"stolen", measurement.stolen},
            {"warning", warning}};
}

// The machine of --devices (default: two host devices) with what was measured; saved in the file of
// -o, or where later commands look for it. `rank`: this one's name in a run on several hosts.
struct Measured {
    planner::Machine machine;
    Measurement doubts;
};
Measured measure(const DevicesArguments& flags, const std::string& rank = "") {
    if (!flags.plan.machine_file.empty())
        throw UserError(
            "--measure with --machine: a file is described, a host is measured; drop one");
    std::string list = flags.plan.devices.empty() ? "host[0-1]" : flags.plan.devices;
    std::vector<planner::DeviceSpec> specs = planner::parse_devices(list);
    for (const planner::DeviceSpec& spec : specs)
        if (spec.kind != planner::DeviceKind::kHost)
            throw UserError(
                "--measure --devices {}: only host devices are measured; for example host[0-1]",
                spec.text);
        else if (spec.numa)
            throw UserError(
                "--measure --devices {}: the host is measured whole, and NUMA nodes have their "
                "part of its rates; leave @numa out",
                spec.text);
    std::string path = flags.output.empty() ? calibration_path() : flags.output;
    if (path.empty())
        throw UserError("--measure: no home to keep the result in; say where with -o FILE");
    if (specs.size() < 2 && flags.output.empty())
        throw UserError(
            "--measure --devices {}: what is kept for later commands needs two host devices; name "
            "two, "
            "or say where with -o FILE",
            list);
    FileSet folder;
    if (flags.output.empty()) folder.make_folder(std::filesystem::path(path).parent_path());
    check_writable(flags.output.empty() ? "--measure" : "-o", path);
    planner::HostFacts facts = planner::read_host_facts();
    Interruptible interruptible;
    Measurement measurement;
    {
        ProgressBar bar("measuring the host");
        measurement = calibrate_host(
            facts, [&](int64_t done, int64_t total) { bar.update(done, total); }, &cancel_token());
    }
    planner::Machine machine = planner::build_machine(specs, facts);
    for (planner::DeviceInfo& d : machine.devices) d.identity = host_identity(facts);
    Json json = Json::parse(planner::machine_to_json(machine));
    json["measurement"] = measurement_json(measurement, measurement.warning());
    write_file(flags.output.empty() ? "--measure" : "-o", path, json.dump(2) + "\n\n");
    const std::string whose = rank.empty() ? "" : rank + ": ";
    say("{}saved {}; others used {:.0f} % of the cores, {:.0f} % were stolen, the same work's "
        "times differ by {:.0f} %\n",
        whose, path, 100 * measurement.other_load, 100 * measurement.stolen,
        100 * measurement.spread);
    if (std::string warning = measurement.warning(); !warning.empty())
        say("{}warning: {}\n", whose, warning);
    return {machine, measurement};
}

// Of a run on several hosts: every rank measures its own, one after the other, as several may be
// on one machine; what they then say of their devices has these rates. Out, on rank 0: the worst of
// how far they are to be trusted.
Json measure_hosts(const DevicesArguments& flags) {
    DevicesArguments own = flags;
    own.plan.devices.clear();
    own.output.clear();
    runtime::HostJob& job = *host_job();
    Json mine;
    for (int r = 0; r < job.size(); ++r) {
        std::string objection;
        if (r == job.rank()) try {
                const Measurement doubts = measure(own, job.name(r)).doubts;
                mine = measurement_json(doubts, doubts.warning());
            } catch (const Cancelled&) {
                throw;
            } catch (const Error& error) {
                objection = error.what();
            }
        job.vote(objection);
    }
    Json worst;
    int rank = 0;
    for (const std::string& part : job.gather(mine.dump())) {
        Json of_rank = Json::parse(part);
        const std::string warning = of_rank["warning"];
        if (!warning.empty()) of_rank["warning"] = job.name(rank) + ": " + warning;
        if (worst.is_null()) worst = of_rank;
        for (const char* share : {"spread", "other_load", "stolen"})
            worst[share] = std::max(worst[share].get<double>(), of_rank[share].get<double>());
        if (worst["warning"].get<std::string>().empty()) worst["warning"] = of_rank["warning"];
        ++rank;
    }
    return worst;
}

void run_devices(const DevicesArguments& flags) {
    if (flags.catalogue) return print_catalogue(flags.json);
    const bool on_hosts = flags.measure && host_job();
    Json measurement;
    if (on_hosts) measurement = measure_hosts(flags);
    if (follows({}, flags.drivers)) return;
    PlanFlags plan = flags.plan;
    if (!host_job() && plan.devices.empty() && plan.machine_file.empty()) {
        const std::string gpus = gpus_at_hand(flags.drivers);
        plan.devices = gpus.empty() ? "host" : gpus + ",host";
    }
    planner::Machine machine = flags.measure && !on_hosts
                                   ? measure(flags).machine
                                   : machine_from_flags(plan, {}, flags.drivers);
    std::vector<std::string> chosen_by;
    std::vector<Absent> absent = absent_kinds(flags.drivers, chosen_by);
    if (!flags.output.empty() && (!flags.measure || on_hosts)) {
        Json json = Json::parse(planner::machine_to_json(machine));
        if (on_hosts) json["measurement"] = measurement;
        write_file("-o", flags.output, json.dump(2) + "\n\n");
    }
    if (flags.json)
        show_exactly(to_json(machine, absent).dump(2) + "\n");
    else
        print_text(machine, planner::read_host_facts(), absent, chosen_by);
}

}  // namespace

void add_devices(CLI::App& app, runtime::Drivers& drivers) {
    auto flags = std::make_shared<DevicesArguments>(DevicesArguments{.drivers = drivers});
    CLI::App* command = app.add_subcommand(
        "devices", "list devices, links and limits, and what was not found and why");
    command
        ->add_option("--devices", flags->plan.devices,
                     "devices to describe; default: those found, host among them")
        ->type_name("LIST");
    add_wiring(*command, flags->plan.wiring, command->option_defaults()->get_group());
    command->add_flag("--catalogue", flags->catalogue,
                      "list the devices, networks and models that are known by name, with sources");
    command->add_option("--machine", flags->plan.machine_file, "describe a machine file")
        ->type_name("FILE.json");
    command
        ->add_option("-o,--output", flags->output,
                     "write the machine as JSON, to edit and to plan with --machine")
        ->type_name("FILE.json");
    command->add_flag(
        "--measure", flags->measure,
        "measure this host with Cleave's own kernels (some seconds, all cores); kept in -o FILE "
        "for "
        "--machine, or without -o in ~/.config/cleave/host.json, where later commands find it "
        "(host.NAME.json of each host under mpirun)");
    command->add_flag("--json", flags->json, "JSON on standard output");
    command->footer(
        "Example: cleave devices --devices 'sim:h100[0-7]' -o eight-h100.json\n"
        "         cleave devices --measure");
    command->callback([flags] { run_devices(*flags); });
}

}  // namespace cleave::tools
