// SPDX-License-Identifier: Apache-2.0
// A plan file in which one number was changed, with digests that fit, is refused, or loads and
// runs: whoever changed it, no number reaches memory that is not the run's.
#include <limits>
#include <map>
#include <random>
#include <regex>
#include <span>

#include "models/convert.h"
#include "models/gguf_model.h"
#include "planner/file/plan_codec.h"
#include "planner/file/plan_file.h"
#include "planner/verify/verify.h"
#include "runtime/base/errors.h"
#include "runtime/base/hash.h"
#include "tests/e2e/support.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

namespace pb = cleave::plan::v1;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// A number in a message: the fields and elements that lead to it, and its own last.
struct Place {
    std::vector<std::pair<const FieldDescriptor*, int>> path;  // element -1: not repeated
};

// All numbers, by the names of their fields.
void find_numbers(const Message& message, const Place& here, const std::string& name,
                  std::map<std::string, std::vector<Place>>& found) {
    const auto* reflection = message.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    for (int i = 0; i < message.GetDescriptor()->field_count(); ++i)
        fields.push_back(message.GetDescriptor()->field(i));
    for (const FieldDescriptor* field : fields) {
        const std::string named = name + "." + field->name();
        const int count = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
        for (int i = 0; i < count; ++i) {
            Place place = here;
            place.path.emplace_back(field, field->is_repeated() ? i : -1);
            if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
                if (field->cpp_type() != FieldDescriptor::CPPTYPE_STRING)
                    found[named].push_back(place);
            } else if (field->is_repeated()) {
                find_numbers(reflection->GetRepeatedMessage(message, field, i), place, named,
                             found);
            } else if (reflection->HasField(message, field)) {
                find_numbers(reflection->GetMessage(message, field), place, named, found);
            }
        }
    }
}

// The nearest number that the type has.
template <class To>
To as(double value) {
    if constexpr (std::is_floating_point_v<To>) return static_cast<To>(value);
    using Limits = std::numeric_limits<To>;
    if (value <= static_cast<double>(Limits::min())) return Limits::min();
    return value >= static_cast<double>(Limits::max()) ? Limits::max() : static_cast<To>(value);
}

// `change` takes the number that is there and gives the new one.
template <class Change>
void change_number(Message& root, const Place& place, const Change& change) {
    Message* message = &root;
    for (size_t i = 0; i + 1 < place.path.size(); ++i) {
        const auto [field, element] = place.path[i];
        message = element < 0
                      ? message->GetReflection()->MutableMessage(message, field)
                      : message->GetReflection()->MutableRepeatedMessage(message, field, element);
    }
    const auto [field, element] = place.path.back();
    const auto* reflection = message->GetReflection();
#define CLEAVE_NUMBER(kType, Name, Type)                                                     \
    case FieldDescriptor::kType:                                                             \
        if (element < 0)                                                                     \
            reflection->Set##Name(message, field,                                            \
                                  as<Type>(change(reflection->Get##Name(*message, field)))); \
        else                                                                                 \
            reflection->SetRepeated##Name(                                                   \
                message, field, element,                                                     \
                as<Type>(change(reflection->GetRepeated##Name(*message, field, element))));  \
        break;
    switch (field->cpp_type()) {
        CLEAVE_NUMBER(CPPTYPE_INT32, Int32, int32_t)
        CLEAVE_NUMBER(CPPTYPE_UINT32, UInt32, uint32_t)
        CLEAVE_NUMBER(CPPTYPE_INT64, Int64, int64_t)
        CLEAVE_NUMBER(CPPTYPE_UINT64, UInt64, uint64_t)
        CLEAVE_NUMBER(CPPTYPE_DOUBLE, Double, double)
        CLEAVE_NUMBER(CPPTYPE_FLOAT, Float, float)
        CLEAVE_NUMBER(CPPTYPE_BOOL, Bool, bool)
        default: FAIL(field->full_name() << " is of no known kind");
    }
#undef CLEAVE_NUMBER
}

std::string file_of(const pb::Plan& plan) {
    pb::PlanFile file;
    file.set_magic("cleave plan");
    file.set_format_version(planner::Plan::kFormatVersion);
    REQUIRE(plan.SerializeToString(file.mutable_plan()));
    const std::string& bytes = file.plan();
    file.set_digest(Digest().add(std::as_bytes(std::span(bytes.data(), bytes.size()))).hex());
    return file.SerializeAsString();
}

// What is said of it; empty: it was loaded and made tokens. The plan's digest of its graph is made
// right where that is what is said.
std::string outcome(pb::Plan message) {
    const std::regex carries("carries graph ([0-9a-f]{32})");
    for (int attempt = 0;; ++attempt) {
        try {
            planner::Plan plan = planner::parse_plan(file_of(message), "changed.plan");
            planner::verify_plan(plan);
            runtime::Session session(plan, {});
            runtime::GenerateOptions options;
            options.max_new_tokens = 2;
            runtime::generate(session, plan, {{1, 2, 3}}, options);
            return "";
        } catch (const UserError& error) {
            std::smatch digest;
            const std::string what = error.what();
            if (attempt > 0 || !std::regex_search(what, digest, carries)) return what;
            message.set_graph_digest(digest[1]);
        }
    }
}

}  // namespace

TEST_CASE("a plan with any one number changed is refused, or loads and runs", "[e2e]") {
    const std::filesystem::path files = source_root() / "tests/files";
    const auto folder = [&](const char* name) {
        return models::import_folder((files / "families" / name).string());
    };
    const std::vector<std::pair<importer::Graph, size_t>> models{
        {random_model(small_shape(), 7), 3},  // on tp 2 x pp 2
        {folder("llama_int4_zeros"), 1},      // on tp 2
        {folder("llama_gptq"), 0},
        {folder("gemma3"), 2},  // on pp 2
        {models::import_gguf((files / "gguf/smollm3_four.gguf").string()), 0},
    };
    planner::Workload workload;
    workload.batch = 1;
    workload.prompt_tokens = 8;
    workload.context = 16;
    std::mt19937 random(5);
    int64_t tried = 0, refused = 0, ran = 0;
    for (const auto& [graph, shape] : models) {
        pb::PlanFile file;
        REQUIRE(file.ParseFromString(
            planner::serialize_plan(plan_for(graph, device_shapes()[shape], workload))));
        pb::Plan plan;
        REQUIRE(plan.ParseFromString(file.plan()));
        REQUIRE(outcome(plan) == "");
        std::map<std::string, std::vector<Place>> numbers;
        find_numbers(plan, {}, "", numbers);
        REQUIRE(numbers.size() > 150);
        for (const auto& [name, places] : numbers) {
            if (tried++ % kOneOf != 0) continue;
            const Place& place = places[random() % places.size()];
            for (const double factor : {0.0, -1.0, 1.0, 1e9}) {
                pb::Plan changed = plan;
                change_number(changed, place, [&](auto old) {
                    return static_cast<double>(old) * factor + (factor == 1 ? 1 : 0);
                });
                INFO(graph.name << ": " << name << " times " << factor);
                const std::string said = outcome(changed);
                ++(said.empty() ? ran : refused);
            }
        }
    }
    CHECK(refused > cases(1000));
    CHECK(ran > cases(500));
}

}  // namespace cleave::test
