// SPDX-License-Identifier: Apache-2.0
#include "planner/file/plan_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "planner/file/plan_codec.h"
#include "planner/plan/plan_queries.h"
#include "planner/verify/report.h"
#include "runtime/base/atomic_file.h"
#include "runtime/base/errors.h"
#include "runtime/base/hash.h"
#include "runtime/base/json_file.h"
#include "runtime/base/path_state.h"

namespace cleave::planner {

namespace pb = cleave::plan::v1;

namespace {

constexpr std::string_view kMagic = "cleave plan";
constexpr const char* kFix = "make it anew with $save_plan";
// What an importer computes (a folded table, a split weight) is small; a plan is not the place for
// a model's weights.
constexpr size_t kMostBlobBytes = size_t{64} << 20;

std::string digest_of(const std::string& bytes) {
    return Digest().add(std::as_bytes(std::span(bytes.data(), bytes.size()))).hex();
}

// The magic is the first field, behind two bytes of its own.
bool begins_as_plan(std::string_view bytes) {
    return bytes.size() > 2 + kMagic.size() && bytes.substr(2, kMagic.size()) == kMagic;
}

pb::PlanFile open_envelope(const std::string& bytes, const std::string& origin) {
    pb::PlanFile file;
    // A file that begins with the magic is a plan, damaged or not.
    const bool starts_as_plan = begins_as_plan(bytes);
    const bool parsed = file.ParseFromString(bytes);
    if (!starts_as_plan || (parsed && file.magic() != kMagic))
        throw UserError("{} is not a plan: $save_plan writes one", origin);
    if (!parsed) throw UserError("{}: the plan is truncated or damaged; {}", origin, kFix);
    if (file.format_version() != Plan::kFormatVersion)
        throw UserError("{}: the plan has format version {}, this cleave reads version {}; {}",
                        origin, file.format_version(), Plan::kFormatVersion, kFix);
    if (digest_of(file.plan()) != file.digest())
        throw UserError("{}: the plan is damaged, its bytes have digest {} and it says {}; {}",
                        origin, digest_of(file.plan()), file.digest(), kFix);
    return file;
}

}  // namespace

std::string serialize_plan(const Plan& plan) {
    size_t blob_bytes = 0;
    for (const auto& blob : plan.graph.blobs) blob_bytes += blob.size();
    if (blob_bytes > kMostBlobBytes)
        throw UserError(
            "{}: {} bytes of its weights were computed at import and would have to be in the plan, "
            "which holds at "
            "most {}; export the model with its weights stored as they are used, or run it without "
            "a plan file",
            plan.graph.name, blob_bytes, kMostBlobBytes);
    pb::Plan message;
    codec::put(plan, &message);
    pb::PlanFile file;
    file.set_magic(std::string(kMagic));
    file.set_format_version(Plan::kFormatVersion);
    if (!message.SerializeToString(file.mutable_plan()))
        throw UserError("{}: a plan larger than 2 GB cannot be written", plan.graph.name);
    file.set_digest(digest_of(file.plan()));
    return file.SerializeAsString();
}

Plan parse_plan(const std::string& bytes, const std::string& origin) {
    const pb::PlanFile file = open_envelope(bytes, origin);
    Plan plan;
    pb::Plan message;
    if (!message.ParseFromString(file.plan()))
        throw UserError("{}: the plan is damaged; {}", origin, kFix);
    try {
        codec::take(message, plan);
    } catch (const UserError& error) {
        throw UserError("{}: the plan is damaged: {}; {}", origin, error.what(), kFix);
    }
    // Every index may be used after this; whether the plan is sound is for verify_plan to say.
    verify::Report report;
    for (const Plan* make : makes_of(plan)) verify::check_indices(*make, report);
    if (report.size() > 0) {
        std::vector<Violation> found = report.take();
        throw UserError("{}: the plan is damaged: {}: {}; {}", origin, found[0].rule,
                        found[0].message, kFix);
    }
    return plan;
}

void save_plan(const Plan& plan, const std::string& path) {
    const std::string bytes = serialize_plan(plan);
    AtomicFile file(path);
    file.stream().write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (std::error_code error = file.commit())
        throw UserError(
            "{}: the plan cannot be written there ({}); give $output a file in a folder that "
            "exists, "
            "with room for {} bytes",
            path, error.message(), bytes.size());
}

bool is_plan_file(const std::string& path) {
    if (!is_file(path)) return false;  // a pipe would wait
    std::string begins(64, 0);
    std::ifstream file(path, std::ios::binary);
    file.read(begins.data(), static_cast<std::streamsize>(begins.size()));
    begins.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
    return begins_as_plan(begins);
}

Plan load_plan(const std::string& path) {
    constexpr int64_t kMostBytes = int64_t{2} << 30;
    if (!is_there(path) || is_folder(path))
        throw UserError("{}: there is no plan to read; $save_plan writes one", path);
    return parse_plan(read_regular_file(path, kMostBytes), path);
}

}  // namespace cleave::planner
