// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/catalogue.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "models/shapes.h"
#include "planner/machine/catalogue.h"
#include "planner/machine/fabric.h"
#include "planner/plan/text_table.h"
#include "tools/cli/terminal.h"

namespace cleave::tools {
namespace {

using Json = nlohmann::ordered_json;

std::vector<planner::CatalogueModel> all_devices() {
    const auto gpus = planner::catalogue();
    std::vector<planner::CatalogueModel> all(gpus.begin(), gpus.end());
    all.push_back(*planner::find_model("host"));
    return all;
}

Json to_json() {
    Json json{{"devices", Json::array()}, {"fabrics", Json::array()}};
    for (const planner::CatalogueModel& m : all_devices())
        json["devices"].push_back(
            {{"name", m.name},
             {"arch", m.arch},
             {"memory_bytes", m.memory_mib << 20},
             {"gb_per_s", m.bandwidth_gb},
             {"tflops_f32", m.tflops_f32},
             {"tflops_f16", m.tflops_f16},
             {"tflops_f8", m.tflops_f8},
             {"tops_int8", m.tops_int8},
             {"compute_units", m.compute_units},
             {"peer", planner::link_kind_name(m.peer)},
             {"peer_gb_per_s", m.peer_gb},
             {"peer_latency_us", static_cast<double>(m.peer_latency_ns) / 1e3},
             {"devices_per_node", m.per_node},
             {"adapters_per_node", m.adapters},
             {"fabric", m.fabric},
             {"source", m.source}});
    for (const planner::Fabric& f : planner::kFabrics)
        json["fabrics"].push_back({{"name", f.name},
                                   {"description", f.words},
                                   {"gb_per_s", f.adapter_gb},
                                   {"latency_us", static_cast<double>(f.message_ns) / 1e3},
                                   {"through_host", f.through_host},
                                   {"published", f.is_published}});
    json["shapes"] = models::shape_names();
    return json;
}

}  // namespace

void print_catalogue(bool json) {
    if (json) return show_exactly(to_json().dump(2) + "\n");
    planner::TextTable devices("<<>>>>>><><", "");
    devices.row(
        {"sim:", "arch", "GiB", "GB/s", "f32", "f16", "f8", "int8", "peers", "GB/s", "network"});
    for (const planner::CatalogueModel& m : all_devices())
        devices.row({std::string(m.name), std::string(m.arch),
                     fmt::format("{:.0f}", static_cast<double>(m.memory_mib) / 1024),
                     fmt::format("{}", m.bandwidth_gb), fmt::format("{}", m.tflops_f32),
                     fmt::format("{}", m.tflops_f16), fmt::format("{}", m.tflops_f8),
                     fmt::format("{}", m.tops_int8), std::string(planner::link_kind_name(m.peer)),
                     fmt::format("{}", m.peer_gb),
                     m.fabric.empty() ? "-" : fmt::format("{} x {}", m.adapters, m.fabric)});
    devices.may_drop({10, 9, 8});
    show("{}", devices.text(terminal_width()));
    show(
        "Rates are data-sheet peaks, in 1e12 operations/s. GB/s: of memory; to a peer in the same\n"
        "server, one direction. network: adapters of a server of eight, and what joins "
        "servers.\n"
        "PCIe cards: how many share a link is the server's, not the card's (one chassis is sold\n"
        "with links of two processors, of one, and with one link for all: Supermicro 4029GP-TRT,\n"
        "-TRT2, -TRT3): --pcie-group N says it, and plans without it say both ends.\n\n");
    std::string sources;
    for (const planner::CatalogueModel& m : all_devices())
        sources += fmt::format("{}{}: {}", sources.empty() ? "" : "; ", m.name, m.source);
    show("Sources. {}.\n\n", planner::wrapped(sources, 2, prose_width()));
    planner::TextTable fabrics("<>><", "");
    fabrics.row({"--fabric", "GB/s", "us", ""});
    for (const planner::Fabric& f : planner::kFabrics)
        fabrics.row({std::string(f.name), fmt::format("{}", f.adapter_gb),
                     fmt::format("{}", static_cast<double>(f.message_ns) / 1e3),
                     std::string(f.words) + (f.is_published ? "" : ", estimated")});
    show("{}\nModels by name: {}\n", fabrics.text(terminal_width()),
         planner::wrapped(fmt::format("{}", fmt::join(models::shape_names(), ", ")), 2,
                          prose_width()));
}

}  // namespace cleave::tools
