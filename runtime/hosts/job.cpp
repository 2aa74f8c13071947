// SPDX-License-Identifier: Apache-2.0
#include "runtime/hosts/job.h"

#include "runtime/base/threads.h"
#include "runtime/hosts/interfaces.h"
#include "runtime/hosts/job_thread.h"

namespace cleave::runtime {

HostJob::HostJob(const cleave_mpi_table& mpi, const JobOptions& options)
    : impl_(std::make_shared<Impl>(mpi, options)) {
    // Apart: MPI may wait for ever, and then the process ends without this thread.
    start_thread([impl = impl_] { impl->serve(); }).detach();
    try {
        meet();
    } catch (const Error& error) {
        leave(error.what());
        throw;
    }
}

// All ranks say who they are.
void HostJob::meet() {
    Impl& job = *impl_;
    {
        Lock lock(job.mutex);
        const Clock::time_point begin = Clock::now(), end = begin + job.options.join;
        bool has_waited = !job.options.waits;
        while (!job.joined && Clock::now() < end) {
            if (job.options.cancel) job.options.cancel->throw_if_cancelled();
            if (!has_waited && Clock::now() >= begin + job.options.patience) {
                has_waited = true;
                lock.unlock();
                job.options.waits();
                lock.lock();
                continue;
            }
            job.changed.wait_for(lock, std::chrono::milliseconds(50));
        }
        if (!job.joined)
            throw UserError(
                "the other processes of this run were not reached within {} s: one of them is "
                "stopped "
                "or has no time to start, or there is no way to it; for that choose the network "
                "that the hosts share, of {} (tools/mpirun --net NETWORK/BITS, or "
                "OMPI_MCA_btl_tcp_if_include=NETWORK/BITS and OMPI_MCA_oob_tcp_if_include, the "
                "same)",
                job.options.join.count(), interface_list());
        if (job.failed) throw UserError("{}", job.failure);
    }
    send_others(Message::kHello, job.host + "\n" + job.options.build);
    std::vector<std::string> found(static_cast<size_t>(job.size), job.host);
    std::string others;
    for (int r = 0; r < job.size; ++r) {
        if (r == job.rank) continue;
        const std::string hello = receive(r, Message::kHello);
        const size_t end = hello.find('\n');
        found[static_cast<size_t>(r)] = hello.substr(0, end);
        if (const std::string build = hello.substr(end + 1); build != job.options.build)
            others += fmt::format("; rank {} ({}) has {}", r, hello.substr(0, end), build);
    }
    if (!others.empty())
        throw UserError(
            "all ranks of a run need one build of Cleave: this one (rank {}, {}) has "
            "{}{}",
            job.rank, job.host, job.options.build, others);
    {
        const Lock lock(job.mutex);
        for (size_t r = 0; r < found.size(); ++r)
            job.hosts.push_back(std::count(found.begin(), found.end(), found[r]) == 1
                                    ? found[r]
                                    : std::to_string(r));
    }
    job.interfaces = gather(interfaces_in_use());
}

HostJob::~HostJob() { leave(); }

int HostJob::rank() const { return impl_->rank; }
int HostJob::size() const { return impl_->size; }
const std::vector<std::string>& HostJob::hosts() const { return impl_->hosts; }
std::string HostJob::name(int rank) const { return impl_->name(rank); }

int HostJob::rank_of(const std::string& host) const {
    for (int r = 0; r < size(); ++r)
        if (impl_->hosts[static_cast<size_t>(r)] == host) return r;
    return -1;
}

std::string HostJob::library() const { return impl_->mpi.library; }
const std::vector<std::string>& HostJob::interfaces() const { return impl_->interfaces; }

void HostJob::send(int to, Message kind, std::string bytes) {
    const Lock lock(impl_->mutex);
    impl_->queue(to, kind, std::move(bytes));
}

void HostJob::send_others(Message kind, const std::string& bytes) {
    for (int r = 0; r < size(); ++r)
        if (r != rank()) send(r, kind, bytes);
}

std::string HostJob::receive(int from, Message kind, const std::function<bool()>& give_up) {
    Impl& job = *impl_;
    Lock lock(job.mutex);
    auto& queue = job.inbox[{from, kind}];
    for (;;) {
        if (!queue.empty()) {
            std::string bytes = std::move(queue.front());
            queue.pop_front();
            return bytes;
        }
        job.throw_if_failed();
        if (job.left[static_cast<size_t>(from)])
            throw HostError(fmt::format("{} has left the run", job.name(from)));
        if (give_up && give_up()) return "";
        // Rank 0 goes on by what it waits for; what others hear from it can wait for their pass.
        const bool goes_on = from != 0;
        if (goes_on && job.looks_rarely) job.asked.notify_one();
        job.awaited += goes_on;
        job.changed.wait_for(lock, std::chrono::milliseconds(50));
        job.awaited -= goes_on;
    }
}

std::vector<std::string> HostJob::gather(std::string part) {
    if (rank() != 0) {
        send(0, Message::kGather, std::move(part));
        return {};
    }
    std::vector<std::string> all{std::move(part)};
    for (int r = 1; r < size(); ++r) all.push_back(receive(r, Message::kGather));
    return all;
}

std::string HostJob::give(std::string of_rank_0) {
    if (rank() != 0) return receive(0, Message::kGiven);
    send_others(Message::kGiven, of_rank_0);
    return of_rank_0;
}

void HostJob::vote(const std::string& objection) {
    std::string all;
    const std::vector<std::string> objections = gather(objection);
    for (size_t r = 0; r < objections.size(); ++r)
        if (!objections[r].empty())
            all += fmt::format("{}{}: {}", all.empty() ? "" : "; ", name(static_cast<int>(r)),
                               objections[r]);
    const std::string said = give(all);
    if (said.empty()) return;
    // Nobody leaves before all have heard it: on the others that would be the run's failure.
    try {
        gather("");
        give("");
    } catch (const HostError&) {
        throw UserError("{}", said);  // a rank has left, so it has heard it
    }
    throw UserError("{}", said);
}

void HostJob::send_payload(int to, int channel, std::span<const std::byte> payload,
                           std::function<void()> done) {
    const Lock lock(impl_->mutex);
    Impl::Order order;
    order.peer = to;
    order.tag = kFirstChannel + channel;
    order.memory = const_cast<std::byte*>(payload.data());  // which MPI reads alone
    order.size = static_cast<int64_t>(payload.size());
    order.done = std::move(done);
    impl_->payload_bytes += order.size;
    impl_->orders.push_back(std::move(order));
    impl_->asked.notify_one();
}

void HostJob::receive_payload(int from, int channel, std::span<std::byte> payload,
                              std::function<void()> done) {
    const Lock lock(impl_->mutex);
    Impl::Order order;
    order.sends = false;
    order.peer = from;
    order.tag = kFirstChannel + channel;
    order.memory = payload.data();
    order.size = static_cast<int64_t>(payload.size());
    order.done = std::move(done);
    impl_->orders.push_back(std::move(order));
    impl_->asked.notify_one();
}

void HostJob::count_progress(const std::atomic<uint64_t>* count) {
    const Lock lock(impl_->mutex);
    impl_->progress = count;
}

void HostJob::watch_passes(const std::atomic<int>* in_pass, int devices) {
    const Lock lock(impl_->mutex);
    impl_->in_pass = in_pass;
    impl_->devices = devices;
}

void HostJob::pass_ended() {
    const Lock lock(impl_->mutex);
    if (impl_->looks_rarely) impl_->asked.notify_one();
}

void HostJob::tell_status(std::function<std::string()> status) {
    const Lock lock(impl_->mutex);
    impl_->status = std::move(status);
}

std::string HostJob::status(int rank) const {
    const Lock lock(impl_->mutex);
    const auto found = impl_->statuses.find(rank);
    return found == impl_->statuses.end() ? "" : found->second;
}

const std::atomic<uint64_t>& HostJob::progress_of_others() const {
    return impl_->progress_of_others;
}

void HostJob::throw_if_failed() const {
    const Lock lock(impl_->mutex);
    impl_->throw_if_failed();
}

std::string HostJob::failure() const {
    const Lock lock(impl_->mutex);
    return impl_->failure;
}

std::string HostJob::why_cancelled() const {
    const auto& why = impl_->options.why_cancelled;
    return why ? why() : "it was interrupted";
}

bool HostJob::has_lost_rank() const {
    const Lock lock(impl_->mutex);
    return impl_->lost_rank;
}

void HostJob::ask_around() {
    const Lock lock(impl_->mutex);
    impl_->ask_around(lock);
}

void HostJob::look_around() {
    Impl& job = *impl_;
    Lock lock(job.mutex);
    if (!job.asked_at || Clock::now() - *job.asked_at > job.options.missed) job.ask_around(lock);
    if (!job.is_under_way()) return;
    const auto answered = [&] { return std::ranges::count(job.answered, false) == 0; };
    job.changed.wait_until(lock, *job.asked_at + job.options.answer,
                           [&] { return answered() || job.failed; });
    job.asked_at.reset();
    if (!job.failed && !answered()) job.lose(lock, job.answered, "has died or cannot be reached");
}

int64_t HostJob::payload_bytes() const { return impl_->payload_bytes; }
int64_t HostJob::message_bytes() const { return impl_->message_bytes; }

// A rank that fails says so, and waits until the others have: the first process that ends with an
// error makes mpirun end all.
void HostJob::leave(const std::string& error, std::chrono::milliseconds patience) {
    Impl& job = *impl_;
    Lock lock(job.mutex);
    if (job.stops || !job.joined || job.ended) return;
    const bool bad = !error.empty() || job.failed, tells = bad && !job.told;
    const std::string why = job.failed ? job.failure : error;
    for (int r = 0; r < job.size; ++r)
        if (r != job.rank)
            job.queue(r, tells ? Message::kFailed : Message::kLeaves, tells ? why : "");
    const auto done = [&] {
        for (int r = 0; tells && r < job.size; ++r)
            if (r != job.rank && !job.left[static_cast<size_t>(r)]) return false;
        return job.all_sent();
    };
    if (bad) job.changed.wait_for(lock, patience, done);
    job.quits = bad;
    job.stops = true;
    job.asked.notify_one();
    job.changed.wait_for(lock, std::chrono::seconds(8), [&] { return job.ended; });
}

}  // namespace cleave::runtime
