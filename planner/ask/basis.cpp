// SPDX-License-Identifier: Apache-2.0
#include "planner/ask/basis.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/cost/published_classes.h"
#include "planner/cost/reached.h"
#include "planner/machine/catalogue.h"
#include "planner/machine/device_names.h"
#include "planner/machine/fabric.h"
#include "planner/machine/vendor.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/used_devices.h"

namespace cleave::planner {
namespace {

struct BasisRow {
    std::string_view name, says;
    double least_percent, most_percent;  // mean error; 0: not known
    std::string_view published;          // class of published speeds, by which the ratio is; empty
    std::string_view source;
};

// The errors of fitted times: planner/cost/README.md, "GPUs" and "Hosts", which fit_costs.py and
// `tools/bench cpu` print.
constexpr std::array kLaunches{
    BasisRow{
        "fitted", "kernel times fitted to measured ones of an H200", 3.7, 5.4, "",
        "planner/cost/README.md: rows of an H200 that the fit has not seen, kernels of vendors' "
        "libraries"},
    BasisRow{"own_kernels",
             "an H200's kernel times of vendors' libraries, where Cleave's own kernels run", 11, 29,
             "",
             "tests/reports/gpu_h200_d7d2c96.json: 8B in bf16, a token 0.89 of its prediction, a "
             "prompt of 2,048 1.29"},
    BasisRow{"data_sheet", "an H200's kernel times at the rates of the data sheet", 13.5, 13.5, "",
             "planner/cost/README.md: products on a B200, which no row was fitted to"},
    BasisRow{"data_sheet_unchecked",
             "an H200's kernel times at the rates of the data sheet, which were checked on a B200 "
             "alone",
             0, 0, "", "planner/cost/README.md"},
    BasisRow{"host_measured", "rates measured on the host", 1, 7, "",
             "planner/cost/README.md: a token of 110M f32 and of 1.1B bf16 on two Zen 4 cores"},
    BasisRow{"host_assumed", "rates that nobody measured, assumed from the CPU's features", 0, 0,
             "", ""},
    BasisRow{"host_data_sheet", "the rates of a plain desktop", 0, 0, "", ""},
    BasisRow{"imitated", "a hundredth of the host's rates: the CPU imitates the GPU", 0, 0, "", ""},
    BasisRow{"stated", "the rates that the machine states", 0, 0, "", ""},
};

constexpr std::array kExchanges{
    BasisRow{"exchanges_measured", "exchanges measured on the host", 1, 7, "",
             "planner/cost/README.md: the same, with tp 2 and pp 2"},
    BasisRow{"exchanges_assumed", "exchanges through memory at assumed rates", 0, 0, "", ""},
    BasisRow{"exchanges_fitted", "sums over the cards' own links fitted to those of H200s", 2.1,
             3.3, "",
             "planner/cost/README.md: sums of 2, 4 and 8 H200s in a CUDA graph, each left out"},
    BasisRow{"exchanges_of_model", "sums over the cards' own links fitted to those of such cards",
             4.7, 16.6, "",
             "planner/cost/README.md: sums of 2, 4 and 8 A100s, B200s or GB200s in a CUDA graph, "
             "each left out"},
    BasisRow{"exchanges_scaled",
             "sums of H200s at the latency and bandwidth of the cards' own links", 0, 0,
             "collective in a node", "planner/cost/published_classes.h"},
    BasisRow{"exchanges_scaled",
             "sums of H200s at the latency and bandwidth of the cards' own links", 0, 0,
             "AMD collective in a node", "planner/cost/published_classes.h"},
    BasisRow{"exchanges_modelled", "exchanges modelled as latency and bytes, nothing contending", 0,
             0, "collective in a node, PCIe", "planner/cost/published_classes.h"},
    BasisRow{"exchanges_shared",
             "exchanges modelled as latency and bytes over links that cards share", 0, 0,
             "collective in a node, PCIe group", "planner/cost/published_classes.h"},
    BasisRow{"network_modelled", "a network modelled from published sums, not run", 0, 0,
             "collective across nodes", "planner/cost/published_classes.h"},
    BasisRow{"network_estimated", "an estimate of a network, fitted to no published sums, not run",
             0, 0, "", ""},
    BasisRow{"network_measured", "the network's latency and bandwidth, measured between the hosts",
             4.1, 12.6, "", "tests/reports/hosts_2026-11-28.md: a token on two ranks, to 10 ms"},
    BasisRow{"network_stated", "the network's stated latency and bandwidth", 0, 0, "", ""},
};

// Of plans whole, by published speeds of decode.
struct PlanWords {
    std::string_view published, says;
};
constexpr std::array kPlans{
    PlanWords{"decode b1 1 GPU", "decode of one sequence on one GPU"},
    PlanWords{"tensor parallel b1", "decode of one sequence by tensor parallelism"},
    PlanWords{"pipeline b1", "decode of one sequence by a pipeline"},
    PlanWords{"batched decode", "decode of a batch"},
    PlanWords{"batched throughput", "throughput of many users"},
    PlanWords{"throughput, PCIe tensor parallel", "throughput by tensor parallelism over PCIe"},
    PlanWords{"AMD decode", "decode of one sequence on AMD's GPUs"},
    PlanWords{"AMD batched", "decode of a batch on AMD's GPUs"},
};

template <size_t N>
const BasisRow& row_named(const std::array<BasisRow, N>& rows, std::string_view name,
                          std::string_view published = {}) {
    const BasisRow* found = nullptr;
    for (const BasisRow& row : rows)
        if (row.name == name && (!found || row.published == published)) found = &row;
    return *found;
}

bool is_gpu(const DeviceInfo& device) { return vendor_of(device) != nullptr; }
// All fits are to cards of the vendor whose platform this is.
bool is_of_fitted_vendor(const DeviceInfo& device) { return vendor_of(device)->platform == "CUDA"; }

class Bases {
public:
    Bases(const Plan& plan, Speller spell)
        : plan_(plan), spell_(spell), used_(used_devices(plan)) {}

    std::vector<Basis> run() {
        for (DeviceId d : used_) add("launches", launches(plan_.machine.device(d)), {d});
        // Those of prefill are between the same devices. Layers repeat.
        std::set<std::pair<bool, std::vector<DeviceId>>> groups;
        for (const Step& step : plan_.decode.steps)
            if (!step.compute()) {
                const std::vector<DeviceId> members = step_devices(plan_.decode, step);
                if (groups.emplace(step.transfer() != nullptr, members).second)
                    add("exchanges", exchanges(step, members), members);
            }
        if (const PlanWords* words = whole()) {
            const PublishedClass* published = find_published_class(words->published);
            bases_.push_back({"plan",
                              "published",
                              used_,
                              std::string(words->says),
                              {},
                              std::pair(published->low, published->high),
                              "planner/cost/published_classes.h",
                              {}});
        }
        return std::move(bases_);
    }

private:
    const BasisRow& launches(const DeviceInfo& d) const {
        const auto row = [](std::string_view name) -> const BasisRow& {
            return row_named(kLaunches, name);
        };
        if (d.kind == DeviceKind::kSimt) return row("imitated");
        if (d.measured.bandwidth > 0) return row("host_measured");
        if (is_gpu(d)) {
            const CatalogueModel* model = find_model(d.model);
            if (!model) model = find_model_of(d.model, d.memory_bytes);  // as its driver says it
            DeviceInfo known = d;
            if (model) set_rates(*model, known);
            if (!model || known.memory_bandwidth != d.memory_bandwidth) return row("stated");
            if (model->name != "h200")
                return row(model->name == "b200" ? "data_sheet" : "data_sheet_unchecked");
            return row(d.kind == DeviceKind::kSim ? "fitted" : "own_kernels");
        }
        if (d.kind == DeviceKind::kSim) return row("host_data_sheet");
        return row(d.kind == DeviceKind::kHost ? "host_assumed" : "stated");
    }

    const BasisRow& exchanges(const Step& step, const std::vector<DeviceId>& members) {
        const auto row = [](std::string_view name,
                            std::string_view published = {}) -> const BasisRow& {
            return row_named(kExchanges, name, published);
        };
        const DeviceInfo& first = plan_.machine.device(members.front());
        bool network = false, measured = true, own_links = true, fitted = true, of_model = true;
        bool on_cores = true, shared = false;
        for (DeviceId d : members) {
            const DeviceInfo& info = plan_.machine.device(d);
            network |= info.host != first.host;
            measured = measured && info.measured.bandwidth > 0;
            fitted = fitted && info.model == "h200";
            of_model = of_model && reached_by(info).sums != Reached().sums;
            on_cores = on_cores && (is_on_cores(info.kind) || !is_gpu(info));
            if (d == members.front()) continue;
            const Link* link = plan_.machine.link(members.front(), d);
            own_links = own_links && link && is_own_link(link->kind);
            over_pcie_ |= step.collective() && link && link->kind == LinkKind::kPcie;
            shared |= link && link->domain >= 0;
        }
        if (network) {
            const Fabric* fabric = find_fabric(plan_.machine.fabric);
            return row(plan_.machine.network_measured ? "network_measured"
                       : !fabric                      ? "network_stated"
                       : fabric->is_published         ? "network_modelled"
                                                      : "network_estimated");
        }
        if (on_cores) return row(measured ? "exchanges_measured" : "exchanges_assumed");
        if (!own_links && shared) return row("exchanges_shared");
        if (!own_links || step.transfer()) return row("exchanges_modelled");
        if (fitted) return row("exchanges_fitted");
        if (of_model) return row("exchanges_of_model");
        return row("exchanges_scaled", is_of_fitted_vendor(first) ? "collective in a node"
                                                                  : "AMD collective in a node");
    }

    // The class of published speeds that the plan is of; null without.
    const PlanWords* whole() const {
        bool cuda = true, other = true;
        size_t shards = 0;
        for (DeviceId d : used_) {
            const DeviceInfo& info = plan_.machine.device(d);
            if (!is_gpu(info) || info.kind == DeviceKind::kSimt) return nullptr;
            (is_of_fitted_vendor(info) ? other : cuda) = false;
        }
        for (const Stage& stage : plan_.stages) shards = std::max(shards, stage.devices.size());
        const bool one = plan_.workload.batch == 1;
        std::string_view name;
        if (used_.empty() || cuda == other) return nullptr;
        if (other)
            name = one ? "AMD decode" : "AMD batched";
        else if (plan_.prediction.serving.users > 0)
            name = over_pcie_ ? "throughput, PCIe tensor parallel" : "batched throughput";
        else if (!one)
            name = "batched decode";
        else
            name = used_.size() == 1 ? "decode b1 1 GPU"
                   : shards > 1      ? "tensor parallel b1"
                                     : "pipeline b1";
        return &*std::ranges::find(kPlans, name, &PlanWords::published);
    }

    void add(std::string_view part, const BasisRow& row, const std::vector<DeviceId>& devices) {
        auto [at, is_new] = places_.try_emplace({row.name, row.published}, bases_.size());
        if (is_new) {
            Basis basis{part, row.name, {}, std::string(row.says), {}, {}, row.source, {}};
            if (row.most_percent > 0) basis.error_percent = {row.least_percent, row.most_percent};
            if (const PublishedClass* published = find_published_class(row.published))
                basis.speed_ratio = {published->low, published->high};
            if (row.name == "host_assumed" && spell_) basis.fix = spell_("$measure_machine");
            bases_.push_back(std::move(basis));
            seen_.emplace_back();
        }
        for (DeviceId d : devices)
            if (seen_[at->second].insert(d).second) bases_[at->second].devices.push_back(d);
    }

    const Plan& plan_;
    Speller spell_;
    std::vector<DeviceId> used_;
    bool over_pcie_ = false;  // a collective goes
    std::map<std::pair<std::string_view, std::string_view>, size_t> places_;
    std::vector<std::set<DeviceId>> seen_;  // beside bases_
    std::vector<Basis> bases_;
};

std::string error_text(const Basis& basis) {
    if (basis.error_percent) {
        const auto [least, most] = *basis.error_percent;
        return least == most ? fmt::format("{} % off where that was checked", least)
                             : fmt::format("{} to {} % off where that was checked", least, most);
    }
    if (basis.speed_ratio)
        return fmt::format("{:.2f} to {:.2f} times the published speed in 80 % of rows",
                           basis.speed_ratio->first, basis.speed_ratio->second);
    return "error not known";
}

// Of one class: exchanges of two vendors' cards differ in their errors alone.
bool same(const Basis& a, const Basis& b) {
    return a.name == b.name && a.says == b.says && a.speed_ratio == b.speed_ratio;
}

std::string line_of(const Basis& basis, const std::string& devices) {
    std::string line = fmt::format("{}{}: {}", basis.says, devices, error_text(basis));
    if (!basis.fix.empty()) line += fmt::format("; {} measures them", basis.fix);
    return line;
}

}  // namespace

std::vector<Basis> bases_of(const Plan& plan, Speller spell) { return Bases(plan, spell).run(); }

std::vector<std::string> basis_lines(const Plan& plan, Speller spell) {
    std::vector<std::string> lines;
    for (Basis& basis : bases_of(plan, spell)) {
        std::ranges::sort(basis.devices);
        lines.push_back(
            line_of(basis, basis.part == "plan"
                               ? ""
                               : fmt::format(" ({})", folded_names(plan.machine, basis.devices))));
    }
    for (const Plan& other : plan.others)
        for (std::string& line : basis_lines(other, spell))
            if (std::ranges::find(lines, line) == lines.end()) lines.push_back(std::move(line));
    return lines;
}

std::string basis_json(const Plan& plan, Speller spell) {
    using Json = nlohmann::ordered_json;
    const auto range = [](const std::optional<std::pair<double, double>>& pair) {
        return pair ? Json::array({pair->first, pair->second}) : Json();
    };
    Json list = Json::array();
    for (const Basis& basis : bases_of(plan, spell)) {
        Json devices = Json::array();
        for (DeviceId d : basis.devices) devices.push_back(plan.machine.device(d).name);
        Json one{{"of", basis.part},
                 {"class", basis.name},
                 {"devices", std::move(devices)},
                 {"says", basis.says},
                 {"error_percent", range(basis.error_percent)},
                 {"speed_ratio", range(basis.speed_ratio)},
                 {"source", basis.source.empty() ? Json() : Json(basis.source)}};
        if (!basis.fix.empty()) one["fix"] = basis.fix;
        list.push_back(std::move(one));
    }
    return list.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Grounds grounds_of(const Plan& plan) {
    Grounds grounds;
    for (const Plan* make : makes_of(plan)) {
        if (const int64_t nodes = nodes_used(*make); nodes > grounds.nodes) {
            grounds.nodes = nodes;
            grounds.fabric = network_name(make->machine);
        }
        for (Basis& basis :
             bases_of(*make, [](std::string_view text) { return std::string(text); }))
            if (std::ranges::none_of(grounds.classes,
                                     [&](const Basis& b) { return same(b, basis); })) {
                basis.devices.clear();
                grounds.classes.push_back(std::move(basis));
            }
    }
    return grounds;
}

std::string class_names(const Grounds& grounds) {
    std::string names;
    for (const Basis& basis : grounds.classes)
        names += (names.empty() ? "" : " ") + std::string(basis.name);
    return names;
}

std::string network_text(const Grounds& grounds) {
    return grounds.nodes > 1 ? network_text(grounds.fabric, grounds.nodes, grounds.nodes) : "";
}

std::vector<std::string> rests_on(const std::vector<const Grounds*>& plans) {
    std::map<std::string, std::pair<int64_t, int64_t>> nodes;  // least and most, by fabric
    std::vector<const Basis*> classes;
    for (const Grounds* grounds : plans) {
        if (grounds->nodes > 1) {
            auto& [least, most] =
                nodes.try_emplace(grounds->fabric, grounds->nodes, grounds->nodes).first->second;
            least = std::min(least, grounds->nodes);
            most = std::max(most, grounds->nodes);
        }
        for (const Basis& basis : grounds->classes)
            if (std::ranges::none_of(classes, [&](const Basis* b) { return same(*b, basis); }))
                classes.push_back(&basis);
    }
    std::vector<std::string> lines;
    for (const auto& [fabric, range] : nodes)
        lines.push_back(network_text(fabric, range.first, range.second));
    for (const Basis* basis : classes) lines.push_back(line_of(*basis, ""));
    return lines;
}

}  // namespace cleave::planner
