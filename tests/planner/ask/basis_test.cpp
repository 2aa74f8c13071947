// SPDX-License-Identifier: Apache-2.0
// What predictions say that they rest on.
#include "planner/ask/basis.h"

#include <nlohmann/json.hpp>

#include "planner/cost/published_classes.h"
#include "planner/machine/catalogue.h"
#include "planner/machine/fabric.h"
#include "planner/machine/vendor.h"
#include "tests/planner/support/hand_plan.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;
using Catch::Matchers::Contains;

std::string as_asked(std::string_view text) { return "<" + std::string(text) + ">"; }

std::vector<std::string> classes(const Plan& plan) {
    std::vector<std::string> names;
    for (const Basis& basis : bases_of(plan)) names.emplace_back(basis.name);
    return names;
}

// The hand plan on catalogue devices.
Plan on_models(const std::vector<std::vector<int>>& stages, const std::string& model,
               const std::string& arch, LinkKind kind) {
    Plan plan = hand_plan(stages);
    for (DeviceInfo& d : plan.machine.devices) {
        d.kind = DeviceKind::kSim;
        d.arch = arch;
        d.model = model;
        if (const CatalogueModel* known = find_model(model)) set_rates(*known, d);
    }
    for (Link& link : plan.machine.links) {
        link.kind = kind;
        link.domain = -1;
    }
    plan.workload.batch = 1;
    return plan;
}

}  // namespace

TEST_CASE("a host that nobody measured has assumed rates, and what measures them is named",
          "[planner][view]") {
    Plan plan = hand_plan({{0, 1}});
    CHECK(classes(plan) == std::vector<std::string>{"host_assumed", "exchanges_assumed"});
    const std::vector<Basis> bases = bases_of(plan, as_asked);
    CHECK(bases[0].fix == "<$measure_machine>");
    CHECK(bases[0].devices.size() == 2);
    CHECK_FALSE(bases[0].error_percent);
    CHECK(basis_lines(plan, as_asked)[0] ==
          "rates that nobody measured, assumed from the CPU's features (host[0-1]): error not "
          "known; <$measure_machine> measures them");
    // Without a speller no name of an option is in a text.
    for (const std::string& line : basis_lines(plan)) CHECK(line.find('$') == std::string::npos);
    for (DeviceInfo& d : plan.machine.devices) d.measured.bandwidth = 1;
    CHECK(classes(plan) == std::vector<std::string>{"host_measured", "exchanges_measured"});
    CHECK(bases_of(plan)[0].error_percent == std::pair(1.0, 7.0));
}

TEST_CASE("only devices that have a stage are named", "[planner][view]") {
    Plan plan = hand_plan({{0}});
    plan.machine = tiny_machine(3);
    const std::vector<Basis> bases = bases_of(plan);
    REQUIRE(bases.size() == 1);
    CHECK(bases[0].devices == std::vector{DeviceId(0)});
}

TEST_CASE("GPUs rest on the fit or on data sheets, and on published speeds of such plans",
          "[planner][view]") {
    using Names = std::vector<std::string>;
    CHECK(classes(on_models({{0}}, "h200", "sm_90a", LinkKind::kPcie)) ==
          Names{"fitted", "published"});
    CHECK(classes(on_models({{0, 1}}, "h200", "sm_90a", vendor_facts(Vendor{}).own_link)) ==
          Names{"fitted", "exchanges_fitted", "published"});
    CHECK(classes(on_models({{0, 1}}, "b200", "sm_100", vendor_facts(Vendor{}).own_link)) ==
          Names{"data_sheet", "exchanges_of_model", "published"});
    CHECK(classes(on_models({{0, 1}}, "rtx4090", "sm_89", LinkKind::kPcie)) ==
          Names{"data_sheet_unchecked", "exchanges_modelled", "published"});
    Plan behind_one = on_models({{0, 1}}, "rtx4090", "sm_89", LinkKind::kPcie);
    for (Link& link : behind_one.machine.links) link.domain = 0;
    CHECK(classes(behind_one) == Names{"data_sheet_unchecked", "exchanges_shared", "published"});
    CHECK(classes(on_models({{0, 1}}, "nothing", "sm_89", LinkKind::kPcie)) ==
          Names{"stated", "exchanges_modelled", "published"});
    Plan nodes = on_models({{0, 1}}, "h100", "sm_90a", LinkKind::kNetwork);
    nodes.machine.devices[1].host = "b";
    CHECK(classes(nodes)[1] == "network_stated");
    nodes.machine.fabric = "ib400";
    CHECK(classes(nodes)[1] == "network_modelled");
    // Of what was fitted to no published sums it says so, and no published error is its own.
    for (const Fabric& fabric : kFabrics) {
        nodes.machine.fabric = fabric.name;
        const Basis basis = bases_of(nodes)[1];
        CHECK(basis.name == (fabric.is_published ? "network_modelled" : "network_estimated"));
        CHECK(basis.speed_ratio.has_value() == fabric.is_published);
    }
    // An error that was measured on one model is not another's.
    CHECK(bases_of(on_models({{0}}, "b200", "sm_100", LinkKind::kPcie))[0].error_percent);
    CHECK_FALSE(bases_of(on_models({{0}}, "l40s", "sm_89", LinkKind::kPcie))[0].error_percent);
    // A card that is here runs Cleave's kernels; its driver has a name of its own for it.
    Plan card = on_models({{0}}, "h200", "sm_90a", LinkKind::kPcie);
    DeviceInfo& real = card.machine.devices[0];
    real.kind = DeviceKind::kCuda;
    real.model = "NVIDIA H200";
    real.memory_bytes = find_model("h200")->memory_mib << 20;
    CHECK(classes(card) == Names{"own_kernels", "published"});
    CHECK(bases_of(card)[0].error_percent == std::pair(11.0, 29.0));
    // Mixed with a host there are no published speeds of the kind.
    Plan mixed = on_models({{0, 1}}, "h100", "sm_90a", LinkKind::kPcie);
    mixed.machine.devices[1] = hand_plan({{0, 1}}).machine.devices[1];
    CHECK(classes(mixed) == Names{"data_sheet_unchecked", "host_assumed", "exchanges_modelled"});
}

TEST_CASE("every class of published speeds that a plan may be of is in the table",
          "[planner][view]") {
    const auto ratio = [](const Plan& plan) {
        const Basis last = bases_of(plan).back();
        REQUIRE(last.part == "plan");
        REQUIRE(last.speed_ratio);
        return *last.speed_ratio;
    };
    const auto of = [](const char* name) {
        const PublishedClass* row = find_published_class(name);
        REQUIRE(row);
        return std::pair(row->low, row->high);
    };
    const LinkKind pcie = LinkKind::kPcie;
    Plan one = on_models({{0}}, "h100", "sm_90a", pcie);
    CHECK(ratio(one) == of("decode b1 1 GPU"));
    one.workload.batch = 8;
    CHECK(ratio(one) == of("batched decode"));
    one.prediction.serving.users = 8;
    CHECK(ratio(one) == of("batched throughput"));
    CHECK(ratio(on_models({{0, 1}}, "h100", "sm_90a", pcie)) == of("tensor parallel b1"));
    CHECK(ratio(on_models({{0}, {1}}, "h100", "sm_90a", pcie)) == of("pipeline b1"));
    Plan cards = on_models({{0, 1}}, "l40s", "sm_89", pcie);
    cards.prediction.serving.users = 8;
    CHECK(ratio(cards) == of("throughput, PCIe tensor parallel"));
    Plan amd = on_models({{0}}, "mi300x", "gfx942", pcie);
    CHECK(ratio(amd) == of("AMD decode"));
    amd.workload.batch = 2;
    CHECK(ratio(amd) == of("AMD batched"));
}

TEST_CASE("what many plans rest on is told once, each network with its nodes and not run",
          "[planner][view]") {
    Grounds one = grounds_of(on_models({{0}}, "h100", "sm_90a", LinkKind::kPcie));
    CHECK(network_text(one).empty());
    Plan plan = on_models({{0, 1}}, "h100", "sm_90a", LinkKind::kNetwork);
    plan.machine.devices[1].host = "b";
    CHECK_THAT(network_text(grounds_of(plan)), Contains("not run"));
    plan.machine.network_measured = true;
    CHECK_THAT(network_text(grounds_of(plan)), Contains("measured") && !Contains("not run"));
    CHECK(classes(plan)[1] == "network_measured");
    plan.machine.network_measured = false;
    plan.machine.fabric = "eth25";
    const Grounds two = grounds_of(plan);
    CHECK(network_text(two) ==
          "eth25 (TCP over 25 Gb/s Ethernet, through the hosts' memory) joins 2 nodes: times over "
          "it are estimated, not run");
    Grounds four = two;
    four.nodes = 4;
    const std::vector<std::string> lines = rests_on({&one, &two, &four, &two});
    REQUIRE(lines.size() == 5);
    CHECK_THAT(lines[0], Contains("joins 2 to 4 nodes"));
    for (size_t i = 1; i < lines.size(); ++i) CHECK_THAT(lines[i], !Contains("sim:"));
}

TEST_CASE("the JSON of a plan has what it rests on", "[planner][view]") {
    const auto json = nlohmann::json::parse(basis_json(hand_plan({{0, 1}}), as_asked));
    REQUIRE(json.size() == 2);
    CHECK(json[0]["of"] == "launches");
    CHECK(json[0]["class"] == "host_assumed");
    CHECK(json[0]["devices"] == nlohmann::json{"host[0]", "host[1]"});
    CHECK(json[0]["error_percent"].is_null());
    CHECK(json[0]["fix"] == "<$measure_machine>");
    CHECK(json[1]["of"] == "exchanges");
}

}  // namespace cleave::test
