// SPDX-License-Identifier: Apache-2.0
// The run that this process is one rank of: mpirun starts a process on each host, rank 0 plans and
// the others follow. Two kinds of traffic: messages of any length, which wait at the receiver until
// it asks; and payloads of plan steps, from memory to memory. Of one kind, from one rank to
// another, all arrive in the order in which they were sent.
//
// One thread of the job makes every call to MPI. It never blocks: it tries what is under way, and
// sleeps shortly. Each rank says every second that it lives. One that is silent for 5 s or reports
// an error ends the run: everything is cancelled, and every call throws. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/cancel.h"
#include "runtime/base/errors.h"
#include "runtime/hosts/mpi_table.h"

namespace cleave::runtime {

// Another rank ended the run, or cannot be reached: exit code 1.
class HostError : public Error {
public:
    using Error::Error;
};

enum class Message : uint8_t {
    kAlive,    // and its count of progress, and its status
    kAsk,      // for a sign of life now
    kHello,    // the sender's host and build, when it joins
    kGather,   // its part of a gather, to rank 0
    kGiven,    // what rank 0 gives to all
    kPing,     // of a measurement of links
    kCommand,  // of rank 0: what the others do next
    kPass,     // of rank 0: a batch
    kResult,   // to rank 0: a pass's tokens or logits
    kLibrary,  // the id of a communicator that the receiver's cards join
    kFailed,   // why the sender's run has failed
    kLeaves,   // the last one of a rank
};

struct JobOptions {
    std::string build;                       // all ranks have the same
    CancelToken* cancel = nullptr;           // ends waits; the job sets it where the run has failed
    std::chrono::milliseconds alive{1000};   // between two signs of life
    std::chrono::milliseconds silent{5000};  // a rank that gave none for so long is lost
    std::chrono::seconds join{60};           // all ranks have joined
    std::chrono::milliseconds answer{300};   // of a rank that is asked for a sign of life
    std::chrono::milliseconds missed{2000};  // a rank that gave none for so long is not asked
    std::chrono::milliseconds patience{5000};  // of joining, before waits() is called
    std::chrono::microseconds rarest{10'000};  // between two looks at MPI (watch_passes)
    // Once, on the thread that makes the job; may be empty.
    std::function<void()> waits = nullptr;
    // What the others hear where `cancel` ends this rank; empty: that it was interrupted.
    std::function<std::string()> why_cancelled = nullptr;
    // Once, where the run has failed, on the thread that finds out and has the job's lock: must not
    // wait, or ask the job. May be empty.
    std::function<void()> failed = nullptr;
};

class HostJob {
public:
    // Joins; waits for all ranks. UserError where they cannot be reached or are of another build.
    // `mpi` must outlive the job.
    HostJob(const cleave_mpi_table& mpi, const JobOptions& options);
    // Leaves, as after leave(), if that was not done.
    ~HostJob();
    HostJob(const HostJob&) = delete;
    HostJob& operator=(const HostJob&) = delete;

    int rank() const;
    int size() const;
    // By rank: its host's name, or the rank's number where several ranks have that name.
    const std::vector<std::string>& hosts() const;
    // "rank 1 (b)".
    std::string name(int rank) const;
    // The rank that runs devices of `host`, or -1.
    int rank_of(const std::string& host) const;
    // Of MPI: "Open MPI v4.1.4".
    std::string library() const;
    // On rank 0, by rank: the network's interfaces that it has connections over, with their rates;
    // elsewhere nothing.
    const std::vector<std::string>& interfaces() const;

    void send(int to, Message kind, std::string bytes);
    void send_others(Message kind, const std::string& bytes);
    // The oldest of that kind that was not received; waits. `give_up`, if any, is asked now and
    // then: true ends the wait with an empty message.
    std::string receive(int from, Message kind, const std::function<bool()>& give_up = {});

    // Every rank calls these, with its own part. At rank 0 everybody's, by rank; elsewhere nothing.
    std::vector<std::string> gather(std::string part);
    // What rank 0 has.
    std::string give(std::string of_rank_0);
    // UserError on every rank that names each rank with an objection; none where nobody has any.
    void vote(const std::string& objection);

    // A payload of a plan step. The memory stays as it is until `done`, which the job's thread
    // calls: it must not throw or wait. A payload of another length than the receiver has room for
    // ends the run.
    void send_payload(int to, int channel, std::span<const std::byte> payload,
                      std::function<void()> done);
    void receive_payload(int from, int channel, std::span<std::byte> payload,
                         std::function<void()> done);

    // The count that tells the others that this rank is not stuck; null: none any more.
    void count_progress(const std::atomic<uint64_t>* count);
    // How many of the `devices` here are in a pass: looks at MPI are rare while some are and none
    // waits for a payload, and rarest while all are, nothing is being sent and rank 0 waits for no
    // message. No devices: never rarest. Null: none any more.
    void watch_passes(const std::atomic<int>* in_pass, int devices);
    // That count has fallen.
    void pass_ended();
    // What the others get to know of this rank with its next sign of life, asked for then, by the
    // job's thread; must not wait. Null: nothing any more.
    void tell_status(std::function<std::string()> status);
    // What that rank told last; empty: nothing yet.
    std::string status(int rank) const;
    // Grows when a count of another rank has.
    const std::atomic<uint64_t>& progress_of_others() const;

    // HostError once the run has failed, Cancelled once the user interrupted.
    void throw_if_failed() const;
    // Why the run has failed, as this rank knows it; empty: it has not.
    std::string failure() const;

    // What leave() tells the others where this rank was cancelled (JobOptions::why_cancelled).
    std::string why_cancelled() const;

    // Whether a rank that gave no sign of life is why the run has failed.
    bool has_lost_rank() const;

    // Of a rank that mpirun is about to end, as it does with all once one has died. One that has
    // missed its signs of life (JobOptions::missed) becomes the run's failure; the others are asked
    // for one. Does not wait.
    void ask_around();
    // Of a rank that mpirun ends: the same, and one that has not answered in time
    // (JobOptions::answer, from ask_around() on if that was just called) becomes the run's failure.
    // Ranks that are ended with this one answer, too.
    void look_around();

    // Bytes that this rank sent: payloads of steps, and all other messages.
    int64_t payload_bytes() const;
    int64_t message_bytes() const;

    // Ends this rank's part: after its work, when it waits for the others, or for the reason
    // `error`, which every other rank then has for its own end: those have `patience` to say it.
    // Returns within 10 s, and MPI touches no memory any more. After an error the process has to
    // end with a code that is not 0: that makes mpirun end those that cannot.
    void leave(const std::string& error = "",
               std::chrono::milliseconds patience = std::chrono::seconds(2));

private:
    struct Impl;
    void meet();
    std::shared_ptr<Impl> impl_;
};

// Whether mpirun or a launcher like it started this process.
bool is_launched_by_mpi();

// UserError where the launcher started another number of processes than `job` has ranks: each would
// do all the work, unaware of the others.
void demand_all_processes(const HostJob& job);

// The table of libcleave_mpi, opened once. UserError with the reason where it cannot be.
const cleave_mpi_table& open_mpi();

}  // namespace cleave::runtime
