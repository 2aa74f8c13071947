// SPDX-License-Identifier: Apache-2.0
#include "planner/file/plan_file.h"

#include <cmath>
#include <fstream>
#include <random>

#include "planner/file/plan_codec.h"
#include "planner/verify/verify.h"
#include "runtime/base/hash.h"
#include "tests/planner/support/every_field.h"
#include "tests/planner/support/hand_plan.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

namespace pb = cleave::plan::v1;
using namespace planner;

std::vector<Plan> plans() {
    return {hand_plan({{0}}), hand_plan({{0, 1}, {2, 3}}),
            hand_plan({{0, 1, 2}}, {.layers = 3, .o_bias = true})};
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

// A file whose envelope is sound around any bytes.
std::string envelope(const std::string& plan, uint32_t version = Plan::kFormatVersion) {
    pb::PlanFile file;
    file.set_magic("cleave plan");
    file.set_format_version(version);
    file.set_plan(plan);
    file.set_digest(Digest().add(std::as_bytes(std::span(plan.data(), plan.size()))).hex());
    return file.SerializeAsString();
}
std::string payload(const Plan& plan) {
    pb::PlanFile file;
    REQUIRE(file.ParseFromString(serialize_plan(plan)));
    return file.plan();
}

std::string damage(std::string bytes, std::mt19937& random) {
    for (unsigned n = 1 + random() % 4; n > 0 && !bytes.empty(); --n) {
        size_t at = random() % bytes.size();
        switch (random() % 4) {
            case 0: bytes[at] = static_cast<char>(random()); break;
            case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8)); break;
            case 2: bytes.erase(at, 1 + random() % 8); break;
            default: bytes.insert(at, 1 + random() % 4, static_cast<char>(random())); break;
        }
    }
    return bytes;
}

}  // namespace

TEST_CASE("every field of a plan survives its file", "[planner]") {
    for (uint32_t seed = 0; seed < 12; ++seed) {
        Plan plan;
        Filler filler(seed);
        for (uint32_t i = 0; i < seed; ++i) {  // other alternatives of the variants come first
            importer::OpAttrs attrs;
            filler.fill(attrs);
        }
        filler.fill(plan);
        pb::Plan message;
        codec::put(plan, &message);
        Plan again;
        codec::take(message, again);
        CHECK(same(plan, again));
    }
}

TEST_CASE("a plan read back is the plan, and gives the same bytes", "[planner]") {
    for (const Plan& plan : plans()) {
        std::string bytes = serialize_plan(plan);
        Plan again = parse_plan(bytes, "memory");
        CHECK(same(plan, again));
        CHECK(serialize_plan(again) == bytes);
        CHECK(find_violations(again).empty());
    }
}

TEST_CASE("computed weights travel inside the plan, up to a limit", "[planner]") {
    Plan plan = hand_plan({{0}});
    importer::Weight& w = plan.graph.weights[0];
    const auto bytes = static_cast<size_t>(w.packed_bytes());
    plan.graph.blobs.push_back(std::vector<std::byte>(bytes, std::byte{7}));
    w.data = {importer::FileId(), importer::BlobId(0), 0, bytes};
    plan.graph_digest = importer::graph_digest(plan.graph);
    CHECK(same(plan, parse_plan(serialize_plan(plan), "memory")));
    plan.graph.blobs[0].resize((size_t{64} << 20) + 1);
    CHECK(has(user_error([&] { serialize_plan(plan); }), "67108865 bytes of its weights"));
}

TEST_CASE("a plan is saved whole or not at all", "[planner]") {
    TemporaryFolder folder;
    Plan plan = hand_plan({{0}, {1}});
    std::string path = (folder.path() / "a.plan").string();
    save_plan(plan, path);
    save_plan(plan, path);
    CHECK(same(plan, load_plan(path)));
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
    CHECK(has(user_error([&] { save_plan(plan, (folder.path() / "no" / "a.plan").string()); }),
              "cannot be written"));
    Plan odd = plan;
    odd.graph.path = "/models/a\x1b[2Jb/model.onnx";
    const std::string unread = (folder.path() / "unread.plan").string();
    CHECK(has(user_error([&] { save_plan(odd, unread); }),
              "'/models/a?[2Jb/model.onnx' has control characters"));
    CHECK_FALSE(std::filesystem::exists(unread));
    CHECK(has(user_error([&] { save_plan(plan, folder.path().string()); }), "cannot be written"));
    CHECK(has(user_error([&] { load_plan((folder.path() / "b.plan").string()); }),
              "there is no plan to read"));
    CHECK(has(user_error([&] { load_plan(folder.path().string()); }), "there is no plan to read"));
}

TEST_CASE("what is no plan is refused by its name, with the fix", "[planner]") {
    std::string bytes = serialize_plan(hand_plan({{0}}));
    auto refused = [](const std::string& text) {
        return user_error([&] { parse_plan(text, "some.file"); });
    };
    for (const std::string& text :
         {std::string(), std::string("ONNX"), std::string(1000, 'x'), std::string(1000, '\0')}) {
        CHECK(has(refused(text), "some.file is not a plan"));
        CHECK(has(refused(text), "$save_plan"));
    }
    CHECK(has(refused(bytes.substr(0, bytes.size() / 2)), "truncated or damaged"));
    CHECK(has(refused(envelope("", 1)), "format version 1, this cleave reads version 3"));
    std::string flipped = bytes;
    flipped[flipped.size() / 2] ^= 1;
    CHECK(has(refused(flipped), "the plan is damaged"));
    Plan other = hand_plan({{0}});
    other.graph_digest = "0123";
    CHECK(has(refused(serialize_plan(other)), "the plan is of graph 0123"));
}

TEST_CASE("a plan with a number near the ends of 64 bits is refused", "[planner]") {
    for (const int64_t number : {INT64_MAX, INT64_MIN, INT64_MAX / 4}) {
        Plan plan = hand_plan({{0}});
        plan.memory.at(0).capacity = number;
        const std::string bytes = serialize_plan(plan);
        CHECK(has(user_error([&] { parse_plan(bytes, "some.file"); }),
                  "some.file: the plan is damaged: it holds " + std::to_string(number)));
    }
}

TEST_CASE("a plan with a number that is none, or a text of several lines, is refused",
          "[planner]") {
    Plan plan = hand_plan({{0}});
    plan.machine.devices[0].name = "host[0]~cleave: proved";
    std::string forged = payload(plan);  // Cleave writes no such text itself
    REQUIRE(std::ranges::count(forged, '~') > 0);
    std::ranges::replace(forged, '~', '\n');
    CHECK_THAT(user_error([&] { parse_plan(envelope(forged), "x.plan"); }),
               Catch::Contains("x.plan") && Catch::Contains("control characters"));
    plan = hand_plan({{0}});
    for (importer::Op& op : plan.graph.ops)
        if (op.kind == importer::OpKind::kRmsNorm)
            std::get<importer::RmsNormAttrs>(op.attrs).epsilon = std::nan("");
    CHECK_THAT(user_error([&] { parse_plan(serialize_plan(plan), "x.plan"); }),
               Catch::Contains("not finite"));
}

TEST_CASE("a damaged plan is refused or verified, and never crashes", "[planner]") {
    std::mt19937 random(1);
    int parsed = 0, refused = 0;
    for (const Plan& plan : plans()) {
        const std::string bytes = payload(plan), whole = serialize_plan(plan);
        for (int i = 0; i < 400; ++i) {
            // The envelope around damaged bytes is sound: the parser and the verifier see them.
            try {
                Plan damaged = parse_plan(envelope(damage(bytes, random)), "memory");
                find_violations(damaged);
                ++parsed;
            } catch (const UserError&) {
                ++refused;
            }
            std::string broken = damage(whole, random);
            if (broken != whole) CHECK_THROWS_AS(parse_plan(broken, "memory"), UserError);
        }
    }
    CHECK(parsed > 10);
    CHECK(refused > 10);
}

}  // namespace cleave::test
