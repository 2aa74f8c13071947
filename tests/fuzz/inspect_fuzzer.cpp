// SPDX-License-Identifier: Apache-2.0
// What `inspect` reads beside a plan: the trace of a run, whose digests and devices are put right
// here, and its comparison with the plan; a sweep.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "runtime/base/json_file.h"
#include "runtime/execute/trace.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/mutate_json.h"
#include "tools/cli/planning.h"
#include "tools/inspect/measured.h"
#include "tools/inspect/sweep_file.h"
#include "tools/inspect/trace_file.h"

namespace {

using namespace cleave;
using Json = nlohmann::ordered_json;

// With sums and transfers.
const planner::Plan& plan() {
    static const planner::Plan kPlan = [] {
        runtime::Drivers drivers;
        tools::ModelFlags model;
        model.model = "stories-260k";
        tools::PlanFlags flags;
        flags.devices = "host[0-3]";
        flags.tensor_parallel = flags.pipeline_stages = 2;
        flags.context = 64;
        tools::LoadedModel loaded = tools::load_model(model, {});
        const planner::Workload workload = tools::workload_from_flags(flags, loaded);
        return tools::plan_from_flags(std::move(loaded), flags, {}, workload, drivers);
    }();
    return kPlan;
}

std::string with_right_digests(std::string_view bytes) {
    Json trace = parse_ordered_json(bytes, "trace.json");
    if (!trace.is_object() || !trace.contains("otherData") || !trace["otherData"].is_object())
        return std::string(bytes);
    Json& facts = trace["otherData"];
    facts["model_digest"] = plan().graph_digest;
    facts["plan_digest"] = runtime::trace_digest(plan());
    facts.erase("replicas");
    facts["devices"] = Json::array();
    for (const planner::DeviceInfo& device : plan().machine.devices)
        facts["devices"].push_back(device.name);
    return trace.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void compare(std::string_view bytes) {
    const std::string path = fuzz::write_file(bytes, "trace.json");
    const tools::Measured measured =
        tools::compare_with_trace(plan(), tools::read_trace(path, plan()), path);
    if (tools::measured_text(plan(), measured, 100, false).empty()) std::abort();
    if (tools::measured_json(plan(), measured).empty()) std::abort();
}

}  // namespace

void cleave::fuzz::run_input(std::string_view bytes) {
    try_to([&] { compare(bytes); });
    try_to([&] { compare(with_right_digests(bytes)); });
    tools::read_sweep(write_file(bytes, "sweep.json")).dump();
}

// Names of libFuzzer.
// NOLINTBEGIN(readability-identifier-naming)

// Seven of eight changes are to the JSON.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
    std::string text;
    cleave::fuzz::try_to([&] {
        const auto* chars = reinterpret_cast<const char*>(data);
        Json json = cleave::parse_ordered_json({chars, size}, "input");
        cleave::fuzz::mutate_json(json, seed);
        text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    });
    if (seed % 8 == 0 || text.empty() || text.size() > max_size)
        return LLVMFuzzerMutate(data, size, max_size);
    std::ranges::copy(text, data);
    return text.size();
}
// NOLINTEND(readability-identifier-naming)
