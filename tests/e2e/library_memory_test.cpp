// SPDX-License-Identifier: Apache-2.0
// The memory that a vendor's library takes of its cards, on fakes of both: within what the plan
// keeps for it, before weights are read, and where it lacks with one message and nothing left
// behind.
#include "tests/e2e/fake_library.h"
#include "tests/support/failures.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;
using Catch::Matchers::Contains;
using planner::DeviceKind;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// A fake card and library, whose plan's weights nobody has read yet.
struct LibraryCase {
    InstalledFake cards{DeviceKind::kCuda};
    InstalledLibrary library{cards};
    importer::Graph graph = random_model(small_shape(), 1);
    planner::Plan plan;
    std::string log_at_upload;  // the library's when the first weights went; empty: none went

    LibraryCase() : plan((cards.live(), plan_apart(graph, "cuda[0-1]", 2))) {}

    SessionOptions options() {
        SessionOptions options = checked_options();
        options.compile.gpu_compiler = "simt";
        options.watchdog_seconds = 20;
        options.upload_progress = [this](int64_t, int64_t) {
            if (log_at_upload.empty()) log_at_upload = library.log() + "upload";
        };
        return options;
    }
};

}  // namespace

TEST_CASE("a vendor's library has its memory before weights are read, within what the plan keeps",
          "[e2e]") {
    LibraryCase c;
    c.library.memory(c.cards, 100 * kMiB, 90 * kMiB);
    {
        const Session session(c.plan, c.options());
        CHECK_THAT(c.log_at_upload, Contains("takes 94371840 of 0") &&
                                        Contains("takes 94371840 of 1") &&
                                        Contains("ncclAllReduce") && Contains("ncclRecv"));
        const std::vector<LibraryMemory>& memory = session.library_memory();
        REQUIRE(memory.size() == 2);
        for (size_t d = 0; d < 2; ++d) {
            CHECK(memory[d].device == fmt::format("cuda[{}]", d));
            CHECK(memory[d].library == "NCCL 2.28.9");
            CHECK(memory[d].taken_bytes == 190 * kMiB);
            CHECK(memory[d].reserved_bytes == c.plan.memory[d].collectives);
            CHECK(memory[d].reserved_bytes >= memory[d].taken_bytes);
        }
    }
    CHECK(c.library.calls("ncclCommDestroy") == 2);
    CHECK(c.cards.alive() == 0);
}

TEST_CASE("a vendor's library without memory ends a run before weights are read, and says what",
          "[e2e]") {
    struct Lack {
        int64_t to_open, to_connect, left;
        const char* call;
    };
    for (const Lack& lack : {Lack{400 * kMiB, 0, 330 * kMiB, "ncclCommInitRankConfig"},
                             Lack{10 * kMiB, 400 * kMiB, 330 * kMiB, "ncclAllReduce"},
                             Lack{10 * kMiB, 10 * kMiB, 200 * kMiB, "the driver has"}}) {
        INFO(lack.call);
        LibraryCase c;
        c.library.memory(c.cards, lack.to_open, lack.to_connect);
        const int64_t others = (int64_t{80} << 30) - lack.left;  // another program's, of one card
        REQUIRE(c.cards.take_memory()(1, others) == 0);
        const std::string error = failure_of([&] { Session(c.plan, c.options()); });
        CHECK_THAT(error, Contains("opening NCCL 2.28.9 failed on cuda[1]") &&
                              Contains("the plan keeps 285212672 bytes") &&
                              Contains("bytes free") && Contains(lack.call) &&
                              Contains("NCCL_BUFFSIZE") && Contains("CLEAVE_NCCL_LIBRARY=none"));
        if (lack.left > 300 * kMiB) CHECK_THAT(error, Contains("Cuda failure 2 'out of memory'"));
        CHECK(c.log_at_upload.empty());
        CHECK(c.library.calls("ncclCommAbort") == c.library.calls("ncclCommInitRankConfig"));
        CHECK(c.library.calls("ncclCommDestroy") == 0);
        c.cards.take_memory()(1, -others);
        CHECK(c.cards.alive() == 0);
    }
}

TEST_CASE("a vendor's library that fails for another reason is not told to lack memory", "[e2e]") {
    LibraryCase c;
    c.library.fail("ncclCommInitRankConfig", 2);
    const std::string error = failure_of([&] { Session(c.plan, c.options()); });
    CHECK_THAT(error,
               Contains("ncclCommInitRankConfig failed on cuda[1]") && !Contains("the plan keeps"));
    CHECK(c.log_at_upload.empty());
    CHECK(c.cards.alive() == 0);
}
