// SPDX-License-Identifier: Apache-2.0
// Annotated ONNX files, as `cleave check` and the pins of `cleave plan` read them: the annotations,
// and the plan in their metadata, which gets a right digest.
#include <cstdlib>
#include <span>

#include "importer/onnx/affinities.h"
#include "planner/export/model/onnx/annotate.h"
#include "planner/export/model/onnx/check.h"
#include "planner/file/plan.pb.h"
#include "planner/view/plan_text.h"
#include "runtime/base/hash.h"
#include "tests/fuzz/harness.h"

namespace {

namespace pb = cleave::plan::v1;

}  // namespace

void cleave::fuzz::run_input(std::string_view bytes) {
    const std::string file = write_file(bytes, "model.onnx").string();
    try_to([&] { importer::read_affinities(file); });
    const planner::AnnotationReport report = planner::check_annotations(file);
    // What is reported without a finding is a plan that can be shown.
    if (report.findings.empty() && !report.plan) std::abort();
    if (report.plan && planner::plan_to_text(*report.plan).empty()) std::abort();
}

// Names of libFuzzer.
// NOLINTBEGIN(readability-identifier-naming)

// Half of the changes are to the plan inside the model, which stays one that Protobuf reads; most
// others are to the model around it.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
    using namespace cleave;
    onnx::ModelProto model;
    if (seed % 16 == 0 || !model.ParseFromArray(data, static_cast<int>(size)))
        return LLVMFuzzerMutate(data, size, max_size);
    std::optional<std::string> inside;
    fuzz::try_to([&] { inside = planner::embedded_plan_file(model, "fuzz.onnx"); });
    pb::PlanFile file;
    pb::Plan plan;
    if (seed % 2 == 0 || !inside || !file.ParseFromString(*inside) ||
        !plan.ParseFromString(file.plan())) {
        fuzz::mutate_message(model, seed);
    } else {
        fuzz::mutate_message(plan, seed);
        if (!plan.SerializeToString(file.mutable_plan())) return size;
        const std::string& bytes = file.plan();
        file.set_digest(Digest().add(std::as_bytes(std::span(bytes.data(), bytes.size()))).hex());
        planner::embed_plan_file(file.SerializeAsString(), model);
    }
    const size_t changed = model.ByteSizeLong();
    if (changed > max_size || !model.SerializeToArray(data, static_cast<int>(max_size)))
        return size;
    return changed;
}
// NOLINTEND(readability-identifier-naming)
