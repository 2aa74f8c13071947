// SPDX-License-Identifier: Apache-2.0
// What a check makes of annotated files whose plan others have changed.
#include "planner/export/model/onnx/check.h"

#include <fstream>

#include "importer/onnx/import.h"
#include "planner/export/model/onnx/annotate.h"
#include "planner/file/plan_file.h"
#include "planner/machine/build_machine.h"
#include "planner/plan/workload_request.h"
#include "planner/planner.h"
#include "tests/support/command.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace cleave::planner;

struct Annotated {
    onnx::ModelProto model;
    Plan plan;
};

Annotated annotated(const std::string& devices) {
    const std::string file = bundled_model().string();
    const importer::Graph graph = importer::import_onnx(file);
    Annotated made{read_model_file(file),
                   make_plan(graph, build_machine(parse_devices(devices), read_host_facts()),
                             fill_workload({}, graph.config.max_positions), {})};
    annotate(made.plan, made.model);
    return made;
}

AnnotationReport check_of(const onnx::ModelProto& model, const TemporaryFolder& folder) {
    const std::string file = (folder.path() / "model.onnx").string();
    std::ofstream to(file, std::ios::binary);
    REQUIRE(model.SerializeToOstream(&to));
    to.close();
    return check_annotations(file);
}

}  // namespace

TEST_CASE("a check shows no plan that is not sound", "[tools]") {
    const TemporaryFolder folder;
    Annotated file = annotated("host[0-1]");
    CHECK(check_of(file.model, folder).plan.has_value());
    // Each is what a view of plans relies on.
    void (*const changes[])(Plan&) = {[](Plan& plan) { plan.memory.clear(); },
                                      [](Plan& plan) { plan.decode.steps.clear(); },
                                      [](Plan& plan) { plan.memory.pop_back(); }};
    for (const auto change : changes) {
        Plan changed = file.plan;
        change(changed);
        embed_plan_file(serialize_plan(changed), file.model);
        const AnnotationReport report = check_of(file.model, folder);
        CHECK_FALSE(report.plan.has_value());
        CHECK_FALSE(report.findings.empty());
    }
}

TEST_CASE("shards of a file are counted without leaving 64 bits", "[tools]") {
    const TemporaryFolder folder;
    Annotated file = annotated("host[0-1]");
    auto* on = file.model.mutable_graph()->mutable_node(0)->add_device_configurations();
    on->set_configuration_id(kConfiguration);
    auto* spec = on->add_sharding_spec();
    spec->set_tensor_name(file.model.graph().node(0).output(0));
    // Three times 2^62 are 2^60 in 64 bits, and four times 2^32 none.
    for (int i = 0; i < 4; ++i)
        spec->add_sharded_dim()->add_simple_sharding()->set_num_shards(int64_t{1} << 62);
    const AnnotationReport report = check_of(file.model, folder);
    CHECK(std::ranges::any_of(report.findings, [](const AnnotationFinding& f) {
        return f.message.find("shards for 0 devices") != std::string::npos &&
               f.message.find(" 0 shards") == std::string::npos;
    }));
}

}  // namespace cleave::test
