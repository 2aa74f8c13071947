// SPDX-License-Identifier: Apache-2.0
// Plan files, each with a right digest: reader and verifier, and of a plan that is sound the views,
// the exports and the sources of its devices' kernels.
#include <cstdlib>
#include <span>

#include "codegen/generate.h"
#include "planner/export/formats.h"
#include "planner/file/plan.pb.h"
#include "planner/file/plan_file.h"
#include "planner/verify/verify.h"
#include "planner/view/plan_text.h"
#include "runtime/base/hash.h"
#include "tests/fuzz/harness.h"

namespace {

namespace pb = cleave::plan::v1;

std::string with_right_digest(std::string_view bytes) {
    pb::PlanFile file;
    if (!file.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
        return std::string(bytes);
    const std::string& plan = file.plan();
    file.set_digest(cleave::Digest().add(std::as_bytes(std::span(plan.data(), plan.size()))).hex());
    return file.SerializeAsString();
}

}  // namespace

void cleave::fuzz::run_input(std::string_view bytes) {
    using namespace cleave::planner;
    const Plan plan = parse_plan(with_right_digest(bytes), "fuzz.plan");
    if (!find_violations(plan).empty()) return;
    if (plan_to_text(plan).empty() || plan_to_json(plan).empty()) std::abort();
    for (const auto& make : {export_dot, export_vllm, export_llama_cpp, export_accelerate})
        try_to([&] { make(plan); });
    for (size_t d = 0; d < plan.machine.devices.size(); ++d)
        try_to([&] { codegen::generate_program(plan, DeviceId(d)); });
}

// Names of libFuzzer.
// NOLINTBEGIN(readability-identifier-naming)

// Nineteen of twenty changes are to the plan inside its envelope.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
    pb::PlanFile file;
    pb::Plan plan;
    if (seed % 20 == 0 || !file.ParseFromArray(data, static_cast<int>(size)) ||
        !plan.ParseFromString(file.plan()))
        return LLVMFuzzerMutate(data, size, max_size);
    cleave::fuzz::mutate_message(plan, seed);
    if (!plan.SerializeToString(file.mutable_plan())) return size;
    const size_t changed = file.ByteSizeLong();
    if (changed > max_size || !file.SerializeToArray(data, static_cast<int>(max_size))) return size;
    return changed;
}
// NOLINTEND(readability-identifier-naming)
