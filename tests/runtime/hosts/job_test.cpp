// SPDX-License-Identifier: Apache-2.0
#include "runtime/hosts/job.h"

#include <atomic>
#include <functional>
#include <thread>

#include "tests/runtime/hosts/fake_mpi.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using Catch::Matchers::Contains;
using cleave::test::FakeMpi;

namespace {

using Words = std::vector<std::string>;

// Nobody takes a rank for lost that only waits for a core, but where a rank shall be lost.
constexpr std::chrono::minutes kNever{10};
constexpr std::chrono::seconds kSoon{3};

JobOptions options_of(const std::string& build, std::chrono::milliseconds silent = kNever,
                      CancelToken* cancel = nullptr) {
    return {.build = build,
            .cancel = cancel,
            .alive = std::chrono::milliseconds(5),
            .silent = silent,
            .join = kNever,
            .answer = kSoon,
            .missed = kNever,
            .rarest = kNever};
}

// Does `work` as every rank of a run, each on a thread; by rank what it threw.
Words as_ranks(FakeMpi& mpi, int ranks, const std::function<void(HostJob&)>& work,
               std::chrono::milliseconds silent = kNever, const Words& builds = {}) {
    Words errors(static_cast<size_t>(ranks));
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r)
        threads.emplace_back([&, r] {
            const auto at = static_cast<size_t>(r);
            try {
                HostJob job(mpi.table(r), options_of(builds.empty() ? "one" : builds[at], silent));
                try {
                    work(job);
                } catch (const Error& error) {
                    errors[at] = error.what();
                }
                job.leave(errors[at]);
            } catch (const Error& error) {
                errors[at] = error.what();
            }
        });
    for (std::thread& thread : threads) thread.join();
    return errors;
}

}  // namespace

TEST_CASE("messages of a kind and payloads of a channel arrive in the order of sending",
          "[runtime]") {
    FakeMpi mpi({"a", "b"});
    Words got;
    std::vector<int> numbers(20, -1);
    std::atomic<bool> named{false};
    const Words errors = as_ranks(mpi, 2, [&](HostJob& job) {
        std::atomic<int> left = 20;
        std::vector<int> payloads(20);
        for (size_t i = 0; i < 20; ++i) {
            payloads[i] = static_cast<int>(i);
            const std::span<int> one(&(job.rank() == 0 ? payloads : numbers)[i], 1);
            if (job.rank() == 0) {
                job.send(1, i % 2 ? Message::kPass : Message::kResult, std::to_string(i));
                job.send_payload(1, 3, std::as_bytes(one), [&] { --left; });
            } else {
                job.receive_payload(0, 3, std::as_writable_bytes(one), [&] { --left; });
            }
        }
        for (int i = 1; job.rank() == 1 && i < 20; i += 2) {
            const std::string odd = job.receive(0, Message::kPass);
            got.push_back(odd + " " + job.receive(0, Message::kResult));
        }
        while (left > 0) job.throw_if_failed();
        if (job.name(1) == "rank 1 (b)" && job.rank_of("b") == 1 && job.rank_of("c") == -1 &&
            job.payload_bytes() == (job.rank() == 0 ? 80 : 0))
            named = true;
    });
    CHECK(errors == Words(2));
    CHECK(named);
    REQUIRE(got.size() == 10);
    CHECK(got[0] == "1 0");
    CHECK(got[9] == "19 18");
    for (size_t i = 0; i < 20; ++i) CHECK(numbers[i] == static_cast<int>(i));
    CHECK(mpi.payloads(0, 1) == std::vector<int64_t>(20, 4));
}

TEST_CASE("what one rank objects to is said on all, by name", "[runtime]") {
    FakeMpi mpi({"a", "b", "c"});
    mpi.slow(0, 2);  // rank 2 hears from rank 0 after rank 1 has left
    Words gathered;
    const Words errors = as_ranks(mpi, 3, [&](HostJob& job) {
        const Words all = job.gather(std::to_string(job.rank()));
        if (job.rank() == 0) gathered = all;
        if (job.give(job.rank() == 0 ? "plan" : "") != "plan") throw InternalError("no plan");
        job.vote("");
        job.vote(job.rank() == 1 ? "it does not fit" : "");
    });
    CHECK(gathered == Words{"0", "1", "2"});
    for (const std::string& error : errors) CHECK(error == "rank 1 (b): it does not fit");
}

TEST_CASE("ranks of one host go by their numbers, and ranks of two builds do not meet",
          "[runtime]") {
    FakeMpi mpi({"a", "a", "b"});
    Words hosts;
    CHECK(as_ranks(mpi, 3, [&](HostJob& job) {
              if (job.rank() == 1) hosts = job.hosts();
          }) == Words(3));
    CHECK(hosts == Words{"0", "1", "b"});
    FakeMpi other({"a", "b"});
    for (const std::string& error : as_ranks(other, 2, [](HostJob&) {}, kNever, {"one", "two"}))
        CHECK_THAT(error, Contains("need one build of Cleave"));
}

TEST_CASE("a rank that is silent, fails or sends another length than a step's ends all ranks' run",
          "[runtime]") {
    struct Case {
        std::function<void(FakeMpi&, HostJob&)> of_rank_1;
        const char* said;  // on ranks 0 and 2
    };
    const Case cases[] = {
        {[](FakeMpi& mpi, HostJob& job) {
             mpi.cut(1);
             job.receive(0, Message::kPass);
         },
         "rank 1 (b) gave no sign of life"},
        {[](FakeMpi&, HostJob&) { throw UserError("{}", "its disk is full"); },
         "rank 1 (b) ended: its disk is full"},
        {[](FakeMpi&, HostJob& job) {
             const std::byte bytes[3]{};
             job.send_payload(0, 0, bytes, [] {});
             job.receive(0, Message::kPass);
         },
         "rank 1 (b) sent 3 bytes for a step that takes 4"},
    };
    for (const Case& c : cases) {
        FakeMpi mpi({"a", "b", "c"});
        std::byte room[4];
        const Words errors = as_ranks(
            mpi, 3,
            [&](HostJob& job) {
                job.vote("");  // all have met, and know one another's names
                if (job.rank() == 1) return c.of_rank_1(mpi, job);
                if (job.rank() == 0) job.receive_payload(1, 0, room, [] {});
                job.receive(1, Message::kPass);
            },
            kSoon);
        CHECK_THAT(errors[0], Contains(c.said));
        CHECK_THAT(errors[2], Contains(c.said));
        CHECK(!errors[1].empty());
    }
}

TEST_CASE("an error of MPI is said with the rank that was to be reached", "[runtime]") {
    FakeMpi mpi({"a", "b"});
    const Words errors = as_ranks(
        mpi, 2,
        [&](HostJob& job) {
            if (job.rank() == 0) mpi.fail_sends(0, 7);
            job.receive(1 - job.rank(), Message::kPass);
        },
        kSoon);
    CHECK_THAT(errors[0], Contains("could not be sent to rank 1 (b): error 7"));
    CHECK_THAT(errors[1], Contains("rank 0 (a) gave no sign of life"));
}

TEST_CASE("MPI that would end the process tells why, and is not come back to", "[runtime]") {
    FakeMpi mpi({"a", "b"});
    const Words errors = as_ranks(
        mpi, 2,
        [&](HostJob& job) {
            job.vote("");
            if (job.rank() == 0) mpi.end(0);
            job.receive(1 - job.rank(), Message::kPass);
        },
        kSoon);
    CHECK_THAT(errors[0], Contains("the connection to rank 1 (b) broke"));
    CHECK_THAT(errors[1], Contains("rank 0 (a) gave no sign of life"));
}

TEST_CASE("ranks that mpirun ends find out which one of them has died", "[runtime]") {
    FakeMpi mpi({"a", "b", "c"});
    const Words errors = as_ranks(
        mpi, 3,
        [&](HostJob& job) {
            job.vote("");
            job.look_around();  // all live
            job.throw_if_failed();
            job.vote("");
            if (job.rank() == 1) {
                mpi.cut(1);
            } else {
                job.look_around();
                job.throw_if_failed();
            }
            job.receive(0, Message::kPass);
        },
        kSoon);
    for (const size_t r : {0, 2})
        CHECK_THAT(errors[r], Contains("rank 1 (b) has died or cannot be reached") ||
                                  Contains("rank 1 (b) gave no sign of life"));
}

TEST_CASE("a rank that mpirun is about to end does not wait for one that missed its signs of life",
          "[runtime]") {
    FakeMpi mpi({"a", "b"});
    std::atomic<bool> cut{false};
    std::string of_rank_1;
    std::thread other([&] {
        HostJob job(mpi.table(1), options_of("one"));
        job.vote("");
        mpi.cut(1);
        cut = true;
        try {
            job.receive(0, Message::kPass);
        } catch (const HostError& error) {
            of_rank_1 = error.what();
        }
    });
    {
        JobOptions options = options_of("one");
        options.missed = std::chrono::milliseconds(50);
        HostJob job(mpi.table(0), options);
        job.vote("");
        while (!cut) std::this_thread::yield();
        // What it had sent before may still come.
        while (job.failure().empty()) {
            std::this_thread::sleep_for(options.missed);
            job.ask_around();
        }
        CHECK(job.failure() ==
              "rank 1 (b) gave no sign of life for 0 s or longer, and mpirun ends this rank");
        CHECK(job.has_lost_rank());
    }
    other.join();
    CHECK_THAT(of_rank_1, Contains("rank 0 (a) ended"));
}

TEST_CASE("what a rank tells of itself comes with its signs of life", "[runtime]") {
    FakeMpi mpi({"a", "b"});
    const Words errors = as_ranks(mpi, 2, [&](HostJob& job) {
        job.vote("");
        if (job.rank() == 1) job.tell_status([] { return std::string("a status\0of bytes", 17); });
        while (job.rank() == 0 && job.status(1) != std::string("a status\0of bytes", 17))
            job.throw_if_failed();
        job.vote("");
    });
    CHECK(errors == Words(2));
}

TEST_CASE("a rank whose devices all compute looks again when a pass ends, and rank 0 when it waits",
          "[runtime]") {
    FakeMpi mpi({"a", "b"});
    std::atomic<int> in_pass[2]{1, 1};
    std::atomic<bool> is_asleep{false};
    const Words errors = as_ranks(mpi, 2, [&](HostJob& job) {
        // It would look again in ten minutes.
        const auto sleeps = [&] {
            for (int64_t looks = -1; looks != mpi.looks(job.rank());) {
                looks = mpi.looks(job.rank());
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
            }
        };
        job.vote("");
        job.watch_passes(&in_pass[job.rank()], 1);
        if (job.rank() == 1) {
            sleeps();
            is_asleep = true;
            in_pass[1] = 0;
            job.pass_ended();
            job.send(0, Message::kResult, job.receive(0, Message::kPass));
        } else {
            while (!is_asleep) std::this_thread::yield();
            job.send(1, Message::kPass, "a pass");
            sleeps();
            if (job.receive(1, Message::kResult) != "a pass") throw InternalError("another result");
        }
        job.watch_passes(nullptr, 0);
    });
    CHECK(errors == Words(2));
}

TEST_CASE("a failed run cancels what the process does", "[runtime]") {
    FakeMpi mpi({"a", "b"});
    CancelToken token;
    std::atomic<bool> joined{false};  // before, the other rank has no name
    std::thread fails([&] {
        HostJob job(mpi.table(1), options_of("one"));
        while (!joined) std::this_thread::yield();
        job.leave("no");
    });
    HostJob job(mpi.table(0), options_of("one", kNever, &token));
    joined = true;
    while (!token.cancelled()) std::this_thread::yield();
    CHECK(job.failure() == "rank 1 (b) ended: no");
    job.leave();
    fails.join();
}

TEST_CASE("a rank says once that it waits for others, and is refused with what helps",
          "[runtime]") {
    FakeMpi& mpi = *new FakeMpi({"a", "b"});  // its thread waits in there for ever
    mpi.never_join();
    JobOptions options = options_of("one");
    options.join = std::chrono::seconds(1);
    options.patience = std::chrono::milliseconds(1);
    int waits = 0;
    options.waits = [&] { ++waits; };
    CHECK_THAT(cleave::test::user_error([&] { const HostJob job(mpi.table(0), options); }),
               Contains("not reached within 1 s") && Contains("tools/mpirun --net"));
    CHECK(waits == 1);
    // Nobody waits where all have come.
    FakeMpi other({"a"});
    options.patience = std::chrono::minutes(1);
    HostJob(other.table(0), options).leave();
    CHECK(waits == 1);
}
