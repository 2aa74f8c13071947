// SPDX-License-Identifier: Apache-2.0
// Cards of two hosts that sum by their vendor's library, whose id goes by MPI. Both ranks are in
// this process, on fakes of the driver, the library and MPI.
#include <array>
#include <thread>

#include "planner/verify/verify.h"
#include "tests/e2e/fake_library.h"
#include "tests/runtime/hosts/fake_mpi.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;
using Catch::Matchers::Contains;
using planner::DeviceKind;
using Tokens = std::vector<std::vector<int32_t>>;

namespace {

// The sums of its prompts have 64 KiB and more.
importer::Graph wide_model() {
    models::Shape shape = small_shape();
    shape.config.hidden_size = 2048;
    return random_model(shape, 1);
}

Tokens write(Session& session, const planner::Plan& plan) {
    GenerateOptions generation;
    generation.max_new_tokens = 4;
    Tokens tokens;
    for (auto& sequence :
         generate(session, plan, {{1, 17, 23, 5, 90, 44, 38}, {1, 44}}, generation).sequences)
        tokens.push_back(sequence.token_ids);
    return tokens;
}

struct TwoHosts {
    InstalledFake cards{DeviceKind::kCuda};
    InstalledLibrary library{cards};
    FakeMpi mpi{{"a", "b"}};
    importer::Graph graph = wide_model();
    planner::Plan plan;

    TwoHosts() : plan((cards.live(), plan_of_hosts())) {}

    planner::Plan plan_of_hosts() const {
        planner::Machine machine = machine_at_hand("cuda[0-1]");
        machine.devices[0].host = "a";
        machine.devices[1].host = "b";
        for (planner::Link& link : machine.links)
            if (link.from != link.to)
                link = {link.from, link.to, planner::LinkKind::kNetwork, 1'000'000'000, 20'000};
        planner::PlanOptions options;
        options.tensor_parallel = 2;
        options.pipeline_stages = 1;
        return planner::make_plan(graph, machine, all_logits_workload(2, 32, 32), options);
    }

    // Both ranks run the plan, each on its own card; what rank 0 writes. By rank why it ended.
    Tokens run(std::array<std::string, 2>& why) {
        Tokens tokens;
        std::vector<std::thread> ranks;
        for (int r = 0; r < 2; ++r)
            ranks.emplace_back([&, r] {
                CancelToken cancel;
                JobOptions joins{"one", &cancel};
                joins.silent = std::chrono::minutes(1);
                HostJob job(mpi.table(r), joins);
                planner::Plan mine = plan;
                SessionOptions options = options_for_fakes();
                options.job = &job;
                options.cancel = &cancel;
                options.plan_message = [](const planner::Plan&) { return "this plan"; };
                std::string& end = why[static_cast<size_t>(r)];
                try {
                    Session session(mine, options);
                    if (r == 0)
                        tokens = write(session, mine);
                    else
                        session.follow();
                } catch (const Error& error) {
                    end = job.failure().empty() ? error.what() : job.failure();
                }
                job.leave(end);
            });
        for (std::thread& rank : ranks) rank.join();
        return tokens;
    }
};

}  // namespace

TEST_CASE("cards of two hosts sum by the vendor's library from 64 KiB on, joined by one id",
          "[e2e]") {
    TwoHosts hosts;
    CHECK(planner::find_violations(hosts.plan).empty());
    for (const bool is_prefill : {true, false})
        for (const planner::Step& step : hosts.plan.phase(is_prefill).steps)
            if (const planner::Collective* c = step.collective()) {
                const bool large = is_prefill && c->op == planner::CollectiveOp::kAllReduce;
                CHECK(c->path == (large ? planner::Path::kVendor : planner::Path::kStaged));
            }
    std::array<std::string, 2> why;
    const Tokens tokens = hosts.run(why);
    CHECK(why == std::array<std::string, 2>());
    planner::Plan alone =
        plan_for(hosts.graph, {"host", "host[0]", 1, 1}, all_logits_workload(2, 32, 32));
    Session host(alone, checked_options());
    CHECK(tokens == write(host, alone));
    CHECK(hosts.library.calls("ncclGetUniqueId") == 1);
    CHECK(hosts.library.calls("ncclCommInitRankConfig") == 2);
    CHECK(hosts.library.calls("ncclAllReduce") > 4);  // those of the rehearsal
    CHECK(hosts.library.calls("ncclCommDestroy") == 2);
    CHECK(hosts.library.calls("ncclCommAbort") == 0);
    const std::vector<int64_t> sent = hosts.mpi.payloads(0, 1);
    CHECK(!sent.empty());
    for (int64_t bytes : sent) CHECK(bytes < 64 << 10);
    CHECK(hosts.cards.alive() == 0);
}

TEST_CASE("a vendor's library that fails on one host ends the run on both, with its reason",
          "[e2e]") {
    // When a rank joins, in the rehearsal, in a pass.
    for (const auto& [call, nth] : {std::pair{"ncclCommInitRankConfig", 2},
                                    std::pair{"ncclAllReduce", 2}, std::pair{"ncclAllReduce", 6}}) {
        INFO(call << " " << nth);
        TwoHosts hosts;
        hosts.library.fail(call, nth);
        std::array<std::string, 2> why;
        CHECK(hosts.run(why).empty());
        for (const std::string& end : why)
            CHECK_THAT(end, Contains(std::string(call) + " failed on cuda["));
        CHECK(hosts.library.calls("ncclCommDestroy") == 0);
        CHECK(hosts.cards.alive() == 0);
    }
}

TEST_CASE(
    "cards of several hosts need one version of the vendor's library, and one card has it, too",
    "[e2e]") {
    TwoHosts hosts;
    for (planner::DeviceInfo& device : hosts.plan.machine.devices)
        device.collectives = "NCCL 2.27.1";
    std::array<std::string, 2> why;
    hosts.run(why);
    for (const std::string& end : why)
        CHECK_THAT(end, Contains("made with NCCL 2.27.1") && Contains("is of version 2.28.9 here"));
    CHECK(hosts.library.calls("ncclGetUniqueId") == 0);
    hosts.cards.show(1);
    CHECK(machine_at_hand("cuda[0]").devices[0].collectives.empty());
    const Environment launched("OMPI_COMM_WORLD_SIZE", "2");
    CHECK(machine_at_hand("cuda[0]").devices[0].collectives == "NCCL 2.28.9");
}
